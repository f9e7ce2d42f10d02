"""Programs that measure Polyleaf beside its peers: `python -m benchmarks --help`, from the
repository root.

Not installed, and no test depends on what the clock says. See docs/benchmarks.md.

    __main__.py   the command line             libraries.py  one small class per library, the same
    verbs cases.py      what is compared with what   worker.py     one measurement, in a process of
    its own problems.py   the data of the cases        peers.py      runs the cases, libraries in
    turn sets.py       real data sets               kernels.py    times the parts of the core
    scores.py     the score of each task       report.py     figures, tables, result files memory.py
    the memory of this process   compare.py    two result files processes.py  a process of its own
    results.py    one page of all results papers/       one module a paper           frame/
    what these have in common
"""
