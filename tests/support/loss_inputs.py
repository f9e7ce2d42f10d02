"""Random targets and raw scores, and the derivatives of a bound objective at them."""

import numpy as np

from polyleaf.objectives import get_objective
from polyleaf.objectives._utils import packed_size

# Objective, its parameters in the tests, and its kind of target.
ELEMENTWISE = {
    "squared_error": ("squared_error", {}, "real"),
    "absolute_error": ("absolute_error", {}, "real"),
    "quantile": ("quantile", {"alpha": 0.3}, "real"),
    "huber": ("huber", {"delta": 0.7}, "real"),
    "log_cosh": ("log_cosh", {"delta": 0.7}, "real"),
    "expectile": ("expectile", {"alpha": 0.3}, "real"),
    "poisson": ("poisson", {}, "count"),
    "poisson exact": ("poisson", {"hessian": "exact"}, "count"),
    "gamma": ("gamma", {}, "positive"),
    "gamma exact": ("gamma", {"hessian": "exact"}, "positive"),
    "tweedie": ("tweedie", {"variance_power": 1.3}, "count"),
    "tweedie exact": ("tweedie", {"variance_power": 1.3, "hessian": "exact"}, "count"),
    "logistic": ("logistic", {}, "binary"),
    "logistic soft": ("logistic", {"scale_pos_weight": 2.5}, "share"),
    "focal": ("focal", {"gamma": 1.7, "scale_pos_weight": 2.5}, "binary"),
    "squared_hinge": ("squared_hinge", {}, "binary"),
}


def elementwise(case):
    name, parameters, kind = ELEMENTWISE[case]
    return get_objective(name, **parameters), kind


def draw_target(kind, n, k, seed=0):
    rng = np.random.default_rng(seed)
    values = {
        "real": rng.standard_normal((n, k)),
        "count": rng.poisson(2.0, (n, k)),
        "positive": rng.gamma(2.0, 1.0, (n, k)) + 0.01,
        "binary": rng.random((n, k)) < 0.4,
        "share": rng.random((n, k)),
    }
    return values[kind].astype(np.float32)


def draw_raw(n, k, seed=1, scale=1.5):
    return (np.random.default_rng(seed).standard_normal((n, k)) * scale).astype(np.float32)


def run(problem, raw, n_threads=1):
    """Return gradient and Hessian, in arrays filled with NaN first: every entry must be written."""
    g = np.full_like(raw, np.nan)
    shape = problem.hessian_shape()
    h = None if shape is None else np.full(shape, np.nan, np.float32)
    problem.derivatives(raw, g, h, n_threads)
    return g, h


def hessians(problem, raw, n_threads=1):
    """Return gradient and packed Hessian, in arrays filled with NaN first."""
    g = np.full_like(raw, np.nan)
    h = np.full((len(raw), packed_size(raw.shape[1])), np.nan, np.float32)
    problem.full_hessian(raw, g, h, n_threads)
    return g, h


def softmax(z):
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def softmax_hessians(y, z):
    """Return gradient (n, K) and Hessians (n, K, K) as a user would write them."""
    p = softmax(z)
    g = p.copy()
    g[np.arange(len(y)), y] -= 1
    return g, np.einsum("ni,ij->nij", p, np.eye(p.shape[1])) - p[:, :, None] * p[:, None, :]
