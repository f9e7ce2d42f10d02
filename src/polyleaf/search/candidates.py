"""Sets of parameters to try: the portfolio, then variations of the best; and their learning rates.

The portfolio was selected by `experiments/portfolio.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polyleaf.runtime.types import Parameters

# In the order of evaluation: the defaults, the defaults at half the learning
# rate, then the combinations that are best on most benchmark data sets.
_RATE = 0.05
# Large trees on subsamples of rows, with few features per node.
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
        {"learning_rate": _RATE, "output_groups": "auto"},
        {"learning_rate": _RATE, "multi_strategy": "one_output_per_tree", "max_leaves": 15},
        {"learning_rate": _RATE, "max_leaves": 8},
        {"learning_rate": _RATE, "subsample": 0.7},
    ),
    "multiclass": (
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
    "multilabel": (
        {},
        {"learning_rate": _RATE},
        {"learning_rate": _RATE, "hessian": "none", "max_leaves": 15},
        _RANDOM,
        {"learning_rate": _RATE, "hessian": "none"},
        {"learning_rate": _RATE, "reg_lambda": 4.0},
        {"learning_rate": _RATE, "max_leaves": 4, "colsample_bynode": 1.0},
        {"learning_rate": _RATE, "max_leaves": 8},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "output_groups": "auto"},
        {"learning_rate": _RATE, "min_child_samples": 20, "subsample": 0.7},
    ),
}
# Values of a parameter: a variation moves to the next lower or higher one.
LADDERS: dict[str, Sequence[float]] = {
    "learning_rate": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "max_leaves": (4, 8, 15, 31, 63, 127, 255),
    "min_child_samples": (1, 5, 10, 20, 50),
    "reg_lambda": (0.1, 0.3, 1.0, 4.0, 16.0),
    "colsample_bynode": (0.125, 0.25, 0.5, 0.75, 1.0),
    "subsample": (0.4, 0.55, 0.7, 0.85, 1.0),
}
MAX_FULL_HESSIAN_CLASSES = 26  # the time of a round with a full Hessian grows with the classes
N_PARENTS = 3  # best candidates that are varied
_MAX_STEPS = 3  # parameters that one variation changes


def get_portfolio(
    task: str, n_outputs: int, linear: bool, fixed: Collection[str]
) -> list[Parameters]:
    """Return the portfolio entries that apply to the data, without fixed parameters.

    `task` {"regression", "binary", "multiclass", "multilabel"}. `linear`: whether raw features are
    available to linear leaves. `fixed`: parameters that the user has set.
    """
    has_several_outputs = task != "binary" and n_outputs > 1
    applicable: list[Parameters] = []
    for candidate in PORTFOLIO["multiclass" if task == "binary" else task]:
        free = {name: value for name, value in candidate.items() if name not in fixed}
        if free.get("hessian") == "full" and not (
            task == "multiclass" and n_outputs <= MAX_FULL_HESSIAN_CLASSES
        ):
            continue
        divides_outputs = not free.keys().isdisjoint(("multi_strategy", "output_groups"))
        if (divides_outputs and not has_several_outputs) or (
            free.get("leaf") == "linear" and not linear
        ):
            continue
        if free not in applicable:
            applicable.append(free)
    return applicable


def generate_variations(
    parents: Sequence[Parameters], defaults: Parameters, fixed: Collection[str], seed: int
) -> Iterator[Parameters]:
    """Yield, endlessly, a parent with up to three parameters moved by one step.

    `defaults`: values of parameters that a parent does not set. `fixed`: parameters that must not
    change.
    """
    rng = np.random.default_rng(seed)
    names = [name for name in LADDERS if name not in fixed]
    while names:
        child: Parameters = dict(parents[int(rng.integers(len(parents)))])
        order = rng.permutation(len(names))
        for i in order[: int(rng.integers(1, _MAX_STEPS + 1))].tolist():
            name = names[i]
            value = {**defaults, **child}[name]
            child[name] = _move_step(LADDERS[name], value, bool(rng.integers(2)))
        yield child


def _move_step(ladder: Sequence[float], value: float, up: bool) -> float:
    """Return the next higher or lower value; the value itself at an end of the ladder."""
    beyond = [step for step in ladder if (step > value if up else step < value)]
    if not beyond:
        return value
    return min(beyond) if up else max(beyond)


@dataclass(frozen=True)
class LearningRates:
    """Learning rates of candidates, which a short time limit raises.

    `default`: rate of candidates that do not set it. `is_free`: whether rates may be raised: False
    if the user has set `learning_rate` or `n_estimators`.
    """

    default: float
    is_free: bool = True

    def get(self, parameters: Parameters) -> float:
        """Return the learning rate of a candidate."""
        return float(parameters.get("learning_rate") or self.default)

    def change(self, parameters: Parameters, rate: float) -> Parameters:
        """Return the parameters with another learning rate, and `n_estimators` in proportion."""
        own_rate = self.get(parameters)
        if rate == own_rate or not self.is_free:
            return parameters
        changed = {**parameters, "learning_rate": round(rate, 6)}
        if rate == self.default:
            del changed["learning_rate"]
        if "n_estimators" in parameters:
            changed["n_estimators"] = round(parameters["n_estimators"] * own_rate / rate)
        return changed

    def raise_to(self, parameters: Parameters, rate: float) -> Parameters:
        """Return the parameters with at least this learning rate."""
        return self.change(parameters, max(rate, self.get(parameters)))
