"""An HTML report of several tasks: heating as regression, cooling as classes and quantiles.

Each task has a section with its scores and plots; what they share comes before and after.
`python examples/report.py report.html` writes the page, which needs no network.
"""

import sys

import numpy as np

from polyleaf import PolyleafMultiTask
from polyleaf.datasets import load
from polyleaf.inspection import make_report
from polyleaf.objectives import Quantile


def main(path: str | None = None) -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    thirds = np.quantile(y[:, 1], [1 / 3, 2 / 3])

    def tasks(y: np.ndarray) -> dict[str, np.ndarray]:
        cooling = np.array(["low", "middle", "high"])[np.digitize(y[:, 1], thirds)]
        return {"heating": y[:, 0], "class of cooling": cooling, "cooling": y[:, 1]}

    losses = {
        "heating": "squared_error",
        "class of cooling": "softmax",
        "cooling": Quantile((0.1, 0.5, 0.9)),
    }
    model = PolyleafMultiTask(losses, n_estimators=60, validation_fraction=0.2, random_state=0)
    model.fit(X, tasks(y))

    page = make_report(model, X_test, tasks(y_test), title="Energy of buildings")
    if path is not None:
        page.save(path)
    sections = [name for name in losses if f">{name}</h2>" in page.html]
    print(
        f"{len(sections)} tasks on one page of {len(page.html) / 1e6:.2f} MB: {', '.join(sections)}"
    )
    return {"sections": len(sections), "megabytes": len(page.html) / 1e6}


if __name__ == "__main__":
    main(*sys.argv[1:2])
