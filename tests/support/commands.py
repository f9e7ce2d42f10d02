"""Run commands of the command line in this process."""

from polyleaf.cli.main import run


def polyleaf(*arguments):
    """Run a command that has to work."""
    assert run([str(argument) for argument in arguments]) == 0


def fails(capsys, *arguments):
    """Run a command that has to fail; returns its one sentence."""
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
