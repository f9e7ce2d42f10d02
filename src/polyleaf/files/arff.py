"""Reader of ARFF files (Weka, Mulan, MEKA), dense and sparse.

`scipy.io.arff` supports neither sparse rows nor text attributes. Every error names its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TextIO

import numpy as np
import scipy.sparse as sp

from polyleaf.files.io import ReadError
from polyleaf.files.table import CHUNK_ROWS, Table, build_table, parse_numbers, parse_texts

_TOKEN = re.compile(
    r"""\s*(?: '((?:[^'\\]|\\.)*)' | "((?:[^"\\]|\\.)*)" | ([^,\s{}'"][^,{}]*?) )\s*(?=[,}]|$)""",
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    r"""@attribute\s+(?: '((?:[^'\\]|\\.)*)' | "((?:[^"\\]|\\.)*)" | ([^\s{]+) )\s*(.+)$""",
    re.VERBOSE | re.IGNORECASE,
)
_PAIR = re.compile(r"""(?:[^,'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")+""")
_NUMBER_TYPES = ("numeric", "real", "integer")
_TEXT_TYPES = ("string", "date")


@dataclass(frozen=True)
class _Attribute:
    """A column; `categories` is None for numbers, and () for text."""

    name: str
    categories: tuple[str, ...] | None


def read_arff(stream: TextIO) -> Table:
    """Read an open ARFF file.

    Nominal attributes become categories in their declared order, string and date attributes
    categories in alphabetical order, and ``?`` a missing value.

    Raises
    ------
    ReadError
        If the file breaks the format; the message names the line.
    """
    attributes, lines = _read_header(stream)
    first = next(lines, None)
    if first is None:
        raise ReadError("there is no row after @data.")
    rows = chain([first], lines)
    return (_read_sparse if first[1].startswith("{") else _read_dense)(attributes, rows)


