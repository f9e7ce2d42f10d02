"""Shares of classes as targets of a classifier."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import load_iris

from polyleaf import Dataset, PolyleafClassifier, PolyleafClassifierCV, PolyleafMultiTask
from polyleaf.metrics import get_metric
from polyleaf.runtime.row_data import RowData

X, IDS = load_iris(return_X_y=True)
ONE_HOT = np.eye(3)[IDS]
SHARES = np.random.default_rng(0).dirichlet([1, 1, 1], len(X)) * 0.4 + ONE_HOT * 0.6
WEIGHT = np.random.default_rng(1).integers(0, 4, len(X)) + 0.5


def fit(y, sample_weight=None, **parameters):
    parameters = {"n_estimators": 6, "objective": "softmax", "n_jobs": 2} | parameters
    return PolyleafClassifier(**parameters).fit(X, y, sample_weight=sample_weight)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"hessian": "none", "leaf_hessian": "none"},
        {"hessian": "diagonal", "softmax_hessian": "friedman"},
        {"hessian": "full"},
        {"hessian": "block"},
        {"leaf": "linear"},
        {"boosting_step": "layer", "grow_policy": "depthwise", "hessian": "full"},
        {"multi_strategy": "one_output_per_tree"},
        {"class_weight": "balanced"},
        {"class_weight": {0: 3.0, 2: 0.0}},
        {"n_estimators": None},
        {"sampling_method": "goss"},
    ],
    ids=lambda parameters: "-".join(f"{name}={value}" for name, value in parameters.items()),
)
def test_shares_of_0_and_1_give_the_model_of_labels(parameters):
    labels, shares = (fit(y, WEIGHT, **parameters) for y in (IDS, ONE_HOT))
    assert labels.model_.to_bytes() == shares.model_.to_bytes()


def test_shares_count_as_weighted_rows_of_each_class():
    """Up to rounding: gradients are sums over classes in both."""
    parameters = {"n_estimators": 1, "min_child_samples": 1, "max_leaves": 4}
    shares = fit(SHARES, WEIGHT, **parameters)
    rows, classes = np.repeat(np.arange(len(X)), 3), np.tile([0, 1, 2], len(X))
    repeated = PolyleafClassifier(objective="softmax", **parameters).fit(
        X[rows], classes, sample_weight=(WEIGHT[:, None] * SHARES).ravel()
    )
    np.testing.assert_allclose(shares.predict_proba(X), repeated.predict_proba(X), atol=2e-4)


def test_auto_objective_learns_shares_where_y_has_fractions():
    expected = fit(SHARES).predict_proba(X)
    np.testing.assert_array_equal(fit(SHARES, objective="auto").predict_proba(X), expected)
    assert fit(ONE_HOT, objective="auto").predict(X).shape == (150, 3)  # labels


def test_rows_are_divided_by_their_sums():
    rounded = SHARES.astype(np.float16)
    assert (rounded.sum(axis=1) != 1).any()
    exact = rounded.astype(np.float64)
    exact /= exact.sum(axis=1, keepdims=True)
    assert fit(rounded).model_.to_bytes() == fit(exact).model_.to_bytes()


@pytest.mark.parametrize(
    ("columns", "classes"),
    [(["b", "a", "c"], ["b", "a", "c"]), ([7, 5, 3], [7, 5, 3]), (None, [0, 1, 2])],
)
def test_columns_name_classes(columns, classes):
    model = fit(pd.DataFrame(SHARES, columns=columns))
    assert model.classes_.tolist() == classes
    best = model.predict_proba(X).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), np.array(classes)[best])
    assert model.score(X, SHARES) == np.mean(best == SHARES.argmax(axis=1)) > 0.95


def test_evaluation_data_are_shares_or_labels():
    frame = pd.DataFrame(SHARES, columns=["x", "y", "z"])
    metrics = ["mlogloss", "kl_divergence", "brier", "merror", "auc", "d2", "loss"]
    model = PolyleafClassifier(n_estimators=5, eval_metric=metrics)
    model.fit(X, frame, eval_set=[(X, frame), (X, np.array(["x", "y", "z"])[IDS])])
    p, (soft, hard) = model.predict_proba(X), model.evals_result_.values()
    soft, hard = ({name: values[-1] for name, values in log.items()} for log in (soft, hard))
    entropy = -np.mean(np.sum(SHARES * np.log(SHARES), axis=1))
    assert soft["mlogloss"] == pytest.approx(-np.mean(np.sum(SHARES * np.log(p), axis=1)), 1e-5)
    assert soft["kl_divergence"] == pytest.approx(soft["mlogloss"] - entropy, 1e-5)
    assert soft["brier"] == pytest.approx(np.square(p - SHARES).sum(axis=1).mean(), 1e-5)
    assert hard["mlogloss"] == hard["kl_divergence"]
    assert hard["mlogloss"] == pytest.approx(-np.mean(np.log(p[np.arange(150), IDS])), 1e-5)
    assert hard["brier"] == pytest.approx(np.square(p - ONE_HOT).sum(axis=1).mean(), 1e-5)
    for name in ("merror", "auc"):  # of the largest share, which is the label here
        assert soft[name] == hard[name]
    assert soft["loss"] == pytest.approx(soft["mlogloss"], 1e-6)
    assert 0 < soft["d2"] < hard["d2"] < 1


def test_early_stopping_on_held_out_shares():
    model = fit(SHARES, n_estimators=400, validation_fraction=0.3, early_stopping_rounds=5)
    assert 1 <= model.n_iter_ < 400
    losses = model.evals_result_["validation"]["mlogloss"]
    assert min(losses) == losses[model.best_iteration_]


def test_datasets_batches_and_sparse_shares_give_the_same_model():
    expected = fit(SHARES).predict_proba(X)
    batches = [(X[:60], SHARES[:60]), (X[60:], SHARES[60:])]
    for arguments in (Dataset(X, SHARES), Dataset.from_batches(batches)):
        model = PolyleafClassifier(n_estimators=6, objective="softmax").fit(arguments)
        np.testing.assert_array_equal(model.predict_proba(X), expected)
    sparse = fit(scipy.sparse.csr_matrix(SHARES))
    np.testing.assert_array_equal(sparse.predict_proba(X), expected)


def test_categories_of_any_number_take_shares():
    codes = np.random.default_rng(2).integers(0, 300, 900)
    ids = (codes % 3 + np.random.default_rng(3).integers(0, 2, 900)) % 3
    table = pd.DataFrame({"category": pd.Categorical([f"c{code}" for code in codes])})
    models = [
        PolyleafClassifier(n_estimators=4, objective="softmax").fit(table, y)
        for y in (ids, np.eye(3)[ids])
    ]
    assert models[0].model_.to_bytes() == models[1].model_.to_bytes()


def test_training_continues_on_shares_or_labels():
    first = fit(SHARES)
    for y in (SHARES, IDS):
        assert PolyleafClassifier(n_estimators=3).fit(X, y, init_model=first).n_iter_ == 9
    labels = PolyleafClassifier(n_estimators=3).fit(X, (IDS > 0).astype(int))
    with pytest.raises(ValueError, match="fitted on labels of two classes"):
        fit(SHARES, n_estimators=3).fit(X, SHARES, init_model=labels)


def test_leaves_refitted_on_the_same_shares_stay_the_same():
    model = fit(SHARES)
    assert model.refit(X, SHARES).model_.to_bytes() == model.model_.to_bytes()


def test_search_takes_shares():
    search = PolyleafClassifierCV(n_candidates=2, cv=2, random_state=0, n_jobs=2).fit(X, SHARES)
    assert search.score(X, SHARES) > 0.9


@pytest.mark.parametrize(
    ("y", "parameters", "message"),
    [
        (SHARES * 0.5, {}, r"Row 0 of y sums to 0.5.*divide each row by its sum"),
        (SHARES - 0.5 * ONE_HOT + 0.5 * ONE_HOT[:, ::-1] - 0.9, {}, r"y\[0, \d\] is -.*negative"),
        (np.where(ONE_HOT > 0, np.nan, 0.5), {}, "contains NaN"),
        (SHARES, {"objective": "exponential"}, 'fractions.*objective="softmax"'),
        (SHARES, {"objective": "logistic"}, 'fractions.*objective="softmax"'),
        (np.eye(3)[np.zeros(150, int)], {}, "Only one class, 0, has rows"),
    ],
)
def test_invalid_shares_raise(y, parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(y, **parameters)


def test_shares_of_other_columns_raise():
    frame = pd.DataFrame(SHARES, columns=["x", "y", "z"])
    model = PolyleafClassifier(n_estimators=2)
    with pytest.raises(ValueError, match=r"2 column.*fitted on 3"):
        model.fit(X, frame, eval_set=[(X, SHARES[:, :2])])
    with pytest.raises(ValueError, match="another order"):
        model.fit(X, frame, eval_set=[(X, frame[["y", "x", "z"]])])


def test_tasks_take_one_class_per_row():
    Y = {"kind": np.array(["a", "b", "c"])[IDS], "size": X[:, 0]}
    model = PolyleafMultiTask({"kind": "softmax", "size": "squared_error"}, n_estimators=2)
    with pytest.raises(ValueError, match="Task 'kind' has a matrix of shares"):
        model.fit(X, Y, eval_set=[(X, {"kind": SHARES, "size": X[:, 0]})])


def test_metrics_of_shares_need_rows_of_sum_1():
    with pytest.raises(ValueError, match="class ids"):
        get_metric("kl_divergence")(RowData(np.array([[1.0, 1.0]])), np.array([[0.5, 0.5]]))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"multi_strategy": "one_output_per_tree"}, {"leaf": "linear"}, {"objective": "logistic"}],
)
def test_predict_returns_the_class_of_the_largest_probability(parameters):
    """`predict` leaves the trees early; the classes and their order are those of the scores."""
    rng = np.random.default_rng(0)
    classes = np.array(["d", "a", "c", "b"])
    features = rng.normal(size=(1200, 3))
    y = classes[np.clip(features[:, 0].round().astype(int) + 1, 0, 3)]
    model = PolyleafClassifier(n_estimators=70, max_leaves=5, objective="softmax")
    model.set_params(**parameters).fit(features, y)
    for arguments in ({}, {"iteration_range": (3, 60)}):
        best = model.predict_proba(features, **arguments).argmax(axis=1)
        np.testing.assert_array_equal(model.predict(features, **arguments), model.classes_[best])
    offset = rng.normal(size=(1200, 4))
    shifted = model.predict_proba(features, offset=offset).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(features, offset=offset), model.classes_[shifted])
