"""Fitting of the initial model (`init`), and the scores from which the training rows start.

A model has seen the targets of its training rows, so its scores there are too good, and trees that
start from them have too little left to learn. Rows therefore start from the scores of models that
were fitted without their fold. Such a model has a lower mean where its fold has a higher one, so
its scores are shifted to the mean of the model of all rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.random_rows import find_repeated_rows, hash64, hash_values
from polyleaf.model import Model
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
from polyleaf.runtime.cuda import is_device_array
from polyleaf.training.prepare import (
    PreparedData,
    TrainingData,
    check_parts,
    check_rows,
    read_split_rules,
)
from polyleaf.user_data.target import Target
from polyleaf.user_data.target_scaling import sum_columns

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

N_FOLDS = 5
_MAX_FACTOR_CELLS = 1 << 22  # rows times scores that the factor is fitted to
_MAX_FACTOR_STEPS, _FACTOR_TOLERANCE = 30, 1e-3
_LEAST_FACTOR = 1e-6  # of scores that are of no use
_N_CHECK_ROWS = 256
_CLEAR_SCORE = 12.0  # scores up to this size are compared: probabilities near 0 or 1 are clipped
_SPARSE_DENSITY = 0.1  # of coefficients that are stored as a sparse matrix
_UNSEEN_SCORE = 6.0  # of a label that is the same in all rows


class InitialScores(NamedTuple):
    """An initial model, and the data with the scores from which rows start.

    Attributes
    ----------
    data : list of TrainingData
        Their offsets are ndarray (n_rows, n_scores), float64, or csr_matrix.
    """

    model: InitialModel
    data: list[TrainingData]


def compute_initial_scores(
    p: Any,
    data: Sequence[TrainingData],
    target: Target,
    objective: Objective,
    start: Model | None,
    init_scores: Any,
    read_scores: Callable[..., np.ndarray],
    seed: int,
) -> InitialScores | None:
    """Fit `init`, and compute the scores of the training rows by cross-fitting.

    Parameters
    ----------
    p : SharedParameters
        The estimator.
    data : sequence of TrainingData
        Data to train on, and to evaluate on.
    target : Target
        Encoded y of the data to train on.
    start : Model or None
        Model that training continues, whose initial model is kept.
    init_scores : array-like or csr_matrix, or None
        Out-of-fold scores of the training rows; `init` is then fitted already.
    read_scores : callable
        `read_scores(values, n_rows, name)` reads them as it reads an offset.

    Returns
    -------
    InitialScores or None
        None without an initial model.

    Raises
    ------
    ValueError
        If `init` cannot be fitted to the data, or has no raw scores for the objective.
    """
    init, known = getattr(p, "init", None), None if start is None else start.initial
    if init is None and init_scores is not None:
        raise ValueError("init_scores are the out-of-fold scores of init, which is None.")
    if init is None and known is None:
        return None
    if start is not None and known is None:
        raise ValueError(
            "The model to continue has no initial model, and cannot be given one: leave init=None."
        )
    if init is not None and not (hasattr(init, "fit") and hasattr(init, "predict")):
        raise TypeError(
            "init must be an estimator with fit and predict, such as Ridge(), or None; got "
            f"{init!r}."
        )
    _check(data, target)
    y = _decode_target(target, init)
    fit = _Fit(init, data[0].X, y, data[0].rows.weight, objective, target)
    rows_id = _identify(target)
    if known is not None and known.rows_id != rows_id and init_scores is None:
        return InitialScores(known, [d.replace_rows(offset=known.scores(d.X)) for d in data])
    if init is None:
        raise ValueError(
            "The initial model of the model to continue was fitted to these rows, so its scores "
            "are too good there: set init, or pass init_scores."
        )
    training, scores = data[0], init_scores
    if scores is not None:
        check_is_fitted(init)
        if not scipy.sparse.issparse(scores):
            scores = read_scores(scores, target.n_rows, "init_scores")
        made = fit.wrap(init)
    elif _is_frozen(init):
        made = fit.wrap(init)
        scores = made.scores(training.X)
    else:
        check_rows(p, training.X, target)
        made = fit.fit(np.arange(target.n_rows))
        scores = _cross_fit(p, fit, made, training, target, seed)
    if scipy.sparse.issparse(scores):
        scores = scores.toarray()
    if known is None:
        is_classifier = target.encoding.kind != "regression"
        factor = _fit_factor(objective, target, scores) if is_classifier else 1.0
        start_from = _make_start(p, target, objective)
        known = made.complete(start_from, rows_id).scale(factor)
    own = known.factor * scores
    offsets = [own if known.sparse is None else known.sparse.select(own)]
    offsets += [known.scores(d.X) for d in data[1:]]
    return InitialScores(
        known, [d.replace_rows(offset=offset) for d, offset in zip(data, offsets, strict=True)]
    )


def _identify(target: Target) -> str:
    """Return a checksum of the targets, to tell the training rows from others."""
    hashes = hash_values(target.values)
    return f"{int(hash64(hashes + hash64(np.arange(len(hashes)))).sum()):016x}"


def _make_start(p: Any, target: Target, objective: Objective) -> SparseStart | None:
    if not scipy.sparse.issparse(target.values):
        return None
    assert objective.sparse_base_score is not None
    top = min(target.values.shape[1], _count_kept(p.leaf_k))
    return SparseStart(top, float(objective.sparse_base_score))


def _is_frozen(estimator: object) -> bool:
    """Return whether an estimator is fitted already, and `fit` and `clone` leave it as it is."""
    return type(estimator).__name__ == "FrozenEstimator"


def _count_kept(leaf_k: int) -> int:
    """Return how many scores a row starts from: more than its leaves have."""
    return 5 * leaf_k


def _check(data: Sequence[TrainingData], target: Target) -> None:
    for each in data:
        _check_features(each)
        if each.rows.offset is not None:
            raise ValueError(
                "offset cannot be combined with init, which would not be fitted to it: add the "
                "scores of init to the offset, and leave init=None."
            )
    if scipy.sparse.issparse(target.values) and target.encoding.kind == "regression":
        raise ValueError("init needs a dense y in regression; sparse labels may start from init.")
    if target.encoding.kind == "multiclass" and np.ndim(target.values) == 2:
        if not target.encoding.one_vs_rest:
            raise ValueError("init needs class labels; y has shares of classes.")
    weight, given = target.weight, data[0].rows.weight
    if target.encoding.missing == "ignore" and weight is not None:
        own = np.ones(target.n_rows) if given is None else np.asarray(given)
        if ((weight == 0).T & (own != 0).T).any():
            raise ValueError(
                "init cannot be fitted to missing targets: fill them, or pass the scores of a "
                "model of your own as offset."
            )


def _check_features(data: TrainingData) -> None:
    if isinstance(data.X, Dataset):
        raise ValueError(
            f"init reads the features of the {data.name} rows, but a Dataset holds bins: pass the "
            "raw X, or the scores of a model of your own as offset."
        )
    if is_device_array(data.X):
        raise ValueError("init reads X in host memory: pass a copy of the array on the GPU.")


def _make_reader(target: Target, objective: Objective) -> ScoreReader:
    encoding, mask = target.encoding, objective.offset_mask
    n_columns = objective.n_scores(encoding.n_outputs) // len(mask)
    classes = None if encoding.kind == "multilabel" else encoding.classes
    return ScoreReader(encoding.kind, objective.link, classes, n_columns, tuple(mask))


def _decode_target(target: Target, init: object) -> Any:
    """Return y as estimators of scikit-learn expect it."""
    encoding = target.encoding
    if encoding.kind == "regression":
        values = np.asarray(target.to_target_scale(), np.float64)
        return values[:, 0] if encoding.one_dimensional else values
    if encoding.kind == "multilabel":
        labels = target.values.astype(np.int64)
        if not target.is_sparse or type(_get_last_step(init)).__name__ == "OneVsRestClassifier":
            return labels
        return labels.toarray()  # other estimators do not take sparse labels
    classes, ids = encoding.classes, target.get_row_classes()
    assert classes is not None and ids is not None
    return classes[np.asarray(ids).astype(np.int64)]


def _read_weight(weight: DataLike) -> NDArray[np.float64] | None:
    if weight is None:
        return None
    values = np.asarray(weight, np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise ValueError("init needs one sample_weight per row, not one per row and output.")
    return values


class _Fit:
    """Fits copies of an estimator to some of the rows."""

    def __init__(
        self,
        init: object,
        X: Any,
        y: DataLike,
        weight: DataLike,
        objective: Objective,
        target: Target,
    ) -> None:
        self._init, self._y, self._n_rows = init, y, target.n_rows
        self._X = X.tocsr() if scipy.sparse.issparse(X) else X
        self._weight, self._reader = _read_weight(weight), _make_reader(target, objective)
        if self._weight is not None and init is not None:
            self._weight_name = _find_weight_parameter(init)

    def fit(self, rows: np.ndarray) -> InitialModel:
        """Fit a copy to some of the rows."""
        estimator: Any = clone(self._init)
        weight = None if self._weight is None else self._weight[rows]
        given = {} if weight is None else {self._weight_name: weight}
        X = self.take(rows)
        estimator.fit(X, _safe_indexing(self._y, rows), **given)
        return _make_model(estimator, self._reader, X, weight)

    def wrap(self, estimator: object) -> InitialModel:
        """Return the model of an estimator that is fitted already."""
        return _make_model(estimator, self._reader, self._X, self._weight)

    def take(self, rows: np.ndarray) -> Any:
        """Return some rows of X."""
        return self._X if len(rows) == self._n_rows else _safe_indexing(self._X, rows)


def _get_last_step(estimator: object) -> Any:
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator


def _find_weight_parameter(init: object) -> str:
    """Return the name under which `fit` takes weights, `step__sample_weight` in a pipeline."""
    inner, prefix = getattr(init, "estimator", init) if _is_frozen(init) else init, ""
    while hasattr(inner, "steps"):
        name, inner = inner.steps[-1]
        prefix += f"{name}__"
    if not has_fit_parameter(inner, "sample_weight"):
        raise ValueError(
            f"init={describe_estimator(init)} takes no sample_weight: leave it out, or use an "
            "estimator that does."
        )
    return prefix + "sample_weight"


def _cross_fit(
    p: Any, fit: _Fit, full: InitialModel, training: TrainingData, target: Target, seed: int
) -> np.ndarray:
    """Return scores (n_rows, n_scores) of each row by a model that was fitted without its fold.

    `full` is the model of all rows.
    """
    rules = read_split_rules(p, training.rows, target.n_rows)
    rules = rules.join(find_repeated_rows(_hash_rows(training.X), target.values))
    scores: np.ndarray = np.array(full.scores(training.X))
    mean, classes = _average_columns(scores), target.get_row_classes()
    for rows, held in rules.iter_cross_fits(target.n_rows, N_FOLDS, seed, classes):
        check_parts(rows, held)
        with warnings.catch_warnings():  # the fit to all rows has warned of what concerns them
            warnings.simplefilter("ignore")
            found = fit.fit(rows).scores(training.X)
        scores[held] = found[held] + (mean - _average_columns(found))
    return scores


def _average_columns(scores: np.ndarray) -> np.ndarray:
    """Return the means (K,) of columns (n, K), independent of the order of the rows."""
    return sum_columns(scores) / len(scores)


def _hash_rows(X: Any) -> np.ndarray | None:
    """Return hashes of the features of each row; None unless they are numbers."""
    if scipy.sparse.issparse(X):
        matrix = X.tocsr()
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # the user's matrix stays as it is
            matrix.sum_duplicates()
        return hash_values(matrix)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
        return hash_values(X)
    return None


# --- linear models ---


class _LinearForm(NamedTuple):
    """Coefficients of a linear model: a score is `coef . x + intercept`."""

    coef: Any  # (n_features, n_scores), dense or sparse
    intercept: np.ndarray
    fill: np.ndarray | None = None
    constant: tuple[int, ...] = ()  # scores that do not depend on X, of a label that never varies


def _make_model(
    estimator: object, reader: ScoreReader, X: Any, weight: np.ndarray | None
) -> InitialModel:
    """Return a fitted estimator as coefficients, if it is linear in X, or as it is."""
    other = EstimatorInitialModel(estimator, reader)
    form = _find_linear_form(estimator)
    if form is None:
        return other
    columns = reader.align(np.atleast_2d(form.intercept), getattr(estimator, "classes_", None))
    if columns.shape[1] != len(form.intercept):
        if not (len(form.intercept) == 1 and reader.n_columns == 2):
            return other  # classes that the estimator has not seen
        signs = np.array([[-0.5, 0.5]])
        coef = form.coef.toarray() if scipy.sparse.issparse(form.coef) else form.coef
        form = _LinearForm(coef @ signs, form.intercept @ signs, form.fill)
    linear = LinearInitialModel(form.coef, form.intercept, np.zeros(form.coef.shape[0]), form.fill)
    some = _safe_indexing(X, np.arange(min(X.shape[0], _N_CHECK_ROWS)))
    try:
        own = linear.scores(some)
    except (ValueError, TypeError):  # X holds more than numbers
        return other
    if not _is_same_form(
        own, reader.read(estimator, some), form.constant, reader.kind == "regression"
    ):
        return other
    mean = linear.feature_means(X, weight)
    coef, intercept = form.coef, form.intercept.copy()
    if form.constant:
        varying = np.setdiff1d(np.arange(len(intercept)), form.constant)
        means = np.asarray(mean @ coef).ravel() + intercept
        for k in form.constant:
            is_true = intercept[k] > 0
            extreme = means[varying].max() if is_true else means[varying].min()
            intercept[k] = extreme if len(varying) else (1 if is_true else -1) * _UNSEEN_SCORE
    if not scipy.sparse.issparse(coef) and np.count_nonzero(coef) < _SPARSE_DENSITY * coef.size:
        coef = scipy.sparse.csc_matrix(coef)
    short = coef.astype(np.float32)
    trial = LinearInitialModel(short, form.intercept, mean, form.fill)
    if np.abs(trial.scores(some) - own).max(initial=0.0) <= 1e-5 * own.std():
        coef = short
    expanded = coef
    if reader.mask != (True,):
        dense = coef.toarray() if scipy.sparse.issparse(coef) else coef
        expanded = reader.expand(dense).astype(coef.dtype)
        intercept = reader.expand(intercept[None])[0]
    return LinearInitialModel(expanded, intercept, mean, form.fill)


def _is_same_form(
    linear: np.ndarray, own: np.ndarray, constant: Sequence[int], is_regression: bool
) -> bool:
    """Return whether coefficients give the scores of the estimator."""
    if linear.shape != own.shape:
        return False
    compared = np.full(own.shape, True) if is_regression else np.abs(own) <= _CLEAR_SCORE
    compared[:, list(constant)] = False
    scale = np.abs(own).max(initial=1.0)
    return bool(compared.any() and (np.abs(linear - own)[compared] <= 1e-6 * scale).all())


def _find_linear_form(estimator: object) -> _LinearForm | None:
    """Return the coefficients of a linear model of scikit-learn's interface, or None."""
    inner = getattr(estimator, "estimator", None) if _is_frozen(estimator) else None
    inner = getattr(estimator, "best_estimator_", inner)
    if inner is not None:
        return _find_linear_form(inner)
    if hasattr(estimator, "steps"):
        return _find_pipeline_form(estimator)
    if hasattr(estimator, "estimators_") and hasattr(estimator, "estimator"):
        return _stack_forms(estimator.estimators_)
    coef, intercept = getattr(estimator, "coef_", None), getattr(estimator, "intercept_", None)
    if coef is None or intercept is None:
        return None
    if not scipy.sparse.issparse(coef):
        coef = np.atleast_2d(np.asarray(coef, np.float64))
    intercept = np.broadcast_to(np.asarray(intercept, np.float64).ravel(), coef.shape[:1])
    return _LinearForm(coef.T, np.array(intercept))


