"""Benchmark of model serving, compared with other libraries.

Covers the model file, loading, single rows, batches, memory and requests to a service. Each file is
served by a fresh process (`serving`) that has not trained anything.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.c_programs import COMPILERS, CProgram

from . import processes, serving
from .cases import Settings
from .harness.context import Context, Unavailable
from .harness.paper import Figures, Paper, Subject, Table
from .libraries import LIBRARIES, is_installed
from .problems import shared_structure

ROUNDS, N_TRAINED, N_FEATURES, N_OUTPUTS = 200, 5_000, 50, 16
ASKED = 2_000  # single rows
TIMEOUT = 300.0
# Models by problem: one for all libraries, and one with deeper trees for Polyleaf alone.
SHARED, DEEP = f"{N_OUTPUTS} targets", f"{N_OUTPUTS} targets, 31 leaves"
SHAPES: dict[str, dict[str, int]] = {
    SHARED: {"max_depth": 6, "max_leaves": 64},
    DEEP: {"max_leaves": 31},
}


def _save_lightgbm(model: Any, path: Path) -> None:
    for number, booster in enumerate(model):
        booster.save_model(f"{path}.{number:02d}")


# Estimator class, file extension and writer.
SAVED: dict[str, tuple[str, str, Callable[[Any, Path], Any]]] = {
    "Polyleaf": ("polyleaf", ".polyleaf", lambda model, path: model.save_model(path)),
    "Polyleaf, predictor()": ("polyleaf", ".polyleaf", lambda model, path: model.save_model(path)),
    "XGBoost": ("xgboost-multi-output-tree", ".ubj", lambda model, path: model.save_model(path)),
    "LightGBM": ("lightgbm", ".txt", _save_lightgbm),
    "CatBoost": ("catboost", ".cbm", lambda model, path: model.save_model(str(path))),
}
C = {f"Polyleaf as C, {name}": name for name in ("gcc", "clang")}


def deployment(context: Context, method: str, problem: str) -> Figures:
    """Return the figures of one library from `serving.measure`, and `file_mb`."""
    library = "polyleaf" if method in C else SAVED[method][0]
    if not is_installed(library):
        raise Unavailable(f"{method} is not installed")
    settings = Settings(rounds=context.rounds(ROUNDS), threads=context.threads, **SHAPES[problem])
    data = shared_structure(context.rows(N_TRAINED), 10, N_FEATURES, N_OUTPUTS)
    fitted = LIBRARIES[library]("regression", settings)
    fitted.fit(data)
    with tempfile.TemporaryDirectory() as folder:
        if method in C:
            return _measure_c(C[method], fitted.model, data["X"], Path(folder))
        return _measure_file(context, method, fitted.model, data["X"], Path(folder))


def _measure_file(
    context: Context, method: str, model: Any, X: np.ndarray, folder: Path
) -> Figures:
    _, suffix, save = SAVED[method]
    (folder / "model").mkdir()
    path = folder / "model" / f"model{suffix}"
    save(model, path)
    size = sum(file.stat().st_size for file in path.parent.iterdir())
    np.save(folder / "rows.npy", X)
    job = {
        "method": method,
        "path": str(path),
        "rows": str(folder / "rows.npy"),
        "asked": context.rows(ASKED) // (10 if context.quick else 1),
    }
    return {"file_mb": size / 1e6} | processes.call(serving.__name__, job, 1, TIMEOUT)


def _measure_c(compiler: str, model: Any, X: np.ndarray, folder: Path) -> Figures:
    """Time the C header row by row within one call: the minimum of five passes."""
    from polyleaf.export import to_c, to_numeric_matrix

    found = [name for name in COMPILERS if name.startswith(compiler)]
    if not found:
        raise Unavailable(f"{compiler} is not installed")
    to_c(model, folder / "model.h")
    program, rows = CProgram(folder, found[0]), to_numeric_matrix(model, X)
    took = []
    for _ in range(6):
        begun = time.perf_counter()
        program.raw(rows, N_OUTPUTS)
        took.append((time.perf_counter() - begun) / len(rows))
    size = sum(file.stat().st_size for file in folder.glob("*.so"))
    header = (folder / "model.h").stat().st_size
    timed = {"array_p50_us": 1e6 * min(took[1:]), "batch_1": 1 / min(took[1:])}
    return {"file_mb": size / 1e6, "header_mb": header / 1e6, **timed}


_PROTOCOL = (
    f"{ROUNDS} rounds of depth 6, rate 0.1, on {N_TRAINED:,} rows of {N_FEATURES} features and "
    f"{N_OUTPUTS} "
    "targets; vector leaves but for LightGBM, whose model is one for each target, in as many "
    "files. Each "
    "file is read by a process of its own on one thread: loading (the library is imported "
    "already), the "
    f"first row, {ASKED:,} different rows one by one as an array, a quarter of them as pandas "
    "frames of one "
    "row, batches repeated for .3 s, and the growth of the process's memory at its peak, batches "
    "included. "
    "The service is `examples/http_service.py`, in the same process, with one row a request, as "
    "JSON over "
    "connections that are kept; clients are another process. C: the header that `to_c` writes, "
    "compiled with "
    "-O2, row by row in one call, the least mean of five passes; its size is that of the compiled "
    "library."
)


_OF_DEEP = (
    "As the tables above, with models of 31 leaves best first of any depth in place of depth 6. "
    "Header: "
    "what of C is compiled."
)


def _table(
    name: str,
    title: str,
    figures: dict[str, tuple[str, str, int]],
    methods: list[str],
    model: tuple[str, str] = (SHARED, _PROTOCOL),
) -> Table:
    """Return a table; `model` describes the problem and the protocol."""
    problem, protocol = model
    subjects = tuple(
        Subject(shown, unit, None, digits, problem, figure)
        for figure, (shown, unit, digits) in figures.items()
    )
    return Table(name, title, subjects, deployment, protocol, also=tuple(methods))


PAPER = Paper(
    __name__,
    "Deployment",
    "What it takes to serve a model of 16 targets, beside other libraries.",
    (
        _table(
            "files",
            "the file, loading and memory",
            {
                "file_mb": ("file", "MB", 2),
                "load_ms": ("load", "ms", 1),
                "first_ms": ("first row", "ms", 2),
                "memory_mb": ("memory", "MB", 0),
            },
            [*SAVED, *C],
        ),
        _table(
            "rows",
            "one row",
            {
                "array_p50_us": ("array, half", "microseconds", 1),
                "array_p99_us": ("array, 99 %", "microseconds", 1),
                "frame_p50_us": ("frame, half", "microseconds", 0),
                "frame_p99_us": ("frame, 99 %", "microseconds", 0),
            },
            [*SAVED, *C],
        ),
        _table(
            "batches",
            "rows a second, by rows in a call",
            {f"batch_{size}": (f"{size:,}", "rows a second", 0) for size in serving.BATCHES},
            [*SAVED, *C],
        ),
        _table(
            "service",
            "requests of one row to a service",
            {
                f"{figure}_{n}{end}": (
                    f"{n} clients, {shown}" if n > 1 else f"1 client, {shown}",
                    unit,
                    digits,
                )
                for n in serving.CLIENTS
                for figure, end, shown, unit, digits in (
                    ("requests", "", "a second", "requests", 0),
                    ("request", "_p50_ms", "half", "ms", 2),
                    ("request", "_p99_ms", "99 %", "ms", 2),
                )
            },
            [*SAVED],
        ),
        _table(
            "deep trees",
            "one row, 31 leaves at any depth",
            {
                "file_mb": ("file", "MB", 2),
                "header_mb": ("header", "MB", 2),
                "array_p50_us": ("array, half", "microseconds", 2),
                "array_p99_us": ("array, 99 %", "microseconds", 1),
            },
            [*(method for method in SAVED if method.startswith("Polyleaf")), *C],
            (DEEP, _OF_DEEP),
        ),
    ),
    golden=("defaults",),
)
