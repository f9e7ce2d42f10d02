"""First looks: the pace of candidates, and what their trainings will take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyleaf.search.screening import COST, USUAL_LEARNING, Look, Looks, Pace

PACE = Pace(lambda parameters: parameters.get("learning_rate", 0.1), is_free=True, n_rows=10_000)


def a_look(rounds=40, n_trained=50, seconds=1.0, rate=0.2, was_cut=False):
    return Look(0.5, rounds, n_trained, seconds, rate, was_cut)


def test_haste_has_an_end_and_no_say_where_the_rate_is_set():
    looks = Looks(PACE, 3.0, 5.0, 1.5)
    assert looks.hurried({"learning_rate": 0.05, "max_leaves": 8}) == {
        "learning_rate": 0.2,
        "max_leaves": 8,
    }
    assert looks.hurried({}) == {"learning_rate": 0.3}
    assert looks.hurried({}, 1.0) == {} and looks.hurried({"learning_rate": 0.5}) == {
        "learning_rate": 0.5
    }
    assert looks.hurried({"learning_rate": 0.05, "n_estimators": 3000}, 2.0) == {
        "learning_rate": 0.1,
        "n_estimators": 1500,
    }
    as_set = replace(PACE, is_free=False)
    assert Looks(as_set, 3.0, 5.0, 1.5).hurried({"max_leaves": 8}) == {"max_leaves": 8}


def test_nobody_is_compared_at_a_faster_rate_than_it_needs():
    table = [{}, {"learning_rate": 0.05}, {"learning_rate": 0.05, "max_leaves": 8}]
    assert PACE.hastes(table, 1.0) == [1.0] * 3
    assert PACE.hastes(table, 2.0) == [1.0, 2.0, 2.0]  # all at .1, which the first has by itself
    assert PACE.hastes(table, 4.0) == [2.0, 4.0, 4.0]
    assert PACE.hastes([{"learning_rate": 0.4}, {}], 8.0) == pytest.approx([1.0, 3.0])
    assert replace(PACE, is_free=False).hastes(table, 4.0) == [1.0] * 3


def test_a_slower_training_takes_as_many_more_rounds():
    looks = Looks(PACE, 3.0, 5.0, 1.5)
    assert looks.on_fold(a_look(), 0.2) == pytest.approx(3.0)
    assert looks.on_fold(a_look(), 0.05) == pytest.approx(12.0)
    looks.learn(a_look(), 100, 4.0)  # .04 a round, where a look had .02
    assert looks.on_fold(a_look(), 0.2) == pytest.approx(2.0)
    assert looks.last(a_look(), 0.2) == pytest.approx(
        0.04 * 1.5**COST * looks.last_rounds(a_look(), 0.2)
    )


def test_a_look_that_was_a_training_on_the_fold_is_not_repeated():
    looks = Looks(PACE, 1.0, 1.0, 1.5)
    assert looks.left_on_fold(a_look(), 0.2) == 0.0 < looks.left_on_fold(a_look(was_cut=True), 0.2)
    assert looks.left_on_fold(a_look(), 0.1) == looks.on_fold(a_look(), 0.1) == pytest.approx(2.0)
    assert looks.on_fold(a_look(), 0.2) == pytest.approx(1.0)


def test_more_rows_want_more_rounds_but_no_more_than_usual():
    looks = Looks(PACE, 3.0, 6.0, 1.5)  # nine times the rows: three times as many rounds
    assert looks.last_rounds(a_look(20), 0.1) == 120
    assert looks.last_rounds(a_look(100), 0.1) == round(USUAL_LEARNING / 0.1)
    assert looks.last_rounds(a_look(200), 0.1) == 400  # it was seen to want them
    assert looks.last_rounds(a_look(5, was_cut=True), 0.1) == round(USUAL_LEARNING / 2 / 0.1)


def test_more_than_are_enough_are_trained_only_where_no_look_has_seen_the_end():
    looks, ended, cut = Looks(PACE, 3.0, 6.0, 1.5), a_look(20), a_look(5, was_cut=True)
    assert looks.most_rounds(ended, 0.1) == looks.last_rounds(ended, 0.1)
    assert looks.most_rounds(cut, 0.1) == round(USUAL_LEARNING / 0.1)
    long = a_look(200, was_cut=True)
    assert looks.most_rounds(long, 0.1) == looks.last_rounds(long, 0.1) == 400


@pytest.mark.parametrize(
    ("n_rows", "learning"), [(1_000, 0.5), (4_900, 0.7), (10_000, 1.0), (10**6, 1.0)]
)
def test_few_rows_suffer_from_rounds_that_many_do_not(n_rows, learning):
    looks = Looks(replace(PACE, n_rows=n_rows), 3.0, 6.0, 1.5)
    assert looks.most_rounds(a_look(5, was_cut=True), 0.1) == round(learning * USUAL_LEARNING / 0.1)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (1_000, (1.0, 3)),
        (50, (2.0, 3)),
        (18, (4.0, 3)),
        (12, (4.0, 2)),
        (8, (4.0, 1)),
        (5, (4.0, 0)),
    ],
)
def test_as_many_are_trained_as_there_is_time_for_as_slowly_as_may_be(left, expected):
    # In haste 2 seconds each, and 4 for the last one.
    looks = Looks(PACE, 2.0, 4.0, 1.0)
    found = [({"learning_rate": 0.05}, Look(0.5, 50, 50, 1.0, 0.2, False))] * 3
    assert looks.last(found[0][1], 0.2) == pytest.approx(4.0)
    assert looks.haste_of_all(found, left) == expected
