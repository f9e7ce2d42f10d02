"""Data that come batch by batch, read as one table would be: the same thresholds, categories and codes.

A first reading finds out what bins depend on; a second one writes codes. Between them only what is found is
held: the rows that thresholds are chosen from, the categories, targets and weights.

Owns: the two readings, and what is true of all rows though each batch shows some. Must not know: what is
found in a sample (`binning`), what targets mean, where batches come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from polyleaf.data.binned import Codes, DeviceCodes, MemmapCodes, empty_codes
from polyleaf.data.binning import BinMapper, quantise_weights, sum_category_weights
from polyleaf.data.high_cardinality import Category
from polyleaf.data.memmap import mapped
from polyleaf.data.memory import MemoryBudget
from polyleaf.data.random import hash_ids
from polyleaf.inputs.features import (
    CategoryColumn,
    DenseBlock,
    FeatureSpec,
    FeatureTable,
    TextColumnSummary,
    check_text_columns,
    read_features,
)
from polyleaf.inputs.frames import as_frame, check_in_memory
from polyleaf.inputs.targets import find_known_targets, mask_weights, weight_known_targets

__all__ = [
    "Batches",
    "DataSummary",
    "ReadData",
    "CategorySummary",
    "concatenate_values",
    "summarise_features",
    "read",
]

_SPARE = 1.25  # times the rows that are wanted may be held before some are thrown away


class ReadData(NamedTuple):
    """What two readings leave.

    Attributes
    ----------
    mapper : BinMapper
    codes : Codes, DeviceCodes or MemmapCodes
    features : ndarray of float32, shape (n_columns, n_rows), or None
    very_many : list of CategoryColumn
        The features of more categories than fit in one byte.
    n_rows, n_features : int
    y, weight : as given, joined; or None
    """

    mapper: BinMapper
    codes: Codes | DeviceCodes | MemmapCodes
    features: NDArray[np.float32] | None
    very_many: list[CategoryColumn]
    n_rows: int
    n_features: int
    y: Any
    weight: Any


class Batch(NamedTuple):
    """Some rows: which batch it is, the number of its first row, and what it holds."""

    number: int
    first: int
    table: FeatureTable
    y: Any
    weight: Any


@dataclass(frozen=True)
class Batches:
    """Batches that can be read again and again.

    Attributes
    ----------
    source : iterable, or function that returns one
        Of X, (X, y) or (X, y, weight).
    options : dict
        How `read_features` reads X at first.
    n_threads : int
    """

    source: Iterable[Any] | Callable[[], Iterable[Any]]
    options: dict[str, Any]
    n_threads: int

    def __post_init__(self) -> None:
        if not callable(self.source) and iter(self.source) is self.source:
            raise ValueError(
                "batches can be read only once, and they are read twice: pass a list, an object whose "
                "__iter__ starts anew, or a function that returns a new iterator."
            )

    def reading(self, reference: BinMapper | FeatureSpec | None) -> Iterator[Batch]:
        """One reading; empty batches are left out."""
        first = 0
        options: dict[str, Any] = self.options if reference is None else {"reference": reference}
        batches = self.source() if callable(self.source) else self.source
        for number, batch in enumerate(batches):
            X, y, weight = _parts_of(batch, number)
            check_in_memory(X, f"X of batch {number}")
            if _n_rows(X) == 0:
                continue
            try:
                table = read_features(X, n_threads=self.n_threads, whole=False, **options)
            except (ValueError, TypeError) as error:
                raise type(error)(f"Batch {number}: {error}") from error
            for name, values in (("y", y), ("sample_weight", weight)):
                if values is not None and _n_rows(values) != table.n_rows:
                    raise ValueError(
                        f"Batch {number}: {name} has {_n_rows(values)} rows, but X has {table.n_rows}."
                    )
            yield Batch(number, first, table, y, weight)
            first += table.n_rows


def read(
    batches: Batches,
    mapper: BinMapper | None,
    fresh: BinMapper,
    keep_features: bool,
    room: MemoryBudget,
) -> ReadData:
    """Read twice.

    Parameters
    ----------
    batches : Batches
    mapper : BinMapper or None
        To bin as it does.
    fresh : BinMapper
        To be fitted, where `mapper` is None.
    keep_features : bool
        The raw values too.
    room : MemoryBudget
        Where codes and raw values are to lie.
    """
    if mapper is None:
        fresh.check()
    found = _found(batches, mapper, fresh)
    if found.n_rows == 0:
        raise ValueError("batches hold no rows.")
    if mapper is None and found.is_short_of_weights:  # seen too late
        found = _found(batches, None, fresh, keeps_rows=True, looks_at_y=found.has_known)
    y, weight = concatenate_values(found.y, "y"), concatenate_values(found.weight, "sample_weight")
    if mapper is None:
        mapper = found.fit(fresh, weight_known_targets(y, weight), batches.n_threads)
    folder = room.choose_bin_folder(found.n_rows, mapper.n_columns_)
    if folder is not None and mapper.high_cardinality_features_:
        name = _name(mapper.spec_, mapper.high_cardinality_features_[0])
        raise ValueError(
            f"Column {name} of X has more than 255 categories. What it becomes is learned from the target, "
            "in memory: leave cache_dir and memory_limit out, or the column."
        )
    codes, features, very_many = _encoded(batches, mapper, found.n_rows, keep_features, folder)
    return ReadData(mapper, codes, features, very_many, found.n_rows, mapper.n_features_, y, weight)


# ---- the first reading -------------------------------------------------------------------------------------


def summarise_features(
    table: FeatureTable, known: NDArray[np.bool_] | None = None
) -> tuple[FeatureSpec, NDArray[np.bool_]]:
    """The features of some rows, and which hold numbers there.

    `known`: which do already, and need not be looked at.
    """
    has_numbers = (
        np.zeros(table.n_features, bool)
        if known is None or len(known) != table.n_features
        else known.copy()
    )
    for block in table.dense:
        unsure = np.flatnonzero(~has_numbers[block.features])
        if len(unsure):
            values = block.values[:, unsure]
            some = ~np.isnan(values).all(axis=0) if values.dtype.kind == "f" else True
            has_numbers[block.features[unsure]] |= some
    return FeatureSpec(table.n_features, table.feature_names, table.is_categorical), has_numbers


def _found(
    batches: Batches, mapper: BinMapper | None, fresh: BinMapper, **how: bool
) -> DataSummary:
    found = DataSummary(fresh.subsample, fresh.draw_seed, **how)
    for batch in batches.reading(mapper):
        found.add(batch, is_new=mapper is None)
    return found


class DataSummary:
    """What bins depend on, of the rows so far.

    Parameters
    ----------
    most, seed
        See `_Sample`.
    keeps_rows : bool
        Keep the categories of every row, also where no row has a weight.
    looks_at_y : bool
        Targets that are not known have no weight.
    """

    places = "batches"  # that rows come in

    def __init__(
        self,
        most: int | None,
        seed: Callable[[], tuple[int, int, int]],
        *,
        keeps_rows: bool = False,
        looks_at_y: bool = True,
    ) -> None:
        self._keeps_rows, self._looks_at_y = keeps_rows, looks_at_y
        self.has_known, self._has_gaps = False, False
        self.n_rows = 0
        self.y: list[Any] = []
        self.weight: list[Any] = []
        self.spec: FeatureSpec | None = None
        self.has_numbers: NDArray[np.bool_] = np.empty(0, bool)
        self.categories: dict[int, CategorySummary] = {}
        self.texts: set[int] = set()
        self.sample = _Sample(most, seed)

    def add(self, batch: Batch, *, is_new: bool) -> None:
        """`is_new`: bins are to be found."""
        table = batch.table
        self.n_rows += table.n_rows
        for parts, part, name in (
            (self.y, batch.y, "y"),
            (self.weight, batch.weight, "sample_weight"),
        ):
            if batch.first > 0 and (part is None) != (not parts):
                raise ValueError(
                    f"Batch {batch.number}: {name} is in some batches and missing in others."
                )
            if part is not None:
                parts.append(part)
        if not is_new:
            return
        if table.sparse:
            raise ValueError(
                f"Batch {batch.number} is a SciPy matrix, which is held by the values it stores already: "
                "pass the whole matrix to Dataset."
            )
        self.agree(*summarise_features(table, self.has_numbers), f"Batch {batch.number}")
        weight, keep = self._weight_of(batch), self._keeps_rows or batch.weight is not None
        for column in table.categories:
            seen = self.categories.setdefault(column.feature, CategorySummary())
            seen.add(column, batch.first, keep=keep)
        self.texts.update(table.texts)
        self.sample.add(table, batch.first, weight)

    @property
    def is_short_of_weights(self) -> bool:
        """Whether some targets are not known, and it was not kept what rows that count for less hold; or none
        is known, and then all rows count alike."""
        if not self._has_gaps:
            return False
        is_kept = self._keeps_rows or bool(self.weight) or not self.categories
        return self._looks_at_y and not (self.has_known and is_kept)

    def _weight_of(self, batch: Batch) -> NDArray[np.float64] | None:
        """Of each row, where bins are chosen; None: all count alike."""
        known = find_known_targets(batch.y) if self._looks_at_y else None
        self.has_known |= known is None or bool(known.any())
        weight = batch.weight
        if known is not None and not known.all():
            self._has_gaps, weight = True, mask_weights(known, weight)
        return None if weight is None else _by_row(weight)

    def agree(self, spec: FeatureSpec, has_numbers: NDArray[np.bool_], where: str) -> None:
        """Names, numbers and kinds of features, as `summarise_features` gives them, are those of the rows before."""
        if self.spec is None:
            self.spec = FeatureSpec(spec.n_features, spec.feature_names, spec.is_categorical.copy())
            self.has_numbers = np.zeros(spec.n_features, bool)
        try:
            read_features(FeatureTable(0, spec.n_features, spec.feature_names), reference=self.spec)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        self.has_numbers |= has_numbers
        self.spec.is_categorical[spec.is_categorical] = True
        mixed = np.flatnonzero(self.spec.is_categorical & self.has_numbers)
        if len(mixed):
            raise ValueError(
                f"{where}: column {_name(spec, int(mixed[0]))} of X holds numbers in some {self.places} "
                "and text in others: correct it, or list it in categorical_features."
            )

    def check_text_columns(self) -> None:
        """Refuse, or warn of, columns of text that should be something else."""
        assert self.spec is not None
        check_text_columns(self.categories[f].text(_name(self.spec, f)) for f in sorted(self.texts))

    def fit(self, mapper: BinMapper, weight: Any, n_threads: int) -> BinMapper:
        """The mapper, fitted as it would be to one table of all rows; `weight` is theirs."""
        assert self.spec is not None
        spec = self.spec
        weights = None if weight is None else quantise_weights(weight, self.n_rows)
        self.check_text_columns()
        counted = {}
        for feature, seen in self.categories.items():
            totals = (
                seen.counts()
                if weights is None
                else sum_category_weights(seen.column(feature, self.n_rows), weights)
            )
            counted[feature] = (list(seen.place), totals)
        sample, rows = self.sample.table(spec)
        return mapper.fit_from_summary(
            spec, sample, None if weights is None else weights[rows], counted, n_threads
        )


def _name(spec: FeatureSpec, feature: int) -> str:
    return FeatureTable(0, spec.n_features, spec.feature_names).describe_feature(feature)


class CategorySummary:
    """The categories of one feature: numbered as they first occur, whatever batch they are in."""

    def __init__(self) -> None:
        self.place: dict[Category, int] = {}
        self._counts: list[int] = []
        self._first: list[int] = []
        self._index: list[tuple[int, NDArray[np.int32]]] = []

    def add(self, column: CategoryColumn, first: int, *, keep: bool) -> None:
        """`keep`: what every row holds, too (four bytes a row)."""
        place = np.array([*self._number(column.categories), -1], np.int32)
        present = np.flatnonzero(column.index >= 0)
        found, at, counts = np.unique(column.index[present], return_index=True, return_counts=True)
        self._count(place[found].tolist(), counts.tolist(), (first + present[at]).tolist())
        if keep:
            self._index.append((first, place[column.index]))

    def join(self, later: CategorySummary) -> NDArray[np.int64]:
        """Add what was seen in later rows; returns the places of its categories."""
        place = self._number(later.place)
        self._count(place, later._counts, later._first)
        return np.array(place, np.int64)

    def _number(self, categories: Iterable[Category]) -> list[int]:
        """Their places, new ones at the end."""
        known = self.place
        place = [known.setdefault(category, len(known)) for category in categories]
        new = len(known) - len(self._counts)
        self._counts += [0] * new
        self._first += [-1] * new
        return place

    def _count(self, place: Sequence[int], counts: Sequence[int], first: Sequence[int]) -> None:
        for category, count, row in zip(place, counts, first, strict=True):
            self._counts[category] += count
            if self._first[category] < 0:
                self._first[category] = row

    def counts(self) -> NDArray[np.float64]:
        return np.array(self._counts, np.float64)

    def column(self, feature: int, n_rows: int) -> CategoryColumn:
        """All rows, where they were kept; those of batches that show no category are missing."""
        index = np.full(n_rows, -1, np.int32)
        for first, of_batch in self._index:
            index[first : first + len(of_batch)] = of_batch
        return CategoryColumn(index, tuple(self.place), feature)

    def text(self, name: str) -> TextColumnSummary:
        counts, first = (np.array(values, np.int64) for values in (self._counts, self._first))
        return TextColumnSummary(name, list(self.place), counts, first)


@dataclass
class _Sample:
    """The rows that thresholds are chosen from, of the rows so far: those whose keys are smallest.

    Attributes
    ----------
    most : int or None
        How many there may be; None: all.
    seed : function that returns seed, round and stream
        It is asked only where there are more.
    """

    most: int | None
    seed: Callable[[], tuple[int, int, int]]
    n_present: int = 0  # rows of positive weight
    numbers: list[NDArray[np.int64]] = field(default_factory=list)  # among them
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    values: list[NDArray[Any]] = field(default_factory=list)  # (m, k), the features of `features`
    features: list[NDArray[np.int64]] = field(default_factory=list)
    drawn_by: tuple[int, int, int] | None = None
    last: int = 0  # the largest key of those that were left at the last pruning

    def add(self, table: FeatureTable, first: int, weight: NDArray[np.float64] | None) -> None:
        present = np.arange(table.n_rows) if weight is None else np.flatnonzero(weight > 0)
        numbers = self.n_present + np.arange(len(present))
        self.n_present += len(present)
        if self.drawn_by is not None:  # most rows are not even copied
            wanted = hash_ids(numbers, *self.drawn_by) <= self.last
            present, numbers = present[wanted], numbers[wanted]
        if len(present) == 0:
            return
        self.numbers.append(numbers)
        self.rows.append(first + present)
        blocks = [(block.values[present], block.features) for block in table.dense]
        if not blocks:
            blocks = [(np.empty((len(present), 0), np.float32), np.empty(0, np.int64))]
        self.features.append(np.concatenate([features for _, features in blocks]))
        one = len(blocks) == 1
        self.values.append(
            blocks[0][0] if one else np.concatenate([values for values, _ in blocks], axis=1)
        )
        if self.most is not None and sum(map(len, self.numbers)) > _SPARE * self.most:
            self._prune()

    def _prune(self) -> None:
        """Leave only rows that a draw would choose."""
        if self.most is None or self.n_present <= self.most:
            return
        if self.drawn_by is None:
            self.drawn_by = self.seed()
        found = [hash_ids(numbers, *self.drawn_by) for numbers in self.numbers]
        self.last = int(np.partition(np.concatenate(found), self.most - 1)[self.most - 1])
        for i, of_part in enumerate(found):
            kept = of_part <= self.last
            for parts in (self.numbers, self.rows, self.values):
                parts[i] = parts[i][kept]

    def table(self, spec: FeatureSpec) -> tuple[FeatureTable, NDArray[np.int64]]:
        """The numbers of the rows drawn, and which rows they are: ascending."""
        self._prune()
        rows = np.concatenate(self.rows)
        table = FeatureTable(len(rows), spec.n_features, spec.feature_names)
        numeric = np.flatnonzero(~spec.is_categorical)
        dtype = np.result_type(np.float32, *(values.dtype for values in self.values))
        if len(numeric):
            values = np.empty((len(rows), len(numeric)), dtype)
            begin = 0
            for i, features in enumerate(self.features):
                part, self.values[i] = self.values[i], np.empty((0, 0))  # let go of what is copied
                place = np.zeros(spec.n_features, np.int64)
                place[features] = np.arange(len(features))
                values[begin : begin + len(part)] = part[:, place[numeric]]
                begin += len(part)
            table.dense.append(DenseBlock(values, numeric))
        return table, rows


# ---- the second reading ------------------------------------------------------------------------------------


def _encoded(
    batches: Batches, mapper: BinMapper, n_rows: int, keep_features: bool, folder: str | None
) -> tuple[Codes | MemmapCodes, NDArray[np.float32] | None, list[CategoryColumn]]:
    """Codes, raw values where they are wanted, and features of very many categories."""
    shape = mapper.n_columns_, n_rows
    codes: Codes | DeviceCodes | MemmapCodes
    if folder is None:
        codes = Codes(n_rows, mapper.n_columns_, empty_codes(*shape))
        features = np.empty(shape, np.float32) if keep_features else None
    else:
        codes = MemmapCodes(n_rows, mapper.n_bins_, mapper.is_categorical_, folder)
        features = mapped(shape, np.float32, folder) if keep_features else None
    very_many: dict[int, CategorySummary] = {
        feature: CategorySummary() for feature in mapper.high_cardinality_features_
    }
    end = 0
    for batch in batches.reading(mapper):
        rows = slice(batch.first, batch.first + batch.table.n_rows)
        end = rows.stop
        if end > n_rows:
            break
        codes.write(
            batch.first, mapper.transform(batch.table, batches.n_threads), batches.n_threads
        )
        if features is not None:
            features[:, rows] = mapper.get_raw_values(batch.table)
        for column in batch.table.categories:
            if column.feature in very_many:
                very_many[column.feature].add(column, batch.first, keep=True)
    if end != n_rows:
        raise ValueError(
            f"batches held {n_rows} rows when they were read at first, and "
            f"{'more' if end > n_rows else end} at the second time: they must be the same at each reading."
        )
    return codes, features, [seen.column(f, n_rows) for f, seen in very_many.items()]


# ---- what batches hold -------------------------------------------------------------------------------------


def _parts_of(batch: Any, number: int) -> tuple[Any, Any, Any]:
    parts = batch if isinstance(batch, tuple) else (batch,)
    if isinstance(batch, dict) or not 1 <= len(parts) <= 3:
        what = "a dict" if isinstance(batch, dict) else f"a tuple of {len(parts)}"
        raise ValueError(f"Batch {number} is {what}; it should be X, (X, y) or (X, y, weight).")
    return (*parts, None, None)[:3]


def _n_rows(values: Any) -> int:
    if isinstance(values, FeatureTable):
        return values.n_rows
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)


def _by_row(weight: Any) -> NDArray[np.float64]:
    values = np.asarray(weight, dtype=np.float64)
    return values.sum(axis=1) if values.ndim == 2 else values


def concatenate_values(parts: Sequence[Any], name: str) -> Any:
    """The parts one below the other, as what they are; None where there are none."""
    if not parts:
        return None
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    if as_frame(parts[0]) is not None:
        return _joined_frames(parts, name)
    arrays = [np.asarray(part) for part in parts]
    if len({array.dtype.kind in "US" for array in arrays}) > 1:
        raise ValueError(f"{name} holds text in some batches and numbers in others.")
    return np.concatenate(arrays)


def _joined_frames(parts: Sequence[Any], name: str) -> Any:
    import narwhals.stable.v1 as nw

    frames = [nw.from_native(part, eager_only=True) for part in parts]
    if any(frame.columns != frames[0].columns for frame in frames):
        raise ValueError(f"{name} has other columns in some batches than in others.")
    return nw.concat(frames).to_native()
