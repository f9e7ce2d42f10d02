"""Predicted distributions against SciPy's, and their scores against integrals."""

import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from polyleaf.distributions import Gamma, LogNormal, NegativeBinomial, Normal, StudentT

A = np.array
# Each with the SciPy distribution, and likely values.
CASES = {
    "normal": (
        Normal(A([0.0, 1.0, -2.0]), A([1.0, 2.0, 0.5])),
        stats.norm(A([0.0, 1.0, -2.0]), A([1.0, 2.0, 0.5])),
        A([0.3, 4.0, -2.5]),
    ),
    "lognormal": (
        LogNormal(A([0.0, 0.5, 1.0]), A([0.3, 0.6, 0.9])),
        stats.lognorm(A([0.3, 0.6, 0.9]), scale=np.exp(A([0.0, 0.5, 1.0]))),
        A([0.8, 3.0, 1.0]),
    ),
    "student_t": (
        StudentT(A([0.0, 1.0, -2.0]), A([1.0, 2.0, 0.5]), 4.0),
        stats.t(4.0, A([0.0, 1.0, -2.0]), A([1.0, 2.0, 0.5])),
        A([0.3, 9.0, -2.5]),
    ),
    "gamma": (
        Gamma(A([0.5, 2.0, 400.0]), A([1.0, 2.0, 0.01])),
        stats.gamma(A([0.5, 2.0, 400.0]), scale=A([1.0, 2.0, 0.01])),
        A([0.1, 6.0, 4.2]),
    ),
    "negative_binomial": (
        NegativeBinomial(A([0.4, 5.0, 60.0]), A([2.0, 0.3, 1e-3])),
        stats.nbinom(1 / A([2.0, 0.3, 1e-3]), 1 / (1 + A([0.8, 1.5, 0.06]))),
        A([0.0, 9.0, 55.0]),
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_values_equal_scipy(case):
    ours, theirs, y = case
    log_density = theirs.logpmf if ours.is_discrete else theirs.logpdf
    levels = A([0.001, 0.3, 0.9])
    for found, expected in (
        (ours.mean(), theirs.mean()),
        (ours.std(), theirs.std()),
        (ours.median(), theirs.median()),
        (ours.logpdf(y), log_density(y)),
        (ours.cdf(y), theirs.cdf(y)),
        (ours.sf(y), theirs.sf(y)),
        (ours.cdf(y + 0.5), theirs.cdf(y + 0.5)),
        (ours.ppf(levels), theirs.ppf(levels)),
        (ours.isf(levels), theirs.isf(levels)),
        (ours.ppf(levels[:, None]), theirs.ppf(levels[:, None])),
        (ours.interval(0.8), np.stack(theirs.interval(0.8), axis=-1)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert ours.interval(0.8).shape == (3, 2) and ours.ppf(levels[:, None]).shape == (3, 3)


def test_far_tails_are_accurate(case):
    ours, theirs, _ = case
    for tail in (1e-12, 1e-100):
        if ours.is_discrete:
            np.testing.assert_array_equal(ours.isf(tail), theirs.isf(tail))
        else:  # SciPy 1.11 has 6 digits of the log-normal quantile
            np.testing.assert_allclose(theirs.sf(ours.isf(tail)), tail, rtol=1e-8)
        assert (ours.sf(ours.isf(tail)) <= tail * (1 + 1e-6)).all() and (
            ours.isf(tail) > ours.mean()
        ).all()


def test_impossible_values(case):
    ours, _, y = case
    assert np.isnan(ours.logpdf(np.nan)).all() and np.isnan(ours.cdf(np.nan)).all()
    if type(ours) in (Normal, StudentT):
        return
    assert (ours.logpdf(-1.0) == -np.inf).all()
    assert (ours.cdf(-1.0) == 0).all() and (ours.sf(-1.0) == 1).all()
    if ours.is_discrete:
        assert (ours.logpdf(y + 0.5) == -np.inf).all()


def integrate_crps(law, y):
    """The integral of (F(x) - [x >= y])^2 over x (of counts: the sum), by SciPy's F."""
    least, most = law.ppf(1e-13), law.isf(1e-13)
    if hasattr(law, "pmf") and law.dist.name == "nbinom":
        x = np.arange(max(most.max(), y.max()) + 1)[:, None]
        return ((law.cdf(x) - (x >= y)) ** 2).sum(axis=0)
    below = (
        np.minimum(least, y - 1e-9)
        + (y - np.minimum(least, y - 1e-9)) * np.linspace(0, 1, 400_001)[:, None]
    )
    above = y + (np.maximum(most, y + 1e-9) - y) * np.linspace(0, 1, 400_001)[:, None]
    return trapezoid(law.cdf(below) ** 2, below, axis=0) + trapezoid(
        law.sf(above) ** 2, above, axis=0
    )


@pytest.mark.full
def test_crps_is_the_integral(case):
    ours, theirs, y = case
    for at in (y, np.maximum(np.round(3 * y), 0), np.zeros(3) + 1):
        np.testing.assert_allclose(ours.crps(at), integrate_crps(theirs, at), rtol=2e-4)


def test_crps_of_impossible_outcomes():
    """The score is defined for them: the integral goes on below 0."""
    gamma, law = CASES["gamma"][:2]
    expected = integrate_crps(law, np.full(3, 1e-9)) + 2.0
    np.testing.assert_allclose(gamma.crps(np.full(3, -2.0)), expected, rtol=1e-3)


@pytest.mark.parametrize("alpha", [1e-6, 0.9999e-4, 1.0001e-4, 0.1, 50.0])
def test_crps_of_counts_for_any_dispersion(alpha):
    mu, y = A([0.05, 2.0, 30.0, 300.0]), A([0.0, 5.0, 31.0, 250.0])
    law = stats.nbinom(1 / alpha, 1 / (1 + alpha * mu))
    np.testing.assert_allclose(
        NegativeBinomial(mu, np.full(4, alpha)).crps(y), integrate_crps(law, y), rtol=1e-4
    )


def test_random_values(case):
    ours, theirs, _ = case
    drawn = ours.rvs(20_000, random_state=0)
    assert drawn.shape == (20_000, 3) and (drawn == ours.rvs(20_000, random_state=0)).all()
    assert ours.rvs(random_state=1).shape == (3,) and ours.rvs((2, 4), 1).shape == (2, 4, 3)
    for k in range(3):
        error = theirs.std()[k] / np.sqrt(20_000)
        assert abs(drawn[:, k].mean() - theirs.mean()[k]) < 4 * error
        share = (drawn[:, k] <= theirs.ppf(0.9)[k]).mean()
        assert abs(share - theirs.cdf(theirs.ppf(0.9))[k]) < 4 * np.sqrt(0.09 / 20_000)


def test_shapes(case):
    ours, _, y = case
    assert ours.shape == (3,) and len(ours) == 3
    some = ours[[2, 0]]
    assert type(some) is type(ours) and (some.mean() == ours.mean()[[2, 0]]).all()
    assert getattr(some, "df", None) == getattr(ours, "df", None)
    assert (pickle.loads(pickle.dumps(ours)).crps(y) == ours.crps(y)).all()
    with pytest.raises(AttributeError):
        ours.loc = 1


def test_several_targets():
    law = Normal(np.arange(6.0).reshape(3, 2), np.ones((3, 2)))
    assert law.shape == (3, 2) and len(law) == 3 and law.interval().shape == (3, 2, 2)
    assert law[:, 1].mean().tolist() == [1.0, 3.0, 5.0] and law.rvs(4, 0).shape == (4, 3, 2)


def test_coverage_is_a_probability(case):
    for coverage in (0, 1, 90):
        with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
            case[0].interval(coverage)


def test_standard_deviation_is_infinite_for_few_degrees_of_freedom():
    assert StudentT(A([0.0]), A([1.0]), 2.0).std().tolist() == [np.inf]


@pytest.mark.parametrize("case", CASES)
def test_quantiles_of_0_and_1_are_the_ends_of_the_support(case):
    distribution = CASES[case][0]
    low = 0.0 if case in ("lognormal", "gamma", "negative_binomial") else -np.inf
    for least, most in (
        (distribution.ppf(0.0), distribution.ppf(1.0)),
        (distribution.isf(1.0), distribution.isf(0.0)),
    ):
        np.testing.assert_array_equal(least, [low] * 3)
        np.testing.assert_array_equal(most, [np.inf] * 3)


@pytest.mark.parametrize("df", [1.1, 1.5, 2.1, 3.0, 5.0, 15.0, 40.0, 75.0, 90.0, 120.0, 1000.0])
def test_quantiles_of_t_invert_its_cdf(df):
    """Also where SciPy's quantiles are infinite, of the wrong sign, or all equal."""
    q = np.concatenate([10.0 ** np.arange(-307, 0, 0.25), [0.6, 0.9, 1 - 1e-9]])
    law = StudentT(np.zeros(len(q)), np.ones(len(q)), df)
    z = law.ppf(q)
    assert (np.diff(z) > 0).all() and (z[q < 0.5] < 0).all() and np.isfinite(z).all()
    np.testing.assert_array_equal(law.isf(q), -z)
    seen = np.abs(z) < 1e150  # whose square SciPy's cdf can hold
    np.testing.assert_allclose(law.cdf(z)[seen], q[seen], rtol=1e-11)
    least = StudentT(A([0.0]), A([1.0]), df).ppf(A([0.0, 5e-324, 1e-320]))
    assert least[0] == -np.inf and (np.diff(least) >= 0).all() and least[2] < z[0]
    assert np.isnan(StudentT(A([0.0]), A([1.0]), df).ppf(A([-0.1, 1.1, np.nan]))).all()
