"""Queries: the rows that a ranking orders together, in the forms in which users pass them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.row_data import RowData, select_rows
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.frames import as_frame
from polyleaf.user_data.read_target import check_same_kind
from polyleaf.user_data.validation import abbreviate_names, count_rows, read_row_values

_MISSING_IDS = {
    "training": "Ranking needs the query of each row: pass qid, an id for each row or the name of "
    "a column of X, or group, the numbers of consecutive rows of the queries.",
    "X": "The score of a ranking needs the query of each row: pass qid or group. "
    "Cross-validation of scikit-learn passes qid to fit only: let it name a column of X, which "
    "score reads as well, or set enable_metadata_routing and set_score_request(qid=True).",
    "evaluation": "Evaluation set {name!r} needs the query of each row: pass eval_qid, a list with "
    "the ids of each set, or qid_val for X_val; or let qid name a column of X.",
}


def read_queries(
    rows: RowData, n_rows: int, ranks: Communicator = SINGLE_PROCESS, name: str = "training"
) -> RowData:
    """Return rows as the user passed them with the query, position and weight of each row.

    `ranks`: connection to the other rows, which may be of the same queries. `name`: of the data.

    Raises a ValueError if there are no ids, some are missing, or positions are no integers.
    """
    check_has_ids(rows.query, name)
    query = number_queries(read_row_values(rows.query, "qid", n_rows), ranks)
    rows = rows.replace(query=query, weight=_spread_weights(rows.weight, query))
    if rows.positions is None:
        return rows
    positions = read_row_values(rows.positions, "positions", n_rows)
    if positions.dtype.kind not in "iu":
        raise ValueError(
            "positions must be integers, the position at which each row was shown, such as 1 for "
            f"the first; got {positions.dtype}."
        )
    if positions.max(initial=0) > np.iinfo(np.int64).max:
        raise ValueError(
            f"positions must be at most {np.iinfo(np.int64).max}; got {positions.max()}."
        )
    return rows.replace(positions=positions.astype(np.int64))


def check_has_ids(query: Any, name: str) -> None:
    """Raise a ValueError if the ids of the queries of data are None. `name`: of the data."""
    if query is None:
        raise ValueError(_MISSING_IDS.get(name, _MISSING_IDS["evaluation"].format(name=name)))


def number_queries(ids: np.ndarray, ranks: Communicator = SINGLE_PROCESS) -> NDArray[np.int64]:
    """Return the number of the query of each row, in the order of the ids.

    The order of the rows then does not matter. Ids without order, such as text and numbers
    together, are ordered by type, then as text.
    """
    present, numbers = _find_unique(ids)
    if ranks.size == 1:
        return numbers
    parts = ranks.allgather_objects(present)
    check_same_kind(parts, "qid")
    if len({part.dtype for part in parts}) > 1:  # NumPy joins int64 and uint64 as float64
        parts = [part.astype(object) for part in parts]
    every = _find_unique(np.concatenate(parts))[0]
    number_of = {value: i for i, value in enumerate(every.tolist())}
    return np.array([number_of[value] for value in present.tolist()], np.int64)[numbers]


def _find_unique(ids: np.ndarray) -> tuple[np.ndarray, NDArray[np.int64]]:
    """Return the different ids in order, and the position of each of `ids` among them."""
    try:
        unique, positions = np.unique(ids, return_inverse=True)
        return unique, positions.astype(np.int64)
    except TypeError:
        values = sorted(set(ids.tolist()), key=lambda value: (type(value).__name__, str(value)))
        known = {value: i for i, value in enumerate(values)}
        unique = np.empty(len(values), object)
        unique[:] = values
        return unique, np.array([known[value] for value in ids.tolist()], np.int64)


def get_query_ids(X: Any, qid: Any, group: Any, names: tuple[str, str] = ("qid", "group")) -> Any:
    """Return the ids of the queries as the user passed them, or numbers made of sizes; else None.

    Raises a ValueError if both are given, or sizes do not add up to the rows.

    Parameters
    ----------
    qid : array-like of shape (n_rows,), or name of a column, or None
    group : array-like of shape (n_queries,), or None
        Numbers of consecutive rows of the queries.
    names : (str, str)
        Names of the two arguments in messages.
    """
    if group is None:
        return qid
    if qid is not None:
        raise ValueError(f"{names[0]} and {names[1]} are given: pass only one of them.")
    sizes = np.asarray(group)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise ValueError(
            f"{names[1]} must hold the number of rows of each query, integers of at least 1; an id "
            f"for each row is {names[0]}."
        )
    n_rows, total = count_rows(X), sum(sizes.tolist())
    if total != n_rows:
        hint = f"; an id for each row is {names[0]}" if len(sizes) == n_rows else ""
        raise ValueError(f"{names[1]} adds up to {total} rows, but X has {n_rows}{hint}.")
    return np.repeat(np.arange(len(sizes)), sizes.astype(np.int64))


def separate_column(X: Any, name: object, argument: str) -> tuple[Any, Any]:
    """Return a table without a column, and the values of the column.

    Raises a ValueError if X is no table, or has no such column.
    """
    frame = as_frame(X)
    if frame is None:
        raise ValueError(
            f"{argument}={name!r} names a column, but X is not a table: pass an id for each row."
        )
    if name not in frame.names:
        raise ValueError(
            f"{argument}={name!r}: X has no such column; its columns are "
            f"{abbreviate_names(frame.names)}."
        )
    column = frame.names.index(name)
    is_number = frame.get_kind(column) == "number"
    values = frame.to_numpy(column) if is_number else frame.to_list(column)
    others = [other for other in frame.names if other != name]
    native = frame.native
    return native.select(others) if hasattr(native, "select") else native[others], values


def drop_column(X: Any, column: str | None) -> Any:
    """Return X without this column, if it is a table that has it."""
    frame = None if column is None else as_frame(X)
    has_column = frame is not None and column in frame.names
    return separate_column(X, column, "qid")[0] if has_column else X


def _spread_weights(weight: DataLike | None, query: NDArray[np.int64]) -> Any:
    """Return the weight of each row, where weights may be those of the queries.

    Parameters
    ----------
    weight : array-like of shape (n_rows,) or (n_rows, n_goals), or of (n_queries,) or
        (n_queries, n_goals), or None
        Weights of queries are in the order in which the queries occur first.
    query : ndarray of shape (n_rows,)
    """
    if weight is None:
        return None
    values = weight if hasattr(weight, "shape") else np.asarray(weight)
    _, first, inverse = np.unique(query, return_index=True, return_inverse=True)
    if not values.shape or values.shape[0] != len(first):
        return weight
    position = np.argsort(np.argsort(first))
    return select_rows(values, position[inverse])
