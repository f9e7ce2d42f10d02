"""Helpers that run commands of the command line in this process."""

from polyleaf.cli.main import run


def polyleaf(*arguments):
    """Run a command that must succeed."""
    assert run([str(argument) for argument in arguments]) == 0


def fails(capsys, *arguments):
    """Run a command that must fail, and return its one-sentence message."""
    capsys.readouterr()
    assert run([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (
        printed.err.startswith("polyleaf: ")
        and printed.err.count("\n") == 1
        and "Traceback" not in printed.err
    )
    return printed.err
