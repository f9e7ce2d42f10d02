"""Compatibility of parameters: every combination trains, or raises an error that names the
reason."""

import re
from itertools import product

import numpy as np
import pytest
from support.small_fits import CLASSES, X

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.estimators._fitting import get_single_class
from polyleaf.objectives import Poisson
from polyleaf.settings import train_config

KINDS = ("auto", "none", "shared", "diagonal", "full", "block")
SAMPLING = {
    "all rows": {},
    "subsample": {"subsample": 0.6},
    "goss": {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.3},
    "rows_per_layer": {"rows_per_layer": [0.5, 1.0]},
}
CHOICES = {
    "hessian": KINDS,
    "leaf_hessian": KINDS,
    "multi_strategy": ("multi_output_tree", "one_output_per_tree"),
    "boosting_step": ("round", "tree", "layer"),
    "grow_policy": ("lossguide", "depthwise"),
    "sketch": (None, "random_projection"),
    "pruning": ("pre", "post"),
    "sampling": tuple(SAMPLING),
    "reg_alpha": (0.0, 0.1),
}
COUPLED = ("full", "block")

# Incompatible combinations, and words of their message.
INCOMPATIBLE = [
    (lambda c: c["hessian"] in COUPLED and c["multi_strategy"] == "one_output_per_tree",
     'hessian="(full|block)" couples the outputs.*multi_strategy'),
    (lambda c: _leaf_hessian(c) in COUPLED and c["multi_strategy"] == "one_output_per_tree",
     'leaf_hessian="(full|block)" couples the outputs.*multi_strategy'),
    (lambda c: c["hessian"] in COUPLED and c["sketch"],
     'hessian="(full|block)" needs.*sketch=None'),
    (lambda c: {c["hessian"], _leaf_hessian(c)} & {*COUPLED} and c["reg_alpha"] > 0, "reg_alpha"),
    (lambda c: c["boosting_step"] == "layer" and c["grow_policy"] == "lossguide", "grow_policy"),
    (lambda c: c["sampling"] == "rows_per_layer" and c["boosting_step"] != "layer",
     "rows_per_layer"),
    (lambda c: c["sketch"] and c["multi_strategy"] == "one_output_per_tree",
     "A sketch.*multi_strategy"),
    (lambda c: c["sketch"] and c["hessian"] == "diagonal", 'hessian="diagonal"'),
]  # fmt: skip


def _leaf_hessian(c):
    follows = c["leaf_hessian"] == "auto" and c["hessian"] in COUPLED
    return c["hessian"] if follows else c["leaf_hessian"]


def combinations():
    return [dict(zip(CHOICES, values, strict=True)) for values in product(*CHOICES.values())]


def make_parameters(combination):
    """Return parameters of an estimator with small trees."""
    own = {name: value for name, value in combination.items() if name != "sampling"}
    small = {
        "n_estimators": 1,
        "max_depth": 2,
        "max_leaves": 4,
        "min_child_samples": 1,
        "n_jobs": 1,
    }
    sketch = {"sketch_dim": 2} if combination["sketch"] else {}
    return {**own, **SAMPLING[combination["sampling"]], **sketch, **small}


def get_error(combination):
    """Return the error message of a combination, or None."""
    estimator = PolyleafClassifier(**make_parameters(combination))
    try:
        train_config.make_train_config(
            estimator, n_rounds=1, has_sparse_targets=False, seed=0, n_threads=1
        )
    except ValueError as error:
        return str(error)
    return None


def test_errors_of_incompatible_combinations():
    n_errors = 0
    for combination in combinations():
        expected = [words for condition, words in INCOMPATIBLE if condition(combination)]
        message = get_error(combination)
        assert (message is not None) == bool(expected), combination
        assert message is None or any(re.search(words, message) for words in expected), combination
        n_errors += message is not None
    assert 1000 < n_errors < len(combinations()) - 1000


def train(combination):
    """Train on a few rows; an incompatible combination must raise its error."""
    estimator = PolyleafClassifier(**make_parameters(combination), random_state=0)
    message = get_error(combination)
    if message is None:
        estimator.fit(X[:80], CLASSES[:80])
        assert np.isfinite(estimator.decision_function(X)).all()
    else:
        with pytest.raises(ValueError, match=re.escape(message)):
            estimator.fit(X[:80], CLASSES[:80])


