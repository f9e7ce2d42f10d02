"""Which sets of parameters are tried: a table of compositions that differ much, then steps from the best.

Owns the table, one for each kind of task, and the ladders. Must not know data, folds or scores. The table is
what `benchmarks/portfolio.py` found; docs/choosing.md tells the evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["PARENTS", "PORTFOLIO", "Parameters", "portfolio_of", "suited", "variations"]

Parameters = dict[str, Any]

# By the kind of task, in the order in which they are tried. The first is what everybody has who sets nothing,
# the second the same at half the rate; the others are the compositions that cover most sets.
_RATE = 0.05
# Large trees, each of its own rows and of few features a node.
_RANDOM: Parameters = {
    "learning_rate": _RATE,
    "max_leaves": 63,
    "min_child_samples": 20,
    "reg_lambda": 0.1,
    "colsample_bynode": 0.125,
    "subsample": 0.7,
    "hessian": "none",
}
PORTFOLIO: dict[str, tuple[Parameters, ...]] = {
    "regression": (
        {},
        {"learning_rate": _RATE},
        {"learning_rate": _RATE, "leaf": "linear"},
        {"learning_rate": _RATE, "colsample_bynode": 1.0},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "min_child_samples": 10, "reg_lambda": 0.1, "subsample": 0.5},
        {"learning_rate": _RATE, "min_child_samples": 10},
        {
            "learning_rate": _RATE,
            "boosting_step": "layer",
            "grow_policy": "depthwise",
            "max_depth": 5,
        },
        {"learning_rate": _RATE, "multi_strategy": "one_output_per_tree", "max_leaves": 15},
        {"learning_rate": _RATE, "max_leaves": 8},
        {"learning_rate": _RATE, "subsample": 0.7},
    ),
    "classes": (
        {},
        {"learning_rate": _RATE},
        _RANDOM,
        {"learning_rate": _RATE, "max_leaves": 8},
        {
            "learning_rate": _RATE,
            "leaf": "linear",
            "max_leaves": 8,
            "min_child_samples": 20,
            "subsample": 0.7,
        },
        {"learning_rate": _RATE, "leaf": "linear"},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "hessian": "none", "max_leaves": 15},
        {"learning_rate": _RATE, "min_child_samples": 20, "subsample": 0.7},
        {"learning_rate": _RATE, "hessian": "full"},
        {"learning_rate": _RATE, "multi_strategy": "one_output_per_tree", "max_leaves": 15},
    ),
    "labels": (
        {},
        {"learning_rate": _RATE},
        {"learning_rate": _RATE, "hessian": "none", "max_leaves": 15},
        _RANDOM,
        {"learning_rate": _RATE, "hessian": "none"},
        {"learning_rate": _RATE, "reg_lambda": 4.0},
        {"learning_rate": _RATE, "max_leaves": 4, "colsample_bynode": 1.0},
        {"learning_rate": _RATE, "max_leaves": 8},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "min_child_samples": 20, "subsample": 0.7},
    ),
}
# Where a variation goes from a value: one step down or up.
LADDERS: dict[str, Sequence[float]] = {
    "learning_rate": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "max_leaves": (4, 8, 15, 31, 63, 127, 255),
    "min_child_samples": (1, 5, 10, 20, 50),
    "reg_lambda": (0.1, 0.3, 1.0, 4.0, 16.0),
    "colsample_bynode": (0.125, 0.25, 0.5, 0.75, 1.0),
    "subsample": (0.4, 0.55, 0.7, 0.85, 1.0),
}
MOST_CLASSES = 26  # of a full Hessian: a round takes as many times longer as there are classes
PARENTS = 3  # of the best, from which steps are taken
_STEPS = 3  # ladders that one variation takes a step on, at most


def portfolio_of(task: str) -> tuple[Parameters, ...]:
    """The table of a task, as `suited` names it."""
    kinds = {
        "regression": "regression",
        "binary": "classes",
        "multiclass": "classes",
        "multilabel": "labels",
    }
    return PORTFOLIO[kinds[task]]


def suited(
    candidates: Sequence[Parameters],
    fixed: Collection[str],
    task: str,
    n_outputs: int,
    linear: bool,
) -> list[Parameters]:
    """The candidates that mean something for these data, but for what the user has set; each once.

    Parameters
    ----------
    candidates : sequence of dict
    fixed : collection of str
        Parameters that the user has set.
    task : {"regression", "binary", "multiclass", "multilabel"}
    n_outputs : int
    linear : bool
        Whether linear leaves have features to read.
    """
    several = task != "binary" and n_outputs > 1
    found: list[Parameters] = []
    for candidate in candidates:
        free = {name: value for name, value in candidate.items() if name not in fixed}
        if free.get("hessian") == "full" and not (
            task == "multiclass" and n_outputs <= MOST_CLASSES
        ):
            continue
        if ("multi_strategy" in free and not several) or (
            free.get("leaf") == "linear" and not linear
        ):
            continue
        if free not in found:
            found.append(free)
    return found


def variations(
    parents: Sequence[Parameters], usual: Parameters, fixed: Collection[str], seed: int
) -> Iterator[Parameters]:
    """Endlessly: one of the parents, with up to three parameters moved by one step.

    Parameters
    ----------
    parents : sequence of dict
    usual : dict
        What a parameter is that a parent does not name.
    fixed : collection of str
        Parameters that stay.
    seed : int
    """
    chance = np.random.default_rng(seed)
    ladders = [name for name in LADDERS if name not in fixed]
    while ladders:
        child: Parameters = dict(parents[int(chance.integers(len(parents)))])
        for place in chance.permutation(len(ladders))[
            : int(chance.integers(1, _STEPS + 1))
        ].tolist():
            name = ladders[place]
            child[name] = _step(LADDERS[name], {**usual, **child}[name], bool(chance.integers(2)))
        yield child


def _step(ladder: Sequence[float], value: float, up: bool) -> float:
    """The next rung, or the one below it; at an end of the ladder the value stays."""
    further = [rung for rung in ladder if (rung > value if up else rung < value)]
    if not further:
        return value
    return min(further) if up else max(further)
