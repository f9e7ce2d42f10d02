"""Labels of tags and texts on two Dask workers, beside XGBoost's Dask estimator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from . import memory, sets
from .harness.context import Context, Unavailable, require_module
from .harness.paper import Figures, Paper, Subject, Table, make_table
from .scores import SCORES

SETS = {"delicious": "Delicious, 983 labels", "rcv1_subset1": "rcv1, subset 1, sparse X"}
REPEATS, ROUNDS, PARTITIONS, MEMORY = 2, 5, 4, "10 GiB"
LOCAL, VECTOR = "Polyleaf, two threads", "XGBoost, vector leaves"
METHODS = ("Polyleaf", LOCAL, "XGBoost", VECTOR)
PLACES = (1, 3, 5)


def labels(context: Context, method: str, problem: str) -> Figures:
    """Return seconds of each fit, the peak of its largest process, and scores on the test rows."""
    for module in ("distributed", "xgboost"):
        require_module(module)
    from polyleaf.metrics.ranking import precision_at

    data, n_rounds = sets.load_labelled(context.data, problem), context.rounds(ROUNDS)
    (X, Y), (X_test, Y_test) = data.part(0), data.part(1)
    rows = slice(context.rows(X.shape[0]))
    X, Y = X[rows], Y[rows].toarray().astype(np.float32)
    fit = _fit_locally if method == LOCAL else _fit_on_workers
    seconds, peaks = [], []
    for _ in context.seeds(REPEATS):
        model, duration, peak = fit(method, X, Y, n_rounds, context.quick)
        seconds.append(duration)
        peaks.append(peak / 1e6)
    predicted = np.asarray(model.predict_proba(X_test), np.float64)
    precisions = {f"P@{k}": 100 * precision_at(Y_test, predicted, k) for k in PLACES}
    loss = SCORES["multilabel"].function(Y_test.toarray(), predicted)
    return {"seconds": seconds, "peak": peaks, "loss": loss} | precisions


def _make_estimator(method: str, n_rounds: int, client: Any = None) -> Any:
    """Return an estimator; all grow trees of one depth, with the same bins and learning rate."""
    from xgboost.dask import DaskXGBClassifier

    from polyleaf import PolyleafClassifier
    from polyleaf.dask import DaskPolyleafClassifier

    trees = {"n_estimators": n_rounds, "learning_rate": 0.1, "max_depth": 6}
    if method.startswith("XGBoost"):
        strategy = "multi_output_tree" if method == VECTOR else "one_output_per_tree"
        model = DaskXGBClassifier(max_bin=255, multi_strategy=strategy, verbosity=0, **trees)
        model.client = client
        return model
    trees |= {"max_bins": 255, "max_leaves": None, "colsample_bynode": 1.0}
    if method == LOCAL:
        return PolyleafClassifier(n_jobs=2, **trees)
    return DaskPolyleafClassifier(client=client, **trees)


def _fit_locally(
    method: str, X: Any, Y: np.ndarray, n_rounds: int, quick: bool
) -> tuple[Any, float, int]:
    _make_estimator(method, 1).fit(X, Y)
    model = _make_estimator(method, n_rounds)
    memory.give_back()
    begun = time.perf_counter()
    peak = memory.growth(lambda: model.fit(X, Y))
    return model, time.perf_counter() - begun, peak or 0


def _fit_on_workers(
    method: str, X: Any, Y: np.ndarray, n_rounds: int, quick: bool
) -> tuple[Any, float, int]:
    """Return the model, the seconds of the fit, and the peak of the larger worker above its
    partitions.

    A round before the fit makes the workers import and start what they need.
    """
    with _make_cluster(quick) as client:
        collections = [client.persist(_split(values)) for values in (X, Y)]
        try:
            _make_estimator(method, 1, client).fit(*collections)
        except ValueError as error:
            if "one of the workers died" not in str(error):
                raise
            raise Unavailable(f"a worker needs more than {MEMORY} of memory") from error
        model = _make_estimator(method, n_rounds, client)
        client.run(memory.give_back)
        client.run(memory.forget_peak)
        held = client.run(memory.resident)
        begun = time.perf_counter()
        model.fit(*collections)
        duration = time.perf_counter() - begun
        peaks = client.run(memory.peak)
    peak = max(peaks[worker] - held[worker] for worker in peaks)
    return (model.to_local() if method == "Polyleaf" else _to_local(model)), duration, peak


@contextmanager
def _make_cluster(quick: bool) -> Iterator[Any]:
    """Yield the client of two workers of one thread: processes, or threads in a quick run."""
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    options |= {"memory_limit": MEMORY}
    with LocalCluster(processes=not quick, **options) as cluster, Client(cluster) as client:
        yield client


def _split(values: Any) -> Any:
    """Return a Dask array whose blocks are dense, or sparse as `values`."""
    import dask.array as da
    from dask import delayed

    edges = np.linspace(0, values.shape[0], PARTITIONS + 1).astype(int)
    parts = [values[a:b] for a, b in pairwise(edges)]
    meta = values[:0]
    return da.concatenate(
        [da.from_delayed(delayed(part), part.shape, part.dtype, meta) for part in parts],
        allow_unknown_chunksizes=True,
    )


def _to_local(model: Any) -> Any:
    """Return XGBoost's local estimator with the trees of a fit on workers."""
    from xgboost import XGBClassifier

    local = XGBClassifier()
    local.load_model(model.get_booster().save_raw())
    return local


_PROTOCOL = (
    f"Two Dask workers, processes of one thread on one machine, with {MEMORY} each; four "
    f"partitions, in the workers' memory before the fit. {ROUNDS} rounds at a rate of 0.1, "
    "trees of depth 6, 255 bins, all features at each node. Seconds from the call of `fit` "
    "until it returns the model. Memory: the most of the larger worker, above what it held "
    "before the fit (with two threads: of the process). Log loss is the mean over labels. The "
    "set's own split, or a random fifth for testing."
)
_FIGURES: dict[str, tuple[str, Any, int]] = {
    "seconds": ("s", None, 2),
    "peak": ("MB", None, 0),
    "P@1": ("%", "higher", 2),
    "P@3": ("%", "higher", 2),
    "P@5": ("%", "higher", 2),
    "loss": ("log loss", "lower", 5),
}


def _table(name: str) -> Table:
    subjects = [
        Subject(figure, *about, problem=name, figure=figure, needs=(name,))
        for figure, about in _FIGURES.items()
    ]
    return make_table(name, SETS[name], subjects, labels, _PROTOCOL, METHODS, METHODS[:2])


PAPER = Paper(
    __name__,
    "Dask workers",
    "Many labels on two workers of one thread, beside XGBoost's Dask estimator.",
    tuple(map(_table, SETS)),
    golden=("defaults, labels",),
)
