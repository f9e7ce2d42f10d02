"""The best outputs of each row and sparse scores equal sorted dense scores, bit for bit."""

import numpy as np
import pytest
import reference
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from support.isa import run_on_each_isa
from support.trees import (
    leaves_at,
    random_codes,
    random_features,
    random_forest,
    raw_scores_at,
    sparse_forest,
    tree_arrays,
)

from polyleaf import _core


def problem(rng, n_features, n_outputs, sizes, n_rows, **options):
    """Return a forest, its input, raw sums, and the outputs stored for each row."""
    forest, parts = random_forest(rng, n_features, n_outputs, sizes, **options)
    codes, x = random_codes(rng, n_features, n_rows), random_features(rng, n_features, n_rows)
    leaves = leaves_at(parts, codes)
    held = np.zeros((n_rows, n_outputs), bool)
    for t, (_, leaf_values, output) in enumerate(parts):
        held |= reference.holds(leaf_values, leaves[:, t], n_outputs, output)
    return forest, codes, x, raw_scores_at(parts, leaves, n_outputs, x), held


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kinds=st.sampled_from(
        [("sparse",), ("dense",), ("sparse", "linear"), ("sparse", "dense", "linear")]
    ),
    n_outputs=st.sampled_from([1, 2, 7, 16, 17, 60, 1100]),
    sizes=st.lists(st.sampled_from([1, 2, 7, 30]), max_size=6),
    n_rows=st.sampled_from([0, 1, 13, 70]),
    scalar=st.sampled_from([0.0, 0.5, 1.0]),
    k=st.sampled_from([1, 2, 5, 16, 17, 40]),
    unit=st.sampled_from(["raw", "base", "equal base", "scaled"]),
    ties=st.booleans(),
    n_threads=st.integers(1, 3),
)
def test_topk_equals_sorted_dense_scores(
    seed, kinds, n_outputs, sizes, n_rows, scalar, k, unit, ties, n_threads
):
    rng = np.random.default_rng(seed)
    kind = {"kinds": kinds, "scalar": scalar}
    forest, codes, x, raw, held = problem(rng, 4, n_outputs, sizes, n_rows, **kind)
    base, options = None, {}
    if unit != "raw":
        base = np.zeros(n_outputs) if unit == "equal base" else rng.normal(size=n_outputs)
        base = np.round(base) if ties else base
    if unit == "scaled":
        options = {"scale": rng.random(n_outputs) + 0.1, "offset": rng.normal(size=n_outputs)}
    found = forest.topk(codes, base, k, n_threads=n_threads, features=x, **options)
    if base is None:
        scores = raw.astype(np.float64)
    else:
        scores, held = forest.scores(codes, base, features=x, **options), np.ones_like(held)
    assert_same(found, reference.top_outputs(scores, held, k))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_outputs=st.sampled_from([1, 7, 17, 400, 3000]),
    sizes=st.lists(st.sampled_from([1, 2, 7, 30]), min_size=1, max_size=5),
    n_rows=st.sampled_from([0, 1, 13, 70]),
    n_threads=st.integers(1, 3),
    scalar=st.booleans(),
)
def test_sparse_scores_equal_sums_of_leaves(seed, n_outputs, sizes, n_rows, n_threads, scalar):
    rng = np.random.default_rng(seed)
    forest, codes, x, raw, held = problem(rng, 4, n_outputs, sizes, n_rows, kinds=("sparse",))
    if scalar:  # trees of one output and sparse trees
        tree = _core.Tree.from_arrays(**tree_arrays(rng, 4, 1, 3))
        value = np.full((3, 1), -0.0, np.float32)
        forest.append(tree, value, n_outputs - 1)
        held[:, n_outputs - 1] = True
    indptr, outputs, values = forest.sparse_scores(codes, n_threads=n_threads, features=x)
    assert (indptr.dtype, outputs.dtype, values.dtype) == (np.int64, np.int32, np.float32)
    np.testing.assert_array_equal(indptr, np.cumsum([0, *held.sum(axis=1)]))
    np.testing.assert_array_equal(outputs, np.nonzero(held)[1])
    assert values.tobytes() == raw[held].tobytes()
    scipy.sparse.csr_matrix((values, outputs, indptr), raw.shape).check_format()


