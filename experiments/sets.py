"""Real data sets as in their files, and their splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


class DataMissing(Exception):
    """Raised if the file of a real data set is not in the data folder."""


@dataclass(frozen=True)
class DataSet:
    """Data set.

    Attributes
    ----------
    name : str
    task : "multiclass", "binary", "regression" or "multilabel"
    X : float32 array (n, F) or SciPy CSR matrix
        NaN is a missing value; categories are their codes.
    y : int64 (n,) class ids, float32 (n, K) targets, or int64 (n, K) labels of 0 and 1
    parts : (train, test) or None
        Row ids of the source's own split.
    categorical : bool array (F,)
        Features whose values are codes of categories.
    """

    name: str
    task: str
    X: Any
    y: np.ndarray
    parts: tuple[np.ndarray, np.ndarray] | None
    categorical: np.ndarray

    def split(self, seed: int, test_share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
        """Return row ids of a random training and test part.

        The split is stratified by class if all classes have at least two rows.
        """
        from sklearn.model_selection import train_test_split

        y, rows = self.y, np.arange(len(self.y))
        is_stratified = y.ndim == 1 and np.unique(y, return_counts=True)[1].min() > 1
        options = {"test_size": test_share, "random_state": seed}
        return train_test_split(rows, stratify=y if is_stratified else None, **options)


@dataclass(frozen=True)
class LabelledSet:
    """Rows X (n, F) with many labels Y (n, L), a CSR matrix that is 1 for the labels of a row.

    `parts` are the row ids of the training and the test part.
    """

    name: str
    X: Any
    Y: Any
    parts: tuple[np.ndarray, np.ndarray]

    def part(self, which: int) -> tuple[Any, Any]:
        """Return features and labels of the training rows (0) or of the test rows (1)."""
        return self.X[self.parts[which]], self.Y[self.parts[which]]


def find(folder: Path | None, name: str) -> Path:
    """Return the file of a data set; raise `DataMissing` if it does not exist."""
    path = Path(folder or ".") / f"{name}.npz"
    if not path.is_file():
        raise DataMissing(f"{path} does not exist; name the folder that holds it with --data.")
    return path


def load(folder: Path | None, name: str) -> DataSet:
    """Read `folder/name.npz`; raise `DataMissing` if it does not exist."""
    with np.load(find(folder, name), allow_pickle=False) as file:
        X = file["X"].astype(np.float32) if "X" in file else _csr(file, "X", np.float32)
        if "y" in file:
            y = file["y"].astype(np.int64 if file["y"].dtype.kind in "iub" else np.float32)
        else:
            y = _csr(file, "Y", np.int64).toarray()
        task = str(file["task"]) if "task" in file else _guess(y)
        marked = file["is_categorical"] if "is_categorical" in file else np.zeros(X.shape[1])
        return DataSet(name, task, X, y, _own_split(file), marked.astype(bool))


def load_labelled(folder: Path | None, name: str) -> LabelledSet:
    """Read `folder/name.npz`; without its own split, a random fifth of the rows is for testing."""
    with np.load(find(folder, name), allow_pickle=False) as file:
        X = file["X"].astype(np.float32) if "X" in file else _csr(file, "X", np.float32)
        Y, parts = _csr(file, "Y", np.float32), _own_split(file)
    if parts is None:
        rows = np.random.default_rng(0).permutation(X.shape[0])
        parts = np.sort(rows[len(rows) // 5 :]), np.sort(rows[: len(rows) // 5])
    return LabelledSet(name, X, Y, parts)


def _guess(y: np.ndarray) -> str:
    if y.dtype.kind == "f":
        return "regression"
    return "multilabel" if y.ndim == 2 else "multiclass"


def _csr(file: Any, name: str, dtype: Any) -> Any:
    from scipy.sparse import csr_matrix

    indices, indptr = file[f"{name}_indices"], file[f"{name}_indptr"]
    data = file[f"{name}_data"] if f"{name}_data" in file else np.ones(len(indices))
    return csr_matrix((data.astype(dtype), indices, indptr), shape=tuple(file[f"{name}_shape"]))


def _own_split(file: Any) -> tuple[np.ndarray, np.ndarray] | None:
    for prefix in ("", "sb_"):
        if f"{prefix}train_idx" in file:
            return file[f"{prefix}train_idx"], file[f"{prefix}test_idx"]
    return None
