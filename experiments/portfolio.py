"""Choice of the configurations that a search tries first.

Many configurations are run on every set, and a few that cover most sets are chosen. The result is
stored in `polyleaf.search.candidates`. The test parts of the sets are not read, because a study of
the search needs them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.search.base import TRIAL_PATIENCE
from polyleaf.search.candidates import Parameters
from polyleaf.training.auto_rounds import max_rounds

from .defaults import BINARY, MOST_CLASSES, MULTICLASS, MULTILABEL, REGRESSION, Deadline, splits
from .harness.context import Context
from .harness.paper import Figures, Paper, make_subjects, make_table
from .libraries import Settings, train

MOST_ROWS = 2_000  # two thirds for training
LIMIT = 0.6  # limit of a training in seconds of processor time
RATE = 0.2  # for all: the search compares candidates after few rounds
DRAWN = 9  # random compositions, in addition to manual ones

# Former first trials of the search, without their learning rates.
BY_HAND: tuple[Parameters, ...] = (
    {},
    {"max_leaves": 8},
    {"leaf": "linear", "max_leaves": 15},
    {"min_child_samples": 20, "subsample": 0.7},
    {"hessian": "full"},
    {"multi_strategy": "one_output_per_tree", "max_leaves": 15},
    {"max_leaves": 63, "reg_lambda": 4.0, "colsample_bynode": 0.25},
    {"hessian": "none", "max_leaves": 15},
    {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 5},
    {"leaf": "linear", "max_leaves": 8, "min_child_samples": 20, "subsample": 0.7},
    {"max_leaves": 4, "colsample_bynode": 1.0},
)
# The defaults with one change each.
ONE_CHANGE: tuple[Parameters, ...] = (
    *({"leaf": "linear"}, {"max_leaves": 15}, {"reg_lambda": 4.0}, {"colsample_bynode": 0.25}),
    *({"colsample_bynode": 1.0}, {"min_child_samples": 10}, {"subsample": 0.7}),
    {"hessian": "none"},
)
# Values of random compositions. A repeated value is drawn twice as often; None keeps the default.
_SPACE: dict[str, tuple[Any, ...]] = {
    "max_leaves": (4, 8, 15, None, 63, 127),
    "min_child_samples": (None, None, 5, 10, 20),
    "reg_lambda": (0.1, None, None, 4.0, 16.0),
    "colsample_bynode": (0.125, 0.25, None, None, 1.0),
    "subsample": (0.5, 0.7, 0.7, None, None),
    "leaf": (None, None, "linear"),
    "hessian": (None, None, "none"),
}
# These sets are too large: one round takes a large part of the time of a training.
LEFT_OUT = ("cal500", "corel5k", "delicious", "rcv1_subset1")
TASKS = {
    "regression": REGRESSION,
    "classes": MULTICLASS + BINARY,
    "labels": [name for name in MULTILABEL if name not in LEFT_OUT],
}
SETS = [name for names in TASKS.values() for name in names]


def compositions() -> list[Parameters]:
    """Return the manual compositions, the single changes and the random ones; deterministic."""
    rng = np.random.default_rng(17)
    found = [*BY_HAND, *ONE_CHANGE]
    while len(found) < len(BY_HAND) + len(ONE_CHANGE) + DRAWN:
        drawn = {name: values[int(rng.integers(len(values)))] for name, values in _SPACE.items()}
        chosen = {name: value for name, value in drawn.items() if value is not None}
        # Linear leaves require the default Hessian.
        if chosen.get("leaf") == "linear":
            chosen.pop("hessian", None)
        if chosen not in found:
            found.append(chosen)
    return found


def confirmed_on() -> list[str]:
    """Return a random third of the sets of every task, which were not used for choosing."""
    rng = np.random.default_rng(17)
    return [name for sets in TASKS.values() for name in sorted(rng.permutation(sets)[::3].tolist())]


# --- runs ---


def losses(context: Context, method: str, problem: str) -> Figures:
    """Return `losses` of every composition, and `gained`.

    The loss is that on a third of the training part after the best round, or None if the
    composition does not apply. `gained` is the improvement of the best composition over the
    defaults, in %.
    """
    data = context.load(problem)
    X, y, *_ = next(splits(context, data))
    rows = np.random.default_rng(0).permutation(len(y))[: context.rows(MOST_ROWS)]
    fitted, valid = np.split(rows, [len(rows) * 2 // 3])
    found = [
        _train(data.task, parameters, X, y, fitted, valid, context.threads)
        for parameters in compositions()[: 3 if context.quick else None]
    ]
    best = min(loss for loss in found if loss is not None)
    return {"losses": found, "gained": 100 * (1 - best / found[0])}


def _train(
    task: str, parameters: Parameters, X: Any, y: Any, train_rows: Any, valid: Any, threads: int
) -> float | None:
    """Return the loss after the best round."""
    many = task == "multiclass" and y.max() >= MOST_CLASSES
    is_linear = parameters.get("leaf") == "linear"
    if (sp.issparse(X) and is_linear) or (many and "full" in parameters.values()):
        return None
    if y.ndim == 1 and task != "regression":  # no score for classes missing in training
        valid = valid[np.isin(y[valid], y[train_rows])]
    data = {"X": X[train_rows], "y": y[train_rows], "X_val": X[valid], "y_val": y[valid]}
    settings = Settings(
        max_rounds(RATE), learning_rate=RATE, max_bins=None, patience=round(TRIAL_PATIENCE / RATE),
        threads=threads, own={"random_state": 0, **parameters},
    )  # fmt: skip
    limit = Deadline(LIMIT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            library = train("polyleaf", task, data, settings, limit.passed)
        except ValueError:  # full Hessian of a regression, one tree per output of one output
            return None
    (curves,) = library.model.evals_result_.values()
    return float(np.nanmin(list(curves.values())[-1]))


# --- choice ---


def excess(table: Mapping[str, Sequence[float | None]]) -> dict[str, np.ndarray]:
    """Return for each set the log excess of each combination's loss over the best, at most 1."""
    found = {}
    for name, values in table.items():
        loss = np.array([np.inf if value is None else max(value, 1e-12) for value in values])
        found[name] = np.minimum(np.log(loss / loss.min()), 1.0)
    return found


