"""Sampling: exact sizes, determinism, uniformity, and GOSS as in its paper."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyleaf import PolyleafRegressor
from polyleaf.training.sampling import Sampler, sample_features, sample_rows


def config(**changes):
    values = dict(
        subsample=1.0,
        rows_per_layer=None,
        sampling_method="uniform",
        top_rate=0.2,
        other_rate=0.1,
        colsample_bytree=1.0,
        seed=7,
    )
    return SimpleNamespace(**{**values, **changes})


def gradients(n, outputs=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, outputs)).astype(np.float32)


def test_all_rows_and_features_are_used_by_default():
    assert sample_rows(config(), gradients(10), 0) == (None, None)
    assert sample_features(config(), np.ones(5, bool), 0) is None


def test_gradients_are_computed_only_for_goss():
    asked = []

    def draw_rows():
        asked.append(1)
        return gradients(50)

    for method, times in (("uniform", 0), ("goss", 1)):
        own, informative = config(sampling_method=method, subsample=0.5), np.ones(3, bool)
        draw = Sampler(own, informative, 50, None, False).draw(draw_rows, 4)
        rows, multiplier = sample_rows(own, gradients(50), 4)
        np.testing.assert_array_equal(draw.rows, rows)
        np.testing.assert_array_equal(draw.multiplier, multiplier)
        assert len(asked) == times


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 500),
    percent=st.integers(1, 99),
    round=st.integers(0, 10_000),
    seed=st.integers(0, 2**40),
)
def test_uniform_sample_has_the_exact_size(n, percent, round, seed):
    rows, multiplier = sample_rows(
        config(subsample=percent / 100, seed=seed), gradients(n, 1), round
    )
    assert multiplier is None
    assert rows.dtype == np.uint32
    assert len(rows) == max(1, -(-percent * n // 100))
    assert np.all(np.diff(rows.astype(np.int64)) > 0)
    assert rows[-1] < n


def test_samples_depend_on_seed_and_round_only():
    g = gradients(1000)
    first, _ = sample_rows(config(subsample=0.5), g, 3)
    again, _ = sample_rows(config(subsample=0.5), gradients(1000, seed=1), 3)
    np.testing.assert_array_equal(first, again)
    other_round, _ = sample_rows(config(subsample=0.5), g, 4)
    other_seed, _ = sample_rows(config(subsample=0.5, seed=8), g, 3)
    assert not np.array_equal(first, other_round)
    assert not np.array_equal(first, other_seed)


def test_samples_are_stable_between_versions():
    """Models trained with a seed must stay reproducible: the hash may not change."""
    rows, _ = sample_rows(config(subsample=0.3, seed=0), gradients(20), 0)
    np.testing.assert_array_equal(rows, [0, 4, 11, 13, 14, 17])


def test_uniform_samples_are_uniform():
    n, rounds = 50, 4000
    hits, together = np.zeros(n), 0
    for round in range(rounds):
        rows, _ = sample_rows(config(subsample=0.2), gradients(n, 1), round)
        hits[rows] += 1
        together += {0, 1} <= set(rows.tolist())
    # Binomial(4000, 0.2) has standard deviation 25; two rows are drawn together with probability
    # 10*9/(50*49).
    assert np.all(np.abs(hits - 0.2 * rounds) < 5 * 25.3)
    assert abs(together - rounds * 90 / 2450) < 5 * np.sqrt(rounds * 0.0367)


def test_sampling_from_usable_rows_only():
    usable = np.arange(0, 100, 3, dtype=np.uint32)
    rows, _ = sample_rows(config(), gradients(100), 0, usable)
    np.testing.assert_array_equal(rows, usable)
    rows, _ = sample_rows(config(subsample=0.5), gradients(100), 0, usable)
    assert len(rows) == 17 and set(rows) <= set(usable)
    rows, multiplier = sample_rows(config(sampling_method="goss"), gradients(100), 0, usable)
    assert set(rows) <= set(usable)
    assert set(np.flatnonzero(multiplier != 1)) <= set(usable.tolist())


def test_goss_keeps_the_largest_gradients_and_reweights_the_rest():
    g = gradients(1000)
    rows, multiplier = sample_rows(config(sampling_method="goss"), g, 0)
    assert len(rows) == 300
    assert multiplier.dtype == np.float32 and multiplier.shape == (1000,)
    top = set(np.argsort(-(g.astype(np.float64) ** 2).sum(1), kind="stable")[:200])
    assert top <= set(rows.tolist())
    other = np.array(sorted(set(rows.tolist()) - top))
    np.testing.assert_array_equal(multiplier[other], np.float32(8.0))  # (1 - 0.2) / 0.1
    assert np.all(multiplier[list(top)] == 1)


def test_goss_sums_are_unbiased():
    g = gradients(2000, 2) + 0.5
    sums = []
    for round in range(200):
        rows, multiplier = sample_rows(config(sampling_method="goss"), g, round)
        sums.append((g[rows] * multiplier[rows, None]).sum(0))
    standard_error = np.std(sums, axis=0) / np.sqrt(200)
    assert np.all(np.abs(np.mean(sums, axis=0) - g.sum(0)) < 5 * standard_error)


def test_goss_with_equal_gradients_keeps_the_exact_size():
    rows, _ = sample_rows(config(sampling_method="goss"), np.ones((100, 1), np.float32), 0)
    assert len(rows) == 30


def test_goss_that_keeps_all_rows_equals_no_sampling():
    assert sample_rows(
        config(sampling_method="goss", top_rate=0.5, other_rate=0.5), gradients(9), 0
    ) == (None, None)


@pytest.mark.parametrize("outputs", [1, 2, 3, 7, 16, 33])
def test_goss_norm_is_over_all_outputs(outputs):
    g = np.full((40, outputs), 0.01, np.float32)
    g[np.arange(40) % 5 == 0, outputs - 1] = 9.0
    rows, _ = sample_rows(config(sampling_method="goss"), g, 0)
    assert set(range(0, 40, 5)) <= set(rows.tolist())


def test_features_per_tree():
    masks = [
        sample_features(config(colsample_bytree=0.3), np.ones(10, bool), round)
        for round in range(50)
    ]
    assert all(mask.dtype == bool and mask.sum() == 3 for mask in masks)
    assert len({mask.tobytes() for mask in masks}) > 20
    assert sample_features(config(colsample_bytree=0.01), np.ones(10, bool), 0).sum() == 1


def test_constant_features_are_not_drawn():
    informative = np.arange(10) % 2 == 0
    assert np.array_equal(sample_features(config(), informative, 0), informative)
    masks = [
        sample_features(config(colsample_bytree=0.5), informative, round) for round in range(20)
    ]
    assert all(mask.sum() == 3 and not mask[~informative].any() for mask in masks)


def test_rows_and_features_are_drawn_independently():
    rows, _ = sample_rows(config(subsample=0.5), gradients(100), 0)
    features = np.flatnonzero(sample_features(config(colsample_bytree=0.5), np.ones(100, bool), 0))
    assert not np.array_equal(rows, features)


def test_samples_of_layers_are_nested():
    c = config(rows_per_layer=[0.1, 50, 1.0])
    layers = [sample_rows(c, gradients(200), 4, None, layer)[0] for layer in range(4)]
    assert [None if rows is None else len(rows) for rows in layers] == [20, 50, None, None]
    assert np.isin(layers[0], layers[1]).all()


# --- statistics of sampled rows ---


def share_below(objective, n=3000, **parameters):
    """Return the shares of rows below the predictions of noise, by weight."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.standard_normal((n, 4)), rng.standard_normal(n), rng.choice([0.9, 1.0], n)
    options = {"sampling_method": "goss", "n_estimators": 60, "random_state": 0, "n_jobs": 1}
    model = PolyleafRegressor(objective=objective, **options, **parameters)
    model.fit(X, y, sample_weight=weight)
    below = y[:, None] <= model.predict(X).reshape(n, -1)
    return (weight[:, None] * below).sum(axis=0) / weight.sum()


@pytest.mark.parametrize("more", [{}, {"monotone_constraints": [1, 0, 0, 0]}])
def test_quantiles_of_goss_samples_have_their_level(more):
    levels = [0.3, 0.5, 0.7]
    share = share_below("quantile", quantile_alpha=levels, calibrate_quantiles=False, **more)
    assert np.all(abs(share - levels) < 0.1)


def test_rows_of_zero_weight_do_not_count_as_cancelled_gradients():
    X, y = np.arange(20.0)[:, None], np.arange(20.0)
    parameters = {"n_estimators": 400, "min_child_samples": 15, "base_score": 3.0, "n_jobs": 1}
    plain = PolyleafRegressor(**parameters).fit(X, y)
    more = np.repeat([1.0, 0.0], [20, 20_000])
    padded = PolyleafRegressor(**parameters).fit(
        np.resize(X, (20_020, 1)), np.resize(y, 20_020), sample_weight=more
    )
    assert 50 < plain.n_iter_ == padded.n_iter_ < 400
