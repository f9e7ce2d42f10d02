"""Errors relative to the standard deviation of each target."""

import numpy as np
import pytest

from polyleaf import RowData
from polyleaf.metrics import default_metrics, get_metric
from polyleaf.objectives import get_objective


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((40, 3)) * [1e6, 1.0, 1e-3] + [5.0, -2.0, 0.1]
    return y, y + rng.standard_normal((40, 3)) * [1e5, 0.5, 1e-3]


def test_relative_error_equals_its_definition(data):
    y, p = data
    expected = np.mean(
        [np.sqrt(np.mean((a - b) ** 2)) / np.std(a) for a, b in zip(y.T, p.T, strict=True)]
    )
    assert get_metric("relative_rmse")(RowData(y), p) == pytest.approx(expected, rel=1e-12)
    expected = np.mean([np.mean(abs(a - b)) / np.std(a) for a, b in zip(y.T, p.T, strict=True)])
    assert get_metric("relative_mae")(RowData(y), p) == pytest.approx(expected, rel=1e-12)


def test_relative_error_is_scale_invariant(data):
    y, p = data
    unit = np.array([1e-9, 3.0, 1e7])
    for name in ("relative_rmse", "relative_mae"):
        assert get_metric(name)(RowData(y * unit), p * unit) == pytest.approx(
            get_metric(name)(RowData(y), p), rel=1e-9
        )


def test_levels_of_a_target_share_its_deviation(data):
    y, p = data
    objective = get_objective("quantile", alpha=(0.1, 0.9))
    predicted = np.repeat(p, 2, axis=1) + np.tile([-1.0, 1.0], 3)
    losses = get_metric("quantile", objective).per_output(RowData(y), predicted)
    expected = np.mean(losses / np.repeat(y.std(0), 2))
    assert get_metric("relative_quantile", objective)(RowData(y), predicted) == pytest.approx(
        expected, rel=1e-12
    )


def test_integer_weights_equal_repeated_rows(data):
    y, p = data
    weight = np.random.default_rng(1).integers(0, 4, y.shape).astype(np.float32)
    each = [
        np.sqrt(np.mean((a.repeat(w) - b.repeat(w)) ** 2)) / a.repeat(w).std()
        for a, b, w in zip(y.T, p.T, weight.astype(int).T, strict=True)
    ]
    assert get_metric("relative_rmse")(RowData(y, weight), p) == pytest.approx(
        np.mean(each), rel=1e-6
    )
    weight[:, 1] = 0
    assert get_metric("relative_rmse")(RowData(y, weight), p) == pytest.approx(
        (each[0] + each[2]) / 2, rel=1e-6
    )


def test_constant_targets_are_ignored_unless_all_are_constant(data):
    y, p = data
    y[:, 0] = 7.0
    left = get_metric("relative_rmse")(RowData(y[:, 1:]), p[:, 1:])
    assert get_metric("relative_rmse")(RowData(y), p) == pytest.approx(left, rel=1e-12)
    one_row = get_metric("relative_rmse")(RowData(y[:1]), p[:1])
    assert one_row == pytest.approx(get_metric("armse")(RowData(y[:1]), p[:1]), rel=1e-12)
    assert np.isnan(get_metric("relative_rmse")(RowData(y, np.zeros_like(y)), p))


def test_deviation_is_computed_from_the_evaluated_data(data):
    metric, (y, p) = get_metric("relative_rmse"), data
    bound = metric.bind(RowData(y))
    first, second = bound(p), metric(RowData(y[:20]), p[:20])
    assert second == get_metric("relative_rmse")(RowData(y[:20]), p[:20])
    assert bound(p) == metric(RowData(y), p) == first


@pytest.mark.parametrize(
    ("objective", "n_targets", "names"),
    [
        ("squared_error", 2, ["rmse", "relative_rmse"]),
        ("absolute_error", 3, ["mae", "relative_mae"]),
        ("huber", 3, ["mae", "relative_mae"]),
        ("quantile", 2, ["quantile", "relative_quantile"]),
        ("poisson", 2, ["poisson_deviance"]),
        ("squared_error", 1, ["rmse"]),
        ("quantile", 1, ["quantile"]),
    ],
)
def test_default_metrics_of_several_targets_end_with_relative_error(objective, n_targets, names):
    found = default_metrics(get_objective(objective), "regression", n_targets)
    assert [metric.name for metric in found] == names
    assert not any(metric.greater_is_better for metric in found)


@pytest.mark.parametrize("name", ["relative_r2", "relative_auc", "relative_poisson_deviance"])
def test_metric_without_scale_raises(name):
    with pytest.raises(ValueError, match="relative_rmse"):
        get_metric(name)
