"""Time of contributions (SHAP values) in Polyleaf and peers, each on its own model, on one thread.

Contenders are interleaved: within one repeat all run one after the other, so that the load of the
machine affects ratios less than times. Times are processor times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from .libraries import LIBRARIES, Library, Settings, is_installed
from .problems import shared_structure
from .report import NOT_INSTALLED

SETTINGS = Settings(rounds=50, max_depth=6, max_leaves=64, threads=1)
N_FEATURES = 50
WARM_UP = 20  # rows explained before the clock starts


@dataclass(frozen=True)
class Contender:
    """One way to explain rows.

    Attributes
    ----------
    label, library : str
    n_rows : int
        Rows explained in one call, fewer for slow contenders.
    explain : callable
        Called with a fitted `Library`, X, and rows to explain; uses the peer's public API.
    unit : int
        Rows that a call counts as, where that differs from the number of rows (pairs with a
        background).
    n_outputs : int
    """

    label: str
    library: str
    n_rows: int
    explain: Callable[[Library, np.ndarray, np.ndarray], Any]
    unit: int = 1
    n_outputs: int = 16


def _ours(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    return library.model.shap_values(rows)


def _shap(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    """Explain Polyleaf's trees with the shap package."""
    import shap

    from polyleaf import inspection

    if not hasattr(library, "explainer"):
        library.explainer = shap.TreeExplainer(inspection.export_shap_trees(library.model))
    return library.explainer.shap_values(rows.astype(np.float64), check_additivity=False)


