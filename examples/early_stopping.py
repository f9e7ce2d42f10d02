"""Early stopping, metrics of every round, and a callback.

Training stops when the validation metric has not improved for some rounds; prediction uses the
rounds up to the best.
"""

from typing import Any

from sklearn.model_selection import train_test_split

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load


def every_twentieth_round(
    model: Any, epoch: int, evals_log: dict[str, dict[str, list[float]]]
) -> None:
    """A callback may be a plain function, called after each round; returning True would end the
    training.
    """
    if epoch % 20 == 0:
        (metrics,) = evals_log.values()
        print(f"round {epoch:3}", *(f"{name} {values[-1]:.4f}" for name, values in metrics.items()))


def main() -> dict[str, float]:
    X, X_test, Y, Y_test = load("emotions").split()
    X_train, X_val, Y_train, Y_val = train_test_split(X, Y, test_size=0.25, random_state=0)
    model = PolyleafClassifier(
        n_estimators=1000, max_leaves=8, early_stopping_rounds=20, random_state=0
    )
    model.fit(X_train, Y_train, eval_set=[(X_val, Y_val)], callbacks=[every_twentieth_round])

    (metrics,) = model.evals_result_.values()
    rounds = len(next(iter(metrics.values())))
    print(f"stopped after {rounds} of 1000 rounds; the best was round {model.best_iteration_}")
    return {"rounds": rounds, "best": model.best_iteration_, "score": model.score(X_test, Y_test)}


if __name__ == "__main__":
    main()
