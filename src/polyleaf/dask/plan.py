"""The client's part of a fit: partitions become pieces, workers become ranks, and lost ones are replaced.

Owns: who holds what, and attempts. Must not know: what pieces hold, how trees grow.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distributed import Client, Future, wait

from polyleaf.communicator import PeerFailed
from polyleaf.dask.partitions import Rows
from polyleaf.dask.post import Post
from polyleaf.dask.ranks import (
    Fitted,
    Interrupted,
    codes_of,
    eval_set_of,
    look_at,
    plan,
    run_rank,
    take,
)
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.inputs.binning import BinMapper
from polyleaf.inputs.partitions import joined
from polyleaf.model import Model
from polyleaf.training.ranks import can_repeat

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
    """More workers were lost than `max_restarts` allows, or all."""


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
    ready = _prepare(client, estimator, rows, watched, init_model)
    attempts = _Attempts(client, ready, (estimator, ready.shared, ready.mapper), list(callbacks))
    return attempts.run(max_restarts, wait_for_workers), attempts.restarts


# --- what there is to train on ---------------------------------------------------------------------


class _Ready(NamedTuple):
    """Pieces on the workers, one for each partition that has rows."""

    shared: Any
    mapper: Future
    codes: list[Future]
    pieces: list[Future]
    eval_sets: list[Future]


def _prepare(
    client: Client, estimator: PolyleafEstimator, rows: Rows, watched: Sequence[Watched], init_model: Any
) -> _Ready:
    def submit(function: Callable[..., Any], *arguments: Any) -> Future:
        return client.submit(function, *arguments, pure=False)

    data = rows.on(client)
    sizes, firsts = data.sizes, list(itertools.accumulate(data.sizes, initial=0))[:-1]
    fresh = BinMapper(estimator.max_bins, random_state=0)
    planned = submit(plan, estimator, data.y, data.weight, data.offset, init_model, fresh, sizes)
    pieces = [submit(take, planned, i) for i in range(len(sizes))]
    shared = submit(_shared_of, planned).result()
    if shared.plan.start is not None:
        mapper = submit(_mapper_of, shared.plan.start)
    else:
        about = zip(data.X, data.numbers, firsts, pieces, strict=True)
        chosen = estimator.categorical_features
        looks = [submit(look_at, X, i, first, piece, chosen) for X, i, first, piece in about]
        mapper = submit(joined, looks, fresh, submit(_sample_weights_of, planned))
    found: BinMapper = mapper.result()
    if found.very_many_:
        names, feature = found.feature_names_, found.very_many_[0]
        raise ValueError(
            f"A fit on several workers: column {names[feature] if names else feature} of X has more than 255 "
            "categories. What it becomes is learned from the target, on one machine; leave it out, or make "
            "numbers of it."
        )
    codes = [submit(codes_of, X, mapper) for X in data.X]
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
            self._wait_for_workers(wait_for_workers)
            n_rounds = 0 if self.known is None else self.known.n_rounds
            self.restarts.append(Restart(n_rounds, tuple(lost), time.monotonic() - began))
            warnings.warn(
                f"Lost {', '.join(lost) or 'a worker'}: training goes on from round {n_rounds}.", stacklevel=6
            )

    def _attempt(self) -> tuple[Fitted | None, list[str], float]:
        """What came of one; nothing where workers were lost: these, and when that was seen."""
        wait([*self.ready.codes, *self.ready.pieces, *self.ready.eval_sets, self.ready.mapper])
        shares = _shares(self.client, self.ready.codes)
        addresses = list(shares)
        fit, began = uuid.uuid4().hex, time.monotonic()
        ranks = [
            self.client.submit(
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
        ]
        try:
            lost = self._watch(ranks, addresses)
            began = time.monotonic()
            if lost is None:
                found = ranks[0].result()
                assert isinstance(found, Fitted)
                return found, [], began
            self._end(fit, addresses)
            self._learn(dict(zip(addresses, ranks, strict=True)))
            return None, lost, began
        except BaseException:
            self._end(fit, addresses)
            raise
        finally:
            self.client.cancel(ranks, force=True)

    def _watch(self, ranks: list[Future], addresses: list[str]) -> list[str] | None:
        """Wait for all ranks; where workers are lost, these, as far as they are known."""
        waiting = set(ranks)
        while waiting:
            try:
                ended = wait(waiting, timeout=_SECONDS_BETWEEN_LOOKS, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                ended = set()
            lost = [address for address in addresses if address not in self.client.nthreads()]
            if lost:
                return lost
            for rank in ended:
                if rank.status == "error" and not isinstance(rank.exception(), PeerFailed):
                    rank.result()
                if rank.status != "finished" or isinstance(rank.result(), Interrupted):
                    return []
            waiting -= ended
        return None

    def _end(self, fit: str, addresses: list[str]) -> None:
        """End ranks that still wait for others."""
        alive = [address for address in addresses if address in self.client.nthreads()]
        if alive:
            self.client.run(_end_here, fit, workers=alive, on_error="ignore")

    def _learn(self, ranks: dict[str, Future]) -> None:
        """Take over the rounds of the rank that has most of them."""
        if not can_repeat(self.ready.shared.plan.settings):
            return
        end = time.monotonic() + _SECONDS_TO_END
        for address, rank in ranks.items():
            while rank.status == "pending" and address in self.client.nthreads() and time.monotonic() < end:
                time.sleep(0.02)  # the rank of a lost worker never ends
            if rank.status != "finished":
                continue
            found = rank.result()
            if not isinstance(found, Interrupted) or found.model is None:
                continue
            if self.known is None or found.model.n_rounds > self.known.n_rounds:
                self.known = found.model

    def _wait_for_workers(self, seconds: float) -> None:
        """Until there is a worker again."""
        end = time.monotonic() + seconds
        while not self.client.nthreads():
            if time.monotonic() > end:
                raise Lost(f"All workers are lost, and none has come for {seconds} seconds.")
            time.sleep(0.1)


def _shares(client: Client, codes: list[Future]) -> dict[str, list[int]]:
    """Which partitions each rank trains on: those that its worker has, where these are not far too many."""
    holders = client.who_has(codes)
    shares: dict[str, list[int]] = {address: [] for address in sorted(client.nthreads())}
    most = math.ceil(_UNEVEN * len(codes) / len(shares))
    for i, future in enumerate(codes):
        here = [address for address in holders[future.key] if len(shares.get(address, codes)) < most]
        shares[min(here or shares, key=lambda address: len(shares[address]))].append(i)
    return {address: share for address, share in shares.items() if share}


def _end_here(fit: str, dask_worker: Any) -> None:
    """`Client.run` calls it on the worker's event loop."""
    dask_worker.plugins[Post.name].end(fit, "The client has ended this attempt.")
