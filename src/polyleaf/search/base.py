"""Estimators that search their own parameters: `PolyleafRegressorCV` and the like."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import scipy.sparse
from sklearn.base import _fit_context
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from polyleaf.binned_data.dataset import Dataset
from polyleaf.estimators import PolyleafClassifier, PolyleafRanker, PolyleafRegressor
from polyleaf.estimators._fitting import (
    draw_seed,
    make_objective,
    report_interrupt,
    restore_if_fit_fails,
)
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.metrics import Metric
from polyleaf.model.combine import blend_models
from polyleaf.model.metadata import BLEND, HAS_OFFSETS, MEMBERS, QUERY_COLUMN
from polyleaf.objectives import Objective, objective_class
from polyleaf.runtime.capabilities import Use, check, refuse
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike, JsonObject, Parameters, StrPath
from polyleaf.runtime.user_warnings import suppress_warnings, warn_user
from polyleaf.search.candidates import N_PARENTS, LearningRates, generate_variations, get_portfolio
from polyleaf.search.cv_splits import Fold, Folds, hash_data, make_folds, split_rows, weigh_held_out
from polyleaf.search.ensemble import Member, select_members
from polyleaf.search.resume_log import ResumeLog, describe
from polyleaf.search.successive_halving import (
    Budget,
    FinalFit,
    FittedCandidate,
    FittedDefaults,
    SpentTime,
    SuccessiveHalving,
    TrialStopper,
)
from polyleaf.search.trials import (
    Candidate,
    format_blend,
    format_leaderboard,
    make_cv_results,
    make_leaderboard,
    measure_cost,
)
from polyleaf.settings.param_spec import (
    Constraints,
    add_parameter_docs,
    fill_docstring,
    get_param_specs,
    make_constraints,
    suggest_on_unknown_kwargs,
)
from polyleaf.settings.parameters import (
    DEFAULTS,
    ClassifierSearchParameters,
    RankerSearchParameters,
    RegressorSearchParameters,
    RuntimeParameters,
    SearchParameters,
)
from polyleaf.training.auto_rounds import get_patience
from polyleaf.training.evaluation import make_metrics
from polyleaf.training.fit import check_metric_is_known
from polyleaf.training.initial_scores import fit_linear_model
from polyleaf.training.linear_models import LinearFit
from polyleaf.training.prepare import (
    VALIDATION,
    check_rows,
    collect_eval_sets,
    join_copies,
    read_split_rules,
    read_training_features,
    set_feature_names,
)
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.queries import get_query_ids
from polyleaf.user_data.read_target import is_sparse
from polyleaf.user_data.target import Target

_Class = TypeVar("_Class", bound=type)

_ATTRIBUTES = """
best_params_ : dict
    Parameters of the best candidate, `n_estimators` and those set on the search included. The
    plain estimator with these parameters, fitted on the same data, is the same model. None for
    `n_estimators`: the defaults are best, with the rounds and members that held-out rows choose.
best_score_ : float
    Its score: the mean over the folds.
cv_results_ : dict
    Columns with an entry for each candidate, in the order of evaluation. It can be imported into a
    pandas DataFrame.
leaderboard_ : list of dict
    The candidates, best first.
ensemble_ : list of dict or None
    With `ensemble`: the members of the blend and their weights, the largest first.
    `best_params_` are those of the first member then, and `best_score_` is the score of the blend.
