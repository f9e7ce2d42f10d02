"""The linear model of `init="linear"` and `init="auto"`.

Numeric features are standardised, missing values replaced by means, and categories are left to the
trees. Numbers have ridge regressions; their penalty is the one with the lowest error on blocks of
rows that are left out. Sums over a block are subtracted from the sums over all rows, so that the
model without a block costs no pass over the rows (Allen, "The relationship between variable
selection and data augmentation and a method for prediction", Technometrics, 1974). Missing targets
have weight 0 in the sums of their output. Classes and labels have logistic regressions; counts and
amounts have generalised linear models of the objective's family.

Scores have the mean 0 over the rows: the base score holds the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from polyleaf.binned_data.random_rows import SplitRules
from polyleaf.model.initial import LinearInitialModel
from polyleaf.objectives import Objective
from polyleaf.user_data.feature_table import FeatureTable
from polyleaf.user_data.multitask import TaskTarget
from polyleaf.user_data.target import Target

# Penalties of ridge regressions, in sums of weights. All blocks choose one; with many features
# every fourth block does, since each takes long.
_PENALTIES = tuple(1e-4 * 5.0**k for k in range(7))
_MANY_FEATURES, _TRIED_SHARE = 400, 4
N_TIME_BLOCKS, N_FOLDS = 20, 10
# Features beyond which a normal equation takes too long; rows of sparse X have more.
MAX_FEATURES = 2_000
_N_REPEATED_FITS = 5  # models of folds where each of them is a fit
_IDENTITY_LINKS = ("identity", "sorted_levels", None)
# Powers of the mean that variances are proportional to.
_POWERS = {
    "poisson": 1.0,
    "negative_binomial": 1.0,
    "gamma": 2.0,
    "gamma_distribution": 2.0,
    "lognormal": 2.0,
}

_Parts = Sequence[tuple[np.ndarray, np.ndarray]]
"""Rows that models of folds are fitted to, and rows that they score."""


@dataclass(frozen=True)
class LinearFit:
    """A linear model of all rows, and what models of folds give their rows.

    Attributes
    ----------
    model : LinearInitialModel
    scores : ndarray of shape (n_rows, n_scores), float64
        Scores of each row by a model that was fitted without it, in the unit of y.
    is_optional : bool
        Whether hold-out fits may leave the model out.
    """

    model: LinearInitialModel
    scores: NDArray[np.float64]
    _features: NDArray[np.float64]
    _target: Target
    _objective: Objective
    _rules: SplitRules
    _seed: int
    is_optional: bool = False

    @classmethod
    def fit(
        cls, table: FeatureTable, target: Target, objective: Objective, rules: SplitRules, seed: int
    ) -> LinearFit:
        """Fit the model.

        Parameters
        ----------
        target : Target
            Scores are added to the offset of its rows.
        rules : SplitRules
            Rules of the folds, which are blocks in the order of time if there is one.
        """
        return cls._fit_numbers(table.to_float64(), target, objective, rules, seed)

    @classmethod
    def _fit_numbers(
        cls,
        features: NDArray[np.float64],
        target: Target,
        objective: Objective,
        rules: SplitRules,
        seed: int,
    ) -> LinearFit:
        weight = target.weight
        is_used: NDArray[np.bool_] = np.ones(target.n_rows, bool)
        if weight is not None:
            is_used = np.any((weight > 0).reshape(target.n_rows, -1), axis=1)
        mean, scale = _measure(features[is_used])
        standardised = (np.where(np.isnan(features), mean, features) - mean) / scale
        fitted = []
        with threadpool_limits(1, user_api="blas"):  # sums must not depend on threads
            for part, loss in _split_tasks(target, objective):
                has_link = loss.initial_link not in _IDENTITY_LINKS
                fit, n_folds = _fit_ridge, N_FOLDS if rules.time is None else N_TIME_BLOCKS
                if has_link or part.encoding.kind != "regression":
                    fit, n_folds = _fit_generalised, _N_REPEATED_FITS
                folds = [
                    (rows[is_used[rows]], held)
                    for rows, held in rules.iter_cross_fits(target.n_rows, n_folds, seed, None)
                ]
                fitted.append(fit(standardised, part, loss, np.flatnonzero(is_used), folds))
            slopes, scores = (np.hstack(columns) for columns in zip(*fitted, strict=True))
            coef = slopes / scale[:, None]
            intercept = -mean @ coef
        model = LinearInitialModel(
            coef=coef, intercept=intercept, mean=mean, fill=mean, reads_table=True
        )
        return cls(model, scores, features, target, objective, rules, seed)

    def compute_offset(self) -> NDArray[np.float64]:
        """Return the scores plus the offset of the rows, as `fit` takes it: one for each column."""
        offset = self._target.rows.add_offset(self.scores)
        columns: NDArray[np.float64] = offset[:, :: len(self._objective.offset_mask)]
        return columns

    def take(self, rows: np.ndarray) -> LinearFit:
        """Return the model of all rows with the scores of some rows."""
        return replace(
            self,
            scores=self.scores[rows],
            _features=self._features[rows],
            _target=self._target.take(rows),
            _rules=self._rules.take(rows),
        )

    def score_hold_out(self, rows: np.ndarray, held: np.ndarray) -> NDArray[np.float64]:
        """Return scores (n_rows, n_scores) of rows to train on, by models that were fitted without
        them, and of held-out rows, by a model of the others; other rows have any scores.

        In the order of time, models of folds have seen rows after the ones that they score, so that
        they would be better on held-out rows than any model of the rows before these.
        """
        if self._rules.time is None:
            return self.scores
        part = LinearFit._fit_numbers(
            self._features[rows],
            self._target.take(rows),
            self._objective,
            self._rules.take(rows),
            self._seed,
        )
        scores = self.scores.copy()
        scores[rows] = part.scores
        scores[held] = part.model.scores(self._features[held])
        return scores


def _split_tasks(target: Target, objective: Objective) -> Iterable[tuple[Target, Objective]]:
    """Yield the target and the objective of each task, which have a linear model each."""
    if not isinstance(target, TaskTarget):
        yield target, objective
        return
    for place, part in zip(objective.tasks, target.split_tasks(), strict=True):
        offset = target.rows.offset
        offset = None if offset is None else offset[:, place.scores]
        yield part.replace_rows(offset=offset), place.task.objective


def _measure(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of features, 0 and 1 without values."""
    is_known = ~np.isnan(features)
    count = np.maximum(is_known.sum(axis=0), 1)
    mean = np.where(is_known, features, 0.0).sum(axis=0) / count
    with np.errstate(over="ignore"):  # a feature of an infinite scale has the slope 0
        scale = np.sqrt((np.where(is_known, features - mean, 0.0) ** 2).sum(axis=0) / count)
    # Rounding of a constant is no spread.
    return mean, np.where(scale > 1e-10 * np.abs(mean), scale, 1.0)


