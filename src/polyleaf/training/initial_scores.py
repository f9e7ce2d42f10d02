"""Fitting of the initial model (`init`), and the scores from which the training rows start.

A model has seen the targets of its training rows, so its scores there are too good, and trees that
start from them would underfit the remaining error. Rows therefore start from out-of-fold scores.
A model of some rows has a lower mean where the other rows have a higher one, so its scores are
shifted to the mean of the model of all rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_array, check_is_fitted, has_fit_parameter

from polyleaf.binned_data.random_rows import find_repeated_rows, hash64, hash_values
from polyleaf.model.initial import (
    EstimatorInitialModel,
    InitialModel,
    LinearInitialModel,
    ScoreReader,
    SparseStart,
    describe_estimator,
)
from polyleaf.objectives import Objective
from polyleaf.objectives._utils import minimise_base_score
from polyleaf.runtime.capabilities import check, refuse
from polyleaf.runtime.row_data import InitialScores, select_rows
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.training.linear_models import LinearFit
from polyleaf.training.prepare import check_parts, check_rows, hash_rows, read_split_rules
from polyleaf.training.training_run import TrainingData, TrainingRun
from polyleaf.user_data.features import read_features
from polyleaf.user_data.target import Target
from polyleaf.user_data.target_scaling import sum_columns

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

N_FOLDS = 5
_MAX_FACTOR_CELLS = 1 << 22  # rows times scores that the factor is fitted to
_MAX_FACTOR_STEPS, _FACTOR_TOLERANCE = 30, 1e-3
_LEAST_FACTOR = 1e-6  # of scores that are of no use
_CLEAR_SCORE = 12.0  # scores up to this size are compared: probabilities near 0 or 1 are clipped
_SPARSE_DENSITY = 0.1  # of coefficients that are stored as a sparse matrix
_LEAST_COEF = 1e-13  # relative to the largest
_UNSEEN_SCORE = 6.0  # of a label that is the same in all rows, as all others are
_PROBE_CELLS = 1 << 22  # numbers in the rows that an estimator scores at a time
_N_OUTER_ROWS = 256  # rows that are moved outside the range of X, where scores are compared


def start_from_initial_model(
    p: Any, run: TrainingRun, init_scores: Any, read_scores: Callable[..., np.ndarray]
) -> None:
    """Fit `init`, and set its scores of all rows as offsets: cross-fitted on the training rows.

    The initial model of the model that training continues is kept. `init_scores` are out-of-fold
    scores for an `init` that is fitted already; `read_scores(values, n_rows, name)` reads them as
    it reads an offset.
    """
    data = run.data
    target = run.target.replace_rows(offset=data.rows.offset)  # y contains the offset
    if data.rows.offset is not None:
        run.set_offset(data.rows.offset)
    previous = None if run.init_model is None else run.init_model.initial
    if run.init_model is not None and previous is None and getattr(p, "init", None) == "auto":
        return  # trees alone were the best
    init = _read_init(p, run, target, init_scores)
    rows_id = _identify(target)
    if previous is not None and init_scores is None:
        has_seen_rows = previous.starts_trees and previous.rows_id == rows_id
        if not has_seen_rows:
            _set_scores(run, p, previous, compute_scores(p, previous, data.X))
            return
    if init is None:
        raise ValueError(
            "The initial model of the model to continue was fitted to these rows, so its scores "
            "are too good there: set init, or pass init_scores."
        )
    if isinstance(init, str) and init_scores is None:
        _start_from_linear_model(p, run, target, init == "auto", previous)
        return
    model, scores = _fit_init(p, run, init, target, init_scores, read_scores)
    if previous is None:
        _warn_interactions(p, model)
        is_classifier = target.encoding.kind != "regression"
        model = model.scale(_fit_factor(run.objective, target, scores) if is_classifier else 1.0)
        sparse = _make_sparse_start(p, target, run.objective)
        model = replace(model, sparse=sparse, rows_id=rows_id)
    else:
        model = previous
    scores = model.factor * scores
    _set_scores(run, p, model, scores if model.sparse is None else model.sparse.select(scores))


def _read_init(p: Any, run: TrainingRun, target: Target, init_scores: Any) -> Any:
    """Return `init`, after checks of what it is combined with: an estimator, "linear", "auto", or
    None if training continues."""
    init, data, start = getattr(p, "init", None), run.data, run.init_model
    if isinstance(init, str) and (target.is_sparse or scipy.sparse.issparse(data.X)):
        if run.objective.tasks:
            refuse("init_estimator", "tasks")
        init = _choose_estimator(data, target)
    if init is None and init_scores is not None:
        raise ValueError("init_scores are the out-of-fold scores of init, which is None.")
    if start is not None and start.initial is None:
        raise ValueError(
            "The model to continue has no initial model, and cannot be given one: leave init=None."
        )
    check(
        parameters=p,
        model=start,
        X=data.X,
        evaluated=[each.X for each in run.eval_data],
        weight=data.rows.weight,
        offset=data.rows.offset,
        target=target,
    )
    if not isinstance(init, str):
        _check_no_missing_targets(data.rows.weight, target)
    return init


def _start_from_linear_model(
    p: Any, run: TrainingRun, target: Target, is_optional: bool, previous: InitialModel | None
) -> None:
    """Fit the linear model of a run, or only its out-of-fold scores if there is a previous one.

    `is_optional`: whether hold-out fits decide about it.
    """
    data = run.data
    linear = fit_linear_model(p, data, target, run.objective, run.seeds.training)
    model = previous or linear.model
    assert isinstance(model, LinearInitialModel)
    run.linear = replace(linear, model=model, is_optional=is_optional)
    run.initial_scores = InitialScores(linear.scores, data.rows.offset)
    run.eval_data = [
        each._replace(initial_scores=_score(p, linear.model, each)) for each in run.eval_data
    ]
    if previous is not None:
        run.use_linear_model()


def _fit_init(
    p: Any,
    run: TrainingRun,
    init: Any,
    target: Target,
    init_scores: Any,
    read_scores: Callable[..., np.ndarray],
) -> tuple[InitialModel, np.ndarray]:
    """Return the model of an estimator, and its scores of the training rows: out-of-fold, unless it
    is fitted already."""
    data = run.data
    fit_data = _Data(init, data, target, run.objective)
    if init_scores is not None:
        check_is_fitted(init)
        model, _ = _make_model(init, fit_data)
        if scipy.sparse.issparse(init_scores):
            return model, init_scores.toarray()
        return model, read_scores(init_scores, target.n_rows, "init_scores")
    if _is_frozen(init):
        return _make_model(init, fit_data)
    check_rows(p, data.X, target)
    if data.rows.offset is not None and not run.objective.is_translation_invariant:
        refuse("init_estimator", "offset_in_link")
    return _cross_fit(p, init, fit_data, data, target, run.seeds.training)


def fit_linear_model(
    p: Any, data: TrainingData, target: Target, objective: Objective, seed: int
) -> LinearFit:
    """Fit the linear model of `init="linear"`."""
    check_rows(p, data.X, target)
    table = read_features(data.X, categorical_features=p.categorical_features)
    rules = read_split_rules(p, data.rows, target.n_rows)
    linear = LinearFit.fit(table, target, objective, rules, seed)
    return replace(linear, model=replace(linear.model, rows_id=_identify(target)))


def _warn_interactions(p: Any, model: InitialModel) -> None:
    """Warn if an initial model may combine features that may not interact; linear ones add them."""
    if p.interaction_constraints is not None and not isinstance(model, LinearInitialModel):
        warn_user(
            "init may combine features that interaction_constraints keep apart, so predictions may "
            "depend on such combinations, too; trees do not."
        )


def _set_scores(run: TrainingRun, p: Any, model: InitialModel, scores: Any) -> None:
    """Set the initial model of a run, and the scores of all rows; `scores`: of its own rows."""
    run.initial = model
    run.initial_scores = InitialScores(scores, run.data.rows.offset)
    if model.starts_trees:
        run.add_offset(scores)
    scored = [_score(p, model, each) for each in run.eval_data]
    run.eval_data = [
        each._replace(initial_scores=initial_scores).replace_rows(offset=initial_scores.scale(1.0))
        for each, initial_scores in zip(run.eval_data, scored, strict=True)
    ]


def _score(p: Any, model: InitialModel, data: TrainingData) -> InitialScores:
    """Return the scores of evaluation data by an initial model, and their offset."""
    return InitialScores(compute_scores(p, model, data.X), data.rows.offset)


def compute_scores(p: Any, model: InitialModel, X: DataLike) -> Any:
    """Return the scores of X as it was passed."""
    if model.reads_table:
        X = read_features(X, categorical_features=p.categorical_features).to_float64()
    return model.scores(X)


def _choose_estimator(data: TrainingData, target: Target) -> Any:
    """Return the estimator that takes the place of the linear model for sparse X or y, whose
    normal equations would be too large."""
    # Imported where it is needed, which few fits do.
    from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
    from sklearn.multiclass import OneVsRestClassifier

    if target.encoding.kind == "regression":
        return Ridge(solver="sparse_cg")
    if target.is_sparse:
        return RidgeClassifier(alpha=10.0)
    model = LogisticRegression(solver="liblinear")
    return model if target.encoding.kind == "binary" else OneVsRestClassifier(model)


def _identify(target: Target) -> str:
    """Return a checksum of the targets, to tell the training rows from others.

    Numbers tell the rows in any order, classes and labels only in that of the training.
    """
    hashes = hash_values(target.values)
    if target.encoding.kind != "regression":
        hashes = hashes + hash64(np.arange(len(hashes)))
    return f"{int(hash64(hashes).sum()):016x}"


def _make_sparse_start(p: Any, target: Target, objective: Objective) -> SparseStart | None:
    """Return how sparse targets start: from more scores than a leaf has."""
    if not target.is_sparse:
        return None
    assert objective.sparse_base_score is not None
    top = min(target.values.shape[1], 5 * p.leaf_k)
    return SparseStart(top, float(objective.sparse_base_score))


def _is_frozen(estimator: object) -> bool:
    """Return whether an estimator is fitted already, and `fit` and `clone` leave it as it is."""
    return type(estimator).__name__ == "FrozenEstimator"


def _check_no_missing_targets(weight: DataLike, target: Target) -> None:
    if target.encoding.missing == "ignore" and target.weight is not None:
        row_weight = np.ones(target.n_rows) if weight is None else np.asarray(weight)
        if ((target.weight == 0).T & (row_weight != 0).T).any():
            refuse("init_estimator", "missing_values_in_y")


class _Data:
    """The rows that `init` is fitted to, as estimators of scikit-learn expect them."""

    def __init__(
        self, init: object, data: TrainingData, target: Target, objective: Objective
    ) -> None:
        encoding, X = target.encoding, data.X
        self.X = X.tocsr() if scipy.sparse.issparse(X) else X
        self.X = np.asarray(X) if isinstance(X, list | tuple) else self.X
        self.weight = _read_weight(data.rows.weight)
        if target.rows.offset is not None and objective.is_translation_invariant:
            target = target.subtract_offset(objective.outputs_per_target())
        self.y = _decode_target(target, init)
        self.reader = ScoreReader(
            encoding.kind,
            objective.initial_link,
            encoding.classes,
            objective.n_scores(encoding.n_outputs),
            tuple(objective.offset_mask),
        )

    def fit(self, init: object, rows: np.ndarray) -> Any:
        """Fit a copy to some of the rows, without those of weight 0."""
        keywords = {}
        if self.weight is not None:
            rows = rows[self.weight[rows] > 0]
            keywords = {_find_weight_parameter(init): self.weight[rows]}
        estimator: Any = clone(init)
        y = select_rows(self.y, rows)
        try:
            return estimator.fit(select_rows(self.X, rows), y, **keywords)
        except ValueError as error:
            hint = "."
            if y.ndim > 1:
                hint = (
                    '. If it learns one output, use init="linear", or MultiOutputRegressor or '
                    "MultiOutputClassifier of scikit-learn."
                )
            name = type(init).__name__
            raise ValueError(
                f"init={name} cannot be fitted: {str(error).rstrip('.')}{hint}"
            ) from error

    def read(self, estimator: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of all rows by an estimator that was fitted to some of them, and the
        scores (n_scores,) of labels that are the same in those, NaN for others.

        Estimators have no scores for such labels, which get the lowest or the highest mean of the
        other labels.
        """
        scores = self.reader.read(estimator, self.X)
        constant = np.full(scores.shape[1], np.nan)
        if self.reader.kind == "multilabel":
            counts = np.asarray(select_rows(self.y, rows).sum(axis=0)).ravel()
            is_never, is_always = counts == 0, counts == len(rows)
            others = scores.mean(axis=0)[~(is_never | is_always)]
            constant[is_never] = others.min() if len(others) else -_UNSEEN_SCORE
            constant[is_always] = others.max() if len(others) else _UNSEEN_SCORE
        return np.where(np.isnan(constant), scores, constant), constant


