"""Objectives: what training minimises. Start with base.py, which says how an objective is used.

Owns the names. A new element-wise loss is a struct in cpp/kernels/objectives.cpp, a name in LossFamily
(cpp/objectives.h), a class in one of these files and a line in `_CLASSES`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from polyleaf.objectives.base import Objective, Problem
from polyleaf.objectives.binary import Logistic, SquaredHinge
from polyleaf.objectives.custom import Custom
from polyleaf.objectives.exponential import Exponential, ExponentialMargin
from polyleaf.objectives.location import AbsoluteError, Huber, Quantile, SquaredError
from polyleaf.objectives.log_link import Gamma, Poisson, Tweedie
from polyleaf.objectives.softmax import Softmax

__all__ = [
    "AbsoluteError",
    "Custom",
    "Exponential",
    "ExponentialMargin",
    "Gamma",
    "Huber",
    "Logistic",
    "Objective",
    "Poisson",
    "Problem",
    "Quantile",
    "Softmax",
    "SquaredError",
    "SquaredHinge",
    "Tweedie",
    "get_objective",
    "objective_from_dict",
    "objective_names",
]

_CLASSES: dict[str, type[Objective]] = {
    cls.name: cls
    for cls in (
        SquaredError,
        AbsoluteError,
        Quantile,
        Huber,
        Poisson,
        Gamma,
        Tweedie,
        Logistic,
        Softmax,
        Exponential,
        ExponentialMargin,
        SquaredHinge,
    )
}

# Names that users of XGBoost, LightGBM, CatBoost and scikit-learn know.
_ALIASES: dict[str, str] = {
    "reg:squarederror": "squared_error",
    "regression": "squared_error",
    "regression_l2": "squared_error",
    "l2": "squared_error",
    "mse": "squared_error",
    "rmse": "squared_error",
    "mean_squared_error": "squared_error",
    "multirmse": "squared_error",
    "reg:absoluteerror": "absolute_error",
    "regression_l1": "absolute_error",
    "l1": "absolute_error",
    "mae": "absolute_error",
    "mean_absolute_error": "absolute_error",
    "reg:quantileerror": "quantile",
    "pinball": "quantile",
    "multiquantile": "quantile",
    "count:poisson": "poisson",
    "reg:gamma": "gamma",
    "reg:tweedie": "tweedie",
    "binary:logistic": "logistic",
    "reg:logistic": "logistic",
    "binary": "logistic",
    "binary_crossentropy": "logistic",
    "cross_entropy": "logistic",
    "xentropy": "logistic",
    "log_loss": "logistic",
    "logloss": "logistic",
    "multilogloss": "logistic",
    "multilabel": "logistic",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    "multiclass": "softmax",
    "multi_logloss": "softmax",
    "mlogloss": "softmax",
    "categorical_crossentropy": "softmax",
}

_PARAMETER_ALIASES: dict[str, str] = {
    "quantile_alpha": "alpha",
    "huber_slope": "delta",
    "tweedie_variance_power": "variance_power",
    "num_class": "n_classes",
}


def objective_names() -> list[str]:
    """Canonical names of the built-in objectives."""
    return list(_CLASSES)


def get_objective(objective: str | Callable[..., Any] | Objective, **parameters: Any) -> Objective:
    """The objective of that name, or the callable as an objective.

    Parameters
    ----------
    objective : str, callable or Objective
        A canonical name (`objective_names`), one that XGBoost, LightGBM or CatBoost use, or a function: a
        loss written with JAX, or one that returns ``(gradient, curvature)`` (see `Custom`). An `Objective` is
        returned as it is.
    **parameters
        Those of the objective: ``alpha``, ``non_crossing`` (quantile), ``delta`` (huber), ``curvature``
        (poisson, gamma, tweedie), ``variance_power`` (tweedie), ``scale_pos_weight`` (logistic),
        ``n_classes`` (softmax, exponential, exponential_margin), ``softmax_curvature`` (softmax),
        ``n_outputs`` and ``curvature`` (callable).

    Raises
    ------
    ValueError
        For an unknown name, an unknown parameter or a value out of range.
    """
    if isinstance(objective, Objective):
        if parameters:
            raise ValueError(
                f"An objective that is already made takes no parameters; got {sorted(parameters)}."
            )
        return objective
    if callable(objective):
        return _make(Custom, {"function": objective, **parameters})
    if not isinstance(objective, str):
        raise ValueError(f"objective must be a name or a callable; got {type(objective).__name__}.")
    name = _ALIASES.get(objective.lower(), objective.lower())
    if name not in _CLASSES:
        close = difflib.get_close_matches(name, [*_CLASSES, *_ALIASES], n=1)
        raise ValueError(
            f"Unknown objective {objective!r}.{f' Did you mean {close[0]!r}?' if close else ''} Known are "
            f"{', '.join(_CLASSES)}, and any callable."
        )
    return _make(_CLASSES[name], parameters)


def objective_from_dict(values: Mapping[str, Any]) -> Objective:
    """The inverse of ``Objective.to_dict``; ValueError where `values` is not such a dict."""
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise ValueError("An objective is stored as a mapping with a 'name'; this one has none.")
    parameters = {key: value for key, value in values.items() if key != "name"}
    name = values["name"]
    if name == Custom.name:
        if parameters.pop("function", None) is not None:
            raise ValueError("A stored custom objective holds no function.")
        return _make(Custom, parameters)
    if name not in _CLASSES:
        raise ValueError(f"Unknown objective {name!r} in stored model; known are {', '.join(_CLASSES)}.")
    return _make(_CLASSES[name], parameters)


def _make(cls: type[Objective], parameters: dict[str, Any]) -> Objective:
    known = [field.name for field in fields(cls)]
    renamed = {_PARAMETER_ALIASES.get(key, key): value for key, value in parameters.items()}
    unknown = [key for key in renamed if key not in known]
    if unknown:
        raise ValueError(
            f"Objective {cls.name!r} has no parameter {unknown[0]!r}; it takes "
            f"{', '.join(known) if known else 'none'}."
        )
    try:
        return cls(**renamed)
    except TypeError as error:
        raise ValueError(f"Objective {cls.name!r}: a parameter has the wrong type ({error}).") from None
