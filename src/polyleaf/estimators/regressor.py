"""Regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from polyleaf.distributions import Distribution
from polyleaf.estimators._fitting import refuse_objective
from polyleaf.estimators.calibration import calibrate_intervals, predict_bounds
from polyleaf.estimators.uncertainty import UncertaintyMixin
from polyleaf.metrics._sklearn import mean_d2_pinball, mean_r2
from polyleaf.model import Model
from polyleaf.objectives import Objective, distribution_names
from polyleaf.objectives.registry import ObjectiveSpec, ResolvedObjective
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.settings.param_spec import add_parameter_docs, make_constraints
from polyleaf.settings.parameters import RegressorParameters
from polyleaf.training.fit import complete_objective, has_quantiles
from polyleaf.training.output_groups import has_shared_trees
from polyleaf.user_data.read_target import count_columns
from polyleaf.user_data.target import Target, TargetEncoding, encode_regression, weigh_targets
from polyleaf.user_data.target_scaling import Normalize

if TYPE_CHECKING:
    from sklearn.utils import Tags


@add_parameter_docs
class PolyleafRegressor(RegressorMixin, UncertaintyMixin, RegressorParameters):
    """Gradient boosted trees for regression with one or many targets.

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

    _parameter_constraints: ClassVar[dict[str, object]] = make_constraints(RegressorParameters)
    _sparse_kind = "regression"
    _kinds = ("regression",)

    def _encode_target(
        self,
        rows: RowData,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Target:
        if old_model is not None:
            encoding = self._get_encoding(old_model)
            return weigh_targets(encoding.encode(rows, ranks=ranks), self.target_weight)
        assert isinstance(resolved, ObjectiveSpec)
        normalize = self.normalize_targets
        if normalize == "auto":
            shares_trees = self.multi_strategy == "multi_output_tree"
            if self.output_groups is not None:
                shares_trees = has_shared_trees(self, count_columns(rows.target))
            normalize = get_auto_scaling(resolved.cls, shares_trees)
        target = encode_regression(
            rows, missing=self.missing_targets, normalize=normalize, ranks=ranks
        )
        return weigh_targets(target, self.target_weight)

    def _make_objective(
        self,
        target: Target,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Objective:
        assert isinstance(resolved, ObjectiveSpec)
        if "values" not in resolved.cls.target_kinds:
            refuse_objective(resolved.cls)
        return complete_objective(self, resolved, None)

    def _is_calibrated(self, objective: Objective) -> bool:
        return self.calibrate_quantiles and has_quantiles(objective)

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str] | None:
        names = encoding.output_names
        if objective.n_scores(encoding.n_outputs) == encoding.n_outputs:
            return None if names is None else list(names)
        parts = objective.score_names
        if not parts:
            return None
        if encoding.one_dimensional:
            return list(parts)
        return [f"{name}_{part}" for name in _get_target_names(encoding) for part in parts]

    def _get_prediction_names(self) -> list[str]:
        if self.model_.objective.has_distribution:
            return _get_target_names(self._encoding)
        return super()._get_prediction_names()

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def _predicts_scores(self) -> bool:
        return self.model_.objective.link == "identity"

    def predict_dist(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> Distribution:
        """Predict a distribution for each row and target.

        For objectives that learn a distribution, such as "normal".

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        polyleaf.distributions.Distribution
            One object with parameters of shape (n_rows,), or (n_rows, n_targets) if y had
            several columns, and methods `mean`, `std`, `ppf`, `cdf`, `logpdf`, `interval`, `rvs`.
            `predict` returns its means.

        Raises
        ------
        ValueError
            If the objective does not learn a distribution.
        """
        predicted = self._distributions(X, iteration_range, offset)
        return predicted[:, 0] if self._encoding.one_dimensional else predicted

    def _distributions(
        self, X: DataLike, iteration_range: tuple[int, int] | None, offset: DataLike | None
    ) -> Distribution:
        """Predict distributions of shape (n_rows, n_targets)."""
        raw = self._raw(X, iteration_range, offset)
        objective = self.model_.objective
        if not objective.has_distribution:
            raise ValueError(
                f"predict_dist: objective {objective.name!r} does not learn a distribution; "
                f"{', '.join(distribution_names())} do. predict_interval, after calibrate, gives "
                "bounds for any objective."
            )
        return objective.distribution(raw)

    def calibrate(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        coverage: float = 0.9,
        joint: bool = False,
        offset: DataLike | None = None,
    ) -> Self:
        """Calibrate prediction intervals on held-out rows (split conformal prediction).

        The bounds are the predictions, or the lowest and highest of several quantiles (Romano,
        Patterson and Candès, "Conformalized quantile regression", NeurIPS 2019), moved by one
        number per target. For predicted distributions the tail probability is calibrated instead,
        the same for all rows (Chernozhukov, Wüthrich and Zhu, "Distributional conformal
        prediction", PNAS 118, 2021). Exchangeable new rows lie in the interval with probability
        `coverage` or more, regardless of the quality of the model. The calibration is stored in the
        model and its file until the model is fitted again.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
            Rows outside the training data.
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_targets), optional
        coverage : float in (0, 1)
            Probability that a value lies in its interval.
        joint : bool
            Cover all targets of a row at once instead of each target.
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are too few rows: 0.9 needs at least 9, 0.99 at least 99.
        """
        calibrate_intervals(self, X, RowData(y, sample_weight, offset), coverage, joint)
        return self

    def predict_interval(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Predict intervals with the coverage of the last `calibrate`.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`; `calibrate` used the default `iteration_range`.

        Returns
        -------
        ndarray of shape (n_rows, 2), or (n_rows, n_targets, 2) if y had several columns; float64
            Lower and upper bounds.
        """
        bounds = predict_bounds(self, X, iteration_range, offset)
        return bounds[:, 0] if self._encoding.one_dimensional else bounds

    def score(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
    ) -> float:
        """Return the coefficient of determination R2, averaged over outputs.

        With several quantiles per output: D2 of the pinball loss, averaged over levels.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            NaN values are left out with `missing_targets="ignore"`.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        float
        """
        target, predicted = self._score_inputs(X, RowData(y, sample_weight, offset))
        levels = self.model_.objective.quantile_levels
        if len(levels) < 2:
            return mean_r2(target.rows, predicted)
        return mean_d2_pinball(target.rows, predicted, levels)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def get_auto_scaling(cls: type[Objective], one_tree: bool) -> Normalize:
    """Return what `normalize_targets="auto"` stands for.

    Objectives may require standardised targets. Otherwise scaling matters if one tree learns all
    outputs and the loss depends on their scale.
    """
    if cls.requires_standardised_target:
        return True
    return "auto" if one_tree and cls.is_scale_dependent else False


def _get_target_names(encoding: TargetEncoding) -> list[str]:
    return list(encoding.output_names or map(str, range(encoding.n_outputs)))
