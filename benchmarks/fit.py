"""Training: seconds of `fit` by kind of target and of leaf."""

from __future__ import annotations

from polyleaf import PolyleafClassifier, PolyleafRegressor

from . import data

ROUNDS = 30
SHAPE = {"n_estimators": ROUNDS, "max_depth": 6, "max_leaves": 64, "n_jobs": 1, "random_state": 0}
KINDS = {
    "one output": (PolyleafRegressor, lambda: data.targets(100_000, 28, 1), {}),
    "16 outputs": (PolyleafRegressor, lambda: data.targets(20_000), {}),
    "16 outputs, one tree each": (
        PolyleafRegressor,
        lambda: data.targets(5_000),
        {"multi_strategy": "one_output_per_tree"},
    ),
    "quantiles": (
        PolyleafRegressor,
        lambda: data.targets(20_000, n_outputs=1),
        {"objective": "quantile", "quantile_alpha": [0.1, 0.5, 0.9]},
    ),
    "10 classes": (PolyleafClassifier, lambda: data.classes(20_000), {}),
    "10 classes, full Hessian": (
        PolyleafClassifier,
        lambda: data.classes(5_000),
        {"hessian": "full"},
    ),
    "10 classes, layers": (
        PolyleafClassifier,
        lambda: data.classes(5_000),
        {"boosting_step": "layer", "grow_policy": "depthwise"},
    ),
    "1,000 labels, sparse leaves": (
        PolyleafClassifier,
        lambda: data.labels(10_000),
        {"leaf": "sparse", "leaf_k": 8},
    ),
    "linear leaves, one output": (
        PolyleafRegressor,
        lambda: data.targets(20_000, n_outputs=1),
        {"leaf": "linear"},
    ),
    "linear leaves, 16 outputs": (
        PolyleafRegressor,
        lambda: data.targets(10_000),
        {"leaf": "linear"},
    ),
    "100 outputs, sketch": (
        PolyleafRegressor,
        lambda: data.targets(10_000, n_outputs=100),
        {"sketch": "auto"},
    ),
    "words": (PolyleafRegressor, lambda: data.words(5_000), {}),
    "frame with categories": (PolyleafRegressor, lambda: data.frame(20_000), {}),
}


class Fit:
    """Whole training, binning included."""

    params = list(KINDS)
    param_names = ("kind",)

    def setup(self, kind):
        estimator, make, changes = KINDS[kind]
        self.X, self.y = make()
        self.estimator = estimator(**SHAPE | changes)

    def time_fit(self, kind):
        self.estimator.fit(self.X, self.y)


class EarlyStopping:
    """Training with an evaluation set."""

    def setup(self):
        X, y = data.targets(20_000)
        n = len(X) * 4 // 5
        self.train, self.valid = (X[:n], y[:n]), (X[n:], y[n:])

    def time_fit(self):
        model = PolyleafRegressor(**SHAPE | {"early_stopping_rounds": 10})
        model.fit(*self.train, eval_set=[self.valid])
