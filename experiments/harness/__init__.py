"""Common code of all studies: declaration, execution, storage and display of tables.

    paper.py    declarations: Paper, Table, Figure, Subject
    store.py    finished runs in a file of JSON lines
    context.py  arguments of a run: data, rounds, repeats
    runner.py   execution of the missing runs
    verdict.py  comparison of our figure with the paper's
    worker.py   one run in a new process
    tables.py   cells as text
    plots.py    figures as images

A study is declared in experiments/papers/ (see its `__init__.py` for how to add one).
"""
