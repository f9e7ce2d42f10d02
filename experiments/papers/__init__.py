"""Studies of papers, one module per paper, declared like the paper's tables.

To add a study, write a module here with a `PAPER`; no other file needs a change:

    def accuracy(context, method, problem):  # called once for each method and problem
        ...
        return {"accuracy": [0.91, 0.92, 0.90], "seconds": 3.1}

    PAPER = Paper(__name__, "TFBT", "Ponomareva et al., ...", (
        Table(
            "Table II", "Accuracy",
            (Subject("MNIST", "accuracy", "higher", 3, "mnist", "accuracy", needs=("mnist",)),),
            accuracy, "What the protocol is.",
            paper='''
                          MNIST
                TFBT      0.960
                XGBoost   0.956
            ''',
            ours=("TFBT",),                               # compared with the paper's figure
            also=("LightGBM",),                           # methods that are not in the paper
            explained={("TFBT", "MNIST"): "..."},
        ),
    ))

A run returns numbers, or lists with one number per repeat (shown as mean and standard deviation).
It raises `Unavailable` if a library is not installed. `context` provides the data
(`load`), the seeds of the repeats (`seeds`), and `rounds` and `rows`, which reduce the requested
numbers in a quick run.
"""

from __future__ import annotations

import pkgutil

from ..harness.paper import Paper, find


def all_papers() -> dict[str, Paper]:
    """Return every paper by its name on the command line."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    return {name: find(f"{__name__}.{name}") for name in names}
