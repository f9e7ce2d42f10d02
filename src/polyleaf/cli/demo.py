"""The command `demo`: train on the bundled data sets, print scores, save models and plots.

It uses public classes only, and so serves as an end-to-end test too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.binned_data.random_rows import split_rows
from polyleaf.datasets import load
from polyleaf.files.io import write_columns
from polyleaf.metrics._multitask import baseline_scores, compute_scores
from polyleaf.runtime.optional_packages import optional_package
from polyleaf.runtime.row_data import RowData

JOBS: dict[str, tuple[str, tuple[str, str], dict[str, Any]]] = {
    "energy": ("regression", ("RMSE", "R2"), {"n_estimators": 800, "max_leaves": 16}),
    "letter": ("classification", ("log loss", "accuracy"), {"learning_rate": 0.2}),
    "emotions": ("multilabel", ("log loss", "micro F1"), {"learning_rate": 0.05, "max_leaves": 8}),
}
"""Data set -> its task, the two scores to print (a larger second one is better), parameters."""


def run(out: Path, quick: bool = False, n_jobs: int | None = None) -> dict[str, Any]:
    """Train on the bundled data sets; save models, learning curves and the energy data in `out`.

    Raises a RuntimeError if a saved model predicts differently after loading. Returns dict of str
    to (dict, dict, estimator): data set -> test scores of the model and of a constant prediction,
    and the model.
    """
    with optional_package("The demo plots with matplotlib", "cli,plot"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(13.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)  # needs no display and does not change the user's backend
    results = {}
    for axes, name in zip(figure.subplots(1, len(JOBS)), JOBS, strict=True):
        results[name] = _train(name, out / f"{name}.polyleaf", quick, n_jobs)
        for part, curves in results[name][2].evals_result_.items():
            metric, values = next(iter(curves.items()))
            axes.plot(np.arange(1, len(values) + 1), values, label=part)
        axes.set(title=name.capitalize(), xlabel="rounds", ylabel=metric, yscale="log")
        axes.legend()
    figure.savefig(out / "learning_curves.png", dpi=120)
    print(f"{'data':10}{'score':10}{'Polyleaf':>10}{'mean / majority':>18}")
    for name, (scores, baseline, _) in results.items():
        for score in JOBS[name][1]:
            print(f"{name.capitalize():10}{score:10}{scores[score]:10.4f}{baseline[score]:18.4f}")
    energy = load("energy")
    names = [*energy.feature_names, *energy.output_names]
    for part, rows in (("train", energy.train), ("test", energy.test)):
        values = np.column_stack([energy.X[rows], energy.y[rows]]).T
        write_columns(dict(zip(names, values, strict=True)), out / f"energy_{part}.csv")
    model = out / "mine.polyleaf"
    print("All models predict exactly the same after saving and loading.")
    print(f"Saved in {out}/: models, learning curves (learning_curves.png), two CSV files.")
    print("Next steps:")
    print(f"  polyleaf train {out / 'energy_train.csv'} -t heating_load,cooling_load -m {model}")
    print(f"  polyleaf evaluate {out / 'energy_test.csv'} --model {model}")
    return results


def _train(name: str, path: Path, quick: bool, n_jobs: int | None) -> tuple[Any, Any, Any]:
    """Train and save a model; return its scores, those of a constant, and the model."""
    from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor, load_model

    task, _, params = JOBS[name]
    X, X_test, y, y_test = load(name).split()
    # Early stopping evaluates held-out training rows, never the test rows.
    kept, held = split_rows(len(X), len(X) // 5, seed=0)
    cls = PolyleafRegressor if task == "regression" else PolyleafClassifier
    params = {"n_estimators": 400} | params | ({"n_estimators": 20} if quick else {})
    model = cls(**params, early_stopping_rounds=30, random_state=0, n_jobs=n_jobs)
    sets = {"train": (X[kept], y[kept]), "validation": (X[held], y[held])}
    model.fit(X[kept], y[kept], eval_set=list(sets.values()), eval_names=list(sets))
    model.save_model(path)
    loaded = load_model(path)
    predicted = [each.predict(X_test) for each in (model, loaded)]
    proba = [
        None if task == "regression" else each.predict_proba(X_test) for each in (model, loaded)
    ]
    if not all(np.array_equal(*pair) for pair in (predicted, proba) if pair[0] is not None):
        raise RuntimeError(
            f"The model saved to {path} predicts differently after loading; please report this."
        )
    classes = getattr(model, "classes_", None)
    scores = compute_scores(task, RowData(y_test), predicted[0], proba[0], classes)
    return scores, baseline_scores(task, y, y_test), model
