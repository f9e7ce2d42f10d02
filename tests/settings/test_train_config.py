"""Values of parameters that depend on each other, and defaults that depend on the objective."""

import numpy as np
import pytest
from support.small_fits import CLASSES, X

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.estimators._fitting import get_single_class
from polyleaf.objectives import Logistic, Poisson, Quantile
from polyleaf.search.base import PolyleafRegressorCV
from polyleaf.settings import train_config


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"boosting_step": "layers"}, "boosting_step"),
        ({"pruning": "both"}, "pruning"),
        ({"hessian": "pairs"}, "hessian"),
        ({"block_size": 0}, "block_size"),
        ({"rows_per_layer": []}, "fractions in"),
        ({"rows_per_layer": [0.5, 0.0]}, "fractions in"),
        ({"rows_per_layer": [1.5]}, r"got \[1.5\]"),
        ({"rows_per_layer": [-3]}, r"got \[-3\]"),
        ({"rows_per_layer": [np.nan]}, r"got \[nan\]"),
        ({"rows_per_layer": ["half"]}, "rows_per_layer"),
        ({"rows_per_layer": 0.5}, "rows_per_layer"),
    ],
)
def test_invalid_layer_and_hessian_parameters_raise(parameters, match):
    if "rows_per_layer" in parameters:
        parameters |= {"boosting_step": "layer", "grow_policy": "depthwise"}
    with pytest.raises(ValueError, match=match):
        PolyleafClassifier(n_estimators=1, **parameters).fit(X, CLASSES)


@pytest.mark.parametrize("parameters", [{"hessian": "full"}, {"leaf_hessian": "block"}])
def test_hessians_that_exceed_memory_raise_before_training(parameters):
    y = np.arange(400) % 200
    features = np.random.default_rng(0).standard_normal((400, 3))
    limit = {"histogram_memory": 30_000_000}
    message = r'400 rows and 200 outputs.*28\.6 MiB.*histogram_memory.*"diagonal"'
    with pytest.raises(ValueError, match=message):
        PolyleafClassifier(n_estimators=1, **parameters, **limit).fit(features, y)
    PolyleafClassifier(n_estimators=1, **parameters, **limit).fit(features, y % 5)


def test_full_hessian_of_a_thousand_outputs_exceeds_memory():
    """Few rows need little memory, but histograms of half a million channels take four GiB."""
    y = np.random.default_rng(0).standard_normal((60, 1000))
    message = r"500500 entries per row and need at least [3-9]\.\d\d GiB"
    with pytest.raises(ValueError, match=message):
        PolyleafRegressor(n_estimators=1, hessian="full").fit(X[:60], y)


# --- defaults that depend on the objective --------------------------------------------------------


def get_rates(estimator):
    objective = get_single_class(estimator._resolve_objective())
    options = {"n_rounds": 1, "has_sparse_targets": False, "seed": 0, "n_threads": 1}
    config = train_config.make_train_config(estimator, **options, objective=objective)
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


@pytest.mark.parametrize(
    "parameters, requirement",
    [
        ({"quantile_alpha": [0.1, 0.9]}, 'objective="quantile", by its name'),
        ({"quantile_alpha": 0.9, "objective": Quantile(0.1)}, 'objective="quantile", by its name'),
        ({"huber_delta": 2.0}, 'objective="huber"'),
        ({"tweedie_variance_power": 1.2}, 'objective="tweedie"'),
        ({"student_t_df": 3}, 'objective="student_t"'),
        ({"leaf_k": 3}, 'leaf="sparse"'),
        ({"leaf_output_set": "shared"}, 'leaf="sparse"'),
        ({"threshold_step": 0.2}, 'split_search="exact"'),
        ({"linear_fit": "post"}, 'leaf="linear"'),
        ({"linear_features": 2}, 'leaf="linear"'),
        ({"linear_lambda": 0.1}, 'leaf="linear"'),
        ({"linear_extrapolation": "none"}, 'leaf="linear"'),
        ({"top_rate": 0.5}, 'sampling_method="goss"'),
        ({"other_rate": 0.5}, 'sampling_method="goss"'),
        ({"block_size": 3}, 'hessian="block" or leaf_hessian="block"'),
    ],
    ids=str,
)
def test_parameters_without_effect_are_refused(parameters, requirement):
    X = np.random.default_rng(0).normal(size=(60, 3))
    name = next(iter(parameters))
    with pytest.raises(ValueError, match=f"{name}=.* has no effect: it requires {requirement}"):
        PolyleafRegressor(n_estimators=2, **parameters).fit(X, X[:, 0])


@pytest.mark.parametrize(
    "parameters",
    [
        {"quantile_alpha": 0.3, "objective": "reg:quantileerror"},
        {"quantile_alpha": 0.5},
        {"huber_delta": 2.0, "objective": "huber"},
        {"block_size": 3, "leaf_hessian": "block"},
        {"linear_lambda": 0.5, "leaf": "linear"},
    ],
    ids=str,
)
def test_parameters_with_an_effect_or_their_default_are_accepted(parameters):
    X = np.random.default_rng(0).normal(size=(60, 3))
    Y = X[:, 0] if "quantile_alpha" in parameters else X
    PolyleafRegressor(n_estimators=2, **parameters).fit(X, Y)


def test_scale_pos_weight_with_an_objective_object_is_refused():
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match="scale_pos_weight=5 has no effect"):
        PolyleafClassifier(Logistic(), scale_pos_weight=5).fit(X, X[:, 0] > 0)


def test_a_search_tries_leaves_that_take_no_fixed_parameters():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = PolyleafRegressorCV(n_candidates=3, cv=2, n_estimators=3, linear_features=2)
    assert not any(model.fit(X, X[:, 0]).cv_results_["error"])
