"""Summaries of runs, tables, and result files."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import operator
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FORMAT = 1
NOT_INSTALLED = "not installed"
GOLDEN = Path(__file__).parent.parent / "tests" / "support" / "files" / "golden.json"
RATIOS = ("fit_seconds predict_seconds peak_above_data_bytes seconds_to_target explain_us").split()
SUMMARIES = [*RATIOS, "fit_cpu_seconds", "peak_bytes", "score", "rounds", "model_bytes"]
PACKAGES = (
    "polyleaf xgboost lightgbm catboost scikit-learn omnigbdt shap ngboost numpy scipy"
).split()

Spread = dict[str, float]  # median, min, max


def spread(values: Sequence[float]) -> Spread:
    """Return median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case with `target`, and with `summary` and `ratios` in each contender.

    `ratios[measure]` are contender / baseline, repeat by repeat. The two ran one after the other,
    so the load of the machine affects both.
    """
    _mark_time_to_target(case)
    baseline = next((c for c in case["contenders"] if c["label"] == case["baseline"]), None)
    for contender in case["contenders"]:
        contender["summary"] = {m: spread(v) for m in SUMMARIES if (v := _values(contender, m))}
        contender["ratios"] = {}
        if baseline is None or contender is baseline:
            continue
        for measure in RATIOS:
            pairs = zip(contender["runs"], baseline["runs"], strict=False)
            ratios = [
                a[measure] / b[measure] for a, b in pairs if a.get(measure) and b.get(measure)
            ]
            if ratios:
                contender["ratios"][measure] = spread(ratios)
    return case


def _values(contender: dict[str, Any], measure: str) -> list[float]:
    """Return one value per run, or an empty list if a run lacks it.

    A target that was missed in one run therefore counts as not reached.
    """
    values = [run.get(measure) for run in contender["runs"]]
    return [] if None in values else values


def _mark_time_to_target(case: dict[str, Any]) -> None:
    """Set `seconds_to_target` in every run with a curve: the time to reach the best peer's score.

    The target is the score that the best peer reaches in each of its runs. The value is None for a
    contender that never reaches it, and the whole fit for one without a curve (one model per
    output).
    """
    if not any(run.get("curve") for c in case["contenders"] for run in c["runs"]):
        return
    peers = [c for c in case["contenders"] if c["library"] != "polyleaf" and c["runs"]]
    if not peers:
        return
    is_reached = operator.ge if peers[0]["higher_is_better"] else operator.le
    worst, best = (min, max) if peers[0]["higher_is_better"] else (max, min)
    target = case["target"] = best(worst(_values(c, "score")) for c in peers)
    for run in (run for contender in case["contenders"] for run in contender["runs"]):
        points = run["curve"] or [[run["rounds"], run["fit_seconds"], run["score"]]]
        reached = (seconds for _, seconds, value in points if is_reached(value, target))
        run["seconds_to_target"] = next(reached, None)


def has_failed(cases: Sequence[dict[str, Any]]) -> bool:
    """Return whether a contender of ours failed, other than for lack of another library."""
    contenders = [c for case in cases for c in case["contenders"] if c["library"] == "polyleaf"]
    return any(c["error"] not in (None, NOT_INSTALLED) for c in contenders)


# --- tables ---


Columns = dict[str, Callable[[dict[str, Any]], str]]


def make_rows(case: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and cells of a summarised case of libraries."""
    columns: Columns = {
        "fit s (min - max)": lambda c: _seconds(c, "fit_seconds"),
        "x fit": lambda c: _ratio(c, "fit_seconds"),
        "predict s": lambda c: f"{c['summary']['predict_seconds']['median']:.3g}",
        "x predict": lambda c: _ratio(c, "predict_seconds"),
        case["contenders"][0]["score_name"]: lambda c: f"{c['summary']['score']['median']:.5g}",
        "rounds": lambda c: f"{c['summary']['rounds']['median']:.0f}",
        "peak MB above data": lambda c: _megabytes(c, "peak_above_data_bytes"),
        "x peak": lambda c: _ratio(c, "peak_above_data_bytes"),
        "model MB": lambda c: _megabytes(c, "model_bytes"),
    }
    if "target" in case:
        columns["s to target"] = lambda c: _seconds(c, "seconds_to_target")
        columns["x to target"] = lambda c: _ratio(c, "seconds_to_target")
    return fill_rows(case, columns)


def fill_rows(case: dict[str, Any], columns: Columns) -> tuple[list[str], list[list[str]]]:
    """Return the header, and a row for each contender: its cells, or why it has no runs."""
    rows = []
    for c in case["contenders"]:
        cells = [cell(c) for cell in columns.values()] if c["runs"] else [c["error"] or "no runs"]
        rows.append([c["label"], *cells, *[""] * (len(columns) - len(cells))])
    return ["contender", *columns], rows


def _seconds(contender: dict[str, Any], measure: str) -> str:
    values = contender["summary"].get(measure)
    if values is None:
        return "not reached"
    return f"{values['median']:.3g} ({values['min']:.3g} - {values['max']:.3g})"


def _ratio(contender: dict[str, Any], measure: str) -> str:
    values = contender["ratios"].get(measure)
    if values is None:
        return ""
    return f"{values['median']:.2f} ({values['min']:.2f} - {values['max']:.2f})"


def _megabytes(contender: dict[str, Any], measure: str) -> str:
    return f"{contender['summary'][measure]['median'] / 1e6:.4g}"


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown under a heading."""
    print(f"\n### {title}\n\n{make_lines(header, rows)}", flush=True)


def make_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the lines of a Markdown table."""
    lines = (header, ["---"] * len(header), *rows)
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped)


# --- result files ---


def environment() -> dict[str, Any]:
    """Return the environment: versions, processor, commit, date and machine load."""
    from polyleaf import _core

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "instruction_set": _core.isa(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def find_model_changes() -> dict[str, datetime]:
    """Return when the scores of each configuration of the golden file last changed, by Git."""
    text = _git("blame", "--line-porcelain", "--", str(GOLDEN))
    changes: dict[str, datetime] = {}
    name = ""
    for line in (text or "").splitlines():
        if line.startswith("committer-time "):
            changed = datetime.fromtimestamp(int(line.split()[1]), UTC)
        elif heading := re.fullmatch(r'\t "(.+)": \{', line):
            name = heading[1]
        elif line.startswith('\t  "scores"'):
            changes[name] = changed
    return changes


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def write(path: Path | None, kind: str, cases: Any, about: dict[str, Any]) -> None:
    """Write a result file, if there is a path; a file is replaced only by a complete one."""
    if path is None:
        return
    content = {"format": FORMAT, "kind": kind, "environment": about, "cases": cases}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    partial.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Read a result file; raise ValueError if the file is not a result file."""
    try:
        content = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a result file: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or "cases" not in content:
        raise ValueError(f"{path} is no result file of format {FORMAT}; write it anew with --out.")
    return content
