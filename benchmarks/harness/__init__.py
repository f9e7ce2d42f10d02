"""What every study has in common: how tables are declared, run, kept and shown.

    paper.py    Paper, Table, Figure, Subject: a declaration   store.py   finished runs, a file of
    JSON lines context.py  what a run is handed: data, rounds, repeats    runner.py  does the runs
    that are missing verdict.py  our figure against the paper's                 worker.py  one run,
    in its own process tables.py   cells as text                                  plots.py   figures
    as images

A study is declared in benchmarks/papers/ (see its `__init__.py` for how to add one).
"""
