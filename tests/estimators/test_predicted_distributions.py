"""Regressors that predict distributions."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from polyleaf import PolyleafClassifier, PolyleafRegressor, load_model
from polyleaf.distributions import Gamma, LogNormal, NegativeBinomial, Normal, StudentT
from polyleaf.objectives import get_objective

FAMILIES = {"normal": Normal, "lognormal": LogNormal, "student_t": StudentT}
FAMILIES |= {"gamma_distribution": Gamma, "negative_binomial": NegativeBinomial}
QUICK = dict(n_estimators=60, max_leaves=8, min_child_samples=20, n_jobs=1)


def make_model(objective="normal", **parameters):
    return PolyleafRegressor(objective=objective, **QUICK | parameters)


def make_data(name, n=3000, n_targets=2, seed=0):
    """Return features, targets whose mean and spread depend on them, and their distributions."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)).astype(np.float32)
    first = np.sin(X[:, :n_targets]) + 1
    second = 0.5 * np.tanh(X[:, 2:3]) - 0.7 + np.zeros((n, n_targets))
    law = get_objective(name).distribution(np.stack([first, second], axis=2).reshape(n, -1))
    return X, law.rvs(random_state=rng), law


@pytest.fixture(scope="module", params=FAMILIES)
def fitted(request):
    X, Y, law = make_data(request.param)
    model = PolyleafRegressor(objective=request.param, **QUICK).fit(X[:2000], Y[:2000])
    return request.param, model, X[2000:], Y[2000:], law[2000:]


def test_scale_parameter_is_learned(fitted):
    name, model, X, Y, law = fitted
    distribution = model.predict_dist(X)
    assert type(distribution) is FAMILIES[name] and distribution.shape == (1000, 2)
    constant = model.model_.objective.distribution(np.tile(get_base_scores(model), (1000, 1)))
    best, ours, worst = (-d.logpdf(Y).mean() for d in (law, distribution, constant))
    assert best < ours < best + 0.35 * (worst - best)
    second = model.predict_raw(X)[:, 1]
    least = 0.5 if name == "negative_binomial" else 0.75
    assert np.corrcoef(second, np.tanh(X[:, 2]))[0, 1] > least


def get_base_scores(model):
    inner = model.model_
    scale, base = inner.target_scale, inner.base_score
    return base if scale is None else base * scale + inner.target_offset


def test_predictions_equal_distribution_means(fitted):
    _, model, X, _, _ = fitted
    assert model.predict(X).shape == (1000, 2) and model.predict_raw(X).shape == (1000, 4)
    assert (model.predict(X) == model.predict_dist(X).mean()).all()
    early = model.predict_dist(X, iteration_range=(0, 10))
    assert (model.predict(X, iteration_range=(0, 10)) == early.mean()).all()
    assert (model.predictor()(X[:5]) == model.predict(X[:5])).all()


def test_probability_integral_transform_is_uniform(fitted):
    """The predicted CDF at the outcomes is compared with the uniform distribution at five
    levels."""
    name, model, X, Y, law = fitted
    if name == "negative_binomial":
        return  # a discrete distribution
    for levels in (law.cdf(Y), model.predict_dist(X).cdf(Y)):
        shares = (levels[..., None] <= [0.1, 0.3, 0.5, 0.7, 0.9]).mean(axis=(0, 1))
        assert np.abs(shares - [0.1, 0.3, 0.5, 0.7, 0.9]).max() < 0.04


