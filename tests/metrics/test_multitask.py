"""Tables of scores equal scikit-learn's, and the baseline ignores the features."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from polyleaf import PolyleafRegressor, RowData
from polyleaf.metrics._multitask import baseline_scores, compute_scores, quantile_scores


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_regression(rng):
    y, p = rng.normal(size=(2, 50, 3))
    found = compute_scores("regression", RowData(y), p)
    assert found["RMSE"] == pytest.approx(metrics.root_mean_squared_error(y.ravel(), p.ravel()))
    assert found["aRMSE"] == pytest.approx(metrics.root_mean_squared_error(y, p))
    assert found["MAE"] == pytest.approx(metrics.mean_absolute_error(y, p))
    assert found["R2"] == pytest.approx(metrics.r2_score(y, p))
    alone = compute_scores("regression", RowData(y[:, 0]), p[:, 0])
    assert alone["RMSE"] == pytest.approx(metrics.root_mean_squared_error(y[:, 0], p[:, 0]))
    assert alone["R2"] == pytest.approx(metrics.r2_score(y[:, 0], p[:, 0]))
    assert "aRMSE" not in alone


def test_regression_with_missing_values(rng):
    y, p = rng.normal(size=(2, 50, 2))
    y[:10, 0] = np.nan
    found, known = compute_scores("regression", RowData(y), p), ~np.isnan(y)
    parts = [(y[10:, 0], p[10:, 0]), (y[:, 1], p[:, 1])]
    assert found["RMSE"] == pytest.approx(metrics.root_mean_squared_error(y[known], p[known]))
    assert found["aRMSE"] == pytest.approx(
        np.mean([metrics.root_mean_squared_error(*part) for part in parts])
    )
    assert found["MAE"] == pytest.approx(metrics.mean_absolute_error(y[known], p[known]))
    assert found["R2"] == pytest.approx(np.mean([metrics.r2_score(*part) for part in parts]))


@pytest.mark.parametrize("unknown", [False, True])
def test_scores_equal_the_training_log(rng, unknown):
    """Also with targets on different scales and with missing values."""
    X = rng.normal(size=(300, 4))
    Y = np.column_stack([X[:, 0], 10 * X[:, 1]]) + rng.normal(size=(300, 2))
    if unknown:
        Y[::3, 0] = np.nan
    names = ["rmse", "armse", "mae", "r2"]
    model = PolyleafRegressor(n_estimators=5, eval_metric=names, missing_targets="ignore")
    model.fit(X[:200], Y[:200], eval_set=[(X[200:], Y[200:])])
    logged = {name: values[-1] for name, values in model.evals_result_["validation_0"].items()}
    found = compute_scores("regression", RowData(Y[200:]), model.predict(X[200:]))
    assert {name.lower(): value for name, value in found.items()} == pytest.approx(logged, rel=1e-6)


def test_regression_with_constant_target():
    y = np.column_stack([np.ones(5), np.arange(5.0)])
    assert compute_scores("regression", RowData(y), y + 1)["R2"] == pytest.approx(
        metrics.r2_score(y[:, 1], y[:, 1] + 1)
    )
    assert np.isnan(compute_scores("regression", RowData(y[:, 0]), y[:, 0])["R2"])


def test_quantiles(rng):
    y, p = rng.normal(size=(30, 2)), rng.normal(size=(30, 2, 3))
    levels = np.array([0.1, 0.5, 0.9])
    found = quantile_scores(RowData(y), p.reshape(30, 6), levels)
    for i, level in enumerate(levels):
        expected = metrics.mean_pinball_loss(y, p[..., i], alpha=level)
        assert found[f"pinball loss q{level}"] == pytest.approx(expected)
        assert found[f"share below q{level}"] == pytest.approx((y <= p[..., i]).mean())


def test_classification(rng):
    classes = np.array(["a", "b", "c"])
    y = classes[rng.integers(3, size=60)]
    P = rng.dirichlet(np.ones(3), size=60)
    predicted = classes[P.argmax(axis=1)]
    found = compute_scores("classification", RowData(y), predicted, P, classes)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, predicted))
    assert found["macro F1"] == pytest.approx(metrics.f1_score(y, predicted, average="macro"))
    assert found["log loss"] == pytest.approx(metrics.log_loss(y, P, labels=classes))


def test_classification_with_an_unseen_class():
    P = np.array([[1.0, 0.0]])
    for unseen in ("0", "aa", "c"):
        found = compute_scores(
            "classification", RowData(np.array([unseen])), np.array(["a"]), P, np.array(["a", "b"])
        )
        assert found["accuracy"] == 0 and 30 < found["log loss"] < 40


def test_multilabel(rng):
    Y = rng.integers(2, size=(40, 4))
    P = rng.uniform(size=(40, 4))
    found = compute_scores("multilabel", RowData(Y), P > 0.5, P)
    assert found["label accuracy"] == pytest.approx(1 - metrics.hamming_loss(Y, P > 0.5))
    assert found["subset accuracy"] == pytest.approx(metrics.accuracy_score(Y, P > 0.5))
    assert found["micro F1"] == pytest.approx(metrics.f1_score(Y, P > 0.5, average="micro"))
    expected = np.mean([metrics.log_loss(Y[:, k], P[:, k], labels=[0, 1]) for k in range(4)])
    assert found["log loss"] == pytest.approx(expected)


def test_one_label_has_the_f1_of_its_positive_class():
    Y, found_labels = np.array([[1], [0], [1], [1], [0]]), np.array([[1], [1], [0], [1], [0]])
    found = compute_scores("multilabel", RowData(Y), found_labels, None)
    assert found["F1"] == metrics.f1_score(Y, found_labels)
    assert not {"micro F1", "macro F1"} & found.keys()


def test_baselines():
    y = np.array([[1.0, 10], [3, 30]])
    assert baseline_scores("regression", y, np.array([[2.0, 20], [4, 20]]))["MAE"] == pytest.approx(
        0.5
    )
    found = baseline_scores("classification", np.array(["a", "b", "b"]), np.array(["b", "a"]))
    assert found["accuracy"] == 0.5 and found["log loss"] == pytest.approx(
        -np.log([2 / 3, 1 / 3]).mean()
    )
    found = baseline_scores(
        "multilabel", np.array([[1, 0], [1, 0], [0, 0]]), np.array([[1, 0], [1, 1]])
    )
    assert found["label accuracy"] == 0.75
