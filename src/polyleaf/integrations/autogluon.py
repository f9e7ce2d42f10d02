"""Polyleaf as a model of AutoGluon, and so of TabArena, which asks for the same class.

Owns the translation: what AutoGluon hands a model, in terms of our estimators. Must not know how anything is
trained. Needs AutoGluon (extra ``polyleaf[autogluon]``).
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from polyleaf.callbacks import Callback, TimeLimit
from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor
from polyleaf.estimators.memory_estimate import memory_estimate
from polyleaf.search.base import PATIENCE
from polyleaf.search.optuna_search import Task, suggest_params
from polyleaf.training.auto_n_estimators import max_rounds

try:
    from autogluon.common.space import Categorical, Int, Real
    from autogluon.core.models import AbstractModel
except ImportError as error:
    raise ImportError(
        'polyleaf.integrations.autogluon needs AutoGluon: pip install "polyleaf[autogluon]".'
    ) from error

__all__ = ["PolyleafModel", "search_space"]

LEARNING_RATE = (
    0.05  # half the usual one: where rows are held out, rounds are as many as they need to be
)
TRAINING_TIME_FRACTION = (
    0.9  # of the time, the rest is for what comes before the first round and after the last
)
_STEPS = 13  # of a range of integers whose logarithm is even
# What early stopping watches, by AutoGluon's name; else what the objective would. What counts decisions
# stands still for many rounds, and may be best after the first.
_WATCHED = {"mean_absolute_error": "mae"}


class PolyleafModel(AbstractModel):
    """Polyleaf's estimators behind AutoGluon's interface.

    Hyperparameters are the parameters of `PolyleafRegressor` and `PolyleafClassifier`, by name. Where rows
    are held out, as in a bag, `n_estimators` is the most rounds (by default `60 / learning_rate`) and
    `early_stopping_rounds` ends the training (`4 / learning_rate`); the learning rate is 0.05 where none is
    set. A refit has as many rounds as the folds had. Quantile problems are one model for all levels;
    categories and missing values are handed on as they are.

    Examples
    --------
    >>> from autogluon.tabular import TabularPredictor  # doctest: +SKIP
    >>> TabularPredictor("price").fit(table, hyperparameters={PolyleafModel: {}})  # doctest: +SKIP
    """

    ag_key = "POLYLEAF"
    ag_name = "Polyleaf"
    seed_name = "random_state"
    default_resources_physical_cores_only = True
    _supported_problem_types: ClassVar[list[str]] = [
        "binary",
        "multiclass",
        "regression",
        "quantile",
    ]
    _default_auxiliary_params_extra: ClassVar[dict[str, Any]] = {
        "valid_raw_types": ["bool", "int", "float", "category"]
    }

    def _set_default_params(self) -> None:
        self._set_default_param_value("learning_rate", LEARNING_RATE)

    def _fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        time_limit: float | None = None,
        sample_weight: Any = None,
        sample_weight_val: Any = None,
        num_cpus: int | None = None,
        **kwargs: Any,
    ) -> None:
        began = time.monotonic()
        X = self.preprocess(X, y=y, is_train=True)
        held_out = {}
        if X_val is not None and y_val is not None:
            held_out = {
                "X_val": self.preprocess(X_val),
                "y_val": y_val,
                "sample_weight_val": sample_weight_val,
            }
        callbacks: list[Callback] = []
        if time_limit is not None:
            left = TRAINING_TIME_FRACTION * (time_limit - (time.monotonic() - began))
            callbacks.append(TimeLimit(max(left, 1e-3)))
        self.model = self._estimator(is_watched=bool(held_out), n_jobs=num_cpus)
        self.model.fit(X, y, sample_weight, callbacks=callbacks, **held_out)
        best = self.model.best_iteration_
        self.params_trained["n_estimators"] = self.model.n_iter_ if best is None else best + 1

    def _estimator(
        self, is_watched: bool, n_jobs: int | None
    ) -> PolyleafRegressor | PolyleafClassifier:
        """The estimator to fit; `is_watched`: rows are held out for early stopping."""
        parameters = {"n_jobs": n_jobs, **self._get_model_params()}
        rate = parameters["learning_rate"]
        if is_watched:
            usual = {
                "n_estimators": max_rounds(rate),
                "early_stopping_rounds": max(10, round(PATIENCE / rate)),
                "eval_metric": _WATCHED.get(self.stopping_metric.name),
            }
            parameters = usual | parameters
        else:
            parameters.pop("early_stopping_rounds", None)
        if self.problem_type == "quantile":
            parameters |= {"objective": "quantile", "quantile_alpha": list(self.quantile_levels)}
        is_number = self.problem_type in ("regression", "quantile")
        return (PolyleafRegressor if is_number else PolyleafClassifier)(**parameters)

    def _predict_proba(self, X: Any, **kwargs: Any) -> np.ndarray:
        found = super()._predict_proba(X, **kwargs)
        if self.problem_type != "multiclass" or found.shape[1] == self.num_classes:
            return found
        every = np.zeros(
            (len(found), self.num_classes), found.dtype
        )  # classes that a fold has no row of
        every[:, np.asarray(self.model.classes_, int)] = found
        return every

    @classmethod
    def _estimate_memory_usage_static(
        cls,
        *,
        X: Any,
        hyperparameters: dict[str, Any] | None = None,
        problem_type: str = "regression",
        num_classes: int | None = 1,
        **kwargs: Any,
    ) -> int:
        """Bytes of a training at its peak, its own copy of the table included."""
        has_classes = problem_type in ("binary", "multiclass")
        training = memory_estimate(
            len(X),
            max(1, X.shape[1]),
            max(2, num_classes or 2) if has_classes else 1,
            task="classes" if has_classes else "regression",
            **(hyperparameters or {}),
        )
        return training + int(X.memory_usage(index=False, deep=False).sum())

    def _more_tags(self) -> dict[str, bool]:
        return {"can_refit_full": True}


class _Spaces:
    """What `suggest` takes for a trial: answers with AutoGluon's ranges in place of values."""

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> Any:
        return Real(low, high, log=log)

    def suggest_int(self, name: str, low: int, high: int, log: bool = False) -> Any:
        if not log:
            return Int(low, high)
        steps = np.geomspace(low, high, _STEPS).round().astype(int)  # Int has no logarithm
        return Categorical(*np.unique(steps).tolist())

    def suggest_categorical(self, name: str, choices: list[str]) -> Any:
        return Categorical(*choices)


def search_space(task: Task = "regression", *, linear: bool = True) -> dict[str, Any]:
    """The ranges of :func:`polyleaf.search.suggest_params` as AutoGluon and TabArena have them.

    Parameters
    ----------
    task : {"regression", "binary", "multiclass"}
        Of several classes, trees for each output are among the choices.
    linear : bool
        Whether linear leaves are; quantiles have none.

    Returns
    -------
    dict
        For `hyperparameters={PolyleafModel: search_space()}` with `hyperparameter_tune_kwargs`, and for
        TabArena's `ConfigGenerator`.
    """
    return suggest_params(
        _Spaces(), task, n_outputs=None if task == "multiclass" else 1, linear=linear
    )
