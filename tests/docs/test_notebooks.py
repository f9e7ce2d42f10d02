"""The notebooks run from top to bottom, without network, and are stored without outputs."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from support import ROOT

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
def test_notebook_runs(path, tmp_path, monkeypatch, no_network):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    try:
        for number, code in enumerate(read_code(path)):
            exec(compile(code, f"{path.name}[{number}]", "exec", dont_inherit=True), names)
    finally:
        matplotlib.pyplot.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_no_outputs(path):
    cells = read_cells(path)
    assert [cell["id"] for cell in cells if cell.get("outputs")] == []
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert not [code for code in read_code(path) if re.search(r"^[%!]", code, re.MULTILINE)]


def test_notebooks_are_found():
    assert len(NOTEBOOKS) == 3
