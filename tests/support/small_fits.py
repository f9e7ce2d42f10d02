"""Small training problems, and access to the internal state of a training."""

from contextlib import contextmanager

import numpy as np
import reference

from polyleaf import PolyleafClassifier, PolyleafRegressor, RowData
from polyleaf.model.storage import to_arrays
from polyleaf.training import boosting

N = 360
CATEGORICAL = [3]
SMALL = {
    "n_estimators": 3,
    "max_depth": 3,
    "max_leaves": None,
    "min_child_samples": 4,
    "colsample_bynode": 1.0,
    "random_state": 0,
    "n_jobs": 1,
}
LAYERS = {**SMALL, "boosting_step": "layer", "grow_policy": "depthwise"}
# The same growth in the reference.
LAYERS_CONFIG = reference.GrowConfig(
    max_leaves=2**31 - 1, max_depth=3, level_wise=True, min_child_samples=4
)


def features(n=N, seed=0):
    """Draw numeric columns, with missing values in one and few values in one, and categories."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    X[rng.random(n) < 0.2, 1] = np.nan
    X[:, 3] = rng.integers(0, 9, n)
    X[:, 4] = rng.integers(0, 3, n)
    return X


def targets(X, n_outputs=3, seed=1):
    """Return float64 (n, n_outputs): functions of X that trees can learn, and noise."""
    rng = np.random.default_rng(seed)
    gap = np.nan_to_num(X[:, 1], nan=2.0)
    parts = [X[:, 0], gap * X[:, 2], np.sin(X[:, 3]), X[:, 4] * X[:, 0], np.abs(gap)]
    mixed = np.stack(parts, axis=1) @ rng.standard_normal((5, n_outputs))
    return mixed + 0.3 * rng.standard_normal(mixed.shape)


X = features()
Y = targets(X)
CLASSES = Y.argmax(axis=1)
LABELS = (Y > np.median(Y, axis=0)).astype(int)


def regressor(**parameters):
    return PolyleafRegressor(**{**SMALL, "categorical_features": CATEGORICAL, **parameters})


def classifier(**parameters):
    return PolyleafClassifier(**{**SMALL, "categorical_features": CATEGORICAL, **parameters})


def coupled_derivatives(y, scores):
    """Return rational derivatives, for which the reference is exact, of a loss of all outputs."""
    residual = scores - y + 0.25 * scores.sum(axis=1, keepdims=True)
    return residual + 0.1 * residual * np.abs(residual), 1.2 + 0.2 * np.abs(residual)


def get_binned_data(estimator):
    """Return codes of X, numbers of bins and which features are categorical."""
    mapper = estimator.model_.mapper
    codes = mapper.transform(estimator._features(X), 1)
    return codes, np.asarray(mapper.n_bins_, np.uint16), np.asarray(mapper.is_categorical_)


@contextmanager
def runs():
    """Record the `boosting.BoostingLoop` objects that run within the context."""
    begun = []

    class Run(boosting.BoostingLoop):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            begun.append(self)

    original, boosting.BoostingLoop = boosting.BoostingLoop, Run
    try:
        yield begun
    finally:
        boosting.BoostingLoop = original


def bits(estimator):
    """Return all trees and leaf values of a model, as bytes."""
    return {name: array.tobytes() for name, array in to_arrays(estimator.model_.forest).items()}


def loss(estimator, features, y):
    """Return the mean training loss of a fitted estimator, by its objective."""
    model = estimator.model_
    target = y if "classes" in model.objective.target_kinds else np.asarray(y, np.float64)
    problem = model.objective.bind(RowData(target))
    problem.set_base_score(model.base_score)
    codes = model.mapper.transform(estimator._features(features), 1)
    raw = np.zeros((len(y), model.n_outputs), np.float32)
    model.forest.predict(codes, raw, 0, len(model.forest), 1)
    return problem.loss(raw)
