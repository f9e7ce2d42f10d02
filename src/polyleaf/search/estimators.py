"""PolyleafClassifierCV and PolyleafRegressorCV: estimators that choose their own parameters."""

from __future__ import annotations

from typing import Any, ClassVar

from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor
from polyleaf.search.base import SearchMixin, add_search_docs
from polyleaf.settings.param_spec import make_constraints
from polyleaf.settings.parameters import ClassifierSearchParameters, RegressorSearchParameters

__all__ = ["PolyleafClassifierCV", "PolyleafRegressorCV"]


@add_search_docs
class PolyleafClassifierCV(SearchMixin, PolyleafClassifier, ClassifierSearchParameters):
    """`PolyleafClassifier` that chooses its parameters by cross-validation on the training data.

    Parameters that are set to other than their defaults are the same for all candidates.

    {parameters}

    Attributes
    ----------
    {search_attributes}
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafClassifierCV
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolyleafClassifierCV(n_candidates=3, n_estimators=30).fit(X, y)
    >>> model.predict_proba(X).shape, len(model.leaderboard_)
    ((150, 3), 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = make_constraints(ClassifierSearchParameters)
    _base_class = PolyleafClassifier


@add_search_docs
class PolyleafRegressorCV(SearchMixin, PolyleafRegressor, RegressorSearchParameters):
    """`PolyleafRegressor` that chooses its parameters by cross-validation on the training data.

    Parameters that are set to other than their defaults are the same for all candidates.

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
    _base_class = PolyleafRegressor
