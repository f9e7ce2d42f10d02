"""Initial models (`init`): models whose raw scores the trees are added to.

`LinearInitialModel` is a linear model of any library as coefficients, which a model file holds.
`EstimatorInitialModel` keeps another estimator; it can be pickled only.

For sparse targets the raw scores of a row are sparse: the `top` largest ones above `floor`, as
differences to it. The other outputs have the raw score `floor`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

import polyleaf._core as _core
from polyleaf.metrics.ranking import top_labels
from polyleaf.runtime.types import DataLike, JsonObject
from polyleaf.user_data.validation import count_rows

Scores: TypeAlias = Any
"""ndarray (n_rows, n_scores), float64, or csr_matrix for sparse targets."""

_CHUNK_SCORES = 1 << 24  # scores that are computed at a time
_LEAST = 1e-6  # smallest probability that is not taken as 0


@dataclass(frozen=True)
class SparseStart:
    """The conversion of dense raw scores to sparse ones."""

    top: int  # scores that are kept per row
    floor: float  # raw score of the outputs that are not kept

    def is_valid(self) -> bool:
        """Return whether both are numbers as they should be, if they come from a file."""
        is_number = type(self.top) is int and type(self.floor) is float
        return is_number and self.top > 0 and bool(np.isfinite(self.floor))

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


@dataclass(frozen=True, eq=False, kw_only=True)
class InitialModel(ABC):
    """A model of X that gives raw scores, to which trees are added."""

    sparse: SparseStart | None = None  # for sparse targets: scores are a csr_matrix
    factor: float = 1.0  # factor of the scores of the estimator, which `scores` includes
    rows_id: str = ""  # checksum of the targets that it was fitted to
    # Whether trees start from the scores; otherwise trees are trained without the scores, and the
    # model is the weighted mean of both.
    starts_trees: bool = True
    # whether X is read as for trees, with 0 for categories
    reads_table: bool = False

    @property
    @abstractmethod
    def description(self) -> str:
        """Words for messages."""

    @abstractmethod
    def scores(self, X: DataLike) -> Scores:
        """Return the raw scores of X."""

    def scale(self, factor: float) -> InitialModel:
        """Return the model with its scores times a factor."""
        return replace(self, factor=self.factor * factor)

    def select_outputs(self, outputs: slice) -> InitialModel:
        """Return the model of some of the raw scores."""
        raise ValueError(
            f"The model starts from {self.description} (init), whose outputs cannot be selected."
        )

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
        tree, start = sums.tocoo(), self._compute(source).tocoo()
        cells, own_cells = (part.row * np.int64(len(base)) + part.col for part in (tree, start))
        is_new = ~np.isin(own_cells, cells)  # cells that have no base score yet
        values = [tree.data + base[tree.col], start.data + is_new * base[start.col]]
        rows, columns = (np.append(tree.row, start.row), np.append(tree.col, start.col))
        # The two numbers of a cell are added, in either order.
        return scipy.sparse.csr_matrix((np.concatenate(values), (rows, columns)), sums.shape)

    def is_linear_in(self, projection: object) -> bool:
        """Return whether scores are linear in the features of trees that read this projection."""
        return isinstance(self, LinearInitialModel) and self.sparse is None and projection is None

    def get_linear_part(self, projection: object, use: str = "SHAP values") -> LinearInitialModel:
        """Return the model, if it is a linear function of the features of the trees.

        Raises a ValueError if it is not; `use` says what is not available.
        """
        if isinstance(self, LinearInitialModel) and self.is_linear_in(projection):
            return self
        raise ValueError(
            f"{use}: not available, since the model starts from {self.description} (init), whose "
            "raw scores are not linear in the features of the trees."
        )

    def _compute(self, source: Any) -> Scores:
        if source is None:
            raise ValueError(
                f"The model starts from {self.description} (init), which reads the features: pass "
                "the raw X, not a Dataset or a FeatureTable."
            )
        return self.scores(source)


@dataclass(frozen=True, eq=False, kw_only=True)
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
    sparse, factor, rows_id, starts_trees, reads_table
        See `InitialModel`.
    """

    coef: Any
    intercept: NDArray[np.float64]
    mean: NDArray[np.float64]
    fill: NDArray[np.float64] | None = None

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
        """Return the raw scores of X, each independent of the other rows."""
        numbers, size = self.read(X), max(1, _CHUNK_SCORES // self.n_scores)
        parts = []
        for begin in range(0, max(1, numbers.shape[0]), size):
            # A product with a sparse matrix adds feature by feature, unlike BLAS.
            part = numbers[begin : begin + size] @ self._float64_coef
            dense = part.toarray() if scipy.sparse.issparse(part) else np.asarray(part)
            dense = dense + self.intercept
            parts.append(dense if self.sparse is None else self.sparse.select(dense))
        return np.concatenate(parts) if self.sparse is None else scipy.sparse.vstack(parts, "csr")

    def contributions(
        self, X: DataLike, outputs: np.ndarray, reference: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the SHAP values of some outputs, float64 (n_rows, n_features, len(outputs)).

        `reference` (n_features,): means of the background rows; None: of the training rows.
        """
        change = self.read(X).toarray() - (self.mean if reference is None else reference)
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
        numbers = self.read(X)
        weight = np.ones(numbers.shape[0]) if weight is None else weight
        return np.asarray(weight @ numbers).ravel() / weight.sum()

    def to_dense(self) -> np.ndarray:
        """Return the coefficients (n_features, n_scores), float64."""
        return self._select_coef(np.arange(self.n_scores))

    def _select_coef(self, outputs: np.ndarray) -> np.ndarray:
        coef = self._float64_coef[:, outputs]
        return coef.toarray() if scipy.sparse.issparse(coef) else np.asarray(coef)

    def read(self, X: DataLike) -> scipy.sparse.csr_matrix:
        """Return X as numbers, with missing values filled."""
        numbers = check_array(
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
        )
        matrix = scipy.sparse.csr_matrix(numbers)
        is_missing = np.isnan(matrix.data)
        if not is_missing.any():
            return matrix
        features = matrix.indices[is_missing]
        if self.fill is None:
            raise ValueError(
                f"Column {features[0]} of X has missing values, which the linear model of init "
                "cannot read: put a SimpleImputer before it, in a pipeline."
            )
        filled = matrix.copy()
        filled.data[is_missing] = self.fill[features]
        return filled

    def scale(self, factor: float) -> LinearInitialModel:
        coef, intercept = self.coef * self.coef.dtype.type(factor), self.intercept * factor
        return replace(self, coef=coef, intercept=intercept, factor=self.factor * factor)

    def select_outputs(self, outputs: slice) -> LinearInitialModel:
        """Return the model of some of the raw scores."""
        return replace(self, coef=self.coef[:, outputs], intercept=self.intercept[outputs])

    def equals(self, other: InitialModel) -> bool:
        if not isinstance(other, LinearInitialModel) or self.to_dict() != other.to_dict():
            return False
        arrays, others = self.arrays(), other.arrays()
        return arrays.keys() == others.keys() and all(
            np.array_equal(array, others[name]) for name, array in arrays.items()
        )

    # --- files ---

    def to_dict(self) -> JsonObject:
        """Return JSON types; the rest is in `arrays`."""
        sparse = {} if self.sparse is None else asdict(self.sparse)
        defaults = {"reads_table": False, "starts_trees": True}
        changed = {n: v for n, value in defaults.items() if (v := getattr(self, n)) != value}
        return {"factor": self.factor, "rows_id": self.rows_id, **sparse, **changed}

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
        cls, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> LinearInitialModel:
        """Invert `to_dict` and `arrays`, for untrusted files.

        Any exception means that they do not describe a linear model.
        """
        coef, intercept, mean = arrays["coef"], arrays["intercept"], arrays["mean"]
        shape, sparse = (len(mean), len(intercept)), None
        if "indptr" in arrays:
            coef = scipy.sparse.csc_matrix((coef, arrays["indices"], arrays["indptr"]), shape)
            coef.check_format(full_check=True)
        if "top" in plain:
            sparse = SparseStart(plain["top"], plain["floor"])
        fill, factor, rows_id = arrays.get("fill", mean), plain["factor"], plain["rows_id"]
        reads_table, starts_trees = plain.get("reads_table", False), plain.get("starts_trees", True)
        is_valid = (
            coef.shape == shape
            and fill.shape == mean.shape
            and coef.dtype in (np.float32, np.float64)
            and all(vector.dtype == np.float64 for vector in (intercept, mean, fill))
            and all(np.isfinite(array).all() for array in arrays.values())
            and (type(factor) is float and 0 < factor < np.inf and isinstance(rows_id, str))
            and type(reads_table) is type(starts_trees) is bool
            and (sparse is None or sparse.is_valid())
        )
        if not is_valid:
            raise ValueError("The initial model has a wrong number, or an array of a wrong shape.")
        return cls(
            coef=coef,
            intercept=intercept,
            mean=mean,
            fill=arrays.get("fill"),
            sparse=sparse,
            factor=factor,
            rows_id=rows_id,
            reads_table=reads_table,
            starts_trees=starts_trees,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimatorInitialModel(InitialModel):
    """A fitted estimator of scikit-learn's interface that is not linear.

    `constant` (n_scores,): scores of labels that were the same in all rows; NaN for others.
    `sparse`, `factor`, `rows_id`: see `InitialModel`.
    """

    estimator: Any
    reader: ScoreReader
    constant: NDArray[np.float64]

    @property
    def description(self) -> str:
        return describe_estimator(self.estimator)

    def scores(self, X: DataLike) -> Scores:
        """Return the raw scores of X."""
        if count_rows(X) == 0:  # which estimators refuse
            scores = np.zeros((0, self.reader.n_scores))
        else:
            scores = self.reader.read(self.estimator, X)
        scores = self.factor * np.where(np.isnan(self.constant), scores, self.constant)
        return scores if self.sparse is None else self.sparse.select(scores)


@dataclass(frozen=True, eq=False)
class ScoreReader:
    """Reads raw scores from the predictions of estimators of scikit-learn's interface."""

    kind: str  # kind of the target: "regression", "binary", "multiclass" or "multilabel"
    link: str | None  # link of the objective
    classes: np.ndarray | None  # classes of the target; the estimator may have seen fewer
    n_scores: int  # raw scores of a row
    # For the raw scores of one column: whether it is added. Quantiles share one column, and
    # distributions take it as their location.
    mask: tuple[bool, ...]

    def read(self, estimator: Any, X: DataLike) -> NDArray[np.float64]:
        """Return the raw scores (n_rows, n_scores) of a fitted estimator."""
        if self.kind == "regression":
            columns = self._invert_link(estimator, _as_columns(estimator.predict(X)))
        elif hasattr(estimator, "decision_function"):
            columns = self._align(estimator, _as_columns(estimator.decision_function(X)))
        elif hasattr(estimator, "predict_proba"):
            columns = self._align(estimator, self._read_logits(estimator.predict_proba(X)))
        else:
            raise ValueError(
                f"init={describe_estimator(estimator)} has neither decision_function nor "
                "predict_proba, from which trees could start."
            )
        n_columns = self.n_scores // len(self.mask)
        if columns.shape[1] != n_columns:
            raise ValueError(
                f"init gives {columns.shape[1]} raw scores per row, but the objective has "
                f"{n_columns}: use one-vs-rest scores (for SVC decision_function_shape='ovr')."
            )
        scores = np.where(self.mask, columns[:, :, None], 0.0).reshape(-1, self.n_scores)
        return np.ascontiguousarray(scores)  # a transposed array stays one

    def _read_logits(self, probabilities: object) -> np.ndarray:
        if isinstance(probabilities, list):  # of each label, as scikit-learn's forests give them
            columns = [p[:, 1] if p.shape[1] > 1 else np.zeros(len(p)) for p in probabilities]
            probabilities = np.column_stack(columns)
        p = np.clip(np.asarray(probabilities, np.float64), _LEAST, 1.0 - _LEAST)
        if self.kind == "multilabel":
            return logit(p)
        return logit(p[:, 1:]) if p.shape[1] == 2 else _core.log(p)

    def _align(self, estimator: object, columns: np.ndarray) -> np.ndarray:
        """Return the scores of all classes."""
        if self.kind == "multilabel" or self.classes is None or self.n_scores == 1:
            return columns
        seen = np.searchsorted(self.classes, getattr(estimator, "classes_", self.classes))
        if columns.shape[1] == 1 and len(seen) == 2:
            columns = np.hstack([-columns / 2, columns / 2])
        if columns.shape[1] != len(seen) or len(seen) == self.n_scores:
            return columns
        least = columns.min(axis=1, keepdims=True)  # of classes that the estimator has not seen
        aligned = np.repeat(least, self.n_scores, axis=1)
        aligned[:, seen] = columns
        return aligned

    def _invert_link(self, estimator: object, predicted: np.ndarray) -> np.ndarray:
        if self.link in ("identity", "sorted_levels", None):
            return predicted
        if self.link not in ("exponential", "logistic"):
            raise ValueError(f"init is not available for an objective with the link {self.link!r}.")
        is_log = self.link == "exponential"
        if not ((predicted > 0.0) & (predicted < (np.inf if is_log else 1.0))).all():
            raise ValueError(
                f"init={describe_estimator(estimator)} predicts values that are not "
                f"{'positive' if is_log else 'between 0 and 1'}, which the link of the objective "
                "does not reach: use a generalised linear model such as PoissonRegressor."
            )
        return _core.log(predicted) if is_log else logit(predicted)


def logit(p: np.ndarray) -> NDArray[np.float64]:
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


def blend_initial_models(
    models: Sequence[InitialModel | None], weights: Sequence[float]
) -> LinearInitialModel | None:
    """Return the weighted sum of initial models, of which some may be None.

    Raises a ValueError if one is not linear, or they fill missing values differently.
    """
    parts = [
        (model.get_linear_part(None, "blend"), weight)
        for model, weight in zip(models, weights, strict=True)
        if model is not None
    ]
    if not parts:
        return None
    first, total = parts[0][0], sum(weight for _, weight in parts)
    fills: list[Any] = [part.fill for part, _ in parts]
    if not all(np.array_equal(fill, fills[0]) for fill in fills):
        raise ValueError("blend: the initial models (init) fill missing values differently.")
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
    best = top_labels(scores, min(k, scores.shape[1]))
    values = scores[np.arange(len(best))[:, None], best]
    values = values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)
    return best.astype(np.int32), np.where(best < 0, -np.inf, values)
