"""Calibration of predictions: conformal intervals and sets, and decision thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.distributions.parametric import check_coverage
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.metrics._classification import best_f1_threshold
from polyleaf.model.metadata import (
    encode_decision_thresholds,
    get_calibration,
    get_decision_thresholds,
    set_calibration,
    set_decision_thresholds,
)
from polyleaf.objectives import Objective
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.training.cross_fitting import (
    class_nonconformity,
    cross_fit_scores,
    interval_widths,
    label_nonconformity,
    truth_nonconformity,
)
from polyleaf.training.training_run import TrainingRun
from polyleaf.user_data.read_target import check_same_rows
from polyleaf.user_data.target import TargetEncoding
from polyleaf.user_data.validation import get_index

if TYPE_CHECKING:
    from polyleaf.estimators.classifier import PolyleafClassifier
    from polyleaf.estimators.regressor import PolyleafRegressor

# --- intervals ------------------------------------------------------------------------------------


def calibrate_intervals(
    regressor: PolyleafRegressor, X: DataLike, rows: RowData, coverage: float, joint: bool
) -> None:
    """Find the widths of intervals and store them in the model; see
    `PolyleafRegressor.calibrate`."""
    check_is_fitted(regressor)
    check_coverage(coverage)
    target = regressor._encoding.encode(rows, normalized=False)
    scores, is_scaled = _compute_errors(regressor, X, target.values, rows.offset)
    widths = interval_widths(scores, coverage, target.weight, joint)
    set_calibration(
        regressor.model_,
        "intervals",
        coverage=float(coverage),
        joint=bool(joint),
        widths=widths.tolist(),
        scaled=is_scaled,
    )


def predict_bounds(
    regressor: PolyleafRegressor,
    X: DataLike,
    iteration_range: tuple[int, int] | None,
    offset: DataLike | None,
) -> np.ndarray:
    """Compute calibrated bounds, float64 (n_rows, n_targets, 2)."""
    check_is_fitted(regressor)
    calibration = get_calibration(regressor.model_, "intervals")
    width = np.asarray(calibration["widths"], np.float64)
    if regressor.model_.objective.has_distribution:
        predicted = regressor._distributions(X, iteration_range, offset)
        tail = np.minimum(np.exp(-width), 0.5)
        return np.stack([predicted.ppf(tail), predicted.isf(tail)], axis=2)
    low, high = _predict_extremes(regressor, X, iteration_range, offset)
    scale = regressor.model_.objective.deviation(high) if calibration.get("scaled") else None
    if scale is not None:
        return np.stack([np.maximum(low - width * scale, 0.0), high + width * scale], axis=2)
    # Bounds that are moved past each other meet in the middle.
    middle = (low + high) / 2
    return np.stack([np.minimum(low - width, middle), np.maximum(high + width, middle)], axis=2)


def _compute_errors(
    regressor: PolyleafRegressor, X: DataLike, y: np.ndarray, offset: DataLike | None
) -> tuple[np.ndarray, bool]:
    """Compute the nonconformity of each value, (n_rows, n_targets).

    The distance beyond the bounds, relative to `Objective.deviation` if there is one (then the
    second result is True), or -ln of the tail probability of a predicted distribution.
    """
    if not regressor.model_.objective.has_distribution:
        low, high = _predict_extremes(regressor, X, None, offset)
        check_same_rows(len(low), len(y))
        distance, scale = np.maximum(low - y, y - high), regressor.model_.objective.deviation(high)
        return (distance, False) if scale is None else (distance / scale, True)
    predicted = regressor._distributions(X, None, offset)
    check_same_rows(len(predicted), len(y))
    above = predicted.sf(y - 1 if predicted.is_discrete else y)
    tail = np.minimum(predicted.cdf(y), above)
    return -np.log(np.maximum(tail, np.finfo(np.float64).tiny)), False


def _predict_extremes(
    regressor: PolyleafRegressor,
    X: DataLike,
    iteration_range: tuple[int, int] | None,
    offset: DataLike | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Predict the lowest and highest quantile, (n_rows, n_targets), or the prediction twice."""
    predicted = np.asarray(regressor.predict(X, iteration_range=iteration_range, offset=offset))
    levels = regressor.model_.objective.quantile_levels
    shape = len(predicted), regressor._encoding.n_outputs, max(1, len(levels))
    predicted = predicted.reshape(shape)
    if len(levels) < 2:
        return predicted[..., 0], predicted[..., 0]
    return predicted[..., int(np.argmin(levels))], predicted[..., int(np.argmax(levels))]


# --- prediction sets ------------------------------------------------------------------------------