def _stack_forms(estimators: Sequence[Any]) -> _LinearForm | None:
    """Return the form of one estimator per output."""
    forms: list[_LinearForm | None] = []
    constant = [k for k, e in enumerate(estimators) if type(e).__name__ == "_ConstantPredictor"]
    for k, estimator in enumerate(estimators):
        forms.append(None if k in constant else _find_linear_form(estimator))
    known = [form for form in forms if form is not None and len(form.intercept) == 1]
    if not known or len(known) + len(constant) < len(forms):
        return None
    if any(form.fill is not None for form in known):
        return None
    for k in constant:
        is_true = bool(np.ravel(estimators[k].y_)[0])
        forms[k] = _LinearForm(0 * known[0].coef, np.array([1.0 if is_true else -1.0]))
    parts = [form for form in forms if form is not None]
    stack = scipy.sparse.hstack if scipy.sparse.issparse(parts[0].coef) else np.hstack
    coef = stack([form.coef for form in parts])
    intercept = np.concatenate([form.intercept for form in parts])
    return _LinearForm(coef, intercept, None, tuple(constant))


def _find_pipeline_form(pipeline: Any) -> _LinearForm | None:
    """Return the form of a linear model after imputation and scaling."""
    *steps, (_, last) = pipeline.steps
    form = _find_linear_form(last)
    if form is None or form.fill is not None:
        return None
    scale, shift, fill = np.ones(form.coef.shape[0]), np.zeros(form.coef.shape[0]), None
    for _, step in steps:
        if step is None or isinstance(step, str):  # "passthrough"
            continue
        if type(step).__name__ == "SimpleImputer":
            statistics = np.asarray(step.statistics_)
            is_plain = step.indicator_ is None and statistics.dtype.kind == "f"
            if fill is not None or not is_plain or not np.isfinite(statistics).all():
                return None
            fill = (statistics - shift) / scale
            continue
        found = _read_scaler(step, len(scale))
        if found is None:
            return None
        factor, summand = found
        scale, shift = scale * factor, shift * factor + summand
    if len(scale) != getattr(pipeline, "n_features_in_", len(scale)):
        return None
    coef, intercept = form.coef, form.intercept + np.asarray(shift @ form.coef).ravel()
    coef = (
        scipy.sparse.diags(scale) @ coef if scipy.sparse.issparse(coef) else scale[:, None] * coef
    )
    return _LinearForm(coef, intercept, fill, form.constant)


