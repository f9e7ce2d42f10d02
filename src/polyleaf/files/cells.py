"""Cells of a column as values of a kind: numbers, integers, booleans or text.

The kind is inferred from the training data and saved with the model. Later files are read by it, so
that a column means the same in every file and format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyleaf.files.io import ReadError
from polyleaf.runtime.types import ArrowColumn
from polyleaf.user_data.numeric_text import describe_number

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER, INTEGER, BOOLEAN, TEXT = KINDS = ("number", "integer", "boolean", "text")
"""Kinds of columns. "integer" is for categories and class labels, which keep their identity."""

MISSING_VALUES = frozenset(
    "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan"
    "|null|".split("|")
)
"""Cells of text that stand for a missing value, as in pandas."""

_BOOLEANS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_INTEGER = r"^[+-]?(0|[1-9]\d*)(\.0*)?$"
_LEADING_ZERO = r"^0\d+$"
_NOUNS = {NUMBER: "numbers", TEXT: "text", BOOLEAN: "true or false", INTEGER: "integers"}


@dataclass(frozen=True)
class CellFormat:
    """How text cells stand for numbers and missing values."""

    decimal: str = "."  # decimal mark, "." or ","
    thousands: str | None = None  # mark between groups of three digits
    na_values: tuple[str, ...] = ()  # further cells that are missing, beside `MISSING_VALUES`

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ReadError(f"The decimal mark must be . or , and not {self.decimal!r}.")
        mark = self.thousands
        if mark is not None and (len(mark) != 1 or mark == self.decimal or mark in '0123456789"+-'):
            raise ReadError(
                "The thousands mark must be one character, such as , or ' or a space, and differ "
                f"from the decimal mark, not {mark!r}."
            )

    @property
    def missing(self) -> frozenset[str]:
        return MISSING_VALUES.union(self.na_values)

    @property
    def number_pattern(self) -> str:
        """Regular expression of a number without spaces around it."""
        digits = (
            r"\d+" if self.thousands is None else rf"(\d+|\d{{1,3}}([{self.thousands}]\d{{3}})+)"
        )
        mark = f"[{self.decimal}]"
        return rf"^[+-]?({digits}({mark}\d*)?|{mark}\d+)([eE][+-]?\d+)?$"


def is_text(type_: pa.DataType) -> bool:
    """Whether an Arrow type is text."""
    import pyarrow.types as kinds

    return kinds.is_string(type_) or kinds.is_large_string(type_) or str(type_) == "string_view"


def decode(column: ArrowColumn) -> ArrowColumn:
    """Return an Arrow column without dictionary encoding."""
    import pyarrow as pa

    type_ = column.type
    return column.cast(type_.value_type) if pa.types.is_dictionary(type_) else column


def drop_missing_text(column: ArrowColumn, missing: Sequence[str] | frozenset[str]) -> ArrowColumn:
    """Return a column of text with nulls where a cell stands for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values, null = pa.array(sorted(missing), column.type), pa.scalar(None, column.type)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    # `pc.if_else` of PyArrow 22 and earlier damages text of sliced chunks.
    kept = [pc.replace_with_mask(c, pc.is_in(c, value_set=values), null) for c in chunks]
    return pa.chunked_array(kept, column.type)


