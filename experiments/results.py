"""Page with all tables and plots, made from the result files."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import explaining, report
from .harness import plots, tables
from .harness.paper import Figure, Paper, Table
from .harness.store import Store
from .harness.verdict import Verdict

# The search of the site leaves the page out: it is as long as all others together.
_INTRODUCTION = """\
---
nosearch: true
---

# All results

Written by `python -m experiments results` from result files; do not edit.
[Running the benchmarks](running.md) describes how they are measured."""


def page(
    studies: Sequence[tuple[Paper, Store]], documents: Sequence[dict[str, Any]], images: Path
) -> str:
    """Return the page as Markdown, and write images to the folder `images`, next to the page.

    Parameters
    ----------
    studies : sequence of (Paper, Store)
        Studies without a finished run are left out.
    documents : sequence of dict
        Result files of `peers` and `explain`.
    images : Path
    """
    begun = [(p, store) for p, store in studies if any(store.done(task.key) for task in p.tasks())]
    parts = [_INTRODUCTION, *_standing(begun)]
    for paper, store in begun:
        parts += _study(paper, store, images)
    for document in documents:
        parts += _document(document)
    return "\n\n".join(map(_wrap, parts)) + "\n"


def _wrap(part: str) -> str:
    """Break lines of prose and of lists at 100 columns, but no tables, titles and images."""
    if part.startswith("---"):
        return part
    whole_words = {"break_long_words": False, "break_on_hyphens": False}
    lines = part.splitlines()
    for i, line in enumerate(lines):
        if not line.startswith(("|", "#", "!")):
            indent = "  " if line.startswith("- ") else ""
            lines[i] = textwrap.fill(line, 100, subsequent_indent=indent, **whole_words)
    return "\n".join(lines)


def _standing(studies: Sequence[tuple[Paper, Store]]) -> Iterator[str]:
    """Yield a summary that compares our cells with the papers', with counts."""
    rows = []
    for paper, store in studies:
        filled = [tables.fill(paper, t, store) for t in paper.tables if isinstance(t, Table)]
        counts = sum((f.verdicts for f in filled), Counter[Verdict]())
        compared = [counts[v] for v in (Verdict.AS_GOOD, Verdict.WITHIN_ERROR, Verdict.BELOW)]
        if sum(compared):
            rows.append([paper.title, sum(compared), *compared, sum(f.explained for f in filled)])
    if not rows:
        return
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, 6))])
    yield (
        "How Polyleaf's cells stand to the papers' own figures, where a smaller or a larger one "
        "is better:"
    )
    verdicts = ["as good", "within one standard error", "below"]
    header = ["", "cells", *verdicts, "of these explained below the table"]
    yield report.make_lines(header, [[str(cell) for cell in row] for row in rows])


def _study(paper: Paper, store: Store, images: Path) -> Iterator[str]:
    yield f"## {paper.title}"
    yield f"{paper.citation}"
    yield "\n".join(_environments(store.find_environments(paper)))
    if any(isinstance(table, Table) and table.paper for table in paper.tables):
        yield tables.LEGEND
    protocols: dict[str, str] = {}  # protocol: first table that has it
    for table in paper.tables:
        yield f"### {table.name}: {table.title}"
        if isinstance(table, Figure):
            image = plots.draw(paper, table, store, images)
            yield "Not run." if image is None else f"![{table.title}]({images.name}/{image.name})"
        elif not store.found(paper, table):
            yield "Not run."
        else:
            yield from _table(paper, table, store)
        first = protocols.setdefault(table.protocol, table.name)
        yield table.protocol if first == table.name else f"As {first[0].lower()}{first[1:]}."


def _table(paper: Paper, table: Table, store: Store) -> Iterator[str]:
    filled = tables.fill(paper, table, store)
    yield report.make_lines(filled.header, filled.rows)
    if text := tables.count(filled.verdicts):
        yield text
    if filled.notes:
        yield "\n".join(f"- {note}" for note in filled.notes)


def _environments(environments: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the environments of the runs: each machine once, with all commits."""
    commits: dict[tuple[str, str, str], list[str]] = {}
    for environment in environments:
        of_machine = commits.setdefault(_environment(environment), [])
        if _commit(environment) not in of_machine:
            of_machine.append(_commit(environment))
    for (date, machine, packages), found in commits.items():
        yield f"- {date}, {', '.join(found)}, {machine}; {packages}"


def _commit(about: dict[str, Any]) -> str:
    return (about.get("commit") or "no commit")[:10] + (
        " with changes" if about.get("uncommitted_changes") else ""
    )


def _environment(about: dict[str, Any]) -> tuple[str, str, str]:
    """Return date, machine and packages."""
    packages = ", ".join(f"{name} {version}" for name, version in about.get("packages", {}).items())
    threads = f", {about['threads']} threads" if "threads" in about else ""
    is_busy = (about.get("load_average") or 0) > 2 * (about.get("cores") or 1)
    busy = ", BUSY with other work: seconds are rough" if is_busy else ""
    quick = ", QUICK: figures mean nothing" if about.get("quick") else ""
    note = f" ({about['note']})" if "note" in about else ""
    machine = f"{about['cpu']} ({about['instruction_set']}){threads}{busy}{quick}"
    return about["date"][:10], machine, packages + note


def _document(document: dict[str, Any]) -> Iterator[str]:
    yield f"## {document['kind'].capitalize()}"
    yield "\n".join(_environments([document["environment"]]))
    make_rows = explaining.make_rows if document["kind"] == "explain" else report.make_rows
    for case in document["cases"]:
        yield f"### {case['title']}"
        yield report.make_lines(*make_rows(case))
