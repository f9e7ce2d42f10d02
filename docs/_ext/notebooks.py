"""Run the notebooks of examples/ and store their outputs: texts, tables and pictures.

Run this file with the notebooks as arguments.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_DPI = 70


def run_notebook(path: Path) -> dict[str, Any]:
    """Run a notebook in the current folder; return it with the outputs of its cells."""
    notebook = json.loads(path.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        cell["execution_count"] = number
        cell["outputs"] = _run_cell("".join(cell["source"]), f"{path.name}[{number}]", names)
    return notebook


def _run_cell(code: str, name: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    from matplotlib import pyplot

    body, last = ast.parse(code).body, None
    if body and isinstance(body[-1], ast.Expr):
        last = ast.Expression(body.pop().value)
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec", dont_inherit=True), names)
        if last is not None:
            value = eval(compile(last, name, "eval", dont_inherit=True), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if hasattr(value, "to_html"):  # a table
        data = {"text/html": value.to_html().splitlines(keepends=True)}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    for number in pyplot.get_fignums():
        stream = io.BytesIO()
        pyplot.figure(number).savefig(
            stream, format="png", dpi=_DPI, metadata={"Software": None}, facecolor="white"
        )
        data = {"image/png": base64.b64encode(stream.getvalue()).decode()}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    pyplot.close("all")
    return outputs


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    for path in map(Path, sys.argv[1:]):
        notebook, folder = path.resolve(), Path.cwd()
        with tempfile.TemporaryDirectory() as temporary:
            os.chdir(temporary)
            try:
                content = run_notebook(notebook)
            finally:
                os.chdir(folder)
        notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
