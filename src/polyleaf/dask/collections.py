"""Collections as partitions: DataFrames and Arrays of Dask, lists of delayed values, and data in memory.

Owns: which parts a collection has, and that those of X, y, weights and offsets go together. Must not know:
what is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future

__all__ = ["Parts", "Rows", "alike", "is_lazy"]


def is_lazy(X: Any) -> bool:
    """Whether data lie in partitions."""
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Delayed | Future)
    return is_dask_collection(X) or is_list


def alike(values: Any, X: Any, name: str) -> Any:
    """Values of the rows of X, both lazy, in its partitions.

    Raises
    ------
    ValueError
        Where they are a collection of another kind, or cut otherwise.
    """
    kinds = [_kind(each) for each in (X, values)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"X is {kinds[0]}, but {name} is {kinds[1]}: pass the same kind of collection."
        )
    if isinstance(X, da.Array):
        values = _cut_as(values, X.chunks[0])
    n_parts = [
        each.numblocks[0] if isinstance(X, da.Array) else _n_parts(each) for each in (X, values)
    ]
    if n_parts[0] != n_parts[1]:
        raise ValueError(
            f"X has {n_parts[0]} partitions, but {name} has {n_parts[1]}: they must be cut alike."
        )
    return values


def _kind(values: Any) -> str:
    if isinstance(values, da.Array):
        return "a dask Array"
    if is_dask_collection(values) and hasattr(values, "map_partitions"):
        return "a dask DataFrame or Series"
    return "a list of delayed values" if is_lazy(values) else "in memory"


def _n_parts(values: Any) -> int:
    return int(values.npartitions) if hasattr(values, "npartitions") else len(values)


def _cut_as(values: da.Array, chunks: Sequence[int] | None) -> da.Array:
    """An array with the chunks of rows of another, where both are known to have as many rows."""
    known = chunks is not None and not np.isnan(chunks).any() and not np.isnan(values.shape[0])
    if known and values.chunks[0] != chunks and sum(chunks or ()) == values.shape[0]:
        return values.rechunk({0: tuple(chunks or ())})
    return values


@dataclass
class Rows:
    """X, y, weights and offsets, as they were given."""

    X: Any
    y: Any
    weight: Any = None
    offset: Any = None
    called: str = "X"

    def on(self, client: Client) -> Parts:
        """Their parts on the cluster, without those that have no rows."""
        X = _parts_of(self.X, None)
        chunks = self.X.chunks[0] if isinstance(self.X, da.Array) else None
        of = "" if self.called == "X" else f" of {self.called}"
        named = [(self.called, X), (f"y{of}", _parts_of(self.y, chunks))]
        for name, values in (("weights", self.weight), ("offset", self.offset)):
            if values is not None:
                named.append((f"{name}{of}", _parts_of(values, chunks)))
        for name, parts in named:
            if len(parts) != len(X):
                raise ValueError(
                    f"{self.called} has {len(X)} partitions, but {name} has {len(parts)}: they must be cut "
                    "alike."
                )
        held = [_futures(client, parts) for _, parts in named]
        lengths = [client.gather(client.map(_length, parts, pure=False)) for parts in held]
        for (name, _), found in zip(named, lengths, strict=True):
            for i, (of_x, n) in enumerate(zip(lengths[0], found, strict=True)):
                if n != of_x:
                    raise ValueError(
                        f"Partition {i}: {name} has {n} rows, but {self.called} has {of_x}."
                    )
        kept = [i for i, n in enumerate(lengths[0]) if n > 0]
        if not kept:
            raise ValueError(f"{self.called} has no rows.")
        of_x, of_y, *further = ([parts[i] for i in kept] for parts in held)
        weight = None if self.weight is None else further[0]
        offset = None if self.offset is None else further[-1]
        return Parts(of_x, of_y, weight, offset, kept, [lengths[0][i] for i in kept])


class Parts(NamedTuple):
    """Futures of the parts of X, y, weights and offsets that have rows.

    Attributes
    ----------
    X, y : list of Future
    weight, offset : list of Future, or None
    numbers : list of int
        Of each part among all that were given.
    sizes : list of int
        Rows of each.
    """

    X: list[Future]
    y: list[Future]
    weight: list[Future] | None
    offset: list[Future] | None
    numbers: list[int]
    sizes: list[int]


def _parts_of(values: Any, chunks: Sequence[int] | None) -> list[Any]:
    """Delayed parts, by rows; arrays are cut as X is."""
    if isinstance(values, da.Array):
        values = _cut_as(values, chunks)
        if values.ndim > 1:
            values = values.rechunk({axis: -1 for axis in range(1, values.ndim)})
        return list(values.to_delayed().ravel())
    if is_dask_collection(values) and hasattr(values, "to_delayed"):
        return list(values.to_delayed())
    if (
        isinstance(values, list | tuple)
        and len(values) > 0
        and isinstance(values[0], Delayed | Future)
    ):
        return list(values)
    return [values]


def _futures(client: Client, parts: list[Any]) -> list[Future]:
    """Parts on the cluster; what is in memory is sent there as the argument of a task, so that it can be sent
    again."""
    found = []
    for part in parts:
        if isinstance(part, Future):
            found.append(part)
        elif isinstance(part, Delayed):
            found.append(client.compute(part))
        else:
            found.append(client.submit(_itself, part, pure=False))
    return found


def _itself(values: Any) -> Any:
    return values


def _length(values: Any) -> int:
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)
