"""GBDT-PL: linear leaves for two targets.

Shi, Li and Li, "Gradient Boosting With Piece-Wise Linear Regression Trees", IJCAI 2019. The heating
and cooling loads of buildings depend smoothly on their shape: linear leaves need fewer trees than
constant ones.
"""

from typing import Any

from sklearn.metrics import root_mean_squared_error

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    energy = load("energy")
    X, X_test, y, y_test = energy.split()
    params: dict[str, Any] = {"n_estimators": 40, "max_leaves": 8, "random_state": 0}
    models = {
        "constant": PolyleafRegressor(**params),
        "lines afterwards": PolyleafRegressor(leaf="linear", linear_fit="post", **params),
        "linear": PolyleafRegressor(leaf="linear", **params),
    }
    found: dict[str, float] = {}
    for name, model in models.items():
        model.fit(X, y)
        found[name] = float(root_mean_squared_error(y_test, model.predict(X_test)))
        print(f"{name:17} RMSE of 40 trees {found[name]:.3f}")

    leaf = models["linear"].model_.trees[0].leaf_linear(0)
    for j, feature in enumerate(leaf.features):
        slopes = ", ".join(
            f"{value:+.3f} {name}"
            for value, name in zip(leaf.coefficients[j], energy.output_names, strict=True)
        )
        print(f"first leaf, around {energy.feature_names[feature]} {leaf.centre[j]:.2f}: {slopes}")
    return found


if __name__ == "__main__":
    main()
