"""Monotone constraints: loads do not fall with the height of a building, nor with its windows.

There are few training rows with noisy loads. Without constraints trees follow the noise, so that
some buildings would need less heating with larger windows; with them none does, at about the same
error.
"""

from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    data = load("energy")
    X, X_test, y, y_test = data.split()
    rows = np.random.default_rng(0).permutation(len(X))[:60]
    noisy = y[rows] + np.random.default_rng(1).normal(0, 4, (len(rows), 2))
    windows, height = (
        data.feature_names.index("glazing_area"),
        data.feature_names.index("overall_height"),
    )
    larger = X_test.copy()
    larger[:, windows] += 0.1

    params: dict[str, Any] = {"n_estimators": 60, "max_leaves": 8, "min_child_samples": 3}
    found = {}
    for name, directions in (("free", None), ("constrained", {windows: 1, height: 1})):
        model = PolyleafRegressor(**params, monotone_constraints=directions, random_state=0)
        model.fit(X[rows], noisy)
        falls = np.mean(model.predict(larger) < model.predict(X_test))
        found |= {
            name: root_mean_squared_error(y_test, model.predict(X_test)),
            f"{name} falls": falls,
        }
        print(
            f"{name:5} test RMSE {found[name]:.2f}, {falls:.1%} of loads fall where windows are "
            "larger"
        )
    return found


if __name__ == "__main__":
    main()