def calibrate_sets(
    classifier: PolyleafClassifier, X: DataLike, rows: RowData, coverage: float
) -> None:
    """Find the depth of prediction sets and store it; see `PolyleafClassifier.calibrate`."""
    check_is_fitted(classifier)
    check_coverage(coverage)
    scores = _compute_nonconformity(classifier, X, None, rows.offset)
    target = classifier._encoding.encode(rows, normalized=False)
    check_same_rows(len(scores), target.n_rows)
    truth, classes = target.values, target.get_row_classes()
    if classes is not None:
        truth = np.arange(scores.shape[1]) == np.asarray(classes, np.int64)[:, None]
    weight = np.ones(len(scores)) if target.weight is None else target.weight
    weight = weight if weight.ndim == 1 else weight.min(axis=1)
    depth = interval_widths(truth_nonconformity(scores, truth)[:, None], coverage, weight)[0]
    set_calibration(
        classifier.model_, "prediction_sets", coverage=float(coverage), depth=float(depth)
    )


def predict_sets(
    classifier: PolyleafClassifier,
    X: DataLike,
    iteration_range: tuple[int, int] | None,
    offset: DataLike | None,
) -> np.ndarray:
    """Compute calibrated prediction sets, bool (n_rows, n_classes or n_labels)."""
    check_is_fitted(classifier)
    depth = float(get_calibration(classifier.model_, "prediction_sets")["depth"])
    return _compute_nonconformity(classifier, X, iteration_range, offset) <= depth


def _compute_nonconformity(
    classifier: PolyleafClassifier,
    X: DataLike,
    iteration_range: tuple[int, int] | None,
    offset: DataLike | None,
) -> np.ndarray:
    """Compute the depth that a set needs to include each class or label, (n_rows, n)."""
    probability = classifier.predict_proba(X, iteration_range=iteration_range, offset=offset)
    is_multilabel = classifier._encoding.kind == "multilabel"
    compute = label_nonconformity if is_multilabel else class_nonconformity
    return compute(np.asarray(probability))


N_FOLDS = 3  # of cross-fitting, without an evaluation set
F1_CHOICES = ("f1", "f1_macro")


