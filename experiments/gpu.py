"""Training and prediction on a CUDA GPU, compared with the CPU and other libraries on the same GPU.

Libraries that are not installed are left out. The time of a tree is the difference of two fits,
which excludes reading, binning and compiling; the fits of all libraries are interleaved. Polyleaf's
models of GPU and CPU are compared too, because times of different models are not comparable. An
update is the addition of one row's value for one feature and one output to a histogram. A tree has
at most rows times features times outputs updates per level.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from .libraries import Library, Settings, train

FEW, MANY = 2, 12  # rounds of the two fits


@dataclass(frozen=True)
class Case:
    """Case: rows, features, outputs, tree shape, and `sketch`: columns that replace the outputs."""

    title: str
    rows: int
    features: int
    outputs: int
    leaves: int = 31
    depth: int = 6
    sketch: int | None = None

    def data(self, quick: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return float32 features and targets that trees can partly learn."""
        rng, n = np.random.default_rng(0), 2_000 if quick else self.rows
        X = rng.random((n, self.features), np.float32)
        parts = np.tanh(4 * X[:, :8] - 2)
        y = parts @ rng.standard_normal((8, self.outputs), np.float32)
        y += 0.3 * rng.standard_normal(y.shape, np.float32)
        return X, y if self.outputs > 1 else y[:, 0]


CASES = (
    Case("16 outputs", 1_000_000, 100, 16),
    Case("one output", 11_000_000, 28, 1),
    Case("1,000 labels, sketched", 100_000, 100, 1_000, sketch=20),
)


def _train(library: str, device: str) -> Fit:
    def fit(case: Case, X: np.ndarray, y: np.ndarray, rounds: int) -> Library:
        sketch = {"sketch": "random_projection", "sketch_dim": case.sketch}
        own = {
            "xgboost": {"max_leaves": case.leaves},
            "polyleaf": {"colsample_bynode": None, **(sketch if case.sketch else {})},
        }[library] | {"device": device}
        settings = Settings(rounds, case.depth, case.leaves, threads=-1, own=own)
        name = f"{library}-multi-output-tree" if library == "xgboost" else library
        return train(name, "regression", {"X": X, "y": y}, settings)

    return fit


Fit = Callable[[Case, np.ndarray, np.ndarray, int], Library]
LIBRARIES: dict[str, Fit] = {
    "polyleaf, GPU": _train("polyleaf", "cuda"),
    "polyleaf, CPU": _train("polyleaf", "cpu"),
    "xgboost, GPU": _train("xgboost", "cuda"),
}


