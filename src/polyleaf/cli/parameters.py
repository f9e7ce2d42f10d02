"""Estimator parameters as options of `train`."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any

from polyleaf.files.io import ReadError, require
from polyleaf.settings.aliases import read_foreign_names, suggest
from polyleaf.settings.param_spec import ParamSpec, get_param_specs
from polyleaf.settings.parameters import (
    ClassifierSearchParameters,
    MultiTaskParameters,
    RankerSearchParameters,
    RegressorSearchParameters,
    SearchParameters,
)

PARAMETERS: dict[str, ParamSpec] = {
    spec.name: spec
    for group in (
        RankerSearchParameters,
        MultiTaskParameters,
        RegressorSearchParameters,
        ClassifierSearchParameters,
    )
    for spec in get_param_specs(group)
}
"""Parameters of all estimators by name."""

OPTIONS = {
    "n_estimators": ("--rounds --n-estimators -n", ""),
    "learning_rate": ("--learning-rate -r", ""),
    "max_leaves": ("--leaves --max-leaves", ""),
    "max_depth": ("--depth --max-depth", ""),
    "leaf": ("--leaf", "Kind of leaf."),
    "linear_fit": ("--linear-fit", "How split gains account for linear leaves."),
    "objective": ("--objective", "Loss to minimise."),
    "early_stopping_rounds": ("--early-stopping --early-stopping-rounds", ""),
    "time_limit": ("--search", "Seconds for a hyperparameter search."),
}
"""Parameters that have an option of their own: flags and help. `--set` takes the others."""

OPTION_NAMES = {name: flags.split()[0] for name, (flags, _) in OPTIONS.items()}
OPTION_NAMES |= {"n_jobs": "--threads", "random_state": "--seed"}


# Options by their name in the namespace, and why they do not go with some data or models.
_LIMITS = {
    "xmc": dict.fromkeys(
        (
            "target",
            "task",
            "drop",
            "weight",
            "query",
            "positions",
            "offset",
            "categorical",
            "time_limit",
        ),
        "does not support --format xmc, without columns",
    ),
    "table": {"label_names": "needs --format xmc; tables have column names"},
    "file": dict.fromkeys(
        ("cache", "memory_limit"), "needs a folder of Parquet files, not a single file"
    ),
    "tasks": {
        "objective": "does not support multi-task models: give each task its loss: "
        "--task NAME=LOSS",
        "offset": "does not support multi-task models: give offsets of single tasks in Python",
        "query": "does not support multi-task models: several goals of a ranking are several "
        "--target",
        "time_limit": "does not support multi-task models: a search is for single-task models only",
        "intervals": "does not support multi-task models: calibrate one of the tasks in Python, as "
        "task_estimator returns it",
    },
}


def check_options(options: Namespace, kind: str) -> None:
    """Raise a `ReadError` for the first option that this kind of data or model does not support."""
    for name, reason in _LIMITS[kind].items():
        if getattr(options, name, None) not in (None, False):
            flag = OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
            raise ReadError(f"{flag} {reason}.")


_WORDS = {"int": "a whole number", "float": "a number", "bool": "True or False"}


def describe(name: str) -> str:
    """Return the help of the option of a parameter."""
    spec = PARAMETERS[name]
    return f"{OPTIONS[name][1] or spec.summary} {describe_values(spec)}"


def describe_values(spec: ParamSpec) -> str:
    """Return the values that a parameter takes, and its default, in words."""
    kinds = spec.kind.removesuffix(" or None")
    words = re.sub(r"\b(int|float|bool)\b", lambda m: _WORDS[m[1]], kinds)
    words = re.sub(r" in \[([^,]+), inf\)", r" from \1", words)
    words = re.sub(r" in \(0, inf\)", " above 0", words)
    words = re.sub(r"[{}\"]", "", words)
    return f"{words[0].upper()}{words[1:]}. Default: {spec.none or spec.default}."


def get_metavar(name: str) -> str:
    """Return what stands for the value of an option in its help."""
    kind = PARAMETERS[name].kind
    return "NUMBER" if kind.startswith(("int", "float")) else "NAME"


def find_parameter(name: str) -> str | None:
    """Return the parameter that has this name here or in another library."""
    if name in PARAMETERS:
        return name
    foreign = read_foreign_names("parameters")
    return next((own for own, others in foreign.items() if name in others.split()), None)


def read_parameters(options: Namespace) -> dict[str, object]:
    """Return the parameters that options and `--set` give."""
    params = {"random_state": options.seed, "n_jobs": options.n_jobs}
    for name in OPTIONS:
        text = getattr(options, name)
        if text is not None:
            params[name] = _read(name, text, f"{OPTION_NAMES[name]} {text}")
    for setting in options.settings:
        name, equals, text = setting.partition("=")
        is_valid = equals and name.strip()
        require(is_valid, f"--set takes NAME=VALUE, such as subsample=0.8, not {setting!r}.")
        params[name.strip()] = _read(name.strip(), text, f"--set {setting}")
    return {name: value for name, value in params.items() if value is not None or name != "n_jobs"}


def _read(name: str, text: str, option: str) -> object:
    try:
        return PARAMETERS[name].read(text) if name in PARAMETERS else text
    except ValueError as error:
        raise ReadError(f"{option}: {error}") from None


def get_estimator_class(task: str, params: dict[str, object]) -> Any:
    """Return the class of the estimator, after a check of the parameters."""
    import polyleaf  # estimators are slow to import

    kinds = {"tasks": "MultiTask", "regression": "Regressor", "ranking": "Ranker"}
    name = kinds.get(task, "Classifier")
    search = "CV" if "time_limit" in params else ""
    cls = getattr(polyleaf, f"Polyleaf{name}{search}")
    names = [spec.name for spec in get_param_specs(cls)]
    unknown = [name for name in params if name not in names]
    if unknown:
        if unknown[0] in {spec.name for spec in get_param_specs(SearchParameters)}:
            raise ReadError(f"--set: {unknown[0]} needs --search SECONDS.")
        hint = suggest(unknown[0], names) or f"; choose one of {', '.join(sorted(names))}."
        raise ReadError(f"--set: there is no parameter {unknown[0]!r}{hint}")
    cls(**params)._validate_params()
    return cls
