"""Fault injection for distributed fits: equality of the model, and time lost to worker failures.

Each trial is a fit on a new cluster of processes. A callback, or the data themselves, signals the
moment of the fault through a file. A trial that does not end within PATIENCE seconds counts as
hung.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf import PolyleafRegressor
from polyleaf.callbacks import Callback

from .harness.context import Context, require_module
from .harness.paper import Figures, Paper, Subject, Table

N_WORKERS, TRIALS, PATIENCE = 3, 16, 300.0
N_ROWS, PART_ROWS, ROUNDS = 6_000, 700, 40
SETTINGS = {
    "n_estimators": ROUNDS,
    "max_depth": 3,
    "max_leaves": None,
    "random_state": 0,
    "n_jobs": 1,
}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return X and three targets."""
    X = np.random.default_rng(0).normal(size=(N_ROWS, 8))
    return X, X[:, :3] ** 2


# --- when ---


@dataclass
class Moment:
    """Moment of the fault, signalled through files in a folder shared by all processes.

    Attributes
    ----------
    folder : str
    round : int
        Round after which the fault is injected; -1: while partitions are read.
    waits : bool
        Whether training waits until the fault has been injected.
    slows : float
        Seconds added to every partition and every round.
    """

    folder: str
    round: int
    waits: bool = False
    slows: float = 0.0

    def come(self) -> None:
        """Signal that the moment has come, the first time only."""
        here = Path(self.folder, "come")
        if not here.exists():
            here.touch()
            while self.waits and not Path(self.folder, "struck").exists():
                time.sleep(0.005)

    def has_come(self) -> bool:
        return Path(self.folder, "come").exists()

    def has_struck(self) -> None:
        Path(self.folder, "struck").touch()


class FaultMessages(Callback):
    """Callback that signals the moment at the end of a round."""

    def __init__(self, moment: Moment):
        self.moment = moment

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == self.moment.round:
            self.moment.come()
        time.sleep(self.moment.slows)
        return False


def _read(block: np.ndarray, moment: Moment) -> np.ndarray:
    """Return a partition of X, after a delay."""
    time.sleep(moment.slows)
    if moment.round < 0:
        moment.come()
        time.sleep(0.02)
    return block


# --- what ---

Strike = Callable[[Any, Any, np.random.Generator], None]  # cluster, client, generator


def _list_nannies(cluster: Any) -> list[Any]:
    """Return the nannies in the order of their workers' ranks."""
    alive = [nanny for nanny in cluster.workers.values() if nanny.worker_address and nanny.pid]
    return sorted(alive, key=lambda nanny: nanny.worker_address)


def _kill(which: Callable[[int, np.random.Generator], list[int]]) -> Strike:
    def strike(cluster: Any, client: Any, rng: np.random.Generator) -> None:
        nannies = _list_nannies(cluster)
        for i in which(len(nannies), rng):
            with suppress(ProcessLookupError):
                os.kill(nannies[i].pid, signal.SIGKILL)

    return strike


def _stop(cluster: Any, client: Any, rng: np.random.Generator) -> None:
    pid = _list_nannies(cluster)[rng.integers(N_WORKERS)].pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(pid, signal.SIGCONT)


def _restart(cluster: Any, client: Any, rng: np.random.Generator) -> None:
    address = _list_nannies(cluster)[rng.integers(N_WORKERS)].worker_address
    client.restart_workers([address], raise_for_error=False)


def _retire(cluster: Any, client: Any, rng: np.random.Generator) -> None:
    client.retire_workers([_list_nannies(cluster)[rng.integers(N_WORKERS)].worker_address])


def _adapt(cluster: Any, client: Any, rng: np.random.Generator) -> None:
    cluster.adapt(minimum=1, maximum=N_WORKERS + 1, interval="100ms", wait_count=2)


def _scale(cluster: Any, client: Any, rng: np.random.Generator) -> None:
    for n in (1, N_WORKERS, 2):
        cluster.scale(n)
        time.sleep(rng.uniform(0.5, 2.0))


@dataclass(frozen=True)
class Kind:
    """Kind of fault.

    Attributes: the fault; its time: in a "tree", between "rounds", in "binning", or "before" the
    fit; whether an evaluation set is used; and the seconds added to partitions and rounds.
    """

    strike: Strike | None
    when: str = "tree"
    is_watched: bool = False
    slows: float = 0.0


