"""Sparse leaves: each holds the four of twenty-six classes with the largest gain.

Zhang and Jung, "GBDT-MO: Gradient-Boosted Decision Trees for Multiple Outputs", 2021, section
III-B. Splits take it into account. A sparse leaf does less than one of all classes; three times as
many trees hold about as many values.
"""

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.inspection import size_report
from polyleaf.settings import presets


def main() -> dict[str, float]:
    """Compare dense leaves with sparse leaves that hold about as many values in total."""
    X_train, X_test, y_train, y_test = load("letter").split()
    X_train, y_train = X_train[:4000], y_train[:4000]  # fast enough for an example

    methods = {
        "all classes": (presets.gbdt_mo(), 40),
        "four, the same for siblings": (presets.gbdt_mo_sparse(4), 120),
        "four of each leaf's own": (presets.gbdt_mo_sparse(4, restricted=False), 120),
    }
    found = {}
    for name, (recipe, rounds) in methods.items():
        model = PolyleafClassifier(**recipe, n_estimators=rounds, learning_rate=0.3, random_state=0)
        found[name] = model.fit(X_train, y_train).score(X_test, y_test)
        size = size_report(model)["bytes_of"]["values"]
        print(f"{name + ':':28} {found[name]:.3f} accurate, {size // 1024} KiB of leaf values")
    return found


if __name__ == "__main__":
    main()
