"""Files of data sets: bins, codes, and targets as arrays of a `.npz` file, which runs no code."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.binned_data.binned import Codes, SparseCodes
from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.data_iter import BinnedData
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.runtime.row_data import ARGUMENTS, RowData
from polyleaf.runtime.temporary_files import open_replacement
from polyleaf.user_data.feature_table import CategoryColumn

_FORMAT = "polyleaf-dataset-1"
_CATEGORY = "category"


def write_dataset(path: str | os.PathLike[str], data: BinnedData) -> None:
    """Write a data set; see `Dataset.save`."""
    mapper, arrays = data.mapper.to_state()
    arrays = {f"mapper/{name}": array for name, array in arrays.items()}
    codes = data.codes
    if isinstance(codes, Codes):
        arrays["codes/dense"] = codes.dense
        if codes.sparse is not None:
            for field in fields(codes.sparse):
                arrays[f"codes/{field.name}"] = getattr(codes.sparse, field.name)
    else:
        arrays["codes/dense"] = codes.array()
    if data.features is not None:
        arrays["features"] = data.features
    for i, column in enumerate(data.high_cardinality):
        arrays[f"{_CATEGORY}/{i}"] = column.index
    names: dict[str, list[str]] = {}
    for name, values in data.rows.to_dict().items():
        array = np.asarray(values)
        if array.dtype.kind not in "biufU":
            raise ValueError(
                f"{ARGUMENTS[name]} has values of type {array.dtype}, which a file of a Dataset "
                "cannot hold: pass numbers or text as an array, or pass it to fit instead."
            )
        arrays[f"rows/{name}"] = array
        if hasattr(values, "columns"):
            names[name] = [str(column) for column in values.columns]
    content = {
        "format": _FORMAT,
        "polyleaf_version": polyleaf_version(),
        "mapper": mapper,
        "shape": [data.n_rows, data.n_features],
        "categories": [[c.feature, list(c.categories)] for c in data.high_cardinality],
        "names": names,
    }
    arrays["content"] = np.frombuffer(json.dumps(content).encode(), np.uint8)
    with open_replacement(Path(path)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_dataset(path: str | os.PathLike[str]) -> BinnedData:
    """Read a data set; see `Dataset.load`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        content = json.loads(arrays.pop("content").tobytes())
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        return _build(content, arrays)
    except OSError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a file of a Dataset: {error}.") from error


def _build(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> BinnedData:
    mapper = BinMapper.from_state(content["mapper"], select_prefix(arrays, "mapper/"))
    stored, (n_rows, n_features) = select_prefix(arrays, "codes/"), content["shape"]
    dense = stored.pop("dense")
    sparse = SparseCodes(**stored) if stored else None
    n_columns = len(dense) + (0 if sparse is None else len(sparse.features))
    if dense.shape[1:] != (n_rows,) or n_columns < n_features or dense.dtype != np.uint8:
        raise ValueError("its codes do not have the shape of its table")
    rows: dict[str, Any] = {}
    for name, values in select_prefix(arrays, "rows/").items():
        if len(values) != n_rows:
            raise ValueError(f"{ARGUMENTS[name]} has {len(values)} rows, not {n_rows}")
        rows[name] = values
        if name in content["names"]:
            import pandas as pd

            rows[name] = pd.DataFrame(values, columns=content["names"][name])
    columns = [
        CategoryColumn(arrays[f"{_CATEGORY}/{i}"], tuple(categories), feature)
        for i, (feature, categories) in enumerate(content["categories"])
    ]
    codes = Codes(n_rows, n_columns, dense, sparse)
    features = arrays.get("features")
    return BinnedData(mapper, codes, features, columns, n_rows, n_features, RowData(**rows))


def select_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
