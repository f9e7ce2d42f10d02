"""Base scores on top of offsets, against a minimiser in float64."""

import numpy as np
import pytest
from scipy.optimize import minimize
from support.loss_inputs import draw_target
from support.pairwise import parametrize_pairs

from polyleaf import RowData
from polyleaf.objectives import Custom, get_objective
from polyleaf.objectives._utils import minimise_base_score

N, K = 400, 3

ELEMENTWISE = {
    "poisson": ("count", lambda y, s: np.exp(s) - y * s),
    "gamma": ("positive", lambda y, s: y * np.exp(-s) + s),
    "tweedie": ("positive", lambda y, s: 2 * np.exp(s / 2) + 2 * y * np.exp(-s / 2)),
    "logistic": ("binary", lambda y, s: np.logaddexp(0, s) - y * s),
    "squared_hinge": ("binary", lambda y, s: np.maximum(0, 1 - (2 * y - 1) * s) ** 2 / 2),
    "squared_error": ("real", lambda y, s: (s - y) ** 2 / 2),
}


def take_true_class(y, s):
    return s[np.arange(len(y)), y][:, None]


CLASSES = {
    "softmax": lambda y, s: np.logaddexp.reduce(s, axis=1) - take_true_class(y, s)[:, 0],
    "exponential": lambda y, s: np.exp(s.mean(axis=1) - take_true_class(y, s)[:, 0]),
    "exponential_margin": lambda y, s: np.exp((s - take_true_class(y, s)) / 2).sum(axis=1),
}


def offsets(n, k, spread, seed=3):
    return (np.random.default_rng(seed).standard_normal((n, k)) * spread).astype(np.float32)


def minimise_loss(loss, k):
    return minimize(loss, np.zeros(k), tol=1e-10).x


@parametrize_pairs(spread=[0.5, 3.0], is_weighted=[False, True], name=ELEMENTWISE)
def test_elementwise_losses(name, is_weighted, spread):
    kind, loss = ELEMENTWISE[name]
    y, offset = draw_target(kind, N, K), offsets(N, K, spread)
    weight = (
        np.random.default_rng(5).integers(0, 4, (N, K)).astype(np.float32) if is_weighted else None
    )
    found = minimise_base_score(get_objective(name).bind(RowData(y, weight)), offset)
    w = np.ones((N, K)) if weight is None else weight
    expected = [
        minimise_loss(
            lambda b, k=k: np.average(loss(y[:, k], offset[:, k] + b), weights=w[:, k]), 1
        )[0]
        for k in range(K)
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("name", CLASSES)
def test_multiclass_losses(name, spread):
    y, offset = (
        np.random.default_rng(0).choice(K, N, p=[0.6, 0.3, 0.1]).astype(np.int32),
        offsets(N, K, spread),
    )
    found = minimise_base_score(get_objective(name).bind(RowData(y)), offset)
    expected = minimise_loss(lambda b: CLASSES[name](y, offset + b).mean(), K)
    # Equal changes of all scores have no effect.
    np.testing.assert_allclose(
        found - found.mean(), expected - expected.mean(), rtol=5e-4, atol=5e-4
    )


def test_constant_offset_is_subtracted_from_the_base_score():
    y = draw_target("count", N, K)
    problem = get_objective("poisson").bind(RowData(y))
    plain = problem.base_score()
    found = minimise_base_score(problem, np.tile(np.float32([5.0, -20.0, 0.0]), (N, 1)))
    np.testing.assert_allclose(found, plain - [5.0, -20.0, 0.0], rtol=0, atol=2e-6)


def test_exposures_over_ten_orders_of_magnitude():
    """The rate of a Poisson process is the number of events divided by the exposure."""
    rng = np.random.default_rng(0)
    exposure = 10.0 ** rng.uniform(-5, 5, (N, 1))
    y = rng.poisson(exposure * 0.03).astype(np.float32)
    found = minimise_base_score(
        get_objective("poisson").bind(RowData(y)), np.log(exposure).astype(np.float32)
    )
    np.testing.assert_allclose(np.exp(found), y.sum() / exposure.sum(), rtol=1e-5)


def test_function_without_loss_keeps_its_base_score():
    problem = Custom(lambda y, s: (s - y, np.ones_like(s))).bind(RowData(draw_target("real", N, 1)))
    assert minimise_base_score(problem, offsets(N, 1, 1.0)).tolist() == [0.0]


def test_output_of_zero_weight_keeps_its_base_score():
    y, weight = draw_target("binary", N, 2), np.ones((N, 2), np.float32)
    weight[:, 1] = 0
    offset = offsets(N, 2, 1.0)
    found = minimise_base_score(get_objective("logistic").bind(RowData(y, weight)), offset)
    assert np.isfinite(found).all()


def test_base_score_is_independent_of_the_number_of_threads():
    y, offset = draw_target("binary", 30_000, 2), offsets(30_000, 2, 2.0)
    one, three = (
        minimise_base_score(get_objective("logistic").bind(RowData(y)), offset, n) for n in (1, 3)
    )
    np.testing.assert_array_equal(one, three)
