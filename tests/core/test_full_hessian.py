"""Full and block Hessians (TFBT, sections III-A and IV) in core, reference and estimators.

A full system is solved by elimination, a diagonal one by division. Where both mean the same, trees
are the same, and gains and leaves differ by the rounding of float32 and float64.
"""

from dataclasses import replace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import Core, assert_same_structure, assert_same_tree, make_problem, triangles
from support.small_fits import (
    CLASSES,
    LABELS,
    LAYERS,
    LAYERS_CONFIG,
    SMALL,
    X,
    Y,
    bits,
    classifier,
    get_binned_data,
    loss,
    regressor,
)

from polyleaf import PolyleafClassifier, PolyleafRegressor


def fill_zero_pairs(p):
    """Turn a diagonal Hessian into a full one with zeros off the diagonal."""
    n_outputs = p.g.shape[1]
    h = np.zeros((len(p.g), n_outputs * (n_outputs + 1) // 2), np.float32)
    h[:, reference.packed_diagonal(n_outputs)] = p.h
    return replace(p, h=h, kind="full")


# --- full = diagonal ---


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 17])
@pytest.mark.parametrize(
    "options", [{}, {"reg_lambda": 0.0}, {"min_child_weight": 4.0}, {"post_prune": True}]
)
def test_full_hessian_with_zero_pairs_equals_diagonal(library, n_outputs, options):
    n = 300 if n_outputs < 16 else 80  # the reference implementation is slow
    size = {"n": n, "n_bins": (9, 14, 5), "categorical": [2], "n_outputs": n_outputs}
    p = make_problem(1, **size, kind="diagonal", min_child_samples=5, max_leaves=12, **options)
    (diagonal, rows), (full, full_rows) = library.grow(p), library.grow(fill_zero_pairs(p))
    assert diagonal.n_leaves > 5
    assert_same_structure(diagonal, full)
    np.testing.assert_allclose(diagonal.output_gain, full.output_gain, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(diagonal.cover, full.cover, rtol=1e-6)
    np.testing.assert_array_equal(rows, full_rows)
    values = [library.leaves(q, rows, diagonal.n_leaves) for q in (p, fill_zero_pairs(p))]
    np.testing.assert_allclose(*values, rtol=3e-7)


@pytest.mark.parametrize(
    ("make", "y", "parameters"),
    [
        (classifier, LABELS, {}),
        (regressor, np.exp(Y / 4), {"objective": "poisson"}),
        (regressor, Y, {}),
        (regressor, Y, {"objective": "huber"}),
        (regressor, Y, {"objective": "absolute_error"}),
        (classifier, LABELS, {"boosting_step": "layer", "grow_policy": "depthwise"}),
        (classifier, LABELS, {"pruning": "post", "min_split_gain": 0.1}),
    ],
)
def test_separable_losses_equal_diagonal(make, y, parameters):
    full = make(**parameters, hessian="full").fit(X, y)
    diagonal = make(**parameters, hessian="diagonal").fit(X, y)
    for mine, other in zip(full.model_.trees, diagonal.model_.trees, strict=True):
        for name in ("feature", "threshold", "left", "right", "count"):
            arrays = (getattr(tree.structure, name) for tree in (mine, other))
            np.testing.assert_array_equal(*arrays, err_msg=name)
        np.testing.assert_allclose(mine.leaves, other.leaves, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("make, y", [(regressor, Y[:, 0]), (classifier, LABELS[:, 0])])
@pytest.mark.parametrize("hessian", ["full", "block"])
def test_one_output_equals_diagonal(make, y, hessian):
    assert bits(make(hessian=hessian).fit(X, y)) == bits(make(hessian="diagonal").fit(X, y))


# --- full = block ---


@pytest.mark.parametrize("n_outputs", [1, 3, 17])
@pytest.mark.parametrize("more", [0, 5])
def test_block_of_all_outputs_equals_full(library, n_outputs, more):
    p = make_problem(2, n=80, n_bins=(5, 8), n_outputs=n_outputs, kind="full", max_leaves=6)
    block = p.replace_config(block_size=n_outputs + more)
    (full, rows), (blocks, _) = library.grow(p), library.grow(block)
    assert_same_tree(full, blocks)
    values = [library.leaves(q, rows, full.n_leaves) for q in (p, block)]
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("boosting_step", ["round", "layer"])
def test_block_of_all_classes_equals_full(boosting_step):
    parameters = {**LAYERS, "boosting_step": boosting_step}
    full = classifier(**parameters, hessian="full").fit(X, CLASSES)
    for size in (2, 3, 100):
        blocks = classifier(**parameters, hessian="block", block_size=size).fit(X, CLASSES)
        assert (bits(blocks) == bits(full)) == (size > 2)


@pytest.mark.parametrize("size", [1, 2])
def test_block_leaves_change_only_the_outputs_of_the_block(size):
    """A block has the outputs of largest gradient; a block of one output is its Newton step."""
    parameters = {"hessian": "block", "block_size": size, "n_estimators": 1, "learning_rate": 1.0}
    estimator = classifier(**parameters).fit(X, CLASSES)
    values, leaf = estimator.model_.forest.values(0), estimator.apply(X)[:, 0]
    p = np.bincount(CLASSES) / len(CLASSES)
    for j in np.unique(leaf):
        G = (p - np.eye(3)[CLASSES[leaf == j]]).sum(axis=0)
        moved = np.sort(np.argsort(-np.abs(G))[:size])
        assert set(np.flatnonzero(values[j])) == set(moved)
        H = (leaf == j).sum() * (np.diag(p) - np.outer(p, p))[np.ix_(moved, moved)] + np.eye(size)
        np.testing.assert_allclose(values[j, moved], -np.linalg.solve(H, G[moved]), rtol=1e-4)


def test_leaf_hessian_may_differ_from_hessian():
    """leaf_hessian="full" keeps the first tree of "diagonal" and changes its leaf values."""
    parameters = {"n_estimators": 1, "softmax_hessian": "diagonal", "learning_rate": 1.0}
    diagonal = classifier(**parameters, hessian="diagonal").fit(X, CLASSES)
    mixed = classifier(**parameters, hessian="diagonal", leaf_hessian="full").fit(X, CLASSES)
    mine, other = (m.model_.forest.tree(0) for m in (mixed, diagonal))
    np.testing.assert_array_equal(mine.feature, other.feature)
    np.testing.assert_array_equal(mine.threshold, other.threshold)
    np.testing.assert_allclose(mine.gain, other.gain, rtol=1e-5)
    assert not np.allclose(mixed.model_.forest.values(0), diagonal.model_.forest.values(0))
    assert loss(mixed, X, CLASSES) < loss(diagonal, X, CLASSES)
    sketched = {**SMALL, "sketch": "top_outputs", "sketch_dim": 2, "leaf_hessian": "full"}
    assert PolyleafClassifier(**sketched).fit(X, CLASSES).score(X, CLASSES) > 0.5


# --- Newton's step ---


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    n_outputs=st.integers(1, 12),
    rank=st.integers(1, 4),
    reg_lambda=st.sampled_from([0.01, 1.0, 30.0]),
    seed=st.integers(0, 10**6),
)
def test_leaf_values_solve_the_newton_system(n_outputs, rank, reg_lambda, seed):
    """(H + lambda I) w = -G by NumPy's solver (TFBT, eq. 6), and w'G is the gain of eq. 7."""
    rng = np.random.default_rng(seed)
    n = 40
    p = make_problem(seed, n=n, n_outputs=n_outputs, kind="full", reg_lambda=reg_lambda)
    p = replace(p, h=triangles(rng, n, n_outputs, rank))
    leaf = rng.integers(0, 3, n).astype(np.int32)
    w = Core.leaves(p, leaf, 3).astype(np.float64)
    for j in range(3):
        G = p.g[leaf == j].sum(axis=0, dtype=np.float64)
        triangle = p.h[leaf == j].sum(axis=0, dtype=float)
        A = np.zeros((n_outputs, n_outputs))
        A[np.tril_indices(n_outputs)] = triangle
        A += np.tril(A, -1).T + reg_lambda * np.eye(n_outputs)
        np.testing.assert_allclose(w[j], -np.linalg.solve(A, G), rtol=1e-4, atol=1e-5)
        every = np.arange(n_outputs)
        gain = reference.full_sum(G[None], triangle[None], every, reg_lambda, 2.0**-20)[0]
        np.testing.assert_allclose(gain, G @ np.linalg.solve(A, G), rtol=1e-8)


def quadratic(y, scores):
    """Return derivatives of a quadratic loss of three coupled outputs: (s - y)' Q (s - y) / 2."""
    Q = np.array([[2.0, 0.5, -0.7], [0.5, 1.0, 0.2], [-0.7, 0.2, 1.5]])
    return (scores - y) @ Q, np.broadcast_to(Q, (len(y), 3, 3))


@pytest.mark.parametrize("boosting_step", ["round", "layer"])
def test_one_step_minimizes_a_coupled_quadratic(boosting_step):
    """With learning rate 1 and no penalty the gradients after the step sum to 0 in each leaf."""
    step = {"n_estimators": 1, "learning_rate": 1.0, "reg_lambda": 0.0}
    parameters = {**LAYERS, "boosting_step": boosting_step, **step}
    estimator = regressor(**parameters, objective=quadratic, hessian="full").fit(X, Y)
    left, _ = quadratic(Y, estimator.predict(X))
    leaf = estimator.apply(X)[:, 0]
    assert len(np.unique(leaf)) == 8
    for j in np.unique(leaf):
        np.testing.assert_allclose(left[leaf == j].sum(axis=0), 0, atol=1e-3)


@pytest.mark.parametrize("block_size", [0, 2])
@pytest.mark.parametrize("boosting_step", ["round", "layer"])
def test_training_equals_the_reference(boosting_step, block_size):
    """The loss is coupled and its Hessian depends on the scores; scores are compared bit for
    bit."""

    def derivatives(y, scores):
        residual = scores - y
        g, H = quadratic(y, scores)
        pull = 0.1 * residual * np.abs(residual)
        return g + pull, H + 0.2 * np.eye(3) * np.abs(residual)[:, :, None]

    block = {"hessian": "block", "block_size": block_size} if block_size else {"hessian": "full"}
    parameters = {**LAYERS, "boosting_step": boosting_step, "objective": derivatives}
    estimator = regressor(**parameters, learning_rate=0.5, **block).fit(X, Y)
    model = estimator.model_
    data = get_binned_data(estimator)
    config = replace(LAYERS_CONFIG, min_child_weight=1e-3, block_size=block_size)

    def packed_derivatives(raw):
        g, h = derivatives(Y, raw.astype(np.float64))
        return g.astype(np.float32), h[(slice(None), *np.tril_indices(3))].astype(np.float32)

    raw = np.zeros(Y.shape, np.float32)
    for t in range(3):
        if boosting_step == "layer":
            grown, leaves, values = reference.fit_tree_by_layers(
                *data, packed_derivatives, raw, "full", config, 0.5
            )
        else:
            g, h = packed_derivatives(raw)
            grown = reference.grow(*data, reference.quantise(g, h, "full"), config)
            leaves = reference.leaf_of_row(grown, data[0])
            values = reference.fit_newton_leaves(
                g, h, leaves, grown.n_leaves, learning_rate=0.5, block_size=block_size
            )
        np.testing.assert_array_equal(model.forest.tree(t).gain, grown.gain)
        np.testing.assert_array_equal(model.forest.values(t), values)
        raw = raw + values[leaves]


# --- softmax is singular ---


@pytest.mark.parametrize("reg_lambda", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("hessian", ["full", "block"])
def test_softmax_without_ridge(reg_lambda, hessian):
    """The Hessian is 0 along equal changes of all scores, so no step is taken there."""
    parameters = {"hessian": hessian, "reg_lambda": reg_lambda, "min_child_samples": 20}
    if hessian == "block":
        parameters["block_size"] = 3
    before = loss(classifier(**parameters, n_estimators=1).fit(X, CLASSES), X, CLASSES)
    estimator = classifier(**parameters, n_estimators=20).fit(X, CLASSES)
    assert np.isfinite(estimator.decision_function(X)).all()
    assert np.abs(estimator.decision_function(X)).max() < 50
    assert loss(estimator, X, CLASSES) < 0.8 * before


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0])
def test_probabilities_are_independent_of_class_order(reg_lambda):
    """The order decides which pivot is 0; steps differ by the same constant for all classes."""
    parameters = {"hessian": "full", "min_child_samples": 30, "n_estimators": 5}
    parameters["reg_lambda"] = reg_lambda
    order = np.array([2, 0, 1])
    one = classifier(**parameters).fit(X, CLASSES).predict_proba(X)
    other = classifier(**parameters).fit(X, order[CLASSES]).predict_proba(X)[:, order]
    np.testing.assert_allclose(one, other, atol=2e-4)


