"""F1 of multi-label decisions at threshold 0.5 and at a threshold that maximises F1.

The calls of the libraries are defined in `defaults`.
"""

from __future__ import annotations

import numpy as np

from . import defaults
from .harness.context import Context, Unavailable
from .harness.paper import Figures, Paper, Subject, Table
from .libraries import is_installed

SETS = "birds cal500 corel5k emotions enron imdb medical scene yeast_ml".split()
MOST_ROWS = 4_000  # for training and for choosing the threshold
LIMIT = 10.0  # limit of a fit in seconds of processor time


def deciding(context: Context, method: str, problem: str) -> Figures:
    """Return F1 at threshold 0.5 and at the best threshold on held-out rows.

    Figures: `micro` (over all cells) and `macro` (mean over labels) at 0.5, `chosen_micro` and
    `chosen_macro` at the chosen threshold, and that `threshold`.
    """
    if not is_installed(method.lower()):
        raise Unavailable(f"{method} is not installed")
    X, Y, X_test, Y_test = next(defaults.parts(context, context.load(problem)))
    X, Y = X[:MOST_ROWS], Y[:MOST_ROWS]
    limit = LIMIT / (20 if context.quick else 1)
    fit = defaults.LIBRARIES[method]
    threshold, predict = defaults.chosen_threshold(fit, X, Y, context.threads, limit)
    p = np.asarray(predict(X_test), np.float64)
    figures: Figures = {"threshold": [threshold]}
    for name, t in (("", 0.5), ("chosen_", threshold)):
        micro, macro = defaults.f1(Y_test, p > t)
        figures[f"{name}micro"], figures[f"{name}macro"] = [micro], [macro]
    return figures


_PROTOCOL = (
    "No setting of any library, as in Default settings, and its first split; a fit may take "
    f"{LIMIT:.0f} s of processor time. At most {MOST_ROWS:,} rows, of which a quarter is held out; "
    "the threshold is that of the largest F1 over all cells of these, one for all labels, by the "
    "same rule "
    "for every library. Both F1 are of the same model, trained on the other three quarters. "
    "CatBoost, whose "
    "own number of rounds is 1000, has seldom time for many."
)
_FIGURES = {
    "micro": "test F1 over all cells, a label holds above one half",
    "chosen_micro": "test F1 over all cells, a label holds above the threshold that was chosen",
    "macro": "test F1, mean over labels, above one half",
    "chosen_macro": "test F1, mean over labels, above the threshold that was chosen",
}


def _table(figure: str) -> Table:
    return Table(
        figure,
        _FIGURES[figure],
        tuple(Subject(name, "F1", "higher", 3, name, figure, needs=(name,)) for name in SETS),
        deciding,
        _PROTOCOL,
        also=tuple(defaults.LIBRARIES),
        ours=("Polyleaf",),
        subjects_are="rows",
        ranks=True,
    )


PAPER = Paper(
    __name__,
    "Decision thresholds",
    "F1 of labels at one half, and at one threshold for all labels that rows held out choose.",
    tuple(_table(figure) for figure in _FIGURES),
    golden=("defaults, labels",),
)
