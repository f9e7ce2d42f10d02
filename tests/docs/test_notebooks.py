"""The notebooks run from top to bottom, without network, and are stored with their outputs."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
from pathlib import Path

import pytest
from support import ROOT

_SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "_ext" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebooks)

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def read_cells(path: Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))["cells"]


def read_code(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in read_cells(path) if cell["cell_type"] == "code"]


@pytest.fixture
def no_network(monkeypatch):
    def fail(self, address):
        raise OSError(f"A notebook connected to {address}.")

    monkeypatch.setattr(socket.socket, "connect", fail)


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_and_draws_what_it_stores(path, tmp_path, monkeypatch, no_network):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    cells = notebooks.run_notebook(path)["cells"]
    for cell, stored in zip(cells, read_cells(path), strict=True):
        shown, printed = stored.get("outputs", []), cell.get("outputs", [])
        hint = f"run docs/_ext/notebooks.py: {cell['id']}"
        assert [find_kinds(o) for o in shown] == [find_kinds(o) for o in printed], hint
        for a, b in zip(shown, printed, strict=True):
            words = [re.sub(r"[\d.,\s+-]+", " ", "".join(o.get("text", ""))) for o in (a, b)]
            assert words[0] == words[1], hint


def find_kinds(output: dict) -> list[str]:
    return [output["output_type"], *output.get("data", {})]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_outputs_and_pictures(path):
    cells = read_cells(path)
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert not [code for code in read_code(path) if re.search(r"^[%!]", code, re.MULTILINE)]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for cell in cells:
        if "print(" in "".join(cell["source"]) and cell["cell_type"] == "code":
            assert cell["outputs"], cell["id"]
    assert path.stat().st_size < 400_000


def test_notebooks_are_found():
    assert len(NOTEBOOKS) == 3
