"""Random growth problems, a common interface of core and reference, and brute force."""

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import product

import numpy as np
import reference

KINDS = ("unit", "shared", "diagonal")


@dataclass(frozen=True)
class Problem:
    """All inputs of growing one tree."""

    codes: np.ndarray  # uint8 (F, n)
    n_bins: np.ndarray  # uint16 (F,)
    is_categorical: np.ndarray  # bool (F,)
    g: np.ndarray  # float32 (n, K)
    h: np.ndarray | None  # float32 (n, 1), (n, K) or (n, K (K + 1) / 2); None for the unit kind
    kind: str
    config: reference.GrowConfig = field(default_factory=reference.GrowConfig)
    rows: np.ndarray | None = None  # uint32, ascending
    multiplier: np.ndarray | None = None  # float32 (n,)
    features: np.ndarray | None = None  # bool (F,)
    groups: np.ndarray | None = None  # bool (G, F): each path stays within one group
    at_most: int = 0  # maximum number of features on a path; 0: any number
    directions: np.ndarray | None = None  # int8 (F, K): monotone constraints of outputs by feature
    # features stored sparse by the core; the reference implementation ignores this
    sparse_features: tuple = ()

    def replace_config(self, **changes):
        return replace(self, config=replace(self.config, **changes))

    @property
    def rows_in_use(self):
        return np.arange(self.codes.shape[1]) if self.rows is None else self.rows

    def store_sparse(self, features=None):
        """Return the problem with these features (default: all possible) sparse in the core."""
        can = np.flatnonzero(~self.is_categorical & (self.n_bins > 0)).tolist()
        return replace(self, sparse_features=tuple(can if features is None else features))


def make_problem(
    draw,
    n=200,
    n_bins=(5, 8, 12, 3),
    categorical=(),
    n_outputs=1,
    kind="unit",
    missing=0.1,
    **config,
):
    """Draw random problem number `draw`: signal in the first feature, noise in the others.

    The bins have unequal sizes.
    """
    rng = np.random.default_rng(draw)
    codes = np.stack([np.minimum(rng.geometric(min(1, 3 / b), n) - 1, b - 1) for b in n_bins])
    g = rng.normal(size=(n, n_outputs)) + np.outer(codes[0], rng.normal(size=n_outputs)) / n_bins[0]
    codes = np.where(rng.random(codes.shape) < missing, reference.MISSING, codes).astype(np.uint8)
    width = {"unit": None, "shared": 1, "diagonal": n_outputs, "full": None}[kind]
    h = None if width is None else rng.uniform(0.01, 1, (n, width)).astype(np.float32)
    return Problem(
        codes=codes,
        n_bins=np.array(n_bins, np.uint16),
        is_categorical=np.isin(np.arange(len(n_bins)), categorical),
        g=g.astype(np.float32),
        h=triangles(rng, n, n_outputs) if kind == "full" else h,
        kind=kind,
        config=reference.GrowConfig(**config),
    )


def large_problems():
    """Yield problems with many blocks of rows and several tiles of features."""
    size = {"n": 20_000, "n_bins": (200, 7, 30, 90, 3, 60, 12, 5, 40, 255), "max_leaves": 40}
    for n_outputs, kind in [
        (1, "unit"),
        (1, "diagonal"),
        (3, "shared"),
        (6, "diagonal"),
        (17, "unit"),
    ]:
        yield make_problem(16, **size, categorical=[2, 8], n_outputs=n_outputs, kind=kind)


def sparse_arrays(codes, features):
    """Return codes (F, n) of `features` as compressed columns, in the format of `_core.Bins`.

    The common code of a feature is its most frequent one that is not missing.
    """
    common, begin, rows = [], [0], []
    for f in features:
        values = codes[f][codes[f] != reference.MISSING]
        common.append(np.bincount(values).argmax() if len(values) else 0)
        rows.append(np.flatnonzero(codes[f] != common[-1]))
        begin.append(begin[-1] + len(rows[-1]))
    cells = [codes[f][r] for f, r in zip(features, rows, strict=True)]
    return (
        np.array(features, np.int32),
        np.array(common, np.uint8),
        np.array(begin, np.int64),
        np.concatenate([*rows, np.empty(0)]).astype(np.int32),
        np.concatenate([*cells, np.empty(0)]).astype(np.uint8),
    )


def core_bins(codes, n_bins, is_categorical, sparse_features=(), n_threads=1):
    """Return `_core.Bins` of codes (F, n), with some of the features sparse."""
    from polyleaf import _core

    if not sparse_features:
        return _core.Bins(codes, n_bins, is_categorical, n_threads, None)
    dense = np.delete(codes, sparse_features, axis=0)
    return _core.Bins(
        dense, n_bins, is_categorical, n_threads, sparse_arrays(codes, sparse_features)
    )


def triangles(rng, n, n_outputs, rank=2):
    """Draw positive semi-definite matrices, packed: float32 (n, K (K + 1) / 2)."""
    factors = rng.normal(size=(n, n_outputs, rank))
    full = factors @ factors.transpose(0, 2, 1)
    return np.ascontiguousarray(full[:, *np.tril_indices(n_outputs)], np.float32)


