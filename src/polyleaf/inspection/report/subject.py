"""What a report is about: an estimator, rows, and what all sections ask of them, worked out once.

Owns the numbers that several sections share, and which rows of Y a task has. Must not know HTML or pictures.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import _safe_indexing

from polyleaf.data.dataset import Dataset
from polyleaf.distributions import Distribution
from polyleaf.estimators.base import HAS_OFFSETS
from polyleaf.estimators.shap_mixin import mean_abs_shap
from polyleaf.inputs.multitask import (
    TaskColumns,
    TaskEncodings,
    decode_target_encoding,
    get_task_name,
)
from polyleaf.inputs.objects import get_missing_mask
from polyleaf.inputs.targets import check_same_rows, to_numpy
from polyleaf.inspection.plotting.display import (
    get_model,
    get_output_names,
    get_single_task_model,
    get_target_names,
    zero_offset,
)
from polyleaf.metrics._multitask import compute_scores_per_target
from polyleaf.model import Model
from polyleaf.model.shap import BinnedRows, resolve_outputs

__all__ = ["MultiTaskReportData", "ReportData", "SingleTaskReportData"]

_TASKS = {"regression": "regression", "multilabel": "multilabel"}
_ROWS_EXPLAINED = 300
_MOST_CELLS = 20_000_000  # rows x features x outputs that contributions are worked out for


class ReportData:
    """A fitted estimator and rows that it sees: all that is asked without targets.

    Attributes
    ----------
    estimator, model
    X
        As given.
    mark : str
        Before the names of its pictures, which differ on a page.
    """

    def __init__(self, estimator: Any, X: Any, mark: str = "") -> None:
        self.estimator, self.X, self.mark = estimator, X, mark
        self.model: Model = get_model(estimator)

    @property
    def n_rows(self) -> int:
        return self.coded.codes.shape[1]

    @cached_property
    def output_names(self) -> list[str]:
        return get_output_names(self.model)

    @cached_property
    def split_importance(self) -> np.ndarray:
        """Importance of each feature, (n_features,), and what it counts is `gain_or_splits`."""
        return np.asarray(self.estimator.feature_importance(self.gain_or_splits))

    @property
    def gain_or_splits(self) -> str:
        return "gain" if self.model.has_statistics else "split"

    @cached_property
    def coded(self) -> BinnedRows:
        """All rows as the trees see them."""
        mapper, X = self.model.mapper, self.X
        if isinstance(X, Dataset):
            X = X.rebinned_to(mapper)
            return BinnedRows(X.codes, X.features)
        table = self.estimator._features(X)
        return BinnedRows(
            mapper.transform(table),
            mapper.get_raw_values(table) if self.model.has_linear_leaves else None,
        )

    @cached_property
    def rows_explained(self) -> np.ndarray:
        """Evenly spread ones, a few hundred."""
        return np.unique(
            np.linspace(0, self.n_rows - 1, min(self.n_rows, _ROWS_EXPLAINED)).astype(np.int64)
        )

    @cached_property
    def explained(self) -> np.ndarray | None:
        """Contributions to their raw scores, (n, n_features, n_outputs). None where that would be too much,
        or the model was saved without the counts that it takes."""
        model, rows = self.model, self.rows_explained
        if (
            not model.has_statistics
            or len(rows) * len(model.input_names) * model.n_outputs > _MOST_CELLS
        ):
            return None
        codes, features = self.coded
        part = BinnedRows(
            np.ascontiguousarray(codes[:, rows]),
            None if features is None else np.ascontiguousarray(features[:, rows]),
        )
        chosen = resolve_outputs(None, model.n_outputs, model.output_names)
        contributions = model.make_shap_explainer(*self.estimator._shap_range(None)[:2])
        return np.concatenate(
            [values for _, values in contributions.iter_shap_values(part, chosen)]
        )

    @cached_property
    def mean_contribution(self) -> np.ndarray:
        """Mean magnitudes, (n_outputs, n_features)."""
        assert self.explained is not None
        return mean_abs_shap([(slice(0, len(self.explained)), self.explained)])


class SingleTaskReportData(ReportData):
    """A fitted estimator whose targets are of one kind, and rows to measure it on.

    Attributes
    ----------
    y : ndarray
    offset
        What rows start from, as `predict` takes it; None: nothing.
    predicted : ndarray
    """

    def __init__(
        self, estimator: Any, X: Any, y: Any, offset: Any = None, mark: str = "", called: str = "y"
    ) -> None:
        if scipy.sparse.issparse(y):
            raise ValueError(
                "A report looks at every output of every row: pass y as a dense array, of fewer labels if "
                "there are very many."
            )
        get_single_task_model(estimator)
        super().__init__(estimator, X, mark)
        self._called = called
        self.y, self.offset = np.asarray(y), offset
        self.predicted = np.asarray(estimator.predict(X, offset=offset))
        check_same_rows(len(self.predicted), len(self.y))
        if not len(self.y):
            raise ValueError("A report needs at least one row to measure the model on.")
        if self.task == "regression":
            self.y = self.y.astype(np.float64)

    @property
    def task(self) -> str:
        """As `metrics.task_scores` has it."""
        return _TASKS.get(self.model.metadata["kind"], "classification")

    @cached_property
    def target_names(self) -> list[str]:
        """Columns of y."""
        one = self.task == "classification" or self.y.ndim == 1
        return [self._called] if one else get_target_names(self.model)

    @property
    def description(self) -> str:
        model, n = self.model, len(self.target_names)
        what = {
            "regression": "one number" if n == 1 else f"{n} numbers",
            "multilabel": f"{n} labels",
            "classification": f"{len(getattr(self.estimator, 'classes_', []))} classes",
        }[self.task]
        return f"{model.n_trees} trees that predict {what} from {len(model.input_names)} features"

    @cached_property
    def probabilities(self) -> np.ndarray | None:
        """Of classes or labels, where there are any."""
        if not hasattr(self.estimator, "predict_proba"):
            return None
        found: np.ndarray = self.estimator.predict_proba(self.X, offset=self.offset)
        return found

    @cached_property
    def distribution(self) -> Distribution | None:
        """Of each row, of the shape of y, where such is predicted."""
        if not self.model.objective.has_distribution:
            return None
        law: Distribution = self.estimator.predict_dist(self.X, offset=self.offset)
        return law

    @cached_property
    def scores(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Of all targets, and of each of several."""
        return compute_scores_per_target(
            self.task,
            self.target_names,
            self.y,
            self.predicted,
            probabilities=self.probabilities,
            classes=getattr(self.estimator, "classes_", None),
            levels=self.model.objective.quantile_levels,
            distribution=self.distribution,
        )