KINDS = {
    "nothing": Kind(None),
    "one killed in a tree": Kind(_kill(lambda n, rng: [int(rng.integers(n))])),
    "one killed between rounds": Kind(_kill(lambda n, rng: [int(rng.integers(n))]), "rounds"),
    "the first rank killed": Kind(_kill(lambda n, rng: [0])),
    "the last rank killed": Kind(_kill(lambda n, rng: [n - 1])),
    "the evaluation set's owner killed": Kind(_kill(lambda n, rng: [0]), is_watched=True),
    "two killed at once": Kind(_kill(lambda n, rng: list(rng.permutation(n)[:2]))),
    "all killed": Kind(_kill(lambda n, rng: list(range(n)))),
    "one killed in binning": Kind(_kill(lambda n, rng: [int(rng.integers(n))]), "binning"),
    "one stopped for 5 s": Kind(_stop),
    "one restarted by its nanny": Kind(_restart),
    "one retired": Kind(_retire),
    "adaptive": Kind(_adapt, "before", slows=0.1),
    "scaled down, up and down": Kind(_scale, slows=0.1),
    "the client killed": Kind(None),
}


# --- a trial ---


def faults(context: Context, method: str, problem: str) -> Figures:
    """Run trials and return their counts and times.

    Counts: `trials`, `struck`, models with `other` bytes, `hung` and `restarts`. Seconds: `lost`
    and `most` (from a loss to the next attempt) and `fit`. If the client was killed, `lost` and
    `most` are measured until the workers are idle, and the model is the next client's.
    """
    require_module("distributed")
    trial = _kill_client if method == "the client killed" else partial(_trial, KINDS[method])
    X, Y = data()
    watched = KINDS[method].is_watched
    expected = PolyleafRegressor(**SETTINGS).fit(X, Y, **_eval_set(watched)).save_model()
    found = [trial(expected, seed) for seed in context.seeds(TRIALS)]
    lost = [seconds for one in found for seconds in one["lost"]]
    return {
        "trials": len(found),
        "struck": sum(one["struck"] for one in found),
        "other": sum(one["other"] for one in found),
        "hung": sum(one["hung"] for one in found),
        "restarts": len(lost),
        "lost": float(np.mean(lost)) if lost else 0.0,
        "most": max(lost, default=0.0),
        "fit": float(np.mean([one["fit"] for one in found])),
        "each": found,
    }


def _eval_set(is_watched: bool) -> dict[str, Any]:
    X, Y = data()
    return {"eval_set": [(X[:500], Y[:500])]} if is_watched else {}


@contextmanager
def _cluster(n_workers: int) -> Iterator[tuple[Any, Any]]:
    """Start processes forked from one with all imports, so that a trial takes seconds."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.utils import get_mp_context

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(
        ["distributed", "dask.array", "polyleaf.dask", __name__]
    )
    about: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(n_workers=n_workers, **about) as cluster, Client(cluster) as client:
        client.wait_for_workers(n_workers, timeout=PATIENCE)
        yield cluster, client


def _trial(kind: Kind, expected: bytes, seed: int) -> dict[str, Any]:
    """Run one fit and return its outcome."""
    rng = np.random.default_rng(seed)
    began = {"binning": -1, "before": ROUNDS}.get(kind.when, int(rng.integers(2, ROUNDS - 10)))
    first = 1 if kind.when == "before" else N_WORKERS
    with tempfile.TemporaryDirectory() as folder:
        moment = Moment(folder, began, kind.when == "rounds", kind.slows)
        with _cluster(first) as (cluster, client):
            if kind.when == "before":
                assert kind.strike is not None
                kind.strike(cluster, client, rng)
            fit = _Fit(client, moment, kind.is_watched)
            struck = kind.when == "before" or (
                kind.strike is not None and _strike(kind.strike, fit, moment, cluster, rng)
            )
            return {**fit.figures(expected), "struck": struck}


def _strike(
    strike: Strike, fit: _Fit, moment: Moment, cluster: Any, rng: np.random.Generator
) -> bool:
    """Wait for the moment, then inject the fault; return False if the fit ended before."""
    while not moment.has_come():
        if not fit.is_alive():
            return False
        time.sleep(0.002)
    if not moment.waits:
        time.sleep(rng.uniform(0, 0.4 if moment.round < 0 else 0.06))
    if not fit.is_alive():
        return False
    strike(cluster, fit.client, rng)
    moment.has_struck()
    return True


class _Fit(threading.Thread):
    """Thread that runs a fit."""

    def __init__(self, client: Any, moment: Moment, is_watched: bool):
        super().__init__(daemon=True)
        self.client, self.moment, self.is_watched = client, moment, is_watched
        self.found: Any = None
        self.error: BaseException | None = None
        self.began = time.monotonic()
        self.start()

    def run(self) -> None:
        try:
            self.found = fitted(self.client, self.moment, self.is_watched)
        except BaseException as error:  # reported with the trial
            self.error = error
        self.seconds = time.monotonic() - self.began

    def figures(self, expected: bytes) -> dict[str, Any]:
        """Return the figures after the fit has ended or the time limit has passed."""
        self.join(max(0.0, self.began + PATIENCE - time.monotonic()))
        if self.is_alive():
            return {"other": 0, "hung": 1, "lost": [], "fit": PATIENCE, "where": _stack(self)}
        if self.error is not None:
            return {
                "other": 1,
                "hung": 0,
                "lost": [],
                "fit": self.seconds,
                "error": repr(self.error),
            }
        return {
            "other": int(self.found.to_local().save_model() != expected),
            "hung": 0,
            "lost": [restart.seconds for restart in self.found.restarts_],
            "fit": self.seconds,
        }


def _stack(thread: threading.Thread) -> str:
    """Return the stack of a thread."""
    import traceback

    frame = sys._current_frames()[thread.ident or 0]
    return "; ".join(
        f"{Path(at.filename).name}:{at.lineno}" for at in traceback.extract_stack(frame)
    )


def fitted(client: Any, moment: Moment, is_watched: bool) -> Any:
    """Run the fit used by all trials."""
    import dask.array as da

    from polyleaf.dask import DaskPolyleafRegressor

    warnings.simplefilter("ignore")
    X, Y = data()
    chunks = {"chunks": (PART_ROWS, -1)}
    rows = da.from_array(X, **chunks).map_blocks(_read, moment, dtype=X.dtype, meta=X[:0])
    return DaskPolyleafRegressor(client=client, **SETTINGS).fit(
        rows,
        da.from_array(Y, **chunks),
        callbacks=[FaultMessages(moment)],
        max_restarts=10,
        wait_for_workers=60.0,
        **_eval_set(is_watched),
    )


def _kill_client(expected: bytes, seed: int) -> dict[str, Any]:
    """Kill a client while a tree is grown, and fit with the next client on the same workers."""
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(N_WORKERS, timeout=PATIENCE)
        moment = Moment(folder, int(rng.integers(2, ROUNDS - 10)))
        about = [cluster.scheduler_address, folder, str(moment.round)]
        other = subprocess.Popen([sys.executable, "-m", __name__, *about])
        while not moment.has_come() and other.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.06))
        struck = other.poll() is None
        other.kill()
        other.wait()
        began = time.monotonic()
        while any(client.processing().values()) and time.monotonic() < began + PATIENCE:
            time.sleep(0.02)
        seconds = time.monotonic() - began
        found = _Fit(client, Moment(folder, ROUNDS), False).figures(expected)
        found["hung"] = int(found["hung"] or seconds >= PATIENCE)
        return {**found, "struck": struck, "lost": [seconds]}


def main() -> None:
    """Run the client that is killed; arguments: its scheduler, the moment's folder and round."""
    from distributed import Client

    from . import faults  # workers import its classes by this name

    address, folder, moment = sys.argv[1:]
    with Client(address) as client:
        faults.fitted(client, faults.Moment(folder, int(moment)), False)


