"""Fits that lose workers give the model of one machine, and do not hang."""

import asyncio
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("distributed", reason="the extra dask is not installed")
da = pytest.importorskip("dask.array")

import dask  # noqa: E402
from distributed import Client, LocalCluster, Status, get_worker, wait  # noqa: E402
from distributed.comm import CommClosedError  # noqa: E402

from polyleaf import PolyleafRanker, PolyleafRegressor  # noqa: E402
from polyleaf.binned_data.partitions import SPARSE_SHARE  # noqa: E402
from polyleaf.callbacks import Callback  # noqa: E402
from polyleaf.dask import DaskPolyleafRanker, DaskPolyleafRegressor, driver, worker  # noqa: E402
from polyleaf.dask.communicator import CommunicatorPlugin  # noqa: E402
from polyleaf.runtime.collective import WorkerLostError  # noqa: E402

pytestmark = pytest.mark.full

SMALL = {"n_estimators": 6, "max_depth": 2, "max_leaves": None, "random_state": 0, "n_jobs": 1}
TIMEOUT = 60.0


def make_data():
    X = np.random.default_rng(0).normal(size=(240, 4))
    return X, X[:, :2] ** 2


@pytest.fixture(scope="module")
def local():
    return PolyleafRegressor(**SMALL).fit(*make_data()).save_model()


@pytest.fixture
def client():
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=3, **options) as cluster, Client(cluster) as client:
        yield client


class AfterRound(Callback):
    """Call `AfterRound.act(address of rank 0)` once; it is sent to workers of this process."""

    act = None
    round = 2

    def after_iteration(self, model, epoch, evals_log):
        act = AfterRound.act
        if act is not None and epoch == self.round:
            AfterRound.act = None
            act(get_worker().address)
        return False


def close_workers(client, addresses):
    """Close workers, and wait until the scheduler has noticed."""
    for server in list(client.cluster.workers.values()):
        if server.address in addresses:
            server.loop.add_callback(server.close)
    end = time.monotonic() + TIMEOUT
    while addresses & client.cluster.scheduler.workers.keys() and time.monotonic() < end:
        time.sleep(0.005)


def fit(client, act, **options):
    lazy = [da.from_array(values, chunks=(30, -1)) for values in make_data()]
    AfterRound.act = staticmethod(act) if act is not None else None
    model = DaskPolyleafRegressor(client=client, **SMALL)
    return model.fit(*lazy, callbacks=[AfterRound()], **options)


@pytest.mark.parametrize("which", ["first", "last", "two"])
def test_lost_workers_do_not_change_the_model(client, local, which):
    lost = set()

    def act(address):
        others = sorted(client.cluster.scheduler.workers.keys() - {address})
        lost.update({"first": [address], "last": others[-1:], "two": others}[which])
        close_workers(client, lost)

    with pytest.warns(UserWarning, match="training continues from round"):
        model = fit(client, act)
    assert model.to_local().save_model() == local
    assert {address for restart in model.restarts_ for address in restart.lost} <= lost
    assert len(lost) >= len(model.restarts_) >= 1 and model.restarts_[0].round >= 2
    assert not any(client.processing().values())


@pytest.mark.filterwarnings("ignore:Lost")
def test_a_ranking_keeps_its_queries_whole(client):
    X, Y = make_data()
    y, qid = np.minimum(np.floor(2 * Y[:, 0]), 4), np.arange(len(X)) // 7  # chunks cut queries
    AfterRound.act = staticmethod(lambda address: close_workers(client, {address}))
    parameters = SMALL | {"objective": "yetirank", "subsample": 0.5}
    model = DaskPolyleafRanker(client=client, **parameters)
    positions = np.arange(len(X)) % 7
    lazy = [da.from_array(v, chunks=30) for v in (y, qid, positions)]
    queries = {"qid": lazy[1], "positions": lazy[2]}
    features = da.from_array(X, chunks=(30, -1))
    model.fit(features, lazy[0], **queries, callbacks=[AfterRound()])
    assert len(model.restarts_) == 1
    local = PolyleafRanker(**parameters).fit(X, y, qid=qid, positions=positions)
    assert model.to_local().save_model() == local.save_model()


