"""The data of a report: an estimator, rows, and what several sections compute from them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils import _safe_indexing

from polyleaf.binned_data.dataset import Dataset
from polyleaf.distributions import Distribution
from polyleaf.estimators._prediction import mean_abs_shap
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.ranker import PolyleafRanker
from polyleaf.inspection.drift import Drift, measure_drift
from polyleaf.inspection.model_summary import get_output_names, get_target_names
from polyleaf.inspection.plotting.display import get_single_task_model, read_classes, zero_offset
from polyleaf.metrics._multitask import compute_scores_per_target
from polyleaf.model import Model
from polyleaf.model.metadata import HAS_OFFSETS
from polyleaf.model.model import get_model
from polyleaf.model.shap import BinnedRows, ShapExplainer, resolve_outputs
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.multitask import (
    TaskColumns,
    TaskEncodings,
    decode_target_encoding,
    get_task_name,
)
from polyleaf.user_data.read_target import check_same_rows, to_numpy
from polyleaf.user_data.validation import get_missing_mask

COVERAGES = (0.5, 0.8, 0.9, 0.95)
_TASKS = {"regression": "regression", "multilabel": "multilabel"}
_MAX_EXPLAINED_ROWS = 300
_MAX_SHAP_VALUES = 20_000_000  # rows x features x outputs


class IntervalCoverage(NamedTuple):
    """Central intervals of one coverage: share of rows inside, its standard error, mean width."""

    coverage: float
    share: float
    error: float
    width: float


def compute_coverage_table(y: np.ndarray, distribution: Distribution) -> list[IntervalCoverage]:
    """Compute the empirical coverage of intervals of one target, y of shape (n_rows,), no NaN."""
    table = []
    for coverage in COVERAGES:
        low, high = distribution.interval(coverage).T
        share = float(np.mean((low <= y) & (y <= high)))
        error = float(np.sqrt(share * (1.0 - share) / len(y)))
        table.append(IntervalCoverage(coverage, share, error, float(np.mean(high - low))))
    return table


def compute_pit_histogram(
    y: np.ndarray, distribution: Distribution, n_bins: int = 10
) -> np.ndarray:
    """Compute the histogram of the probability integral transform, (n_bins,).

    It is 1 throughout for calibrated distributions. For counts the non-randomised transform is used
    (Czado, Gneiting and Held, "Predictive model assessment for count data", Biometrics 65, 2009).
    """
    last = distribution.cdf(y)
    first = distribution.cdf(y - 1.0) if distribution.is_discrete else last
    ends = np.linspace(0.0, 1.0, n_bins + 1)[:, None]
    span = np.maximum(last - first, np.finfo(np.float64).tiny)
    below = np.where(last > first, np.clip((ends - first) / span, 0.0, 1.0), ends >= last)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below.mean(axis=1)) * n_bins


class ReportData:
    """A fitted estimator and rows, without targets.

    `prefix`: the prefix of the names of its figures, which are unique on a page.
    """

    def __init__(self, estimator: PolyleafEstimator, X: DataLike, prefix: str = "") -> None:
        self.estimator, self.X, self.prefix = estimator, X, prefix
        self.model: Model = get_model(estimator)

    @property
    def n_rows(self) -> int:
        return self.binned_rows.codes.shape[1]

    @cached_property
    def output_names(self) -> list[str]:
        return get_output_names(self.model)

    @cached_property
    def split_importance(self) -> np.ndarray:
        """Importance of each feature, (n_features,), of kind `importance_kind`."""
        return np.asarray(self.estimator.feature_importance(self.importance_kind))

    @property
    def importance_kind(self) -> Literal["gain", "split"]:
        return "gain" if self.model.has_statistics else "split"

    @cached_property
    def binned_rows(self) -> BinnedRows:
        """All rows, binned."""
        mapper, X = self.model.mapper, self.X
        if isinstance(X, Dataset):
            X = X.rebinned_to(mapper)
            return BinnedRows(X.codes, X.features)
        table = self.estimator._features(X)
        return BinnedRows(
            mapper.transform(table),
            mapper.get_raw_values(table) if self.model.has_linear_leaves else None,
            table.source,
        )

    @cached_property
    def drift(self) -> Drift | None:
        """The rows compared with the training rows; None if the values or counts are not known."""
        if isinstance(self.X, Dataset) or self.model.bin_counts is None:
            return None
        zero = (
            zero_offset(self.model, self.n_rows) if self.model.metadata.get(HAS_OFFSETS) else None
        )
        return measure_drift(self.model, self.X, offset=zero)

    @cached_property
    def explained_rows(self) -> np.ndarray:
        """Evenly spaced rows, a few hundred at most."""
        return np.unique(
            np.linspace(0, self.n_rows - 1, min(self.n_rows, _MAX_EXPLAINED_ROWS)).astype(np.int64)
        )

    @cached_property
    def shap_values(self) -> np.ndarray | None:
        """SHAP values of these rows, (n, n_features, n_outputs).

        None if there are too many, the model was saved without row counts, or it starts from a
        model whose SHAP values are unknown.
        """
        model, rows = self.model, self.explained_rows
        if (
            not model.has_statistics
            or (model.initial is not None and not model.initial.is_linear_in(model.projection))
            or len(rows) * len(model.input_names) * model.n_outputs > _MAX_SHAP_VALUES
        ):
            return None
        codes, features, source = self.binned_rows
        part = BinnedRows(
            np.ascontiguousarray(codes[:, rows]),
            None if features is None else np.ascontiguousarray(features[:, rows]),
            None if source is None else _safe_indexing(source, rows),
        )
        selection = resolve_outputs(None, model.n_outputs, model.output_names)
        explainer = ShapExplainer(model, *self.estimator._rounds(None))
        return np.concatenate([values for _, values in explainer.iter_values(part, selection)])

    @cached_property
    def mean_abs_shap(self) -> np.ndarray:
        """Mean absolute SHAP values, (n_outputs, n_features)."""
        assert self.shap_values is not None
        return mean_abs_shap([(slice(0, len(self.shap_values)), self.shap_values)])


class SingleTaskReportData(ReportData):
    """A fitted estimator of a single task, and rows to evaluate it on.

    `offset`: the offset of the rows, as for `predict`; None: no offset.
    """

    def __init__(
        self,
        estimator: PolyleafEstimator,
        X: DataLike,
        y: DataLike,
        offset: DataLike | None = None,
        prefix: str = "",
        target_name: str = "y",
    ) -> None:
        if scipy.sparse.issparse(y):
            refuse("sparse_y", "report")
        get_single_task_model(estimator)
        super().__init__(estimator, X, prefix)
        self._target_name = target_name
        self.y, self.offset = read_classes(estimator, y), offset
        self.predicted = np.asarray(estimator.predict(X, offset=offset))
        check_same_rows(len(self.predicted), len(self.y))
        if not len(self.y):
            raise ValueError("X must have at least one row for a report.")
        if self.task == "regression":
            self.y = self.y.astype(np.float64)

    @property
    def task(self) -> str:
        """The kind of task, as for `compute_scores`."""
        return _TASKS.get(self.model.metadata["kind"], "classification")

    @property
    def is_mean_regression(self) -> bool:
        """Whether predictions are single numbers per target, not quantiles or classes."""
        return self.task == "regression" and not self.model.objective.quantile_levels

    @cached_property
    def target_names(self) -> list[str]:
        """Names of the columns of y."""
        is_single = self.task == "classification" or self.y.ndim == 1
        return [self._target_name] if is_single else get_target_names(self.model)

    @property
    def description(self) -> str:
        model, n = self.model, len(self.target_names)
        target = {
            "regression": "one number" if n == 1 else f"{n} numbers",
            "multilabel": f"{n} labels",
            "classification": f"{len(getattr(self.estimator, 'classes_', []))} classes",
        }[self.task]
        return f"{model.n_trees} trees that predict {target} from {len(model.input_names)} features"

    @cached_property
    def probabilities(self) -> np.ndarray | None:
        """Predicted probabilities; None for regression."""
        if not hasattr(self.estimator, "predict_proba"):
            return None
        probabilities: np.ndarray = self.estimator.predict_proba(self.X, offset=self.offset)
        return probabilities

    @cached_property
    def distribution(self) -> Distribution | None:
        """Predicted distributions, of the shape of y; None if the objective has none."""
        if not self.model.objective.has_distribution:
            return None
        predicted: Distribution = self.estimator.predict_dist(self.X, offset=self.offset)
        return predicted

    @cached_property
    def scores(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Scores of all targets, and of each of several."""
        return compute_scores_per_target(
            self.task,
            self.target_names,
            RowData(self.y),
            self.predicted,
            probabilities=self.probabilities,
            classes=getattr(self.estimator, "classes_", None),
            levels=self.model.objective.quantile_levels,
            distribution=self.distribution,
        )


