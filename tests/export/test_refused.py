"""What no format holds is refused by each, in a sentence, before a file is written (docs/export.md)."""

import numpy as np
import pytest
from many_categories import effects

from polyleaf import PolyleafRegressor
from polyleaf.export import to_c, to_onnx, to_treelite, to_xgboost

FORMATS = {
    "C": (to_c, "m.h"),
    "ONNX": (to_onnx, "m.onnx"),
    "Treelite": (lambda est, path: to_treelite(est), ""),
    "XGBoost": (to_xgboost, "m.json"),
}
NEEDS = {"ONNX": "onnx", "Treelite": "treelite"}


def many_categories():
    X, y = effects(1500, 300, n_outputs=2)
    return PolyleafRegressor(n_estimators=3, categorical_features=[0], n_jobs=1).fit(X, y)


def projected():
    X = np.random.default_rng(0).normal(size=(60, 6))
    return PolyleafRegressor(n_estimators=2, projection="gaussian", projection_dim=2).fit(X, X[:, :2])


REFUSED = {
    "features of more than 255 categories": (many_categories, "features of more than 255 categories"),
    "a projection of wide features": (projected, "projects its features"),
}


@pytest.mark.parametrize("row", REFUSED)
@pytest.mark.parametrize("name", FORMATS)
def test_what_no_format_holds_is_a_sentence(name, row, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    made, sentence = REFUSED[row]
    write, file = FORMATS[name]
    with pytest.raises(ValueError, match=sentence):
        write(made(), tmp_path / file)
    assert list(tmp_path.iterdir()) == []
