"""Losses written with JAX: exact derivatives, error messages, and estimators.

Most of the time is spent compiling losses, so there is one case per loss.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
from support.loss_inputs import draw_raw, draw_target, hessians, run, softmax_hessians

from polyleaf import Model, PolyleafClassifier, PolyleafRegressor, RowData, load_model
from polyleaf.objectives import Custom, get_objective
from polyleaf.objectives.autodiff import BoundLoss

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.full
jnp = jax.numpy


def cross_entropy(y, scores):
    return jax.nn.logsumexp(scores) - scores[y]


def cross_entropy_of_all(y, scores):
    return jax.nn.logsumexp(scores, axis=1) - scores[jnp.arange(len(y)), y]


def squares(y, scores):
    return ((scores - y) ** 2 / 2).sum()


def logistic(y, scores):
    return (jax.nn.softplus(scores) - y * scores).sum()


def gaussian(y, scores):
    """Return the Gaussian loss of mean and log standard deviation: two scores per target, not
    convex."""
    mean, log_deviation = scores
    return log_deviation + 0.5 * ((y - mean) * jnp.exp(-log_deviation)) ** 2


def pairs(y, scores):
    """Return a pairwise ranking loss of labels, which couples all scores of a row."""
    margins = scores[:, None] - scores[None, :]
    return (y[:, None] * (1 - y[None, :]) * jax.nn.softplus(-margins)).sum()


def ids(n, k, seed=0):
    return np.random.default_rng(seed).integers(0, k, n).astype(np.int32)


# --- derivatives ---


@pytest.mark.parametrize("loss, weighted", [(cross_entropy, True), (cross_entropy_of_all, False)])
def test_cross_entropy_equals_the_built_in_loss(loss, weighted):
    n, k = 500, 5
    label, raw = ids(n, k), draw_raw(n, k)
    weight = np.random.default_rng(2).integers(0, 3, n).astype(np.float32) if weighted else None
    built_in = get_objective("softmax", softmax_hessian="diagonal").bind(RowData(label, weight))
    problem = get_objective(loss).bind(RowData(label, weight))
    assert isinstance(problem, BoundLoss)
    base = problem.base_score()
    expected = built_in.base_score()
    np.testing.assert_allclose(base - base.mean(), expected - expected.mean(), atol=1e-3)
    for each in (problem, built_in):
        each.set_base_score(base)
    for derive in (run, hessians):
        for mine, theirs in zip(derive(problem, raw), derive(built_in, raw), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert problem.loss(raw) == pytest.approx(built_in.loss(raw), rel=1e-6)


@pytest.mark.parametrize(
    "loss, name, kind, k",
    [(squares, "squared_error", "real", 3), (logistic, "logistic", "share", 1)],
)
def test_separable_losses_equal_the_built_in_losses(loss, name, kind, k):
    y, raw = draw_target(kind, 300, k), draw_raw(300, k)
    weight = np.linspace(0, 2, 300).astype(np.float32)
    problem, built_in = (get_objective(of).bind(RowData(y, weight)) for of in (loss, name))
    base = built_in.base_score()
    np.testing.assert_allclose(problem.base_score(), base, atol=1e-4)
    for each in (problem, built_in):
        each.set_base_score(base)
    for mine, theirs in zip(hessians(problem, raw), hessians(built_in, raw), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert problem.loss(raw) == pytest.approx(built_in.loss(raw) * k, rel=1e-6)  # weights: per row


def test_coupled_losses_equal_analytical_derivatives():
    k = 4
    y, raw = draw_target("binary", 300, k), draw_raw(300, k, scale=3.0)
    g, packed = hessians(get_objective(pairs).bind(RowData(y)), raw)
    counted = y[:, :, None] * (1 - y[:, None, :])  # label i is 1, label j is 0
    p = 1 / (1 + np.exp(raw.astype(float)[:, :, None] - raw[:, None, :]))
    slope, bend = counted * p, counted * p * (1 - p)
    np.testing.assert_allclose(g, slope.sum(1) - slope.sum(2), rtol=1e-5, atol=1e-6)
    both = bend + bend.transpose(0, 2, 1)
    H = -both
    H[:, np.arange(k), np.arange(k)] = both.sum(2)
    np.testing.assert_allclose(packed, H[:, *np.tril_indices(k)], rtol=1e-5, atol=1e-6)


def test_derivatives_are_independent_of_chunks_and_padding(monkeypatch):
    label, raw = ids(2500, 4), draw_raw(2500, 4)
    weight = np.linspace(0.1, 1, 2500).astype(np.float32)
    whole = get_objective(cross_entropy).bind(RowData(label, weight))
    monkeypatch.setattr("polyleaf.objectives.autodiff._CHUNK_ENTRIES", 16 * 700)
    cut = get_objective(cross_entropy).bind(RowData(label, weight))
    assert whole._chunk == 2500 and cut._chunk == 700
    for a, b in zip(hessians(whole, raw), hessians(cut, raw), strict=True):
        np.testing.assert_array_equal(a, b)
    assert cut.loss(raw) == pytest.approx(whole.loss(raw), rel=1e-12)


def test_float64_is_used_independently_of_the_jax_configuration():
    seen = []

    def loss(y, score):
        seen.append(score.dtype)
        return (score - y) ** 2 / 2

    y = np.float64(1e9) + np.array([[-1.0], [0.25], [0.75]])
    problem = get_objective(loss).bind(RowData(y))
    problem.set_base_score([1e9])
    g, _ = run(problem, np.zeros((3, 1), np.float32))
    np.testing.assert_allclose(g[:, 0], [1.0, -0.25, -0.75], atol=1e-6)
    assert set(seen) == {np.dtype(np.float64)}
    assert jnp.zeros(1).dtype == np.float32  # the user's JAX configuration is unchanged


def test_rows_of_zero_weight_are_ignored():
    def loss(y, score):
        return jnp.exp(score) - y * score + 0 * jnp.log(y)

    y = np.array([[1.0], [0.0], [2.0]])  # log 0: infinite, times 0: NaN
    problem = get_objective(loss).bind(RowData(y, np.array([1, 0, 1])))
    np.testing.assert_allclose(problem.base_score(), np.log(1.5), atol=1e-4)
    g, h = run(problem, np.zeros((3, 1), np.float32))
    np.testing.assert_allclose(g[:, 0], [0, 0, -1])
    np.testing.assert_allclose(h[:, 0], [1, 0, 1])


# --- losses and functions that return derivatives ---


def test_functions_that_return_derivatives_are_not_traced():
    y, raw = draw_target("real", 30, 2), draw_raw(30, 2)
    for function in (
        lambda y, z: (z - y, None),
        lambda y, z: (np.clip(z - y, -1, 1), np.ones_like(z)),  # NumPy functions reject JAX tracers
        lambda y, z: [jnp.asarray(z - y), None],
        lambda y, z, sample_weight=None: (z - y, None),
    ):
        problem = get_objective(function).bind(RowData(y))
        assert not isinstance(problem, BoundLoss)
        assert np.isfinite(run(problem, raw)[0]).all()


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda y, z: (z - y) ** 2, r"one number for each row.*\(5, 3\).*for one row .* \(3,\)"),
        (lambda y, z: z.sum() if z.max() > 0 else z.sum() * 2, "TracerBoolConversionError"),
        (lambda y, z: z.argmax(), "returns int64, which has no derivative"),
    ],
)
def test_other_functions_raise(function, message):
    problem = get_objective(function).bind(RowData(np.zeros((5, 3))))
    with pytest.raises(ValueError, match=message):
        run(problem, np.ones((5, 3), np.float32))


IN_A_FRESH_PYTHON = """
import sys
import numpy as np
from polyleaf import RowData
from polyleaf.objectives import get_objective
if {blocked}:
    sys.modules["jax"] = None
