"""Imported models of XGBoost and LightGBM; their files are in tests/support/files."""

import json
import shutil

import numpy as np
import pytest
from support.foreign_models import (
    FOLDER,
    LIGHTGBM,
    XGBOOST,
    expected,
    get_rows_with_edge_cases,
    path_to_model,
)

from polyleaf import load_model
from polyleaf.export import from_lightgbm, from_xgboost, to_c
from polyleaf.user_data.features import read_features

READERS = {"xgboost": from_xgboost, "lightgbm": from_lightgbm}
UNSUPPORTED = {
    ("xgboost", "linear"): "has no trees",
    ("lightgbm", "linear"): "has linear leaves",
    ("lightgbm", "zeros are missing"): "zeros as missing values",
    ("lightgbm", "one against the rest"): "'multiclassova num_class:3 sigmoid:1' is not supported",
}
# Factors of raw scores: Polyleaf has no factor of the link, and forests are averages.
FACTORS = {("lightgbm", "sigmoid"): 0.5, ("lightgbm", "forest"): 0.25}
# XGBoost's `predict` returns the classes 0 and 1, as the imported estimator does.
HINGES = {"hinge", "hinge, labels"}
ALL = [("xgboost", name) for name in XGBOOST] + [("lightgbm", name) for name in LIGHTGBM]
SUPPORTED = [case for case in ALL if case not in UNSUPPORTED]
EXPECTED = expected()


def read(library, name):
    return READERS[library](path_to_model(library, name))


def prepare_features(model):
    return read_features(make_rows(model.metadata["origin"].lower()), reference=model.mapper)


def make_rows(library):
    X = get_rows_with_edge_cases()
    return X if library == "xgboost" else X.astype(np.float64)


@pytest.mark.parametrize(("library", "name"), SUPPORTED)
def test_raw_scores_and_predictions_are_equal(library, name):
    model = read(library, name)
    raw, predicted = EXPECTED[f"{library}/{name}"]
    raw = raw * FACTORS.get((library, name), 1.0)
    table = prepare_features(model)
    np.testing.assert_allclose(model.predict_raw(table), raw, rtol=2e-6, atol=2e-6)
    if library == "xgboost" and name == "forest":
        assert model.n_trees == 2 * model.n_rounds
    found = model.predict(table) > 0 if name in HINGES else model.predict(table)
    np.testing.assert_allclose(found, predicted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("library", "name"), SUPPORTED)
def test_saved_model_loads_as_an_estimator(library, name, tmp_path):
    model = read(library, name)
    model.save(tmp_path / "m.polyleaf")
    est = load_model(tmp_path / "m.polyleaf")
    X, predicted = make_rows(library), EXPECTED[f"{library}/{name}"][1]
    raw = model.predict_raw(prepare_features(model))
    np.testing.assert_array_equal(est._raw(X, None), raw)
    if hasattr(est, "predict_proba"):
        found = est.predict_proba(X)
        found = found[:, 1:] if found.shape[1] != predicted.shape[1] else found
        np.testing.assert_allclose(found, predicted, rtol=2e-6, atol=2e-6)
    classes = est.predict(X)
    if name in HINGES:
        assert est.get_params()["objective"] == "squared_hinge"
        assert not hasattr(est, "predict_proba")
        np.testing.assert_array_equal(classes, predicted.reshape(classes.shape))
    assert est.feature_importance("split").sum() == sum(t.n_leaves - 1 for t in model.trees)


@pytest.mark.parametrize(("library", "name"), UNSUPPORTED)
def test_unsupported_models(library, name):
    with pytest.raises(ValueError, match=UNSUPPORTED[library, name]):
        read(library, name)


@pytest.mark.parametrize("reader", [from_xgboost, from_lightgbm])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"{}", b"{L\x00", b"tree\nnothing", b"[1, 2]", b"\xff" * 40]
)
def test_other_files_raise(reader, content, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="model is not"):
        reader(path)


