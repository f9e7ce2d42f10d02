"""The Python code of README.md and of the pages in docs/ runs from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT

PAGES = ROOT / "docs"
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
    exec(
        compile(extract_code(page), str(page), "exec", dont_inherit=True), {"__name__": "__main__"}
    )


def test_pages_with_code_are_found():
    assert "objectives" in [page.stem for page in WITH_CODE]