@pytest.mark.parametrize(
    ("n_outputs", "n_trees", "n_entries", "n_rows"),
    [
        (300, 20, 10, 200),  # few outputs: dense sums
        (3000, 20, 10, 200),  # a list of touched outputs
        (200_000, 20, 10, 5),  # hashed: too few rows to clear 200,000 sums
        (5_000_000, 3, 30, 40),  # hashed: very many outputs
        (300, 400, 2, 200),  # more trees than a block has rows
    ],
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_all_summation_methods(n_outputs, n_trees, n_entries, n_rows, n_threads):
    rng = np.random.default_rng(0)
    forest = sparse_forest(rng, n_outputs, n_trees, 8, n_entries)
    codes = random_codes(rng, 5, n_rows)
    indptr, outputs, values = forest.sparse_scores(codes, n_threads=n_threads)
    leaves = forest.apply(codes)
    for i in range(0, n_rows, 7):
        sums = {}
        for t in range(n_trees):
            block = forest.values(t)
            entries = slice(block.indptr[leaves[i, t]], block.indptr[leaves[i, t] + 1])
            for output, value in zip(block.outputs[entries], block.values[entries], strict=True):
                sums[output] = np.float32(sums.get(output, np.float32(0)) + value)
        here = slice(indptr[i], indptr[i + 1])
        assert dict(zip(outputs[here], values[here], strict=True)) == sums
        assert outputs[here].tolist() == sorted(sums)
    best, scores = forest.topk(codes, None, 7, n_threads=n_threads)
    for i in range(n_rows):
        here = slice(indptr[i], indptr[i + 1])
        order = np.lexsort([outputs[here], -values[here]])[:7]
        np.testing.assert_array_equal(best[i], outputs[here][order])
        np.testing.assert_array_equal(scores[i], values[here][order])


def test_rows_with_fewer_than_k_outputs_are_padded():
    forest = sparse_forest(np.random.default_rng(1), 50, 1, 2, 3)
    outputs, scores = forest.topk(np.zeros((5, 4), np.uint8), None, 5)
    assert (outputs[:, 3:] == -1).all() and (outputs[:, :3] >= 0).all()
    assert np.isneginf(scores[:, 3:]).all() and np.isfinite(scores[:, :3]).all()
    outputs, scores = forest.topk(np.zeros((5, 4), np.uint8), np.zeros(50), 60)
    assert (np.sort(outputs[:, :50], axis=1) == np.arange(50)).all()
    assert (outputs[:, 50:] == -1).all()


def test_smaller_output_number_wins_ties():
    tree = _core.Tree.from_arrays(**tree_arrays(np.random.default_rng(0), 1, 1, 1))
    held, code = np.array([3, 8, 20, 39], np.int32), np.zeros((1, 1), np.uint8)
    sparse = _core.TopkLeaves(np.array([0, 4]), held, np.ones(4, np.float32), 40)
    for leaves, base, expected in [
        (sparse, None, [3, 8, 20]),
        (sparse, np.zeros(40), [3, 8, 20]),
        (sparse, -np.isin(np.arange(40), held).astype(float), [0, 1, 2]),  # all scores are 0
        (np.ones((1, 40), np.float32), None, [0, 1, 2]),
    ]:
        forest = _core.Forest(40)
        forest.append(tree, leaves)
        assert forest.topk(code, base, 3)[0].tolist() == [expected]


def test_invalid_calls_raise():
    rng = np.random.default_rng(2)
    forest, _ = random_forest(rng, 3, 4, [5, 5])
    codes = random_codes(rng, 3, 10)
    for call, message in [
        (lambda: forest.topk(codes, None, 0), "k must be at least 1, but is 0"),
        (lambda: forest.topk(codes, None, -3), "k must be at least 1, but is -3"),
        (lambda: forest.topk(codes, np.zeros(3), 2), "`base` must have one value for each of the"),
        (lambda: forest.topk(codes, None, 2, scale=np.ones(4), offset=np.ones(4)), "need a `base`"),
        (lambda: forest.topk(codes, np.zeros(4), 2, scale=np.ones(4)), "give both or neither"),
        (lambda: forest.topk(codes, None, 2, last=3), "the forest has 2 trees"),
        (lambda: forest.sparse_scores(codes), "only where leaves are"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    indptr, outputs, values = forest.sparse_scores(codes, last=0)
    assert indptr.tolist() == [0] * 11 and len(outputs) == len(values) == 0
    assert (forest.topk(codes, None, 2, last=0)[0] == -1).all()


PRINT_DIGEST = """
import hashlib, numpy as np
from support.trees import random_codes, sparse_forest
digest = hashlib.sha256()
for n_outputs in (40, 1500, 20000):
    rng = np.random.default_rng(n_outputs)
    forest, codes = sparse_forest(rng, n_outputs, 30, 20, 9), random_codes(rng, 5, 300)
    base = np.round(rng.normal(size=n_outputs), 1)
    for k in (1, 5, 30):
        results = forest.topk(codes, None, k) + forest.topk(codes, base, k)
        for result in results + forest.sparse_scores(codes):
            digest.update(result.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.full
def test_instruction_sets_give_the_same_bits():
    assert len(set(run_on_each_isa(PRINT_DIGEST))) == 1