def test_truncated_file_raises(tmp_path):
    for library, name in (("xgboost", "two"), ("xgboost", "vectors")):
        path = path_to_model(library, name)
        shutil.copy(path, tmp_path / path.name)
        data = path.read_bytes()
        (tmp_path / path.name).write_bytes(data[: len(data) // 2])
        with pytest.raises(ValueError, match="not an XGBoost model"):
            READERS[library](tmp_path / path.name)


def test_boosters_and_estimators():
    class Booster:
        def save_raw(self, kind):
            assert kind == "json"
            return bytearray(path_to_model("xgboost", "one").read_bytes())

        def model_to_string(self):
            return path_to_model("lightgbm", "one").read_text()

    class Wrapper:
        booster_ = Booster()

        def get_booster(self):
            return Booster()

    assert from_xgboost(Wrapper()).equals(read("xgboost", "one"))
    assert from_lightgbm(Wrapper()).equals(read("lightgbm", "one"))


def use_unknown_objective(learner):
    learner["objective"]["name"] = "survival:cox"


def use_too_many_thresholds(learner):
    model = learner["gradient_booster"]["model"]
    trees = model["trees"]
    for i in range(300):
        conditions = [i + 0.5] * len(trees[0]["split_conditions"])
        trees.append({**trees[0], "split_conditions": conditions})
    model["tree_info"] = [0] * len(trees)
    model["iteration_indptr"] = list(range(len(trees) + 1))


def use_nodes_that_form_no_tree(learner):
    learner["gradient_booster"]["model"]["trees"][0]["left_children"][1] = 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (use_unknown_objective, "'survival:cox' is not supported"),
        (use_too_many_thresholds, "bins of thresholds"),
        (use_nodes_that_form_no_tree, "do not form a tree"),
    ],
)
def test_invalid_models_raise(change, message, tmp_path):
    content = json.loads(path_to_model("xgboost", "one").read_text())
    change(content["learner"])
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        from_xgboost(tmp_path / "m.json")


def test_imported_model_can_be_exported(tmp_path):
    to_c(read("xgboost", "vectors"), tmp_path / "model.h")
    text = (tmp_path / "model.h").read_text()
    assert FOLDER.is_dir() and text.startswith("/* Model exported by Polyleaf")


def test_files_of_older_versions(tmp_path):
    content = json.loads(path_to_model("xgboost", "dart").read_text())
    learner = content["learner"]
    model = learner["gradient_booster"]["model"]
    about = learner["learner_model_param"]
    about["base_score"] = about["base_score"].strip("[]")
    weights, _ = model.pop("weight_drop"), model.pop("iteration_indptr")
    booster = {"name": "dart", "gbtree": {"model": model}, "weight_drop": weights}
    learner["gradient_booster"] = booster
    (tmp_path / "m.json").write_text(json.dumps(content))
    assert from_xgboost(tmp_path / "m.json").equals(read("xgboost", "dart"))


def test_mutated_file_loads_or_raises(tmp_path):
    rng = np.random.default_rng(0)
    cases = [("xgboost", "two"), ("xgboost", "vectors"), ("lightgbm", "categories")]
    for library, name in cases * 60:
        data = bytearray(path_to_model(library, name).read_bytes())
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.choice(list(b"0123456789-.[]{} \n\xff"))
        (tmp_path / "m").write_bytes(data)
        try:
            model = READERS[library](tmp_path / "m")
        except ValueError:
            continue
        model.predict_raw(prepare_features(model))


def test_estimator_settings():
    """Rounds up to the best iteration are imported, and `missing` gives a warning."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    y = X[:, 0] + 3 * rng.normal(size=200)
    stopping = {"n_estimators": 50, "early_stopping_rounds": 5, "learning_rate": 0.5}
    theirs = xgboost.XGBRegressor(**stopping, max_bin=100, n_jobs=1)
    theirs.fit(X, y, eval_set=[(X[:60], y[60:120])], verbose=False)
    ours = from_xgboost(theirs)
    assert ours.n_rounds == theirs.best_iteration + 1 < theirs.get_booster().num_boosted_rounds()
    booster = theirs.get_booster()
    for found, wanted in (
        (ours, theirs.predict(X)),
        (from_xgboost(booster), booster.predict(xgboost.DMatrix(X))),
    ):
        np.testing.assert_allclose(found.predict(X)[:, 0], wanted, rtol=2e-6, atol=2e-6)
    with pytest.warns(UserWarning, match="missing=-999.0"):
        from_xgboost(xgboost.XGBRegressor(n_estimators=2, missing=-999.0, n_jobs=1).fit(X, y))


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
def test_shap_values_equal_those_of_xgboost(objective):
    """XGBoost stores no counts of rows: children are weighted by their sums of Hessians."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)).astype(np.float32)
    y = X[:, 0] + X[:, 1] * X[:, 2]
    y = y if objective.startswith("reg") else (y > 0).astype(float)
    parameters = {"objective": objective, "max_depth": 3, "max_bin": 254, "nthread": 1}
    booster = xgboost.train(parameters, xgboost.DMatrix(X, y), 10)
    model = load_model(from_xgboost(booster).to_bytes())
    values = booster.predict(xgboost.DMatrix(X), pred_contribs=True)
    assert np.abs(values[:, -1] - np.ravel(model.shap_base_values())).max() < 1e-4
    found = model.shap_values(X).reshape(len(X), -1)
    np.testing.assert_allclose(found, values[:, :-1], atol=1e-4)
    pairs = booster.predict(xgboost.DMatrix(X[:50]), pred_interactions=True)[:, :-1, :-1]
    found = model.shap_values(X[:50], interactions=True).reshape(pairs.shape)
    np.testing.assert_allclose(found, pairs, atol=1e-4)