def _cross_fit(
    p: Any, init: Any, data: _Data, training: TrainingData, target: Target, seed: int
) -> tuple[InitialModel, np.ndarray]:
    """Return the model of all rows, and the out-of-fold scores (n_rows, n_scores)."""
    all_rows, classes = np.arange(target.n_rows), target.get_row_classes()
    model, scores = _make_model(data.fit(init, all_rows), data)
    used = slice(None) if data.weight is None else data.weight > 0
    mean, lowest = _average_columns(scores[used]), scores[used].min(axis=0)
    spread = np.ptp(scores[used], axis=0)
    rules = read_split_rules(p, training.rows, target.n_rows)
    rules = rules.keep_copies(find_repeated_rows(hash_rows(p, training.X), target.values))
    out_of_fold = np.empty_like(scores)
    for rows, held in rules.iter_cross_fits(target.n_rows, N_FOLDS, seed, classes):
        check_parts(rows, held)
        with warnings.catch_warnings():  # the fit to all rows has warned of what concerns them
            warnings.simplefilter("ignore")
            scores = data.read(data.fit(init, rows), rows)[0]
        # A model that has not seen an outlier may give it a score of any size.
        scores = np.clip(scores, lowest - spread, lowest + 2 * spread)
        out_of_fold[held] = scores[held] + (mean - _average_columns(scores[used]))
    return model, out_of_fold


