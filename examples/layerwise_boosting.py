"""Layer-by-layer boosting (TFBT), for small ensembles.

Ponomareva et al., "Compact multi-class boosted trees", 2017. A usual tree makes one boosting step
after it is grown; here every layer makes one, with its own derivatives (section V), and leaves hold
the sums. Three ways to use thirty trees on 26 letters.
"""

from typing import Any

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.settings import presets

TREES = 30


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("letter").split()
    train = X[:6000], y[:6000]  # fast enough for an example
    ways: dict[str, dict[str, Any]] = {
        "a tree per class": {
            "multi_strategy": "one_output_per_tree",
            "boosting_step": "tree",
            "n_estimators": 2,
        },
        "vectors in the leaves": {"boosting_step": "round", "n_estimators": TREES},
        "and layers boosted": {"n_estimators": TREES},
    }
    found: dict[str, float] = {}
    for name, way in ways.items():
        model = PolyleafClassifier(**{**presets.tfbt(), **way}, random_state=0).fit(*train)
        found[name] = model.score(X_test, y_test)
        print(f"{name:21}  {model.model_.n_trees} trees  accuracy {found[name]:.3f}")

    # Shallow layers of early trees need only part of the rows.
    fewer = PolyleafClassifier(
        **presets.tfbt(), n_estimators=TREES, rows_per_layer=[0.25, 0.5, 1.0], random_state=0
    )
    found["on fewer rows"] = fewer.fit(*train).score(X_test, y_test)
    print(f"upper layers on a quarter and half of the rows: accuracy {found['on fewer rows']:.3f}")
    return found


if __name__ == "__main__":
    main()
