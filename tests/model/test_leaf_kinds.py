"""Descriptions of leaf kinds, against the core and the file format."""

import numpy as np
import pytest
from support.models import random_model

from polyleaf.model import storage
from polyleaf.model.leaf_kinds import LEAF_KINDS, NameLookup
from polyleaf.model.serialize import FORMAT_VERSION


def test_descriptors_are_consistent_with_the_format():
    kinds = list(LEAF_KINDS.values())
    assert [kind.number for kind in kinds] == list(range(len(kinds)))
    assert {kind.since_version for kind in kinds} <= set(range(1, FORMAT_VERSION + 1))
    for name in {name for kind in kinds for name in kind.arrays}:
        assert len({kind.arrays[name] for kind in kinds if name in kind.arrays}) == 1


@pytest.mark.parametrize("name", LEAF_KINDS)
def test_kind_matches_the_core(name):
    kind, forest = LEAF_KINDS[name], random_model(kinds=(name,)).forest
    assert storage.get_leaf_kinds(forest) == [kind] * 6
    assert storage.required_version(forest) == kind.since_version
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
