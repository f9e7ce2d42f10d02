"""Time of contributions (SHAP values) in Polyleaf and peers, each on its own model, on one thread.

Contenders are interleaved: within one repeat all run one after the other, so that the load of the
machine affects ratios less than times. Times are processor times.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from .libraries import Library, Settings, is_installed, train
from .problems import shared_structure
from .report import NOT_INSTALLED, Columns, fill_rows

N_FEATURES = 50
WARM_UP = 20  # rows explained before the clock starts


Explain = Callable[[Library, np.ndarray], Any]


@dataclass(frozen=True)
class Contender:
    """One way to explain rows, by the peer's public API; fewer rows for slow contenders."""

    label: str
    library: str
    n_rows: int
    explain: Explain
    n_outputs: int = 16


def _ours(library: Library, rows: np.ndarray) -> Any:
    return library.model.shap_values(rows)


def _shap(library: Library, rows: np.ndarray) -> Any:
    """Explain Polyleaf's trees with the shap package."""
    import shap

    from polyleaf import inspection

    if not hasattr(library, "explainer"):
        library.explainer = shap.TreeExplainer(inspection.export_shap_trees(library.model))
    return library.explainer.shap_values(rows.astype(np.float64), check_additivity=False)


def _xgboost(library: Library, rows: np.ndarray) -> Any:
    import xgboost

    return library.model.get_booster().predict(xgboost.DMatrix(rows, nthread=1), pred_contribs=True)


def _lightgbm(library: Library, rows: np.ndarray) -> Any:
    return [model.predict(rows, pred_contrib=True, num_threads=1) for model in library.model]


def _catboost(library: Library, rows: np.ndarray) -> Any:
    from catboost import Pool

    # "Regular" is the exact algorithm; "Auto" selects it, too, for so few rows and trees.
    return library.model.get_feature_importance(
        Pool(rows), type="ShapValues", thread_count=1, shap_calc_type="Regular"
    )


IN_SHAP = "polyleaf's trees in shap"


def _peers(n_outputs: int, *rows: int) -> list[Contender]:
    """Return contenders for path-dependent values: Polyleaf, then peers with their row counts."""
    vector = "xgboost-multi-output-tree" if n_outputs > 1 else "xgboost"
    contenders = (
        ("polyleaf", "polyleaf", _ours),
        (IN_SHAP, "polyleaf", _shap),
        ("catboost", "catboost", _catboost),
        ("xgboost", vector, _xgboost),
        ("lightgbm", "lightgbm", _lightgbm),
    )
    return [
        Contender(label, library, n, explain, n_outputs=n_outputs)
        for (label, library, explain), n in zip(contenders, rows, strict=True)
    ]


CASES: dict[str, tuple[str, list[Contender]]] = {
    "values16": ("16 targets", _peers(16, 5000, 200, 500, 100, 50)),
    "values1": ("one target", _peers(1, 5000, 1000, 1000, 1000, 1000)),
}


def run(
    names: Sequence[str], quick: bool, repeats: int, log: Callable[[str], object]
) -> Iterator[dict[str, Any]]:
    """Measure cases for result files; runs hold `explain_us`, microseconds per row."""
    for name in names:
        title, contenders = CASES[name]
        if quick:
            contenders = [replace(c, n_rows=min(c.n_rows, 3)) for c in contenders]
        entries = [_entry(c) for c in contenders]
        for turn, (c, entry) in product(range(repeats), zip(contenders, entries, strict=True)):
            if entry["error"] is None:
                _measure(c, quick, entry)
                outcome = entry["runs"][-1:] or entry["error"]
                log(f"{name}, turn {turn + 1}, {c.label}: {outcome}")
        about = {"name": name, "title": f"Contributions, {title}", "focus": "explain_us"}
        yield {**about, "baseline": contenders[0].label, "contenders": entries}


@functools.cache
def _model(library: str, n_outputs: int, quick: bool) -> tuple[Library, np.ndarray]:
    """Return the library's model for this number of targets, and its X."""
    data = shared_structure(500 if quick else 40_000, 10, N_FEATURES, n_outputs)
    if n_outputs == 1:
        data["y"] = data["y"].ravel()
    settings = Settings(3 if quick else 50, max_depth=6, max_leaves=64, threads=1)
    return train(library, "regression", data, settings), data["X"]


def _entry(contender: Contender) -> dict[str, Any]:
    needs_shap = IN_SHAP in contender.label
    is_here = is_installed(contender.library) and (not needs_shap or find_spec("shap"))
    settings = {"threads": 1, "rows": contender.n_rows, "outputs": contender.n_outputs}
    return {
        "label": contender.label, "library": contender.library, "settings": settings, "runs": [],
        "error": None if is_here else NOT_INSTALLED,
    }  # fmt: skip


def _measure(contender: Contender, quick: bool, entry: dict[str, Any]) -> None:
    try:
        library, X = _model(contender.library, contender.n_outputs, quick)
        rows = np.ascontiguousarray(X[: contender.n_rows])
        if not entry["runs"]:
            contender.explain(library, rows[:WARM_UP])
        start = time.process_time()
        contender.explain(library, rows)
        seconds = time.process_time() - start
    except Exception as error:  # an error of one peer does not stop the others
        entry["error"], entry["runs"] = f"{type(error).__name__}: {error}"[:200], []
        return
    entry["runs"].append({"explain_us": seconds * 1e6 / len(rows)})


def make_rows(case: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and cells of a summarised case."""
    columns: Columns = {
        "us a row (min - max)": lambda c: _spread(c["summary"]["explain_us"]),
        f"x {case['baseline']}": lambda c: (
            _spread(c["ratios"]["explain_us"]) if "explain_us" in c["ratios"] else ""
        ),
        "rows": lambda c: str(c["settings"]["rows"]),
    }
    return fill_rows(case, columns)


def _spread(figure: dict[str, float]) -> str:
    values = (figure[name] for name in ("median", "min", "max"))
    median, least, most = (f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in values)
    return f"{median} ({least} - {most})"
