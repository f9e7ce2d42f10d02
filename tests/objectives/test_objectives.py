"""Objectives against float64 NumPy, with any number of threads and instruction set."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.isa import run_on_each_isa
from support.loss_inputs import (
    ELEMENTWISE,
    draw_raw,
    draw_target,
    elementwise,
    hessians,
    run,
    softmax,
    softmax_hessians,
)

import polyleaf._core as _core
from polyleaf import RowData
from polyleaf.objectives import (
    Custom,
    Objective,
    Quantile,
    Softmax,
    SquaredError,
    get_objective,
    objective_from_dict,
    objective_names,
)
from polyleaf.objectives._utils import packed_diagonal

SOFTMAX = ("friedman", "diagonal", "residual", "upper")


def reference_loss(objective: Objective, z, y):
    """Return the loss of each element in float64, by definition."""
    z, y = z.astype(np.float64), y.astype(np.float64)
    name, r = objective.name, z.astype(np.float64) - y
    if name == "squared_error":
        return r**2 / 2
    if name == "absolute_error":
        return np.abs(r)
    if name == "quantile":
        return np.where(r < 0, -objective.alpha * r, (1 - objective.alpha) * r)
    if name == "huber":
        d = objective.delta
        return np.where(np.abs(r) <= d, r**2 / 2, d * (np.abs(r) - d / 2))
    if name == "log_cosh":
        d = objective.delta
        return d**2 * (np.logaddexp(r / d, -r / d) - np.log(2))
    if name == "expectile":
        return np.where(r < 0, objective.alpha, 1 - objective.alpha) * r**2
    if name == "poisson":
        return np.exp(z) - y * z
    if name == "gamma":
        return y * np.exp(-z) + z
    if name == "tweedie":
        p = objective.variance_power
        return np.exp((2 - p) * z) / (2 - p) - y * np.exp((1 - p) * z) / (1 - p)
    if name == "logistic":
        return objective.scale_pos_weight * y * np.logaddexp(0, -z) + (1 - y) * np.logaddexp(0, z)
    if name == "focal":
        margin = (2 * y - 1) * z
        log_p, log_q = -np.logaddexp(0, -margin), -np.logaddexp(0, margin)
        weight = np.where(y == 1, objective.scale_pos_weight, 1)
        return -weight * np.exp(objective.gamma * log_q) * log_p
    if name == "squared_hinge":
        return np.maximum(0, 1 - (2 * y - 1) * z) ** 2 / 2
    raise AssertionError(name)


def focal_gradient(objective, z, y):
    margin = (2 * y - 1) * z
    p, q, log_p = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin)), -np.logaddexp(0, -margin)
    size = q**objective.gamma * (q - objective.gamma * p * log_p)
    return -(2 * y - 1) * np.where(y == 1, objective.scale_pos_weight, 1) * size


def symmetric_hessian(objective, z, y):
    z, p = z.astype(np.float64), objective.power
    return (np.exp((2 - p) * z) + y * np.exp((1 - p) * z)) / 2


# --- derivatives ---


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_gradient_and_hessian_are_differences_of_the_loss(case):
    objective, kind = elementwise(case)
    n, k = 400, 3
    y, raw = draw_target(kind, n, k), draw_raw(n, k)
    problem = objective.bind(RowData(y))
    base = np.array([0.3, -0.2, 0.0])
    problem.set_base_score(base)
    z = raw.astype(np.float64) + base
    g, h = run(problem, raw)
    step = 1e-4
    below, here, above = (reference_loss(objective, z + d, y) for d in (-step, 0.0, step))
    smooth = np.ones_like(z, bool)
    if objective.name in ("absolute_error", "quantile"):
        smooth = np.abs(z - y) > 2 * step
    if objective.name == "huber":
        smooth = np.abs(np.abs(z - y) - objective.delta) > 2 * step
    if objective.name == "expectile":
        smooth = np.abs(z - y) > 2 * step
    if objective.name == "squared_hinge":
        smooth = np.abs(1 - (2 * y - 1) * z) > 2 * step
    slope, second = (above - below) / (2 * step), (above - 2 * here + below) / step**2
    scale = 1 + np.abs(here)
    np.testing.assert_allclose((g / scale)[smooth], (slope / scale)[smooth], atol=2e-6)
    if objective.has_constant_hessian:
        assert h is None
        # Where the loss has a second derivative, the Hessian is an upper bound of it.
        assert (second[smooth] <= 1 + 1e-5).all()
    elif objective.name == "focal":
        # The derivative of the cross-entropy's gradient, times its factor as a constant.
        right = 1 / (1 + np.exp(-(2 * y - 1) * z))
        np.testing.assert_allclose(h, np.abs(g) * right, rtol=1e-6)
    elif getattr(objective, "hessian", "exact") == "exact":
        np.testing.assert_allclose((h / scale)[smooth], (second / scale)[smooth], atol=2e-6)
    else:
        np.testing.assert_allclose(h, symmetric_hessian(objective, z, y), rtol=1e-6)


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_kernels_are_within_a_few_ulp_of_float64(case):
    objective, kind = elementwise(case)
    n, k = 1000, 7
    y, raw = draw_target(kind, n, k), draw_raw(n, k, scale=6.0)
    g, _ = run(objective.bind(RowData(y)), raw)
    z = raw.astype(np.float64)
    expected = {
        "squared_error": lambda: z - y,
        "absolute_error": lambda: np.sign(z - y),
        "quantile": lambda: np.where(z > y, 0.7, -0.3),
        "huber": lambda: np.clip(z - y, -0.7, 0.7),
        "log_cosh": lambda: 0.7 * np.tanh((z - y) / 0.7),
        "expectile": lambda: np.where(z < y, 0.6, 1.4) * (z - y),
        "focal": lambda: focal_gradient(objective, z, y.astype(float)),
        "squared_hinge": lambda: -(2 * y - 1) * np.maximum(0, 1 - (2 * y - 1) * z),
        "logistic": lambda: (
            (1 - y.astype(float)) / (1 + np.exp(-z))
            - objective.scale_pos_weight * y / (1 + np.exp(z))
        ),
    }
    if objective.name in expected:
        parts = expected[objective.name](), np.zeros_like(z)
        magnitude = np.abs(parts[0]) + np.abs(y) * (objective.name in ("squared_hinge", "logistic"))
        if objective.name == "focal":  # gamma times a logarithm is rounded before the exponential
            magnitude *= 4 * (1 + objective.gamma * np.abs(z))
    else:
        p = objective.power
        parts = np.exp((2 - p) * z), y * np.exp((1 - p) * z)
        # (1 - p) * z is rounded, and the exponential multiplies its relative error by its
        # magnitude.
        magnitude = (parts[0] + parts[1]) * (1 + np.abs(z))
    ulp = np.spacing(magnitude.astype(np.float32))
    assert (np.abs(g - (parts[0] - parts[1])) / ulp).max() <= 4


@pytest.mark.parametrize("choice", SOFTMAX)
@pytest.mark.parametrize("k", [2, 3, 7, 16, 26, 130])
def test_softmax(choice, k):
    n = 203
    rng = np.random.default_rng(k)
    label, raw = rng.integers(0, k, n).astype(np.int32), draw_raw(n, k, scale=4.0)
    base = rng.standard_normal(k)
    problem = Softmax(n_classes=k, softmax_hessian=choice).bind(RowData(label))
    problem.set_base_score(base)
    g, h = run(problem, raw)
    z = raw + base
    p = softmax(z)
    truth = label[:, None] == np.arange(k)
    np.testing.assert_allclose(g, p - truth, atol=1e-6)
    expected = {
        "friedman": k / (k - 1) * p * (1 - p),
        "diagonal": p * (1 - p),
        "residual": np.abs(p - truth),
        "upper": 2 * p * (1 - p),
    }
    np.testing.assert_allclose(h, np.maximum(expected[choice], 1e-16), rtol=3e-5, atol=1e-6)
    loss = np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(n), label])
    assert problem.loss(raw) == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(problem.objective.transform(z), p, rtol=1e-12)


@pytest.mark.parametrize("choice", SOFTMAX)
@pytest.mark.parametrize("k", [2, 3, 7, 16, 26, 130])
def test_softmax_of_shares(choice, k):
    n = 203
    rng = np.random.default_rng(k)
    y, raw = rng.dirichlet(np.full(k, 0.5), n).astype(np.float32), draw_raw(n, k, scale=4.0)
    weight = rng.random(n).astype(np.float32)
    problem = Softmax(softmax_hessian=choice).bind(RowData(y, weight))
    problem.set_base_score(rng.standard_normal(k))
    g, h = run(problem, raw, n_threads=2)
    z = raw + problem.base
    expected, diagonal = reference.softmax(y, z)
    p, w = y + expected, weight[:, None]
    diagonal *= {"friedman": 1, "diagonal": 1 - 1 / k, "upper": 2 - 2 / k}.get(choice, 0)
    if choice == "residual":
        diagonal = y * (1 - p) + (1 - y) * p
    np.testing.assert_allclose(g, w * expected, atol=1e-6)
    np.testing.assert_allclose(h, w * np.maximum(diagonal, 1e-16), rtol=3e-5, atol=1e-6)
    losses = np.log(np.exp(z).sum(axis=1)) - (y * z).sum(axis=1)
    assert problem.loss(raw) == pytest.approx(np.average(losses, weights=weight), rel=1e-5)
    shares = np.average(y, axis=0, weights=weight)
    np.testing.assert_allclose(problem.base_score(), np.log(shares), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", SOFTMAX)
@pytest.mark.parametrize("k", [2, 5, 16, 33])
def test_shares_of_0_and_1_give_the_bits_of_classes(choice, k):
    rng = np.random.default_rng(k)
    label, raw = rng.integers(0, k, 101).astype(np.int32), draw_raw(101, k, scale=8.0)
    weight = rng.random(101).astype(np.float32)
    classes = Softmax(k, choice).bind(RowData(label, weight))
    shares = Softmax(k, choice).bind(RowData(np.eye(k, dtype=np.float32)[label], weight))
    assert shares.base_score().tobytes() == classes.base_score().tobytes()
    for problem in (classes, shares):
        problem.set_base_score(classes.base_score())
    for compute in (run, hessians):
        for a, b in zip(compute(classes, raw), compute(shares, raw), strict=True):
            assert a.tobytes() == b.tobytes()
    assert shares.loss(raw) == classes.loss(raw)


def test_small_softmax_probabilities_keep_precision():
    raw = np.array([[0.0, -20.0, -60.0]], np.float32)
    g, h = run(Softmax(n_classes=3, softmax_hessian="diagonal").bind(RowData(np.array([0]))), raw)
    np.testing.assert_allclose(g[0, 1:], np.exp([-20.0, -60.0]), rtol=1e-6)
    np.testing.assert_allclose(h[0, 1:], [np.exp(-20.0), np.float32(1e-16)], rtol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "exponential"])
@pytest.mark.parametrize("k", [2, 5, 26])
@pytest.mark.parametrize("weighted", [False, True])
def test_class_losses_add_the_leaves_of_a_tree(name, k, weighted):
    rng, n = np.random.default_rng(k), 501
    weight = rng.random(n).astype(np.float32) if weighted else None
    label, raw = rng.integers(0, k, n).astype(np.int32), draw_raw(n, k)
    leaf_of_row, leaves = rng.integers(0, 7, n).astype(np.int32), draw_raw(7, k)
    problem = get_objective(name, num_class=k).bind(RowData(label, weight))
    assert problem.adds_trees
    expected, found = np.full((2, 2, n, k), np.nan, np.float32)
    problem.derivatives(raw + leaves[leaf_of_row], *expected)
    problem.derivatives(raw, *found, 2, leaf_of_row, leaves)
    np.testing.assert_array_equal(found, expected)
    for tree, message in [
        ((leaf_of_row + 1, leaves), "leaf id is out of range"),
        ((leaf_of_row[1:], leaves), "a leaf for each row"),
        ((leaf_of_row, leaves[:, 1:].copy()), "a column for each"),
    ]:
        with pytest.raises(ValueError, match=message):
            problem.derivatives(raw, *found, 1, *tree)


def test_only_softmax_takes_shares():
    y, raw = np.full((4, 2), 0.5, np.float32), draw_raw(4, 2)
    with pytest.raises(ValueError, match="class ids of shape"):
        get_objective("exponential").bind(RowData(y))
    loss, zeros = _core.ClassLoss("exponential", {}), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="takes class ids"):
        _core.class_mean(loss, raw, y, None, zeros, 1)
    with pytest.raises(ValueError, match="shares of 3 classes"):
        Softmax(3).bind(RowData(y))
    with pytest.raises(ValueError, match=r"Row 1 of y sums to 0.5"):
        Softmax().bind(RowData(y * np.float32([[1], [0.5], [1], [1]])))


@pytest.mark.parametrize("case", [*ELEMENTWISE, *SOFTMAX])
def test_extreme_scores_give_finite_numbers(case):
    extremes = np.array([0, 88, -88, 1e3, -1e3, 1e30, -1e30, 1e-30, 127, -127], np.float32)
    raw = np.stack(np.meshgrid(extremes, extremes), -1).reshape(-1, 2).astype(np.float32)
    if case in SOFTMAX:
        problem = Softmax(2, case).bind(RowData((np.arange(len(raw)) % 2).astype(np.int32)))
    else:
        objective, kind = elementwise(case)
        y, weight = draw_target(kind, *raw.shape), np.full(len(raw), 1e3, np.float32)
        problem = objective.bind(RowData(y, weight))
    g, h = run(problem, raw)
    assert np.isfinite(g).all()
    assert h is None or (np.isfinite(h).all() and (h > 0).all())
    assert np.isfinite(problem.loss(raw))


# --- full Hessians ---


@pytest.mark.parametrize("case", ELEMENTWISE)
@pytest.mark.parametrize("weight", [None, "rows", "outputs"])
def test_full_hessian_of_a_separable_loss_is_diagonal(case, weight):
    objective, kind = elementwise(case)
    y, raw = draw_target(kind, 50, 3), draw_raw(50, 3)
    w = np.random.default_rng(4).random((50, 3)).astype(np.float32)
    problem = objective.bind(RowData(y, {None: None, "rows": w[:, 0], "outputs": w}[weight]))
    g, h = run(problem, raw)
    g_full, h_full = hessians(problem, raw)
    assert g_full.tobytes() == g.tobytes()
    expected = np.broadcast_to(np.float32(1) if h is None else h, (50, 3))
    np.testing.assert_array_equal(h_full[:, packed_diagonal(3)], expected)
    assert (np.delete(h_full, packed_diagonal(3), axis=1) == 0).all()


@pytest.mark.parametrize("k", [2, 3, 16, 17, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_hessian(k, weighted):
    n = 101
    rng = np.random.default_rng(k)
    label, raw = rng.integers(0, k, n).astype(np.int32), draw_raw(n, k, scale=4.0)
    weight = rng.random(n).astype(np.float32) if weighted else None
    problem = Softmax(k, "diagonal").bind(RowData(label, weight))
    problem.set_base_score(rng.standard_normal(k))
    g, h = hessians(problem, raw)
    assert g.tobytes() == run(problem, raw)[0].tobytes()
    z = raw + problem.base
    p = softmax(z)
    H = np.einsum("ni,ij->nij", p, np.eye(k)) - p[:, :, None] * p[:, None, :]
    H *= 1 if weight is None else weight[:, None, None]
    np.testing.assert_allclose(h, reference.packed(H), rtol=1e-5, atol=2e-7)
    np.testing.assert_allclose(h[:, packed_diagonal(k)], run(problem, raw)[1], rtol=1e-5, atol=2e-7)


@pytest.mark.parametrize("k", [2, 5, 16, 33])
def test_softmax_hessian_equals_the_reference(k):
    raw = draw_raw(45, k, scale=6.0)
    with_label = [Softmax(k).bind(RowData(np.full(45, label, np.int32))) for label in (0, 1)]
    p, other = (run(problem, raw)[0] for problem in with_label)
    p[:, 0] = other[:, 0]  # the gradient of any other class is its probability
    _, h = hessians(with_label[0], raw)
    np.testing.assert_array_equal(h, reference.softmax_hessian(p))


def test_softmax_hessian_is_positive_semi_definite_for_nearly_certain_classes():
    raw = np.array([[0.0, -20.0, -21.0], [0.0, -40.0, -87.0], [30.0, 30.0, -30.0]], np.float32)
    _, h = hessians(Softmax(3).bind(RowData(np.zeros(3, np.int32))), raw)
    for packed, row in zip(h.astype(np.float64), raw, strict=True):
        H = np.zeros((3, 3))
        H[np.tril_indices(3)] = packed
        eigenvalues = np.linalg.eigvalsh(H)  # of the lower triangle
        assert eigenvalues[0] >= -1e-6 * eigenvalues[-1], row
        p = np.exp(row - row.max(), dtype=np.float64)
        expected = max(p[0] * p[1:].sum() / p.sum() ** 2, 1e-16)
        np.testing.assert_allclose(H[0, 0], expected, rtol=1e-5)


def test_objectives_without_a_full_hessian_raise():
    class Coupled(SquaredError):
        separable = False

    problem = Coupled().bind(RowData(np.zeros((4, 2))))
    with pytest.raises(ValueError, match=r'has no full Hessian, which hessian="full".*"diagonal"'):
        hessians(problem, np.zeros((4, 2), np.float32))


def test_full_hessians_with_wrong_shapes_raise():
    problem = Softmax(3).bind(RowData(np.zeros(4, np.int32)))
    raw = np.zeros((4, 3), np.float32)
    with pytest.raises(ValueError, match=r"K \(K \+ 1\) / 2 columns"):
        problem.full_hessian(raw, raw.copy(), raw.copy())
    with pytest.raises(ValueError, match="g must be shaped"):
        problem.full_hessian(raw, np.zeros((3, 3), np.float32), np.zeros((4, 6), np.float32))


# --- weights ---


@pytest.mark.parametrize("case", ELEMENTWISE)
@pytest.mark.parametrize("per_output", [False, True])
def test_weights_multiply_derivatives_and_average_losses(case, per_output):
    objective, kind = elementwise(case)
    n, k = 300, 4
    y, raw = draw_target(kind, n, k), draw_raw(n, k)
    rng = np.random.default_rng(5)
    weight = rng.random((n, k) if per_output else n).astype(np.float32)
    weight[rng.random(weight.shape) < 0.3] = 0
    plain, weighted = objective.bind(RowData(y)), objective.bind(RowData(y, weight))
    g, h = run(plain, raw)
    gw, hw = run(weighted, raw)
    matrix = weight if per_output else weight[:, None]
    np.testing.assert_array_equal(gw, g * matrix)
    np.testing.assert_array_equal(hw, np.broadcast_to((1 if h is None else h) * matrix, hw.shape))
    assert hw.shape == ((n, k) if per_output or h is not None else (n, 1))
    full = np.broadcast_to(matrix, (n, k)).astype(np.float64)
    expected = (full * reference_loss(objective, raw, y)).sum() / full.sum()
    assert weighted.loss(raw) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_integer_weights_equal_repeated_rows_and_zero_weights_are_ignored(case):
    objective, kind = elementwise(case)
    y, raw = draw_target(kind, 60, 2), draw_raw(60, 2)
    count = np.random.default_rng(2).integers(0, 4, 60)
    weighted = objective.bind(RowData(y, count.astype(np.float32)))
    repeated = objective.bind(RowData(np.repeat(y, count, axis=0)))
    np.testing.assert_allclose(weighted.base_score(), repeated.base_score(), rtol=1e-12, atol=1e-12)
    expected = repeated.loss(np.repeat(raw, count, axis=0))
    assert weighted.loss(raw) == pytest.approx(expected, rel=1e-12)


def test_softmax_weights():
    label, raw = np.array([0, 1, 2, 1], np.int32), draw_raw(4, 3)
    weight = np.array([2, 0, 1, 1], np.float32)
    problem = Softmax().bind(RowData(label, weight))
    g, h = run(problem, raw)
    g1, h1 = run(Softmax().bind(RowData(label)), raw)
    np.testing.assert_array_equal(g, g1 * weight[:, None])
    np.testing.assert_array_equal(h, h1 * weight[:, None])
    np.testing.assert_allclose(problem.base_score(), np.log([0.5, 0.25, 0.25]))
    repeated = [0, 0, 2, 3]
    expected = Softmax(3).bind(RowData(label[repeated])).loss(raw[repeated])
    assert problem.loss(raw) == pytest.approx(expected)
    with pytest.raises(ValueError, match="Weights must have shape"):
        Softmax().bind(RowData(label, np.ones((4, 3), np.float32)))


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_placeholders_of_missing_targets_have_no_effect(case):
    objective, kind = elementwise(case)
    y, weight = draw_target(kind, 50, 2), np.ones((50, 2), np.float32)
    weight[::3, 1] = 0
    y[::3, 1] = 0
    problem = objective.bind(RowData(y, weight))
    kept = np.arange(50) % 3 != 0
    alone = objective.bind(RowData(y[kept, 1:]))
    expected = alone.base_score()[0]
    np.testing.assert_allclose(problem.base_score()[1], expected, rtol=1e-12, atol=1e-12)
    g, h = run(problem, draw_raw(50, 2))
    assert (g[::3, 1] == 0).all() and (h[::3, 1] == 0).all()
    nothing = objective.bind(RowData(y, np.zeros_like(weight)))
    assert np.isfinite(nothing.base_score()).all() and nothing.loss(draw_raw(50, 2)) == 0


def test_losses_that_contain_others_equal_them():
    y, raw = draw_target("binary", 99, 2), draw_raw(99, 2, scale=5.0)
    weight = np.random.default_rng(4).random((99, 2)).astype(np.float32)
    focal = get_objective("focal", gamma=0.0, scale_pos_weight=2.5).bind(RowData(y, weight))
    logistic = get_objective("logistic", scale_pos_weight=2.5).bind(RowData(y, weight))
    for a, b in zip(run(focal, raw), run(logistic, raw), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(focal.base_score(), logistic.base_score(), atol=1e-6)
    y = draw_target("real", 99, 2)
    expectile, squared = (get_objective(n).bind(RowData(y)) for n in ("expectile", "squared_error"))
    assert run(expectile, raw)[0].tobytes() == run(squared, raw)[0].tobytes()
    assert (run(expectile, raw)[1] == 1).all()
    assert expectile.base_score().tobytes() == squared.base_score().tobytes()


def test_percentage_error_is_an_absolute_error_with_weights():
    y = np.random.default_rng(2).lognormal(size=(200, 2)) - 0.5
    weight = np.random.default_rng(4).random((200, 1)).astype(np.float32)
    factor = (1 / np.maximum(np.abs(y), 0.3)).astype(np.float32)
    relative = get_objective("mape", floor=0.3).bind(RowData(y, weight))
    absolute = get_objective("mae").bind(RowData(y, weight * factor))
    base, raw = relative.base_score(), draw_raw(200, 2)
    assert base.tobytes() == absolute.base_score().tobytes()
    for problem in (relative, absolute):
        problem.set_base_score(base)
    for a, b in zip(run(relative, raw), run(absolute, raw), strict=True):
        assert a.tobytes() == b.tobytes()
    leaves = np.arange(200, dtype=np.int32) % 5
    updates = [problem.update_leaves(raw, leaves, 5) for problem in (relative, absolute)]
    assert updates[0].tobytes() == updates[1].tobytes()
    assert relative.loss(raw) == absolute.loss(raw)


# --- base scores ---


@pytest.mark.parametrize("case", sorted(ELEMENTWISE.keys() - {"huber", "log_cosh"}))
def test_base_score_is_the_best_constant(case):
    objective, kind = elementwise(case)
    y = draw_target(kind, 301, 2)
    weight = np.random.default_rng(3).random((301, 2)).astype(np.float32)
    problem = objective.bind(RowData(y, weight))
    base = problem.base_score()
    for k in range(2):
        at = [
            (weight[:, k] * reference_loss(objective, np.full(301, base[k] + d), y[:, k])).sum()
            for d in (-1e-3, 0.0, 1e-3)
        ]
        assert at[1] <= min(at[0], at[2])


def test_softmax_base_score_is_the_class_prior_and_finite_for_absent_classes():
    problem = Softmax(n_classes=4).bind(RowData(np.array([0, 0, 1, 3], np.int32)))
    np.testing.assert_allclose(problem.base_score(), np.log([0.5, 0.25, 0.1, 0.25]))


def test_constant_labels_have_finite_base_scores():
    problem = get_objective("logistic").bind(RowData(np.tile([0.0, 1.0], (99, 1))))
    base = problem.base_score()
    np.testing.assert_allclose(base, [np.log(0.005 / 0.995), -np.log(0.005 / 0.995)])


def test_huge_targets_keep_their_precision():
    y = 1e9 + np.array([[-1.0], [0.25], [0.75]])
    problem = get_objective("squared_error").bind(RowData(y))
    problem.set_base_score(problem.base_score())
    g, _ = run(problem, np.zeros((3, 1), np.float32))
    np.testing.assert_allclose(g[:, 0], [1.0, -0.25, -0.75], atol=1e-6)


def test_invalid_base_score_raises():
    problem = get_objective("squared_error").bind(RowData(np.zeros((3, 2))))
    for bad in ([1.0], [np.nan, 0.0]):
        with pytest.raises(ValueError, match="2 finite numbers"):
            problem.set_base_score(bad)


# --- quantiles and leaves ---


def integer_weights(weight):
    """Return integer weights (n,) of at most 2^31, whose sums are exact in any order."""
    _, exponent = np.frexp(weight.max())
    whole = np.rint(np.ldexp(weight.astype(np.float64), 31 - exponent)).astype(np.int64)
    return np.where(weight > 0, np.maximum(whole, 1), 0)


def brute_quantile(values, weight, level):
    """Return the smallest value whose cumulative integer weight reaches the level's share."""
    values, weight = values[weight > 0], weight[weight > 0]
    if values.size == 0:
        return 0.0
    order = np.argsort(values, kind="stable")
    needed = level * (1 - 1e-12) * float(weight.sum())
    return values[order][np.argmax(np.cumsum(weight[order]).astype(np.float64) >= needed)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 80),
    st.integers(1, 6),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 0.99),
)
def test_updated_leaves_are_lower_weighted_quantiles(n, n_leaves, weights, seed, level):
    rng = np.random.default_rng(seed)
    y = rng.integers(-3, 4, (n, 2)).astype(np.float32)  # many ties
    raw = rng.integers(-1, 2, (n, 2)).astype(np.float32)
    weight = [None, rng.integers(0, 3, n), rng.random((n, 2)) * (rng.random((n, 2)) < 0.8)][weights]
    weight = None if weight is None else weight.astype(np.float32)
    leaf = rng.integers(-1, n_leaves, n).astype(np.int32)
    some = np.flatnonzero(rng.random(n) < 0.8).astype(np.uint32)
    rows = some if len(some) else None
    problem = get_objective("quantile", alpha=level).bind(RowData(y, weight))
    found = problem.update_leaves(raw, leaf, n_leaves, rows)
    assert found.dtype == np.float32 and found.shape == (n_leaves, 2)
    used = np.arange(n) if rows is None else rows
    columns = np.ones((n, 1)) if weight is None else weight.reshape(n, -1)
    full = np.broadcast_to(np.stack([integer_weights(w) for w in columns.T], axis=1), (n, 2))
    for at in range(n_leaves):
        inside = used[leaf[used] == at]
        for k in range(2):
            expected = brute_quantile((y - raw)[inside, k], full[inside, k], level)
            assert found[at, k] == expected
    np.testing.assert_array_equal(found, problem.update_leaves(raw, leaf, n_leaves, rows, None, 3))
    factor = rng.integers(1, 5, n).astype(np.float32)  # a factor is a weight
    scaled = problem.update_leaves(raw, leaf, n_leaves, rows, factor)
    weighted = get_objective("quantile", alpha=level).bind(RowData(y, columns * factor[:, None]))
    np.testing.assert_array_equal(scaled, weighted.update_leaves(raw, leaf, n_leaves, rows))


