"""Ranks of one host exchange messages through Unix sockets; fits of real processes."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("distributed", reason="the extra dask is not installed")

import dask
import dask.array as da
from distributed import Client, LocalCluster

from polyleaf import PolyleafRegressor
from polyleaf.dask import DaskPolyleafRegressor, local_sockets
from polyleaf.dask.local_sockets import LocalSockets
from polyleaf.runtime.collective import ThreadCommunicator, WorkerLostError

pytestmark = pytest.mark.full

SMALL = {"n_estimators": 3, "max_depth": 3, "max_leaves": None, "random_state": 0, "n_jobs": 1}


def make_data(n=240):
    rng = np.random.default_rng(0)
    X = rng.integers(-40, 40, (n, 4)) / 8.0
    return X, X[:, :2] * 2 + rng.integers(-4, 4, (n, 2)) / 8.0


@pytest.mark.parametrize("n_bytes", [0, 1, 5_000, 3_000_000])
def test_blocks_of_any_size(n_bytes):
    """Sizes differ between pairs, and large ones do not fit into a socket."""

    def work(ranks):
        sockets = LocalSockets()
        sockets.connect(ranks.rank, ranks.size, ranks.alltoall)
        blocks = [np.full(n_bytes * to, 16 * ranks.rank + to, np.uint8) for to in range(ranks.size)]
        received = [sockets.exchange(ranks.rank, blocks) for _ in range(2)][1]
        assert ranks.rank not in sockets
        sockets.close()
        return {rank: bytes(block) for rank, block in received.items()}

    for to, received in enumerate(ThreadCommunicator.run(4, work)):
        assert received == {r: bytes([16 * r + to]) * n_bytes * to for r in range(4) if r != to}


def test_a_lost_rank_ends_the_others():
    def work(ranks):
        sockets = LocalSockets()
        sockets.connect(ranks.rank, ranks.size, ranks.alltoall)
        if ranks.rank == 1:
            return sockets.shut_down()
        try:
            sockets.exchange(ranks.rank, [bytes(10**6)] * ranks.size)
        except OSError as error:
            raise WorkerLostError from error

    with pytest.raises(WorkerLostError):
        ThreadCommunicator.run(3, work)


@pytest.mark.parametrize("which", ["some", "none"])
def test_ranks_without_sockets_use_the_connections_of_their_workers(which, monkeypatch):
    connect = local_sockets._open

    def refuse(rank, path):
        if rank == 1 or which == "none":
            raise OSError("Another host.")
        return connect(rank, path)

    monkeypatch.setattr(local_sockets, "_open", refuse)
    X, Y = make_data()
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=3, **options) as cluster, Client(cluster) as client:
        model = DaskPolyleafRegressor(client=client, **SMALL)
        model.fit(*(da.from_array(values, chunks=(80, -1)) for values in (X, Y)))
    local = PolyleafRegressor(**SMALL).fit(X, Y)
    assert model.model_.to_bytes() == local.model_.to_bytes()


@pytest.mark.parametrize("n_workers", [1, 2, 4, 8])
def test_processes_train_the_model_of_one_machine(n_workers):
    """Partitions are uneven; one is empty, and one has a single row."""
    X, Y = make_data()
    bounds = [0, 0, 1, 30, 55, 60, 100, 140, 150, 200, 240]
    cases = {
        "dense": (X, {}),
        "linear": (X, {"init": "linear"}),
        "auto": (X, {"init": "auto"}),
        "sparse": (sp.csr_matrix(np.where(X > 1, X, 0)), {"init": "linear"}),
        "quantiles": (X, {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}),
    }
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
        for name, (features, parameters) in cases.items():
            y = Y[:, 0] if name == "quantiles" else Y
            parts = [
                [dask.delayed(values[a:b]) for a, b in itertools.pairwise(bounds)]
                for values in (features, y)
            ]
            parameters = SMALL | parameters
            model = DaskPolyleafRegressor(client=client, **parameters).fit(*parts)
            local = PolyleafRegressor(**parameters).fit(features, y)
            assert model.model_.to_bytes() == local.model_.to_bytes(), name
            assert len(model.costs_.measured) >= min(n_workers, 6)
