"""Shared test data of all export formats: models of all kinds, edge cases and expected results."""

from functools import cache

import numpy as np
from scipy.sparse import csr_matrix

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.export.ir import build_ir
from support import golden
from support.export_rows import hard_rows, prepare_features

__all__ = [
    "CASES",
    "assert_close",
    "class_numbers",
    "days",
    "estimator",
    "hard_rows",
    "many_labels",
    "predictions",
    "prepare_features",
    "raw_scores",
    "training_rows",
]


def days():
    """Return float64 (n, 2): time stamps that are equal in float32, and a float32 number."""
    X = golden.numbers()[:, :2].copy()
    X[:, 0] = 1.7e9 + 60.0 * np.arange(len(X))
    return X


def coded_days():
    """Return the same with codes for missing values in both columns."""
    X = days()
    X[::50, 0], X[::40, 1] = 0.0, -9999.0
    return X


def fit_days(X, **parameters):
    return PolyleafRegressor(**golden.SMALL, **parameters).fit(X, golden.values())


GOLDEN = """defaults; defaults, one output; defaults, two classes; defaults, classes;
defaults, labels; one tree an output; groups; groups, linear; groups, sparse leaves;
frame with categories; categories one by one; sparse X; sparse leaves; sparse Y; linear;
linear, one output; linear, one tree an output; linear, categories; squared hinge; samme;
absolute error; quantiles; poisson; normalized targets; validation""".replace("\n", " ")
CASES = {
    **{name: lambda name=name: golden.fitted(name) for name in GOLDEN.split("; ")},
    "one class against the rest": lambda: golden.classifier(golden.classes)[0](
        **golden.SMALL, objective="logistic"
    ).fit(golden.numbers(), golden.classes()),
    "time stamps": lambda: fit_days(days()),
    "time stamps, linear": lambda: fit_days(days(), leaf="linear"),
    "time stamps and codes, linear": lambda: fit_days(coded_days(), leaf="linear"),
}


@cache
def estimator(name):
    return CASES[name]()


@cache
def many_labels(n_labels):
    """Return five of many labels per row, determined by its first numbers."""
    X, rng = golden.numbers(3000), np.random.default_rng(4)
    kind = 37 * (X[:, 0] * 4 + 16).astype(int) + 1009 * (X[:, 2] > 0)
    labels = kind[:, None] + np.array([1, 3, 5, 11, 17]) + rng.integers(0, 2, (len(X), 1))
    labels %= n_labels
    given = np.ones(labels.size, np.float32), labels.ravel(), np.arange(0, labels.size + 1, 5)
    Y = csr_matrix(given, shape=(len(X), n_labels))
    chosen = {"leaf": "sparse", "leaf_k": 20, "objective": "squared_hinge"}
    chosen |= {"n_estimators": 60, "learning_rate": 1.0}
    return PolyleafClassifier(**golden.SMALL | chosen).fit(X, Y)


def training_rows(name):
    """Return X of a case, in the format that the estimator accepts."""
    if name.startswith("time"):
        return coded_days() if "codes" in name else days()
    known = golden.CONFIGURATIONS.get(name)
    return golden.numbers() if known is None else known[1]()


def raw_scores(est, X):
    """Return Polyleaf's raw scores: float64 (n_rows, n_outputs)."""
    return est.model_.predict_raw(prepare_features(est, X), 0, build_ir(est).n_rounds)


def predictions(est, raw):
    """Return predictions of a regressor, probabilities of a classifier: float64 (n_rows, k)."""
    has = getattr(est, "predict_proba", None)
    found = est._probabilities(raw) if has is not None else est.model_.objective.transform(raw)
    return found.reshape(len(raw), -1)


def assert_close(found, expected):
    """Compare to 1e-6 of the largest score of a row; other libraries sum in float32."""
    found = found.reshape(expected.shape)
    scale = np.abs(expected).max(axis=1, keepdims=True, initial=1.0)
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-6)


def class_numbers(est, raw):
    return np.searchsorted(est.classes_, est._prediction(raw))