# --- ridge regressions ---


def _fit_ridge(
    X: np.ndarray, target: Target, objective: Objective, used: np.ndarray, parts: _Parts
) -> tuple[np.ndarray, np.ndarray]:
    """Return slopes (n_features, n_scores), and out-of-fold scores (n_rows, n_scores)."""
    y = np.asarray(target.to_target_scale(), np.float64)
    if target.rows.offset is not None:
        y = y - target.rows.offset[:, :: len(objective.offset_mask)]
    weight = np.ones((len(y), 1)) if target.weight is None else target.weight.astype(np.float64)
    weight = weight.reshape(len(y), -1)
    # The intercept is the last column.
    extended = np.column_stack([X, np.ones(len(X))])
    patterns, pattern_of_output = np.unique(weight, axis=1, return_inverse=True)
    groups = [
        _RidgeGroup(extended, y[:, outputs], patterns[:, i], parts, outputs)
        for i, outputs in _group(pattern_of_output, y.shape[1])
    ]
    total = max(float(pattern.sum()) for pattern in patterns.T)
    penalties = [penalty * total for penalty in _PENALTIES]
    chosen = [group.compute_errors(penalties) for group in groups]
    penalty = penalties[int(np.sum(chosen, axis=0).argmin())]
    slopes, scores = np.empty((X.shape[1], y.shape[1])), np.empty_like(y)
    for group in groups:
        group.fit(penalty, slopes, scores)
    mask = np.asarray(objective.offset_mask, np.float64)
    return np.kron(slopes, mask), np.kron(scores, mask)


def _group(pattern_of_output: np.ndarray, n_outputs: int) -> Iterable[tuple[int, np.ndarray]]:
    """Yield the number of each pattern of weights, and the outputs that have it."""
    numbers = np.broadcast_to(pattern_of_output.ravel(), n_outputs)
    for i in range(int(numbers.max()) + 1):
        yield i, np.flatnonzero(numbers == i)