def raw_features(problem, draw=0):
    """Return float32 (F, n): values in the order of the codes, NaN where the code is missing."""
    rng = np.random.default_rng(draw)
    codes = problem.codes
    x = (codes + rng.uniform(0, 1, codes.shape)) * rng.uniform(
        0.1, 30, (len(codes), 1)
    ) + rng.normal(size=(len(codes), 1))
    return np.where(codes == reference.MISSING, np.nan, x).astype(np.float32)


def sample_rows(problem, draw=0, fraction=0.7, multiplied=True):
    """Return the problem on a random sample of its rows, some with a multiplier (as for GOSS)."""
    rng = np.random.default_rng(draw)
    n = problem.codes.shape[1]
    rows = np.flatnonzero(rng.random(n) < fraction)
    multiplier = np.where(rng.random(n) < 0.5, 1, 3.7).astype(np.float32) if multiplied else None
    return replace(problem, rows=rows.astype(np.uint32), multiplier=multiplier)


def draw_factors(problem, draw=0):
    """Return gain factors: some 1, some one half, one nearly 0."""
    n_features = len(problem.n_bins)
    return np.random.default_rng(draw).choice([1.0, 0.5, 0.01], n_features).astype(np.float32)


def tied_problem(codes, g, min_child_samples):
    """Return a problem with a numeric feature of three bins, one output and one split.

    Lambda 0 keeps exact ties exact.
    """
    return Problem(
        codes=np.array([codes], np.uint8),
        n_bins=np.array([3], np.uint16),
        is_categorical=np.zeros(1, bool),
        g=np.array(g, np.float32)[:, None],
        h=None,
        kind="unit",
        config=reference.GrowConfig(
            max_leaves=2, reg_lambda=0.0, min_child_samples=min_child_samples
        ),
    )


# Exact ties between missing right and missing left: (problem, expected threshold, expected
# missing_left).
MISSING_TIES = [
    # Two sides of the same bin: right is first.
    (tied_problem([0, 0, 2, 2, 255], [-1, -1, 1, 1, 0], 1), 0, False),
    # Bin 0 with missing equals bins 0 and 1 without: the smaller bin is first.
    (tied_problem([0, 0, 1, 2, 2, 255], [-4, -4, -1, 3, 3, -1], 3), 0, True),
]


class Reference:
    """NumPy reference implementation."""

    @staticmethod
    def channels(p, n_threads=1):
        c = reference.quantise(p.g, p.h, p.kind, p.rows, p.multiplier)
        return c.dense(), c.gradient_steps, c.hessian_steps

    @staticmethod
    def grow(p, n_threads=1):
        """Return the tree, and the leaf id of every row, in the sample or not."""
        channels = reference.quantise(p.g, p.h, p.kind, p.rows, p.multiplier)
        data = p.codes, p.n_bins, p.is_categorical
        rules = p.groups, p.at_most, p.directions
        tree = reference.grow(*data, channels, p.config, p.rows, p.features, None, *rules)
        return tree, reference.leaf_of_row(tree, p.codes)

    @staticmethod
    def grow_by_layers(layers, n_threads=1):
        """Return the tree whose layers are grown by the derivatives of `layers` in turn."""
        channels = iter(
            [reference.quantise(p.g, p.h, p.kind, p.rows, p.multiplier) for p in layers]
        )
        p = layers[0]
        data = p.codes, p.n_bins, p.is_categorical
        options = p.config, p.rows, p.features, lambda nodes: next(channels)
        tree = reference.grow(*data, next(channels), *options, directions=p.directions)
        return tree, reference.leaf_of_row(tree, p.codes)

    @staticmethod
    def leaves(p, leaf_of_row, n_leaves, learning_rate=1.0, n_threads=1):
        c = p.config
        penalties = c.reg_lambda, c.reg_alpha, c.max_delta_step
        return reference.fit_newton_leaves(
            p.g,
            p.h,
            leaf_of_row,
            n_leaves,
            *penalties,
            learning_rate,
            p.rows,
            p.multiplier,
            c.block_size,
        )


