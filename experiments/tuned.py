"""Other libraries, tuned by Optuna within a time limit of processor time.

The library's defaults are the first trial. The final training on all rows is never interrupted,
because a model of a few rounds would not represent its library.
"""

from __future__ import annotations

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .defaults import Deadline, compute_scores

Predict = Callable[[Any], np.ndarray]

MOST_ROUNDS, PATIENCE = 5_000, 4.0  # patience at a rate of 1, as in the search
MARGIN = 1.2  # factor on the time reserved for the final training


@dataclass(frozen=True)
class Part:
    """Rows and their targets, in the format of `defaults.Job`."""

    task: str
    X: Any
    y: np.ndarray
    people: np.ndarray | None = None  # person of each row, for sets with several rows per person

    def column(self, k: int) -> Part:
        """Return the part with one target or one label."""
        return Part("binary" if self.task == "multilabel" else self.task, self.X, self.y[:, k])

    @property
    def n_columns(self) -> int:
        return 0 if self.y.ndim == 1 else self.y.shape[1]

    def rows(self, rows: np.ndarray) -> Part:
        return Part(self.task, self.X[rows], self.y[rows])


@dataclass(frozen=True)
class Fitted:
    """Result of a training: predictions, and numbers of rounds.

    `rounds` holds the used rounds of each model; `n_trained` is the number of trained rounds,
    including those after the best.
    """

    predict: Predict
    rounds: list[int]
    n_trained: int


class Peer(ABC):
    """Base class of a library.

    `rate` is its default learning rate, `defaults` are the parameters of the first trial.
    """

    name: str
    rate: float
    defaults: ClassVar[dict[str, Any]] = {}

    def load(self) -> None:
        """Import the library, so that the time of trials excludes it."""
        for name in ("optuna", "sklearn.metrics", self.name.lower()):
            importlib.import_module(name)

    @abstractmethod
    def space(self, trial: Any) -> dict[str, Any]:
        """Return parameters suggested by a trial, in the ranges of TabArena."""

    @abstractmethod
    def fit(
        self,
        parameters: dict[str, Any],
        rounds: list[int] | None,
        part: Part,
        valid: Part | None,
        passed: Callable[..., bool],
    ) -> Fitted:
        """Train with these rounds; or while `valid` improves, and until `passed()`."""

    def patience(self, parameters: dict[str, Any]) -> int:
        """Return the number of rounds without an improvement after which training stops."""
        return max(10, round(PATIENCE / parameters.get("learning_rate", self.rate)))