zeros = np.zeros((4, 2), np.float32)
derivatives = get_objective(lambda y, z: (z - y, None)).bind(RowData(zeros))
derivatives.derivatives(zeros, zeros.copy(), None)
assert sys.modules.get("jax") is None
try:
    problem = get_objective(lambda y, z: ((z - y) ** 2).sum()).bind(RowData(zeros))
    print(type(problem).__name__)
except ImportError as error:
    print(error)
def inside(y, z):
    import jax
    return jax.numpy.sum((z - y) ** 2, axis=1)
try:
    print(type(get_objective(inside).bind(RowData(zeros))).__name__)
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("blocked", [False, True])
def test_jax_is_imported_for_losses_only(blocked):
    code = IN_A_FRESH_PYTHON.format(blocked=blocked)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    message = done.stdout.splitlines()
    if blocked:
        assert 'pip install "polyleaf[jax]"' in message[0] and "jax" in message[1]
    else:
        assert message == ["BoundLoss", "BoundLoss"]


def test_weights_of_single_outputs_raise():
    with pytest.raises(ValueError, match="weights of single outputs"):
        get_objective(squares).bind(RowData(np.zeros((4, 2)), np.ones((4, 2))))


# --- losses that are not twice differentiable, not finite, not convex ---


@pytest.mark.parametrize(
    "loss, derive",
    [
        (lambda y, z: jnp.abs(z - y).sum(), hessians),
        (lambda y, z: jax.nn.relu(1 - (2 * y - 1) * z).sum(), run),
        (lambda y, z: (z[0] - y[0]) ** 2 + jnp.maximum(0.3 * (y - z), 0.7 * (z - y))[1], run),
    ],
)
def test_piecewise_linear_losses_raise(loss, derive):
    y, raw = draw_target("binary", 50, 2), draw_raw(50, 2)
    message = r'no second derivative.*hessian="none" and leaf_hessian="none"'
    with pytest.raises(ValueError, match=message):
        derive(get_objective(loss).bind(RowData(y)), raw)
    first_order = get_objective(loss, hessian="none").bind(RowData(y))
    assert first_order.hessian_shape() is None
    g, h = hessians(first_order, raw)  # the constant Hessian 1
    assert (np.abs(g).max() > 0) and (h == [1, 0, 1]).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "loss",
    [
        lambda y, z: jnp.where((a := jnp.abs(z - y)) < 1, a**2 / 2, a - 0.5).sum(),  # Huber
        lambda y, z: (jax.nn.relu(1 - (2 * y - 1) * z) ** 2).sum(),
        lambda y, z: (jax.nn.softplus(50 * (z - y)) / 50).sum(),
    ],
)
def test_smooth_losses_with_large_hessians_do_not_warn(loss):
    y, raw = draw_target("binary", 50, 2), draw_raw(50, 2)
    run(get_objective(loss).bind(RowData(y)), raw)


