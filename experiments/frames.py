"""Overhead of data frames as input: predictions for one row and for a thousand, and training.

Libraries that are not installed are left out. Each library is compared with itself on the same
numbers as an array. Trees are few and small, so that the conversion dominates the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from polyleaf import PolyleafRegressor

__all__ = ["CONTAINERS", "make_rows", "measure"]

COLUMNS = (64, 200, 500, 2000)
ROUNDS, N_ROWS = 5, 1000
MEASURES = ("one row", f"{N_ROWS} rows", "training")


def _pandas(X: np.ndarray, names: list[str]) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=names)


def _pandas_mixed(X: np.ndarray, names: list[str]) -> Any:
    """Return a frame with every third column float32 and every fourth integer."""
    import pandas as pd

    kinds = {
        name: np.float32 if i % 3 == 0 else np.int64
        for i, name in enumerate(names)
        if not i % 3 or not i % 4
    }
    return pd.DataFrame(np.round(64 * X), columns=names).astype(kinds).copy()


def _polars(X: np.ndarray, names: list[str]) -> Any:
    import polars as pl

    return pl.DataFrame(dict(zip(names, X.T, strict=True)))


def _arrow(X: np.ndarray, names: list[str]) -> Any:
    import pyarrow as pa

    return pa.table(dict(zip(names, X.T, strict=True)))


CONTAINERS: dict[str, Callable[[np.ndarray, list[str]], Any]] = {
    "array": lambda X, names: X,
    "pandas": _pandas,
    "pandas, mixed": _pandas_mixed,
    "polars": _polars,
    "arrow": _arrow,
}


def _polyleaf() -> Any:
    return PolyleafRegressor(n_estimators=ROUNDS, n_jobs=1)


def _lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_estimators=ROUNDS, n_jobs=1, verbose=-1)


def _xgboost() -> Any:
    from xgboost import XGBRegressor

    return XGBRegressor(
        n_estimators=ROUNDS, n_jobs=1, max_leaves=31, max_depth=0, tree_method="hist"
    )


LIBRARIES = {"polyleaf": _polyleaf, "lightgbm": _lightgbm, "xgboost": _xgboost}


def measure(quick: bool, repeats: int, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the minimum milliseconds over all repeats, with the containers interleaved.

    Returns
    -------
    list of dict
        `columns`, `library`, `container`, and the measures by name; None where the library rejects
        the container.
    """
    found = []
    for n_columns in COLUMNS[: 2 if quick else None]:
        X = np.random.default_rng(0).standard_normal((N_ROWS, n_columns))
        names = [f"column_{i}" for i in range(n_columns)]
        data = {kind: make(X, names) for kind, make in CONTAINERS.items()}
        for library, make in LIBRARIES.items():
            if find_spec(library) is not None:
                log(f"{library}, {n_columns} columns")
                found += _measure_library(library, make, data, X[:, 0], repeats)
    return found


def _measure_library(
    library: str, make: Callable[[], Any], data: dict[str, Any], y: np.ndarray, repeats: int
) -> list[dict[str, Any]]:
    about = {"columns": data["array"].shape[1], "library": library}
    results = {kind: about | {"container": kind} | dict.fromkeys(MEASURES) for kind in data}
    calls = {}
    for kind, X in data.items():
        try:
            calls[kind] = _calls(make, X, y)
        except Exception:  # the library does not accept the container
            if library == "polyleaf":
                raise
    for measure in MEASURES:
        for repeat in range(repeats * {"one row": 20, "training": 1}.get(measure, 5)):
            for kind, fit_kinds in calls.items():
                begin = time.perf_counter()
                fit_kinds[measure]()
                spent = 1e3 * (time.perf_counter() - begin)
                results[kind][measure] = spent if not repeat else min(spent, results[kind][measure])
    return list(results.values())


def _calls(make: Callable[[], Any], X: Any, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return the timed calls after a warm-up."""
    one_row = X.iloc[[0]] if hasattr(X, "iloc") else X[:1]
    model = make().fit(X, y)
    model.predict(one_row)
    return {
        MEASURES[0]: lambda: model.predict(one_row),
        MEASURES[1]: lambda: model.predict(X),
        MEASURES[2]: lambda: make().fit(X, y),
    }


def make_rows(results: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a table in milliseconds.

    Brackets hold multiples of the library's own time for arrays.
    """
    arrays = {(r["columns"], r["library"]): r for r in results if r["container"] == "array"}
    rows = []
    for result in results:
        array = arrays[result["columns"], result["library"]]
        cells = [
            "not taken" if result[m] is None else f"{result[m]:.3g} ({result[m] / array[m]:.1f})"
            for m in MEASURES
        ]
        rows.append([str(result["columns"]), result["library"], result["container"], *cells])
    return ["columns", "library", "container", *(f"{m}, ms" for m in MEASURES)], rows
