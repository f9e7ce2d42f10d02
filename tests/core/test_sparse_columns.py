"""Trees on sparse features equal trees on dense codes.

Lists of entries may be kept, sorted or moved, and gain bounds may exclude features.
"""

from dataclasses import replace

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from reference import GrowConfig
from support.pairwise import parametrize_pairs
from support.problems import (
    KINDS,
    Core,
    Problem,
    Reference,
    assert_same_tree,
    make_problem,
    sample_rows,
)

from polyleaf import PolyleafClassifier, PolyleafRegressor

FEATURES, ROWS = 150, 2500


def make_sparse_codes(draw, n_outputs=1, kind="unit", density=0.02, missing=0.1, **config):
    """Make rows with few non-zeros each; one feature in five occurs in many rows."""
    rng = np.random.default_rng(draw)
    share = np.where(np.arange(FEATURES) % 5 == 0, 10 * density, density)
    held = rng.random((FEATURES, ROWS)) < share[:, None]
    common = rng.integers(0, 3, FEATURES)
    codes = np.where(held, rng.integers(0, 12, held.shape), common[:, None])
    codes = np.where(held & (rng.random(held.shape) < missing), reference.MISSING, codes)
    matters = rng.normal(size=(FEATURES, n_outputs)) * (rng.random((FEATURES, 1)) < 0.2)
    g = held.T @ matters + 0.5 * rng.normal(size=(ROWS, n_outputs)) + 0.2
    width = {"unit": None, "shared": 1, "diagonal": n_outputs}[kind]
    return Problem(
        codes=codes.astype(np.uint8),
        n_bins=np.full(FEATURES, 12, np.uint16),
        is_categorical=np.zeros(FEATURES, bool),
        g=g.astype(np.float32),
        h=None if width is None else rng.uniform(0.01, 1, (ROWS, width)).astype(np.float32),
        kind=kind,
        config=GrowConfig(**{"max_leaves": 40} | config),
    )


def make_single_value_codes(draw, n_outputs=1, kind="unit", **config):
    """Make sparse codes in which the entries of a feature share one value."""
    p = make_sparse_codes(draw, n_outputs, kind, missing=0.02, **config)
    own = np.random.default_rng(draw).integers(0, 12, FEATURES)[:, None]
    common = np.array([np.bincount(row).argmax() for row in p.codes])[:, None]
    codes = np.where((p.codes == common) | (p.codes == reference.MISSING), p.codes, own)
    return replace(p, codes=codes.astype(np.uint8))


def assert_same_as_dense(p, held=None):
    """Compare trees grown from dense codes and from non-zeros; return the tree."""
    expected, leaf_of_row = Core.grow(p, 1)
    for n_threads in (1, 3):
        tree, leaves = Core.grow(p.store_sparse(held), n_threads)
        assert_same_tree(tree, expected)
        np.testing.assert_array_equal(leaves, leaf_of_row)
    return expected


def get_smaller_child_fractions(tree):
    inner = np.flatnonzero(tree.left >= 0)
    children = tree.count[tree.left[inner]], tree.count[tree.right[inner]]
    return np.minimum(*children) / tree.count[inner]


@parametrize_pairs(leaf_k=[0, 2], n_outputs=[1, 17], kind=KINDS)
def test_gain_factors(kind, n_outputs, leaf_k):
    """Gain bounds are not valid with gain factors, which must not change results."""
    factors = np.random.default_rng(2).choice([1.0, 0.7, 0.2], FEATURES).astype(np.float32)
    p = make_sparse_codes(1, n_outputs, kind, leaf_k=leaf_k)
    tree, plain = map(assert_same_as_dense, (p.replace_config(factors=factors), p))
    assert not np.array_equal(tree.feature, plain.feature)


@pytest.mark.parametrize("n_outputs", [1, 3, 17])
@pytest.mark.parametrize("kind", KINDS)
def test_unbalanced_trees(kind, n_outputs):
    tree = assert_same_as_dense(make_sparse_codes(1, n_outputs, kind))
    shares = get_smaller_child_fractions(tree)
    assert (shares < 1 / 16).sum() > 10  # lists are kept
    assert (shares > 1 / 8).any()  # non-zeros are moved, or lists are filtered


