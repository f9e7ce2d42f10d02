"""Saved state of a `BinMapper`, to untrusted files and from them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.binned_data.high_cardinality import Category, DerivedColumns, is_category
from polyleaf.runtime.checks import require_bins
from polyleaf.user_data.feature_table import FeatureSpec

if TYPE_CHECKING:
    from polyleaf.binned_data.binning import BinMapper
    from polyleaf.runtime.types import JsonObject

CategoryLists = list[list[Category] | None]
State = tuple[
    FeatureSpec,
    list[NDArray[np.float64]],
    NDArray[np.bool_],
    CategoryLists,
    CategoryLists,
    DerivedColumns | None,
    NDArray[np.float64] | None,
    bool,
]


def write_state(mapper: BinMapper) -> tuple[JsonObject, dict[str, np.ndarray]]:
    """Return the state of a fitted mapper: a dict that JSON can hold, and arrays.

    meta : dict
        ``max_bins``, ``n_features``, ``feature_names`` (or None), ``categories``: one entry
        ``{"feature", "kept", "rare"}`` per categorical column; ``transforms_regressors``,
        whether `regressor_transform_` is not None; ``derived_columns`` if there are any;
        ``column_labels`` if X was a frame whose columns had labels other than text.
    arrays : dict
        ``thresholds`` float64 (all columns concatenated), ``offsets`` int64 (n_columns + 1,),
        ``float64_bins`` uint8 (n_columns,), 1 for float64 bins, ``ranges`` float64
        (2 * n_features,), if they are known, and arrays of derived columns.
    """
    names = mapper.feature_names_
    meta: dict[str, object] = {
        "max_bins": int(mapper.max_bins),
        "n_features": mapper.n_features_,
        "feature_names": None if names is None else list(names),
        "categories": [
            {"feature": int(f), "kept": mapper.categories_[f], "rare": mapper.rare_categories_[f]}
            for f in np.flatnonzero(mapper.is_categorical_)
        ],
        "transforms_regressors": mapper.regressor_transform_ is not None,
    }
    thresholds, offsets = mapper.concatenate_thresholds()
    arrays: dict[str, np.ndarray] = {
        "thresholds": thresholds,
        "offsets": offsets,
        "float64_bins": mapper.float64_bins_.astype(np.uint8),
    }
    if mapper.ranges_ is not None:
        arrays["ranges"] = mapper.ranges_.ravel()
    if mapper.spec_.column_labels is not None:
        meta["column_labels"] = list(mapper.spec_.column_labels)
    if mapper.derived_columns_ is not None:
        meta["derived_columns"], derived_arrays = mapper.derived_columns_.to_state()
        arrays |= derived_arrays
    return meta, arrays


def read_state(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], limit: int
) -> tuple[int, State]:
    """Return `max_bins`, at most `limit`, and the fitted state of a mapper.

    Raises a ValueError if `meta` and `arrays` are not the state of a mapper.
    """
    is_valid = isinstance(meta, Mapping) and isinstance(arrays, Mapping)
    require_bins(is_valid, "is not a pair of mappings")
    n_features: Any = meta.get("n_features")
    max_bins: Any = meta.get("max_bins")
    is_valid = _is_int(n_features) and 1 <= n_features < 2**31
    require_bins(is_valid, "has no valid number of features")
    is_valid = _is_int(max_bins) and 2 <= max_bins <= limit
    require_bins(is_valid, f"has a max_bins outside 2..{limit}")
    names = _read_names(meta.get("feature_names"), n_features)
    labels = _read_names(meta.get("column_labels"), n_features)
    derived, n_columns = None, n_features
    if "derived_columns" in meta:
        derived = DerivedColumns.from_state(meta["derived_columns"], arrays, n_features)
        n_columns = derived.n_columns
    # Before arrays of this length are made, which a damaged number may let fill the memory.
    n_stored = len(_read_array(arrays, "float64_bins", np.uint8))
    require_bins(n_stored == n_columns, "has arrays of the wrong length")
    n_bins = np.full(n_columns, max_bins)
    for _, columns in () if derived is None else derived.iter_columns():
        n_bins[columns] = limit
    thresholds, is_float64 = _read_thresholds(arrays, n_bins)
    categories, rare = _read_categories(meta.get("categories"), n_columns, limit)
    is_categorical = np.array([kept is not None for kept in categories])
    pairs = zip(thresholds, is_categorical, strict=True)
    is_valid = not any(len(t) for t, has_categories in pairs if has_categories)
    require_bins(is_valid, "gives thresholds to a categorical feature")
    for feature, columns in () if derived is None else derived.iter_columns():
        require_bins(not is_categorical[columns].any(), "has categories in a numeric column")
        is_categorical[feature.feature] = True
    spec = FeatureSpec(n_features, names, is_categorical[:n_features], labels)
    transforms: Any = meta.get("transforms_regressors")
    require_bins(isinstance(transforms, bool), "does not tell whether regressors are transformed")
    ranges = None
    if "ranges" in arrays:
        ranges = _read_array(arrays, "ranges", np.float64)
        require_bins(len(ranges) == 2 * n_features, "has ranges of the wrong length")
        ranges = ranges.reshape(2, n_features)
    return max_bins, (spec, thresholds, is_float64, categories, rare, derived, ranges, transforms)


def _is_int(value: object) -> bool:
    """Whether a value is an integer, not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def _read_names(names: Any, n_features: int) -> tuple[str, ...] | None:
    """Return feature names, or None."""
    if names is None:
        return None
    is_valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require_bins(is_valid, "has feature names that are not text")
    require_bins(
        len(names) == n_features, f"has {len(names)} feature names for {n_features} features"
    )
    return tuple(names)