class _RidgeGroup:
    """Ridge regressions of outputs with equal weights."""

    def __init__(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray, parts: _Parts, outputs: np.ndarray
    ) -> None:
        self._X, self._y, self._weight, self._outputs = X, y, weight, outputs
        self._parts = parts
        self._sums = _sum(X, y, weight)
        # The sums of the rows that a fold leaves out.
        self._left_out = []
        for rows, _ in parts:
            is_left_out = np.ones(len(X), bool)
            is_left_out[rows] = False
            self._left_out.append(_sum(X[is_left_out], y[is_left_out], weight[is_left_out]))

    def _solve(self, penalty: float, fold: int | None = None) -> np.ndarray:
        """Return the coefficients (n_features + 1, k) without the rows of a fold."""
        A, b = self._sums
        if fold is not None:
            A, b = A - self._left_out[fold][0], b - self._left_out[fold][1]
        A = A.copy()
        # A small penalty of the intercept makes folds without any target solvable.
        diagonal = np.full(len(A), penalty)
        diagonal[-1] = 1e-9 * penalty
        A[np.diag_indices_from(A)] += diagonal
        solution: np.ndarray = scipy.linalg.solve(A, b, assume_a="pos", check_finite=False)
        return solution

    def compute_errors(self, penalties: Sequence[float]) -> np.ndarray:
        """Return the sum of squared errors of each penalty, in variances of the outputs."""
        w = self._weight[:, None]
        mean = (w * self._y).sum(axis=0) / max(w.sum(), np.finfo(float).tiny)
        variance = (w * (self._y - mean) ** 2).sum(axis=0)
        variance[variance == 0] = 1.0
        errors = np.zeros(len(penalties))
        step = 1 if self._X.shape[1] <= _MANY_FEATURES else _TRIED_SHARE
        for fold in range(0, len(self._parts), step):
            held = self._parts[fold][1]
            for i, penalty in enumerate(penalties):
                residual = self._X[held] @ self._solve(penalty, fold) - self._y[held]
                errors[i] += (w[held] * residual**2 / variance).sum()
        return errors

    def fit(self, penalty: float, slopes: np.ndarray, scores: np.ndarray) -> None:
        """Fill in the slopes of the outputs, and their out-of-fold scores."""
        coef = self._solve(penalty)[:-1]
        slopes[:, self._outputs] = coef
        fitted = self._X[:, :-1] @ coef
        low, high = fitted.min(axis=0), fitted.max(axis=0)
        for fold, (_, held) in enumerate(self._parts):
            part = self._X[held, :-1] @ self._solve(penalty, fold)[:-1]
            # A model that has not seen an outlier may give it a score of any size.
            limited = np.clip(part, 2 * low - high, 2 * high - low)
            scores[held[:, None], self._outputs] = limited


