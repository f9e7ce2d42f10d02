"""Models written by each version, which all later versions must load.

`python tests/support/kept_models.py 0.1.0`, once before a release, writes `files/version-0.1.0/`.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor

FILES = Path(__file__).parent / "files"
COLOURS = ["blue", "green", "red"]
SMALL = {"n_estimators": 3, "max_leaves": 6, "min_child_samples": 5, "random_state": 0}
ROUNDED = ("float16", "int8")


def make_table(numbers, codes):
    """Return a frame of four columns of numbers and one of categories, of which -1 is missing."""
    colour = pd.Categorical.from_codes(codes, COLOURS)
    return pd.DataFrame(numbers, columns=[*"abcd"]).assign(colour=colour)


def fit_models(numbers, codes):
    """Return estimators with each part of the file format, by name."""
    X, rng = make_table(numbers, codes), np.random.default_rng(1)
    Y = np.round(
        4 * (numbers @ rng.integers(-2, 3, (4, 3)) + codes[:, None] + np.abs(numbers[:, :3]))
    )
    labels = (Y > np.median(Y, axis=0)).astype(int)
    classes = np.array(["low", "middle", "high"])[Y.argmax(axis=1)]
    sparse = {"leaf": "sparse", "leaf_k": 2}
    levels = {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
    regression = PolyleafRegressor(**SMALL).fit(X, Y)
    return {
        "regression": regression,
        "linear": PolyleafRegressor(leaf="linear", **SMALL).fit(X, Y),
        "quantiles": PolyleafRegressor(**levels, **SMALL).fit(X, Y[:, 0]),
        "classes": PolyleafClassifier(**SMALL).fit(X, classes),
        "labels": PolyleafClassifier(**sparse, **SMALL).fit(X, labels),
        "tasks": PolyleafMultiTask({"y": "squared_error", "kind": "softmax"}, **SMALL).fit(
            X, {"y": Y[:, 0], "kind": classes}
        ),
        "groups": PolyleafRegressor(output_groups=[[0, 2], [1]], **SMALL).fit(X, Y),
        "categories": PolyleafRegressor(categorical_features=["d", "colour"], **SMALL).fit(X, Y),
        "initial": PolyleafRegressor(init=Ridge(), **SMALL).fit(X[[*"abcd"]], Y),
        "projection": PolyleafRegressor(projection="pca", projection_dim=2, **SMALL).fit(
            X[[*"abcd"]], Y
        ),
        **dict.fromkeys(ROUNDED, regression),
    }


def write(version):
    folder = FILES / f"version-{version}"
    folder.mkdir()
    rng = np.random.default_rng(0)
    numbers, codes = rng.integers(-160, 160, (1200, 4)) / 16.0, rng.integers(-1, 3, 1200)
    stored = {"numbers": numbers[:20], "codes": codes[:20]}
    for name, estimator in fit_models(numbers, codes).items():
        path = folder / f"{name}.polyleaf"
        estimator.save_model(path, leaf_dtype=name if name in ROUNDED else "float32")
        estimator = type(estimator).load_model(path)
        table = make_table(stored["numbers"], stored["codes"])
        stored[name] = estimator.predict_raw(table[list(estimator.feature_names_in_)])
    np.savez_compressed(folder / "raw_scores.npz", **stored)


if __name__ == "__main__":
    write(sys.argv[1])
