"""Benchmark of every library with its default settings, on every data set, with equal time.

The library's default number of rounds applies unless the time limit comes first; then the model
consists of the rounds finished so far.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from polyleaf.metrics._classification import best_f1_threshold

from .harness.context import Context
from .harness.paper import Better, Figures, Paper, Table, make_subjects, make_table
from .libraries import Settings, train
from .sets import DataSet

LIMIT = 30.0  # limit of a fit in seconds of processor time
HELD = 0.25  # share of training rows on which the threshold of labels is chosen
MOST_ROWS = 10_000  # of a training part, and of a test part
MOST_CLASSES = 26  # limit for a full Hessian
LEAST_PROBABILITY = 1e-7  # float32 cannot distinguish 1 - p from 1 far below this

MULTICLASS = (
    "covtype20k dna leaf99 letter mnist nursery optdigits otto pendigits poker25k satimage "
    "shuttle usps vehicle waveform yeast"
).split()
BINARY = ["higgs7500"]
REGRESSION = (
    "atp1d bike_hour california_housing casp edm enb gas_turbine oes10 osales parkinsons_updrs "
    "pol rf1 rf2 sarcos4449 scpf sf1 sf2 slump student_por wq"
).split()
MULTILABEL = (
    "birds cal500 corel5k delicious emotions enron imdb medical ohsumed rcv1_subset1 scene yeast_ml"
).split()

Predict = Callable[[Any], np.ndarray]


class Deadline:
    """Deadline of a fit in processor time of this process, which other programs hardly affect."""

    def __init__(self, seconds: float):
        self._seconds, self._end = seconds, time.process_time() + seconds

    def left(self) -> float:
        """Return the remaining seconds, negative after the deadline."""
        return self._end - time.process_time()

    def passed(self, share: float = 1.0) -> bool:
        """Return whether this share of the time has passed, and training must stop."""
        return self.left() < (1 - share) * self._seconds

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise KeyboardInterrupt at the deadline, for fits without a callback."""

        ended = threading.Event()

        def watch() -> None:  # timers of processor time would reduce the clock's resolution
            while not ended.wait(0.005):
                if self.passed():
                    return _thread.interrupt_main()

        # Background shells ignore SIGINT, which would disable the interrupt.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            try:
                ended.set()
                watcher.join()
            except KeyboardInterrupt:  # sent before the watcher saw that the fit had ended
                watcher.join()
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Job:
    """Input of a library: the data, and the limits of a fit.

    Attributes
    ----------
    task : "multiclass", "binary", "regression" or "multilabel"
    X : float32 array or CSR matrix
    y : classes 0 .. K-1 that all occur, targets (n, K) or (n,), or labels (n, K)
    threads : int
    deadline : Deadline
    """

    task: str
    X: Any
    y: np.ndarray
    threads: int
    deadline: Deadline

    def train(self, library: str, **own: Any) -> Predict:
        """Train a library with its defaults but for `own`; return its predictions."""
        settings = Settings(None, learning_rate=None, max_bins=None, threads=self.threads, own=own)
        data = {"X": self.X, "y": self.y}
        return train(library, self.task, data, settings, self.deadline.passed).predict


def polyleaf(job: Job, **own: Any) -> Predict:
    with job.deadline.interrupting():
        return job.train("polyleaf", on_interrupt="keep", **own)


LIBRARIES: dict[str, Callable[[Job], Predict]] = {
    "Polyleaf": polyleaf,
    "XGBoost": lambda job: job.train("xgboost"),
    "LightGBM": lambda job: job.train("lightgbm"),
    "CatBoost": lambda job: job.train("catboost"),
}


# --- one run ---


def out_of_the_box(context: Context, method: str, problem: str) -> Figures:
    """Fit with defaults on each split and return the figures of `measure`."""
    return measure(context, LIBRARIES[method], problem)


