"""Declarations of the compared libraries, problems and settings.

`CASES` maps names to functions of `quick` that return the cases. To add a case, add one function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyleaf.settings import presets

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
        Main measure of the case: "fit_seconds", "round_seconds", "predict_seconds" or
        "peak_above_data_bytes".
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
    return Problem(
        "regression",
        "shared_structure",
        {"n": n, "n_test": n_test, "n_features": n_features, "n_outputs": n_outputs},
    )


def _two_classes(quick: bool) -> Problem:
    n, n_test = (5_000, 1_000) if quick else (1_000_000, 100_000)
    return Problem("binary", "binary_signal", {"n": n, "n_test": n_test, "n_features": 28})


def mo16(quick: bool) -> list[Case]:
    """Return a case with sixteen targets of shared structure."""
    settings = _same_trees(3 if quick else 50, max_depth=6, max_leaves=64)
    problem = _targets(quick, 16)
    return [
        Case(
            "mo16",
            "40,000 x 50 -> 16 targets, depth 6",
            _make_contenders(problem, settings, MULTI_OUTPUT_PEERS),
        )
    ]


def one(quick: bool) -> list[Case]:
    """Return cases with one output and many rows."""
    settings = _same_trees(3 if quick else 50, max_leaves=64)
    peers = ("xgboost", "lightgbm", "lightgbm-quantized", "catboost", "sklearn")
    return [
        Case(
            "one",
            "1,000,000 x 28, two classes, 64 leaves",
            _make_contenders(_two_classes(quick), settings, peers),
        )
    ]


def few(quick: bool) -> list[Case]:
    """Return cases with few rows and many outputs (XGBoost issue 9870)."""
    n, n_test, n_outputs = (200, 50, 5) if quick else (1_000, 500, 50)
    problem = Problem(
        "regression",
        "linear_targets",
        {"n": n, "n_test": n_test, "n_features": 50, "n_outputs": n_outputs},
    )
    settings = _same_trees(2 if quick else 10, max_depth=6, max_leaves=64)
    peers = ALL_PEERS
    return [
        Case(
            "few", "1,000 x 50 -> 50 targets, 10 rounds", _make_contenders(problem, settings, peers)
        )
    ]


def words(quick: bool) -> list[Case]:
    """Return a case with sparse features: a matrix of word counts."""
    n, n_test, n_features, n_words = (400, 100, 500, 20) if quick else (20_000, 5_000, 30_000, 80)
    cases = []
    for n_outputs in (1, 10):
        sizes = {"n": n, "n_test": n_test, "n_features": n_features, "n_words": n_words}
        problem = Problem("regression", "words", {**sizes, "n_outputs": n_outputs})
        settings = _same_trees(3 if quick else 20, max_depth=6, max_leaves=64)
        peers = (
            ("xgboost", "lightgbm", "catboost")
            if n_outputs == 1
            else (*XGBOOST, "lightgbm", "catboost")
        )
        targets = f"{n_outputs} target{'s' * (n_outputs > 1)}"
        title = f"20,000 x 30,000 words, 80 in a row -> {targets}, depth 6"
        cases.append(Case(f"words-{n_outputs}", title, _make_contenders(problem, settings, peers)))
    return cases


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


def quality(quick: bool) -> list[Case]:
    """Return cases on real data with early stopping.

    Settings other than the tree size are each library's defaults.
    """
    settings = Settings(5 if quick else 1000, max_depth=6, max_leaves=64, patience=20)
    return [
        Case(
            f"quality-{name}",
            f"{name}: test score with early stopping",
            _make_contenders(
                Problem(kind, "file", {"name": name, "n_rows": 400 if quick else None}),
                settings,
                (*MULTI_OUTPUT_PEERS, *more),
            ),
            curve_points=4 if quick else 30,
        )
        for name, (kind, more) in _QUALITY.items()
    ]


def predict(quick: bool) -> list[Case]:
    """Return cases that time prediction, with models trained on fewer rows."""
    problem = _targets(quick, 16, n_test=100_000)
    settings = _same_trees(5 if quick else 200, max_depth=6, max_leaves=64)
    contenders = _make_contenders(problem, settings, MULTI_OUTPUT_PEERS)
    return [
        Case(
            "predict",
            "prediction: 100,000 rows, 16 targets, 200 rounds",
            contenders,
            focus="predict_seconds",
        )
    ]


def outputs(quick: bool) -> list[Case]:
    """Return cases that measure the cost of additional outputs in Polyleaf."""
    settings = _same_trees(3 if quick else 50, max_depth=6, max_leaves=64)
    contenders = tuple(
        Contender(f"{k} outputs", "polyleaf", _targets(quick, k), settings) for k in (16, 64)
    )
    return [Case("outputs", "cost in outputs, 40,000 x 50", contenders, baseline="16 outputs")]


def leaves(quick: bool) -> list[Case]:
    """Return cases that measure the cost of full and block Hessians and boosted layers."""
    kinds = {
        "diagonal": {"boosting_step": "round"},
        "diagonal, by layers": {},
        "full": presets.tfbt_full(),
        "full, by layers": {**presets.tfbt_full(), "boosting_step": "layer"},
        "block of 2": {"hessian": "block", "leaf_hessian": "block", "boosting_step": "round"},
    }
    cases = []
    for n_classes, depth in ((10, 4), (26, 4), (10, 6), (26, 6)):
        n, n_test, n_features = (600, 200, 10) if quick else (40_000, 10_000, 50)
        sizes = {"n": n, "n_test": n_test, "n_features": n_features, "n_classes": n_classes}
        problem = Problem("multiclass", "classes_of_structure", sizes)
        settings = _same_trees(3 if quick else 20, max_depth=depth)
        contenders = tuple(
            Contender(
                label,
                "polyleaf",
                problem,
                replace(settings, own=_tree_parameters({**presets.tfbt(), **kind})),
            )
            for label, kind in kinds.items()
        )
        name, title = (
            f"leaves-{n_classes}-{depth}",
            f"40,000 x 50, {n_classes} classes, depth {depth}",
        )
        cases.append(Case(name, title, contenders, baseline="diagonal", focus="round_seconds"))
    return cases


def _tree_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a recipe that are not in `Settings`."""
    set_already = ("learning_rate", "max_depth", "max_leaves", "reg_lambda", "min_child_samples")
    return {name: value for name, value in parameters.items() if name not in set_already}


