"""Predictions as columns, and columns as files: CSV, Parquet, JSON lines.

Owns how answers are named and written. Must not know models or options.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.distributions import Distribution
from polyleaf.files.io import ReadError, write_csv
from polyleaf.files.readers import FORMATS
from polyleaf.inputs.objects import get_missing_mask

__all__ = ["Columns", "beside", "name_columns", "quantile_columns", "write_predictions"]

Columns = dict[str, np.ndarray]
_JSON_LINES = (".jsonl", ".ndjson")


def name_columns(names: Sequence[str], values: np.ndarray) -> Columns:
    """The columns of predictions, by name."""
    return dict(zip(names, values.reshape(len(values), -1).T, strict=True))


def quantile_columns(
    targets: Sequence[str], distribution: Distribution, levels: Sequence[float]
) -> Columns:
    """Columns with quantiles of distributions, the levels of the first target first."""
    found = {level: name_columns(targets, distribution.ppf(level)) for level in levels}
    return {f"{target}_q{level:g}": found[level][target] for target in targets for level in levels}


def beside(kept: Columns, answers: Columns) -> Columns:
    """Columns of the data, as they stand there, before the predictions.

    Raises
    ------
    ReadError
        Where predictions have a column of such a name.
    """
    taken = [name for name in kept if name in answers]
    if taken:
        raise ReadError(f"--keep {taken[0]}: the predictions have a column of this name.")
    return kept | answers


def write_predictions(columns: Columns, out: Path | None, as_json: bool) -> None:
    """Write columns to a file, in the format of its ending, or to the output."""
    ending = "" if out is None else out.suffix.lower()
    if as_json or ending in _JSON_LINES:
        _write_json_lines(columns, out)
    elif out is not None and ending in FORMATS["parquet"]:
        _write_parquet(columns, out)
    elif out is not None and ending not in FORMATS["csv"]:
        raise ReadError(
            f"--out writes CSV or Parquet, or JSON lines; {out.name!r} ends like none of them."
        )
    else:
        # astype(str) gives the shortest text that reads back as the same float32
        cells = (
            np.where(get_missing_mask(column), "", column.astype(str))
            for column in columns.values()
        )
        write_csv(out, columns, zip(*(column.tolist() for column in cells), strict=True))


def _write_json_lines(columns: Columns, out: Path | None) -> None:
    rows = zip(*(_for_json(column) for column in columns.values()), strict=True)
    lines = (
        json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str) + "\n"
        for row in rows
    )
    if out is None:
        sys.stdout.writelines(lines)
        return
    with open(out, "w", encoding="utf-8") as stream:
        stream.writelines(lines)


def _for_json(column: np.ndarray) -> list[Any]:
    """Values as JSON has them, which knows no NaN."""
    return [
        None if missing else v
        for v, missing in zip(column.tolist(), get_missing_mask(column), strict=True)
    ]


def _write_parquet(columns: Columns, out: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ReadError('Writing Parquet needs PyArrow: pip install "polyleaf[arrow]".') from None
    pq.write_table(
        pa.table(
            {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}
        ),
        out,
    )