def _xgboost(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    import xgboost

    return library.model.get_booster().predict(xgboost.DMatrix(rows, nthread=1), pred_contribs=True)


def _lightgbm(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    return [model.predict(rows, pred_contrib=True, num_threads=1) for model in library.model]


def _catboost(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    from catboost import Pool

    # "Regular" is the exact algorithm; "Auto" selects it, too, for so few rows and trees.
    return library.model.get_feature_importance(
        Pool(rows), type="ShapValues", thread_count=1, shap_calc_type="Regular"
    )


def _our_background(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    return library.model.shap_values(rows, background=X[: len(rows)])


def _shap_background(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    import shap

    from polyleaf import inspection

    trees = inspection.export_shap_trees(library.model)
    explainer = shap.TreeExplainer(trees, X[: len(rows)].astype(np.float64))
    return explainer.shap_values(rows.astype(np.float64), check_additivity=False)


def _our_interactions(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    return library.model.shap_values(rows, interactions=True)


def _xgboost_interactions(library: Library, X: np.ndarray, rows: np.ndarray) -> Any:
    import xgboost

    return library.model.get_booster().predict(
        xgboost.DMatrix(rows, nthread=1), pred_interactions=True
    )


def _peers(n_outputs: int, rows: Sequence[int]) -> list[Contender]:
    """Return contenders for path-dependent values: Polyleaf, then peers with their row counts."""
    counts = dict(zip(("shap", "catboost", "xgboost", "lightgbm"), rows, strict=True))
    vector = "xgboost-multi-output-tree" if n_outputs > 1 else "xgboost"
    return [
        Contender("polyleaf", "polyleaf", 5000, _ours, n_outputs=n_outputs),
        Contender(
            "polyleaf's trees in shap", "polyleaf", counts["shap"], _shap, n_outputs=n_outputs
        ),
        Contender("catboost", "catboost", counts["catboost"], _catboost, n_outputs=n_outputs),
        Contender("xgboost", vector, counts["xgboost"], _xgboost, n_outputs=n_outputs),
        Contender("lightgbm", "lightgbm", counts["lightgbm"], _lightgbm, n_outputs=n_outputs),
    ]


CASES: dict[str, tuple[str, list[Contender]]] = {
    "values16": ("16 targets", _peers(16, (200, 500, 100, 50))),
    "values1": ("one target", _peers(1, (1000, 1000, 1000, 1000))),
    "outputs": (
        "100 targets beside 16",
        [
            Contender("16 targets", "polyleaf", 5000, _ours),
            Contender("100 targets", "polyleaf", 5000, _ours, n_outputs=100),
        ],
    ),
    "one_row": (
        "16 targets, a single row",
        [
            replace(c, n_rows=1)
            for c in _peers(16, (1, 1, 1, 1))
            if c.label != "polyleaf's trees in shap"
        ],
    ),
    "background": (
        "16 targets, each row against each of as many background rows; per pair of rows",
        [
            Contender("polyleaf, 5,000 x 5,000", "polyleaf", 5000, _our_background, unit=5000),
            Contender(
                "polyleaf's trees in shap, 20 x 20", "polyleaf", 20, _shap_background, unit=20
            ),
        ],
    ),
    "interactions": (
        "16 targets, interactions of all pairs of features",
        [
            Contender("polyleaf", "polyleaf", 1000, _our_interactions),
            Contender("xgboost", "xgboost-multi-output-tree", 2, _xgboost_interactions),
        ],
    ),
}


def run(
    names: Sequence[str],
    quick: bool,
    repeats: int,
    log: Callable[[str], object] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Measure cases for result files; runs hold `explain_us`, microseconds per row."""
    models = _Models(quick)
    for name in names:
        title, contenders = CASES[name]
        if quick:
            contenders = [
                replace(c, n_rows=min(c.n_rows, 3), unit=min(c.unit, 3)) for c in contenders
            ]
        rows = [_entry(c) for c in contenders]
        for turn in range(repeats):
            for contender, row in zip(contenders, rows, strict=True):
                if row["error"] is None:
                    _measure(contender, models, row)
                    log(
                        f"{name}, turn {turn + 1}, {contender.label}: "
                        f"{row['runs'][-1:] or row['error']}"
                    )
        yield {
            "name": name,
            "title": f"Contributions, {title}",
            "baseline": contenders[0].label,
            "focus": "explain_us",
            "contenders": rows,
        }


class _Models:
    """Cache of fitted models."""

    def __init__(self, quick: bool):
        self._n_rows = 500 if quick else 40_000
        self._settings = replace(SETTINGS, rounds=3) if quick else SETTINGS
        self._fitted: dict[tuple[str, int], tuple[Library, np.ndarray]] = {}

    def get(self, library: str, n_outputs: int) -> tuple[Library, np.ndarray]:
        """Return the library's model for this number of targets, and its X."""
        if (library, n_outputs) not in self._fitted:
            data = shared_structure(self._n_rows, 10, N_FEATURES, n_outputs)
            if n_outputs == 1:
                data["y"] = data["y"].ravel()
            fitted = LIBRARIES[library]("regression", self._settings)
            fitted.fit(data)
            self._fitted[library, n_outputs] = fitted, data["X"]
        return self._fitted[library, n_outputs]


def _entry(contender: Contender) -> dict[str, Any]:
    needs_shap = "in shap" in contender.label
    is_here = is_installed(contender.library) and (not needs_shap or find_spec("shap"))
    missing = None if is_here else NOT_INSTALLED
    return {
        "label": contender.label,
        "library": contender.library,
        "settings": {"threads": 1, "rows": contender.n_rows, "outputs": contender.n_outputs},
        "runs": [],
        "error": missing,
    }


def _measure(contender: Contender, models: _Models, entry: dict[str, Any]) -> None:
    try:
        library, X = models.get(contender.library, contender.n_outputs)
        rows = np.ascontiguousarray(X[: contender.n_rows])
        if not entry["runs"]:
            contender.explain(library, X, rows[: min(len(rows), WARM_UP)])
        start = time.process_time()
        contender.explain(library, X, rows)
        seconds = time.process_time() - start
    except Exception as error:  # an error of one peer does not stop the others
        entry["error"], entry["runs"] = f"{type(error).__name__}: {error}"[:200], []
        return
    entry["runs"].append({"explain_us": seconds * 1e6 / len(rows) / contender.unit})


def make_rows(case: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and cells of a summarised case."""
    rows = []
    for c in case["contenders"]:
        if not c["runs"]:
            rows.append([c["label"], c["error"] or "no runs", "", ""])
            continue
        us = c["summary"]["explain_us"]
        ratio = c["ratios"].get("explain_us")
        rows.append(
            [c["label"], _spread(us), _spread(ratio) if ratio else "", str(c["settings"]["rows"])]
        )
    return ["contender", "us a row (min - max)", f"x {case['baseline']}", "rows"], rows


def _spread(figure: dict[str, float]) -> str:
    values = (figure[name] for name in ("median", "min", "max"))
    median, least, most = (f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in values)
    return f"{median} ({least} - {most})"
