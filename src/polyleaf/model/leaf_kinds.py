"""The kinds of leaves: what is particular to each, for storage, views and tables.

Owns: `LEAF_KINDS`, one descriptor a kind; whoever reads leaves asks there and names no kind. Must not know:
forests, files, models; how leaves are fitted, or added to raw scores (the core's business).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

import polyleaf._core as _core

__all__ = [
    "DENSE",
    "LEAF_KINDS",
    "LINEAR",
    "SPARSE",
    "LeafKind",
    "LeafLinear",
    "Leaves",
    "NameLookup",
]

Leaves: TypeAlias = np.ndarray | _core.LeafBlock
"""What the leaves of one tree hold: a matrix (n_leaves, n_outputs or 1), or a block of another kind."""

Take: TypeAlias = Callable[[str, int, int], np.ndarray]
"""`take(name, n_rows, n_columns)`: the next matrix of one of the flat arrays."""


class NameLookup(NamedTuple):
    """From the number of a feature, or of an output, to its name."""

    feature: Callable[[int], str]
    output: Callable[[int], str]


class LeafLinear(NamedTuple):
    """The linear function of one leaf, with the learning rate in it.

    A row x adds `clip(intercept + coefficients.T @ (x[features] - centre), lower, upper)` to its raw scores
    (before target_scale); a missing x_j counts as its centre.

    Attributes
    ----------
    features : ndarray of shape (m,), int32
        Numbers of the features it reads, ascending.
    centre : ndarray of shape (m,), float32
        In the unit of each feature.
    coefficients : ndarray of shape (m, K), float32
        For each feature and output; K is 1 for a tree of one output.
    intercept : ndarray of shape (K,), float32
        The value at the centre.
    lower, upper : ndarray of shape (K,), float32
        Bounds of the value; infinite where there is none.
    """

    features: np.ndarray
    centre: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class LeafKind(ABC):
    """What is particular to a kind of leaves.

    Attributes
    ----------
    name : str
        As the core's `Forest.kind` gives it.
    number : int
        What files have in its place.
    since_version : int
        Of the format of model files.
    arrays : dict of str -> dtype
        Flat arrays that a forest has for it besides `values`. Kinds may share them.
    columns : dict of str -> str
        What a table of nodes has for it besides `value`, and the type of each.
    """

    name: ClassVar[str]
    number: ClassVar[int]
    since_version: ClassVar[int]
    arrays: ClassVar[dict[str, type]] = {}
    columns: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def values(self, leaves: Any) -> np.ndarray:
        """The numbers of a tree that files may round: a matrix, float32."""

    @abstractmethod
    def scale(self, leaves: Any, factor: np.ndarray) -> Leaves:
        """Leaves that add so many times as much: float32 (n_columns,), above 0."""

    @abstractmethod
    def select_outputs(self, leaves: Any, outputs: slice) -> Leaves:
        """Leaves that add what these do, to some of the outputs only; they are numbered from 0 anew."""

    def to_arrays(self, leaves: Any) -> dict[str, np.ndarray]:
        """The rest of a tree: `arrays`, flat."""
        return {}

    @abstractmethod
    def from_arrays(self, take: Take, n_leaves: int, n_columns: int, n_features: int) -> Leaves:
        """The next tree of the flat arrays, `values` among them. ValueError for what cannot be."""

    @abstractmethod
    def value(self, leaves: Any, leaf: int) -> np.ndarray:
        """What a leaf adds to raw scores: float32 (K,); where that depends on the row, at its centre."""

    def to_record(self, leaves: Any, leaf: int, names: NameLookup) -> dict[str, Any]:
        """A leaf in a table of nodes: `value`, and `columns`; JSON types."""
        return {"value": self.value(leaves, leaf).tolist()}


class DenseLeaves(LeafKind):
    """A value for each output."""

    name, number = "dense", 0
    since_version = 1

    def values(self, leaves: np.ndarray) -> np.ndarray:
        return leaves

    def scale(self, leaves: np.ndarray, factor: np.ndarray) -> np.ndarray:
        return leaves * factor

    def select_outputs(self, leaves: np.ndarray, outputs: slice) -> np.ndarray:
        return np.ascontiguousarray(leaves[:, outputs])

    def from_arrays(self, take: Take, n_leaves: int, n_columns: int, n_features: int) -> Leaves:
        return take("values", n_leaves, n_columns)

    def value(self, leaves: np.ndarray, leaf: int) -> np.ndarray:
        return leaves[leaf]


class _WithEntries(LeafKind):
    """A kind whose leaves hold a number of entries each."""

    since_version = 2
    arrays: ClassVar[dict[str, type]] = {
        "leaf_entries": np.int32,  # one a leaf: how many
        "entry": np.int32,  # of these: output, or feature; ascending in a leaf
    }

    @staticmethod
    def at(leaves: Any, leaf: int) -> slice:
        """The entries of a leaf."""
        return slice(int(leaves.indptr[leaf]), int(leaves.indptr[leaf + 1]))

    @staticmethod
    def _counted(leaves: Any, entry: np.ndarray) -> dict[str, np.ndarray]:
        return {"leaf_entries": np.diff(leaves.indptr).astype(np.int32), "entry": entry}

    @staticmethod
    def _take_entries(take: Take, n_leaves: int) -> tuple[np.ndarray, np.ndarray]:
        counts = take("leaf_entries", n_leaves, 1)[:, 0]
        if (counts < 0).any():
            raise ValueError("The forest's array 'leaf_entries' holds a negative number.")
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return indptr, take("entry", int(indptr[-1]), 1)[:, 0]


class TopkLeaves(_WithEntries):
    """A value for each of a few outputs, which are the entries."""

    name, number = "sparse", 1
    columns: ClassVar[dict[str, str]] = {"value_outputs": "list str"}

    def values(self, leaves: _core.TopkLeaves) -> np.ndarray:
        return leaves.values[:, None]

    def scale(self, leaves: _core.TopkLeaves, factor: np.ndarray) -> _core.TopkLeaves:
        values = leaves.values * factor[leaves.outputs]
        return _core.TopkLeaves(leaves.indptr, leaves.outputs, values, leaves.n_outputs)

    def select_outputs(self, leaves: _core.TopkLeaves, outputs: slice) -> _core.TopkLeaves:
        first, end, _ = outputs.indices(leaves.n_outputs)
        kept = (leaves.outputs >= first) & (leaves.outputs < end)
        indptr = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[leaves.indptr]
        return _core.TopkLeaves(
            indptr, leaves.outputs[kept] - first, leaves.values[kept], end - first
        )

    def to_arrays(self, leaves: _core.TopkLeaves) -> dict[str, np.ndarray]:
        return self._counted(leaves, leaves.outputs)

    def from_arrays(self, take: Take, n_leaves: int, n_columns: int, n_features: int) -> Leaves:
        indptr, outputs = self._take_entries(take, n_leaves)
        return _core.TopkLeaves(indptr, outputs, take("values", len(outputs), 1)[:, 0], n_columns)

    def value(self, leaves: _core.TopkLeaves, leaf: int) -> np.ndarray:
        outputs, values = self.entries(leaves, leaf)
        dense = np.zeros(leaves.n_outputs, np.float32)
        dense[outputs] = values
        return dense

    def to_record(self, leaves: _core.TopkLeaves, leaf: int, names: NameLookup) -> dict[str, Any]:
        outputs, values = self.entries(leaves, leaf)
        return {
            "value": values.tolist(),
            "value_outputs": [names.output(k) for k in outputs.tolist()],
        }

    def entries(self, leaves: _core.TopkLeaves, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        """The outputs that a leaf holds, and their values."""
        entries = self.at(leaves, leaf)
        return leaves.outputs[entries], leaves.values[entries]


class LinearLeaves(_WithEntries):
    """A linear function of a few features, which are the entries."""

    name, number = "linear", 2
    arrays: ClassVar[dict[str, type]] = _WithEntries.arrays | {
        "weights": np.float32,  # (entries, n_outputs or 1)
        "centre": np.float32,  # (entries,)
        "lower": np.float32,  # (n_leaves, n_outputs or 1)
        "upper": np.float32,
    }
    columns: ClassVar[dict[str, str]] = {
        "regressors": "list str",
        "centre": "list float",
        "coefficients": "list list float",
        "lower": "list float",
        "upper": "list float",
    }

    def values(self, leaves: _core.LinearLeaves) -> np.ndarray:
        return leaves.intercept

    def scale(self, leaves: _core.LinearLeaves, factor: np.ndarray) -> _core.LinearLeaves:
        moved = ("weights", "intercept", "lower", "upper")
        return _core.LinearLeaves(
            leaves.indptr,
            leaves.features,
            centre=leaves.centre,
            **{name: getattr(leaves, name) * factor for name in moved},
        )

    def select_outputs(self, leaves: _core.LinearLeaves, outputs: slice) -> _core.LinearLeaves:
        of_each = ("weights", "intercept", "lower", "upper")
        return _core.LinearLeaves(
            leaves.indptr,
            leaves.features,
            centre=leaves.centre,
            **{name: np.ascontiguousarray(getattr(leaves, name)[:, outputs]) for name in of_each},
        )

    def to_arrays(self, leaves: _core.LinearLeaves) -> dict[str, np.ndarray]:
        flat = {
            name: getattr(leaves, name).ravel() for name in ("weights", "centre", "lower", "upper")
        }
        return self._counted(leaves, leaves.features) | flat

    def from_arrays(self, take: Take, n_leaves: int, n_columns: int, n_features: int) -> Leaves:
        indptr, features = self._take_entries(take, n_leaves)
        if (features >= n_features).any():
            raise ValueError(
                f"Linear leaves read a feature that is not among the {n_features} there are."
            )
        return _core.LinearLeaves(
            indptr,
            features,
            weights=take("weights", len(features), n_columns),
            centre=take("centre", len(features), 1)[:, 0],
            intercept=take("values", n_leaves, n_columns),
            lower=take("lower", n_leaves, n_columns),
            upper=take("upper", n_leaves, n_columns),
        )

    def value(self, leaves: _core.LinearLeaves, leaf: int) -> np.ndarray:
        return leaves.intercept[leaf]

    def to_record(self, leaves: _core.LinearLeaves, leaf: int, names: NameLookup) -> dict[str, Any]:
        function = self.function(leaves, leaf)
        return super().to_record(leaves, leaf, names) | {
            "regressors": [names.feature(f) for f in function.features.tolist()],
            "centre": function.centre.tolist(),
            "coefficients": function.coefficients.tolist(),
            "lower": [b if np.isfinite(b) else None for b in function.lower.tolist()],
            "upper": [b if np.isfinite(b) else None for b in function.upper.tolist()],
        }

    def function(self, leaves: _core.LinearLeaves, leaf: int) -> LeafLinear:
        """The function of a leaf."""
        entries = self.at(leaves, leaf)
        of_entries = leaves.features[entries], leaves.centre[entries], leaves.weights[entries]
        return LeafLinear(
            *of_entries, leaves.intercept[leaf], leaves.lower[leaf], leaves.upper[leaf]
        )


DENSE, SPARSE, LINEAR = DenseLeaves(), TopkLeaves(), LinearLeaves()

LEAF_KINDS: dict[str, LeafKind] = {kind.name: kind for kind in (DENSE, SPARSE, LINEAR)}
"""All kinds by their names."""