def _average_columns(scores: np.ndarray) -> np.ndarray:
    """Return the means (K,) of columns (n, K), independent of the order of the rows."""
    return sum_columns(scores) / len(scores)


def _decode_target(target: Target, init: object) -> Any:
    """Return y as estimators of scikit-learn expect it."""
    encoding = target.encoding
    if encoding.kind == "regression":
        values = np.asarray(target.to_target_scale(), np.float64)
        return values[:, 0] if encoding.one_dimensional else values
    if encoding.kind == "multilabel":
        labels = target.values.astype(np.int64)
        if not target.is_sparse or type(_find_last_step(init)[0]).__name__ == "OneVsRestClassifier":
            return labels
        return labels.toarray()  # other estimators do not take sparse labels
    classes, ids = encoding.classes, target.get_row_classes()
    assert classes is not None and ids is not None
    return classes[np.asarray(ids).astype(np.int64)]


def _read_weight(weight: DataLike) -> NDArray[np.float64] | None:
    if weight is None:
        return None
    values = np.asarray(weight, np.float64)
    return values[:, 0] if values.ndim == 2 else values


def _find_last_step(estimator: Any) -> tuple[Any, str]:
    """Return the last step of a pipeline, which may hold another, and the prefix of its
    parameters."""
    prefix = ""
    while hasattr(estimator, "steps"):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return estimator, prefix


