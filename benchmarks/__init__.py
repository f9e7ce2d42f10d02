"""Benchmarks of Polyleaf and other libraries: `python -m benchmarks --help`.

The package is not installed, and no test depends on timings. See docs/benchmarks/index.md.

    __main__.py   command line
    cases.py      declarations of the compared libraries and settings
    problems.py   data of the cases
    sets.py       real data sets
    libraries.py  common interface of the libraries
    worker.py     one measurement in a new process
    peers.py      execution of the cases, with the libraries interleaved
    kernels.py    times of the parts of the core
    scores.py     score of each task
    report.py     figures, tables and result files
    memory.py     memory of a process
    compare.py    comparison of two result files
    processes.py  execution in a new process
    results.py    page with all results
    papers/       one module per paper
    harness/      common code of the studies
"""
