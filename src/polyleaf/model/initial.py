"""Initial models (`init`): models whose raw scores the trees are added to.

`LinearInitialModel` is a linear model of any library as coefficients, which a model file holds.
`EstimatorInitialModel` keeps another estimator; it can be pickled only.

For sparse targets the raw scores of a row are sparse: the `top` largest ones above `floor`, as
differences to it. The other outputs have the raw score `floor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

import polyleaf._core as _core
from polyleaf.runtime.types import DataLike, JsonObject

Scores: TypeAlias = Any
"""ndarray (n_rows, n_scores), float64, or csr_matrix for sparse targets."""

_CHUNK_SCORES = 1 << 24  # scores that are computed at a time


@dataclass(frozen=True)
class SparseStart:
    """The conversion of dense raw scores to sparse ones.

    Attributes
    ----------
    top : int
        Scores that are kept per row.
    floor : float
        Raw score of the outputs that are not kept.
    """

    top: int
    floor: float

    def select(self, scores: np.ndarray) -> scipy.sparse.csr_matrix:
        """Return the largest scores of each row above the floor, as differences to it."""
        n_outputs = scores.shape[1]
        rest = np.where(scores > self.floor, scores - self.floor, 0.0)
        if self.top < n_outputs:
            # Keep the first of equal scores; their order in argpartition depends on the processor.
            least = np.partition(rest, n_outputs - self.top, axis=1)[:, [n_outputs - self.top]]
            n_equal = self.top - np.count_nonzero(rest > least, axis=1, keepdims=True)
            is_kept = (rest > least) | ((rest == least).cumsum(axis=1) <= n_equal) & (rest == least)
            rest[~is_kept] = 0.0
        return scipy.sparse.csr_matrix(rest)


def _select_in_chunks(
    sparse: SparseStart | None, n_rows: int, n_scores: int, compute: Callable[[slice], np.ndarray]
) -> Scores:
    """Return `compute(rows)` of all rows, made sparse if `sparse` is given."""
    size = max(1, _CHUNK_SCORES // max(1, n_scores))
    parts = [
        compute(slice(begin, begin + size))
        if sparse is None
        else sparse.select(compute(slice(begin, begin + size)))
        for begin in range(0, max(1, n_rows), size)
    ]
    if sparse is not None:
        return scipy.sparse.vstack(parts, "csr")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class InitialModel(ABC):
    """A model of X that gives raw scores, to which trees are added.

    Attributes
    ----------
    sparse : SparseStart or None
        For sparse targets: scores are a csr_matrix.
    factor : float
        Factor of the scores of the estimator, which `scores` includes.
    rows_id : str
        Checksum of the targets that it was fitted to.
    """

    sparse: SparseStart | None
    factor: float
    rows_id: str

    @property
    @abstractmethod
    def description(self) -> str:
        """Words for messages."""

    @abstractmethod
    def scores(self, X: DataLike) -> Scores:
        """Return the raw scores of X."""

    @abstractmethod
    def select_outputs(self, outputs: slice) -> InitialModel:
        """Return the model of some of the raw scores."""

    def complete(self, sparse: SparseStart | None, rows_id: str) -> InitialModel:
        """Return the model with these attributes."""
        changed = copy(self)
        object.__setattr__(changed, "sparse", sparse)
        object.__setattr__(changed, "rows_id", rows_id)
        return changed

    @abstractmethod
    def scale(self, ratio: float) -> InitialModel:
        """Return the model with its scores times `ratio`."""

    def equals(self, other: InitialModel) -> bool:
        """Return whether both are known to give the same scores."""
        return self is other

    def add_to(self, raw: np.ndarray, source: object) -> NDArray[np.float64]:
        """Return the raw scores of trees plus those of X, as it was passed."""
        scores = self._compute(source)
        return raw + (scores.toarray() if scipy.sparse.issparse(scores) else scores)

    def merge(
        self, sums: scipy.sparse.csr_matrix, source: object, base: np.ndarray
    ) -> scipy.sparse.csr_matrix:
        """Return the sparse raw scores of trees, without the base score, plus those of X and the
        base score, with the bits of dense predictions."""
        if self.sparse is None:
            raise ValueError(
                "init gives every output a raw score, so that none is left out: use predict_topk, "
                "or predict(sparse=False)."
            )
        start = self._compute(source)
        keys = [_make_keys(matrix) for matrix in (sums, start)]
        union = np.unique(np.concatenate(keys))
        tree, own = np.zeros(len(union)), np.zeros(len(union))
        tree[np.searchsorted(union, keys[0])] = sums.data
        own[np.searchsorted(union, keys[1])] = start.data
        rows, outputs = np.divmod(union, sums.shape[1])
        indptr = np.searchsorted(rows, np.arange(sums.shape[0] + 1))
        return scipy.sparse.csr_matrix(((tree + base[outputs]) + own, outputs, indptr), sums.shape)

    def is_linear_in(self, projection: object) -> bool:
        """Return whether scores are linear in the features of trees that read this projection."""
        return isinstance(self, LinearInitialModel) and self.sparse is None and projection is None

    def get_linear_part(self, projection: object, use: str = "SHAP values") -> LinearInitialModel:
        """Return the model, if it is a linear function of the features of the trees.

        Raises
        ------
        ValueError
            If it is not; `use` says what is not available.
        """
        problem = f"the model starts from {self.description} (init), which is not linear"
        if isinstance(self, LinearInitialModel):
            if self.is_linear_in(projection):
                return self
            problem = "init reads the features, but the trees read their projection"
            if self.sparse is not None:
                problem = "the largest scores of init, from which trees start, are not linear"
        raise ValueError(f"{use}: not available, since {problem}.")

    def _compute(self, source: Any) -> Scores:
        if source is None:
            raise ValueError(
                f"The model starts from {self.description} (init), which reads the features: pass "
                "the raw X, not a Dataset or a FeatureTable."
            )
        return self.scores(source)


def _make_keys(matrix: scipy.sparse.csr_matrix) -> NDArray[np.int64]:
    """Return the position of each entry in the dense matrix."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


