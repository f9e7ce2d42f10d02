"""What regressor and classifier have in common: fitting, predicting, files; scikit-learn's contract.

Owns the translation between the user's terms and the loop's: parameters to settings, raw scores to
predictions, a model to fitted attributes. No preparation of data: that is `prepare.py`. No algorithm: that is
`boosting.py` and the core.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, overload

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from polyleaf.callbacks import EarlyStopping, EvaluationMonitor, ProgressBar, as_callbacks
from polyleaf.data.dataset import Dataset
from polyleaf.estimators.calibration_state import forget
from polyleaf.estimators.output_frames import Library, as_table, check_library
from polyleaf.estimators.shap_mixin import ShapMixin, iter_shap_values, mean_abs_shap
from polyleaf.inputs.features import FeatureTable
from polyleaf.inputs.multitask import decode_target_encoding
from polyleaf.inputs.offsets import OffsetReader, check_all_or_none
from polyleaf.inputs.target_scaling import warn_small_weights
from polyleaf.inputs.targets import (
    Target,
    TargetEncoding,
    check_same_rows,
    encode_sparse,
    is_sparse,
)
from polyleaf.metrics import Metric, default_metrics, get_metrics
from polyleaf.model import Model, serialize
from polyleaf.model.compiled_predictor import Predictor
from polyleaf.model.html import render_model
from polyleaf.model.serialize import Destination, ModelFileError, Source
from polyleaf.model.statistics import IMPORTANCE_KINDS
from polyleaf.objectives import Objective, get_objective, objective_class, objective_names
from polyleaf.runtime.context import Context, effective_threads
from polyleaf.runtime.cuda import get_device
from polyleaf.runtime.stored_names import from_stored, to_stored
from polyleaf.settings.aliases import (
    get_foreign_attribute_hint,
    get_foreign_value_hint,
    raise_unknown_parameters,
    suggest_on_unknown_kwargs,
    warn_if_called_on_instance,
)
from polyleaf.settings.param_spec import format_parameters
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS, SharedParameters
from polyleaf.settings.train_config import TrainConfig, make_train_config
from polyleaf.training.auto_n_estimators import RoundSearchResult, find_n_estimators, has_few_rows
from polyleaf.training.boosting import BoostResult, boost
from polyleaf.training.cross_fitting import TrainingRecord, quantile_shifts
from polyleaf.training.prepare import (
    VALIDATION,
    FeatureReader,
    PreparedData,
    Seeds,
    TrainingData,
    collect_eval_sets,
    prepare,
    set_feature_names,
)
from polyleaf.training.sampling import GlobalRowIds

__all__ = [
    "HAS_OFFSETS",
    "FitPlan",
    "PolyleafEstimator",
    "make_estimator_builder",
    "add_parameter_docs",
    "fill_docstring",
    "read_estimator",
]

_Class = TypeVar("_Class", bound=type)
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Estimator = TypeVar("_Estimator", bound="PolyleafEstimator")

# Typed, so that what `fit` returns is known to whoever checks types.
_checks_parameters: Callable[[_Method], _Method] = _fit_context(prefer_skip_nested_validation=True)


HAS_OFFSETS = "rows have offsets"  # in the metadata of a model that was trained with such

_ATTRIBUTES = """
model_ : polyleaf.Model
    The forest with its bins.
projection_ : polyleaf.sketching.projections.Projection or None
n_features_in_ : int
feature_names_in_ : ndarray of str
    Only where X had names.
n_outputs_ : int
    Outputs of the model: columns of y, labels, quantiles; 1 for one-dimensional targets and classes.
n_iter_ : int
    Rounds in the model.
best_iteration_ : int or None
    Round of the best score, from 0; None without early stopping.
best_score_ : float or None
evals_result_ : dict
    `{evaluation set: {metric: [value of each round]}}`.
evals_result_per_output_ : dict
    `{evaluation set: {metric: ndarray of shape (rounds, n_outputs)}}`, where there are several outputs and
    the metric means something for one of them alone.
feature_importances_ : ndarray of shape (n_features,)
    Share of each feature in the total gain, of a model that was saved without statistics in the splits.
