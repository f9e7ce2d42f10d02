"""Models with a custom link are exported with raw scores only."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.export import to_c, to_onnx, to_treelite, to_xgboost
from polyleaf.objectives import get_objective

SQUARES = type(get_objective("squared_error"))


@dataclass(frozen=True)
class Cubed(SQUARES):
    """Squared error with the cube of the score as prediction."""

    name: ClassVar[str] = "cubed"
    is_translation_invariant: ClassVar[bool] = False

    def transform(self, raw):
        return raw**3


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    model = PolyleafRegressor(objective=Cubed(), n_estimators=3, n_jobs=1).fit(X, X[:, :2])
    np.testing.assert_array_equal(model.predict(X), model.predict_raw(X) ** 3)
    return model, X


def test_c_has_no_predictions(model, tmp_path):
    to_c(model[0], tmp_path / "m.h", name="m")
    text = (tmp_path / "m.h").read_text()
    assert "m_raw(" in text and "m_predict(" not in text


def test_onnx_has_raw_scores_only(model, tmp_path):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    to_onnx(model[0], tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (output,) = session.get_outputs()
    (found,) = session.run(None, {session.get_inputs()[0].name: model[1]})
    assert output.name == "scores"
    np.testing.assert_allclose(found, model[0].predict_raw(model[1]), rtol=1e-5, atol=1e-6)


def test_treelite_gives_raw_scores(model):
    treelite = pytest.importorskip("treelite")
    found = treelite.gtil.predict(to_treelite(model[0]), model[1])
    raw = model[0].predict_raw(model[1])
    np.testing.assert_allclose(found.reshape(raw.shape), raw, rtol=1e-5, atol=1e-6)


def test_xgboost_has_the_identity_link(model, tmp_path):
    to_xgboost(model[0], tmp_path / "m.json")
    written = json.loads((tmp_path / "m.json").read_text())
    assert written["learner"]["objective"]["name"] == "reg:squarederror"
