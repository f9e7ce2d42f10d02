"""Other libraries, tuned by Optuna within a time limit of processor time.

The library's defaults are the first trial. The final training on all rows is never interrupted,
because a model of a few rounds would not represent its library.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .defaults import Deadline, compute_scores
from .libraries import Passed, Settings, train

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


def _spaces() -> dict[str, Callable[[Any], dict[str, Any]]]:
    """Return the parameters that a trial suggests for each library, in the ranges of TabArena."""

    def xgboost(trial: Any) -> dict[str, Any]:
        number, log = trial.suggest_float, partial(trial.suggest_float, log=True)
        return {
            "learning_rate": log("learning_rate", 0.005, 0.1),
            "max_depth": trial.suggest_int("max_depth", 4, 10, log=True),
            "min_child_weight": log("min_child_weight", 0.001, 5.0),
            "subsample": number("subsample", 0.6, 1.0),
            "colsample_bylevel": number("colsample_bylevel", 0.6, 1.0),
            "colsample_bynode": number("colsample_bynode", 0.6, 1.0),
            "reg_alpha": log("reg_alpha", 1e-4, 5.0),
            "reg_lambda": log("reg_lambda", 1e-4, 5.0),
            "grow_policy": trial.suggest_categorical("grow_policy", ["depthwise", "lossguide"]),
            "max_leaves": trial.suggest_int("max_leaves", 8, 1024, log=True),
        }

    def lightgbm(trial: Any) -> dict[str, Any]:
        number = trial.suggest_float
        return {
            "learning_rate": number("learning_rate", 0.005, 0.1, log=True),
            "feature_fraction": number("feature_fraction", 0.4, 1.0),
            "bagging_fraction": number("bagging_fraction", 0.7, 1.0),
            "bagging_freq": 1,
            "num_leaves": trial.suggest_int("num_leaves", 2, 200, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 1, 64, log=True),
            "extra_trees": trial.suggest_categorical("extra_trees", [False, True]),
            "lambda_l1": number("lambda_l1", 1e-5, 1.0),
            "lambda_l2": number("lambda_l2", 1e-5, 2.0),
        }

    def catboost(trial: Any) -> dict[str, Any]:
        number, policies = trial.suggest_float, ["SymmetricTree", "Depthwise"]
        iterations = "leaf_estimation_iterations"
        return {
            "learning_rate": number("learning_rate", 0.005, 0.1, log=True),
            "bootstrap_type": "Bernoulli",
            "subsample": number("subsample", 0.7, 1.0),
            "grow_policy": trial.suggest_categorical("grow_policy", policies),
            "depth": trial.suggest_int("depth", 4, 8),
            "colsample_bylevel": number("colsample_bylevel", 0.85, 1.0),
            "l2_leaf_reg": number("l2_leaf_reg", 1e-4, 5.0, log=True),
            iterations: trial.suggest_int(iterations, 1, 20, log=True),
        }

    return {"XGBoost": xgboost, "LightGBM": lightgbm, "CatBoost": catboost}


@dataclass(frozen=True)
class Peer:
    """Library with its default learning rate, its space, and the parameters of its first trial."""

    name: str
    rate: float
    space: Callable[[Any], dict[str, Any]]
    defaults: dict[str, Any] = field(default_factory=dict)

    def load(self) -> None:
        """Import the library, so that the time of trials excludes it."""
        for name in ("optuna", "sklearn.metrics", self.name.lower()):
            importlib.import_module(name)

    def fit(
        self,
        parameters: dict[str, Any],
        rounds: list[int] | None,
        part: Part,
        valid: Part | None,
        passed: Passed,
    ) -> Fitted:
        """Train with these rounds; or while `valid` improves, and until `passed(1.0)`."""
        data, patience = {"X": part.X, "y": part.y}, None
        if valid is not None:
            data |= {"X_val": valid.X, "y_val": valid.y}
            patience = max(10, round(PATIENCE / parameters.get("learning_rate", self.rate)))
        n_rounds = MOST_ROUNDS if not rounds else rounds if len(rounds) > 1 else rounds[0]
        settings = Settings(
            n_rounds, learning_rate=None, max_bins=None, patience=patience, threads=1,
            own=parameters,
        )  # fmt: skip
        library = train(self.name.lower(), part.task, data, settings, passed)
        used = [max(1, n) for n in library.rounds_of_models()]
        return Fitted(library.predict, used, max(1, library.n_trained()))


# CatBoost's default rate depends on the number of rounds, which may be much larger on the folds
# than in the final training. This is AutoGluon's rate.
_RATES = {"XGBoost": 0.3, "LightGBM": 0.1, "CatBoost": 0.05}
PEERS = {
    name: Peer(name, _RATES[name], space, {"learning_rate": 0.05} if name == "CatBoost" else {})
    for name, space in _spaces().items()
}


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
    for j, (rows, valid) in enumerate(folds):
        growth = MARGIN * len(part.y) / len(rows)
        begun, was_cut = end.left(), False

        def passed(share: float = 1.0, begun: float = begun, growth: float = growth) -> bool:
            nonlocal was_cut
            # There may be time for the first training only.
            kept = best.seconds if best else growth * (begun - end.left())
            was_cut = (begun - end.left()) >= share * (begun - kept)
            return was_cut

        watched = part.rows(valid)
        fitted = peer.fit(parameters, None, part.rows(rows), watched, passed)
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
