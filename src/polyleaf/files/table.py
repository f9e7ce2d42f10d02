"""`Table`: named columns read from a file, and what the cells of text files mean (number, category, missing).

Knows no file format (`readers`, `arff`) and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from polyleaf.files.io import ReadError

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None"})
"""Cells of a text file that mean "no value"."""

CHUNK_ROWS = 32768
"""Rows of a text file held as Python strings at a time: bounds memory, a string costs about 50 bytes."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    names : tuple of str
        Column names, all different.
    values : ndarray of shape (n_rows, n_columns), float64, or csr_matrix of the same shape and dtype
        Numbers; for a categorical column the position in `categories`. NaN: missing.
    categories : dict of str to tuple of str
        Categories of those columns that hold categories.
    targets : tuple of str
        The columns that the file itself marks as targets (LIBSVM does); empty where it marks none.
    unsupported : dict of str to str
        Columns that are neither numbers nor text, and what they hold: they may be left out, never read.
    """

    names: tuple[str, ...]
    values: np.ndarray | sp.csr_matrix
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    unsupported: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise ReadError(f"Two columns have the same name {name!r}; rename one of them.")
            seen.add(name)

    @property
    def n_rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.values)

    def select(self, names: Sequence[str]) -> Table:
        """The columns `names`, in this order.

        A column that a sparse table lacks is all zero: LIBSVM files do not list features that never occur.

        Raises
        ------
        ReadError
            When a dense table lacks one of the columns, or has not read it.
        """
        self.check_readable(names)
        position = {name: i for i, name in enumerate(self.names)}
        absent = [name for name in names if name not in position]
        if absent and not self.is_sparse:
            raise ReadError(
                f"The file has no column {abbreviate([repr(name) for name in absent])}; "
                f"its columns are {abbreviate(self.names)}."
            )
        index = [position.get(name, len(self.names)) for name in names]
        values = self.values
        if absent:
            values = sp.hstack([values, sp.csr_matrix((self.n_rows, 1))], format="csr")
        return Table(
            names=tuple(names),
            values=values[:, index],
            categories={name: self.categories[name] for name in names if name in self.categories},
            targets=tuple(name for name in self.targets if name in set(names)),
        )

    def check_readable(self, names: Iterable[str]) -> None:
        """A sentence about the first of these columns that was not read: ReadError."""
        for name in names:
            if name in self.unsupported:
                held = self.unsupported[name]
                raise ReadError(
                    f"Column {name!r} holds {held}, neither numbers nor text; drop or convert it."
                )

    def rows(self, index: np.ndarray) -> Table:
        """The rows `index` (int64 row numbers, or a bool mask)."""
        return replace(self, values=self.values[index])

    def column(self, name: str) -> np.ndarray:
        """One column as a dense float64 vector of shape (n_rows,)."""
        values = self.select([name]).values
        return (values.toarray() if isinstance(values, sp.csr_matrix) else values).ravel()

    def convert_to_categorical(self, names: Iterable[str]) -> Table:
        """The same table with the numeric columns `names` as categories, one for each distinct number.

        Raises
        ------
        ReadError
            For a sparse table.
        """
        chosen = [name for name in names if name not in self.categories]
        if not chosen:
            return self
        if self.is_sparse:
            raise ReadError("Number columns of a sparse file cannot be made categorical.")
        values = self.values.copy()
        categories = dict(self.categories)
        for name in chosen:
            numbers = self.column(name)
            known = ~np.isnan(numbers)
            distinct, codes = np.unique(numbers[known], return_inverse=True)
            values[known, self.names.index(name)] = codes
            categories[name] = tuple(f"{number:.15g}" for number in distinct)
        return replace(self, values=values, categories=categories)


def abbreviate(names: Sequence[str], most: int = 8) -> str:
    """The first names in one phrase, and how many there are."""
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def parse_numbers(cells: Sequence[str]) -> np.ndarray | None:
    """Cells as float64, NaN where missing; None when a cell is neither a number nor missing."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        pass
    try:
        return np.array([np.nan if cell.strip() in MISSING else float(cell) for cell in cells])
    except ValueError:
        return None


def encode_categories(texts: Sequence[str | None]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Texts (None: missing) as codes (float64, NaN: missing) and their categories in alphabetical order."""
    categories = tuple(sorted({text for text in texts if text is not None}))
    code = {text: i for i, text in enumerate(categories)}
    return np.array(
        [np.nan if text is None else code[text] for text in texts], dtype=np.float64
    ), categories


def parse_texts(cells: Iterable[str]) -> list[str | None]:
    """Cells without the spaces around them, None where missing."""
    return [None if cell.strip() in MISSING else cell.strip() for cell in cells]


def assemble(names: tuple[str, ...], chunks: list[list], is_text: list[bool]) -> Table:
    """A table from columns read chunk by chunk: float64 arrays, or lists of texts where `is_text`."""
    n_rows = sum(map(len, chunks[0]))
    values = np.empty((n_rows, len(names)), dtype=np.float64, order="F")
    categories = {}
    for i, name in enumerate(names):
        if is_text[i]:
            values[:, i], categories[name] = encode_categories(
                [text for chunk in chunks[i] for text in chunk]
            )
        elif n_rows:
            values[:, i] = np.concatenate(chunks[i])
        chunks[i] = []
    return Table(names, values, categories)