class XGBoost(Peer):
    name, rate = "XGBoost", 0.3

    def space(self, trial: Any) -> dict[str, Any]:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.005, 0.1, log=True),
            "max_depth": trial.suggest_int("max_depth", 4, 10, log=True),
            "min_child_weight": trial.suggest_float("min_child_weight", 0.001, 5.0, log=True),
            "subsample": trial.suggest_float("subsample", 0.6, 1.0),
            "colsample_bylevel": trial.suggest_float("colsample_bylevel", 0.6, 1.0),
            "colsample_bynode": trial.suggest_float("colsample_bynode", 0.6, 1.0),
            "reg_alpha": trial.suggest_float("reg_alpha", 1e-4, 5.0, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 1e-4, 5.0, log=True),
            "grow_policy": trial.suggest_categorical("grow_policy", ["depthwise", "lossguide"]),
            "max_leaves": trial.suggest_int("max_leaves", 8, 1024, log=True),
        }

    def fit(
        self,
        parameters: dict[str, Any],
        rounds: list[int] | None,
        part: Part,
        valid: Part | None,
        passed: Callable[..., bool],
    ) -> Fitted:
        from xgboost import XGBClassifier, XGBRegressor
        from xgboost.callback import TrainingCallback

        class Stop(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return passed()

        kind = XGBRegressor if part.task == "regression" else XGBClassifier
        model = kind(
            n_estimators=rounds[0] if rounds else MOST_ROUNDS,
            early_stopping_rounds=None if valid is None else self.patience(parameters),
            n_jobs=1,
            callbacks=[Stop()],
            **parameters,
        )
        watched = None if valid is None else [(valid.X, valid.y)]
        model.fit(part.X, part.y, eval_set=watched, verbose=False)
        done = model.get_booster().num_boosted_rounds()
        # If `passed()` ends training in its first round, there is no evaluation and no best round.
        best = model.get_booster().attr("best_iteration")
        return Fitted(_reader(part.task, model), [done if best is None else int(best) + 1], done)


class LightGBM(Peer):
    """LightGBM with one model per target or label, each with an equal share of the time."""

    name, rate = "LightGBM", 0.1

    def space(self, trial: Any) -> dict[str, Any]:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.005, 0.1, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.7, 1.0),
            "bagging_freq": 1,
            "num_leaves": trial.suggest_int("num_leaves", 2, 200, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 1, 64, log=True),
            "extra_trees": trial.suggest_categorical("extra_trees", [False, True]),
            "lambda_l1": trial.suggest_float("lambda_l1", 1e-5, 1.0),
            "lambda_l2": trial.suggest_float("lambda_l2", 1e-5, 2.0),
        }

    def fit(
        self,
        parameters: dict[str, Any],
        rounds: list[int] | None,
        part: Part,
        valid: Part | None,
        passed: Callable[..., bool],
    ) -> Fitted:
        n = part.n_columns
        if n == 0:
            return self._one(parameters, rounds, part, valid, passed)
        each: list[Fitted] = []
        for k in range(n):
            column, watched = part.column(k), None if valid is None else valid.column(k)
            own = None if rounds is None else [rounds[k]]
            # `passed(share)`: whether this share of the time has passed.
            each.append(
                self._one(parameters, own, column, watched, lambda k=k: passed((k + 1) / n))
            )
        return Fitted(
            lambda X: np.column_stack([one.predict(X) for one in each]),
            [one.rounds[0] for one in each],
            sum(one.n_trained for one in each),
        )

    def _one(
        self,
        parameters: dict[str, Any],
        rounds: list[int] | None,
        part: Part,
        valid: Part | None,
        passed: Callable[[], bool],
    ) -> Fitted:
        from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping
        from lightgbm.callback import EarlyStopException

        if part.task == "binary" and part.y.min() == part.y.max():
            return Fitted(lambda X: np.full(X.shape[0], float(part.y[0])), [1], 1)

        def stop(state: Any) -> None:
            if passed():
                raise EarlyStopException(state.iteration, state.evaluation_result_list or [])

        kind = LGBMRegressor if part.task == "regression" else LGBMClassifier
        model = kind(
            n_estimators=rounds[0] if rounds else MOST_ROUNDS, n_jobs=1, verbose=-1, **parameters
        )
        callbacks = [stop]
        if valid is not None:
            callbacks.append(early_stopping(self.patience(parameters), verbose=False))
        watched = None if valid is None else [(valid.X, valid.y)]
        model.fit(part.X, part.y, eval_set=watched, callbacks=callbacks)
        done = model.best_iteration_ or model.n_estimators_
        return Fitted(
            _reader(part.task, model), [max(1, done)], max(1, model.booster_.current_iteration())
        )


class CatBoost(Peer):
    name, rate = "CatBoost", 0.05
    # CatBoost's default rate depends on the number of rounds, which may be much larger on the folds
    # than in the final training. This is AutoGluon's rate.
    defaults: ClassVar[dict[str, Any]] = {"learning_rate": 0.05}

    def space(self, trial: Any) -> dict[str, Any]:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.005, 0.1, log=True),
            "bootstrap_type": "Bernoulli",
            "subsample": trial.suggest_float("subsample", 0.7, 1.0),
            "grow_policy": trial.suggest_categorical("grow_policy", ["SymmetricTree", "Depthwise"]),
            "depth": trial.suggest_int("depth", 4, 8),
            "colsample_bylevel": trial.suggest_float("colsample_bylevel", 0.85, 1.0),
            "l2_leaf_reg": trial.suggest_float("l2_leaf_reg", 1e-4, 5.0, log=True),
            "leaf_estimation_iterations": trial.suggest_int(
                "leaf_estimation_iterations", 1, 20, log=True
            ),
        }

    def fit(
        self,
        parameters: dict[str, Any],
        rounds: list[int] | None,
        part: Part,
        valid: Part | None,
        passed: Callable[..., bool],
    ) -> Fitted:
        from catboost import CatBoostClassifier, CatBoostRegressor

        class Stop:
            def after_iteration(self, info: Any) -> bool:
                return not passed()

        varies = np.ones(part.y.shape[1:], bool)
        if part.task == "multilabel":  # constant labels raise an error
            varies = part.y.min(axis=0) < part.y.max(axis=0)
        several = part.y.ndim == 2
        loss = (
            {"regression": "MultiRMSE", "multilabel": "MultiLogloss"}.get(part.task)
            if several
            else None
        )
        kind = CatBoostRegressor if part.task == "regression" else CatBoostClassifier
        model = kind(
            iterations=rounds[0] if rounds else MOST_ROUNDS,
            early_stopping_rounds=None if valid is None else self.patience(parameters),
            loss_function=loss,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
            **parameters,
        )
        of = (lambda y: y[:, varies]) if several else (lambda y: y)
        watched = None if valid is None else (valid.X, of(valid.y))
        model.fit(part.X, of(part.y), eval_set=watched, callbacks=[Stop()])
        predict, done = _reader(part.task, model), model.tree_count_
        curves = model.get_evals_result().get("validation", {})
        n_trained = max([done, *map(len, curves.values())])
        if varies.all():
            return Fitted(predict, [done], n_trained)

        def add_constant_labels(X: Any) -> np.ndarray:
            probability = np.tile(part.y[0].astype(float), (X.shape[0], 1))
            probability[:, varies] = predict(X)
            return probability

        return Fitted(add_constant_labels, [done], n_trained)


