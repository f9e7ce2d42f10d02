"""Time to load a model of many small trees from its file, and to predict its first row."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, Table
from .libraries import Library, Settings, train

N_TREES, REPEATS = 10_000, 9


def _save(library: Library, path: str) -> Callable[[], Any]:
    """Write the model in the library's own format, and return a function that loads it."""
    model = library.model
    match library.module:
        case "polyleaf":
            from polyleaf import load_model

            model.save_model(path)
            return lambda: load_model(path)
        case "lightgbm":
            from lightgbm import Booster

            model[0].save_model(path)
            return lambda: Booster(model_file=path)
    path += {"xgboost": ".ubj", "catboost": ".cbm"}[library.module]
    model.save_model(path)

    def load() -> Any:
        loaded = type(model)()
        loaded.load_model(path)
        return loaded

    return load


def loading(context: Context, method: str, problem: str) -> Figures:
    """Return the milliseconds to `load` the model and to predict the `first` row."""
    rng = np.random.default_rng(0)
    X = rng.random((2_000, 10), np.float32)
    y = X[:, 0] * X[:, 1] + 0.1 * rng.random(2_000)
    shape = {"max_depth": 3} if method == "CatBoost" else {"max_leaves": 8}
    settings = Settings(context.rows(N_TREES), learning_rate=0.01, threads=1, **shape)
    library = train(method.lower(), "regression", {"X": X, "y": y}, settings)
    with tempfile.TemporaryDirectory() as folder:
        load = _save(library, str(Path(folder) / "model"))
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
            also=("Polyleaf", "XGBoost", "LightGBM", "CatBoost"),
            ours=("Polyleaf",),
        ),
    ),
    golden=("defaults, one output",),
)
