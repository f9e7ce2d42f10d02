"""Base class of the estimators: `fit` and the contract of scikit-learn.

Fitting is in `_fitting.py` and, as far as it needs no estimator, in `polyleaf.training.fit`;
predictions are in `_prediction.py`, files in `_persistence.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, overload

from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import InvalidParameterError, validate_parameter_constraints
from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators._fitting import fit_estimator, refit_estimator
from polyleaf.estimators._persistence import find_unsaved, read_estimator
from polyleaf.estimators._prediction import ShapMixin
from polyleaf.model import Model, serialize
from polyleaf.model.html import render_model
from polyleaf.model.serialize import Destination, Source
from polyleaf.objectives import Objective
from polyleaf.objectives.registry import ResolvedObjective, resolve_objective
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.compatibility import add_version, remove_version
from polyleaf.runtime.cuda import get_device, is_device_array
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.aliases import (
    get_foreign_value_hint,
    raise_unknown_parameters,
    read_foreign_names,
    warn_if_called_on_instance,
)
from polyleaf.settings.param_spec import suggest_on_unknown_kwargs
from polyleaf.settings.parameters import SharedParameters
from polyleaf.training.cross_fitting import quantile_shifts
from polyleaf.training.fit import check_scaling
from polyleaf.training.prepare import VALIDATION, collect_eval_sets
from polyleaf.training.refit import check_decay_rate
from polyleaf.training.training_run import TrainingData, TrainingRun
from polyleaf.user_data.multitask import decode_target_encoding
from polyleaf.user_data.target import Target, TargetEncoding, encode_sparse

if TYPE_CHECKING:
    import numpy as np
    from sklearn.utils import Tags

    from polyleaf.metrics.metric import EvalsLog
    from polyleaf.runtime.types import DataLike


_Method = TypeVar("_Method", bound=Callable[..., object])

_checks_parameters: Callable[[_Method], _Method] = _fit_context(prefer_skip_nested_validation=True)


class PolyleafEstimator(ShapMixin, BaseEstimator, SharedParameters):
    """Base class of regressors, classifiers and multi-task models."""

    # --- hooks of subclasses ---

    _sparse_kind: ClassVar[Literal["multilabel", "regression"]]
    _kinds: ClassVar[tuple[str, ...]]  # kinds of targets
    _learned_numbers: ClassVar[str] = "values"  # what objectives call targets that are numbers

    if TYPE_CHECKING:
        n_features_in_: int
        feature_names_in_: np.ndarray
        evals_result_: EvalsLog
        evals_result_per_output_: dict[str, dict[str, np.ndarray]]
        fit_times_: dict[str, float]
        # An int and a float after early stopping, else None: so that they need no check.
        best_iteration_: Any
        best_score_: Any

        # Each subclass has its own.
        objective: Any

        def _encode_target(
            self,
            rows: RowData,
            old_model: Model | None,
            resolved: ResolvedObjective,
            ranks: Communicator = SINGLE_PROCESS,
        ) -> Target: ...
        def _make_objective(
            self,
            target: Target,
            old_model: Model | None,
            resolved: ResolvedObjective,
            ranks: Communicator = SINGLE_PROCESS,
        ) -> Objective: ...
        def _score_names(
            self, encoding: TargetEncoding, objective: Objective
        ) -> list[str] | None: ...

    def _resolve_objective(self) -> ResolvedObjective:
        """Resolve the parameter `objective`; None if it depends on the target."""
        return resolve_objective(self.objective)

    def _get_encoding(self, old_model: Model) -> TargetEncoding:
        """Return the encoding of the targets of a model to continue, or to refit."""
        encoding = decode_target_encoding(old_model.metadata, old_model.n_outputs)
        return encoding.replace_missing(self.missing_targets)

    def _encode_sparse_target(
        self, rows: RowData, old_model: Model | None, ranks: Communicator = SINGLE_PROCESS
    ) -> Target:
        like = (
            None
            if old_model is None
            else TargetEncoding.from_dict(old_model.metadata, old_model.n_outputs)
        )
        return encode_sparse(rows, kind=self._sparse_kind, like=like, ranks=ranks)

    _check_scaling = staticmethod(check_scaling)

    def _is_calibrated(self, objective: Objective) -> bool:
        """Whether the objective learns quantiles that are to be calibrated."""
        return False

    def _is_cross_fitted(self, objective: Objective, has_evaluation: bool) -> bool:
        """Whether models of folds are trained to calibrate the fitted model."""
        return self._is_calibrated(objective)

    def _after_training(self, run: TrainingRun) -> None:
        """Calibrate the fitted model."""
        if self._is_calibrated(run.objective):
            self.model_.add_to_base_score(quantile_shifts(run))

    def _calibration_metadata(self, encoding: TargetEncoding) -> dict[str, object]:
        """Return metadata that parameters give before training."""
        return {}

    @classmethod
    def _objective_parameter(cls, model: Model) -> object:
        """Return the parameter `objective` as far as the model stores it."""
        return model.objective

    @classmethod
    def _check_agreement(cls, model: Model, encoding: TargetEncoding) -> None:
        """Check that target kind, objective and scores of a file belong to this class."""
        objective = model.objective
        learns = "classes" if encoding.has_class_ids else "labels"
        learns = cls._learned_numbers if encoding.kind == "regression" else learns
        if encoding.kind not in cls._kinds or learns not in objective.target_kinds:
            raise ValueError(
                f"A {cls.__name__} does not learn a target of kind {encoding.kind!r} with "
                f"objective {objective.name!r}."
            )
        if objective.n_scores(encoding.n_outputs) != model.n_outputs:
            raise ValueError(
                f"Targets with {encoding.n_outputs} outputs do not have the model's "
                f"{model.n_outputs} scores."
            )

    # --- fit ---

    @suggest_on_unknown_kwargs
    @_checks_parameters
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
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Sequence[object] | None = None,
        eval_offset: Sequence[object] | None = None,
        X_val: DataLike | None = None,
        y_val: DataLike | None = None,
        sample_weight_val: DataLike | None = None,
        offset_val: DataLike | None = None,
        callbacks: object = None,
        init_model: object = None,
        init_scores: DataLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix, pandas/polars/Arrow table or polyleaf.Dataset
            Features of shape (n_rows, n_features). NaN (null) is a missing value.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Classification: labels of any type; an indicator matrix (dense, or sparse of SciPy or of
            pandas' Sparse columns); or shares of the classes, with rows that sum to 1, if it has
            fractions or `objective="softmax"`. One column counts as one dimension: predictions have
            shape (n_rows,). Optional if X is a Dataset with y.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Weights of rows, or of each output of each row (not for multiclass).
        offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Initial raw scores of the rows (XGBoost: base_margin), such as the logarithm of exposure
            for "poisson". In the unit of `predict_raw`; one column applies to all outputs. To be
            passed to predictions and evaluation sets as well.
        groups : array-like of shape (n_rows,), optional
            Groups of rows, such as patients, that the splits of this fit keep together:
            `validation_fraction`, the automatic number of rounds, and the folds of calibrated
            quantiles and thresholds. Copies of a row are always kept together.
        time : array-like of shape (n_rows,), optional
            Time of the rows, as numbers, dates or text of ISO dates: these splits then train on
            earlier rows than they evaluate on.
        eval_set : list of (X, y), optional
            Evaluation sets, on which metrics are computed after every round. X may be a Dataset
            that was binned with `reference=` the training Dataset.
        eval_names : list of str, optional
            Names of the evaluation sets in `evals_result_`. Default: "validation_0",
            "validation_1", ...
        eval_sample_weight : list of array-like, optional
            Weights of the evaluation sets.
        eval_offset : list of array-like, optional
            Offsets of the evaluation sets.
        X_val, y_val, sample_weight_val, offset_val : optional
            Another evaluation set, named "validation" and last; cannot be combined with
            `validation_fraction`.
        callbacks : list, optional
            Callbacks in addition to those of the constructor.
        init_model : polyleaf.Model, fitted estimator, or path or content of a model file, optional
            Model to continue with `n_estimators` more rounds. Its bins, labels and scaling of
            targets are kept, and all its rounds, those after the best one of early stopping
            included. It is widened, with a warning, by classes, labels and targets that only y has,
            and by columns that X has after those of the model (not with Dask): see the guide to
            refits. With the same data, parameters and callbacks the result is that of one
            training, which may have ended already: then no rounds are added.
        init_scores : array-like of shape (n_rows, n_outputs), or sparse matrix, optional
            Out-of-fold raw scores of the training rows by models like `init`, which is then fitted
            already and used as it is. Default: computed by five-fold cross-fitting of `init`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid.
        KeyboardInterrupt
            After Ctrl-C, depending on `on_interrupt`; the estimator has the complete rounds.
        """
        data = TrainingData("training", X, RowData(y, sample_weight, offset, groups, time))
        val = TrainingData(VALIDATION, X_val, RowData(y_val, sample_weight_val, offset_val))
        is_held_out = self.validation_fraction is not None
        eval_data = collect_eval_sets(
            eval_set, eval_names, eval_sample_weight, eval_offset, val, is_held_out
        )
        return self._fit_data(data, eval_data, callbacks, init_model, init_scores)

    def _fit_data(
        self,
        data: TrainingData,
        eval_data: list[TrainingData],
        callbacks: object,
        init_model: object,
        init_scores: DataLike | None = None,
    ) -> Self:
        """Fit the model to data as the user passed them."""
        data = data.fill_from_dataset()
        device = get_device(self.device)
        if device is not None:
            data, *eval_data = [d.copy_to_host(device) for d in (data, *eval_data)]
        data, *eval_data = [self._read_rows(d) for d in (data, *eval_data)]
        return fit_estimator(self, data, eval_data, callbacks, init_model, init_scores)

    def _read_rows(self, data: TrainingData, ranks: Communicator = SINGLE_PROCESS) -> TrainingData:
        """Read what belongs to rows before y is read; only a ranking has queries."""
        return data if data.rows.query is None else data.replace_rows(query=None)

    @suggest_on_unknown_kwargs
    def refit(
        self,
        X: DataLike,
        y: DataLike | None = None,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
        groups: Any = None,
        time: Any = None,
        decay_rate: float = 0.0,
        recalibrate: bool = False,
    ) -> Self:
        """Fit the leaf values anew on other rows; the splits of the trees stay.

        Trees are refitted one after another, each on the errors of those before it, as in `fit`,
        with the same parameters. On the rows of the training the result is the same model, bit for
        bit. A leaf that no row reaches keeps its old value. New classes, labels and targets of y
        get outputs, with a warning.

        Parameters
        ----------
        X, y, sample_weight, offset, groups, time
            As in `fit`. A Dataset must have the bins of the model: `reference=model_.mapper`.
            Groups and time serve the folds of `recalibrate`.
        decay_rate : float, default 0
            From 0 to 1: the share of the old base scores and leaf values in the new ones.
        recalibrate : bool, default False
            Calibrate quantiles and choose the threshold "f1" on these rows, as `fit` does.
            Otherwise they are dropped with a warning, and so are calibrated intervals.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data do not match the model, or `decay_rate` is out of range.
        """
        rows = RowData(y, sample_weight, offset, groups, time)
        return self._refit_data(TrainingData("training", X, rows), decay_rate, recalibrate)

    def _refit_data(self, data: TrainingData, decay_rate: float, recalibrate: bool = False) -> Self:
        """Refit the leaves to data as the user passed them."""
        check_is_fitted(self)
        check_decay_rate(decay_rate)
        self._validate_params()
        data = data.fill_from_dataset()
        if is_device_array(data.X):
            refuse("device_array", "refit")
        device = get_device(self.device)
        if device is not None:
            data = data.copy_to_host(device)
        return refit_estimator(self, self._read_rows(data), float(decay_rate), recalibrate)

    def _set_model(self, model: Model, encoding: TargetEncoding) -> None:
        """Set fitted attributes from a model."""
        self.model_ = model
        self._encoding = encoding
        self.n_iter_ = model.n_rounds
        self.n_outputs_ = 1 if encoding.kind in ("binary", "multiclass") else model.n_outputs
        self.best_iteration_ = model.best_iteration
        self.best_score_ = model.best_score
        if encoding.classes is not None:
            self.classes_ = encoding.classes

    def _get_best_rounds(self) -> Model:
        """Return the model, without the rounds after the best one of early stopping."""
        model, best = self.model_, self.model_.best_iteration
        if best is not None:
            model = model.copy()
            model.truncate(best + 1)
        return model

    def _get_trained_estimator(self) -> PolyleafEstimator:
        """Return the estimator with the parameters of the model."""
        return self

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
        """Write the model to a file that `load_model` reads and that cannot run code.

        The file holds trees, bins, labels, scaling of targets, `evals_result_`, and parameters: a
        warning names those that files cannot hold, such as functions, callbacks, `init` and random
        generators, which are to be set again after loading. It is written under a temporary name
        and renamed: an existing file stays intact until then.

        Parameters
        ----------
        path : str, path or open binary file, optional
            None: return the content instead. The name must not end in ".json".
        leaf_dtype : {"float32", "float16", "int8"}
            Precision of leaf values;
            :func:`polyleaf.inspection.model_summary.leaf_dtype_report` measures size and error.
        statistics : bool
            Whether gains, row counts and Hessian sums of the nodes are stored, which importances
            need and predictions do not.
        best_only : bool
            Drop the rounds after the best one of early stopping. Default predictions do not change.

        Returns
        -------
        bytes or None

        Raises
        ------
        OSError
            If the file cannot be written.
        ValueError
            If class labels are not strings, numbers or booleans, leaf values do not fit
            `leaf_dtype`, or the name is one of another format.
        """
        check_is_fitted(self)
        unsaved = find_unsaved(self.get_params(deep=False))
        if unsaved:
            warn_user(
                f"The model file does not hold the values of {', '.join(unsaved)}, which "
                "predictions do not need: set them again before the loaded estimator is fitted."
            )
        model = self._get_best_rounds() if best_only else self.model_
        data = model.to_bytes(leaf_dtype, statistics, self.evals_result_)
        if path is None:
            return data
        serialize.write(path, data, Model.from_bytes)
        return None

    @warn_if_called_on_instance
    @classmethod
    def load_model(cls, path: Source) -> Self:
        """Read a fitted estimator of this class from a file: `m =
        PolyleafRegressor.load_model(path)`.

        If called on an estimator it does not change that estimator, and warns.

        Parameters
        ----------
        path : str, path, bytes or open binary file

        Returns
        -------
        PolyleafRegressor, PolyleafClassifier or PolyleafMultiTask
            A new estimator of the class.

        Raises
        ------
        ModelFileError (a ValueError)
            If the file is not a model file, is damaged, or holds a model of another estimator.
        MemoryError
            If there is not enough memory, which does not mean that the file is damaged.
        """
        return read_estimator(path, {cls.__name__: cls})

    # --- parameters, and other parts of scikit-learn's contract ---

    @classmethod
    @functools.cache  # scikit-learn reads the signature each time
    def _get_param_names(cls) -> list[str]:
        return super()._get_param_names()

    def set_params(self, **parameters: object) -> Self:
        """Set parameters.

        Parameters
        ----------
        **parameters
            Parameters of the constructor.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For unknown parameters; the message suggests the name of parameters of other libraries.
        """
        names = [name.partition("__")[0] for name in parameters]
        try:
            raise_unknown_parameters(
                f"{type(self).__name__}.set_params", names, self._get_param_names()
            )
        except TypeError as error:  # scikit-learn's tools expect a ValueError
            raise ValueError(str(error)) from None
        return super().set_params(**parameters)

    def _validate_params(self) -> None:
        """Validate as scikit-learn does, with a hint for values of other libraries.

        The attributes of the class are the defaults, which are valid.
        """
        cls, values = type(self), self.get_params(deep=False)
        changed = {n: value for n, value in values.items() if value is not getattr(cls, n, self)}
        try:
            validate_parameter_constraints(self._parameter_constraints, changed, cls.__name__)
        except InvalidParameterError as error:
            hints = (
                get_foreign_value_hint(name, value)
                for name, value in changed.items()
                if f"The {name!r} parameter" in str(error)
            )
            raise InvalidParameterError(f"{error}{''.join(hints)}") from None

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            hint = read_foreign_names("attributes").get(name)
            if hint is not None:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}: {hint}"
                )
            return object.__getattribute__(self, name)  # raises the usual AttributeError

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._fitted_html()

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._fitted_html()
        return bundle

    def _fitted_html(self) -> str:
        """Render the model and its first learning curve, below the parameters."""
        if not hasattr(self, "model_"):
            return ""
        for data_name, metrics in self.evals_result_.items():
            for metric, curve in metrics.items():
                return render_model(self.model_, curve, f"{data_name}, {metric}")
        return render_model(self.model_)

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        return state if "model_" in state else add_version(state)  # the model has its own

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(
            state if "model_" in state else remove_version(type(self).__name__, state)
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags
