"""Linear leaf fitter and bin means equal the reference bit for bit; edge cases of leaves."""

import numpy as np
import pytest
from reference import linear_leaves
from support.core_settings import grow_config, linear_leaf_config
from support.problems import (
    HistogramGrower,
    core_bins,
    core_channels,
    make_problem,
    raw_features,
    sample_rows,
)

from polyleaf import _core

FIELDS = ("indptr", "features", "weights", "centre", "intercept", "lower", "upper")


class Case:
    """A tree with the data that its leaves are fitted to."""

    def __init__(self, problem, draw=0, features=None):
        self.problem = p = problem
        self.features = raw_features(p, draw) if features is None else features
        self.bins = core_bins(p.codes, p.n_bins, p.is_categorical)
        self.table = _core.LinearTable(self.bins, self.features, None, 1)
        grower = HistogramGrower(self.bins)
        config = grow_config(max_leaves=p.config.max_leaves, max_depth=p.config.max_depth)
        self.tree = grower.grow(core_channels(p, 1), config)
        self.leaf_of_row = grower.leaf_of_row.copy()

    def core(self, most=5, n_threads=1, **options):
        p = self.problem
        data = p.g, p.h, self.leaf_of_row, self.tree, self.features, self.table
        step = linear_leaf_config(max_regressors=most, **options)
        return _core.fit_linear_leaves(*data, step, p.rows, p.multiplier, n_threads)

    def reference(self, most=5, **options):
        p = self.problem
        regressors = linear_leaves.path_regressors(self.tree, self.table.scale, most)
        data = (
            p.g,
            p.h,
            self.leaf_of_row,
            self.tree.n_leaves,
            regressors,
            self.features,
            self.table.scale,
        )
        return linear_leaves.linear_leaves(*data, rows=p.rows, multiplier=p.multiplier, **options)


def assert_same_leaves(ours, theirs):
    for name in FIELDS:
        a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        assert a.dtype == b.dtype and a.shape == b.shape, name
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("n_outputs", [1, 2, 9, 17])
@pytest.mark.parametrize("kind", ["unit", "shared", "diagonal"])
def test_leaves_equal_the_reference(kind, n_outputs):
    case = Case(
        make_problem(
            n_outputs, n=400, n_outputs=n_outputs, kind=kind, max_leaves=9, categorical=(3,)
        )
    )
    assert_same_leaves(case.core(), case.reference())
    assert_same_leaves(case.core(most=2, clip=False), case.reference(most=2, clip=False))
    options = dict(reg_lambda=0.0, linear_lambda=0.03, learning_rate=0.1)
    assert_same_leaves(case.core(**options), case.reference(**options))


@pytest.mark.parametrize("kind", ["unit", "shared", "diagonal"])
def test_leaves_equal_the_reference_on_samples_in_blocks(kind):
    case = Case(sample_rows(make_problem(7, n=20_000, n_outputs=2, kind=kind, max_leaves=3)))
    expected = case.core()
    assert_same_leaves(expected, case.reference())
    for n_threads in (2, 3):
        assert_same_leaves(case.core(n_threads=n_threads), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_table_equals_the_reference(weighted):
    p = make_problem(1, n=9000, categorical=(1,))
    features = raw_features(p)
    weight = np.random.default_rng(2).integers(0, 4, 9000).astype(np.float32) if weighted else None
    bins = core_bins(p.codes, p.n_bins, p.is_categorical)
    ours = _core.LinearTable(bins, features, weight, n_threads=2)
    theirs = linear_leaves.linear_table(p.codes, features, p.is_categorical, weight)
    for name in ("centre", "scale", "means"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
