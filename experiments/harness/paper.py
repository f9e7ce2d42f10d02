"""Declarations of a study: the tables of a paper, and the run behind each cell.

A *run* is a function `(context, method, problem) -> figures`, called once for each method and
problem, for all cells that show one of its figures. A *subject* is an item on which methods are
compared: one column (or row) of a table, that is a problem and the figure shown.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from .context import Context

Better = Literal["higher", "lower"] | None
Figures = dict[str, Any]
Run = Callable[[Context, str, str], Figures]


@dataclass(frozen=True)
class Subject:
    """Item on which methods are compared.

    Attributes
    ----------
    title : str
        Title in the header of the paper's table.
    unit : str
        Unit of the figure: "accuracy, %", "RMSE", "s".
    better : "higher", "lower" or None
        None: shown without a comparison, for example seconds on another machine.
    digits : int
        Digits after the decimal point, as in the paper.
    problem : str
        Argument of the run. Default: the title.
    figure : str
        Name of the run's figure that is shown.
    needs : tuple of str
        Data sets that the run requires.
    run : callable or None
        Run of this subject, if it differs from the table's.
    """

    title: str
    unit: str
    better: Better
    digits: int
    problem: str = ""
    figure: str = "score"
    needs: tuple[str, ...] = ()
    run: Run | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", self.problem or self.title)


def make_subjects(
    names: Iterable[str], unit: str, better: Better, digits: int, figure: str = "score"
) -> tuple[Subject, ...]:
    """Return a subject for each data set."""
    return tuple(Subject(name, unit, better, digits, name, figure, (name,)) for name in names)


@dataclass(frozen=True)
class Task:
    """One run with its arguments, executed once and stored under `key`."""

    module: str
    run: Run
    method: str
    problem: str
    needs: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return a key that is unique among all studies."""
        return "/".join(
            (self.module.rpartition(".")[2], self.run.__name__, self.method, self.problem)
        )


@dataclass(frozen=True)
class _Grid:
    """Methods on subjects: common base of tables and figures."""

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
        """Iterate over every method on every subject."""
        for subject in self.subjects:
            for method in self.methods:
                yield method, subject

    def runs(self) -> Iterator[tuple[str, Subject]]:
        """Iterate over the cells that have a run."""
        return ((method, subject) for method, subject in self.cells() if method not in self.quoted)


def make_table(
    name: str,
    title: str,
    subjects: Sequence[Subject],
    run: Run,
    protocol: str,
    methods: Iterable[str],
    ours: Sequence[str] = ("Polyleaf",),
    **more: Any,
) -> Table:
    """Return a table of a comparison that is in no paper, with a row for each subject."""
    more = {"also": tuple(methods), "ours": tuple(ours), "subjects_are": "rows", **more}
    return Table(name, title, tuple(subjects), run, protocol, **more)


@dataclass(frozen=True)
class Table(_Grid):
    """Table of a paper, or of a comparison.

    Attributes
    ----------
    name, title : str
        "Table V" and its caption.
    subjects : tuple of Subject
    run : callable
        `figures` are numbers, or lists of numbers (one a repeat); `figures["errors"]` may give
        standard errors of single numbers.
    protocol : str
        How the figures are obtained, and what differs from the paper.
    quoted : tuple of str
        Methods that are not run; only the paper's figures are shown.
    paper : str
        The paper's own table as text: cells are separated by two or more spaces, "-" is an empty
        cell. The first line holds the subjects' titles (the methods, where `subjects_are="rows"`).
    ours : tuple of str
        Methods that are run with Polyleaf and compared with the paper.
    also : tuple of str
        Methods that are not in the paper.
    explained : dict
        `(method, subject's title)` -> why our figure is worse than the paper's.
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
        for name, methods in (("ours", self.ours), ("quoted", self.quoted)):
            for method in methods:
                if method not in self.methods:
                    raise ValueError(f"{self.name}: {method!r} is in `{name}` but in no row.")
        cells = {(method, subject.title) for method, subject in self.cells()}
        for cell in self.explained.keys() - cells:
            raise ValueError(f"{self.name}: `explained` names {cell}, which is no cell.")

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods in the order of the paper, then those in `also`."""
        listed = dict.fromkeys(method for method, _ in self._printed)
        return (*listed, *(m for m in self.also if m not in listed))

    def printed(self, method: str, subject: Subject) -> float | None:
        """Return the paper's figure; None if it has none."""
        return self._printed.get((method, subject.title))

    @cached_property
    def _printed(self) -> dict[tuple[str, str], float | None]:
        lines = [re.split(" {2,}", line.strip()) for line in self.paper.splitlines()]
        head, *rows = [line for line in lines if line != [""]] or [[]]
        found = {}
        for title, *cells in rows:
            if len(cells) != len(head):
                sizes = f"{len(cells)} cells, the head {len(head)}"
                raise ValueError(f"{self.name}: row {title!r} has {sizes}.")
            for name, text in zip(head, cells, strict=True):
                cell = (title, name) if self.subjects_are == "columns" else (name, title)
                found[cell] = None if text == "-" else float(text)
        in_text = list(dict.fromkeys(subject for _, subject in found))
        titles = [subject.title for subject in self.subjects]
        if found and in_text != titles:
            raise ValueError(f"{self.name}: {in_text} in the text, {titles} in `subjects`.")
        return found


@dataclass(frozen=True)
class Figure(_Grid):
    """Picture of runs.

    Attributes
    ----------
    lines : tuple of str
        Methods.
    draw : callable
        `(matplotlib figure, {(method, subject's title): figures})` draws the figure.
    """

    lines: tuple[str, ...] = ()
    draw: Callable[[Any, dict[tuple[str, str], Figures]], None] = lambda canvas, found: None

    @property
    def methods(self) -> tuple[str, ...]:
        return self.lines


@dataclass(frozen=True)
class Paper:
    """Study: the value of `PAPER` in its module.

    Attributes
    ----------
    module : str
        The module's `__name__`, by which another process imports it.
    title, citation : str
    tables : tuple of Table and Figure
        In display order.
    golden : tuple of str
        Configurations of the golden file that train as the study does. Figures of ours that are
        older than the last change of these models are marked.
    """

    module: str
    title: str
    citation: str
    tables: tuple[Table | Figure, ...]
    golden: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return the name on the command line."""
        return self.module.rpartition(".")[2]

    def tasks(self) -> list[Task]:
        """Return the runs that all cells need, without duplicates."""
        tasks = {}
        for table in self.tables:
            for method, subject in table.runs():
                task = self.task(table, method, subject)
                tasks.setdefault(task.key, task)
        return list(tasks.values())

    def only(self, names: Sequence[str]) -> Paper:
        """Return the study with only the tables of these names, possibly none."""
        return dataclasses.replace(self, tables=tuple(t for t in self.tables if t.name in names))

    def task(self, table: Table | Figure, method: str, subject: Subject) -> Task:
        """Return the run behind one cell."""
        return Task(self.module, subject.run or table.run, method, subject.problem, subject.needs)


def find(module: str) -> Paper:
    """Return the study that a module declares."""
    return importlib.import_module(module).PAPER
