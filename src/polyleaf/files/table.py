"""`Table`: named columns of a file; text cells as numbers, categories and missing values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from polyleaf.files.io import ReadError

MISSING_VALUES = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None"})
"""Cells of a text file that stand for a missing value."""

CHUNK_ROWS = 32768
"""Rows of a text file that are held as Python strings at a time, of some 50 bytes each."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    names : tuple of str
        Unique column names.
    values : ndarray of shape (n_rows, n_columns), float64, or csr_matrix of that shape and dtype
        Numbers; in a categorical column indices of `categories`. NaN: missing.
    categories : dict of str to tuple of str
        Categories of the categorical columns.
    targets : tuple of str
        Columns that the file marks as targets, as LIBSVM files do; empty for other formats.
    unsupported : dict of str to str
        Columns that are neither numbers nor text -> their type. They cannot be read.
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
        """Return the columns `names`, in this order.

        A column that a sparse table lacks is all zero, since LIBSVM files do not list features
        that never occur.

        Raises
        ------
        ReadError
            If a dense table lacks one of the columns, or its type is not supported.
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
        """Raise a `ReadError` if one of these columns is of a type that is not supported."""
        for name in names:
            if name in self.unsupported:
                raise ReadError(
                    f"Column {name!r} has type {self.unsupported[name]}, neither numbers nor text; "
                    "drop or convert it."
                )

    def take_rows(self, index: np.ndarray) -> Table:
        """Return the rows `index`, int64 row numbers or a bool mask."""
        return replace(self, values=self.values[index])

    def column(self, name: str) -> np.ndarray:
        """Return a column as a dense float64 array of shape (n_rows,)."""
        values = self.select([name]).values
        return (values.toarray() if isinstance(values, sp.csr_matrix) else values).ravel()

    def convert_to_categorical(self, names: Iterable[str]) -> Table:
        """Return the table with the columns `names` as categories, one per distinct number.

        Raises
        ------
        ReadError
            If the table is sparse.
        """
        chosen = [name for name in names if name not in self.categories]
        if not chosen:
            return self
        if self.is_sparse:
            raise ReadError(
                "Numeric columns of a sparse file cannot be categorical; convert the file to CSV."
            )
        values = self.values.copy()
        categories = dict(self.categories)
        for name in chosen:
            numbers = self.column(name)
            known = ~np.isnan(numbers)
            distinct, codes = np.unique(numbers[known], return_inverse=True)
            values[known, self.names.index(name)] = codes
            categories[name] = tuple(f"{number:.15g}" for number in distinct)
        return replace(self, values=values, categories=categories)


def abbreviate(names: Sequence[str], max_names: int = 8) -> str:
    """Join the first names, and add their number if there are more."""
    suffix = f", ... ({len(names)} in total)" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + suffix


def parse_numbers(cells: Sequence[str]) -> np.ndarray | None:
    """Return cells as float64, NaN where missing; None if a cell is text."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        pass
    try:
        return np.array(
            [np.nan if cell.strip() in MISSING_VALUES else float(cell) for cell in cells]
        )
    except ValueError:
        return None


def encode_categories(texts: Sequence[str | None]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return texts (None: missing) as float64 codes (NaN: missing), and their sorted categories."""
    categories = tuple(sorted({text for text in texts if text is not None}))
    code = {text: i for i, text in enumerate(categories)}
    codes = [np.nan if text is None else code[text] for text in texts]
    return np.array(codes, dtype=np.float64), categories


def parse_texts(cells: Iterable[str]) -> list[str | None]:
    """Strip cells; None where missing."""
    return [None if cell.strip() in MISSING_VALUES else cell.strip() for cell in cells]


def build_table(names: tuple[str, ...], chunks: list[list], is_text: list[bool]) -> Table:
    """Build a table from columns in chunks: float64 arrays, or lists of texts where `is_text`."""
    n_rows = sum(map(len, chunks[0]))
    values = np.empty((n_rows, len(names)), dtype=np.float64, order="F")
    categories = {}
    for i, name in enumerate(names):
        if is_text[i]:
            texts = [text for chunk in chunks[i] for text in chunk]
            values[:, i], categories[name] = encode_categories(texts)
        elif n_rows:
            values[:, i] = np.concatenate(chunks[i])
        chunks[i] = []
    return Table(names, values, categories)
