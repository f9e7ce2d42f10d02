"""Leaves that keep k of K dense outputs (GBDT-MO, section III-B), in core and reference.

All comparisons are `==` unless a test says why not.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_settings import grow_config, make_leaf_config
from support.pairwise import parametrize_pairs
from support.problems import KINDS, Core, Reference, assert_same_tree, make_problem, sample_rows

from polyleaf import PolyleafClassifier, PolyleafRegressor, _core
from polyleaf.settings import presets

SUPPORTS = [False, True]


def core_leaves(p, tree, leaf_of_row, n_threads=1):
    """Return the core's sparse leaves of a reference tree; learning rate 0.3."""
    c = p.config
    grower = Core.grower(p, n_threads)
    channels = _core.QuantisedGradients(p.g, p.h, p.kind, p.rows, p.multiplier, n_threads)
    grown = grower.grow(channels, grow_config(c), p.features)
    kept = c.leaf_k, grown if c.shared_support else None, make_leaf_config(c, learning_rate=0.3)
    sample = p.rows, p.multiplier, n_threads
    return _core.fit_topk_leaves(p.g, p.h, leaf_of_row, tree.n_leaves, *kept, *sample)


def assert_core_equals_reference(p, n_threads=1):
    core, core_rows = Core.grow(p, n_threads)
    expected, reference_rows = Reference.grow(p)
    assert_same_tree(core, expected)
    np.testing.assert_array_equal(core_rows, reference_rows)
    mine = core_leaves(p, expected, reference_rows, n_threads)
    its = reference.fit_topk_leaves(
        p.g, p.h, reference_rows, expected, p.config, 0.3, p.rows, p.multiplier
    )
    for name in ("indptr", "outputs", "values"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(its, name), err_msg=name)
    return expected


# --- core = reference ---