def test_weighted_quantiles_are_independent_of_row_order():
    rng = np.random.default_rng(3)
    y = np.arange(40_000, dtype=np.float32)[:, None]
    weight = (rng.random((40_000, 1)) * 10.0 ** rng.integers(-6, 3, (40_000, 1))).astype(np.float32)
    expected = brute_quantile(y[:, 0], integer_weights(weight[:, 0]), 0.5)
    order = rng.permutation(40_000)
    for rows in (slice(None), order):
        assert Quantile(alpha=0.5).bind(RowData(y[rows], weight[rows])).base_score() == [expected]


def test_median_of_an_even_number_is_the_lower_one():
    y = np.array([[1.0], [2.0], [3.0], [10.0]], np.float32)
    problem = get_objective("absolute_error").bind(RowData(y))
    assert problem.base_score() == [2.0]
    zeros = np.zeros(4, np.int32)
    assert problem.update_leaves(np.zeros((4, 1), np.float32), zeros, 1) == [[2.0]]


def test_rounded_levels_select_the_correct_row():
    y = np.arange(100, dtype=np.float32)[:, None]
    for percent in range(1, 100):
        for weight in (None, np.ones(100)):
            problem = Quantile(alpha=percent / 100).bind(RowData(y, weight))
            assert problem.base_score() == [percent - 1]


