"""Columns of text that are unlikely to be categories: numbers, dates, and text without repetition.

One rule serves data frames and files: see `find_text_problem`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A column of "0", "1", "2", "3+" has few numbers per text; a stray cell stands among many.
_MIN_NUMBERS_PER_TEXT = 4
_SAMPLED_CATEGORIES = 1000
_MIN_DISTINCT_ROWS = 20  # fewer values may be distinct by chance
_LARGEST_EXACT = 2**53

_DIGITS = r"[+-]?(\d{1,3}([.,'’ ]\d{3})+([.,]\d*)?|\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?"
_SYMBOL = "[$€£¥₹]"
_CODE = re.compile(r"0\d+")

# How cells of text are written -> a pattern, the first of which counts, and a noun for messages.
_STYLES = {
    "date": (
        r"\d{4}([-/.])(0[1-9]|1[0-2])\1[0-3]\d([T ]\d\d:.*)?"
        r"|[0-3]?\d([-/.])[0-3]?\d\4\d{4}( \d?\d:.*)?",  # the day or the month first
        "dates",
    ),
    "separators": (_DIGITS, "numbers with separators"),
    "per cent": (rf"{_DIGITS}\s*[%‰]", "numbers with a per cent sign"),
    "currency": (
        rf"[+-]?{_SYMBOL}\s?{_DIGITS}|{_DIGITS}\s*({_SYMBOL}|[A-Z]{{3}})",
        "numbers with a currency",
    ),
    "unit": (
        _DIGITS + r"\s*(?P<unit>[^\W\d_]{1,4}[23]?|°[CF]?|µ\w{1,2}|[^\W\d_]{1,3}/[^\W\d_]{1,3})",
        "numbers with a unit",
    ),
}
_PATTERNS = {style: re.compile(pattern) for style, (pattern, _) in _STYLES.items()}
_NOUNS = {style: noun for style, (_, noun) in _STYLES.items()} | {
    "number": "numbers",
    "minus": "numbers with a typographic minus sign",
}


@dataclass(frozen=True)
class TextProblem:
    """Why a column of text cannot be read as categories."""

    # "text": a cell of text among numbers. "number" and the keys of `_NOUNS` say how all cells are
    # written.
    kind: str
    is_cell: NDArray[np.bool_]  # (n_categories,), categories that show it


class TextColumnError(ValueError):
    """A column of text is not read as categories.

    `column`, `cell`: description of the column, and the first cell that shows the problem. `row`:
    row of the cell, from 0. `kind`: see `TextProblem`.
    """

    def __init__(self, column: str, row: int, cell: str, kind: str):
        self.column, self.row, self.cell, self.kind = column, row, cell, kind
        remedy = "Convert the column to numbers"
        if kind == "text":
            remedy = 'Correct the cell, or make it missing (pandas.to_numeric with errors="coerce")'
        elif kind == "date":
            remedy = "Convert the column to a number, such as a number of days"
        super().__init__(
            f"{self.problem} {remedy}; if they are categories, give the column a categorical "
            f"dtype, or list {column} in categorical_features."
        )

    @property
    def problem(self) -> str:
        """The column, the row and what is wrong there, in one sentence."""
        if self.kind == "text":
            return (
                f"Column {self.column} of X holds numbers, but row {self.row} holds the text "
                f"{self.cell!r}, which would make all of them categories."
            )
        return (
            f"Column {self.column} of X holds {_NOUNS[self.kind]} as text: row {self.row} holds "
            f"{self.cell!r}."
        )


def describe_number(text: str) -> str | None:
    """Return how a number or date is written, or None if the text is neither.

    Returns
    -------
    {"number", "minus", "separators", "per cent", "currency", "unit", "date"} or None
        "number" is what Python reads as one, and "minus" with a hyphen instead of a typographic
        minus sign; "separators" have decimal commas or marks between thousands.
    """
    if _is_finite_number(text):
        return "number"
    plain = text.strip().replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    if "\u2212" in text and _is_finite_number(plain):
        return "minus"
    return next((style for style, p in _PATTERNS.items() if p.fullmatch(plain)), None)


def find_text_problem(
    categories: Sequence[object], counts: NDArray[np.integer]
) -> TextProblem | None:
    """Find out whether a column of text holds numbers or dates.

    It does if more than half of the rows do, and if there are more than four distinct numbers per
    distinct text. Integers with leading zeros, or beyond 2^53, are codes: such a column is one of
    categories. Units are letters, and so must be the same in more than four distinct numbers.

    `categories`: distinct values. `counts` (n_categories,): rows that hold each category.
    """
    held = np.flatnonzero(np.asarray(counts) > 0)
    sample = held[:: max(1, len(held) // _SAMPLED_CATEGORIES)]
    if 2 * sum(_describe(categories[i]) is not None for i in sample.tolist()) <= len(sample):
        return None
    kinds = np.full(len(categories), "", dtype=object)
    kinds[held] = [_describe(categories[i]) or "text" for i in held.tolist()]
    is_other = kinds == "text"
    n_other = int(is_other.sum())
    if len(held) - n_other <= _MIN_NUMBERS_PER_TEXT * n_other:
        return None
    if 2 * int(counts[is_other].sum()) >= int(counts.sum()):
        return None
    if any(_is_code(categories[i]) for i in held.tolist()):
        return None
    if n_other:
        return TextProblem("text", is_other)
    for kind in ("minus", "separators", "per cent", "currency", "unit", "date"):
        if (kinds == kind).any():
            if kind == "unit" and not _share_unit([categories[i] for i in held.tolist()]):
                return None
            return TextProblem(kind, kinds == kind)
    if not any(isinstance(categories[i], str) for i in held.tolist()):
        return None
    is_text = np.array([isinstance(category, str) for category in categories])
    return TextProblem("number", (kinds == "number") & is_text)


def _describe(value: object) -> str | None:
    return describe_number(value) if isinstance(value, str) else "number"


def _is_code(value: object) -> bool:
    if not isinstance(value, str):
        return False
    is_long = len(value) > 15 and value.isdecimal() and int(value[:400]) > _LARGEST_EXACT
    return is_long or _CODE.fullmatch(value) is not None


def _share_unit(values: list[object]) -> bool:
    matches = [_PATTERNS["unit"].fullmatch(str(value).strip()) for value in values]
    units = {None if match is None else match["unit"] for match in matches}
    return len(units) == 1 and None not in units and len(matches) > _MIN_NUMBERS_PER_TEXT


def all_distinct(categories: Sequence[object], counts: NDArray[np.integer]) -> bool:
    """Whether a column of text has no value twice, as columns of names have not."""
    if not categories or not all(isinstance(category, str) for category in categories):
        return False
    n_present = int(counts.sum())
    return n_present >= _MIN_DISTINCT_ROWS and int(np.count_nonzero(counts)) == n_present


def _is_finite_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
