"""Screening: the speedup of candidates, and estimates of their training time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyleaf.search.candidates import (
    DEFAULT_TOTAL_RATE,
    TIME_EXPONENT,
    LearningRateScale,
    Screening,
    ScreeningResult,
)

RATE_SCALE = LearningRateScale(
    lambda parameters: parameters.get("learning_rate", 0.1), is_free=True, n_rows=10_000
)


def make_result(rounds=40, n_trained=50, seconds=1.0, rate=0.2, timed_out=False):
    return ScreeningResult(0.5, rounds, n_trained, seconds, rate, timed_out)


def test_speedup_is_bounded_and_does_not_change_a_fixed_learning_rate():
    screening = Screening(RATE_SCALE, 3.0, 5.0, 1.5)
    assert screening.speed_up({"learning_rate": 0.05, "max_leaves": 8}) == {
        "learning_rate": 0.2,
        "max_leaves": 8,
    }
    assert screening.speed_up({}) == {"learning_rate": 0.3}
    assert screening.speed_up({}, 1.0) == {} and screening.speed_up({"learning_rate": 0.5}) == {
        "learning_rate": 0.5
    }
    assert screening.speed_up({"learning_rate": 0.05, "n_estimators": 3000}, 2.0) == {
        "learning_rate": 0.1,
        "n_estimators": 1500,
    }
    fixed_rate = replace(RATE_SCALE, is_free=False)
    assert Screening(fixed_rate, 3.0, 5.0, 1.5).speed_up({"max_leaves": 8}) == {"max_leaves": 8}


def test_candidates_are_sped_up_to_a_common_learning_rate():
    table = [{}, {"learning_rate": 0.05}, {"learning_rate": 0.05, "max_leaves": 8}]
    assert RATE_SCALE.speedups(table, 1.0) == [1.0] * 3
    # all at 0.1, the learning rate of the first
    assert RATE_SCALE.speedups(table, 2.0) == [1.0, 2.0, 2.0]
    assert RATE_SCALE.speedups(table, 4.0) == [2.0, 4.0, 4.0]
    assert RATE_SCALE.speedups([{"learning_rate": 0.4}, {}], 8.0) == pytest.approx([1.0, 3.0])
    assert replace(RATE_SCALE, is_free=False).speedups(table, 4.0) == [1.0] * 3


def test_seconds_are_inversely_proportional_to_the_learning_rate():
    screening = Screening(RATE_SCALE, 3.0, 5.0, 1.5)
    assert screening.fold_seconds(make_result(), 0.2) == pytest.approx(3.0)
    assert screening.fold_seconds(make_result(), 0.05) == pytest.approx(12.0)
    screening.update_round_time(make_result(), 100, 4.0)  # 0.04 s per round, 0.02 s in screening
    assert screening.fold_seconds(make_result(), 0.2) == pytest.approx(2.0)
    assert screening.final_seconds(make_result(), 0.2) == pytest.approx(
        0.04 * 1.5**TIME_EXPONENT * screening.final_rounds(make_result(), 0.2)
    )


def test_screening_on_the_fold_itself_is_not_repeated():
    screening = Screening(RATE_SCALE, 1.0, 1.0, 1.5)
    assert (
        screening.remaining_fold_seconds(make_result(), 0.2)
        == 0.0
        < screening.remaining_fold_seconds(make_result(timed_out=True), 0.2)
    )
    assert (
        screening.remaining_fold_seconds(make_result(), 0.1)
        == screening.fold_seconds(make_result(), 0.1)
        == pytest.approx(2.0)
    )
    assert screening.fold_seconds(make_result(), 0.2) == pytest.approx(1.0)


def test_more_rows_need_more_rounds_up_to_the_default():
    screening = Screening(
        RATE_SCALE, 3.0, 6.0, 1.5
    )  # nine times the rows need three times the rounds
    assert screening.final_rounds(make_result(20), 0.1) == 120
    assert screening.final_rounds(make_result(100), 0.1) == round(DEFAULT_TOTAL_RATE / 0.1)
    assert screening.final_rounds(make_result(200), 0.1) == 400  # screening used them
    assert screening.final_rounds(make_result(5, timed_out=True), 0.1) == round(
        DEFAULT_TOTAL_RATE / 2 / 0.1
    )


def test_extra_rounds_are_trained_only_after_a_timed_out_screening():
    screening, stopped, timed_out = (
        Screening(RATE_SCALE, 3.0, 6.0, 1.5),
        make_result(20),
        make_result(5, timed_out=True),
    )
    assert screening.max_final_rounds(stopped, 0.1) == screening.final_rounds(stopped, 0.1)
    assert screening.max_final_rounds(timed_out, 0.1) == round(DEFAULT_TOTAL_RATE / 0.1)
    long = make_result(200, timed_out=True)
    assert screening.max_final_rounds(long, 0.1) == screening.final_rounds(long, 0.1) == 400


@pytest.mark.parametrize(
    ("n_rows", "learning"), [(1_000, 0.5), (4_900, 0.7), (10_000, 1.0), (10**6, 1.0)]
)
def test_fewer_rows_allow_fewer_extra_rounds(n_rows, learning):
    screening = Screening(replace(RATE_SCALE, n_rows=n_rows), 3.0, 6.0, 1.5)
    assert screening.max_final_rounds(make_result(5, timed_out=True), 0.1) == round(
        learning * DEFAULT_TOTAL_RATE / 0.1
    )


@pytest.mark.parametrize(
    ("speeds_up_final_fit", "seconds", "expected"),
    [
        (True, 1_000, (1.0, 3)),
        (True, 50, (2.0, 3)),
        (True, 18, (4.0, 3)),
        (True, 12, (4.0, 2)),
        (True, 8, (4.0, 1)),
        (True, 5, (4.0, 0)),
        (False, 1_000, (1.0, 3)),
        (False, 50, (2.0, 3)),
        (False, 40, (4.0, 3)),
        (False, 32, (2.0, 2)),
        (False, 28, (4.0, 2)),
        (False, 23, (2.0, 1)),
        (False, 21, (4.0, 1)),
        (False, 19, (4.0, 0)),
    ],
)
def test_speedup_and_number_of_candidates_fit_the_time(speeds_up_final_fit, seconds, expected):
    # Sped up, 2 seconds each, and 4 for the final fit, or 16 if it is not sped up.
    screening = Screening(RATE_SCALE, 2.0, 4.0, 1.0)
    screened = [({"learning_rate": 0.05}, ScreeningResult(0.5, 50, 50, 1.0, 0.2, False))] * 3
    assert screening.final_seconds(screened[0][1], 0.2) == pytest.approx(4.0)
    found = screening.choose_speedup(screened, seconds, speeds_up_final_fit=speeds_up_final_fit)
    assert found == expected