""".strip("\n")


def add_parameter_docs(cls: _Class) -> _Class:
    """Fill in what the docstrings of both estimators have from elsewhere."""
    fill_docstring(cls, {"{parameters}": format_parameters(cls), "{attributes}": _ATTRIBUTES})
    return cls


def fill_docstring(cls: type, texts: Mapping[str, str]) -> None:
    """Put texts in the place of marks of a docstring, whose indentation Python 3.13 takes away already."""
    if cls.__doc__ is None:  # python -OO
        return
    cls.__doc__ = inspect.cleandoc(cls.__doc__)
    for mark, text in texts.items():
        cls.__doc__ = cls.__doc__.replace(mark, text)


class FitPlan(NamedTuple):
    """What a training is to be, settled before any feature is read.

    Attributes
    ----------
    settings : TrainConfig
    start : Model or None
        What training goes on from.
    objective : Objective
    metrics : list of Metric
        To measure on evaluation sets.
    seeds : Seeds
    """

    settings: TrainConfig
    start: Model | None
    objective: Objective
    metrics: list[Metric]
    seeds: Seeds

    def replace_n_estimators(self, n: int) -> FitPlan:
        """The same with so many rounds."""
        return self._replace(settings=self.settings.replace_n_estimators(n))


class PolyleafEstimator(ShapMixin, BaseEstimator, SharedParameters):
    """What regressor and classifier have in common."""

    if TYPE_CHECKING:  # declared by each for itself
        objective: Any

    @classmethod
    @functools.cache  # scikit-learn reads the signature each time, which a search of small models feels
    def _get_param_names(cls) -> list[str]:
        return super()._get_param_names()

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        **parameters
            Those of the constructor.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where there is no such parameter; of those of other libraries it says what they are called here.
        """
        names = [name.partition("__")[0] for name in parameters]
        try:
            raise_unknown_parameters(
                f"{type(self).__name__}.set_params", names, self._get_param_names()
            )
        except TypeError as error:  # scikit-learn's tools expect the other
            raise ValueError(str(error)) from None
        return super().set_params(**parameters)

    def _validate_params(self) -> None:
        """As scikit-learn does it, with a word to those whose library has another meaning for the value."""
        try:
            super()._validate_params()
        except InvalidParameterError as error:
            hints = (
                get_foreign_value_hint(name, value)
                for name, value in self.get_params(deep=False).items()
                if f"The {name!r} parameter" in str(error)
            )
            raise InvalidParameterError(f"{error}{''.join(hints)}") from None

    if not TYPE_CHECKING:  # or any name would do for type checkers

        def __getattr__(self, name: str) -> Any:
            words = get_foreign_attribute_hint(name)
            if words:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}: {words}"
                )
            return object.__getattribute__(self, name)  # raises what there was to be raised

    # --- fit -----------------------------------------------------------------------------------------

    @suggest_on_unknown_kwargs
    @_checks_parameters
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        eval_set: Any = None,
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Sequence[Any] | None = None,
        eval_offset: Sequence[Any] | None = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        offset_val: Any = None,
        callbacks: Any = None,
        init_model: Any = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix, pandas/polars/Arrow table of shape (n_rows, n_features), or polyleaf.Dataset
            NaN (null) is a missing value.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Classification: labels of any type, or an indicator matrix (dense, or sparse of SciPy
            or of pandas' Sparse columns). May be left out where X is a Dataset that holds it.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Weights of rows, or of each output of each row (not for multi-class).
        offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Raw scores that rows start from, which no tree has to learn (docs/offsets.md): logarithms of
            exposures for "poisson", say. In the unit of `predict_raw`; one column serves all outputs. To be
            given to predictions and evaluation sets as well.
        eval_set : list of (X, y), optional
            Data to measure metrics on after every round. X may be a Dataset binned with `reference=` the
            training's.
        eval_names : list of str, optional
            Names of these in `evals_result_`. Default: "validation_0", "validation_1", ...
        eval_sample_weight : list of array-like, optional
            Weights of these.
        eval_offset : list of array-like, optional
            Offsets of these.
        X_val, y_val, sample_weight_val, offset_val : optional
            One more evaluation set, called "validation", the last of all; not together with
            `validation_fraction`.
        callbacks : list, optional
            On top of those of the constructor.
        init_model : polyleaf.Model, fitted estimator, or path or content of a model file, optional
            Go on from this model: `n_estimators` more rounds. Its bins, labels and units are kept.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where data or parameters are not what they should be; the message says what and where.
        KeyboardInterrupt
            After Ctrl-C, as `on_interrupt` has it; the estimator is fitted with the rounds before it.
        """
        device = get_device(self.device)
        given = (
            TrainingData("training", X, y, sample_weight, offset)
            .fill_from_dataset()
            .copy_to_host(device)
        )
        val = TrainingData(VALIDATION, X_val, y_val, sample_weight_val, offset_val)
        holds_out = self.validation_fraction is not None
        further = collect_eval_sets(
            eval_set, eval_names, eval_sample_weight, eval_offset, val, holds_out
        )
        further = [data.copy_to_host(device) for data in further]
        return self._fit(given, further, callbacks, init_model)

    def _fit(
        self, given: TrainingData, further: list[TrainingData], callbacks: Any, init_model: Any
    ) -> Self:
        """Train on data, and watch others."""
        plan, target = self._make_plan(given, init_model)
        start, objective = plan.start, plan.objective
        given, *further = self._read_offsets([given, *further], target, objective, start)
        target = self._subtract_offset(target, given.offset, objective)
        n_threads = plan.settings.workers.n_threads
        auto_rounds_metric = self._auto_rounds_metric(
            plan, target, bool(further or as_callbacks(callbacks))
        )
        ready = prepare(
            self,
            given,
            target,
            further,
            plan.metrics,
            start,
            plan.seeds,
            n_threads,
            auto_rounds_metric,
        )
        base_score = self._scale_base_score(target.encoding, objective)
        if ready.trial is not None:
            found = self._find_n_estimators(plan, ready)
            if found.result.was_interrupted:
                self._store_result(found.result, target.encoding)
                return self
            plan = plan.replace_n_estimators(found.n_estimators)
        training = self._train(plan, ready, base_score, callbacks)
        self._after_training(training, ready, given)
        return self

    def _make_plan(self, given: TrainingData, init_model: Any) -> tuple[FitPlan, Target]:
        """What a training is to be, and what it is to learn."""
        start, n_threads = self._starting_model(init_model), effective_threads(self.n_jobs)
        rounds, seeds = self._rounds_to_do(start, init_model), self._seeds(start)
        settings = make_train_config(
            self,
            rounds,
            is_sparse(given.y),
            seeds.training,
            n_threads,
            device=get_device(self.device),
        )
        encode = self._encode_sparse_target if settings.has_sparse_targets else self._encode_target
        target = encode(given.y, given.weight, start)
        objective = self._objective(target, start)
        if given.weight is not None and target.weight is not None:
            warn_small_weights(target.weight, 2 * max(self.reg_lambda, self.min_child_weight))
        return FitPlan(
            settings, start, objective, self._make_metrics(objective, target), seeds
        ), target

    def _auto_rounds_metric(self, plan: FitPlan, target: Target, is_watched: bool) -> Metric | None:
        """What tells the number of rounds, the metric that is measured where the user names none; None where
        that is not to be found: somebody says it, watches them, or goes on.

        `is_watched`: evaluation sets or callbacks go with this fit.
        """
        said = self.n_estimators is not None or self.warm_start or plan.start is not None
        held_out = self.validation_fraction is not None or self.early_stopping_rounds is not None
        watched = is_watched or held_out or bool(as_callbacks(self.callbacks))
        elsewhere = self.projection is not None or plan.settings.workers.device is not None
        sparse = scipy.sparse.issparse(target.values)
        if said or watched or elsewhere or sparse or not has_few_rows(target.n_rows):
            return None
        return default_metrics(plan.objective, target.encoding.kind, target.encoding.n_outputs)[-1]

    def _find_n_estimators(self, plan: FitPlan, ready: PreparedData) -> RoundSearchResult:
        """How many rounds the trial of what is ready asks for."""
        assert ready.trial is not None
        base_score = self._scale_base_score(ready.target.encoding, plan.objective)
        about = self._model_extras(plan, ready)
        return find_n_estimators(ready.trial, plan.settings, plan.objective, base_score, **about)

    def _model_extras(self, plan: FitPlan, ready: PreparedData) -> dict[str, Any]:
        """What a model knows besides its trees."""
        encoding = ready.target.encoding
        scale, offset = _unit_of_scores(encoding, plan.objective)
        return {
            "target_scale": scale,
            "target_offset": offset,
            "output_names": self._score_names(encoding, plan.objective),
            "projection": ready.projection,
            "metadata": self._metadata(encoding, ready),
        }

    def _train(
        self,
        plan: FitPlan,
        ready: PreparedData,
        base_score: np.ndarray | None,
        callbacks: Any,
        numbered: GlobalRowIds | None = None,
        known: Model | None = None,
    ) -> TrainingRecord:
        """Train on what is ready, and take over the model."""
        settings, start, objective, target = plan.settings, plan.start, plan.objective, ready.target
        encoding, rounds = target.encoding, settings.boosting.n_estimators
        about = self._model_extras(plan, ready)
        if start is not None:
            unit = about["target_scale"], about["target_offset"]
            start = _to_go_on_from(start, unit, about["metadata"])
        offset = None if objective.is_translation_invariant else ready.offset
        with self._all_callbacks(
            callbacks, rounds, plan.metrics if ready.eval_sets else [], settings.workers
        ) as all_callbacks:
            trained = boost(
                ready.dataset,
                target.values,
                target.weight,
                objective,
                settings,
                eval_sets=ready.eval_sets,
                callbacks=all_callbacks,
                init_model=start,
                base_score=base_score,
                offset=offset,
                row_ids=numbered,
                resume_from=known,
                **about,
            )
        self._store_result(trained, encoding)
        data, n_rounds = (ready.dataset, target.values, target.weight), self._rounds(None)[1]
        scores = trained.model.output_names
        return TrainingRecord(
            *data, objective, settings, trained.learning_rates, n_rounds, base_score, offset, scores
        )

    def _after_training(
        self, training: TrainingRecord, ready: PreparedData, given: TrainingData
    ) -> None:
        """What is found out with a model that is trained: of quantiles where their levels are."""
        if self._is_calibrated(training.objective):
            self.model_.add_to_base_score(quantile_shifts(training))

    def _read_offsets(
        self, data: list[TrainingData], target: Target, objective: Objective, start: Model | None
    ) -> list[TrainingData]:
        """The data of a training, the rows to learn from first: all with read offsets, or all without."""
        is_continued = start is not None and bool(start.metadata.get(HAS_OFFSETS))
        check_all_or_none(
            [d.name for d in data], [d.offset is not None for d in data], is_continued
        )
        if data[0].offset is None:
            return data
        if scipy.sparse.issparse(target.values):
            raise ValueError(
                "offset needs a dense y: where y is sparse, raw scores are kept of few outputs of a row only."
            )
        reader = self._offset_reader(target.encoding, objective)
        read = [reader.read(data[0].offset, target.n_rows)]
        read += [reader.read(d.offset, name=f"offset of {d.name!r}") for d in data[1:]]
        return [d._replace(offset=offset) for d, offset in zip(data, read, strict=True)]

    @staticmethod
    def _subtract_offset(target: Target, offset: np.ndarray | None, objective: Objective) -> Target:
        """The target, less what rows start from where the loss is of their difference."""
        if offset is None or not objective.is_translation_invariant:
            return target
        return target.subtract_offset(offset[:, :: objective.outputs_per_target()])

    def _store_result(self, trained: BoostResult, encoding: TargetEncoding) -> None:
        """Take over what was trained, also where Ctrl-C has ended the training."""
        self._set_model(trained.model, encoding)
        self.evals_result_ = trained.evals_log
        self.evals_result_per_output_ = {
            name: {metric: np.array(rows) for metric, rows in metrics.items()}
            for name, metrics in trained.outputs_log.items()
        }
        if trained.was_interrupted:
            kept = f"Training was interrupted; the {trained.model.n_rounds} rounds that were complete are kept"
            if self.on_interrupt == "raise":
                raise KeyboardInterrupt(
                    f'{kept} by the estimator (on_interrupt="keep" returns them).'
                )
            warnings.warn(f"{kept}.", stacklevel=4)

    def _starting_model(self, init_model: Any) -> Model | None:
        if init_model is None:
            return self.model_ if self.warm_start and hasattr(self, "model_") else None
        if isinstance(init_model, PolyleafEstimator):
            check_is_fitted(init_model)
            init_model = init_model.model_
        elif isinstance(init_model, str | os.PathLike | bytes) or hasattr(init_model, "read"):
            init_model = Model.load(init_model)
        if not isinstance(init_model, Model):
            raise TypeError(
                "init_model must be a polyleaf.Model, a fitted estimator or the path of a model file, "
                f"got {type(init_model).__name__}."
            )
        made_by = init_model.metadata.get("estimator")
        if made_by != type(self).__name__:
            raise ValueError(
                f"init_model was trained by {made_by}, it cannot be continued by {type(self).__name__}."
            )
        return init_model

    def _rounds_to_do(self, start: Model | None, init_model: Any) -> int:
        wanted = DEFAULT_N_ESTIMATORS if self.n_estimators is None else self.n_estimators
        if start is None or init_model is not None:
            return wanted
        rounds = wanted - start.n_rounds
        if rounds < 0:
            raise ValueError(
                f"warm_start: n_estimators={wanted} is less than the {start.n_rounds} rounds "
                "that the model has."
            )
        return rounds

    def _objective(self, target: Target, start: Model | None) -> Objective:
        encoding = target.encoding
        objective = self._make_objective(target, start)
        self._check_unit(encoding, objective)
        if start is not None and start.objective.to_dict() != objective.to_dict():
            raise ValueError(
                f"The model to go on from was trained with objective {start.objective.to_dict()}, "
                f"not {objective.to_dict()}."
            )
        return objective

    @staticmethod
    def _check_unit(encoding: TargetEncoding, objective: Objective) -> None:
        """Refuse a unit that the objective's targets cannot be brought to."""
        if encoding.scale is not None and not objective.is_translation_invariant:
            allow = [
                name for name in objective_names() if objective_class(name).is_translation_invariant
            ]
            raise ValueError(
                f"normalize_targets=True moves targets, which objective {objective.name!r} does not allow: "
                f"it is for {', '.join(allow)}."
            )

    def _encode_sparse_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if self.missing_targets != "error":
            raise ValueError(
                'missing_targets="ignore" needs a dense y; sparse targets hold no missing values.'
            )
        like = None if start is None else TargetEncoding.from_dict(start.metadata, start.n_outputs)
        return encode_sparse(y, sample_weight, kind=self._sparse_kind, like=like)

    def _make_metrics(self, objective: Objective, target: Target) -> list[Metric]:
        chosen, encoding = self.eval_metric, target.encoding
        if scipy.sparse.issparse(target.values):
            return _ranking_metrics(
                get_metrics(("p@1", "p@3", "p@5") if chosen is None else chosen, objective)
            )
        if chosen is None:
            return default_metrics(objective, encoding.kind, encoding.n_outputs)
        return get_metrics(chosen, objective)

    @contextmanager
    def _all_callbacks(
        self, callbacks: Any, rounds: int, metrics: list[Metric], workers: Context
    ) -> Iterator[list[Any]]:
        """All callbacks of one training; those of the estimator are rank 0's. Whatever happens in it, no
        progress bar stays behind."""
        if workers.communicator.rank > 0:
            yield as_callbacks(callbacks)
            return
        chosen = self._chosen_callbacks(callbacks, metrics) + self._verbosity_callbacks(rounds)
        try:
            yield chosen
        finally:
            for callback in chosen:
                if isinstance(callback, ProgressBar):
                    callback.close()

    def _chosen_callbacks(self, callbacks: Any, metrics: list[Metric]) -> list[Any]:
        chosen = as_callbacks(self.callbacks) + as_callbacks(callbacks)
        if self.early_stopping_rounds is not None:
            if not metrics:
                raise ValueError(
                    "early_stopping_rounds needs data to evaluate on: pass eval_set=[(X, y)] or X_val and "
                    "y_val to fit, or set validation_fraction."
                )
            chosen.append(EarlyStopping(self.early_stopping_rounds))
        for callback in chosen:
            if isinstance(callback, EarlyStopping):
                callback.set_metrics(metrics)
        return chosen

    def _verbosity_callbacks(self, rounds: int) -> list[Any]:
        """What tells the user how training goes, as `verbose` has it."""
        verbose = self.verbose
        if verbose is None:
            interactive = hasattr(sys, "ps1") or sys.flags.interactive
            return [ProgressBar(rounds, delay=2.0)] if interactive else []
        if verbose == 1:
            return [ProgressBar(rounds, force=True)]
        return [EvaluationMonitor(int(verbose))] if verbose > 1 else []

    def _scale_base_score(
        self, encoding: TargetEncoding, objective: Objective
    ) -> np.ndarray | None:
        if self.base_score is None:
            return None
        n_outputs = objective.n_scores(encoding.n_outputs)
        try:
            score = np.asarray(self.base_score, np.float64).reshape(-1)
        except (TypeError, ValueError):  # no numbers
            score = np.empty(0)
        if score.size not in (1, n_outputs) or not np.all(np.isfinite(score)):
            raise ValueError(
                f"base_score must be a finite number or {n_outputs} of them, got {self.base_score}."
            )
        score = np.resize(score, n_outputs)
        scale, offset = _unit_of_scores(encoding, objective)
        return score if offset is None or scale is None else (score - offset) / scale

    def _complete_objective(self, objective: Any, n_outputs: int | None, **found: Any) -> Objective:
        """The objective with what the estimator knows: parameters for a name or a class (`found` in place of
        its own), the number of classes or labels, and whether any second derivative is needed."""
        parameters = {}
        if not isinstance(objective, Objective):
            given = {
                name: getattr(self, name, None) for name in objective_class(objective).parameters
            }
            given |= {name: value for name, value in found.items() if name in given}
            parameters = {name: value for name, value in given.items() if value is not None}
        first_order = self.hessian == self.leaf_hessian == "none"
        return get_objective(objective, **parameters).bind_outputs(n_outputs, first_order)

    def _metadata(self, encoding: TargetEncoding, ready: PreparedData) -> dict[str, Any]:
        """What a model file holds besides the model, so that the estimator can be made again."""
        metadata: dict[str, Any] = {} if ready.offset is None else {HAS_OFFSETS: True}
        if ready.projection is not None:  # the model's own names are those of projected features
            names = getattr(self, "feature_names_in_", None)
            metadata["input_names"] = None if names is None else [str(name) for name in names]
        return metadata | {
            "estimator": type(self).__name__,
            "parameters": to_stored(_plain_parameters(self.get_params(deep=False))),
            **encoding.to_dict(),
        }

    def _seeds(self, start: Model | None) -> Seeds:
        """Drawn in this order, and only for what uses chance, so that a generator is moved on no further."""
        learns_projection = self.projection is not None and (
            start is None or start.projection is None
        )
        held_out = self._seed() if self.validation_fraction is not None else 0
        return Seeds(held_out, self._seed() if learns_projection else 0, self._seed())

    def _seed(self) -> int:
        """An int stands for itself, so that a training that is taken up again goes on as it would have."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # --- fitted state --------------------------------------------------------------------------------

    def _set_model(self, model: Model, encoding: TargetEncoding) -> None:
        """Take over a model, trained or loaded."""
        self.model_ = model
        self.projection_ = model.projection
        self._encoding = encoding
        self.n_iter_ = model.n_rounds
        self.n_outputs_ = 1 if encoding.kind in ("binary", "multiclass") else model.n_outputs
        self.best_iteration_ = model.best_iteration
        self.best_score_ = model.best_score
        if encoding.classes is not None:
            self.classes_ = encoding.classes

    @classmethod
    def _from_model(cls, model: Model) -> Self:
        """The estimator that a model which was read from a file belongs to; ValueError where it is none's."""
        known, parameters = cls._get_param_names(), model.metadata.get("parameters")
        if not isinstance(parameters, dict):
            raise ValueError("The metadata name no parameters.")
        # An objective that is no name is not among the parameters that a file holds, but the model's is.
        given = {"objective": cls._objective_parameter(model), **from_stored(parameters)}
        estimator = cls(**{name: value for name, value in given.items() if name in known})
        estimator._validate_params()
        effective_threads(estimator.n_jobs)  # scikit-learn takes True and 0 for numbers of threads
        encoding = decode_target_encoding(model.metadata, model.n_outputs)
        cls._check_agreement(model, encoding)
        if model.projection is None:
            set_feature_names(estimator, model.mapper.n_features_, model.mapper.feature_names_)
        else:
            names = model.metadata.get("input_names")
            _check_input_names(names, model.projection.n_features)
            set_feature_names(estimator, model.projection.n_features, names)
        estimator._set_model(model, encoding)
        estimator.evals_result_, estimator.evals_result_per_output_ = model.evals_log, {}
        return estimator

    @classmethod
    def _objective_parameter(cls, model: Model) -> Any:
        """What the parameter was, as far as the model says it."""
        return model.objective

    @classmethod
    def _check_agreement(cls, model: Model, encoding: TargetEncoding) -> None:
        """Of what a file says: kind of target, objective and scores must be such as this class trains."""
        objective = model.objective
        classes = encoding.kind == "multiclass" and not encoding.one_vs_rest
        learns = "values" if encoding.kind == "regression" else "classes" if classes else "labels"
        if encoding.kind not in cls._kinds or learns not in objective.target_kinds:
            raise ValueError(
                f"A {cls.__name__} does not learn a target of kind {encoding.kind!r} with objective "
                f"{objective.name!r}."
            )
        if objective.n_scores(encoding.n_outputs) != model.n_outputs:
            raise ValueError(
                f"Targets of {encoding.n_outputs} outputs do not have the model's {model.n_outputs} scores."
            )

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._fitted_html()
        return bundle

    def _fitted_html(self) -> str:
        """What stands below scikit-learn's picture of the parameters: the model, and its first curve."""
        if not hasattr(self, "model_"):
            return ""
        for of_set, metrics in self.evals_result_.items():
            for metric, curve in metrics.items():
                return render_model(self.model_, curve, f"{of_set}, {metric}")
        return render_model(self.model_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags

    # --- prediction ----------------------------------------------------------------------------------

    def _rounds(self, iteration_range: tuple[int, int] | None) -> tuple[int, int]:
        """First and last round (exclusive) to predict with."""
        if "model_" not in vars(self):  # scikit-learn's own question takes as long as a row
            check_is_fitted(self)
        if iteration_range is None:
            best = self.model_.best_iteration
            return 0, self.model_.n_rounds if best is None else best + 1
        try:
            begin, end = iteration_range
            begin, end = index(begin), 0 if end is None else index(end)
        except (TypeError, ValueError):
            raise TypeError(
                "iteration_range is a pair (first, last) of rounds, whole numbers, the last not being used; "
                f"got {iteration_range!r}. The first n rounds are (0, n), all of them (0, 0)."
            ) from None
        return begin, end or self.model_.n_rounds

    def _features(self, X: Any, n_threads: int | None = None) -> FeatureTable:
        """X as a checked table that agrees with the training data."""
        reader = FeatureReader(self, self.model_.projection, n_threads or self._n_threads())
        return reader.read_new(X, self.model_.mapper)

    def _n_threads(self) -> int:
        return effective_threads(self.n_jobs)

    def _raw(
        self, X: Any, iteration_range: tuple[int, int] | None, offset: Any = None
    ) -> np.ndarray:
        """Raw scores (n_rows, n_scores), float64."""
        first, last = self._rounds(iteration_range)
        n_threads = self._n_threads()
        data = X if isinstance(X, Dataset) else self._features(X, n_threads)
        raw = self.model_.predict_raw(data, first, last, n_threads)
        if offset is None and isinstance(X, Dataset):
            offset = X.offset
        return raw if offset is None else raw + self._offsets(offset, len(raw))

    def _staged_raw(
        self, X: Any, iteration_range: tuple[int, int] | None, offset: Any = None
    ) -> Iterator[np.ndarray]:
        first, last = self._rounds(iteration_range)
        table = self._features(X)
        stages = self.model_.staged_predict_raw(table, first, last, self._n_threads())
        if offset is None:
            return stages
        start = self._offsets(offset, table.n_rows)
        return (raw + start for raw in stages)

    def _offsets(self, offset: Any, n_rows: int) -> np.ndarray:
        return self._offset_reader(self._encoding, self.model_.objective).read(offset, n_rows)

    @staticmethod
    def _offset_reader(encoding: TargetEncoding, objective: Objective) -> Any:
        return OffsetReader(encoding, objective.n_scores(encoding.n_outputs), objective.offset_mask)

    def set_output(self, *, predict: Library = "default") -> Self:
        """Choose what predictions of several columns come in.

        Parameters
        ----------
        predict : {"default", "pandas", "polars", "pyarrow"}
            What `predict`, `predict_proba`, `predict_log_proba`, `predict_raw` and `decision_function` give
            where they have two dimensions: an array, or a table whose columns have the names of those of y,
            or of the classes. Tables of pandas have the index of X.

        Returns
        -------
        self
        """
        check_library(predict)
        self._sklearn_output_config = {"predict": predict}  # which `clone` copies
        return self

    def _wrap_output(self, values: Any, names: Callable[[], Sequence[str]], X: Any) -> Any:
        library = vars(self).get("_sklearn_output_config", {}).get("predict", "default")
        return values if library == "default" else as_table(library, values, names(), X)

    def _get_score_names(self) -> list[str]:
        return [self.model_.output_name(i) for i in range(self.model_.n_outputs)]

    def _get_prediction_names(self) -> list[str]:
        return self._get_score_names()

    @suggest_on_unknown_kwargs
    def predict_raw(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> np.ndarray:
        """Raw scores: base score and leaves, before the objective's link makes predictions of them.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_scores); float64
            One-dimensional where there is one score, and y had one dimension. Logarithms of means for
            "poisson", "gamma" and "tweedie", log-odds for "logistic", in the unit of y without a link.
        """
        raw = self._raw(X, iteration_range, offset)
        flat = self._encoding.one_dimensional and raw.shape[1] == 1
        return raw[:, 0] if flat else self._wrap_output(raw, self._get_score_names, X)

    @suggest_on_unknown_kwargs
    def predict(
        self,
        X: Any,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: Any = None,
        sparse: bool = False,
    ) -> np.ndarray | scipy.sparse.csr_matrix:
        """Predict.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            Use rounds `begin .. end - 1`. An end of 0 stands for the last round, as in XGBoost: (0, 0) is all
            rounds. Default: all, or up to the best one where early stopping chose one.
        offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Raw scores that rows start from, as in `fit`. Default: that of X, where it is a Dataset with one;
            otherwise 0, whatever `fit` was given.
        sparse : bool
            Never make all outputs of a row. For models whose leaves are sparse, trained on targets that are 0
            where no tree says otherwise (multi-label or regression with `split_search` "count_sketch" or "exact").

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_outputs) where y had two dimensions
            Regression: float64. Classification: labels; multi-label: int64 indicators. With `sparse` a
            csr_matrix of the same values. Tables as `set_output` has it.
        """
        if sparse and offset is not None:
            raise ValueError(
                "predict(sparse=True) makes few outputs of a row, but an offset is of all."
            )
        if sparse:
            return self._sparse_prediction(X, iteration_range)
        predicted = self._prediction(self._raw(X, iteration_range, offset))
        return self._wrap_output(predicted, self._get_prediction_names, X)

    def _to_score(
        self, X: Any, y: Any, sample_weight: Any, offset: Any = None
    ) -> tuple[Target, np.ndarray]:
        """y as training reads it, in its own unit, and what is predicted for X, (n_rows, n_outputs)."""
        check_is_fitted(self)
        target = self._encoding.encode(y, sample_weight, normalized=False)
        predicted = self._prediction(self._raw(X, None, offset))
        check_same_rows(len(predicted), target.n_rows)
        return target, predicted.reshape(target.n_rows, -1)

    def predictor(
        self,
        method: Literal["predict", "predict_proba", "decision_function"] = "predict",
        n_threads: int = 1,
        device: Literal["cpu", "cuda"] | None = None,
    ) -> Predictor:
        """A frozen predictor for a row of numbers, or a few, in one call of the core: for services.

        Parameters
        ----------
        method : {"predict", "predict_proba", "decision_function"}
            What a call gives. The last two are a classifier's.
        n_threads : int
            For several rows.
        device : {"cpu", "cuda"}, optional
            Where rows walk down the trees, to the same bits. None: on the processor. "cuda"
            (docs/gpu.md) is for very many rows of a model whose leaves are constants.

        Returns
        -------
        Predictor
            `predictor(rows)` gives the bits of the method, of rows (n_rows, n_features) or of one
            (n_features,). Fitting the estimator again does not change it.

        Examples
        --------
        >>> from polyleaf import PolyleafRegressor
        >>> from sklearn.datasets import make_regression
        >>> X, Y = make_regression(n_targets=3, random_state=0)
        >>> model = PolyleafRegressor(n_estimators=20, min_child_samples=5).fit(X, Y)
        >>> bool((model.predictor()(X[0]) == model.predict(X[:1])[0]).all())
        True
        """
        last = self._rounds(None)[1]
        frozen = copy.copy(self)
        frozen.model_ = self.model_.copy()
        frozen.model_.truncate(last)
        finishes = frozen._output_methods()
        if method not in finishes:
            raise ValueError(
                f"method={method!r} is not what this model gives; it must be one of "
                f"{', '.join(map(repr, finishes))}."
            )
        is_identity = method == "predict" and self._predicts_scores()
        return Predictor(frozen.model_, finishes[method], n_threads, device, is_identity)

    def _predicts_scores(self) -> bool:
        """Whether predictions are raw scores as they are."""
        return False

    def _output_methods(self) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
        """What each method makes of raw scores."""
        return {"predict": self._prediction}

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        names: bool = False,
        iteration_range: tuple[int, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best outputs of each row. With sparse leaves the work does not depend on the number of
        outputs.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        k : int
        names : bool
            Outputs by the names that y's columns had, or that `model_.output_names` was set to.
        iteration_range : (int, int), optional
            As in `predict`.

        Returns
        -------
        labels : ndarray of shape (n_rows, k)
            Best first, ties by number: multi-class: classes; multi-label and regression: int64 numbers of
            outputs. -1, for classes None, where there are fewer than k, or with sparse leaves fewer that any
            tree has voted for. With `names`: str, and "" where there are fewer.
        scores : ndarray of shape (n_rows, k), float64
            Raw scores, as `decision_function` has them; -inf where there is none.

        Raises
        ------
        ValueError
            For two classes, which have one score, and for `names` where outputs have none.
        """
        check_is_fitted(self)
        if self._encoding.kind == "binary":
            raise ValueError(
                "predict_topk ranks outputs, but two classes have one score; use decision_function."
            )
        known = tuple(self.model_.output_names or ())
        if names and not known:
            raise ValueError(
                "The outputs of this model have no names: fit it on a data frame, or set model_.output_names."
            )
        first, last = self._rounds(iteration_range)
        outputs, scores = self.model_.predict_topk(
            self._features(X), k, first, last, self._n_threads()
        )
        if names:
            return np.array([*known, ""])[outputs], scores  # -1 is the last
        classes = self._encoding.classes
        if classes is None or self._encoding.kind == "multilabel":
            return outputs.astype(np.int64), scores
        if (outputs >= 0).all():
            return classes[outputs], scores
        named = classes.astype(object)[outputs]
        named[outputs < 0] = None
        return named, scores

    def _sparse_prediction(
        self, X: Any, iteration_range: tuple[int, int] | None
    ) -> scipy.sparse.csr_matrix:
        first, last = self._rounds(iteration_range)
        objective, base = self.model_.objective, self.model_.base_score
        if (
            objective.sparse_base_score is None
            or (base != objective.sparse_base_score).any()
            or self.model_.target_scale is not None
        ):
            raise ValueError(
                "predict(sparse=True) is for models trained on sparse targets: predictions of this one are "
                "not 0 where no tree says otherwise. Use predict_topk, or predict(sparse=False)."
            )
        scores = self.model_.predict_sparse(self._features(X), first, last, self._n_threads())
        scores.data = self._prediction_of_scores(scores.data)
        scores.eliminate_zeros()
        return scores

    def staged_predict(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> Iterator[np.ndarray]:
        """Yield what `predict` gives after each round of `iteration_range`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`.

        Yields
        ------
        ndarray of shape (n_rows,), or (n_rows, n_outputs) where y had two dimensions
            The last one is what `predict` gives; of PolyleafMultiTask a dict of these by task. Never a table.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        return map(self._prediction, self._staged_raw(X, iteration_range, offset))

    def apply(self, X: Any, *, iteration_range: tuple[int, int] | None = None) -> np.ndarray:
        """The leaf that each row falls into in each tree.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_trees), int32
            Ids, which count from 0 in each tree, of the trees of these rounds only.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        rounds = self._rounds(iteration_range)
        return self.model_.apply(self._features(X), *rounds, self._n_threads())

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each feature in the total gain, float64 (n_features,); of a model that was saved without
        (`statistics=False`) in the number of splits."""
        check_is_fitted(self)
        sums = self.feature_importance("gain" if self.model_.has_statistics else "split")
        total = sums.sum()
        return sums / total if total > 0 else sums

    def feature_importance(
        self,
        kind: Literal["gain", "split", "cover", "shap"] = "gain",
        per_output: bool = False,
        X: Any = None,
    ) -> np.ndarray:
        """What each feature does in the splits of all trees (sums, not normalised), or to raw scores.

        Parameters
        ----------
        kind : {"gain", "split", "cover", "shap"}
            Gain averaged over outputs; number of splits; summed curvature of the rows they split; mean
            magnitude of the contributions (`shap_values`) to the raw scores of the rows of X.
        per_output : bool
            Each output for itself ("gain" and "shap" only).
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features), optional
            "shap" only: the rows, of a test set say.

        Returns
        -------
        ndarray of shape (n_features,), or (n_outputs, n_features); float64
            Of a feature of more than 255 categories the sum over the columns that stand for it; those are
            told apart by `model_.feature_importance`.
        """
        check_is_fitted(self)
        if not isinstance(kind, str):
            raise TypeError(
                f"kind is a word such as 'gain', not {type(kind).__name__}; rows are given as X=."
            )
        if kind == "shap":
            if X is None:
                raise ValueError("Importance of kind='shap' is that for some rows: pass them as X.")
            magnitude = mean_abs_shap(iter_shap_values(self, X))
            return magnitude if per_output else magnitude.mean(axis=0)
        if kind not in IMPORTANCE_KINDS:
            raise ValueError(
                f"kind={kind!r} is unknown; it must be one of {', '.join(IMPORTANCE_KINDS)}, shap."
            )
        return self.model_.mapper.sum_by_feature(self.model_.feature_importance(kind, per_output))

    def report(self, X: Any, y: Any, *, offset: Any = None, title: str | None = None) -> Any:
        """What the model is and how good it is on these rows, on one page of HTML.

        Parameters
        ----------
        X, y
            Rows that training did not see.
        offset : optional
            As in `predict`: for a model that was trained with one.
        title : str, optional
            Of the page.

        Returns
        -------
        polyleaf.inspection.Report
            `save(path)` writes it; notebooks show it. See :func:`polyleaf.inspection.make_report`.
        """
        # By name: the page is drawn on a floor above, which is needed by whoever asks for it only.
        return importlib.import_module("polyleaf.inspection.report").make_report(
            self, X, y, offset=offset, title=title
        )

    # --- files ---------------------------------------------------------------------------------------

    @overload
    def save_model(
        self,
        path: Destination,
        *,
        leaf_dtype: str = ...,
        statistics: bool = ...,
        best_only: bool = ...,
    ) -> None: ...

    @overload
    def save_model(
        self,
        path: None = ...,
        *,
        leaf_dtype: str = ...,
        statistics: bool = ...,
        best_only: bool = ...,
    ) -> bytes: ...

    def save_model(
        self,
        path: Destination | None = None,
        *,
        leaf_dtype: str = "float32",
        statistics: bool = True,
        best_only: bool = False,
    ) -> bytes | None:
        """Write the model to a file that cannot run code, for `load_model`.

        The file has the forest, the bins, labels and units, `evals_result_`, and those parameters of the
        estimator that are plain values. Written beside and renamed: an old file stays whole until the new
        one is.

        Parameters
        ----------
        path : str, path or open binary file, optional
            None: the content is returned instead. Not a name that ends in ".json", which the file is not.
        leaf_dtype : {"float32", "float16", "int8"}
            Leaf values as they are, or rounded; :func:`polyleaf.inspection.model_summary.leaf_dtype_report` measures what that
            saves and costs.
        statistics : bool
            False leaves out gains, numbers of rows and curvatures of the nodes, which importances need and
            predictions do not.
        best_only : bool
            After early stopping, leave out the rounds after the best one: what is predicted by default stays.

        Returns
        -------
        bytes or None

        Raises
        ------
        OSError
            When the file cannot be written.
        ValueError
            When class labels are neither strings, numbers nor booleans, leaf values do not fit `leaf_dtype`,
            or the name is one of another format.
        """
        check_is_fitted(self)
        model, best = self.model_, self.model_.best_iteration
        if best_only and best is not None:
            model = model.copy()
            model.truncate(best + 1)
        data = model.to_bytes(leaf_dtype, statistics, self.evals_result_)
        if path is None:
            return data
        serialize.write(path, data)
        return None

    @warn_if_called_on_instance
    @classmethod
    def load_model(cls, path: Source) -> Self:
        """Read a fitted estimator of this class from a file: `m = PolyleafRegressor.load_model(path)`.

        Called on an estimator it leaves that one as it is, and warns.

        Parameters
        ----------
        path : str, path, bytes or open binary file

        Returns
        -------
        PolyleafRegressor, PolyleafClassifier or PolyleafMultiTask
            A new one of the class.

        Raises
        ------
        ModelFileError (a ValueError)
            When the file is no model file, damaged, or holds a model of another estimator.
        MemoryError
            When there is not enough memory for it, which says nothing against the file.
        """
        return read_estimator(path, {cls.__name__: cls})

    # --- by subclass ---------------------------------------------------------------------------------

    _sparse_kind: ClassVar[Literal["multilabel", "regression"]]
    _kinds: ClassVar[tuple[str, ...]]  # of targets

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        raise NotImplementedError

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        """Predictions of single outputs from their raw scores, where targets were sparse."""
        raise NotImplementedError

    def _make_objective(self, target: Target, start: Model | None) -> Objective:
        raise NotImplementedError

    def _is_calibrated(self, objective: Objective) -> bool:
        """Whether what is learned is quantiles, which are to be moved to their levels."""
        return False

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str] | None:
        raise NotImplementedError

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def read_estimator(path: Source, classes: Mapping[str, type[_Estimator]]) -> _Estimator:
    """The fitted estimator of a file: one of these classes, by name.

    Raises
    ------
    ModelFileError (a ValueError)
        Where the file is no model file, damaged, does not describe an estimator, or one of another class.
    """
    return serialize.read(path, make_estimator_builder(classes))


def make_estimator_builder(
    classes: Mapping[str, type[_Estimator]],
) -> Callable[[serialize.Header, serialize.Arrays], _Estimator]:
    """What makes an estimator of one of these classes of a file's content."""

    def build(header: serialize.Header, arrays: serialize.Arrays) -> _Estimator:
        model = Model.from_state(header, arrays)
        made_by = model.metadata.get("estimator")
        if not isinstance(made_by, str):
            raise ModelFileError(
                "it holds a model that no estimator wrote: read it with polyleaf.Model.load."
            )
        if made_by not in classes:
            raise ModelFileError(
                f"it holds a {made_by}, not a {' or '.join(classes)}: read it with {made_by}.load_model."
            )
        return classes[made_by]._from_model(model)

    return build


def has_levels(objective: Objective) -> bool:
    """Whether some scores are quantiles other than medians, which calibration moves."""
    levels = objective.score_quantile_levels(objective.n_scores(1))
    return bool((np.abs(levels - 0.5) > 0).any())


def _check_input_names(names: Any, n_features: int) -> None:
    right = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (right and len(names) == n_features):
        raise ValueError(f"The metadata must name {n_features} features of X, or none.")


def _unit_of_scores(
    encoding: TargetEncoding, objective: Objective
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Scale and offset of each raw score, where targets are learned in their own unit."""
    if encoding.scale is None or encoding.offset is None:
        return None, None
    return objective.score_scaling(encoding.scale, encoding.offset)


def _to_go_on_from(
    start: Model, unit: tuple[np.ndarray | None, np.ndarray | None], metadata: dict[str, Any]
) -> Model:
    """A copy of a model that training may go on from, without what calibrations have made of it."""
    model = start.copy()
    model.set_target_scale(*unit)  # without the shifts of its quantiles
    forget(model)
    if metadata.get(HAS_OFFSETS):
        model.metadata[HAS_OFFSETS] = True
    return model


def _ranking_metrics(metrics: list[Metric]) -> list[Metric]:
    """The metrics, where all of them need no more than the best outputs of a row."""
    for metric in metrics:
        if not hasattr(metric.function, "k"):
            raise ValueError(
                f"eval_metric={metric.name!r} needs all outputs of a row, which sparse targets do not have; "
                'use "p@5", "ndcg@5", "psp@5" or "psndcg@5", with any number of places.'
            )
    return metrics


def _plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that JSON can hold; functions, callbacks and random generators are left out."""
    return {
        name: value
        for name, given in parameters.items()
        if (value := _plain(given)) is not _NOT_PLAIN
    }


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        of_keys = {key: _plain(entry) for key, entry in value.items()}
        return _NOT_PLAIN if any(entry is _NOT_PLAIN for entry in of_keys.values()) else of_keys
    if isinstance(value, list | tuple):
        entries = [_plain(entry) for entry in value]
        return _NOT_PLAIN if any(entry is _NOT_PLAIN for entry in entries) else entries
    return _NOT_PLAIN
