"""The study of deployment: a file is served as it would be, and all that is shown is measured."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import deployment, serving
from benchmarks.c_programs import COMPILERS
from benchmarks.harness.context import Context, Unavailable
from benchmarks.harness.store import Store

from polyleaf import PolyleafRegressor


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    PolyleafRegressor(n_estimators=3).fit(X, X[:, :2]).save_model(folder / "m.polyleaf")
    np.save(folder / "rows.npy", X)
    return {"path": str(folder / "m.polyleaf"), "rows": str(folder / "rows.npy"), "asked": 8}


def shown():
    """Figures of all tables."""
    return {subject.figure for table in deployment.PAPER.tables for subject in table.subjects}


def test_deployment_tables_are_measured(job, monkeypatch):
    monkeypatch.setattr(serving, "LEAST_SECONDS", 0.0)
    pytest.importorskip("pandas")
    figures = serving.measure({**job, "method": "Polyleaf"})
    assert set(figures) | {"file_mb", "header_mb"} == shown()
    assert all(value >= 0 for value in figures.values()) and figures["requests_4"] > 0


@pytest.mark.parametrize("method", ["Polyleaf", "Polyleaf, predictor()"])
def test_a_loaded_model_predicts(job, method):
    X = np.load(job["rows"])
    predict = serving.LOADERS[method]()(job["path"])
    np.testing.assert_array_equal(
        predict(X), PolyleafRegressor(n_estimators=3).fit(X, X[:, :2]).predict(X)
    )


def test_every_method_has_a_loader():
    assert set(serving.LOADERS) == set(deployment.SAVED)


@pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
def test_the_header_is_timed_row_by_row(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "COMPILERS", COMPILERS[:1])
    method = f"Polyleaf as C, {COMPILERS[0].split('-')[0]}"
    figures = deployment.deployment(Context(tmp_path, quick=True), method, "16 targets")
    assert figures["batch_1"] == pytest.approx(1e6 / figures["array_p50_us"])
    assert 0.001 < figures["file_mb"] < 1 and 0.001 < figures["header_mb"] < 1


def test_missing_library_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "is_installed", lambda name: name == "polyleaf")
    with pytest.raises(Unavailable, match="CatBoost is not installed"):
        deployment.deployment(Context(tmp_path, quick=True), "CatBoost", "16 targets")
    monkeypatch.setattr(deployment, "COMPILERS", [])
    with pytest.raises(Unavailable, match="gcc is not installed"):
        deployment.deployment(Context(tmp_path, quick=True), "Polyleaf as C, gcc", "16 targets")


# --- the page that cites the figures ---

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "deployment.md"
COMMITTED = Store(Path(__file__).parents[2] / "benchmarks" / "results" / "deployment.jsonl")
# What a line of the page's table calls a method, and the figures of its columns.
CALLED = {"`predictor()`": ["Polyleaf, predictor()"], "as C, gcc; clang": list(deployment.C)}
COLUMNS = [
    ["file_mb"],
    ["load_ms"],
    ["first_ms"],
    ["array_p50_us", "array_p99_us"],
    ["frame_p50_us", "frame_p99_us"],
    ["batch_10000"],
    ["memory_mb"],
    ["requests_4", "request_4_p99_ms"],
]


def lines_of_page():
    _, _, table = PAGE.read_text("utf-8").partition("| | file, MB |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def is_shown(text, figure):
    """Whether it is the figure, rounded to the digits that are shown; whole thousands stand for
    thousands.
    """
    digits = len(text.partition(".")[2])
    rounded = text.endswith(",000") and figure >= 100_000
    return float(text.replace(",", "")) == round(figure, -3 if rounded else digits)


@pytest.mark.parametrize("line", lines_of_page(), ids=lambda line: line[0])
def test_the_page_shows_the_committed_figures(line):
    methods = CALLED.get(line[0], [line[0]])
    (subject, *_) = deployment.PAPER.tables[0].subjects
    keys = [
        deployment.PAPER.task(deployment.PAPER.tables[0], method, subject).key for method in methods
    ]
    found = [COMMITTED.figures(key) for key in keys]
    for cell, names in zip(line[1:], COLUMNS, strict=True):
        shown = re.findall(r"\d[\d,]*\.?\d*(?<!,)", cell)
        expected = [figures[name] for figures in found for name in names if name in figures]
        if len(found) > 1:
            expected = expected[: len(shown)]  # of the header its size and the time of a row
        assert len(shown) == len(expected), cell
        assert all(map(is_shown, shown, expected)), (cell, expected)


def test_the_page_shows_every_method():
    shown = {method for line in lines_of_page() for method in CALLED.get(line[0], [line[0]])}
    assert shown == {*deployment.SAVED, *deployment.C}


def test_the_page_shows_how_far_load_tests_are_apart():
    """All runs on record, the table's and others."""
    lines = map(json.loads, COMMITTED.path.read_text("utf-8").splitlines())
    of_table = (line for line in lines if line.get("key", "").endswith(f"/{deployment.SHARED}"))
    runs = {}
    for line in of_table:
        if "requests_4" in line["figures"]:
            runs.setdefault(line["key"].split("/")[2], []).append(line["figures"]["requests_4"])
    text = " ".join(PAGE.read_text("utf-8").split())
    names = {methods[0]: name for name, methods in CALLED.items()}
    for method, found in runs.items():
        assert f"{names.get(method, method)} {min(found):,.0f} to {max(found):,.0f}" in text


def test_the_page_of_exports_shows_the_committed_figures():
    page = " ".join((PAGE.with_name("export.md")).read_text("utf-8").split())

    def cell(method, figure, digits, problem=deployment.DEEP):
        return (
            f"{COMMITTED.figures(f'deployment/deployment/{method}/{problem}')[figure]:.{digits}f}"
        )

    half, (gcc, clang) = "array_p50_us", deployment.C
    assert f"took {cell('Polyleaf, predictor()', half, 1)} µs or less" in page
    assert f"`predict` of one row {cell('Polyleaf', half, 0)} µs" in page
    assert (
        f"{cell(gcc, half, 2)} µs with gcc 12 and {cell(clang, half, 2)} µs with clang 14" in page
    )
    shallow = [cell(method, half, 2, deployment.SHARED) for method in (gcc, clang)]
    assert f"{shallow[0]} and {shallow[1]} µs where trees have depth 6" in page
    sizes = cell(gcc, "header_mb", 2), cell(gcc, "file_mb", 2)
    assert f"The header has {sizes[0]} MB, of which the compiler makes {sizes[1]} MB" in page
