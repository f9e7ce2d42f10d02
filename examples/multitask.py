"""Multi-task learning: the heating load of a building, and its class of cooling load.

Only every twentieth heating load is known, the class of cooling always. One tree learns both, so
that rows without a heating load help to find its splits.
"""

import numpy as np

from polyleaf import PolyleafMultiTask, PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    thirds = np.quantile(y[:, 1], [1 / 3, 2 / 3])
    classes = np.array(["low", "middle", "high"])
    is_measured = np.arange(len(y)) % 20 == 0
    Y = {
        "heating": np.where(is_measured, y[:, 0], np.nan),
        "cooling": classes[np.digitize(y[:, 1], thirds)],
    }

    losses = {"heating": "squared_error", "cooling": "softmax"}
    both = PolyleafMultiTask(losses, missing_targets="ignore", n_estimators=150).fit(X, Y)
    found = both.predict(X_test)
    alone = PolyleafRegressor(n_estimators=150).fit(X[is_measured], y[is_measured, 0])

    def error(predicted: np.ndarray) -> float:
        return float(np.sqrt(np.mean((predicted - y_test[:, 0]) ** 2)))

    with_help, without = error(found["heating"]), error(alone.predict(X_test))
    print(f"error of the heating load: {with_help:.2f} with the classes' help, {without:.2f} alone")
    right = float(np.mean(found["cooling"] == classes[np.digitize(y_test[:, 1], thirds)]))
    print(f"{right:.0%} of the cooling classes are right")
    return {
        "with help": with_help,
        "without": without,
        "right": right,
        "deviation": float(y_test[:, 0].std()),
    }


if __name__ == "__main__":
    main()