def read_arff_cells(stream: TextIO, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the text of some columns of a dense file, None where a value is missing."""
    attributes, lines = _read_header(stream)
    all_names = [attribute.name for attribute in attributes]
    positions = [all_names.index(name) for name in names]
    rows = (_parse_dense_row(*line, len(attributes)) for line in lines)
    cells = np.array([[tokens[i] for i in positions] for tokens in rows], dtype=object)
    cells[cells == "?"] = None
    return dict(zip(names, cells.T, strict=True))


def _read_header(stream: TextIO) -> tuple[list[_Attribute], Iterator[tuple[int, str]]]:
    """Return the attributes, and an iterator over the numbered lines after them."""
    numbered = ((number, line.strip()) for number, line in enumerate(stream, 1))
    lines = ((number, line) for number, line in numbered if line and not line.startswith("%"))
    return _parse_attributes(lines), lines


def _unquote(match: re.Match) -> str:
    """Return the text of a match with groups '...', "..." and unquoted, without escapes."""
    single, double, unquoted = match.groups()[:3]
    if unquoted is not None:
        return unquoted.strip()
    return re.sub(r"\\(.)", r"\1", single if single is not None else double)


def _parse_attributes(lines: Iterator[tuple[int, str]]) -> list[_Attribute]:
    attributes: list[_Attribute] = []
    for number, line in lines:
        keyword = line.split(maxsplit=1)[0].lower()
        if keyword == "@relation":
            continue
        if keyword == "@data":
            if not attributes:
                raise ReadError(f"line {number}: @data comes before any @attribute.")
            return attributes
        if keyword != "@attribute":
            raise ReadError(
                f"line {number}: expected @relation, @attribute or @data, not {line[:40]!r}."
            )
        attributes.append(_parse_attribute(number, line))
    raise ReadError("there is no @data line; is this an ARFF file?")


def _parse_attribute(number: int, line: str) -> _Attribute:
    match = _ATTRIBUTE.match(line)
    if match is None:
        raise ReadError(
            f"line {number}: an attribute needs a name and a type, such as "
            "'@attribute height numeric'."
        )
    name, type_ = _unquote(match), match.group(4).strip()
    if type_.startswith("{"):
        if not type_.endswith("}"):
            raise ReadError(f"line {number}: the categories of {name!r} do not end with '}}'.")
        categories = tuple(_split_values(number, type_[1:-1]))
        if len(set(categories)) < len(categories):
            raise ReadError(f"line {number}: attribute {name!r} declares a category twice.")
        return _Attribute(name, categories)
    kind = type_.split()[0].lower()
    if kind in _NUMBER_TYPES:
        return _Attribute(name, None)
    if kind in _TEXT_TYPES:
        return _Attribute(name, ())
    raise ReadError(
        f"line {number}: attribute {name!r} has type {kind!r}; supported are numeric, nominal, "
        "string and date."
    )


def _split_values(number: int, text: str) -> list[str]:
    """Split comma-separated values, quoted or not."""
    if "'" not in text and '"' not in text and "{" not in text:
        return [token.strip() for token in text.split(",")]
    tokens, at = [], 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ReadError(f"line {number}: cannot parse the value at {text[at : at + 20]!r}.")
        tokens.append(_unquote(match))
        at = match.end()
        if at >= len(text):
            return tokens
        at += 1


def _read_dense(attributes: list[_Attribute], rows: Iterator[tuple[int, str]]) -> Table:
    names = tuple(attribute.name for attribute in attributes)
    is_text = [attribute.categories == () for attribute in attributes]
    chunks: list[list] = [[] for _ in attributes]
    while chunk := list(islice(rows, CHUNK_ROWS)):
        numbers = [number for number, _ in chunk]
        tokens = [_parse_dense_row(number, line, len(attributes)) for number, line in chunk]
        for i, cells in enumerate(zip(*tokens, strict=True)):
            chunks[i].append(
                parse_texts(cells) if is_text[i] else _encode(attributes[i], cells, numbers)
            )
    table = build_table(names, chunks, is_text)
    return Table(names, table.values, {**table.categories, **_get_nominal_categories(attributes)})


def _get_nominal_categories(attributes: list[_Attribute]) -> dict[str, tuple[str, ...]]:
    """Return categories by name. ``{0,1}``, the usual type of labels and words, stays numeric."""
    return {
        attribute.name: attribute.categories
        for attribute in attributes
        if attribute.categories and attribute.categories != ("0", "1")
    }


def _parse_dense_row(number: int, line: str, width: int) -> list[str]:
    if line.startswith("{"):
        raise ReadError(f"line {number} is sparse, but the rows before it are dense.")
    # Weka writes the weight of a row after its last value.
    line = re.sub(r",\s*\{[^{}]*\}\s*$", "", line)
    tokens = _split_values(number, line)
    if len(tokens) != width:
        raise ReadError(
            f"line {number} has {len(tokens)} values, but there are {width} attributes."
        )
    return tokens


def _encode(attribute: _Attribute, cells: Sequence[str], line_numbers: Sequence[int]) -> np.ndarray:
    """Return cells of a numeric or nominal attribute as float64; ``?`` is NaN."""
    if attribute.categories is None:
        numbers = parse_numbers(cells)
        if numbers is not None:
            return numbers
        bad = next(i for i, cell in enumerate(cells) if parse_numbers([cell]) is None)
        raise ReadError(
            f"line {line_numbers[bad]}: attribute {attribute.name!r} is numeric, but its value is "
            f"{cells[bad]!r}."
        )
    code: dict[str, float] = {category: float(i) for i, category in enumerate(attribute.categories)}
    code.setdefault("?", np.nan)
    try:
        return np.array([code[cell] for cell in cells], dtype=np.float64)
    except KeyError as error:
        bad = next(i for i, cell in enumerate(cells) if cell not in code)
        raise ReadError(
            f"line {line_numbers[bad]}: {cells[bad]!r} is not a declared category of attribute "
            f"{attribute.name!r}."
        ) from error


def _read_sparse(attributes: list[_Attribute], rows: Iterator[tuple[int, str]]) -> Table:
    """Read rows ``{index value, ...}``; an omitted value is 0, or the first nominal category."""
    for attribute in attributes:
        if attribute.categories == ():
            raise ReadError(
                f"attribute {attribute.name!r} is text, which sparse ARFF files cannot have."
            )
    indices: list[int] = []
    cells: list[str] = []
    line_numbers: list[int] = []
    indptr = [0]
    for number, line in rows:
        row_indices, row_cells = _parse_sparse_row(number, line, len(attributes))
        indices.extend(row_indices)
        cells.extend(row_cells)
        line_numbers.extend([number] * len(row_indices))
        indptr.append(len(indices))
    data = np.empty(len(cells), dtype=np.float64)
    by_attribute = np.argsort(indices, kind="stable") if indices else np.empty(0, dtype=np.int64)
    bounds = np.searchsorted(np.array(indices)[by_attribute], np.arange(len(attributes) + 1))
    for i, attribute in enumerate(attributes):
        at = by_attribute[bounds[i] : bounds[i + 1]]
        if at.size:
            data[at] = _encode(attribute, [cells[j] for j in at], [line_numbers[j] for j in at])
    values = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, len(attributes)))
    values.eliminate_zeros()
    values.sort_indices()
    return Table(
        tuple(attribute.name for attribute in attributes),
        values,
        _get_nominal_categories(attributes),
    )


def _parse_sparse_row(number: int, line: str, width: int) -> tuple[list[int], list[str]]:
    match = re.match(r"\{(.*)\}\s*(?:,\s*\{[^{}]*\}\s*)?$", line)
    if match is None:
        raise ReadError(f"line {number}: not a sparse row, such as '{{0 1.5, 7 2}}'.")
    index: list[int] = []
    cells: list[str] = []
    quoted = "'" in line or '"' in line
    for pair in _PAIR.findall(match.group(1)) if quoted else match.group(1).split(","):
        if not pair.strip():
            continue
        position, _, cell = pair.strip().replace("\t", " ").partition(" ")
        if not position.isdigit() or not cell.strip():
            raise ReadError(f"line {number}: {pair.strip()!r} is not an index and a value.")
        if int(position) >= width:
            raise ReadError(
                f"line {number}: there is no attribute {position}; the last is {width - 1}."
            )
        index.append(int(position))
        cells.extend(_split_values(number, cell.strip()))
    if len(set(index)) < len(index):
        raise ReadError(f"line {number} gives the same attribute twice.")
    return index, cells
