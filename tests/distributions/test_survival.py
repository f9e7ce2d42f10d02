"""Discrete-time survival: Kaplan-Meier and Aalen-Johansen estimates, and trained models."""

import numpy as np
import pytest

from polyleaf import PolyleafClassifier
from polyleaf.distributions.survival import encode_discrete_hazard, make_intervals, survival_curves

TIME = np.array([1.0, 2.0, 2.0, 3.0, 5.0, 5.0, 8.0])
EVENT = np.array([1, 0, 1, 1, 1, 0, 0])
NAN = np.nan


def test_labels_of_a_small_example():
    ends = make_intervals(TIME, EVENT, 20)
    assert ends.tolist() == [1.0, 2.0, 3.0, 5.0]
    expected = [
        [1, NAN, NAN, NAN],
        [0, 0, NAN, NAN],  # censored at the end of the second interval
        [0, 1, NAN, NAN],
        [0, 0, 1, NAN],
        [0, 0, 0, 1],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(encode_discrete_hazard(TIME, EVENT, ends), expected)
    np.testing.assert_array_equal(encode_discrete_hazard(TIME, EVENT > 0, ends), expected)


@pytest.mark.parametrize("time, observed", [(2.2, 0.1), (3.0, 0.5), (3.8, 0.9)])
def test_censored_rows_count_with_the_observed_part_of_their_interval(time, observed):
    ends = [2.0, 4.0, 5.0]
    labels, weight = encode_discrete_hazard([time, 3.0], [0, 2], ends, return_weight=True)
    np.testing.assert_array_equal(labels, [[0, 0, NAN, 0, 0, NAN], [0, 0, NAN, 0, 1, NAN]])
    np.testing.assert_allclose(weight, [[1, observed, 0] * 2, [1, 1, 0] * 2], atol=1e-12)
    without = encode_discrete_hazard([time], [0], ends)
    np.testing.assert_array_equal(without, [[0, 0 if observed >= 0.5 else NAN, NAN]])


@pytest.mark.parametrize("weighted", [False, True])
def test_censoring_within_intervals_does_not_bias_curves(weighted):
    """More than half of the rows are censored, and there are only 15 intervals; no feature is
    informative."""
    rng = np.random.default_rng(0)
    failure, censored = rng.exponential(5, 4000), rng.uniform(0.5, 6, 4000)
    time, event = np.minimum(failure, censored), (failure <= censored).astype(int)
    cause, ends = event * (1 + (rng.random(4000) < 0.7)), make_intervals(time, event, 15)
    X, truth = np.zeros((4000, 1)), np.exp(-ends[-1] / 5)
    model = PolyleafClassifier(missing_targets="ignore")
    for events, shares in ((event, [1.0]), (cause, [0.3, 0.7])):
        labels, weight = encode_discrete_hazard(time, events, ends, return_weight=True)
        if weighted:
            model.fit(X, labels, sample_weight=weight)
        else:
            model.fit(X, encode_discrete_hazard(time, events, ends))
        found = survival_curves(model.predict_proba(X[:1]), ends)
        assert found.survival[0, -1] == pytest.approx(truth, abs=0.02)
        expected = (1 - truth) * np.array(shares)
        np.testing.assert_allclose(found.incidence[0, :, -1], expected, atol=0.03)


def test_causes_have_separate_labels():
    labels = encode_discrete_hazard([1.0, 2.0, 1.5], [2, 1, 0], [1.0, 2.0])
    np.testing.assert_array_equal(labels, [[0, NAN, 1, NAN], [0, 1, 0, 0], [0, 0, 0, 0]])


def test_intervals_contain_equal_numbers_of_events():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(size=4000), rng.random(4000) < 0.5
    ends = make_intervals(time, event, 8)
    counts = np.histogram(time[event], np.concatenate([[0], ends]))[0]
    assert len(ends) == 8 and np.ptp(counts) <= 1 and ends[-1] == time[event].max()


def test_label_shares_are_the_kaplan_meier_estimate():
    """There is one interval per event time. A row censored at an event time is at risk there and
    survives it, so its time is moved slightly later."""
    rng = np.random.default_rng(1)
    time = rng.integers(1, 30, 500).astype(float)
    event = rng.random(500) < 0.7
    ends = make_intervals(time, event, 500)
    hazards = np.nanmean(encode_discrete_hazard(time + 1e-3 * ~event, event, ends), axis=0)
    deaths = ((time[:, None] == ends) & event[:, None]).sum(axis=0)
    expected = np.cumprod(1 - deaths / (time[:, None] >= ends).sum(axis=0))
    np.testing.assert_allclose(
        survival_curves(hazards[None], ends).survival[0], expected, atol=1e-12
    )


def test_survival_and_incidences_sum_to_one():
    rng = np.random.default_rng(0)
    found = survival_curves(rng.random((50, 3 * 7)) * 0.6, np.arange(1.0, 8.0))
    assert found.incidence.shape == (50, 3, 7) and found.survival.shape == (50, 7)
    np.testing.assert_allclose(found.survival + found.incidence.sum(axis=1), 1.0, atol=1e-12)
    assert (np.diff(found.survival) <= 0).all() and (found.survival >= 0).all()


def test_hazards_are_constant_within_intervals():
    found = survival_curves([[0.5, 0.75], [0.0, 0.1]], [2.0, 4.0])
    np.testing.assert_allclose(found.survival_function(2.0), [0.5, 1.0])
    np.testing.assert_allclose(
        found.survival_function([0.0, 1.0, 3.0, 4.0, 9.0])[0], [1, np.sqrt(0.5), 0.25, 0.125, 0.125]
    )
    assert found.median().tolist() == [2.0, np.inf]
    assert found.risk_score()[0] > found.risk_score()[1]


def test_hazards_are_learned():
    """The rate depends on a feature; predictions are compared with the true survival curves."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2)).astype(np.float32)
    time, censored = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, 4000)
    event = time <= censored
    ends = make_intervals(np.minimum(time, censored), event, 10)
    model = PolyleafClassifier(n_estimators=60, max_leaves=8, missing_targets="ignore", n_jobs=1)
    model.fit(X[:3000], encode_discrete_hazard(np.minimum(time, censored), event, ends)[:3000])
    found = survival_curves(model.predict_proba(X[3000:]), ends)
    expected = np.exp(-np.exp(X[3000:, :1]) * ends)
    error = np.abs(found.survival - expected)[:, :9].mean()
    assert error < 0.05 < 0.5 * np.abs(expected - expected.mean(axis=0))[:, :9].mean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_intervals([1.0, 0.0], [1, 1]), "above 0; it is 0.0 in row 1"),
        (lambda: make_intervals([1.0, np.nan], [1, 1]), "nan in row 1"),
        (lambda: make_intervals([1.0], [0]), "No row has an event"),
        (lambda: make_intervals([1.0], [1], 0), "n must be at least 1"),
        (lambda: make_intervals([1.0, 2.0], [1]), r"got shapes \(2,\) and \(1,\)"),
        (lambda: encode_discrete_hazard([1.0, 0.0], [1, 0], [0.5, 1.0]), "time must be .* above 0"),
        (lambda: encode_discrete_hazard([1.0], [-1], [1.0]), "numbers of causes from 1 on"),
        (lambda: encode_discrete_hazard([1.0], [0.5], [1.0]), "numbers of causes from 1 on"),
        (lambda: encode_discrete_hazard([1.0], ["yes"], [1.0]), "numbers of causes from 1 on"),
        (lambda: encode_discrete_hazard([1.0], [np.nan], [1.0]), "numbers of causes from 1 on"),
        (lambda: encode_discrete_hazard([1.0], [1], [2.0, 1.0]), "ends must be"),
        (lambda: survival_curves([[0.1, 1.5]], [1.0, 2.0]), "hazards must be probabilities"),
        (lambda: survival_curves([[0.1, 0.2, 0.3]], [1.0, 2.0]), "hazards must have 2 columns"),
    ],
)
def test_invalid_input_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_no_rows():
    found = survival_curves(np.zeros((0, 6)), [1.0, 2.0, 3.0])
    assert found.survival.shape == (0, 3) and found.incidence.shape == (0, 2, 3)
    assert found.median().shape == found.risk_score().shape == (0,) and found.survival_function(
        1.5
    ).shape == (0,)