def _sum(X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both sides of the normal equations."""
    weighted = X * weight[:, None]
    return weighted.T @ X, weighted.T @ y


# --- generalised linear models ---


def _fit_generalised(
    X: np.ndarray, target: Target, objective: Objective, used: np.ndarray, parts: _Parts
) -> tuple[np.ndarray, np.ndarray]:
    """Return slopes (n_features, n_scores), and out-of-fold scores (n_rows, n_scores)."""
    fit = _fit_regressions if target.encoding.kind == "regression" else _fit_classes
    slopes = fit(X, target, objective, used)
    scores = np.empty((len(X), slopes.shape[1]))
    for rows, held in parts:
        scores[held] = X[held] @ fit(X, target, objective, rows)
    return slopes, scores


def _fit_classes(
    X: np.ndarray, target: Target, objective: Objective, rows: np.ndarray
) -> np.ndarray:
    """Return the slopes of logistic regressions (n_features, n_scores) of some rows."""
    if target.weight is not None and target.weight.ndim == 1:
        rows = rows[target.weight[rows] > 0]
    y, weight, offset = target.values[rows], target.weight, target.rows.offset
    weight = None if weight is None else weight[rows]
    n_scores = objective.n_scores(target.encoding.n_outputs)
    offset = np.zeros((len(rows), n_scores)) if offset is None else offset[rows]
    slopes = np.zeros((X.shape[1], n_scores))
    if not target.encoding.has_class_ids:
        for k in range(y.shape[1]):
            w = weight if weight is None or weight.ndim == 1 else weight[:, k]
            slopes[:, k] = _fit_label(X[rows], y[:, k], w, offset[:, k])
        return slopes
    if y.ndim == 2:  # each row counts as each class with its share
        row, ids = np.nonzero(y)
        shares = y[row, ids]
        weight = shares if weight is None else shares * weight[row]
        rows, y, offset = rows[row], ids, offset[row]
    classes, ids = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        return slopes
    classes = classes.astype(np.int64)
    slopes[:, classes] = _fit_logistic(
        X[rows], np.eye(len(classes))[ids], weight, offset[:, classes]
    )
    return slopes


def _fit_label(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, offset: np.ndarray
) -> np.ndarray:
    """Return the slopes of one label, 0 if all known rows agree."""
    is_known = np.ones(len(y), bool) if weight is None else weight > 0
    X, y, offset = X[is_known], y[is_known, None] > 0.5, offset[is_known, None]
    if not len(y) or y.min() == y.max():
        return np.zeros(X.shape[1])
    weight = None if weight is None else weight[is_known]
    # The scores of both classes are opposite; the score of the label is their difference.
    both = np.hstack([~y, y]).astype(np.float64), weight, np.hstack([-offset / 2, offset / 2])
    return 2.0 * _fit_logistic(X, *both)[:, 1]


def _fit_logistic(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, offset: np.ndarray
) -> np.ndarray:
    """Return the slopes (n_features, n_scores) of a logistic regression.

    The penalty is scikit-learn's, whose models take no offset: half the sum of squared slopes, of
    two classes half the squared difference of their slopes.

    Parameters
    ----------
    y : ndarray of shape (n_rows, n_scores)
        Indicators of the classes.
    offset : ndarray of shape (n_rows, n_scores)
        Numbers that the scores of the model are added to.
    """
    n_scores = y.shape[1]
    shape = X.shape[1] + 1, n_scores
    w = np.ones((len(X), 1)) if weight is None else np.asarray(weight, np.float64)[:, None]
    penalty = 2.0 if n_scores == 2 else 1.0  # of two opposite scores, d / 2 each: d^2 / 2

    def compute_loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        coef = flat.reshape(shape)
        scores = offset + X @ coef[:-1] + coef[-1]
        log_p = scores - scipy.special.logsumexp(scores, axis=1, keepdims=True)
        residual = w * (np.exp(log_p) - y)
        slopes = X.T @ residual + penalty * coef[:-1]
        loss = 0.5 * penalty * np.sum(coef[:-1] ** 2) - np.sum(w * y * log_p)
        return float(loss) / total, np.vstack([slopes, residual.sum(axis=0)]).ravel() / total

    total, options = w.sum(), {"maxiter": 300, "ftol": 1e-14, "gtol": 1e-6}
    fitted = scipy.optimize.minimize(
        compute_loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options
    )
    slopes: np.ndarray = fitted.x.reshape(shape)[:-1]
    return slopes


def _fit_regressions(
    X: np.ndarray, target: Target, objective: Objective, rows: np.ndarray
) -> np.ndarray:
    """Return the slopes of generalised linear models (n_features, n_scores) of some rows."""
    # Few fits need the module, which takes long to import.
    from sklearn.linear_model import TweedieRegressor

    power = _POWERS.get(objective.name, getattr(objective, "variance_power", None))
    if power is None:
        raise ValueError(
            f"init has no linear model for objective {objective.name!r}: pass an estimator that "
            "predicts its values, or leave init=None."
        )
    y = np.asarray(target.to_target_scale(), np.float64)[rows]
    weight = np.ones((len(y), 1)) if target.weight is None else target.weight[rows]
    weight = weight.reshape(len(y), -1)
    offset = target.rows.offset
    if offset is not None:  # y / s has the deviance of y times s^(power - 2)
        factor = np.exp(offset[rows][:, :: len(objective.offset_mask)])
        y, weight = y / factor, weight * factor ** (2 - power)
    slopes = np.empty((X.shape[1], y.shape[1]))
    for k in range(y.shape[1]):
        w = weight[:, min(k, weight.shape[1] - 1)]
        is_known = w > 0
        model = TweedieRegressor(power=power, link="log", alpha=1e-3, max_iter=300)
        model.fit(X[rows][is_known], y[is_known, k], w[is_known])
        slopes[:, k] = model.coef_
    return np.kron(slopes, np.asarray(objective.offset_mask, np.float64))