def measure(
    context: Context,
    fit: Callable[[Job], Predict],
    problem: str,
    most_rows: int | None = MOST_ROWS,
    limit: float | None = None,
) -> Figures:
    """Return `loss`, `score`, `seconds` of processor time of a fit, and `predict`, microseconds of
    the prediction of a row, as lists with one number per split.

    With the usual limit of a fit, also return for labels `chosen`, F1 above the `threshold` from
    `chosen_threshold`, which needs a second fit.
    """
    data = context.load(problem)
    chooses, limit = limit is None and data.task == "multilabel", limit or LIMIT
    limit = limit / 20 if context.quick else limit
    found: dict[str, list[float]] = {"loss": [], "score": [], "seconds": [], "predict": []}
    for X, y, X_test, y_test, _ in splits(context, data, most_rows):
        clock = [time.process_time()]
        predict = fit(Job(data.task, X, y, context.threads, Deadline(limit)))
        clock.append(time.process_time())
        predicted = np.asarray(predict(X_test), np.float64)
        clock.append(time.process_time())
        loss, score = compute_scores(data.task, y_test, predicted)
        found["loss"].append(loss)
        found["score"].append(score)
        found["seconds"].append(clock[1] - clock[0])
        found["predict"].append(1e6 * (clock[2] - clock[1]) / len(y_test))
        if chooses:
            threshold, _ = chosen_threshold(fit, X, y, context.threads, limit)
            found.setdefault("threshold", []).append(threshold)
            found.setdefault("chosen", []).append(f1(y_test, predicted > threshold)[0])
    return {**found}


def chosen_threshold(
    fit: Callable[[Job], Predict], X: Any, Y: np.ndarray, threads: int, limit: float
) -> tuple[float, Predict]:
    """Return the threshold that maximises F1 over all cells of a quarter of the rows, and the
    model.

    The model is trained on the other rows. Rows must be in random order.
    """
    held = np.arange(len(Y)) < round(HELD * len(Y))
    predict = fit(Job("multilabel", X[~held], Y[~held], threads, Deadline(limit)))
    return best_f1_threshold(np.asarray(predict(X[held]), np.float64), Y[held]), predict


class Split(NamedTuple):
    """Training and test part, and the person of each training row where rows belong to people."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    people: np.ndarray | None


def splits(context: Context, data: DataSet, most_rows: int | None = MOST_ROWS) -> Iterator[Split]:
    """Yield the source's own split first, then random ones; small sets get more splits.

    Rows of one person are similar, so the Parkinson's data are split by person, and the person is
    not a feature. Classes are numbered by those of the training part, and test rows of other
    classes are left out.
    """
    n = len(data.y)
    X, people = data.X, None
    if data.name == "parkinsons_updrs":
        X, people = X[:, 1:], X[:, 0]
    for seed in context.seeds(3 if n < 2_500 else 1):
        rng = np.random.default_rng(seed)
        if people is not None:
            everyone = np.unique(people)
            tested = np.isin(people, rng.choice(everyone, len(everyone) // 5, replace=False))
            train, test = np.flatnonzero(~tested), np.flatnonzero(tested)
        else:
            train, test = data.parts if data.parts is not None and seed == 0 else data.split(seed)
        n_rows = context.rows(most_rows or n)
        train, test = rng.permutation(train)[:n_rows], rng.permutation(test)[:n_rows]
        y, y_test = data.y[train], data.y[test]
        if data.task in ("multiclass", "binary"):
            classes = np.unique(y)
            known = np.isin(y_test, classes)
            test, y_test = test[known], np.searchsorted(classes, y_test[known])
            y = np.searchsorted(classes, y)
        elif y.shape[1] == 1:
            y, y_test = y[:, 0], y_test[:, 0]
        yield Split(X[train], y, X[test], y_test, None if people is None else people[train])


def compute_scores(task: str, y: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Return the loss and the score that users look at.

    Regression: RMSE of each target over its standard deviation, averaged; R2, averaged. Classes:
    log loss; accuracy. Labels: log loss averaged over labels; F1 over all cells at probability 0.5.
    """
    if task == "regression":
        y = y.reshape(len(y), -1).astype(np.float64)
        error, scale = np.mean((predicted.reshape(y.shape) - y) ** 2, axis=0), np.var(y, axis=0)
        ratio = error[scale > 0] / scale[scale > 0]
        return float(np.mean(np.sqrt(ratio))), float(np.mean(1 - ratio))
    p = np.clip(predicted, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    if task == "multiclass":
        of_true = p[np.arange(len(y)), y] / p.sum(axis=1)
        return float(-np.mean(np.log(of_true))), float(np.mean(p.argmax(axis=1) == y))
    loss = float(-np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))
    if task == "binary":
        return loss, float(np.mean((p > 0.5) == y))
    return loss, f1(y, p > 0.5)[0]


