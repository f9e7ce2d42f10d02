"""Metrics against scikit-learn, with weights, and their treatment of missing targets."""

import pickle

import numpy as np
import pytest
import scipy.special
from sklearn import metrics as sk

from polyleaf import PolyleafRegressor, RowData
from polyleaf.metrics import Metric, default_metric, get_metric, get_metrics, metric_names
from polyleaf.objectives import get_objective, objective_names

N, K = 400, 3
RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((N, K))
COUNT = RNG.poisson(2.0, (N, K)).astype(np.float64)
POSITIVE = RNG.gamma(2.0, 1.0, (N, K)) + 0.1
LABELS = (RNG.random((N, K)) < 0.4).astype(np.float32)
IDS = RNG.integers(0, 4, N).astype(np.int32)
RAW = RNG.standard_normal((N, K))
CLASS_RAW = RNG.standard_normal((N, 4)) * 2
CLASS_SHARES = np.random.default_rng(5).dirichlet(np.ones(4), N).astype(np.float32)
WEIGHT = RNG.random(N)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def compare_rows(score, y, prediction, **options):
    """Return a function of weights: a score of scikit-learn."""
    return lambda w: score(y, prediction, sample_weight=w, **options)


def compare_elements(score, y, prediction, **options):
    """Return the score of all elements, which have the weight of their row."""
    flat = y.ravel(), prediction.ravel()
    return lambda w: score(*flat, sample_weight=None if w is None else np.repeat(w, K), **options)


def compare_classes(score, **options):
    return IDS, CLASS_RAW, compare_rows(score, IDS, CLASS_RAW.argmax(1), **options)


def compare_labels(score, **options):
    return LABELS, RAW, compare_rows(score, LABELS > 0, RAW > 0, **options)


def complement(score):
    return lambda y, prediction, sample_weight: (
        1 - score(y, prediction, sample_weight=sample_weight)
    )


def kl_divergence(w):
    divergence = scipy.special.rel_entr(CLASS_SHARES, softmax(CLASS_RAW)).sum(axis=1)
    return np.average(divergence, weights=w)


P = sigmoid(RAW)
CASES = {
    "mse": (REAL, RAW, compare_rows(sk.mean_squared_error, REAL, RAW)),
    "rmse": (REAL, RAW, lambda w: sk.mean_squared_error(REAL, RAW, sample_weight=w) ** 0.5),
    "armse": (REAL, RAW, compare_rows(sk.root_mean_squared_error, REAL, RAW)),
    "mae": (REAL, RAW, compare_rows(sk.mean_absolute_error, REAL, RAW)),
    "mape": (REAL, RAW, compare_rows(sk.mean_absolute_percentage_error, REAL, RAW)),
    "rmsle": (COUNT, POSITIVE, compare_elements(sk.root_mean_squared_log_error, COUNT, POSITIVE)),
    "balanced_accuracy": compare_classes(sk.balanced_accuracy_score),
    "mcc": compare_classes(sk.matthews_corrcoef),
    "kappa": compare_classes(sk.cohen_kappa_score),
    "linear_kappa": compare_classes(sk.cohen_kappa_score, weights="linear"),
    "quadratic_kappa": compare_classes(sk.cohen_kappa_score, weights="quadratic"),
    "r2": (REAL, RAW, compare_rows(sk.r2_score, REAL, RAW)),
    "quantile": (REAL, RAW, compare_rows(sk.mean_pinball_loss, REAL, RAW, alpha=0.5)),
    "poisson_deviance": (
        COUNT, POSITIVE, compare_elements(sk.mean_poisson_deviance, COUNT, POSITIVE),
    ),
    "gamma_deviance": (
        POSITIVE, np.exp(RAW), compare_elements(sk.mean_gamma_deviance, POSITIVE, np.exp(RAW)),
    ),
    "tweedie_deviance": (
        COUNT, POSITIVE, compare_elements(sk.mean_tweedie_deviance, COUNT, POSITIVE, power=1.5),
    ),
    "logloss": (LABELS, RAW, compare_elements(sk.log_loss, LABELS, P)),
    "kl_divergence": (CLASS_SHARES, CLASS_RAW, kl_divergence),
    "mlogloss": (IDS, CLASS_RAW, compare_rows(sk.log_loss, IDS, softmax(CLASS_RAW))),
    "error": (LABELS, RAW, compare_elements(complement(sk.accuracy_score), LABELS > 0, RAW > 0)),
    "hamming_loss": compare_labels(sk.hamming_loss),
    "merror": compare_classes(complement(sk.accuracy_score)),
    "accuracy": compare_classes(sk.accuracy_score),
    "subset_accuracy": compare_labels(sk.accuracy_score),
    "f1_micro": compare_labels(sk.f1_score, average="micro"),
    "f1_macro": compare_labels(sk.f1_score, average="macro"),
    "brier": (LABELS, P, compare_elements(sk.brier_score_loss, LABELS, P)),
    "auc": (LABELS, P, compare_rows(sk.roc_auc_score, LABELS, P)),
    "average_precision": (LABELS, P, compare_rows(sk.average_precision_score, LABELS, P)),
}  # fmt: skip


