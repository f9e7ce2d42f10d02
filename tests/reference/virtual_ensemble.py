"""Uncertainty of models truncated to their first rounds (Malinin et al., 2021)."""

from scipy.stats import entropy


def ensemble_rounds(n_rounds, n_models):
    """Return the rounds of each model: the last is complete, none has less than half."""
    step = max(1, n_rounds // (2 * n_models))
    return [n_rounds - i * step for i in reversed(range(n_models)) if n_rounds - i * step > 0]


def regression_uncertainty(means, variances=None):
    """Return the variance of the means (M, n, T) of models, and the mean of their variances.

    Their sum is the variance of the mixture of the predicted distributions.
    """
    return means.var(axis=0), None if variances is None else variances.mean(axis=0)


def class_uncertainty(p):
    """Return mutual information and mean entropy of probabilities (M, n, K), each (n,)."""
    data = entropy(p, axis=2).mean(axis=0)
    return entropy(p.mean(axis=0), axis=1) - data, data