def test_saved_model_predicts_the_same_distributions(fitted, tmp_path):
    _, model, X, _, _ = fitted
    model.save_model(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert (loaded.predict_dist(X).interval() == model.predict_dist(X).interval()).all()
    scores = model.model_.objective.score_names
    expected = tuple(f"{target}_{score}" for target in (0, 1) for score in scores)
    assert loaded.model_.output_names == model.model_.output_names == expected


def test_contributions_add_up_to_raw_scores(fitted):
    _, model, X, _, _ = fitted
    values = model.shap_values(X[:50])
    assert values.shape == (50, 4, 4)
    total = values.sum(axis=1) + model.shap_base_values()
    np.testing.assert_allclose(total, model.predict_raw(X[:50]), atol=1e-4)


def test_distributions_scale_with_the_target():
    """Scaled targets give scaled distributions."""
    X, Y, _ = make_data("normal")
    unit = np.array([1024.0, 2.0**-10])
    for name in ("normal", "student_t"):
        plain, moved = (make_model(name).fit(X, y).predict_dist(X) for y in (Y, Y * unit + 7))
        np.testing.assert_allclose(moved.scale, plain.scale * unit, rtol=1e-2)
        assert np.median(np.abs(moved.cdf(Y * unit + 7) - plain.cdf(Y))) <= 1e-4


def test_lognormal_is_normal_of_the_logarithm():
    X, Y, _ = make_data("lognormal", n_targets=1)
    amounts = make_model("lognormal").fit(X, Y[:, 0]).predict_raw(X)
    logarithms = make_model(normalize_targets=False).fit(X, np.log(Y[:, 0])).predict_raw(X)
    np.testing.assert_allclose(amounts, logarithms, rtol=1e-5, atol=1e-5)


def test_1d_target_gives_1d_distributions():
    X, Y, _ = make_data("normal", n_targets=1)
    model = PolyleafRegressor(objective="normal", **QUICK).fit(X, Y[:, 0])
    assert model.predict(X).shape == model.predict_dist(X).shape == (3000,)
    assert model.predict_dist(X).interval().shape == model.predict_raw(X).shape == (3000, 2)
    assert model.model_.output_names == ("mean", "log_std")
    assert model.score(X, Y[:, 0]) > 0.5


def test_data_frame_predictions_have_target_names():
    X, Y, _ = make_data("normal")
    model = PolyleafRegressor(objective="normal", **QUICK)
    model.fit(X, pd.DataFrame(Y, columns=["price", "volume"])).set_output(predict="pandas")
    assert list(model.predict(X).columns) == ["price", "volume"]
    expected = ["price_mean", "price_log_std", "volume_mean", "volume_log_std"]
    assert list(model.predict_raw(X).columns) == list(model.model_.output_names) == expected


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_with_missing_targets_train_other_targets(name):
    X, Y, _ = make_data(name)
    Y = Y.astype(np.float64)
    Y[::3, 0] = np.nan
    model = PolyleafRegressor(objective=name, missing_targets="ignore", **QUICK).fit(X, Y)
    other = PolyleafRegressor(objective=name, missing_targets="ignore", **QUICK)
    other.fit(X, Y, sample_weight=np.where(np.isnan(Y), 0.0, 1.0))
    assert (model.predict(X) == other.predict(X)).all() and np.isfinite(model.predict(X)).all()


def test_early_stopping_uses_the_likelihood():
    X, Y, _ = make_data("normal", n=600)
    options = {"n_estimators": 200, "early_stopping_rounds": 10, "n_jobs": 1}
    model = PolyleafRegressor("normal", **options)
    model.fit(X[:300], Y[:300], X_val=X[300:], y_val=Y[300:])
    curve = model.evals_result_["validation"]["nll"]
    assert model.best_iteration_ == int(np.argmin(curve)) < len(curve) - 1 < 199
    distribution = model.predict_dist(X[300:])
    assert model.best_score_ == pytest.approx(-distribution.logpdf(Y[300:]).mean())
    each = model.evals_result_per_output_["validation"]["nll"][model.best_iteration_]
    np.testing.assert_allclose(each, -distribution.logpdf(Y[300:]).mean(axis=0))


def test_metrics_by_name():
    X, Y, _ = make_data("gamma_distribution", n=500)
    weight = np.random.default_rng(0).random((500, 2))
    names = ["nll", "crps", "rmse", "loss", "relative_crps"]
    model = make_model("gamma_distribution", eval_metric=names)
    model.fit(X, Y, eval_set=[(X, Y)], eval_sample_weight=[weight])
    last = {name: values[-1] for name, values in model.evals_result_["validation_0"].items()}
    law = model.predict_dist(X)
    assert last["nll"] == pytest.approx(np.average(-law.logpdf(Y), weights=weight), rel=1e-6)
    assert last["loss"] == pytest.approx(last["nll"], rel=1e-5)
    assert last["crps"] == pytest.approx(np.average(law.crps(Y), weights=weight), rel=1e-6)
    squared_error = np.average((Y - law.mean()) ** 2, weights=weight)
    assert last["rmse"] == pytest.approx(np.sqrt(squared_error), rel=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"multi_strategy": "one_output_per_tree"},
        {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3, "max_leaves": None},
        {"leaf": "linear"},
        {"hessian": "full"},
        {"leaf": "sparse", "leaf_k": 2},
        {"sketch": "random_projection", "sketch_dim": 2},
    ],
)
def test_compatible_and_incompatible_parameters(settings):
    X, Y, law = make_data("normal")
    distribution = make_model(**settings).fit(X, Y).predict_dist(X)
    nothing = Normal(Y.mean(axis=0), Y.std(axis=0)).logpdf(Y).mean()
    assert distribution.logpdf(Y).mean() > nothing + 0.4 * (law.logpdf(Y).mean() - nothing)