def _find_weight_parameter(init: Any) -> str:
    """Return the name under which `fit` takes weights, `step__sample_weight` in a pipeline."""
    inner, prefix = _find_last_step(init.estimator if _is_frozen(init) else init)
    if not has_fit_parameter(inner, "sample_weight"):
        raise ValueError(
            f"init={describe_estimator(init)} takes no sample_weight: leave it out, or use an "
            "estimator that does."
        )
    return prefix + "sample_weight"


# --- linear models ---


def _make_model(estimator: Any, data: _Data) -> tuple[InitialModel, np.ndarray]:
    """Return a fitted estimator as coefficients, if it is linear in X, or as it is, and its scores
    (n_rows, n_scores) of all rows."""
    scores, constant = data.read(estimator, np.arange(data.y.shape[0]))
    try:
        with warnings.catch_warnings():  # of names that features have in a frame
            warnings.simplefilter("ignore")
            linear = _find_linear_model(estimator, data)
    except Exception:  # an estimator that reads frames may raise anything for an array
        linear = None
    if linear is not None:
        intercept = np.where(np.isnan(constant), linear.intercept, constant)
        linear = replace(
            linear, intercept=intercept, mean=linear.feature_means(data.X, data.weight)
        )
        linear_scores = linear.scores(data.X)
        if _is_same(linear_scores, scores, data.reader):
            single = replace(linear, coef=linear.coef.astype(np.float32))
            error = np.abs(single.scores(data.X) - linear_scores).max(initial=0.0)
            return (single if error <= 1e-5 * linear_scores.std() else linear), scores
    return EstimatorInitialModel(estimator=estimator, reader=data.reader, constant=constant), scores