""".strip("\n")

# Rounds, and early stopping rounds, at a learning rate of 1: divided by the rate.
MAX_ROUNDS, TRIAL_PATIENCE = 60.0, 4.0
LONGER = 2.5  # factor of the rounds of a candidate that used all of them
USED_ROUNDS_SHARE = 0.95  # share of the rounds from which a candidate counts as still improving
# Up to so many rows times features times outputs trials run in parallel, a thread each; above,
# threads work within trees, which needs less memory.
MAX_PARALLEL_CELLS = 2**25

_INTERRUPTED = "The search was interrupted before any trial was completed; nothing is fitted."
DEFAULTS_COST = 3.0  # time of their fit beside the fit of a candidate, if they choose their rounds
HIGH_QUALITY_COST = 2.5  # the same for `quality="high"` beside the defaults, at most
_HIGH_QUALITY: Parameters = {"quality": "high"}
_QUIET = {"early_stopping_rounds": None, "verbose": 0}
# Parameters of the search that do not change the model of a candidate.
_NOT_MODEL_PARAMETERS = {"callbacks", "eval_metric", "early_stopping_rounds"} | {
    p.name for p in get_param_specs(RuntimeParameters) if p.name != "random_state"
}


def add_search_docs(cls: _Class) -> _Class:
    """Fill in the docstring of a searching estimator."""
    fill_docstring(cls, {"{search_attributes}": _ATTRIBUTES})
    return add_parameter_docs(cls)


class FinalFitData(NamedTuple):
    """Data and limits of the final fits."""

    data: TrainingData  # binned
    eval_arguments: dict[str, Any]  # evaluation sets, and what belongs to them, of `fit`
    budget: Budget
    metric: Metric
    defaults: FittedDefaults | None = None  # if they are fitted before the search


_Base: Any = PolyleafEstimator if TYPE_CHECKING else object


class SearchMixin(_Base):
    """Mixin that fits by a search; it comes before the estimator whose parameters are chosen."""

    _base_class: ClassVar[type[PolyleafEstimator]]
    best_score_: Any  # declared as in the estimator
    ensemble_: list[JsonObject] | None

    @suggest_on_unknown_kwargs
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    @restore_if_fit_fails
    def fit(
        self,
        X: DataLike,
        y: DataLike | None = None,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
        groups: Any = None,
        time: Any = None,
        eval_set: object = None,
        eval_offset: Sequence[object] | None = None,
        resume: StrPath | None = None,
    ) -> Self:
        """Search for the best parameters, then train with them on all rows.

        Parameters
        ----------
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features)
            A pandas, polars or Arrow table, or a `polyleaf.Dataset`.
            With a Dataset, linear leaves are tried only if it keeps the raw features.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Target.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Weights, used in training and in scores.
        offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Initial raw scores of the rows, in every fold.
        groups : array-like of shape (n_rows,), optional
            Groups of rows that are kept together when folds are split.
        time : array-like of shape (n_rows,), optional
            Time of the rows, as numbers or dates: folds then train on earlier rows than they
            evaluate on.
        eval_set : list of (X, y), optional
            Evaluation sets of the final fit. If `cv` is None, candidates are compared on the last
            of them.
        eval_offset : list of array-like, optional
            Offsets of the evaluation sets.
        resume : path, optional
            Log file of completed trials. If it exists, from a search on the same data with the same
            settings, its trials are not repeated: a stopped search continues, and a finished search
            with more time or candidates goes further.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid.
        KeyboardInterrupt
            After Ctrl-C, as `on_interrupt` says; the best candidate so far is trained on all rows
            first.
        """
        data = TrainingData("training", X, RowData(y, sample_weight, offset, groups, time))
        eval_data = collect_eval_sets(eval_set, offsets=eval_offset)
        eval_arguments = {"eval_set": eval_set, "eval_offset": eval_offset}
        return self._search(data, eval_data, eval_arguments, resume)

    def _search(
        self,
        data: TrainingData,
        eval_data: list[TrainingData],
        eval_arguments: dict[str, Any],
        resume: StrPath | None,
    ) -> Self:
        """Search on data as the user passed them; the final fit takes `eval_arguments`."""
        budget = Budget(self.time_limit)
        check("search", parameters=self)
        # Only this estimator warns about the objective's name.
        base = self._make_candidate({"objective": self.objective})
        data, *eval_data = [self._read_rows(d) for d in (data.fill_from_dataset(), *eval_data)]
        check("search", parameters=self, has_sparse_y=is_sparse(data.rows.target))
        # For the classes and the metric: each fold encodes its own rows again.
        target = base._encode_target(data.rows, None, base._resolve_objective())
        data = data.replace_rows(
            target=indexable(data.rows.target)[0],
            weight=_to_array(data.rows.weight),
            offset=_to_array(data.rows.offset),
        )
        check_rows(base, data.X, target)
        objective = make_objective(base, target, base._resolve_objective())
        linear = self._fit_linear_model(data, eval_data, target, objective)
        has_offset = data.rows.offset is not None
        if linear is not None:  # all candidates start from its scores
            data = data.replace_rows(offset=linear.compute_offset())
        dataset = self._make_dataset(data)
        metric, seed = self._search_metric(base, target, objective), draw_seed(base)
        folds = self._make_folds(dataset, data, target, objective, eval_data, seed)
        log = ResumeLog(
            resume, {} if resume is None else self._log_settings(target, folds, metric, seed)
        )
        rates = self._learning_rates()
        n_parallel = self._choose_n_parallel(dataset, target)
        is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
        is_verbose = is_interactive if self.verbose is None else self.verbose
        final = FinalFitData(data._replace(X=dataset), eval_arguments, budget, metric)
        if self.time_limit is not None and self.n_estimators is None:
            final = final._replace(defaults=self._fit_defaults(final))
        search = SuccessiveHalving(
            self._make_trainer(metric, rates, n_parallel),
            folds,
            budget,
            self.n_candidates,
            log,
            self.ensemble or 1,
            print if is_verbose else lambda line: None,
            rates,
            n_parallel,
            self.n_estimators is None,
            final.defaults,
        )
        propose = self._make_proposer(target, dataset.features is not None, seed)
        was_interrupted = self._run_search(search, propose)
        if self.ensemble is None or was_interrupted or search.ranking()[0].timed_out:
            if self.ensemble is not None and not was_interrupted:
                self._warn_time_limit("no blend was made, since no trial on a fold was completed")
            self._fit_best(search, final)
        else:
            self._fit_blend(search, final)
        if linear is not None:
            self.model_.initial = linear.model
            self.model_.metadata[HAS_OFFSETS] = has_offset
        if getattr(self, "init", None) is not None:
            self.best_params_["init"] = None if linear is None else "linear"
        if was_interrupted:
            n = len(search.candidates)
            report_interrupt(
                self,
                f"The search was interrupted; the best of {n} candidates was trained on all rows",
            )
        return self

    def report(self) -> str:
        """Report the search as text.

        Lists the best ten candidates with their scores, folds, rounds and seconds, and the cost of
        a blend. `polyleaf.inspection.make_report` makes a page about the fitted model.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        n_failed = sum(map(bool, self.cv_results_["error"]))
        text = format_leaderboard(
            self.leaderboard_, self._metric_name, self._greater_is_better, n_failed
        )
        if self.ensemble_ is None:
            return text
        return f"{text}\n{format_blend(self.ensemble_, self.best_score_, self._costs)}"

    # --- parameters ------------------------------------------------------------------------------

    def _fixed_parameters(self) -> Parameters:
        """Return the parameters that the user has set, which no candidate changes."""
        of_search = {p.name for p in get_param_specs(SearchParameters)}
        fixed = {
            p.name: getattr(self, p.name)
            for p in get_param_specs(type(self))
            if p.name not in of_search and not p.is_default(getattr(self, p.name))
        }
        if isinstance(fixed.get("objective"), str):
            fixed["objective"] = objective_class(fixed["objective"]).name
        return fixed

    def _model_parameters(self) -> Parameters:
        """Return the fixed parameters that change the model."""
        fixed = self._fixed_parameters()
        return {n: v for n, v in fixed.items() if n not in _NOT_MODEL_PARAMETERS}

    def _make_candidate(self, parameters: Parameters) -> PolyleafEstimator:
        """Make the plain estimator with these parameters and the fixed ones."""
        fixed = self._fixed_parameters()
        values = {**self.get_params(deep=False), **fixed, **parameters}
        if "leaf" not in fixed:  # candidates differ in it: parameters of other leaves do not count
            for spec in get_param_specs(type(self)):
                if "leaf" in spec.requires and not spec.has_effect(values):
                    fixed.pop(spec.name, None)
        return self._base_class(**{**fixed, **parameters})

    def _get_trained_estimator(self) -> PolyleafEstimator:
        estimator = self._make_candidate(self.best_params_)
        estimator._set_model(self.model_, self._encoding)
        return estimator

    def _learning_rates(self) -> LearningRates:
        is_free = not {"learning_rate", "n_estimators"} & self._fixed_parameters().keys()
        return LearningRates(self.learning_rate or DEFAULTS["learning_rate"], is_free)

    def _finds_rounds(self, parameters: Parameters) -> bool:
        """Return whether held-out rows choose the number of rounds and the members of a candidate:
        whether it is the estimator as it is without a search."""
        return parameters in ({}, _HIGH_QUALITY) and self.n_estimators is None

    def _max_rounds(self, parameters: Parameters) -> int:
        """Return the maximum number of rounds of a candidate's trials."""
        limit = max(10, round(MAX_ROUNDS / self._learning_rates().get(parameters)))
        return {"n_estimators": limit, **self._fixed_parameters(), **parameters}["n_estimators"]

    def _search_metric(
        self, base: PolyleafEstimator, target: Target, objective: Objective
    ) -> Metric:
        if self.metric is not None:
            base.eval_metric = self.metric
        check_metric_is_known(objective, base.eval_metric, "The search")
        return make_metrics(base.eval_metric, objective, target)[-1]

    # --- data ------------------------------------------------------------------------------------

    def _fit_linear_model(
        self,
        data: TrainingData,
        eval_data: list[TrainingData],
        target: Target,
        objective: Objective,
    ) -> LinearFit | None:
        """Return the linear model that trees start from, if `init` asks for one.

        For "auto", held-out rows decide about it by a fit with `quality="fast"`.
        """
        init = getattr(self, "init", None)
        if init is None:
            return None
        evaluated = [each.X for each in eval_data]
        check(parameters=self, X=data.X, evaluated=evaluated, offset=data.rows.offset)
        if eval_data or scipy.sparse.issparse(data.X) or is_sparse(data.rows.target):
            refuse("init_estimator", "search", use=Use(parameters=self))
        if init == "auto":
            probe = self._make_candidate({"quality": "fast"})
            probe.fit(**data.to_arguments())
            initial = probe.model_.initial
            if initial is None or not initial.starts_trees:
                return None
        offset = data.rows.offset
        if offset is not None:
            reader = self._offset_reader(target.encoding, objective)
            target = target.replace_rows(offset=reader.read(offset, target.n_rows))
        return fit_linear_model(self, data, target, objective, draw_seed(self))

    def _make_trial(self, parameters: Parameters) -> PolyleafEstimator:
        """Make the estimator of a candidate, whose data start from the linear model already."""
        candidate = self._make_candidate(parameters)
        return candidate.set_params(init=None) if hasattr(candidate, "init") else candidate

    def _make_dataset(self, data: TrainingData) -> Dataset:
        """Bin all rows once: thresholds depend on X and weights, never on y."""
        if isinstance(data.X, Dataset):
            set_feature_names(self, data.X.n_features, data.X.feature_names)
            return data.X
        table = read_training_features(self, data.X, effective_threads(self.n_jobs))
        return Dataset(
            table,
            sample_weight=data.rows.weight,
            max_bins=self.max_bins,
            keep_features=not scipy.sparse.issparse(data.X),  # for linear leaves
            n_jobs=self.n_jobs,
        )

    def _make_folds(
        self,
        dataset: Dataset,
        data: TrainingData,
        target: Target,
        objective: Objective,
        eval_data: list[TrainingData],
        seed: int,
    ) -> Folds:
        rules = read_split_rules(self, data.rows, target.n_rows)
        rules = join_copies(rules, dataset.hash_rows, target.replace_rows(offset=data.rows.offset))
        if self.cv is None and eval_data:
            X, keeps = eval_data[-1].X, dataset.features is not None
            if not isinstance(X, Dataset):
                X = Dataset(X, reference=dataset, keep_features=keeps, n_jobs=self.n_jobs)
            fold = Fold(data._replace(X=dataset), eval_data[-1]._replace(name=VALIDATION, X=X))
            return Folds(1, lambda i: fold)
        rows = split_rows(self.cv, data, target, seed, rules)
        weighed = weigh_held_out(data.rows, target, objective)
        return make_folds(dataset, data, rows, weighed)

    def _log_settings(self, target: Target, folds: Folds, metric: Metric, seed: int) -> JsonObject:
        """Return what trials depend on, besides their parameters; see `ResumeLog`."""
        return {
            "estimator": type(self).__name__,
            "metric": describe(self.metric or metric.name),
            "seed": seed,
            "patience": self.early_stopping_rounds,
            "settings": {n: describe(v) for n, v in self._model_parameters().items()},
            "data": hash_data(target, folds),
        }

    # --- search ----------------------------------------------------------------------------------

    def _choose_n_parallel(self, dataset: Dataset, target: Target) -> int:
        """Return how many trials run in parallel: small ones use a thread each."""
        cells = dataset.n_rows * dataset.n_features * max(1, target.encoding.n_outputs)
        is_small = cells < MAX_PARALLEL_CELLS and self.device != "cuda"
        return effective_threads(self.n_jobs) if is_small else 1

    def _make_trainer(
        self, metric: Metric, rates: LearningRates, n_parallel: int
    ) -> Callable[[Parameters, Fold, float, Callable[[], bool]], TrialStopper]:
        def train(
            parameters: Parameters, fold: Fold, leader: float, is_spent: Callable[[], bool]
        ) -> TrialStopper:
            patience = get_patience(rates.get(parameters), TRIAL_PATIENCE)
            n_rounds = self.early_stopping_rounds or patience
            stopper = TrialStopper(metric, n_rounds, leader, is_spent)
            candidate = self._make_trial(parameters)
            finds_rounds = self._finds_rounds(parameters)
            limit = SpentTime(lambda: 0.0 if is_spent() else math.inf)
            candidate.set_params(
                **_QUIET,
                n_estimators=None if finds_rounds else self._max_rounds(parameters),
                eval_metric=[metric],
                callbacks=[limit if finds_rounds else stopper],
                on_interrupt="raise",
                n_jobs=self.n_jobs if n_parallel == 1 else 1,
            )
            if hasattr(candidate, "calibrate_quantiles"):  # it does not change the scores of rounds
                candidate.set_params(calibrate_quantiles=False)
            names = ("X", "y", "sample_weight", "offset", "qid")
            unheld = ("positions", "groups", "time") if finds_rounds else ("positions",)
            train, valid = fold.train.to_arguments(), fold.valid.to_arguments()
            with suppress_warnings():
                candidate.fit(
                    **{name: train[name] for name in (*names, *unheld) if name in train},
                    **{f"{name}_val": valid[name] for name in names if name in valid},
                )
            if finds_rounds:
                stopper.curve = _read_curve(candidate, metric)
                stopper.n_rounds, stopper.timed_out = 0, limit.was_reached
            stopper.fitted = None if self.ensemble is None else candidate
            return stopper

        return train

    def _make_proposer(
        self, target: Target, linear: bool, seed: int
    ) -> Callable[[list[Candidate], int], Iterator[Parameters]]:
        """Return the function that proposes candidates: the portfolio, then variations."""
        encoding, fixed = target.encoding, self._fixed_parameters()
        defaults = {p.name: p.default for p in get_param_specs(type(self))} | DEFAULTS
        portfolio = get_portfolio(encoding.kind, encoding.n_outputs, linear, fixed)

        def propose(ranked: list[Candidate], generation: int) -> Iterator[Parameters]:
            if generation == 0:
                return iter(portfolio)
            if self.time_limit is None and self.n_candidates is None:
                return iter(())
            parents = [
                {
                    name: value
                    for name, value in c.proposed.items()
                    if name not in ("n_estimators", *_HIGH_QUALITY)
                }
                for c in ranked[:N_PARENTS]
            ]
            variations = generate_variations(parents, defaults, fixed, seed + generation - 1)
            # The portfolio comes first: there may have been no time for all of it.
            return chain(self._extend_rounds(ranked[0]), portfolio, variations)

        return propose

    def _extend_rounds(self, candidate: Candidate) -> list[Parameters]:
        """Return the candidate with more rounds if it was still improving in its last ones."""
        limit = self._max_rounds(candidate.parameters)
        is_fixed = "n_estimators" in self._fixed_parameters()
        is_fixed = is_fixed or self._finds_rounds(candidate.parameters)
        if is_fixed or candidate.rounds < USED_ROUNDS_SHARE * limit:
            return []
        n_rounds = round(LONGER * self._max_rounds(candidate.proposed))
        return [{**candidate.proposed, "n_estimators": n_rounds}]

    def _run_search(
        self,
        search: SuccessiveHalving,
        propose: Callable[[list[Candidate], int], Iterator[Parameters]],
    ) -> bool:
        """Run the whole search. True if Ctrl-C has ended it."""
        try:
            search.run(propose)
        except KeyboardInterrupt:
            if not search.ranking():
                raise KeyboardInterrupt(_INTERRUPTED) from None
            return True
        return False

    def _fit_defaults(self, final: FinalFitData) -> FittedDefaults:
        """Fit the defaults on all rows before a search with a time limit, so that the search is
        never worse than no search for lack of time; with `quality="high"` if there is time for it.
        """
        seconds = final.budget.remaining()
        try:
            fitted = self._fit_on_all_rows(FinalFit({}, None), final, on_interrupt="raise")
            seconds -= final.budget.remaining()
            defaults = FittedDefaults(fitted, {}, seconds / DEFAULTS_COST)
            # Without a choice of members, all qualities are the same fit.
            is_free = "quality" not in self._fixed_parameters()
            is_free = is_free and MEMBERS in fitted.estimator.model_.metadata
            if is_free and HIGH_QUALITY_COST * seconds <= final.budget.remaining():
                with suppress_warnings():
                    high = self._fit_on_all_rows(
                        FinalFit(_HIGH_QUALITY, None), final, on_interrupt="raise"
                    )
                if not high.was_cut:
                    defaults = defaults._replace(fitted=high, parameters=_HIGH_QUALITY)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_INTERRUPTED) from None
        if defaults.fitted.was_cut:
            self._warn_cut_fit(defaults.fitted)
        return defaults

    def _fit_best(self, search: SuccessiveHalving, final: FinalFitData) -> None:
        best = search.choose_best()
        fitted = self._fit_final(search.final_fit(best), final)
        if final.defaults is not None and fitted is final.defaults.fitted:
            best = search.candidates[0]
        if best is not search.ranking()[0]:
            self._warn_time_limit(
                "the best candidate was not fitted on all rows, and the defaults are the model"
            )
        self._store_search(search, final, fitted)
        self.best_score_, self.ensemble_ = final.metric.from_loss(best.loss), None

    def _fit_blend(self, search: SuccessiveHalving, final: FinalFitData) -> None:
        """Fit the members on all rows, as far as time allows, and average them in one model."""
        budget, n_threads = final.budget, effective_threads(self.n_jobs)
        members, loss = select_members(
            search.ranking(),
            search.folds,
            self._fit_on_fold,
            final.metric,
            self.ensemble or 1,
            budget.is_over,
        )
        fitted: list[tuple[Member, FittedCandidate]] = []
        for member in members:
            if fitted and budget.is_over():
                self._warn_time_limit(
                    f"only {len(fitted)} of the {len(members)} members of the blend were fitted"
                )
                break
            fitted.append((member, self._fit_final(search.final_fit(member.candidate), final)))
        total = sum(member.weight for member, _ in fitted)
        weights = [member.weight / total for member, _ in fitted]
        first, models = fitted[0][1], [each.estimator.model_ for _, each in fitted]
        parameters = [each.parameters for _, each in fitted]
        self.ensemble_ = [
            {
                "weight": w,
                "candidate": m.candidate.number,
                "score": final.metric.from_loss(m.candidate.loss),
                "params": p,
            }
            for w, (m, _), p in zip(weights, fitted, parameters, strict=True)
        ]
        blend = [{"weight": w, "parameters": p} for w, p in zip(weights, parameters, strict=True)]
        model = blend_models(models, weights)
        model.metadata[BLEND] = blend
        self._store_search(search, final, first)
        self._set_model(model, first.estimator._encoding)
        self.best_score_ = final.metric.from_loss(loss)
        data = final.data.X, n_threads
        self._costs = measure_cost(models[0], *data), measure_cost(model, *data)

    def _store_search(
        self, search: SuccessiveHalving, final: FinalFitData, fitted: FittedCandidate
    ) -> None:
        estimator = fitted.estimator
        self._set_model(estimator.model_, estimator._encoding)
        self.evals_result_ = estimator.evals_result_
        self.evals_result_per_output_ = estimator.evals_result_per_output_
        self.best_params_ = {**self._model_parameters(), **fitted.parameters}
        self.cv_results_ = make_cv_results(search.candidates, len(search.folds), final.metric)
        self.leaderboard_ = make_leaderboard(search.candidates, final.metric)
        self._metric_name = final.metric.name
        self._greater_is_better = final.metric.prefers_greater

    def _fit_final(self, final_fit: FinalFit, final: FinalFitData) -> FittedCandidate:
        """Return a candidate fitted on all rows; the defaults, if they are fitted, in place of a
        fit that the time limit has cut."""
        defaults = final.defaults
        if defaults is None:
            fitted = self._fit_on_all_rows(final_fit, final)
            if fitted.was_cut:
                self._warn_cut_fit(fitted)
            return fitted
        if final_fit.rounds is None:
            return defaults.fitted
        with suppress_warnings():  # the fit of the defaults has warned
            fitted = self._fit_on_all_rows(final_fit, final)
        return defaults.fitted if fitted.was_cut else fitted

    def _fit_on_all_rows(
        self, final_fit: FinalFit, final: FinalFitData, **settings: Any
    ) -> FittedCandidate:
        """Train a candidate on all rows.

        `settings`: other parameters, which do not change the model.
        """
        parameters, rounds = final_fit
        if rounds is not None:
            rounds = min(rounds, self._fixed_parameters().get("n_estimators") or rounds)
        elif self.metric is not None:  # it chooses the rounds, as in the trials
            parameters = {**parameters, "eval_metric": self.metric}
        estimator, limit = self._make_trial(parameters), final.budget.limit_final_fit()
        estimator.set_params(
            n_estimators=rounds, early_stopping_rounds=None, verbose=None, **settings
        )
        estimator.fit(**final.data.to_arguments(), callbacks=[limit], **final.eval_arguments)
        n_estimators = None if rounds is None else estimator.n_iter_
        return FittedCandidate(
            estimator, {**parameters, "n_estimators": n_estimators}, limit.was_reached
        )

    def _fit_on_fold(self, candidate: Candidate, fold: Fold) -> PolyleafEstimator:
        """Train a candidate on a fold with its best number of rounds."""
        estimator = self._make_trial(candidate.parameters)
        rounds = None if self._finds_rounds(candidate.parameters) else candidate.rounds
        estimator.set_params(**_QUIET, n_estimators=rounds, callbacks=None)
        return estimator.fit(**fold.train.to_arguments())

    # --- messages --------------------------------------------------------------------------------

    def _warn_cut_fit(self, fitted: FittedCandidate) -> None:
        self._warn_time_limit(f"the final fit ended after {fitted.estimator.n_iter_} rounds")

    def _warn_time_limit(self, what: str) -> None:
        warn_user(f"time_limit={self.time_limit} was too short: {what}. Increase time_limit.")


