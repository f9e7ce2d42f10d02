"""PolyleafClassifier: two classes, many classes, or many labels. Owns what is particular to them; the rest is
in base.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators.base import PolyleafEstimator, add_parameter_docs
from polyleaf.estimators.decision_functions import decided, probabilities
from polyleaf.estimators.decision_threshold import Decides
from polyleaf.estimators.prediction_sets import PredictsSets
from polyleaf.inputs.targets import (
    Target,
    TargetEncoding,
    encode_classification,
    negatives_per_positive,
    read_labels,
)
from polyleaf.metrics._sklearn import known_subset_accuracy
from polyleaf.model import Model
from polyleaf.model.decision_threshold import get_decision_thresholds, get_raw_decision_thresholds
from polyleaf.objectives import Custom, Objective, auto_objective_name, objective_class
from polyleaf.settings.aliases import suggest_on_unknown_kwargs, warn_one_vs_rest
from polyleaf.settings.param_spec import make_constraints
from polyleaf.settings.parameters import ClassifierParameters
from polyleaf.training.cross_fitting import TrainingRecord
from polyleaf.training.prepare import PreparedData, TrainingData

__all__ = ["PolyleafClassifier"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _why_no_probabilities(estimator: PolyleafClassifier) -> str:
    """What keeps the objective from giving probabilities; empty where it gives them."""
    chosen: Any = (
        estimator.model_.objective if hasattr(estimator, "model_") else estimator.objective
    )
    try:
        cls = None if isinstance(chosen, str) and chosen == "auto" else objective_class(chosen)
    except ValueError:  # `fit` will say what is wrong
        return ""
    if cls is None or cls.probabilities:
        return ""
    if cls is Custom:
        return (
            "a custom objective has no link from scores to probabilities: decision_function gives its raw "
            "scores. An Objective class of your own may have one (docs/objectives.md)."
        )
    return (
        f"the scores of objective {cls.name!r} are no probabilities: decision_function gives them."
    )


class _WhereThereAreProbabilities:
    """A method that exists where the objective gives probabilities, and says why where it does not."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: PolyleafClassifier | None, owner: type) -> Any:
        if estimator is None:
            return self._method
        why = _why_no_probabilities(estimator)
        if why:
            name = self._method.__name__
            raise AttributeError(f"This {owner.__name__} has no {name!r}: {why}")
        return MethodType(self._method, estimator)


# Typed, so that what these methods return is known to whoever checks types.
_where_there_are_probabilities: Callable[[_Method], _Method] = cast(
    Any, _WhereThereAreProbabilities
)


