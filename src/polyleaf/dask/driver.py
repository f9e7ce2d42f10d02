"""The client's part of a fit: partitions become pieces, workers become ranks, and lost ones are replaced.

Owns: who holds what, and attempts. Must not know: what pieces hold, how trees grow.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from distributed import Client, Future, wait

from polyleaf.dask.collections import Rows
from polyleaf.dask.communicator import Post
from polyleaf.dask.worker import (
    SECONDS_BETWEEN_COPIES,
    Fitted,
    Interrupted,
    codes_of,
    eval_set_of,
    find_rounds,
    look_at,
    plan,
    run_rank,
    take,
)
from polyleaf.data.binning import BinMapper
from polyleaf.data.partitions import merge_summaries
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.model import Model
from polyleaf.runtime.collective import WorkerLostError
from polyleaf.training.distributed import can_replay

__all__ = ["Lost", "Restart", "Watched", "fit"]

_SECONDS_BETWEEN_LOOKS = 0.5  # at which workers there are
_SECONDS_TO_END = 30.0  # that a rank has once the others have ended
_UNEVEN = 1.5  # times the mean share of partitions that a rank may have before some are moved


class Watched(NamedTuple):
    """One evaluation set, as partitions."""

    name: str
    rows: Rows


class Restart(NamedTuple):
    """What the loss of workers has cost.

    Attributes
    ----------
    round : int
        That training went on from.
    lost : tuple of str
        Addresses of workers.
    seconds : float
        From the loss to the begin of the next attempt.
    """

    round: int
    lost: tuple[str, ...]
    seconds: float


class Lost(RuntimeError):
    """More workers were lost than `max_restarts` allows, or all, or data that cannot come back."""


def fit(
    client: Client,
    estimator: PolyleafEstimator,
    rows: Rows,
    watched: Sequence[Watched],
    callbacks: Sequence[Any],
    init_model: Any,
    max_restarts: int,
    wait_for_workers: float,
) -> tuple[Fitted, list[Restart]]:
    """Train on the workers of a cluster."""
    client.register_plugin(Post())
    try:
        ready = _prepare(client, estimator, rows, watched, init_model, bool(watched or callbacks))
        attempts = _Attempts(
            client, ready, (estimator, ready.shared, ready.mapper), list(callbacks)
        )
        return attempts.run(max_restarts, wait_for_workers), attempts.restarts
    except CancelledError as error:
        if client.status != "running":
            raise
        raise Lost(
            "Data were lost with a worker and cannot be made again: what client.scatter has put there comes "
            "from no task. Begin with files, or with data in memory, which fit sends itself."
        ) from error


# --- what there is to train on ---------------------------------------------------------------------


class _Ready(NamedTuple):
    """Pieces on the workers, one for each partition that has rows."""

    shared: Any
    mapper: Future
    codes: list[Future]
    pieces: list[Future]
    eval_sets: list[Future]


def _prepare(
    client: Client,
    estimator: PolyleafEstimator,
    rows: Rows,
    watched: Sequence[Watched],
    init_model: Any,
    is_watched: bool,
) -> _Ready:
    def submit(function: Callable[..., Any], *arguments: Any) -> Future:
        return client.submit(function, *arguments, pure=False)

    data = rows.on(client)
    sizes, firsts = data.sizes, list(itertools.accumulate(data.sizes, initial=0))[:-1]
    fresh = BinMapper(estimator.max_bins, random_state=0)
    about_y = data.y, data.weight, data.offset
    planned = submit(plan, estimator, *about_y, init_model, is_watched, fresh, sizes)
    pieces = [submit(take, planned, i) for i in range(len(sizes))]
    shared = submit(_shared_of, planned).result()
    if shared.plan.start is not None:
        mapper = submit(_mapper_of, shared.plan.start)
    else:
        about = zip(data.X, data.numbers, firsts, pieces, strict=True)
        chosen = estimator.categorical_features
        looks = [submit(look_at, X, i, first, piece, chosen) for X, i, first, piece in about]
        mapper = submit(merge_summaries, looks, fresh, submit(_sample_weights_of, planned))
    found: BinMapper = mapper.result()
    if found.high_cardinality_features_:
        names, feature = found.feature_names_, found.high_cardinality_features_[0]
        raise ValueError(
            f"A fit on several workers: column {names[feature] if names else feature} of X has more than 255 "
            "categories. What it becomes is learned from the target, on one machine; leave it out, or make "
            "numbers of it."
        )
    codes = [submit(codes_of, X, mapper, shared.reads_features) for X in data.X]
    if shared.auto_rounds_metric is not None:
        shared = submit(find_rounds, estimator, shared, mapper, codes, pieces).result()
    eval_sets = []
    for name, further in watched:
        other, encoding = further.on(client), submit(_encoding_of, pieces[0])
        about_set = name, other.X, other.y, other.weight, other.offset, mapper, shared, encoding
        eval_sets.append(submit(eval_set_of, *about_set))
    for future in (*codes, *pieces, *eval_sets):
        wait(future)
        if future.status == "error":
            future.result()
    return _Ready(shared, mapper, codes, pieces, eval_sets)


def _shared_of(planned: Any) -> Any:
    return planned.shared


def _sample_weights_of(planned: Any) -> Any:
    return planned.sample_weights


def _mapper_of(model: Model) -> BinMapper:
    return model.mapper


def _encoding_of(piece: Any) -> Any:
    return piece.shard.target.encoding


# --- attempts ----------------------------------------------------------------------------------------


@dataclass
class _Attempts:
    """Trainings of the same trees, until one has come to its end."""

    client: Client
    ready: _Ready
    about: tuple[Any, ...]
    callbacks: list[Any]
    known: Model | None = None
    restarts: list[Restart] = field(default_factory=list)

    def run(self, max_restarts: int, wait_for_workers: float) -> Fitted:
        """Attempt after attempt."""
        while True:
            found, lost, began = self._attempt()
            if found is not None:
                return found
            if len(self.restarts) >= max_restarts:
                raise Lost(
                    f"Workers were lost {len(self.restarts) + 1} times, the last being "
                    f"{', '.join(lost) or 'one that is not known'}: more often than "
                    f"max_restarts={max_restarts} allows. Where it is for want of memory, add workers."
                )
            self._wait_for_pieces(wait_for_workers)
            n_rounds = 0 if self.known is None else self.known.n_rounds
            self.restarts.append(Restart(n_rounds, tuple(lost), time.monotonic() - began))
            warnings.warn(
                f"Lost {', '.join(lost) or 'a worker'}: training goes on from round {n_rounds}.",
                stacklevel=6,
            )

    def _attempt(self) -> tuple[Fitted | None, list[str], float]:
        """What came of one; nothing where workers were lost: these, and when that was seen."""
        shares = _shares(self.client, self.ready.codes)
        addresses = list(shares)
        fit, began = uuid.uuid4().hex, time.monotonic()
        ranks = {
            address: self.client.submit(
                run_rank,
                *self.about,
                [self.ready.codes[i] for i in shares[address]],
                [self.ready.pieces[i] for i in shares[address]],
                self.ready.eval_sets if rank == 0 else [],
                self.callbacks if rank == 0 else [],
                self.known,
                fit,
                rank,
                addresses,
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                key=f"polyleaf-rank-{rank}-{fit}",
            )
            for rank, address in enumerate(addresses)
        }
        try:
            found, lost = self._watch(fit, ranks)
            began = time.monotonic()
            if found is None:
                self._learn(ranks, self._end(fit, addresses))
            return found, lost, began
        except BaseException:
            self._end(fit, addresses)
            raise
        finally:
            self.client.cancel(list(ranks.values()), force=True)

    def _watch(self, fit: str, ranks: dict[str, Future]) -> tuple[Fitted | None, list[str]]:
        """Wait for all ranks: what the first has come to, or nothing and the workers that are known to be
        lost."""
        waiting, fitted, asked = dict(ranks), None, time.monotonic()
        while waiting:
            if time.monotonic() > asked + SECONDS_BETWEEN_COPIES:
                self._take_over(self._run(_kept_here, fit, [*ranks][:1]).values())
                asked = time.monotonic()
            with contextlib.suppress(TimeoutError):
                wait(
                    waiting.values(), timeout=_SECONDS_BETWEEN_LOOKS, return_when="FIRST_COMPLETED"
                )
            lost = self._lost(ranks)
            if lost:
                return None, lost
            for address, rank in list(waiting.items()):
                if rank.status == "pending":
                    continue
                if rank.status == "error" and not isinstance(rank.exception(), WorkerLostError):
                    rank.result()
                found = self._result(rank, address)
                if rank.status != "finished" or isinstance(found, Interrupted):
                    return None, self._lost(ranks)
                fitted = found if isinstance(found, Fitted) else fitted
                del waiting[address]
        return fitted, []

    def _lost(self, addresses: Iterable[str]) -> list[str]:
        """Those of the workers that are gone."""
        alive = self.client.nthreads()
        return [address for address in addresses if address not in alive]

    def _result(self, rank: Future, address: str) -> Any:
        """What a rank has returned; None where its worker is lost before it has handed that over.

        The scheduler would have it computed once more on a worker that is gone: nobody may wait for that.
        """
        return self._answer(_asked(rank.result), address) if rank.status == "finished" else None

    def _run(
        self, function: Callable[..., Any], fit: str, addresses: Sequence[str]
    ) -> dict[str, Any]:
        """What a function returns on each worker, on its event loop; None for those that are lost.

        Whoever connects to a worker that is gone tries for half a minute.
        """
        run = partial(self.client.run, function, fit, on_error="ignore")
        lost = self._lost(addresses)
        asked = {a: _asked(partial(run, workers=[a])) for a in addresses if a not in lost}
        return {
            address: (self._answer(asked[address], address) or {}).get(address) for address in asked
        }

    def _answer(self, asked: queue.SimpleQueue[Any], address: str) -> Any:
        """What has been asked of a worker; None where it is lost."""
        while True:
            with contextlib.suppress(queue.Empty):
                return asked.get(timeout=_SECONDS_BETWEEN_LOOKS)
            if self._lost([address]):
                return None

    def _end(self, fit: str, addresses: Sequence[str]) -> list[str]:
        """End ranks that still wait for others; those that have begun."""
        told = self._run(_end_here, fit, addresses)
        return [address for address, has_begun in told.items() if has_begun]

    def _learn(self, ranks: dict[str, Future], begun: Sequence[str]) -> None:
        """Take over the rounds of the rank that has most of them."""
        end = time.monotonic() + _SECONDS_TO_END
        for address in begun:
            rank = ranks[address]
            while rank.status == "pending" and not self._lost([address]) and time.monotonic() < end:
                time.sleep(0.02)
            found = self._result(rank, address)
            if isinstance(found, Interrupted):
                self._take_over([found.model])

    def _take_over(self, models: Iterable[Any]) -> None:
        """Where one has more rounds than what is known."""
        for model in models:
            if not isinstance(model, Model) or not can_replay(self.ready.shared.plan.settings):
                continue
            if self.known is None or model.n_rounds > self.known.n_rounds:
                self.known = model

    def _wait_for_pieces(self, seconds: float) -> None:
        """Until what was lost is there again, and a worker that runs."""
        pieces = [*self.ready.codes, *self.ready.pieces, *self.ready.eval_sets, self.ready.mapper]
        end, are_there = time.monotonic() + seconds, False
        while not are_there:
            with contextlib.suppress(TimeoutError):
                wait(pieces, timeout=_SECONDS_BETWEEN_LOOKS)
                are_there = True
            if _running(self.client):
                end = time.monotonic() + seconds
                continue
            are_there = False
            if time.monotonic() > end:
                raise Lost(f"All workers are lost, and none has come for {seconds} seconds.")
            time.sleep(_SECONDS_BETWEEN_LOOKS / 5)


def _shares(client: Client, codes: list[Future]) -> dict[str, list[int]]:
    """Which partitions each rank trains on: those that its worker has, where these are not far too many."""
    holders = client.who_has(codes)
    shares: dict[str, list[int]] = {address: [] for address in _running(client)}
    if not shares:
        return {}
    most = math.ceil(_UNEVEN * len(codes) / len(shares))
    for i, future in enumerate(codes):
        here = [a for a in holders[future.key] if a in shares and len(shares[a]) < most]
        shares[min(here or shares, key=lambda address: len(shares[address]))].append(i)
    return {address: share for address, share in shares.items() if share}


def _running(client: Client) -> list[str]:
    """Workers that begin tasks, in order: not those that are about to close, or out of memory."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return sorted(address for address, about in workers.items() if about["status"] == "running")


def _asked(question: Callable[[], Any]) -> queue.SimpleQueue[Any]:
    """Where the answer will be; None where there is none."""
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(question())
        except BaseException:  # it was cancelled, or the client was closed
            answer.put(None)

    threading.Thread(target=ask, daemon=True).start()
    return answer


def _kept_here(fit: str, dask_worker: Any) -> Any:
    """The model of some rounds ago, where there is a newer one than at the last time."""
    post = dask_worker.plugins.get(Post.name)
    return None if post is None else post.get(fit)


def _end_here(fit: str, dask_worker: Any) -> bool:
    """Whether a rank had begun; `Client.run` calls it on the worker's event loop."""
    post = dask_worker.plugins.get(Post.name)  # a worker that closes has none any longer
    return post is not None and bool(post.end(fit, "The client has ended this attempt."))
