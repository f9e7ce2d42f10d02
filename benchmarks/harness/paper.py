"""A study declared: what a paper's tables print, and which run gives our figure for each of their
cells.

A *run* is a function `(context, method, problem) -> figures`, called once for each method and
problem, however many cells show one of its figures. A *subject* is what methods are compared on:
one column of a table (or one row), that is a problem and the figure shown.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from .context import Context

Figures = dict[str, Any]
Run = Callable[[Context, str, str], Figures]


@dataclass(frozen=True)
class Subject:
    """What methods are compared on.

    Attributes
    ----------
    title : str
        As in the head of the paper's table.
    unit : str
        Of the figure: "accuracy, %", "RMSE", "s".
    better : "higher", "lower" or None
        None: shown but not judged, for example seconds on another machine.
    digits : int
        After the decimal point, as in the paper.
    problem : str
        What the run is called with. Default: the title.
    figure : str
        Which of the run's figures is shown.
    needs : tuple of str
        Data sets without which there is nothing to run.
    run : callable or None
        What is run for it, where that is not the table's.
    """

    title: str
    unit: str
    better: Literal["higher", "lower"] | None
    digits: int
    problem: str = ""
    figure: str = "score"
    needs: tuple[str, ...] = ()
    run: Run | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", self.problem or self.title)


@dataclass(frozen=True)
class Task:
    """One run with its arguments: what is done once and kept under `key`."""

    module: str
    run: Run
    method: str
    problem: str
    needs: tuple[str, ...]

    @property
    def key(self) -> str:
        """Unique among all studies."""
        return "/".join(
            (self.module.rpartition(".")[2], self.run.__name__, self.method, self.problem)
        )


@dataclass(frozen=True)
class _Grid:
    """Methods on subjects: what a table and a figure have in common."""

    name: str
    title: str
    subjects: tuple[Subject, ...]
    run: Run
    protocol: str
    quoted: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        raise NotImplementedError

    def cells(self) -> Iterator[tuple[str, Subject]]:
        """Every method on every subject."""
        for subject in self.subjects:
            for method in self.methods:
                yield method, subject

    def runs(self) -> Iterator[tuple[str, Subject]]:
        """The cells that something is run for."""
        return ((method, subject) for method, subject in self.cells() if method not in self.quoted)


@dataclass(frozen=True)
class Table(_Grid):
    """A table of a paper.

    Attributes
    ----------
    name, title : str
        "Table V" and what it shows.
    subjects : tuple of Subject
    run : callable
        `(context, method, problem) -> figures`, see :mod:`benchmarks.harness.paper`. `figures` are
        numbers, or lists of numbers (one a repeat); `figures["errors"]` may give standard errors of
        single numbers.
    paper : str
        The paper's own table as text: cells are separated by two or more spaces, "-" is an empty
        cell. The first line holds the subjects' titles (the methods, where `subjects_are="rows"`).
    protocol : str
        How the figures come about, and what differs from the paper.
    quoted : tuple of str
        Methods that are not run: the paper's figures alone.
    ours : tuple of str
        Methods that are run with Polyleaf: those that are judged.
    also : tuple of str
        Methods that the paper does not have.
    explained : dict
        `(method, subject's title)` -> why our figure is not as good as the paper's, and the table
        that shows it.
    subjects_are : "columns" or "rows"
    ranks : bool
        Whether the methods' mean ranks are shown too.
    """

    paper: str = ""
    ours: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    explained: Mapping[tuple[str, str], str] = field(default_factory=dict)
    subjects_are: Literal["columns", "rows"] = "columns"
    ranks: bool = False

    def __post_init__(self) -> None:
        for method in self.ours:
            if method not in self.methods:
                raise ValueError(
                    f"{self.name}: {method!r} is in `ours` but in no row of the table."
                )
        for method in self.quoted:
            if method not in self.methods:
                raise ValueError(
                    f"{self.name}: {method!r} is in `quoted` but in no row of the table."
                )
        cells = {(method, subject.title) for method, subject in self.cells()}
        for cell in self.explained:
            if cell not in cells:
                raise ValueError(
                    f"{self.name}: `explained` names {cell}, which is no cell of the table."
                )

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order of the paper, then those in `also`."""
        listed = dict.fromkeys(method for method, _ in self._printed)
        return (*listed, *(m for m in self.also if m not in listed))

    def printed(self, method: str, subject: Subject) -> float | None:
        """The paper's figure; None where it has none."""
        return self._printed.get((method, subject.title))

    @cached_property
    def _printed(self) -> dict[tuple[str, str], float | None]:
        lines = [
            re.split(r" {2,}", line.strip()) for line in self.paper.splitlines() if line.strip()
        ]
        if not lines:
            return {}
        head, *rows = lines
        found = {}
        for title, *cells in rows:
            if len(cells) != len(head):
                raise ValueError(
                    f"{self.name}: row {title!r} has {len(cells)} cells, the head {len(head)}."
                )
            for name, text in zip(head, cells, strict=True):
                method, subject = (title, name) if self.subjects_are == "columns" else (name, title)
                found[method, subject] = None if text == "-" else float(text)
        titles = [subject.title for subject in self.subjects]
        in_text = list(dict.fromkeys(subject for _, subject in found))
        if in_text != titles:
            raise ValueError(
                f"{self.name}: the text has subjects {in_text}, `subjects` are {titles}."
            )
        return found


@dataclass(frozen=True)
class Figure(_Grid):
    """A figure of a paper: a panel for each subject with a curve for each method, or drawn by
    `draw`.

    Attributes
    ----------
    lines : tuple of str
        Methods.
    curves : tuple of str
        Names in `figures["curves"]` of a run, each a list of points [x, y]: the first is drawn
        solid, the second dashed.
    x, y : str
        What the axes show.
    log : str
        The axes that are logarithmic: "", "x", "y" or "xy".
    draw : callable, optional
        `(matplotlib figure, {(method, subject's title): figures})` draws all by itself.
    """

    lines: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    x: str = ""
    y: str = ""
    log: str = ""
    draw: Callable[[Any, dict[tuple[str, str], Figures]], None] | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        return self.lines


@dataclass(frozen=True)
class Paper:
    """A study: the value of `PAPER` in its module.

    Attributes
    ----------
    module : str
        The module's `__name__`, from which another process finds it again.
    title, citation : str
    tables : tuple of Table and Figure
        In the order of showing.
    """

    module: str
    title: str
    citation: str
    tables: tuple[Table | Figure, ...]

    @property
    def key(self) -> str:
        """The name on the command line."""
        return self.module.rpartition(".")[2]

    def tasks(self) -> list[Task]:
        """The runs that all cells need, each once."""
        tasks = {}
        for table in self.tables:
            for method, subject in table.runs():
                task = self.task(table, method, subject)
                tasks.setdefault(task.key, task)
        return list(tasks.values())

    def only(self, names: Sequence[str]) -> Paper:
        """The study with the tables of these names alone, which may be none."""
        return dataclasses.replace(self, tables=tuple(t for t in self.tables if t.name in names))

    def task(self, table: Table | Figure, method: str, subject: Subject) -> Task:
        """The run behind one cell."""
        return Task(self.module, subject.run or table.run, method, subject.problem, subject.needs)


def find(module: str) -> Paper:
    """The study that a module declares."""
    return importlib.import_module(module).PAPER
