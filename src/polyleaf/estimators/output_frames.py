"""Predictions as tables: which libraries there are, and how a matrix becomes one of theirs.

Owns this choice. Must not know estimators, nor what the columns mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

__all__ = ["Library", "as_table", "check_library"]

Library: TypeAlias = Literal["default", "pandas", "polars", "pyarrow"]
_LIBRARIES = ("default", "pandas", "polars", "pyarrow")


def check_library(library: Any) -> None:
    """ValueError for what is none of the choices."""
    if library not in _LIBRARIES:
        raise ValueError(
            f"set_output(predict=) is one of {', '.join(_LIBRARIES)}; got {library!r}."
        )


def as_table(
    library: Library, values: np.ndarray | dict[str, np.ndarray], names: Sequence[str], X: Any
) -> Any:
    """A matrix (n_rows, n_columns), or a dict of columns, as a table with these names; of pandas with the
    index of X, if X has one.

    Vectors, and everything for "default", stay arrays.
    """
    if library == "default" or (isinstance(values, np.ndarray) and values.ndim == 1):
        return values
    if library == "pandas":
        import pandas as pd

        return pd.DataFrame(
            values, columns=list(names), index=X.index if isinstance(X, pd.DataFrame) else None
        )
    if library == "polars":
        import polars as pl

        return pl.DataFrame(values, schema=list(names))
    import pyarrow as pa

    columns = list(values.T) if isinstance(values, np.ndarray) else [values[name] for name in names]
    return pa.table(columns, names=list(names))
