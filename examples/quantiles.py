"""Several quantiles in one model: an 80 % interval and the median.

One tree serves all quantiles; leaf values are the exact quantiles of their rows. The levels are
then calibrated by cross-fitting.
"""

import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    heating, heating_test = y[:, 0], y_test[:, 0]
    model = PolyleafRegressor(objective="quantile", quantile_alpha=[0.1, 0.5, 0.9]).fit(X, heating)

    low, median, high = model.predict(X_test).T
    inside = float(np.mean((low <= heating_test) & (heating_test <= high)))
    error = float(np.abs(median - heating_test).mean())
    of_median = float(np.abs(np.median(heating) - heating_test).mean())
    print(
        f"{inside:.0%} of the test rows lie in their interval (mean width "
        f"{np.mean(high - low):.2f})"
    )
    print(
        f"mean absolute error of the median: {error:.3f} (of the overall median: {of_median:.3f})"
    )
    return {"inside": inside, "error": error, "baseline": of_median}


if __name__ == "__main__":
    main()
