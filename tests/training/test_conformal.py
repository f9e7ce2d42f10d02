"""Conformal quantiles and interval_widths against their definition in exact fractions."""

import numpy as np
import pytest
from reference.calibration import interval_widths as widths_by_definition
from reference.calibration import residual_quantile as by_definition
from support.pairwise import parametrize_pairs

from polyleaf.training.cross_fitting import conformal_quantile, interval_widths

LEVELS = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [1, 2, 5, 9, 19, 99, 100])
def test_ranks_equal_the_definition(n, level):
    rng = np.random.default_rng(n)
    for residuals in (rng.standard_normal(n), rng.integers(-2, 3, n)):
        assert conformal_quantile(residuals, level) == by_definition(residuals, level)
        weight = rng.integers(0, 4, n) / 4
        assert conformal_quantile(residuals, level, weight) == by_definition(
            residuals, level, weight
        )


@pytest.mark.parametrize(
    ("level", "n", "rank"), [(0.9, 99, 90), (0.9, 9, 9), (0.9, 8, 8), (0.1, 99, 10)]
)
def test_ranks_of_small_examples(level, n, rank):
    assert conformal_quantile(np.arange(1, n + 1), level) == rank
    assert conformal_quantile(-np.arange(1, n + 1), 1 - level) == -rank


def test_medians_and_empty_residuals_give_zero():
    assert conformal_quantile(np.arange(5.0) + 3, 0.5) == 0
    assert conformal_quantile(np.empty(0), 0.9) == 0
    assert conformal_quantile(np.ones(3), 0.9, np.zeros(3)) == 0


@pytest.mark.parametrize("level", [0.1, 0.8, 0.95])
def test_quantiles_have_their_level_on_new_rows(level):
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4000, 40))
    below = [row[-1] <= conformal_quantile(row[:-1], level) for row in draws]
    expected = np.floor(level * 40 + 1e-9) / 40 if level < 0.5 else np.ceil(level * 40 - 1e-9) / 40
    assert abs(np.mean(below) - expected) < 3 * np.sqrt(level * (1 - level) / 4000)


@parametrize_pairs(joint=[False, True], coverage=[0.3, 0.5, 0.8, 0.9, 0.95], n=[1, 4, 9, 19, 60])
def test_widths_equal_the_definition(n, coverage, joint):
    scores = np.random.default_rng(n).standard_normal((n, 3)) * [1, 100, 0.01]
    expected = widths_by_definition(scores, coverage, joint)
    if expected is None:
        with pytest.raises(ValueError, match="coverage"):
            interval_widths(scores, coverage, joint=joint)
    else:
        np.testing.assert_allclose(
            interval_widths(scores, coverage, joint=joint), expected, rtol=1e-14
        )


@pytest.mark.parametrize("n, n_targets", [(60, 16), (186, 14), (100, 3)])
@pytest.mark.parametrize("heavy, shift", [(1, 0.8), (3, 0.0)])
def test_joint_intervals_have_their_coverage_on_new_rows(n, n_targets, heavy, shift):
    """With many targets and few rows, ranks per target would cover a tenth too little jointly."""
    rng = np.random.default_rng(n)
    inside, repeats = 0, 1500
    for _ in range(repeats):
        scores = np.abs(
            0.5 * rng.standard_normal((n + 1, 1)) + 0.8 * rng.standard_normal((n + 1, n_targets))
        )
        scores = scores**heavy * np.logspace(-3, 3, n_targets) - shift
        inside += (scores[-1] <= interval_widths(scores[:-1], 0.9, joint=True)).all()
    assert 0.9 - 3 * np.sqrt(0.09 / repeats) < inside / repeats < 0.94


def test_scales_of_targets_with_mostly_zero_residuals():
    scores = np.abs(np.random.default_rng(0).standard_normal((99, 2)))
    scores[:95, 0] = 0.0
    found = interval_widths(scores, 0.9, joint=True)
    assert np.isfinite(found).all() and (scores <= found).all(axis=1).sum() >= 90
    assert interval_widths(np.zeros((99, 2)), 0.9, joint=True).tolist() == [0.0, 0.0]


def test_widths_use_weights_and_ignore_missing_targets():
    scores = np.random.default_rng(0).standard_normal((300, 2))
    weight = np.random.default_rng(1).integers(0, 2, scores.shape).astype(float)
    each = [
        interval_widths(s[w > 0][:, None], 0.9)[0] for s, w in zip(scores.T, weight.T, strict=True)
    ]
    np.testing.assert_array_equal(interval_widths(scores, 0.9, weight), each)
    both = weight.all(axis=1)
    np.testing.assert_array_equal(
        interval_widths(scores, 0.9, weight, joint=True),
        interval_widths(scores[both], 0.9, joint=True),
    )
    np.testing.assert_array_equal(
        interval_widths(scores, 0.9, weight[:, 0]), interval_widths(scores[weight[:, 0] > 0], 0.9)
    )
    heavy = np.where(scores[:, 0] > 1, 50.0, 1.0)
    assert interval_widths(scores, 0.8, heavy)[0] > interval_widths(scores, 0.8)[0]
