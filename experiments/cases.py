"""Declarations of the problems and settings on which libraries are compared.

`CASES` maps names to functions of `quick` that yield the cases. To add a case, add one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .libraries import Settings
from .problems import Problem

XGBOOST = ("xgboost-multi-output-tree", "xgboost-one-output-per-tree")
MULTI_OUTPUT_PEERS = (*XGBOOST, "lightgbm", "lightgbm-quantized", "catboost", "omnigbdt")


@dataclass(frozen=True)
class Case:
    """Libraries that are measured in turn on one problem, beside Polyleaf.

    Attributes
    ----------
    focus : str
        Main measure of the case: "fit_seconds", "predict_seconds" or "peak_above_data_bytes".
    curve_points : int
        Number of shorter models scored on the test part, used to find when a score was reached.
        0 disables the curve.
    """

    name: str
    title: str
    problem: Problem
    settings: Settings
    libraries: Sequence[str] = MULTI_OUTPUT_PEERS
    focus: str = "fit_seconds"
    curve_points: int = 0


def _same_trees(rounds: int, **limits: int) -> Settings:
    """Return settings for timing: one-row leaves and one reg_lambda, for trees of equal size."""
    return Settings(rounds, reg_lambda=1.0, min_rows=1, **limits)


def _targets(quick: bool, n_test: int = 10_000) -> Problem:
    n, n_test, n_features = (1_500, 500, 10) if quick else (40_000, n_test, 50)
    sizes = {"n": n, "n_test": n_test, "n_features": n_features, "n_outputs": 16}
    return Problem("regression", "shared_structure", sizes)


def _two_classes(quick: bool) -> Problem:
    n, n_test = (5_000, 1_000) if quick else (1_000_000, 100_000)
    return Problem("binary", "binary_signal", {"n": n, "n_test": n_test, "n_features": 28})


def mo16(quick: bool) -> Iterator[Case]:
    """Yield a case with sixteen targets of shared structure."""
    settings = _same_trees(3 if quick else 50, max_depth=6, max_leaves=64)
    yield Case("mo16", "40,000 x 50 -> 16 targets, depth 6", _targets(quick), settings)


def one(quick: bool) -> Iterator[Case]:
    """Yield a case with one output and many rows."""
    settings = _same_trees(3 if quick else 50, max_leaves=64)
    peers = ("xgboost", "lightgbm", "lightgbm-quantized", "catboost", "sklearn")
    yield Case(
        "one", "1,000,000 x 28, two classes, 64 leaves", _two_classes(quick), settings, peers
    )


def few(quick: bool) -> Iterator[Case]:
    """Yield a case with few rows and many outputs (XGBoost issue 9870)."""
    n, n_test, n_outputs = (200, 50, 5) if quick else (1_000, 500, 50)
    sizes = {"n": n, "n_test": n_test, "n_features": 50, "n_outputs": n_outputs}
    settings = _same_trees(2 if quick else 10, max_depth=6, max_leaves=64)
    problem = Problem("regression", "linear_targets", sizes)
    peers = (*MULTI_OUTPUT_PEERS, "sklearn")
    yield Case("few", "1,000 x 50 -> 50 targets, 10 rounds", problem, settings, peers)


def words(quick: bool) -> Iterator[Case]:
    """Yield cases with sparse features: a matrix of word counts."""
    n, n_test, n_features, n_words = (400, 100, 500, 20) if quick else (20_000, 5_000, 30_000, 80)
    settings = _same_trees(3 if quick else 20, max_depth=6, max_leaves=64)
    for n_outputs, xgboost in ((1, ("xgboost",)), (10, XGBOOST)):
        sizes = {"n": n, "n_test": n_test, "n_features": n_features, "n_words": n_words}
        problem = Problem("regression", "words", {**sizes, "n_outputs": n_outputs})
        targets = f"{n_outputs} target{'s' * (n_outputs > 1)}"
        title = f"20,000 x 30,000 words, 80 in a row -> {targets}, depth 6"
        peers = (*xgboost, "lightgbm", "catboost")
        yield Case(f"words-{n_outputs}", title, problem, settings, peers)


# Real data sets of `quality`: their task, and the additional libraries to run.
_QUALITY = {
    "otto": ("multiclass", ()),
    "letter": ("multiclass", ("sklearn",)),
    "mnist": ("multiclass", ()),
    "leaf99": ("multiclass", ("sklearn",)),  # few rows, many classes
    "rf1": ("regression", ("sklearn", "lightgbm-linear")),
    "oes10": ("regression", ("sklearn", "lightgbm-linear")),  # few rows, many features
    "casp": ("regression", ("sklearn", "lightgbm-linear")),  # one target
    "yeast_ml": ("multilabel", ("sklearn",)),
    "corel5k": ("multilabel", ()),  # 374 labels
}


def quality(quick: bool) -> Iterator[Case]:
    """Yield cases on real data with early stopping.

    Settings other than the tree size are each library's defaults.
    """
    settings = Settings(5 if quick else 1000, max_depth=6, max_leaves=64, patience=20)
    for name, (kind, more) in _QUALITY.items():
        problem = Problem(kind, "file", {"name": name, "n_rows": 400 if quick else None})
        title, peers = f"{name}: test score with early stopping", (*MULTI_OUTPUT_PEERS, *more)
        n_points = 4 if quick else 30
        yield Case(f"quality-{name}", title, problem, settings, peers, curve_points=n_points)


def predict(quick: bool) -> Iterator[Case]:
    """Yield a case that times prediction, with models trained on fewer rows."""
    settings = _same_trees(5 if quick else 200, max_depth=6, max_leaves=64)
    title = "prediction: 100,000 rows, 16 targets, 200 rounds"
    yield Case("predict", title, _targets(quick, 100_000), settings, focus="predict_seconds")


def memory(quick: bool) -> Iterator[Case]:
    """Yield a case that measures peak memory of training, above the data."""
    settings, peers = _same_trees(3 if quick else 10, max_leaves=64), ("lightgbm", "xgboost")
    title, focus = "peak memory, 1,000,000 x 28", "peak_above_data_bytes"
    yield Case("memory", title, _two_classes(quick), settings, peers, focus)


CASES: dict[str, Callable[[bool], Iterator[Case]]] = {
    f.__name__: f for f in (mo16, one, few, words, quality, predict, memory)
}


def select(
    name: str, quick: bool, n_threads: int = 2, libraries: Sequence[str] | None = None
) -> list[Case]:
    """Return the cases of a name ("all" for every case), with other peers if they are named."""
    return [
        replace(
            case,
            libraries=libraries or case.libraries,
            settings=replace(case.settings, threads=n_threads),
            title=case.title + (" (quick)" if quick else ""),
        )
        for make in (CASES.values() if name == "all" else [CASES[name]])
        for case in make(quick)
    ]
