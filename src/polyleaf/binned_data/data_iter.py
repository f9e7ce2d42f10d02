"""Data that come in batches: the same bins and codes as those of one table.

A first pass summarises what bins depend on; a second pass writes codes. In between, only the
summary is in memory: the rows that thresholds are chosen from, categories, targets and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from polyleaf.binned_data.binned import (
    Codes,
    DeviceCodes,
    MemmapCodes,
    MemoryBudget,
    create_memmap,
    empty_codes,
)
from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.high_cardinality import Category, sum_category_weights
from polyleaf.binned_data.random_rows import hash_ids
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.row_data import ARGUMENTS, RowData
from polyleaf.user_data.feature_table import (
    CategoryColumn,
    DenseBlock,
    FeatureSpec,
    FeatureTable,
    SparseBlock,
    SparseRows,
    TextColumnSummary,
)
from polyleaf.user_data.features import check_text_columns, read_features
from polyleaf.user_data.frames import as_frame, concatenate_frames
from polyleaf.user_data.read_target import check_same_kind, check_same_rows
from polyleaf.user_data.validation import check_in_memory
from polyleaf.user_data.weights import (
    find_known_targets,
    mask_weights,
    quantise_weights,
    weight_known_targets,
)

_PRUNE_FACTOR = 1.25  # largest size of a sample before pruning, relative to its final size


class BinnedData(NamedTuple):
    """The contents of a data set."""

    mapper: BinMapper
    codes: Codes | DeviceCodes | MemmapCodes  # codes of all columns
    features: NDArray[np.float32] | None  # (n_columns, n_rows), raw values
    high_cardinality: list[CategoryColumn]  # features with more categories than fit in one byte
    # shape of X
    n_rows: int
    n_features: int
    rows: RowData = RowData()  # as given, concatenated


class Batch(NamedTuple):
    """Some rows: number of the batch, index of its first row, and its contents."""

    number: int
    first: int
    table: FeatureTable
    rows: RowData


@dataclass(frozen=True)
class BatchReader:
    """Batches that can be read repeatedly."""

    # batches X, (X, y), (X, y, weight) or (X, y, weight, qid)
    source: Iterable[object] | Callable[[], Iterable[object]]
    options: dict[str, object]  # options of `read_features` in the first pass
    n_threads: int

    def __post_init__(self) -> None:
        if not callable(self.source) and iter(self.source) is self.source:
            raise ValueError(
                "batches can be read only once, but they are read twice: pass a list, an object "
                "whose __iter__ starts again, or a function that returns a new iterator."
            )

    def iter_batches(self, reference: BinMapper | FeatureSpec | None) -> Iterator[Batch]:
        """Yield the batches of one pass, without empty ones."""
        first = 0
        options: dict[str, Any] = self.options if reference is None else {"reference": reference}
        batches = self.source() if callable(self.source) else self.source
        for number, batch in enumerate(batches):
            X, rows = _unpack_batch(batch, number)
            check_in_memory(X, f"X of batch {number}")
            if count_values(X) == 0:
                continue
            try:
                table = read_features(X, n_threads=self.n_threads, whole=False, **options)
                for name, values in rows.to_dict().items():
                    check_same_rows(table.n_rows, count_values(values), ARGUMENTS[name])
            except (ValueError, TypeError) as error:
                raise type(error)(f"Batch {number}: {error}") from error
            yield Batch(number, first, table, rows)
            first += table.n_rows


def read_batches(
    reader: BatchReader,
    mapper: BinMapper | None,
    new_mapper: BinMapper,
    keep_features: bool,
    memory: MemoryBudget,
) -> BinnedData:
    """Read batches in two passes.

    `new_mapper`: mapper to fit if `mapper` is None. `keep_features`: whether to keep the raw
    values. `memory`: where to keep codes and raw values.
    """
    if mapper is None:
        new_mapper.check_params()
    summary = _summarise(reader, mapper, new_mapper)
    if summary.n_rows == 0:
        raise ValueError("batches hold no rows.")
    if mapper is None and summary.needs_row_categories:
        summary = _summarise(
            reader, None, new_mapper, keeps_rows=True, reads_y=summary.has_known_targets
        )
    rows = concatenate_rows(summary.parts)
    if mapper is None:
        mapper = summary.fit(new_mapper, weight_known_targets(rows), reader.n_threads)
    folder = memory.choose_bin_folder(summary.n_rows, mapper.n_columns_)
    if folder is not None and mapper.high_cardinality_features_:
        name = _describe_feature(mapper.spec_, mapper.high_cardinality_features_[0])
        refuse("high_cardinality", "bins_on_disk", column=f"Column {name} of X")
    codes, features, high_cardinality = _encode(
        reader, mapper, summary.n_rows, keep_features, folder
    )
    return BinnedData(
        mapper, codes, features, high_cardinality, summary.n_rows, mapper.n_features_, rows
    )


# ---- first pass --------------------------------------------------------------------------------


def summarise_features(
    table: FeatureTable, known: NDArray[np.bool_] | None = None
) -> tuple[FeatureSpec, NDArray[np.bool_]]:
    """Return the features of some rows, and which of them hold numbers.

    `known` marks features that hold numbers in other rows and need no search.
    """
    has_numbers = (
        np.zeros(table.n_features, bool)
        if known is None or len(known) != table.n_features
        else known.copy()
    )
    for block in table.dense:
        unknown = np.flatnonzero(~has_numbers[block.features])
        if len(unknown):
            values = block.values[:, unknown]
            holds_numbers = ~np.isnan(values).all(axis=0) if values.dtype.kind == "f" else True
            has_numbers[block.features[unknown]] |= holds_numbers
    for sparse in table.sparse:
        has_numbers[sparse.features] = True
    return FeatureSpec.describe(table), has_numbers


def _summarise(
    reader: BatchReader, mapper: BinMapper | None, new_mapper: BinMapper, **options: bool
) -> DataSummary:
    summary = DataSummary(new_mapper.subsample, new_mapper.draw_seed, **options)
    for batch in reader.iter_batches(mapper):
        summary.add(batch, has_mapper=mapper is not None)
    return summary


class DataSummary:
    """Summary of the rows read so far, from which bins are computed.

    `max_rows`, `get_seed`: size and seed of the sample that thresholds are chosen from.
    `keeps_rows`: whether to keep the categories of every row, even if no row has a weight.
    `reads_y`: whether missing targets have no weight.
    """

    part_name = "batches"

    def __init__(
        self,
        max_rows: int | None,
        get_seed: Callable[[], tuple[int, int, int]],
        *,
        keeps_rows: bool = False,
        reads_y: bool = True,
    ) -> None:
        self._keeps_rows, self._reads_y = keeps_rows, reads_y
        self.has_known_targets, self._has_missing_targets = False, False
        self.n_rows = 0
        self.parts: dict[str, list[object]] = {}  # of each attribute of `RowData`
        self.spec: FeatureSpec | None = None
        self.has_numbers: NDArray[np.bool_] = np.empty(0, bool)
        self.categories: dict[int, CategorySummary] = {}
        self.texts: set[int] = set()
        self.sample = _Sample(max_rows, get_seed)

    def add(self, batch: Batch, *, has_mapper: bool) -> None:
        """Add a batch; with a fitted mapper only its target and weights."""
        table = batch.table
        self.n_rows += table.n_rows
        attributes = batch.rows.to_dict()
        differs = [name for name in ARGUMENTS if (name in attributes) != (name in self.parts)]
        if batch.first > 0 and differs:
            raise ValueError(
                f"Batch {batch.number}: {ARGUMENTS[differs[0]]} is in some batches and missing in "
                "others."
            )
        for name, part in attributes.items():
            self.parts.setdefault(name, []).append(part)
        if has_mapper:
            return
        if table.sparse:
            raise ValueError(
                f"Batch {batch.number} is a sparse matrix: pass the whole matrix to Dataset, since "
                "it is compact already."
            )
        self.add_features(*summarise_features(table, self.has_numbers), f"Batch {batch.number}")
        weight, keep_rows = self._get_weight(batch), self._keeps_rows or "weight" in attributes
        for column in table.categories:
            summary = self.categories.setdefault(column.feature, CategorySummary())
            summary.add(column, batch.first, keep_rows=keep_rows)
        self.texts.update(table.texts)
        self.sample.add(table, batch.first, weight)

    @property
    def needs_row_categories(self) -> bool:
        """Whether missing targets were found too late: another pass must keep more, or ignore y.

        Some rows count for less, but the categories of single rows were not kept; or no target is
        known, so that all rows count alike.
        """
        if not self._has_missing_targets:
            return False
        is_kept = self._keeps_rows or "weight" in self.parts or not self.categories
        return self._reads_y and not (self.has_known_targets and is_kept)

    def _get_weight(self, batch: Batch) -> NDArray[np.float64] | None:
        """Return the weight of each row in the choice of bins; None: all equal."""
        known = find_known_targets(batch.rows.target) if self._reads_y else None
        self.has_known_targets |= known is None or bool(known.any())
        weight = batch.rows.weight
        if known is not None and not known.all():
            self._has_missing_targets, weight = True, mask_weights(known, weight)
        if weight is None:
            return None
        weight = np.asarray(weight, np.float64)
        return np.cumsum(weight, axis=1)[:, -1] if weight.ndim == 2 else weight

    def add_features(self, spec: FeatureSpec, has_numbers: NDArray[np.bool_], where: str) -> None:
        """Check that the features of further rows (see `summarise_features`) match the others."""
        if self.spec is None:
            self.spec = replace(spec, is_categorical=spec.is_categorical.copy())
            self.has_numbers = np.zeros(spec.n_features, bool)
        try:
            table = FeatureTable(
                0, spec.n_features, spec.feature_names, column_labels=spec.column_labels
            )
            read_features(table, reference=self.spec)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        self.has_numbers |= has_numbers
        self.spec.is_categorical[spec.is_categorical] = True
        mixed = np.flatnonzero(self.spec.is_categorical & self.has_numbers)
        if len(mixed):
            raise ValueError(
                f"{where}: column {_describe_feature(spec, int(mixed[0]))} of X holds numbers in "
                f"some {self.part_name} and text in others: correct it, or list it in "
                "categorical_features."
            )

    def check_text_columns(self) -> None:
        """Check columns of text, now that all rows are known."""
        assert self.spec is not None
        spec = self.spec
        check_text_columns(
            self.categories[f].to_text_summary(_describe_feature(spec, f))
            for f in sorted(self.texts)
        )

    def fit(self, mapper: BinMapper, weight: Any, n_threads: int) -> BinMapper:
        """Fit a mapper as to one table of all rows, with their weights."""
        assert self.spec is not None
        spec = self.spec
        weights = None if weight is None else quantise_weights(weight, self.n_rows)
        self.check_text_columns()
        counted = {}
        for feature, summary in self.categories.items():
            totals = (
                summary.counts()
                if weights is None
                else sum_category_weights(summary.to_column(feature, self.n_rows), weights)
            )
            counted[feature] = (list(summary.codes), totals)
        sample, rows = self.sample.to_table(spec)
        sample_weights = None if weights is None else weights[rows]
        return mapper.fit_from_summary(spec, sample, sample_weights, counted, n_threads)


def _describe_feature(spec: FeatureSpec, feature: int) -> str:
    return FeatureTable(0, spec.n_features, spec.feature_names).describe_feature(feature)


class CategorySummary:
    """The categories of one feature, in order of first occurrence."""

    def __init__(self) -> None:
        self.codes: dict[Category, int] = {}
        self._counts: list[int] = []
        self._first: list[int] = []
        self._rows: list[tuple[int, NDArray[np.int32]]] = []

    def add(self, column: CategoryColumn, first: int, *, keep_rows: bool) -> None:
        """Add rows from index `first` on; `keep_rows` keeps their categories (4 bytes a row)."""
        codes = np.array([*self._add_categories(column.categories), -1], np.int32)
        present = np.flatnonzero(column.index >= 0)
        found, rows, counts = np.unique(
            column.index[present], return_index=True, return_counts=True
        )
        self._add_counts(codes[found].tolist(), counts.tolist(), (first + present[rows]).tolist())
        if keep_rows:
            self._rows.append((first, codes[column.index]))

    def extend(self, later: CategorySummary) -> NDArray[np.int64]:
        """Add a summary of later rows; return the codes of its categories."""
        codes = self._add_categories(later.codes)
        self._add_counts(codes, later._counts, later._first)
        return np.array(codes, np.int64)

    def _add_categories(self, categories: Iterable[Category]) -> list[int]:
        """Return their codes, new ones at the end."""
        known = self.codes
        codes = [known.setdefault(category, len(known)) for category in categories]
        n_new = len(known) - len(self._counts)
        self._counts += [0] * n_new
        self._first += [-1] * n_new
        return codes

    def _add_counts(
        self, codes: Sequence[int], counts: Sequence[int], first: Sequence[int]
    ) -> None:
        for code, count, row in zip(codes, counts, first, strict=True):
            self._counts[code] += count
            if self._first[code] < 0:
                self._first[code] = row

    def counts(self) -> NDArray[np.float64]:
        return np.array(self._counts, np.float64)

    def to_column(self, feature: int, n_rows: int) -> CategoryColumn:
        """Return the column of all rows; rows of batches without categories are missing."""
        index = np.full(n_rows, -1, np.int32)
        for first, codes in self._rows:
            index[first : first + len(codes)] = codes
        return CategoryColumn(index, tuple(self.codes), feature)

    def to_text_summary(self, name: str) -> TextColumnSummary:
        counts, first = (np.array(values, np.int64) for values in (self._counts, self._first))
        return TextColumnSummary(name, list(self.codes), counts, first)


@dataclass
class _Sample:
    """The rows that thresholds are chosen from: those with the smallest hashes so far."""

    max_rows: int | None  # size of the sample; None: all rows
    # returns seed, round and stream; called only if there are more rows
    get_seed: Callable[[], tuple[int, int, int]]
    n_present: int = 0  # rows of positive weight
    ids: list[NDArray[np.int64]] = field(default_factory=list)  # among these rows
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    blocks: list[list[DenseBlock]] = field(default_factory=list)  # of the same rows
    seed: tuple[int, int, int] | None = None
    max_hash: int = 0  # at the last pruning

    def add(self, table: FeatureTable, first: int, weight: NDArray[np.float64] | None) -> None:
        present = np.arange(table.n_rows) if weight is None else np.flatnonzero(weight > 0)
        ids = self.n_present + np.arange(len(present))
        self.n_present += len(present)
        if self.seed is not None:  # most rows need no copy
            is_candidate = hash_ids(ids, *self.seed) <= self.max_hash
            present, ids = present[is_candidate], ids[is_candidate]
        if len(present) == 0:
            return
        self.ids.append(ids)
        self.rows.append(first + present)
        self.blocks.append(take_rows(table.dense, present))
        if self.max_rows is not None and sum(map(len, self.ids)) > _PRUNE_FACTOR * self.max_rows:
            self._prune()

    def _prune(self) -> None:
        """Keep only rows that the draw may choose."""
        if self.max_rows is None or self.n_present <= self.max_rows:
            return
        if self.seed is None:
            self.seed = self.get_seed()
        hashes = [hash_ids(ids, *self.seed) for ids in self.ids]
        k = self.max_rows - 1
        self.max_hash = int(np.partition(np.concatenate(hashes), k)[k])
        for i, part in enumerate(hashes):
            kept = np.flatnonzero(part <= self.max_hash)
            self.ids[i] = self.ids[i][kept]
            self.rows[i] = self.rows[i][kept]
            self.blocks[i] = take_rows(self.blocks[i], kept)

    def to_table(self, spec: FeatureSpec) -> tuple[FeatureTable, NDArray[np.int64]]:
        """Return a table of the drawn rows, and their indices, ascending; frees the sample."""
        self._prune()
        return stack_blocks(self.blocks, list(map(len, self.rows)), spec), np.concatenate(self.rows)


def take_rows(blocks: Sequence[DenseBlock], rows: NDArray[np.int64]) -> list[DenseBlock]:
    """Return copies of some rows of blocks."""
    return [DenseBlock(block.values[rows], block.features) for block in blocks]


def take_sparse_rows(
    blocks: Sequence[SparseBlock | SparseRows], rows: NDArray[np.int64], n_rows: int
) -> tuple[Any, NDArray[np.int64]]:
    """Return a csr_matrix of some of `n_rows` rows of blocks, and the features of its columns."""
    if not blocks:
        return None, np.empty(0, np.int64)
    block = SparseBlock.concatenate(blocks)
    shape = n_rows, len(block.features)
    columns = scipy.sparse.csc_matrix((block.data, block.indices, block.indptr), shape)
    return columns.tocsr()[rows], block.features


def stack_blocks(
    parts: list[list[DenseBlock]],
    n_rows: Sequence[int],
    spec: FeatureSpec,
    sparse: SparseBlock | None = None,
) -> FeatureTable:
    """Return a table of the numeric features of several parts of the rows; empties the parts.

    `sparse`: the features of all rows that are not in the parts.
    """
    table = FeatureTable(sum(n_rows), spec.n_features, spec.feature_names)
    is_dense = ~spec.is_categorical
    if sparse is not None:
        table.sparse.append(sparse)
        is_dense[sparse.features] = False
    numeric = np.flatnonzero(is_dense)
    if len(numeric) == 0:
        return table
    dtypes = [block.values.dtype for blocks in parts for block in blocks]
    values = np.empty((table.n_rows, len(numeric)), np.result_type(np.float32, *dtypes))
    position = np.full(spec.n_features, -1)
    position[numeric] = np.arange(len(numeric))
    begin = 0
    for i, n in enumerate(n_rows):
        for block in parts[i]:
            columns = position[block.features]
            kept = columns >= 0
            values[begin : begin + n, columns[kept]] = block.values[:, kept]
        parts[i] = []  # frees what is copied
        begin += n
    table.dense.append(DenseBlock(values, numeric))
    return table


def concatenate_categories(
    parts: Sequence[Sequence[CategoryColumn]], sizes: Sequence[int]
) -> list[CategoryColumn]:
    """Return the same categorical features of several parts of the rows, of these sizes."""
    summaries = {column.feature: CategorySummary() for column in parts[0]}
    first = 0
    for columns, size in zip(parts, sizes, strict=True):
        for column in columns:
            summaries[column.feature].add(column, first, keep_rows=True)
        first += size
    return [summary.to_column(feature, first) for feature, summary in summaries.items()]


# ---- second pass -------------------------------------------------------------------------------


def _encode(
    reader: BatchReader, mapper: BinMapper, n_rows: int, keep_features: bool, folder: str | None
) -> tuple[Codes | MemmapCodes, NDArray[np.float32] | None, list[CategoryColumn]]:
    """Return codes, raw values if they are kept, and high-cardinality features."""
    shape = mapper.n_columns_, n_rows
    codes: Codes | MemmapCodes
    if folder is None:
        codes = Codes(n_rows, mapper.n_columns_, empty_codes(*shape))
        features = np.empty(shape, np.float32) if keep_features else None
    else:
        codes = MemmapCodes(n_rows, mapper.n_bins_, mapper.is_categorical_, folder)
        features = create_memmap(shape, np.float32, folder) if keep_features else None
    summaries = {feature: CategorySummary() for feature in mapper.high_cardinality_features_}
    n_threads, end = reader.n_threads, 0
    for batch in reader.iter_batches(mapper):
        rows = slice(batch.first, batch.first + batch.table.n_rows)
        end = rows.stop
        if end > n_rows:
            break
        codes.write(batch.first, mapper.transform(batch.table, n_threads), n_threads)
        if features is not None:
            features[:, rows] = mapper.get_raw_values(batch.table)
        for column in batch.table.categories:
            if column.feature in summaries:
                summaries[column.feature].add(column, batch.first, keep_rows=True)
    if end != n_rows:
        raise ValueError(
            f"batches held {n_rows} rows in the first pass, but {'more' if end > n_rows else end} "
            "in the second: they must be the same in each pass."
        )
    columns = [summary.to_column(feature, n_rows) for feature, summary in summaries.items()]
    return codes, features, columns


# ---- contents of batches -----------------------------------------------------------------------


def _unpack_batch(batch: object, number: int) -> tuple[object, RowData]:
    parts = batch if isinstance(batch, tuple) else (batch,)
    if isinstance(batch, dict) or not 1 <= len(parts) <= 4:
        kind = "a dict" if isinstance(batch, dict) else f"a tuple of {len(parts)}"
        raise ValueError(
            f"Batch {number} is {kind}, but must be X, (X, y), (X, y, weight) or (X, y, weight, "
            "qid)."
        )
    rows = dict(zip(("target", "weight", "query"), parts[1:], strict=False))
    return parts[0], RowData(**rows)


def count_values(values: Any) -> int:
    """Return the number of rows of a table, or of what belongs to rows."""
    if isinstance(values, FeatureTable):
        return values.n_rows
    if isinstance(values, Mapping):  # targets of several tasks
        return min(map(count_values, values.values()), default=0)
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)


def concatenate_rows(parts: Mapping[str, Sequence[object]]) -> RowData:
    """Return what belongs to rows, as the user passed it in parts of each attribute."""
    return RowData(
        **{name: concatenate_values(part, ARGUMENTS[name]) for name, part in parts.items()}
    )


def concatenate_values(parts: Sequence[Any], name: str) -> Any:
    """Concatenate arrays, sparse matrices or frames by rows; None for no parts."""
    if not parts:
        return None
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    frames = [frame for part in parts if (frame := as_frame(part)) is not None]
    if len(frames) == len(parts):
        if any(frame.names != frames[0].names for frame in frames):
            raise ValueError(f"{name} has other columns in some batches than in others.")
        return concatenate_frames(frames)
    arrays = [np.asarray(part) for part in parts]
    check_same_kind(arrays, name)
    return np.concatenate(arrays)
