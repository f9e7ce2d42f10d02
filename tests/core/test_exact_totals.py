"""Totals equal the reference implementation's, bit for bit, in any order of rows."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.exact_totals import exact_totals

from polyleaf import _core


def draw_values(seed, n, k, dtype, spread):
    """Return values of very different magnitudes, a third of them 0."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-spread, spread + 1, (n, k))
    return np.where(rng.random((n, k)) < 0.3, 0.0, values).astype(dtype)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([0, 1, 2, 9, 300]),
    k=st.sampled_from([1, 3]),
    dtype=st.sampled_from([np.float32, np.float64]),
    spread=st.sampled_from([0, 3, 30]),
    weights=st.sampled_from([0, 1, 3]),
    n_groups=st.sampled_from([0, 1, 4]),
)
def test_totals_equal_the_reference_in_any_order(seed, n, k, dtype, spread, weights, n_groups):
    rng = np.random.default_rng(seed)
    values = draw_values(seed, n, k, dtype, spread)
    weight = draw_values(seed + 1, n, min(weights, k), np.float32, 2) if weights else None
    group = rng.integers(0, n_groups, n).astype(np.int32) if n_groups else None
    found = _core.exact_totals(values, weight, group, max(1, n_groups), 1)
    np.testing.assert_array_equal(found, exact_totals(values, weight, group, max(1, n_groups)))
    order = rng.permutation(n)
    mixed = [None if a is None else np.ascontiguousarray(a[order]) for a in (values, weight, group)]
    np.testing.assert_array_equal(found, _core.exact_totals(*mixed, max(1, n_groups), 3))


@pytest.mark.parametrize("scale", [1.0, 1e-310, 1e-40, 1e300])
def test_totals_are_correctly_rounded(scale):
    values = np.random.default_rng(0).normal(size=(10_000, 1)) * scale
    true = float(sum(Fraction(x) for x in values[:, 0]))
    assert _core.exact_totals(values, None, None, 1, 2)[0, 0, 0] == pytest.approx(
        true, rel=1e-15, abs=5e-324
    )
    assert math.isfinite(true)


def test_single_row_and_cancellation():
    values = np.array([[0.1], [1e16], [-1e16]])  # below 2^54: the unit is 2^-40
    assert _core.exact_totals(values[:1], None, None, 1, 1)[0, 0, 0] == 0.1
    expected = [math.floor(0.1 * 2**40) / 2**40, 3.0]
    np.testing.assert_array_equal(_core.exact_totals(values, None, None, 1, 1)[:, 0, 0], expected)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_non_finite_column_gives_nan(odd):
    values = np.array([[odd, 1.0], [2.0, 2.0]])
    np.testing.assert_array_equal(_core.exact_totals(values, None, None, 1, 1)[0, 0], [np.nan, 3.0])


@pytest.mark.parametrize(
    ("group", "n_groups", "words"),
    [
        ([0, 2], 2, "out of range"),
        ([-1, 0], 2, "out of range"),
        ([0], 2, "one number for each row"),
        ([0, 0], 0, "at least 1"),
    ],
)
def test_invalid_groups(group, n_groups, words):
    with pytest.raises(ValueError, match=words):
        _core.exact_totals(np.ones((2, 1)), None, np.array(group, np.int32), n_groups, 1)
