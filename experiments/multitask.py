"""Multi-task training: one model for tasks of different kinds, compared with a model per task.

Sets are those of `sets`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .harness.context import Context
from .harness.paper import Figures, Paper, Subject, Table

MOST_ROWS = 8_000  # of a set, before it is split
SPLITS = 3
ROUNDS, PATIENCE = 500, 30
FASTER = 0.2  # learning rate, in addition to the defaults
LEVELS = (0.1, 0.5, 0.9)

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Mixed:
    """Tasks made of the targets (n, T) of a set: the loss and the column of each task.

    Attributes
    ----------
    words : str
    losses : dict of str to object
        As in `PolyleafMultiTask`, except "quantile" for three levels.
    """

    words: str
    losses: dict[str, str]

    def columns(self, y: np.ndarray) -> Columns:
        """Return one column per task, from target t mod T.

        Values are used unchanged, or cut where the name of the loss requires it.
        """
        made = {}
        for t, (name, loss) in enumerate(self.losses.items()):
            values = y[:, t % y.shape[1]]
            cuts = {"logistic": [0.5], "softmax": [1 / 3, 2 / 3]}.get(loss)
            made[name] = values if cuts is None else np.digitize(values, np.quantile(values, cuts))
        return made


SETS: dict[str, Mixed] = {
    "enb": Mixed(
        "heating as a number; cooling in thirds; heating above its median",
        {"heating": "squared_error", "cooling third": "softmax", "warm": "logistic"},
    ),
    "student_por": Mixed(
        "first grade above its median; second grade in thirds; last grade as a number",
        {"first": "logistic", "second third": "softmax", "last": "squared_error"},
    ),
    "bike_hour": Mixed(
        "casual riders as quantiles; registered riders as counts; casual riders above their median",
        {"casual": "quantile", "registered": "poisson", "many": "logistic"},
    ),
    "parkinsons_updrs": Mixed(
        "motor score as a number; total score in thirds; motor score as quantiles",
        {"motor": "squared_error", "total third": "softmax", "motor levels": "quantile"},
    ),
    "sarcos4449": Mixed(
        "seven torques: two as numbers, two above their medians, one in thirds, one as quantiles, "
        "one as a "
        "normal distribution",
        {
            "1": "squared_error", "2": "logistic", "3": "softmax", "4": "quantile", "5": "normal",
            "6": "squared_error", "7": "logistic",
        },
    ),
    "gas_turbine": Mixed(
        "CO as amounts (gamma); NOx as a number; CO in thirds; NOx above its median",
        {"CO": "gamma", "NOx": "squared_error", "CO third": "softmax", "NOx high": "logistic"},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Rows for training, early stopping and testing, as (X, Y) each."""

    train: tuple[np.ndarray, Columns]
    held: tuple[np.ndarray, Columns]
    test: tuple[np.ndarray, Columns]


def fitted(losses: dict[str, str], part: Part, context: Context, **parameters: Any) -> Any:
    """Fit one model of these tasks."""
    from polyleaf import PolyleafMultiTask
    from polyleaf.objectives import Quantile

    objectives = {n: Quantile(LEVELS) if loss == "quantile" else loss for n, loss in losses.items()}
    model = PolyleafMultiTask(
        objectives, n_estimators=context.rounds(ROUNDS), early_stopping_rounds=PATIENCE,
        eval_metric="d2", calibrate_quantiles=False, n_jobs=context.threads, **parameters,
    )  # fmt: skip
    return model.fit(*part.train, X_val=part.held[0], y_val=part.held[1])


def together(losses: dict[str, str], part: Part, context: Context) -> dict[str, float]:
    return fitted(losses, part, context).d2_scores(*part.test)


def together_faster(losses: dict[str, str], part: Part, context: Context) -> dict[str, float]:
    return fitted(losses, part, context, learning_rate=FASTER).d2_scores(*part.test)


def apart(
    losses: dict[str, str], part: Part, context: Context, **parameters: Any
) -> dict[str, float]:
    """Fit a model per task.

    A model of one task equals the plain estimator bit for bit.
    """
    found = {}
    for name, loss in losses.items():
        found |= fitted({name: loss}, part, context, **parameters).d2_scores(*part.test)
    return found


def apart_faster(losses: dict[str, str], part: Part, context: Context) -> dict[str, float]:
    return apart(losses, part, context, learning_rate=FASTER)


_FASTER = f"rate {FASTER}"
METHODS = {
    "one model": together,
    "a model each": apart,
    f"one model, {_FASTER}": together_faster,
    f"a model each, {_FASTER}": apart_faster,
}


