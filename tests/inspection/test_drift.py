"""Drift: shares and distances of rows, found where one feature changes and not otherwise."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import chi2_contingency
from sklearn.metrics import root_mean_squared_error

from polyleaf import (
    Dataset,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRegressor,
    load_model,
    refit,
)
from polyleaf.inspection import OutputsDisplay, measure_drift, size_report
from polyleaf.model import Model

N_FEATURES = 6  # and a column of categories
CITIES = [f"c{i}" for i in range(12)]


def draw_rows(n, rng):
    X = pd.DataFrame(rng.normal(size=(n, N_FEATURES)), columns=[*"abcdef"])
    X["b"] = rng.integers(0, 12, n)
    X.loc[rng.random(n) < 0.1, "c"] = np.nan
    shares = np.r_[0.3, np.full(11, 0.7 / 11)]
    X["city"] = pd.Series(rng.choice(CITIES, n, p=shares), dtype="category")
    return X


def target(X):
    return np.column_stack([X["a"] + X["b"], X["d"]])


@pytest.fixture(scope="module")
def model():
    X = draw_rows(8000, np.random.default_rng(0))
    return PolyleafRegressor(n_estimators=4, max_leaves=8).fit(X, target(X))


def add(X, name, change):
    X[name] = X[name] + change


def replace_some(X, name, share, value, rng):
    column = X[name].astype(object)
    column[rng.random(len(X)) < share] = value
    X[name] = column if name == "city" else column.astype(float)


CHANGES = {
    "mean": ("a", lambda X, rng: add(X, "a", 0.4)),
    "spread": ("a", lambda X, rng: add(X, "a", 0.5 * X["a"])),
    "counter": ("b", lambda X, rng: add(X, "b", 1)),
    "missing": ("a", lambda X, rng: replace_some(X, "a", 0.05, np.nan, rng)),
    "more missing": ("c", lambda X, rng: replace_some(X, "c", 0.15, np.nan, rng)),
    "unknown": ("city", lambda X, rng: replace_some(X, "city", 0.05, "new", rng)),
    "frequent": ("city", lambda X, rng: replace_some(X, "city", 0.2, "c0", rng)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_of_one_feature_is_found(model, kind):
    rng, found = np.random.default_rng(1), []
    name, change = CHANGES[kind]
    for _ in range(20):
        X = draw_rows(1000, rng)
        change(X, rng)
        found.append(measure_drift(model, X))
    position = found[0].feature_names.index(name)
    assert np.mean([drift.is_drifted[position] for drift in found]) >= 0.95
    assert sum(drift.is_drifted.sum() - drift.is_drifted[position] for drift in found) <= 1
    assert found[0].features.index[0] == name


def test_false_alarms_are_rare(model):
    """The probability that any feature is named, which `alpha` bounds by 5 % here."""
    rng = np.random.default_rng(2)
    alarms = [
        measure_drift(model, draw_rows(400, rng), alpha=0.05).is_drifted.any() for _ in range(200)
    ]
    assert np.mean(alarms) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)


def test_p_values_are_uniform_with_few_reference_rows(model):
    """Groups of bins depend on the reference rows, which must not bias the test."""
    rng = np.random.default_rng(10)
    p_values = np.array(
        [
            measure_drift(model, draw_rows(4000, rng), X_reference=draw_rows(800, rng)).p_value
            for _ in range(150)
        ]
    )
    for name, p in zip([*"abcdef", "city"], p_values.T, strict=True):
        assert (p < 0.1).mean() <= 0.1 + 3 * np.sqrt(0.09 / 150), name
        assert (p < 0.1).mean() >= 0.02, name


def test_shares_are_counted(model):
    X = draw_rows(500, np.random.default_rng(3))
    X.loc[:49, "a"] = 100.0
    X.loc[50:69, "a"] = np.nan
    X["city"] = X["city"].astype(object)
    X.loc[:99, "city"] = "new"
    X.loc[100:109, "city"] = None
    with pytest.warns(UserWarning, match="100 of 490 values of column 'city'") as caught:
        drift = measure_drift(model, X)
    assert len(caught) == 1
    table = drift.features
    assert table.loc["a", "outside"] == pytest.approx(0.1, abs=0.01)
    assert table.loc["a", "missing"] == 0.04 and table.loc["a", "reference_missing"] == 0
    assert table.loc["city", "unknown"] == 0.2 and table.loc["city", "missing"] == 0.02
    assert table.loc["city", "outside"] == 0
    assert table.loc["c", "reference_missing"] == pytest.approx(0.1, abs=0.02)


def test_the_test_of_values_is_the_usual_one():
    """Ten groups of equal size, without missing values and unknown categories."""
    x = np.arange(1000.0)
    model = PolyleafRegressor(n_estimators=1).fit(x[:, None], x)
    new = np.random.default_rng(0).uniform(0, 900, 400)
    drift = measure_drift(model, new[:, None])
    # Thresholds are quantiles, so groups are tenths up to the width of a bin.
    counts = [np.full(10, 100), np.histogram(new, np.linspace(0, 1000, 11))[0]]
    expected = chi2_contingency(counts).pvalue
    assert np.log(drift.p_value[0]) == pytest.approx(np.log(expected), rel=0.1)
    p, q = (c / c.sum() for c in (counts[0], counts[1] + 0.5))
    assert drift.psi[0] == pytest.approx(((q - p) * np.log(q / p)).sum(), rel=0.1)


def test_files_refits_and_containers_keep_the_counts(model):
    X = draw_rows(1000, np.random.default_rng(4))
    X["a"] += 1
    expected = measure_drift(model, X)
    loaded = load_model(model.save_model())
    for other in (loaded, loaded.model_, model.model_[:2]):
        again = measure_drift(other, X)
        np.testing.assert_array_equal(again.psi, expected.psi)
        np.testing.assert_array_equal(again.p_value, expected.p_value)
    later = refit(model, X, target(X))
    assert not measure_drift(later, X).is_drifted.any()
    continued = PolyleafRegressor(n_estimators=1).fit(X, target(X), init_model=model)
    assert (measure_drift(continued, X).psi == 0).all()
    dataset = Dataset(X)
    same = PolyleafRegressor(n_estimators=1).fit(dataset, target(X))
    assert (measure_drift(same, X).psi == 0).all()
    with pytest.raises(TypeError, match="pass raw X"):
        measure_drift(model, dataset)


def test_sparse_rows_equal_dense_ones():
    rng = np.random.default_rng(5)
    X = np.where(rng.random((2000, 30)) < 0.03, rng.integers(1, 5, (2000, 30)), 0).astype(float)
    X[:, 0], y = rng.normal(size=2000) + 20, X.sum(axis=1)
    new = np.where(rng.random((600, 30)) < 0.1, rng.integers(3, 9, (600, 30)), 0).astype(float)
    fitted = [
        PolyleafRegressor(n_estimators=2).fit(container(X), y)
        for container in (np.asarray, sp.csr_matrix, sp.csc_matrix)
    ]
    np.testing.assert_array_equal(fitted[0].model_.bin_counts, fitted[1].model_.bin_counts)
    assert fitted[0].save_model() == fitted[1].save_model() == fitted[2].save_model()
    expected = measure_drift(fitted[0], new)
    assert expected.outside[0] == 1 and expected.outside[1:].max() > 0.02
    found = measure_drift(fitted[1], sp.csr_matrix(new))
    for name in ("missing", "outside", "psi", "p_value"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_reference_rows_take_the_place_of_training_rows(model):
    rng = np.random.default_rng(6)
    X, X_reference = draw_rows(800, rng), draw_rows(900, rng)
    X["a"] += 1
    X_reference["a"] += 1
    y, y_reference = target(X), target(X_reference)
    y[:, 1] += 2
    drift = measure_drift(model, X, y, X_reference=X_reference, y_reference=y_reference)
    assert not drift.is_drifted.any() and measure_drift(model, X).is_drifted[0]
    predicted, reference = model.predict(X), model.predict(X_reference)
    table = drift.outputs
    np.testing.assert_allclose(table["mean"], predicted.mean(axis=0))
    np.testing.assert_allclose(table["q95"], np.quantile(predicted, 0.95, axis=0))
    np.testing.assert_allclose(table["reference_std"], reference.std(axis=0))
    assert drift.error["rmse"] == pytest.approx(
        root_mean_squared_error(y.ravel(), predicted.ravel())
    )
    assert drift.reference_error["rmse"] == pytest.approx(
        root_mean_squared_error(y_reference.ravel(), reference.ravel())
    )
    assert table["rmse"].iloc[1] > 1.5 > table["reference_rmse"].iloc[1]


def test_kinds_of_models():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 3))
    classes, labels = np.digitize(X[:, 0], [-0.5, 0.5]), (X[:, :2] > 0).astype(int)
    for y in (classes, classes > 0, labels):
        fitted = PolyleafClassifier(n_estimators=2).fit(X, y)
        drift = measure_drift(fitted, X, y)
        assert len(drift.outputs) == fitted.model_.n_outputs and drift.error
        assert "mean" in drift.outputs and not drift.is_drifted.any()
    Y = pd.DataFrame({"k": classes, "x": X[:, 1]})
    tasks = PolyleafMultiTask(n_estimators=2).fit(X, Y)
    drift, scores = measure_drift(tasks, X, Y), tasks.d2_scores(X, Y)
    assert len(drift.outputs) == tasks.model_.n_outputs
    assert list(drift.error.values())[: len(scores)] == pytest.approx(list(scores.values()))
    query = np.repeat(np.arange(40), 10)
    ranker = PolyleafRanker(n_estimators=2).fit(X, classes, qid=query)
    assert not measure_drift(ranker, X).is_drifted.any()
    for evaluate in (measure_drift, size_report, OutputsDisplay.from_estimator):
        with pytest.raises(ValueError, match="score_goals evaluates"):
            evaluate(ranker, X, classes)
    counts = PolyleafRegressor(objective="poisson", n_estimators=2)
    counts.fit(X, classes, offset=np.zeros(400))
    with pytest.warns(UserWarning, match="offset"):
        measure_drift(counts, X)
    shifted = measure_drift(counts, X, offset=np.full(400, np.log(2))).outputs["mean"]
    plain = measure_drift(counts, X, offset=np.zeros(400)).outputs["mean"]
    np.testing.assert_allclose(shifted, 2 * plain)


def test_high_cardinality_features_count_unknown_categories():
    rng = np.random.default_rng(8)
    X = pd.DataFrame({"user": rng.integers(0, 400, 3000).astype(str), "x": rng.normal(size=3000)})
    X["user"] = "u" + X["user"]
    model = PolyleafRegressor(n_estimators=2).fit(X, X["x"])
    new = X.copy()
    new.loc[:299, "user"] = "v"
    new["x"] += 1
    with warnings.catch_warnings():  # of many categories, a tenth is usual
        warnings.simplefilter("error")
        drift = measure_drift(load_model(model.save_model()), new)
    assert drift.unknown.tolist() == [0.1, 0] and np.isnan(drift.psi[0])
    assert drift.is_drifted.tolist() == [False, True]


def test_models_without_counts_need_reference_rows(model):
    bare = Model.from_bytes(model.save_model())
    bare.bin_counts = bare.mapper.ranges_ = None
    X = draw_rows(200, np.random.default_rng(9))
    with pytest.raises(ValueError, match="pass X_reference"):
        measure_drift(bare, X)
    drift = measure_drift(Model.from_bytes(bare.to_bytes()), X, X_reference=X)
    assert (drift.psi == 0).all() and np.isnan(drift.outside).all()


def test_files_with_wrong_counts_are_refused(model):
    bad = model.model_.copy()
    bad.bin_counts = bad.bin_counts[1:]
    with pytest.raises(ValueError, match="'bin_counts' must have one uint32 number per bin"):
        Model.from_bytes(bad.to_bytes())


def test_rows_to_compare_are_needed(model):
    X = draw_rows(10, np.random.default_rng(9))
    with pytest.raises(ValueError, match="X has no rows"):
        measure_drift(model, X[:0])
    with pytest.raises(ValueError, match="X_reference has no rows"):
        measure_drift(model, X, X_reference=X[:0])
    with pytest.raises(ValueError, match="alpha must be a probability between 0 and 1, got 5"):
        measure_drift(model, X, alpha=5)
