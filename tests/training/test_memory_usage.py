"""memory_limit: which arrays are memory-mapped; the model does not change."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.training import memory_usage

N, N_FEATURES = 3000, 20
MUCH = 1 << 40


def problem(n_outputs=3):
    X = np.random.default_rng(0).normal(size=(N, N_FEATURES))
    return X, np.column_stack([X[:, k] * X[:, k + 1] for k in range(n_outputs)])


def make_dataset(X, y, limit, folder, **options):
    batches = [(X[i : i + 700], y[i : i + 700]) for i in range(0, N, 700)]
    return Dataset.from_batches(batches, memory_limit=limit, cache_dir=folder, **options)


SMALL = {"n_estimators": 4, "max_depth": 3, "max_leaves": None, "n_jobs": 1, "random_state": 0}
TRAININGS = {
    "outputs": (PolyleafRegressor, {}),
    "a curvature for each output": (PolyleafRegressor, {"objective": "poisson"}),
    "all pairs": (PolyleafRegressor, {"objective": "poisson", "hessian": "full"}),
    "trees of one output": (PolyleafRegressor, {"multi_strategy": "one_output_per_tree"}),
    "layers": (PolyleafRegressor, {"boosting_step": "layer", "grow_policy": "depthwise"}),
    "linear leaves": (PolyleafRegressor, {"leaf": "linear"}),
    "a sketch": (PolyleafRegressor, {"sketch": "random_projection", "sketch_dim": 2}),
    "classes": (PolyleafClassifier, {}),
}


def measure_memory(make, parameters, X, y, monkeypatch):
    """Return the bytes that must stay in memory and those of the row state, as counted by
    training."""
    seen = []
    row_bytes, tree_bytes = memory_usage.row_bytes, memory_usage.tree_bytes

    def counted(*arguments):
        seen.append(row_bytes(*arguments))
        return seen[-1]

    def counted_trees(columns, settings):
        found = tree_bytes(columns, settings)
        seen.append(found + memory_usage.histogram_bytes(N, N_FEATURES, columns, settings))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(memory_usage, "row_bytes", counted)
        patch.setattr(memory_usage, "tree_bytes", counted_trees)
        make(**SMALL, **parameters).fit(make_dataset(X, y, MUCH, None, keep_features=True))
    row, others = seen
    return N * row.others + others, N * row.state, N * (row.bins + N_FEATURES)


@pytest.mark.parametrize("training", TRAININGS)
def test_limit_moves_bins_and_then_row_state_to_files(training, tmp_path, monkeypatch):
    make, parameters = TRAININGS[training]
    X, y = problem()
    y = np.abs(y).round() if make is PolyleafRegressor else y[:, 0] > 0
    stays, state, bins = measure_memory(make, parameters, X, y, monkeypatch)
    made = []
    create = memory_usage.create_memmap
    monkeypatch.setattr(
        memory_usage, "create_memmap", lambda *about: made.append(about) or create(*about)
    )
    models = {}
    for limit in (MUCH, stays + bins + state, stays + bins + state - 1, stays + bins - 1, stays):
        made.clear()
        data = make_dataset(X, y, limit, tmp_path, keep_features=training == "linear leaves")
        models[limit] = make(**SMALL, **parameters).fit(data).save_model()
        assert data.is_memmapped == (limit < stays + bins or data.memory.limit < 8 * X.size)
        memory = stays + (0 if data.is_memmapped else bins) + state
        assert bool(made) == (memory > limit)
    assert len(set(models.values())) == 1
    with pytest.raises(
        ValueError, match="with bins, scores and derivatives in files this training still"
    ):
        data = make_dataset(X, y, stays - 1, tmp_path, keep_features=training == "linear leaves")
        make(**SMALL, **parameters).fit(data)


def test_no_files_without_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_usage, "create_memmap", None)
    X, y = problem()
    data = Dataset.from_batches([(X, y)], cache_dir=tmp_path)
    PolyleafRegressor(**SMALL).fit(data)
    assert data.is_memmapped and not Dataset.from_batches([(X, y)]).is_memmapped


def test_released_data_are_unchanged(tmp_path):
    X, y = problem()
    data = make_dataset(X, y, MUCH, tmp_path, keep_features=True)
    codes, features = data.codes.copy(), data.features.copy()
    data.release_memory()
    data.release_memory()  # which exist already
    assert data.is_memmapped
    np.testing.assert_array_equal(data.codes, codes)
    np.testing.assert_array_equal(data.features, features)


def test_high_cardinality_columns_stay_in_memory(tmp_path):
    X = pd.DataFrame({"id": [f"c{i % 400}" for i in range(N)], "x": np.arange(N) * 1.0})
    data = Dataset.from_batches([(X, np.arange(N) % 7)], memory_limit="1 GB", cache_dir=tmp_path)
    with pytest.raises(ValueError, match="more than 255 categories"):
        data.release_memory()
