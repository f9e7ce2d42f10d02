"""Preparation of data: each table is read once, and random numbers are drawn in a fixed order."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from polyleaf import Dataset, PolyleafClassifier, PolyleafClassifierCV, PolyleafRegressor, RowData
from polyleaf.binned_data import dataset
from polyleaf.model import prediction
from polyleaf.training import prepare
from polyleaf.user_data.target import encode_classification, encode_regression

X = np.random.default_rng(0).standard_normal((60, 3))
Y = X[:, :2] * X[:, 2:]
SMALL = {"n_estimators": 2, "n_jobs": 1}


@pytest.fixture
def readings(monkeypatch):
    """Record the objects that `read_features` is called with."""
    read = []
    for module in (prepare, dataset, prediction):
        original = module.read_features
        monkeypatch.setattr(
            module,
            "read_features",
            lambda X, original=original, **options: read.append(X) or original(X, **options),
        )
    return read


@pytest.mark.parametrize("parameters", [{}, {"projection": "gaussian", "projection_dim": 2}])
def test_each_X_is_read_once(readings, parameters):
    other = X[:20] + 1.0
    estimator = PolyleafRegressor(**SMALL, **parameters).fit(X, Y, eval_set=[(other, Y[:20])])
    assert len(readings) == 2
    estimator.predict(X)
    assert len(readings) == 3


def test_incompatible_parameters_raise_before_data_are_read(readings):
    with pytest.raises(ValueError, match="trees without any limit"):
        PolyleafRegressor(max_leaves=None).fit(X, Y)
    assert readings == []


@pytest.mark.parametrize(
    ("parameters", "draws"),
    [
        ({}, 1),
        ({"validation_fraction": 0.5}, 2),
        ({"projection": "gaussian", "projection_dim": 2}, 2),
        ({"projection": "gaussian", "projection_dim": 2, "validation_fraction": 0.5}, 3),
    ],
)
def test_random_generator_advances_only_if_used(parameters, draws):
    generator, expected = np.random.RandomState(5), np.random.RandomState(5)
    PolyleafRegressor(**SMALL, **parameters, random_state=generator).fit(X, Y)
    for _ in range(draws):
        expected.randint(2**31 - 1)
    assert generator.randint(2**31 - 1) == expected.randint(2**31 - 1)


def test_classes_of_vectors_and_indicator_matrices():
    labels = np.array(list("abcab"))
    by_id = encode_classification(RowData(labels))
    one_vs_rest = encode_classification(RowData(labels), one_vs_rest=True)
    for target in (by_id, one_vs_rest):
        assert target.get_row_classes().tolist() == [0, 1, 2, 0, 1]
        indicators = target.to_indicators()
        dense = indicators.toarray() if sp.issparse(indicators) else indicators
        np.testing.assert_array_equal(dense, np.eye(3)[[0, 1, 2, 0, 1]])
    assert encode_classification(RowData(labels[:2])).get_row_classes().tolist() == [0, 1]
    assert encode_regression(RowData(Y)).get_row_classes() is None
    assert encode_classification(RowData(np.eye(3, dtype=int)[[0, 1, 1]])).get_row_classes() is None


def test_validation_fraction_is_stratified():
    y = np.repeat([0, 1, 2], [40, 10, 10])
    seen = []

    def counts(y_true, y_pred):
        seen.append(np.bincount(y_true.astype(int)))
        return 0.0

    PolyleafClassifier(**SMALL, validation_fraction=0.2, eval_metric=counts).fit(X, y)
    assert seen[0].tolist() == [8, 2, 2]


def test_reordered_target_columns_raise():
    y = pd.DataFrame(Y, columns=["heat", "cold"])
    model = PolyleafRegressor(**SMALL)
    model.fit(X, y, eval_set=[(X, y)], sample_weight=y.abs())
    with pytest.raises(ValueError, match=r"y of 'validation_0' .* another order, 'cold', 'heat'"):
        model.fit(X, y, eval_set=[(X, y[["cold", "heat"]])])
    with pytest.raises(ValueError, match=r"sample_weight of y .* another order"):
        model.fit(X, y, sample_weight=y[["cold", "heat"]].abs())


def test_reordered_columns_with_integer_names_raise():
    frame, y = pd.DataFrame(X), pd.DataFrame(Y)
    model = PolyleafRegressor(**SMALL).fit(
        frame, y, eval_set=[(frame, y), (X, y), (frame, y.add_prefix("t"))]
    )
    turned = frame[frame.columns[::-1]]
    projected = PolyleafRegressor(projection="gaussian", projection_dim=2, **SMALL).fit(frame, y)
    for use in (
        model.predict,
        projected.predict,
        lambda other: model.fit(frame, y, eval_set=[(other, y)]),
    ):
        with pytest.raises(
            ValueError,
            match=r"X has the columns of the training data in another order: column number 0 is \d",
        ):
            use(turned)
    with pytest.raises(ValueError, match=r"y of 'validation_0' .* another order"):
        model.fit(frame, y, eval_set=[(frame, y[[1, 0]])])
    np.testing.assert_array_equal(model.predict(frame), model.predict(X))
    np.testing.assert_array_equal(
        model.fit(turned, y).predict(turned), model.predict(turned.to_numpy())
    )
    for nothing_to_compare_with in (X, Dataset(X, Y)):
        model.fit(frame, y).fit(nothing_to_compare_with, Y).predict(turned)


@pytest.mark.parametrize(
    ("made_with", "parameters", "word"),
    [
        ({}, {"max_bins": 8}, "max_bins=8"),
        ({}, {"categorical_features": [0]}, r"categorical_features=\[0\]"),
        (
            {"categorical_features": [0]},
            {"categorical_features": None},
            "categorical_features=None",
        ),
    ],
)
def test_parameters_without_effect_on_a_dataset_warn(made_with, parameters, word):
    whole = np.round(np.abs(X))
    with pytest.warns(UserWarning, match=f"{word} has no effect: the Dataset"):
        PolyleafRegressor(**SMALL | parameters).fit(Dataset(whole, Y, **made_with))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PolyleafRegressor(**SMALL | parameters).fit(Dataset(whole, Y, **parameters))
        PolyleafRegressor(**SMALL).fit(Dataset(whole, Y, **parameters))


@pytest.mark.parametrize(
    "estimator", [PolyleafClassifier(**SMALL), PolyleafClassifierCV(n_candidates=1, n_jobs=1)]
)
def test_estimator_stays_as_it_was_if_a_fit_fails(estimator):
    labels = (X[:, 0] > 0).astype(int)
    estimator.fit(X, labels)
    before = estimator.predict_proba(X)
    wider, other = pd.DataFrame(np.hstack([X, X]), columns=list("abcdef")), labels + 5
    with pytest.raises(ValueError, match="label"):
        estimator.fit(wider, labels, eval_set=[(wider, other)])
    np.testing.assert_array_equal(estimator.predict_proba(X), before)
    assert estimator.n_features_in_ == 3 and not hasattr(estimator, "feature_names_in_")
