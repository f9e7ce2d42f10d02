"""A forest made from arrays equals one made tree by tree, and rejects the same bad input."""

import numpy as np
import pytest
from support.models import random_model

from polyleaf import _core
from polyleaf.model import storage

N_OUTPUTS = 3


@pytest.fixture
def arrays():
    return storage.to_arrays(random_model(n_outputs=N_OUTPUTS, n_rounds=5).forest)


def make_from_arrays(arrays, n_features=100):
    forest = _core.Forest(N_OUTPUTS)
    names = (*storage.NODE_ARRAYS, *storage._OTHER_ARRAYS, "values")
    forest.extend(**{name: arrays[name] for name in names}, n_features=n_features)
    return forest


def test_equals_forest_built_tree_by_tree(arrays):
    forest, by_tree = make_from_arrays(arrays), _core.Forest(N_OUTPUTS)
    for tree, leaves, output in storage.iter_trees(forest):
        by_tree.append(tree, leaves, output)
    assert len(forest) == 5 and forest.tree(0).n_leaves > 1
    for other in (forest, by_tree):
        again = storage.to_arrays(other)
        assert again.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array)


def test_views_outlive_arrays_and_forest(arrays):
    forest = make_from_arrays({name: array.copy() for name, array in arrays.items()})
    again, features = forest.tree(2), forest.split_features(2, 3)
    kept = forest.values(4)
    forest.truncate(4)
    splits = arrays["feature"][slice(*arrays["node_offsets"][2:4])]
    np.testing.assert_array_equal(forest.tree(2).feature, splits)
    np.testing.assert_array_equal(features, np.unique(splits[splits >= 0]))
    del forest
    np.testing.assert_array_equal(again.feature, splits)
    np.testing.assert_array_equal(kept.ravel(), arrays["values"][-kept.size :])


@pytest.mark.parametrize(
    "name, change, sentence",
    [
        ("values", lambda a: a[:-1], "'values' is too short"),
        ("values", lambda a: np.append(a, np.float32(0)), "'values' is longer"),
        ("output_gain", lambda a: a[:-1], "'output_gain' is too short"),
        ("output_gain", lambda a: np.append(a, np.float32(0)), "'output_gain' is longer"),
        ("gain_outputs", lambda a: a * 0 - 1, "'output_gain' is too short"),
        ("gain_outputs", lambda a: a[:-1], "for each tree"),
        ("output", lambda a: a[:-1], "for each tree"),
        ("node_offsets", lambda a: a - 1, "Offsets must rise"),
        ("node_offsets", lambda a: a[::-1].copy(), "Offsets must rise"),
        ("node_offsets", lambda a: a * 1000, "Offsets must rise"),
        ("set_offsets", lambda a: a - 5, "Offsets must rise"),
        ("categories", lambda a: np.zeros((len(a), 3), np.uint64), "4 words"),
        ("threshold", lambda a: a[:-1], "."),
        ("cover", lambda a: a[:-1], "."),
        ("missing_left", lambda a: a[:-1], "."),
    ],
)
def test_inconsistent_arrays_raise(arrays, name, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_from_arrays(arrays | {name: change(arrays[name])})


def test_feature_numbers_out_of_range_raise(arrays):
    with pytest.raises(ValueError):
        make_from_arrays(arrays, n_features=1)
