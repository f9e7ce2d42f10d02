"""What the searching estimators have in common: an estimator that chooses its own parameters.

Owns the translation between an estimator and the race: data into folds, candidates into trainings, the winner
into a fitted estimator. Must not know how boosting works, or by which rules candidates fall behind.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import scipy.sparse
from sklearn.base import _fit_context
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from polyleaf.data.dataset import Dataset
from polyleaf.estimators.base import PolyleafEstimator, add_parameter_docs, fill_docstring
from polyleaf.inputs.targets import Target, is_sparse
from polyleaf.metrics import Metric
from polyleaf.model.decision_threshold import get_decision_thresholds, set_decision_thresholds
from polyleaf.model.ensemble_average import average_models
from polyleaf.objectives import objective_class
from polyleaf.runtime.context import effective_threads
from polyleaf.search import results, tpe
from polyleaf.search.budgeted_halving import TimedRace
from polyleaf.search.cv_splits import (
    Fold,
    Folds,
    Rows,
    deals_of,
    fingerprint,
    folds_of,
    in_small,
    rows_of_folds,
)
from polyleaf.search.ensemble import Member, members_of
from polyleaf.search.fingerprint import identity
from polyleaf.search.portfolio import PARENTS, Parameters, portfolio_of, suited, variations
from polyleaf.search.resume_log import TrainingLog
from polyleaf.search.screening import Pace
from polyleaf.search.space import Task
from polyleaf.search.successive_halving import Budget, Deadline, LastTraining, Race, Watch
from polyleaf.search.trials import Candidate
from polyleaf.settings.aliases import suggest_on_unknown_kwargs
from polyleaf.settings.param_spec import get_param_specs
from polyleaf.settings.parameters import (
    DEFAULT_N_ESTIMATORS,
    DEFAULTS,
    RuntimeParameters,
    SearchParameters,
)
from polyleaf.training.auto_n_estimators import max_rounds
from polyleaf.training.prepare import (
    VALIDATION,
    FeatureReader,
    TrainingData,
    check_rows,
    collect_eval_sets,
    set_feature_names,
)

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
ensemble_ : list of dict or None
    With `ensemble`: the members of the blend with their weights, the largest first. `best_params_` are then
    those of the first, and `best_score_` is that of the blend.
""".strip("\n")

PATIENCE = 4.0  # at a learning rate of 1; half the rate wants twice as many rounds
LONGER = 2.5  # times as many rounds a candidate is given that has come to its last
NEARLY = 0.95  # of them: it was still improving
# Rows times features times outputs: with as many the threads of one tree are as good as those of several
# trainings, which would need more memory.
WITHIN_TREES = 2**25

_REFUSED = {
    "validation_fraction": "cv holds rows out",
    "warm_start": "a search begins anew",
    "projection": "it is learned from raw rows, which folds do not keep; use GridSearchCV",
}
_QUIETLY = {"early_stopping_rounds": None, "verbose": 0}
# Set on the search, but nothing that the winner would be another model without.
_NOT_OF_CANDIDATES = {"callbacks", "eval_metric", "early_stopping_rounds"} | {
    p.name for p in get_param_specs(RuntimeParameters) if p.name != "random_state"
}


def document_search(cls: _Class) -> _Class:
    """Fill in what the docstrings of both have from elsewhere."""
    fill_docstring(cls, {"{search_attributes}": _ATTRIBUTES})
    return add_parameter_docs(cls)


class Last(NamedTuple):
    """What the last trainings are handed."""

    given: TrainingData  # the rows, binned
    watched: tuple[Any, Any]  # evaluation sets and their offsets, as they were given
    budget: Budget
    metric: Metric

    @property
    def sign(self) -> float:
        """From a loss to the metric's value."""
        return -1.0 if self.metric.greater_is_better else 1.0


# What the mixin expects of the class that it comes before.
_Base: Any = PolyleafEstimator if TYPE_CHECKING else object