def test_combinations_train_or_raise():
    """Every seventeenth combination; the next test covers all."""
    for combination in combinations()[::17]:
        train(combination)


@pytest.mark.full
def test_all_combinations_train_or_raise():
    for combination in combinations():
        train(combination)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"rows_per_layer": [0.5, 1.0]}, 'set boosting_step="layer" as well'),
        ({"boosting_step": "layer"}, 'grow_policy="depthwise"'),
        ({"boosting_step": "layers"}, "boosting_step"),
        ({"pruning": "both"}, "pruning"),
        ({"hessian": "pairs"}, "hessian"),
        ({"block_size": 0}, "block_size"),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": []},
            "fractions in",
        ),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": [0.5, 0.0]},
            "fractions in",
        ),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": [1.5]},
            r"got \[1.5\]",
        ),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": [-3]},
            r"got \[-3\]",
        ),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": [np.nan]},
            r"got \[nan\]",
        ),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": ["half"]},
            "rows_per_layer",
        ),
        (
            {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": 0.5},
            "rows_per_layer",
        ),
        (
            {
                "boosting_step": "layer",
                "grow_policy": "depthwise",
                "rows_per_layer": [0.5],
                "subsample": 0.5,
            },
            "subsample must be 1.0",
        ),
        ({"hessian": "full", "reg_alpha": 1.0}, "set both to 0"),
        ({"leaf_hessian": "block", "max_delta_step": 1.0}, "set both to 0"),
    ],
)
def test_invalid_layer_and_hessian_parameters_raise(parameters, match):
    with pytest.raises(ValueError, match=match):
        PolyleafClassifier(n_estimators=1, **parameters).fit(X, CLASSES)


@pytest.mark.parametrize("parameters", [{"hessian": "full"}, {"leaf_hessian": "block"}])
def test_hessians_that_exceed_memory_raise_before_training(parameters):
    y = np.arange(400) % 200
    features = np.random.default_rng(0).standard_normal((400, 3))
    limit = {"histogram_memory": 30_000_000}
    with pytest.raises(
        ValueError, match=r'400 rows and 200 outputs.*28\.6 MiB.*histogram_memory.*"diagonal"'
    ):
        PolyleafClassifier(n_estimators=1, **parameters, **limit).fit(features, y)
    PolyleafClassifier(n_estimators=1, **parameters, **limit).fit(features, y % 5)


def test_full_hessian_of_a_thousand_outputs_exceeds_memory():
    """Few rows need little memory, but histograms of half a million channels take four GiB."""
    y = np.random.default_rng(0).standard_normal((60, 1000))
    with pytest.raises(ValueError, match=r"500500 entries per row and need at least [4-9]\.\d GiB"):
        PolyleafRegressor(n_estimators=1, hessian="full").fit(X[:60], y)


# --- defaults that depend on the objective --------------------------------------------------------


def get_rates(estimator):
    config = train_config.make_train_config(
        estimator,
        n_rounds=1,
        has_sparse_targets=False,
        seed=0,
        n_threads=1,
        objective=get_single_class(estimator._resolve_objective()),
    )
    return config.boosting.learning_rate, config.growth.colsample_bynode


@pytest.mark.parametrize(
    "objective", ["poisson", "count:poisson", Poisson, Poisson(hessian="exact")]
)
def test_default_rates_depend_on_the_objective(objective):
    assert get_rates(PolyleafRegressor(objective=objective)) == (0.05, 1.0)
    for other in ("squared_error", "tweedie", "gamma", lambda y, score: (score - y, y)):
        assert get_rates(PolyleafRegressor(objective=other)) == (0.1, 0.5)
    assert get_rates(PolyleafRegressor(objective="negative_binomial")) == (0.05, 1.0)
    for other in ("normal", "gamma_distribution"):
        assert get_rates(PolyleafRegressor(objective=other)) == (0.05, 0.5)
    for other in ("auto", "softmax"):
        assert get_rates(PolyleafClassifier(objective=other)) == (0.1, 0.5)


@pytest.mark.parametrize("objective", ["poisson", "squared_error"])
def test_explicit_rates_are_kept(objective):
    estimator = PolyleafRegressor(objective=objective, learning_rate=0.3, colsample_bynode=0.7)
    assert get_rates(estimator) == (0.3, 0.7)
    estimator = PolyleafRegressor(objective=objective, learning_rate=0.1)
    assert get_rates(estimator)[0] == 0.1
