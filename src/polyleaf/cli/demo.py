"""The command `demo`: train on the bundled data sets, print scores, save models and plots.

It uses public classes only, and so serves as an end-to-end test too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.callbacks import Callback
from polyleaf.data.random_rows import split_rows
from polyleaf.datasets import load
from polyleaf.files.io import write_csv
from polyleaf.metrics._multitask import baseline_scores, compute_scores


@dataclass(frozen=True)
class _Job:
    """A data set, its task, and the parameters of the estimator."""

    data_name: str
    title: str
    task: str
    params: dict[str, Any]
    metrics: tuple[str, str]
    """The two scores to print; a larger second one is better."""


_JOBS = (
    _Job(
        "energy",
        "Energy: 2 targets",
        "regression",
        {"n_estimators": 800, "learning_rate": 0.1, "max_leaves": 16, "min_child_samples": 5},
        ("RMSE", "R2"),
    ),
    _Job(
        "letter",
        "Letters: 26 classes",
        "classification",
        {"n_estimators": 400, "learning_rate": 0.2, "max_leaves": 64},
        ("log loss", "accuracy"),
    ),
    _Job(
        "emotions",
        "Emotions: 6 labels",
        "multilabel",
        {"n_estimators": 300, "learning_rate": 0.05, "max_leaves": 8, "colsample_bytree": 0.5},
        ("log loss", "micro F1"),
    ),
)
_QUICK_ROUNDS = 20
_EARLY_STOPPING_ROUNDS = 30


@dataclass(frozen=True)
class DemoResult:
    """Result of one job.

    Attributes
    ----------
    job : _Job
    n_rounds : int
        Number of rounds that the model predicts with.
    scores, baseline_scores : dict of str to float
        Test scores of the model, and of a constant prediction (mean or majority).
    history : dict of str to list of float
        "train" and "validation" -> value of the objective's metric per round.
    metric : str
        Name of that metric.
    model_path : Path
    """

    job: _Job
    n_rounds: int
    scores: dict[str, float]
    baseline_scores: dict[str, float]
    history: dict[str, list[float]]
    metric: str
    model_path: Path


def run(
    out: str | Path = "polyleaf_demo", quick: bool = False, n_jobs: int | None = None
) -> list[DemoResult]:
    """Train on the bundled data sets, print scores, and save models, plots and data.

    Parameters
    ----------
    out : str or Path
        Folder for the models, the plot ``learning_curves.png``, and the energy data as two CSV
        files. It is created if missing.
    quick : bool
        Whether to train only a few rounds.
    n_jobs : int, optional
        Number of threads; by default the estimators choose.

    Returns
    -------
    list of DemoResult

    Raises
    ------
    RuntimeError
        If a saved model predicts differently after loading.
    """
    from rich.console import Console

    _require_matplotlib()
    console = Console()
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    results = []
    with _show_progress(console) as start_job:
        for job in _JOBS:
            rounds = _QUICK_ROUNDS if quick else job.params["n_estimators"]
            params = {**job.params, "n_estimators": rounds, "n_jobs": n_jobs}
            results.append(_train(job, out, params, start_job))
    plot = _plot_learning_curves(results, out / "learning_curves.png")
    _write_energy_data(out)
    console.print(_make_score_table(results))
    console.print("All models predict exactly the same after saving and loading.")
    console.print(
        f"Saved in {out}/: models, learning curves ({plot.name}), two CSV files.", soft_wrap=True
    )
    console.print("Next steps:")
    model = out / "mine.polyleaf"
    train, test = out / "energy_train.csv", out / "energy_test.csv"
    for command in (
        f"polyleaf train {train} --target heating_load,cooling_load --model {model}",
        f"polyleaf evaluate {test} --model {model}",
    ):
        console.print(f"  {command}", soft_wrap=True, highlight=False, markup=False)
    return results


def _train(job: _Job, out: Path, params: dict[str, Any], start_job: Callable) -> DemoResult:
    from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor

    X, X_test, y, y_test = load(job.data_name).split()
    # Early stopping evaluates held-out training rows, never the test rows.
    kept, held = split_rows(len(X), len(X) // 5, seed=0)
    cls = PolyleafRegressor if job.task == "regression" else PolyleafClassifier
    model = cls(**params, early_stopping_rounds=_EARLY_STOPPING_ROUNDS, random_state=0)
    model.fit(
        X[kept],
        y[kept],
        eval_set=[(X[kept], y[kept]), (X[held], y[held])],
        callbacks=[start_job(job.title, params["n_estimators"])],
    )
    path = out / f"{job.data_name}.polyleaf"
    model.save_model(path)
    predicted, probabilities = _predict_and_compare(model, path, X_test, job)
    curves = [next(iter(metrics.items())) for metrics in model.evals_result_.values()]
    best = model.best_iteration_
    classes = getattr(model, "classes_", None)
    return DemoResult(
        job=job,
        n_rounds=model.model_.n_rounds if best is None else best + 1,
        scores=compute_scores(job.task, y_test, predicted, probabilities, classes),
        baseline_scores=baseline_scores(job.task, y, y_test),
        history=dict(zip(("train", "validation"), (values for _, values in curves), strict=True)),
        metric=curves[0][0],
        model_path=path,
    )


def _predict_and_compare(
    model: Any, path: Path, X: np.ndarray, job: _Job
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return predictions and probabilities, which the saved model must give bit for bit."""
    from polyleaf.estimators import load_model

    loaded = load_model(path)
    predicted = model.predict(X)
    probabilities = None if job.task == "regression" else model.predict_proba(X)
    same = np.array_equal(predicted, loaded.predict(X))
    if probabilities is not None:
        same = same and np.array_equal(probabilities, loaded.predict_proba(X))
    if not same:
        raise RuntimeError(
            f"The model saved to {path} predicts differently after loading; please report this."
        )
    return predicted, probabilities


