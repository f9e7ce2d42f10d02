"""Collections as partitions: DataFrames and Arrays of Dask, lists of delayed values, and data in memory.

Owns: which parts a collection has, and that those of X, y and weights go together. Must not know: what is
done with them.
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

__all__ = ["Parts", "Rows", "is_lazy"]


def is_lazy(X: Any) -> bool:
    """Whether data lie in partitions."""
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Delayed | Future)
    return is_dask_collection(X) or is_list


@dataclass
class Rows:
    """X, y and weights, as they were given."""

    X: Any
    y: Any
    weight: Any = None
    called: str = "X"

    def on(self, client: Client) -> Parts:
        """Their parts on the cluster, without those that have no rows."""
        X = _parts_of(self.X, None)
        chunks = self.X.chunks[0] if isinstance(self.X, da.Array) else None
        named = [(self.called, X), (f"y of {self.called}", _parts_of(self.y, chunks))]
        if self.weight is not None:
            named.append((f"weights of {self.called}", _parts_of(self.weight, chunks)))
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
                    raise ValueError(f"Partition {i}: {name} has {n} rows, but {self.called} has {of_x}.")
        kept = [i for i, n in enumerate(lengths[0]) if n > 0]
        if not kept:
            raise ValueError(f"{self.called} has no rows.")
        of_x, of_y, *weights = ([parts[i] for i in kept] for parts in held)
        return Parts(of_x, of_y, weights[0] if weights else None, kept, [lengths[0][i] for i in kept])


class Parts(NamedTuple):
    """Futures of the parts of X, y and weights that have rows.

    Attributes
    ----------
    X, y : list of Future
    weight : list of Future, or None
    numbers : list of int
        Of each part among all that were given.
    sizes : list of int
        Rows of each.
    """

    X: list[Future]
    y: list[Future]
    weight: list[Future] | None
    numbers: list[int]
    sizes: list[int]


def _parts_of(values: Any, chunks: Sequence[int] | None) -> list[Any]:
    """Delayed parts, by rows; arrays are cut as X is."""
    if isinstance(values, da.Array):
        known = chunks is not None and not np.isnan(chunks).any() and not np.isnan(values.shape[0])
        if known and values.chunks[0] != chunks and sum(chunks or ()) == values.shape[0]:
            values = values.rechunk({0: tuple(chunks or ())})
        if values.ndim > 1:
            values = values.rechunk({axis: -1 for axis in range(1, values.ndim)})
        return list(values.to_delayed().ravel())
    if is_dask_collection(values) and hasattr(values, "to_delayed"):
        return list(values.to_delayed())
    if isinstance(values, list | tuple) and len(values) > 0 and isinstance(values[0], Delayed | Future):
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
