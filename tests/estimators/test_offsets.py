"""Offsets in training, prediction, evaluation and files.

If the loss depends on score - target only, offsets are subtracted from the target; otherwise the
loss is evaluated at the offset. Both are compared with direct computations.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import reference
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from support.problems import run_boosting
from support.small_fits import (
    LAYERS,
    SMALL,
    N,
    X,
    Y,
    bits,
    classifier,
    coupled_derivatives,
    get_binned_data,
    regressor,
    runs,
    targets,
)

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, RowData, load_model
from polyleaf.metrics import get_metrics

RNG = np.random.default_rng(7)
KNOWN = np.round(4 * RNG.standard_normal((N, 3))) / 4  # sums of quarters are exact
COUNTS = RNG.poisson(np.exp(np.clip(Y / 2 + KNOWN / 2, -3, 3))).astype(float)
CLASSES = (Y + 4 * KNOWN).argmax(axis=1)
LABELS = (Y + 4 * KNOWN > 0).astype(int)


# --- losses of score - target ---------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["squared_error", "absolute_error", "huber", "quantile"])
@pytest.mark.parametrize(
    "options", [{}, {"normalize_targets": True}, {"boosting_step": "layer"}], ids=str
)
def test_location_losses_train_on_target_minus_offset(objective, options):
    """The trees are those for y - offset; predictions add the offset."""
    options = options | ({} if "boosting_step" not in options else LAYERS)
    if objective == "quantile":
        options["quantile_alpha"] = [0.2, 0.5, 0.8]
    quarters = np.round(4 * Y) / 4  # so that y - offset is exact in either order
    if options.get("normalize_targets"):
        options["normalize_targets"] = False
    with_offset = regressor(objective=objective, **options).fit(X, quarters, offset=KNOWN)
    of_rest = regressor(objective=objective, **options).fit(X, quarters - KNOWN)
    assert bits(with_offset) == bits(of_rest)
    per_level = with_offset.model_.n_outputs // 3
    expected = of_rest.predict(X) + np.repeat(KNOWN, per_level, axis=1)
    np.testing.assert_allclose(
        with_offset.predict(X, offset=KNOWN), expected, rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(with_offset.predict(X), of_rest.predict(X))


@pytest.mark.parametrize("normalize", [True, "auto"])
def test_offsets_are_in_units_of_y(normalize):
    """With any target scaling, the offset is subtracted from y before training."""
    unit = np.array([1e3, 1.0, 1e-3])
    y, offset = Y * unit, KNOWN * unit
    model = regressor(normalize_targets=normalize, n_estimators=60, learning_rate=0.2)
    plain = regressor(normalize_targets=normalize, n_estimators=60, learning_rate=0.2).fit(X, y)
    model.fit(X, y + offset, offset=offset)
    error = np.sqrt(np.mean((model.predict(X, offset=offset) - (y + offset)) ** 2, axis=0)) / unit
    of_plain = np.sqrt(np.mean((plain.predict(X) - y) ** 2, axis=0)) / unit
    assert (error < 1.2 * of_plain).all()


def test_large_offsets_keep_precision():
    """y - offset is computed in float64, so an offset of 1e9 costs no accuracy."""
    far = 1e9 * KNOWN
    model = regressor(n_estimators=30).fit(X, Y + far, offset=far)
    plain = regressor(n_estimators=30).fit(X, Y)
    # y itself, near 1e9, is known to 1e-7.
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-5)


# --- other losses ---------------------------------------------------------------------------------


def test_derivatives_with_offset_equal_the_reference(library):
    parameters = {"hessian": "diagonal", "leaf_hessian": "diagonal", "learning_rate": 0.5}
    model = regressor(objective=coupled_derivatives, max_leaves=8, max_depth=None, **parameters)
    model.fit(X, Y, offset=KNOWN)
    config = reference.GrowConfig(max_leaves=8, min_child_samples=4, min_child_weight=1e-3)
    training = get_binned_data(model), Y, coupled_derivatives, "diagonal", config
    options = {"n_rounds": 3, "learning_rate": 0.5, "offset": KNOWN}
    scores, _ = run_boosting(library, *training, **options)
    np.testing.assert_array_equal(list(model.staged_predict(X, offset=KNOWN)), scores[1:])
    np.testing.assert_array_equal(model.predict(X, offset=KNOWN), scores[-1])


@pytest.mark.parametrize(
    "options", [{}, LAYERS, {"multi_strategy": "one_output_per_tree"}], ids=str
)
def test_predictions_on_training_rows_equal_raw_scores_of_training(options):
    with runs() as begun:
        model = regressor(objective="poisson", **options).fit(X, COUNTS, offset=KNOWN)
    expected = begun[0].members[0].state.raw.astype(np.float64) + model.model_.base_score + KNOWN
    np.testing.assert_allclose(model.predict_raw(X, offset=KNOWN), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(
        begun[0].members[0].state.seen_scores(),
        begun[0].members[0].state.raw + KNOWN.astype(np.float32),
    )


@pytest.mark.parametrize("leaf", ["linear", "sparse"])
def test_linear_and_sparse_leaves_use_offsets(leaf):
    """The offset explains the counts, so the model with it is better at once."""
    options = {"leaf": leaf, "leaf_k": 2} if leaf == "sparse" else {"leaf": leaf}
    y = RNG.poisson(np.exp(KNOWN)).astype(float)
    model = regressor(objective="poisson", **options).fit(X, y, offset=KNOWN)
    without = regressor(objective="poisson", **options).fit(X, y)
    assert model.score(X, y, offset=KNOWN) > 0.5 > without.score(X, y) + 0.2


def test_log_exposure_as_offset():
    """Predictions without an offset are rates; with it they are proportional to the exposure."""
    exposure = np.where(np.arange(N) % 2, 1.0, 8.0)
    rate = np.exp(0.5 * X[:, 0])
    y = RNG.poisson(rate * exposure).astype(float)
    model = regressor(objective="poisson", n_estimators=60, learning_rate=0.1)
    model.fit(X, y, offset=np.log(exposure))
    np.testing.assert_allclose(
        model.predict(X, offset=np.log(8.0) * np.ones(N)), 8 * model.predict(X)
    )
    assert np.corrcoef(np.log(model.predict(X)), np.log(rate))[0, 1] > 0.9
    total = model.predict(X, offset=np.log(exposure)).sum()
    assert total == pytest.approx(y.sum(), rel=0.05)


def test_offsets_of_classes_and_labels():
    """The feature is constant: classes are predicted by the offset alone."""
    blind = np.zeros((N, 1))
    for y, offset in ((CLASSES, 4 * KNOWN), (LABELS, 4 * KNOWN), (LABELS[:, 0], 4 * KNOWN[:, 0])):
        model = PolyleafClassifier(**SMALL).fit(blind, y, offset=offset)
        assert model.score(blind, y, offset=offset) > model.score(blind, y) + 0.1
        odds = model.decision_function(blind, offset=offset) - model.decision_function(blind)
        np.testing.assert_allclose(odds, offset, atol=1e-12)
        proba = model.predict_proba(blind, offset=offset)
        np.testing.assert_array_equal(model.predict_log_proba(blind, offset=offset), np.log(proba))
        np.testing.assert_array_equal(
            list(model.staged_predict_proba(blind, offset=offset))[-1], proba
        )


def test_offset_as_data_frame_equals_array():
    """Its memory may be in column-major order."""
    frame = pd.DataFrame({i: KNOWN[:, i] for i in range(3)})
    for y in (CLASSES, LABELS):
        whole = classifier().fit(X, y, offset=KNOWN)
        assert bits(classifier().fit(X, y, offset=frame)) == bits(whole)


def test_raw_scores_of_a_model_as_offset_of_the_next():
    """Two models in sequence are as good as one model with all rounds."""
    whole = classifier(n_estimators=20).fit(X, CLASSES)
    first = classifier(n_estimators=10).fit(X, CLASSES)
    second = classifier(n_estimators=10).fit(X, CLASSES, offset=first.predict_raw(X))
    assert np.abs(second.model_.base_score - second.model_.base_score.mean()).max() < 0.05
    both = second.predict_proba(X, offset=first.predict_raw(X))
    loss = [-np.log(p[np.arange(N), CLASSES]).mean() for p in (whole.predict_proba(X), both)]
    # The values differ: raw scores are float32, and the second model has its own base score.
    assert loss[1] == pytest.approx(loss[0], rel=1e-3)


@pytest.mark.parametrize("weight", [None, "rows"])
def test_base_score_minimizes_the_loss_with_offset(weight):
    w = None if weight is None else np.arange(N) % 3 + 0.0
    model = regressor(objective="poisson").fit(X, COUNTS, w, offset=KNOWN)
    counted = np.ones(N) if w is None else w
    rate = (counted[:, None] * COUNTS).sum(axis=0) / (counted[:, None] * np.exp(KNOWN)).sum(axis=0)
    np.testing.assert_allclose(model.model_.base_score, np.log(rate), atol=1e-5)


def test_offsets_with_missing_targets_threads_and_sampling():
    y = COUNTS.copy()
    y[RNG.random(y.shape) < 0.3] = np.nan
    options = {"objective": "poisson", "missing_targets": "ignore", "subsample": 0.7}
    one, two = (regressor(**options | {"n_jobs": n}).fit(X, y, offset=KNOWN) for n in (1, 2))
    assert bits(one) == bits(two)
    is_known = ~np.isnan(y)
    rate = np.array(
        [y[is_known[:, k], k].sum() / np.exp(KNOWN[is_known[:, k], k]).sum() for k in range(3)]
    )
    np.testing.assert_allclose(one.model_.base_score, np.log(rate), atol=1e-5)


# --- evaluation sets ------------------------------------------------------------------------------


def test_metrics_use_offsets():
    half = slice(0, N // 2), slice(N // 2, N)
    model = regressor(objective="poisson", eval_metric=["poisson_deviance", "rmse"])
    first, second = ((X[rows], COUNTS[rows]) for rows in half)
    held = {"X_val": first[0], "y_val": first[1], "offset_val": KNOWN[half[0]]}
    others = {"eval_set": [second], "eval_offset": [KNOWN[half[1]]]}
    model.fit(*first, offset=KNOWN[half[0]], **others, **held)
    for rows, name in ((half[1], "validation_0"), (half[0], "validation")):
        predicted = model.predict(X[rows], offset=KNOWN[rows])
        for metric in get_metrics(["poisson_deviance", "rmse"], model.model_.objective):
            expected = metric(RowData(COUNTS[rows].astype(np.float32)), predicted)
            assert model.evals_result_[name][metric.name][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("objective", ["squared_error", "poisson"])
def test_validation_fraction_splits_offsets(objective):
    """The offset explains y, so the loss on the held-out rows is 0 from the start."""
    y = np.exp(KNOWN[:, 0]) if objective == "poisson" else KNOWN[:, 0]
    stopping = {"validation_fraction": 0.25, "early_stopping_rounds": 2, "n_estimators": 9}
    model = regressor(objective=objective, **stopping).fit(X, y + 0.0, offset=KNOWN[:, 0])
    assert max(next(iter(model.evals_result_["validation"].values()))) < 1e-5


@pytest.mark.parametrize("objective", ["squared_error", "poisson"])
def test_dataset_stores_offsets(objective):
    y = COUNTS[:, 0]
    data = Dataset(X, y, offset=KNOWN[:, 0], categorical_features=[3])
    held = Dataset(X, y, offset=KNOWN[:, 0], reference=data)
    model = regressor(objective=objective).fit(data, eval_set=[(held, y)])
    plain = regressor(objective=objective).fit(X, y, offset=KNOWN[:, 0])
    assert bits(model) == bits(plain)
    np.testing.assert_array_equal(model.predict(held), plain.predict(X, offset=KNOWN[:, 0]))
    np.testing.assert_array_equal(model.predict(held, offset=np.zeros(N)), plain.predict(X))
    with pytest.raises(ValueError, match="offset has 3 rows, but X has"):
        Dataset(X, y, offset=np.zeros(3))


# --- continued training, files, explanations ------------------------------------------------------


def test_files_record_offsets(tmp_path):
    model = regressor(objective="poisson").fit(X, COUNTS, offset=KNOWN)
    model.save_model(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X, offset=KNOWN), model.predict(X, offset=KNOWN))
    with pytest.raises(ValueError, match="pass offset"):
        regressor(objective="poisson").fit(X, COUNTS, init_model=loaded)


def test_shap_values_exclude_the_offset():
    """They add up to the raw scores without the offset."""
    model = regressor(objective="poisson").fit(X, COUNTS, offset=KNOWN)
    total = model.shap_values(X).sum(axis=1) + model.shap_base_values()
    np.testing.assert_allclose(total, model.predict_raw(X), atol=1e-5)
    np.testing.assert_allclose(total + KNOWN, model.predict_raw(X, offset=KNOWN), atol=1e-5)


def test_intervals_with_offsets():
    far = 1e3 * KNOWN[:, 0]
    model = PolyleafRegressor(**SMALL).fit(X, Y[:, 0] + far, offset=far)
    model.calibrate(X, Y[:, 0] + far, coverage=0.8, offset=far)
    bounds = model.predict_interval(X, offset=far)
    inside = (bounds[:, 0] <= Y[:, 0] + far) & (Y[:, 0] + far <= bounds[:, 1])
    assert inside.mean() == pytest.approx(0.8, abs=0.01) and np.ptp(bounds, axis=1).max() < 20


# --- errors ---------------------------------------------------------------------------------------


def test_invalid_input_raises():
    with pytest.raises(TypeError, match=r"fit\(\) takes no 'base_margin': did you mean offset"):
        regressor().fit(X, Y, base_margin=KNOWN)
    with pytest.raises(TypeError, match=r"predict\(\) takes no 'init_score': did you mean offset"):
        regressor().fit(X, Y, offset=KNOWN).predict(X, init_score=KNOWN)
    with pytest.raises(ValueError, match="the evaluation set 'validation' has none"):
        regressor().fit(X, Y, offset=KNOWN, X_val=X, y_val=Y)
    with pytest.raises(ValueError, match="offset_val and qid_val require X_val"):
        regressor().fit(X, Y, offset=KNOWN, offset_val=KNOWN)
    with pytest.raises(ValueError, match="eval_offset has 2 entries, but eval_set has 1"):
        regressor().fit(X, Y, offset=KNOWN, eval_set=[(X, Y)], eval_offset=[KNOWN, KNOWN])
    with pytest.raises(ValueError, match="offset of 'validation_0' has 3 rows, but X has"):
        regressor().fit(X, Y, offset=KNOWN, eval_set=[(X, Y)], eval_offset=[KNOWN[:3]])
    with pytest.raises(ValueError, match="offset has 3 rows, but X has"):
        regressor().fit(X, Y, offset=KNOWN[:3])


def test_fit_does_not_modify_targets_and_offsets():
    """y - offset is computed in a new array."""
    y, offset = targets(X).copy(), KNOWN.copy()
    regressor().fit(X, y, offset=offset)
    np.testing.assert_array_equal(y, targets(X))
    np.testing.assert_array_equal(offset, KNOWN)


def test_evaluation_without_the_offset_warns():
    rng = np.random.default_rng(0)
    X, offset = rng.random((60, 2)), rng.normal(size=60)
    y = rng.poisson(np.exp(offset + X[:, 0]))
    model = PolyleafRegressor(objective="poisson", n_estimators=3).fit(X, y, offset=offset)
    for call in (model.predict, lambda X: model.score(X, y), lambda X: model.calibrate(X, y)):
        with pytest.warns(UserWarning, match=r"trained with an offset.*pass offset"):
            call(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(X, y, offset=offset)
        model.predict(X, offset=np.zeros(60))
        model.predict(Dataset(X, y, offset=offset))
    search = GridSearchCV(
        PolyleafRegressor(objective="poisson", n_estimators=3), {"max_depth": [2]}
    )
    with pytest.warns(UserWarning, match="trained with an offset"):
        search.fit(X, y, offset=offset)
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        routed = PolyleafRegressor(objective="poisson", n_estimators=3)
        routed.set_fit_request(offset=True).set_score_request(offset=True)
        GridSearchCV(routed, {"max_depth": [2]}).fit(X, y, offset=offset)