@add_parameter_docs
class PolyleafClassifier(
    ClassifierMixin, Decides, PredictsSets, PolyleafEstimator, ClassifierParameters
):
    """Gradient boosted trees for two classes, many classes, or many labels.

    {parameters}

    Attributes
    ----------
    classes_ : ndarray
        Sorted labels; `arange(n_labels)` for multi-label.
    thresholds_ : ndarray of shape (n_labels,), or (1,) for two classes
        Probabilities above which `predict` says yes.
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> PolyleafClassifier(n_estimators=20).fit(X, y).predict_proba(X).shape
    (150, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = make_constraints(ClassifierParameters)
    _sparse_kind = "multilabel"
    _kinds = ("binary", "multiclass", "multilabel")

    def _encode_sparse_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if self.class_weight is not None:
            raise ValueError(
                "class_weight weighs absent labels as well, which sparse targets do not keep; use "
                "sample_weight."
            )
        return super()._encode_sparse_target(y, sample_weight, start)

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return (scores > 0).astype(np.int64)

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        kinds = (
            ("classes",)
            if self.objective == "auto"
            else objective_class(self.objective).target_kinds
        )
        target = encode_classification(
            y,
            sample_weight,
            class_weight=self.class_weight,
            missing=self.missing_targets,
            one_vs_rest="labels" in kinds and "classes" not in kinds,
            two_scores=self.objective != "auto" and "labels" not in kinds,
            like=None
            if start is None
            else TargetEncoding.from_dict(start.metadata, start.n_outputs),
        )
        return target

    def _make_objective(self, target: Target, start: Model | None) -> Objective:
        encoding = target.encoding
        chosen = (
            auto_objective_name(encoding.kind, scipy.sparse.issparse(target.values))
            if self.objective == "auto"
            else self.objective
        )
        cls = objective_class(chosen)
        if not {"labels", "classes"} & set(cls.target_kinds):
            raise ValueError(f"objective={cls.name!r} is for numbers: use PolyleafRegressor.")
        if encoding.kind != "multiclass" and "labels" not in cls.target_kinds:
            raise ValueError(
                f"objective={cls.name!r} picks one of several classes, but a multi-label y has several "
                f'labels per row: use "{auto_objective_name(encoding.kind, sparse=False)}".'
            )
        if self.scale_pos_weight is not None and (
            "scale_pos_weight" not in cls.parameters or encoding.kind == "multiclass"
        ):
            raise ValueError(
                "scale_pos_weight is for the logistic objective with two classes or with labels: "
                "use class_weight."
            )
        if encoding.one_vs_rest:
            warn_one_vs_rest(chosen, cls.name, encoding.n_outputs)
        objective = self._complete_objective(
            chosen, encoding.n_outputs, **self._weight_of_positives(target, start)
        )
        n_scores, wanted = objective.n_scores(encoding.n_outputs), encoding.n_outputs
        if n_scores != wanted:
            raise ValueError(
                f"The objective gives {n_scores} scores, but y needs {wanted}, "
                f"{'for two classes' if encoding.kind == 'binary' else 'one for each class or label'}. Leave "
                "their number out; for an encoding of your own train PolyleafRegressor on the encoded labels."
            )
        self._check_threshold(encoding, objective)
        return objective

    @classmethod
    def _check_agreement(cls, model: Model, encoding: TargetEncoding) -> None:
        super()._check_agreement(model, encoding)
        get_decision_thresholds(model)

    def _weight_of_positives(self, target: Target, start: Model | None) -> dict[str, Any]:
        """`scale_pos_weight` as numbers, where it is a word."""
        if not isinstance(self.scale_pos_weight, str):
            return {}
        if start is not None:  # as it was found in the rows of the first training
            return {"scale_pos_weight": getattr(start.objective, "scale_pos_weight", None)}
        found = negatives_per_positive(target.values, target.weight)
        return {"scale_pos_weight": np.sqrt(found) if self.scale_pos_weight == "sqrt" else found}

    def _after_training(
        self, training: TrainingRecord, ready: PreparedData, given: TrainingData
    ) -> None:
        super()._after_training(training, ready, given)
        self._decide(
            training, ready.eval_sets[-1] if ready.eval_sets else None, given.y, given.weight
        )

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str] | None:
        if encoding.kind == "multiclass" and encoding.classes is not None:
            return [str(label) for label in encoding.classes.tolist()]
        return None if encoding.output_names is None else list(encoding.output_names)

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        return decided(raw, self._encoding, get_raw_decision_thresholds(self.model_))

    @suggest_on_unknown_kwargs
    def decision_function(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> np.ndarray:
        """Raw scores: a row belongs to the class of the largest, a label holds where its score is above 0
        (or what its threshold is as a score).

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes or n_labels), or (n_rows,) for two classes; float64
            For two classes the score of the second: above 0 where it is the likelier. (Of an objective that
            scores both, how much higher it is.)

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        found = self._decision(self._raw(X, iteration_range, offset))
        return found if found.ndim == 1 else self._wrap_output(found, self._get_score_names, X)

    def _decision(self, raw: np.ndarray) -> np.ndarray:
        if self._encoding.kind == "multilabel" or len(self.classes_) > 2:
            return raw
        return raw[:, 0] if raw.shape[1] == 1 else raw[:, 1] - raw[:, 0]

    def _output_methods(self) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
        found = super()._output_methods() | {"decision_function": self._decision}
        return found | (
            {"predict_proba": self._probabilities} if not _why_no_probabilities(self) else {}
        )

    @_where_there_are_probabilities
    @suggest_on_unknown_kwargs
    def predict_proba(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> np.ndarray:
        """Probabilities.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            Columns in order of `classes_`; they sum to 1 for classes. Multi-label: the probability that
            each label holds.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        AttributeError
            Where the scores of the objective are no probabilities.
        """
        predicted = self._probabilities(self._raw(X, iteration_range, offset))
        return self._wrap_output(predicted, self._get_class_names, X)

    def _get_class_names(self) -> list[str]:
        if self._encoding.kind == "multilabel":
            return self._get_score_names()
        return [str(label) for label in self.classes_.tolist()]

    @_where_there_are_probabilities
    def predict_log_proba(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> np.ndarray:
        """Natural logarithms of `predict_proba`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            -inf where a probability is 0.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        AttributeError
            Where the scores of the objective are no probabilities.
        """
        with np.errstate(divide="ignore"):
            logarithms = np.log(self._probabilities(self._raw(X, iteration_range, offset)))
        return self._wrap_output(logarithms, self._get_class_names, X)

    @_where_there_are_probabilities
    def staged_predict_proba(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> Iterator[np.ndarray]:
        """Yield what `predict_proba` gives after each round of `iteration_range`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`.

        Yields
        ------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            The last one is what `predict_proba` gives. Never a table.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        AttributeError
            Where the scores of the objective are no probabilities.
        """
        return map(self._probabilities, self._staged_raw(X, iteration_range, offset))

    def _probabilities(self, raw: np.ndarray) -> np.ndarray:
        return probabilities(raw, self._encoding, self.model_.objective)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Accuracy; multi-label: the share of rows that are right in every label that is known.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,), or indicator matrix (n_rows, n_labels)
            Of labels, with `missing_targets="ignore"`, NaN is a label that does not count.
        sample_weight : array-like of shape (n_rows,), or (n_rows, n_labels) for multi-label, optional
            A row weighs what its known labels do on average.
        offset : optional
            As in `predict`.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if self._encoding.kind != "multilabel":
            from sklearn.metrics import accuracy_score  # an eighth of what importing us takes

            predicted = self.predict(X, offset=offset)
            return float(accuracy_score(read_labels(y), predicted, sample_weight=sample_weight))
        target, predicted = self._to_score(X, y, sample_weight, offset)
        return known_subset_accuracy(target.values, predicted, target.weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
