"""Dask collections as partitions: DataFrames, Arrays, lists of delayed values, data in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future

__all__ = ["DataFutures", "LazyData", "align", "is_lazy"]


def is_lazy(X: Any) -> bool:
    """Return whether data are a collection of partitions."""
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Delayed | Future)
    return is_dask_collection(X) or is_list


def align(values: Any, X: Any, name: str) -> Any:
    """Return the values with the partitions of X; both are lazy.

    Raises
    ------
    ValueError
        If they are another kind of collection, or have other partitions.
    """
    kinds = [_describe_kind(each) for each in (X, values)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"X is {kinds[0]}, but {name} is {kinds[1]}: pass the same kind of collection."
        )
    if isinstance(X, da.Array):
        values = _rechunk_rows(values, X.chunks[0])
    n_partitions = [
        each.numblocks[0] if isinstance(X, da.Array) else _count_partitions(each)
        for each in (X, values)
    ]
    if n_partitions[0] != n_partitions[1]:
        raise ValueError(
            f"X has {n_partitions[0]} partitions, but {name} has {n_partitions[1]}: repartition "
            "them alike."
        )
    return values


def _describe_kind(values: Any) -> str:
    if isinstance(values, da.Array):
        return "a dask Array"
    if is_dask_collection(values) and hasattr(values, "map_partitions"):
        return "a dask DataFrame or Series"
    return "a list of delayed values" if is_lazy(values) else "in memory"


def _count_partitions(values: Any) -> int:
    return int(values.npartitions) if hasattr(values, "npartitions") else len(values)


def _rechunk_rows(values: da.Array, chunks: Sequence[int] | None) -> da.Array:
    """Return an array with these chunks of rows, if both are known to have equally many rows."""
    known = chunks is not None and not np.isnan(chunks).any() and not np.isnan(values.shape[0])
    if known and values.chunks[0] != chunks and sum(chunks or ()) == values.shape[0]:
        return values.rechunk({0: tuple(chunks or ())})
    return values


@dataclass
class LazyData:
    """X, y, weights and offsets as passed by the user, and the name of X in messages."""

    X: Any
    y: Any
    weight: Any = None
    offset: Any = None
    name: str = "X"

    def submit(self, client: Client) -> DataFutures:
        """Compute the partitions on the cluster, and drop those without rows."""
        X = _split_partitions(self.X, None)
        chunks = self.X.chunks[0] if isinstance(self.X, da.Array) else None
        suffix = "" if self.name == "X" else f" of {self.name}"
        named = [(self.name, X), (f"y{suffix}", _split_partitions(self.y, chunks))]
        for name, values in (("weights", self.weight), ("offset", self.offset)):
            if values is not None:
                named.append((f"{name}{suffix}", _split_partitions(values, chunks)))
        for name, partitions in named:
            if len(partitions) != len(X):
                raise ValueError(
                    f"{self.name} has {len(X)} partitions, but {name} has {len(partitions)}: "
                    "repartition them alike."
                )
        futures = [_submit_partitions(client, partitions) for _, partitions in named]
        lengths = [client.gather(client.map(_count_rows, part, pure=False)) for part in futures]
        for (name, _), counts in zip(named, lengths, strict=True):
            for i, (expected, n) in enumerate(zip(lengths[0], counts, strict=True)):
                if n != expected:
                    raise ValueError(
                        f"Partition {i}: {name} has {n} rows, but {self.name} has {expected}."
                    )
        kept = [i for i, n in enumerate(lengths[0]) if n > 0]
        if not kept:
            raise ValueError(f"{self.name} has no rows.")
        X_kept, y_kept, *others = ([partitions[i] for i in kept] for partitions in futures)
        weight = None if self.weight is None else others[0]
        offset = None if self.offset is None else others[-1]
        return DataFutures(X_kept, y_kept, weight, offset, kept, [lengths[0][i] for i in kept])


class DataFutures(NamedTuple):
    """Futures of the partitions of X, y, weights and offsets that have rows.

    Attributes
    ----------
    X, y : list of Future
    weight, offset : list of Future, or None
    numbers : list of int
        Index of each partition among all partitions.
    sizes : list of int
        Number of rows of each partition.
    """

    X: list[Future]
    y: list[Future]
    weight: list[Future] | None
    offset: list[Future] | None
    numbers: list[int]
    sizes: list[int]


def _split_partitions(values: Any, chunks: Sequence[int] | None) -> list[Any]:
    """Return delayed partitions of rows; arrays are chunked like X."""
    if isinstance(values, da.Array):
        values = _rechunk_rows(values, chunks)
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


def _submit_partitions(client: Client, partitions: list[Any]) -> list[Future]:
    """Return futures of partitions.

    Data in memory are sent as the argument of a task, so that they can be sent again if lost.
    """
    futures = []
    for partition in partitions:
        if isinstance(partition, Future):
            futures.append(partition)
        elif isinstance(partition, Delayed):
            futures.append(client.compute(partition))
        else:
            futures.append(client.submit(_identity, partition, pure=False))
    return futures


def _identity(values: Any) -> Any:
    return values


def _count_rows(values: Any) -> int:
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)
