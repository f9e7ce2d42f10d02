"""Models with linear leaves: settings, difficult input, and errors."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from support.pairwise import parametrize_pairs

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.binned_data.binning import BinMapper
from polyleaf.settings import presets
from polyleaf.user_data.features import read_features

FITS = ("half_additive", "full", "post")


def smooth(n=400, n_outputs=1, seed=0):
    """Return float32 features and a smooth function of three of them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    y = np.sin(3 * X) @ rng.standard_normal((3, n_outputs)) + 0.3 * X[:, :1] * X[:, 1:2]
    return X, (y[:, 0] if n_outputs == 1 else y).astype(np.float32)


def regressor(**parameters):
    small = {"n_estimators": 15, "max_leaves": 6, "n_jobs": 1, "random_state": 0}
    return PolyleafRegressor(**{"leaf": "linear", **small, **parameters})


def fit_and_check(X, y, X_new=None, **parameters):
    """Train a model, and check that predictions are finite on training rows and new rows."""
    model = regressor(**parameters).fit(X, y)
    for rows in (X, X if X_new is None else X_new):
        assert np.isfinite(model.predict(rows)).all()
    return model


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_linear_leaves_fit_a_smooth_function_better(n_outputs, fit):
    X, y = smooth(n_outputs=n_outputs)
    constant = regressor(leaf="constant").fit(X, y).score(X, y)
    assert regressor(linear_fit=fit).fit(X, y).score(X, y) > constant + 0.01


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_linear_split_gain_helps_with_many_outputs(n_outputs):
    X, y = smooth(2000, n_outputs)
    fits = (regressor(linear_fit=fit).fit(X, y) for fit in ("post", "half_additive"))
    post, ahead = (model.score(X, y) for model in fits)
    assert ahead > post


@parametrize_pairs(
    fit=FITS, none=[{"linear_features": 0}, {"linear_lambda": math.inf}], n_outputs=[1, 3]
)
def test_linear_leaves_without_slopes_equal_constant_leaves(n_outputs, none, fit):
    X, y = smooth(n_outputs=n_outputs)
    linear = regressor(linear_fit=fit, **none).fit(X, y)
    constant = regressor(leaf="constant").fit(X, y)
    np.testing.assert_array_equal(linear.predict(X), constant.predict(X))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_collinear_and_constant_regressors(n_outputs, fit):
    X, y = smooth(n_outputs=n_outputs)
    a, b, _ = X.T
    X = np.column_stack([X, a, 2 * b - 1, a + b, np.full(len(X), 7, np.float32)])
    for penalty in (0.0, 1e-12, 1.0):
        fit_and_check(X, y, 10 * X, linear_fit=fit, linear_lambda=penalty, reg_lambda=penalty)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    ("of_x", "of_y"), [(1e30, 1.0), (1e-30, 1.0), (1.0, 1e30), (1e30, 1e30), (1e37, 1e-9)]
)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_features_on_huge_scales(n_outputs, of_x, of_y, fit):
    X, y = smooth(n_outputs=n_outputs)
    X, y = (X * np.float32(of_x)).astype(np.float32), (y * np.float32(of_y)).astype(np.float32)
    model = fit_and_check(X, y, X[::-1] * np.float32(2), linear_fit=fit, normalize_targets=of_y > 1)
    error = np.abs(model.predict(X) / np.float32(of_y) - y / np.float32(of_y)).mean()
    assert error < 0.65 * np.abs(y / np.float32(of_y)).mean()


@pytest.mark.parametrize("factor", [1e-310, 1e-40, 1e37, 2e38, 1e39, 1e300])
@pytest.mark.parametrize("fit", FITS)
def test_features_beyond_the_range_of_float32_slopes_are_no_regressors(factor, fit):
    X, y = smooth()
    X = X.astype(np.float64) * factor
    parameters = {"n_estimators": 3, "n_jobs": 1}
    linear = PolyleafRegressor(leaf="linear", linear_fit=fit, **parameters).fit(X, y)
    constant = PolyleafRegressor(**parameters).fit(X, y)
    np.testing.assert_array_equal(linear.predict(X), constant.predict(X))


@pytest.mark.parametrize("fit", FITS)
def test_outliers_in_a_feature_and_in_the_target(fit):
    X, y = smooth()
    X[0, 0], y[1] = 1e30, -1e12
    fit_and_check(X, y, linear_fit=fit)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_missing_values(n_outputs, fit):
    X, y = smooth(n_outputs=n_outputs)
    X = np.column_stack([X, np.full(len(X), np.nan, np.float32)])
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    nothing = np.full_like(X[:5], np.nan)
    model = fit_and_check(X, y, nothing, linear_fit=fit)
    for tree in model.model_.trees:
        assert all(3 not in tree.leaf_linear(leaf).features for leaf in range(tree.n_leaves))


