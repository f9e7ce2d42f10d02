"""`cv`: the metrics of one set of parameters after each round, over folds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from polyleaf.callbacks import Callback
from polyleaf.estimators._fitting import draw_seed, get_single_class, make_objective
from polyleaf.metrics import Metric
from polyleaf.metrics.metric import EvalsLog
from polyleaf.metrics.patience import Patience
from polyleaf.objectives import Objective
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.row_data import RowData
from polyleaf.search.cv_splits import split_rows, weigh_held_out
from polyleaf.settings.train_config import get_default_rates
from polyleaf.training.auto_rounds import get_patience, max_rounds
from polyleaf.training.evaluation import make_metrics
from polyleaf.training.fit import check_metric_is_known
from polyleaf.training.prepare import VALIDATION, check_rows, read_split_rules
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.queries import get_query_ids
from polyleaf.user_data.read_target import is_sparse

if TYPE_CHECKING:
    import pandas as pd

    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.model import Model
    from polyleaf.runtime.types import DataLike

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CVResult:
    """Result of :func:`polyleaf.cv`.

    Attributes
    ----------
    curves : dict of str to ndarray of shape (n_folds, n_rounds)
        Values of each metric on the held-out rows of each fold, after each round. A fold whose
        training has ended before the others keeps its last value.
    mean, std : dict of str to ndarray of shape (n_rounds,)
        Mean and standard deviation over the folds.
    metric : str
        Metric that chooses the best round: the last one.
    best_iteration : int
        Round of the best mean, from 0.
    n_estimators : int
        Number of rounds up to the best one, for the training on all rows.
    best_score, best_std : float
        Mean and standard deviation of the metric in the best round.
    estimators : list of estimator
        Fitted estimator of each fold.
    validation_rows : list of ndarray
        Held-out rows of each fold.
    """

    curves: dict[str, Floats]
    metric: str
    best_iteration: int
    estimators: list[Any]
    validation_rows: list[NDArray[np.int64]]

    @property
    def mean(self) -> dict[str, Floats]:
        return {name: values.mean(axis=0) for name, values in self.curves.items()}

    @property
    def std(self) -> dict[str, Floats]:
        return {name: values.std(axis=0) for name, values in self.curves.items()}

    @property
    def n_estimators(self) -> int:
        return self.best_iteration + 1

    @property
    def best_score(self) -> float:
        return float(self.mean[self.metric][self.best_iteration])

    @property
    def best_std(self) -> float:
        return float(self.std[self.metric][self.best_iteration])

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each round, and columns such as rmse_mean and rmse_std.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        columns: dict[str, Floats] = {}
        for name in self.curves:
            columns |= {f"{name}_mean": self.mean[name], f"{name}_std": self.std[name]}
        return pd.DataFrame(columns).rename_axis("round")

    def __repr__(self) -> str:
        return (
            f"CVResult({self.metric} {self.best_score:.6g} ± {self.best_std:.2g} after "
            f"{self.n_estimators} rounds, {len(self.estimators)} folds)"
        )


def cv(
    estimator: PolyleafEstimator,
    X: DataLike,
    y: DataLike | None = None,
    sample_weight: DataLike | None = None,
    *,
    cv: object = 5,
    offset: DataLike | None = None,
    groups: Any = None,
    time: Any = None,
    qid: Any = None,
) -> CVResult:
    """Train on folds, and return the mean and spread of the metrics after each round.

    The folds train side by side, one round at a time, and stop together once the mean of the last
    metric has not improved for `early_stopping_rounds`. With `n_estimators=None` it need not be
    set: it is 10 / `learning_rate`, and the limit of rounds is 300 / `learning_rate`.

    Parameters
    ----------
    estimator : PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask or PolyleafRanker
        Parameters of the training. It is not changed.
    X, y, sample_weight, offset, groups, time, qid
        As in `fit`. Folds keep groups and queries together, and train on earlier rows than they
        evaluate on if there are times.
    cv : int, splitter or iterable, default 5
        Number of folds, which are drawn at random and stratified by class; a splitter of
        scikit-learn; or pairs of training rows and validation rows.

    Returns
    -------
    CVResult

    Raises
    ------
    ValueError
        If data or parameters are invalid, or a fold is left without rows.

    Examples
    --------
    >>> import polyleaf
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(noise=5.0, random_state=0)
    >>> result = polyleaf.cv(polyleaf.PolyleafRegressor(n_estimators=30), X, y, cv=3)
    >>> result.mean["rmse"].shape
    (30,)
    """
    base = clone(estimator)
    rows = RowData(y, sample_weight, offset, groups, time, query=get_query_ids(X, qid, None))
    data = base._read_rows(TrainingData("training", X, rows).fill_from_dataset())
    resolved = base._resolve_objective()
    if is_sparse(data.rows.target):
        target = base._encode_sparse_target(data.rows, None)
    else:
        target = base._encode_target(data.rows, None, resolved)
    check_rows(base, data.X, target)
    objective = make_objective(base, target, resolved)
    check_metric_is_known(objective, base.eval_metric, "cv")
    metrics = make_metrics(base.eval_metric, objective, target)
    held_out = data._replace(rows=weigh_held_out(data.rows, target, objective))
    rules = read_split_rules(base, data.rows, target.n_rows)
    folds = split_rows(cv, data, target, draw_seed(base), rules)
    n_rounds, patience = _plan_rounds(base, get_single_class(resolved))
    lockstep = _Lockstep(len(folds), metrics[-1], patience)
    n_threads = max(1, effective_threads(base.n_jobs) // len(folds))
    base.set_params(n_estimators=n_rounds, early_stopping_rounds=None, n_jobs=n_threads)
    if hasattr(base, "calibrate_quantiles"):  # it does not change the scores of rounds
        base.set_params(calibrate_quantiles=False)

    def train(i: int) -> PolyleafEstimator:
        training = data.take(folds[i][0]).to_arguments()
        held = held_out.take(folds[i][1]).to_arguments()
        evaluated = {name: held[name] for name in ("X", "y", "sample_weight", "offset")}
        validation = {f"{name}_val": value for name, value in evaluated.items()}
        if "qid" in held:
            validation["qid_val"] = held["qid"]
        callback = lockstep.callbacks[i]
        try:
            return clone(base).fit(**training, **validation, callbacks=[callback])
        except BaseException:
            lockstep.stop()
            raise
        finally:
            callback.leave()

    with ThreadPoolExecutor(len(folds), "polyleaf-cv") as pool:
        futures = [pool.submit(train, i) for i in range(len(folds))]
        try:
            fitted = [future.result() for future in futures]
        except BaseException:
            lockstep.stop()
            raise
    if patience is not None:
        for model in (estimator.model_ for estimator in fitted):
            model.best_iteration = min(lockstep.best_round, model.n_rounds - 1)
    logs = [estimator.evals_result_[VALIDATION] for estimator in fitted]
    return CVResult(
        {metric.name: _pad([log[metric.name] for log in logs]) for metric in metrics},
        metrics[-1].name,
        lockstep.best_round,
        fitted,
        [held for _, held in folds],
    )


def _plan_rounds(
    estimator: PolyleafEstimator, objective: type[Objective] | None
) -> tuple[int, int | None]:
    """Return the limit of rounds, and after how many without an improvement training stops."""
    patience = estimator.early_stopping_rounds
    if estimator.n_estimators is not None:
        return estimator.n_estimators, patience
    rate = estimator.learning_rate or get_default_rates(objective)["learning_rate"]
    return max_rounds(rate), patience or get_patience(rate)


def _pad(curves: list[list[float]]) -> Floats:
    longest = max(map(len, curves))
    return np.array([curve + curve[-1:] * (longest - len(curve)) for curve in curves])


class _Lockstep:
    """Lets folds train one round at a time, and judges the mean of a metric after each round.

    `callbacks`: callback of each fold. `best_round`: round of the best mean.
    """

    def __init__(self, n_folds: int, metric: Metric, patience: int | None) -> None:
        self.callbacks = [_FoldCallback(self) for _ in range(n_folds)]
        self._metric = metric
        self._patience = Patience(patience or np.iinfo(np.int64).max)
        self._condition = threading.Condition()
        self._round, self._stops = 0, False

    @property
    def best_round(self) -> int:
        best = self._patience.best_round
        return max(self._round - 1, 0) if best is None else best

    def stop(self) -> None:
        """End the training of all folds."""
        with self._condition:
            self._stops = True
            self._condition.notify_all()

    def wait(self, callback: _FoldCallback) -> bool:
        """Wait until all folds have trained this round; return whether training ends."""
        with self._condition:
            callback.is_waiting, round = True, self._round
            self._finish_round()
            self._condition.wait_for(lambda: self._stops or self._round > round)
            return self._stops

    def leave(self, callback: _FoldCallback) -> None:
        """Go on without a fold whose training has ended."""
        with self._condition:
            callback.has_left = True
            self._finish_round()

    def _finish_round(self) -> None:
        active = [c for c in self.callbacks if not c.has_left]
        if not active or not all(c.is_waiting for c in active):
            return
        losses = [self._metric.to_loss(c.curve[-1]) for c in self.callbacks if c.curve]
        self._patience.update(float(np.mean(losses)), self._round)
        self._stops = self._stops or self._patience.is_over(self._round)
        self._round += 1
        for c in active:
            c.is_waiting = False
        self._condition.notify_all()


class _FoldCallback(Callback):
    """Reports the metric of one fold after each round."""

    def __init__(self, lockstep: _Lockstep) -> None:
        self.is_waiting = self.has_left = False
        self.curve: Sequence[float] = ()
        self._lockstep = lockstep

    def leave(self) -> None:
        """Let the other folds go on: the training of this one has ended."""
        self._lockstep.leave(self)

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self.curve = evals_log[VALIDATION][self._lockstep._metric.name]
        return self._lockstep.wait(self)
