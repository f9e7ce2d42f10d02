"""PolyleafRegressor: numbers, one or many. Owns what is particular to them; the rest is in base.py."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from polyleaf.distributions import Distribution
from polyleaf.estimators.base import PolyleafEstimator, add_parameter_docs, has_levels
from polyleaf.estimators.intervals import PredictsIntervals
from polyleaf.inputs.target_scaling import Normalize
from polyleaf.inputs.targets import Target, TargetEncoding, encode_regression
from polyleaf.metrics._sklearn import mean_d2_pinball, mean_r2
from polyleaf.model import Model
from polyleaf.objectives import Objective, distribution_names, objective_class
from polyleaf.settings.param_spec import make_constraints
from polyleaf.settings.parameters import RegressorParameters

__all__ = ["PolyleafRegressor"]


@add_parameter_docs
class PolyleafRegressor(RegressorMixin, PolyleafEstimator, PredictsIntervals, RegressorParameters):
    """Gradient boosted trees for one or many numbers.

    {parameters}

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, Y = make_regression(n_targets=3, random_state=0)
    >>> PolyleafRegressor(n_estimators=20, min_child_samples=5).fit(X, Y).predict(X).shape
    (100, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = make_constraints(RegressorParameters)
    _sparse_kind = "regression"
    _kinds = ("regression",)

    def _encode_sparse_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if self.normalize_targets not in ("auto", False):
            raise ValueError(
                "normalize_targets=True moves what is 0, which sparse targets cannot hold: set it to False."
            )
        return super()._encode_sparse_target(y, sample_weight, start)

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if start is not None:
            return TargetEncoding.from_dict(start.metadata, start.n_outputs).encode(
                y, sample_weight
            )
        return encode_regression(
            y, sample_weight, missing=self.missing_targets, normalize=self._normalize()
        )

    def _normalize(self) -> Normalize:
        if self.normalize_targets != "auto":
            return self.normalize_targets
        return unit_for(objective_class(self.objective), self.multi_strategy == "multi_output_tree")

    def _make_objective(self, target: Target, start: Model | None) -> Objective:
        if "values" not in objective_class(self.objective).target_kinds:
            name = objective_class(self.objective).name
            raise ValueError(f"objective={name!r} is for classes: use PolyleafClassifier.")
        return self._complete_objective(self.objective, None)

    def _is_calibrated(self, objective: Objective) -> bool:
        return self.calibrate_quantiles and has_levels(objective)

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str] | None:
        names = encoding.output_names
        if objective.n_scores(encoding.n_outputs) == encoding.n_outputs:
            return None if names is None else list(names)
        parts = objective.score_names
        if not parts:
            return None
        if encoding.one_dimensional:
            return list(parts)
        return [f"{name}_{part}" for name in _names_of_targets(encoding) for part in parts]

    def _get_prediction_names(self) -> list[str]:
        if self.model_.objective.has_distribution:
            return _names_of_targets(self._encoding)
        return super()._get_prediction_names()

    def _predicts_scores(self) -> bool:
        return self.model_.objective.link == "identity"

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        prediction = self.model_.objective.transform(raw)
        return (
            prediction[:, 0]
            if self._encoding.one_dimensional and prediction.shape[1] == 1
            else prediction
        )

    def predict_dist(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> Distribution:
        """Predict a distribution for each row and target, with objectives that learn one: "normal" and others
        (docs/distributions.md).

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`, which gives the means of the same distributions.

        Returns
        -------
        polyleaf.distributions.Distribution
            All of them in one object, with parameters of shape (n_rows,), or (n_rows, n_targets) where y had
            two dimensions: `mean`, `std`, `ppf`, `cdf`, `logpdf`, `interval`, `rvs`.

        Raises
        ------
        ValueError
            Where the objective predicts numbers only.
        """
        predicted = self._distributions(X, iteration_range, offset)
        return predicted[:, 0] if self._encoding.one_dimensional else predicted

    def _distributions(
        self, X: Any, iteration_range: tuple[int, int] | None, offset: Any
    ) -> Distribution:
        """Those of shape (n_rows, n_targets)."""
        raw = self._raw(X, iteration_range, offset)
        objective = self.model_.objective
        if not objective.has_distribution:
            raise ValueError(
                f"predict_dist: objective {objective.name!r} predicts numbers, and no distribution of them; "
                f"{', '.join(distribution_names())} do. predict_interval, after calibrate, gives bounds for "
                "any objective."
            )
        return objective.distribution(raw)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Coefficient of determination R2, the mean over outputs.

        With several quantiles per output: the share of the pinball loss explained (D2), the mean over levels.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            With `missing_targets="ignore"` NaN is a value that does not count.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        offset : optional
            As in `predict`.

        Returns
        -------
        float
        """
        target, predicted = self._to_score(X, y, sample_weight, offset)
        levels = self.model_.objective.quantile_levels
        if len(levels) < 2:
            return mean_r2(target.values, predicted, target.weight)
        return mean_d2_pinball(target.values, predicted, levels, target.weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def unit_for(objective: type[Objective], one_tree: bool) -> Normalize:
    """What `normalize_targets="auto"` stands for: it matters where an objective needs a unit, and where large
    outputs take splits from small ones."""
    if objective.requires_standardised_target:
        return True
    return "auto" if one_tree and objective.is_scale_dependent else False


def _names_of_targets(encoding: TargetEncoding) -> list[str]:
    return list(encoding.output_names or map(str, range(encoding.n_outputs)))
