"""`Dataset`: features binned once, to train or evaluate many models on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.binned_data.binned import Codes, DeviceCodes, MemmapCodes, MemoryBudget, create_memmap
from polyleaf.binned_data.binning import MAX_BINS, BinMapper
from polyleaf.binned_data.data_iter import BatchReader, BinnedData, count_values, read_batches
from polyleaf.binned_data.dataset_file import read_dataset, write_dataset
from polyleaf.binned_data.random_rows import find_repeated_rows, hash64
from polyleaf.binned_data.target_encoding import EncodedOutputs, FeatureCodes, fit_target_statistics
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.checks import format_bytes
from polyleaf.runtime.compatibility import add_version, remove_version
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.row_data import ARGUMENTS, RowData
from polyleaf.user_data.feature_table import CategoryColumn, FeatureTable
from polyleaf.user_data.features import FROM_DTYPE, read_features
from polyleaf.user_data.parquet import ParquetRows
from polyleaf.user_data.read_target import check_same_rows
from polyleaf.user_data.target import Target
from polyleaf.user_data.weights import weight_known_targets

if TYPE_CHECKING:
    from polyleaf.runtime.types import RandomState


class Dataset:
    """Features as uint8 codes, with target and weights.

    Estimators accept it in place of X, in ``fit`` and in ``eval_set``. X itself is not kept, except
    for linear leaves. For features of more than 255 categories, the categories are kept (four
    bytes per row): their encoding depends on the target, so every training makes its own columns.

    Parameters
    ----------
    X : array-like, data frame or sparse matrix, shape (n_rows, n_features)
        See `polyleaf.user_data.features.read_features`.
    y : array-like, optional
        Target, copied as given; the estimator reads it. Rows with missing values (NaN) have less
        weight in the quantiles of the bins: one per known target.
    sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        Weights for training and for the quantiles of the bins. Class weights of an estimator
        (`class_weight`, `scale_pos_weight`) do not change the bins, which exist before.
    offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        Raw scores that rows start from, for training and prediction; the estimator reads them.
    qid : array-like of shape (n_rows,), optional
        Query of each row, for :class:`polyleaf.PolyleafRanker`.
    max_bins : int, default 255
        Bins per numeric feature, not counting the one for missing values. Ignored if
        ``reference`` is given.
    categorical_features : "from_dtype", None, list of names or positions, or bool mask
        Which features are categorical. Ignored if ``reference`` is given.
    feature_names : sequence of str, optional
        Names of the features; by default those of the data frame.
    reference : Dataset or BinMapper, optional
        Use its bins: for validation data.
    keep_features : bool, default False
        Whether to keep the features as float32, for linear leaves. Takes four times the memory of
        the codes.
    n_jobs : int or None
        Threads; see `polyleaf.runtime.context.effective_threads`. It does not change the result.
    random_state : int, RandomState or None
        Seed of the sample that thresholds are chosen from. None means 0: a data set has the same
        bins every time.

    Attributes
    ----------
    mapper : BinMapper
        Bins.
    features : ndarray of float32, shape (n_features, n_rows), or None
        NaN for missing values and categorical features.
    row_data : RowData
        Targets, weights, offsets and queries, as given; also as `y`, `sample_weight` and `offset`.
    memory : MemoryBudget
        Memory that trainings may use, and the folder of files.

    Raises
    ------
    ValueError
        For invalid features (see `read_features`) or more than 2^22 of them, for more than
        2^31 - 1 rows, and for y, weights or an offset of another length.
    MemoryError
        If the codes do not fit in memory.
    """

    is_binned: ClassVar[bool] = True  # which tells it from other tables

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        qid: Any = None,
        max_bins: int = MAX_BINS,
        categorical_features: object = FROM_DTYPE,
        feature_names: Sequence[str] | None = None,
        reference: Dataset | BinMapper | None = None,
        keep_features: bool = False,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        n_threads = effective_threads(n_jobs)
        mapper = reference.mapper if isinstance(reference, Dataset) else reference
        table = X
        if not isinstance(X, FeatureTable):
            table = read_features(
                X,
                categorical_features=categorical_features,
                feature_names=feature_names,
                reference=mapper,
                n_threads=n_threads,
            )
        _check_n_features(table.n_features)
        if isinstance(sample_weight, Mapping):
            raise ValueError(
                "A Dataset holds one weight per row: pass sample_weight of single tasks to fit."
            )
        rows = RowData(_copy(y), _copy(sample_weight), _copy(offset), query=_copy(qid))
        for name, values in rows.to_dict().items():
            check_same_rows(table.n_rows, count_values(values), ARGUMENTS[name])
        if mapper is None:
            mapper = BinMapper(max_bins, random_state=0 if random_state is None else random_state)
            weight = None if y is None and sample_weight is None else weight_known_targets(rows)
            mapper.fit(table, weight, n_threads)
        # Linear leaves read the codes of every row.
        codes = mapper.encode(table, n_threads, sparse=not keep_features)
        features = mapper.get_raw_values(table) if keep_features else None
        indices = mapper.high_cardinality_features_
        columns = [column for column in table.categories if column.feature in indices]
        shape = table.n_rows, table.n_features
        self._set_data(BinnedData(mapper, codes, features, columns, *shape, rows), n_jobs)

    def _set_data(
        self, data: BinnedData, n_jobs: int | None, memory: MemoryBudget | None = None
    ) -> None:
        _check_n_features(data.n_features)
        self.mapper: BinMapper = data.mapper
        self.features: NDArray[np.float32] | None = data.features
        self._codes: Codes | DeviceCodes | MemmapCodes = data.codes
        self._all_codes: NDArray[np.uint8] | None = None
        self._high_cardinality = data.high_cardinality
        self._shape = data.n_rows, data.n_features
        self.row_data = data.rows
        self.n_jobs, self.memory = n_jobs, memory or MemoryBudget()
        self._bins: _core.Bins | None = None

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[object] | Callable[[], Iterable[object]],
        *,
        max_bins: int = MAX_BINS,
        categorical_features: object = FROM_DTYPE,
        feature_names: Sequence[str] | None = None,
        reference: Dataset | BinMapper | None = None,
        keep_features: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> Dataset:
        """Make a data set of batches, with one of them in memory at a time.

        It equals the ``Dataset`` of the same rows in one table, whatever the batches: thresholds,
        categories, codes and trained models are the same.

        Parameters
        ----------
        batches : iterable, or function without arguments that returns one
            Batches X, (X, y), (X, y, sample_weight) or (X, y, sample_weight, qid), arrays or data
            frames, in the order of the rows; None for what there is not. A query may lie in several
            batches. They are read twice and must be the same both times, so instead of an iterator
            pass a function that makes one. Empty batches are skipped.
        max_bins, categorical_features, feature_names, reference, keep_features
            See ``Dataset``. With ``categorical_features="from_dtype"``, a column is categorical if
            it holds text in any batch.
        cache_dir : str or path, optional
            A folder on a fast disk for a file of one byte per cell, and another of four with
            `keep_features`. Training then reads the file instead of memory and is slower. The
            models are the same. The files are deleted with the data set. None: in memory.
        memory_limit : int or str, optional
            Bytes, or text such as ``"4 GiB"``, that this data set and one training on it may use.
            What exceeds it goes to files in `cache_dir`, or in the system's folder for temporary
            files: first bins, then raw scores and gradients. The models are the same. None: bins
            go to a file if `cache_dir` is given, and nothing else does.
        n_jobs, random_state
            See ``Dataset``.

        Returns
        -------
        Dataset
            With ``y``, ``sample_weight`` and ``qid`` if batches have them.

        Raises
        ------
        ValueError
            For batches with different columns or kinds of values, sparse matrices, batches that
            cannot be read twice or differ the second time; for columns of more than 255 categories
            if bins go to a file; for an invalid `memory_limit`; otherwise as ``Dataset``. The
            message has the number of the batch, from 0.
        OSError
            If `cache_dir` has too little space.

        Notes
        -----
        Besides one batch, memory holds: a byte per cell (without `cache_dir`), the values of
        200,000 rows to choose thresholds from, targets and weights, and the distinct categories;
        four bytes per cell of categorical columns if there are weights, and of columns of more
        than 255 categories.
        """
        options = {"categorical_features": categorical_features, "feature_names": feature_names}
        reader = BatchReader(batches, options, effective_threads(n_jobs))
        mapper = reference.mapper if isinstance(reference, Dataset) else reference
        new_mapper = BinMapper(max_bins, random_state=0 if random_state is None else random_state)
        memory = MemoryBudget.from_params(memory_limit, cache_dir)
        dataset = cls.__new__(cls)
        data = read_batches(reader, mapper, new_mapper, keep_features, memory)
        dataset._set_data(data, n_jobs, memory=memory)
        return dataset

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | Sequence[str] | None = None,
        *,
        sample_weight: str | None = None,
        qid: str | None = None,
        drop: Sequence[str] = (),
        batch_rows: int = 65_536,
        **options: Any,
    ) -> Dataset:
        """Make a data set of Parquet files, read a few rows at a time (extra ``arrow``).

        Parameters
        ----------
        path : str, path, or sequence of them
            A file, a folder (all ``.parquet`` and ``.pq`` files at any depth, sorted by name), a
            pattern such as ``"data/*.parquet"``, or files in order.
        target : str, or sequence of str, optional
            Column of ``y``, or columns: a sequence gives a table of outputs, even of one.
        sample_weight : str, optional
            Column of weights.
        qid : str, optional
            Column of the query of each row, for :class:`polyleaf.PolyleafRanker`.
        drop : sequence of str
            Columns that are not features.
        batch_rows : int, default 65536
            Largest number of rows in memory at a time. It does not change the result.
        **options
            Options of `from_batches`.

        Returns
        -------
        Dataset
            Its features have the names of the columns, in the order of the first file.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            For a file that is damaged or lacks a column; otherwise as `from_batches`.
        ImportError
            Without PyArrow.
        """
        rows = ParquetRows(path, target, sample_weight, qid, tuple(drop), batch_rows)
        return cls.from_batches(rows, **options)

    @classmethod
    def from_codes(
        cls,
        mapper: BinMapper,
        codes: NDArray[np.uint8] | Codes,
        features: NDArray[np.float32] | None = None,
        n_jobs: int | None = None,
        high_cardinality: Sequence[CategoryColumn] = (),
    ) -> Dataset:
        """Make a data set of rows that are binned already.

        Parameters
        ----------
        mapper : BinMapper
            Mapper that gave the codes.
        codes : ndarray of shape (n_columns, n_rows), uint8, or Codes
            Codes of the rows.
        features : ndarray of shape (n_columns, n_rows), float32, optional
            Raw values, for linear leaves.
        n_jobs : int, optional
            Threads; see ``Dataset``.
        high_cardinality : sequence of CategoryColumn
            Features of more than 255 categories, if no columns are derived from them yet.

        Returns
        -------
        Dataset
        """
        dataset = cls.__new__(cls)
        if not isinstance(codes, Codes):
            codes = Codes(codes.shape[1], len(codes), codes)
        shape, columns = (codes.n_rows, mapper.n_features_), list(high_cardinality)
        dataset._set_data(BinnedData(mapper, codes, features, columns, *shape), n_jobs)
        return dataset

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the data set to a file, so that a later program need not bin again.

        The file is an `.npz` file of NumPy, and reading it runs no code. Models that are trained on
        the data set that `load` returns are the same.

        Parameters
        ----------
        path : str or path
            The file, which is replaced as a whole.

        Raises
        ------
        ValueError
            If y or weights are neither numbers nor text.
        OSError
            If the file cannot be written.
        """
        codes = self._codes
        if isinstance(codes, DeviceCodes):
            codes = Codes(self.n_rows, self.mapper.n_columns_, self.codes)
        data = BinnedData(
            self.mapper, codes, self.features, self._high_cardinality, *self._shape, self.row_data
        )
        write_dataset(path, data)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Dataset:
        """Read a data set that `save` wrote.

        Parameters
        ----------
        path : str or path
        n_jobs : int, optional
            Threads; see ``Dataset``.

        Returns
        -------
        Dataset
            Tables of y are pandas data frames.

        Raises
        ------
        ValueError
            If the file holds no data set, or is damaged.
        """
        dataset = cls.__new__(cls)
        dataset._set_data(read_dataset(path), n_jobs)
        return dataset

    @property
    def y(self) -> Any:
        """Targets, as given, or None."""
        return self.row_data.target

    @property
    def sample_weight(self) -> Any:
        """Weights, as given, or None."""
        return self.row_data.weight

    @property
    def offset(self) -> Any:
        """Offsets, as given, or None."""
        return self.row_data.offset

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of X, (n_rows, n_features)."""
        return self.n_rows, self.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None."""
        return self.mapper.feature_names_

    @property
    def codes(self) -> NDArray[np.uint8]:
        """Codes of all columns and rows, shape (n_columns, n_rows); usually, columns are features.

        Sparse columns are made dense at the first access, and kept; training does not need that. A
        `MemoryError` tells if they do not fit.
        """
        if self._all_codes is None:
            self._all_codes = self._codes.array()
        return self._all_codes

    def count_bins(self) -> NDArray[np.int64]:
        """Return the rows in each bin, and without a value, of columns that are not derived, one
        column after another: (sum of their n_bins + 1,)."""
        return self.mapper.count_bins(self._codes, effective_threads(self.n_jobs))

    def select_codes(self, features: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Return the codes of the columns `features`, (n_features, n_rows), if they are not all in
        one array; otherwise None: `codes` takes no memory."""
        if self._codes.sparse is None or self._all_codes is not None:
            return None
        assert isinstance(self._codes, Codes)
        return np.stack(list(self._codes.iter_columns(features.tolist())))

    @property
    def nbytes(self) -> int:
        """Bytes of the codes, and of the features if they are kept, in memory or in files."""
        codes = self._codes.nbytes
        if self._all_codes is not None and self._codes.sparse is not None:
            codes += self._all_codes.nbytes
        codes += sum(column.index.nbytes for column in self._high_cardinality)
        return codes + (0 if self.features is None else self.features.nbytes)

    @property
    def is_memmapped(self) -> bool:
        """Whether the codes are in a file."""
        return isinstance(self._codes, MemmapCodes)

    def release_memory(self) -> None:
        """Move codes, and features if they are kept, to files.

        Raises
        ------
        ValueError
            For features of more than 255 categories.
        """
        if not isinstance(self._codes, Codes):
            return
        folder, mapper = self.memory.folder, self.mapper
        assert folder is not None
        if self._high_cardinality or mapper.derived_columns_ is not None:
            refuse("high_cardinality", "bins_on_disk", column="A column")
        kinds = mapper.n_bins_, mapper.is_categorical_
        self._codes = self._codes.to_memmap(*kinds, folder, effective_threads(self.n_jobs))
        self._bins = self._all_codes = None
        if self.features is not None:
            features = create_memmap(self.features.shape, np.float32, folder)
            features[...] = self.features
            self.features = features

    def raw_features(self) -> NDArray[np.float32]:
        """Return `features`, or raise a ValueError if they are not kept."""
        return _check_kept(self.features)

    @property
    def bins(self) -> _core.Bins:
        """The codes as the grower reads them (`_core.Bins`), built at first use and kept."""
        if self._bins is None:
            kinds = self.mapper.n_bins_, self.mapper.is_categorical_
            self._bins = self._codes.bins(*kinds, effective_threads(self.n_jobs))
        return self._bins

    def get_device_bins(self, device: _core.Device) -> _core.DeviceBins:
        """Return the codes on `device`, dense; they are copied unless they are there."""
        if isinstance(self._codes, DeviceCodes):
            return self._codes.device_bins
        if self._codes.sparse is None:
            return _core.DeviceBins(device, self.bins)
        mapper, n_threads = self.mapper, effective_threads(self.n_jobs)
        dense = _core.Bins(self.codes, mapper.n_bins_, mapper.is_categorical_, n_threads, None)
        return _core.DeviceBins(device, dense)

    def rows(self, rows: NDArray[np.int64]) -> Dataset:
        """Return some rows, ascending, in the same bins; without y, weights and offset.

        For cross-validation: thresholds come from all rows, while columns of high-cardinality
        features are not yet derived.

        Parameters
        ----------
        rows : ndarray of shape (n_chosen,), int64
            Indices of rows.

        Returns
        -------
        Dataset
        """
        other = copy(self)
        other.row_data, other._bins, other._all_codes = RowData(), None, None
        other._shape = len(rows), self.n_features
        other._codes = self._codes.rows(rows)
        other._high_cardinality = [
            replace(column, index=column.index[rows]) for column in self._high_cardinality
        ]
        if self.features is not None:
            other.features = np.ascontiguousarray(self.features[:, rows])
        return other

    @property
    def has_high_cardinality(self) -> bool:
        """Whether there are features whose columns are derived from the target."""
        return bool(self._high_cardinality)

    def hash_rows(self) -> NDArray[np.uint64] | None:
        """Return numbers (n_rows,) that are equal for equal rows; None if the codes are not in
        memory."""
        if not isinstance(self._codes, Codes):
            return None
        hashes = self._codes.hash_rows()
        for column in self._high_cardinality:  # never negative: -1 is missing
            hashes += hash64((column.index + np.int64(1)) * 2**22 + column.feature)
        return hashes

    def with_target(
        self,
        target: Target,
        learn_from: Callable[[], EncodedOutputs] | None = None,
        *,
        is_first: bool = True,
    ) -> Dataset:
        """Return the data for a training: high-cardinality features become derived columns.

        Parameters
        ----------
        target : Target
            Target of the training.
        learn_from : callable, optional
            Returns what the columns are derived from. Default: the target.
        is_first : bool
            False: training continues a model, whose mapper is kept. If its columns were derived
            from these rows, each row has the values that it had then.

        Returns
        -------
        Dataset
            This one if there are no high-cardinality features.
        """
        if not self._high_cardinality or (self.mapper.derived_columns_ is None and not is_first):
            return self
        n_threads = effective_threads(self.n_jobs)
        encoded = EncodedOutputs.from_target(target) if learn_from is None else learn_from()
        derived, statistics = fit_target_statistics(
            self._high_cardinality,
            self._iter_other_codes(),
            encoded,
            self.n_features,
            n_threads,
            find_repeated_rows(self.hash_rows(), target.values),
        )
        columns = derived.expand(self._make_category_table(None), statistics)
        _check_n_features(derived.n_columns)
        mapper = self.mapper
        if mapper.derived_columns_ is None:
            mapper = mapper.with_derived_columns(derived, columns, target.weight, n_threads)
        elif not derived.equals(mapper.derived_columns_):
            return self
        return self._replace_columns(mapper, columns)

    def rebinned_to(self, mapper: BinMapper) -> Dataset:
        """Return the data as a model reads them.

        Parameters
        ----------
        mapper : BinMapper
            Mapper of the model.

        Returns
        -------
        Dataset

        Raises
        ------
        ValueError
            If the bins differ from those of the training data.
        """
        if self.mapper.has_same_bins(mapper):
            return self
        if not mapper.is_extension_of(self.mapper):
            raise ValueError(
                "This Dataset was binned differently from the training data: make it with "
                "reference=, or pass the raw X."
            )
        assert mapper.derived_columns_ is not None
        table = self._make_category_table(self.feature_names)
        return self._replace_columns(mapper, mapper.derived_columns_.expand(table))

    def _make_category_table(self, names: tuple[str, ...] | None) -> FeatureTable:
        """Return a table with the high-cardinality features alone."""
        return FeatureTable(self.n_rows, self.n_features, names, categories=self._high_cardinality)

    def _iter_other_codes(self) -> Iterator[FeatureCodes]:
        """Yield the features other than the high-cardinality ones."""
        names, mapper = self.feature_names, self.mapper
        assert isinstance(self._codes, Codes)
        excluded = {column.feature for column in self._high_cardinality}
        features = [feature for feature in range(self.n_features) if feature not in excluded]
        columns = self._codes.iter_columns(features)
        for feature, codes in zip(features, columns, strict=True):
            name = f"f{feature}" if names is None else names[feature]
            is_numeric = not mapper.spec_.is_categorical[feature]
            yield FeatureCodes(name, codes, int(mapper.n_bins_[feature]), is_numeric)

    def _replace_columns(self, mapper: BinMapper, columns: FeatureTable) -> Dataset:
        """Return a copy with derived columns, read from a table of all columns."""
        assert mapper.derived_columns_ is not None and isinstance(self._codes, Codes)
        other = copy(self)
        other.mapper, other._bins, other._all_codes = mapper, None, None
        positions = [indices for _, indices in mapper.derived_columns_.iter_columns()]
        derived = np.sort(np.concatenate(positions))
        codes = mapper.transform_derived(columns, effective_threads(self.n_jobs))
        other._codes = self._codes.replace_columns(derived, codes, mapper.n_columns_)
        if self.features is not None:
            features = np.zeros((mapper.n_columns_, self.n_rows), np.float32)
            features[: len(self.features)] = self.features
            features[derived] = columns.get_raw_values()[derived]
            other.features = features
        return other

    def to_training_bins(self) -> TrainingBins:
        """Return what a training reads if nothing reads the codes: they can be freed."""
        return TrainingBins(self.mapper, self.bins, self.features)

    def __len__(self) -> int:
        return self.n_rows

    def __getstate__(self) -> dict[str, object]:
        return add_version({**self.__dict__, "_bins": None})

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(remove_version("Dataset", state))

    def __repr__(self) -> str:
        size = format_bytes(self.nbytes)
        return f"Dataset({self.n_rows} rows, {self.n_features} features, {size})"


@dataclass(frozen=True)
class TrainingBins:
    """The rows of one training as trees are grown on them: half the memory of a `Dataset`."""

    mapper: BinMapper
    bins: _core.Bins  # the codes as the grower reads them
    features: NDArray[np.float32] | None  # (n_columns, n_rows), raw values, for linear leaves

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.bins.n_rows

    def raw_features(self) -> NDArray[np.float32]:
        """Return `features`, or raise a ValueError if they are not kept."""
        return _check_kept(self.features)


def _check_kept(features: NDArray[np.float32] | None) -> NDArray[np.float32]:
    if features is None:
        refuse("linear_leaves", "bins")
    return features


def _check_n_features(n_features: int) -> None:
    if n_features > _core.MAX_FEATURES:
        raise ValueError(
            f"X has {n_features} features (with columns derived from categories), but trees "
            f"support {_core.MAX_FEATURES} at most: leave some out, or set projection to reduce "
            "their number."
        )


def _copy(values: Any) -> Any:
    """Return a copy, which later changes of the user's values do not reach; files are not read."""
    if isinstance(values, Mapping):
        return {name: _copy(part) for name, part in values.items()}
    return (
        values.copy() if hasattr(values, "copy") and not isinstance(values, np.memmap) else values
    )