class _ProgressCallback(Callback):
    """Advance a progress bar; a training that stops early fills it."""

    def __init__(self, progress: Any, bar: Any):
        self._progress, self._bar, self._done = progress, bar, 0

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> None:
        self._done = epoch + 1
        self._progress.update(self._bar, completed=self._done)

    def after_training(self, model: Any) -> None:
        self._progress.update(self._bar, total=self._done, completed=self._done)


@contextmanager
def _show_progress(console: Any) -> Iterator[Callable]:
    """Yield ``start_job(title, rounds)``, which adds a progress bar and returns its callback."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield lambda title, rounds: _ProgressCallback(
            progress, progress.add_task(title, total=rounds)
        )


def _make_score_table(results: list[DemoResult]) -> Any:
    from rich.table import Table

    table = Table(title="Test scores")
    for heading in ("data", "rounds", "score", "Polyleaf", "mean / majority"):
        table.add_column(heading, justify="left" if heading in ("data", "score") else "right")
    for result in results:
        for i, name in enumerate(result.job.metrics):
            labels = (result.job.title, str(result.n_rounds)) if i == 0 else ("", "")
            values = result.scores[name], result.baseline_scores[name]
            table.add_row(*labels, name, *(f"{value:.4f}" for value in values))
    return table


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'The demo plots with matplotlib: pip install "polyleaf[cli,plot]".'
        ) from error


def _plot_learning_curves(results: list[DemoResult], path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(results), 3.6), layout="constrained")
    FigureCanvasAgg(figure)  # needs no display and does not change the user's backend
    for axes, result in zip(figure.subplots(1, len(results)), results, strict=True):
        for part, values in result.history.items():
            axes.plot(np.arange(1, len(values) + 1), values, label=part)
        axes.axvline(
            result.n_rounds, color="grey", linewidth=0.8, linestyle="--", label="best round"
        )
        axes.set(title=result.job.title, xlabel="rounds", ylabel=result.metric, yscale="log")
        axes.legend()
    figure.savefig(path, dpi=120)
    return path


def _write_energy_data(out: Path) -> None:
    energy = load("energy")
    for part, rows in (("train", energy.train), ("test", energy.test)):
        # Shortest decimal text that reads back as the same float32.
        cells = np.column_stack([energy.X[rows], energy.y[rows]]).astype(str).tolist()
        write_csv(out / f"energy_{part}.csv", [*energy.feature_names, *energy.output_names], cells)
