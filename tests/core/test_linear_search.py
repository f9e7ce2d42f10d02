"""Splits that anticipate linear leaves: the core's trees equal the reference's, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.linear_leaves import linear_table
from reference.linear_split_search import LinearConfig, LinearSearch
from support.core_settings import grow_config, linear_config
from support.problems import (
    HistogramGrower,
    as_reference_tree,
    core_bins,
    make_problem,
    raw_features,
    sample_rows,
)

from polyleaf import _core


def grow_in_core(p, features, linear, n_threads=1):
    bins = core_bins(p.codes, p.n_bins, p.is_categorical, n_threads=n_threads)
    table = _core.LinearTable(bins, features, None, n_threads)
    channels = _core.LinearGradients(table, linear_config(linear))
    channels.quantise(p.g, p.h, p.kind, p.rows, p.multiplier, n_threads)
    grower = HistogramGrower(bins, n_threads)
    tree = grower.grow(channels, grow_config(p.config), p.features)
    return as_reference_tree(tree), np.array(grower.leaf_of_row)


def grow_reference(p, features, linear):
    table = linear_table(p.codes, features, p.is_categorical)
    data = p.codes, p.n_bins, p.is_categorical
    search = LinearSearch(data, p.g, p.h, p.kind, table, p.config, linear, p.rows, p.multiplier)
    tree = reference.grow(*data, search, p.config, p.rows, p.features)
    return tree, reference.leaf_of_row(tree, p.codes)


HALF_ADDITIVE = LinearConfig()


def assert_same_growth(ours, theirs):
    for name, value in vars(theirs[0]).items():
        np.testing.assert_array_equal(getattr(ours[0], name), value, err_msg=name)
    np.testing.assert_array_equal(ours[1], theirs[1])


def assert_same(p, linear=HALF_ADDITIVE, draw=0):
    features = raw_features(p, draw)
    ours = grow_in_core(p, features, linear)
    assert_same_growth(ours, grow_reference(p, features, linear))
    return ours[0]


MIXED = {"n": 600, "categorical": (3,), "max_leaves": 9}


@pytest.mark.parametrize("n_outputs", [1, 2, 7, 8, 9, 16, 20])
@pytest.mark.parametrize("kind", ["unit", "shared", "diagonal"])
def test_half_additive_trees_equal_the_reference(kind, n_outputs):
    kind = kind if n_outputs > 1 or kind == "unit" else "shared"
    bins = (40, 8, 30, 6)
    p = make_problem(n_outputs, n_outputs=n_outputs, kind=kind, n_bins=bins, **MIXED)
    assert assert_same(p).n_leaves == 9


@pytest.mark.parametrize("n_outputs", [1, 9])
@pytest.mark.parametrize("fit", ["half_additive", "full"])
def test_gain_factors(fit, n_outputs):
    p = make_problem(6, n_outputs=n_outputs, kind="unit", n_bins=(40, 8, 30, 20), **MIXED)
    factors = np.array([1, 0.1, 0.05, 1], np.float32)
    tree = assert_same(p.replace_config(factors=factors), LinearConfig(fit, 2))
    plain = assert_same(p, LinearConfig(fit, 2))
    assert tree.n_leaves == 9 and not np.array_equal(tree.feature, plain.feature)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("kind", ["unit", "shared"])
def test_fully_corrective_trees_equal_the_reference(kind, n_outputs):
    p = make_problem(3, n=600, n_outputs=n_outputs, kind=kind, max_leaves=9, n_bins=(40, 8, 30, 6))
    for d in (0, 1, 3):
        assert assert_same(p, LinearConfig("full", d)).n_leaves == 9


@pytest.mark.parametrize(("n_outputs", "kind"), [(1, "shared"), (4, "shared"), (4, "diagonal")])
def test_small_nodes_samples_and_limits(n_outputs, kind):
    p = make_problem(5, n=900, n_outputs=n_outputs, kind=kind, max_leaves=40, n_bins=(200, 60, 9))
    p = sample_rows(replace(p, config=replace(p.config, min_child_samples=3, min_child_weight=0.9)))
    assert_same(p)
    assert_same(replace(p, features=np.array([True, False, True])))
    assert_same(replace(p, config=replace(p.config, max_depth=3, reg_lambda=0.0, max_leaves=8)))
    assert_same(p, LinearConfig(max_regressors=1, linear_lambda=0.0))


@pytest.mark.parametrize(
    ("n_outputs", "kind"), [(1, "shared"), (1, "unit"), (5, "unit"), (5, "diagonal")]
)
def test_trees_are_independent_of_the_number_of_threads(n_outputs, kind):
    p = make_problem(8, n=30_000, n_outputs=n_outputs, kind=kind, max_leaves=20, n_bins=(250,) * 9)
    features = raw_features(p)
    expected = grow_in_core(p, features, LinearConfig())
    for n_threads in (2, 3):
        assert_same_growth(grow_in_core(p, features, LinearConfig(), n_threads), expected)


@given(
    draw=st.integers(0, 10_000),
    n=st.integers(2, 120),
    n_outputs=st.sampled_from([1, 2, 3, 10]),
    kind=st.sampled_from(["unit", "shared", "diagonal"]),
    fit=st.sampled_from(["half_additive", "full"]),
    d=st.integers(0, 4),
    linear_lambda=st.sampled_from([0.0, 0.01, 1.0, 100.0]),
    categorical=st.booleans(),
    scale=st.sampled_from([1e-20, 1.0, 1e15]),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_random_trees_equal_the_reference(
    draw, n, n_outputs, kind, fit, d, linear_lambda, categorical, scale
):
    if kind == "diagonal" and (n_outputs == 1 or fit == "full"):
        kind = "shared"
    options = dict(min_child_samples=1, max_leaves=12, reg_lambda=0.3)
    options["categorical"] = (3,) if categorical else ()
    p = make_problem(draw, n=n, n_outputs=n_outputs, kind=kind, **options)
    p = replace(p, g=(p.g * scale).astype(np.float32))
    assert_same(p, LinearConfig(fit, d, linear_lambda), draw)


@pytest.mark.parametrize("quantises_nodes", [False, True])
@pytest.mark.parametrize(
    ("n_outputs", "kind"), [(1, "unit"), (1, "shared"), (4, "diagonal"), (37, "diagonal")]
)
def test_sums_over_known_trees_are_the_covers_of_their_growth(n_outputs, kind, quantises_nodes):
    p = sample_rows(make_problem(5, n=900, n_outputs=n_outputs, kind=kind, max_leaves=20))
    bins = core_bins(p.codes, p.n_bins, p.is_categorical)
    grower = HistogramGrower(bins, 1)
    channels = _core.QuantisedGradients()
    if quantises_nodes:
        table = _core.LinearTable(bins, raw_features(p), None, 1)
        channels = _core.LinearGradients(table, linear_config(HALF_ADDITIVE))
    channels.quantise(p.g, p.h, p.kind, p.rows, p.multiplier, 1)
    tree = grower.grow(channels, grow_config(p.config), p.features)
    for n_threads in (1, 3):
        sums = _core.NodeSums(tree, grower.leaf_of_row, p.rows, p.multiplier, n_threads)
        np.testing.assert_array_equal(sums.counts, tree.count)
        cover = sums.hessians(p.h, quantises_nodes, n_threads)
        np.testing.assert_array_equal(cover, tree.cover)
