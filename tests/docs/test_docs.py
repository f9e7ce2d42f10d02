"""The Python code of README.md and of the pages in docs/ runs from top to bottom, and prints what
the pages show."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support import ROOT

PAGES = ROOT / "docs"
_SPEC = importlib.util.spec_from_file_location("outputs", PAGES / "_ext" / "outputs.py")
outputs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(outputs)
# Pages whose code needs an extra, a cluster, a GPU or many minutes.
WITHOUT_OUTPUT = {
    f"how_to/{name}" for name in ("dask", "forecasting_frameworks", "gpu", "optuna", "out_of_core")
} | {"tutorials/extreme_multi_label"}
NEEDS = {"how_to/gpu": "cupy", "user_guide/custom_objectives": "jax", "how_to/optuna": "optuna"}


def extract_code(page: Path) -> str:
    """Return the Python blocks of a page at their line numbers."""
    lines, inside = [], False
    for line in page.read_text("utf-8").splitlines():
        fence = re.match(r"```(\w*)", line)
        lines.append(line if inside and not fence else "")
        if fence:
            inside = fence[1] == "python"
    return "\n".join(lines)


def page_name(page: Path) -> str:
    """Return the path of a page below docs/ without its ending."""
    return page.with_suffix("").relative_to(PAGES if PAGES in page.parents else ROOT).as_posix()


WITH_CODE = [
    page
    for page in (ROOT / "README.md", *sorted(PAGES.rglob("*.md")))
    if extract_code(page).strip()
]


@pytest.mark.full
@pytest.mark.parametrize("page", WITH_CODE, ids=page_name)
def test_code_runs(page, tmp_path, monkeypatch):
    name = page_name(page)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    shows_outputs = "<!-- output" in page.read_text("utf-8")
    for block, printed in outputs.run_page(page):
        if not shows_outputs or block["varies"]:
            continue
        shown = (block["output"] or "").rstrip("\n")
        difference = outputs.find_difference(shown, printed)
        assert difference is None, f"{difference}: run docs/_ext/outputs.py on the page."


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("rmse 0.655 in 20 rounds", "rmse 0.656 in  20 rounds", True),
        ("rmse 0.655", "rmse 0.755", False),
        ("rmse 0.655", "mae 0.655", False),
        ("rmse 0.655", "rmse 0.655 and more", False),
        ("[1.  2.5]", "[1. 2.5]", True),
        ("", "7", False),
    ],
)
def test_outputs_are_compared(shown, printed, is_same):
    assert (outputs.find_difference(shown, printed) is None) == is_same


def test_tutorials_and_guides_show_what_their_code_prints():
    for page in WITH_CODE:
        folder = page_name(page).partition("/")[0]
        text = page.read_text("utf-8")
        if folder in ("tutorials", "how_to") and page_name(page) not in WITHOUT_OUTPUT:
            assert "print(" not in text or "<!-- output" in text, page.name


def test_pages_with_code_are_found():
    assert "objectives" in [page.stem for page in WITH_CODE]
