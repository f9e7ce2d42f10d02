"""Prediction intervals by split conformal calibration on held-out rows."""

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor, load_model

SMALL = dict(n_estimators=30, max_leaves=8, n_jobs=1)
QUANTILES = dict(objective="quantile", quantile_alpha=[0.1, 0.5, 0.9])


def make_data(n, n_targets=2, seed=0):
    """Return targets on different scales with partly shared noise whose spread depends on a
    feature."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)).astype(np.float32)
    noise = rng.standard_normal((n, n_targets)) + rng.standard_normal((n, 1))
    Y = np.sin(2 * X[:, :n_targets]) + X[:, 2:3] * X[:, 3:4] + (0.2 + np.abs(X[:, :1])) * noise
    return X, Y * 10.0 ** np.arange(n_targets)


def inside(model, X, Y):
    bounds = model.predict_interval(X).reshape(len(X), -1, 2)
    Y = Y.reshape(len(Y), -1)
    return (bounds[..., 0] <= Y) & (bounds[..., 1] >= Y)


X, Y = make_data(3500)
TRAIN, HELD_OUT, NEW = slice(500), slice(500, 1500), slice(1500, None)


@pytest.fixture(
    scope="module",
    params=[{}, QUANTILES, {"objective": "absolute_error"}],
    ids=["mean", "quantiles", "median"],
)
def model(request):
    return PolyleafRegressor(**SMALL, **request.param).fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_coverage_per_target(model, coverage):
    model.calibrate(X[HELD_OUT], Y[HELD_OUT], coverage=coverage)
    coverage = inside(model, X[NEW], Y[NEW]).mean(axis=0)
    # Standard error of the calibration rows and of the new rows.
    error = np.sqrt(coverage * (1 - coverage) * (1 / 1000 + 1 / 2000))
    assert np.all(abs(coverage - coverage) < 3 * error)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_joint_coverage_of_all_targets(model, coverage):
    model.calibrate(X[HELD_OUT], Y[HELD_OUT], coverage=coverage, joint=True)
    is_inside = inside(model, X[NEW], Y[NEW])
    error = np.sqrt(coverage * (1 - coverage) * (1 / 1000 + 1 / 2000))
    assert abs(is_inside.all(axis=1).mean() - coverage) < 3 * error
    assert np.ptp(is_inside.mean(axis=0)) < 0.06  # coverage is equal, whatever the scales
    assert is_inside.mean(axis=0).min() > coverage


def test_intervals_of_quantile_models_widen_with_the_noise():
    model = PolyleafRegressor(**SMALL, **QUANTILES).fit(X[TRAIN], Y[TRAIN, 0])
    bounds = model.calibrate(X[HELD_OUT], Y[HELD_OUT, 0]).predict_interval(X[NEW])
    assert bounds.shape == (2000, 2)
    width, noisy = np.diff(bounds, axis=1)[:, 0], np.abs(X[NEW, 0]) > 1.5
    assert width[noisy].mean() > 1.3 * width[np.abs(X[NEW, 0]) < 0.5].mean()
    plain = (
        PolyleafRegressor(**SMALL).fit(X[TRAIN], Y[TRAIN, 0]).calibrate(X[HELD_OUT], Y[HELD_OUT, 0])
    )
    np.testing.assert_allclose(
        np.ptp(np.diff(plain.predict_interval(X[NEW]), axis=1)), 0, atol=1e-9
    )


def test_interval_widths_are_quantiles_of_residuals():
    model = PolyleafRegressor(**SMALL).fit(X[TRAIN], Y[TRAIN])
    residuals = np.sort(np.abs(Y[HELD_OUT] - model.predict(X[HELD_OUT])), axis=0)
    bounds = model.calibrate(X[HELD_OUT], Y[HELD_OUT], coverage=0.8).predict_interval(X[NEW])
    assert bounds.shape == (2000, 2, 2)
    predicted, width = model.predict(X[NEW]), residuals[801 - 1]
    np.testing.assert_allclose(
        bounds, np.stack([predicted - width, predicted + width], axis=2), rtol=1e-12
    )


def test_weights_and_missing_targets():
    y, weight = Y[HELD_OUT].copy(), np.ones(Y[HELD_OUT].shape)
    y[::3, 0], weight[::3, 0] = np.nan, 0
    model = PolyleafRegressor(missing_targets="ignore", **SMALL).fit(X[TRAIN], Y[TRAIN])
    missing = model.calibrate(X[HELD_OUT], y).predict_interval(X[NEW])
    weighted = model.calibrate(X[HELD_OUT], Y[HELD_OUT], weight).predict_interval(X[NEW])
    np.testing.assert_array_equal(missing, weighted)
    joint = model.calibrate(X[HELD_OUT], y, joint=True).predict_interval(X[NEW])
    usable = np.flatnonzero(weight[:, 0]) + 500
    np.testing.assert_array_equal(
        joint, model.calibrate(X[usable], Y[usable], joint=True).predict_interval(X[NEW])
    )


def test_files_keep_the_calibration_and_continued_training_drops_it(tmp_path):
    model = PolyleafRegressor(**SMALL).fit(X[TRAIN], Y[TRAIN]).calibrate(X[HELD_OUT], Y[HELD_OUT])
    model.save_model(tmp_path / "m.polyleaf")
    loaded = load_model(tmp_path / "m.polyleaf")
    np.testing.assert_array_equal(loaded.predict_interval(X[NEW]), model.predict_interval(X[NEW]))
    later = PolyleafRegressor(**SMALL).fit(X[TRAIN], Y[TRAIN], init_model=loaded)
    for other in (later, model.fit(X[TRAIN], Y[TRAIN])):
        with pytest.raises(
            ValueError, match=r"not calibrated: call calibrate\(X, y, coverage=0.9\)"
        ):
            other.predict_interval(X[NEW])


def test_invalid_input_raises():
    model = PolyleafRegressor(**SMALL).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match=r"20 rows are too few"):
        model.calibrate(X[:20], Y[:20], coverage=0.99)
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1, got 90"):
        model.calibrate(X[:20], Y[:20], coverage=90)
    with pytest.raises(ValueError, match="y has 19 rows, but X has 20"):
        model.calibrate(X[:20], Y[:19])
    assert not hasattr(PolyleafClassifier(), "predict_interval")


@pytest.mark.parametrize("coverage", ["a", None, [0.9, 0.8]])
def test_coverage_must_be_a_number(coverage):
    X = np.arange(60.0)[:, None]
    model = PolyleafRegressor(n_estimators=2).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1, got"):
        model.calibrate(X, X[:, 0], coverage=coverage)


def draw_compound(rng, mean):
    """Draw sums of a Poisson number of gamma variables, of variance `mean ** 1.5`."""
    n = rng.poisson(2 * np.sqrt(mean))
    return rng.gamma(np.maximum(n, 1), np.sqrt(mean) / 2) * (n > 0)


@pytest.mark.parametrize(
    ("objective", "draw"),
    [
        ("poisson", lambda rng, mean: rng.poisson(mean)),
        ("gamma", lambda rng, mean: rng.gamma(2.0, mean / 2)),
        ("tweedie", draw_compound),
    ],
)
def test_intervals_of_a_log_link_widen_with_the_mean(objective, draw):
    rng = np.random.default_rng(0)
    X, exposure = rng.random((4000, 3)), np.exp(rng.uniform(-1, 4, 4000))
    y = draw(rng, exposure * np.exp(1 + X[:, 0]))
    offset, parts = np.log(exposure), (slice(0, 2000), slice(2000, 3000), slice(3000, 4000))
    train, held_out, test = parts
    model = PolyleafRegressor(objective=objective, n_estimators=60, max_leaves=8, random_state=0)
    model.fit(X[train], y[train], offset=offset[train])
    model.calibrate(X[held_out], y[held_out], coverage=0.8, offset=offset[held_out])
    low, high = model.predict_interval(X[test], offset=offset[test]).T
    assert (low >= 0).all() and (low <= high).all()
    covered = (low <= y[test]) & (y[test] <= high)
    is_small = exposure[test] < 5
    for rows in (is_small, ~is_small):
        assert 0.7 < covered[rows].mean() < 0.9
    assert (high - low)[is_small].mean() < 0.5 * (high - low)[~is_small].mean()
    loaded = PolyleafRegressor.load_model(model.save_model())
    np.testing.assert_array_equal(
        loaded.predict_interval(X[test], offset=offset[test]), np.stack([low, high], axis=1)
    )
