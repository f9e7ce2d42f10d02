"""`Codes`: the codes of a table as training keeps them (what a code means: docs/development/arithmetic.md.

Owns: which features are held as columns of codes, and which as the cells that differ from what most rows
hold; codes in a file (`MemmapCodes`), and on a device (`DeviceCodes`). Must not know: thresholds, trees.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.data.memmap import mapped

_ROWS_AT_A_TIME = 65_536
_HUGE_PAGES_FROM = 1 << 22  # bytes of an array that NumPy asks huge pages for


@dataclass(frozen=True)
class Cells:
    """Codes of m features as compressed columns; rows that a column does not name hold its common code.

    Attributes
    ----------
    features : ndarray of int32, shape (m,)
        Ascending.
    common : ndarray of uint8, shape (m,)
    begin : ndarray of int64, shape (m + 1,)
    rows : ndarray of int32, shape (nnz,)
        Ascending within a column.
    codes : ndarray of uint8, shape (nnz,)
    """

    features: NDArray[np.int32]
    common: NDArray[np.uint8]
    begin: NDArray[np.int64]
    rows: NDArray[np.int32]
    codes: NDArray[np.uint8]


@dataclass(frozen=True)
class Codes:
    """Codes of all features of a table.

    Attributes
    ----------
    n_rows, n_features : int
    dense : ndarray of uint8, shape (n_features - m, n_rows)
        Of the features that are not among ``sparse``, in order.
    sparse : Cells, or None where m is 0
    """

    n_rows: int
    n_features: int
    dense: NDArray[np.uint8]
    sparse: Cells | None = None

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        sparse = self.sparse
        return self.dense.nbytes + (
            0 if sparse is None else sum(a.nbytes for a in vars(sparse).values())
        )

    def array(self) -> NDArray[np.uint8]:
        """All codes, shape (n_features, n_rows); ``dense`` itself where nothing is sparse.

        Raises
        ------
        MemoryError
            Where they do not fit in memory.
        """
        if self.sparse is None:
            return self.dense
        codes, sparse = empty_codes(self.n_features, self.n_rows), self.sparse
        codes[self.dense_features()] = self.dense
        codes[sparse.features] = sparse.common[:, None]
        codes[np.repeat(sparse.features, np.diff(sparse.begin)), sparse.rows] = sparse.codes
        return codes

    def dense_features(self) -> NDArray[np.int64]:
        """The features of the rows of ``dense``."""
        is_dense = np.ones(self.n_features, bool)
        if self.sparse is not None:
            is_dense[self.sparse.features] = False
        return np.flatnonzero(is_dense)

    def with_columns(
        self, features: NDArray[np.int64], codes: NDArray[np.uint8], n_features: int
    ) -> Codes:
        """These codes with others for some features (m,), and for all from ``self.n_features`` on.

        Parameters
        ----------
        features : ndarray of int64, shape (m,)
            Ascending; none of them is held sparse.
        codes : ndarray of uint8, shape (m, n_rows)
        n_features : int
            Afterwards.
        """
        n_sparse = 0 if self.sparse is None else len(self.sparse.features)
        dense = empty_codes(n_features - n_sparse, self.n_rows)
        dense[: len(self.dense)] = self.dense
        after = Codes(self.n_rows, n_features, dense, self.sparse)
        dense[np.searchsorted(after.dense_features(), features)] = codes
        return after

    def rows(self, rows: NDArray[np.int64]) -> Codes:
        """The codes of some rows, in ascending order."""
        if self.sparse is None:
            return Codes(len(rows), self.n_features, np.ascontiguousarray(self.dense[:, rows]))
        place = np.full(self.n_rows, -1, np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        old = self.sparse
        kept = place[old.rows] >= 0
        begin = np.concatenate([[0], np.cumsum(kept)])[old.begin]
        cells = Cells(old.features, old.common, begin, place[old.rows[kept]], old.codes[kept])
        return Codes(len(rows), self.n_features, np.ascontiguousarray(self.dense[:, rows]), cells)

    def write(self, first: int, codes: NDArray[np.uint8], n_threads: int) -> None:
        """Set the codes (n_features, m) of rows ``first``, ``first + 1``, ...; nothing is sparse."""
        self.dense[:, first : first + codes.shape[1]] = codes

    def in_file(
        self,
        n_bins: NDArray[np.uint16],
        is_categorical: NDArray[np.bool_],
        folder: str,
        n_threads: int,
    ) -> MemmapCodes:
        """The same codes in a file; nothing is sparse."""
        codes = MemmapCodes(self.n_rows, n_bins, is_categorical, folder)
        for first in range(0, self.n_rows, _ROWS_AT_A_TIME):
            codes.write(first, self.dense[:, first : first + _ROWS_AT_A_TIME], n_threads)
        return codes

    def bins(
        self, n_bins: NDArray[np.uint16], is_categorical: NDArray[np.bool_], n_threads: int
    ) -> _core.Bins:
        """The codes as the grower reads them, `_core.Bins`."""
        sparse = None if self.sparse is None else tuple(vars(self.sparse).values())
        return _core.Bins(self.dense, n_bins, is_categorical, n_threads, sparse)


class MemmapCodes:
    """Codes of all features as the grower reads them, in a file: a byte for each cell.

    Training leaves them there. What wants codes by feature (`array`) gets them in a further file.

    Parameters
    ----------
    n_rows : int
    n_bins : ndarray of uint16, shape (n_features,)
    is_categorical : ndarray of bool, shape (n_features,)
    folder : str
        Of the files.
    """

    sparse = None

    def __init__(
        self,
        n_rows: int,
        n_bins: NDArray[np.uint16],
        is_categorical: NDArray[np.bool_],
        folder: str,
    ) -> None:
        self.n_rows, self.n_features, self._folder = n_rows, len(n_bins), folder
        self._n_bins, self._is_categorical = n_bins, is_categorical
        self._words = mapped((_core.Bins.n_words(n_rows, n_bins),), np.uint64, folder)
        self._bins = _core.Bins.at(self._words, n_rows, n_bins, is_categorical)

    @property
    def nbytes(self) -> int:
        """Of the file."""
        return self._words.nbytes

    def write(self, first: int, codes: NDArray[np.uint8], n_threads: int) -> None:
        """Set the codes (n_features, m) of rows ``first``, ``first + 1``, ..., each row once."""
        self._bins.pack(np.ascontiguousarray(codes), first, n_threads)

    def array(self) -> NDArray[np.uint8]:
        """All codes, shape (n_features, n_rows)."""
        codes = mapped((self.n_features, self.n_rows), np.uint8, self._folder)
        for first in range(0, self.n_rows, _ROWS_AT_A_TIME):
            last = min(first + _ROWS_AT_A_TIME, self.n_rows)
            block = np.empty((self.n_features, last - first), np.uint8)
            self._bins.unpack(block, first, 1)
            codes[:, first:last] = block
        return codes

    def rows(self, rows: NDArray[np.int64]) -> MemmapCodes:
        """Some of the rows, in a file of their own."""
        other, codes = (
            MemmapCodes(len(rows), self._n_bins, self._is_categorical, self._folder),
            self.array(),
        )
        for first in range(0, len(rows), _ROWS_AT_A_TIME):
            other.write(first, codes[:, rows[first : first + _ROWS_AT_A_TIME]], 1)
        return other

    def bins(
        self, n_bins: NDArray[np.uint16], is_categorical: NDArray[np.bool_], n_threads: int
    ) -> _core.Bins:
        """The codes as the grower reads them: one object, whose bins and kinds are those of the beginning."""
        return self._bins

    def __reduce__(self) -> tuple[Any, ...]:
        return Codes, (self.n_rows, self.n_features, np.array(self.array()))


class DeviceCodes:
    """Codes of all features on a device, as training there reads them.

    Parameters
    ----------
    bins : _core.DeviceBins
    """

    sparse = None

    def __init__(self, bins: _core.DeviceBins) -> None:
        self.on_device, self.n_rows, self.n_features = bins, bins.n_rows, bins.n_features

    @property
    def nbytes(self) -> int:
        """On the device."""
        return self.n_rows * self.n_features

    def array(self) -> NDArray[np.uint8]:
        """All codes, shape (n_features, n_rows), in memory of this machine."""
        return self.on_device.codes()

    def rows(self, rows: NDArray[np.int64]) -> Codes:
        """Some of the rows, in memory of this machine."""
        return Codes(len(rows), self.n_features, np.ascontiguousarray(self.array()[:, rows]))

    def bins(
        self, n_bins: NDArray[np.uint16], is_categorical: NDArray[np.bool_], n_threads: int
    ) -> _core.Bins:
        """The codes as a grower in memory of this machine reads them."""
        return _core.Bins(self.array(), n_bins, is_categorical, n_threads, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Codes, (self.n_rows, self.n_features, self.array())


def empty_codes(n_features: int, n_rows: int, *, few: bool = False) -> NDArray[np.uint8]:
    """Room for codes, shape (n_features, n_rows); a `MemoryError` that says how much where there is none.

    `few`: only some of the features' rows will be touched, and the others are to take no memory. That needs
    small pages: NumPy asks for huge ones, of which each is cleared as a whole.
    """
    size = n_features * n_rows
    try:
        if few and size > _HUGE_PAGES_FROM:
            pages = mmap.mmap(-1, size)
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                pages.madvise(mmap.MADV_NOHUGEPAGE)
            return np.frombuffer(pages, dtype=np.uint8).reshape(n_features, n_rows)
        return np.empty((n_features, n_rows), dtype=np.uint8)
    except (MemoryError, OSError, OverflowError, ValueError):
        raise MemoryError(
            f"The codes of {n_rows} rows x {n_features} features take {size / 2**30:.1f} GiB, "
            "more than can be allocated; use fewer rows or features."
        ) from None
