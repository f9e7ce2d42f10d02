"""Estimates of the memory of a training."""

from __future__ import annotations

import pytest

from polyleaf import memory_estimate

MANY = 1_000_000


def test_estimate_grows_with_stored_data():
    usual = memory_estimate(MANY, 50, 8)
    for more in (
        memory_estimate(2 * MANY, 50, 8),
        memory_estimate(MANY, 100, 8),
        memory_estimate(MANY, 50, 16),
        memory_estimate(MANY, 50, 8, n_validation_rows=MANY),
        memory_estimate(MANY, 50, 8, task="labels"),  # which has a Hessian per output
        memory_estimate(MANY, 50, 8, leaf="linear"),  # linear leaves read the features
        memory_estimate(MANY, 50, 8, max_leaves=255),
        memory_estimate(MANY, 50, 8, n_estimators=30_000),
    ):
        assert more > usual


def test_bytes_per_row():
    """Codes; y, twice; raw scores, gradients, channels; row ids."""
    small = {"max_leaves": 2, "n_jobs": 1, "n_estimators": 300}
    most = [memory_estimate(n * MANY, 64, **small) for n in (10, 20)]  # more than bins take
    of_row = (most[1] - most[0]) / (10 * MANY)
    codes, y, scores, channels, rows = 64, 12, 4 + 4 + 4, 2 * 2 * 4, 16
    assert of_row == codes + y + scores + channels + rows


def test_bytes_per_row_of_a_ranking():
    """The scores are those of the trade-offs, the judgements those of the goals."""
    small = {"max_leaves": 2, "n_jobs": 1, "n_estimators": 300, "task": "ranking"}
    small["goal_weights"] = [(1, 0, 0), (0, 0.5, 0.5)]
    sizes = [memory_estimate(n * MANY, 64, 3, **small) for n in (10, 20)]
    codes, y, scores, channels, rows = 64, 3 * 12, 2 * (4 + 4 + 4), 4 + 2 * 2 * 8, 16
    queries, judgements = 16, 3 * 9
    of_row = codes + y + scores + channels + rows + queries + judgements
    assert sizes[1] - sizes[0] == 10 * MANY * of_row
    held = memory_estimate(10 * MANY, 64, 3, n_validation_rows=MANY, **small) - sizes[0]
    assert held == MANY * (64 + 3 * 4 + 2 * 28 + 3 * 49 + 80)


def test_finding_bins_may_take_more_than_training():
    """A copy of 200,000 rows in float64; measured with one output: 41 MiB."""
    assert memory_estimate(200_000, 20, n_estimators=20, n_jobs=1) > 38 * 2**20


def test_histograms_stay_within_histogram_memory():
    parameters = {"max_leaves": 4000, "n_estimators": 1}
    bounded = memory_estimate(10 * MANY, 1000, 16, histogram_memory=1 << 28, **parameters)
    free = memory_estimate(10 * MANY, 1000, 16, histogram_memory=1 << 36, **parameters)
    assert free - bounded > 1 << 30


@pytest.mark.parametrize("task", ["regression", "classes", "labels", "ranking"])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"multi_strategy": "one_output_per_tree"}, {"sketch": "auto"}, {"hessian": "full"}],
)
def test_all_kinds_of_problems_have_an_estimate(task, parameters):
    assert (
        2**20
        < memory_estimate(100_000, 20, 5, task=task, histogram_memory=1 << 32, **parameters)
        < 2**30
    )


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="n_rows == 0, must be >= 1"):
        memory_estimate(0, 5)
    with pytest.raises(TypeError, match="n_tres"):
        memory_estimate(100, 5, n_tres=3)


@pytest.mark.parametrize("arguments", [("a", 10), (10, None), (10, 2.5), (10, 2, "1")])
def test_counts_must_be_integers(arguments):
    with pytest.raises(TypeError, match="must be an instance of int"):
        memory_estimate(*arguments)
