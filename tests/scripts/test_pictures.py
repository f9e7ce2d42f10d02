"""`scripts/pictures.py` draws every picture in both themes."""

from __future__ import annotations

import importlib.util

import pytest
from support import ROOT

pytest.importorskip("matplotlib")

SPEC = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
pictures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pictures)

# Pictures for which models are trained.
SLOW = ("calibration", "layers", "linear-extrapolation", "linear-leaves", "output-groups")
WORDS = {
    "accuracy-and-time": "XGBoost, vector leaves",
    "architecture": "leaf fitter",
    "calibration": "calibrated",
    "fit-time": "CatBoost",
    "layers": "boosting_step",
    "linear-extrapolation": "clip",
    "linear-leaves": "linear leaves",
    "mean-ranks": "LightGBM",
    "output-groups": "relaxing",
    "quality": "standard",
    "vector-leaf": "temperature",
}


def test_all_pictures_are_tested():
    assert WORDS.keys() == pictures.PICTURES.keys()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.full] if n in SLOW else []) for n in WORDS]
)
def test_picture_has_its_texts_and_colours(name, tmp_path):
    for theme in pictures.THEMES:
        text = pictures.write(name, theme, tmp_path).read_text("utf-8")
        assert WORDS[name] in text and theme.ink in text
        committed = pictures.FOLDER / f"{name}-{theme.name}.svg"
        assert WORDS[name] in committed.read_text("utf-8")


def test_ranks_equal_those_of_the_results():
    n, ranks = pictures.read_mean_ranks("Test loss, regression")
    assert n == 20 and set(ranks) == {"Polyleaf", "CatBoost", "LightGBM", "XGBoost"}
    assert sum(ranks.values()) == pytest.approx(10, abs=0.02)
