"""Messages of the command line on the error stream, and scores on the output."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from polyleaf.cli.options import OPTION_NAMES, PARAMETERS
from polyleaf.files.schema import Schema
from polyleaf.files.table import abbreviate
from polyleaf.metrics import get_metric

INTERRUPT_EXIT_CODE = 130
"""The exit code after Ctrl-C."""


def print_error(message: str, code: int = 2) -> int:
    """Print an error in one line and return the exit code."""
    print(f"polyleaf: {' '.join(message.split())}", file=sys.stderr)
    return code


def pluralise(number: int, noun: str) -> str:
    """Return `1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def translate_parameter_names(message: str) -> str:
    """Replace the parameters in an estimator's message by the options that set them."""
    message = re.sub(r"^The '(\w+)' parameter of \w+ must be", r"\1=... must be", message)
    value = r"(\.\.\.|\"[\w@ ]*\"|'[\w@ ]*'|\w+(?:\.\d+)?)"
    message = re.sub(rf"(?<![-\w.])(\w+)={value}", _to_option, message)
    return re.sub(r"\b(s|S)et (?=--)", lambda m: "use " if m[1] == "s" else "Use ", message)


def _to_option(match: re.Match[str]) -> str:
    name, value = match[1], match[2].strip("\"'")
    if name not in PARAMETERS:
        return match[0]
    if value == "...":
        return OPTION_NAMES.get(name, f"--set {name}")
    option = OPTION_NAMES.get(name)
    return f"--set {name}={value}" if option is None else f"{option} {value}"


class Reporter:
    """Print progress messages on the error stream, unless quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def info(self, message: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(message, file=sys.stderr)

    def hint(self, message: str) -> None:
        """Print a line where the error stream is a terminal, so not in scripts."""
        if sys.stderr.isatty():
            self.info(message)

    def training_data(self, task: str, shape: tuple[int, ...]) -> None:
        """Print the task and the size of the training data."""
        self.info(f"{task}, {pluralise(shape[0], 'row')}, {pluralise(shape[1], 'feature')}")

    def training_table(
        self, schema: Schema, inferred: bool, n_rows: int, texts: Container[str], tasks: str = ""
    ) -> None:
        """Print the task, whether it was inferred, and the text columns read as categories.

        `tasks` describes the tasks of a multi-task model.
        """
        is_short = len(schema.targets) < 6
        names = ", ".join(schema.targets) if is_short else f"{len(schema.targets)} targets"
        note = " (inferred; set it with --task)" if inferred else ""
        self.training_data(
            tasks or f"{schema.task} of {names}{note}", (n_rows, len(schema.features))
        )
        categorical = [name for name in schema.features if name in texts]
        if categorical:
            self.info(f"text columns read as categories: {abbreviate(categorical)}")

    def trained(self, estimator: Any, path: Path) -> None:
        """Print the number of rounds, the validation score and the path of the model."""
        best = estimator.best_iteration_
        rounds = estimator.model_.n_rounds if best is None else best + 1
        self.info(f"{pluralise(rounds, 'round')}{_format_validation(estimator)}, saved to {path}")


def _format_validation(estimator: Any) -> str:
    """Describe the last metric of the last evaluation set, and the round where it was best."""
    if not estimator.evals_result_:
        return ""
    metric, values = list(list(estimator.evals_result_.values())[-1].items())[-1]
    try:
        greater = get_metric(metric, estimator.model_.objective).greater_is_better
    except ValueError:
        return f", validation {metric} {values[-1]:.6g}"
    best = max(range(len(values)), key=lambda i: values[i] if greater else -values[i])
    if estimator.best_iteration_ is not None or best == len(values) - 1:
        at = best if estimator.best_iteration_ is None else estimator.best_iteration_
        return f", validation {metric} {values[at]:.6g}, the best of {len(values)}"
    after = pluralise(best + 1, "round")
    return f", validation {metric} {values[-1]:.6g}, the best {values[best]:.6g} after {after}"


Scores = Mapping[str, float]
"""Name of a metric -> value."""


def write_scores(
    scores: Scores, as_json: bool, targets: Mapping[str, Scores] | None = None
) -> None:
    """Print the scores over all targets, and those of each target if there are several."""
    if as_json:
        print(json.dumps(_nest_targets(scores, targets)))
        return
    _write_lines(scores)
    if targets:
        print()
        _write_table(targets)


def write_task_scores(
    d2: float, tasks: Mapping[str, tuple[Scores, Mapping[str, Scores]]], as_json: bool
) -> None:
    """Print the mean d2 over tasks, and the scores of each task and of each of its targets."""
    if as_json:
        nested = {task: _nest_targets(*scores) for task, scores in tasks.items()}
        print(json.dumps(_replace_nan({"d2": d2}) | {"tasks": nested}))
        return
    _write_lines({"d2": d2})
    for task, (scores, targets) in tasks.items():
        print(f"\n{task}")
        _write_lines(scores, "  ")
        if targets:
            _write_table(targets, "  ")


def _write_lines(scores: Scores, indent: str = "") -> None:
    width = max(map(len, scores))
    for name, value in scores.items():
        print(f"{indent}{name:{width}}  {value:.6g}")


def _write_table(targets: Mapping[str, Scores], indent: str = "") -> None:
    """Print a line for each target."""
    names = list(next(iter(targets.values())))
    lines = [
        ["target", *names],
        *([target, *(f"{scores[n]:.6g}" for n in names)] for target, scores in targets.items()),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        print(f"{indent}{'  '.join(cells)}".rstrip())


def _nest_targets(scores: Scores, targets: Mapping[str, Scores] | None) -> dict[str, Any]:
    nested = {name: _replace_nan(found) for name, found in (targets or {}).items()}
    return _replace_nan(scores) | ({"targets": nested} if nested else {})


def _replace_nan(scores: Scores) -> dict[str, Any]:
    """Replace NaN, which JSON does not have, by None."""
    return {name: None if math.isnan(value) else value for name, value in scores.items()}
