"""What a report is about: an estimator, rows, and what all sections ask of them, worked out once.

Owns the numbers that several sections share. Must not know HTML or pictures.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from polyleaf.explain import mean_magnitude
from polyleaf.inputs.dataset import Dataset
from polyleaf.inputs.targets import check_same_rows
from polyleaf.metrics.task_scores import of_targets
from polyleaf.model import Model
from polyleaf.model.contributions import CodedRows, choose_outputs
from polyleaf.plotting.display import names_of, of_one_kind, target_names_of

__all__ = ["Subject"]

_TASKS = {"regression": "regression", "multilabel": "multilabel"}
_ROWS_EXPLAINED = 300
_MOST_CELLS = 20_000_000  # rows x features x outputs that contributions are worked out for


class Subject:
    """A fitted estimator and rows to measure it on.

    Attributes
    ----------
    estimator, model
    X, y
        As given; y as an array.
    """

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        if scipy.sparse.issparse(y):
            raise ValueError(
                "A report looks at every output of every row: pass y as a dense array, of fewer labels if "
                "there are very many."
            )
        self.estimator, self.X = estimator, X
        self.model: Model = of_one_kind(estimator)
        self.y = np.asarray(y)
        self.predicted = np.asarray(estimator.predict(X))
        self.n_rows = len(self.predicted)
        check_same_rows(self.n_rows, len(self.y))
        if not self.n_rows:
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
        return ["y"] if one else target_names_of(self.model)

    @cached_property
    def output_names(self) -> list[str]:
        return names_of(self.model)

    @property
    def in_words(self) -> str:
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
        return self.estimator.predict_proba(self.X) if hasattr(self.estimator, "predict_proba") else None

    @cached_property
    def scores(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Of all targets, and of each of several."""
        return of_targets(
            self.task,
            self.target_names,
            self.y,
            self.predicted,
            probabilities=self.probabilities,
            classes=getattr(self.estimator, "classes_", None),
            levels=self.model.objective.levels,
        )

    @cached_property
    def by_gain(self) -> np.ndarray:
        """Importance of each feature, (n_features,), and what it counts is `gain_or_splits`."""
        return np.asarray(self.estimator.feature_importance(self.gain_or_splits))

    @property
    def gain_or_splits(self) -> str:
        return "gain" if self.model.has_statistics else "split"

    @cached_property
    def coded(self) -> CodedRows:
        """All rows as the trees see them."""
        mapper, X = self.model.mapper, self.X
        if isinstance(X, Dataset):
            X = X.seen_by(mapper)
            return CodedRows(X.codes, X.features)
        table = self.estimator._features(X)
        return CodedRows(
            mapper.transform(table), mapper.numbers(table) if self.model.reads_features else None
        )

    @cached_property
    def rows_explained(self) -> np.ndarray:
        """Evenly spread ones, a few hundred."""
        return np.unique(np.linspace(0, self.n_rows - 1, min(self.n_rows, _ROWS_EXPLAINED)).astype(np.int64))

    @cached_property
    def explained(self) -> np.ndarray | None:
        """Contributions to their raw scores, (n, n_features, n_outputs). None where that would be too much,
        or the model was saved without the counts that it takes."""
        model, rows = self.model, self.rows_explained
        if not model.has_statistics or len(rows) * len(model.input_names) * model.n_outputs > _MOST_CELLS:
            return None
        codes, features = self.coded
        part = CodedRows(
            np.ascontiguousarray(codes[:, rows]),
            None if features is None else np.ascontiguousarray(features[:, rows]),
        )
        chosen = choose_outputs(None, model.n_outputs, model.output_names)
        contributions = model.contributions(*self.estimator._explained_with(None)[:2])
        return np.concatenate([values for _, values in contributions.in_chunks(part, chosen)])

    @cached_property
    def mean_contribution(self) -> np.ndarray:
        """Mean magnitudes, (n_outputs, n_features)."""
        assert self.explained is not None
        return mean_magnitude([(slice(0, len(self.explained)), self.explained)])
