"""The command line. Owns the way in: where its packages are not installed, it says which they are."""

from __future__ import annotations

import sys

_PACKAGES = ("typer", "rich", "click")


def main() -> None:
    """Run the command line and leave with its exit code: 0, 2 for an error, 130 for Ctrl-C."""
    try:
        from polyleaf.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        print(
            f'polyleaf: the command line needs {error.name}: pip install "polyleaf[cli]". (The library works '
            "without.)",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # while packages are read
        print("polyleaf: interrupted.", file=sys.stderr)
        sys.exit(130)
    run()
