"""Rows that are hard for exported models."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyleaf.export.ir import build_ir
from polyleaf.user_data.feature_table import CategoryColumn, DenseBlock, FeatureTable


def hard_rows(est: Any, seed: int = 0, n: int = 200) -> np.ndarray:
    """Return a matrix of edge cases for exported models.

    It contains thresholds, their neighbouring floats, NaN, infinities and arbitrary categories.
    """
    rng, source = np.random.default_rng(seed), build_ir(est)
    mapper, dtype = source.model.mapper, source.dtype
    X = np.empty((n, mapper.n_features_), dtype)
    largest = np.finfo(dtype).max
    for feature, thresholds in enumerate(mapper.thresholds_):
        known = np.concatenate([np.asarray(thresholds, dtype), [dtype(0.5)]])
        special = np.array(
            [np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, 1e-40, 3.7], dtype
        )
        near = np.nextafter(known, dtype(np.inf)), np.nextafter(known, dtype(-np.inf)), known
        X[:, feature] = rng.choice(np.concatenate([*near, rng.choice(special, 1 + len(known))]), n)
        if mapper.is_categorical_[feature]:
            n_codes = int(mapper.n_bins_[feature])
            X[:, feature] = rng.choice(
                np.array([*range(n_codes), np.nan, -1, n_codes, 254, 1e9]), n
            )
    return X


def prepare_features(est: Any, X: np.ndarray) -> Any:
    """Return the rows as a FeatureTable, bypassing the check that rejects infinities."""
    from polyleaf.export.ir import build_ir

    mapper = build_ir(est).model.mapper
    numeric = np.flatnonzero(~mapper.is_categorical_)
    table = FeatureTable(len(X), mapper.n_features_, None)
    table.dense.append(DenseBlock(X[:, numeric], numeric))
    for feature in np.flatnonzero(mapper.is_categorical_).tolist():
        known = [*mapper.categories_[feature], *mapper.rare_categories_[feature][:1]]
        codes = np.nan_to_num(X[:, feature], nan=-1.0)
        index = np.where((codes >= 0) & (codes < len(known)), codes, -1).astype(np.int32)
        table.categories.append(CategoryColumn(index, tuple(known), feature))
    return table
