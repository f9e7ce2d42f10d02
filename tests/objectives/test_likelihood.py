"""Objectives that learn a distribution, against SciPy's densities."""

import math
import os
import sys

import numpy as np
import pytest
from reference import likelihoods
from scipy.optimize import minimize
from scipy.special import digamma, polygamma
from support.isa import run_on_each_isa
from support.loss_inputs import hessians, run

from polyleaf import RowData, _core
from polyleaf.objectives import (
    StudentTLikelihood,
    distribution_names,
    get_objective,
    objective_from_dict,
)
from polyleaf.objectives._utils import packed_diagonal

NAMES = ["normal", "lognormal", "student_t", "gamma_distribution", "negative_binomial"]
LONGEST_STEP = 2.0


def draw(name, n, k, seed=0):
    """Return targets and raw scores under which most are likely: float32 (n, k) and (n, 2 k)."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(-1.0, 2.0, (n, k))
    second = rng.uniform(-1.5, 0.5, (n, k))
    y = likelihoods.frozen(name, first, second).rvs(random_state=rng)
    raw = np.stack(
        [first + rng.normal(0, 0.3, (n, k)), second + rng.normal(0, 0.3, (n, k))], axis=2
    )
    y = np.maximum(y, 1e-3) if name in ("lognormal", "gamma_distribution") else y
    return y.astype(np.float32), raw.reshape(n, 2 * k).astype(np.float32)


def both(raw):
    """Return first and second scores, float64 (n, k)."""
    return raw[:, ::2].astype(np.float64), raw[:, 1::2].astype(np.float64)


def test_names():
    assert distribution_names() == NAMES


@pytest.mark.parametrize("base", [None, [0.3, -0.2, 0.1, 0.4, 0.0, 0.2]])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_those_of_the_likelihood(name, base):
    y, raw = draw(name, 1500, 3)
    problem = get_objective(name).bind(RowData(y))
    if base is not None:
        problem.set_base_score(base)
    g, h = run(problem, raw)
    scores = both(raw + problem.base)
    expected = likelihoods.gradient(name, *scores, y.astype(np.float64))
    for k in (0, 1):
        scale = 1 + np.abs(expected[k]) + h[:, k::2]
        np.testing.assert_allclose(g[:, k::2] / scale, expected[k] / scale, atol=3e-5)
    assert problem.loss(raw) == pytest.approx(
        likelihoods.loss(name, *scores, y.astype(np.float64)).mean()
    )


SCORES = [(-1.0, -1.5), (0.0, -0.7), (0.5, 0.0), (2.0, 0.3), (3.0, -2.0)]


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", NAMES)
def test_hessian_is_fisher_information(name, scores):
    information = likelihoods.information(name, *scores)
    y = likelihoods.frozen(name, *scores).ppf([0.3, 0.5, 0.6]).astype(np.float32)
    g, h = run(get_objective(name).bind(RowData(y)), np.tile(np.float32(scores), (3, 1)))
    scale = np.sqrt(np.diag(information))
    assert abs(information[0, 1]) < 2e-3 * scale.prod()  # the parameters are orthogonal
    small = np.abs(g) <= LONGEST_STEP * h * (1 - 1e-6)
    for k in (0,) if name == "negative_binomial" else (0, 1):  # the other one has a lower bound
        assert small[:, k].any()
        np.testing.assert_allclose(h[small[:, k], k], information[k, k], rtol=2e-3)


@pytest.mark.parametrize("log_mean", [-3.0, -1.0, 0.0, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("shape", [0.05, 0.2, 1.0, 5.0, 50.0, 1000.0])
def test_hessian_of_counts_is_an_upper_bound(shape, log_mean):
    second = -0.5 * np.log(shape)
    y = np.float32(np.round(np.exp(log_mean)))
    raw = np.float32([[log_mean, second]])
    g, h = run(get_objective("negative_binomial").bind(RowData(np.array([y]))), raw)
    exact = likelihoods.information("negative_binomial", log_mean, second)[1, 1]
    most = 2.5 if shape >= 0.2 else 5.1
    rest = max(float(np.abs(g[0, 1])) / LONGEST_STEP, 1e-6)
    assert 0.999 * exact <= h[0, 1] <= max(most * exact, 1.001 * rest)


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_single_rows_are_bounded(name):
    y, raw = draw(name, 2000, 1)
    raw[:, 1] -= 3.0  # far too small a spread
    g, h = run(get_objective(name).bind(RowData(y)), raw)
    steps = np.abs(g / h)
    assert steps[:, 1].max() == pytest.approx(LONGEST_STEP, rel=1e-5)
    if name in ("gamma_distribution", "negative_binomial"):
        assert steps[:, 0].max() <= LONGEST_STEP * (1 + 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_extreme_scores_give_finite_numbers(name):
    extremes = np.array([0, 88, -88, 1e3, -1e3, 1e30, -1e30, 1e-30, 7, -7, 30, -30], np.float32)
    raw = np.stack(np.meshgrid(extremes, extremes), -1).reshape(-1, 2).astype(np.float32)
    for y in (1e-3, 1.0, 1e6) if name != "negative_binomial" else (0.0, 1.0, 1e6):
        problem = get_objective(name).bind(RowData(np.full(len(raw), y), np.full(len(raw), 1e3)))
        g, h = run(problem, raw)
        assert np.isfinite(g).all() and np.isfinite(h).all() and (h > 0).all()


def test_sharp_likelihoods_are_accurate():
    """With a coefficient of variation of 1e-3, squares of differences of 1e-3 decide."""
    rng = np.random.default_rng(0)
    y = (5.0 * (1 + 1e-3 * rng.standard_normal(2000))).astype(np.float32)
    raw = np.tile(np.float32([np.log(5.0), np.log(1e-3)]), (2000, 1))
    g, _ = run(get_objective("gamma_distribution").bind(RowData(y)), raw)
    _, expected = likelihoods.gradient(
        "gamma_distribution", *both(raw), y.astype(np.float64)[:, None], 1e-3
    )
    np.testing.assert_allclose(g[:, 1], expected[:, 0], atol=5e-3)


@pytest.mark.parametrize("function", ["_digamma_excess", "_trigamma_excess"])
def test_gamma_functions(function):
    x = np.exp(np.random.default_rng(0).uniform(-14, 14, 200_000)).astype(np.float32)
    exact = x.astype(np.float64)
    if function == "_digamma_excess":
        expected = np.where(
            exact < 1e4, digamma(exact) - np.log(exact), -(0.5 + 1 / (12 * exact)) / exact
        )
    else:
        series = 0.5 + 1 / (6 * exact)
        expected = np.where(exact < 1e4, exact * (exact * polygamma(1, exact) - 1), series)
    np.testing.assert_allclose(getattr(_core, function)(x), expected, rtol=6e-6)


# --- base scores ---


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_base_scores_maximise_the_likelihood(name, weighted):
    y, _ = draw(name, 400, 2, seed=3)
    weight = (
        np.random.default_rng(1).integers(0, 3, (400, 2)).astype(np.float32) if weighted else None
    )
    problem = get_objective(name).bind(RowData(y, weight))
    base = problem.base_score()
    zero = np.zeros((400, 4), np.float32)

    def loss(scores):
        problem.set_base_score(scores)
        return problem.loss(zero)

    best = minimize(loss, base + 0.1, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12})
    assert loss(base) <= best.fun + 1e-9


def test_base_scores_of_degenerate_targets():
    same = get_objective("normal").bind(RowData(np.full(10, 3.0))).base_score()
    assert same[0] == 3.0 and np.isfinite(same[1])
    even = get_objective("negative_binomial").bind(RowData(np.full(10, 3.0))).base_score()
    assert even.tolist() == [math.log(3.0), -7.0]  # less variance than the Poisson distribution
    unknown = get_objective("normal").bind(RowData(np.ones((5, 1)), np.zeros((5, 1)))).base_score()
    assert unknown.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="an output of y is 0 in every row"):
        get_objective("negative_binomial").bind(RowData(np.zeros(5))).base_score()


# --- weights, targets, parameters ---


@pytest.mark.parametrize("name", NAMES)
def test_weights_equal_repeated_rows_and_missing_targets_have_no_effect(name):
    y, raw = draw(name, 300, 2)
    count = np.random.default_rng(2).integers(0, 3, 300)
    problem = get_objective(name).bind(RowData(y, count.astype(np.float32)))
    repeated = get_objective(name).bind(RowData(np.repeat(y, count, axis=0)))
    assert problem.base_score() == pytest.approx(repeated.base_score(), rel=1e-6)
    assert problem.loss(raw) == pytest.approx(repeated.loss(np.repeat(raw, count, axis=0)))
    g, h = run(problem, raw)
    one_g, one_h = run(get_objective(name).bind(RowData(y)), raw)
    assert (g == one_g * count[:, None]).all() and (h == one_h * count[:, None]).all()
    known = np.stack([count > 0, count < 2], axis=1)
    g, h = run(
        get_objective(name).bind(RowData(np.where(known, y, 0.0), known.astype(np.float32))), raw
    )
    of_scores = np.repeat(known, 2, axis=1)
    assert (g == np.where(of_scores, one_g, 0.0)).all() and (
        h == np.where(of_scores, one_h, 0.0)
    ).all()


def test_degrees_of_freedom():
    for df in (1.0, -3, np.nan, "5", 1e7):
        with pytest.raises(ValueError, match=r"df must lie between 1 and 1e\+06"):
            StudentTLikelihood(df=df)
    assert objective_from_dict(StudentTLikelihood(df=3).to_dict()) == StudentTLikelihood(3.0)


@pytest.mark.parametrize("name", NAMES)
def test_full_hessian_is_diagonal(name):
    y, raw = draw(name, 50, 2)
    problem = get_objective(name).bind(RowData(y))
    g, diagonal = run(problem, raw)
    full_g, packed = hessians(problem, raw)
    assert (full_g == g).all() and (packed[:, packed_diagonal(4)] == diagonal).all()
    assert np.count_nonzero(packed) == np.count_nonzero(diagonal)


DIGEST = """
import hashlib
from test_likelihood import *
for n_threads in (1, 3):
    digest = hashlib.sha256()
    for name in NAMES:
        for n, k in ((4999, 1), (1001, 3), (40, 700)):
            y, raw = draw(name, n, k)
            for columns in (1, k):
                weight = np.random.default_rng(9).random((n, columns)).astype(np.float32)
                problem = get_objective(name).bind(RowData(y, weight))
                problem.set_base_score(np.tile([0.125, -0.25], k))
                for a in run(problem, 3 * raw, n_threads):
                    digest.update(a.tobytes())
    print(digest.hexdigest())
"""


@pytest.mark.full
def test_instruction_sets_and_threads_give_the_same_bits():
    path = [os.path.dirname(__file__), *sys.path]
    printed = run_on_each_isa(f"import sys; sys.path[:0] = {path!r}{DIGEST}")
    assert len({digest for text in printed for digest in text.split()}) == 1
