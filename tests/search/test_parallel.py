"""Jobs beside one another are taken in order, and those that nobody waits for are told to end."""

import threading

import pytest

from polyleaf.search.parallel import AHEAD, in_order


def test_one_at_a_time_in_this_thread_when_asked_for():
    ran = []
    found = in_order(
        (lambda i=i: ran.append(i) or threading.current_thread() for i in range(3)), 1, None
    )
    assert ran == [] and next(found) is threading.main_thread() and ran == [0]
    assert list(found) == [threading.main_thread()] * 2


def test_in_order_whoever_is_first():
    gate = threading.Event()

    def first():
        assert gate.wait(20)  # the second lets it go: so both run at once
        return 0

    jobs = [first, lambda: gate.set() or 1, *(lambda i=i: i for i in range(2, 9))]
    assert list(in_order(jobs, 2, lambda: None)) == list(range(9))


def test_jobs_are_asked_for_a_few_ahead():
    asked = []
    found = in_order((asked.append(i) or (lambda i=i: i) for i in range(50)), 3, lambda: None)
    next(found)
    assert len(asked) == AHEAD * 3
    found.close()
    assert len(asked) == AHEAD * 3


@pytest.mark.parametrize("closed", [False, True])
def test_who_is_not_waited_for_any_more_is_told(closed):
    told, begun = threading.Event(), threading.Event()

    def lasts():
        begun.set()
        assert told.wait(20)

    def fails():
        assert begun.wait(20)
        raise MemoryError("no room")

    found = in_order([lambda: 7, fails, lasts], 2, told.set)
    assert next(found) == 7
    if closed:
        assert begun.wait(20)
        found.close()
    else:
        with pytest.raises(MemoryError, match="no room"):
            next(found)
    assert told.is_set()
