"""A fit whose workers are lost is the fit of one machine, and nobody waits for what will not come."""

import asyncio
import threading
import time

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")
da = pytest.importorskip("dask.array")

from distributed import Client, LocalCluster, Status, get_worker, wait  # noqa: E402

from polyleaf import PolyleafRegressor  # noqa: E402
from polyleaf.callbacks import Callback  # noqa: E402
from polyleaf.dask import DaskPolyleafRegressor, driver, worker
from polyleaf.dask.communicator import Post  # noqa: E402
from polyleaf.runtime.collective import WorkerLostError  # noqa: E402

SMALL = {"n_estimators": 6, "max_depth": 2, "max_leaves": None, "random_state": 0, "n_jobs": 1}
PATIENCE = 60.0


def numbers():
    X = np.random.default_rng(0).normal(size=(240, 4))
    return X, X[:, :2] ** 2


@pytest.fixture(scope="module")
def local():
    return PolyleafRegressor(**SMALL).fit(*numbers()).save_model()


@pytest.fixture
def client():
    about = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=3, **about) as cluster, Client(cluster) as client:
        yield client


class AfterRound(Callback):
    """Calls `AfterRound.act(address of rank 0)` once; sent to workers of this process."""

    act = None
    round = 2

    def after_iteration(self, model, epoch, evals_log):
        act = AfterRound.act
        if act is not None and epoch == self.round:
            AfterRound.act = None
            act(get_worker().address)
        return False


def lose(client, addresses):
    """Close workers, until the scheduler knows."""
    for server in list(client.cluster.workers.values()):
        if server.address in addresses:
            server.loop.add_callback(server.close)
    end = time.monotonic() + PATIENCE
    while addresses & client.cluster.scheduler.workers.keys() and time.monotonic() < end:
        time.sleep(0.005)


def fit(client, act, **options):
    lazy = [da.from_array(values, chunks=(30, -1)) for values in numbers()]
    AfterRound.act = staticmethod(act) if act is not None else None
    model = DaskPolyleafRegressor(client=client, **SMALL)
    return model.fit(*lazy, callbacks=[AfterRound()], **options)


@pytest.mark.parametrize("which", ["first", "last", "two"])
def test_lost_workers_cost_a_round(client, local, which):
    lost = set()

    def act(own):
        others = sorted(client.cluster.scheduler.workers.keys() - {own})
        lost.update({"first": [own], "last": others[-1:], "two": others}[which])
        lose(client, lost)

    with pytest.warns(UserWarning, match="training goes on from round"):
        model = fit(client, act)
    assert model.to_local().save_model() == local
    assert {address for restart in model.restarts_ for address in restart.lost} <= lost
    assert len(lost) >= len(model.restarts_) >= 1 and model.restarts_[0].round >= 2
    assert not any(client.processing().values())


@pytest.mark.filterwarnings("ignore:Lost")
def test_all_lost_at_once_cost_the_rounds_since_the_last_copy(client, local, monkeypatch):
    monkeypatch.setattr(worker, "SECONDS_BETWEEN_COPIES", 0.0)
    monkeypatch.setattr(driver, "SECONDS_BETWEEN_COPIES", 0.0)
    has_copy, take_over = threading.Event(), driver._Attempts._take_over

    def watched(self, models):
        take_over(self, models)
        if self.known is not None:
            has_copy.set()

    def act(own):
        assert has_copy.wait(PATIENCE)
        lose(client, set(client.cluster.scheduler.workers))
        client.cluster.scale(6)

    monkeypatch.setattr(driver._Attempts, "_take_over", watched)
    model = fit(client, act, wait_for_workers=PATIENCE)
    assert model.to_local().save_model() == local
    assert 1 <= model.restarts_[0].round <= AfterRound.round + 1


def test_more_losses_than_are_allowed(client):
    with pytest.raises(driver.Lost, match="max_restarts=0 allows"):
        fit(client, lambda own: lose(client, {own}), max_restarts=0)


def test_no_worker_comes_again(client):
    def act(own):
        lose(client, set(client.cluster.scheduler.workers))

    with pytest.raises(
        driver.Lost, match=r"All workers are lost, and none has come for 0\.0 seconds"
    ):
        fit(client, act, wait_for_workers=0.0)


