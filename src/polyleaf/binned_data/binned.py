"""`Codes`: the bin codes of a table in memory, in a file (`MemmapCodes`), or on a GPU.

Memory limits of data sets and trainings decide which arrays are kept in files.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

import polyleaf._core as _core
from polyleaf.binned_data.random_rows import hash64

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)

# Bins may take one part in so many of the limit while the training is not known.
_BIN_PARTS = 2
# Bytes of a cell in a training: codes, packed words, and two copies that move with the rows.
_TRAINING_BYTES = 4


def parse_size(size: int | str) -> int:
    """Return a size in bytes, given as a number or as text like "4 GiB" or "4000 MB".

    Raises a ValueError if it is not a positive size.
    """
    n_bytes = size if isinstance(size, int) and not isinstance(size, bool) else 0
    if isinstance(size, str) and (match := _SIZE.fullmatch(size)) is not None:
        number, prefix, is_binary = match.groups()
        n_bytes = int(float(number) * (_BINARY_UNITS if is_binary else _UNITS)[prefix.lower()])
    if n_bytes < 1:
        raise ValueError(
            f"memory_limit={size!r} is not a size: use bytes, at least 1, or a number with a unit "
            'such as "4 GiB".'
        )
    return n_bytes


@dataclass(frozen=True)
class MemoryBudget:
    """Memory limit of a data set and its training."""

    limit: int | None = None  # bytes of memory; None: no limit
    folder: str | None = None  # folder of files for what exceeds the limit; None: no files

    @staticmethod
    def from_params(
        memory_limit: int | str | None, cache_dir: str | os.PathLike[str] | None
    ) -> MemoryBudget:
        """Make a budget from parameters; the default folder is that of temporary files."""
        folder = None if cache_dir is None else os.fspath(cache_dir)
        if memory_limit is None:
            return MemoryBudget(None, folder)
        limit = parse_size(memory_limit)
        return MemoryBudget(limit, tempfile.gettempdir() if folder is None else folder)

    def choose_bin_folder(self, n_rows: int, n_columns: int) -> str | None:
        """Return the folder of the bins while the training is not known; None: in memory."""
        if self.limit is None:
            return self.folder
        fits = _TRAINING_BYTES * n_rows * n_columns <= self.limit // _BIN_PARTS
        return None if fits else self.folder


def create_memmap(shape: tuple[int, ...], dtype: DTypeLike, folder: str) -> np.ndarray:
    """Create an uninitialised array in a new file, which is deleted with its last reference.

    The file has no name if the system supports that. Its space is allocated at once, so that a full
    disk raises here rather than at a later write. Raises an OSError if the folder does not exist or
    has too little space.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="polyleaf-") as file:
            can_allocate = hasattr(os, "posix_fallocate")
            if can_allocate:
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+" if can_allocate else "w+", shape=shape)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"The folder {folder!r} cannot hold a file of {size / 2**30:.1f} GiB: {reason}.",
        ) from error


_BLOCK_ROWS = 65_536
_MIN_HUGE_PAGE_BYTES = 1 << 22  # NumPy requests huge pages for arrays of this size


@dataclass(frozen=True)
class SparseCodes:
    """Codes of m features in CSC format; rows that a column does not store hold its common code."""

    features: NDArray[np.int32]  # (m,), indices of the features, ascending
    common: NDArray[np.uint8]  # (m,), codes of the rows that are not stored
    begin: NDArray[np.int64]  # (m + 1,), start of each column
    rows: NDArray[np.int32]  # (nnz,), rows, ascending within a column
    codes: NDArray[np.uint8]  # (nnz,), their codes


