"""What displays have in common: axes to draw on, names, offsets and probabilities of an estimator's outputs.

Must not know what is drawn.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.data.dataset import Dataset
from polyleaf.estimators.base import HAS_OFFSETS
from polyleaf.model import Model

__all__ = [
    "Display",
    "get_model",
    "get_output_names",
    "zero_offset",
    "get_single_task_model",
    "resolve_offset",
    "predict_probabilities",
]


class Display(ABC):
    """Numbers that can be drawn.

    Attributes
    ----------
    ax_ : matplotlib Axes
        After `plot`.
    figure_ : matplotlib Figure
    """

    ax_: Any
    figure_: Any

    @abstractmethod
    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            To draw on. Default: new ones.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            Where there is no matplotlib.
        """

    def _start(self, ax: Any) -> Any:
        """The axes that are given, or new ones of pyplot's."""
        if ax is None:
            ax = pyplot().subplots(layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def pyplot() -> Any:
    """Matplotlib's, or an ImportError that says what to install."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            'Pictures need the package matplotlib: pip install "polyleaf[plot]".'
        ) from error
    return pyplot


def get_model(estimator: Any) -> Model:
    """The model of a fitted estimator, or the model that was given."""
    if isinstance(estimator, Model):
        return estimator
    check_is_fitted(estimator)
    model: Model = estimator.model_
    return model


def get_single_task_model(estimator: Any) -> Model:
    """The model of an estimator whose targets are of one kind.

    Raises
    ------
    ValueError
        For tasks of unlike kind.
    """
    model = get_model(estimator)
    if model.objective.tasks:
        raise ValueError(
            "This compares targets of one kind, and the model has tasks: pass one of them, of_task(name), "
            "with its targets; `skills` tells how good each is."
        )
    return model


def resolve_offset(estimator: Any, X: Any, y: Any, offset: Any) -> Any:
    """What rows that a model is measured on start from: as given, or as a Dataset holds it.

    Where nobody says it of a model that was trained with offsets, that is warned of, and 0.
    """
    model = get_model(estimator)
    given = X.offset if offset is None and isinstance(X, Dataset) else offset
    if given is not None or not model.metadata.get(HAS_OFFSETS):
        return given
    warnings.warn(
        "The model was trained with an offset for each row, and these rows have none: its own part alone is "
        "measured. Pass offset (zeros, where that is what is meant).",
        stacklevel=4,
    )
    return None if model.objective.tasks else zero_offset(model, np.shape(y)[0])


def zero_offset(model: Model, n_rows: int) -> np.ndarray:
    """The offset that says of every row, in each column, that there is none."""
    return np.zeros((n_rows, model.n_outputs // len(model.objective.offset_mask)))


def get_output_names(model: Model) -> list[str]:
    """Names of all outputs."""
    return [model.output_name(k) for k in range(model.n_outputs)]


def get_target_names(model: Model) -> list[str]:
    """Names of the columns of y: those of the outputs, unless a column has several scores (its quantiles, or
    the parameters of its distribution)."""
    names, parts = get_output_names(model), model.objective.score_names
    if len(parts) < 2:
        return names
    end = f"_{parts[0]}"
    firsts = enumerate(names[:: len(parts)])
    return [name.removesuffix(end) if name.endswith(end) else str(t) for t, name in firsts]


def predict_probabilities(
    estimator: Any, X: Any, y: Any, offset: Any = None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """What is true of each class or label, and how likely the model finds it.

    Returns
    -------
    holds : ndarray of shape (n_rows, m), bool
        m is 1 for two classes: the second.
    probabilities : ndarray of shape (n_rows, m), float64
    names : list of str

    Raises
    ------
    ValueError
        Where the estimator gives no probabilities.
    """
    model = get_single_task_model(estimator)
    if not hasattr(estimator, "predict_proba"):
        raise ValueError("This display needs probabilities, which the estimator does not give.")
    probabilities = estimator.predict_proba(X, offset=resolve_offset(estimator, X, y, offset))
    y = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    if y.ndim == 2 and y.shape[1] > 1:
        return y != 0, probabilities, get_output_names(model)
    unknown = [label for label in np.unique(y).tolist() if label not in estimator.classes_.tolist()]
    if unknown and model.metadata["kind"] != "multilabel":
        raise ValueError(f"y holds the label {unknown[0]!r}, which the training labels do not.")
    holds = y.reshape(-1, 1) == np.asarray(estimator.classes_)[None, :]
    names = [str(name) for name in estimator.classes_]
    return (
        (holds, probabilities, names)
        if len(names) > 2
        else (holds[:, 1:], probabilities[:, 1:], names[1:])
    )