@pytest.mark.parametrize("linear_extrapolation", ["clip", "none"])
def test_rows_outside_the_training_range(linear_extrapolation):
    X, y = smooth()
    model = fit_and_check(X, y, linear_extrapolation=linear_extrapolation)
    far = np.abs(model.predict(1000 * X)).max()
    assert (far < 2 * np.abs(y).max()) == (linear_extrapolation == "clip")


@pytest.mark.parametrize("hessian", ["none", "shared", "diagonal"])
def test_classes_with_any_hessian(hessian):
    X, y = smooth(600)
    classes = np.digitize(y, [-0.5, 0.5])
    small = {"n_estimators": 8, "max_leaves": 6, "n_jobs": 1, "hessian": hessian}
    models = (PolyleafClassifier(leaf=leaf, **small) for leaf in ("constant", "linear"))
    constant, linear = (model.fit(X, classes).score(X, classes) for model in models)
    assert linear > constant


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"linear_fit": "full", "linear_features": 9}, "linear_features"),
        ({"max_delta_step": 1.0}, "reg_alpha and max_delta_step"),
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


# --- difficult features ---------------------------------------------------------------------------


def mixed(n, seed):
    """Return float64 X (n, 4) and a target that is linear in some features and smooth in others."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 4))
    y = X[:, 0] + 2 * np.sin(X[:, 1]) + 0.5 * X[:, 2] * (X[:, 3] > 0)
    return X, y, y + 0.05 * rng.standard_normal(n)


X_ROWS, _, Y_ROWS = mixed(1200, 0)
X_NEW, Y_NEW, _ = mixed(1500, 1)


def rmse(X, X_new, **parameters):
    model = regressor(n_estimators=60, max_leaves=31, **parameters).fit(X, Y_ROWS)
    return float(np.sqrt(np.mean((model.predict(X_new) - Y_NEW) ** 2)))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("offset", "scale"), [(1.7e9, 1.0), (1.7e9, 900.0), (1.7e12, 3.6e6)])
def test_time_stamps_keep_precision(offset, scale, fit):
    plain = rmse(X_ROWS, X_NEW, linear_fit=fit)
    shifted = rmse(offset + scale * X_ROWS, offset + scale * X_NEW, linear_fit=fit)
    assert shifted == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("codes", [[-999.0], [1e6], [-999.0, -9999.0], [-1e30, 1e30]])
def test_numeric_codes_of_missing_values_do_not_dominate_slopes(codes, fit):
    """Compare with constant leaves, which are not affected by such codes."""
    rng = np.random.default_rng(2)
    X, X_new = X_ROWS.copy(), X_NEW.copy()
    for code in codes:
        for values in (X, X_new):
            values[rng.random(values.shape) < 0.01] = code
    linear = rmse(X, X_new, linear_fit=fit)
    assert linear < 1.02 * rmse(X, X_new, leaf="constant")


def test_difficult_features_predict_equally_in_all_ways(tmp_path):
    X = np.column_stack([1.7e9 + 60.0 * X_ROWS[:, 0], X_ROWS[:, 1:]])
    X[::40, 1], X[::50, 0], X[::30, 2] = -9999.0, 0.0, np.nan
    model = regressor().fit(X, Y_ROWS)
    expected = model.predict(X)
    model.save_model(tmp_path / "model.polyleaf")
    loaded = PolyleafRegressor.load_model(tmp_path / "model.polyleaf")
    assert np.array_equal(loaded.predict(X), expected)
    assert np.array_equal(model.predictor()(X), expected)
    one_by_one = [model.predict(X[i : i + 1]) for i in range(9)]
    assert np.array_equal(np.concatenate(one_by_one), expected[:9])
    values, base = model.shap_values(X[:20]), model.shap_base_values()
    np.testing.assert_allclose(values.sum(axis=1) + base, expected[:20], rtol=1e-5, atol=1e-5)


def test_mappers_without_the_transform_read_values_as_they_are():
    """The mappers of imported models have none."""
    X = 1.7e9 + 60.0 * X_ROWS
    mapper = Dataset(X).mapper
    meta, arrays = mapper.to_state()
    assert meta["transforms_regressors"]
    table = read_features(X, reference=mapper)
    plain = BinMapper.from_state(meta | {"transforms_regressors": False}, arrays)
    assert np.array_equal(plain.get_raw_values(table), X.T.astype(np.float32))
    centred = mapper.get_raw_values(table) + mapper.regressor_transform_.centre[:, None]
    np.testing.assert_allclose(centred, X.T, rtol=0, atol=1e-5)
    assert not Dataset(X_ROWS).mapper.to_state()[0]["transforms_regressors"]


def test_sparse_and_dense_values_are_transformed_equally():
    X = X_ROWS.copy()
    X[np.random.default_rng(3).random(X.shape) < 0.5] = 0.0
    X[::30, 1] = -9999.0
    mapper = Dataset(X).mapper
    dense = mapper.get_raw_values(read_features(X, reference=mapper))
    sparse = mapper.get_raw_values(read_features(csr_matrix(X), reference=mapper))
    assert dense[1].min() > -3 and np.array_equal(sparse, dense)
