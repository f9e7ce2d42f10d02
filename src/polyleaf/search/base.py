"""What the searching estimators have in common: an estimator that chooses its own parameters.

Owns the translation between an estimator and the race: data into folds, candidates into trainings, the winner
into a fitted estimator. Must not know how boosting works, or by which rules candidates fall behind.
"""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import scipy.sparse
from sklearn.base import _fit_context
from sklearn.utils import indexable

from polyleaf.estimators.base import PolyleafEstimator, document
from polyleaf.inputs.dataset import Dataset
from polyleaf.inputs.targets import Target
from polyleaf.metrics import Metric
from polyleaf.search import results
from polyleaf.search.candidates import Candidate
from polyleaf.search.folds import Fold, folds_of, rows_of_folds
from polyleaf.search.portfolio import PORTFOLIO, Parameters, variations, without
from polyleaf.search.race import Budget, Deadline, Race, Watch
from polyleaf.settings.declaration import declarations
from polyleaf.settings.habits import explains_strangers
from polyleaf.settings.parameters import USUALLY, RunningParameters, SearchParameters
from polyleaf.threads import effective_threads
from polyleaf.training.prepare import FeatureReader, Given, check_rows, evaluation_data, take_feature_names

__all__ = ["Searches", "document_search"]

_Class = TypeVar("_Class", bound=type)

_ATTRIBUTES = """
best_params_ : dict
    Parameters of the winner, its rounds among them, and those that were set on the search itself: the plain
    estimator with them, fitted on the same data, is the same model.
best_score_ : float
    Its score: the mean over the folds.
cv_results_ : dict
    Columns, an entry for each candidate in the order of trying, for a data frame.
leaderboard_ : list of dict
    The candidates, best first.
""".strip("\n")

# Rounds and patience at a learning rate of 1; half the rate wants twice as many.
MOST_ROUNDS, PATIENCE = 60.0, 4.0

_REFUSED = {
    "validation_fraction": "cv holds rows out",
    "warm_start": "a search begins anew",
    "projection": "it is learned from raw rows, which folds do not keep; use GridSearchCV",
}
# Set on the search, but nothing that the winner would be another model without.
_NOT_OF_CANDIDATES = {"callbacks", "eval_metric", "early_stopping_rounds"} | {
    p.name for p in declarations(RunningParameters) if p.name != "random_state"
}


def document_search(cls: _Class) -> _Class:
    """Fill in what the docstrings of both have from elsewhere."""
    if cls.__doc__ is not None:  # python -OO
        text = textwrap.indent(_ATTRIBUTES, "    ").lstrip()
        cls.__doc__ = cls.__doc__.replace("{search_attributes}", text)
    return document(cls)


# What the mixin expects of the class that it comes before.
_Base: Any = PolyleafEstimator if TYPE_CHECKING else object


