"""Columns with labels other than text: another order is refused wherever X is read."""

import pickle

import numpy as np
import pandas as pd
import pytest

from polyleaf import Dataset, PolyleafRegressor, load_model, refit

N = 200
LABELS = {
    "numbers": [0, 1, 2],
    "other numbers": [30, 10, 20],
    "timestamps": list(pd.date_range("2026-01-01", periods=3)),
    "pairs": pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]),
}


def make_frame(labels):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=labels)
    return X, 3 * X.iloc[:, 0].to_numpy() + X.iloc[:, 1].to_numpy()


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("projection", [None, "pca"])
def test_another_order_is_refused_wherever_x_is_read(labels, projection):
    X, y = make_frame(labels)
    reversed_X = X.iloc[:, ::-1]
    parameters = {"n_estimators": 3, "projection": projection}
    parameters |= {"projection_dim": 2} if projection else {}
    model = PolyleafRegressor(**parameters).fit(X, y)
    loaded = load_model(model.save_model())
    uses = {
        "predict": lambda: model.predict(reversed_X),
        "loaded": lambda: loaded.predict(reversed_X),
        "pickled": lambda: pickle.loads(pickle.dumps(model)).predict(reversed_X),
        "refit": lambda: refit(model, reversed_X, y),
        "refit of the loaded": lambda: refit(loaded, reversed_X, y),
        "init_model": lambda: PolyleafRegressor(**parameters).fit(reversed_X, y, init_model=model),
        "eval_set": lambda: PolyleafRegressor(**parameters).fit(X, y, eval_set=[(reversed_X, y)]),
    }
    if projection is None:
        data = Dataset(X, y)
        of_data = PolyleafRegressor(n_estimators=3).fit(data)
        batches = Dataset.from_batches(lambda: iter([(X, y)]))
        of_batches = PolyleafRegressor(n_estimators=3).fit(batches)
        uses |= {
            "model": lambda: model.model_.predict(reversed_X),
            "predictor": lambda: model.predictor()(reversed_X),
            "Dataset": lambda: Dataset(reversed_X, y, reference=data),
            "model of a Dataset": lambda: of_data.predict(reversed_X),
            "model of batches": lambda: of_batches.predict(reversed_X),
            "batches": lambda: Dataset.from_batches(lambda: iter([(X, y), (reversed_X, y)])),
        }
    for name, use in uses.items():
        with pytest.raises(ValueError, match="another order"):
            pytest.fail(f"{name}: {use()}")
    expected = model.predict(X)
    assert np.array_equal(loaded.predict(X), expected)
    assert np.array_equal(loaded.predict(X.to_numpy()), expected)
    other = X.set_axis([100, 101, 102], axis=1)  # other numbers may be positions
    assert np.array_equal(loaded.predict(other), expected)


def test_names_in_another_order_are_refused_by_projections_too():
    X, y = make_frame(["a", "b", "c"])
    parameters = {"n_estimators": 3, "projection": "pca", "projection_dim": 2}
    model = PolyleafRegressor(**parameters).fit(X, y)
    for known in (model, load_model(model.save_model())):
        with pytest.raises(ValueError, match="same order"):
            refit(known, X[["c", "b", "a"]], y)


def test_labels_are_compared_with_labels_only():
    X, y = make_frame([0, 1, 2])
    turned = X[[2, 1, 0]]
    model = PolyleafRegressor(n_estimators=3).fit(turned, y)
    assert np.array_equal(model.predict(turned), model.predict(turned.to_numpy()))
    model.fit(turned.to_numpy(), y).predict(X)


def test_predictors_refuse_infinities():
    X, y = make_frame([0, 1, 2])
    predict = PolyleafRegressor(n_estimators=3).fit(X, y).predictor()
    rows = X.to_numpy()[:3].copy()
    rows[1, 2] = np.nan
    assert np.isfinite(predict(rows)).all()
    rows[2, 0] = -np.inf
    for values in (rows, rows[2], rows.astype(np.float32)):
        with pytest.raises(ValueError, match="column number 0"):
            predict(values)
    assert np.isfinite(predict(np.full(3, 1e200))).all()  # the square overflows
