"""Descriptions of leaf kinds, against the core and the file format."""

import numpy as np
import pytest
from support.models import random_model

from polyleaf.model import storage
from polyleaf.model.leaf_kinds import LEAF_KINDS, NameLookup


def test_descriptors_are_consistent_with_the_format():
    kinds = list(LEAF_KINDS.values())
    assert [kind.number for kind in kinds] == list(range(len(kinds)))
    for name in {name for kind in kinds for name in kind.arrays}:
        assert len({kind.arrays[name] for kind in kinds if name in kind.arrays}) == 1


@pytest.mark.parametrize("name", LEAF_KINDS)
def test_kind_matches_the_core(name):
    kind, forest = LEAF_KINDS[name], random_model(kinds=(name,)).forest
    assert storage.get_leaf_kinds(forest) == [kind] * 6
    leaves = forest.values(0)
    arrays = kind.to_arrays(leaves)
    assert {name: array.dtype for name, array in arrays.items()} == kind.arrays
    cells = kind.to_record(leaves, 0, NameLookup("feature {}".format, "output {}".format))
    assert list(cells) == ["value", *kind.columns]

    def take(array, n_rows, n_columns):
        values = kind.values(leaves) if array == "values" else arrays[array]
        return values.reshape(n_rows, n_columns)

    again = kind.from_arrays(take, 8, 3, 4)
    np.testing.assert_array_equal(kind.value(again, 5), kind.value(leaves, 5))


@pytest.mark.parametrize("name", LEAF_KINDS)
def test_functions_give_what_the_core_predicts(name):
    kind, forest = LEAF_KINDS[name], random_model(kinds=(name,)).forest
    rng, n, n_outputs = np.random.default_rng(2), 50, forest.n_outputs
    codes = rng.integers(0, 256, (4, n)).astype(np.uint8)
    x = rng.normal(size=(4, n)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    expected = np.zeros((n, n_outputs))
    for t in range(len(forest)):
        leaves = kind.functions(forest.values(t))
        assert kind.lists_outputs == (leaves.outputs is not None)
        assert kind.reads_features == (leaves.features is not None)
        for row, leaf in enumerate(forest.apply(codes, t, t + 1)[:, 0]):
            value = leaves.to_dense(n_outputs)[leaf]
            if leaves.features is not None:
                entries = slice(leaves.indptr[leaf], leaves.indptr[leaf + 1])
                shift = np.nan_to_num(x[leaves.features[entries], row] - leaves.centre[entries])
                value = value + shift @ leaves.weights[entries]
                value = np.clip(value, leaves.lower[leaf], leaves.upper[leaf])
            expected[row] += value
    raw = np.zeros((n, n_outputs), np.float32)
    forest.predict(codes, raw, features=x)
    np.testing.assert_allclose(raw, expected, rtol=1e-5, atol=1e-5)