@pytest.mark.parametrize(
    ("n_outputs", "leaf_k"),
    [(2, 1), (3, 2), (5, 1), (5, 4), (16, 3), (17, 5), (17, 16), (33, 12), (70, 1), (70, 20)],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared_support", SUPPORTS)
def test_trees_and_leaves(kind, n_outputs, leaf_k, shared_support):
    bins = {"n_bins": (9, 30, 5, 7, 12), "categorical": [2, 4]}
    p = make_problem(3, n=400, **bins, n_outputs=n_outputs, kind=kind)
    p = p.replace_config(leaf_k=leaf_k, shared_support=shared_support)
    assert assert_core_equals_reference(p).n_leaves > 5
    assert_core_equals_reference(sample_rows(p, multiplied=kind != "unit"), n_threads=2)


@parametrize_pairs(
    shared_support=SUPPORTS,
    kind=KINDS,
    config=[
        {"reg_lambda": 0.0},  # no gain bound is known
        {"reg_lambda": 25.0},
        {"reg_alpha": 3.0},
        {"max_delta_step": 0.1},
        {"reg_alpha": 1.5, "max_delta_step": 0.2, "reg_lambda": 0.1},
        {"min_split_gain": 0.3},
        {"min_child_weight": 9.3},
        {"min_child_samples": 20},
        {"post_prune": True, "reg_lambda": 20.0},
        {"level_wise": True, "max_depth": 3},
        {"colsample_bynode": 0.5, "seed": 7},
        {"max_cat_to_onehot": 30},
        {"missing": 0.5},
        {"missing": 0.97, "min_child_samples": 1},
    ],
)
def test_regularisers_schedules_and_missing_values(kind, config, shared_support):
    p = make_problem(8, n=300, categorical=[3], n_outputs=6, kind=kind, **config)
    p = p.replace_config(leaf_k=2, shared_support=shared_support)
    assert assert_core_equals_reference(p).n_leaves > 1


@pytest.mark.parametrize("shared_support", SUPPORTS)
@pytest.mark.parametrize("kind", KINDS)
def test_zero_hessian_and_extreme_gradients(kind, shared_support):
    config = {"reg_lambda": 0.0, "leaf_k": 2, "shared_support": shared_support}
    p = make_problem(8, n=100, n_outputs=4, kind=kind, **config)
    g = p.g * np.array([0, 1e-36, 1e17, 1], np.float32)
    h = None if p.h is None else np.where(p.codes[0][:, None] < 2, np.float32(0), p.h)
    assert_core_equals_reference(replace(p, g=g, h=h))
    assert_core_equals_reference(replace(p, g=g, h=h).replace_config(reg_lambda=1e-20))
    assert_core_equals_reference(replace(p, g=p.g * np.float32(1e30)))  # squares overflow


@pytest.mark.full
@parametrize_pairs(n_threads=[1, 2, 3], kind=KINDS, shared_support=SUPPORTS)
def test_threads_on_blocks_of_rows(kind, n_threads, shared_support):
    bins = {"n_bins": (200, 6, 30) * 6, "categorical": [2], "max_leaves": 12}
    p = make_problem(11, n=9000, **bins, n_outputs=5, kind=kind, leaf_k=2)
    assert_core_equals_reference(p.replace_config(shared_support=shared_support), n_threads)


@given(
    st.integers(0, 2**31),
    st.integers(2, 40),
    st.integers(1, 40),
    st.sampled_from(KINDS),
    st.booleans(),
    st.sampled_from([0.0, 1e-3, 1.0, 30.0]),
)
@settings(max_examples=60, deadline=None)
def test_random_problems(draw, n_outputs, leaf_k, kind, shared_support, reg_lambda):
    """The gain bound excludes candidates; it must never exclude the best one."""
    p = make_problem(draw, n=150, n_bins=(40, 6, 25), n_outputs=n_outputs, kind=kind, max_leaves=8)
    p = p.replace_config(leaf_k=leaf_k, shared_support=shared_support, reg_lambda=reg_lambda)
    assert_same_tree(Core.grow(p)[0], Reference.grow(p)[0])


def test_grower_can_be_reused_with_other_leaf_kinds():
    """Memory allocated for one leaf kind is reused for the next."""
    p = make_problem(2, n=300, n_bins=(30, 9), n_outputs=20)
    grower = Core.grower(p)
    for leaf_k in (0, 2, 19, 0, 7):
        q = p.replace_config(leaf_k=leaf_k)
        assert_same_tree(Core.grow(q, grower=grower)[0], Reference.grow(q)[0])


# --- equalities ---


@parametrize_pairs(kind=KINDS, shared_support=SUPPORTS, n_outputs=[1, 5, 17])
def test_leaves_with_all_outputs_equal_dense_leaves(library, kind, shared_support, n_outputs):
    p = make_problem(4, n=200, n_bins=(9, 30, 5), categorical=[2], n_outputs=n_outputs, kind=kind)
    dense, _ = library.grow(p)
    for k in (n_outputs, n_outputs + 3):
        sparse, _ = library.grow(p.replace_config(leaf_k=k, shared_support=shared_support))
        assert_same_tree(dense, sparse)


@pytest.mark.parametrize("shared_support", SUPPORTS)
def test_gains_equal_the_best_choice_of_outputs(library, shared_support):
    """Compare with exact brute force over all choices at the root of a tree."""
    p = make_problem(5, n=60, n_bins=(6, 5), n_outputs=4, kind="unit", missing=0.0, max_leaves=2)
    tree, _ = library.grow(p.replace_config(leaf_k=2, shared_support=shared_support))

    def worth(rows, outputs):
        sums = p.g[rows][:, outputs].sum(axis=0, dtype=np.float64)
        return float((sums**2).sum()) / (len(rows) + 1)

    def best(sides):
        choices = list(combinations(range(4), 2))
        if shared_support:
            return max(sum(worth(side, choice) for side in sides) for choice in choices)
        return sum(max(worth(side, choice) for choice in choices) for side in sides)

    gains = []
    for codes in p.codes:
        for b in range(int(codes.max())):
            sides = np.flatnonzero(codes <= b), np.flatnonzero(codes > b)
            gains.append((best(sides) - best([np.arange(60)])) / 2 / 4)
    np.testing.assert_allclose(tree.gain[0], max(gains), rtol=1e-3)  # channels have 15 bits


@pytest.mark.parametrize("kind", KINDS)
def test_output_gains_add_up_over_kept_outputs(library, kind):
    p = make_problem(6, n=300, n_bins=(20, 9, 7), n_outputs=12, kind=kind, leaf_k=3)
    tree, _ = library.grow(p.replace_config(shared_support=True))
    inner = tree.feature >= 0
    gains = tree.output_gain[inner]
    np.testing.assert_allclose(gains.sum(axis=1), 12 * tree.gain[inner], rtol=1e-3)
    # Three outputs of the children, three of the parent.
    assert ((gains != 0).sum(axis=1) <= 6).all()


# --- estimators ---

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 6))
X[RNG.random(X.shape) < 0.05] = np.nan
SIGNAL = np.nan_to_num(X) @ RNG.normal(size=(6, 8)) + 0.1 * RNG.normal(size=(400, 8))
CLASSES = SIGNAL.argmax(axis=1)
TARGETS = {"regression": SIGNAL, "classes": CLASSES, "labels": (SIGNAL > 1).astype(int)}


