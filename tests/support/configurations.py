"""Random configurations: data, parameters and fit arguments that exclude nothing supported.

Each is drawn from a seed, so that a failure can be reproduced. Tests of equivalences change one
field with `replace` and compare the results of `fit` and `raw_scores`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.user_data.features import read_features

N_ROWS = 160
REGRESSION = ("squared_error", "absolute_error", "huber", "quantile")
COUNTS = ("poisson", "gamma", "tweedie")
LIKELIHOODS = ("normal", "student_t", "lognormal")
CLASSES = ("softmax", "exponential")
UPDATED = ("absolute_error", "quantile")


@dataclass(frozen=True)
class Configuration:
    """One training: everything that an estimator and its `fit` receive."""

    seed: int
    kind: str  # "values", "labels" or "classes"
    X: np.ndarray  # float64 (n, F); NaN is missing
    y: np.ndarray  # float64 (n, K), NaN is missing; or int64 (n,) or (n, K)
    weight: np.ndarray | None = None  # float64 (n,) or (n, K)
    offset: np.ndarray | None = None  # float64 (n, K)
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def n_targets(self):
        """Number of classes, or of columns of y."""
        if self.kind == "classes":
            n_classes = int(self.y.max()) + 1
            return 1 if n_classes == 2 else n_classes
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    @property
    def row_weight(self):
        """The weights, or 1 for each row."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    @property
    def objective(self):
        return self.parameters["objective"]

    @property
    def has_ties(self):
        """Whether many rows have equal derivatives in the first round, so that splits tie."""
        return self.weight is None and (self.kind != "values" or self.objective in UPDATED)

    @property
    def sorts_categories(self):
        """Whether a categorical feature has more categories than are split one by one."""
        return bool(self.parameters["categorical_features"]) and np.nanmax(self.X[:, 4]) > 3

    @property
    def is_translation_invariant(self):
        return self.objective in REGRESSION

    @property
    def is_order_dependent(self):
        """Whether the first of several outputs or classes is preferred by design."""
        renews_between = "multi_strategy" in self.parameters and "boosting_step" in self.parameters
        is_block = "block" in (self.parameters["hessian"], self.parameters["leaf_hessian"])
        return renews_between or (is_block and self.kind == "classes")

    def permute_outputs(self, order):
        """Return the configuration with targets, or classes, in another order."""
        offset = None if self.offset is None else self.offset[:, order]
        if self.kind == "classes":
            return replace(self, y=np.argsort(order)[self.y], offset=offset)
        weight = self.weight
        if weight is not None and weight.ndim == 2:
            weight = weight[:, order]
        permuted = replace(self, y=self.y[:, order], weight=weight, offset=offset)
        factors = self.parameters.get("class_weight")
        if factors is None:
            return permuted
        return permuted.update_parameters(class_weight=[factors[i] for i in order])

    @property
    def is_sampled(self):
        """Whether trees see a part of the rows."""
        return any(name in self.parameters for name in ("subsample", "sampling_method"))

    def take(self, rows):
        """Return the configuration of some rows, which may repeat."""
        parts = {name: getattr(self, name) for name in ("X", "y", "weight", "offset")}
        return replace(self, **{k: None if v is None else v[rows] for k, v in parts.items()})

    def update_parameters(self, **parameters):
        return replace(self, parameters=self.parameters | parameters)

    def fit(self):
        """Return the fitted estimator."""
        estimator = PolyleafRegressor if self.kind == "values" else PolyleafClassifier
        given = {"sample_weight": self.weight, "offset": self.offset}
        arguments = {name: value for name, value in given.items() if value is not None}
        return estimator(**self.parameters).fit(self.X, self.y, **arguments)

    def raw_scores(self, estimator=None, X=None):
        """Return float64 (n, n_scores) without offsets, in the unit of the target."""
        estimator = self.fit() if estimator is None else estimator
        model = estimator.model_
        table = read_features(self.X if X is None else X, reference=model.mapper)
        return model.predict_raw(table)


def draw_configuration(seed, **fixed):
    """Draw a configuration; `fixed` are parameters or fields that are not drawn."""
    rng = np.random.default_rng(seed)

    def choose(*options):
        return options[rng.integers(len(options))]

    kind = fixed.get("kind", choose("values", "values", "labels", "classes"))
    X, categorical = _draw_features(rng)
    n_outputs = int(choose(1, 2, 3, 5))
    signal = _draw_signal(rng, X, n_outputs if kind != "classes" else int(choose(2, 3, 4)))
    parameters = {
        "n_estimators": int(choose(2, 4)),
        "max_leaves": 8,
        "min_child_samples": 5,
        "min_child_weight": 0.0,
        "learning_rate": 0.3,
        "colsample_bynode": 1.0,
        "categorical_features": categorical or None,
        "n_jobs": 1,
        "random_state": int(rng.integers(1000)),
    }
    y, own = _draw_target(rng, kind, signal, choose)
    parameters |= own
    parameters |= _draw_parts(rng, kind, y, parameters["objective"], choose)
    weight = _draw_weight(rng, kind, y, choose)
    offset = _draw_offset(rng, kind, y, parameters, choose)
    fields = {"weight": weight, "offset": offset} | {
        name: fixed.pop(name) for name in ("weight", "offset") if name in fixed
    }
    fixed.pop("kind", None)
    return Configuration(seed, kind, X, y, **fields, parameters=parameters | fixed)