class MultiTaskReportData(ReportData):
    """A fitted estimator of several tasks, and rows to measure it on.

    Attributes
    ----------
    tasks : dict of str to SingleTaskReportData
        Each task as the estimator of its kind, with the rows whose target is known; of numbers all rows.
    skills : dict of str to float
    """

    def __init__(self, estimator: Any, X: Any, Y: Any, offset: Any = None) -> None:
        super().__init__(estimator, X)
        if not self.n_rows:
            raise ValueError("A report needs at least one row to measure the model on.")
        self.skills: dict[str, float] = estimator.skills(X, Y, offset=offset)
        columns = TaskColumns(Y)
        self.tasks = {
            name: _of_known(
                estimator.task_estimator(name),
                X,
                columns.select(key),
                (offset or {}).get(name),
                f"task{t}-",
                name,
            )
            for t, key in enumerate(self._keys)
            for name in [get_task_name(key)]
        }

    @property
    def _keys(self) -> list[Any]:
        encoding = decode_target_encoding(self.model.metadata, self.model.n_outputs)
        assert isinstance(encoding, TaskEncodings)
        return list(encoding.keys)

    @property
    def description(self) -> str:
        of = f"{len(self.tasks)} tasks from {len(self.model.input_names)} features"
        return f"{self.model.n_trees} trees that predict {of}"


def _of_known(estimator: Any, X: Any, y: Any, offset: Any, *named: str) -> SingleTaskReportData:
    """Of one task, without rows whose class or labels are not known; `named` are `mark` and `called`."""
    y = np.asarray(to_numpy(y))
    if offset is None and estimator.model_.metadata.get(HAS_OFFSETS):  # of other tasks
        offset = zero_offset(estimator.model_, len(y))
    if estimator.model_.metadata["kind"] == "regression":
        return SingleTaskReportData(estimator, X, y, offset, *named)
    missing = get_missing_mask(y)
    known = np.flatnonzero(~missing.reshape(len(y), -1).any(axis=1))
    if len(known) == len(y):
        return SingleTaskReportData(estimator, X, y, offset, *named)
    if isinstance(X, Dataset):
        raise ValueError(
            "Some classes are not known, and a report chooses the rows where they are: pass X as an array or "
            "table, not as a Dataset."
        )
    offset = None if offset is None else np.asarray(to_numpy(offset))[known]
    return SingleTaskReportData(estimator, _safe_indexing(X, known), y[known], offset, *named)
