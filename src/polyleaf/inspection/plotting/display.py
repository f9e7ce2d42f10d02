"""The base of displays, and the names, offsets and probabilities of an estimator's outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from polyleaf.estimators._prediction import resolve_offset
from polyleaf.inspection.model_summary import get_output_names
from polyleaf.model import Model
from polyleaf.model.metadata import HAS_OFFSETS
from polyleaf.model.model import get_model
from polyleaf.runtime.optional_packages import optional_package
from polyleaf.runtime.row_data import RowData
from polyleaf.user_data.read_target import has_columns
from polyleaf.user_data.target import TargetEncoding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.runtime.types import DataLike


class Display(ABC):
    """A display: numbers, and the method that draws them.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Set by `plot`.
    figure_ : matplotlib Figure
    """

    ax_: Axes
    figure_: Figure | SubFigure

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the numbers.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on. Default: new axes.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """

    def _set_axes(self, ax: Axes | None) -> Axes:
        """Set the axes, new ones if none are given."""
        if ax is None:
            ax = import_pyplot().subplots(layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        return ax

    def _finish(self) -> Self:
        """Show dollar signs in users' names as they are, not as formulas."""
        from matplotlib.text import Text

        for text in self.ax_.findobj(Text):
            text.set_parse_math(False)
        return self


def import_pyplot() -> ModuleType:
    """Import pyplot; raise ImportError with instructions if matplotlib is not installed."""
    with optional_package("Displays require matplotlib", "plot"):
        from matplotlib import pyplot
    return pyplot


# The style of lines to compare with.
REFERENCE_LINE: dict[str, Any] = {"color": "grey", "linewidth": 0.8, "linestyle": "--"}


_MAX_LEVEL_LETTERS = 50  # of labels that fit side by side


def label_outputs(ax: Axes, names: Sequence[str]) -> list[int]:
    """Name up to about 20 positions of the x axis; return these positions."""
    shown = list(range(0, len(names), max(1, len(names) // 20)))
    labels = [names[k] for k in shown]
    if sum(map(len, labels)) + 2 * len(labels) <= _MAX_LEVEL_LETTERS:
        ax.set_xticks(shown, labels)
    else:
        ax.set_xticks(shown, labels, rotation=45, ha="right")
    return shown


def get_single_task_model(estimator: PolyleafEstimator) -> Model:
    """Return the model of an estimator of a single task.

    Raises a ValueError for several tasks.
    """
    model = get_model(estimator)
    if model.objective.tasks:
        raise ValueError(
            "This display is of a single task, but the model has several: pass one of them, "
            "task_estimator(name), with its targets; d2_scores compares the tasks."
        )
    return model


def get_evaluation_offset(
    estimator: PolyleafEstimator, X: DataLike, y: Any, offset: DataLike | None
) -> DataLike | None:
    """Return the offset of rows to evaluate: `offset`, the offset of a Dataset, or 0 with a
    warning."""
    model = get_model(estimator)
    offset = resolve_offset(model, X, offset)
    if offset is None and model.metadata.get(HAS_OFFSETS):  # further calls should not warn again
        first = next(iter(y.values())) if isinstance(y, Mapping) else y
        return zero_offset(model, np.shape(first)[0])
    return offset


def zero_offset(model: Model, n_rows: int) -> np.ndarray | dict[str, np.ndarray]:
    """Return an offset of 0 for each row and column, or a dict of such offsets by task."""
    if not model.objective.tasks:
        return np.zeros((n_rows, model.n_outputs // len(model.objective.offset_mask)))
    tasks = [place.task for place in model.objective.tasks]
    return {t.name: np.zeros((n_rows, t.n_scores // len(t.objective.offset_mask))) for t in tasks}


def read_classes(estimator: PolyleafEstimator, y: Any) -> np.ndarray:
    """Return y as an array, with the largest class of each row in place of shares of classes."""
    encoding = getattr(estimator, "_encoding", None)
    if isinstance(encoding, TargetEncoding) and encoding.has_class_ids and has_columns(y):
        classes: np.ndarray = estimator.classes_[encoding.encode(RowData(y)).get_row_classes()]
        return classes
    return np.asarray(y.toarray() if hasattr(y, "toarray") else y)


def predict_probabilities(
    estimator: PolyleafEstimator, X: DataLike, y: DataLike, offset: DataLike | None = None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the truth and the predicted probability of each class or label.

    Raises a ValueError if the estimator has no `predict_proba`.

    Returns
    -------
    truth : ndarray of shape (n_rows, m), float64
        1, 0, or NaN for a missing label. m is 1 for two classes: the second.
    probabilities : ndarray of shape (n_rows, m), float64
    names : list of str
    """
    model = get_single_task_model(estimator)
    if not hasattr(estimator, "predict_proba"):
        raise ValueError("This display requires an estimator with predict_proba.")
    probabilities = estimator.predict_proba(
        X, offset=get_evaluation_offset(estimator, X, y, offset)
    )
    y = read_classes(estimator, y)
    if y.ndim == 2 and y.shape[1] > 1:
        return y.astype(np.float64), probabilities, get_output_names(model)
    known = estimator.classes_.tolist()
    if y.size and model.metadata["kind"] != "multilabel" and not np.isin(y, known).any():
        raise ValueError(
            f"y holds no label of the training data, but the label {np.ravel(y).tolist()[0]!r}."
        )
    # One label that training did not have is none of the classes: all predictions are errors.
    truth = np.asarray(y.reshape(-1, 1) == np.asarray(estimator.classes_)[None, :], np.float64)
    names = [str(name) for name in estimator.classes_]
    first = 0 if len(names) > 2 else 1
    return truth[:, first:], probabilities[:, first:], names[first:]