def decide(
    raw: np.ndarray, encoding: TargetEncoding, raw_threshold: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return the class of each row (n_rows,), or int64 indicators of labels (n_rows, n_labels).

    `raw` (n_rows, n_scores). `raw_threshold` (n_labels,): raw score above which a label, or the
    second of two classes, is predicted.
    """
    if encoding.kind == "multilabel":
        return (raw > raw_threshold).astype(np.int64)
    assert encoding.classes is not None
    if raw.shape[1] > 1:
        return encoding.classes[raw.argmax(axis=1)]
    return encoding.classes[(raw > raw_threshold)[:, 0].astype(np.intp)]


def compute_probabilities(
    raw: np.ndarray, encoding: TargetEncoding, objective: Objective
) -> np.ndarray:
    """Return probabilities of classes (n_rows, n_classes), or of labels (n_rows, n_labels)."""
    probability = objective.transform(raw)
    if encoding.kind == "binary":
        return np.column_stack([1.0 - probability[:, 0], probability[:, 0]])
    if encoding.one_vs_rest:
        total = probability.sum(axis=1, keepdims=True)
        return np.divide(
            probability,
            total,
            out=np.full_like(probability, 1.0 / probability.shape[1]),
            where=total > 0,
        )
    return probability


class DecisionThresholdMixin(PolyleafEstimator):
    """`threshold`, `thresholds_` and `choose_threshold` of classifiers."""

    if TYPE_CHECKING:  # of classifiers
        threshold: Any

    @property
    def thresholds_(self) -> np.ndarray:
        """Probabilities above which labels, or the second of two classes, are predicted."""
        check_is_fitted(self)
        return get_decision_thresholds(self.model_)

    def choose_threshold(
        self,
        X: DataLike,
        y: DataLike | None = None,
        sample_weight: DataLike | None = None,
        *,
        by: Literal["f1", "f1_macro"] = "f1",
        offset: DataLike | None = None,
    ) -> Self:
        """Choose one decision threshold for all labels that maximises F1 on these rows.

        Probabilities do not change.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
            Rows outside the training data, whose probabilities are not overconfident.
        y : array-like of shape (n_rows,) or (n_rows, n_labels), optional
            None: maximise the expected F1 under the predicted probabilities, for rows without
            labels.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_labels), optional
        by : {"f1", "f1_macro"}
            F1 over all cells, or the mean F1 of the labels.
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For several classes, and if the model has no probabilities.
        """
        check_is_fitted(self)
        _check_has_threshold(self._encoding, self.model_.objective)
        require_choice(by, F1_CHOICES, "by")
        probability = self.model_.objective.transform(self._raw(X, None, offset))
        if not len(probability):
            raise ValueError("choose_threshold needs at least one row, and X has none.")
        truth, weight = probability, None
        if y is not None:
            target = self._encoding.encode(RowData(y, sample_weight), normalized=False)
            truth, weight = target.values, target.weight
            check_same_rows(len(probability), len(truth))
        elif sample_weight is not None:
            weight = np.asarray(sample_weight, np.float64)
        threshold = best_f1_threshold(probability, truth, weight, by == "f1_macro")
        set_decision_thresholds(self.model_, threshold)
        return self

    def _check_threshold(self, encoding: TargetEncoding, objective: Objective) -> None:
        """Check the parameter before training."""
        if not (isinstance(self.threshold, float) and self.threshold == 0.5):
            _check_has_threshold(encoding, objective)
        if not isinstance(self.threshold, str):
            _read_thresholds(self.threshold, encoding)

    def _calibration_metadata(self, encoding: TargetEncoding) -> dict[str, object]:
        thresholds: float | np.ndarray = 0.5
        if not isinstance(self.threshold, str):
            thresholds = _read_thresholds(self.threshold, encoding)
        n_scores = 1 if encoding.kind == "binary" else encoding.n_outputs
        return encode_decision_thresholds(thresholds, n_scores)

    def _choose_threshold_by_f1(self, run: TrainingRun) -> None:
        """Choose the threshold by F1 on the last evaluation set, or by cross-fitting on all rows
        without one."""
        if not run.eval_sets:  # y as passed to `fit`, without class weights
            target = self._encoding.encode(run.data.rows, normalized=False)
            truth, weight = target.values, target.weight
            scores, has_score = _cross_fit(run)
            weight = has_score if weight is None else (weight.T * has_score).T
        else:
            eval_set = run.eval_sets[-1]
            rows = eval_set.rows
            truth, weight = rows.target, rows.weight
            scores = self.model_.predict_raw_binned(
                eval_set.codes,
                0,
                run.n_used_rounds,
                run.settings.workers.n_threads,
                eval_set.features,
            )
            scores = rows.add_offset(scores)
        probability = self.model_.objective.transform(scores)
        threshold = best_f1_threshold(probability, truth, weight, self.threshold == "f1_macro")
        set_decision_thresholds(self.model_, threshold)


def _check_has_threshold(encoding: TargetEncoding, objective: Objective) -> None:
    if encoding.kind == "multiclass":
        refuse("threshold", "several_classes")
    if objective.link != "logistic":
        refuse("threshold", "other_links", objective=objective.name)


def _read_thresholds(threshold: object, encoding: TargetEncoding) -> float | np.ndarray:
    """Return the thresholds that the parameter names."""
    if not isinstance(threshold, Mapping):
        return _check_probability(threshold)
    if encoding.kind == "binary":
        return _read_binary_threshold(threshold, encoding)
    thresholds = np.full(encoding.n_outputs, 0.5)
    for label, value in threshold.items():
        i = get_index(label, encoding.output_names, encoding.n_outputs, "threshold", "label")
        thresholds[i] = _check_probability(value)
    return thresholds


def _read_binary_threshold(threshold: Mapping[object, object], encoding: TargetEncoding) -> float:
    assert encoding.classes is not None
    first, second = encoding.classes.tolist()
    if len(threshold) != 1 or next(iter(threshold)) not in (first, second):
        raise ValueError(
            f"threshold of two classes must name one of them, such as {{{second!r}: 0.5}}; got "
            f"{dict(threshold)!r}."
        )
    label, value = next(iter(threshold.items()))
    return _check_probability(value) if label == second else 1.0 - _check_probability(value)


def _check_probability(value: Any) -> float:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1:
        raise ValueError(
            'threshold must be a probability between 0 and 1, "f1", "f1_macro" or '
            f"{{label: probability}}, got {value!r}."
        )
    return float(value)


def _cross_fit(run: TrainingRun) -> tuple[np.ndarray, np.ndarray]:
    """Return cross-fitted scores of all rows, and 1.0 for rows that have scores, else 0.0."""
    n_rows, seed = run.rows.n_rows, run.settings.sampling.seed
    scores, has_score = np.zeros((n_rows, run.rows.target.shape[1])), np.zeros(n_rows)
    for rows, held in run.rules.iter_folds(n_rows, N_FOLDS, seed):
        fold_scores = cross_fit_scores(run, rows, held)
        if fold_scores is not None:
            scores[held], has_score[held] = fold_scores, 1.0
    return scores, has_score
