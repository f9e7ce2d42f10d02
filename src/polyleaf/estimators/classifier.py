"""Binary, multiclass and multi-label classification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from polyleaf.binned_data.dataset import Dataset
from polyleaf.estimators._fitting import get_single_class, refuse_objective
from polyleaf.estimators._prediction import resolve_offset
from polyleaf.estimators.calibration import (
    DecisionThresholdMixin,
    calibrate_sets,
    compute_probabilities,
    decide,
    predict_sets,
)
from polyleaf.estimators.uncertainty import UncertaintyMixin
from polyleaf.metrics._sklearn import known_subset_accuracy
from polyleaf.model import Model
from polyleaf.model.metadata import get_decision_thresholds, get_raw_decision_thresholds
from polyleaf.model.prediction import find_best_outputs
from polyleaf.objectives import Custom, Objective, auto_objective_name, objective_class
from polyleaf.objectives.registry import ObjectiveSpec, ResolvedObjective, resolve_objective
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.settings.aliases import warn_one_vs_rest
from polyleaf.settings.param_spec import (
    add_parameter_docs,
    make_constraints,
    suggest_on_unknown_kwargs,
)
from polyleaf.settings.parameters import ClassifierParameters
from polyleaf.training.fit import complete_objective
from polyleaf.training.training_run import TrainingRun
from polyleaf.user_data.read_target import check_same_rows, has_columns, read_labels
from polyleaf.user_data.target import Target, TargetEncoding, encode_classification, weigh_targets
from polyleaf.user_data.weights import negatives_per_positive

if TYPE_CHECKING:
    from sklearn.utils import Tags

_Method = TypeVar("_Method", bound=Callable[..., object])
_MIN_ROWS_OF_EARLY_EXIT = 256  # a block of rows in the core


def _explain_missing_probabilities(estimator: PolyleafClassifier) -> str:
    """Return why the objective has no probabilities; empty if it has."""
    objective: Any = (
        estimator.model_.objective if hasattr(estimator, "model_") else estimator.objective
    )
    if isinstance(objective, str) and objective == "auto":
        return ""
    try:
        cls = objective_class(objective)
    except ValueError:  # raised by `fit`
        return ""
    if cls.probabilities:
        return ""
    if cls is Custom:
        return (
            "a custom objective has no link from scores to probabilities: decision_function "
            "returns its raw scores. Your own subclass of Objective can have one."
        )
    return f"objective {cls.name!r} has no probabilities: decision_function returns its scores."


class _AvailableWithProbabilities:
    """A method that exists if the objective has probabilities; otherwise the error says why."""

    def __init__(self, method: Callable[..., object]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: PolyleafClassifier | None, owner: type) -> object:
        if estimator is None:
            return self._method
        reason = _explain_missing_probabilities(estimator)
        if reason:
            name = self._method.__name__
            raise AttributeError(f"This {owner.__name__} has no {name!r}: {reason}")
        return MethodType(self._method, estimator)


def _available_with_probabilities(method: _Method) -> _Method:
    return cast(Any, _AvailableWithProbabilities(method))  # type checkers see the method


@add_parameter_docs
class PolyleafClassifier(
    ClassifierMixin, DecisionThresholdMixin, UncertaintyMixin, ClassifierParameters
):
    """Gradient boosted trees for binary, multiclass and multi-label classification.

    {parameters}

    Attributes
    ----------
    classes_ : ndarray
        Sorted labels; `arange(n_labels)` for multi-label.
    thresholds_ : ndarray of shape (n_labels,), or (1,) for two classes
        Decision thresholds: probabilities above which a label is predicted.
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> PolyleafClassifier(n_estimators=20).fit(X, y).predict_proba(X).shape
    (150, 3)
    """

    _parameter_constraints: ClassVar[dict[str, object]] = make_constraints(ClassifierParameters)
    _sparse_kind = "multilabel"
    _kinds = ("binary", "multiclass", "multilabel")

    # --- fit ---

    def _resolve_objective(self) -> ObjectiveSpec | None:
        is_auto = isinstance(self.objective, str) and self.objective == "auto"
        return None if is_auto else resolve_objective(self.objective)

    def _encode_target(
        self,
        rows: RowData,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Target:
        cls = get_single_class(resolved)
        kinds = ("classes",) if cls is None else cls.target_kinds
        like = None if old_model is None else self._get_encoding(old_model)
        target = encode_classification(
            rows,
            class_weight=self.class_weight,
            missing=self.missing_targets,
            one_vs_rest="labels" in kinds and "classes" not in kinds,
            two_scores=cls is not None and "labels" not in kinds,
            shares="fractions" if cls is None else "always" if cls.takes_shares else "never",
            like=like,
            ranks=ranks,
        )
        return weigh_targets(target, self.target_weight)

    def _make_objective(
        self,
        target: Target,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Objective:
        encoding, spec = target.encoding, resolved
        if spec is None:
            is_sparse = target.is_sparse
            spec = resolve_objective(auto_objective_name(encoding.kind, is_sparse))
        assert isinstance(spec, ObjectiveSpec)
        cls = spec.cls
        if not {"labels", "classes"} & set(cls.target_kinds):
            refuse_objective(cls)
        if encoding.kind != "multiclass" and "labels" not in cls.target_kinds:
            raise ValueError(
                f"objective={cls.name!r} is for one of several classes, but a multi-label y has "
                f'several labels per row: use "{auto_objective_name(encoding.kind, sparse=False)}".'
            )
        if self.scale_pos_weight is not None and (
            "scale_pos_weight" not in cls.parameters or encoding.kind == "multiclass"
        ):
            raise ValueError(
                "scale_pos_weight is for the logistic objective with two classes or labels: "
                "use class_weight."
            )
        if self.scale_pos_weight is not None and spec.instance is not None:
            raise ValueError(
                f"scale_pos_weight={self.scale_pos_weight!r} has no effect beside an objective "
                "object: pass Logistic(scale_pos_weight=...), or the name of the objective."
            )
        if encoding.one_vs_rest:
            warn_one_vs_rest(spec.label, cls.name, encoding.n_outputs)
        resolved_weight = self._resolve_scale_pos_weight(target, old_model, ranks)
        made = complete_objective(self, spec, encoding.n_outputs, **resolved_weight)
        n_scores, n_outputs = made.n_scores(encoding.n_outputs), encoding.n_outputs
        if n_scores != n_outputs:
            kind = "for two classes" if encoding.kind == "binary" else "one per class or label"
            raise ValueError(
                f"The objective has {n_scores} scores, but y needs {n_outputs}, {kind}. Do not set "
                "their number; to use your own encoding train PolyleafRegressor on it."
            )
        self._check_threshold(encoding, made)
        return made

    def _resolve_scale_pos_weight(
        self, target: Target, old_model: Model | None, ranks: Communicator
    ) -> dict[str, object]:
        """Compute `scale_pos_weight` if it is "balanced" or "sqrt"."""
        if not isinstance(self.scale_pos_weight, str):
            return {}
        if old_model is not None:  # the value of the first training
            return {"scale_pos_weight": getattr(old_model.objective, "scale_pos_weight", None)}
        ratio = negatives_per_positive(target.rows, ranks)
        return {"scale_pos_weight": np.sqrt(ratio) if self.scale_pos_weight == "sqrt" else ratio}

    def _is_cross_fitted(self, objective: Objective, has_evaluation: bool) -> bool:
        return isinstance(self.threshold, str) and not has_evaluation

    def _after_training(self, run: TrainingRun) -> None:
        super()._after_training(run)
        if isinstance(self.threshold, str):
            self._choose_threshold_by_f1(run)

    @classmethod
    def _check_agreement(cls, model: Model, encoding: TargetEncoding) -> None:
        super()._check_agreement(model, encoding)
        get_decision_thresholds(model)

    # --- predictions ---

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str] | None:
        if encoding.kind == "multiclass" and encoding.classes is not None:
            return [str(label) for label in encoding.classes.tolist()]
        return None if encoding.output_names is None else list(encoding.output_names)

    def _get_class_names(self) -> list[str]:
        if self._encoding.kind == "multilabel":
            return self._get_score_names()
        return [str(label) for label in self.classes_.tolist()]

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        return decide(raw, self._encoding, get_raw_decision_thresholds(self.model_))

    def _predict_rows(
        self, X: DataLike, iteration_range: tuple[int, int] | None, offset: DataLike | None
    ) -> np.ndarray:
        """Predict classes without all scores where offsets and initial models do not change
        them."""
        rounds, n_threads = self._rounds(iteration_range), self._n_threads()
        is_plain = self._encoding.has_class_ids and self.model_.initial is None
        is_plain = is_plain and not isinstance(X, Dataset)
        if not is_plain or resolve_offset(self.model_, X, offset) is not None:
            return super()._predict_rows(X, iteration_range, offset)
        table = self._features(X, n_threads)
        if table.n_rows < _MIN_ROWS_OF_EARLY_EXIT:
            return self._prediction(self.model_.predict_raw(table, *rounds, n_threads))
        return self.classes_[find_best_outputs(self.model_, table, rounds, n_threads)]

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return (scores > 0).astype(np.int64)

    def _decision(self, raw: np.ndarray) -> np.ndarray:
        if self._encoding.kind == "multilabel" or len(self.classes_) > 2:
            return raw
        return raw[:, 0] if raw.shape[1] == 1 else raw[:, 1] - raw[:, 0]

    def _probabilities(self, raw: np.ndarray) -> np.ndarray:
        return compute_probabilities(raw, self._encoding, self.model_.objective)

    def _output_methods(self) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
        methods = super()._output_methods() | {"decision_function": self._decision}
        if not _explain_missing_probabilities(self):
            methods["predict_proba"] = self._probabilities
        return methods

    @suggest_on_unknown_kwargs
    def decision_function(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Compute decision scores.

        The class with the largest score is predicted; a label is predicted if its score is above 0,
        or above its threshold as a score.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes or n_labels), or (n_rows,) for two classes; float64
            Raw scores. For two classes the score of the second class, or its difference to the
            first if the objective has a score for both.
        """
        scores = self._decision(self._raw(X, iteration_range, offset))
        return scores if scores.ndim == 1 else self._wrap_output(scores, self._get_score_names, X)

    @_available_with_probabilities
    @suggest_on_unknown_kwargs
    def predict_proba(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Predict probabilities.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            Columns in the order of `classes_`, with a sum of 1 for classes. Multi-label: the
            probability of each label.

        Raises
        ------
        AttributeError
            If the objective has no probabilities.
        """
        predicted = self._probabilities(self._raw(X, iteration_range, offset))
        return self._wrap_output(predicted, self._get_class_names, X)

    @_available_with_probabilities
    def predict_log_proba(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Predict natural logarithms of probabilities.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            -inf where a probability is 0.

        Raises
        ------
        AttributeError
            If the objective has no probabilities.
        """
        with np.errstate(divide="ignore"):
            logarithms = np.log(self._probabilities(self._raw(X, iteration_range, offset)))
        return self._wrap_output(logarithms, self._get_class_names, X)

    @_available_with_probabilities
    def staged_predict_proba(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield probabilities after each round of `iteration_range`.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Yields
        ------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            The last one equals `predict_proba`. Never a table.

        Raises
        ------
        AttributeError
            If the objective has no probabilities.
        """
        return map(self._probabilities, self._staged_raw(X, iteration_range, offset))

    def calibrate(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        coverage: float = 0.9,
        offset: DataLike | None = None,
    ) -> Self:
        """Calibrate prediction sets on held-out rows (split conformal prediction).

        A set holds the most probable classes, as many as needed (Romano, Sesia and Candès, NeurIPS
        2020): few where the model is confident, more where it is not. The sets of exchangeable new
        rows hold the true class with probability `coverage` or more, regardless of the quality of
        the model; with multi-label targets they hold all labels of a row. The calibration is stored
        in the model and its file until the model is fitted again.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
            Rows outside the training data.
        y : array-like of shape (n_rows,), or indicator matrix (n_rows, n_labels)
            Rows with missing labels (NaN) are left out.
        sample_weight : array-like of shape (n_rows,), optional
        coverage : float in (0, 1)
            Probability that the truth is in the set.
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are too few rows: 0.9 needs at least 9, 0.99 at least 99.
        AttributeError
            If the objective has no probabilities.
        """
        calibrate_sets(self, X, RowData(y, sample_weight, offset), coverage)
        return self

    def predict_set(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Predict sets of classes or labels with the coverage of the last `calibrate`.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`; `calibrate` used the default `iteration_range`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); bool
            Columns in the order of `classes_`. Every set of classes holds the most probable one.
        """
        members = predict_sets(self, X, iteration_range, offset)
        return self._wrap_output(members, self._get_class_names, X)

    def score(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
    ) -> float:
        """Return the accuracy; multi-label: the fraction of rows with all known labels correct.

        Of shares of classes the largest is the true class.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,), or indicator matrix (n_rows, n_labels)
            NaN labels are left out with `missing_targets="ignore"`.
        sample_weight : array-like of shape (n_rows,), or (n_rows, n_labels) for multi-label,
        optional
            The weight of a row is the mean over its known labels.
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if self._encoding.kind != "multilabel":
            from sklearn.metrics import accuracy_score  # slow to import

            predicted = self.predict(X, offset=offset)
            if self._encoding.has_class_ids and has_columns(y):
                truth = self.classes_[self._encoding.encode(RowData(y)).get_row_classes()]
            else:
                truth = read_labels(y)
            return float(accuracy_score(truth, predicted, sample_weight=sample_weight))
        keeps_sparse = scipy.sparse.issparse(y) and self.missing_targets == "error"
        if keeps_sparse and offset is None and self._predicts_sparse:
            target = self._encode_sparse_target(RowData(y, sample_weight), self.model_)
            sparse_predictions = self._predict_sparse(X, None)
            check_same_rows(sparse_predictions.shape[0], target.n_rows)
            n_wrong = (sparse_predictions != target.values).getnnz(axis=1)
            return float(np.average(n_wrong == 0, weights=target.weight))
        target, predicted = self._score_inputs(X, RowData(y, sample_weight, offset))
        return known_subset_accuracy(target.rows, predicted)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
