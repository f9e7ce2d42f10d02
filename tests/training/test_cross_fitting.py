"""Quantile calibration by cross-fitting."""

import numpy as np
import pandas as pd
import pytest
from reference.calibration import quantile_shifts as by_definition

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, PolyleafRegressorCV
from polyleaf.binned_data.random_rows import split_folds
from polyleaf.callbacks import LearningRateScheduler
from polyleaf.model import serialize
from polyleaf.training import cross_fitting

LEVELS = (0.1, 0.5, 0.9)
SMALL = dict(objective="quantile", quantile_alpha=LEVELS, n_estimators=12, max_leaves=8, n_jobs=1)


def make_data(n=400, n_targets=2, seed=0):
    """Return a target whose noise level depends on a feature."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)).astype(np.float32)
    noise = (0.3 + np.abs(X[:, :1])) * rng.standard_normal((n, n_targets))
    return X, np.sin(2 * X[:, :n_targets]) + X[:, 2:3] * X[:, 3:4] + noise


def fit_model(X, y, calibrate=True, sample_weight=None, time=None, **parameters):
    model = PolyleafRegressor(**SMALL | {"calibrate_quantiles": calibrate} | parameters)
    return model.fit(X, y, sample_weight, time=time)


def compute_shifts(model, plain, X):
    """Return the difference of raw scores, which must be equal in all rows."""
    difference = model._raw(X, None) - plain._raw(X, None)
    expected = np.tile(difference[0], (len(X), 1))
    np.testing.assert_allclose(difference, expected, rtol=1e-6, atol=1e-6)
    return difference[0]


def draw_folds(n):
    """Return the fold of each row, and the number of folds in use."""
    n_folds, n_used = cross_fitting.count_folds(n)
    return split_folds(n, n_folds, np.random.default_rng(0)), n_used


def coverage(model, X, y):
    p = model.predict(X).reshape(len(X), -1, len(LEVELS))
    y = y.reshape(len(y), -1)
    return np.mean((p[..., 0] <= y) & (y <= p[..., -1]), axis=0)


@pytest.mark.parametrize("how", ["plain", "weights", "weights of targets", "missing", "one target"])
def test_shifts_are_from_models_without_the_rows(how, monkeypatch):
    monkeypatch.setattr(cross_fitting, "FOLDS_FOR_FEW_ROWS", 4)
    X, Y = make_data(n_targets=1 if how == "one target" else 2)
    weight = np.random.default_rng(1).integers(1, 4, Y.shape).astype(np.float32)
    options = {"sample_weight": None if how in ("plain", "missing", "one target") else weight}
    if how == "weights":
        options["sample_weight"] = weight[:, 0]
    y, known = Y.copy(), np.ones(Y.shape)
    if how == "missing":
        known = (np.random.default_rng(2).random(Y.shape) < 0.8).astype(float)
        y[known == 0], options["missing_targets"] = np.nan, "ignore"
    y = y[:, 0] if how == "one target" else y
    data = Dataset(X)
    fold, n_used = draw_folds(len(X))
    plain, model = (fit_model(data, y, on, **options) for on in (False, True))
    given = options.pop("sample_weight")

    def predict_without(rows):
        rest = np.setdiff1d(np.arange(len(X)), rows)
        part, weight = Dataset(X[rest], reference=data), None if given is None else given[rest]
        return fit_model(part, y[rest], False, weight, **options)._raw(X, None)

    counts = known * (1 if given is None else given.reshape(len(given), -1))
    expected = by_definition(Y, LEVELS, counts, fold, n_used, predict_without)
    np.testing.assert_allclose(compute_shifts(model, plain, X), expected, rtol=1e-5, atol=1e-6)


def fit_rows(X, y, rows=slice(None), calibrate=False, **parameters):
    X = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
    return fit_model(X, y[rows], calibrate, **parameters)


@pytest.mark.parametrize("what", ["categories", "projection", "both folds and init_model"])
def test_models_of_folds_derive_features_again(what, monkeypatch):
    """Compare with models that are trained on the other rows only."""
    monkeypatch.setattr(cross_fitting, "FOLDS_FOR_FEW_ROWS", 4)
    X, Y = make_data(1200, 1)
    y, parameters, data = Y[:, 0], {"random_state": 0}, X
    if what == "projection":
        parameters |= {"projection": "leml", "projection_dim": 3}
    else:
        rng = np.random.default_rng(0)
        category = rng.integers(0, 400, 1200)
        names = pd.Categorical([f"c{i:03}" for i in category])
        data = pd.DataFrame(X, columns=[*"abcde"]).assign(c=names)
        y = y + 3 * rng.standard_normal(400)[category]
    plain, model = (fit_rows(data, y, calibrate=on, **parameters) for on in (False, True))
    if what == "both folds and init_model":
        start = fit_rows(data, y, calibrate=True, **parameters, n_estimators=5)
        model = PolyleafRegressor(**SMALL | parameters | {"n_estimators": 7})
        model.fit(data, y, init_model=start)
    fold, n_used = draw_folds(len(X))

    def predict_without(rows):
        rest = np.setdiff1d(np.arange(len(X)), rows)
        if what == "projection":
            return fit_rows(data, y, rest, **parameters)._raw(data, None)
        part = Dataset(data).rows(rest)
        return fit_model(part, y[rest], False, **parameters)._raw(data, None)

    expected = by_definition(y[:, None], LEVELS, None, fold, n_used, predict_without)
    np.testing.assert_allclose(compute_shifts(model, plain, data), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [200, 600])
def test_copied_rows_are_in_one_fold(n):
    X, Y = make_data(n + 3000, 1)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(n), 2))
    model = fit_model(X[rows], Y[rows, 0], n_estimators=60, max_leaves=31)
    assert 0.76 < coverage(model, X[n:], Y[n:])[0] < 0.88


def test_thresholds_are_independent_of_row_copies():
    rng = np.random.default_rng(0)
    X, noise = rng.standard_normal((2, 400, 8))
    y = (X[:, 0] + 2 * noise[:, 0] > 1.2).astype(int)
    models = [PolyleafClassifier(threshold="f1", n_estimators=40, n_jobs=1) for _ in range(2)]
    single, twice = (m.fit(np.tile(X, (k, 1)), np.tile(y, k)) for k, m in enumerate(models, 1))
    assert abs(single.thresholds_[0] - twice.thresholds_[0]) < 0.12


def test_only_the_base_score_changes():
    X, Y = make_data()
    model, plain = fit_model(X, Y), fit_model(X, Y, False)
    found = compute_shifts(model, plain, X)
    assert found[0] < 0 < found[2] and found[3] < 0 < found[5]
    assert found[1] == found[4] == 0
    ours, theirs = (serialize.to_state(m.model_)[1] for m in (model, plain))
    assert set(ours) - set(theirs) == {"target_scale", "target_offset"}
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)


@pytest.mark.full
@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_have_their_coverage_and_pinball_loss_is_not_worse(n_targets, weighted):
    X, Y = make_data(3000, n_targets)
    weight = np.random.default_rng(1).uniform(0.2, 2, 1000) if weighted else None
    how = {"n_estimators": 100, "max_leaves": 31, "sample_weight": weight}
    model, plain = (fit_model(X[:1000], Y[:1000].squeeze(), on, **how) for on in (True, False))
    assert np.all(coverage(plain, X[1000:], Y[1000:]) < 0.7)
    assert np.all(abs(coverage(model, X[1000:], Y[1000:]) - 0.8) < 0.04)
    assert model.score(X[1000:], Y[1000:]) > plain.score(X[1000:], Y[1000:])


@pytest.mark.parametrize(
    ("n", "n_folds", "n_used"),
    [(10, 10, 10), (1999, 20, 20), (2000, 10, 10), (6000, 10, 4), (50_000, 10, 1)],
)
def test_number_of_folds(n, n_folds, n_used):
    assert cross_fitting.count_folds(n) == (n_folds, n_used)
    fold, _ = draw_folds(n)
    counts = np.bincount(fold)
    assert len(counts) == n_folds and np.ptp(counts) <= 1
    assert counts[:n_used].sum() >= min(n, cross_fitting.MAX_RESIDUALS) - 1


def test_folds_use_the_settings_of_the_model():
    X, Y = make_data()
    rounds = {"n_estimators": 60, "validation_fraction": 0.25, "early_stopping_rounds": 3}
    model, plain = (fit_model(X, Y, on, learning_rate=0.3, **rounds) for on in (True, False))
    assert model.best_iteration_ == plain.best_iteration_ < 55
    assert np.all(np.abs(compute_shifts(model, plain, X)[[0, 2]]) > 0.01)
    scheduled = {"callbacks": [LearningRateScheduler(lambda round: 0.3 if round < 5 else 0.01)]}
    scheduled, constant = fit_model(X, Y, **scheduled), fit_model(X, Y, learning_rate=0.3)
    rates = fit_model(X, Y, callbacks=[LearningRateScheduler([0.3] * 12)])
    np.testing.assert_array_equal(rates.predict(X), constant.predict(X))
    assert not np.allclose(scheduled.model_.target_offset, constant.model_.target_offset)


@pytest.mark.parametrize(
    "how",
    [
        {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3},
        {"multi_strategy": "one_output_per_tree"},
        {"subsample": 0.5},
        {"normalize_targets": True},
        {"base_score": 1.5},
    ],
    ids=str,
)
def test_calibration_with_all_training_settings(how):
    X, Y = make_data()
    found = compute_shifts(fit_model(X, Y, **how), fit_model(X, Y, False, **how), X)
    assert found[0] < 0 < found[2] and found[1] == 0


def test_shifts_scale_with_targets():
    X, Y = make_data()
    unit = np.array([1e6, 1e-3])
    model, large = (fit_model(X, y, normalize_targets=True) for y in (Y, Y * unit))
    np.testing.assert_allclose(
        large.predict(X) / np.repeat(unit, 3), model.predict(X), rtol=1e-3, atol=1e-3
    )


def test_training_continues_without_calibration():
    X, Y = make_data()
    start = fit_model(X, Y, n_estimators=7)
    plain = PolyleafRegressor(**SMALL | {"n_estimators": 5, "calibrate_quantiles": False})
    np.testing.assert_array_equal(
        plain.fit(X, Y, init_model=start).predict(X), fit_model(X, Y, False).predict(X)
    )


@pytest.mark.parametrize("how", [{}, {"objective": "absolute_error"}, {"objective": "huber"}])
def test_medians_and_other_losses_are_not_shifted(how, monkeypatch):
    monkeypatch.setattr("polyleaf.estimators.base.quantile_shifts", None)
    X, Y = make_data()
    assert fit_model(X, Y, quantile_alpha=0.5, **how).model_.target_scale is None


def test_few_rows():
    X, Y = make_data(3, 1)
    model = fit_model(X, Y[:, 0], min_child_samples=1)
    predicted = model.predict(X)
    assert np.isfinite(predicted).all() and (np.diff(predicted, axis=1) >= 0).all()


def test_target_known_in_one_fold_only_is_not_shifted():
    X, Y = make_data(60)
    Y[1:, 1] = np.nan
    model, plain = (fit_model(X, Y, on, missing_targets="ignore") for on in (True, False))
    found = compute_shifts(model, plain, X)
    assert found[0] < 0 < found[2] and found[3] == found[5] == 0


def test_keyboard_interrupt_during_cross_fitting_keeps_the_model(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("polyleaf.estimators.base.quantile_shifts", interrupted)
    X, Y = make_data()
    model = PolyleafRegressor(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), fit_model(X, Y, False).predict(X))


# --- groups and time ---


def test_groups_are_in_one_fold():
    """Measure the coverage of new groups; a group's level can be learned from its own rows only."""
    rng = np.random.default_rng(0)
    level, group = 3 * rng.standard_normal(160), np.repeat(np.arange(160), 10)
    X = np.column_stack([level[group] + 0.01 * rng.standard_normal(1600), rng.random(1600)])
    y = rng.standard_normal(160)[group] + 0.1 * rng.standard_normal(1600)
    old = group < 100
    how = {"n_estimators": 60, "max_leaves": 31}
    covered = []
    for given in {}, {"groups": [f"p{g}" for g in group[old]]}:
        model = PolyleafRegressor(**SMALL | how).fit(X[old], y[old], **given)
        covered.append(coverage(model, X[~old], y[~old])[0])
    assert covered[0] < 0.7 < 0.75 < covered[1] < 0.95


