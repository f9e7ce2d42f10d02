"""Offsets (base margins): what is known beforehand need not be learned by trees.

Two uses on real data. A linear model extrapolates beyond the data, trees do not: as `init` it gives
the scores that trees are added to. For counts, the logarithm of the exposure is an
offset: how often a letter occurs on a page depends on the length of the page.
"""

from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def beyond_the_data() -> dict[str, float]:
    """Heating and cooling loads of buildings with more glass than any that were trained on."""
    energy = load("energy")
    glazing = energy.X[:, energy.feature_names.index("glazing_area")]
    known = glazing < 0.3
    X, y, X_test, y_test = energy.X[known], energy.y[known], energy.X[~known], energy.y[~known]
    line = make_pipeline(StandardScaler(), Ridge())
    params: dict[str, Any] = {"n_estimators": 200, "random_state": 0}
    trees = PolyleafRegressor(**params).fit(X, y)
    both = PolyleafRegressor(init=line, **params).fit(X, y)
    line.fit(X, y)
    found = {
        "line": root_mean_squared_error(y_test, line.predict(X_test)),
        "trees": root_mean_squared_error(y_test, trees.predict(X_test)),
        "both": root_mean_squared_error(y_test, both.predict(X_test)),
    }
    for name, rmse in found.items():
        print(f"{name:6} RMSE on buildings with more glass {rmse:.2f}")
    return found


def pages(sizes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pages of so many scanned letters: mean features, and how many of them are vowels."""
    letter = load("letter")
    is_vowel = np.isin(letter.y, list("AEIOU"))
    X, counts = np.empty((len(sizes), letter.X.shape[1])), np.empty(len(sizes))
    for i, size in enumerate(sizes):
        counts[i] = rng.binomial(size, rng.uniform(0.05, 0.6))
        picked = [rng.choice(np.flatnonzero(is_vowel), int(counts[i]))]
        picked.append(rng.choice(np.flatnonzero(~is_vowel), size - int(counts[i])))
        X[i] = letter.X[np.concatenate(picked)].mean(axis=0)
    return X, counts


def exposure() -> dict[str, float]:
    """Vowels of pages longer than any that were trained on: their length as exposure, or as a
    feature.
    """
    rng = np.random.default_rng(0)
    size = np.concatenate([rng.integers(20, 200, 2000), rng.integers(200, 300, 500)])
    X, y = pages(size, rng)
    train, test = slice(0, 2000), slice(2000, None)
    params: dict[str, Any] = {"objective": "poisson", "n_estimators": 200, "random_state": 0}
    rate = PolyleafRegressor(**params).fit(X[train], y[train], offset=np.log(size[train]))
    wide = np.column_stack([X, size])
    feature = PolyleafRegressor(**params).fit(wide[train], y[train])
    found = {
        "exposure": root_mean_squared_error(
            y[test], rate.predict(X[test], offset=np.log(size[test]))
        ),
        "feature": root_mean_squared_error(y[test], feature.predict(wide[test])),
        "rate": float(rate.predict(X[test], offset=np.zeros(500)).mean()),  # of one letter
    }
    print(
        f"vowels of longer pages: RMSE {found['feature']:.1f} with the length as a feature,",
        end=" ",
    )
    print(f"{found['exposure']:.1f} as exposure; {found['rate']:.0%} of letters are vowels")
    return found


def main() -> dict[str, float]:
    return beyond_the_data() | exposure()


if __name__ == "__main__":
    main()