class Core:
    """C++ core, imported on use, because tests of the reference implementation do not need it."""

    @staticmethod
    def channels(p, n_threads=1):
        channels = core_channels(p, n_threads)
        return (
            channels.dense(),
            np.asarray(channels.gradient_steps),
            np.asarray(channels.hessian_steps),
        )

    @staticmethod
    def grower(p, n_threads=1):
        return HistogramGrower(
            core_bins(p.codes, p.n_bins, p.is_categorical, p.sparse_features, n_threads), n_threads
        )

    @staticmethod
    def grow(p, n_threads=1, grower=None, **only_core):
        from support.core_settings import grow_config

        grower = grower or Core.grower(p, n_threads)
        config = grow_config(p.config, **only_core)
        grower.grower.set_interaction_constraints(p.groups, p.at_most)
        grower.search.set_monotone_constraints(p.directions)
        tree = grower.grow(core_channels(p, n_threads), config, p.features)
        return as_reference_tree(tree), np.array(grower.leaf_of_row)

    @staticmethod
    def grow_by_layers(layers, n_threads=1):
        from support.core_settings import grow_config

        p, both = layers[0], Core.grower(layers[0], n_threads)
        grower, search = both.grower, both.search
        channels = iter([core_channels(p, n_threads) for p in layers])
        search.set_monotone_constraints(p.directions)
        search.use(next(channels))
        grower.begin(search, grow_config(p.config), p.features)
        while grower.split() and grower.can_split_further:
            search.use(next(channels))
            grower.evaluate()
        return as_reference_tree(grower.finish()), np.array(grower.leaf_of_row)

    @staticmethod
    def leaves(p, leaf_of_row, n_leaves, learning_rate=1.0, n_threads=1):
        from polyleaf import _core
        from support.core_settings import make_leaf_config

        step = make_leaf_config(p.config, learning_rate)
        return _core.fit_newton_leaves(
            p.g, p.h, leaf_of_row, n_leaves, step, p.rows, p.multiplier, n_threads
        )


class HistogramGrower:
    """Grower of the core with a histogram search, whose memory is reused between trees."""

    def __init__(self, bins, n_threads=1):
        from polyleaf import _core

        self.grower, self.search = (
            _core.Grower(bins, n_threads),
            _core.HistogramSearch(bins, n_threads),
        )

    def grow(self, channels, config, features=None):
        self.search.use(channels)
        return self.grower.grow(self.search, config, features)

    @property
    def leaf_of_row(self):
        return self.grower.leaf_of_row


def core_channels(p, n_threads):
    from polyleaf import _core

    return _core.QuantisedGradients(p.g, p.h, p.kind, p.rows, p.multiplier, n_threads)


def as_reference_tree(tree):
    """Copy a core tree's arrays to a `reference.Tree`."""
    return reference.Tree(
        **{f.name: np.array(getattr(tree, f.name)) for f in fields(reference.Tree)}
    )


def assert_same_tree(a, b, ignore=()):
    """Check that all arrays are equal, including their types."""
    for f in fields(reference.Tree):
        if f.name not in ignore:
            x, y = getattr(a, f.name), getattr(b, f.name)
            assert x.dtype == y.dtype, f.name
            np.testing.assert_array_equal(x, y, err_msg=f.name)


STRUCTURE = "feature threshold missing_left left right leaf category_set categories count".split()


def assert_same_structure(a, b, ignore=()):
    """Check that splits and counts are equal, and gains up to rounding."""
    for name in STRUCTURE:
        if name not in ignore:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_allclose(a.gain, b.gain, rtol=2e-4)


def run_boosting(implementation, data, y, derivatives, kind, config, **options):
    """Run `reference.boost` with the trees and leaves of one of the two implementations."""

    def fit_tree(codes, n_bins, is_categorical, g, h, kind, config, learning_rate):
        h_structure = None if kind == "unit" else h
        structure = Problem(codes, n_bins, is_categorical, g, h_structure, kind, config)
        tree, leaf_of_row = implementation.grow(structure)
        leaves = implementation.leaves(
            replace(structure, h=h), leaf_of_row, tree.n_leaves, learning_rate
        )
        return tree, leaf_of_row, leaves

    return reference.boost(data, y, derivatives, kind, config, fit_tree=fit_tree, **options)


def exact_gain(p, channels, goes_left, rows=None):
    """Return the gain of a split of `rows` as an exact fraction of quantised sums.

    Unit or shared Hessian, ridge only.
    """
    rows = np.arange(len(goes_left)) if rows is None else rows

    def score(rows):
        H = Fraction(len(rows))
        if p.kind == "shared":
            H = Fraction(float(channels.hessian_steps[0])) * int(channels.hessians[rows, 0].sum())
        sums = channels.gradients[rows].sum(axis=0)
        G = [
            Fraction(float(s)) * int(q) for s, q in zip(channels.gradient_steps, sums, strict=True)
        ]
        return sum(x * x for x in G) / (H + Fraction(p.config.reg_lambda))

    both = score(rows[goes_left]) + score(rows[~goes_left]) - score(rows)
    return both / 2 / len(channels.gradient_steps)


def all_numeric_splits(p, rows):
    """Yield every (feature, threshold, missing_left, goes_left) with two non-empty sides."""
    codes = p.codes[:, rows]
    for f, n_bins in enumerate(p.n_bins):
        for threshold, missing_left in product(range(n_bins), (False, True)):
            goes_left = np.where(codes[f] == reference.MISSING, missing_left, codes[f] <= threshold)
            if goes_left.any() and not goes_left.all():
                yield f, threshold, missing_left, goes_left


def rows_of_nodes(tree, codes):
    """Return for each node the columns of `codes` (F, n) that pass through it."""
    rows = [np.arange(codes.shape[1])] + [None] * (tree.n_nodes - 1)
    for i in np.flatnonzero(tree.feature >= 0):
        left = reference.goes_left_table(tree, i)[codes[tree.feature[i], rows[i]]]
        rows[tree.left[i]], rows[tree.right[i]] = rows[i][left], rows[i][~left]
    return rows
