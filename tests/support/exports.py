"""What tests of every format share: models of all sorts, rows that are hard on them, and what is expected.

Owns the cases. Must not know: formats, what is asserted.
"""

from functools import cache

import golden
import numpy as np
from benchmarks.exports import hard_rows, table_of

from polyleaf import PolyleafRegressor
from polyleaf.export.source import source_of

__all__ = [
    "CASES",
    "class_numbers",
    "days",
    "estimator",
    "hard_rows",
    "predictions",
    "raw_scores",
    "table_of",
    "training_rows",
]


def days():
    """Float64 (n, 2): time stamps that float32 would merge, and a number that it holds."""
    X = golden.numbers()[:, :2].copy()
    X[:, 0] = 1.7e9 + 60.0 * np.arange(len(X))
    return X


CASES = {
    **{
        name: lambda name=name: golden.fitted(name)
        for name in (
            "defaults",
            "defaults, one output",
            "one tree an output",
            "frame with categories",
            "categories one by one",
            "sparse X",
            "sparse leaves",
            "sparse Y",
            "linear",
            "linear, one output",
            "linear, one tree an output",
            "linear, categories",
            "defaults, two classes",
            "defaults, classes",
            "defaults, labels",
            "squared hinge",
            "samme",
            "absolute error",
            "quantiles",
            "poisson",
            "normalized targets",
            "validation",
        )
    },
    "one class against the rest": lambda: golden.classifier(golden.classes)[0](
        **golden.SMALL, objective="logistic"
    ).fit(golden.numbers(), golden.classes()),
    "time stamps": lambda: PolyleafRegressor(**golden.SMALL).fit(days(), golden.values()),
    "time stamps, linear": lambda: PolyleafRegressor(**golden.SMALL, leaf="linear").fit(
        days(), golden.values()
    ),
}


@cache
def estimator(name):
    return CASES[name]()


def training_rows(name):
    """X of a case, as the estimator takes it."""
    if name.startswith("time"):
        return days()
    known = golden.CONFIGURATIONS.get(name)
    return golden.numbers() if known is None else known[1]()


def raw_scores(est, X):
    """float64 (n_rows, n_outputs): what Polyleaf says."""
    return est.model_.raw_predict(table_of(est, X), 0, source_of(est).n_rounds)


def predictions(est, raw):
    """Predictions of a regressor, probabilities of a classifier: float64 (n_rows, k)."""
    has = getattr(est, "predict_proba", None)
    found = est._probabilities(raw) if has is not None else est.model_.objective.transform(raw)
    return found.reshape(len(raw), -1)


def class_numbers(est, raw):
    return np.searchsorted(est.classes_, est._prediction(raw))
