"""Exponential losses of class codes: formulas, equivalent forms of the papers, and zero sums."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loss_inputs import draw_raw, hessians, run

from polyleaf import RowData
from polyleaf.objectives import get_objective

LOSSES = ("exponential", "exponential_margin")


def bind_random(name, k, n=60, weight=None, seed=0):
    label = np.random.default_rng(seed).integers(0, k, n).astype(np.int32)
    return get_objective(name, n_classes=k).bind(RowData(label, weight))


def loss_of_papers(name, scores, label):
    """Return the loss of SAMME's code vectors or GD-MCBoost's codewords in K - 1 dimensions."""
    n, k = scores.shape
    rows = np.arange(n)
    if name == "exponential":
        code = np.full((n, k), -1 / (k - 1))
        code[rows, label] = 1
        return np.exp(-(code * (k - 1) * scores).sum(1) / k)
    words = simplex(k)
    f = np.linalg.lstsq(words, (scores - scores.mean(1, keepdims=True)).T, rcond=None)[0].T
    margins = f @ words.T
    all_classes = np.exp(-(margins[rows, label][:, None] - margins) / 2)
    return all_classes.sum(1) - 1  # the class itself contributes a constant


def simplex(k):
    """Return unit codewords (K, K - 1) whose sum is zero and whose angles are equal."""
    centred = np.eye(k) - 1 / k
    basis = np.linalg.svd(centred)[0][:, : k - 1]
    words = centred @ basis
    return words / np.linalg.norm(words, axis=1, keepdims=True)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("k", [2, 3, 7, 20])
def test_derivatives_are_differences_of_the_loss_in_the_papers(name, k):
    problem, raw = bind_random(name, k), draw_raw(60, k)
    problem.set_base_score(np.linspace(-0.5, 0.5, k))
    z = raw + problem.base

    def loss(z):
        return loss_of_papers(name, z, problem.target)

    assert problem.loss(raw) == pytest.approx(loss(z).mean(), rel=1e-6)
    g, h = run(problem, raw)
    g_full, h_full = hessians(problem, raw)
    assert g.tobytes() == g_full.tobytes()
    scale, step = 1 + loss(z), 1e-3
    moves = np.eye(k) * step
    for i in range(k):
        slope = (loss(z + moves[i]) - loss(z - moves[i])) / (2 * step)
        np.testing.assert_allclose(g[:, i] / scale, slope / scale, atol=2e-6)
        for j in range(i + 1):
            corners = [loss(z + a * moves[i] + b * moves[j]) for a in (-1, 1) for b in (-1, 1)]
            mixed = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * step**2)
            np.testing.assert_allclose(
                h_full[:, i * (i + 1) // 2 + j] / scale, mixed / scale, atol=2e-6
            )
        np.testing.assert_allclose(h[:, i], h_full[:, i * (i + 3) // 2], rtol=1e-6)


@pytest.mark.parametrize("k", [2, 4, 16])
def test_hessians_equal_the_reference(k):
    raw = draw_raw(45, k, scale=3.0)
    rows = np.arange(45)
    problem = bind_random("exponential", k, 45)
    g, h = hessians(problem, raw)
    other = (problem.target + 1) % k
    e = g[rows, other] * np.float32(k)  # exact: k is a power of two
    np.testing.assert_array_equal(h, reference.exponential_hessian(e, problem.target, k))
    problem = bind_random("exponential_margin", k, 45)
    g, h = hessians(problem, raw)
    factors = 2 * g
    factors[rows, problem.target] = 0
    total = -2 * g[rows, problem.target]
    np.testing.assert_array_equal(h, reference.margin_hessian(factors, total, problem.target))


@pytest.mark.parametrize("name", LOSSES)
def test_weights_multiply(name):
    weight = np.random.default_rng(1).random(60).astype(np.float32)
    raw = draw_raw(60, 4)
    for derive in (run, hessians):
        plain, weighted = (
            derive(bind_random(name, 4), raw),
            derive(bind_random(name, 4, weight=weight), raw),
        )
        for a, b in zip(plain, weighted, strict=True):
            np.testing.assert_array_equal(a * weight[:, None], b)


@pytest.mark.parametrize("name", LOSSES)
def test_base_score_is_the_best_constant_and_gives_class_frequencies(name):
    label = np.repeat([0, 1, 2], [70, 20, 10]).astype(np.int32)
    problem = get_objective(name).bind(RowData(label))
    base = problem.base_score()
    np.testing.assert_allclose(
        problem.objective.transform(base[None]), [[0.7, 0.2, 0.1]], rtol=1e-12
    )
    problem.set_base_score(base)
    g, _ = run(problem, np.zeros((100, 3), np.float32))
    np.testing.assert_allclose(g.sum(0), 0, atol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_scores_give_finite_numbers(name):
    extremes = np.array([0, 88, -88, 1e3, -1e3, 1e30, -1e30], np.float32)
    raw = np.stack(np.meshgrid(extremes, extremes, extremes), -1).reshape(-1, 3).astype(np.float32)
    problem = bind_random(name, 3, len(raw), np.full(len(raw), 1e3, np.float32))
    for g, h in (run(problem, raw), hessians(problem, raw)):
        assert np.isfinite(g).all() and np.isfinite(h).all()
    assert np.isfinite(problem.loss(raw))


@pytest.mark.parametrize("name", [*LOSSES, "softmax"])
@settings(max_examples=20, deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_gradients_sum_to_zero(name, k, seed):
    raw = draw_raw(30, k, seed, scale=3.0)
    g, _ = run(bind_random(name, k, 30, seed=seed), raw)
    assert (np.abs(g.sum(1, dtype=np.float64)) <= 1e-6 * k * (1 + np.abs(g).max(1))).all()


def test_simplex_codewords_give_the_same_predictor():
    """GD-MCBoost's f has K - 1 dimensions. Its gradient, multiplied by the codewords, is that of
    the K scores, so a gradient step changes the scores equally."""
    k, problem = 5, bind_random("exponential_margin", 5)
    raw = draw_raw(60, k)
    raw -= raw.mean(1, keepdims=True)
    g, _ = run(problem, raw)
    words = simplex(k)
    f = raw @ words * (k - 1) / k  # words.T @ words = K / (K - 1) I
    np.testing.assert_allclose(f @ words.T, raw, atol=1e-6)
    step, slope = 1e-4, np.empty_like(f)
    for d in range(k - 1):
        moved = [f + sign * step * np.eye(k - 1)[d] for sign in (1, -1)]
        up, down = (
            loss_of_papers("exponential_margin", m @ words.T, problem.target) for m in moved
        )
        slope[:, d] = (up - down) / (2 * step)
    scale = 1 + np.abs(g).max()
    np.testing.assert_allclose(slope @ words.T * (k - 1) / k / scale, g / scale, atol=1e-5)
