"""Types of what users pass: arrays, frames and matrices of several libraries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_matrix

    from polyleaf.binned_data.dataset import Dataset
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.model import Model


class SparseMatrix(Protocol):
    """A sparse matrix or array of SciPy, whose shape type checkers do not read."""

    @property
    def nnz(self) -> int: ...
    def tocsr(self) -> csr_matrix: ...


class Estimator(Protocol):
    """Estimator of scikit-learn's interface, whose methods may be descriptors."""

    @property
    def fit(self) -> Any: ...
    @property
    def predict(self) -> Any: ...


class DataFrame(Protocol):
    """A data frame of pandas, polars, Arrow or another library."""

    @property
    def columns(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, int]: ...


Values: TypeAlias = "ArrayLike | SparseMatrix | DataFrame"
# Features, targets, weights or offsets; a mapping has those of each task. Readers check the values.
DataLike: TypeAlias = "Values | Dataset | Mapping[str, Values]"
RandomState: TypeAlias = int | np.integer | np.random.RandomState | np.random.Generator | None
StrPath: TypeAlias = str | os.PathLike[str]
# A model or a fitted estimator, for exporters and inspection.
ModelLike: TypeAlias = "Model | PolyleafEstimator"
ArrowColumn: TypeAlias = "pa.Array | pa.ChunkedArray"
# Objects of JSON, written or parsed; readers check the values.
JsonObject: TypeAlias = dict[str, Any]
# Parameters of an estimator by name.
Parameters: TypeAlias = dict[str, Any]
