"""Execution of programs once per instruction set of this CPU, each in a subprocess."""

import os
import subprocess
import sys

from polyleaf import _core


def run_on_each_isa(program):
    """Return the output of a program for each set; the program may import test modules."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    return [
        subprocess.run(
            command,
            env={**environment, "POLYLEAF_ISA": isa},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for isa in _core.available_isas()
    ]
