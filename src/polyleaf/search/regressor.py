"""PolyleafRegressorCV: the regressor that chooses its own parameters."""

from __future__ import annotations

from typing import Any, ClassVar

from polyleaf.estimators import PolyleafRegressor
from polyleaf.search.base import Searches, document_search
from polyleaf.settings.param_spec import make_constraints
from polyleaf.settings.parameters import RegressorSearchParameters

__all__ = ["PolyleafRegressorCV"]


@document_search
class PolyleafRegressorCV(Searches, PolyleafRegressor, RegressorSearchParameters):
    """`PolyleafRegressor` with the parameters that do best on folds of the data it is fitted on.

    What is set to other than its default is the same for all candidates.

    {parameters}

    Attributes
    ----------
    {search_attributes}
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafRegressorCV
    >>> from sklearn.datasets import make_regression
    >>> X, Y = make_regression(n_targets=3, random_state=0)
    >>> model = PolyleafRegressorCV(n_candidates=3, n_estimators=30).fit(X, Y)
    >>> model.predict(X).shape, len(model.leaderboard_)
    ((100, 3), 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = make_constraints(RegressorSearchParameters)
    _plain = PolyleafRegressor