def test_only_absolute_errors_and_quantiles_update_leaves():
    leaf = np.zeros(8, np.int32)
    for name in objective_names():
        objective = get_objective(name)
        ids = (np.arange(8) % 2).astype(np.int32)
        of_classes = "classes" in objective.target_kinds
        target = ids if of_classes else np.ones((8, 1), np.float32)
        problem = objective.bind(RowData(target, query=np.zeros(8, np.int64)))
        updating = ("absolute_error", "absolute_percentage_error", "quantile")
        assert objective.updates_leaves == (name in updating)
        if objective.updates_leaves:
            renewed = problem.update_leaves(np.zeros((8, problem.n_outputs), np.float32), leaf, 1)
            assert renewed.shape == (1, problem.n_outputs)


def test_invalid_leaf_ids_and_rows_raise():
    problem = get_objective("absolute_error").bind(RowData(np.zeros((3, 1))))
    raw = np.zeros((3, 1), np.float32)
    with pytest.raises(ValueError, match="leaf id"):
        problem.update_leaves(raw, np.array([0, 5, 0], np.int32), 2)
    with pytest.raises(ValueError, match="row sample"):
        problem.update_leaves(raw, np.zeros(3, np.int32), 1, np.array([3], np.uint32))
    with pytest.raises(ValueError, match="NaN"):
        problem.update_leaves(raw * np.nan, np.zeros(3, np.int32), 1)


