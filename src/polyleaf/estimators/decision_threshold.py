"""From which probability on a classifier says yes: as the user has it, or where F1 is largest.

Owns: the meaning of `threshold`, what is kept of it in the model, and which rows it is chosen on. Must not
know: how F1 is made largest (`metrics.thresholds`), how models are trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.inputs.targets import TargetEncoding, check_same_rows
from polyleaf.metrics._classification import best_f1_threshold
from polyleaf.model import Model
from polyleaf.model.decision_threshold import get_decision_thresholds, set_decision_thresholds
from polyleaf.objectives import Objective
from polyleaf.training.cross_fitting import TrainingRecord, cross_fit_scores
from polyleaf.training.evaluation import EvalSet

__all__ = ["Decides"]

# Where there is no evaluation set. Measured: docs/decision-thresholds.md.
FOLDS = 3


class Decides:
    """`threshold`, `thresholds_` and `choose_threshold`, for classifiers."""

    _by_f1: ClassVar[tuple[str, ...]] = ("f1", "f1_macro")

    if TYPE_CHECKING:  # what estimators have
        model_: Model
        threshold: Any
        _encoding: TargetEncoding

        def _raw(self, X: Any, iteration_range: Any, offset: Any = None) -> np.ndarray: ...

    @property
    def thresholds_(self) -> np.ndarray:
        """The probability above which `predict` says yes: float64, one for each label, or one for the second
        of two classes."""
        check_is_fitted(self)
        return get_decision_thresholds(self.model_)

    def choose_threshold(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        by: Literal["f1", "f1_macro"] = "f1",
        offset: Any = None,
    ) -> Self:
        """Choose one threshold for all labels, where F1 is largest on these rows. Probabilities stay.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
            Rows that the model was not trained on: its probabilities of others are too sure.
        y : array-like of shape (n_rows,) or (n_rows, n_labels), optional
            None: where F1 is expected to be largest if the probabilities are right, so that new rows will do
            without labels.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_labels), optional
        by : {"f1", "f1_macro"}
            As `threshold` of the constructor.
        offset : optional
            As in `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For several classes, and where the model gives no probabilities.
        """
        check_is_fitted(self)
        _check_may_decide(self._encoding, self.model_.objective)
        if by not in self._by_f1:
            raise ValueError(f'by must be "f1" or "f1_macro", got {by!r}.')
        probability = self.model_.objective.transform(self._raw(X, None, offset))
        if not len(probability):
            raise ValueError("choose_threshold needs rows to choose on, and X has none.")
        truth, weight = probability, None
        if y is not None:
            target = self._encoding.encode(y, sample_weight, normalized=False)
            truth, weight = target.values, target.weight
            check_same_rows(len(probability), len(truth))
        elif sample_weight is not None:
            weight = np.asarray(sample_weight, np.float64)
        set_decision_thresholds(
            self.model_, best_f1_threshold(probability, truth, weight, by == "f1_macro")
        )
        return self

    def _check_threshold(self, encoding: TargetEncoding, objective: Objective) -> None:
        """Refuse a threshold that means nothing, before training."""
        if not (isinstance(self.threshold, float) and self.threshold == 0.5):
            _check_may_decide(encoding, objective)
        if not isinstance(self.threshold, str):
            _numbers(self.threshold, encoding)

    def _decide(
        self, training: TrainingRecord, watched: EvalSet | None, y: Any, sample_weight: Any
    ) -> None:
        """Keep the threshold in a model that was just trained; choose it, where that is wanted.

        Parameters
        ----------
        training : TrainingRecord
        watched : EvalSet or None
            The rows to choose on. None: all that were trained on, by models that were not.
        y, sample_weight
            Of the rows trained on, as the user gave them: without weights of classes.
        """
        if not isinstance(self.threshold, str):
            return set_decision_thresholds(self.model_, _numbers(self.threshold, self._encoding))
        set_decision_thresholds(self.model_, 0.5)
        if watched is None:
            target = self._encoding.encode(y, sample_weight, normalized=False)
            truth, weight = target.values, target.weight
            scores, seen = _out_of_fold(training)
            weight = seen if weight is None else (weight.T * seen).T
        else:
            truth, weight = watched.target, watched.weight
            codes, last = watched.codes, training.n_rounds
            n_threads = training.settings.workers.n_threads
            scores = self.model_.predict_raw_binned(codes, 0, last, n_threads, watched.features)
            scores = scores if watched.offset is None else scores + watched.offset
        probability = self.model_.objective.transform(scores)
        set_decision_thresholds(
            self.model_, best_f1_threshold(probability, truth, weight, self.threshold == "f1_macro")
        )


def _check_may_decide(encoding: TargetEncoding, objective: Objective) -> None:
    if encoding.kind == "multiclass":
        raise ValueError(
            "threshold is for two classes and for labels; of several classes the likeliest is predicted."
        )
    if objective.link != "logistic":
        raise ValueError(
            f"threshold is a probability, which the scores of objective {objective.name!r} are not turned "
            'into by the logistic function: use "logistic", or decision_function and a threshold of scores.'
        )


def _numbers(threshold: Any, encoding: TargetEncoding) -> float | np.ndarray:
    """The thresholds that a user has named."""
    if not isinstance(threshold, Mapping):
        return _probability(threshold)
    if encoding.kind == "binary":
        return _of_two_classes(threshold, encoding)
    found = np.full(encoding.n_outputs, 0.5)
    names = list(encoding.output_names or ())
    for label, value in threshold.items():
        at = names.index(label) if label in names else label
        if not isinstance(at, int | np.integer) or not 0 <= at < encoding.n_outputs:
            known = ", ".join(map(repr, names[:5])) if names else f"0 to {encoding.n_outputs - 1}"
            raise ValueError(
                f"threshold names the label {label!r}, which y does not have; it has {known}."
            )
        found[at] = _probability(value)
    return found


def _of_two_classes(threshold: Mapping[Any, Any], encoding: TargetEncoding) -> float:
    assert encoding.classes is not None
    first, second = encoding.classes.tolist()
    if len(threshold) != 1 or next(iter(threshold)) not in (first, second):
        raise ValueError(
            f"threshold of two classes names one of them, {second!r} say: the probability above which it "
            f"is predicted; got {dict(threshold)!r}."
        )
    label, value = next(iter(threshold.items()))
    return _probability(value) if label == second else 1.0 - _probability(value)


def _probability(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or not 0 < value < 1
    ):
        raise ValueError(
            'threshold must be a probability between 0 and 1, "f1", "f1_macro" or {label: probability}, '
            f"got {value!r}."
        )
    return float(value)


def _out_of_fold(training: TrainingRecord) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all rows by models not trained on them, and which rows have such: 1.0 or 0.0."""
    n_rows = len(training.target)
    fold = np.random.default_rng(training.settings.sampling.seed).permutation(n_rows) % FOLDS
    scores, seen = np.zeros((n_rows, training.target.shape[1])), np.zeros(n_rows)
    for j in range(FOLDS):
        found = cross_fit_scores(training, fold == j)
        if found is not None:
            scores[fold == j], seen[fold == j] = found[fold == j], 1.0
    return scores, seen
