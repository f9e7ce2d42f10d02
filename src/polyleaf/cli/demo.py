"""``polyleaf demo``: the main job on the package's own real datasets, from training to a saved model and a
picture.

Owns what is trained and what is shown. Must not know how anything is done: it uses the public interface
alone, and so is also the first end-to-end test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf import datasets
from polyleaf.callbacks import Callback
from polyleaf.data.holdout import split_rows
from polyleaf.files.io import write_csv
from polyleaf.metrics._multitask import baseline_scores, compute_scores

__all__ = ["DemoResult", "run"]


@dataclass(frozen=True)
class _Job:
    """One training: a data set, its task, and the parameters of the estimator."""

    data_name: str
    title: str
    task: str
    params: dict[str, Any]
    shown: tuple[str, str]
    """The two scores to show, larger is better for the second."""


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
_PATIENCE = 30


@dataclass(frozen=True)
class DemoResult:
    """What one training of the demo came to.

    Attributes
    ----------
    job : _Job
    n_rounds : int
        Rounds kept after early stopping.
    found, without : dict of str to float
        Test scores of the model, and of one that knows only the training targets (`evaluation.baseline`).
    history : dict of str to list of float
        Name of the part ("train", "validation") -> value of the objective's metric per round.
    metric : str
        That metric.
    model_path : Path
    """

    job: _Job
    n_rounds: int
    found: dict[str, float]
    without: dict[str, float]
    history: dict[str, list[float]]
    metric: str
    model_path: Path


def run(
    out: str | Path = "polyleaf_demo", quick: bool = False, n_jobs: int | None = None
) -> list[DemoResult]:
    """Train on the three data sets of the package, report, save, reload and compare.

    Parameters
    ----------
    out : str or Path
        Folder for the models, the picture ``learning_curves.png``, and the energy data as two CSV files to
        try the command line on. Made if it does not exist.
    quick : bool
        Few rounds: to see that everything works, not how well.
    n_jobs : int, optional
        Threads; by default as many as the estimators choose.

    Returns
    -------
    list of DemoResult

    Raises
    ------
    RuntimeError
        When a model that was saved and loaded predicts differently.
    """
    from rich.console import Console

    _require_matplotlib()
    console = Console()
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    results = []
    with _progress(console) as start_job:
        for job in _JOBS:
            rounds = _QUICK_ROUNDS if quick else job.params["n_estimators"]
            results.append(
                _train(
                    job, out, {**job.params, "n_estimators": rounds, "n_jobs": n_jobs}, start_job
                )
            )
    picture = _draw(results, out / "learning_curves.png")
    _write_csv(out)
    console.print(_score_table(results))
    console.print("Models were saved, loaded again, and predict exactly the same.")
    console.print(
        f"In {out}/: models, learning curves ({picture.name}), two CSV files.", soft_wrap=True
    )
    console.print("Go on with")
    mine = out / "mine.polyleaf"
    for command in (
        f"polyleaf train {out / 'energy_train.csv'} --target heating_load,cooling_load --model {mine}",
        f"polyleaf evaluate {out / 'energy_test.csv'} --model {mine}",
    ):
        console.print(f"  {command}", soft_wrap=True, highlight=False, markup=False)
    return results


def _train(job: _Job, out: Path, params: dict[str, Any], start_job: Callable) -> DemoResult:
    from polyleaf.estimators import PolyleafClassifier, PolyleafRegressor

    small = datasets.load(job.data_name)
    X, X_test, y, y_test = small.split()
    # Early stopping looks at a part of the training rows, never at the test rows.
    kept, watched = split_rows(len(X), len(X) // 5, seed=0)
    estimator = PolyleafRegressor if job.task == "regression" else PolyleafClassifier
    model = estimator(**params, early_stopping_rounds=_PATIENCE, random_state=0)
    model.fit(
        X[kept],
        y[kept],
        eval_set=[(X[kept], y[kept]), (X[watched], y[watched])],
        callbacks=[start_job(job.title, params["n_estimators"])],
    )
    path = out / f"{job.data_name}.polyleaf"
    model.save_model(path)
    predicted, probabilities = _predict_by_both(model, path, X_test, job)
    curves = [next(iter(metrics.items())) for metrics in model.evals_result_.values()]
    return DemoResult(
        job=job,
        n_rounds=model.model_.n_rounds
        if model.best_iteration_ is None
        else model.best_iteration_ + 1,
        found=compute_scores(
            job.task, y_test, predicted, probabilities, getattr(model, "classes_", None)
        ),
        without=baseline_scores(job.task, y, y_test),
        history=dict(zip(("train", "validation"), (values for _, values in curves), strict=True)),
        metric=curves[0][0],
        model_path=path,
    )


def _predict_by_both(
    model: Any, path: Path, X: np.ndarray, job: _Job
) -> tuple[np.ndarray, np.ndarray | None]:
    """Predictions and probabilities of the model; the one in the file has to give the same, bit for bit."""
    from polyleaf import load_model

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


class _BarCallback(Callback):
    """Moves one bar; a training that stops early fills it."""

    def __init__(self, progress: Any, bar: Any):
        self._progress, self._bar, self._done = progress, bar, 0

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> None:
        self._done = epoch + 1
        self._progress.update(self._bar, completed=self._done)

    def after_training(self, model: Any) -> None:
        self._progress.update(self._bar, total=self._done, completed=self._done)


@contextmanager
def _progress(console: Any) -> Iterator[Callable]:
    """A progress bar for each job; yields ``start_job(title, rounds)``, which returns the job's callback."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        yield lambda title, rounds: _BarCallback(progress, progress.add_task(title, total=rounds))


def _score_table(results: list[DemoResult]) -> Any:
    from rich.table import Table

    table = Table(title="Scores on test rows that training never saw")
    for heading in ("data", "rounds", "score", "Polyleaf", "mean / majority"):
        table.add_column(heading, justify="left" if heading in ("data", "score") else "right")
    for result in results:
        for i, name in enumerate(result.job.shown):
            first = (result.job.title, str(result.n_rounds)) if i == 0 else ("", "")
            table.add_row(*first, name, f"{result.found[name]:.4f}", f"{result.without[name]:.4f}")
    return table


def _require_matplotlib() -> None:
    """Before anything is trained."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'The demo draws with matplotlib: pip install "polyleaf[cli,plot]".'
        ) from error


def _draw(results: list[DemoResult], path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(results), 3.6), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, and leaves the user's backend alone
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


def _write_csv(out: Path) -> None:
    energy = datasets.load("energy")
    for part, rows in (("train", energy.train), ("test", energy.test)):
        # float32 as its shortest decimal text, not as the nearest double
        cells = np.column_stack([energy.X[rows], energy.y[rows]]).astype(str).tolist()
        write_csv(out / f"energy_{part}.csv", [*energy.feature_names, *energy.output_names], cells)
