"""One page with all tables and plots, from the result files. Owns the page's outline; computes no figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import report
from .frame import plots, tables
from .frame.paper import Figure, Paper, Table
from .frame.store import Store

_INTRODUCTION = """\
# Results

Written by `python -m benchmarks results` from result files; do not edit. How things are measured is told in
[benchmarks.md](benchmarks.md)."""


def page(studies: Sequence[tuple[Paper, Store]], documents: Sequence[dict[str, Any]], images: Path) -> str:
    """The page as Markdown; images are written to the folder `images`, which lies beside the page.

    Parameters
    ----------
    studies : sequence of (Paper, Store)
        Those without a finished run are left out.
    documents : sequence of dict
        Result files of `peers` and `kernels`.
    images : Path
    """
    parts = [_INTRODUCTION]
    for paper, store in studies:
        if any(store.done(task.key) for task in paper.tasks()):
            parts += _study(paper, store, images)
    for document in documents:
        parts += _document(document)
    return "\n\n".join(parts) + "\n"


def _study(paper: Paper, store: Store, images: Path) -> Iterator[str]:
    yield f"## {paper.title}"
    yield f"{paper.citation}"
    yield "\n".join(_environments(store.environments_of(paper)))
    if any(isinstance(table, Table) and table.paper for table in paper.tables):
        yield tables.LEGEND
    for table in paper.tables:
        yield f"### {table.name}: {table.title}"
        if isinstance(table, Figure):
            image = plots.draw(paper, table, store, images)
            yield "Not run." if image is None else f"![{table.title}]({images.name}/{image.name})"
        elif not store.found(paper, table):
            yield "Not run."
        else:
            yield from _table(paper, table, store)
        yield table.protocol


def _table(paper: Paper, table: Table, store: Store) -> Iterator[str]:
    filled = tables.fill(paper, table, store)
    yield report.lines_of(filled.header, filled.rows)
    if text := tables.count(filled.verdicts):
        yield text
    if filled.notes:
        yield "\n".join(f"- {note}" for note in filled.notes)


def _environments(environments: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What runs depended on, each machine and commit once."""
    seen = set()
    for environment in environments:
        line = _environment(environment)
        if line not in seen:
            seen.add(line)
            yield f"- {line}"


def _environment(about: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in about.get("packages", {}).items())
    commit = (about.get("commit") or "no commit")[:10]
    changes = " with changes" if about.get("uncommitted_changes") else ""
    threads = f", {about['threads']} threads" if "threads" in about else ""
    is_busy = (about.get("load_average") or 0) > 2 * (about.get("cores") or 1)
    busy = ", BUSY with other work: seconds are rough" if is_busy else ""
    quick = ", QUICK: figures mean nothing" if about.get("quick") else ""
    machine = f"{about['cpu']} ({about['instruction_set']}){threads}"
    note = f" ({about['note']})" if "note" in about else ""
    return f"{about['date'][:10]}, {commit}{changes}, {machine}{busy}{quick}; {packages}{note}"


def _document(document: dict[str, Any]) -> Iterator[str]:
    yield f"## {document['kind'].capitalize()}"
    yield f"- {_environment(document['environment'])}"
    if document["kind"] == "kernels":
        from . import kernels

        yield report.lines_of(*kernels.rows_of(document["cases"]))
        return
    for case in document["cases"]:
        yield f"### {case['title']}"
        yield report.lines_of(*report.rows_of(case))
