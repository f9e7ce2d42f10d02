"""Collective operations are exact, and end when a rank is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyleaf.runtime.collective import SINGLE_PROCESS, ThreadCommunicator, WorkerLostError

SIZES = [1, 2, 3, 5]


@pytest.mark.parametrize("size", SIZES)
def test_exchange_delivers_block_i_to_rank_i(size):
    def work(comm):
        assert comm.size == size
        return [bytes(b) for b in comm.alltoall([bytes([comm.rank, to]) for to in range(size)])]

    found = ThreadCommunicator.run(size, work)
    assert found == [[bytes([source, to]) for source in range(size)] for to in range(size)]


@settings(max_examples=20, deadline=None)
@given(size=st.sampled_from(SIZES), n=st.integers(0, 9), seed=st.integers(0, 2**32 - 1))
def test_collectives_equal_numpy_on_all_ranks(size, n, seed):
    rng = np.random.default_rng(seed)
    numbers, floats = rng.integers(-(2**40), 2**40, (size, n)), rng.normal(size=(size, n))
    shares = [
        [rng.integers(-9, 9, (to + 1, 2), dtype=np.int32) for to in range(size)]
        for _ in range(size)
    ]

    def work(comm):
        total, most = numbers[comm.rank].copy(), floats[comm.rank].copy()
        comm.allreduce_sum(total)
        comm.allreduce_max(most)
        received = comm.alltoall([share.tobytes() for share in shares[comm.rank]])
        return total, most, received, comm.allgather(bytes([comm.rank]))

    for rank, (total, most, received, gathered) in enumerate(ThreadCommunicator.run(size, work)):
        np.testing.assert_array_equal(total, numbers.sum(axis=0))
        np.testing.assert_array_equal(most, floats.max(axis=0))
        assert received == [sent[rank].tobytes() for sent in shares]
        assert gathered == [bytes([r]) for r in range(size)]


def test_maximum_propagates_nan():
    def work(comm):
        numbers = np.array([np.nan if comm.rank == 1 else 2.0])
        comm.allreduce_max(numbers)
        return numbers[0]

    assert np.isnan(ThreadCommunicator.run(3, work)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_])
def test_sums_of_floats_raise(dtype):
    with pytest.raises(TypeError, match="integers only"):
        SINGLE_PROCESS.allreduce_sum(np.zeros(2, dtype))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("failing", [0, -1])
def test_error_of_one_rank_ends_all_and_is_raised(size, failing):
    seen = []

    def work(comm):
        try:
            comm.allgather(b"")
            if comm.rank == failing % size:
                raise KeyError("mine")
            comm.allgather(b"")
        except WorkerLostError:
            seen.append(comm.rank)
            raise

    with pytest.raises(KeyError, match="mine"):
        ThreadCommunicator.run(size, work)
    assert sorted(seen) == [rank for rank in range(size) if rank != failing % size]


def test_ranks_out_of_sync_raise():
    def work(comm):
        comm.allreduce_sum(np.zeros(comm.rank + 1, np.int64))

    with pytest.raises(RuntimeError, match="out of sync"):
        ThreadCommunicator.run(2, work)


def test_single_process_leaves_arrays_unchanged():
    numbers = np.arange(3)
    SINGLE_PROCESS.allreduce_sum(numbers)
    SINGLE_PROCESS.allreduce_max(numbers)
    assert SINGLE_PROCESS.allgather(b"a") == [b"a"]
    np.testing.assert_array_equal(numbers, [0, 1, 2])
