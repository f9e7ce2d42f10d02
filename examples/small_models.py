"""Small models: accuracy at each size, and the cost of rounding leaf values.

Layer-by-layer boosting with vector leaves (TFBT: Ponomareva et al., "Compact multi-class boosted
trees", 2017) is made for small ensembles. The model is evaluated with its first rounds only, and
saved with 8-bit leaves.
"""

import tempfile
from pathlib import Path

from polyleaf import PolyleafClassifier, load_model
from polyleaf.datasets import load
from polyleaf.inspection import leaf_dtype_report, size_report
from polyleaf.settings import presets


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("letter").split()
    model = PolyleafClassifier(**presets.tfbt(), n_estimators=50, random_state=0)
    model.fit(X[:4000], y[:4000])  # fast enough for an example

    metrics = ["merror", "mlogloss"]
    report = size_report(model, X_test, y_test, metrics=metrics, rounds=[1, 5, 10, 25, 50])
    for row in report["scores"]:
        print(
            f"{row['trees']:3} trees {row['bytes'] // 1024:4} KiB  error {row['merror']:.3f}  ",
            end="",
        )
        print(f"log-loss {row['mlogloss']:.3f}")
    print(
        "of that:",
        ", ".join(f"{what} {size // 1024} KiB" for what, size in report["bytes_of"].items()),
    )

    for row in leaf_dtype_report(model.model_, X_test, y_test, metrics=metrics):
        print(
            f"{row['leaf_dtype']:8} file of {row['file_bytes'] // 1024} KiB  error "
            f"{row['merror']:.3f}"
        )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "letters.polyleaf"
        model.save_model(path, leaf_dtype="int8")
        rounded = load_model(path).score(X_test, y_test)
    return {
        "accuracy": model.score(X_test, y_test),
        "rounded": rounded,
        "first": 1 - report["scores"][0]["merror"],
    }


if __name__ == "__main__":
    main()