SPLIT_SETTINGS = [
    *({"max_leaves": 400}, {"max_depth": 5}, {"level_wise": True, "max_leaves": 64}),
    *({"min_child_samples": 30}, {"min_child_weight": 5.0}, {"min_split_gain": 1.0}),
    *({"reg_lambda": 0.0}, {"reg_alpha": 0.5}, {"max_delta_step": 0.1}),
    *({"colsample_bynode": 0.5}, {"colsample_bynode": 0.05}, {"post_prune": True}),
]


@pytest.mark.parametrize("config", SPLIT_SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_split_settings(kind, config):
    assert_same_as_dense(make_sparse_codes(2, 2, kind, **config))


BINARY_SETTINGS = [{}, {"min_child_samples": 30}, {"min_child_weight": 5.0}]
BINARY_SETTINGS += [{"reg_alpha": 0.5}, {"leaf_k": 2}]


@parametrize_pairs(config=BINARY_SETTINGS, n_outputs=[1, 3, 17], kind=KINDS)
def test_binary_features(kind, n_outputs, config):
    p = make_single_value_codes(9, n_outputs, kind, **config)
    assert_same_as_dense(p)
    if "leaf_k" not in config and "reg_alpha" not in config:
        directions = np.random.default_rng(9).integers(-1, 2, (FEATURES, n_outputs)).astype(np.int8)
        assert_same_as_dense(replace(p, directions=directions))


@pytest.mark.parametrize("kind", KINDS)
def test_row_sample(kind):
    assert_same_as_dense(sample_rows(make_sparse_codes(3, 2, kind), multiplied=kind != "unit"))


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_sparse_and_dense_features(kind):
    """Dense features are searched first, and may have larger gains."""
    assert_same_as_dense(make_sparse_codes(4, 1, kind), held=range(1, FEATURES, 2))


def test_gradients_of_one_sign():
    """The side with most rows dominates every sum."""
    p = make_sparse_codes(5)
    assert_same_as_dense(replace(p, g=np.abs(p.g) + 3))


def test_first_of_equal_features_wins_ties():
    p = make_sparse_codes(6)
    p.codes[FEATURES // 2 :] = p.codes[: FEATURES // 2]
    tree = assert_same_as_dense(p)
    assert tree.feature.max() < FEATURES // 2


def test_column_sampling_per_node():
    p = make_problem(7, n=60, n_bins=(3,) * 1500, max_leaves=6, colsample_bynode=0.3)
    few = replace(p, features=np.arange(1500) % 3 == 0).replace_config(colsample_bynode=0.01)
    for problem in (p, few):
        assert_same_tree(Core.grow(problem)[0], Reference.grow(problem)[0])


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"subsample": 0.6},
        {"sampling_method": "goss"},
        {"boosting_step": "layer", "grow_policy": "depthwise", "rows_per_layer": [700, 900]},
        {"boosting_step": "tree"},
        {"hessian": "full"},
        {"leaf": "sparse", "leaf_k": 2},
        {"sketch": "top_outputs", "sketch_dim": 2},
        {"interaction_constraints": "pairwise"},
    ],
    ids=str,
)
def test_models_of_sparse_and_dense_rows_are_equal(parameters):
    X, y = _texts()
    model = PolyleafRegressor if parameters.get("hessian") != "full" else PolyleafClassifier
    y = y if model is PolyleafRegressor else y.argmax(axis=1)
    sparse, dense = (
        model(n_estimators=4, max_leaves=20, n_jobs=2, **parameters).fit(rows, y)
        for rows in (X, X.toarray())
    )
    np.testing.assert_array_equal(sparse.predict(X), dense.predict(X.toarray()))


def _texts():
    rng = np.random.default_rng(8)
    X = sp.random(1500, 200, density=0.03, format="csr", random_state=8, dtype=np.float32)
    return X, (X @ rng.normal(size=(200, 4)) + 0.1 * rng.normal(size=(1500, 4))).astype(np.float32)
