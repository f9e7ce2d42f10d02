"""Objectives: the losses that training minimises. base.py documents how an objective is used.

CONTRIBUTING.md, "Add an objective", explains how to add a loss.
"""

from __future__ import annotations

from polyleaf.objectives.base import BoundObjective, Objective
from polyleaf.objectives.custom import Custom
from polyleaf.objectives.distributional import (
    GammaLikelihood,
    LogNormalLikelihood,
    NegativeBinomialLikelihood,
    NormalLikelihood,
    StudentTLikelihood,
)
from polyleaf.objectives.elementwise import (
    AbsoluteError,
    AbsolutePercentageError,
    Expectile,
    Focal,
    Gamma,
    Huber,
    LogCosh,
    Logistic,
    Poisson,
    Quantile,
    SquaredError,
    SquaredHinge,
    Tweedie,
)
from polyleaf.objectives.multiclass import Exponential, ExponentialMargin, Softmax
from polyleaf.objectives.ranking import LambdaRank, PairwiseRank, XeNdcg, YetiRank
from polyleaf.objectives.registry import (
    UnregisteredObjectiveError,
    auto_objective_name,
    distribution_names,
    get_objective,
    objective_class,
    objective_from_dict,
    objective_names,
    register,
)

__all__ = [
    "AbsoluteError",
    "AbsolutePercentageError",
    "BoundObjective",
    "Custom",
    "Expectile",
    "Exponential",
    "ExponentialMargin",
    "Focal",
    "Gamma",
    "GammaLikelihood",
    "Huber",
    "LambdaRank",
    "LogCosh",
    "LogNormalLikelihood",
    "Logistic",
    "NegativeBinomialLikelihood",
    "NormalLikelihood",
    "Objective",
    "PairwiseRank",
    "Poisson",
    "Quantile",
    "Softmax",
    "SquaredError",
    "SquaredHinge",
    "StudentTLikelihood",
    "Tweedie",
    "UnregisteredObjectiveError",
    "XeNdcg",
    "YetiRank",
    "auto_objective_name",
    "distribution_names",
    "get_objective",
    "objective_class",
    "objective_from_dict",
    "objective_names",
    "register",
]


def __dir__() -> list[str]:
    return __all__
