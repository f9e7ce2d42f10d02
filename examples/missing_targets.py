"""Missing targets: NaN in `y` is left out of the loss, output by output.

A row still trains the targets that it has. Compared with dropping incomplete rows, and with
imputing the mean.
"""

from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    y = y.copy()
    y[np.random.default_rng(0).random(y.shape) < 0.5] = np.nan
    complete = ~np.isnan(y).any(axis=1)
    filled = np.where(np.isnan(y), np.nanmean(y, axis=0), y)

    params: dict[str, Any] = {"n_estimators": 200, "min_child_samples": 5, "random_state": 0}
    models = {
        "ignored": PolyleafRegressor(**params, missing_targets="ignore").fit(X, y),
        "rows dropped": PolyleafRegressor(**params).fit(X[complete], y[complete]),
        "filled": PolyleafRegressor(**params).fit(X, filled),
    }
    found = {
        name: root_mean_squared_error(y_test, model.predict(X_test))
        for name, model in models.items()
    }
    print(
        f"{np.isnan(y).mean():.0%} of the targets are missing, {complete.sum()} of {len(y)} rows "
        "are complete"
    )
    for name, rmse in found.items():
        print(f"{name:13} test RMSE {rmse:.3f}")
    return found


if __name__ == "__main__":
    main()
