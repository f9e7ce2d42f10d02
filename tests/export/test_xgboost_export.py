"""Export to XGBoost, read back by `from_xgboost` and by XGBoost itself."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import golden
from support.exports import (
    CASES,
    assert_close,
    estimator,
    hard_rows,
    predictions,
    prepare_features,
    raw_scores,
    training_rows,
)
from support.models import forests, random_model

from polyleaf import PolyleafClassifier
from polyleaf.export import from_xgboost, to_numeric_matrix, to_xgboost
from polyleaf.user_data.features import read_features

SUPPORTED = [name for name in CASES if "linear" not in name and "time stamps" not in name]
LINKED = ["defaults", "poisson", "defaults, two classes", "defaults, classes", "defaults, labels"]


def replace_infinities(X):
    """Replace infinities, which XGBoost rejects, by NaN."""
    return np.where(np.isinf(X), np.nan, X)


def load_booster(path):
    xgboost = pytest.importorskip(
        "xgboost", minversion="3.1", reason="XGBoost 3.1 is not installed"
    )
    return xgboost.Booster(model_file=path)


def run(path, X, margin=True):
    import xgboost

    types = json.loads(path.read_text())["learner"]["feature_types"] or None
    rows = xgboost.DMatrix(X, feature_types=types, enable_categorical=types is not None, nthread=1)
    return load_booster(path).predict(rows, output_margin=margin, validate_features=False)


@pytest.mark.parametrize("name", SUPPORTED)
def test_round_trip(name, tmp_path):
    est = estimator(name)
    to_xgboost(est, tmp_path / "m.json")
    same = from_xgboost(tmp_path / "m.json")
    X = replace_infinities(to_numeric_matrix(est, training_rows(name)))
    assert_close(
        same.predict_raw(read_features(X, reference=same.mapper)),
        est._raw(training_rows(name), None),
    )


@pytest.mark.parametrize("name", SUPPORTED)
def test_xgboost_raw_scores(name, tmp_path):
    est = estimator(name)
    to_xgboost(est, tmp_path / "m.json")
    load_booster(tmp_path / "m.json")
    for X in (to_numeric_matrix(est, training_rows(name)), hard_rows(est, n=500)):
        X = replace_infinities(X)
        codes = est.model_.mapper.is_categorical_
        X[:, codes] = np.where((X[:, codes] < 0) | (X[:, codes] > 254), np.nan, X[:, codes])
        assert_close(run(tmp_path / "m.json", X), raw_scores(est, X))


@pytest.mark.parametrize("name", LINKED)
def test_xgboost_predictions(name, tmp_path):
    est = estimator(name)
    to_xgboost(est, tmp_path / "m.json")
    load_booster(tmp_path / "m.json")
    X = replace_infinities(hard_rows(est, seed=1))
    expected = predictions(est, raw_scores(est, X))
    if name == "defaults, two classes":
        expected = expected[:, 1:]
    found = run(tmp_path / "m.json", X, margin=False).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(forests(kinds=("dense", "sparse")), st.integers(0, 2**31))
def test_random_forests(tmp_path_factory, model, seed):
    path = tmp_path_factory.mktemp("any") / "m.json"
    to_xgboost(model, path)
    same, X = from_xgboost(path), replace_infinities(hard_rows(model, seed))
    expected = model.predict_raw(prepare_features(model, X))
    assert_close(same.predict_raw(read_features(X, reference=same.mapper)), expected)


def test_model_without_trees(tmp_path):
    model = random_model(n_rounds=0)
    to_xgboost(model, tmp_path / "m.json")
    same = from_xgboost(tmp_path / "m.json")
    X = np.zeros((3, 4), np.float32)
    assert_close(
        same.predict_raw(read_features(X, reference=same.mapper)), np.tile(model.base_score, (3, 1))
    )


def test_large_base_score(tmp_path):
    y = np.ones(len(golden.numbers()), int)
    y[:2] = 0
    est = PolyleafClassifier(**golden.SMALL).fit(golden.numbers(), y)
    to_xgboost(est, tmp_path / "m.json")
    same, X = from_xgboost(tmp_path / "m.json"), golden.numbers().astype(np.float32)
    assert_close(same.predict_raw(read_features(X, reference=same.mapper)), est._raw(X, None))


def test_errors(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"extension \.json"):
        to_xgboost(estimator("defaults"), tmp_path / "m.ubj")
    monkeypatch.setattr("polyleaf.export.ir._MAX_LEAF_VALUES", 100)
    with pytest.raises(ValueError, match="XGBoost does not support sparse leaves"):
        to_xgboost(estimator("sparse Y"), tmp_path / "m.json")
    assert list(tmp_path.iterdir()) == []