@dataclass(frozen=True)
class Codes:
    """Codes of all features of a table."""

    # shape of the table
    n_rows: int
    n_features: int
    # (n_features - m, n_rows), codes of the features that are not sparse, in order
    dense: NDArray[np.uint8]
    sparse: SparseCodes | None = None  # codes of the other features

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        arrays = () if self.sparse is None else vars(self.sparse).values()
        return self.dense.nbytes + sum(array.nbytes for array in arrays)

    def array(self) -> NDArray[np.uint8]:
        """Return all codes, shape (n_features, n_rows); ``dense`` itself if nothing is sparse.

        Raises a MemoryError if they do not fit in memory.
        """
        if self.sparse is None:
            return self.dense
        codes, sparse = empty_codes(self.n_features, self.n_rows), self.sparse
        codes[self.dense_features()] = self.dense
        codes[sparse.features] = sparse.common[:, None]
        codes[np.repeat(sparse.features, np.diff(sparse.begin)), sparse.rows] = sparse.codes
        return codes

    def iter_columns(self, features: Iterable[int]) -> Iterator[NDArray[np.uint8]]:
        """Yield the codes (n_rows,) of some features."""
        sparse = self.sparse
        row = {feature: i for i, feature in enumerate(self.dense_features().tolist())}
        for feature in features:
            if feature in row:
                yield self.dense[row[feature]]
                continue
            assert sparse is not None
            i = int(np.searchsorted(sparse.features, feature))
            codes = np.full(self.n_rows, sparse.common[i])
            stored = slice(sparse.begin[i], sparse.begin[i + 1])
            codes[sparse.rows[stored]] = sparse.codes[stored]
            yield codes

    def dense_features(self) -> NDArray[np.int64]:
        """Return the features of the rows of ``dense``."""
        is_dense = np.ones(self.n_features, bool)
        if self.sparse is not None:
            is_dense[self.sparse.features] = False
        return np.flatnonzero(is_dense)

    def replace_columns(
        self, features: NDArray[np.int64], codes: NDArray[np.uint8], n_features: int
    ) -> Codes:
        """Return these codes with other columns, and with new ones from ``self.n_features`` on.

        `features` (m,): ascending indices of dense columns.
        """
        n_sparse = 0 if self.sparse is None else len(self.sparse.features)
        dense = empty_codes(n_features - n_sparse, self.n_rows)
        dense[: len(self.dense)] = self.dense
        result = Codes(self.n_rows, n_features, dense, self.sparse)
        dense[np.searchsorted(result.dense_features(), features)] = codes
        return result

    def rows(self, rows: NDArray[np.int64]) -> Codes:
        """Return the codes of some rows, ascending."""
        dense = np.ascontiguousarray(self.dense[:, rows])
        if self.sparse is None:
            return Codes(len(rows), self.n_features, dense)
        new_row = np.full(self.n_rows, -1, np.int32)
        new_row[rows] = np.arange(len(rows), dtype=np.int32)
        old = self.sparse
        kept = new_row[old.rows] >= 0
        begin = np.concatenate([[0], np.cumsum(kept)])[old.begin]
        stored = new_row[old.rows[kept]], old.codes[kept]
        sparse = SparseCodes(old.features, old.common, begin, *stored)
        return Codes(len(rows), self.n_features, dense, sparse)

    @staticmethod
    def concatenate(parts: Sequence[Codes]) -> Codes:
        """Concatenate the rows of tables that have the same sparse columns."""
        n_rows, n_features = sum(part.n_rows for part in parts), parts[0].n_features
        dense = np.concatenate([part.dense for part in parts], axis=1)
        blocks = [part.sparse for part in parts if part.sparse is not None]
        if not blocks:
            return Codes(n_rows, n_features, dense)
        sizes = [np.diff(block.begin) for block in blocks]
        column = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes])
        order = np.argsort(column, kind="stable")  # rows stay ascending within a column
        first = np.cumsum([0, *(part.n_rows for part in parts[:-1])])
        rows = [block.rows + np.int32(row) for block, row in zip(blocks, first, strict=True)]
        begin = np.cumsum([0, *np.sum(sizes, axis=0)])
        stored = np.concatenate(rows)[order], np.concatenate([b.codes for b in blocks])[order]
        sparse = SparseCodes(blocks[0].features, blocks[0].common, begin, *stored)
        return Codes(n_rows, n_features, dense, sparse)

    def hash_rows(self) -> NDArray[np.uint64]:
        """Return numbers (n_rows,) that are equal for rows of equal codes."""
        hashes = np.zeros(self.n_rows, np.uint64)
        for feature, codes in zip(self.dense_features().tolist(), self.dense, strict=True):
            hashes += hash64(np.arange(256) + 256 * feature)[codes]
        if self.sparse is not None:
            old = self.sparse
            feature = np.repeat(np.arange(len(old.features)), np.diff(old.begin))
            first = 256 * old.features[feature].astype(np.int64)
            stored, common = hash64(first + old.codes), hash64(first + old.common[feature])
            np.add.at(hashes, old.rows, stored - common)
        return hashes

    def count_bins(self, n_bins: NDArray[np.uint16], n_threads: int = 1) -> NDArray[np.int64]:
        """Return the rows in each bin of a column, and without a value, one column after another.

        `n_bins` (n_features,): bins of each column. Returns shape (sum of n_bins + 1,).
        """
        if self.sparse is None:
            return _core.count_codes(self.dense, n_bins, n_threads)
        last = n_bins.astype(np.int64)
        begin = np.cumsum(np.append(0, last + 1))
        counts = np.zeros(begin[-1], np.int64)
        is_dense = np.ones(self.n_features, bool)
        is_dense[self.sparse.features] = False
        dense_counts = _core.count_codes(self.dense, n_bins[is_dense], n_threads)
        counts[np.repeat(is_dense, last + 1)] = dense_counts
        sparse, sizes = self.sparse, np.diff(self.sparse.begin)
        first, missing = begin[sparse.features], last[sparse.features]
        counts[first + np.minimum(sparse.common, missing)] = self.n_rows - sizes
        stored = np.minimum(sparse.codes, np.repeat(missing, sizes)) + np.repeat(first, sizes)
        return counts + np.bincount(stored, minlength=len(counts))

    def write(self, first: int, codes: NDArray[np.uint8], n_threads: int) -> None:
        """Set the codes (n_features, m) of rows from ``first`` on; no sparse columns."""
        self.dense[:, first : first + codes.shape[1]] = codes

    def to_memmap(
        self,
        n_bins: NDArray[np.uint16],
        is_categorical: NDArray[np.bool_],
        folder: str,
        n_threads: int,
    ) -> MemmapCodes:
        """Copy the codes to a file; there are no sparse columns."""
        codes = MemmapCodes(self.n_rows, n_bins, is_categorical, folder)
        for first in range(0, self.n_rows, _BLOCK_ROWS):
            codes.write(first, self.dense[:, first : first + _BLOCK_ROWS], n_threads)
        return codes

    def bins(
        self, n_bins: NDArray[np.uint16], is_categorical: NDArray[np.bool_], n_threads: int
    ) -> _core.Bins:
        """Return the codes as the grower reads them, `_core.Bins`."""
        sparse = None if self.sparse is None else tuple(vars(self.sparse).values())
        return _core.Bins(self.dense, n_bins, is_categorical, n_threads, sparse)


