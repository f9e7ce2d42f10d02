"""What tests of every format share: models of all sorts, rows that are hard on them, and what is expected.

Owns the cases. Must not know: formats, what is asserted.
"""

from functools import cache

import golden
import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.export.source import source_of
from polyleaf.inputs.features import CategoryColumn, DenseBlock, FeatureTable


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


def hard_rows(est, seed=0, n=200):
    """A matrix as exported models read it: thresholds, their neighbours, NaN, infinities, any category."""
    rng, source = np.random.default_rng(seed), source_of(est)
    mapper, dtype = source.model.mapper, source.dtype
    X = np.empty((n, mapper.n_features_), dtype)
    largest = np.finfo(dtype).max
    for feature, thresholds in enumerate(mapper.thresholds_):
        known = np.concatenate([np.asarray(thresholds, dtype), [dtype(0.5)]])
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, 1e-40, 3.7], dtype)
        near = np.nextafter(known, dtype(np.inf)), np.nextafter(known, dtype(-np.inf)), known
        X[:, feature] = rng.choice(np.concatenate([*near, rng.choice(special, 1 + len(known))]), n)
        if mapper.is_categorical_[feature]:
            n_codes = int(mapper.n_bins_[feature])
            X[:, feature] = rng.choice(np.array([*range(n_codes), np.nan, -1, n_codes, 254, 1e9]), n)
    return X


def table_of(est, X):
    """The same rows as a FeatureTable, past the check that refuses infinities."""
    mapper = source_of(est).model.mapper
    numeric = np.flatnonzero(~mapper.is_categorical_)
    table = FeatureTable(len(X), mapper.n_features_, None)
    table.dense.append(DenseBlock(X[:, numeric], numeric))
    for feature in np.flatnonzero(mapper.is_categorical_).tolist():
        known = [*mapper.categories_[feature], *mapper.rare_categories_[feature][:1]]
        codes = np.nan_to_num(X[:, feature], nan=-1.0)
        index = np.where((codes >= 0) & (codes < len(known)), codes, -1).astype(np.int32)
        table.categories.append(CategoryColumn(index, tuple(known), feature))
    return table


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