@jax.custom_jvp
def _wrong(z):
    return z**2


_wrong.defjvp(lambda z, dz: (z[0] ** 2, 3 * z[0] * dz[0]))


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, z: _wrong(z - y).sum(),
        lambda y, z: jax.lax.stop_gradient(z - y) @ (z - y),
        lambda y, z: (z.astype(np.float32).astype(np.float16) ** 2).sum().astype(np.float64),
    ],
)
def test_derivatives_that_differ_from_finite_differences_raise(loss):
    problem = get_objective(loss).bind(RowData(draw_target("real", 20, 2)))
    message = "gradient of the loss is .* finite differences.*custom_jvp"
    with pytest.raises(ValueError, match=message):
        run(problem, draw_raw(20, 2))


@pytest.mark.filterwarnings("error")
def test_non_finite_losses_raise_with_the_row():
    y, raw = np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [-2.0], [3.0]], np.float32)
    by_row = r"loss is nan at row 1 \(y = 2\., raw scores = \[-2\.\]\).*softplus"
    roots = lambda y, z: jnp.where(z > 0, jnp.sqrt(z), z**2) + z**2  # noqa: E731
    for loss, scores, message in (
        (lambda y, z: z - y * jnp.log(z), raw, by_row),
        (roots, raw, r"loss is 8 at row 1 .* derivatives are not finite.*jnp\.where"),
        (lambda y, z: jnp.exp(z), raw + 200, "beyond the range of float32"),
    ):
        with pytest.raises(ValueError, match=message):
            run(get_objective(loss).bind(RowData(y)), scores)
    defined = get_objective(lambda y, z: z - y * jnp.log(z)).bind(RowData(y))
    np.testing.assert_allclose(run(defined, np.abs(raw))[0], 1 - y / np.abs(raw), rtol=1e-6)