@pytest.mark.filterwarnings("ignore:Lost")
def test_training_continues_from_the_last_copy_if_all_are_lost(client, local, monkeypatch):
    monkeypatch.setattr(worker, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(driver, "COPY_SECONDS", 0.0)
    has_copy, update_model = threading.Event(), driver.RetryLoop._update_model

    def note_update(self, models):
        update_model(self, models)
        if self.resume_from is not None:
            has_copy.set()

    def act(address):
        assert has_copy.wait(TIMEOUT)
        close_workers(client, set(client.cluster.scheduler.workers))
        client.cluster.scale(6)

    monkeypatch.setattr(driver.RetryLoop, "_update_model", note_update)
    model = fit(client, act, wait_for_workers=TIMEOUT)
    assert model.to_local().save_model() == local
    assert 1 <= model.restarts_[0].round <= AfterRound.round + 1


def test_more_losses_than_max_restarts(client):
    with pytest.raises(driver.WorkersLostError, match="max_restarts=0 allows"):
        fit(client, lambda address: close_workers(client, {address}), max_restarts=0)


@pytest.mark.filterwarnings("ignore:Lost")
@pytest.mark.parametrize("n_losses", [1, 2])
def test_workers_lost_while_the_plugin_is_registered(client, local, n_losses, monkeypatch):
    register, losses = client.register_plugin, iter(sorted(client.nthreads())[:n_losses])

    def lose_one(plugin):
        address = next(losses, None)
        if address is not None:
            close_workers(client, {address})
            raise CommClosedError("in <TCP (closed) Scheduler Broadcast>")
        return register(plugin)

    monkeypatch.setattr(client, "register_plugin", lose_one)
    model = fit(client, None)
    assert model.to_local().save_model() == local
    assert [restart.round for restart in model.restarts_] == [0] * n_losses
    assert all(len(restart.lost) == 1 for restart in model.restarts_)
    losses = iter(sorted(client.nthreads())[:1])
    with pytest.raises(driver.WorkersLostError, match="max_restarts=0 allows"):
        fit(client, None, max_restarts=0)


@pytest.mark.filterwarnings("ignore:Lost")
@pytest.mark.parametrize("is_first", [True, False])
def test_workers_lost_while_the_fit_is_planned(client, local, is_first, monkeypatch):
    plan, lost = worker.plan_shared_fit, []

    def lose_one(estimator, run, callbacks, workers, has_evaluation):
        if not lost and workers.communicator.rank == 0:
            address = get_worker().address
            others = sorted(client.cluster.scheduler.workers.keys() - {address})
            lost.append(address if is_first else others[0])
            close_workers(client, set(lost))
        return plan(estimator, run, callbacks, workers, has_evaluation)

    monkeypatch.setattr(worker, "plan_shared_fit", lose_one)
    model = fit(client, None)
    assert model.to_local().save_model() == local
    assert [restart.lost for restart in model.restarts_] == [tuple(lost)]


@pytest.mark.filterwarnings("ignore:Lost")
def test_workers_lost_while_sparse_features_are_binned_and_split(client, monkeypatch):
    X, Y = make_data()
    X = sp.csr_matrix(np.where(X > 1.1, X, 0))
    assert max(np.diff(X.tocsc().indptr)) <= SPARSE_SHARE * len(Y)
    read, lost = worker.read_features, []

    def lose_one(part, **options):
        if not lost:
            lost.append(get_worker().address)
            close_workers(client, set(lost))
        return read(part, **options)

    monkeypatch.setattr(worker, "read_features", lose_one)
    parts = [[dask.delayed(v[i : i + 30]) for i in range(0, len(Y), 30)] for v in (X, Y)]
    AfterRound.act = staticmethod(lambda address: close_workers(client, {address}))
    model = DaskPolyleafRegressor(client=client, **SMALL).fit(*parts, callbacks=[AfterRound()])
    assert lost and lost[0] not in client.nthreads()
    assert any(restart.round == 3 for restart in model.restarts_)
    assert model.to_local().save_model() == PolyleafRegressor(**SMALL).fit(X, Y).save_model()


@pytest.mark.filterwarnings("ignore:Lost")
def test_a_worker_lost_while_the_initial_model_is_fitted(client, monkeypatch):
    X, Y = make_data()
    fit_initial_model, lost = worker.fit_initial_model, []

    def lose_one(*arguments):
        if not lost:
            lost.append(get_worker().address)
            close_workers(client, set(lost))
        return fit_initial_model(*arguments)

    monkeypatch.setattr(worker, "fit_initial_model", lose_one)
    parameters = SMALL | {"init": "linear"}
    lazy = [da.from_array(values, chunks=(30, -1)) for values in (X, Y)]
    model = DaskPolyleafRegressor(client=client, **parameters).fit(*lazy)
    assert lost and lost[0] not in client.nthreads()
    assert model.model_.to_bytes() == PolyleafRegressor(**parameters).fit(X, Y).model_.to_bytes()


def test_losing_all_workers_before_the_first_round_raises(client, monkeypatch):
    register = client.register_plugin

    def lose_all(plugin):
        register(plugin)
        close_workers(client, set(client.nthreads()))

    monkeypatch.setattr(client, "register_plugin", lose_all)
    with pytest.raises(driver.WorkersLostError, match="All workers are lost"):
        fit(client, None, wait_for_workers=0.0)


def test_no_new_worker_raises(client):
    def act(address):
        close_workers(client, set(client.cluster.scheduler.workers))

    with pytest.raises(driver.WorkersLostError, match=r"All workers are lost"):
        fit(client, act, wait_for_workers=0.0)


@pytest.mark.filterwarnings("ignore:Lost")
def test_lost_scattered_data_raise(client):
    parts = [client.scatter(np.array_split(values, 6)) for values in make_data()]
    lost = set(sorted(client.nthreads())[:2])  # a copy of a part may be on another worker
    AfterRound.act = staticmethod(lambda address: close_workers(client, lost))
    with pytest.raises(driver.WorkersLostError, match=r"client\.scatter"):
        DaskPolyleafRegressor(client=client, **SMALL).fit(*parts, callbacks=[AfterRound()])


def test_paused_workers_have_no_rank(client, local):
    """A rank there would not start, and the other ranks would wait for it."""
    idle = sorted(client.nthreads())[:2]

    def pause(dask_worker):
        dask_worker.status = Status.paused

    client.run(pause, workers=idle)
    end = time.monotonic() + TIMEOUT
    while len(driver._list_running(client)) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    model = fit(client, None)
    assert model.to_local().save_model() == local and model.restarts_ == []


class _ClosingClient:
    """A client whose partitions are all on a closing worker."""

    def __init__(self, **status):
        self.status = status

    def scheduler_info(self, n_workers):
        return {"workers": {address: {"status": status} for address, status in self.status.items()}}

    def who_has(self, futures):
        return {future.key: ["closing"] for future in futures}


class _Key:
    def __init__(self, key):
        self.key = key


def test_partitions_of_a_closing_worker_move_to_others():
    codes = [_Key(str(i)) for i in range(5)]
    for names, expected in (
        ("a", {"a": [0, 1, 2, 3, 4]}),
        ("ab", {"a": [0, 2, 4], "b": [1, 3]}),
        ("", {}),
    ):
        client = _ClosingClient(closing="closing_gracefully", **dict.fromkeys(names, "running"))
        assert driver._assign_partitions(client, codes, [1] * 5) == expected


@pytest.mark.parametrize(
    ("held", "sizes", "expected"),
    [
        ("aabb", [5, 5, 5, 5], {"a": [0, 1], "b": [2, 3]}),
        ("aaab", [5, 5, 5, 5], {"a": [0, 1], "b": [2, 3]}),
        ("aaaa", [1, 1, 1, 3], {"a": [3], "b": [0, 1, 2]}),
        ("bbba", [100, 2, 2, 100], {"a": [3], "b": [0, 1, 2]}),
    ],
)
def test_partitions_stay_unless_a_worker_would_have_more_rows(held, sizes, expected):
    client = _ClosingClient(a="running", b="running")
    client.who_has = lambda futures: {part.key: [held[int(part.key)]] for part in futures}
    codes = [_Key(str(i)) for i in range(4)]
    assert driver._assign_partitions(client, codes, sizes) == expected


class _LostFuture:
    """A future whose worker is lost before its result is fetched."""

    status = "finished"

    def __init__(self):
        self.is_over = threading.Event()

    def result(self):
        self.is_over.wait()


class _NoWorkers:
    """A client whose cluster has no workers."""

    def nthreads(self):
        return {}


def make_loop(client):
    return driver.RetryLoop(driver.Retries(client, 3, TIMEOUT, []), None, [], [], [])


def test_lost_result_is_not_waited_for():
    rank = _LostFuture()
    try:
        assert make_loop(_NoWorkers())._get_result(rank, "tcp://gone") is None
    finally:
        rank.is_over.set()


def test_result_of_a_rank(client):
    address = next(iter(client.nthreads()))
    loop = make_loop(client)
    rank = client.submit(lambda: 3, workers=[address])
    wait(rank)
    assert loop._get_result(rank, address) == 3


class _Worker:
    """A worker, its connection pool and a connection that returns the given answers."""

    def __init__(self, *answers, status=Status.running):
        self.address, self.status, self.handlers, self._answers = "a", status, {}, iter(answers)
        self.rpc, self.written = self, []

    async def connect(self, address):
        return self

    def reuse(self, address, comm):
        pass

    def abort(self):
        pass

    async def write(self, message):
        self.written.append(message)

    async def read(self):
        for answer in self._answers:
            if isinstance(answer, Exception):
                raise answer
            return answer
        await asyncio.Event().wait()  # no more answers


def exchange(worker):
    async def work():
        plugin = CommunicatorPlugin()
        plugin.setup(worker)
        return await plugin.exchange("fit", 1, 0, ["a", "b"], [b"own", b"for b"])

    return asyncio.run(work())


def test_new_worker_without_the_plugin_is_retried():
    """A worker without the handler answers None."""
    worker = _Worker(None, None, {"joined": True}, {"step": 1, "message": b"from b"})
    assert exchange(worker) == [b"own", b"from b"]
    assert worker.written[-1] == {"step": 1, "message": b"for b"}


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        (_Worker(OSError("broken")), "Another worker is lost: broken"),
        (_Worker({"joined": True}, OSError("broken")), "Another worker is lost: broken"),
        (_Worker(RuntimeError("is closed"), status=Status.closing), "This worker is closing"),
    ],
)
def test_connection_errors_are_lost_workers(worker, message):
    with pytest.raises(WorkerLostError, match=message):
        exchange(worker)


@pytest.mark.parametrize("answers", [(), ({"joined": True},)])
def test_other_errors_are_not_lost_workers(answers):
    with pytest.raises(RuntimeError, match="a mistake"):
        exchange(_Worker(*answers, RuntimeError("a mistake")))


def test_ended_attempt_accepts_no_connections():
    async def work():
        worker, plugin = _Worker(), CommunicatorPlugin()
        plugin.setup(worker)
        plugin.end("fit", "it has ended")
        await worker.handlers["polyleaf_join"](worker, "fit", 0)
        with pytest.raises(WorkerLostError, match="it has ended"):
            await plugin.exchange("fit", 1, 1, ["a", "b"], [b"for a", b"own"])
        return worker.written

    assert asyncio.run(work()) == [{"joined": True}]