PEERS: dict[str, Peer] = {peer.name: peer for peer in (XGBoost(), LightGBM(), CatBoost())}


def _reader(task: str, model: Any) -> Predict:
    if task == "regression":
        return model.predict
    if task == "binary":
        return lambda X: model.predict_proba(X)[:, 1]
    return model.predict_proba


@dataclass
class _Best:
    loss: float
    parameters: dict[str, Any]
    rounds: list[int]
    seconds: float  # seconds of the final training, as far as known


def tune(
    peer: Peer, part: Part, folds: list[tuple[np.ndarray, np.ndarray]], seconds: float
) -> tuple[Predict, dict[str, Any]]:
    """Run trials within the time left by the final training on all rows, which uses the best trial.

    Returns
    -------
    predict : callable
    told : dict
        Parameters, rounds and number of trials.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    end, best, n_trials = Deadline(seconds), None, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while best is None or end.left() > best.seconds:
            trial = study.ask() if n_trials else None
            parameters = peer.space(trial) if trial else peer.defaults
            best = _trial(peer, part, folds, parameters, trial, study, best, end)
            n_trials += 1
        last = peer.fit(best.parameters, best.rounds, part, None, lambda share=1.0: False)
    return last.predict, {"parameters": best.parameters, "rounds": best.rounds, "trials": n_trials}


def _trial(
    peer: Peer,
    part: Part,
    folds: list[tuple[np.ndarray, np.ndarray]],
    parameters: dict[str, Any],
    trial: Any,
    study: Any,
    best: _Best | None,
    end: Deadline,
) -> _Best:
    """Run a trial and return the better of it and the best one so far."""
    import optuna

    losses: list[float] = []
    rounds: list[list[int]] = []
    needed: list[float] = []  # seconds of the final training, estimated by each fold
    for j, (train, valid) in enumerate(folds):
        growth = MARGIN * len(part.y) / len(train)
        begun, was_cut = end.left(), False

        def passed(share: float = 1.0, begun: float = begun, growth: float = growth) -> bool:
            nonlocal was_cut
            # There may be time for the first training only.
            kept = best.seconds if best else growth * (begun - end.left())
            was_cut = (begun - end.left()) >= share * (begun - kept)
            return was_cut

        watched = part.rows(valid)
        fitted = peer.fit(parameters, None, part.rows(train), watched, passed)
        spent = begun - end.left()
        if was_cut and (best is not None or losses):
            break
        predicted = np.asarray(fitted.predict(watched.X), np.float64)
        losses.append(compute_scores(part.task, watched.y, predicted)[0])
        rounds.append(fitted.rounds)
        needed.append(growth * spent * min(1.0, sum(fitted.rounds) / fitted.n_trained))
        if trial is not None:
            trial.report(float(np.mean(losses)), j)
            if trial.should_prune():
                break
        if was_cut:
            break
    whole = len(losses) == len(folds)
    if trial is not None:
        state = optuna.trial.TrialState.COMPLETE if whole else optuna.trial.TrialState.PRUNED
        study.tell(trial, float(np.mean(losses)) if whole else None, state=state)
    if best is not None and not (whole and np.mean(losses) < best.loss):
        return best
    mean_rounds = np.maximum(1, np.rint(np.mean(rounds, axis=0))).astype(int).tolist()
    return _Best(float(np.mean(losses)), parameters, mean_rounds, float(np.mean(needed)))
