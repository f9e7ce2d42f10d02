"""Bound searches: object lifetimes, and rejected arguments."""

import sys

import numpy as np
import pytest
from support.core_settings import grow_config, leaf_config
from support.problems import HistogramGrower, core_bins, core_channels, make_problem

from polyleaf import _core

P = make_problem(1, n=200, n_bins=(9, 30), n_outputs=2)
CONFIG, STEP = grow_config(max_leaves=4), leaf_config()
N = P.codes.shape[1]


def make_bins(p=P):
    return core_bins(p.codes, p.n_bins, p.is_categorical, p.sparse_features, 1)


def make_gradients(n=N):
    """Return gradients with one non-zero output per row."""
    every = np.arange(n)
    return _core.SparseGradients(
        np.arange(n + 1), (every % 3).astype(np.int32), (every % 7 - 3.0).astype(np.float32), 3, 1
    )


def verified_search(bins):
    histograms = _core.HistogramSearch(bins, 1)
    return histograms, _core.VerifiedSearch(histograms, 1)


def test_gradients_live_until_the_search_uses_others():
    channels = core_channels(P, 1)
    search = _core.HistogramSearch(make_bins(), 1)
    before = sys.getrefcount(channels)
    search.use(channels)
    assert sys.getrefcount(channels) == before + 1
    search.use(channels)
    assert sys.getrefcount(channels) == before + 1
    search.use(core_channels(P, 1))
    assert sys.getrefcount(channels) == before


def test_search_keeps_gradients_alive():
    bins, weight = make_bins(), np.linspace(0.5, 2.0, N).astype(np.float32)
    _, verified = verified_search(bins)
    exact = _core.ExactSearch(bins, 1)
    found = []
    for _ in range(2):
        verified.use(make_gradients(), weight.copy(), core_channels(P, 1), STEP, 1)
        exact.use(make_gradients(), weight.copy(), None, weight.copy(), STEP, 1, 0.05)
        junk = [make_gradients() for _ in range(20)]  # reuse freed memory
        found.append(
            [_core.Grower(bins, 1).grow(s, CONFIG, None).gain.tolist() for s in (verified, exact)]
        )
        del junk
    assert found[0] == found[1]


def test_reset_releases_gradients_and_weights():
    bins, gradients, weight = make_bins(), make_gradients(), np.ones(N, np.float32)
    _, verified = verified_search(bins)
    exact = _core.ExactSearch(bins, 1)
    before = sys.getrefcount(gradients), sys.getrefcount(weight)
    verified.use(gradients, weight, core_channels(P, 1), STEP, 1)
    exact.use(gradients, weight, None, None, STEP, 1, 0.05)
    assert sys.getrefcount(gradients) == before[0] + 2
    for search in (verified, exact):
        search.reset()
        with pytest.raises(ValueError, match="use"):
            _core.Grower(bins, 1).grow(search, CONFIG, None)
    assert (sys.getrefcount(gradients), sys.getrefcount(weight)) == before


def test_growing_without_gradients_raises():
    bins = make_bins()
    with pytest.raises(ValueError, match="use"):
        _core.Grower(bins, 1).grow(_core.HistogramSearch(bins, 1), CONFIG, None)
    histograms, verified = verified_search(bins)
    verified.use(make_gradients(), None, core_channels(P, 1), STEP, 1)
    histograms.reset()
    with pytest.raises(ValueError, match="use"):
        _core.Grower(bins, 1).grow(verified, CONFIG, None)


def test_search_and_grower_need_the_same_bins():
    search = _core.HistogramSearch(make_bins(), 1)
    search.use(core_channels(P, 1))
    with pytest.raises(ValueError, match="the grower's bins"):
        _core.Grower(make_bins(), 1).grow(search, CONFIG, None)


def test_gradients_need_the_rows_of_the_bins():
    bins, few = make_bins(), make_problem(1, n=N - 1, n_bins=(9, 30), n_outputs=2)
    histograms, verified = verified_search(bins)
    histograms.use(core_channels(few, 1))
    with pytest.raises(ValueError, match="as many rows as the bins"):
        _core.Grower(bins, 1).grow(histograms, CONFIG, None)
    with pytest.raises(ValueError, match="gradients must have as many rows as the bins"):
        verified.use(make_gradients(N - 1), None, core_channels(few, 1), STEP, 1)
    with pytest.raises(ValueError, match="sketch must have as many rows"):
        verified.use(make_gradients(), None, core_channels(few, 1), STEP, 1)


def test_sketch_keeps_its_sample():
    bins, channels = make_bins(), core_channels(P, 1)
    _, verified = verified_search(bins)
    verified.use(make_gradients(), None, channels, STEP, 1)
    channels.quantise(P.g, None, "unit", np.arange(50, dtype=np.uint32), None, 1)
    with pytest.raises(ValueError, match="same row sample"):
        _core.Grower(bins, 1).grow(verified, CONFIG, None)


def test_exact_search_rejects_categorical_features():
    p = make_problem(1, n=50, n_bins=(9, 30), categorical=[1])
    with pytest.raises(ValueError, match="numeric features only"):
        _core.ExactSearch(make_bins(p), 1)


def test_steps_without_begin_raise():
    bins = make_bins()
    grower, other, search = (
        _core.Grower(bins, 1),
        _core.Grower(bins, 1),
        _core.HistogramSearch(bins, 1),
    )
    search.use(core_channels(P, 1))
    for step in (grower.split, grower.evaluate, grower.finish):
        with pytest.raises(ValueError, match="call begin first"):
            step()
    grower.begin(search, CONFIG, None)
    other.begin(search, CONFIG, None)
    with pytest.raises(ValueError, match="begun another tree"):
        grower.split()
    assert other.split()
    other.finish()
    with pytest.raises(ValueError, match="call begin first"):
        other.evaluate()


def test_feature_flags_need_one_per_feature():
    grower = HistogramGrower(make_bins())
    with pytest.raises(ValueError, match="one flag per feature"):
        grower.grow(core_channels(P, 1), CONFIG, np.ones(3, bool))
