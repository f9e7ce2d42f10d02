"""A display of feature importances, for all outputs or for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from polyleaf.inspection.plotting.display import Display, get_model, get_output_names

__all__ = ["ImportanceDisplay"]

_UNITS = {
    "gain": "gain",
    "split": "splits",
    "cover": "sum of Hessians",
    "shap": "mean |SHAP value|",
}


class ImportanceDisplay(Display):
    """Importances as bars, or as a map of features and outputs.

    Parameters
    ----------
    importance : array of shape (n_features,) or (n_outputs, n_features)
    feature_names : sequence of str
    output_names : sequence of str
        Required if `importance` has two dimensions.
    kind : str
        The kind of importance, for the label.
    max_features : int
        The number of features to draw, those with the largest means.

    Attributes
    ----------
    bars_ : matplotlib BarContainer or None
    image_ : matplotlib AxesImage or None
    """

    def __init__(
        self,
        importance: Any,
        feature_names: Sequence[str],
        output_names: Sequence[str] = (),
        kind: str = "gain",
        max_features: int = 15,
    ):
        self.importance = np.asarray(importance, np.float64)
        self.feature_names, self.output_names = feature_names, output_names
        self.kind, self.max_features = kind, max_features

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        kind: Literal["gain", "split", "cover", "shap"] = "gain",
        *,
        X: Any = None,
        per_output: bool = False,
        max_features: int = 15,
        ax: Any = None,
    ) -> Self:
        """Draw importances.

        Parameters
        ----------
        estimator : fitted estimator
        kind, X, per_output
            See its `feature_importance`.
        max_features : int
            The number of features to draw, those with the largest means.
        ax : matplotlib Axes, optional
        """
        model = get_model(estimator)
        importance = estimator.feature_importance(kind, per_output, X=X)
        return cls(importance, model.input_names, get_output_names(model), kind, max_features).plot(
            ax
        )

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        by_output = np.atleast_2d(self.importance)
        order = np.argsort(-by_output.mean(axis=0), kind="stable")[: self.max_features]
        names, unit = [self.feature_names[f] for f in order], _UNITS.get(self.kind, self.kind)
        self.bars_ = self.image_ = None
        if self.importance.ndim == 1:
            self.bars_ = ax.barh(np.arange(len(order)), self.importance[order])
            ax.set(xlabel=unit)
            ax.invert_yaxis()
        else:
            self.image_ = ax.imshow(by_output[:, order].T, aspect="auto", cmap="viridis", vmin=0)
            shown = range(0, len(by_output), max(1, len(by_output) // 20))
            ax.set_xticks(shown, [self.output_names[k] for k in shown], rotation=45, ha="right")
            self.figure_.colorbar(self.image_, ax=ax, label=unit)
        ax.set_yticks(np.arange(len(order)), names)
        return self
