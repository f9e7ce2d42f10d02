"""Polyleaf as an AutoGluon model, bagged and ensembled with AutoGluon's own models.

The target is the energy needed to heat a building. Needs `pip install "polyleaf[autogluon]"`.
"""

import tempfile

from polyleaf.datasets import load


def main() -> dict[str, float]:
    try:
        import pandas as pd
        from autogluon.tabular import TabularPredictor

        from polyleaf.integrations.autogluon import PolyleafModel
    except ImportError as error:
        print(error)
        return {}

    data = load("energy")
    X, X_test, Y, Y_test = data.split()
    table, test = (
        pd.DataFrame(rows, columns=data.feature_names).assign(heating=targets[:, 0])
        for rows, targets in ((X, Y), (X_test, Y_test))
    )
    models = {
        PolyleafModel: [
            {"ag_args": {"name_suffix": "Staircases"}},
            {"leaf": "linear", "max_leaves": 8, "ag_args": {"name_suffix": "Lines"}},
        ],
        "KNN": {},  # one of AutoGluon's own models
    }
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor("heating", path=folder, verbosity=0).fit(
            table, hyperparameters=models
        )
        board = predictor.leaderboard(test)
    print(board[["model", "score_test", "score_val", "fit_time"]])
    return {model: -score for model, score in zip(board["model"], board["score_test"], strict=True)}


if __name__ == "__main__":
    main()
