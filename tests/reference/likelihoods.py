"""Likelihoods of a target given two raw scores, in float64, for likelihood_kernels.cpp.

Uses SciPy distributions, derivatives by finite differences, and the Fisher information by its
definition, the mean square of the gradient.
"""

import numpy as np
from scipy import stats


def frozen(name, first, second, df=5.0):
    """Return SciPy's distribution with these scores."""
    if name == "normal":
        return stats.norm(first, np.exp(second))
    if name == "lognormal":
        return stats.lognorm(np.exp(second), scale=np.exp(first))
    if name == "student_t":
        return stats.t(df, first, np.exp(second))
    if name == "gamma_distribution":
        shape = np.exp(-2 * second)
        return stats.gamma(shape, scale=np.exp(first) / shape)
    if name == "negative_binomial":
        alpha = np.exp(2 * second)
        return stats.nbinom(1 / alpha, 1 / (1 + alpha * np.exp(first)))
    raise AssertionError(name)


def loss(name, first, second, y):
    law = frozen(name, first, second)
    return -(law.logpmf(y) if name == "negative_binomial" else law.logpdf(y))


def gradient(name, first, second, y, step=1e-4):
    """Return derivatives by both scores: differences of fourth order."""

    def slope(function):
        near, far = function(step) - function(-step), function(2 * step) - function(-2 * step)
        return (8 * near - far) / (12 * step)

    return (
        slope(lambda d: loss(name, first + d, second, y)),
        slope(lambda d: loss(name, first, second + d, y)),
    )


def information(name, first, second):
    """Return the Fisher information, (2, 2): mean products of both derivatives."""
    law = frozen(name, first, second)
    if name == "negative_binomial":
        y = np.arange(law.isf(1e-14) + 1)
        share = law.pmf(y)
    else:
        # Many quantiles; the tails, where squared gradients are large, are spaced logarithmically.
        edges = np.concatenate([np.logspace(-13, -3, 4_000), np.linspace(1e-3, 0.5, 4_000)[1:]])
        middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        y, share = (
            np.concatenate([law.ppf(middle), law.isf(middle)]),
            np.concatenate([width, width]),
        )
    g = np.stack(gradient(name, np.full_like(y, first), np.full_like(y, second), y))
    return (g * share) @ g.T
