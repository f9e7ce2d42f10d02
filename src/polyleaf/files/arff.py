"""ARFF files (Weka, Mulan, MEKA), dense and sparse -> `Table`.

`scipy.io.arff` reads neither sparse rows nor text attributes, hence a parser of our own; every error names
its line.
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
from polyleaf.files.table import CHUNK_ROWS, Table, assemble, parse_numbers, parse_texts

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
    """One column; `categories` is None for numbers, and () for texts, whose categories the data tells."""

    name: str
    categories: tuple[str, ...] | None


def read_arff(stream: TextIO) -> Table:
    """Read an open ARFF file.

    Nominal attributes come out as categories in their declared order, string and date attributes as
    categories in alphabetical order, ``?`` as missing.

    Raises
    ------
    ReadError
        When the file breaks the format; the message names the line.
    """
    attributes, useful = _parts(stream)
    first = next(useful, None)
    if first is None:
        raise ReadError("there is no row after @data.")
    rows = chain([first], useful)
    return (_sparse if first[1].startswith("{") else _dense)(attributes, rows)


def read_arff_cells(stream: TextIO, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The text of some columns of a dense file, None where a value is missing."""
    attributes, rows = _parts(stream)
    all_names = [attribute.name for attribute in attributes]
    places = [all_names.index(name) for name in names]
    cells = np.array(
        [
            [tokens[i] for i in places]
            for tokens in (_dense_row(*row, len(attributes)) for row in rows)
        ],
        dtype=object,
    )
    cells[cells == "?"] = None
    return dict(zip(names, cells.T, strict=True))


def _parts(stream: TextIO) -> tuple[list[_Attribute], Iterator[tuple[int, str]]]:
    """The attributes, and the lines after them, with their numbers."""
    lines = ((number, line.strip()) for number, line in enumerate(stream, 1))
    useful = ((number, line) for number, line in lines if line and not line.startswith("%"))
    return _header(useful), useful


def _unquote(match: re.Match) -> str:
    """Text of a match whose groups are '...', "..." and bare; quoted text has its escapes undone."""
    single, double, bare = match.groups()[:3]
    if bare is not None:
        return bare.strip()
    return re.sub(r"\\(.)", r"\1", single if single is not None else double)


def _header(lines: Iterator[tuple[int, str]]) -> list[_Attribute]:
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
                f"line {number}: @relation, @attribute or @data was expected, not {line[:40]!r}."
            )
        attributes.append(_attribute(number, line))
    raise ReadError("there is no @data line; is this an ARFF file?")


def _attribute(number: int, line: str) -> _Attribute:
    match = _ATTRIBUTE.match(line)
    if match is None:
        raise ReadError(
            f"line {number}: an attribute needs a name and a type, as in '@attribute height numeric'."
        )
    name, type_ = _unquote(match), match.group(4).strip()
    if type_.startswith("{"):
        if not type_.endswith("}"):
            raise ReadError(f"line {number}: the categories of {name!r} are not closed by '}}'.")
        categories = tuple(_tokens(number, type_[1:-1]))
        if len(set(categories)) < len(categories):
            raise ReadError(f"line {number}: attribute {name!r} declares a category twice.")
        return _Attribute(name, categories)
    kind = type_.split()[0].lower()
    if kind in _NUMBER_TYPES:
        return _Attribute(name, None)
    if kind in _TEXT_TYPES:
        return _Attribute(name, ())
    raise ReadError(
        f"line {number}: attribute {name!r} has type {kind!r}; numeric, nominal, string and date are read."
    )


def _tokens(number: int, text: str) -> list[str]:
    """Comma-separated tokens, quoted or bare."""
    if "'" not in text and '"' not in text and "{" not in text:
        return [token.strip() for token in text.split(",")]
    tokens, at = [], 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ReadError(f"line {number}: a value cannot be read at {text[at : at + 20]!r}.")
        tokens.append(_unquote(match))
        at = match.end()
        if at >= len(text):
            return tokens
        at += 1


