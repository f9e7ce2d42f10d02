"""Random rounding and squared norms of rows: the core's bits equal the reference's."""

import numpy as np
import pytest
from reference.random_rounding import hash_ids, round_at_random, squared_norms

from polyleaf import _core

RNG = np.random.default_rng(0)
KEYS = RNG.integers(0, 2**32, (3, 2), np.uint32)


def make_values(n, spread):
    values = RNG.standard_normal((n, 3)) * np.exp(spread * RNG.standard_normal((n, 1)))
    values[:, 1] = np.abs(values[:, 1])
    return values.astype(np.float32)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("is_sampled", [False, True])
@pytest.mark.parametrize("spread", [0.1, 4.0])  # few spread: sums overflow, so that steps double
def test_random_rounding_equals_the_reference(spread, is_sampled, n_threads):
    n = 150_000 if spread < 1 else 9000
    values, ids = make_values(n, spread), RNG.permutation(n)
    if spread < 1:
        values = np.sign(values) * np.float32(1)
    rows = np.flatnonzero(RNG.random(n) < 0.7).astype(np.uint32) if is_sampled else None
    multiplier = RNG.choice(np.array([0, 1, 2.5], np.float32), n) if is_sampled else None
    ours = _core.round_at_random(values, rows, multiplier, ids, KEYS, n_threads)
    theirs = round_at_random(values, rows, multiplier, ids, KEYS)
    np.testing.assert_array_equal(ours, theirs)
    positions = _core.round_at_random(values, rows, multiplier, None, KEYS, n_threads)
    np.testing.assert_array_equal(
        positions, round_at_random(values, rows, multiplier, np.arange(n), KEYS)
    )


def test_random_rounding_of_infinite_values_raises():
    values = make_values(10, 1.0)
    values[3, 1] = np.inf
    with pytest.raises(ValueError, match="not finite"):
        _core.round_at_random(values, None, None, None, KEYS, 1)


def test_hashes_of_ids_equal_the_reference():
    ids = RNG.integers(0, 2**32, 1000, np.uint32)
    np.testing.assert_array_equal(_core.hash_ids(ids, KEYS[0]), hash_ids(ids, KEYS[0]))


@pytest.mark.parametrize("n_columns", [1, 2, 7, 16, 33])
def test_squared_norms_equal_the_reference(n_columns):
    values = RNG.standard_normal((5000, n_columns)).astype(np.float32)
    for n_threads in (1, 2):
        norms = _core.squared_norms(values, n_threads)
        np.testing.assert_array_equal(norms, squared_norms(values))