def test_hessian_parameter_treats_negative_eigenvalues():
    y, raw = np.array([[0.0], [5.0]]), np.array([[1.0, -0.5], [1.0, 0.5]], np.float32)
    with pytest.raises(ValueError, match=r"negative Hessian.*row [01].*Custom\(function, hessian="):
        hessians(Custom(gaussian, n_outputs=2).bind(RowData(y)), raw)
    found = {}
    for choice in ("absolute", "clip"):
        _, h = hessians(Custom(gaussian, n_outputs=2, hessian=choice).bind(RowData(y)), raw)
        found[choice] = np.array([[[a, b], [b, c]] for a, b, c in h.astype(float)])
        assert (np.linalg.eigvalsh(found[choice]) >= -1e-5).all()
    assert np.abs(found["absolute"] - found["clip"]).max() > 1e-3


def test_negative_second_derivative():
    def derive(**options):
        problem = Custom(lambda y, z: jnp.sin(z), **options).bind(RowData(np.zeros((3, 1))))
        return run(problem, np.array([[-1.0], [1.0], [-1.0]], np.float32))

    message = r"negative Hessian, -0\.841471, at row 1 \(y = 0\., raw scores = \[1"
    with pytest.raises(ValueError, match=message):
        derive()
    for choice, expected in (("absolute", 0.841471), ("clip", 0.0)):
        _, h = derive(hessian=choice)
        assert h[1, 0] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="hessian must be one of 'exact'"):
        Custom(squares, hessian="eigen")


# --- estimators ---


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    return X, np.stack([X[:, 0] + X[:, 1] ** 2, np.sin(2 * X[:, 2]), X[:, 0] * X[:, 3]], axis=1)


def test_classifiers_train_on_a_loss(data):
    X, Y = data
    y = np.array(["a", "b", "c"])[Y.argmax(1)]
    few = {"n_estimators": 15, "max_depth": 3}
    built_in = PolyleafClassifier(softmax_hessian="diagonal", **few).fit(X, y)
    watching = {"eval_set": [(X, y)], "eval_names": ["t"]}
    model = PolyleafClassifier(objective=cross_entropy, **few).fit(X, y, **watching)
    assert model.score(X, y) == pytest.approx(built_in.score(X, y), abs=0.02)
    assert model.evals_result_["t"]["merror"][-1] == pytest.approx(1 - model.score(X, y))
    watched = PolyleafClassifier(objective=cross_entropy, eval_metric="loss", **few)
    watched.fit(X, y, **watching)
    p = jax.nn.softmax(watched.decision_function(X), axis=1)
    expected = -np.log(np.asarray(p)[np.arange(400), Y.argmax(1)]).mean()
    assert watched.evals_result_["t"]["loss"][-1] == pytest.approx(expected, rel=1e-4)

    binary = PolyleafClassifier(objective=logistic, **few).fit(X, Y[:, 0] > 0)
    labels = PolyleafClassifier(objective=pairs, **few).fit(X, (Y > 0).astype(int))
    assert binary.score(X, Y[:, 0] > 0) > 0.9 and labels.decision_function(X).shape == (400, 3)
    with pytest.raises(ValueError, match="has 2 scores, but y needs 3"):
        PolyleafClassifier(objective=Custom(cross_entropy, n_outputs=2)).fit(X, y)


@pytest.mark.parametrize("boosting_step", ["round", "layer"])
def test_full_hessian_gives_the_trees_of_the_built_in_loss(boosting_step, data):
    X, Y = data
    settings = {"hessian": "full", "boosting_step": boosting_step, "grow_policy": "depthwise"}
    settings |= {"n_estimators": 5, "base_score": 0.0, "max_depth": 3}
    expected = PolyleafClassifier(**settings).fit(X, Y.argmax(1)).decision_function(X)
    for objective in (cross_entropy, softmax_hessians):
        model = PolyleafClassifier(objective=objective, **settings).fit(X, Y.argmax(1))
        np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-4)
    with pytest.raises(ValueError, match='only hessian="full"'):
        PolyleafClassifier(objective=softmax_hessians).fit(X, Y.argmax(1))


