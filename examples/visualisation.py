"""Plots of a model: learning curves, a tree with its outputs, residuals and importances.

`python examples/visualisation.py plots.png` writes them to a file.
"""

import sys

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from polyleaf import PolyleafClassifier
from polyleaf.datasets import load
from polyleaf.inspection import plotting


def main(path: str | None = None) -> dict[str, float]:
    emotions = load("emotions")
    *features, labels, y_test = emotions.split()
    X, X_test = (pd.DataFrame(rows, columns=emotions.feature_names) for rows in features)
    y = pd.DataFrame(labels, columns=emotions.output_names)
    model = PolyleafClassifier(n_estimators=40, max_leaves=8, random_state=0)
    model.fit(X, y, X_val=X_test, y_val=y_test)

    figure = Figure(figsize=(13, 9), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    axes = figure.subplots(2, 2).ravel()
    curves = plotting.LearningCurvesDisplay.from_estimator(model, ax=axes[0])
    tree = plotting.TreeDisplay.from_estimator(model, 0, row=X_test.iloc[[0]], ax=axes[1])
    outputs = plotting.OutputsDisplay.from_estimator(model, X_test, y_test, ax=axes[2])
    importance = plotting.ImportanceDisplay.from_estimator(
        model, "shap", X=X_test, per_output=True, max_features=12, ax=axes[3]
    )
    if path is not None:
        figure.savefig(path)

    gained = 1 - outputs.scores["model"] / outputs.scores["constant"]
    for name, share in zip(outputs.output_names, gained, strict=True):
        print(f"{name}: {share:.0%} of the {outputs.metric} of a constant is gone")
    print(f"the first test row passes {len(tree.path) - 1} splits of tree {tree.tree}")
    return {
        "least gained": float(gained.min()),
        "curves": float(len(curves.lines_)),
        "outputs in the map": float(len(importance.importance)),
    }


if __name__ == "__main__":
    main(*sys.argv[1:2])