def cover(
    far: Mapping[str, np.ndarray], names: Iterable[str], size: int, first: int = 0
) -> list[int]:
    """Choose compositions greedily by the mean excess of the best chosen one."""
    rows = np.stack([far[name] for name in names])
    chosen = [first]
    while len(chosen) < min(size, rows.shape[1]):
        so_far = rows[:, chosen].min(axis=1)
        then = np.minimum(rows, so_far[:, None]).mean(axis=0)
        then[chosen] = np.inf
        chosen.append(int(np.argmin(then)))
    return chosen


# --- tables ---

_PROTOCOL = (
    f"{len(compositions())} compositions: {len(BY_HAND)} made by hand, {len(ONE_CHANGE)} that "
    f"change one thing of the defaults, {DRAWN} drawn at random. At most {MOST_ROWS:,} rows of "
    "the training part (test parts are not read), two thirds to train on, loss on the rest after "
    f"the best round; a training ends after {LIMIT} s of processor time, or when "
    f"{TRIAL_PATIENCE / RATE:.0f} rounds were no better; the learning rate is {RATE} throughout."
)


# In random order: if not all sets were run, the finished ones are a random sample.
_ORDER = np.random.default_rng(3).permutation(SETS).tolist()

PAPER = Paper(
    __name__,
    "Portfolio of the search",
    "Many compositions on every set, and the few that cover most.",
    (
        make_table(
            "Portfolio",
            "per cent by which the best composition's loss lies below the defaults'",
            make_subjects(_ORDER, "%", None, 1, "gained"),
            losses,
            _PROTOCOL,
            ["Polyleaf"],
        ),
    ),
    golden=("defaults", "defaults, classes", "defaults, labels"),
)
