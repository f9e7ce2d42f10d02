"""`Dataset`: features binned once, to train on or evaluate many times.

Owns: what belongs together of one data set (codes, mapper, target, weights). Must not know: how any of it is
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.inputs.binning import MAX_BINS, BinMapper
from polyleaf.inputs.codes import Codes
from polyleaf.inputs.features import FROM_DTYPE, FeatureTable, as_features
from polyleaf.threads import effective_threads


class Dataset:
    """Features as uint8 codes, with target and weights.

    Estimators take it in place of X, in ``fit`` and in ``eval_set``. X itself is not kept, unless linear
    leaves are to read it.

    Parameters
    ----------
    X : array-like, data frame or sparse matrix, shape (n_rows, n_features)
        See `polyleaf.inputs.features.as_features`.
    y : array-like, optional
        Target, kept as given; the estimator reads it.
    sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
        Kept for training, and used for the quantiles of the bins.
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
        Threads; see `polyleaf.threads.effective_threads`. The result does not depend on it.
    random_state : int, RandomState or None
        For the sample that thresholds are chosen from. None is 0 here: a data set is binned the same way
        every time.

    Attributes
    ----------
    mapper : BinMapper
    features : ndarray of float32, shape (n_features, n_rows), or None
        NaN where missing, and throughout for categorical features.
    y, sample_weight : as given

    Raises
    ------
    ValueError
        For features that cannot be read (see `as_features`) or more than 2^22 of them, y or weights of
        another length, more than 2^31 - 1 rows.
    MemoryError
        Where the codes do not fit in memory.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
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
            table = as_features(
                X,
                categorical_features=categorical_features,
                feature_names=feature_names,
                reference=mapper,
                n_threads=n_threads,
            )
        if table.n_features > _core.MOST_FEATURES:
            raise ValueError(
                f"X has {table.n_features} features, but trees can split on the first {_core.MOST_FEATURES} "
                "only: leave some out, or set projection, which makes few of many."
            )
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            if values is not None and _length(values) != table.n_rows:
                raise ValueError(f"{name} has {_length(values)} rows, but X has {table.n_rows}.")
        if mapper is None:
            mapper = BinMapper(max_bins, random_state=0 if random_state is None else random_state)
            mapper.fit(table, sample_weight, n_threads)
        self.mapper: BinMapper = mapper
        self.features: NDArray[np.float32] | None = table.numbers() if keep_features else None
        # Linear leaves read the codes of every row.
        self._codes = mapper.encode(table, n_threads, sparse=not keep_features)
        self._all_codes: NDArray[np.uint8] | None = None
        self._shape = table.n_rows, table.n_features
        self.y = y
        self.sample_weight = sample_weight
        self.n_jobs = n_jobs
        self._bins: _core.Bins | None = None

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
        """Codes of every feature and row, shape (n_features, n_rows).

        Columns of a sparse matrix that few rows store a value of are not held like that until they are asked
        for; training does not. From then on they are kept. A `MemoryError` says where there is no room.
        """
        if self._all_codes is None:
            self._all_codes = self._codes.array()
        return self._all_codes

    def codes_like(self, mapper: BinMapper) -> NDArray[np.uint8]:
        """`codes`, where they are those that this mapper would give.

        Raises
        ------
        ValueError
            Where the data set was binned by another.
        """
        if not self.mapper.same_bins(mapper):
            raise ValueError(
                "This Dataset was binned apart from the training data: make it with reference=, or pass the "
                "raw X."
            )
        return self.codes

    @property
    def nbytes(self) -> int:
        """Memory of the codes, and of the features where they are kept, in bytes."""
        codes = self._codes.nbytes
        if self._all_codes is not None and self._codes.sparse is not None:
            codes += self._all_codes.nbytes
        return codes + (0 if self.features is None else self.features.nbytes)

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
            self._bins = self._codes.bins(self.mapper.n_bins_, self.mapper.is_categorical_, n_threads)
        return self._bins

    def pack(self) -> None:
        """Keep only what the grower reads. For data of one training: it halves what stays in memory.

        `codes` is empty afterwards, so the data set can no longer be evaluated, gone on from, or pickled.
        """
        _ = self.bins
        self._codes = Codes(0, self.n_features, np.empty((self.n_features, 0), np.uint8))
        self._all_codes = None

    def __len__(self) -> int:
        return self.n_rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bins": None}

    def __repr__(self) -> str:
        return f"Dataset({self.n_rows} rows, {self.n_features} features, {self.nbytes / 2**20:.1f} MiB)"


def _length(values: Any) -> int:
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)