def _find_linear_model(estimator: Any, data: _Data) -> LinearInitialModel | None:
    """Return coefficients, read from the scores of rows in which one feature changes.

    Returns None if scores outside the range of X do not grow in proportion.
    """
    X = check_array(data.X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
    n_features, is_sparse = X.shape[1], scipy.sparse.issparse(X)
    base, step, some = np.zeros(n_features), np.ones(n_features), X[:_N_OUTER_ROWS]
    if not is_sparse:
        base, step = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        step[step == 0] = 1.0
        some = np.where(np.isnan(some), base, some)

    def read(rows: Any) -> np.ndarray:
        return data.reader.read(estimator, rows)

    def change_each(values: np.ndarray) -> Any:
        """Return how scores change if a feature has another value, (n_features, n_scores)."""
        n_cells = data.reader.n_scores if is_sparse else n_features
        parts, size = [], max(1, _PROBE_CELLS // n_cells)
        for features in np.split(np.arange(n_features), range(size, n_features, size)):
            place = np.arange(len(features)), features
            if is_sparse:
                shape = (len(features), n_features)
                part = read(scipy.sparse.csr_matrix((values[features], place), shape)) - origin
                parts.append(scipy.sparse.csc_matrix(part))
            else:
                rows = np.tile(base, (len(features), 1))
                rows[place] = values[features]
                parts.append(read(rows) - origin)
        return scipy.sparse.vstack(parts, "csc") if is_sparse else np.concatenate(parts)

    origin = read(scipy.sparse.csr_matrix(base[None]) if is_sparse else base[None])
    outside = read(2 * some if is_sparse else 2 * some - base)
    if not _is_same(2 * read(some) - origin, outside, data.reader):
        return None
    coef = change_each(base + step)
    coef = coef if is_sparse else coef / step[:, None]
    # Differences of scores leave rounding errors where an estimator has no coefficient.
    values = coef.data if is_sparse else coef
    values[np.abs(values) <= _LEAST_COEF * np.abs(values).max(initial=0.0)] = 0.0
    if is_sparse:
        coef.eliminate_zeros()
    intercept = origin[0] - base @ coef
    try:
        changes, fill = change_each(np.full(n_features, np.nan)), base.copy()
    except ValueError:  # missing values are refused
        fill = None
    else:
        place = np.arange(n_features), np.asarray(abs(coef).argmax(axis=1)).ravel()
        change, slope = (np.asarray(matrix[place]).ravel() for matrix in (changes, coef))
        fill += np.divide(change, slope, out=np.zeros(n_features), where=slope != 0)
        fill = fill if np.isfinite(fill).all() else None
    n_stored = coef.nnz if is_sparse else np.count_nonzero(coef)
    if n_stored < _SPARSE_DENSITY * n_features * coef.shape[1]:
        coef = scipy.sparse.csc_matrix(coef)
    elif is_sparse:
        coef = coef.toarray()
    return LinearInitialModel(coef=coef, intercept=intercept, mean=base, fill=fill)


def _is_same(linear: np.ndarray, scores: np.ndarray, reader: ScoreReader) -> bool:
    """Return whether a linear model has the scores of an estimator."""
    limit = np.inf if reader.kind == "regression" else _CLEAR_SCORE
    is_compared = np.abs(scores) <= limit
    tolerance = 1e-6 * np.abs(scores).max(initial=1.0)
    return bool(is_compared.any() and (np.abs(linear - scores)[is_compared] <= tolerance).all())


# --- the factor of the scores of classifiers ---


def _fit_factor(objective: Objective, target: Target, scores: np.ndarray) -> float:
    """Return the factor of the scores that, with the best constant, minimises the loss.

    Margins are not log-odds, and log-odds that were fitted to few rows are too large.
    """
    n, n_scores = scores.shape
    size = max(1, min(n, _MAX_FACTOR_CELLS // n_scores))
    rows = np.unique(np.linspace(0, n - 1, size).astype(np.int64))
    part, scores = target.take(rows), scores[rows]
    base = np.zeros(n_scores)
    if target.is_sparse:
        part = part.replace_rows(target=part.values.toarray())
    else:  # the base score takes what all rows have in common
        scores = scores - sum_columns(scores) / len(scores)
    bound = objective.bind(part.rows.replace(offset=None))
    bound.set_base_score(base)
    factor = 1.0
    for _ in range(_MAX_FACTOR_STEPS):
        raw = (factor * scores).astype(np.float32)
        if not target.is_sparse:
            base = minimise_base_score(bound, raw)
        g, h = bound.expected_derivatives(raw + base.astype(np.float32))
        slope, second = float(np.sum(g * scores)), float(np.sum(h * scores**2))
        if not second > 0 or not np.isfinite(slope):
            return factor
        step = max(-slope / second, -0.9 * factor)
        factor += step
        if abs(step) <= _FACTOR_TOLERANCE * factor or factor < _LEAST_FACTOR:
            break
    return factor
