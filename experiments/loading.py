"""Time to load a model of many small trees from its file, and to predict its first row."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .harness.context import Context, require_module
from .harness.paper import Figures, Paper, Subject, Table

N_TREES, REPEATS = 10_000, 9
Load = Callable[[], Any]


def _polyleaf(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Load:
    from polyleaf import PolyleafRegressor, load_model

    model = PolyleafRegressor(n_estimators=n_trees, max_leaves=8, learning_rate=0.01, n_jobs=1)
    model.fit(X, y).save_model(path)
    return lambda: load_model(path)


def _xgboost(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Load:
    from xgboost import XGBRegressor

    shape = {"max_leaves": 8, "max_depth": 0, "grow_policy": "lossguide", "tree_method": "hist"}
    model = XGBRegressor(n_estimators=n_trees, learning_rate=0.01, n_jobs=1, **shape)
    model.fit(X, y).save_model(path + ".ubj")

    def load() -> Any:
        loaded = XGBRegressor(n_jobs=1)
        loaded.load_model(path + ".ubj")
        return loaded

    return load


def _lightgbm(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Load:
    from lightgbm import Booster, LGBMRegressor

    shape = {"num_leaves": 8, "learning_rate": 0.01, "n_jobs": 1, "verbose": -1}
    LGBMRegressor(n_estimators=n_trees, **shape).fit(X, y).booster_.save_model(path)
    return lambda: Booster(model_file=path)


def _catboost(X: np.ndarray, y: np.ndarray, n_trees: int, path: str) -> Load:
    from catboost import CatBoostRegressor

    shape = {"depth": 3, "learning_rate": 0.01, "thread_count": 1, "verbose": False}
    model = CatBoostRegressor(n_estimators=n_trees, allow_writing_files=False, **shape)
    model.fit(X, y).save_model(path)
    return lambda: CatBoostRegressor().load_model(path)


LIBRARIES = {
    "Polyleaf": _polyleaf,
    "XGBoost": _xgboost,
    "LightGBM": _lightgbm,
    "CatBoost": _catboost,
}


def loading(context: Context, method: str, problem: str) -> Figures:
    """Return the milliseconds to `load` the model and to predict the `first` row."""
    require_module(method.lower())
    rng = np.random.default_rng(0)
    X = rng.random((2_000, 10), np.float32)
    y = X[:, 0] * X[:, 1] + 0.1 * rng.random(2_000)
    with tempfile.TemporaryDirectory() as folder:
        load = LIBRARIES[method](X, y, context.rows(N_TREES), str(Path(folder) / "model"))
        load().predict(X[:1])
        times = []
        for _ in context.seeds(REPEATS):
            begun = time.process_time()
            model = load()
            loaded = time.process_time()
            model.predict(X[:1])
            times.append((loaded - begun, time.process_time() - loaded))
    load_seconds, first_seconds = np.min(times, axis=0)
    return {"load": 1e3 * load_seconds, "first": 1e3 * first_seconds}


PAPER = Paper(
    __name__,
    "Loading",
    "Models of many small trees, from their files, beside other libraries.",
    (
        Table(
            "loading",
            f"a model of {N_TREES:,} trees of 8 leaves",
            (
                Subject("from its file", "ms", "lower", 1, "10,000 trees", "load"),
                Subject("first row", "ms", "lower", 2, "10,000 trees", "first"),
            ),
            loading,
            "Processor time, the shortest of nine; each library's own format; the system has the "
            "file in memory; one thread. CatBoost's trees are symmetric ones of depth 3.",
            also=tuple(LIBRARIES),
            ours=("Polyleaf",),
        ),
    ),
    golden=("defaults, one output",),
)
