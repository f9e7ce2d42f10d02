"""`Dataset`: features binned once, to train on or evaluate many times.

Owns: what belongs together of one data set (codes, mapper, target, weights). Must not know: how any of it is
computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.data.binned import Codes, DeviceCodes, MemmapCodes
from polyleaf.data.binning import MAX_BINS, BinMapper
from polyleaf.data.data_iter import Batches, ReadData, read
from polyleaf.data.memmap import mapped
from polyleaf.data.memory import MemoryBudget
from polyleaf.data.target_encoding import FeatureCodes, learn
from polyleaf.inputs.features import FROM_DTYPE, FeatureTable, read_features
from polyleaf.inputs.parquet import ParquetRows, find_parquet_files
from polyleaf.inputs.targets import Target, weight_known_targets
from polyleaf.runtime.context import effective_threads


class Dataset:
    """Features as uint8 codes, with target and weights.

    Estimators take it in place of X, in ``fit`` and in ``eval_set``. X itself is not kept, unless linear
    leaves are to read it. Of features of more than 255 categories the categories are kept (four bytes a
    row): what becomes of them depends on the target, so every training makes its own columns of them.

    Parameters
    ----------
    X : array-like, data frame or sparse matrix, shape (n_rows, n_features)
        See `polyleaf.inputs.features.read_features`.
    y : array-like, optional
        Target, kept as given; the estimator reads it. Where NaN stands among its numbers, rows count for the
        quantiles of the bins as often as targets are known.
    sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        Kept for training, and used for the quantiles of the bins. What an estimator weighs classes by
        (`class_weight`, `scale_pos_weight`) is not: bins are there before. Weights that hold it are.
    offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        Scores that rows start from, kept for training and prediction; the estimator reads it.
    max_bins : int, default 255
        Bins per feature, besides the one for missing values. Ignored where ``reference`` is given.
    categorical_features : "from_dtype", None, list of names or positions, or bool mask
        Ignored where ``reference`` is given.
    feature_names : sequence of str, optional
        By default those of the data frame.
    reference : Dataset or BinMapper, optional
        Bin as this one was: for validation data.
    keep_features : bool, default False
        Keep the features too, as float32: for linear leaves. Takes four times the memory of the codes.
    n_jobs : int or None
        Threads; see `polyleaf.runtime.context.effective_threads`. The result does not depend on it.
    random_state : int, RandomState or None
        For the sample that thresholds are chosen from. None is 0 here: a data set is binned the same way
        every time.

    Attributes
    ----------
    mapper : BinMapper
    features : ndarray of float32, shape (n_features, n_rows), or None
        NaN where missing, and throughout for categorical features.
    y, sample_weight, offset : as given
    room : MemoryBudget
        What memory its trainings may take, and where files go.

    Raises
    ------
    ValueError
        For features that cannot be read (see `read_features`) or more than 2^22 of them, for y, weights or an
        offset of another length, for more than 2^31 - 1 rows.
    MemoryError
        Where the codes do not fit in memory.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        max_bins: int = MAX_BINS,
        categorical_features: Any = FROM_DTYPE,
        feature_names: Sequence[str] | None = None,
        reference: Dataset | BinMapper | None = None,
        keep_features: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        n_threads = effective_threads(n_jobs)
        mapper = reference.mapper if isinstance(reference, Dataset) else reference
        table = X
        if not isinstance(X, FeatureTable):  # one that is read already is taken as it is
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
                "A Dataset holds one weight a row: give weights of single tasks to fit."
            )
        for name, values in (("y", y), ("sample_weight", sample_weight), ("offset", offset)):
            if values is not None and _length(values) != table.n_rows:
                raise ValueError(f"{name} has {_length(values)} rows, but X has {table.n_rows}.")
        if mapper is None:
            mapper = BinMapper(max_bins, random_state=0 if random_state is None else random_state)
            mapper.fit(table, weight_known_targets(y, sample_weight), n_threads)
        # Linear leaves read the codes of every row.
        codes = mapper.encode(table, n_threads, sparse=not keep_features)
        features = mapper.get_raw_values(table) if keep_features else None
        wide = mapper.high_cardinality_features_
        very_many = [column for column in table.categories if column.feature in wide]
        self._hold(
            ReadData(
                mapper, codes, features, very_many, table.n_rows, table.n_features, y, sample_weight
            ),
            n_jobs,
            offset,
        )

    def _hold(
        self,
        data: ReadData,
        n_jobs: int | None,
        offset: Any = None,
        room: MemoryBudget | None = None,
    ) -> None:
        _check_n_features(data.n_features)
        self.mapper: BinMapper = data.mapper
        self.features: NDArray[np.float32] | None = data.features
        self._codes: Codes | DeviceCodes | MemmapCodes = data.codes
        self._all_codes: NDArray[np.uint8] | None = None
        self._wide = data.very_many
        self._shape = data.n_rows, data.n_features
        self.y = data.y
        self.sample_weight = data.weight
        self.offset = offset
        self.n_jobs, self.memory = n_jobs, room or MemoryBudget()
        self._bins: _core.Bins | None = None

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        max_bins: int = MAX_BINS,
        categorical_features: Any = FROM_DTYPE,
        feature_names: Sequence[str] | None = None,
        reference: Dataset | BinMapper | None = None,
        keep_features: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> Dataset:
        """The data set of all batches together, of which never more than one is held.

        It is the one that ``Dataset`` makes of the same rows in one table, whatever the batches: thresholds,
        categories and codes are equal, and so are the models trained on them.

        Parameters
        ----------
        batches : iterable, or function without arguments that returns one
            Of X, (X, y) or (X, y, sample_weight), arrays or data frames: rows in their order. It is gone
            through twice and must give the same both times, so an iterator that is used up by once will not
            do: pass a function that makes one. Empty batches are left out.
        max_bins, categorical_features, feature_names, reference, keep_features, n_jobs, random_state
            As those of ``Dataset``. With ``categorical_features="from_dtype"`` a column is categorical where
            it holds text in any batch.
        cache_dir : str or path, optional
            A folder, on a fast disk, for a file of a byte for each cell, and with `keep_features` one of four
            more. Training then holds nothing for each cell in memory, and is slower: it fetches what it
            needs of the file. The models are the same. Files go with the data set. None: in memory.
        memory_limit : int or str, optional
            Bytes, or text such as ``"4 GiB"``, that this data set and one training on it may hold: what does
            not fit lies in files of `cache_dir`, or of the system's folder for temporary files. Bins go there
            first, then raw scores and derivatives. The models are the same. None: bins lie in a file where
            `cache_dir` is given, and nothing else does.

        Returns
        -------
        Dataset
            With ``y`` and ``sample_weight`` joined, where batches have them.

        Raises
        ------
        ValueError
            For batches that differ in their columns or in what they hold there, that are sparse matrices,
            that cannot be read twice or are not the same the second time; where bins are to lie in a file,
            for columns of more than 255 categories; for a `memory_limit` that is no size; otherwise as
            ``Dataset`` does. The message names the batch, counted from 0.
        OSError
            Where `cache_dir` has no room.

        Notes
        -----
        Held besides one batch: a byte for each cell (without `cache_dir`), the values of 200,000 rows to
        choose thresholds from, targets and weights, and the different categories; four bytes for each cell of
        categorical columns where there are weights, and of columns of more than 255 categories.
        """
        n_threads = effective_threads(n_jobs)
        options = {"categorical_features": categorical_features, "feature_names": feature_names}
        mapper = reference.mapper if isinstance(reference, Dataset) else reference
        fresh = BinMapper(max_bins, random_state=0 if random_state is None else random_state)
        data, room = cls.__new__(cls), MemoryBudget.from_params(memory_limit, cache_dir)
        found = read(Batches(batches, options, n_threads), mapper, fresh, keep_features, room)
        data._hold(found, n_jobs, room=room)
        return data

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | Sequence[str] | None = None,
        *,
        sample_weight: str | None = None,
        drop: Sequence[str] = (),
        batch_rows: int = 65_536,
        **options: Any,
    ) -> Dataset:
        """The data set of Parquet files, read a few rows at a time (extra ``arrow``).

        Parameters
        ----------
        path : str, path, or sequence of them
            A file, a folder (all ``.parquet`` and ``.pq`` files in it and below, sorted by name), a pattern
            such as ``"data/*.parquet"``, or files in order.
        target : str, or sequence of str, optional
            The column that is ``y``, or columns: a sequence makes a table of outputs, even of one.
        sample_weight : str, optional
            The column of weights.
        drop : sequence of str
            Columns that are no features.
        batch_rows : int, default 65536
            Rows held at a time, at most. The result does not depend on it.
        **options
            As those of `from_batches`.

        Returns
        -------
        Dataset
            Its features have the names of the columns, in the order of the first file.

        Raises
        ------
        FileNotFoundError
            Where there is no such file.
        ValueError
            For a file that is damaged or lacks a column; otherwise as `from_batches`.
        ImportError
            Without PyArrow.
        """
        rows = ParquetRows(find_parquet_files(path), target, sample_weight, tuple(drop), batch_rows)
        return cls.from_batches(rows, **options)

    @classmethod
    def from_codes(
        cls,
        mapper: BinMapper,
        codes: NDArray[np.uint8],
        features: NDArray[np.float32] | None = None,
        n_jobs: int | None = None,
    ) -> Dataset:
        """The data set of rows that were binned already.

        Parameters
        ----------
        mapper : BinMapper
            What has binned them.
        codes : ndarray of shape (n_columns, n_rows), uint8
        features : ndarray of shape (n_columns, n_rows), float32, optional
            What was binned, where it is kept.
        n_jobs : int, optional
            As in the constructor.

        Returns
        -------
        Dataset
        """
        data, n_rows = cls.__new__(cls), codes.shape[1]
        held = Codes(n_rows, len(codes), codes)
        data._hold(
            ReadData(mapper, held, features, [], n_rows, mapper.n_features_, None, None), n_jobs
        )
        return data

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
        """(n_rows, n_features), as X had it."""
        return self.n_rows, self.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None."""
        return self.mapper.feature_names_

    @property
    def codes(self) -> NDArray[np.uint8]:
        """Codes of every column and row, shape (n_columns, n_rows); mostly, columns are features.

        Columns of a sparse matrix that few rows store a value of are not held like that until they are asked
        for; training does not. From then on they are kept. A `MemoryError` says where there is no room.
        """
        if self._all_codes is None:
            self._all_codes = self._codes.array()
        return self._all_codes

    @property
    def nbytes(self) -> int:
        """Memory of the codes, and of the features where they are kept, in bytes; or room in files."""
        codes = self._codes.nbytes
        if self._all_codes is not None and self._codes.sparse is not None:
            codes += self._all_codes.nbytes
        codes += sum(column.index.nbytes for column in self._wide)
        return codes + (0 if self.features is None else self.features.nbytes)

    @property
    def is_memmapped(self) -> bool:
        """Whether the codes lie in a file."""
        return isinstance(self._codes, MemmapCodes)

    def release_memory(self) -> None:
        """Move codes, and features where they are kept, to files, unless they lie there.

        Raises
        ------
        ValueError
            Where there are features of more than 255 categories.
        """
        if not isinstance(self._codes, Codes):
            return
        folder, mapper = self.memory.folder, self.mapper
        assert folder is not None
        if self._wide or mapper.derived_columns_ is not None:
            raise ValueError(
                "memory_limit asks for bins in a file, but there are columns of more than 255 categories, "
                "which are learned from the target, in memory: allow more, or leave these columns out."
            )
        n_threads = effective_threads(self.n_jobs)
        self._codes = self._codes.in_file(mapper.n_bins_, mapper.is_categorical_, folder, n_threads)
        self._bins = self._all_codes = None
        if self.features is not None:
            features = mapped(self.features.shape, np.float32, folder)
            features[...] = self.features
            self.features = features

    def raw_features(self) -> NDArray[np.float32]:
        """`features`, for what cannot do without."""
        if self.features is None:
            raise ValueError(
                "Linear leaves read the features themselves, but this Dataset holds only their bins: make it "
                "with keep_features=True, or pass X instead."
            )
        return self.features

    @property
    def bins(self) -> _core.Bins:
        """The codes as the grower reads them (`_core.Bins`), made at first use and kept."""
        if self._bins is None:
            n_threads = effective_threads(self.n_jobs)
            self._bins = self._codes.bins(
                self.mapper.n_bins_, self.mapper.is_categorical_, n_threads
            )
        return self._bins

    def get_device_bins(self, device: _core.Device) -> _core.DeviceBins:
        """The codes on `device`: those that are there already, or a copy of them, dense."""
        if isinstance(self._codes, DeviceCodes):
            return self._codes.on_device
        if self._codes.sparse is None:
            return _core.DeviceBins(device, self.bins)
        mapper, n_threads = self.mapper, effective_threads(self.n_jobs)
        dense = _core.Bins(self.codes, mapper.n_bins_, mapper.is_categorical_, n_threads, None)
        return _core.DeviceBins(device, dense)

    def rows(self, rows: NDArray[np.int64]) -> Dataset:
        """Some rows of the data, ascending, in the same bins; without y, weights and offset.

        For folds: the thresholds are those of all rows, the columns that are made of categories are not yet
        made.

        Parameters
        ----------
        rows : ndarray of shape (n_chosen,), int64
            Numbers of rows.

        Returns
        -------
        Dataset
        """
        other = copy(self)
        other.y = other.sample_weight = other.offset = other._bins = other._all_codes = None
        other._shape = len(rows), self.n_features
        other._codes = self._codes.rows(rows)
        other._wide = [replace(column, index=column.index[rows]) for column in self._wide]
        other.features = (
            None if self.features is None else np.ascontiguousarray(self.features[:, rows])
        )
        return other

    def with_target(self, target: Target, *, is_first: bool = True) -> Dataset:
        """The data to learn a target from: features of very many categories become columns made for it.

        Parameters
        ----------
        target : Target
        is_first : bool
            False: the mapper is that of a model to go on from, and stays. Where these are the rows that its
            columns were learned from, each again sees what it saw then.

        Returns
        -------
        Dataset
            This one where nothing is to be made.
        """
        if not self._wide or (self.mapper.derived_columns_ is None and not is_first):
            return self
        n_threads = effective_threads(self.n_jobs)
        made, statistics = learn(
            self._wide, self._codes_beside(), target, self.n_features, n_threads
        )
        empty = FeatureTable(self.n_rows, self.n_features, None, categories=self._wide)
        columns = made.expand(empty, statistics)
        if made.n_columns > _core.MAX_FEATURES:
            raise ValueError(
                f"With what is made of features of very many categories there are {made.n_columns} columns, "
                f"but trees can split on the first {_core.MAX_FEATURES} only: leave some features out."
            )
        mapper = self.mapper
        if mapper.derived_columns_ is None:
            mapper = mapper.with_derived_columns(made, columns, target.weight, n_threads)
        elif not made.equals(mapper.derived_columns_):
            return self
        return self._with_columns(mapper, columns)

    def rebinned_to(self, mapper: BinMapper) -> Dataset:
        """The data as a model with this mapper reads it.

        Parameters
        ----------
        mapper : BinMapper
            The model's.

        Returns
        -------
        Dataset

        Raises
        ------
        ValueError
            Where it was binned apart from the model's training data.
        """
        if self.mapper.has_same_bins(mapper):
            return self
        if not mapper.is_extension_of(self.mapper):
            raise ValueError(
                "This Dataset was binned apart from the training data: make it with reference=, or pass the "
                "raw X."
            )
        assert mapper.derived_columns_ is not None
        empty = FeatureTable(
            self.n_rows, self.n_features, self.feature_names, categories=self._wide
        )
        return self._with_columns(mapper, mapper.derived_columns_.expand(empty))

    def _codes_beside(self) -> list[FeatureCodes]:
        """Features that are held as columns, but for those of very many categories."""
        names, mapper = self.feature_names, self.mapper
        assert isinstance(self._codes, Codes)
        wide = {column.feature for column in self._wide}
        found = []
        for row, feature in enumerate(self._codes.dense_features().tolist()):
            if feature < self.n_features and feature not in wide:
                name = f"f{feature}" if names is None else names[feature]
                is_numeric = not mapper.spec_.is_categorical[feature]
                found.append(
                    FeatureCodes(
                        name, self._codes.dense[row], int(mapper.n_bins_[feature]), is_numeric
                    )
                )
        return found

    def _with_columns(self, mapper: BinMapper, columns: FeatureTable) -> Dataset:
        """A copy that has these made columns (a table of all columns, of which only they are read)."""
        assert mapper.derived_columns_ is not None and isinstance(self._codes, Codes)
        other = copy(self)
        other.mapper, other._bins, other._all_codes = mapper, None, None
        made = np.sort(np.concatenate([places for _, places in mapper.derived_columns_.places()]))
        codes = mapper.transform_derived(columns, effective_threads(self.n_jobs))
        other._codes = self._codes.with_columns(made, codes, mapper.n_columns_)
        if self.features is not None:
            features = np.zeros((mapper.n_columns_, self.n_rows), np.float32)
            features[: len(self.features)] = self.features
            features[made] = columns.get_raw_values()[made]
            other.features = features
        return other

    def keep_only_bins(self) -> None:
        """Keep only what the grower reads. For data of one training: it halves what stays in memory.

        `codes` is empty afterwards, so the data set can no longer be evaluated, gone on from, or pickled.
        """
        _ = self.bins
        self._codes = Codes(
            0, self.mapper.n_columns_, np.empty((self.mapper.n_columns_, 0), np.uint8)
        )
        self._all_codes, self._wide = None, []

    def __len__(self) -> int:
        return self.n_rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bins": None}

    def __repr__(self) -> str:
        return f"Dataset({self.n_rows} rows, {self.n_features} features, {self.nbytes / 2**20:.1f} MiB)"


def _check_n_features(n_features: int) -> None:
    if n_features > _core.MAX_FEATURES:
        raise ValueError(
            f"X has {n_features} features, but trees can split on the first {_core.MAX_FEATURES} "
            "only: leave some out, or set projection, which makes few of many."
        )


def _length(values: Any) -> int:
    if isinstance(values, Mapping):  # the targets of tasks
        return min(map(_length, values.values()), default=0)
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)
