"""C-GB: one tree fitted to the residuals of all classes, then a Newton step in each leaf.

Emami and Martínez-Muñoz, "Condensed-Gradient Boosting", 2025. The structure of a tree needs no
Hessian (eq. 10); its leaves do (eq. 13). A preset is a dict of parameters that you may change.
"""

from typing import Any

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.settings import presets


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("letter").split()
    params: dict[str, Any] = {**presets.cgb(), "n_estimators": 40, "max_depth": 8}
    model = PolyleafClassifier(**params, random_state=0).fit(X[:4000], y[:4000])
    accuracy = model.score(X_test, y_test)
    print(f"accuracy over 26 letters: {accuracy:.3f}")
    return {"accuracy": accuracy}


if __name__ == "__main__":
    main()
