"""Every parameter of every estimator, by name: what `--set`, options and messages may speak of.

Owns which estimators the command line has. Must not know options.
"""

from __future__ import annotations

from polyleaf.settings.param_spec import ParamSpec, get_param_specs
from polyleaf.settings.parameters import (
    ClassifierSearchParameters,
    MultiTaskParameters,
    RegressorSearchParameters,
)

__all__ = ["PARAMETERS"]

PARAMETERS: dict[str, ParamSpec] = {
    p.name: p
    for kind in (MultiTaskParameters, RegressorSearchParameters, ClassifierSearchParameters)
    for p in get_param_specs(kind)
}
