"""Outputs of the code of pages: run a page, and write the output below each block.

Run this file with the pages as arguments to write their outputs again. An output stands in a block
after the comment `<!-- output -->`; one that differs from run to run, such as seconds, after
`<!-- output varies -->`, and the test does not compare it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n<!-- output(?P<varies> varies)? -->\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")
_MAX_LINES = 40


def run_page(page: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Run the code of a page from top to bottom; yield each block and what it has printed."""
    text, names = page.read_text("utf-8"), {"__name__": "__main__"}
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        printed = io.StringIO()
        code = compile("\n" * line + block["code"], str(page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        yield block, _tidy(printed.getvalue())


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines[:_MAX_LINES] + ["..."] * (len(lines) > _MAX_LINES))


def find_difference(shown: str, printed: str, tolerance: float = 0.02) -> str | None:
    """Return how a printed text differs from the one on the page, or None.

    Numbers may differ by a share of `tolerance`; spaces do not count.
    """
    words = ["".join(_NUMBER.sub("#", text).split()) for text in (shown, printed)]
    if words[0] != words[1]:
        return f"the page shows\n{shown}\nbut the code prints\n{printed}"
    pairs = zip(*(_read_numbers(text) for text in (shown, printed)), strict=True)
    for a, b in pairs:
        if abs(a - b) > tolerance * max(abs(a), abs(b)) + 1e-6:
            return f"the page shows {a:g}, but the code prints {b:g}, in\n{printed}"
    return None


def _read_numbers(text: str) -> list[float]:
    return [float(number.replace(",", "") or 0) for number in _NUMBER.findall(text)]


def write_outputs(page: Path) -> None:
    """Write what the blocks of a page print below them."""
    parts, end, text = [], 0, page.read_text("utf-8")
    for block, printed in run_page(page):
        parts.append(text[end : block.end("code")] + "```\n")
        if printed:
            varies = block["varies"] or ""
            parts.append(f"\n<!-- output{varies} -->\n```text\n{printed}\n```\n")
        end = block.end()
    page.write_text("".join([*parts, text[end:]]), "utf-8")


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        page, folder = path.resolve(), Path.cwd()
        with tempfile.TemporaryDirectory() as temporary:
            os.chdir(temporary)
            try:
                write_outputs(page)
            except Exception as error:
                print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
            finally:
                os.chdir(folder)
