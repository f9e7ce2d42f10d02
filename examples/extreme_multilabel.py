"""Extreme multi-label classification: sparse labels that are never made dense.

The songs of `multilabel.py`, with their emotions as a CSR matrix. Leaves hold at most three of the
six labels; with a million labels nothing else changes. Predictions are rankings of labels.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.metrics.ranking import ranking_scores
from polyleaf.settings import presets


def main() -> dict[str, float]:
    emotions = load("emotions")
    X, X_test, *labels = emotions.split()
    Y, Y_test = map(csr_matrix, labels)

    params: dict[str, Any] = presets.gbdt_sparse()
    params |= {"leaf_k": 3, "min_child_samples": 10, "n_estimators": 60, "max_depth": 4}
    params |= {"projection": None, "projection_dim": None, "tfidf": False}  # 72 dense features
    model = PolyleafClassifier(**params, random_state=0).fit(X, Y)
    model.model_.output_names = emotions.output_names

    found = ranking_scores(Y_test, model.predict_topk(X_test, 5))
    frequency = np.asarray(Y.sum(axis=0)).ravel()
    found["P@1 of the most frequent"] = Y_test[:, int(frequency.argmax())].mean()
    print("  ".join(f"{name} {value:.3f}" for name, value in found.items()))

    labels, scores = model.predict_topk(X_test[:1], 3, names=True)
    print(
        "the first test song:",
        ", ".join(f"{n} ({s:+.2f})" for n, s in zip(labels[0], scores[0], strict=True)),
    )
    return found


if __name__ == "__main__":
    main()
