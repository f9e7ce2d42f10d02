"""Messages of the command line on the error stream."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from polyleaf.cli.parameters import OPTION_NAMES, PARAMETERS
from polyleaf.metrics import get_metric

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator

INTERRUPT_EXIT_CODE = 130
"""The exit code after Ctrl-C."""


def print_error(message: str, code: int = 2) -> int:
    """Print an error in one line and return the exit code."""
    print(f"polyleaf: {' '.join(message.split())}", file=sys.stderr)
    return code


def pluralise(number: int, noun: str) -> str:
    """Return `1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_hint(message: str, quiet: bool) -> None:
    """Say on the error stream what a command has written."""
    if not quiet:
        print(message, file=sys.stderr)


# Estimators in messages, and what the command line has in their place.
_TASKS = {
    "PolyleafRegressor": "--task regression",
    "PolyleafClassifier": "--task classification",
    "PolyleafRanker": "--task ranking",
}


def translate_message(message: str) -> str:
    """Replace the parameters in an estimator's message by the options that set them."""
    for estimator, option in _TASKS.items():
        message = re.sub(rf"\b([Uu])se {estimator}", rf"\1se {option}", message)
    message = re.sub(r"call calibrate\([^)]*\)", "run polyleaf calibrate", message)
    message = re.sub(r"^The '(\w+)' parameter of \w+ must be", r"\1=... must be", message)
    value = r"(\.\.\.|\"[\w@ ]*\"|'[\w@ ]*'|\w+(?:\.\d+)?)"
    message = re.sub(rf"(?<!--set )(?<![-\w.])(\w+)={value}", _to_option, message)
    return re.sub(r"\b(s|S)et (?=--)", lambda m: "use " if m[1] == "s" else "Use ", message)


def _to_option(match: re.Match[str]) -> str:
    name, value = match[1], match[2].strip("\"'")
    if name not in PARAMETERS:
        return match[0]
    option = OPTION_NAMES.get(name)
    if value == "...":
        return option or f"--set {name}"
    return f"--set {name}={value}" if option is None else f"{option} {value}"


def describe_training(estimator: PolyleafEstimator) -> str:
    """Describe the rounds, and the last metric of the last evaluation set and where it was best."""
    best = estimator.best_iteration_
    rounds = pluralise(estimator.model_.n_rounds if best is None else best + 1, "round")
    if not estimator.evals_result_:
        return rounds
    metric, values = list(list(estimator.evals_result_.values())[-1].items())[-1]
    last = f"{rounds}, validation {metric} {values[-1]:.6g}"
    try:
        greater = get_metric(metric, estimator.model_.objective).greater_is_better
    except ValueError:
        return last
    at = max(range(len(values)), key=lambda i: values[i] if greater else -values[i])
    if best is not None or at == len(values) - 1:
        shown = values[at if best is None else best]
        return f"{rounds}, validation {metric} {shown:.6g}, the best of {len(values)}"
    return f"{last}, the best {values[at]:.6g} after {pluralise(at + 1, 'round')}"