def test_all_metrics_are_compared():
    assert set(CASES) == set(metric_names())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn(name, weighted):
    y, prediction, theirs = CASES[name]
    weight = WEIGHT if weighted else None
    found = get_metric(name)(RowData(y, weight), prediction)
    assert found == pytest.approx(theirs(weight), rel=2e-6)


NO_MISSING = "mlogloss", "merror", "kl_divergence"


@pytest.mark.parametrize("name", CASES)
def test_row_weights_equal_constant_weights_per_output(name):
    y, prediction, _ = CASES[name]
    if name in NO_MISSING or y.ndim == 1:
        pytest.skip("classes have one weight per row")
    metric = get_metric(name)
    full = np.repeat(WEIGHT[:, None], K, axis=1)
    expected = metric(RowData(y, WEIGHT), prediction)
    assert metric(RowData(y, full), prediction) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_MISSING])
def test_missing_targets_are_ignored(name):
    """Targets of weight 0 do not affect the metric, whatever their values."""
    y, prediction, _ = CASES[name]
    metric = get_metric(name)
    if y.ndim == 1:
        pytest.skip("classes have no missing targets")
    weight = np.ones((N, K), np.float32)
    weight[::4, 1] = 0
    filled = y.copy()
    filled[::4, 1] = 0
    other = y.copy()
    other[::4, 1] = 1
    values = [metric(RowData(each, weight), prediction) for each in (filled, other)]
    assert np.isfinite(values[0]) and values[0] == pytest.approx(values[1], rel=1e-12)
    per_output = metric.per_output(RowData(filled, weight), prediction)
    if per_output is not None:
        kept = np.arange(N) % 4 != 0
        alone = metric(RowData(y[kept, 1]), prediction[kept, 1])
        assert per_output[1] == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["gamma", "tweedie", "lognormal", "gamma_distribution", "negative_binomial"]
)
def test_a_missing_target_of_infinite_deviance_is_ignored(name):
    """A missing target is stored as 0, whose deviance may be infinite, with a weight of 0."""
    metric = default_metric(get_objective(name))
    y = np.float32([[1], [2], [0], [4]])
    prediction = np.linspace(-0.5, 1.0, 8).reshape(4, 2)
    prediction = np.exp(prediction[:, :1]) if name in ("gamma", "tweedie") else prediction
    kept = np.array([True, True, False, True])
    alone = metric(RowData(y[kept], np.ones(3, np.float32)), prediction[kept])
    value = metric(RowData(y, kept.astype(np.float32)), prediction)
    assert np.isfinite(value) and value == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_per_output(name):
    y, prediction, _ = CASES[name]
    metric = get_metric(name)
    values = metric.per_output(RowData(y, WEIGHT), prediction)
    if not metric.per_output_defined or y.ndim == 1:
        assert values is None
        return
    assert values.shape == (K,)
    for k in range(K):
        alone = metric(RowData(y[:, k].copy(), WEIGHT), prediction[:, k].copy())
        assert values[k] == pytest.approx(alone, rel=1e-9)


