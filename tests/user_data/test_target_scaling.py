"""Scaling of targets on different scales."""

import warnings

import numpy as np
import pytest

from polyleaf import PolyleafRegressor, RowData
from polyleaf.user_data.target import encode_regression
from polyleaf.user_data.target_scaling import MIN_SPREAD, compute_target_scale

NAN = np.nan


def outputs(spreads, n=50, dtype=np.float64):
    """Return columns of mean 7 with the given standard deviations."""
    values = np.random.default_rng(0).standard_normal((n, len(spreads)))
    values = (values - values.mean(0)) / values.std(0)
    return (7 + values * spreads).astype(dtype)


def compute_training_spreads(columns, **options):
    """Return the standard deviations of the encoded outputs, relative to the largest."""
    spread = encode_regression(RowData(columns), normalize="auto", **options).values.std(0)
    return spread / spread.max()


@pytest.mark.parametrize(
    "spreads", [[3.0], [1.0, 1.0], [1.0, 9.9], [2.0, 5.0, 19.0], [1e-6, 5e-7], [1.0, 0.0]]
)
def test_outputs_on_similar_scales_are_not_scaled(spreads):
    columns = np.squeeze(outputs(spreads, dtype=np.float32))
    target = encode_regression(RowData(columns), normalize="auto")
    assert target.encoding.scale is None and target.encoding.offset is None
    plain = encode_regression(RowData(columns))
    assert target.values.dtype == plain.values.dtype
    np.testing.assert_array_equal(target.values, plain.values)


def test_small_outputs_are_scaled_up_to_the_minimum_spread():
    found = compute_training_spreads(outputs([1e6, 4e5, 9e4, 1.0, 1e-3]))
    np.testing.assert_allclose(found, [1, 0.4, MIN_SPREAD, MIN_SPREAD, MIN_SPREAD], rtol=1e-5)


@pytest.mark.parametrize("first", [7.0, -1e7])  # the quick pass subtracts the first row
@pytest.mark.parametrize("ratio", [0.0999, 0.1001])
def test_limit_of_similar_scales_is_exact(ratio, first):
    columns = outputs([1.0, ratio], n=9000)
    columns[0] = first
    spread = columns.std(0)
    scale = compute_target_scale(RowData(columns), "auto")[1]
    assert (scale is not None) == (spread[1] < MIN_SPREAD * spread[0])


def test_scale_equals_its_definition():
    columns, weight = outputs([100.0, 30.0, 2.0]), np.random.default_rng(1).uniform(0.1, 3, 50)
    mean = np.average(columns, axis=0, weights=weight)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight))
    offset, scale = compute_target_scale(RowData(columns, weight), "auto")
    np.testing.assert_allclose(offset, mean, rtol=1e-12)
    np.testing.assert_allclose(scale, [spread[0], spread[0], spread[2] / MIN_SPREAD], rtol=1e-12)


def test_scale_ignores_missing_values_and_zero_weights():
    columns = outputs([1000.0, 1.0])
    columns[::2, 1] = NAN
    columns[1, 1], weight = 1e9, np.ones((50, 2), np.float32)
    weight[1, 1] = 0
    found = encode_regression(RowData(columns, weight), missing="ignore", normalize="auto")
    known = np.delete(columns[1::2, 1], 0)
    np.testing.assert_allclose(found.encoding.scale[1], known.std() / MIN_SPREAD, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_noise_counts_as_constant(dtype):
    columns = outputs([5.0, 0.0]).astype(dtype)
    columns[3, 1] = np.nextafter(columns[3, 1], dtype(8))
    assert encode_regression(RowData(columns), normalize="auto").encoding.scale is None
    with_small = np.c_[columns, outputs([1e-3]).astype(dtype)]
    assert compute_training_spreads(with_small)[1] < 1e-6


@pytest.mark.parametrize("factor", [2.0**-1000, 2.0**-500, 2.0**500, 2.0**1000])
def test_scaled_targets_of_any_magnitude_train_the_same_trees(factor):
    X, y = np.random.default_rng(0).standard_normal((60, 2)), outputs([2.0, 3.0], 60)
    plain, scaled = (
        PolyleafRegressor(n_estimators=3, normalize_targets=True, n_jobs=1).fit(X, target)
        for target in (y, y * factor)
    )
    np.testing.assert_array_equal(scaled.predict(X), plain.predict(X) * factor)


def test_too_large_targets_raise():
    with pytest.raises(ValueError, match="too large"):
        encode_regression(RowData(np.array([[0.0, 1.0], [1e30, 2.0]])), normalize="auto")


@pytest.mark.parametrize(
    "weight", [np.full(20, 1e17), np.r_[1e19, np.ones(19)], np.full((20, 2), 1e17)]
)
def test_weights_that_overflow_raise(weight):
    y = outputs([1.0] * (weight.ndim if weight.ndim == 2 else 1), n=20)
    with pytest.raises(
        ValueError, match=r"sample_weight is too large: its sum is .* Divide the weights"
    ):
        encode_regression(RowData(y, weight=weight))


def test_weighted_targets_that_overflow_raise():
    y = np.arange(20.0) * 1e8
    with pytest.raises(ValueError, match=r"total weight of 2e"):
        encode_regression(RowData(y, weight=np.full(20, 1e10)), normalize=False)
    encode_regression(RowData(y, weight=np.full(20, 1e10)), normalize=True)


def test_small_weights_warn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    model = PolyleafRegressor(n_estimators=2)
    with pytest.warns(UserWarning, match=r"sample_weight sums to 1"):
        model.fit(X, y, np.full(50, 1 / 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y, np.full(50, 0.5))
        PolyleafRegressor(n_estimators=2, reg_lambda=0.1).fit(X, y, np.full(50, 1 / 50))
