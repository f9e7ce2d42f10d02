"""Knowledge and data uncertainty by virtual ensembles: the models of the first rounds.

A. Malinin, L. Prokhorenkova, A. Ustimenko, "Uncertainty in gradient boosting via ensembles", ICLR
2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import entr
from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.runtime.types import DataLike

if TYPE_CHECKING:
    from polyleaf.objectives import Objective

__all__ = ["Uncertainty"]


def __dir__() -> list[str]:
    return __all__


class Uncertainty(NamedTuple):
    """Uncertainty of predictions, from `predict_uncertainty`.

    Attributes
    ----------
    knowledge : ndarray of shape (n_rows,) or (n_rows, n_outputs), float64
        What more training data would remove: large for combinations of
        features that are rare in training, but not for values outside the training range.
    data : ndarray like `knowledge`, or None
        The noise that the model expects; None if the objective does not learn it.
    """

    knowledge: np.ndarray
    data: np.ndarray | None

    @property
    def total(self) -> np.ndarray:
        """The sum of both."""
        return self.knowledge if self.data is None else self.knowledge + self.data


class UncertaintyMixin(PolyleafEstimator):
    """`predict_uncertainty` of regressors and classifiers."""

    if TYPE_CHECKING:  # of classifiers

        def _probabilities(self, raw: np.ndarray) -> np.ndarray: ...
        @property
        def predict_proba(self) -> Any: ...

    def predict_uncertainty(
        self,
        X: DataLike,
        *,
        n_models: int = 10,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> Uncertainty:
        """Predict knowledge and data uncertainty by a virtual ensemble.

        Its models are the first rounds of this model: all of them, and equally many less for each
        further model, down to half. Rows of rare combinations change more from model to model.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        n_models : int
            Number of models, at least 2.
        iteration_range : (int, int), optional
            Rounds to use, see `predict`.
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        Uncertainty
            `knowledge` and `data`. Regression: variances of the predictions of the models, and
            the mean of their predicted variances (None without a distribution), per output.
            Classification: mutual information and mean entropy in nats, per row, or for labels
            per row and label.

        Raises
        ------
        ValueError
            If the rounds to use are less than 2, or X does not match the training data.
        AttributeError
            If a classifier has no probabilities.
        """
        check_is_fitted(self)
        if not isinstance(n_models, int | np.integer) or n_models < 2:
            raise ValueError(f"n_models must be an integer of at least 2, got {n_models!r}.")
        first, last = self._rounds(iteration_range)
        if last - first < 2:
            raise ValueError(
                f"predict_uncertainty needs at least 2 rounds, but there are {last - first}."
            )
        rounds = choose_rounds(first, last, int(n_models))
        stages = self._staged_raw(X, (first, last), offset, rounds)
        if self._encoding.kind == "regression":
            uncertainty = _measure_variances(stages, self.model_.objective)
        else:
            _ = self.predict_proba  # raises an AttributeError that says why there is none
            is_multilabel = self._encoding.kind == "multilabel"
            uncertainty = _measure_entropies(map(self._probabilities, stages), is_multilabel)
        knowledge, data = uncertainty
        if self._encoding.one_dimensional and knowledge.shape[1:] == (1,):
            return Uncertainty(knowledge[:, 0], None if data is None else data[:, 0])
        return uncertainty


def choose_rounds(first: int, last: int, n_models: int) -> list[int]:
    """Return the end of the rounds of each model, ascending; none has less than half of them."""
    step = max(1, (last - first) // (2 * n_models))
    return [end for end in range(last - (n_models - 1) * step, last + 1, step) if end > first]


def _measure_variances(stages: Iterator[np.ndarray], objective: Objective) -> Uncertainty:
    """Return the variance of means (Welford's algorithm), and the mean variance."""
    mean = squares = variance = np.zeros(())
    for i, raw in enumerate(stages, 1):
        if objective.has_distribution:
            predicted = objective.distribution(raw)
            prediction: np.ndarray = predicted.mean()
            variance = variance + (np.square(predicted.std()) - variance) / i
        else:
            prediction = objective.transform(raw)
        difference = prediction - mean
        mean = mean + difference / i
        squares = squares + difference * (prediction - mean)
    return Uncertainty(squares / i, variance if objective.has_distribution else None)


def _measure_entropies(stages: Iterator[np.ndarray], is_multilabel: bool) -> Uncertainty:
    """Return the mutual information of classes or labels and models, and the mean entropy."""
    mean = data = np.zeros(())
    for i, probability in enumerate(stages, 1):
        mean = mean + (probability - mean) / i
        data = data + (_measure_entropy(probability, is_multilabel) - data) / i
    return Uncertainty(np.maximum(_measure_entropy(mean, is_multilabel) - data, 0.0), data)


def _measure_entropy(probability: np.ndarray, is_multilabel: bool) -> np.ndarray:
    return (
        entr(probability) + entr(1.0 - probability)
        if is_multilabel
        else entr(probability).sum(axis=1)
    )
