"""Serving of a model file by a fresh process.

Measures loading, first and later predictions, batches, memory and requests. Reads a job as JSON
from standard input and prints the figures as the last line.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from . import memory

BATCHES = (1, 10, 100, 1_000, 10_000)
CLIENTS = (1, 4)
LEAST_SECONDS = 0.3  # minimum time of a batch's repeats

Predict = Callable[[Any], np.ndarray]
Load = Callable[[str], Predict]
SERVICE = Path(__file__).resolve().parent.parent / "examples" / "http_service.py"


# --- the libraries ---


def _polyleaf() -> Load:
    from polyleaf import PolyleafRegressor, load_model

    assert PolyleafRegressor  # imported beforehand, as for other libraries
    return lambda path: load_model(path).set_params(n_jobs=1).predict


def _predictor() -> Load:
    from polyleaf import PolyleafRegressor, load_model

    assert PolyleafRegressor
    return lambda path: load_model(path).predictor()


def _xgboost() -> Load:
    from xgboost import XGBRegressor

    def load(path: str) -> Predict:
        model = XGBRegressor(n_jobs=1)
        model.load_model(path)
        return model.predict

    return load


def _lightgbm() -> Load:
    """Load one booster per target, because LightGBM has no vector leaves."""
    from lightgbm import Booster

    def load(path: str) -> Predict:
        models = [Booster(model_file=file) for file in sorted(Path(path).parent.iterdir())]
        return lambda X: np.column_stack([model.predict(X, num_threads=1) for model in models])

    return load


def _catboost() -> Load:
    from catboost import CatBoostRegressor

    def load(path: str) -> Predict:
        model = CatBoostRegressor()
        model.load_model(path)
        return lambda X: model.predict(X, thread_count=1)

    return load


# Functions that import a library and return a function that loads a file.
LOADERS: dict[str, Callable[[], Load]] = {
    "Polyleaf": _polyleaf,
    "Polyleaf, predictor()": _predictor,
    "XGBoost": _xgboost,
    "LightGBM": _lightgbm,
    "CatBoost": _catboost,
}


# --- measuring ---


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Return the figures of one library.

    `job` gives the library, its file, the file of the rows, and the number of predictions.
    """
    X = np.load(job["rows"])
    load = LOADERS[job["method"]]()
    memory.give_back()
    memory.forget_peak()
    before = memory.resident()
    begun = time.perf_counter()
    predict = load(job["path"])
    loaded = time.perf_counter()
    predict(X[:1])
    figures = {"load_ms": 1e3 * (loaded - begun), "first_ms": 1e3 * (time.perf_counter() - loaded)}
    figures |= _latency("array", predict, [X[i : i + 1] for i in range(job["asked"])])
    frames = _frames(X[: max(1, job["asked"] // 4)])
    if frames and "predictor" not in job["method"]:
        figures |= _latency("frame", predict, frames)
    for size in BATCHES:
        figures[f"batch_{size}"] = _rows_a_second(predict, np.resize(X, (size, X.shape[1])))
    figures["memory_mb"] = (memory.peak() - before) / 1e6
    return figures | _requests(predict, X, job["asked"] // 2)


def _latency(what: str, predict: Predict, rows: list[Any]) -> dict[str, float]:
    """Return the median and the 99th percentile of the calls' microseconds."""
    took = []
    for row in rows:
        begun = time.perf_counter()
        predict(row)
        took.append(time.perf_counter() - begun)
    half, most = 1e6 * np.quantile(took, [0.5, 0.99])
    return {f"{what}_p50_us": float(half), f"{what}_p99_us": float(most)}


def _frames(X: np.ndarray) -> list[Any]:
    try:
        import pandas as pd
    except ImportError:
        return []
    frame = pd.DataFrame(X)  # columns are numbers: the models have no feature names
    return [frame.iloc[i : i + 1] for i in range(len(X))]


def _rows_a_second(predict: Predict, X: np.ndarray) -> float:
    begun, n = time.perf_counter(), 0
    while n == 0 or time.perf_counter() - begun < LEAST_SECONDS:
        predict(X)
        n += 1
    return n * len(X) / (time.perf_counter() - begun)


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("service", SERVICE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ask(port: int, X: np.ndarray, n_clients: int, n_requests: int) -> dict[str, float]:
    return _example().load_test(port, X, n_clients, n_requests)


def _requests(predict: Predict, X: np.ndarray, n_requests: int) -> dict[str, float]:
    """Time the example service, with clients in another process that send single rows."""
    figures = {}
    context = multiprocessing.get_context("spawn")
    with _example().Service(predict) as service, ProcessPoolExecutor(1, mp_context=context) as pool:
        Thread(target=service.serve_forever, daemon=True).start()
        for n_clients in CLIENTS:
            pool.submit(_ask, service.port, X[:50], n_clients, 5).result()  # warm-up
            found = pool.submit(_ask, service.port, X[:500], n_clients, n_requests).result()
            figures[f"requests_{n_clients}"] = found["requests a second"]
            figures[f"request_{n_clients}_p50_ms"] = found["p50"]
            figures[f"request_{n_clients}_p99_ms"] = found["p99"]
        service.shutdown()
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(json.load(sys.stdin))))
