"""The shap package computes the same values from exported trees, and plots explanations."""

import numpy as np
import pandas as pd
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor, inspection
from polyleaf.datasets import load

shap = pytest.importorskip("shap", reason="the package shap is not installed")

X, X_TEST, Y, _ = load("energy").split()
ROWS = X_TEST[:20].astype(np.float64)
MODELS = {
    "two targets": lambda: PolyleafRegressor(n_estimators=30).fit(X, Y),
    "one target": lambda: PolyleafRegressor(n_estimators=30).fit(X, Y[:, 0]),
    "one output per tree": lambda: PolyleafRegressor(
        n_estimators=10, multi_strategy="one_output_per_tree", normalize_targets=True
    ).fit(X, Y),
    "sparse leaves": lambda: PolyleafRegressor(n_estimators=20, leaf="sparse", leaf_k=1).fit(X, Y),
    "two classes": lambda: PolyleafClassifier(n_estimators=20).fit(X, Y[:, 0] > 20),
    "early stopped": lambda: PolyleafRegressor(
        n_estimators=60, learning_rate=0.8, early_stopping_rounds=3, validation_fraction=0.3
    ).fit(X, Y),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("against_rows", [False, True])
def test_shap_values_equal_shap(name, against_rows):
    model = MODELS[name]()
    background = X[:30].astype(np.float64) if against_rows else None
    theirs = shap.TreeExplainer(inspection.export_shap_trees(model), background)
    expected = theirs.shap_values(ROWS)
    found = model.shap_values(ROWS, background)
    # shap stores float32 values, accurate to a millionth of the sum of contributions.
    scale = np.abs(expected).sum(axis=1, keepdims=True).max()
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-6, atol=1e-6 * scale)
    np.testing.assert_allclose(
        np.atleast_1d(model.shap_base_values(background)),
        np.atleast_1d(theirs.expected_value),
        rtol=1e-6,
    )


def test_interaction_values_equal_shap():
    model = MODELS["one target"]()
    expected = shap.TreeExplainer(inspection.export_shap_trees(model)).shap_interaction_values(ROWS)
    found = model.shap_values(ROWS, interactions=True)
    np.testing.assert_allclose(
        found, expected.reshape(found.shape), atol=1e-5 * np.abs(expected).max()
    )


def test_missing_values_follow_the_same_branches():
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = PolyleafRegressor(n_estimators=20).fit(holes, Y)
    expected = shap.TreeExplainer(inspection.export_shap_trees(model)).shap_values(
        holes[:20].astype(np.float64)
    )
    np.testing.assert_allclose(model.shap_values(holes[:20]), expected, atol=1e-5)


def test_models_that_are_not_fitted_raise():
    with pytest.raises(ValueError, match="not fitted"):
        inspection.export_shap_trees(PolyleafRegressor())


def test_explanations_are_named():
    names = [f"x{f}" for f in range(8)]
    targets = pd.DataFrame(Y, columns=["heating", "cooling"])
    model = PolyleafRegressor(n_estimators=10).fit(pd.DataFrame(X, columns=names), targets)
    frame = pd.DataFrame(ROWS, columns=names)
    found = inspection.make_shap_explanation(model, frame, background=frame)
    assert found.shape == (20, 8, 2)
    assert found.feature_names == names and found.output_names == ["heating", "cooling"]
    np.testing.assert_allclose(found.data, ROWS)
    np.testing.assert_allclose(
        found.values.sum(axis=1) + found.base_values, model.predict(frame), atol=1e-5
    )
    one = inspection.make_shap_explanation(model, frame, outputs="cooling")
    assert one.shape == (20, 8) and one.base_values.shape == (20,)
    assert (one.values == model.shap_values(frame)[..., 1]).all()
    assert inspection.make_shap_explanation(model, frame, outputs=[1, 0]).output_names == [
        "cooling",
        "heating",
    ]
    assert one[3].base_values == one.base_values[3]
    with pytest.raises(ValueError, match="outputs"):
        inspection.make_shap_explanation(model, frame, outputs=np.zeros((20, 1), int))


def test_explanations_can_be_drawn():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model = MODELS["two targets"]()
    found = inspection.make_shap_explanation(model, ROWS, outputs=0)
    shap.plots.bar(found, show=False)
    shap.plots.waterfall(found[0], show=False)
    assert plt.get_fignums()
    plt.close("all")