def test_multiclass_forms():
    proba, truth = softmax(CLASS_RAW), IDS[:, None] == np.arange(4)
    for name, expected in {
        "auc": sk.roc_auc_score(IDS, proba, multi_class="ovr", sample_weight=None),
        "average_precision": sk.average_precision_score(truth, proba),
        "brier": np.square(proba - truth).sum(1).mean(),
        "f1_macro": sk.f1_score(IDS, proba.argmax(1), average="macro"),
    }.items():
        prediction = CLASS_RAW if name == "f1_macro" else proba
        assert get_metric(name)(RowData(IDS), prediction) == pytest.approx(expected)


def test_logloss_does_not_clip():
    raw = np.array([[300.0], [-300.0]])
    assert get_metric("logloss")(RowData(np.array([0.0, 1.0])), raw) == pytest.approx(300)
    one = get_metric("mlogloss")(RowData(np.array([1])), np.array([[300.0, 0.0]]))
    assert one == pytest.approx(300)
    certain = get_metric("logloss")(RowData(np.array([1.0])), np.array([[30.0]]))
    assert certain == pytest.approx(np.exp(-30), rel=1e-6)


def test_quantile_levels_come_from_the_objective():
    objective = get_objective("quantile", alpha=[0.1, 0.9])
    metric = default_metric(objective)
    y, prediction = REAL[:, :2], np.c_[RAW, RAW[:, :1]]
    parts = [
        sk.mean_pinball_loss(y[:, k // 2], prediction[:, k], alpha=level, sample_weight=WEIGHT)
        for k, level in enumerate((0.1, 0.9, 0.1, 0.9))
    ]
    np.testing.assert_allclose(metric.per_output(RowData(y, WEIGHT), prediction), parts)
    assert metric(RowData(y, WEIGHT), prediction) == pytest.approx(np.mean(parts))
    with pytest.raises(ValueError, match="got 3"):
        metric(RowData(y), RAW)
    tweedie = default_metric(get_objective("tweedie", variance_power=1.2))
    expected = sk.mean_tweedie_deviance(COUNT.ravel(), POSITIVE.ravel(), power=1.2)
    assert tweedie(RowData(COUNT), POSITIVE) == pytest.approx(expected)


def test_pinball_by_level():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    levels = [0.1, 0.5, 0.9]
    objective = {"objective": "quantile", "quantile_alpha": levels, "calibrate_quantiles": False}
    names = ["pinball@0.1", "pinball@.9", "pinball@0.25"]
    y = X[:, :2] + rng.normal(size=(400, 2))
    one = PolyleafRegressor(**objective, n_estimators=5, eval_metric=names[:2])
    one.fit(X, y, eval_set=[(X, y)])
    found = one.evals_result_["validation_0"]
    predicted = one.predict(X)
    for name, level, column in ((names[0], 0.1, 0), (names[1], 0.9, 2)):
        expected = sk.mean_pinball_loss(y, predicted[:, column::3], alpha=level)
        assert found[name][-1] == pytest.approx(expected, rel=1e-5)
    assert get_metric(names[2])(RowData(y), y - 1) == pytest.approx(0.25)


def test_auc_of_one_class_is_ignored():
    labels = LABELS.copy()
    labels[:, 0] = 1
    proba = sigmoid(RAW)
    expected = sk.roc_auc_score(labels[:, 1:], proba[:, 1:])
    assert get_metric("auc")(RowData(labels), proba) == pytest.approx(expected)
    assert np.isnan(get_metric("auc")(RowData(np.ones(5)), np.linspace(0, 1, 5)))


def test_r2_ignores_constant_outputs():
    y = REAL.copy()
    y[:, 0] = 3.0
    assert get_metric("r2")(RowData(y), RAW) == pytest.approx(sk.r2_score(y[:, 1:], RAW[:, 1:]))


def test_zero_total_weight_is_nan_or_zero():
    for name, (y, prediction, _) in CASES.items():
        value = get_metric(name)(RowData(y, np.zeros(N)), prediction)
        assert np.isnan(value) or value in (0.0, 1.0), name


def test_shape_mismatch_raises():
    with pytest.raises(ValueError, match="y has shape"):
        get_metric("rmse")(RowData(REAL[:, :2]), RAW)
    with pytest.raises(ValueError, match="class ids"):
        get_metric("mlogloss")(RowData(LABELS), RAW)


@pytest.mark.parametrize("name", objective_names())
def test_all_objectives_have_a_default_metric(name):
    metric = default_metric(get_objective(name))
    assert metric.name in (*metric_names(), "nll", "ndcg@10", "loss")
    assert metric.greater_is_better == (metric.name == "ndcg@10")
    assert pickle.loads(pickle.dumps(metric)) == metric


def test_names():
    assert get_metric("multi_logloss").name == "mlogloss"
    assert get_metric("AUC").greater_is_better and not get_metric("rmse").greater_is_better
    objective = get_objective("l2")
    assert [m.name for m in get_metrics(None, objective)] == ["rmse"]
    assert [m.name for m in get_metrics(["mae", "l2"], objective)] == ["mae", "mse"]
    with pytest.raises(ValueError, match="Did you mean 'rmse'"):
        get_metric("rmsee")
    with pytest.raises(ValueError, match="eval_metric"):
        get_metrics(["mae", "l1"], objective)
    with pytest.raises(ValueError, match="name or a callable"):
        get_metric(1)


def test_callables():
    seen = {}

    def bias(y_true, y_pred):
        seen["shapes"] = y_true.shape, y_pred.shape
        return np.mean(y_pred - y_true)

    metric = get_metric(bias)
    assert isinstance(metric, Metric) and metric.name == "bias"
    assert metric(RowData(REAL[:, :1]), RAW[:, :1]) == pytest.approx((RAW - REAL)[:, 0].mean())
    assert seen["shapes"] == ((N,), (N,))

    def hits(y_true, y_pred, sample_weight):
        return "hits", np.average((y_true > 0) == (y_pred > 0), weights=sample_weight), True

    metric = get_metric(hits)
    expected = np.average((REAL > 0)[:, 0] == (RAW > 0)[:, 0], weights=WEIGHT)
    assert metric(RowData(REAL[:, :1], WEIGHT), RAW[:, :1]) == pytest.approx(expected)
    assert metric.prefers_greater and not metric.greater_is_better
    assert metric.to_loss(0.25) == -0.25 and metric.from_loss(-0.25) == 0.25
    assert metric.to_loss(np.nan) == np.inf

    with pytest.raises(ValueError, match="greater_is_better"):
        get_metric(lambda y, p: ("a", 1.0))(RowData(REAL), RAW)


@pytest.mark.parametrize(
    "name", ["logloss", "error", "accuracy", "f1_macro", "mcc", "brier", "auc", "average_precision"]
)
def test_label_metrics_raise_for_numbers(name):
    y, raw = np.array([0.0, 1.0, 3.5]), np.zeros((3, 1))
    with pytest.raises(ValueError, match=r"labels.*3\.5"):
        get_metric(name)(RowData(y), raw)
    get_metric(name)(RowData(np.array([0.0, 1.0, 0.25])), raw)


def test_regression_metrics_raise_for_classes():
    with pytest.raises(ValueError, match="mlogloss"):
        get_metric("rmse")(RowData(np.array([0, 1, 2])), np.zeros((3, 3)))


def test_scorers_and_invalid_functions_raise():
    with pytest.raises(TypeError, match="eval_metric is a scorer"):
        get_metric(sk.get_scorer("f1_macro"))
    with pytest.raises(TypeError, match="'<lambda>' returned None"):
        get_metric(lambda y, prediction: None)(RowData(np.zeros(2)), np.zeros((2, 1)))
    with pytest.raises(TypeError, match=r"shape \(2,\)"):
        get_metric(lambda y, prediction: y - prediction)(RowData(np.zeros(2)), np.zeros((2, 1)))