def measure(quick: bool, repeats: int, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure all cases."""
    return [_measure(case, quick, repeats, log) for case in CASES]


def _measure(case: Case, quick: bool, repeats: int, log: Callable[[str], None]) -> dict[str, Any]:
    """Return `ms` per tree of each repeat by library, the errors, and whether bytes are equal."""
    X, y = case.data(quick)
    found: dict[str, dict[str, Any]] = {}
    for name, fit in LIBRARIES.items():
        if find_spec(name.partition(",")[0]) is None:
            continue
        log(f"{case.title}: {name}, for the first time")
        try:
            fit(case, X, y, 1)  # compiles and allocates memory
            found[name] = {"ms": [], "error": None}
        except Exception as error:
            found[name] = {"ms": [], "error": f"{type(error).__name__}: {error}"}
    for _ in range(repeats):
        for name, taken in found.items():
            if taken["error"] is None:
                taken["ms"].append(_ms_of_tree(LIBRARIES[name], case, X, y))
                log(f"{case.title}: {name} {taken['ms'][-1]:.2f} ms a tree")
    return {
        "case": case.title,
        "rows": len(X),
        "updates": len(X) * case.features * (case.sketch or case.outputs),
        "libraries": found,
        "same_bytes": _same_bytes(found, case, X, y),
    }


def _ms_of_tree(fit: Fit, case: Case, X: np.ndarray, y: np.ndarray) -> float:
    def seconds(rounds: int) -> float:
        begun = time.perf_counter()
        fit(case, X, y, rounds)
        return time.perf_counter() - begun

    return 1e3 * (seconds(MANY) - seconds(FEW)) / (MANY - FEW)


def _same_bytes(found: dict[str, Any], case: Case, X: np.ndarray, y: np.ndarray) -> bool | None:
    """Return whether GPU and CPU give the same model; None if one of them fails."""
    names = ("polyleaf, GPU", "polyleaf, CPU")
    if any(found.get(name, {"error": "absent"})["error"] is not None for name in names):
        return None
    scores = [LIBRARIES[name](case, X, y, FEW).predict(X[:10_000]) for name in names]
    return bool(np.array_equal(*scores))


def make_rows(done: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return a table of milliseconds per tree.

    Columns: the median and range of repeats, picoseconds per update for a tree of one level, and
    multiples of Polyleaf's time on the GPU.
    """
    header = ["case", "library", "ms a tree", "from", "to", "ps an update", "times", "same bytes"]
    rows = []
    for case in done:
        own = case["libraries"].get("polyleaf, GPU", {"ms": []})["ms"]
        for name, taken in case["libraries"].items():
            if taken["error"] is not None:
                rows.append([case["case"], name, taken["error"], *[""] * 5])
                continue
            ms = taken["ms"]
            figures = [median(ms), min(ms), max(ms), 1e9 * median(ms) / case["updates"]]
            times = f"{median(ms) / median(own):.2f}" if own else ""
            is_same = case["same_bytes"] if name == "polyleaf, GPU" else None
            same = {True: "yes", False: "NO", None: ""}[is_same]
            rows.append([case["case"], name, *(f"{x:.2f}" for x in figures), times, same])
    return header, rows


# --- prediction ---


def measure_prediction(quick: bool, repeats: int, log: Callable[[str], None]) -> dict[str, Any]:
    """Return seconds of raw scores of all rows, by the location of trees and rows.

    Also return whether the bits are equal. The CPU uses all cores. CuPy, if installed, holds rows
    in GPU memory.
    """
    case = CASES[0]
    X, y = case.data(quick)
    est = LIBRARIES["polyleaf, CPU"](case, X[:20_000], y[:20_000], 10 if quick else 200).model
    est.set_params(n_jobs=-1)
    here, there = est.predictor(), est.predictor(device="cuda")
    asked: dict[str, Callable[[], Any]] = {
        "CPU": lambda: here.predict_raw(X),
        "GPU, rows in CPU memory": lambda: there.predict_raw(X),
    }
    if find_spec("cupy") is not None:
        import cupy

        device_X = cupy.asarray(X)
        asked["GPU, rows in GPU memory"] = lambda: there.predict_raw(device_X)
    expected = here.predict_raw(X)
    same = {name: bool(np.array_equal(_to_host(ask()), expected)) for name, ask in asked.items()}
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(repeats):
        for name, ask in asked.items():
            begun = time.perf_counter()
            ask()
            seconds[name].append(time.perf_counter() - begun)
            log(f"prediction, {name}: {1e3 * seconds[name][-1]:.1f} ms")
    return {"rows": len(X), "outputs": case.outputs, "seconds": seconds, "same": same}


def _to_host(scores: Any) -> np.ndarray:
    return scores if isinstance(scores, np.ndarray) else scores.read()


def make_prediction_rows(done: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return a table of nanoseconds per row, the range of repeats, and speedup over the CPU."""
    base = median(done["seconds"]["CPU"])
    rows = []
    for name, seconds in done["seconds"].items():
        figures = (median(seconds), min(seconds), max(seconds))
        ns = (f"{1e9 * x / done['rows']:.1f}" for x in figures)
        same = "yes" if done["same"][name] else "NO"
        rows.append([name, *ns, f"{base / median(seconds):.2f}", same])
    return ["trees", "ns a row", "from", "to", "times the CPU", "same bits"], rows


def has_failed(done: Sequence[dict[str, Any]], predicted: dict[str, Any]) -> bool:
    """Return whether Polyleaf raised an error, or its bits differ between GPU and CPU."""
    fits = [fit for case in done for fit in case["libraries"].items()]
    ours = [taken["error"] for name, taken in fits if name.startswith("polyleaf")]
    is_different = any(case["same_bytes"] is False for case in done)
    return any(ours) or is_different or not all(predicted["same"].values())
