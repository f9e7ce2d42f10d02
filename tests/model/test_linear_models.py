"""Models with linear leaves: what settings mean, bad input, and what is refused."""

import math

import numpy as np
import pytest
from support.small_fits import bits

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.settings import presets

FITS = ("half_additive", "full", "post")


def smooth(n=400, n_outputs=1, seed=0):
    """A smooth function of three features; float32."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    y = np.sin(3 * X) @ rng.standard_normal((3, n_outputs)) + 0.3 * X[:, :1] * X[:, 1:2]
    return X, (y[:, 0] if n_outputs == 1 else y).astype(np.float32)


def regressor(**parameters):
    return PolyleafRegressor(
        **{
            "leaf": "linear",
            "n_estimators": 15,
            "max_leaves": 6,
            "n_jobs": 1,
            "random_state": 0,
            **parameters,
        }
    )


def trained(X, y, X_new=None, **parameters):
    """Trains, and predicts numbers that are finite for the training rows and for new ones."""
    model = regressor(**parameters).fit(X, y)
    for rows in (X, X if X_new is None else X_new):
        assert np.isfinite(model.predict(rows)).all()
    return model


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_lines_fit_a_smooth_function_better(n_outputs, fit):
    X, y = smooth(n_outputs=n_outputs)
    constant = regressor(leaf="constant").fit(X, y).score(X, y)
    assert regressor(linear_fit=fit).fit(X, y).score(X, y) > constant + 0.01


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_looking_ahead_gains_on_many_outputs_too(n_outputs):
    X, y = smooth(2000, n_outputs)
    post, ahead = (
        regressor(linear_fit=fit).fit(X, y).score(X, y) for fit in ("post", "half_additive")
    )
    assert ahead > post


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("none", [{"linear_features": 0}, {"linear_lambda": math.inf}])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_without_slopes_leaves_are_the_constant_ones(n_outputs, none, fit):
    X, y = smooth(n_outputs=n_outputs)
    linear = regressor(linear_fit=fit, **none).fit(X, y)
    constant = regressor(leaf="constant").fit(X, y)
    np.testing.assert_array_equal(linear.predict(X), constant.predict(X))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_collinear_and_constant_regressors(n_outputs, fit):
    X, y = smooth(n_outputs=n_outputs)
    X = np.column_stack(
        [X, X[:, 0], 2 * X[:, 1] - 1, X[:, 0] + X[:, 1], np.full(len(X), 7, np.float32)]
    )
    for penalty in (0.0, 1e-12, 1.0):
        trained(X, y, 10 * X, linear_fit=fit, linear_lambda=penalty, reg_lambda=penalty)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    ("of_x", "of_y"), [(1e30, 1.0), (1e-30, 1.0), (1.0, 1e30), (1e30, 1e30), (1e37, 1e-9)]
)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_huge_scales(n_outputs, of_x, of_y, fit):
    X, y = smooth(n_outputs=n_outputs)
    X, y = (X * np.float32(of_x)).astype(np.float32), (y * np.float32(of_y)).astype(np.float32)
    model = trained(X, y, X[::-1] * np.float32(2), linear_fit=fit, normalize_targets=of_y > 1)
    error = np.abs(model.predict(X) / np.float32(of_y) - y / np.float32(of_y)).mean()
    assert error < 0.65 * np.abs(y / np.float32(of_y)).mean()


@pytest.mark.parametrize("fit", FITS)
def test_outliers_in_a_feature_and_in_the_target(fit):
    X, y = smooth()
    X[0, 0], y[1] = 1e30, -1e12
    trained(X, y, linear_fit=fit)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_missing_values(n_outputs, fit):
    X, y = smooth(n_outputs=n_outputs)
    X = np.column_stack([X, np.full(len(X), np.nan, np.float32)])
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    nothing = np.full_like(X[:5], np.nan)
    model = trained(X, y, nothing, linear_fit=fit)
    assert 3 not in {
        f
        for tree in model.model_.trees
        for j in range(tree.n_leaves)
        for f in tree.leaf_linear(j).features
    }


@pytest.mark.parametrize("linear_extrapolation", ["clip", "none"])
def test_rows_far_away(linear_extrapolation):
    X, y = smooth()
    model = trained(X, y, linear_extrapolation=linear_extrapolation)
    far = np.abs(model.predict(1000 * X)).max()
    assert (far < 2 * np.abs(y).max()) == (linear_extrapolation == "clip")


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("leaf_hessian", ["auto", "shared"])
def test_same_bits_for_any_number_of_threads(fit, leaf_hessian):
    X, y = smooth(3000, 3)
    labels = (y > 0).astype(np.uint8)
    models = [
        PolyleafClassifier(
            leaf="linear", linear_fit=fit, leaf_hessian=leaf_hessian, n_estimators=5,
            random_state=0,
            sampling_method="goss", n_jobs=n,
        ).fit(X, labels)
        for n in (1, 2, 3)
    ]  # fmt: skip
    assert bits(models[0]) == bits(models[1]) == bits(models[2])


@pytest.mark.parametrize("hessian", ["none", "shared", "diagonal"])
def test_classes_with_any_hessian(hessian):
    X, y = smooth(600)
    classes = np.digitize(y, [-0.5, 0.5])
    scores = [
        PolyleafClassifier(leaf=leaf, hessian=hessian, n_estimators=8, max_leaves=6, n_jobs=1)
        .fit(X, classes)
        .score(X, classes)
        for leaf in ("constant", "linear")
    ]
    assert scores[1] > scores[0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"boosting_step": "layer", "grow_policy": "depthwise"},
            'boosting_step="layer".*boosting_step="round"',
        ),
        (
            {"linear_fit": "full", "hessian": "diagonal"},
            'linear_fit="full".*linear_fit="half_additive"',
        ),
        ({"linear_fit": "full", "linear_features": 9}, "linear_features"),
        ({"hessian": "full"}, 'hessian="full" couples the outputs'),
        ({"leaf_hessian": "block"}, 'leaf_hessian="block" couples the outputs'),
        ({"reg_alpha": 1.0}, "reg_alpha and max_delta_step.*linear_lambda"),
        ({"max_delta_step": 1.0}, "reg_alpha and max_delta_step"),
        ({"objective": "absolute_error"}, 'absolute_error.*"huber"'),
        ({"linear_features": -1}, "linear_features"),
        ({"linear_lambda": -1.0}, "linear_lambda"),
        ({"linear_fit": "additive"}, "linear_fit"),
    ],
)
def test_unsupported_combinations_raise(parameters, message):
    X, y = smooth(60, 2)
    with pytest.raises(ValueError, match=message):
        regressor(**parameters).fit(X, y)


def test_dataset_without_raw_features_raises():
    X, y = smooth(60)
    with pytest.raises(ValueError, match="keep_features=True"):
        regressor().fit(Dataset(X), y)
    kept = regressor().fit(Dataset(X, keep_features=True), y)
    np.testing.assert_array_equal(kept.predict(X), regressor().fit(X, y).predict(X))


def test_preset():
    X, y = smooth()
    model = PolyleafRegressor(**{**presets.gbdt_pl(), "n_estimators": 20}).fit(X, y)
    assert model.score(X, y) > 0.9 and model.leaf == "linear"
