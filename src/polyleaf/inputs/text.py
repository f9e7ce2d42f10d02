"""Columns of text that are hardly categories: numbers with a stray cell among them or with decimal commas,
texts that all differ.

Owns these judgements. Must not know where columns come from, nor what becomes of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["all_distinct", "has_decimal_commas", "find_stray_text", "find_stray_categories"]

# Categories such as "0", "1", "2", "3+" have few numbers for each text; a stray cell stands among many.
_NUMBERS_FOR_EACH_TEXT = 4
_WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # or a number with three decimals
# Fewer rows may differ by chance.
_FEWEST_ROWS = 20


def find_stray_text(
    index: NDArray[np.integer[Any]], categories: Sequence[Any]
) -> tuple[int, str] | None:
    """The first cell of text in a column that is one of numbers otherwise.

    It is where more than half of the rows hold numbers, or text that spells one, and there are more than four
    different numbers for each different text.

    Parameters
    ----------
    index : ndarray of int, shape (n_rows,)
        Row i holds `categories[index[i]]`; -1 is missing.
    categories : sequence of str, bool, int or float
        All different.

    Returns
    -------
    (row, cell), or None where the column is none of these
    """
    is_text = find_stray_categories(
        categories, np.bincount(index[index >= 0], minlength=len(categories))
    )
    if is_text is None:
        return None
    row = int(np.flatnonzero((index >= 0) & is_text[index])[0])
    return row, str(categories[index[row]])


def find_stray_categories(
    categories: Sequence[Any], counts: NDArray[np.integer[Any]]
) -> NDArray[np.bool_] | None:
    """The same of a column that is known by how many rows hold each category: which of these are stray text.

    Parameters
    ----------
    categories : sequence of str, bool, int or float
        All different.
    counts : ndarray of int, shape (n_categories,)

    Returns
    -------
    ndarray of bool, shape (n_categories,), or None where there is no such text
    """
    is_text = np.array([not _is_number(category) for category in categories], bool)
    n_texts, n_rows_of_text = int(is_text.sum()), int(counts[is_text].sum())
    if n_texts == 0 or len(categories) - n_texts <= _NUMBERS_FOR_EACH_TEXT * n_texts:
        return None
    return None if n_rows_of_text == 0 or 2 * n_rows_of_text >= int(counts.sum()) else is_text


def all_distinct(categories: Sequence[Any], counts: NDArray[np.integer[Any]]) -> bool:
    """Whether a column of text holds another value in every row that has one, as names and dates do."""
    if not categories or not all(isinstance(category, str) for category in categories):
        return False
    there = int(counts.sum())
    return there >= _FEWEST_ROWS and int(np.count_nonzero(counts)) == there


def has_decimal_commas(categories: Sequence[Any], counts: NDArray[np.integer[Any]]) -> bool:
    """Whether most rows of a column of text hold numbers such as "3,25", not all of them maybe thousands."""
    there = zip(categories, counts.tolist(), strict=True)
    rows_of = {c: n for c, n in there if n and isinstance(c, str) and _WITH_COMMA.fullmatch(c)}
    is_most = 2 * sum(rows_of.values()) > int(counts.sum())
    return is_most and not all(map(_THOUSANDS.fullmatch, rows_of))


def _is_number(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