class Searches(_Base):
    """Fits by a search. To be inherited before the estimator whose parameters are chosen."""

    _plain: ClassVar[type[PolyleafEstimator]]
    best_score_: Any  # as the estimator has it
    ensemble_: list[dict[str, Any]] | None

    @suggest_on_unknown_kwargs
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
        resume: Any = None,
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
        resume : path, optional
            A file that every training on a fold is written to when it has ended. Where it is there already,
            of a search on the same data with the same settings, its trainings are not repeated: a search
            that was stopped goes on, one that has ended looks further with more time or candidates.

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
        plain = self._candidate(
            {"objective": self.objective}
        )  # warns of the name, if need be, and no other
        given = TrainingData("training", X, y, sample_weight, offset).with_dataset_values()
        target = self._encoded(plain, given.y, given.weight)
        given = given._replace(
            y=indexable(given.y)[0], weight=_as_array(given.weight), offset=_as_array(given.offset)
        )
        check_rows(plain, X, target)
        dataset = self._dataset(given)
        metric, seed = self._metric(plain, target), plain._seed()
        further = collect_eval_sets(eval_set, offsets=eval_offset)
        folds = self._folds(dataset, given, target, groups, further, seed)
        log = TrainingLog(
            resume, {} if resume is None else self._about(target, folds, metric, seed)
        )
        at_once = self._at_once(dataset, target)
        train, members = self._trainer(metric, at_once), self.ensemble or 1
        entry = train, folds, budget, self.n_candidates, log, members, self._say(), at_once
        race = (
            Race(*entry)
            if self.time_limit is None
            else self._timed(entry, dataset.n_rows, target, seed)
        )
        encoding = target.encoding
        space = encoding.kind, encoding.n_outputs, dataset.features is not None
        was_interrupted = self._run(race, space, seed)
        last = Last(given._replace(X=dataset), (eval_set, eval_offset), budget, metric)
        if self.ensemble is None or was_interrupted or not race.best()[0].curves:
            if self.ensemble is not None and not was_interrupted:
                self._warn_of_limit("there is no blend, since nothing was trained on a fold")
            self._take_winner(race, last)
        else:
            self._take_blend(race, last)
        if was_interrupted:
            self._tell_interrupt(race)
        return self

    def report(
        self, X: Any = None, y: Any = None, *, offset: Any = None, title: str | None = None
    ) -> Any:
        """The best ten candidates as text, with scores, folds, rounds and seconds, and what a blend costs;
        with X and y the page that any estimator makes of them.

        Parameters
        ----------
        X, y : optional
            Rows that training did not see.
        offset : optional
            Of these, as in `predict`.
        title : str, optional
            Of the page.

        Returns
        -------
        str or Report
        """
        check_is_fitted(self)
        if X is not None:
            return super().report(X, y, offset=offset, title=title)  # type: ignore[misc]
        refused = sum(map(bool, self.cv_results_["refused"]))
        told = results.report(
            self.leaderboard_, self._metric_name, self._greater_is_better, refused
        )
        if self.ensemble_ is None:
            return told
        return f"{told}\n{results.report_of_blend(self.ensemble_, self.best_score_, self._costs)}"

    # --- parameters ----------------------------------------------------------------------------------

    def _refuse(self) -> None:
        usual = {p.name: p.default for p in get_param_specs(type(self))}
        for name, why in _REFUSED.items():
            if getattr(self, name) != usual[name]:
                raise ValueError(f"{type(self).__name__} does not take {name}: {why}.")

    def _fixed(self) -> Parameters:
        """What is set to other than the default: no candidate changes it. An objective by our name."""
        own = {p.name for p in get_param_specs(SearchParameters)}
        given = {p.name: (getattr(self, p.name), p.default) for p in get_param_specs(type(self))}
        fixed = {
            name: value
            for name, (value, default) in given.items()
            if name not in own and not _is_same(value, default)
        }
        if isinstance(fixed.get("objective"), str):
            fixed["objective"] = objective_class(fixed["objective"]).name
        return fixed

    def _candidate(self, parameters: Parameters) -> PolyleafEstimator:
        """The plain estimator with these parameters, as it is to be when it is handed on."""
        return self._plain(**{**self._fixed(), **parameters})

    def _rounds_and_patience(self, parameters: Parameters) -> tuple[int, int]:
        """The most rounds of a candidate, and how long it may go without an improvement."""
        rate = self._rate(parameters)
        patience = self.early_stopping_rounds or max(10, round(PATIENCE / rate))
        most = {"n_estimators": max_rounds(rate), **self._fixed(), **parameters}
        return most["n_estimators"], patience

    def _longer(self, candidate: Candidate) -> list[Parameters]:
        """The same with more rounds, where it was still improving when it had all that it may have."""
        most, _ = self._rounds_and_patience(candidate.parameters)
        if "n_estimators" in self._fixed() or candidate.rounds < NEARLY * most:
            return []
        most, _ = self._rounds_and_patience(candidate.proposed)
        return [{**candidate.proposed, "n_estimators": round(LONGER * most)}]

    def _rate(self, parameters: Parameters) -> float:
        return parameters.get("learning_rate") or self.learning_rate or DEFAULTS["learning_rate"]

    def _metric(self, plain: PolyleafEstimator, target: Target) -> Metric:
        if self.metric is not None:
            plain.eval_metric = self.metric
        return plain._make_metrics(plain._objective(target, None), target)[-1]

    # --- data ----------------------------------------------------------------------------------------

    def _encoded(self, plain: PolyleafEstimator, y: Any, sample_weight: Any) -> Target:
        """y as a training reads it: for its classes and the metric. Each fold encodes its own rows anew."""
        if is_sparse(y) and plain.leaf == "sparse":
            name = type(plain).__name__
            raise ValueError(
                f"{type(self).__name__} does not search on sparse targets: fit {name} instead."
            )
        return plain._encode_target(y, sample_weight, None)

    def _dataset(self, given: TrainingData) -> Dataset:
        """All rows, binned once: thresholds know X and the weights, never y."""
        if isinstance(given.X, Dataset):
            set_feature_names(self, given.X.n_features, given.X.feature_names)
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
        self,
        dataset: Dataset,
        given: TrainingData,
        target: Target,
        groups: Any,
        further: list[TrainingData],
        seed: int,
    ) -> Folds:
        """What candidates are compared on."""
        if self.cv is None and further:
            fold = Fold(given._replace(X=dataset), self._watched(further[-1], dataset))
            return Folds(1, lambda i: fold)

        def deal(i: int) -> list[Rows]:
            return rows_of_folds(self.cv, given.X, given.y, target, groups, seed + i)

        # What the user has said is left as it is.
        n_deals = deals_of(target.n_rows, self.time_limit is not None) if self.cv is None else 1
        return folds_of(dataset, given, deal, n_deals)

    def _watched(self, last: TrainingData, like: Dataset) -> TrainingData:
        """An evaluation set, binned once for all candidates."""
        X, keeps = last.X, like.features is not None
        if not isinstance(X, Dataset):
            X = Dataset(X, reference=like, keep_features=keeps, n_jobs=self.n_jobs)
        return last._replace(name=VALIDATION, X=X)

    def _about(self, target: Target, folds: Folds, metric: Metric, seed: int) -> dict[str, Any]:
        """What trainings on the folds depend on, besides their parameters; see `TrainingLog`."""
        fixed = {n: v for n, v in self._fixed().items() if n not in _NOT_OF_CANDIDATES}
        settings = {
            "estimator": type(self).__name__,
            "metric": identity(metric),
            "seed": seed,
            "patience": self.early_stopping_rounds,
            "settings": identity(fixed),
        }
        return settings | {"data": fingerprint(target, folds)}

    # --- search --------------------------------------------------------------------------------------

    def _timed(self, entry: tuple[Any, ...], n_rows: int, target: Target, seed: int) -> TimedRace:
        fold = entry[1][0]
        small = in_small(fold, target.get_row_classes() is not None, seed)
        is_free = not {"learning_rate", "n_estimators"} & self._fixed().keys()
        pace = Pace(self._rate, is_free, n_rows)
        return TimedRace(*entry, small=small, pace=pace)

    def _at_once(self, dataset: Dataset, target: Target) -> int:
        """Trainings on folds that run beside one another, a thread each: small ones use threads better so
        than within their trees."""
        cells = dataset.n_rows * dataset.n_features * max(1, target.encoding.n_outputs)
        is_small = cells < WITHIN_TREES and self.device != "cuda"
        return effective_threads(self.n_jobs) if is_small else 1

    def _trainer(
        self, metric: Metric, at_once: int
    ) -> Callable[[Parameters, Fold, float, Budget], Watch]:
        def train(parameters: Parameters, fold: Fold, leader: float, budget: Budget) -> Watch:
            rounds, patience = self._rounds_and_patience(parameters)
            watch = Watch(metric, patience, leader, budget)
            candidate = self._candidate(parameters)
            candidate.set_params(
                **_QUIETLY,
                n_estimators=rounds,
                eval_metric=[metric],
                callbacks=[watch],
                on_interrupt="raise",
                n_jobs=self.n_jobs if at_once == 1 else 1,
            )
            if hasattr(candidate, "calibrate_quantiles"):  # which scores of rounds do not see
                candidate.set_params(calibrate_quantiles=False)
            _, X, y, weight, offset = fold.train
            valid = dict(
                zip(
                    ("X_val", "y_val", "sample_weight_val", "offset_val"),
                    fold.valid[1:],
                    strict=True,
                )
            )
            candidate.fit(X, y, weight, offset=offset, **valid)
            watch.fitted = None if self.ensemble is None else candidate
            return watch

        return train

    def _run(self, race: Race, space: tuple[Task, int, bool], seed: int) -> bool:
        """The whole race. True when Ctrl-C has ended it."""
        fixed = self._fixed()
        usual = {p.name: p.default for p in get_param_specs(type(self))} | DEFAULTS
        usual["n_estimators"] = DEFAULT_N_ESTIMATORS

        asks_optuna = tpe.is_worth_asking(self.time_limit)
        table = suited(portfolio_of(space[0]), fixed, *space)

        def children(best: list[Candidate], generation: int) -> Iterator[Parameters]:
            if asks_optuna:
                proposals = tpe.proposals(best, *space, usual, fixed, seed + generation)
            else:
                parents = [_with_usual_rounds(candidate.proposed) for candidate in best[:PARENTS]]
                proposals = variations(parents, usual, fixed, seed + generation)
            # Of the table what there was no time for.
            return chain(*map(self._longer, best[:1]), table, proposals)

        try:
            race.run(list(table), "portfolio")
            if self.time_limit is not None or self.n_candidates is not None:
                race.vary(children, "tpe" if asks_optuna else "variation")
            race.judge_again()
        except KeyboardInterrupt:
            if not race.best():
                raise KeyboardInterrupt(
                    "The search was interrupted before a candidate was trained on a fold: nothing is kept."
                ) from None
            return True
        return False

    def _take_winner(self, race: Race, last: Last) -> None:
        best = race.best()[0]
        winner, parameters = self._last_training(race.at_last(best), last)
        self._take_results(race, last, winner, parameters)
        self.best_score_, self.ensemble_ = last.sign * best.loss, None

    def _take_blend(self, race: Race, last: Last) -> None:
        """Train the members on all rows, as far as there is time, and make one model of them."""
        budget, n_threads = last.budget, effective_threads(self.n_jobs)
        members, loss = members_of(
            race.best(), race.folds, self._train_on, last.metric, self.ensemble or 1, budget.is_over
        )
        trained: list[tuple[Member, PolyleafEstimator, Parameters]] = []
        for member in members:
            if trained and budget.is_over():
                self._warn_of_limit(
                    f"{len(trained)} of the {len(members)} members of the blend are in it"
                )
                break
            trained.append((member, *self._last_training(race.at_last(member.candidate), last)))
        total = sum(member.weight for member, _, _ in trained)
        weights = [member.weight / total for member, _, _ in trained]
        winner, models = trained[0][1], [estimator.model_ for _, estimator, _ in trained]
        parameters = [own for *_, own in trained]
        self.ensemble_ = [
            {
                "weight": w,
                "candidate": m.candidate.number,
                "score": last.sign * m.candidate.loss,
                "params": p,
            }
            for w, (m, _, _), p in zip(weights, trained, parameters, strict=True)
        ]
        blend = [{"weight": w, "parameters": p} for w, p in zip(weights, parameters, strict=True)]
        model = average_models(models, weights, {**models[0].metadata, "blend": blend})
        set_decision_thresholds(
            model, np.average([get_decision_thresholds(m) for m in models], axis=0, weights=weights)
        )
        self._take_results(race, last, winner, parameters[0])
        self._set_model(model, winner._encoding)
        self.best_score_ = last.sign * loss
        data = last.given.X, n_threads
        self._costs = results.cost(models[0], *data), results.cost(model, *data)

    def _take_results(
        self, race: Race, last: Last, winner: PolyleafEstimator, parameters: Parameters
    ) -> None:
        self._set_model(winner.model_, winner._encoding)
        self.evals_result_ = winner.evals_result_
        self.evals_result_per_output_ = winner.evals_result_per_output_
        fixed = {n: v for n, v in self._fixed().items() if n not in _NOT_OF_CANDIDATES}
        self.best_params_ = {**fixed, **parameters}
        self.cv_results_ = results.cv_results(race.candidates, len(race.folds), last.sign)
        self.leaderboard_ = results.leaderboard(race.candidates, last.sign)
        self._metric_name, self._greater_is_better = last.metric.name, last.metric.greater_is_better

    def _last_training(
        self, found: LastTraining, last: Last
    ) -> tuple[PolyleafEstimator, Parameters]:
        """A candidate trained on all rows; its parameters, rounds among them."""
        parameters, rounds, enough = found
        own = self._fixed().get("n_estimators", rounds)  # the user's, which a look did not know of
        rounds, enough = min(rounds, own), min(enough, own)
        winner, deadline = self._candidate(parameters), Deadline(last.budget)
        winner.set_params(n_estimators=rounds, early_stopping_rounds=None, verbose=None)
        _, X, y, weight, offset = last.given
        of_eval = {"eval_set": last.watched[0], "eval_offset": last.watched[1]}
        winner.fit(X, y, weight, offset=offset, callbacks=[deadline], **of_eval)
        if deadline.was_met and deadline.rounds < enough:
            self._warn_of_limit(
                f"the last training ended after {deadline.rounds} of {enough} rounds"
            )
        return winner, {**parameters, "n_estimators": deadline.rounds}

    def _train_on(self, candidate: Candidate, fold: Fold) -> PolyleafEstimator:
        """A candidate on a fold, with the rounds that it came to."""
        again = self._candidate(candidate.parameters)
        again.set_params(**_QUIETLY, n_estimators=candidate.rounds, callbacks=None)
        _, X, y, weight, offset = fold.train
        return again.fit(X, y, weight, offset=offset)

    # --- what is said --------------------------------------------------------------------------------

    def _say(self) -> Callable[[str], Any]:
        interactive = hasattr(sys, "ps1") or sys.flags.interactive
        talks = interactive if self.verbose is None else bool(self.verbose)
        return print if talks else lambda line: None

    def _warn_of_limit(self, what: str) -> None:
        warnings.warn(
            f"time_limit={self.time_limit} was over too early: {what}. Allow more time; or the machine has "
            "become slower meanwhile.",
            stacklevel=5,
        )

    def _tell_interrupt(self, race: Race) -> None:
        said = (
            f"The search was interrupted; the best of its {len(race.candidates)} candidates so far was "
            "trained on all rows"
        )
        if self.on_interrupt == "raise":
            raise KeyboardInterrupt(f'{said} (on_interrupt="keep" returns it).')
        warnings.warn(f"{said}.", stacklevel=3)


def _with_usual_rounds(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if name != "n_estimators"}


def _is_same(value: Any, default: Any) -> bool:
    """Whether a parameter is as it comes. Arrays never are."""
    if value is default:
        return True
    both = (value, default)
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in both):
        return bool(value == default)
    return type(value) is type(default) and not hasattr(value, "shape") and value == default


def _as_array(sample_weight: Any) -> Any:
    """Weights of which rows can be taken; None where there is none for a row."""
    array = None if sample_weight is None else np.asarray(sample_weight)
    return None if array is None or array.ndim == 0 else array