def test_many_quantiles_of_many_targets():
    levels = (0.9, 0.1, 0.5)
    objective = get_objective("quantile", alpha=list(levels))
    y, raw = draw_target("real", 400, 2), draw_raw(400, 6)
    weight = np.random.default_rng(4).random((400, 2)).astype(np.float32)
    problem = objective.bind(RowData(y, weight))
    assert problem.n_outputs == 6
    problem.set_base_score(problem.base_score())
    g, h = run(problem, raw)
    leaf = (np.arange(400) % 3).astype(np.int32)
    renewed = problem.update_leaves(raw, leaf, 3)
    for target in range(2):
        for a, level in enumerate(levels):
            k = 3 * target + a
            rows = RowData(y[:, [target]], weight[:, [target]])
            one = get_objective("quantile", alpha=level).bind(rows)
            assert problem.base_score()[k] == one.base_score()[0]
            one.set_base_score(one.base_score())
            raw_k = np.ascontiguousarray(raw[:, [k]])
            g_one, h_one = run(one, raw_k)
            np.testing.assert_array_equal(g[:, [k]], g_one)
            np.testing.assert_array_equal(h[:, [k]], h_one)
            np.testing.assert_array_equal(renewed[:, [k]], one.update_leaves(raw_k, leaf, 3))
            alone = problem.update_leaves(raw_k, leaf, 3, outputs=np.array([k]))
            np.testing.assert_array_equal(renewed[:, [k]], alone)


