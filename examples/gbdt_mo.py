"""GBDT-MO: one tree for all outputs, second order, a vector in each leaf.

Zhang and Jung, "GBDT-MO: Gradient-Boosted Decision Trees for Multiple Outputs", 2021. Two targets
of the energy data are learned together: each split is chosen by its gain summed over both (eq. 16).
"""

import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load
from polyleaf.settings import presets


def main() -> dict[str, float]:
    energy = load("energy")
    X, X_test, y, y_test = energy.split()
    model = PolyleafRegressor(**presets.gbdt_mo(), n_estimators=200, random_state=0).fit(X, y)

    rmse = np.sqrt(((model.predict(X_test) - y_test) ** 2).mean(axis=0))
    of_mean = np.sqrt(((y.mean(axis=0) - y_test) ** 2).mean(axis=0))
    for name, mine, mean in zip(energy.output_names, rmse, of_mean, strict=True):
        print(f"{name:13} RMSE {mine:6.3f}   of the mean {mean:6.3f}")

    print("share of each feature in the gain of all splits:")
    for feature in np.argsort(model.feature_importances_)[::-1]:
        print(f"  {energy.feature_names[feature]:26} {model.feature_importances_[feature]:.3f}")
    return {"rmse": float(rmse.mean()), "baseline": float(of_mean.mean())}


if __name__ == "__main__":
    main()