class MemmapCodes:
    """Codes of all features in a file, as the grower reads them: one byte per cell.

    Training reads the file; `array` writes the codes by feature to another file.

    `n_bins` (n_features,): bins of each feature. `folder`: folder of the files.
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
        self._words = create_memmap((_core.Bins.n_words(n_rows, n_bins),), np.uint64, folder)
        self._bins = _core.Bins.at(self._words, n_rows, n_bins, is_categorical)

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return self._words.nbytes

    def write(self, first: int, codes: NDArray[np.uint8], n_threads: int) -> None:
        """Set the codes (n_features, m) of rows ``first``, ``first + 1``, ..., each row once."""
        self._bins.pack(np.ascontiguousarray(codes), first, n_threads)

    def array(self) -> NDArray[np.uint8]:
        """Return all codes, shape (n_features, n_rows)."""
        codes = create_memmap((self.n_features, self.n_rows), np.uint8, self._folder)
        for first, block in self._iter_blocks():
            codes[:, first : first + block.shape[1]] = block
        return codes

    def _iter_blocks(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the first row and the codes of blocks of rows."""
        for first in range(0, self.n_rows, _BLOCK_ROWS):
            n_rows = min(_BLOCK_ROWS, self.n_rows - first)
            block = np.empty((self.n_features, n_rows), np.uint8)
            self._bins.unpack(block, first, 1)
            yield first, block

    def count_bins(self, n_bins: NDArray[np.uint16], n_threads: int = 1) -> NDArray[np.int64]:
        """See `Codes.count_bins`."""
        counts = np.zeros(int(n_bins.sum()) + len(n_bins), np.int64)
        for _, block in self._iter_blocks():
            counts += _core.count_codes(block, n_bins, n_threads)
        return counts

    def rows(self, rows: NDArray[np.int64]) -> MemmapCodes:
        """Copy some rows to another file."""
        other = MemmapCodes(len(rows), self._n_bins, self._is_categorical, self._folder)
        codes = self.array()
        for first in range(0, len(rows), _BLOCK_ROWS):
            other.write(first, codes[:, rows[first : first + _BLOCK_ROWS]], 1)
        return other

    def bins(
        self, n_bins: NDArray[np.uint16], is_categorical: NDArray[np.bool_], n_threads: int
    ) -> _core.Bins:
        """Return the codes as the grower reads them; the bins are those of the constructor."""
        return self._bins

    def __reduce__(self) -> tuple[object, ...]:
        return Codes, (self.n_rows, self.n_features, np.array(self.array()))


