"""Figures of predicted distributions: even where they are right, and by definition for counts."""

import numpy as np
import pytest

from polyleaf.distributions import NegativeBinomial, Normal
from polyleaf.inspection.report.laws import COVERAGES, heights, intervals


def test_laws_that_are_right_are_even_and_hold():
    rng = np.random.default_rng(0)
    law = Normal(rng.standard_normal(20_000), rng.uniform(0.5, 2.0, 20_000))
    y = law.rvs(random_state=1)
    error = (
        np.sqrt(0.1 * 0.9 / 20_000) / 0.1
    )  # of the share of rows in one of ten bins, beside a tenth
    np.testing.assert_allclose(heights(y, law), 1.0, atol=3.5 * error)
    for coverage, found in zip(COVERAGES, intervals(y, law), strict=True):
        assert found.coverage == coverage
        assert abs(found.share - coverage) < 4 * found.error
        bounds = law.interval(coverage)
        assert found.width == pytest.approx(np.mean(bounds[:, 1] - bounds[:, 0]))


def test_laws_that_are_too_narrow_are_high_at_the_ends():
    y = np.random.default_rng(0).standard_normal(5000)
    found = heights(y, Normal(np.zeros(5000), np.full(5000, 0.4)))
    assert found[0] > 2 < found[-1] and found[4] < 1
    assert found.sum() == pytest.approx(10)


def test_counts_fill_what_their_probability_covers():
    law = NegativeBinomial(np.array([0.7, 3.0, 40.0]), np.array([0.5, 1.0, 0.1]))
    y, n_bins = np.array([0.0, 2.0, 55.0]), 4
    expected = np.zeros(n_bins)
    for i in range(3):
        one = law[i : i + 1]
        first, last = float(one.cdf(y[i] - 1)[0]), float(one.cdf(y[i])[0])
        for b in range(n_bins):
            shared = min(last, (b + 1) / n_bins) - max(first, b / n_bins)
            expected[b] += max(0.0, shared) / (last - first) / 3 * n_bins
    np.testing.assert_allclose(heights(y, law, n_bins), expected, rtol=1e-12)


def test_truth_beyond_the_tail_is_in_the_last_bin():
    law = Normal(np.zeros(2), np.ones(2))
    np.testing.assert_array_equal(heights(np.array([1e6, -1e6]), law, 5), [2.5, 0, 0, 0, 2.5])
