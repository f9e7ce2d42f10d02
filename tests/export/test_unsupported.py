"""Open files, and comparisons of exports with the model."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.export import to_c, to_numeric_matrix, to_treelite, to_xgboost
from polyleaf.inspection.model_summary import dump_json

FORMATS = {
    "C": (to_c, "m.h"),
    "Treelite": (lambda est, path: to_treelite(est), ""),
    "XGBoost": (to_xgboost, "m.json"),
}


@pytest.mark.parametrize(
    ("write", "file"), [(to_c, "m.h"), (to_xgboost, "m.json"), (dump_json, "m.json")]
)
def test_open_text_files(write, file, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    est, written = PolyleafRegressor(n_estimators=2).fit(X, X[:, 0]), io.StringIO()
    write(est, written)
    write(est, tmp_path / file)
    assert written.getvalue() == (tmp_path / file).read_text("utf-8")
    with pytest.raises(TypeError, match="open it with mode 'w'"):
        write(est, io.BytesIO())
    with pytest.raises(TypeError, match="to a path, an open file or bytes; got int"):
        write(est, 5)


@pytest.mark.parametrize("name", FORMATS)
def test_exports_are_compared_with_the_model(name, tmp_path, monkeypatch):
    pytest.importorskip({"Treelite": "treelite", "XGBoost": "xgboost"}.get(name, "numpy"))
    if name == "C" and shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    model = PolyleafRegressor(n_estimators=5, n_jobs=1).fit(X, X[:, :2])
    write, file = FORMATS[name]
    write(model, tmp_path / file)
    plain = type(model.model_).predict_raw
    monkeypatch.setattr(
        type(model.model_), "predict_raw", lambda self, *args, **kw: plain(self, *args, **kw) + 0.5
    )
    with pytest.raises(
        RuntimeError, match=rf"{name} export gives other raw scores .* by up to 0.5"
    ):
        write(model, tmp_path / file)


def test_xgboost_loads_splits_of_missing_categories(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b", None, None] * 50)})
    y = frame["c"].isna() * 5.0
    model = PolyleafRegressor(n_estimators=5, n_jobs=1).fit(frame, y)
    to_xgboost(model, tmp_path / "m.json")
    rows = xgboost.DMatrix(
        to_numeric_matrix(model, frame), feature_types=["c"], enable_categorical=True
    )
    booster = xgboost.Booster(model_file=tmp_path / "m.json")
    np.testing.assert_allclose(booster.predict(rows), model.predict(frame), rtol=1e-5)
