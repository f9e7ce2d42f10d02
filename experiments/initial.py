"""Labels: trees alone, a linear one-vs-rest model alone, and trees on top of it (`init`)."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from . import sets
from .harness.context import Context
from .harness.paper import Figures, Paper, Table, make_subjects, make_table

MOST_ROWS = 20_000  # for training


class Setting(NamedTuple):
    """Settings of one set: rounds, and the inverse regularisation of logistic regressions; None
    stands for ridge regression and the preset for sparse labels."""

    rounds: int
    C: float | None


SETTINGS = {
    "medical": Setting(100, 1.0),
    "imdb": Setting(100, 1.0),
    "ohsumed": Setting(200, 0.1),
    "rcv1_subset1": Setting(60, 1.0),
    "delicious": Setting(100, None),
}
METHODS = ("trees", "linear", "both")
PLACES = (1, 3, 5)


def labels(context: Context, method: str, problem: str) -> Figures:
    """Return the precision at 1, 3 and 5 on the test rows, and the seconds of processor time."""
    from polyleaf import PolyleafClassifier, presets
    from polyleaf.metrics.ranking import ranking_scores

    data, setting = sets.load_labelled(context.data, problem), SETTINGS[problem]
    (X, Y), (X_test, Y_test) = data.part(0), data.part(1)
    n_rows = context.rows(min(X.shape[0], MOST_ROWS))
    X, Y = X[:n_rows], Y[:n_rows]
    n_rounds = context.rounds(setting.rounds) if method != "linear" else 1
    parameters: dict[str, Any] = {"n_estimators": n_rounds, "n_jobs": context.threads}
    if setting.C is None:
        none = {"projection": None, "projection_dim": None, "tfidf": False}
        parameters = presets.gbdt_sparse() | none | parameters
    else:
        X, X_test, Y = sp.csr_matrix(X), sp.csr_matrix(X_test), Y.toarray().astype(np.int64)
    begun = time.process_time()
    init = None if method == "trees" else _make_linear(setting)
    model = PolyleafClassifier(init=init, **parameters).fit(X, Y)
    seconds = time.process_time() - begun
    if method == "linear":
        begun = time.process_time()
        _make_linear(setting).fit(X, Y.toarray() if sp.issparse(Y) else Y)
        seconds = time.process_time() - begun
        scores = model.model_.initial.scores(X_test)
        best = scores.toarray() if sp.issparse(scores) else scores
    else:
        best = model.predict_topk(X_test, max(PLACES))
    found = ranking_scores(Y_test, best, ks=PLACES)
    return {f"P@{k}": found[f"P@{k}"] for k in PLACES} | {"seconds": seconds}


def _make_linear(setting: Setting) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.multiclass import OneVsRestClassifier

    if setting.C is None:
        return RidgeClassifier(alpha=10.0)
    return OneVsRestClassifier(LogisticRegression(solver="liblinear", C=setting.C))


_PROTOCOL = (
    f"The sets' own split, or a random fifth for testing; at most {MOST_ROWS:,} training "
    "rows. Trees: default settings and the same number of rounds with and without the linear "
    "model; Delicious, of 983 labels, by the preset gbdt_sparse. Linear models: logistic "
    "regressions one-vs-rest, ridge regression for Delicious; labels that no training row "
    "has are ranked last."
)


def _table(k: int) -> Table:
    subjects = make_subjects(SETTINGS, f"P@{k}", "higher", 4, f"P@{k}")
    title = f"precision at {k} on the test rows"
    return make_table(f"P@{k}", title, subjects, labels, _PROTOCOL, METHODS, ("both",))


PAPER = Paper(
    __name__,
    "Initial models",
    "Labels of texts and tags by trees, by a linear model, and by trees on top of it.",
    tuple(map(_table, PLACES)),
    golden=("defaults, labels", "gbdt_sparse"),
)
