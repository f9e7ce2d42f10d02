"""Predicted distributions: heating and cooling loads of buildings, with their uncertainty.

One tree learns the mean and the standard deviation of both targets. Decisions can then use
probabilities, such as that of a load above the capacity of a plant.
"""

import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load
from polyleaf.distributions import Normal


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    model = PolyleafRegressor(objective="normal", n_estimators=600, early_stopping_rounds=50)
    model.set_params(validation_fraction=0.2).fit(X, y)

    found = model.predict_dist(X_test)  # 154 buildings, two loads each
    one_for_all = Normal(y.mean(axis=0), y.std(axis=0))
    likely, nothing = (float(-law.logpdf(y_test).mean()) for law in (found, one_for_all))
    print(
        f"negative log-likelihood: {likely:.2f} nats (of one distribution for all: {nothing:.2f})"
    )

    spread, error = found.std()[:, 0], np.abs(found.mean() - y_test)[:, 0]
    is_sure = spread < np.median(spread)
    sure, unsure = float(error[is_sure].mean()), float(error[~is_sure].mean())
    print(f"error of the heating load where it is sure: {sure:.2f}, elsewhere {unsure:.2f}")

    above = found.sf(30.0)[:, 0]  # a plant of 30 kWh/m2
    right = float(np.mean((above > 0.5) == (y_test[:, 0] > 30)))
    print(
        f"{np.mean(above > 0.1):.0%} of the buildings may need more than 30; {right:.0%} are "
        "predicted correctly"
    )
    return {
        "gain in nats": nothing - likely,
        "sure": sure,
        "unsure": unsure,
        "predicted right": right,
    }


if __name__ == "__main__":
    main()