def test_folds_are_later_than_their_training_rows():
    """Check quantiles under a trend, which are too narrow for later rows only."""
    rng = np.random.default_rng(0)
    day = np.sort(rng.integers(0, 300, 1500))
    date = np.datetime64("2020-01-01") + day
    X = np.column_stack([day, rng.random(1500)])
    y = np.cumsum(rng.standard_normal(300))[day] + 0.1 * rng.standard_normal(1500)
    old = day < 200
    shuffled = rng.permutation(np.flatnonzero(old))
    widths = []
    for given in {}, {"time": date[shuffled]}:
        model = PolyleafRegressor(**SMALL | {"n_estimators": 60}).fit(
            X[shuffled], y[shuffled], **given
        )
        p = model.predict(X[old])
        widths.append(np.median(p[:, -1] - p[:, 0]))
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"validation_fraction": 0.2, "early_stopping_rounds": 5, "n_estimators": 60},
        {"n_estimators": None},  # found by itself
        {"objective": "quantile", "quantile_alpha": [0.1, 0.9], "n_estimators": 20},
        {"n_candidates": 3, "n_estimators": 20},
    ],
    ids=["validation", "rounds", "quantiles", "search"],
)
def test_validation_order_is_the_order_of_rows(settings):
    """Check that it is `time=` of ascending numbers, in every split of a fit."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(300), rng.random(300)])
    y = np.cumsum(rng.standard_normal(300)) + 0.1 * rng.standard_normal(300)
    estimator = PolyleafRegressorCV if "n_candidates" in settings else PolyleafRegressor
    settings = {"n_jobs": 1, "max_leaves": 8, **settings}
    ordered = estimator(**settings, validation_order="time")
    models = [
        estimator(**settings).fit(X, y),
        estimator(**settings).fit(X, y, time=np.arange(300)),
        ordered.fit(X, y),
        ordered.fit(X[::-1], y[::-1], time=np.arange(300)[::-1]),  # `time` says the order
    ]
    drawn, timed, by_rows, by_times = (
        [*model.predict(X).ravel(), round(model.best_score_ or 0.0, 9)] for model in models
    )
    assert timed == by_rows == by_times
    assert drawn != by_rows


def test_thresholds_are_chosen_by_groups_and_time():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(60), 5)
    X = np.column_stack([rng.standard_normal(60)[group], rng.random(300)])
    y = (rng.random(60) < 0.3)[group]
    chosen = [
        PolyleafClassifier(threshold="f1", n_estimators=30, n_jobs=1).fit(X, y, **given).thresholds_
        for given in ({}, {"groups": group}, {"time": group})
    ]
    assert len({float(threshold[0]) for threshold in chosen}) == 3


def test_rows_of_a_pandas_index_are_selected():
    X, Y = make_data(40, 1)
    days = pd.date_range("2020-01-01", periods=40)
    parameters = {"validation_fraction": 0.2, "n_estimators": 2, "n_jobs": 1}
    expected = PolyleafClassifier(**parameters).fit(X, Y[:, 0] > 0, time=np.arange(40))
    for time in (days, days.astype(str)):
        labels = pd.Index(np.where(Y[:, 0] > 0, "yes", "no"))
        model = PolyleafClassifier(**parameters).fit(X, labels, time=time)
        np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"groups": np.zeros(3)}, "groups has 3 entries, but X has 40 rows"),
        ({"time": [None, *range(39)]}, "time has missing values"),
        ({"time": np.zeros(40)}, "time has the same value in all rows"),
        ({"groups": np.zeros((40, 2))}, "groups must have one value per row"),
        ({"groups": np.arange(40) % 2, "time": np.arange(40)}, "must not span the whole time"),
    ],
)
def test_invalid_groups_and_times_raise(given, match):
    X, Y = make_data(40, 1)
    with pytest.raises(ValueError, match=match):
        PolyleafRegressor(validation_fraction=0.2, n_estimators=2).fit(X, Y[:, 0], **given)


def test_text_of_times_is_ordered_as_dates():
    X, y = make_data(60, 1)
    days = pd.date_range("2024-01-25", periods=60)
    expected = fit_model(X, y, time=days)
    texts = days.strftime("%Y-%m-%dT%H:%M+00:00").tolist()
    np.testing.assert_array_equal(fit_model(X, y, time=texts).predict(X), expected.predict(X))
    with pytest.raises(ValueError, match=r"no date in ISO format, .* \(.*25/01/2024"):
        fit_model(X, y, time=days.strftime("%d/%m/%Y"))
    mixed = [day if i % 2 else day.tz_localize("UTC") for i, day in enumerate(days)]
    with pytest.raises(ValueError, match="time has values that cannot be ordered"):
        fit_model(X, y, time=mixed)
