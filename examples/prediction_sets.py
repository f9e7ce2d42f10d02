"""Conformal prediction: sets of letters, and joint intervals for two loads.

Held-out rows determine how many classes, or how wide an interval, are needed. New rows of the same
distribution are covered as often as requested, whatever the quality of the model.
"""

import numpy as np

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.datasets import load


def letters() -> dict[str, float]:
    X, X_test, y, y_test = load("letter").split()
    model = PolyleafClassifier(n_estimators=40, max_leaves=16, random_state=0).fit(
        X[:4000], y[:4000]
    )
    model.calibrate(X[4000:6000], y[4000:6000], coverage=0.95)
    sets = model.predict_set(X_test)
    held = sets[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)].mean()
    size = sets.sum(axis=1)
    print(
        f"{held:.1%} of the letters are in their sets (asked: 95 %), which have {size.mean():.2f} "
        "on average"
    )
    return {
        "held": held,
        "accuracy": model.score(X_test, y_test),
        "alone": float((size == 1).mean()),
    }


def loads() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    held_out = (
        np.random.default_rng(0).random(len(X)) < 1 / 3
    )  # shuffled, since the table is sorted
    model = PolyleafRegressor(n_estimators=200, random_state=0).fit(X[~held_out], y[~held_out])
    model.calibrate(X[held_out], y[held_out], coverage=0.9, joint=True)
    bounds = model.predict_interval(X_test)
    inside = ((bounds[..., 0] <= y_test) & (y_test <= bounds[..., 1])).all(axis=1).mean()
    width = (bounds[..., 1] - bounds[..., 0]).mean(axis=0)
    print(
        f"{inside:.1%} of the buildings have both loads inside (asked: 90 %), widths "
        f"{width.round(2)}"
    )
    return {"inside": float(inside)}


def main() -> dict[str, float]:
    return letters() | loads()


if __name__ == "__main__":
    main()
