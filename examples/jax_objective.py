"""A custom objective written with JAX: gradients and Hessian by automatic differentiation.

The cooling load of a building and its uncertainty: two raw scores for one target, the mean and the
logarithm of the standard deviation of a normal distribution, learned by maximum likelihood. Needs
`pip install "polyleaf[jax]"`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load
from polyleaf.objectives import Custom


def normal(y: jax.Array, scores: jax.Array) -> jax.Array:
    """Minus the log-likelihood of one row: `y` is its target, `scores` are its raw scores, here
    two.
    """
    mean, log_deviation = scores
    return log_deviation + 0.5 * ((y - mean) * jnp.exp(-log_deviation)) ** 2


def main() -> dict[str, float]:
    X, X_test, Y, Y_test = load("energy").split()
    y, y_test = Y[:, 1], Y_test[:, 1]
    settings: dict[str, Any] = {"n_estimators": 100, "max_leaves": 8, "min_child_samples": 5}
    settings["random_state"] = 0
    # The likelihood is not convex in both scores: "absolute" takes the absolute value of the
    # Hessian.
    objective = Custom(normal, n_outputs=2, hessian="absolute")
    mean, log_deviation = (
        PolyleafRegressor(objective=objective, **settings).fit(X, y).predict(X_test).T
    )

    plain = PolyleafRegressor(**settings).fit(X[:460], y[:460])
    deviation = np.std(y[460:] - plain.predict(X[460:]))  # constant, from held-out rows

    found = {}
    for name, m, s in (
        ("own", mean, np.exp(log_deviation)),
        ("one for all", plain.predict(X_test), deviation),
    ):
        found[name] = float(np.mean(np.log(s) + ((y_test - m) / s) ** 2 / 2))
        inside = np.mean(np.abs(y_test - m) < 1.645 * s)
        print(
            f"deviation {name:11} -log-likelihood {found[name]:5.2f}, {inside:.0%} inside their "
            "90 % interval"
        )
    found["inside"] = float(np.mean(np.abs(y_test - mean) < 1.645 * np.exp(log_deviation)))
    return found


if __name__ == "__main__":
    main()