@dataclass(frozen=True, eq=False)
class LinearInitialModel(InitialModel):
    """A linear model of the features.

    Attributes
    ----------
    coef : ndarray or csc_matrix of shape (n_features, n_scores), float32 or float64
    intercept : ndarray of shape (n_scores,), float64
    mean : ndarray of shape (n_features,), float64
        Means of the features of the training rows, for SHAP values.
    fill : ndarray of shape (n_features,), float64, or None
        What replaces missing values; None: they are refused.
    sparse, factor, rows_id
        See `InitialModel`.
    """

    coef: Any
    intercept: NDArray[np.float64]
    mean: NDArray[np.float64]
    fill: NDArray[np.float64] | None = None
    sparse: SparseStart | None = None
    factor: float = 1.0
    rows_id: str = ""

    @property
    def description(self) -> str:
        return "a linear model"

    @property
    def n_features(self) -> int:
        return int(self.coef.shape[0])

    @property
    def n_scores(self) -> int:
        return int(self.coef.shape[1])

    @cached_property
    def _float64_coef(self) -> Any:
        return self.coef.astype(np.float64)

    def scores(self, X: DataLike) -> Scores:
        """Return the raw scores of X; those of a row do not depend on the other rows."""
        numbers = self._read(X)
        return _select_in_chunks(
            self.sparse, numbers.shape[0], self.n_scores, lambda rows: self._multiply(numbers[rows])
        )

    def _multiply(self, numbers: scipy.sparse.csr_matrix) -> NDArray[np.float64]:
        product = numbers @ self._float64_coef  # adds feature by feature, unlike BLAS
        dense = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
        return dense + self.intercept

    def contributions(
        self, X: DataLike, outputs: np.ndarray, reference: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the SHAP values of some outputs, float64 (n_rows, n_features, len(outputs)).

        Parameters
        ----------
        X
        outputs : ndarray of int64
        reference : ndarray of shape (n_features,), optional
            Means of the background rows; None: of the training rows.
        """
        means = self.mean if reference is None else reference
        change = self._read(X).toarray() - means
        return change[:, :, None] * self._select_coef(outputs)

    def expected_scores(
        self, outputs: np.ndarray, reference: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the scores of the means, to which `contributions` are added."""
        means = self.mean if reference is None else reference
        expected: np.ndarray = means @ self._select_coef(outputs) + self.intercept[outputs]
        return expected

    def feature_means(self, X: DataLike, weight: np.ndarray | None = None) -> np.ndarray:
        """Return the weighted means of the features."""
        numbers = self._read(X)
        used = np.ones(numbers.shape[0]) if weight is None else weight
        return np.asarray(used @ numbers).ravel() / used.sum()

    def _select_coef(self, outputs: np.ndarray) -> np.ndarray:
        coef = self._float64_coef[:, outputs]
        return coef.toarray() if scipy.sparse.issparse(coef) else np.asarray(coef)

    def _read(self, X: DataLike) -> scipy.sparse.csr_matrix:
        """Return X as numbers, with missing values filled."""
        numbers = check_array(
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
        )
        if numbers.shape[1] != self.n_features:
            raise ValueError(
                f"X has {numbers.shape[1]} features, but the linear model of init has "
                f"{self.n_features}."
            )
        matrix = scipy.sparse.csr_matrix(numbers)
        is_missing = np.isnan(matrix.data)
        if not is_missing.any():
            return matrix
        if self.fill is None:
            feature = int(matrix.indices[np.flatnonzero(is_missing)[0]])
            raise ValueError(
                f"Column {feature} of X has missing values, which the linear model of init cannot "
                "read: put a SimpleImputer before it, in a pipeline."
            )
        filled = matrix.copy()
        filled.data[is_missing] = self.fill[matrix.indices[is_missing]]
        return filled

    def select_outputs(self, outputs: slice) -> LinearInitialModel:
        """Return the model of some of the raw scores."""
        return replace(self, coef=self.coef[:, outputs], intercept=self.intercept[outputs])

    def scale(self, ratio: float) -> LinearInitialModel:
        coef, intercept = self.coef * self.coef.dtype.type(ratio), self.intercept * ratio
        return replace(self, coef=coef, intercept=intercept, factor=self.factor * ratio)

    def equals(self, other: InitialModel) -> bool:
        if not isinstance(other, LinearInitialModel) or self.to_dict() != other.to_dict():
            return False
        own, others = self.arrays(), other.arrays()
        return own.keys() == others.keys() and all(
            np.array_equal(array, others[name]) for name, array in own.items()
        )

    # --- files ---

    def to_dict(self) -> JsonObject:
        """Return JSON types; the rest is in `arrays`."""
        sparse = self.sparse
        plain: JsonObject = {
            "n_features": self.n_features,
            "n_scores": self.n_scores,
            "factor": self.factor,
            "rows_id": self.rows_id,
        }
        return plain if sparse is None else plain | {"top": sparse.top, "floor": sparse.floor}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return arrays by name: "coef", with "indices" and "indptr" if it is sparse."""
        arrays = {"intercept": self.intercept, "mean": self.mean}
        if self.fill is not None:
            arrays["fill"] = self.fill
        if not scipy.sparse.issparse(self.coef):
            return arrays | {"coef": self.coef}
        indices = {"indices": self.coef.indices.astype(np.int32)}
        indptr = {"indptr": self.coef.indptr.astype(np.int64)}
        return arrays | {"coef": self.coef.data} | indices | indptr

    @classmethod
    def from_dict(
        cls, plain: Mapping[str, object], arrays: Mapping[str, np.ndarray]
    ) -> LinearInitialModel:
        """Invert `to_dict` and `arrays`, for untrusted files.

        Raises
        ------
        ValueError
            If they do not describe a linear model.
        """
        n_features, n_scores = plain.get("n_features"), plain.get("n_scores")
        if (
            type(n_features) is not int
            or type(n_scores) is not int
            or min(n_features, n_scores) < 1
        ):
            raise ValueError(f"An initial model needs its numbers of features and scores: {plain}.")
        coef = arrays.get("coef")
        if (
            coef is None
            or coef.dtype not in (np.float32, np.float64)
            or not np.isfinite(coef).all()
        ):
            raise ValueError("The initial model's array 'coef' must have finite numbers.")
        if "indptr" in arrays:
            coef = _read_sparse(coef, arrays, (n_features, n_scores))
        elif coef.shape != (n_features, n_scores):
            raise ValueError("The initial model's array 'coef' has a wrong shape.")
        intercept = _read_vector(arrays, "intercept", n_scores)
        mean = _read_vector(arrays, "mean", n_features)
        fill = _read_vector(arrays, "fill", n_features) if "fill" in arrays else None
        factor, rows_id = plain.get("factor"), plain.get("rows_id")
        if type(factor) is not float or not 0 < factor < np.inf or not isinstance(rows_id, str):
            raise ValueError("An initial model needs its factor, a positive number, and rows_id.")
        return cls(coef, intercept, mean, fill, _read_start(plain), factor, rows_id)


def _read_vector(arrays: Mapping[str, np.ndarray], name: str, length: int) -> np.ndarray:
    values = arrays.get(name)
    if values is None or values.dtype != np.float64 or values.shape != (length,):
        raise ValueError(f"The initial model's array {name!r} must have {length} numbers.")
    if not np.isfinite(values).all():
        raise ValueError(f"The initial model's array {name!r} must have finite numbers.")
    return values


def _read_sparse(
    data: np.ndarray, arrays: Mapping[str, np.ndarray], shape: tuple[int, int]
) -> scipy.sparse.csc_matrix:
    indices, indptr = arrays.get("indices"), arrays["indptr"]
    is_valid = (
        indices is not None
        and indices.dtype == np.int32
        and indptr.dtype == np.int64
        and data.ndim == 1
        and indices.shape == data.shape
        and indptr.shape == (shape[1] + 1,)
        and indptr[0] == 0
        and indptr[-1] == len(data)
        and bool((np.diff(indptr) >= 0).all())
        and bool(((indices >= 0) & (indices < shape[0])).all())
    )
    if not is_valid:
        raise ValueError("The initial model's sparse coefficients are not a matrix.")
    return scipy.sparse.csc_matrix((data, indices, indptr), shape)


def _read_start(plain: Mapping[str, object]) -> SparseStart | None:
    if "top" not in plain and "floor" not in plain:
        return None
    top, floor = plain.get("top"), plain.get("floor")
    if type(top) is not int or top < 1 or type(floor) is not float or not np.isfinite(floor):
        raise ValueError("An initial model's 'top' must be a count, and its 'floor' a number.")
    return SparseStart(top, floor)


@dataclass(frozen=True, eq=False)
class ScoreReader:
    """Reads the raw scores of a fitted estimator of scikit-learn's interface.

    Attributes
    ----------
    kind : str
        Kind of the target: "regression", "binary", "multiclass" or "multilabel".
    link : str or None
        Link of the objective.
    classes : ndarray or None
        All classes; the estimator may have seen fewer.
    n_columns : int
        Raw scores that it gives: targets, classes or labels; 1 or 2 for two classes.
    mask : tuple of bool
        For the raw scores of one column: whether it is added. Quantiles share one column, and
        distributions take it as their location.
    """

    kind: str
    link: str | None
    classes: np.ndarray | None
    n_columns: int
    mask: tuple[bool, ...]

    def read(self, estimator: Any, X: DataLike) -> NDArray[np.float64]:
        """Return the raw scores (n_rows, n_columns) of an estimator."""
        if self.kind == "regression":
            return self._invert_link(estimator, _as_columns(estimator.predict(X)))
        if hasattr(estimator, "decision_function"):
            scores = _as_columns(estimator.decision_function(X))
        elif hasattr(estimator, "predict_proba"):
            scores = self._read_probabilities(estimator.predict_proba(X))
        else:
            raise ValueError(
                f"init={describe_estimator(estimator)} has neither decision_function nor "
                "predict_proba, from which trees could start."
            )
        return self.align(scores, getattr(estimator, "classes_", None))

    def _invert_link(self, estimator: object, predicted: np.ndarray) -> np.ndarray:
        invert: Callable[[np.ndarray], np.ndarray]
        if self.link == "exponential":
            high, invert = np.inf, _core.log
        elif self.link == "logistic":
            high, invert = 1.0, logit
        elif self.link in ("identity", "sorted_levels", None):
            return predicted
        else:
            raise ValueError(f"init is not available for an objective with the link {self.link!r}.")
        if not ((predicted > 0.0) & (predicted < high)).all():
            bounds = "positive" if high == np.inf else "between 0 and 1"
            raise ValueError(
                f"init={describe_estimator(estimator)} predicts values that are not {bounds}, "
                "which the link of the objective does not reach: use a generalised linear model "
                "such as PoissonRegressor."
            )
        return invert(predicted)

    def _read_probabilities(self, probabilities: object) -> np.ndarray:
        if isinstance(probabilities, list):  # of each label, as scikit-learn's forests give them
            columns = [p[:, 1] if p.shape[1] > 1 else np.zeros(len(p)) for p in probabilities]
            probabilities = np.column_stack(columns)
        p = np.clip(np.asarray(probabilities, np.float64), _LEAST, 1.0 - _LEAST)
        if self.kind == "multilabel":
            return np.asarray(logit(p))
        return np.asarray(logit(p[:, 1:])) if p.shape[1] == 2 else _core.log(p)

    def align(self, scores: np.ndarray, classes: object) -> np.ndarray:
        """Return scores for all classes; the scores of two classes as one column or as two."""
        if self.kind == "binary":
            return scores if self.n_columns == 1 else np.hstack([-scores / 2, scores / 2])
        if self.kind == "multilabel" or self.classes is None or classes is None:
            return self._check_columns(scores)
        classes = np.asarray(classes)
        if len(classes) == 2 and scores.shape[1] == 1:
            scores = np.hstack([-scores / 2, scores / 2])
        if len(classes) == self.n_columns:
            return self._check_columns(scores)
        least = scores.min(axis=1, keepdims=True)  # of classes that the estimator has not seen
        aligned = np.repeat(least, self.n_columns, axis=1)
        aligned[:, np.searchsorted(self.classes, classes)] = scores
        return aligned

    def _check_columns(self, scores: np.ndarray) -> np.ndarray:
        if scores.shape[1] != self.n_columns:
            raise ValueError(
                f"init gives {scores.shape[1]} raw scores per row, but the objective has "
                f"{self.n_columns}: use one-vs-rest scores (for SVC decision_function_shape='ovr')."
            )
        return scores

    def expand(self, columns: np.ndarray) -> np.ndarray:
        """Return raw scores, or coefficients, (n, n_scores) of the columns (n, n_columns)."""
        if self.mask == (True,):
            return columns
        spread = np.where(self.mask, columns[:, :, None], 0.0)
        return spread.reshape(len(columns), -1)


_LEAST = 1e-6  # smallest probability that is not taken as 0


def logit(p: np.ndarray) -> np.ndarray:
    """Return the log-odds of probabilities."""
    return np.asarray(_core.log(p) - _core.log1p(-p))


def _as_columns(values: object) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    return array[:, None] if array.ndim == 1 else array


def describe_estimator(estimator: object) -> str:
    """Return the name of an estimator's class, and of the last step of a pipeline."""
    steps = getattr(estimator, "steps", None)
    inner = f" of {describe_estimator(steps[-1][1])}" if steps else ""
    return type(estimator).__name__ + inner


@dataclass(frozen=True, eq=False)
class EstimatorInitialModel(InitialModel):
    """A fitted estimator that is not linear, or has features of its own.

    Attributes
    ----------
    sparse, factor, rows_id
        See `InitialModel`.
    """

    estimator: Any
    reader: ScoreReader
    sparse: SparseStart | None = None
    factor: float = 1.0
    rows_id: str = ""

    @property
    def description(self) -> str:
        return describe_estimator(self.estimator)

    def scores(self, X: DataLike) -> Scores:
        """Return the raw scores of X."""
        scores = self.reader.expand(self.factor * self.reader.read(self.estimator, X))
        return scores if self.sparse is None else self.sparse.select(scores)

    def scale(self, ratio: float) -> EstimatorInitialModel:
        return replace(self, factor=self.factor * ratio)

    def select_outputs(self, outputs: slice) -> InitialModel:
        """Raise a ValueError: an estimator cannot be divided."""
        raise ValueError(
            f"The model starts from {self.description} (init), whose outputs cannot be selected."
        )


def blend_initial_models(
    models: Sequence[InitialModel | None], weights: Sequence[float]
) -> LinearInitialModel | None:
    """Return the weighted sum of initial models, of which some may be None.

    Raises
    ------
    ValueError
        If one is not linear, or they fill missing values differently.
    """
    given = [(model, weight) for model, weight in zip(models, weights, strict=True) if model]
    if not given:
        return None
    parts = [(model.get_linear_part(None, "blend"), weight) for model, weight in given]
    first = parts[0][0]
    fills: list[Any] = [part.fill for part, _ in parts]
    if not all(np.array_equal(fill, fills[0]) for fill in fills):
        raise ValueError("blend: the initial models (init) fill missing values differently.")
    total = sum(weight for _, weight in parts)
    return replace(
        first,
        coef=sum(part.coef * part.coef.dtype.type(weight) for part, weight in parts),
        intercept=np.asarray(sum(part.intercept * weight for part, weight in parts)),
        mean=np.asarray(sum(part.mean * (weight / total) for part, weight in parts)),
        rows_id="",
    )


def top_scores(scores: Any, k: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the outputs of the k largest scores of each row, dense or sparse, and the scores.

    Ties are ordered by output; -1 and -inf where a row has fewer.
    """
    n, n_outputs = scores.shape
    if scipy.sparse.issparse(scores):
        rows = np.repeat(np.arange(n), np.diff(scores.indptr))
        order = np.lexsort((scores.indices, -scores.data, rows))
        rank = np.arange(len(rows)) - scores.indptr[rows]
        kept, width = rank < k, min(k, n_outputs)
        best, values = np.full((n, width), -1, np.int32), np.full((n, width), -np.inf)
        place = rows[kept], rank[kept]
        best[place], values[place] = scores.indices[order][kept], scores.data[order][kept]
        return best, values
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)
    return best, np.take_along_axis(scores, best.astype(np.int64), axis=1)