_PROTOCOL = (
    f"A fit of {ROUNDS} rounds of depth 3 on {N_ROWS:,} rows of 8 features and three targets, in "
    f"{-(-N_ROWS // PART_ROWS)} partitions, on a `LocalCluster` of {N_WORKERS} processes with "
    "nannies, made "
    "anew for each trial. The fault strikes at a random moment within a round that is drawn, "
    "before the next "
    "begins (between rounds), or while partitions are read (in binning). Adaptive: one worker to "
    "begin with, "
    f"at most {N_WORKERS + 1}, looked at every 100 ms. Scaled: to one worker, to all, to two, "
    "some seconds "
    "apart; in these two every partition and every round take .1 s longer. Other bytes: fits "
    "whose model "
    "file is not the one of the local estimator, or that have raised. Hung: not ended within "
    f"{PATIENCE:.0f} "
    "s. Lost: from the loss, as the client sees it, to the begin of the next attempt. Of a client "
    "that was "
    "killed: until workers have nothing left to do, and the model is that of the next client on "
    "the same "
    "workers."
)
_FIGURES: dict[str, tuple[str, str, Any, int]] = {
    "trials": ("trials", "", None, 0),
    "struck": ("struck in time", "", None, 0),
    "other": ("other bytes", "", "lower", 0),
    "hung": ("hung", "", "lower", 0),
    "restarts": ("restarts", "", None, 0),
    "lost": ("seconds lost, mean", "s", "lower", 2),
    "most": ("most", "s", "lower", 2),
    "fit": ("the fit", "s", None, 1),
}

PAPER = Paper(
    __name__,
    "Worker failures",
    "What becomes of a fit on a cluster whose workers are killed, stopped, restarted or scaled "
    "away.",
    (
        Table(
            "faults",
            "trials by what happens",
            tuple(
                Subject(title, unit, better, digits, f"{N_WORKERS} workers", figure)
                for figure, (title, unit, better, digits) in _FIGURES.items()
            ),
            faults,
            _PROTOCOL,
            also=tuple(KINDS),
        ),
    ),
    golden=("defaults",),
)

if __name__ == "__main__":
    main()
