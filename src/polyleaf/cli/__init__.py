"""The command line, `polyleaf` and `python -m polyleaf`; it needs the extra ``polyleaf[cli]``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code: 0, 2 for an error, 130 for Ctrl-C."""
    try:
        from polyleaf.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyarrow"):
            raise
        print(f'polyleaf: it needs {error.name}: pip install "polyleaf[cli]".', file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # during imports
        print("polyleaf: interrupted.", file=sys.stderr)
        sys.exit(130)
