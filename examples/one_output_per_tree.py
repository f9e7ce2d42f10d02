"""One tree for all outputs compared with one tree per output (GBDT-SO).

With a tree per output, each target has its own structure, and a round has as many trees as targets.
Which is better depends on how much structure the targets share: try both.
"""

from sklearn.metrics import root_mean_squared_error

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    found = {}
    for strategy in ("multi_output_tree", "one_output_per_tree"):
        model = PolyleafRegressor(multi_strategy=strategy, n_estimators=150, random_state=0).fit(
            X, y
        )
        found[strategy] = root_mean_squared_error(y_test, model.predict(X_test))
        print(f"{strategy:20} RMSE {found[strategy]:.3f}   {model.model_.n_trees} trees")
    return found


if __name__ == "__main__":
    main()
