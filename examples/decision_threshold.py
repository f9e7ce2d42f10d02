"""Decision thresholds of labels: one half is seldom optimal where labels are rare.

One threshold for all labels is chosen to maximise F1 on held-out rows: three models, each trained
without a third of the rows; or afterwards, on new unlabelled rows.
"""

from typing import Any

from sklearn.metrics import f1_score

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("emotions").split()
    params: dict[str, Any] = {"n_estimators": 100, "max_leaves": 16, "random_state": 0}
    half = PolyleafClassifier(**params).fit(X, y)
    models = {
        "one half": half,
        "chosen": PolyleafClassifier(**params, threshold="f1").fit(X, y),
        "weighted": PolyleafClassifier(**params, scale_pos_weight="balanced").fit(X, y),
    }
    found = {
        name: f1_score(y_test, model.predict(X_test), average="micro")
        for name, model in models.items()
    }
    half.choose_threshold(X_test)  # without the labels of these rows
    found["without labels"] = f1_score(y_test, half.predict(X_test), average="micro")
    for name, f1 in found.items():
        print(f"{name:14} F1 {f1:.3f}")
    return found | {"threshold": float(models["chosen"].thresholds_[0])}


if __name__ == "__main__":
    main()