def _draw_features(rng):
    X = rng.standard_normal((N_ROWS, 5))
    X[:, 1] *= 1000.0
    if rng.random() < 0.5:
        X[rng.random(X.shape) < 0.15] = np.nan
    n_categories = int(rng.choice([0, 3, 12]))
    if n_categories == 0:
        return X, []
    X[:, 4] = rng.integers(0, n_categories, N_ROWS)
    return X, [4]


def _draw_signal(rng, X, n_outputs):
    known = np.nan_to_num(X / [1, 1000.0, 1, 1, 1], nan=0.7)
    parts = np.stack([known[:, 0], known[:, 1] * known[:, 2], np.abs(known[:, 3]), known[:, 4] % 3])
    mixed = parts.T @ rng.standard_normal((4, n_outputs))
    return mixed + 0.2 * rng.standard_normal(mixed.shape)


def _draw_target(rng, kind, signal, choose):
    """Return y and the parameters that belong to it."""
    if kind == "classes":
        y = np.unique(signal.argmax(axis=1), return_inverse=True)[1]
        return y, {"objective": choose(*CLASSES) if y.max() > 1 else "logistic"}
    if kind == "labels":
        y = (signal > 0.3).astype(np.int64)
        y[:20], y[20:40] = 0, 1
        parameters = {"objective": choose("logistic", "squared_hinge")}
        if y.shape[1] > 1 and rng.random() < 0.3:
            parameters["class_weight"] = [{0: 1.0, 1: float(choose(3, 20))}] * y.shape[1]
        return (y, parameters) if y.shape[1] > 1 else (y[:, 0], {"objective": "logistic"})
    objective = choose(*REGRESSION, *COUNTS, *LIKELIHOODS)
    y = signal
    if objective in COUNTS:
        y = np.round(np.exp(np.clip(signal, -2, 2)) * 2) + (objective == "gamma")
    elif objective == "lognormal":
        y = np.exp(np.clip(signal, -2, 2))
    parameters = {"objective": objective, "calibrate_quantiles": False}
    if objective == "quantile":
        parameters["quantile_alpha"] = choose(0.3, [0.2, 0.7])
    if rng.random() < 0.25:
        y = y.copy()
        y[rng.random(y.shape) < 0.2] = np.nan
        parameters["missing_targets"] = "ignore"
    return (y if y.shape[1] > 1 else y[:, 0]), parameters


def _draw_parts(rng, kind, y, objective, choose):
    """Return parameters of leaves, Hessians, growth and sampling that go together."""
    n_outputs = len(np.unique(y)) if kind == "classes" else (1 if y.ndim == 1 else y.shape[1])
    n_outputs = 1 if kind == "classes" and n_outputs == 2 else n_outputs
    is_newton = objective not in UPDATED
    parts = {}
    leaf = choose("constant", "constant", "linear", "sparse") if is_newton else "constant"
    if leaf == "sparse" and (n_outputs < 2 or objective in LIKELIHOODS):
        leaf = "constant"
    if leaf != "constant":
        parts["leaf"] = leaf
    if leaf == "linear":
        parts["linear_fit"] = choose("half_additive", "full", "post")
    if leaf == "sparse":
        parts |= {"leaf_k": 2, "leaf_output_set": choose("own", "shared")}
    is_single = leaf != "sparse" and n_outputs > 1 and rng.random() < 0.2
    if is_single:
        parts["multi_strategy"] = "one_output_per_tree"
    separable = ("auto", "none", "shared", "diagonal")
    coupled = () if leaf != "constant" or is_single else ("full", "block")
    splits = coupled + (separable if parts.get("linear_fit") != "full" else separable[:3])
    parts["hessian"], parts["leaf_hessian"] = choose(*splits), choose(*separable, *coupled)
    is_coupled = {parts["hessian"], parts["leaf_hessian"]} & {"full", "block"}
    if not is_coupled and leaf != "linear" and rng.random() < 0.2:
        parts |= {"reg_alpha": 0.25, "max_delta_step": 0.5}
    if leaf == "constant" and rng.random() < 0.2:
        parts |= {"boosting_step": "layer", "grow_policy": "depthwise"}
    sampling = choose(None, None, "subsample", "goss", "columns")
    if sampling == "subsample":
        parts["subsample"] = 0.7
    elif sampling == "goss":
        parts |= {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.3}
    elif sampling == "columns":
        parts |= {"colsample_bytree": 0.8}
    return parts


def _draw_weight(rng, kind, y, choose):
    shape = choose("none", "rows", "rows", "matrix")
    if shape == "none":
        return None
    if y.ndim == 1 or y.shape[1] == 1:
        shape = "rows"
    weight = rng.integers(1024, 4096, N_ROWS if shape == "rows" else y.shape) / 1024.0
    return weight * float(choose(1.0, 30.0, 1 / 64))


def _draw_offset(rng, kind, y, parameters, choose):
    if rng.random() < 0.75 or parameters["objective"] in (*LIKELIHOODS, None):
        return None
    n_classes = len(np.unique(y))
    shape = (N_ROWS, n_classes) if kind == "classes" and n_classes > 2 else y.shape
    return np.round(rng.standard_normal(shape) * 4) / 16