def test_quantiles_do_not_cross_by_default():
    scores = np.array([[3.0, 5.0, 4.0, 0.0, 1.0, 2.0]])
    levels, ordered = [0.9, 0.1, 0.5], [[5.0, 3.0, 4.0, 2.0, 0.0, 1.0]]
    np.testing.assert_array_equal(Quantile(levels).transform(scores), ordered)
    np.testing.assert_array_equal(Quantile(levels, non_crossing=False).transform(scores), scores)
    np.testing.assert_array_equal(Quantile(0.5).transform(scores), scores)


# --- links ---


def test_links():
    z = np.array([[-800.0, -1.0, 0.0, 2.0, 800.0]])
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-z))
        exponential = np.minimum(np.exp(z), np.finfo(np.float64).max)  # never infinite
    np.testing.assert_allclose(get_objective("logistic").transform(z), sigmoid, rtol=1e-15)
    for name in ("poisson", "gamma", "tweedie"):
        np.testing.assert_array_equal(get_objective(name).transform(z), exponential)
    for name in ("squared_error", "absolute_error", "huber", "expectile", "squared_hinge"):
        np.testing.assert_array_equal(get_objective(name).transform(z), z)
    huge = get_objective("softmax").transform(np.array([[1e300, 0.0], [-1e300, -1e300]]))
    np.testing.assert_array_equal(huge, [[1, 0], [0.5, 0.5]])


