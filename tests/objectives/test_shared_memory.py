"""Functions and data sets do not share memory with the user."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.objectives import Objective


def make_data(n=200):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0].copy(), np.ones(n)


def writes_target(y, p):
    y[:] = 0
    return p - y, np.ones_like(p)


def writes_weight(y, p, sample_weight=None):
    sample_weight[:] = 0
    return p - y, np.ones_like(p)


def writes_scores(y, p):
    p -= y
    return p, np.ones_like(p)


@dataclass(frozen=True)
class WritesRows(Objective):
    name: ClassVar[str] = "writes_rows"

    def bind(self, rows):
        rows.target[:] = 0


@pytest.mark.parametrize("objective", [writes_target, writes_weight, WritesRows()])
def test_objectives_cannot_change_the_data_of_the_user(objective):
    X, y, weight = make_data()
    with pytest.raises(ValueError, match="read-only"):
        PolyleafRegressor(objective, n_estimators=3).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(y, X[:, 0])
    assert weight.all()


def test_the_scores_of_an_objective_are_its_own():
    X, y, _ = make_data()
    model = PolyleafRegressor(writes_scores, n_estimators=3, base_score=0.0).fit(X, y)
    built_in = PolyleafRegressor(n_estimators=3, base_score=0.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), built_in.predict(X), atol=1e-6)


def changes_target(y, p):
    y[:] = 0
    return 0.0


def changes_prediction(y, p):
    p[:] = 0
    return 0.0


def changes_weight(y, p, sample_weight):
    sample_weight[:] = 0
    return 0.0


@pytest.mark.parametrize("metric", [changes_target, changes_prediction, changes_weight])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_metrics_cannot_change_what_other_metrics_read(metric, n_outputs):
    X, y, weight = make_data()
    Y = y if n_outputs == 1 else np.column_stack([y, y])
    with pytest.raises(ValueError, match="read-only"):
        PolyleafRegressor(n_estimators=3, eval_metric=[metric, "rmse"]).fit(
            X, Y, X_val=X, y_val=Y, sample_weight_val=weight
        )
    with pytest.raises(ValueError, match="read-only"):
        PolyleafClassifier(n_estimators=3, eval_metric=[metric, "error"]).fit(
            X, Y > 0, X_val=X, y_val=Y > 0, sample_weight_val=weight
        )
    np.testing.assert_array_equal(y, X[:, 0])
    assert weight.all()


@pytest.mark.parametrize(
    "convert",
    [np.array, list, pd.Series, lambda y: pd.DataFrame({"a": y})],
    ids=["array", "list", "series", "frame"],
)
def test_a_dataset_copies_what_belongs_to_rows(convert):
    X, y, weight = make_data()
    offset = np.zeros(len(y))
    values = [convert(y), (list if convert is list else np.array)(weight), convert(offset)]
    dataset = Dataset(X, values[0], sample_weight=values[1], offset=values[2])
    fresh = PolyleafRegressor(n_estimators=3).fit(dataset).save_model()
    for each in values:
        if isinstance(each, pd.Series | pd.DataFrame):
            each.iloc[:100] = 5
        else:
            each[:100] = [5.0] * 100
    y[:100] = weight[:100] = offset[:100] = 5
    assert PolyleafRegressor(n_estimators=3).fit(dataset).save_model() == fresh


def test_a_dataset_copies_sparse_targets():
    X, y, _ = make_data()
    Y = scipy.sparse.csr_matrix(np.column_stack([y > 0, y > 1]).astype(float))
    dataset = Dataset(X, Y)
    Y.data[:] = 7
    assert (dataset.y.data == 1).all()