def make(task, leaf="sparse", **parameters):
    kind = PolyleafRegressor if task == "regression" else PolyleafClassifier
    defaults = {"n_estimators": 8, "min_child_samples": 5, "random_state": 0}
    if leaf == "sparse":
        defaults["leaf_k"] = 3
    return kind(leaf=leaf, **{**defaults, **parameters})


def predicted(estimator):
    kind = isinstance(estimator, PolyleafClassifier)
    return np.asarray(estimator.predict_proba(X) if kind else estimator.predict(X))


@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize("support", ["own", "shared"])
def test_all_outputs_equal_constant_leaves(task, support):
    """Structure and scores are equal bit for bit, as no Newton step is exactly 0."""
    sparse = make(task, leaf_k=8, leaf_output_set=support).fit(X, TARGETS[task])
    dense = make(task, leaf="constant").fit(X, TARGETS[task])
    np.testing.assert_array_equal(predicted(sparse), predicted(dense))
    assert sparse.model_.forest.tree(7).gain.tolist() == dense.model_.forest.tree(7).gain.tolist()


def test_siblings_share_their_outputs():
    estimator = make("regression", leaf_output_set="shared", n_estimators=1, max_leaves=8)
    forest = estimator.fit(X, SIGNAL).model_.forest
    tree, leaves = forest.tree(0), forest.values(0)
    outputs = np.split(leaves.outputs, leaves.indptr[1:-1])
    siblings = tree.leaf[np.stack([tree.left, tree.right], axis=1)[tree.feature >= 0]]
    siblings = siblings[(siblings >= 0).all(axis=1)]
    assert len(siblings) > 0
    for left, right in siblings:
        assert outputs[left].tolist() == outputs[right].tolist()


@pytest.mark.parametrize("restricted", [True, False])
def test_preset(restricted):
    recipe = presets.gbdt_mo_sparse(4, restricted=restricted)
    assert presets.gbdt_mo().items() <= recipe.items()
    model = PolyleafClassifier(**recipe, n_estimators=60).fit(X, CLASSES)
    assert model.score(X, CLASSES) > 0.9


# --- bad input ---


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"leaf_k": 9}, "leaf_k=9 is more than the number"),
        ({"leaf_k": 0}, "leaf_k"),
        ({"leaf_k": 1.5}, "leaf_k"),
        ({"leaf_output_set": "both"}, "leaf_output_set"),
    ],
    ids=str,
)
def test_invalid_input_raises(parameters, message):
    with pytest.raises(ValueError, match=message):
        make("regression", **parameters).fit(X, SIGNAL)


def test_one_output():
    with pytest.raises(ValueError, match="leaf_k=2"):
        make("regression", leaf_k=2).fit(X, SIGNAL[:, 0])
    sparse = make("regression", leaf_k=1).fit(X, SIGNAL[:, 0])
    dense = make("regression", leaf="constant").fit(X, SIGNAL[:, 0])
    np.testing.assert_array_equal(predicted(sparse), predicted(dense))
