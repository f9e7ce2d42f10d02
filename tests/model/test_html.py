"""HTML for notebooks: model, learning curve and features; names are escaped; deterministic."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from polyleaf import PolyleafClassifier, PolyleafRegressor, load_model

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["<script>alert(1)</script>", "a & b", "c"])
Y = pd.DataFrame({"<b>": X.iloc[:, 0] * 2, "other": X["c"]})


def fit_model(**parameters):
    model = PolyleafRegressor(n_estimators=5, max_leaves=40, **parameters)
    return model.fit(X, Y, X_val=X[:50], y_val=Y[:50])


def test_fitted_estimator_describes_its_model():
    model = fit_model()
    text = model._repr_html_()
    assert "5 trees in 5 rounds" in text and "validation, rmse" in text and "<polyline" in text
    assert text.count("5 trees in 5 rounds") == 1
    assert model._repr_mimebundle_()["text/html"].count("5 trees in 5 rounds") == 1
    assert (
        'class="polyleaf"' in text and 'class="polyleaf"' not in PolyleafRegressor()._repr_html_()
    )
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()


def test_names_are_escaped():
    model = fit_model()
    for text in (
        model.model_._repr_html_(),
        model.model_.trees[0]._repr_html_(),
        model._fitted_html(),
    ):
        assert "<script" not in text and "<b>&lt;" not in text.replace("<b>polyleaf", "")
        assert "&lt;script&gt;" in text
    assert "&lt;b&gt;, other" in model.model_._repr_html_()


def test_trees_are_indented_and_truncated():
    small = (
        PolyleafRegressor(n_estimators=1, max_leaves=3, min_child_samples=5)
        .fit(X, Y)
        .model_.trees[0]
    )
    lines = small._repr_html_().split("<br>")
    assert len(lines) == 1 + small.n_nodes and sum("leaf " in line for line in lines[1:]) == 3
    assert "&lt;=" in lines[1]
    large = PolyleafRegressor(n_estimators=1, max_leaves=50, min_child_weight=0)
    tree = large.fit(X, np.random.default_rng(1).normal(size=(200, 2))).model_.trees[0]
    assert tree.n_leaves > 40 and tree._repr_html_().count("<br>") == 1 + 62 + 1
    assert f"... {tree.n_nodes - 63} more nodes" in tree._repr_html_()


def test_models_without_statistics_and_with_one_output(tmp_path):
    model = PolyleafClassifier(n_estimators=2).fit(X, X["c"] > 0)
    model.save_model(tmp_path / "m", statistics=False)
    text = load_model(tmp_path / "m").model_._repr_html_()
    assert "of the split" in text and "<td>1</td>" in text


def test_categories_and_missing_values_are_shown():
    frame = pd.DataFrame(
        {"colour": pd.Categorical(np.where(X["c"] > 0, "red", "blue")), "x": X["c"]}
    )
    frame.loc[::7, "x"] = np.nan
    model = PolyleafRegressor(n_estimators=1).fit(frame[["colour"]], Y)
    assert "colour in {" in model.model_.trees[0]._repr_html_()
    text = PolyleafRegressor(n_estimators=1).fit(frame[["x"]], Y).model_.trees[0]._repr_html_()
    assert "missing" in text


def test_html_is_deterministic():
    assert fit_model().model_._repr_html_() == fit_model().model_._repr_html_()


def test_estimator_saved_without_statistics():
    X = np.random.default_rng(0).standard_normal((60, 3))
    fit_model = PolyleafRegressor(n_estimators=2).fit(X, X[:, 0])
    loaded = load_model(fit_model.save_model(statistics=False))
    splits = fit_model.feature_importance("split")
    np.testing.assert_array_equal(loaded.feature_importances_, splits / splits.sum())
    shown = loaded._repr_html_()
    assert "of the split" in shown and "of the split" in loaded._repr_mimebundle_()["text/html"]
    with pytest.raises(ValueError, match="statistics=False"):
        loaded.feature_importance("gain")