def _read_curve(fitted: PolyleafEstimator, metric: Metric) -> list[float]:
    """Return the loss of the last evaluation set after each round."""
    values = list(fitted.evals_result_.values())[-1][metric.name]
    return [metric.to_loss(value) for value in values]


def _to_array(values: DataLike) -> np.ndarray | None:
    """Convert weights or offsets to an array of rows; None if there is no value per row."""
    array = None if values is None else np.asarray(values)
    return None if array is None or array.ndim == 0 else array


@add_search_docs
class PolyleafClassifierCV(SearchMixin, PolyleafClassifier, ClassifierSearchParameters):
    """`PolyleafClassifier` that chooses its parameters by cross-validation on the training data.

    Parameters that are set to other than their defaults are the same for all candidates.

    {parameters}

    Attributes
    ----------
    {search_attributes}
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafClassifierCV
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolyleafClassifierCV(n_candidates=3, n_estimators=30).fit(X, y)
    >>> model.predict_proba(X).shape, len(model.leaderboard_)
    ((150, 3), 3)
    """

    _parameter_constraints: ClassVar[Constraints] = make_constraints(ClassifierSearchParameters)
    _base_class = PolyleafClassifier


@add_search_docs
class PolyleafRegressorCV(SearchMixin, PolyleafRegressor, RegressorSearchParameters):
    """`PolyleafRegressor` that chooses its parameters by cross-validation on the training data.

    Parameters that are set to other than their defaults are the same for all candidates.

    {parameters}

    Attributes
    ----------
    {search_attributes}
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafRegressorCV
    >>> from sklearn.datasets import make_regression
    >>> X, Y = make_regression(n_targets=3, random_state=0)
    >>> model = PolyleafRegressorCV(n_candidates=3, n_estimators=30).fit(X, Y)
    >>> model.predict(X).shape, len(model.leaderboard_)
    ((100, 3), 3)
    """

    _parameter_constraints: ClassVar[Constraints] = make_constraints(RegressorSearchParameters)
    _base_class = PolyleafRegressor


