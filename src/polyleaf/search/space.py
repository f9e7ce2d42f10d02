"""The space around the portfolio, as Optuna is told of it: for studies of one's own, and for `tpe`.

Owns names and ranges. Must not know data, folds or scores, nor import Optuna: a trial is what has its
methods.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from polyleaf.search.portfolio import Parameters

__all__ = ["Task", "suggest"]

Task: TypeAlias = Literal["regression", "binary", "multiclass", "multilabel"]

_NUMBERS: dict[str, tuple[float, float, bool]] = {  # from, to, and whether the logarithm is even
    "learning_rate": (0.01, 0.3, True),
    "reg_lambda": (0.05, 20.0, True),
    "colsample_bynode": (0.1, 1.0, False),
    "subsample": (0.4, 1.0, False),
}
_COUNTS = {"max_leaves": (4, 256), "min_child_samples": (1, 50)}


def suggest(
    trial: Any, task: Task, n_outputs: int | None = None, linear: bool = True
) -> Parameters:
    """Parameters of an estimator, as a trial of Optuna suggests them.

    The number of rounds is not among them: train with `early_stopping_rounds`, at most `60 / learning_rate`
    rounds.

    Parameters
    ----------
    trial : optuna.Trial
        Or what else has `suggest_float`, `suggest_int` and `suggest_categorical`.
    task : {"regression", "binary", "multiclass", "multilabel"}
    n_outputs : int, optional
        Where there is one, trees for each output are not suggested. None: more than one, but for "binary".
    linear : bool
        Whether linear leaves are suggested; they need dense features and gradients that are no signs (not
        quantiles, nor absolute errors).

    Returns
    -------
    dict
        What `PolyleafRegressor` or `PolyleafClassifier` takes.

    Raises
    ------
    ValueError
        Where there is no such task.
    """
    if task not in get_args(Task):
        raise ValueError(
            f"task must be one of {', '.join(map(repr, get_args(Task)))}, got {task!r}."
        )
    found: Parameters = {
        name: trial.suggest_float(name, low, high, log=log)
        for name, (low, high, log) in _NUMBERS.items()
    }
    for name, bounds in _COUNTS.items():
        found[name] = trial.suggest_int(name, *bounds, log=True)
    if linear:
        found["leaf"] = trial.suggest_categorical("leaf", ["constant", "linear"])
    if task != "binary" and n_outputs != 1:
        ways = ["multi_output_tree", "one_output_per_tree"]
        found["multi_strategy"] = trial.suggest_categorical("multi_strategy", ways)
    return found