def test_rows_with_zero_hessian():
    """A certain class has p (1 - p) = 0; nothing is divided by it."""
    parameters = {"hessian": "full", "reg_lambda": 0.0, "base_score": [60.0, 0.0, -60.0]}
    for boosting_step in ("round", "layer"):
        estimator = classifier(**{**LAYERS, "boosting_step": boosting_step}, **parameters)
        assert np.isfinite(estimator.fit(X, CLASSES).decision_function(X)).all()


def test_full_hessian_fits_coupled_outputs_better_than_diagonal():
    """For two coupled outputs the step of the diagonal Hessian is too long."""
    H = np.array([[1.0, 0.9], [0.9, 1.0]])

    def opposed(y, scores):
        return (scores - y) @ H, np.broadcast_to(H, (len(y), 2, 2))

    def diagonal(y, scores):
        return opposed(y, scores)[0], np.ones((len(y), 2))

    def mean_loss(estimator):
        residual = Y[:, :2] - estimator.fit(X, Y[:, :2]).predict(X)
        return float((residual @ H * residual).sum(axis=1).mean())

    rate = {**SMALL, "learning_rate": 1.0, "n_estimators": 5}
    full = PolyleafRegressor(**rate, objective=opposed, hessian="full")
    assert mean_loss(full) < 0.8 * mean_loss(PolyleafRegressor(**rate, objective=diagonal))
