"""Repeats of papers and comparisons with other libraries: see README.md."""
