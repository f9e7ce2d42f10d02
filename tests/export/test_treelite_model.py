"""Export to Treelite, run by its reference interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from support.models import forests

from polyleaf.export import to_numeric_matrix, to_treelite

treelite = pytest.importorskip("treelite")

SUPPORTED = [name for name in CASES if "linear" not in name]
LINKED = [
    "defaults",
    "poisson",
    "defaults, two classes",
    "defaults, classes",
    "defaults, labels",
    "samme",
]


def predict(exported, X, margin=True):
    scores = treelite.gtil.predict(exported, np.ascontiguousarray(X), nthread=1, pred_margin=margin)
    return scores.reshape(len(X), -1)


def round_features(est, X):
    """Round features that are compared as float32, since Treelite compares float64."""
    is_float64 = est.model_.mapper.float64_bins_
    with np.errstate(over="ignore"):
        return np.where(is_float64, X, X.astype(np.float32)).astype(X.dtype)


@pytest.mark.parametrize("name", SUPPORTED)
def test_scores(name):
    est = estimator(name)
    exported = to_treelite(est)
    for X in (to_numeric_matrix(est, training_rows(name)), hard_rows(est, n=2000)):
        X = round_features(est, X)
        assert_close(predict(exported, X), raw_scores(est, X))


@pytest.mark.parametrize("name", LINKED)
def test_links(name):
    est, X = estimator(name), hard_rows(estimator(name), seed=1)
    found, expected = (
        predict(to_treelite(est), X, margin=False),
        predictions(est, raw_scores(est, X)),
    )
    if name == "defaults, two classes":
        expected = expected[:, 1:]
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(forests(kinds=("dense", "sparse")), st.integers(0, 2**31))
def test_random_forests(model, seed):
    X = hard_rows(model, seed)
    assert_close(predict(to_treelite(model), X), model.predict_raw(prepare_features(model, X)))


def test_serialized_model(tmp_path):
    est = estimator("frame with categories")
    to_treelite(est).serialize(tmp_path / "m.tl")
    X = hard_rows(est)
    assert_close(predict(treelite.Model.deserialize(tmp_path / "m.tl"), X), raw_scores(est, X))


def test_errors(monkeypatch):
    monkeypatch.setattr("polyleaf.export.ir._MAX_LEAF_VALUES", 100)
    with pytest.raises(ValueError, match="Treelite does not support sparse leaves"):
        to_treelite(estimator("sparse Y"))
    monkeypatch.setitem(__import__("sys").modules, "treelite", None)
    with pytest.raises(ImportError, match=r"pip install .polyleaf\[treelite\]."):
        to_treelite(estimator("defaults"))
