"""Seconds of the phases of a fit (POLYLEAF_TIMING)."""

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.runtime import timing

X = np.random.default_rng(0).normal(size=(400, 5))
Y = X[:, :2] ** 2


@pytest.mark.parametrize("boosting_step", ["round", "layer"])
def test_phases_add_up_to_the_fit(boosting_step, monkeypatch, capsys):
    monkeypatch.setenv("POLYLEAF_TIMING", "1")
    seconds = iter(np.arange(1e6))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(seconds))
    policy = "depthwise" if boosting_step == "layer" else "lossguide"
    model = PolyleafRegressor(n_estimators=3, boosting_step=boosting_step, grow_policy=policy)
    model.fit(X, Y, eval_set=[(X[:50], Y[:50])])
    times = model.fit_times_
    phases = {"reading", "binning", "derivatives", "quantisation", "histograms", "split finding"}
    phases |= {"partition", "leaf values", "score updates", "evaluation", "other"}
    assert phases <= times.keys()
    assert all(value >= 0 for value in times.values())
    assert sum(times.values()) == pytest.approx(next(seconds) - 1)
    text = capsys.readouterr().err
    assert text.startswith("polyleaf: fit of") and "\n  histograms" in text


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_recorded_by_default(value, monkeypatch, capsys):
    if value is None:
        monkeypatch.delenv("POLYLEAF_TIMING", raising=False)
    else:
        monkeypatch.setenv("POLYLEAF_TIMING", value)
    model = PolyleafClassifier(n_estimators=2).fit(X, Y[:, 0] > 1)
    assert not hasattr(model, "fit_times_") and capsys.readouterr().err == ""


def test_times_of_a_failed_fit_are_recorded(monkeypatch, capsys):
    monkeypatch.setenv("POLYLEAF_TIMING", "1")
    with pytest.raises(ValueError, match="y"):
        PolyleafRegressor().fit(X, Y[:10])
    assert "polyleaf: fit of" in capsys.readouterr().err
    assert timing._clock.get() is None


def test_models_do_not_depend_on_timing(monkeypatch):
    plain = PolyleafRegressor(n_estimators=3, random_state=0).fit(X, Y).save_model()
    monkeypatch.setenv("POLYLEAF_TIMING", "1")
    assert PolyleafRegressor(n_estimators=3, random_state=0).fit(X, Y).save_model() == plain