@pytest.mark.filterwarnings("ignore:Lost")
def test_data_that_cannot_come_back(client):
    parts = [client.scatter(np.array_split(values, 6)) for values in numbers()]
    AfterRound.act = staticmethod(lambda own: lose(client, {own}))
    with pytest.raises(driver.Lost, match=r"what client\.scatter has put there"):
        DaskPolyleafRegressor(client=client, **SMALL).fit(*parts, callbacks=[AfterRound()])


def test_workers_that_take_no_tasks_have_no_rank(client, local):
    """A rank there would not begin, and the others would wait for it."""
    idle = sorted(client.nthreads())[:2]

    def pause(dask_worker):
        dask_worker.status = Status.paused

    client.run(pause, workers=idle)
    end = time.monotonic() + PATIENCE
    while len(driver._running(client)) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    model = fit(client, None)
    assert model.to_local().save_model() == local and model.restarts_ == []


class _Holds:
    """In place of a client: which workers there are, and that one that is about to close holds all."""

    def __init__(self, **status):
        self.status = status

    def scheduler_info(self, n_workers):
        return {"workers": {address: {"status": status} for address, status in self.status.items()}}

    def who_has(self, futures):
        return {future.key: ["closing"] for future in futures}


class _Named:
    def __init__(self, key):
        self.key = key


def test_partitions_of_a_worker_that_is_about_to_close_go_to_others():
    codes = [_Named(str(i)) for i in range(5)]
    assert driver._shares(_Holds(closing="closing_gracefully", a="running"), codes) == {
        "a": [0, 1, 2, 3, 4]
    }
    two = driver._shares(_Holds(closing="closing_gracefully", a="running", b="running"), codes)
    assert two == {"a": [0, 2, 4], "b": [1, 3]}
    assert driver._shares(_Holds(closing="closing_gracefully"), codes) == {}


class _Answers:
    """In place of a future whose worker is lost before it has handed over what it has."""

    status = "finished"

    def __init__(self):
        self.is_over = threading.Event()

    def result(self):
        self.is_over.wait()


class _Without:
    """In place of a client whose cluster has no workers."""

    def nthreads(self):
        return {}


def test_nobody_waits_for_a_result_that_is_lost():
    rank = _Answers()
    try:
        assert driver._Attempts(_Without(), None, (), [])._result(rank, "tcp://gone") is None
    finally:
        rank.is_over.set()


def test_what_a_rank_has_returned(client):
    address = next(iter(client.nthreads()))
    attempts = driver._Attempts(client, None, (), [])
    rank = client.submit(lambda: 3, workers=[address])
    wait(rank)
    assert attempts._result(rank, address) == 3


class _Worker:
    """In place of a worker, its connections and one of them: what is read from that, one after the other."""

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
        await asyncio.Event().wait()  # nothing more comes


def exchanged(worker):
    async def work():
        post = Post()
        post.setup(worker)
        return await post.exchange("fit", 1, 0, ["a", "b"], [b"own", b"for b"])

    return asyncio.run(work())


def test_a_worker_that_has_just_come_is_asked_again():
    """Its plugin may not be there yet; a worker answers None where it knows no such handler."""
    worker = _Worker(None, None, {"joined": True}, {"step": 1, "block": b"from b"})
    assert exchanged(worker) == [b"own", b"from b"]
    assert worker.written[-1] == {"step": 1, "block": b"for b"}


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        (_Worker(OSError("broken")), "Another worker is lost: broken"),
        (_Worker({"joined": True}, OSError("broken")), "Another worker is lost: broken"),
        (
            _Worker(RuntimeError("ConnectionPool is closed"), status=Status.closing),
            "This worker closes",
        ),
    ],
)
def test_whatever_ends_a_connection_is_a_lost_peer(worker, message):
    with pytest.raises(WorkerLostError, match=message):
        exchanged(worker)


@pytest.mark.parametrize("answers", [(), ({"joined": True},)])
def test_an_error_of_our_own_is_none(answers):
    with pytest.raises(RuntimeError, match="a mistake"):
        exchanged(_Worker(*answers, RuntimeError("a mistake")))


def test_an_attempt_that_has_ended_takes_nobody_in():
    async def work():
        worker, post = _Worker(), Post()
        post.setup(worker)
        post.end("fit", "so it is")
        await worker.handlers["polyleaf_join"](worker, "fit", 0)
        with pytest.raises(WorkerLostError, match="so it is"):
            await post.exchange("fit", 1, 1, ["a", "b"], [b"for a", b"own"])
        return worker.written

    assert asyncio.run(work()) == [{"joined": True}]
