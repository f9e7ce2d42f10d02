"""``python -m polyleaf``: the command line where the script ``polyleaf`` is not on the path."""

from polyleaf.cli import main

main()