class RankingReportData(ReportData):
    """A fitted ranker, and queries to evaluate it on.

    `metrics` (n_scores,): mean over scores, and of each score. `front` (n_scores, n_goals): NDCG of
    each score by each goal.
    """

    def __init__(
        self,
        estimator: PolyleafRanker,
        X: DataLike,
        y: DataLike,
        query: Any,
        offset: DataLike | None,
    ) -> None:
        super().__init__(estimator, X)
        self.metrics = estimator._evaluate(X, RowData(y, None, offset, query=query))
        self.front = estimator.score_goals(X, y, qid=query, offset=offset)
        names = estimator._encoding.output_names
        self.goal_names = list(names or map(str, range(self.front.shape[1])))

    @property
    def description(self) -> str:
        n_goals = len(self.goal_names)
        goals = "one goal" if n_goals == 1 else f"{n_goals} goals"
        content = f"rank by {goals} from {len(self.model.input_names)} features"
        return f"{self.model.n_trees} trees that {content}"


class MultiTaskReportData(ReportData):
    """A fitted estimator of several tasks, and rows to evaluate it on.

    `tasks`: the data of each task: the rows whose class or labels are known; for numbers all rows.
    """

    def __init__(
        self, estimator: PolyleafEstimator, X: DataLike, Y: DataLike, offset: Any = None
    ) -> None:
        super().__init__(estimator, X)
        if not self.n_rows:
            raise ValueError("X must have at least one row for a report.")
        self.d2_scores: dict[str, float] = estimator.d2_scores(X, Y, offset=offset)
        columns = TaskColumns(Y)
        encoding = decode_target_encoding(self.model.metadata, self.model.n_outputs)
        assert isinstance(encoding, TaskEncodings)
        self.tasks = {}
        for t, key in enumerate(encoding.keys):
            name = get_task_name(key)
            self.tasks[name] = _make_task_data(
                estimator.task_estimator(name),
                X,
                np.asarray(to_numpy(columns.select(key))),
                (offset or {}).get(name),
                f"task{t}-",
                name,
            )

    @property
    def description(self) -> str:
        content = f"{len(self.tasks)} tasks from {len(self.model.input_names)} features"
        return f"{self.model.n_trees} trees that predict {content}"


def _make_task_data(
    estimator: PolyleafEstimator,
    X: DataLike,
    y: np.ndarray,
    offset: DataLike | None,
    prefix: str,
    name: str,
) -> SingleTaskReportData:
    """Select the rows of one task with known class or labels."""
    metadata = estimator.model_.metadata
    if offset is None and metadata.get(HAS_OFFSETS):  # the offset is of other tasks
        offset = zero_offset(estimator.model_, len(y))
    is_known = ~get_missing_mask(y).reshape(len(y), -1).any(axis=1)
    if metadata["kind"] != "regression" and not is_known.all():
        if isinstance(X, Dataset):
            raise ValueError(
                "X must not be a Dataset if classes are missing, as their rows are left out: pass "
                "an array or table."
            )
        rows = np.flatnonzero(is_known)
        offset = None if offset is None else np.asarray(to_numpy(offset))[rows]
        X, y = _safe_indexing(X, rows), y[rows]
    return SingleTaskReportData(estimator, X, y, offset, prefix, name)
