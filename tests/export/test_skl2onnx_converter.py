"""Pipelines that skl2onnx converts predict as scikit-learn does."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier
from sklearn.impute import SimpleImputer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.export import register_skl2onnx

skl2onnx = pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def registered_converters():
    register_skl2onnx(PolyleafRegressor, PolyleafClassifier)


def convert_and_run(fitted, X=X, **options):
    last = fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted
    exported = skl2onnx.to_onnx(
        fitted,
        X[:1],
        options={id(last): options} if options else None,
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    session = onnxruntime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True))


@pytest.mark.parametrize("objective", ["squared_error", "poisson"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_regressor_after_scaler(objective, n_outputs):
    Y = np.abs(X[:, :n_outputs]).squeeze() + 1
    model = PolyleafRegressor(n_estimators=5, max_leaves=8, objective=objective)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, Y)
    for rows in (X, X.astype(np.float64)):
        found = convert_and_run(pipeline, rows)["variable"]
        assert found.dtype == rows.dtype
        np.testing.assert_allclose(found, pipeline.predict(rows).reshape(found.shape), rtol=1e-5)


CLASSES = {
    "two classes": (X[:, 0] > 0).astype(np.int64),
    "text": np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])],
    "labels": (X[:, :3] > 0).astype(np.int64),
}


@pytest.mark.parametrize("y", CLASSES.values(), ids=CLASSES)
def test_classifier_after_imputer(y):
    pipeline = make_pipeline(SimpleImputer(), PolyleafClassifier(n_estimators=5, max_leaves=8)).fit(
        X, y
    )
    found = convert_and_run(pipeline, zipmap=False)
    np.testing.assert_array_equal(found["label"], pipeline.predict(X))
    np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(X), atol=1e-6)


def test_names_of_two_estimators():
    from sklearn.ensemble import VotingRegressor

    members = [(str(n), PolyleafRegressor(n_estimators=n, max_leaves=8)) for n in (3, 5)]
    both = VotingRegressor(members).fit(X, X[:, 0])
    found = convert_and_run(both)["variable"]
    np.testing.assert_allclose(found[:, 0], both.predict(X), rtol=1e-4, atol=1e-5)


def meta_estimators():
    def base():
        return PolyleafClassifier(n_estimators=5, max_leaves=8)

    return {
        "calibrated": lambda: CalibratedClassifierCV(base(), cv=2),
        "calibrated without ensemble": lambda: CalibratedClassifierCV(base(), cv=2, ensemble=False),
        "stacked": lambda: StackingClassifier([("a", base()), ("b", base())], cv=2),
        "bagged": lambda: BaggingClassifier(base(), 3),
        "one against the rest": lambda: OneVsRestClassifier(base()),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("target", ["two classes", "text"])
@pytest.mark.parametrize("name", meta_estimators())
def test_meta_estimators(name, target, dtype):
    y = CLASSES["two classes"] if target == "two classes" else np.digitize(X[:, 0], [-0.5, 0.5])
    rows = X.astype(dtype)
    fitted = meta_estimators()[name]().fit(rows, y)
    found = list(convert_and_run(fitted, rows, zipmap=False).values())
    np.testing.assert_array_equal(found[0], fitted.predict(rows))
    np.testing.assert_allclose(found[1], fitted.predict_proba(rows), atol=1e-6)