class Searches(_Base):
    """Fits by a search. To be inherited before the estimator whose parameters are chosen."""

    _plain: ClassVar[type[PolyleafEstimator]]
    best_score_: Any  # as the estimator has it

    @explains_strangers
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        groups: Any = None,
        eval_set: Any = None,
        eval_offset: Sequence[Any] | None = None,
    ) -> Self:
        """Search, then train the winner on all rows.

        Parameters
        ----------
        X : array, sparse matrix, pandas/polars/Arrow table of shape (n_rows, n_features), or polyleaf.Dataset
            Of a Dataset linear leaves are tried only where it keeps the features.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Of training and of scores.
        offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Raw scores that rows start from, in every fold.
        groups : array-like of shape (n_rows,), optional
            Rows of a group are never on both sides of a fold.
        eval_set : list of (X, y), optional
            Watched by the last training; where `cv` is None, candidates are compared on the last of them.
        eval_offset : list of array-like, optional
            Offsets of these.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where data or parameters are not what they should be; the message says what and where.
        KeyboardInterrupt
            After Ctrl-C, as `on_interrupt` has it; the best candidate so far is trained on all rows before.
        """
        budget = Budget(self.time_limit)
        self._refuse()
        plain = self._candidate({})
        given = Given("training", X, y, sample_weight, offset).completed()
        target = self._encoded(plain, given.y, given.weight)
        given = given._replace(
            y=indexable(given.y)[0], weight=_as_array(given.weight), offset=_as_array(given.offset)
        )
        check_rows(plain, X, target)
        dataset = self._dataset(given)
        metric, seed = self._metric(plain, target), plain._seed()
        further = evaluation_data(eval_set, None, None, eval_offset, Given("validation", None, None, None))
        folds = self._folds(dataset, given, target, groups, further, seed)
        race = Race(self._trainer(metric, budget), folds, budget, self.n_candidates, self._say())
        was_interrupted = self._run(race, seed)
        self._take_winner(race, metric, budget, given._replace(X=dataset), (eval_set, eval_offset))
        if was_interrupted:
            self._tell_interrupt(race)
        return self

    def report(self) -> str:
        """The best ten candidates as text, with scores, folds, rounds and seconds."""
        refused = sum(map(bool, self.cv_results_["refused"]))
        return results.report(self.leaderboard_, self._metric_name, self._greater_is_better, refused)

    # --- parameters ----------------------------------------------------------------------------------

    def _refuse(self) -> None:
        usual = {p.name: p.default for p in declarations(type(self))}
        for name, why in _REFUSED.items():
            if getattr(self, name) != usual[name]:
                raise ValueError(f"{type(self).__name__} does not take {name}: {why}.")

    def _fixed(self) -> Parameters:
        """What the user has set to other than the default: no candidate changes it."""
        own = {p.name for p in declarations(SearchParameters)}
        given = {p.name: (getattr(self, p.name), p.default) for p in declarations(type(self))}
        return {
            name: value
            for name, (value, default) in given.items()
            if name not in own and not _is_same(value, default)
        }

    def _candidate(self, parameters: Parameters) -> PolyleafEstimator:
        """The plain estimator with these parameters, as it is to be when it is handed on."""
        return self._plain(**{**self._fixed(), **parameters})

    def _rounds_and_patience(self, parameters: Parameters) -> tuple[int, int]:
        """The most rounds of a candidate, and how long it may go without an improvement."""
        fixed = self._fixed()
        rate = parameters.get("learning_rate") or self.learning_rate or USUALLY["learning_rate"]
        patience = self.early_stopping_rounds or max(10, round(PATIENCE / rate))
        return fixed.get("n_estimators", max(10, round(MOST_ROUNDS / rate))), patience

    def _metric(self, plain: PolyleafEstimator, target: Target) -> Metric:
        if self.metric is not None:
            plain.eval_metric = self.metric
        return plain._metrics(plain._objective(target, None), target)[-1]

    # --- data ----------------------------------------------------------------------------------------

    def _encoded(self, plain: PolyleafEstimator, y: Any, sample_weight: Any) -> Target:
        """y as a training reads it: for its classes and the metric. Each fold encodes its own rows anew."""
        if scipy.sparse.issparse(y) and plain.leaf == "sparse":
            name = type(plain).__name__
            raise ValueError(f"{type(self).__name__} does not search on sparse targets: fit {name} instead.")
        return plain._encode_target(y, sample_weight, None)

    def _dataset(self, given: Given) -> Dataset:
        """All rows, binned once: thresholds know X and the weights, never y."""
        if isinstance(given.X, Dataset):
            take_feature_names(self, given.X.n_features, given.X.feature_names)
            return given.X
        n_threads = effective_threads(self.n_jobs)
        table = FeatureReader(self, None, n_threads).first(given.X, None)  # type: ignore[arg-type]
        keeps = not scipy.sparse.issparse(given.X)  # for linear leaves
        return Dataset(
            table,
            sample_weight=given.weight,
            max_bins=self.max_bins,
            keep_features=keeps,
            n_jobs=self.n_jobs,
        )

    def _folds(
        self, dataset: Dataset, given: Given, target: Target, groups: Any, further: list[Given], seed: int
    ) -> list[Fold]:
        if self.cv is None and further:
            return [Fold(given._replace(X=dataset), self._watched(further[-1], dataset))]
        rows = rows_of_folds(self.cv, given.X, given.y, target, groups, seed)
        return folds_of(dataset, given, rows)

    def _watched(self, last: Given, like: Dataset) -> Given:
        """An evaluation set, binned once for all candidates."""
        X, keeps = last.X, like.features is not None
        if not isinstance(X, Dataset):
            X = Dataset(X, reference=like, keep_features=keeps, n_jobs=self.n_jobs)
        return last._replace(name="validation", X=X)

    # --- search --------------------------------------------------------------------------------------

    def _trainer(self, metric: Metric, budget: Budget) -> Callable[[Parameters, Fold, float], Watch]:
        def train(parameters: Parameters, fold: Fold, leader: float) -> Watch:
            rounds, patience = self._rounds_and_patience(parameters)
            watch = Watch(metric, patience, leader, budget)
            candidate = self._candidate(parameters)
            candidate.set_params(
                n_estimators=rounds,
                early_stopping_rounds=None,
                eval_metric=[metric],
                callbacks=[watch],
                verbose=0,
                on_interrupt="raise",
            )
            if hasattr(candidate, "calibrate_quantiles"):  # which scores of rounds do not see
                candidate.set_params(calibrate_quantiles=False)
            _, X, y, weight, offset = fold.train
            valid = dict(
                zip(("X_val", "y_val", "sample_weight_val", "offset_val"), fold.valid[1:], strict=True)
            )
            candidate.fit(X, y, weight, offset=offset, **valid)
            return watch

        return train

    def _run(self, race: Race, seed: int) -> bool:
        """The whole race. True when Ctrl-C has ended it."""
        fixed = self._fixed()
        usual = {p.name: p.default for p in declarations(type(self))} | USUALLY

        def children(parents: list[Parameters], generation: int) -> Iterator[Parameters]:
            return variations(parents, usual, fixed, seed + generation)

        try:
            race.run(without(PORTFOLIO, fixed), "portfolio")
            if self.time_limit is not None or self.n_candidates is not None:
                race.vary(children)
        except KeyboardInterrupt:
            if not race.best():
                raise
            return True
        return False

    def _take_winner(
        self, race: Race, metric: Metric, budget: Budget, given: Given, watched: tuple[Any, Any]
    ) -> None:
        best, sign = race.best()[0], -1.0 if metric.greater_is_better else 1.0
        winner, rounds = self._last_training(best, budget, given, watched)
        self._adopt(winner.model_, winner._encoding)
        self.evals_result_ = winner.evals_result_
        self.evals_result_per_output_ = winner.evals_result_per_output_
        fixed = {n: v for n, v in self._fixed().items() if n not in _NOT_OF_CANDIDATES}
        self.best_params_ = {**fixed, **best.parameters, "n_estimators": rounds}
        self.best_score_ = sign * best.loss
        self.cv_results_ = results.cv_results(race.candidates, len(race._folds), sign)
        self.leaderboard_ = results.leaderboard(race.candidates, sign)
        self._metric_name, self._greater_is_better = metric.name, metric.greater_is_better

    def _last_training(
        self, best: Candidate, budget: Budget, given: Given, watched: tuple[Any, Any]
    ) -> tuple[PolyleafEstimator, int]:
        """The winner, trained on all rows, and its rounds."""
        winner, deadline = self._candidate(best.parameters), Deadline(budget)
        winner.set_params(n_estimators=best.rounds, early_stopping_rounds=None, verbose=None)
        of_eval = {"eval_set": watched[0], "eval_offset": watched[1]}
        winner.fit(given.X, given.y, given.weight, offset=given.offset, callbacks=[deadline], **of_eval)
        if deadline.was_met and deadline.rounds < best.rounds:
            warnings.warn(
                f"time_limit={self.time_limit} was over in the last training, after {deadline.rounds} of "
                f"{best.rounds} rounds: the machine became slower, or allow more time.",
                stacklevel=4,
            )
        return winner, deadline.rounds

    # --- what is said --------------------------------------------------------------------------------

    def _say(self) -> Callable[[str], Any]:
        interactive = hasattr(sys, "ps1") or sys.flags.interactive
        talks = interactive if self.verbose is None else bool(self.verbose)
        return print if talks else lambda line: None

    def _tell_interrupt(self, race: Race) -> None:
        said = (
            f"The search was interrupted; the best of its {len(race.candidates)} candidates so far was "
            "trained on all rows"
        )
        if self.on_interrupt == "raise":
            raise KeyboardInterrupt(f'{said} (on_interrupt="keep" returns it).')
        warnings.warn(f"{said}.", stacklevel=3)


def _is_same(value: Any, default: Any) -> bool:
    """Whether a parameter is as it comes. Arrays never are."""
    return value is default or (
        type(value) is type(default) and not hasattr(value, "shape") and value == default
    )


def _as_array(sample_weight: Any) -> Any:
    """Weights of which rows can be taken; None where there is none for a row."""
    array = None if sample_weight is None else np.asarray(sample_weight)
    return None if array is None or array.ndim == 0 else array
