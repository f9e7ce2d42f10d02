"""Declarations of the compared libraries, problems and settings.

`CASES` maps names to functions of `quick` that yield the cases. To add a case, add one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .libraries import Settings
from .problems import Problem

XGBOOST = ("xgboost-multi-output-tree", "xgboost-one-output-per-tree")
MULTI_OUTPUT_PEERS = (*XGBOOST, "lightgbm", "lightgbm-quantized", "catboost", "omnigbdt")
ALL_PEERS = (*MULTI_OUTPUT_PEERS, "sklearn")


@dataclass(frozen=True)
class Contender:
    """One library on one problem."""

    label: str
    library: str
    problem: Problem
    settings: Settings


@dataclass(frozen=True)
class Case:
    """Group of contenders measured in turn.

    Attributes
    ----------
    baseline : str
        Label of the contender used as the denominator of ratios.
    focus : str
        Main measure of the case: "fit_seconds", "predict_seconds" or "peak_above_data_bytes".
    curve_points : int
        Number of shorter models scored on the test part, used to find when a score was reached.
        0 disables the curve.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    baseline: str = "polyleaf"
    focus: str = "fit_seconds"
    curve_points: int = 0


def _make_contenders(
    problem: Problem, settings: Settings, libraries: Sequence[str]
) -> tuple[Contender, ...]:
    return tuple(Contender(name, name, problem, settings) for name in ("polyleaf", *libraries))


def _same_trees(rounds: int, **limits: int) -> Settings:
    """Return settings for timing: one-row leaves and one reg_lambda, for trees of equal size."""
    return Settings(rounds, reg_lambda=1.0, min_rows=1, **limits)


def _targets(quick: bool, n_outputs: int, n_test: int = 10_000) -> Problem:
    n, n_test, n_features = (1_500, 500, 10) if quick else (40_000, n_test, 50)
    sizes = {"n": n, "n_test": n_test, "n_features": n_features, "n_outputs": n_outputs}
    return Problem("regression", "shared_structure", sizes)


def _two_classes(quick: bool) -> Problem:
    n, n_test = (5_000, 1_000) if quick else (1_000_000, 100_000)
    return Problem("binary", "binary_signal", {"n": n, "n_test": n_test, "n_features": 28})


def mo16(quick: bool) -> Iterator[Case]:
    """Yield a case with sixteen targets of shared structure."""
    settings = _same_trees(3 if quick else 50, max_depth=6, max_leaves=64)
    contenders = _make_contenders(_targets(quick, 16), settings, MULTI_OUTPUT_PEERS)
    yield Case("mo16", "40,000 x 50 -> 16 targets, depth 6", contenders)


def one(quick: bool) -> Iterator[Case]:
    """Yield a case with one output and many rows."""
    settings = _same_trees(3 if quick else 50, max_leaves=64)
    peers = ("xgboost", "lightgbm", "lightgbm-quantized", "catboost", "sklearn")
    contenders = _make_contenders(_two_classes(quick), settings, peers)
    yield Case("one", "1,000,000 x 28, two classes, 64 leaves", contenders)


def few(quick: bool) -> Iterator[Case]:
    """Yield a case with few rows and many outputs (XGBoost issue 9870)."""
    n, n_test, n_outputs = (200, 50, 5) if quick else (1_000, 500, 50)
    sizes = {"n": n, "n_test": n_test, "n_features": 50, "n_outputs": n_outputs}
    settings = _same_trees(2 if quick else 10, max_depth=6, max_leaves=64)
    problem = Problem("regression", "linear_targets", sizes)
    contenders = _make_contenders(problem, settings, ALL_PEERS)
    yield Case("few", "1,000 x 50 -> 50 targets, 10 rounds", contenders)


def words(quick: bool) -> Iterator[Case]:
    """Yield cases with sparse features: a matrix of word counts."""
    n, n_test, n_features, n_words = (400, 100, 500, 20) if quick else (20_000, 5_000, 30_000, 80)
    settings = _same_trees(3 if quick else 20, max_depth=6, max_leaves=64)
    for n_outputs, xgboost in ((1, ("xgboost",)), (10, XGBOOST)):
        sizes = {"n": n, "n_test": n_test, "n_features": n_features, "n_words": n_words}
        problem = Problem("regression", "words", {**sizes, "n_outputs": n_outputs})
        targets = f"{n_outputs} target{'s' * (n_outputs > 1)}"
        title = f"20,000 x 30,000 words, 80 in a row -> {targets}, depth 6"
        contenders = _make_contenders(problem, settings, (*xgboost, "lightgbm", "catboost"))
        yield Case(f"words-{n_outputs}", title, contenders)


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
        contenders = _make_contenders(problem, settings, (*MULTI_OUTPUT_PEERS, *more))
        title = f"{name}: test score with early stopping"
        yield Case(f"quality-{name}", title, contenders, curve_points=4 if quick else 30)


def predict(quick: bool) -> Iterator[Case]:
    """Yield a case that times prediction, with models trained on fewer rows."""
    settings = _same_trees(5 if quick else 200, max_depth=6, max_leaves=64)
    problem = _targets(quick, 16, n_test=100_000)
    contenders = _make_contenders(problem, settings, MULTI_OUTPUT_PEERS)
    title = "prediction: 100,000 rows, 16 targets, 200 rounds"
    yield Case("predict", title, contenders, focus="predict_seconds")


def memory(quick: bool) -> Iterator[Case]:
    """Yield a case that measures peak memory of training, above the data."""
    settings = _same_trees(3 if quick else 10, max_leaves=64)
    contenders = _make_contenders(_two_classes(quick), settings, ("lightgbm", "xgboost"))
    yield Case("memory", "peak memory, 1,000,000 x 28", contenders, focus="peak_above_data_bytes")


CASES: dict[str, Callable[[bool], Iterator[Case]]] = {
    f.__name__: f for f in (mo16, one, few, words, quality, predict, memory)
}


def select(
    name: str, quick: bool, n_threads: int = 2, libraries: Sequence[str] | None = None
) -> list[Case]:
    """Return the cases of a name ("all" for every case).

    The cases run on `n_threads` threads, with `libraries` as the peers.
    """
    cases = []
    for make in CASES.values() if name == "all" else [CASES[name]]:
        for case in make(quick):
            contenders, first = case.contenders, case.contenders[0]
            if libraries is not None:
                contenders = _make_contenders(first.problem, first.settings, libraries)
            contenders = tuple(
                replace(c, settings=replace(c.settings, threads=n_threads)) for c in contenders
            )
            title = case.title + (" (quick)" if quick else "")
            cases.append(replace(case, contenders=contenders, title=title))
    return cases