def test_symmetric_hessian_never_overshoots_where_exact_does():
    """Compare one Newton step of a leaf of equal scores with the exact step ln(S / B)."""
    for name, kind in (("poisson", "count"), ("gamma", "positive"), ("tweedie", "count")):
        for shift in (-6.0, -1.0, 1.0, 6.0):
            y = draw_target(kind, 500, 1)
            problem = get_objective(name).bind(RowData(y))
            raw = np.full((500, 1), problem.base_score()[0] + shift, np.float32)
            g, h = run(problem, raw)
            step = -g.sum(dtype=np.float64) / h.sum(dtype=np.float64)
            assert 0 < step / -shift <= 1 + 1e-6
    problem = get_objective("poisson", hessian="exact").bind(RowData(y))
    g, h = run(problem, np.full((500, 1), problem.base_score()[0] - 6.0, np.float32))
    assert -g.sum() / h.sum() > 100


# --- names, parameters, errors ---


def test_names_and_aliases():
    for name in ("reg:squarederror", "l2"):
        assert get_objective(name) == get_objective("squared_error")
    assert get_objective("binary:logistic").name == "logistic"
    assert get_objective("multi:softprob", num_class=4).n_classes == 4
    assert get_objective("reg:quantileerror", quantile_alpha=[0.1, 0.9]).alpha == (0.1, 0.9)
    objective = get_objective("huber")
    assert get_objective(objective) is objective
    with pytest.raises(ValueError, match="Did you mean 'squared_error'"):
        get_objective("squared_eror")
    with pytest.raises(ValueError, match="no parameter 'alpha'"):
        get_objective("huber", alpha=2)
    with pytest.raises(ValueError, match="name or a callable"):
        get_objective(3)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("quantile", {"alpha": 1.0}),
        ("quantile", {"alpha": []}),
        ("quantile", {"alpha": [0.5, 0.5]}),
        ("quantile", {"alpha": "a"}),
        ("huber", {"delta": 0}),
        ("huber", {"delta": float("nan")}),
        ("log_cosh", {"delta": -1.0}),
        ("expectile", {"alpha": 1.0}),
        ("focal", {"gamma": -1.0}),
        ("focal", {"scale_pos_weight": 0}),
        ("mape", {"floor": 0}),
        ("poisson", {"hessian": "none"}),
        ("tweedie", {"variance_power": 2.0}),
        ("tweedie", {"variance_power": "x"}),
        ("logistic", {"scale_pos_weight": -1}),
        ("logistic", {"scale_pos_weight": [1.0, np.inf]}),
        ("softmax", {"n_classes": 1}),
        ("softmax", {"softmax_hessian": "full"}),
    ],
)
def test_parameters_out_of_range_raise(name, parameters):
    with pytest.raises(ValueError):
        get_objective(name, **parameters)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("squared_error", np.nan, "finite"),
        ("poisson", -1.0, "targets >= 0"),
        ("gamma", 0.0, "targets > 0"),
        ("tweedie", -0.5, "targets >= 0"),
        ("logistic", 1.5, r"\[0, 1\]"),
        ("squared_hinge", 0.5, "0 or 1"),
        ("focal", 0.5, "0 or 1"),
        ("mape", np.inf, "finite"),
        ("normal", np.inf, "finite targets"),
        ("lognormal", 0.0, "targets > 0"),
        ("gamma_distribution", -1.0, "targets > 0"),
        ("negative_binomial", 1.5, "counts: whole numbers >= 0"),
    ],
)
def test_targets_outside_the_domain_raise(name, bad, message):
    y = np.ones((4, 2), np.float32)
    y[2, 1] = bad
    with pytest.raises(ValueError, match=f"{message}.*; row 2, output 1"):
        get_objective(name).bind(RowData(y))
    weight = np.ones((4, 2), np.float32)
    weight[2, 1] = 0
    get_objective(name).bind(RowData(y, weight))