def find_kept_values(column: ArrowColumn, format: CellFormat) -> tuple[str, ...]:
    """Return the spellings of missing values that a typed column of text holds as values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = decode(column)
    if pa.types.is_null(column.type):
        return ()
    values = pa.array(sorted(format.missing), column.type)
    return tuple(sorted(column.filter(pc.is_in(column, value_set=values)).unique().to_pylist()))


# ---- inference -------------------------------------------------------------------------------


def infer_kind(type_: pa.DataType, as_category: bool) -> str | None:
    """Return the kind of a column of an Arrow type; None if the type is not supported."""
    import pyarrow.types as kinds

    type_ = type_.value_type if kinds.is_dictionary(type_) else type_
    if is_text(type_):
        return TEXT
    if kinds.is_integer(type_):
        return INTEGER if as_category else NUMBER
    if kinds.is_floating(type_) or kinds.is_decimal(type_) or kinds.is_null(type_):
        return NUMBER
    return BOOLEAN if kinds.is_boolean(type_) else None


def infer_written_kind(cells: ArrowColumn, format: CellFormat, as_category: bool) -> str:
    """Infer the kind of a column of text cells without types, as in CSV files.

    Integers with leading zeros are codes, and so text. Categories and class labels are integers,
    booleans or text, so that no cell is rounded.
    """
    import pyarrow.compute as pc

    known = drop_missing_text(cells, format.missing).drop_null()
    if len(known) == 0:
        return NUMBER
    if pc.all(pc.match_substring_regex(known, r"(?i)^\s*(true|false)\s*$")).as_py():
        return BOOLEAN
    bad = _parse_numbers(known, format)[1]
    if bad is not None or pc.any(pc.match_substring_regex(known, _LEADING_ZERO)).as_py():
        return TEXT
    if not as_category:
        return NUMBER
    return INTEGER if _to_integers(known, format)[1] is None else TEXT


# ---- conversion ------------------------------------------------------------------------------


def convert(
    column: ArrowColumn,
    kind: str,
    name: str,
    format: CellFormat,
    kept: Sequence[str] = (),
    start: int = 0,
) -> ArrowColumn:
    """Return a column as values of a kind: float64, integers, booleans or strings.

    `kept` are spellings of missing values that are values in this column; `start` is the number of
    the first row, for messages. Raises a ReadError if the type does not fit the kind, or a cell
    does not; the message names the row.
    """
    import pyarrow as pa

    column = decode(column)
    if pa.types.is_null(column.type):
        target = {TEXT: pa.string(), BOOLEAN: pa.bool_(), INTEGER: pa.int64()}
        return column.cast(target.get(kind, pa.float64()))
    if is_text(column.type):
        column = drop_missing_text(column, format.missing.difference(kept))
        if kind == TEXT:
            return column
        parse = {NUMBER: _parse_numbers, INTEGER: _to_integers, BOOLEAN: _to_booleans}[kind]
        found, bad = parse(column, format)
        if bad is not None:
            cell, noun = column[bad].as_py(), {NUMBER: "a number", INTEGER: "an integer"}.get(kind)
            raise ReadError(
                f"Column {name!r} holds {cell!r} in row {bad + start}, which is not "
                f"{noun or _NOUNS[kind]}{describe_remedy(cell)}"
            )
        return found
    return _convert_typed(column, kind, name)


def _convert_typed(column: ArrowColumn, kind: str, name: str) -> ArrowColumn:
    """Convert a column of numbers or booleans."""
    import pyarrow as pa

    column_kind = infer_kind(column.type, as_category=True)
    if column_kind is None:
        raise ReadError(
            f"Column {name!r} has type {column.type}, neither numbers nor text; drop or convert it."
        )
    if column_kind == kind and column_kind != NUMBER:
        return column
    # safe=False: integers above 2^53 are rounded, as in any float column
    numbers = column.cast(pa.float64(), safe=False)
    if kind == NUMBER:
        return numbers
    known = numbers.drop_null().to_numpy()
    known = known[~np.isnan(known)]
    fits = (
        kind == INTEGER
        and (known == np.round(known)).all()
        and np.abs(known).max(initial=0) < 2**53
    )
    if column_kind != BOOLEAN and (fits or (kind == BOOLEAN and np.isin(known, (0, 1)).all())):
        values = pa.chunked_array([pa.array(numbers.to_numpy(), from_pandas=True)])
        return values.cast(pa.bool_() if kind == BOOLEAN else pa.int64())
    raise ReadError(
        f"Column {name!r} has type {column.type}, but it held {_NOUNS[kind]} in the training data: "
        "convert it."
    )


def _normalise_numbers(cells: ArrowColumn, format: CellFormat) -> tuple[ArrowColumn, int | None]:
    """Return cells with a decimal point and without thousands marks, and the first bad one."""
    import pyarrow.compute as pc

    plain = pc.utf8_trim_whitespace(cells)
    if format.decimal == "." and format.thousands is None:
        return plain, None
    bad = _find_false(pc.match_substring_regex(plain, format.number_pattern))
    if format.thousands is not None:
        plain = pc.replace_substring(plain, format.thousands, "")
    return pc.replace_substring(plain, format.decimal, "."), bad


def _parse_numbers(cells: ArrowColumn, format: CellFormat) -> tuple[ArrowColumn, int | None]:
    """Return float64 numbers and None, or the row of the first cell that is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain, bad = _normalise_numbers(cells, format)
    if bad is not None:
        return None, bad
    try:
        return plain.cast(pa.float64()), None
    except pa.ArrowInvalid:
        pattern = (
            CellFormat().number_pattern.replace("^", r"(?i)^(?:[+-]?(?:inf|infinity)$|", 1) + ")"
        )
        return None, _find_false(pc.match_substring_regex(plain, pattern))


def _to_integers(cells: ArrowColumn, format: CellFormat) -> tuple[ArrowColumn, int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    plain, bad = _normalise_numbers(cells, format)
    if bad is None:
        bad = _find_false(pc.match_substring_regex(plain, _INTEGER))
    if bad is not None:
        return None, bad
    digits = pc.replace_substring_regex(plain, r"^\+|\.0*$", "")
    try:
        return digits.cast(pa.int64()), None
    except pa.ArrowInvalid:
        fits = [cell is None or abs(int(cell)) < 2**63 for cell in digits.to_pylist()]
        return None, fits.index(False)


def _to_booleans(cells: ArrowColumn, format: CellFormat) -> tuple[ArrowColumn, int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pa.array(list(_BOOLEANS))
    word = pc.index_in(pc.utf8_lower(pc.utf8_trim_whitespace(cells)).cast(pa.string()), words)
    bad = _find_false(pc.or_kleene(pc.is_valid(word), pc.is_null(cells)))
    return (None, bad) if bad is not None else (pc.less(word, 3), None)


def _find_false(mask: ArrowColumn) -> int | None:
    """Return the first row of a mask that is false; nulls are true."""
    rows = np.flatnonzero(mask.fill_null(True).to_numpy() == 0)
    return int(rows[0]) if len(rows) else None


def describe_remedy(cell: str) -> str:
    """Return what the user of the command line can do about a cell that is not a number."""
    style = describe_number(cell)
    if style == "separators":
        return ": use --decimal and --thousands to read such numbers."
    if style in ("per cent", "currency", "unit"):
        return f": remove the {style} from the column, so that numbers remain."
    return f": correct the cell, or use --na-values {cell!r} if it means that the value is missing."
