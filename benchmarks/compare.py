"""Comparison of two result files: changes of Polyleaf's figures that exceed the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .harness.paper import Paper, Subject, Table
from .harness.store import Store
from .harness.verdict import Value, get_value

LOWER_IS_BETTER = (
    "fit_seconds", "round_seconds", "predict_seconds", "peak_above_data_bytes", "model_bytes",
    "ns_per_unit",
    "explain_us",
)  # fmt: skip
SCORE_TOLERANCE = 0.002  # scores do not depend on the load of the machine


@dataclass(frozen=True)
class Change:
    """One figure in both files. `factor` > 1 means that the second is worse."""

    case: str
    contender: str
    measure: str
    before: float
    after: float
    factor: float
    noise: float

    @property
    def verdict(self) -> str:
        """Return "worse", "better" or "same"."""
        if self.factor > 1 + self.noise:
            return "worse"
        return "better" if self.factor < 1 / (1 + self.noise) else "same"


@dataclass
class Comparison:
    """Changes of Polyleaf and of the peers (a machine check), and unmatched figures."""

    changes: list[Change]
    peers: list[Change]
    lost: list[str]
    not_comparable: list[str]

    @property
    def is_worse(self) -> bool:
        """Return whether a figure of Polyleaf is worse or missing."""
        return bool(self.lost) or any(change.verdict == "worse" for change in self.changes)


def compare(before: dict[str, Any], after: dict[str, Any], tolerance: float = 0.05) -> Comparison:
    """Compare two result files.

    A figure changed if the ratio of its medians exceeds `tolerance` and the spread, (max - min) /
    median, of the repeats of either file. Contenders with a different problem or different settings
    are not compared. Cases that occur in one file only are skipped. A contender without runs in the
    second file counts as lost.
    """
    found = Comparison([], [], [], [])
    cases = {case["name"]: case for case in after["cases"]}
    for case in before["cases"]:
        if case["name"] not in cases:
            continue
        now = {c["label"]: c for c in cases[case["name"]]["contenders"]}
        for old in case["contenders"]:
            _compare_contender(case["name"], old, now.get(old["label"]), tolerance, found)
    return found


def _compare_contender(
    case: str, old: dict[str, Any], new: dict[str, Any] | None, tolerance: float, found: Comparison
) -> None:
    name = f"{case}, {old['label']}"
    ours = old["library"] == "polyleaf"
    if not old["runs"]:
        return
    if new is None or not new["runs"]:
        if ours:
            found.lost.append(f"{name}: {'absent' if new is None else new['error']}")
    elif (old["problem"], old["settings"]) != (new["problem"], new["settings"]):
        found.not_comparable.append(name)
    else:
        (found.changes if ours else found.peers).extend(_changes(case, old, new, tolerance))


def _changes(
    case: str, old: dict[str, Any], new: dict[str, Any], tolerance: float
) -> Iterator[Change]:
    for measure in (*LOWER_IS_BETTER, "score"):
        a, b = old["summary"].get(measure), new["summary"].get(measure)
        if a is None or b is None or a["median"] <= 0 or b["median"] <= 0:
            continue
        least = SCORE_TOLERANCE if measure == "score" else tolerance
        noise = max(least, *((s["max"] - s["min"]) / s["median"] for s in (a, b)))
        factor = b["median"] / a["median"]
        if measure == "score" and old["higher_is_better"]:
            factor = 1 / factor
        yield Change(case, old["label"], measure, a["median"], b["median"], factor, noise)


def compare_studies(
    before: Store, after: Store, studies: Iterable[Paper], tolerance: float
) -> Comparison:
    """Compare the runs of two files cell by cell; Polyleaf's methods are those marked in the
    tables.

    A score changed if the ratio of its means exceeds `SCORE_TOLERANCE` and two standard errors of
    their difference. Seconds changed if the ratio exceeds `tolerance` and these standard errors.
    """
    found = Comparison([], [], [], [])
    for study in studies:
        for table in study.tables:
            for method, subject in table.runs() if isinstance(table, Table) else ():
                key = study.task(table, method, subject).key
                old, new = (get_value(s.figures(key), subject.figure) for s in (before, after))
                where = (f"{study.key}, {table.name}", method, subject.title)
                if old is None:
                    continue
                if new is None:
                    if method in table.ours and after.find_error(key):
                        found.lost.append(f"{', '.join(where)}: {after.find_error(key)}")
                elif old.mean > 0 < new.mean and (subject.better or subject.unit == "s"):
                    change = _cell_change(where, subject, old, new, tolerance)
                    (found.changes if method in table.ours else found.peers).append(change)
    return found


def _cell_change(
    where: tuple[str, str, str], subject: Subject, old: Value, new: Value, tolerance: float
) -> Change:
    error = 2 * math.hypot(old.error or 0.0, new.error or 0.0) / min(old.mean, new.mean)
    factor = new.mean / old.mean
    least = SCORE_TOLERANCE if subject.better else tolerance
    return Change(
        *where,
        old.mean,
        new.mean,
        1 / factor if subject.better == "higher" else factor,
        max(least, error),
    )


def make_rows(changes: list[Change]) -> tuple[list[str], list[list[str]]]:
    """Return the header and cells of a table, the worst changes first."""
    header = [
        "verdict",
        "case",
        "contender",
        "measure",
        "before",
        "after",
        "factor (>1: worse)",
        "noise",
    ]
    rows = [
        [
            c.verdict,
            c.case,
            c.contender,
            c.measure,
            f"{c.before:.4g}",
            f"{c.after:.4g}",
            f"{c.factor:.3f}",
            f"{c.noise:.3f}",
        ]
        for c in sorted(changes, key=lambda c: -c.factor)
    ]
    return header, rows
