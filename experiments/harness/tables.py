"""Cells of a table as text, and the number of our cells that match the paper's."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from . import ranks
from .paper import Paper, Subject, Table
from .store import Store
from .verdict import Value, Verdict, compare, get_value

LEGEND = (
    "Cells: the figure here ± standard deviation over repeats (the paper's figure). Of "
    "Polyleaf's, ↓ is not as good as the paper's, ↘ nor is, but by less than a standard error of "
    "its mean; letters lead to why."
)
STALE = " °"
STALE_NOTE = "Measured before the last change of these models; to be measured again."
PEERS = (
    "XGBoost", "LightGBM", "CatBoost", "OmniGBDT", "NGBoost", "omikuji", "napkinXC", "PECOS",
    "C-GB of scikit-learn", "one-versus-rest",
)  # fmt: skip
_MARKS = {Verdict.BELOW: " ↓", Verdict.WITHIN_ERROR: " ↘"}


@dataclass(frozen=True)
class Filled:
    """Table with its figures.

    Attributes
    ----------
    header, rows : the cells as text
    notes : list of str
        Explanations of the marks in cells, and reasons for empty cells.
    verdicts : Counter of Verdict
        Verdicts of the cells of our methods.
    explained : int
        Number of cells below the paper's that have an explanation.
    """

    header: list[str]
    rows: list[list[str]]
    notes: list[str]
    verdicts: Counter[Verdict]
    explained: int = 0


def fill(paper: Paper, table: Table, store: Store) -> Filled:
    """Fill the table from the store."""
    notes: list[str] = []
    explained = n_stale = 0
    verdicts: Counter[Verdict] = Counter()
    missing: dict[str, dict[str, list[str]]] = {}
    cells: dict[tuple[str, str], str] = {}
    for method, subject in table.cells():
        printed = table.printed(method, subject)
        if method in table.quoted:
            cells[method, subject.title] = cell_text(subject, None, printed)
            continue
        key = paper.task(table, method, subject).key
        value = get_value(store.figures(key), subject.figure)
        text = cell_text(subject, value, printed)
        if method in table.ours:
            verdict = compare(subject, value, printed)
            verdicts[verdict] += 1
            text += _MARKS.get(verdict, "")
            explanation = table.explained.get((method, subject.title))
            if explanation and verdict in _MARKS:
                text += f" [{_letter(notes, explanation)}]"
                explained += verdict is Verdict.BELOW
        if not method.startswith(PEERS) and store.is_stale(key, paper.golden):
            text += STALE
            n_stale += 1
        if reason := store.find_error(key):
            missing.setdefault(reason, {}).setdefault(method, []).append(subject.title)
        cells[method, subject.title] = text
    notes = [f"[{string.ascii_lowercase[i]}] {text}" for i, text in enumerate(notes)]
    notes += [_not_run(table, reason, where) for reason, where in missing.items()]
    if n_stale:
        notes.append(f"{STALE.strip()} {STALE_NOTE}")
    if table.ranks:
        notes[:0] = _ranks(paper, table, store)
    header, rows = _lay_out(table, lambda method, subject: cells[method, subject.title])
    return Filled(header, rows, notes, verdicts, explained)


def _not_run(table: Table, reason: str, where: dict[str, list[str]]) -> str:
    everywhere = len(table.subjects)
    listed = (m if len(on) == everywhere else f"{m} on {', '.join(on)}" for m, on in where.items())
    return f"Not run: {'; '.join(listed)}: {reason}"


def _ranks(paper: Paper, table: Table, store: Store) -> list[str]:
    """Return mean ranks of all methods on the common subjects, and of the methods with all
    subjects.
    """
    found = store.found(paper, table)
    everyone = list(dict.fromkeys(method for method, _ in found))
    complete = ranks.most_complete(found)
    groups = [everyone] if len(complete) in (0, 1, len(everyone)) else [everyone, complete]
    lines = [
        _format_ranks(*ranks.from_figures(found, table.subjects, methods)) for methods in groups
    ]
    return [line for line in lines if line] or ["Mean ranks: not enough runs."]


def _format_ranks(values: list[dict[str, float]], methods: list[str]) -> str:
    if len(methods) < 2 or not values:
        return ""
    means = sorted(ranks.mean_ranks(values, methods).items(), key=lambda item: item[1])
    listed = ", ".join(f"{method} {rank:.2f}" for method, rank in means)
    critical = ranks.critical_difference(len(methods), len(values))
    difference = f"critical difference {critical:.2f} at 5 %, Nemenyi"
    return f"Mean ranks over {len(values)}: {listed} ({difference})."


def cell_text(subject: Subject, value: Value | None, printed: float | None) -> str:
    """Return text such as "98.31 ± 0.05 (98.30)"; "–" stands for a missing figure of ours."""
    ours = "–"
    if value is not None:
        ours = f"{value.mean:.{subject.digits}f}"
        if value.deviation is not None:
            ours += f" ± {value.deviation:.{subject.digits}f}"
    return ours if printed is None else f"{ours} ({printed:.{subject.digits}f})"


def _letter(notes: list[str], explanation: str) -> str:
    if explanation not in notes:
        notes.append(explanation)
    return string.ascii_lowercase[notes.index(explanation)]


def _lay_out(
    table: Table, cell: Callable[[str, Subject], str]
) -> tuple[list[str], list[list[str]]]:
    units = {subject.unit for subject in table.subjects}
    corner = units.pop() if len(units) == 1 else ""
    titles = [s.title + (f", {s.unit}" if s.unit and not corner else "") for s in table.subjects]
    if table.subjects_are == "columns":
        return [corner, *titles], [
            [m, *(cell(m, s) for s in table.subjects)] for m in table.methods
        ]
    rows = [
        [title, *(cell(m, s) for m in table.methods)]
        for title, s in zip(titles, table.subjects, strict=True)
    ]
    return [corner, *table.methods], rows


def count(verdicts: Counter[Verdict]) -> str:
    """Return a sentence that compares our cells with the paper's; empty without any comparison."""
    compared = [v for v in Verdict if v is not Verdict.NOT_COMPARED]
    total = sum(verdicts[v] for v in compared)
    if not total:
        return ""
    parts = ", ".join(f"{verdicts[v]} {v.value}" for v in compared if verdicts[v])
    return f"Of {total} cells of ours: {parts}."
