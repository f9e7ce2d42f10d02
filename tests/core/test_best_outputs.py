"""The best output of each row is that of all scores, although many rows leave the trees early."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.early_exit import count_trees_to_decide
from support.isa import run_on_each_isa
from support.trees import (
    boosted_forest,
    leaves_at,
    random_codes,
    random_features,
    random_forest,
    raw_scores_at,
)

from polyleaf import _core


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_outputs=st.sampled_from([1, 2, 3, 4, 5, 8, 9, 16, 17, 40]),
    n_trees=st.sampled_from([1, 48, 70, 100]),
    decay=st.sampled_from([0.9, 0.97, 1.0]),
    n_rows=st.sampled_from([0, 1, 15, 70, 257, 1000]),
    ties=st.booleans(),
    n_threads=st.integers(1, 3),
)
def test_best_outputs_are_those_of_all_scores(
    seed, n_outputs, n_trees, decay, n_rows, ties, n_threads
):
    rng = np.random.default_rng(seed)
    forest, parts = boosted_forest(rng, n_outputs, n_trees, decay)
    if ties:  # a copy of each output: the first of both is best
        n_outputs, forest = 2 * n_outputs, _core.Forest(2 * n_outputs)
        for tree, values, _ in parts:
            forest.append(tree, np.tile(values, 2))
    codes, base = random_codes(rng, 4, n_rows), rng.normal(size=n_outputs) * (not ties)
    first = int(rng.integers(n_trees))
    for begin in (0, first):
        scores = forest.scores(codes, base=base, first=begin)
        found = forest.best_outputs(codes, base=base, first=begin, n_threads=n_threads)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, scores.argmax(axis=1))


@pytest.mark.parametrize("size", [1e-30, 1e4, 1e30])
def test_rounding_of_large_sums_is_within_the_bounds(size):
    """Scores of two outputs differ by less than the rounding of their sums."""
    rng = np.random.default_rng(0)
    forest = _core.Forest(3)
    for tree, values, _ in boosted_forest(rng, 3, 64, 1.0)[1]:
        values *= np.float32(size)
        values[:, 1] = values[:, 0] * np.float32(1 + 1e-6)
        forest.append(tree, values)
    codes, base = random_codes(rng, 4, 3000), np.zeros(3)
    scores = forest.scores(codes, base=base)
    np.testing.assert_array_equal(forest.best_outputs(codes, base=base), scores.argmax(axis=1))


def test_kinds_of_leaves_and_scaled_scores():
    rng = np.random.default_rng(1)
    for kinds, scalar in ((("dense",), 0.5), (("sparse",), 0.0), (("linear", "dense"), 0.3)):
        forest, parts = random_forest(rng, 4, 6, [7] * 60, kinds=kinds, scalar=scalar)
        codes, x = random_codes(rng, 4, 700), random_features(rng, 4, 700)
        raw = raw_scores_at(parts, leaves_at(parts, codes), 6, x)
        base, scale, offset = rng.normal(size=6), rng.random(6) + 0.5, rng.normal(size=6)
        found = forest.best_outputs(codes, base=base, features=x)
        np.testing.assert_array_equal(found, (base + raw).argmax(axis=1))
        found = forest.best_outputs(codes, base=base, scale=scale, offset=offset, features=x)
        np.testing.assert_array_equal(found, ((base + raw) * scale + offset).argmax(axis=1))


def test_rows_of_the_reference_are_decided_before_the_last_tree():
    """Otherwise the other tests show nothing."""
    rng = np.random.default_rng(2)
    forest, parts = boosted_forest(rng, 5, 64, 0.9)
    codes, base = random_codes(rng, 4, 500), rng.normal(size=5)
    leaves = leaves_at(parts, codes)
    needed = count_trees_to_decide([v for _, v, _ in parts], leaves, base)
    assert 0 < needed.mean() < 40
    best = (base + raw_scores_at(parts, leaves, 5)).argmax(axis=1)
    np.testing.assert_array_equal(forest.best_outputs(codes, base=base), best)
    for n in (16, 32):  # a decided row has its final answer
        early = (base + raw_scores_at(parts[:n], leaves[:, :n], 5)).argmax(axis=1)
        np.testing.assert_array_equal(early[needed <= n], best[needed <= n])


@pytest.mark.full
def test_every_instruction_set_finds_the_same():
    program = """
import hashlib
import numpy as np
from support.trees import boosted_forest, random_codes
rng = np.random.default_rng(3)
digest = hashlib.sha256()
for k in (2, 4, 7, 16, 33):
    forest, _ = boosted_forest(rng, k, 64, 0.93)
    codes = random_codes(rng, 4, 900)
    found = forest.best_outputs(codes, base=np.zeros(k))
    assert (found == forest.scores(codes, base=np.zeros(k)).argmax(axis=1)).all()
    digest.update(found.tobytes())
print(digest.hexdigest())
"""
    assert len(set(run_on_each_isa(program))) == 1