def _read_thresholds(
    arrays: Mapping[str, object], max_bins: NDArray[np.int64]
) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """Return the thresholds of each column, and which have float64 bins; `max_bins` of each."""
    values = _read_array(arrays, "thresholds", np.float64)
    offsets = _read_array(arrays, "offsets", np.int64)
    is_float64 = _read_array(arrays, "float64_bins", np.uint8)
    require_bins(len(offsets) == len(max_bins) + 1, "has arrays of the wrong length")
    is_valid = offsets[0] == 0 and offsets[-1] == len(values)
    require_bins(is_valid, "has thresholds that belong to no feature")
    is_valid = bool(np.all((offsets >= 0) & (offsets <= len(values))))
    require_bins(is_valid, "has offsets outside its thresholds")
    counts = np.diff(offsets)
    is_valid = bool(np.all((counts >= 0) & (counts < max_bins)))
    require_bins(is_valid, "has a feature with too many thresholds")
    require_bins(bool(np.isfinite(values).all()), "has thresholds that are not finite")
    require_bins(bool(np.all(is_float64 <= 1)), "has flags other than 0 and 1")
    thresholds = [values[begin:end].copy() for begin, end in pairwise(offsets)]
    for feature, t in enumerate(thresholds):
        is_valid = bool(np.all(np.diff(t) > 0))
        require_bins(is_valid, f"has thresholds of feature {feature} that do not ascend")
        with np.errstate(over="ignore"):
            is_valid = bool(is_float64[feature]) or np.array_equal(t.astype(np.float32), t)
        require_bins(is_valid, f"has thresholds of feature {feature} that are not float32 numbers")
    return thresholds, is_float64.astype(bool)


def _read_array(arrays: Mapping[str, object], name: str, dtype: type) -> np.ndarray:
    array = arrays.get(name)
    is_valid = isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == dtype
    require_bins(is_valid, f"has no {name!r} that is a one-dimensional {np.dtype(dtype)} array")
    return np.ascontiguousarray(array)


def _read_categories(
    entries: Any, n_features: int, limit: int
) -> tuple[CategoryLists, CategoryLists]:
    """Return the categories with bins of their own, and the rare ones, of each feature."""
    kept: CategoryLists = [None] * n_features
    rare: CategoryLists = [None] * n_features
    require_bins(isinstance(entries, list), "has no list of categories")
    for entry in entries:
        is_valid = isinstance(entry, Mapping) and set(entry) == {"feature", "kept", "rare"}
        require_bins(is_valid, "has malformed categories")
        feature = entry["feature"]
        is_valid = _is_int(feature) and 0 <= feature < n_features
        require_bins(is_valid, "has categories of a feature that does not exist")
        require_bins(kept[feature] is None, f"has the categories of feature {feature} twice")
        for group in (entry["kept"], entry["rare"]):
            is_valid = isinstance(group, list) and all(is_category(c) for c in group)
            require_bins(
                is_valid,
                f"has categories of feature {feature} that are not text, finite numbers or "
                "booleans",
            )
        together = entry["kept"] + entry["rare"]
        require_bins(
            len(set(together)) == len(together), f"repeats a category of feature {feature}"
        )
        is_valid = len(entry["kept"]) + bool(entry["rare"]) <= limit
        require_bins(is_valid, f"has too many categories for feature {feature}")
        kept[feature], rare[feature] = list(entry["kept"]), list(entry["rare"])
    return kept, rare