def test_wrong_shapes_raise():
    with pytest.raises(ValueError, match="Weights must have shape"):
        get_objective("l2").bind(RowData(np.zeros((4, 2)), np.ones(3)))
    with pytest.raises(ValueError, match="Row 0 of y sums to 0"):
        Softmax().bind(RowData(np.zeros((4, 2))))
    with pytest.raises(ValueError, match=r"0 \.\. 2"):
        Softmax(n_classes=3).bind(RowData(np.array([0, 3])))
    with pytest.raises(ValueError, match="at least two classes"):
        Softmax().bind(RowData(np.array([0, 0])))
    with pytest.raises(ValueError, match="2 label"):
        get_objective("logistic", scale_pos_weight=[1, 2, 3]).bind(RowData(np.zeros((4, 2))))
    with pytest.raises(ValueError, match="output 1 of y is 0"):
        get_objective("poisson").bind(RowData(np.array([[1.0, 0.0]]))).base_score()
    problem = get_objective("logistic").bind(RowData(np.zeros((4, 2))))
    good, bad = np.zeros((4, 2), np.float32), np.zeros((4, 3), np.float32)
    for raw, g, h in ((bad, good, good), (good, bad, good), (good, good, bad), (good, good, None)):
        with pytest.raises(ValueError):
            problem.derivatives(raw, g, h)
    with pytest.raises(TypeError):  # a float64 array would be copied, and the result lost
        problem.derivatives(good, good.astype(np.float64), good)


@pytest.mark.parametrize(
    "objective",
    [
        *(get_objective(name) for name in objective_names()),
        Quantile([0.2, 0.8], non_crossing=False),
        get_objective("logistic", scale_pos_weight=[1.0, 3.0]),
        Softmax(5, "residual"),
    ],
)
def test_to_dict_round_trip(objective):
    import json

    assert objective_from_dict(json.loads(json.dumps(objective.to_dict()))) == objective


HUBER = {"name": "huber"}


@pytest.mark.parametrize(
    "stored", [None, {}, {"name": 3}, {"name": "evil"}, HUBER | {"x": 1}, HUBER | {"delta": []}]
)
def test_hostile_dicts_raise(stored):
    with pytest.raises(ValueError):
        objective_from_dict(stored)


# --- custom objectives ---


def test_custom_squared_error_equals_the_built_in_loss():
    y, raw = draw_target("real", 50, 3), draw_raw(50, 3)
    weight = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    for w in (None, weight[:, 0], weight):
        built_in = get_objective("squared_error").bind(RowData(y, w))
        custom = get_objective(lambda y_true, y_pred: (y_pred - y_true, None)).bind(RowData(y, w))
        assert custom.hessian_shape() == built_in.hessian_shape()
        for ours, theirs in zip(run(custom, raw), run(built_in, raw), strict=True):
            if theirs is None:
                assert ours is None
            else:
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert np.isnan(custom.loss(raw))
        np.testing.assert_array_equal(custom.base_score(), np.zeros(3))


def test_custom_shapes_and_weights():
    seen = {}

    def function(y_true, y_pred, sample_weight=None):
        seen.update(y_true=y_true, y_pred=y_pred, weight=sample_weight)
        return (y_pred - y_true) * sample_weight, sample_weight

    y, weight = draw_target("real", 20, 1), np.full(20, 2, np.float32)
    problem = get_objective(function).bind(RowData(y, weight))
    problem.set_base_score([1e6])
    assert problem.hessian_shape() == (20, 1)
    g, h = run(problem, np.zeros((20, 1), np.float32))
    assert seen["y_true"].shape == seen["y_pred"].shape == seen["weight"].shape == (20,)
    np.testing.assert_allclose(g[:, 0], 2 * (1e6 - y[:, 0]), rtol=1e-6)
    np.testing.assert_array_equal(h[:, 0], 2)

    ids = np.array([0, 2, 1])
    shared = get_objective(lambda y, z: (np.zeros_like(z), np.full(3, 0.5))).bind(RowData(ids))
    assert shared.n_outputs == 3 and shared.hessian_shape() == (3, 1)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda z: z, "two things"),
        (lambda z: (z[:1], None), r"gradient of shape \(1, 2\)"),
        (lambda z: (z * np.nan, None), "gradient that is not finite"),
        (lambda z: (z, np.full(z.shape, np.inf)), "Hessian that is not finite"),
        (lambda z: (z, z[:, :0]), "Hessian of shape"),
        (lambda z: (z, np.full(z.shape, -1.0)), "negative Hessian"),
        (lambda z: (z + 1e39, None), "float32"),
    ],
)
def test_invalid_custom_functions_raise(returned, message):
    if message == "two things":
        pytest.importorskip("jax")  # a loss needs it
    problem = get_objective(lambda y, z: returned(z)).bind(RowData(np.zeros((4, 2))))
    with pytest.raises(ValueError, match=message):
        run(problem, np.zeros((4, 2), np.float32))


@pytest.mark.parametrize("weighted", [False, True])
def test_custom_hessians_equal_the_built_in_loss(weighted):
    label, raw = np.arange(50, dtype=np.int32) % 4, draw_raw(50, 4)
    weight = np.linspace(0, 2, 50).astype(np.float32) if weighted else None
    custom, built_in = (
        get_objective(of).bind(RowData(label, weight)) for of in (softmax_hessians, "softmax")
    )
    for mine, theirs in zip(hessians(custom, raw), hessians(built_in, raw), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    message = r'Hessians \(50, 4, 4\), which only hessian="full".*\(50, 4\)'
    with pytest.raises(ValueError, match=message):
        run(custom, raw)


def test_custom_full_hessian_of_a_diagonal_raises():
    y, raw, weight = draw_target("real", 20, 3), draw_raw(20, 3), np.full(20, 2.0)
    g, h = hessians(get_objective(lambda y, z: (z - y, None)).bind(RowData(y, weight)), raw)
    np.testing.assert_allclose(g, 2 * (raw - y), rtol=1e-6)
    np.testing.assert_array_equal(h, np.broadcast_to(np.float32([2, 0, 2, 0, 0, 2]), (20, 6)))
    with pytest.raises(ValueError, match=r'\(20, 3, 3\).*hessian="diagonal"'):
        hessians(get_objective(lambda y, z: (z - y, np.ones_like(z))).bind(RowData(y)), raw)
    one = get_objective(lambda y, z: (z - y, np.full(20, 0.5))).bind(RowData(y[:, :1]))
    assert (hessians(one, raw[:, :1].copy())[1] == 0.5).all()
    rows = RowData(y, np.ones((20, 3), np.float32))
    full = get_objective(lambda y, z: (z, np.tile(np.eye(3), (20, 1, 1)))).bind(rows)
    with pytest.raises(ValueError, match="weights of single outputs"):
        hessians(full, raw)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            {(2, 0, 1): 0.5},
            r"not symmetric at row 2: entry \(0, 1\) is 0\.5, but \(1, 0\) is 0\..*\(H \+ H",
        ),
        ({(3, 1, 1): np.nan}, r"Hessian that is not finite: nan at row 3, output \(1, 1\)"),
        ({(1, 1, 1): -2.0}, r"negative Hessian, -2, at row 1: .*hessian=\"absolute\"\)"),
    ],
)
def test_invalid_custom_hessians_raise(entries, message):
    H = np.tile(np.eye(2), (4, 1, 1))
    for place, value in entries.items():
        H[place] = value
    problem = get_objective(lambda y, z: (z, H)).bind(RowData(np.zeros((4, 2))))
    with pytest.raises(ValueError, match=message):
        hessians(problem, np.zeros((4, 2), np.float32))