def _dense(attributes: list[_Attribute], rows: Iterator[tuple[int, str]]) -> Table:
    names = tuple(attribute.name for attribute in attributes)
    is_text = [attribute.categories == () for attribute in attributes]
    chunks: list[list] = [[] for _ in attributes]
    while chunk := list(islice(rows, CHUNK_ROWS)):
        numbers = [number for number, _ in chunk]
        tokens = [_dense_row(number, line, len(attributes)) for number, line in chunk]
        for i, cells in enumerate(zip(*tokens, strict=True)):
            chunks[i].append(
                parse_texts(cells) if is_text[i] else _codes(attributes[i], cells, numbers)
            )
    table = assemble(names, chunks, is_text)
    return Table(names, table.values, {**table.categories, **_declared(attributes)})


def _declared(attributes: list[_Attribute]) -> dict[str, tuple[str, ...]]:
    """Categories by name. ``{0,1}``, the usual way to write labels and words, is left to be numbers."""
    return {
        attribute.name: attribute.categories
        for attribute in attributes
        if attribute.categories and attribute.categories != ("0", "1")
    }


def _dense_row(number: int, line: str, width: int) -> list[str]:
    if line.startswith("{"):
        raise ReadError(f"line {number} is sparse, but the rows before it are dense.")
    line = re.sub(
        r",\s*\{[^{}]*\}\s*$", "", line
    )  # a weight of the row, which Weka writes after its last value
    tokens = _tokens(number, line)
    if len(tokens) != width:
        raise ReadError(
            f"line {number} has {len(tokens)} values, but there are {width} attributes."
        )
    return tokens


def _codes(attribute: _Attribute, cells: Sequence[str], line_numbers: Sequence[int]) -> np.ndarray:
    """Cells of a numeric or nominal attribute as float64; ``?`` is NaN."""
    if attribute.categories is None:
        numbers = parse_numbers(cells)
        if numbers is not None:
            return numbers
        bad = next(i for i, cell in enumerate(cells) if parse_numbers([cell]) is None)
        raise ReadError(
            f"line {line_numbers[bad]}: {attribute.name!r} is numeric, but the value is {cells[bad]!r}."
        )
    code: dict[str, float] = {category: float(i) for i, category in enumerate(attribute.categories)}
    code.setdefault("?", np.nan)
    try:
        return np.array([code[cell] for cell in cells], dtype=np.float64)
    except KeyError as error:
        bad = next(i for i, cell in enumerate(cells) if cell not in code)
        raise ReadError(
            f"line {line_numbers[bad]}: {cells[bad]!r} is no declared category of {attribute.name!r}."
        ) from error


def _sparse(attributes: list[_Attribute], rows: Iterator[tuple[int, str]]) -> Table:
    """Rows ``{index value, ...}``; a value left out is 0, and for a nominal attribute its first category."""
    for attribute in attributes:
        if attribute.categories == ():
            raise ReadError(
                f"attribute {attribute.name!r} is text, which sparse ARFF files cannot hold."
            )
    indices: list[int] = []
    cells: list[str] = []
    line_numbers: list[int] = []
    indptr = [0]
    for number, line in rows:
        in_row, cells_of_row = _sparse_row(number, line, len(attributes))
        indices.extend(in_row)
        cells.extend(cells_of_row)
        line_numbers.extend([number] * len(in_row))
        indptr.append(len(indices))
    data = np.empty(len(cells), dtype=np.float64)
    by_attribute = np.argsort(indices, kind="stable") if indices else np.empty(0, dtype=np.int64)
    bounds = np.searchsorted(np.array(indices)[by_attribute], np.arange(len(attributes) + 1))
    for i, attribute in enumerate(attributes):
        at = by_attribute[bounds[i] : bounds[i + 1]]
        if at.size:
            data[at] = _codes(attribute, [cells[j] for j in at], [line_numbers[j] for j in at])
    values = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, len(attributes)))
    values.eliminate_zeros()
    values.sort_indices()
    return Table(tuple(attribute.name for attribute in attributes), values, _declared(attributes))


def _sparse_row(number: int, line: str, width: int) -> tuple[list[int], list[str]]:
    match = re.match(r"\{(.*)\}\s*(?:,\s*\{[^{}]*\}\s*)?$", line)
    if match is None:
        raise ReadError(f"line {number}: a sparse row looks like '{{0 1.5, 7 2}}'.")
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
        cells.extend(_tokens(number, cell.strip()))
    if len(set(index)) < len(index):
        raise ReadError(f"line {number} gives the same attribute twice.")
    return index, cells
