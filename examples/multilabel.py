"""Multi-label classification: a song may be happy and relaxing at once.

`y` is an indicator matrix with one column per label; `predict_proba` returns the probability of
each label.
"""

import numpy as np
from sklearn.metrics import f1_score, hamming_loss

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load


def main() -> dict[str, float]:
    emotions = load("emotions")
    X, X_test, Y, Y_test = emotions.split()
    model = PolyleafClassifier(
        n_estimators=100, learning_rate=0.05, max_leaves=8, random_state=0
    ).fit(X, Y)

    predicted = model.predict(X_test)
    found = {
        "micro F1": f1_score(Y_test, predicted, average="micro"),
        "hamming": hamming_loss(Y_test, predicted),
        "hamming of the majority": hamming_loss(
            Y_test, np.tile(Y.mean(axis=0) > 0.5, (len(Y_test), 1))
        ),
    }
    print("  ".join(f"{name} {value:.3f}" for name, value in found.items()))

    probabilities = model.predict_proba(X_test[:1])[0]
    print(
        "the first test song:",
        ", ".join(
            f"{n} {p:.2f}" for n, p in zip(emotions.output_names, probabilities, strict=True)
        ),
    )
    return found


if __name__ == "__main__":
    main()
