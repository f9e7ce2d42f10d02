"""`target_weight`: one weight for each target or label."""

import numpy as np
import pandas as pd
import pytest

import polyleaf
from polyleaf import PolyleafClassifier, PolyleafRegressor, PolyleafRegressorCV

RNG = np.random.default_rng(1)
X = RNG.standard_normal((200, 4))
Y = np.column_stack([X[:, 0], X[:, 1] ** 2, X[:, 2] * X[:, 3]]) + 0.1 * RNG.standard_normal(
    (200, 3)
)
NAMES = ["a", "b", "c"]
TABLE = pd.DataFrame(Y, columns=NAMES)
LABELS = pd.DataFrame((Y > 0.2).astype(int), columns=NAMES)
FACTORS = np.array([1.0, 3.0, 0.5])


@pytest.mark.parametrize("cls", [PolyleafRegressor, PolyleafClassifier])
@pytest.mark.parametrize("weight", [None, RNG.random(200), RNG.random((200, 3))])
@pytest.mark.parametrize("target_weight", [FACTORS, {"b": 3.0, "c": 0.5}, {1: 3, 2: 0.5}])
def test_it_equals_a_matrix_of_weights(cls, weight, target_weight):
    y = TABLE if cls is PolyleafRegressor else LABELS
    model = cls(n_estimators=8, target_weight=target_weight).fit(X, y, weight)
    rows = np.ones((200, 1)) if weight is None else weight.reshape(200, -1)
    matrix = (rows.astype(np.float32) * FACTORS.astype(np.float32)).astype(np.float32)
    expected = cls(n_estimators=8).fit(X, y, matrix)
    np.testing.assert_array_equal(model.predict_raw(X), expected.predict_raw(X))
    plain = cls(n_estimators=8).fit(X, y, weight)
    assert (model.predict_raw(X) != plain.predict_raw(X)).any()


def test_it_holds_where_a_fit_holds_rows_out_and_goes_on():
    options = {"n_estimators": 20, "max_leaves": 5, "eval_metric": "mae"}
    weighed = PolyleafRegressor(validation_fraction=0.3, target_weight=FACTORS, **options)
    matrix = np.tile(FACTORS.astype(np.float32), (200, 1))
    expected = PolyleafRegressor(validation_fraction=0.3, **options).fit(X, Y, matrix)
    assert weighed.fit(X, Y).evals_result_ == expected.evals_result_
    model = PolyleafRegressor(target_weight=FACTORS, **options).fit(X, Y)
    more = PolyleafRegressor(target_weight=FACTORS, **options).fit(X, Y, init_model=model)
    whole = PolyleafRegressor(target_weight=FACTORS, **options | {"n_estimators": 40}).fit(X, Y)
    np.testing.assert_array_equal(more.predict(X), whole.predict(X))
    folds = [(np.arange(100), np.arange(100, 200))]
    plain = PolyleafRegressor(target_weight=FACTORS, **options)
    result = polyleaf.cv(plain, X, Y, cv=folds)
    by_matrix = polyleaf.cv(PolyleafRegressor(**options), X, Y, matrix, cv=folds)
    np.testing.assert_array_equal(result.curves["mae"], by_matrix.curves["mae"])
    search = PolyleafRegressorCV(n_candidates=1, cv=folds, **options)
    expected = search.fit(X, Y, matrix).best_score_
    assert search.set_params(target_weight=FACTORS).fit(X, Y).best_score_ == expected


def test_missing_targets_and_levels():
    y = Y.copy()
    y[::3, 1] = np.nan
    options = {"n_estimators": 5, "missing_targets": "ignore"}
    options |= {"objective": "quantile", "quantile_alpha": [0.2, 0.8], "calibrate_quantiles": False}
    model = PolyleafRegressor(target_weight=FACTORS, **options).fit(X, y)
    matrix = np.tile(FACTORS.astype(np.float32), (200, 1))
    expected = PolyleafRegressor(**options).fit(X, y, matrix)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.parametrize(
    ("target_weight", "y", "message"),
    [
        ([1, 2], TABLE, r"must have 3 numbers, one for each target of y; got \[1, 2\]"),
        ({"d": 1}, TABLE, "names the target 'd'; .* are 'a', 'b', 'c'"),
        ({3: 1}, Y, "names target 3, .* from 0 to 2"),
        ([1, -1, 1], TABLE, "positive and finite"),
        ([2.0], Y[:, 0], "y has one target: leave it out"),
    ],
)
def test_what_does_not_fit_y_is_refused(target_weight, y, message):
    with pytest.raises(ValueError, match=message):
        PolyleafRegressor(target_weight=target_weight).fit(X, y)


def test_classes_are_refused():
    with pytest.raises(ValueError, match="use class_weight for classes"):
        PolyleafClassifier(target_weight=[1, 2, 3]).fit(X, np.arange(200) % 3)