def row_losses(task: str, y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return each row's part of the loss of `compute_scores`, to first order."""
    if task == "regression":
        y = y.reshape(len(y), -1).astype(np.float64)
        squares, scale = (predicted.reshape(y.shape) - y) ** 2, np.var(y, axis=0)
        squares = squares[:, scale > 0] / scale[scale > 0]
        return np.mean(squares / (2 * np.maximum(np.sqrt(squares.mean(axis=0)), 1e-12)), axis=1)
    p = np.clip(predicted, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    if task == "multiclass":
        return -np.log(p[np.arange(len(y)), y] / p.sum(axis=1))
    return -np.where(y == 1, np.log(p), np.log1p(-p)).reshape(len(y), -1).mean(axis=1)


def f1(truth: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Return F1 over all cells, and the mean over the labels that occur."""
    right, positive = (np.sum(part, axis=0) for part in ((truth == 1) & predicted, truth == 1))
    both, there = positive + predicted.sum(axis=0), positive > 0
    each = 2 * right[there] / both[there]
    return float(2 * right.sum() / both.sum()), float(each.mean())


# --- tables ---

_PROTOCOL = (
    f"No setting of any library; threads as told above. A fit may take {LIMIT:.0f} s of processor "
    "time, then it ends with the rounds it has (CatBoost's own number is 1000, the others' 100; "
    "Polyleaf holds fifths of the rows out to find it, up to 3,000, and then trains on all). At "
    f"most {MOST_ROWS:,} training rows and as many test rows, drawn at random, the same for all. "
    "The source's own split, or 80 / 20 at random; sets below 2,500 rows are split three times. "
    "LightGBM trains one model for each target or label; CatBoost is told that there are "
    "several, which it needs. Codes of categories are handed over as numbers. The threshold of "
    "labels, one for all of a set, is that of the largest F1 over all cells of a quarter of the "
    "training rows, by the library's model of the other three; what is judged by it is the model "
    "of all training rows, whose seconds these are."
)
_RMSE = "RMSE / standard deviation, mean over targets"
_F1 = "F1 over all cells above one threshold, chosen for each library by the same rule"
_TASKS = {
    "regression": (REGRESSION, _RMSE, "R2, mean over targets"),
    "multi-class": (MULTICLASS + BINARY, "log loss", "accuracy"),
    "multi-label": (MULTILABEL, "log loss, mean over labels", _F1),
}
EVERYTHING = REGRESSION + MULTICLASS + BINARY + MULTILABEL
_MEASURES: dict[str, tuple[str, Better, int]] = {
    "loss": ("loss", "lower", 4),
    "score": ("score", "higher", 4),
    "seconds": ("s", None, 1),
}


def _tables() -> Iterator[Table]:
    for task, (names, loss, _) in _TASKS.items():
        yield _table(f"Test loss, {task}", loss, "loss", names)
    for task, (names, _, score) in _TASKS.items():
        yield _chosen(_table(f"Test score, {task}", score, "score", names))
    yield _table("Test loss, all", "test loss as above", "loss", EVERYTHING)
    yield _chosen(_table("Test score, all", "test score as above", "score", EVERYTHING))
    title = "as above, but of labels F1 where a label holds above one half"
    yield _table("Test score at one half, multi-label", title, "score", MULTILABEL)
    yield _table("Seconds", "processor time of a fit", "seconds", EVERYTHING)


def _table(name: str, title: str, figure: str, names: Sequence[str]) -> Table:
    subjects, ranks = make_subjects(names, *_MEASURES[figure], figure), figure != "seconds"
    return make_table(name, title, subjects, out_of_the_box, _PROTOCOL, LIBRARIES, ranks=ranks)


def _chosen(table: Table) -> Table:
    """Return the table with F1 of labels above the chosen threshold."""
    subjects = (replace(s, figure="chosen") if s.title in MULTILABEL else s for s in table.subjects)
    return replace(table, subjects=tuple(subjects))


GOLDEN = ("defaults", "defaults, one output", "defaults, classes", "defaults, two classes")
GOLDEN += ("defaults, labels",)
PAPER = Paper(
    __name__,
    "Default settings",
    "Polyleaf's defaults beside those of XGBoost, LightGBM and CatBoost, on all data sets.",
    tuple(_tables()),
    golden=GOLDEN,
)