def test_offset_changes_the_mean_only():
    X, Y, _ = make_data("normal")
    offset = np.linspace(-3, 3, 6000).reshape(3000, 2)
    plain, moved = (make_model(normalize_targets=False) for _ in range(2))
    plain.fit(X, Y)
    moved.fit(X, Y + offset, offset=offset)
    distribution, expected = moved.predict_dist(X, offset=offset), plain.predict_dist(X)
    assert np.median(np.abs(distribution.loc - offset - expected.loc)) <= 1e-5
    np.testing.assert_allclose(np.median(distribution.scale / expected.scale), 1, rtol=1e-5)
    moved.calibrate(X, Y + offset, offset=offset)
    assert (moved.predict_interval(X, offset=offset)[..., 0] < distribution.loc).all()


def test_log_exposure_of_counts():
    X, _, _ = make_data("negative_binomial", n_targets=1)
    rng = np.random.default_rng(0)
    exposure = rng.uniform(0.5, 20, 3000)
    counts = rng.poisson(exposure * np.exp(np.sin(X[:, 0])) * rng.gamma(2, 0.5, 3000))
    model = make_model("negative_binomial").fit(X, counts, offset=np.log(exposure))
    distribution = model.predict_dist(X, offset=np.log(exposure))
    assert np.corrcoef(np.log(distribution.mu / exposure), np.sin(X[:, 0]))[0, 1] > 0.9
    assert abs(np.log(np.median(distribution.alpha) / 0.5)) < 0.4


# --- intervals ---


@pytest.mark.parametrize("joint", [False, True])
def test_calibrated_intervals_have_their_coverage(fitted, joint):
    name, model, X, Y, _ = fitted
    model.calibrate(X[:500], Y[:500], coverage=0.8, joint=joint)
    bounds = model.predict_interval(X[500:])
    inside = (bounds[..., 0] <= Y[500:]) & (Y[500:] <= bounds[..., 1])
    coverage = inside.all(axis=1).mean() if joint else inside.mean(axis=0)
    assert np.min(coverage) > 0.8 - 3 * np.sqrt(0.16 * 2 / 500)
    # Counts may equal a bound, so their coverage may be larger.
    assert name == "negative_binomial" or np.max(coverage) < 0.8 + 3 * np.sqrt(0.16 * 2 / 500)
    if name not in ("normal", "student_t"):
        assert (bounds >= 0).all()  # within the domain of the distribution


def test_calibration_keeps_intervals_of_correct_distributions():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20_000, 1)), rng.standard_normal((20_000, 2))
    model = PolyleafRegressor("normal", n_estimators=1, learning_rate=1e-6, n_jobs=1)
    model.fit(X, Y).calibrate(X, Y, coverage=0.9)
    expected = model.predict_dist(X[:5]).interval(0.9)
    np.testing.assert_allclose(model.predict_interval(X[:5]), expected, atol=0.03)


# --- errors ---


def test_predict_dist_without_distribution_raises():
    X, Y, _ = make_data("normal", n=100)
    model = PolyleafRegressor(**QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="'squared_error' does not learn a distribution; normal"):
        model.predict_dist(X)


def test_distribution_metrics_without_distribution_raise():
    X, Y, _ = make_data("normal", n=100)
    with pytest.raises(ValueError, match="'nll'"):
        PolyleafRegressor(eval_metric="nll", **QUICK).fit(X, Y, eval_set=[(X, Y)])


def test_distribution_objective_of_a_classifier_raises():
    X, _, _ = make_data("normal", n=100)
    with pytest.raises(ValueError, match="normal"):
        PolyleafClassifier(objective="normal", **QUICK).fit(X, X[:, 0] > 0)


def test_normal_densities_equal_scipy():
    X, Y, _ = make_data("normal", n=500)
    distribution = PolyleafRegressor(objective="normal", **QUICK).fit(X, Y).predict_dist(X)
    law = stats.norm(distribution.loc, distribution.scale)
    np.testing.assert_allclose(distribution.logpdf(Y), law.logpdf(Y))


@pytest.mark.parametrize("name", ["student_t", "normal"])
def test_interval_bounds_are_ordered_for_extreme_outliers(name):
    """The probability of the outliers is 0 in float64."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(200)
    model = PolyleafRegressor(objective=name, n_estimators=5).fit(X[:100], y[:100])
    predicted = model.calibrate(X[100:], y[100:] + 1e100, coverage=0.95).predict_interval(X[:5])
    assert np.isfinite(predicted).all() and (predicted[:, 0] < predicted[:, 1]).all()