def threads(quick: bool) -> list[Case]:
    """Return cases that measure the speedup from a second thread in Polyleaf."""
    cases = []
    for source in (mo16(quick)[0], one(quick)[0]):
        polyleaf = source.contenders[0]
        contenders = tuple(
            replace(polyleaf, label=label, settings=replace(polyleaf.settings, threads=n))
            for n, label in ((2, "2 threads"), (1, "1 thread"))
        )
        cases.append(
            Case(
                f"threads-{source.name}",
                f"threads: {source.title}",
                contenders,
                baseline="2 threads",
            )
        )
    return cases


def memory(quick: bool) -> list[Case]:
    """Return cases that measure peak memory of training, above the data."""
    settings = _same_trees(3 if quick else 10, max_leaves=64)
    contenders = _make_contenders(_two_classes(quick), settings, ("lightgbm", "xgboost"))
    return [
        Case("memory", "peak memory, 1,000,000 x 28", contenders, focus="peak_above_data_bytes")
    ]


CASES: dict[str, Callable[[bool], list[Case]]] = {
    f.__name__: f
    for f in (mo16, one, few, words, quality, predict, outputs, leaves, threads, memory)
}


def select(
    name: str, quick: bool, n_threads: int = 2, libraries: Sequence[str] | None = None
) -> list[Case]:
    """Return the cases of a name ("all" for every case).

    The cases run on `n_threads` threads, with `libraries` as the peers. `threads` keeps its own
    numbers of threads. Cases of Polyleaf alone are not affected by `libraries`.
    """
    chosen = CASES if name == "all" else {name: CASES[name]}
    cases = []
    for key, make in chosen.items():
        for case in make(quick):
            contenders = case.contenders
            if libraries is not None and any(c.library != "polyleaf" for c in contenders):
                contenders = _make_contenders(
                    contenders[0].problem, contenders[0].settings, libraries
                )
            if key != "threads":
                contenders = tuple(
                    replace(c, settings=replace(c.settings, threads=n_threads)) for c in contenders
                )
            cases.append(
                replace(
                    case, contenders=contenders, title=case.title + (" (quick)" if quick else "")
                )
            )
    return cases