def test_hessian_parameter_of_custom():
    indefinite = np.tile(np.array([[1.0, 2.0], [2.0, 1.0]]), (3, 1, 1))  # eigenvalues 3 and -1

    def both(y, z):
        return z, indefinite

    def diagonal(y, z):
        return z, np.tile([1.0, -2.0], (3, 1))

    raw, y = np.zeros((3, 2), np.float32), np.zeros((3, 2))
    expected = {"absolute": ([2, 1, 2], [1, 2]), "clip": ([1.5, 1.5, 1.5], [1, 0])}
    for choice, (full, own) in expected.items():
        assert np.allclose(hessians(Custom(both, hessian=choice).bind(RowData(y)), raw)[1], full)
        assert np.allclose(run(Custom(diagonal, hessian=choice).bind(RowData(y)), raw)[1], own)
    problem = Custom(diagonal, hessian="none").bind(RowData(y))
    assert problem.hessian_shape() is None
    assert objective_from_dict(Custom(both, hessian="clip").to_dict()) == Custom(None, None, "clip")
    assert "curvature" not in Custom(both).to_dict()  # as in files of earlier versions


def test_custom_from_a_file_predicts_but_does_not_train():
    objective = objective_from_dict(get_objective(lambda y, z: (z, None)).to_dict())
    assert isinstance(objective, Custom)
    np.testing.assert_array_equal(objective.transform(np.ones((2, 2))), np.ones((2, 2)))
    with pytest.raises(ValueError, match="function"):
        objective.bind(RowData(np.zeros((4, 2))))


# --- arithmetic ---


def test_exp_is_within_one_ulp_and_saturates():
    x = np.linspace(-87, 88, 2_000_001, dtype=np.float64).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    assert (np.abs(_core._exp(x) - expected) / np.spacing(expected.astype(np.float32))).max() < 1
    edge = np.array([-np.inf, -1e30, -88, np.nan, 89, 1e30, np.inf], np.float32)
    low, high = _core._exp(np.array([-87, 88], np.float32))
    np.testing.assert_array_equal(_core._exp(edge), [low, low, low, np.nan, high, high, high])


def test_log_is_within_one_ulp():
    rng = np.random.default_rng(0)
    bits = rng.integers(0x00800000, 0x7F7FFFFF, 1_000_000, dtype=np.int32)
    for x in (bits.view(np.float32), np.linspace(0.5, 2.0, 1_000_001).astype(np.float32)):
        expected = np.log(x.astype(np.float64))
        spacing = np.spacing(np.abs(expected).astype(np.float32))
        assert (np.abs(_core._log(x) - expected) / np.maximum(spacing, 1e-30)).max() < 1


DIGEST = """
import hashlib
import numpy as np
from polyleaf import RowData
from polyleaf.objectives import get_objective
from support.loss_inputs import ELEMENTWISE, draw_raw, draw_target, elementwise, hessians, run

def add(problem, raw, with_hessians=False):
    problem.set_base_score(problem.base_score(n_threads))
    arrays = [*run(problem, raw, n_threads), np.array(problem.loss(raw, n_threads)), problem.base]
    for a in [*arrays, *(hessians(problem, raw, n_threads) if with_hessians else ())]:
        digest.update(b"" if a is None else np.ascontiguousarray(a).tobytes())

for n_threads in (1, 3):
    digest = hashlib.sha256()
    for case in ELEMENTWISE:
        objective, kind = elementwise(case)
        for n, k in ((4999, 1), (1001, 3), (40, 1500)):
            weight = np.random.default_rng(9).random((n, k)).astype(np.float32)
            for w in (None, weight[:, 0], weight):
                add(objective.bind(RowData(draw_target(kind, n, k), w)), draw_raw(n, k, scale=5.0))
    losses = [("softmax", {"softmax_hessian": x}) for x in ("diagonal", "residual", "upper")]
    losses += [(name, {}) for name in ("softmax", "exponential", "exponential_margin")]
    for name, options in losses:
        for n, k in ((5001, 2), (999, 10), (77, 150 if not options else 1500)):
            label = np.random.default_rng(9).integers(0, k, n).astype(np.int32)
            objective = get_objective(name, n_classes=k, **options)
            problem = objective.bind(RowData(label, np.linspace(0, 1, n)))
            add(problem, draw_raw(n, k, scale=5.0), not options)
    print(digest.hexdigest())
"""


@pytest.mark.full
def test_instruction_sets_and_threads_give_the_same_bits():
    digests = [text.split() for text in run_on_each_isa(DIGEST)]
    assert len({digest for printed in digests for digest in printed}) == 1


@pytest.mark.parametrize(
    "name", ["poisson", "gamma", "tweedie", "lognormal", "gamma_distribution", "negative_binomial"]
)
def test_means_of_any_scores_are_finite(name):
    objective = get_objective(name)
    scores = np.full((1, objective.outputs_per_target()), 3e38)
    assert objective.transform(scores) == np.finfo(np.float64).max
    assert np.isfinite(objective.transform(-scores)).all()