def multitask(context: Context, method: str, problem: str) -> Figures:
    """Return the accuracy and time of a method, as lists with one number per split.

    Figures: `skill`, the mean over tasks; `least`, that of the worst task; `seconds` of processor
    time, including prediction of the test rows; and `tasks`, the mean of each task.
    """
    figures: Figures = {"skill": [], "least": [], "seconds": []}
    each: dict[str, list[float]] = {}
    losses = SETS[problem].losses
    parts = list(_parts(context, problem))
    fitted(losses, parts[0], Context(context.data, True, context.threads))  # imports libraries
    for part in parts:
        start = time.process_time()
        d2_scores = METHODS[method](losses, part, context)
        figures["seconds"].append(time.process_time() - start)
        figures["skill"].append(float(np.mean(list(d2_scores.values()))))
        figures["least"].append(min(d2_scores.values()))
        for name, d2 in d2_scores.items():
            each.setdefault(name, []).append(d2)
    return figures | {
        "tasks": {name: float(np.mean(d2_scores)) for name, d2_scores in each.items()}
    }


def turns(context: Context, method: str, problem: str) -> Figures:
    """Return `ratio`: time to train and predict over that of a model per task, one per split.

    Processor times are compared, and both are interleaved.
    """
    losses, ratios = SETS[problem].losses, []
    parts = list(_parts(context, problem))
    fitted(losses, parts[0], Context(context.data, True, context.threads))  # imports libraries
    for part in parts:
        seconds = []
        for each in (METHODS[method], apart):
            start = time.process_time()
            each(losses, part, context)
            seconds.append(time.process_time() - start)
        ratios.append(seconds[0] / seconds[1])
    return {"ratio": ratios}


def _parts(context: Context, name: str) -> Iterator[Part]:
    data = context.load(name)
    rows = np.random.default_rng(0).permutation(len(data.y))[: context.rows(MOST_ROWS)]
    X, columns = data.X[rows], SETS[name].columns(data.y[rows].astype(np.float64))
    for seed in context.seeds(SPLITS):
        order = np.random.default_rng(seed).permutation(len(X))
        test, held, train = np.split(order, [len(X) // 4, len(X) // 4 + len(X) * 3 // 20])
        yield Part(
            *((X[own], {n: c[own] for n, c in columns.items()}) for own in (train, held, test))
        )


_PROTOCOL = (
    f"At most {MOST_ROWS:,} rows; 60 % to train on, 15 % to stop on, 25 % to test; {SPLITS} "
    "splits. Tasks "
    "are made of the targets that a set has, with medians and thirds of all rows: "
    + "; ".join(f"{name}: {mixed.words}" for name, mixed in SETS.items())
    + f". At most {ROUNDS} rounds, ended {PATIENCE} after the best one (of the mean skill; of "
    "each model its "
    "own); nothing else is set, but that quantiles are not calibrated. Skill: 1 - error / error "
    "of the best "
    "constant (R2 for numbers, D2 of deviance, log loss and pinball loss, CRPS of distributions), "
    "the mean "
    "over tasks. Seconds are processor time."
)

_FIGURES = {
    "skill": ("mean test skill of all tasks", "skill", "higher", 3),
    "least": ("test skill of the worst task", "skill", "higher", 3),
    "seconds": ("seconds to train and predict", "s", "lower", 2),
}


def _table(figure: str) -> Table:
    title, unit, better, digits = _FIGURES[figure]
    return Table(
        figure,
        title,
        tuple(
            Subject(
                name,
                unit,
                better,
                digits,
                name,
                figure,
                needs=(name,),  # type: ignore[arg-type]
            )
            for name in SETS
        ),
        multitask,
        _PROTOCOL,
        also=tuple(METHODS),
        ours=("one model",),
        subjects_are="rows",
    )


_IN_TURNS = Table(
    "ratio",
    "time of one model / of a model each",
    tuple(Subject(name, "ratio", "lower", 2, name, "ratio", needs=(name,)) for name in SETS),
    turns,
    "As skill; the two take turns.",
    also=("one model", f"one model, {_FASTER}"),
    ours=("one model",),
    subjects_are="rows",
)

PAPER = Paper(
    __name__,
    "Multi-task learning",
    "Targets of unlike kind, learned by one model or by a model each.",
    (*(_table(figure) for figure in _FIGURES), _IN_TURNS),
    golden=("defaults",),
)