class DeviceCodes:
    """Codes of all features on a GPU, as training there reads them."""

    sparse = None

    def __init__(self, bins: _core.DeviceBins) -> None:
        self.device_bins, self.n_rows, self.n_features = bins, bins.n_rows, bins.n_features

    @property
    def nbytes(self) -> int:
        """GPU memory in bytes."""
        return self.n_rows * self.n_features

    def array(self) -> NDArray[np.uint8]:
        """Copy all codes to the CPU, shape (n_features, n_rows)."""
        return self.device_bins.codes()

    def count_bins(self, n_bins: NDArray[np.uint16], n_threads: int = 1) -> NDArray[np.int64]:
        """See `Codes.count_bins`."""
        return _core.count_codes(self.array(), n_bins, n_threads)

    def rows(self, rows: NDArray[np.int64]) -> Codes:
        """Copy some rows to the CPU."""
        return Codes(len(rows), self.n_features, np.ascontiguousarray(self.array()[:, rows]))

    def bins(
        self, n_bins: NDArray[np.uint16], is_categorical: NDArray[np.bool_], n_threads: int
    ) -> _core.Bins:
        """Copy the codes to the CPU, as a grower there reads them."""
        return _core.Bins(self.array(), n_bins, is_categorical, n_threads, None)

    def __reduce__(self) -> tuple[object, ...]:
        return Codes, (self.n_rows, self.n_features, self.array())


def empty_codes(n_features: int, n_rows: int, *, partly_used: bool = False) -> NDArray[np.uint8]:
    """Allocate codes, shape (n_features, n_rows), with a clear `MemoryError`.

    With `partly_used`, features that are never written take no memory. That needs small pages:
    NumPy requests huge ones, which are cleared as a whole.
    """
    size = n_features * n_rows
    try:
        if partly_used and size > _MIN_HUGE_PAGE_BYTES:
            pages = mmap.mmap(-1, size)
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                pages.madvise(mmap.MADV_NOHUGEPAGE)
            return np.frombuffer(pages, dtype=np.uint8).reshape(n_features, n_rows)
        return np.empty((n_features, n_rows), dtype=np.uint8)
    except (MemoryError, OSError, OverflowError, ValueError):
        raise MemoryError(
            f"The codes of {n_rows} rows x {n_features} features need {size / 2**30:.1f} GiB, more "
            "than can be allocated: use fewer rows or features."
        ) from None
