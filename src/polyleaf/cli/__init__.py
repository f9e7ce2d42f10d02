"""The command line, `polyleaf` and `python -m polyleaf`; it needs the extra ``polyleaf[cli]``."""

from __future__ import annotations

import sys

_PACKAGES = ("typer", "rich", "click")


def main() -> None:
    """Run the command line and exit with its code: 0, 2 for an error, 130 for Ctrl-C."""
    try:
        from polyleaf.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        print(
            f'polyleaf: the command line needs {error.name}: pip install "polyleaf[cli]". The '
            "Python library works without it.",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # during imports
        print("polyleaf: interrupted.", file=sys.stderr)
        sys.exit(130)
    run()
