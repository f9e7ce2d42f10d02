"""Helpers that run commands of the command line in this process."""

import shlex

from polyleaf.cli.main import run


def run_command(command, *arguments):
    """Run a command as typed in a shell, with further arguments, and return its exit code."""
    return run([*shlex.split(str(command)), *map(str, arguments)])


def polyleaf(command, *arguments):
    """Run a command that must succeed."""
    assert run_command(command, *arguments) == 0


def fails(capsys, command, *arguments):
    """Run a command that must fail, and return its one-sentence message."""
    capsys.readouterr()
    assert run_command(command, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("polyleaf: ")
    assert printed.err.count("\n") == 1 and "Traceback" not in printed.err
    return printed.err