@add_search_docs
class PolyleafRankerCV(SearchMixin, PolyleafRanker, RankerSearchParameters):
    """`PolyleafRanker` that chooses its parameters by cross-validation on the training data.

    Folds have whole queries. Parameters that are set to other than their defaults are the same for
    all candidates.

    {parameters}

    Attributes
    ----------
    {search_attributes}
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from polyleaf import PolyleafRankerCV
    >>> X, qid = np.random.default_rng(0).random((200, 3)), np.repeat(np.arange(20), 10)
    >>> y = (4 * X[:, 0]).astype(int)
    >>> model = PolyleafRankerCV(n_candidates=3, n_estimators=30).fit(X, y, qid=qid)
    >>> model.predict(X).shape, len(model.leaderboard_)
    ((200,), 3)
    """

    _parameter_constraints: ClassVar[Constraints] = make_constraints(RankerSearchParameters)
    _base_class = PolyleafRanker

    @suggest_on_unknown_kwargs
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    @restore_if_fit_fails
    def fit(
        self,
        X: DataLike,
        y: DataLike | None = None,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        positions: Any = None,
        offset: DataLike | None = None,
        groups: Any = None,
        time: Any = None,
        eval_set: object = None,
        eval_qid: Sequence[object] | None = None,
        eval_group: Sequence[object] | None = None,
        eval_offset: Sequence[object] | None = None,
        resume: StrPath | None = None,
    ) -> Self:
        """Search for the best parameters, then train with them on all rows.

        Parameters
        ----------
        X, y, sample_weight, qid, group, offset, groups, time, eval_set, eval_qid, eval_group, \
        eval_offset
            See :meth:`polyleaf.PolyleafRanker.fit`.
        positions : array-like of shape (n_rows,), optional
            See :meth:`polyleaf.PolyleafRanker.fit`. Candidates are compared by scores without the
            bias, on clicks of held-out queries, which depend on the positions as well: judged
            queries as `eval_set` compare them better.
        resume : path, optional
            Log file of completed trials: see :meth:`polyleaf.PolyleafRegressorCV.fit`.

        Returns
        -------
        self
        """
        self._query_column = qid if isinstance(qid, str) else None
        query = get_query_ids(X, qid, group)
        rows = RowData(y, sample_weight, offset, groups, time, query, positions)
        eval_data = collect_eval_sets(
            eval_set, offsets=eval_offset, qids=eval_qid, groups=eval_group
        )
        read = [self._read_rows(data.fill_from_dataset()) for data in eval_data]
        eval_arguments = {
            "eval_set": [(data.X, data.rows.target) for data in read],
            "eval_qid": [data.rows.query for data in read],
            "eval_offset": eval_offset,
        }
        column = self._query_column
        self._search(TrainingData("training", X, rows), eval_data, eval_arguments, resume)
        if column is not None:
            self.model_.metadata[QUERY_COLUMN] = self._query_column = column
        return self
