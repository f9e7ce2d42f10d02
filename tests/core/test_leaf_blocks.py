"""Prediction and training add sparse and linear leaves as the reference does, bit for bit."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trees import (
    leaves_at,
    random_codes,
    random_features,
    random_forest,
    random_leaves,
    raw_scores_at,
)

from polyleaf import _core
from polyleaf.model.leaf_kinds import LEAF_KINDS

KINDS = tuple(LEAF_KINDS)


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
    n_features=st.integers(1, 8),
    n_outputs=st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 40, 70, 130]),
    sizes=st.lists(st.sampled_from([1, 2, 3, 7, 30, 64]), max_size=6),
    n_rows=st.sampled_from([0, 1, 2, 12, 13, 40, 64, 90, 200]),
    scalar=st.sampled_from([0.0, 0.5, 1.0]),
    n_threads=st.integers(1, 3),
)
def test_prediction_and_training_equal_the_reference(
    seed, kinds, n_features, n_outputs, sizes, n_rows, scalar, n_threads
):
    rng = np.random.default_rng(seed)
    forest, parts = random_forest(rng, n_features, n_outputs, sizes, scalar=scalar, kinds=kinds)
    codes, x = random_codes(rng, n_features, n_rows), random_features(rng, n_features, n_rows)
    leaves = leaves_at(parts, codes)
    expected = raw_scores_at(parts, leaves, n_outputs, x)
    raw, trained = np.zeros((2, n_rows, n_outputs), np.float32)
    forest.predict(codes, raw, n_threads=n_threads, features=x)
    np.testing.assert_array_equal(raw, expected)
    for t, (_, leaf_values, output) in enumerate(parts):
        _core.add_leaf_values(trained, leaves[:, t].copy(), leaf_values, output, n_threads, x)
    np.testing.assert_array_equal(trained, expected)
    base = rng.normal(size=n_outputs)
    np.testing.assert_array_equal(forest.scores(codes, base, features=x), base + raw)


def assert_same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["sparse", "linear"])
def test_arrays_round_trip(kind):
    rng = np.random.default_rng(0)
    leaves = random_leaves(rng, kind, 7, 3, 5)
    names = {"sparse": ["indptr", "outputs", "values"]}.get(
        kind, ["indptr", "features", "weights", "centre", "intercept", "lower", "upper"]
    )
    arrays = {name: np.array(getattr(leaves, name)) for name in names}
    again = type(leaves)(**arrays, **({"n_outputs": 3} if kind == "sparse" else {}))
    forest, _ = random_forest(rng, 5, 3, [])
    forest.append(random_forest(rng, 5, 3, [7])[0].tree(0), again)
    assert forest.kind(0) == kind
    held = forest.values(0)
    forest.truncate(0)
    del forest, again
    assert (held.n_leaves, held.n_outputs) == (7, 3)
    for name, array in arrays.items():
        view = getattr(held, name)
        assert_same_bits(view, array)
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 0


def sparse(indptr=(0, 2, 3), outputs=(0, 2, 1), values=(1, 2, 3), n_outputs=3):
    arrays = np.array(indptr, np.int64), np.array(outputs, np.int32), np.array(values, np.float32)
    return _core.TopkLeaves(*arrays, n_outputs)


def linear(indptr=(0, 2, 3), features=(0, 2, 1), **changes):
    k = changes.pop("k", 2)
    arrays = {
        "weights": np.ones((3, k)),
        "centre": np.zeros(3),
        "intercept": np.zeros((2, k)),
        "lower": np.full((2, k), -1.0),
        "upper": np.full((2, k), np.inf),
    } | changes
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    return _core.LinearLeaves(np.array(indptr, np.int64), np.array(features, np.int32), **arrays)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sparse(indptr=(0,)), "one entry a leaf and one more"),
        (lambda: sparse(indptr=(1, 2, 3)), "from 0 to the number of entries, 3"),
        (lambda: sparse(indptr=(0, 2, 2)), "from 0 to the number of entries, 3"),
        (lambda: sparse(indptr=(0, 5, 3)), "leaf 1 ends before it begins"),
        (lambda: sparse(indptr=(0, -5, 3)), "leaf 0 ends before it begins"),
        (lambda: sparse(outputs=(2, 0, 1)), "leaf 0 does not have its outputs in ascending order"),
        (lambda: sparse(outputs=(1, 1, 1)), "leaf 0 does not have its outputs in ascending order"),
        (lambda: sparse(outputs=(0, 3, 1)), r"leaf 0 has the output 3, outside 0 \.\. 2"),
        (lambda: sparse(outputs=(-1, 0, 1)), "leaf 0 has the output -1"),
        (lambda: sparse(values=(1, np.nan, 1)), "values holds a number that is not finite"),
        (lambda: sparse(values=(1, 2)), "differ in length"),
        (lambda: sparse(n_outputs=0), "for 0 outputs"),
        (lambda: linear(features=(2, 0, 1)), "leaf 0 does not have its features in ascending"),
        (lambda: linear(features=(0, 2, -1)), "leaf 1 has the feature -1"),
        (lambda: linear(features=(0, 2)), "one entry for each regressor"),
        (lambda: linear(weights=np.ones((3, 1))), "one column for each of the 2 outputs"),
        (lambda: linear(weights=[[np.inf] * 2] * 3), "weights holds a number that is not finite"),
        (lambda: linear(centre=[0, np.nan, 0]), "centre holds"),
        (lambda: linear(intercept=np.full((2, 2), np.nan)), "intercept holds"),
        (lambda: linear(lower=np.zeros((1, 2))), "one row a leaf and one column an output"),
        (lambda: linear(lower=[[1] * 2] * 2, upper=[[0] * 2] * 2), "lower must not be above upper"),
        (lambda: linear(upper=np.full((2, 2), np.nan)), "lower must not be above upper"),
        (lambda: linear(lower=np.full((2, 2), np.inf)), "only lower may be -inf"),
        (lambda: linear(k=0), "for 0 outputs"),
    ],
)
def test_inconsistent_leaves_raise(make, message):
    with pytest.raises(ValueError, match=rf"^The leaves are not valid: .*{message}.*\.$"):
        make()


def test_invalid_calls_raise():
    rng = np.random.default_rng(1)
    forest, [(tree, _, _)] = random_forest(rng, 4, 3, [2])
    codes, x = np.zeros((4, 5), np.uint8), np.zeros((4, 5), np.float32)
    raw = np.zeros((5, 3), np.float32)
    leaf_of_row = np.zeros(5, np.int32)
    with_linear, _ = random_forest(rng, 4, 3, [])
    with_linear.append(tree, linear(k=3))
    for call, message in [
        (lambda: forest.append(tree, sparse(n_outputs=4)), "for 4 outputs where 3"),
        (lambda: forest.append(tree, sparse(), 0), "which its tree is not for"),
        (lambda: forest.append(tree, sparse(indptr=(0, 1, 2, 3))), "2 leaves, but there are 3"),
        (lambda: forest.append(tree, linear(), 1), "for 2 outputs where 1"),
        (lambda: with_linear.predict(codes, raw), "Linear leaves read the raw features"),
        (lambda: with_linear.scores(codes, np.zeros(3)), "Linear leaves read the raw features"),
        (lambda: with_linear.predict(codes, raw, features=x[:2].copy()), "read 3 features of 5"),
        (lambda: with_linear.predict(codes, raw, features=x[:, :4].copy()), r"shape \(4, 4\)"),
        (lambda: _core.add_leaf_values(raw, leaf_of_row, linear(k=3)), "Linear leaves read"),
        (lambda: _core.add_leaf_values(raw, leaf_of_row, linear(k=2), features=x), "for 2 outputs"),
        (lambda: _core.add_leaf_values(raw, leaf_of_row, sparse(), 1), "which its tree is not for"),
        (lambda: _core.add_leaf_values(raw, leaf_of_row, sparse(), 3), "output 3, but there are 3"),
        (lambda: _core.add_leaf_values(raw, leaf_of_row + 2, sparse()), "leaf id is out of range"),
        (lambda: _core.add_leaf_values(raw, leaf_of_row - 1, sparse()), "leaf id is out of range"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with_linear.predict(codes, raw, first=1)  # no linear leaves in the range
    for array in (raw.astype(np.float64), raw.T.copy().T):
        with pytest.raises(TypeError):  # not converted silently: the result would be lost
            _core.add_leaf_values(array, leaf_of_row, sparse())


def test_linear_leaf_equals_manual_computation():
    forest, [(tree, _, _)] = random_forest(np.random.default_rng(2), 1, 1, [1])
    forest.truncate(0)
    nothing = np.zeros((0, 1), np.uint8)
    for x, bounds, expected in [
        (3.0, (-np.inf, np.inf), 1 + 2 * (3 - 0.5)),
        (3.0, (-1, 4), 4),
        (-3.0, (-1, 4), -1),
        (np.nan, (-1, 4), 1),
        (np.nan, (2, 4), 2),
    ]:
        bounds = {"lower": [[bounds[0]]], "upper": [[bounds[1]]]}
        leaves = linear((0, 1), (0,), weights=[[2]], centre=[0.5], intercept=[[1]], **bounds)
        forest.append(tree, leaves)
        features = np.array([[x]], np.float32)
        assert forest.scores(nothing, np.zeros(1), features=features)[0, 0] == expected
        forest.truncate(0)


def test_huge_values_give_no_nan():
    forest, [(tree, _, _)] = random_forest(np.random.default_rng(3), 2, 3, [1])
    forest.truncate(0)
    largest = np.finfo(np.float32).max
    free = {"lower": np.full((1, 3), -np.inf), "upper": np.full((1, 3), np.inf)}
    weights = [[1e30, 0, -1], [-1e30, 1e30, 1]]
    free |= {"centre": [-largest, 0], "intercept": [[1, 2, 3]]}
    leaves = linear((0, 2), (0, 1), weights=weights, **free)
    for _ in range(3):
        forest.append(tree, leaves)
    x = np.array([[largest, -largest, 1e30, np.nan]] * 2, np.float32)
    raw = np.zeros((4, 3), np.float32)
    forest.predict(np.zeros((2, 4), np.uint8), raw, features=x)
    assert not np.isnan(raw).any()
    leaf = np.zeros(4, np.int32)
    with np.errstate(over="ignore"):
        expected = sum(reference.leaf_values(leaves, leaf, x) for _ in range(3))
    assert_same_bits(raw, expected)


def test_many_outputs():
    rng = np.random.default_rng(4)
    forest, parts = random_forest(rng, 3, 50_001, [5, 9], kinds=("sparse",))
    codes = random_codes(rng, 3, 30)
    raw = np.zeros((30, 50_001), np.float32)
    forest.predict(codes, raw, n_threads=2)
    assert_same_bits(raw, raw_scores_at(parts, leaves_at(parts, codes), 50_001))