def _read_scaler(step: Any, n_features: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return factor and summand of each feature; None for other transformers."""
    one, zero = np.ones(n_features), np.zeros(n_features)
    name = type(step).__name__
    centre = {"StandardScaler": "mean_", "RobustScaler": "center_", "MaxAbsScaler": ""}.get(name)
    if name == "MinMaxScaler" and not step.clip:
        return np.asarray(step.scale_), np.asarray(step.min_)
    if centre is None or getattr(step, "clip", False):
        return None
    scale = one if step.scale_ is None else np.asarray(step.scale_)
    middle = getattr(step, centre, None) if centre else None
    middle = zero if middle is None or step.get_params().get("with_mean") is False else middle
    return 1.0 / scale, -np.asarray(middle) / scale


# --- the factor of the scores of classifiers ---


def _fit_factor(objective: Objective, target: Target, scores: np.ndarray) -> float:
    """Return the factor of the scores that, with the best constant, minimises the loss.

    Margins are not log-odds, and log-odds that were fitted to few rows are too large.
    """
    n, n_scores = scores.shape
    size = max(1, min(n, _MAX_FACTOR_CELLS // n_scores))
    rows = np.unique(np.linspace(0, n - 1, size).astype(np.int64))
    part = target.take(rows)
    is_sparse = scipy.sparse.issparse(part.values)
    values = part.values.toarray() if is_sparse else part.values
    bound = objective.bind(part.rows.replace(target=values, offset=None))
    used = scores[rows]
    if not is_sparse:
        # The base score takes what all rows have in common.
        used = used - _average_columns(used)
    base = np.zeros(n_scores)
    bound.set_base_score(base)
    factor = 1.0
    for _ in range(_MAX_FACTOR_STEPS):
        raw = (factor * used).astype(np.float32)
        if not is_sparse:
            base = minimise_base_score(bound, raw)
        g, h = bound.expected_derivatives(raw + base.astype(np.float32))
        slope = math.fsum(sum_columns(g.astype(np.float64) * used))
        second = math.fsum(sum_columns(h.astype(np.float64) * used**2))
        if not second > 0 or not np.isfinite(slope):
            return factor
        step = max(-slope / second, -0.9 * factor)
        factor += step
        if abs(step) <= _FACTOR_TOLERANCE * factor or factor < _LEAST_FACTOR:
            break
    return factor


def scale_offsets(data: PreparedData, factor: float) -> PreparedData:
    """Return the data with all offsets times a factor; y does not contain them."""
    target = data.target.replace_rows(offset=factor * data.target.rows.offset)
    eval_sets = [
        replace(e, rows=e.rows.replace(offset=factor * e.rows.offset)) for e in data.eval_sets
    ]
    trial = None if data.trial is None else scale_offsets(data.trial, factor)
    return data._replace(target=target, eval_sets=eval_sets, trial=trial)
