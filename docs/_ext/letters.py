"""Write docs/_static/letters.wasm, the model of how_to/browser.md. Needs `pip install ziglang`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.export import to_c

DOCS = Path(__file__).resolve().parents[1]
WASM = DOCS / "_static" / "letters.wasm"


def fit() -> PolyleafClassifier:
    """Return the model of the page."""
    X, _, y, _ = load("letter").split()
    return PolyleafClassifier(n_estimators=30, max_leaves=16, learning_rate=0.4).fit(X, y)


def find_source() -> str:
    """Return the C file of the page."""
    page = (DOCS / "how_to" / "browser.md").read_text("utf-8")
    return page.partition("```c\n")[2].partition("```")[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        to_c(fit(), folder / "letters.h", name="letters")
        (folder / "letters.c").write_text(find_source(), "utf-8")
        exports = [f"-Wl,--export={name}" for name in ("row", "scores", "predictions", "predict")]
        options = ["-target", "wasm32-wasi", "-mexec-model=reactor", "-Oz", "-s", *exports]
        command = [sys.executable, "-m", "ziglang", "cc", *options, "-o", str(WASM)]
        subprocess.run([*command, str(folder / "letters.c")], check=True)


if __name__ == "__main__":
    main()
