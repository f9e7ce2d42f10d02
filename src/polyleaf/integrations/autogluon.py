"""Polyleaf as a model of AutoGluon, which TabArena uses as well.

It requires AutoGluon (extra ``polyleaf[autogluon]``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from polyleaf.callbacks import Callback, TimeLimit
from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor
from polyleaf.estimators.memory_estimate import memory_estimate
from polyleaf.integrations.optuna import Task, suggest_params
from polyleaf.runtime.optional_packages import optional_package
from polyleaf.search.base import TRIAL_PATIENCE
from polyleaf.training.auto_rounds import get_patience, max_rounds

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

with optional_package("polyleaf.integrations.autogluon requires AutoGluon", "autogluon"):
    from autogluon.common.space import Categorical, Int, Real
    from autogluon.core.models import AbstractModel

__all__ = ["PolyleafModel", "search_space"]


def __dir__() -> list[str]:
    return __all__


# Half the default, as early stopping finds the number of rounds.
LEARNING_RATE = 0.05
# The rest of the time limit is for the work before the first round and after the last.
TRAINING_TIME_FRACTION = 0.9
# Number of values in place of a range of integers on a logarithmic scale.
_N_LOG_STEPS = 13
# Metrics of early stopping by AutoGluon's name. Metrics of decisions are left out, as they are
# constant for many rounds; the default of the objective is used instead.
_EVAL_METRICS = {"mean_absolute_error": "mae"}


class PolyleafModel(AbstractModel):
    """Polyleaf's estimators with AutoGluon's interface.

    Hyperparameters are the parameters of `PolyleafRegressor` and `PolyleafClassifier`. With
    validation data, as in a bag, `n_estimators` is the maximum number of rounds (default: `60 /
    learning_rate`) and `early_stopping_rounds` ends training (default: `4 / learning_rate`); the
    default learning rate is 0.05. A refit uses the number of rounds of the folds. Quantile problems
    are one model for all levels; categories and missing values are passed on as they are.

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
    _default_auxiliary_params_extra: ClassVar[dict[str, object]] = {
        "valid_raw_types": ["bool", "int", "float", "category"]
    }

    def _set_default_params(self) -> None:
        self._set_default_param_value("learning_rate", LEARNING_RATE)

    def _fit(
        self,
        X: DataLike,
        y: DataLike,
        X_val: DataLike | None = None,
        y_val: DataLike | None = None,
        time_limit: float | None = None,
        sample_weight: DataLike | None = None,
        sample_weight_val: DataLike | None = None,
        num_cpus: int | None = None,
        **kwargs: object,
    ) -> None:
        start = time.monotonic()
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
            left = TRAINING_TIME_FRACTION * (time_limit - (time.monotonic() - start))
            callbacks.append(TimeLimit(max(left, 1e-3)))
        self.model = self._estimator(has_validation=bool(held_out), n_jobs=num_cpus)
        self.model.fit(X, y, sample_weight, callbacks=callbacks, **held_out)
        best = self.model.best_iteration_
        self.params_trained["n_estimators"] = self.model.n_iter_ if best is None else best + 1

    def _estimator(
        self, has_validation: bool, n_jobs: int | None
    ) -> PolyleafRegressor | PolyleafClassifier:
        """Return the estimator to fit; `has_validation` enables early stopping."""
        parameters = {"n_jobs": n_jobs, **self._get_model_params()}
        rate = parameters["learning_rate"]
        if has_validation:
            defaults = {
                "n_estimators": max_rounds(rate),
                "early_stopping_rounds": get_patience(rate, TRIAL_PATIENCE),
                "eval_metric": _EVAL_METRICS.get(self.stopping_metric.name),
            }
            parameters = defaults | parameters
        else:
            parameters.pop("early_stopping_rounds", None)
        if self.problem_type == "quantile":
            parameters |= {"objective": "quantile", "quantile_alpha": list(self.quantile_levels)}
        is_regression = self.problem_type in ("regression", "quantile")
        return (PolyleafRegressor if is_regression else PolyleafClassifier)(**parameters)

    def _predict_proba(self, X: DataLike, **kwargs: object) -> np.ndarray:
        predicted = super()._predict_proba(X, **kwargs)
        if self.problem_type != "multiclass" or predicted.shape[1] == self.num_classes:
            return predicted
        # A fold may lack classes.
        probabilities = np.zeros((len(predicted), self.num_classes), predicted.dtype)
        probabilities[:, np.asarray(self.model.classes_, int)] = predicted
        return probabilities

    @classmethod
    def _estimate_memory_usage_static(
        cls,
        *,
        X: Any,
        hyperparameters: dict[str, Any] | None = None,
        problem_type: str = "regression",
        num_classes: int | None = 1,
        **kwargs: object,
    ) -> int:
        """Return the peak memory of training in bytes, including a copy of the table."""
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


class _SearchSpaceTrial:
    """A trial for `suggest_params` that returns AutoGluon's ranges in place of values."""

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> object:
        return Real(low, high, log=log)

    def suggest_int(self, name: str, low: int, high: int, log: bool = False) -> object:
        if not log:
            return Int(low, high)
        steps = np.geomspace(low, high, _N_LOG_STEPS).round().astype(int)  # Int has no logarithm
        return Categorical(*np.unique(steps).tolist())

    def suggest_categorical(self, name: str, choices: list[str]) -> object:
        return Categorical(*choices)


def search_space(task: Task = "regression", *, linear: bool = True) -> dict[str, Any]:
    """Return the ranges of :func:`polyleaf.integrations.optuna.suggest_params` for AutoGluon.

    Parameters
    ----------
    task : {"regression", "binary", "multiclass"}
        For "multiclass" the space includes trees of one output.
    linear : bool
        Whether the space includes linear leaves, which quantiles do not support.

    Returns
    -------
    dict
        For `{PolyleafModel: search_space()}` as `hyperparameters`, with
        `hyperparameter_tune_kwargs`, and for TabArena's `ConfigGenerator`.
    """
    return suggest_params(
        _SearchSpaceTrial(), task, n_outputs=None if task == "multiclass" else 1, linear=linear
    )
