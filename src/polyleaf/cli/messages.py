"""What the command line says: what was learned and how well, scores, and errors in its own terms.

Owns these words. All but scores go to the error stream. Must not know options' declarations or how anything
is done.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from polyleaf.files.schema import Schema
from polyleaf.files.table import abbreviate
from polyleaf.metrics import get_metric

__all__ = [
    "INTERRUPTED",
    "OPTIONS",
    "Reporter",
    "print_error",
    "pluralise",
    "translate_parameter_names",
    "write_scores",
    "write_task_scores",
]

OPTIONS = {
    "n_estimators": "--rounds",
    "learning_rate": "--learning-rate",
    "max_leaves": "--leaves",
    "max_depth": "--depth",
    "leaf": "--leaf",
    "linear_fit": "--linear-fit",
    "objective": "--objective",
    "early_stopping_rounds": "--early-stopping",
    "n_jobs": "--threads",
    "random_state": "--seed",
    "time_limit": "--search",
}
"""Parameters of estimators that have an option of their own; `--set` is for the others."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def print_error(message: str, code: int = 2) -> int:
    """Say what went wrong, in one line; the exit code."""
    print(f"polyleaf: {' '.join(message.split())}", file=sys.stderr)
    return code


def pluralise(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def translate_parameter_names(message: str) -> str:
    """A message about estimators' parameters, as one about options."""
    message = re.sub(r"^The '(\w+)' parameter of \w+ must be", r"\1=... must be", message)
    value = r"(\.\.\.|\"[\w@ ]*\"|'[\w@ ]*'|\w+(?:\.\d+)?)"
    message = re.sub(rf"(?<![-\w.])(\w+)={value}", _as_option, message)
    return re.sub(r"\b(s|S)et (?=--)", lambda found: "use " if found[1] == "s" else "Use ", message)


def _as_option(found: re.Match[str]) -> str:
    from polyleaf.cli.parameters import PARAMETERS

    name, value = found[1], found[2].strip("\"'")
    if name not in PARAMETERS:
        return found[0]
    if value == "...":
        return OPTIONS.get(name, f"--set {name}")
    return f"{OPTIONS[name]} {value}" if name in OPTIONS else f"--set {name}={value}"


class Reporter:
    """Says things on the error stream, or keeps quiet."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def say(self, sentence: str) -> None:
        """One line."""
        if not self.quiet:
            print(sentence, file=sys.stderr)

    def remark(self, sentence: str) -> None:
        """Something nice to know: for people, not for scripts."""
        if sys.stderr.isatty():
            self.say(sentence)

    def data(self, what: str, shape: tuple[int, ...]) -> None:
        """What is learned from what."""
        self.say(f"{what}, from {pluralise(shape[0], 'row')} and {pluralise(shape[1], 'feature')}")

    def table(
        self, schema: Schema, guessed: bool, n_rows: int, texts: Container[str], tasks: str = ""
    ) -> None:
        """What is learned from a table: the task, whether it was guessed, or the words of several; and text
        taken for categories."""
        few = len(schema.targets) < 6
        named = ", ".join(schema.targets) if few else pluralise(len(schema.targets), "target")
        how = " (guessed; --task says otherwise)" if guessed else ""
        self.data(tasks or f"{schema.task} of {named}{how}", (n_rows, len(schema.features)))
        names = [name for name in schema.features if name in texts]
        if names:
            self.say(f"text taken for categories: {abbreviate(names)}")

    def learned(self, estimator: Any, path: Path) -> None:
        """How many rounds, how good they are on the rows that were watched, and where the model is."""
        best = estimator.best_iteration_
        rounds = estimator.model_.n_rounds if best is None else best + 1
        self.say(f"{pluralise(rounds, 'round')}{_of_watched(estimator)}, saved to {path}")


def _of_watched(estimator: Any) -> str:
    """The last metric of the data that were watched: at the round that counts, and where it was best."""
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


def write_scores(
    found: Mapping[str, float], as_json: bool, each: Mapping[str, Mapping[str, float]] | None = None
) -> None:
    """Print scores of all targets, and of each where there are several."""
    if as_json:
        print(json.dumps(_with_targets(found, each)))
        return
    _write_lines(found)
    if each:
        print()
        _write_table(each)


def write_task_scores(
    skill: float,
    each: Mapping[str, tuple[Mapping[str, float], Mapping[str, Mapping[str, float]]]],
    as_json: bool,
) -> None:
    """Print the mean skill of several tasks, and the scores of each: of it, and of each of its columns."""
    if as_json:
        of_each = {task: _with_targets(*found) for task, found in each.items()}
        print(json.dumps(_plain({"d2": skill}) | {"tasks": of_each}))
        return
    _write_lines({"d2": skill})
    for task, (found, columns) in each.items():
        print(f"\n{task}")
        _write_lines(found, "  ")
        if columns:
            _write_table(columns, "  ")


def _write_lines(found: Mapping[str, float], before: str = "") -> None:
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{before}{name:{width}}  {value:.6g}")


def _write_table(each: Mapping[str, Mapping[str, float]], before: str = "") -> None:
    """A line for each target."""
    names = list(next(iter(each.values())))
    lines = [
        ["target", *names],
        *([name, *(f"{of[n]:.6g}" for n in names)] for name, of in each.items()),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        print(f"{before}{'  '.join(cells)}".rstrip())


def _with_targets(
    found: Mapping[str, float], each: Mapping[str, Mapping[str, float]] | None
) -> dict[str, Any]:
    """Scores for JSON, with those of each of several targets."""
    of_each = {"targets": {name: _plain(scores) for name, scores in each.items()}} if each else {}
    return _plain(found) | of_each


def _plain(found: Mapping[str, float]) -> dict[str, Any]:
    """Scores as JSON has them, which knows no NaN."""
    return {name: None if math.isnan(value) else value for name, value in found.items()}