def test_regressors_train_on_a_loss(data):
    X, Y = data
    few = {"n_estimators": 15, "max_depth": 3}
    built_in = PolyleafRegressor(**few).fit(X, Y)
    model = PolyleafRegressor(objective=squares, **few).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), built_in.predict(X), atol=1e-3)

    rng = np.random.default_rng(1)
    noisy = X[:, 0] + rng.standard_normal(400) * np.where(X[:, 1] > 0, 1.0, 0.1)
    objective = Custom(gaussian, n_outputs=2, hessian="absolute")
    few = {"n_estimators": 60, "early_stopping_rounds": 30, "eval_metric": "loss"}
    model = PolyleafRegressor(objective=objective, **few).fit(X, noisy, eval_set=[(X, noisy)])
    assert list(model.evals_result_["validation_0"]) == ["loss"]
    prediction = model.predict(X)
    assert prediction.shape == (400, 2)
    assert prediction[X[:, 1] > 0, 1].mean() > prediction[X[:, 1] < 0, 1].mean() + 1


def test_hessian_none_needs_no_second_derivative(data):
    X, Y = data
    options = {"hessian": "none", "leaf_hessian": "none", "n_estimators": 50}
    model = PolyleafRegressor(lambda y, z: jnp.abs(z - y).sum(), **options)
    error = np.abs(model.fit(X, Y).predict(X) - Y).mean()
    assert error < 0.7 * np.abs(Y - np.median(Y, axis=0)).mean()
    with pytest.raises(ValueError, match="no second derivative"):
        model.set_params(leaf_hessian="auto").fit(X, Y)


def test_saved_models_predict_but_do_not_train_without_the_function(data, tmp_path):
    X, Y = data
    few = {"n_estimators": 4}
    objective = Custom(cross_entropy, hessian="clip")
    model = PolyleafClassifier(objective=objective, **few).fit(X, Y.argmax(1))
    model.save_model(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    stored = json.loads(json.dumps(loaded.model_.objective.to_dict()))
    assert stored == {"name": "custom", "n_outputs": 3, "hessian": "clip"}
    with pytest.raises(ValueError, match="function"):
        PolyleafClassifier(objective=Model.load(tmp_path / "m").objective).fit(X, Y.argmax(1))
    on = PolyleafClassifier(objective=objective, **few)
    assert on.fit(X, Y.argmax(1), init_model=tmp_path / "m").n_iter_ == 8


def test_loss_metric_equals_that_of_built_in_objectives(data):
    X, Y = data
    model = PolyleafRegressor(eval_metric=["loss", "mse"], n_estimators=3)
    model.fit(X, Y + 1e6, eval_set=[(X, Y + 1e6)])
    found = model.evals_result_["validation_0"]
    np.testing.assert_allclose(found["loss"], np.array(found["mse"]) / 2, rtol=1e-5)
    model.set_params(objective=lambda y, z: (z - y, None))
    with pytest.raises(ValueError, match="derivatives"):
        model.fit(X, Y, eval_set=[(X, Y)])


@pytest.mark.parametrize(
    "function",
    [lambda y, z: 3.0, lambda y, z: (y * 2.0).sum(), lambda y, z: jnp.ones(len(y)) * y[:, 0]],
)
def test_loss_independent_of_the_scores_raises(data, function):
    X, Y = data
    with pytest.raises(ValueError, match="does not depend on the scores"):
        PolyleafRegressor(objective=function, n_estimators=1).fit(X, Y)


@pytest.mark.parametrize(
    "function", [lambda y: y, lambda y, z, extra: z - y, lambda y, z, extra, sample_weight: z - y]
)
def test_loss_of_another_signature_raises(data, function):
    X, Y = data
    message = r"two arguments, \(y_true, y_pred\).*<lambda>\(y.*functools.partial"
    with pytest.raises(ValueError, match=message):
        PolyleafRegressor(objective=function, n_estimators=1).fit(X, Y)
