"""`scripts/check_gpu` compares models before it measures, and stops if they differ.

The programs that it calls are replaced, so no GPU is needed.
"""

import os
import subprocess

import pytest
from support import ROOT


@pytest.fixture
def called(tmp_path):
    """Run it and return the exit code and the calls; the call with the word `fails` fails."""

    def run(fails="nothing"):
        log = tmp_path / "log"
        log.write_text("")
        for program in ("python", "nvidia-smi", "compute-sanitizer"):
            file = tmp_path / program
            file.write_text(
                f'#!/bin/sh\necho "{program} $*" >>{log}\ncase "$*" in *{fails}*) exit 3;; esac\n'
            )
            file.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = [ROOT / "scripts" / "check_gpu", tmp_path / "out"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.returncode, log.read_text().splitlines()

    return run


def test_golden_file_is_checked_before_speed(called):
    code, calls = called()
    assert code == 0
    assert (
        "golden.py --check --device cuda" in calls[1] and "experiments gpu --repeats 3" in calls[-1]
    )
    assert [call.split()[2] for call in calls if call.startswith("compute")] == [
        "memcheck",
        "racecheck",
    ]


@pytest.mark.parametrize("fails", ["golden.py", "pytest", "racecheck"])
def test_nothing_is_measured_after_a_failure(called, fails):
    code, calls = called(fails)
    assert code == 3 and fails in calls[-1]


def test_test_files_of_the_script_exist(called):
    named = next(call for call in called()[1] if "pytest" in call).split()
    files = [word.split("::")[0] for word in named if word.startswith("tests/")]
    assert len(files) == 4 and all((ROOT / file).is_file() for file in files)
