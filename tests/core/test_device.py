"""The GPU equals the CPU and the reference implementation exactly.

Channels, trees, leaf values and derivatives are compared. Kernels and the driver that launches them
are compiled for the CPU.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import reference
from support.core_settings import grow_config
from support.host_device import COMPILER, DeviceCore, device, library, send
from support.loss_inputs import ELEMENTWISE, draw_raw, draw_target, elementwise, run
from support.monotone_problems import (
    INVALID_DIRECTIONS,
    MISSING_VALUES,
    add_directions,
    split_off_missing_values,
)
from support.problems import (
    KINDS,
    MISSING_TIES,
    Core,
    Reference,
    assert_same_tree,
    core_bins,
    draw_factors,
    make_problem,
    sample_rows,
)

from polyleaf import RowData, _core
from polyleaf.objectives import get_objective

pytestmark = [pytest.mark.full, pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")]


def assert_device_equals_reference(p, **only_core):
    """Compare channels, tree, leaf IDs and leaf values with the reference; return the tree."""
    on_device = DeviceCore(p)
    np.testing.assert_array_equal(on_device.dense(), Reference.channels(p)[0])
    tree, leaf_of_row = on_device.grow(**only_core)
    expected, reference_leaves = Reference.grow(p)
    assert_same_tree(tree, expected)
    np.testing.assert_array_equal(leaf_of_row, reference_leaves)
    values = on_device.values(expected.n_leaves, 0.3)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(
        values, Reference.leaves(p, reference_leaves, expected.n_leaves, 0.3)
    )
    return expected


# Every Hessian of some numbers of outputs; that of one output is shared.
HESSIANS = [
    {"kind": kind, "n_outputs": n_outputs}
    for kind, n_outputs in product(KINDS, (1, 3, 16, 17))
    if (kind, n_outputs) != ("diagonal", 1)
]
MIXED = {"n_bins": (9, 30, 5, 7), "categorical": [2]}
CATEGORIES = {"draw": 5, "n_bins": (5, 8, 12, 3), "categorical": (1, 2, 3)}
PENALTIES = [
    {"reg_lambda": 0.0},
    {"reg_alpha": 1.5, "max_delta_step": 0.2},
    {"min_child_weight": 9.3},
    {"min_child_samples": 20},
    {"post_prune": True, "reg_lambda": 20.0},
]
GROWTH = [
    {"level_wise": True, "max_depth": 4, "max_leaves": 9},
    {"max_depth": 3, "max_leaves": 2**20},
    {"colsample_bynode": 0.5, "seed": 7},
    {"post_prune": True, "min_split_gain": 0.5},
    {"min_split_gain": 1e6},
]
WIDE = {"draw": 6, "n_bins": (5, 8, 12, 3, 40, 6), "max_leaves": 12}
PROBLEMS = [
    *({"draw": 1, "n": 150, "min_child_samples": 3, **hessian} for hessian in HESSIANS),
    {"draw": 40, "n": 150, "n_outputs": 40, "kind": "diagonal"},
    *(
        {"draw": 3, "n": 150, "n_outputs": 3, "kind": kind, **penalties}
        for kind, penalties in product(KINDS, PENALTIES)
    ),
    *({**CATEGORIES, **hessian} for hessian in HESSIANS),
    *({**CATEGORIES, **hessian, "max_cat_to_onehot": 99} for hessian in HESSIANS),
    {"draw": 15, "n": 300, "n_bins": (5, 40, 12, 3), "categorical": (1, 2), "n_outputs": 2},
    *({**WIDE, "n_outputs": 2, **growth} for growth in GROWTH),
    *(
        {"draw": 3, **MIXED, "n_outputs": n_outputs, "kind": "full", "block_size": block_size}
        for n_outputs, block_size in ((1, 0), (2, 0), (2, 1), (5, 0), (5, 3), (7, 9), (17, 4))
    ),
    *(
        {"draw": 8, "n_outputs": 4, "kind": "full", "missing": 0.5, "block_size": size, **penalties}
        for size, penalties in product((0, 2), PENALTIES)
        if "reg_alpha" not in penalties
    ),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_trees_equal_the_reference(problem):
    p = make_problem(**{"max_leaves": 8} | problem)
    tree = assert_device_equals_reference(p)
    assert tree.n_leaves > 1 or problem.get("min_split_gain", 0) > 1
    assert (tree.category_set >= 0).any() or len(problem.get("categorical", ())) < 2
    assert_device_equals_reference(sample_rows(p, multiplied=p.kind != "unit"))


def test_column_sampling_and_interaction_constraints():
    p = make_problem(7, n=200, n_bins=(5, 8, 12, 3), max_leaves=8)
    assert_device_equals_reference(replace(p, features=np.array([False, True, True, True])))
    assert_device_equals_reference(replace(p, at_most=1))


def test_histogram_memory_does_not_change_trees():
    p = make_problem(8, n=400, n_bins=(5, 8, 12, 3), n_outputs=2, max_leaves=24)
    expected = assert_device_equals_reference(p, histogram_memory=1)
    assert expected.n_leaves == 24
    assert_device_equals_reference(p.replace_config(level_wise=True), histogram_memory=1)


@pytest.mark.parametrize(("p", "threshold", "missing_left"), MISSING_TIES)
def test_first_candidate_wins_ties(p, threshold, missing_left):
    expected = assert_device_equals_reference(p)
    assert (expected.threshold[0], expected.missing_left[0]) == (threshold, missing_left)


# --- sparse leaves ---


def assert_topk_equals_reference(p):
    """Compare the tree, the sparse leaves and the raw scores with the reference."""
    on_device = DeviceCore(p)
    tree, leaf_of_row = on_device.grow()
    expected, reference_leaves = Reference.grow(p)
    assert_same_tree(tree, expected)
    mine = on_device.topk(0.3)
    its = reference.fit_topk_leaves(
        p.g, p.h, reference_leaves, expected, p.config, 0.3, p.rows, p.multiplier
    )
    for name in ("indptr", "outputs", "values"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(its, name), err_msg=name)
    raw = np.random.default_rng(0).normal(size=p.g.shape).astype(np.float32)
    there = send(raw)
    on_device.leaves.add(there, on_device.grower, mine, -1)
    _core.add_leaf_values(raw, leaf_of_row, mine, None, 1, None)
    np.testing.assert_array_equal(there.read(), raw)
    return expected


@pytest.mark.parametrize("shared_support", [False, True])
@pytest.mark.parametrize(
    "problem",
    [
        *(
            {"draw": 3, **MIXED, "n_outputs": n_outputs, "leaf_k": leaf_k, "kind": kind}
            for n_outputs, leaf_k in ((2, 1), (5, 4), (16, 3), (17, 16), (33, 12))
            for kind in KINDS
        ),
        *(
            {"draw": 8, "n_outputs": 6, "kind": "diagonal", "missing": 0.5, "leaf_k": 2} | penalties
            for penalties in PENALTIES
        ),
    ],
    ids=str,
)
def test_sparse_leaves(problem, shared_support):
    p = make_problem(**{"max_leaves": 8} | problem, shared_support=shared_support)
    assert assert_topk_equals_reference(p).n_leaves > 1
    assert_topk_equals_reference(sample_rows(p, multiplied=p.kind != "unit"))


@pytest.mark.parametrize("shared_support", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_leaves_with_extreme_gradients(kind, shared_support):
    p = make_problem(8, n=100, n_outputs=4, kind=kind, reg_lambda=0.0, leaf_k=2)
    p = p.replace_config(shared_support=shared_support)
    h = None if p.h is None else np.where(p.codes[0][:, None] < 2, np.float32(0), p.h)
    assert_topk_equals_reference(replace(p, g=p.g * np.array([0, 1e-36, 1e17, 1], np.float32), h=h))
    # The squares overflow float32.
    assert_topk_equals_reference(replace(p, g=p.g * np.float32(1e30)))


def test_gain_overflow_excludes_a_candidate():
    """Infinite gains exclude a candidate even if the outputs kept in leaves are finite."""
    p = make_problem(8, n=100, n_outputs=33, kind="diagonal", leaf_k=1, reg_lambda=0.0)
    p = replace(p, h=p.h * np.float32(1e-3))
    assert assert_topk_equals_reference(replace(p, g=p.g * np.float32(10**16.5))).n_leaves > 1
    assert assert_topk_equals_reference(replace(p, g=p.g * np.float32(10**16.75))).n_leaves == 1


def test_empty_sparse_leaves_and_linear_leaves():
    p = make_problem(1, n=60, n_outputs=3, leaf_k=1)
    on_device = DeviceCore(p)
    n_leaves, raw = on_device.grow()[0].n_leaves, np.ones((60, 3), np.float32)
    empty = _core.TopkLeaves(
        np.zeros(n_leaves + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 3
    )
    there = send(raw)
    on_device.leaves.add(there, on_device.grower, empty, -1)
    np.testing.assert_array_equal(there.read(), raw)
    zeros = np.zeros((n_leaves, 3), np.float32)
    no_features = (
        np.zeros(n_leaves + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros((0, 3), np.float32),
    )
    linear = _core.LinearLeaves(*no_features, np.zeros(0, np.float32), zeros, zeros, zeros)
    with pytest.raises(ValueError, match="read no features"):
        on_device.leaves.add(there, on_device.grower, linear, -1)


# --- full Hessian ---


def test_min_child_weight_with_full_hessian_and_many_outputs():
    p = make_problem(8, n=120, n_bins=(9, 5), n_outputs=18, kind="full", min_child_weight=12.0)
    free = assert_device_equals_reference(
        p.replace_config(min_child_weight=0.0, max_leaves=4, min_child_samples=2)
    )
    held = assert_device_equals_reference(
        p.replace_config(min_child_weight=float(free.cover[1:].min()) * 1.01, max_leaves=4)
    )
    assert held.count[1:].tolist() != free.count[1:].tolist()


def test_singular_full_hessian():
    """Zero pivots are skipped: equal changes of all scores, and outputs with zero Hessian."""
    p = make_problem(5, n=200, n_outputs=3, kind="full", reg_lambda=0.0)
    share = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    hessians = np.einsum("ni,ij->nij", share, np.eye(3)) - np.einsum("ni,nj->nij", share, share)
    rows, columns = np.tril_indices(3)
    p = replace(p, h=np.ascontiguousarray(hessians[:, rows, columns], np.float32))
    assert assert_device_equals_reference(p).n_leaves > 5
    assert_device_equals_reference(replace(p, h=p.h * np.float32(0)))


# --- feature penalties ---


@pytest.mark.parametrize(
    "options", [{}, {"post_prune": True}, {"leaf_k": 1}, {"reg_alpha": 0.4}], ids=str
)
@pytest.mark.parametrize("hessian", [*HESSIANS, {"kind": "full", "n_outputs": 4}], ids=str)
def test_gain_factors(hessian, options):
    if hessian["kind"] == "full" and options.keys() & {"leaf_k", "reg_alpha"}:
        pytest.skip("a full Hessian has no such leaves")
    p = make_problem(18, n_bins=(25, 30, 90, 6, 9), categorical=[0], max_leaves=8, **hessian)
    p = p.replace_config(**options)
    assert_equal = (
        assert_topk_equals_reference if "leaf_k" in options else assert_device_equals_reference
    )
    tree = assert_equal(p.replace_config(factors=draw_factors(p)))
    assert tree.n_leaves > 2
    assert not np.array_equal(tree.feature, Reference.grow(p)[0].feature)


def test_gain_factors_with_float32_overflow():
    p = make_problem(8, n=100, n_bins=(9, 30, 5), n_outputs=4, kind="diagonal", reg_lambda=0.0)
    p = p.replace_config(factors=np.array([0.5, 1, 0.01], np.float32), max_leaves=6)
    for size in (1e17, 1e19, 1e30):
        assert_device_equals_reference(replace(p, g=p.g * np.float32(size)))


# --- monotone constraints ---


@pytest.mark.parametrize(
    "problem",
    [
        {"draw": 22, **MIXED, **hessian, **penalties}
        for hessian, penalties in product(
            HESSIANS, ({}, PENALTIES[1], {"min_child_weight": 9.3, "reg_lambda": 0.0})
        )
    ]
    + [
        {**WIDE, "n_outputs": 5, "kind": "diagonal", **growth}
        for growth in (GROWTH[0], GROWTH[2], GROWTH[3], {"min_child_samples": 25})
    ],
    ids=str,
)
def test_monotone_constraints(problem):
    p = make_problem(**{"n": 250, "max_leaves": 10} | problem)
    tree = assert_device_equals_reference(add_directions(p), histogram_memory=1)
    assert not np.array_equal(tree.gain, Reference.grow(p)[0].gain)
    assert_device_equals_reference(add_directions(sample_rows(p, multiplied=p.kind != "unit")))
    assert_device_equals_reference(add_directions(p.replace_config(factors=draw_factors(p))))


@pytest.mark.parametrize(
    "hessian", [each for each in HESSIANS if each["kind"] != "shared"], ids=str
)
def test_monotone_constraints_with_missing_values(hessian):
    """A split of missing from present values is monotone: one side has no values."""
    p = split_off_missing_values(make_problem(23, n=250, max_leaves=8, **MISSING_VALUES, **hessian))
    tree = assert_device_equals_reference(p)
    assert ((tree.feature == 1) & (tree.threshold == 29) & ~tree.missing_left)[0]


def test_bounds_are_passed_to_descendants(monkeypatch):
    p = add_directions(make_problem(27, n=300, n_bins=(9, 30, 5, 7), n_outputs=17, kind="diagonal"))
    tree = assert_device_equals_reference(p.replace_config(max_leaves=16))
    monkeypatch.setattr(
        reference.output_bounds.OutputBounds, "child_bounds", lambda self, *_: (self, self)
    )
    assert not np.array_equal(tree.gain, Reference.grow(p.replace_config(max_leaves=16))[0].gain)


def test_monotone_constraints_can_be_removed():
    p = make_problem(26, n=300, n_bins=(8,) * 5, max_leaves=10)
    on_device = DeviceCore(p)
    search = _core.DeviceSearch(on_device.bins, 1)
    search.use(on_device.channels)
    gains = []
    for directions in (add_directions(p).directions, None):
        search.set_monotone_constraints(directions)
        gains.append(
            np.array(on_device.grower.grow(search, grow_config(p.config), p.features).gain)
        )
    np.testing.assert_array_equal(gains[1], Reference.grow(p)[0].gain)
    assert not np.array_equal(*gains)


@pytest.mark.parametrize(("directions", "more", "sentence"), INVALID_DIRECTIONS)
def test_invalid_monotone_constraints_raise(directions, more, sentence):
    p = make_problem(1, n=50, n_outputs=2, **more)
    with pytest.raises(ValueError, match=sentence):
        DeviceCore(replace(p, directions=directions)).grow()


@pytest.mark.parametrize("kind", KINDS)
def test_leaf_hessian(kind):
    p = sample_rows(make_problem(3, n=200, n_outputs=3, kind=kind, max_leaves=8))
    on_device = DeviceCore(p)
    tree, leaf_of_row = on_device.grow()
    h = None if kind == "unit" else p.h
    at = tree.n_leaves, p.rows, p.multiplier
    expected = _core.sum_leaf_hessians(h, leaf_of_row, *at, 1)
    found = on_device.leaves.sum_hessians(None if h is None else send(h), on_device.grower, *at)
    assert found.dtype == np.float64 and np.all(found > 0)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="n_leaves must be that of"):
        on_device.leaves.sum_hessians(None, on_device.grower, 99, None, None)


# --- many rows ---


def test_many_row_blocks():
    """Compared with the core: the reference implementation would be slow."""
    p = make_problem(9, n=30_000, n_bins=(200, 8, 255), n_outputs=2, max_leaves=12)
    on_device = DeviceCore(p)
    tree, leaf_of_row = on_device.grow()
    core, core_leaves = Core.grow(p)
    assert_same_tree(tree, core)
    np.testing.assert_array_equal(leaf_of_row, core_leaves)
    values = on_device.values(core.n_leaves)
    np.testing.assert_array_equal(values, Core.leaves(p, core_leaves, core.n_leaves))
    raw, on_processor = send(np.ones((30_000, 2))), np.ones((30_000, 2), np.float32)
    on_device.leaves.add(raw, on_device.grower, values, -1)
    _core.add_leaf_values(on_processor, core_leaves, values, None, 1, None)
    np.testing.assert_array_equal(raw.read(), on_processor)
    on_device.leaves.add(raw, on_device.grower, values[:, :1].copy(), 1)
    _core.add_leaf_values(on_processor, core_leaves, values[:, :1].copy(), 1, 1, None)
    np.testing.assert_array_equal(raw.read(), on_processor)


def test_channels_are_scaled_down_when_sums_could_overflow():
    p = make_problem(10, n=70_000, n_bins=(5,), max_leaves=2)
    p = replace(p, g=np.sign(p.g).astype(np.float32))
    on_device = DeviceCore(p)
    np.testing.assert_array_equal(on_device.dense(), Core.channels(p)[0])
    assert np.abs(on_device.dense()).max() < 32767


# --- derivatives ---


def derivatives_on_device(problem, raw):
    """Compute gradient and Hessian in matrices filled with NaN; a unit Hessian is the weights."""
    g = send(np.full_like(raw, np.nan))
    shape, constant = problem.hessian_shape(), problem.objective.has_constant_hessian
    h = None if shape is None else send(problem.weight if constant else np.full(shape, np.nan))
    problem.make_device_loss(device()).derivatives(send(raw), g, h)
    return g.read(), None if h is None else h.read()


def assert_same_derivatives(problem, raw):
    for found, core in zip(derivatives_on_device(problem, raw), run(problem, raw), strict=True):
        np.testing.assert_array_equal(found, core)


@pytest.mark.parametrize("weights", [None, "rows", "outputs"])
@pytest.mark.parametrize("case", [case for case in ELEMENTWISE if "exact" not in case])
def test_derivatives_of_elementwise_losses(case, weights):
    objective, kind = elementwise(case)
    target = draw_target(kind, 300, 3)
    rng = np.random.default_rng(2)
    weight = {None: None, "rows": rng.random(300), "outputs": rng.random((300, 3))}[weights]
    problem = objective.bind(RowData(target, weight))
    problem.set_base_score(np.array([0.25, -1.0, 2.0]))
    assert_same_derivatives(problem, draw_raw(300, 3, scale=20.0))


@pytest.mark.parametrize("hessian", ["residual", "friedman", "upper", "diagonal"])
@pytest.mark.parametrize("n_classes", [2, 5, 16, 37])
def test_derivatives_of_softmax(n_classes, hessian):
    label = np.random.default_rng(3).integers(0, n_classes, 200).astype(np.int32)
    objective = get_objective("softmax", softmax_hessian=hessian, n_classes=n_classes)
    for weight in (None, np.random.default_rng(4).random(200)):
        problem = objective.bind(RowData(label, weight))
        problem.set_base_score(np.linspace(-1, 1, n_classes))
        assert_same_derivatives(problem, draw_raw(200, n_classes, scale=20.0))


def test_unsupported_losses_run_on_the_cpu():
    label = np.array([0, 1, 2, 1], np.int32)
    assert (
        get_objective("exponential", n_classes=3).bind(RowData(label)).make_device_loss(device())
        is None
    )


# --- errors ---


def test_non_finite_derivatives_raise():
    for bad in (np.nan, np.inf, -np.inf):
        p = make_problem(11, n=50)
        p.g[17] = bad
        with pytest.raises(ValueError, match="not finite"):
            DeviceCore(p)


def test_out_of_memory_error_names_a_remedy(monkeypatch):
    monkeypatch.setenv("POLYLEAF_DRIVER_ON_HOST_MEMORY", str(2**20))
    small = _core.Device(library(), 0)
    with pytest.raises(
        MemoryError, match=r"no room for 0\.1 GiB more.*histogram_memory.*device=\"cpu\""
    ):
        _core.DeviceMatrix(small, 2**20, 16)
    monkeypatch.undo()
    _core.Device(library(), 0)  # restore the driver's memory limit


def test_missing_device_raises():
    with pytest.raises(_core.DeviceError, match="No driver of CUDA was found"):
        _core.Device("libthere_is_no_such_driver.so", 0)
    with pytest.raises(_core.DeviceError, match="no CUDA device 3: the driver sees 1"):
        _core.Device(library(), 3)


def test_incompatible_arguments_raise():
    p = make_problem(12, n=60, n_outputs=2)
    on_device, core = DeviceCore(p), Core.grower(p)
    search = _core.DeviceSearch(on_device.bins, 1)
    search.use(on_device.channels)
    with pytest.raises(ValueError, match="grower's bins"):
        core.grower.grow(search, grow_config(), None)
    with pytest.raises(ValueError, match="in host memory, not on a GPU"):
        on_device.leaves.add(send(np.zeros((60, 2))), core.grower, np.zeros((1, 2), np.float32), -1)
    on_device.grow()
    with pytest.raises(ValueError, match="n_leaves must be that of the grower's last tree"):
        on_device.values(99)
    no_entries = np.zeros(len(on_device.grower.node_of_leaf) + 1, np.int64)
    one_output = _core.TopkLeaves(no_entries, np.zeros(0, np.int32), np.zeros(0, np.float32), 1)
    with pytest.raises(ValueError, match="for 1 outputs where 2 are needed"):
        on_device.leaves.add(send(np.zeros((60, 2))), on_device.grower, one_output, 1)
    with pytest.raises(ValueError, match="shaped like this one"):
        on_device.g.copy(send(np.zeros((60, 3))))
    with pytest.raises(ValueError, match="shaped like the matrix"):
        on_device.g.write(np.zeros((60, 3), np.float32))
    with pytest.raises(ValueError, match="h is needed"):
        on_device.channels.quantise(on_device.g, None, "full", None, None)
    with pytest.raises(ValueError, match="Hessian"):
        on_device.channels.quantise(on_device.g, on_device.g, "full", None, None)
    sparse = core_bins(p.codes, p.n_bins, p.is_categorical, (0,))
    with pytest.raises(ValueError, match="held dense"):
        _core.DeviceBins(device(), sparse)
    with pytest.raises(ValueError, match="no kernels"):
        _core.DeviceBins(_core.Device(library(), 0), sparse)


def test_rows_and_search_must_be_on_the_same_device():
    p = make_problem(13, n=60)
    bins = core_bins(p.codes, p.n_bins, p.is_categorical)
    on_device = _core.DeviceBins(device(), bins)
    here, there = _core.HistogramSearch(bins, 1), _core.DeviceSearch(on_device, 1)
    channels = _core.DeviceQuantisedGradients(device())
    channels.quantise(send(p.g), None, "unit", None, None)
    here.use(_core.QuantisedGradients(p.g, None, "unit", None, None, 1))
    there.use(channels)
    with pytest.raises(ValueError, match="in host memory, not on a GPU"):
        _core.Grower(bins, 1).grow(there, grow_config(), None)
    with pytest.raises(ValueError, match="reads rows in host memory"):
        _core.Grower(on_device, 1).grow(here, grow_config(), None)


@pytest.mark.parametrize("shape", [(1, 1), (17, 16), (300, 5), (40, 333)], ids=str)
def test_matrix_operations(shape):
    values = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    there = send(values)
    np.testing.assert_array_equal(there.row_means().read(), _core.row_means(values, 1))
    for dim in (1, 14, 70):
        expected = _core.sketch_signs(values, dim, 3, 0.5, 1)
        np.testing.assert_array_equal(there.sketch_signs(dim, 3, 0.5).read(), expected)
    with pytest.raises(ValueError, match="dim must be at least 1"):
        there.sketch_signs(0, 3, 0.5)
