"""Run programs once for each instruction set of this CPU, each in a subprocess."""

import os
import subprocess
import sys

from polyleaf import _core


def run_on_each_isa(program):
    """What a program prints, which may import what tests may: one text for each set."""
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
