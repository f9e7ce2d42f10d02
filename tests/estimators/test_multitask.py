"""PolyleafMultiTask: one task equals the plain estimator and several tasks equal the reference
implementation, bit for bit."""

import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import reference
from reference import multitask
from sklearn.base import clone
from sklearn.metrics import d2_log_loss_score, d2_pinball_score, d2_tweedie_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from polyleaf import (
    Dataset,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRegressor,
    RowData,
    load_model,
)
from polyleaf.inspection import make_report
from polyleaf.objectives import Custom, Huber, Logistic, Quantile, Softmax, StudentTLikelihood
from polyleaf.runtime.row_data import TaskRows
from polyleaf.user_data.multitask import decode_target_encoding

N, TRAIN = 500, 350
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, 5)).astype(np.float32)
X[RNG.random(X.shape) < 0.05] = np.nan
Z = np.nan_to_num(X)
PRICE = 100 * Z[:, 0] + 30 * RNG.standard_normal(N) + 1000
CHURN = np.where(Z[:, 1] + 0.5 * RNG.standard_normal(N) > 0, "yes", "no")
SEGMENT = np.array(["gold", "iron", "tin"])[
    np.digitize(Z[:, 2] + 0.4 * RNG.standard_normal(N), [-0.5, 0.5])
]
DEMAND = Z[:, 0] + Z[:, 3] + RNG.standard_normal(N)
VISITS = RNG.poisson(np.exp(0.5 * Z[:, 1] + 0.3)).astype(float)
LABELS = (Z[:, :3] + 0.5 * RNG.standard_normal((N, 3)) > 0.3).astype(int)
Y = pd.DataFrame(
    {"price": PRICE, "churn": CHURN, "segment": SEGMENT, "demand": DEMAND, "visits": VISITS}
)
FOUR = {
    "price": "squared_error",
    "churn": "logistic",
    "segment": "softmax",
    "demand": Quantile((0.1, 0.5, 0.9)),
}
SMALL = {"n_estimators": 12, "n_jobs": 1}


def model(objective=FOUR, **parameters):
    return PolyleafMultiTask(objective, **SMALL | parameters)


def fit_model(objective=FOUR, **parameters):
    return model(objective, **parameters).fit(X[:TRAIN], Y[:TRAIN])


def test_auto_is_the_loss_of_tasks_without_objective():
    columns = ["price", "churn"]
    fitted = model(dict.fromkeys(columns, "auto")).fit(X, Y)
    expected = model(None).fit(X, Y[columns])
    np.testing.assert_array_equal(fitted.predict_raw(X), expected.predict_raw(X))


@pytest.mark.parametrize("options", [{}, {"hessian": "none"}], ids=str)
def test_task_weights_with_offsets(options):
    """Equal weights of each task are those of the rows."""
    tasks, weight = {"visits": "poisson", "price": "squared_error"}, RNG.integers(0, 3, N)
    arguments = {"offset": {"visits": Z[:, 2]}}
    of_rows, of_tasks = (
        model(tasks, **options).fit(X, Y, weights, **arguments).predict_raw(X, **arguments)
        for weights in (weight, dict.fromkeys(tasks, weight))
    )
    np.testing.assert_allclose(of_tasks, of_rows, rtol=1e-5)


def test_weights_and_objectives_of_unknown_tasks_raise():
    weight = np.ones(N)
    pair = {("price", "demand"): "squared_error"}
    for objective, named, arguments in (
        (FOUR, "prize", {"prize": weight}),
        (FOUR, "prize", pd.DataFrame({"prize": weight})),
        (pair, "price", {"price": weight}),  # a part of the task
        (pair, "price+demand", {"price+demand": weight}),
    ):
        with pytest.raises(ValueError, match=re.escape(f"names the task {named!r}; there are")):
            model(objective).fit(X, Y, sample_weight=arguments)
    model(pair).fit(X, Y, sample_weight={("price", "demand"): weight, "visits": weight})
    with pytest.raises(ValueError, match=r"the tasks \['price'\], but the model to continue has"):
        model({"price": "squared_error"}).fit(X[:TRAIN], Y[:TRAIN], init_model=fit_model())
    with pytest.raises(ValueError, match="'validation_0': sample_weight names the task 'prize'"):
        model().fit(X, Y, eval_set=[(X, Y)], eval_sample_weight=[{"prize": weight}])


def trees(estimator):
    """Return the structure of all trees and their raw scores."""
    trees = [tree.structure for tree in estimator.model_.trees]
    raw = estimator.predict_raw(X).reshape(N, -1).tobytes()
    return [(tree.feature.tolist(), tree.threshold.tolist()) for tree in trees], raw


# --- one task -------------------------------------------------------------------------------------

ALONE = {
    "squared_error": (PolyleafRegressor, "squared_error", PRICE),
    "absolute_error": (PolyleafRegressor, "absolute_error", PRICE),
    "huber": (PolyleafRegressor, Huber(20.0), PRICE),
    "quantiles": (PolyleafRegressor, Quantile((0.1, 0.5, 0.9)), DEMAND),
    "poisson": (PolyleafRegressor, "poisson", VISITS),
    "normal": (PolyleafRegressor, "normal", PRICE),
    "student_t": (PolyleafRegressor, StudentTLikelihood(df=3.0), DEMAND),
    "several numbers": (PolyleafRegressor, "squared_error", np.column_stack([PRICE, DEMAND])),
    "several levels": (PolyleafRegressor, Quantile((0.2, 0.8)), np.column_stack([PRICE, DEMAND])),
    "shares": (PolyleafRegressor, "logistic", 1 / (1 + np.exp(-DEMAND))),
    "two classes": (PolyleafClassifier, "logistic", CHURN),
    "two scores": (PolyleafClassifier, "softmax", CHURN),
    "classes": (PolyleafClassifier, "softmax", SEGMENT),
    "exponential": (PolyleafClassifier, "exponential", SEGMENT),
    "one against the rest": (PolyleafClassifier, "logistic", SEGMENT),
    "labels": (PolyleafClassifier, Logistic(scale_pos_weight=(1.0, 2.0, 3.0)), LABELS),
}
OPTIONS = {
    "plain": {},
    "sampled": {"subsample": 0.7, "colsample_bytree": 0.6, "random_state": 3},
    "goss": {"sampling_method": "goss"},
    "a tree each": {"multi_strategy": "one_output_per_tree"},
    "layers": {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3},
    "held out": {"validation_fraction": 0.3, "early_stopping_rounds": 3, "n_estimators": 30},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("case", ALONE)
def test_one_task_equals_the_plain_estimator(case, options):
    cls, objective, y = ALONE[case]
    plain = cls(objective, **SMALL | options).fit(X, y)
    one = model({"y": objective}, **options).fit(X, {"y": y})
    assert trees(one) == trees(plain)
    np.testing.assert_array_equal(one.predict(X)["y"], plain.predict(X))
    assert one.best_iteration_ == plain.best_iteration_
    if hasattr(plain, "predict_proba") and cls is PolyleafClassifier:
        np.testing.assert_array_equal(one.predict_proba(X)["y"], plain.predict_proba(X))


@pytest.mark.parametrize("case", ["squared_error", "quantiles", "normal", "poisson"])
def test_weights_offsets_and_missing_targets_of_one_task(case):
    _, objective, y = ALONE[case]
    weight, offset = RNG.integers(0, 3, N), RNG.standard_normal(N)
    some = np.where(RNG.random(N) < 0.2, np.nan, y)
    plain = PolyleafRegressor(objective, missing_targets="ignore", **SMALL)
    one = model({"y": objective}, missing_targets="ignore")
    plain.fit(X, some, sample_weight=weight, offset=offset)
    one.fit(X, {"y": some}, sample_weight=weight, offset={"y": offset})
    assert trees(one) == trees(plain)
    with_offset = plain.predict(X, offset=offset)
    np.testing.assert_array_equal(one.predict(X, offset={"y": offset})["y"], with_offset)


@pytest.mark.parametrize(
    "leaf", [{"leaf": "linear"}, {"leaf": "sparse", "leaf_k": 2}, {"hessian": "full"}]
)
def test_leaf_kinds_of_one_task(leaf):
    targets = np.column_stack([PRICE, DEMAND, VISITS])
    plain = PolyleafRegressor(**SMALL | leaf).fit(X, targets)
    one = model({"y": "squared_error"}, **leaf).fit(X, {"y": targets})
    assert trees(one) == trees(plain)


# --- task_estimator -------------------------------------------------------------------------------

MANY = {name: objective for name, (_, objective, _) in ALONE.items() if name != "exponential"}
RENEWED = ("absolute_error", "quantiles", "several levels")
TARGETS = {name: y for name, (_, _, y) in ALONE.items()}


@pytest.mark.full
@pytest.mark.parametrize("options", [*OPTIONS, "linear"])
def test_task_estimator_equals_its_part_of_the_model(options):
    """Raw scores, predictions and probabilities are equal, also after saving and loading."""
    is_linear = options == "linear"
    losses = {name: loss for name, loss in MANY.items() if not (is_linear and name in RENEWED)}
    many = model(losses, **OPTIONS.get(options, {"leaf": "linear"})).fit(X, TARGETS)
    predicted, raw, values = many.predict(X), many.predict_raw(X), many.shap_values(X[:20])
    chances, importances = many.predict_proba(X), many.feature_importance("gain", per_output=True)
    for place in many.model_.objective.tasks:
        name = place.task.name
        fitted = load_model(many.task_estimator(name).save_model())
        assert type(fitted) is ALONE[name][0]
        np.testing.assert_array_equal(fitted.predict(X), predicted[name])
        np.testing.assert_array_equal(fitted.predict_raw(X).reshape(N, -1), raw[:, place.scores])
        alone = fitted.shap_values(X[:20])
        of_task = values[..., place.scores].reshape(alone.shape)
        np.testing.assert_allclose(alone, of_task, rtol=0, atol=2**-20 * abs(of_task).max())
        gains = fitted.feature_importance("gain", per_output=True)
        np.testing.assert_array_equal(gains, importances[place.scores])
        if name in chances:
            np.testing.assert_array_equal(fitted.predict_proba(X), chances[name])


@pytest.mark.full
def test_task_estimator_works_with_other_tools():
    held, new = slice(TRAIN, 425), slice(425, N)
    many = fit_model(validation_fraction=0.2)
    before = many.save_model()
    demand = many.task_estimator("demand").calibrate(X[held], DEMAND[held], coverage=0.8)
    bounds = demand.predict_interval(X[new])
    assert 0.6 < np.mean((bounds[:, 0] <= DEMAND[new]) & (DEMAND[new] <= bounds[:, 1])) <= 1
    segment = many.task_estimator("segment").calibrate(X[held], SEGMENT[held], coverage=0.9)
    assert segment.predict_set(X[new]).shape == (75, 3)
    churn = many.task_estimator("churn").choose_threshold(X[held], CHURN[held])
    assert churn.thresholds_ != 0.5 and set(churn.predict(X[new])) <= {"no", "yes"}
    for name, y in (("price", PRICE), ("churn", CHURN), ("segment", SEGMENT), ("demand", DEMAND)):
        page = make_report(many.task_estimator(name), X[new], y[new]).html
        assert "<svg" in page and ("gold" in page) == (name == "segment")
    assert list(many.task_estimator("price").evals_result_["validation"]) == ["rmse"]
    assert many.save_model() == before, "what is found for a task stays with it"


def test_task_estimator_keeps_offsets_columns_and_parameters():
    frame = pd.DataFrame(X, columns=list("abcde"))
    offset = RNG.standard_normal(N)
    directions = {"monotone_constraints": {"a": {"price": 1}}, "base_score": [1.0] * 8}
    of_outputs = model(n_estimators=3, **directions).fit(frame, Y, offset={"demand": offset})
    fitted = of_outputs.task_estimator("demand")
    assert fitted.n_jobs == 1 and fitted.n_estimators == 3 and fitted.monotone_constraints is None
    assert list(fitted.feature_names_in_) == list("abcde")
    with_offset = of_outputs.predict(frame, offset={"demand": offset})["demand"]
    np.testing.assert_array_equal(fitted.predict(frame, offset=offset), with_offset)
    shared = fit_model(monotone_constraints=[1, 0, 0, 0, 0]).task_estimator("price")
    assert shared.monotone_constraints == [1, 0, 0, 0, 0]
    assert shared.fit(X, PRICE).predict(X).shape == (N,)


# --- several tasks: the reference implementation --------------------------------------------------


@pytest.mark.parametrize("weights", [None, {"segment": 4.0, "demand": 0.25}])
def test_several_tasks_equal_the_reference(weights):
    """Splits use gains of all tasks in one unit; derivatives and leaves are those of a task."""
    rows = np.isfinite(X).all(axis=1)
    of_full, targets = X[rows], Y[rows]
    options = {"n_estimators": 5, "max_leaves": 8, "learning_rate": 0.5, "colsample_bynode": 1.0}
    fitted = model(task_weight=weights, calibrate_quantiles=False, **options).fit(of_full, targets)
    mapper = fitted.model_.mapper
    data = mapper.transform(fitted._features(of_full)), mapper.n_bins_, mapper.is_categorical_
    objective = fitted.model_.objective
    values = fitted._encoding.encode(RowData(targets)).values
    problem = objective.bind(RowData(values))
    problem.set_base_score(fitted.model_.base_score)
    counts = [(weights or {}).get(place.task.name, 1.0) for place in objective.tasks]
    blocks = [(place.scores, count) for place, count in zip(objective.tasks, counts, strict=True)]
    config = reference.GrowConfig(max_leaves=8, min_child_weight=1e-3)
    raw = np.zeros((len(of_full), 8), np.float32)
    levels = np.array([np.nan] * 5 + [0.1, 0.5, 0.9])
    residual_of = targets["demand"].to_numpy()[:, None] - fitted.model_.base_score
    for view in fitted.model_.trees:
        g, h = np.empty_like(raw), np.empty_like(raw)
        problem.derivatives(raw, g, h)
        residual = residual_of.astype(np.float32) - raw
        unit = multitask.units(blocks, g, h)
        growth = unit, config, 0.5, levels, residual
        tree, leaves, leaf_values = multitask.fit_tree(data, g, h, *growth)
        np.testing.assert_array_equal(view.structure.feature, tree.feature)
        np.testing.assert_array_equal(view.structure.threshold, tree.threshold)
        np.testing.assert_array_equal(view.leaves, leaf_values)
        raw = raw + leaf_values[leaves]
    np.testing.assert_array_equal(fitted.predict_raw(of_full), raw + fitted.model_.base_score)


def test_trees_are_independent_of_the_unit_of_a_target():
    """Targets multiplied by a power of two give the same trees."""
    other = Y.assign(price=1024 * Y["price"])
    a, b = fit_model(), model().fit(X[:TRAIN], other[:TRAIN])
    assert trees(a)[0] == trees(b)[0]
    np.testing.assert_allclose(1024 * a.predict(X)["price"], b.predict(X)["price"], rtol=1e-6)
    np.testing.assert_array_equal(a.predict_proba(X)["segment"], b.predict_proba(X)["segment"])


@pytest.mark.parametrize(
    ("y", "weight"),
    [
        (SEGMENT, "balanced"),
        (SEGMENT, {"gold": 3, "tin": 0.5}),
        (CHURN, {"yes": 4}),
        (LABELS, "balanced"),
        (LABELS, [{0: 1, 1: 3}, {}, {1: 2}]),
    ],
)
def test_class_weights_of_one_task_equal_those_of_a_classifier(y, weight):
    small = {"n_estimators": 4, "n_jobs": 1, "random_state": 0}
    sample_weight = RNG.random(N)
    key = "y" if y.ndim == 1 else tuple("abc")
    table = pd.DataFrame({"y": y}) if y.ndim == 1 else pd.DataFrame(y, columns=list("abc"))
    name = "y" if y.ndim == 1 else "a+b+c"
    objective = {key: "softmax" if y is SEGMENT else "logistic"}
    for parameters in ({}, {"validation_fraction": 0.3}):
        tasks = PolyleafMultiTask(objective, class_weight={name: weight}, **small, **parameters)
        alone = PolyleafClassifier(class_weight=weight, **small, **parameters)
        tasks.fit(X, table, sample_weight=sample_weight)
        alone.fit(X, y, sample_weight=sample_weight)
        assert (tasks.model_.predict_raw(X) == alone.model_.predict_raw(X)).all()
        if parameters:
            (found, *_), (expected, *_) = (
                list(m.evals_result_["validation"].values()) for m in (tasks, alone)
            )
            assert found == expected
    again = tasks.refit(X, table, sample_weight=sample_weight).model_.predict_raw(X)
    assert (again == alone.refit(X, y, sample_weight=sample_weight).model_.predict_raw(X)).all()
    assert tasks.task_estimator(name).class_weight == weight


def test_class_weights_of_several_tasks():
    names = ["segment", "churn", "price"]
    small = {"n_estimators": 4, "n_jobs": 1, "random_state": 0}
    everything = PolyleafMultiTask(class_weight="balanced", **small).fit(X, Y[names])
    listed = {"segment": "balanced", "churn": "balanced"}
    single = PolyleafMultiTask(class_weight=listed, **small).fit(X, Y[names])
    assert (everything.predict_raw(X) == single.predict_raw(X)).all()
    plain = PolyleafMultiTask(**small).fit(X, Y[names])
    assert not (everything.predict_raw(X) == plain.predict_raw(X)).all(axis=0)[:5].any()
    assert load_model(single.save_model()).class_weight == listed
    for bad, words in (
        ({"price": "balanced"}, "task 'price', which learns numbers"),
        ({"other": "balanced"}, "names the task 'other'"),
        ({"churn": {"maybe": 1}}, "label 'maybe'"),
    ):
        with pytest.raises(ValueError, match=words):
            PolyleafMultiTask(class_weight=bad, **small).fit(X, Y[names])


def test_predictor_of_probabilities():
    model = PolyleafMultiTask(n_estimators=3).fit(X, Y[["segment", "churn", "price"]])
    found, expected = model.predictor("predict_proba")(X), model.predict_proba(X)
    assert found.keys() == expected.keys() == {"segment", "churn"}
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    with pytest.raises(ValueError, match="decision_function"):
        model.predictor("decision_function")


def test_task_weight_directs_splits():
    small, large = fit_model(task_weight={"segment": 1e-6}), fit_model(task_weight={"segment": 1e6})
    held = X[TRAIN:], Y[TRAIN:]
    assert large.d2_scores(*held)["segment"] > small.d2_scores(*held)["segment"] + 0.1
    assert large.d2_scores(*held)["price"] < small.d2_scores(*held)["price"] - 0.1


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        *OPTIONS.values(), {"hessian": "full"}, {"hessian": "shared"}, {"hessian": "none"},
        {"sketch": "random_projection", "sketch_dim": 3}, {"pruning": "post"},
    ],
    ids=str,
)  # fmt: skip
def test_all_settings_learn_all_tasks(options):
    has_levels = options.get("hessian") != "full"
    losses = {name: loss for name, loss in FOUR.items() if has_levels or name != "demand"}
    fitted = model(losses, **{"n_estimators": 40} | options).fit(X[:TRAIN], Y[:TRAIN])
    d2_scores = fitted.d2_scores(X[TRAIN:], Y[TRAIN:])
    assert min(d2_scores.values()) > 0.2, d2_scores


# --- forms of Y -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dict", "polars", "arrow"])
def test_data_frame_equals_dict_of_targets(kind):
    made = {
        "dict": lambda f: {name: f[name].to_numpy() for name in f},
        "polars": pl.from_pandas,
        "arrow": pa.Table.from_pandas,
    }[kind]
    fitted = model().fit(X[:TRAIN], made(Y[:TRAIN]))
    assert trees(fitted) == trees(fit_model())
    assert fitted.score(X[TRAIN:], made(Y[TRAIN:])) == fit_model().score(X[TRAIN:], Y[TRAIN:])


def test_default_objectives_follow_column_types():
    kind = pd.Categorical(VISITS.clip(0, 3))
    frame = Y.assign(flag=Y["visits"] > 1, zero_one=(Y["demand"] > 0).astype(float), kind=kind)
    fitted = model(None).fit(X, frame)
    names = [place.task.objective.name for place in fitted.model_.objective.tasks]
    numbers, classes = ["squared_error"] * 2, ["logistic", "softmax"]
    assert names == ["squared_error", *classes, *numbers, "logistic", *classes]
    assert set(fitted.classes_) == {"churn", "segment", "flag", "zero_one", "kind"}
    assert fitted.predict(X)["flag"].dtype == bool


def test_task_with_several_columns():
    frame = Y.assign(a=LABELS[:, 0], b=LABELS[:, 1], c=LABELS[:, 2])
    tasks = {("a", "b", "c"): "logistic", ("price", "demand"): "squared_error"}
    tasks["segment"] = "softmax"
    fitted = model(tasks).fit(X, frame)
    names = "a b c price demand segment_gold segment_iron segment_tin"
    assert fitted.model_.output_names == tuple(names.split())
    shapes = {name: values.shape for name, values in fitted.predict(X).items()}
    assert shapes == {"a+b+c": (N, 3), "price+demand": (N, 2), "segment": (N,)}
    same = model(tasks).fit(X, {name: frame[name].to_numpy() for name in frame})
    assert trees(fitted) == trees(same)
    assert load_model(fitted.save_model()).objective.keys() == tasks.keys()


def test_rows_train_the_tasks_whose_target_is_known():
    """Missing targets of one task do not change the base scores of others."""
    gaps = Y.copy()
    hole = RNG.random((N, 5)) < 0.3
    for k, name in enumerate(gaps):
        gaps.loc[hole[:, k], name] = None
    whole = model(missing_targets="ignore").fit(X, gaps)
    for task, objective in FOUR.items():
        is_known = gaps[task].notna().to_numpy()
        one = model({task: objective}, missing_targets="ignore").fit(X, gaps)
        dropped = model({task: objective}).fit(X[is_known], gaps[task][is_known].to_frame())
        np.testing.assert_allclose(one.model_.base_score, dropped.model_.base_score, rtol=1e-12)
    assert min(whole.d2_scores(X, gaps).values()) > 0.15
    polars = model(missing_targets="ignore").fit(X, pl.from_pandas(gaps))
    assert trees(polars) == trees(whole)


def test_weights_per_row_and_per_task():
    counts = RNG.integers(0, 3, N)
    of_rows = model().fit(X, Y, sample_weight=counts)
    of_tasks = model().fit(X, Y, sample_weight=dict.fromkeys(FOUR, counts))
    assert trees(of_rows) == trees(of_tasks)
    only = model().fit(X, Y, sample_weight={"price": counts})
    frame = model().fit(X, Y, sample_weight=pd.DataFrame({"price": counts}))
    assert trees(only) == trees(frame) != trees(of_rows)


def test_offset_changes_its_task_only():
    offset = 0.5 * Z[:, 1]
    tasks = {"visits": "poisson", "price": "squared_error"}
    fitted = model(tasks).fit(X, Y, offset={"visits": offset})
    base, more = fitted.predict_raw(X), fitted.predict_raw(X, offset={"visits": offset})
    np.testing.assert_allclose(more - base, np.column_stack([offset, np.zeros(N)]), atol=1e-12)
    score = fitted.d2_scores(X, Y, offset={"visits": offset})["visits"]
    assert score > fitted.d2_scores(X, Y)["visits"]
    prices = Y.assign(price=Y["price"] + 64 * VISITS)
    both = model(tasks).fit(X, prices, offset={"price": 64 * VISITS})
    assert both.d2_scores(X, Y)["price"] > 0.5


# --- predictions ----------------------------------------------------------------------------------


def test_predictions_as_data_frames():
    fitted = fit_model()
    held = pd.DataFrame(X[TRAIN:], index=np.arange(TRAIN, N))
    kinds = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
    for library, kind in kinds.items():
        tabled = pickle.loads(pickle.dumps(fitted)).set_output(predict=library)
        table, chances = tabled.predict(held), tabled.predict_proba(held)
        assert isinstance(table, kind) and isinstance(chances, kind)
    table = fitted.set_output(predict="pandas").predict(held)
    assert list(table) == ["price", "churn", "segment", "demand_q0.1", "demand_q0.5", "demand_q0.9"]
    assert list(table.index) == list(held.index)
    chances = fitted.predict_proba(held)
    assert list(chances) == ["churn_no", "churn_yes", "segment_gold", "segment_iron", "segment_tin"]
    np.testing.assert_allclose(chances.iloc[:, 2:].sum(axis=1), 1)
    plain = clone(fitted).set_output(predict="default").fit(X[:TRAIN], Y[:TRAIN]).predict(held)
    np.testing.assert_array_equal(plain["segment"], table["segment"])


def test_distributions_per_task():
    losses = {"price": "normal", ("demand", "visits"): "normal", "churn": "logistic"}
    fitted = model(losses).fit(X, Y)
    distributions = fitted.predict_dist(X)
    assert list(distributions) == ["price", "demand+visits"]
    np.testing.assert_array_equal(distributions["price"].mean(), fitted.predict(X)["price"])
    assert distributions["demand+visits"].std().shape == (N, 2)
    assert set(fitted.d2_scores(X, Y)) == {"price", "demand+visits", "churn"}


def test_d2_scores_equal_scikit_learn():
    fitted = model({**FOUR, "visits": "poisson"}, n_estimators=30, calibrate_quantiles=False)
    fitted.fit(X[:TRAIN], Y[:TRAIN])
    held, truth = X[TRAIN:], Y[TRAIN:]
    d2_scores, predicted = fitted.d2_scores(held, truth), fitted.predict(held)
    assert d2_scores["price"] == pytest.approx(r2_score(truth["price"], predicted["price"]))
    for name, chances in fitted.predict_proba(held).items():
        expected = d2_log_loss_score(truth[name], chances)
        assert d2_scores[name] == pytest.approx(expected, rel=1e-5)
    expected = d2_tweedie_score(truth["visits"], predicted["visits"], power=1)
    assert d2_scores["visits"] == pytest.approx(expected)
    levels = [
        d2_pinball_score(truth["demand"], predicted["demand"][:, i], alpha=level)
        for i, level in enumerate((0.1, 0.5, 0.9))
    ]
    # scikit-learn interpolates quantiles in another way.
    assert d2_scores["demand"] == pytest.approx(np.mean(levels), abs=0.02)
    assert fitted.score(held, truth) == pytest.approx(np.mean(list(d2_scores.values())))


def test_staged_predict_and_iteration_range():
    fitted = fit_model()
    last = list(fitted.staged_predict(X))[-1]
    np.testing.assert_array_equal(last["segment"], fitted.predict(X)["segment"])
    assert not np.array_equal(fitted.predict(X, iteration_range=(0, 3))["price"], last["price"])


# --- evaluation sets ------------------------------------------------------------------------------


def test_metrics_of_tasks_and_early_stopping():
    stopping = {"n_estimators": 200, "early_stopping_rounds": 5, "learning_rate": 0.3}
    fitted = model(**stopping, calibrate_quantiles=False)
    fitted.fit(X[:TRAIN], Y[:TRAIN], X_val=X[TRAIN:], y_val=Y[TRAIN:])
    log = fitted.evals_result_["validation"]
    names = "price: rmse, churn: logloss, segment: mlogloss, demand: quantile, d2"
    assert list(log) == names.split(", ")
    assert fitted.best_iteration_ == np.argmax(log["d2"]) < 190
    assert log["d2"][fitted.best_iteration_] == pytest.approx(fitted.score(X[TRAIN:], Y[TRAIN:]))
    errors = fitted.predict(X[TRAIN:])["price"] - Y["price"][TRAIN:]
    assert log["price: rmse"][fitted.best_iteration_] == pytest.approx(np.sqrt(np.mean(errors**2)))


def test_default_learning_rate_of_one_and_of_several_tasks():
    counts = {"number": "poisson"}
    number = pd.DataFrame({"number": np.arange(len(X)) % 7, "churn": Y["churn"].to_numpy()})
    alone = PolyleafMultiTask(counts, n_estimators=2).fit(X, number)
    plain = PolyleafRegressor(objective="poisson", n_estimators=2).fit(X, number["number"])
    several = PolyleafMultiTask(counts | {"churn": "logistic"}, n_estimators=2).fit(X, number)
    assert alone.model_.learning_rate == plain.model_.learning_rate == 0.05
    assert several.model_.learning_rate == 0.1


def test_early_stopping_on_one_task():
    chosen = {"churn": ["auc", "logloss"], "price": ["mae", "d2"]}
    fitted = model(eval_metric=chosen, n_estimators=100, early_stopping_rounds=4, learning_rate=0.3)
    fitted.fit(X[:TRAIN], Y[:TRAIN], eval_set=[(X[TRAIN:], Y[TRAIN:])])
    log = fitted.evals_result_["validation_0"]
    assert list(log) == ["churn: auc", "churn: logloss", "price: mae", "price: d2"]
    assert fitted.best_iteration_ == np.argmax(log["price: d2"])


def test_metrics_ignore_missing_targets():
    gaps = Y[TRAIN:].copy()
    gaps.iloc[::3, :] = None
    is_known = np.arange(N - TRAIN) % 3 > 0
    options = {"missing_targets": "ignore", "calibrate_quantiles": False}
    held = [(X[TRAIN:], gaps), (X[TRAIN:][is_known], Y[TRAIN:][is_known])]
    logs = model(**options).fit(X[:TRAIN], Y[:TRAIN], eval_set=held).evals_result_
    for name, values in logs["validation_0"].items():
        expected = logs["validation_1"][name]
        np.testing.assert_allclose(values, expected, rtol=1e-5, err_msg=name)


# --- files and other tools ------------------------------------------------------------------------


def test_model_files():
    fitted = fit_model(n_estimators=5, task_weight={"price": 2.0})
    data = fitted.save_model()
    again = load_model(data)
    assert isinstance(again, PolyleafMultiTask) and again.save_model() == data
    for name, values in fitted.predict(X).items():
        np.testing.assert_array_equal(again.predict(X)[name], values)
    assert again.get_params()["task_weight"] == {"price": 2.0}
    assert again.objective["demand"] == Quantile((0.1, 0.5, 0.9))
    more = model(task_weight={"price": 2.0}).fit(X[:TRAIN], Y[:TRAIN], init_model=again)
    assert more.n_iter_ == 17
    with pytest.raises(ValueError, match="it holds a PolyleafMultiTask"):
        PolyleafRegressor.load_model(data)


@pytest.mark.parametrize(
    "change",
    [
        {"keys": []}, {"keys": [["a"], 3.5, "b", "c"]}, {"tasks": [1, 2, 3, 4]}, {"missing": 1},
        {"keys": ["price", "churn", "segment"]}, {"tasks": None},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_stored_encodings_raise(change):
    stored = fit_model(n_estimators=1)._encoding.to_dict()
    assert decode_target_encoding(stored, 8).to_dict() == stored
    with pytest.raises(ValueError, match="The model"):
        decode_target_encoding(stored | change, 8)


def test_scikit_learn_tools():
    search = GridSearchCV(model(n_estimators=5), {"max_leaves": [4, 8]}, cv=2).fit(X, Y)
    assert search.best_score_ > 0.1
    scores = cross_val_score(model(), X, Y, cv=3)
    assert scores.shape == (3,) and scores.min() > 0.2
    assert clone(model()).get_params()["objective"] == FOUR


def test_shap_values_and_importances_by_task_name():
    fitted = fit_model()
    assert fitted.shap_values(X[:20], outputs=["churn", "demand_q0.9"]).shape == (20, 5, 2)
    total = fitted.shap_values(X[:20]).sum(axis=1) + fitted.shap_base_values()
    np.testing.assert_allclose(total, fitted.predict_raw(X[:20]), rtol=1e-4, atol=1e-3)
    of_outputs = fitted.feature_importance(per_output=True)
    assert of_outputs.shape == (8, 5) and of_outputs[1].argmax() == 1


def test_monotone_constraints_by_task_name():
    rules = {0: {"price": 1, "demand": 1}, 2: {"churn": -1}}
    fitted = fit_model(monotone_constraints=rules, n_estimators=30)
    low, high = Z[:200].copy(), Z[:200].copy()
    high[:, 0] += 1
    assert (fitted.predict(high)["price"] >= fitted.predict(low)["price"]).all()
    assert (fitted.predict(high)["demand"] >= fitted.predict(low)["demand"]).all()
    high[:, 0], high[:, 2] = low[:, 0], low[:, 2] + 1
    chances = [fitted.predict_proba(rows)["churn"][:, 1] for rows in (low, high)]
    assert (chances[1] <= chances[0]).all()


def test_high_cardinality_features_use_all_tasks():
    cities = RNG.integers(0, 400, N)
    frame = pd.DataFrame({"city": pd.Categorical(cities), "x": Z[:, 0]})
    of_city = RNG.standard_normal(400)[cities]
    tasks = {"level": "squared_error", "high": "logistic", "third": "softmax"}
    made = {"level": of_city, "high": of_city > 0, "third": np.digitize(of_city, [-0.5, 0.5])}
    fitted = model(tasks, n_estimators=30).fit(frame, made, sample_weight={"level": np.ones(N)})
    assert fitted.d2_scores(frame, made)["third"] > 0.2
    labels = [column for column in fitted.model_.feature_names if "city" in column]
    assert any("third 0" in label for label in labels) and any("level" in label for label in labels)


# --- bad input ------------------------------------------------------------------------------------

BAD = [
    (dict(objective={"prize": "squared_error"}), Y, "Y has no column 'prize'"),
    (dict(objective={}), Y, "objective names no task"),
    (dict(objective={"price": "squared_eror"}), Y, "Did you mean 'squared_error'"),
    (dict(objective={"price": 3}), Y, "objective must be a name or a callable"),
    (dict(objective={"segment": "squared_error"}), Y, "Task 'segment': y holds the text"),
    (dict(objective={("churn", "segment"): "softmax"}), Y, r"Task 'churn\+segment': y"),
    (
        dict(objective={"price": "gamma"}),
        Y.assign(price=-1.0),
        "Task 'price': Objective 'gamma' needs targets",
    ),
    (dict(task_weight={"prise": 2.0}), Y, "task_weight names the task 'prise'"),
    (dict(task_weight={"price": 0.0}), Y, "weight of task 'price'"),
    (dict(eval_metric="rmse", validation_fraction=0.2), Y, "eval_metric='rmse'"),
    (dict(eval_metric={"x": "rmse"}, validation_fraction=0.2), Y, "task of eval_metric .*got 'x'"),
    (dict(leaf="sparse"), Y, "no common unit"),
    (dict(reg_alpha=1.0), Y, "reg_alpha and max_delta_step"),
    (dict(), Y.to_numpy(), "without column names"),
    (dict(), None, "y to be passed|Y is None"),
    (dict(), Y.assign(churn=None), "contains NaN|has no label"),
    (
        dict(),
        {**dict(Y.items()), "churn": CHURN[:10]},
        "Task 'price' has 500 rows, but task 'churn' has 10",
    ),
    (
        dict(),
        Y.assign(price=np.where(Z[:, 0] > 1, np.nan, 1.0)),
        "Task 'price': Input y contains NaN",
    ),
    (dict(leaf="linear"), Y, "Objective 'quantile' of task 'demand'"),
    (dict(objective={"price": "nice"}), Y, "Task 'price': Unknown objective 'nice'"),
]


@pytest.mark.parametrize(("parameters", "y", "message"), BAD, ids=[m for _, _, m in BAD])
def test_invalid_input_raises(parameters, y, message):
    with pytest.raises(ValueError, match=message):
        model(**{"objective": FOUR} | parameters).fit(X, y)


def test_invalid_calls_raise():
    fitted = fit_model(n_estimators=2)
    with pytest.raises(ValueError, match="predict_topk"):
        fitted.predict_topk(X)
    with pytest.raises(
        ValueError, match="names the task 'cost'; there are 'price', 'churn', 'segment'"
    ):
        fitted.task_estimator("cost")
    with pytest.raises(ValueError, match="offset must be a dict"):
        fitted.predict(X, offset=np.zeros(N))
    with pytest.raises(ValueError, match="names the task 'x'"):
        fitted.predict(X, offset={"x": np.zeros(N)})
    with pytest.raises(ValueError, match="Y has no column 'churn'"):
        fitted.score(X, Y[["price"]])
    with pytest.raises(ValueError, match="the label 'maybe'"):
        fitted.score(X, Y.assign(churn="maybe"))


def test_functions_and_classes_as_objectives():
    def quartic(y, score):
        return 4 * (score - y) ** 3, 12 * (score - y) ** 2 + 0.1

    fitted = model({"demand": Custom(quartic, n_outputs=1), "segment": Softmax}).fit(X, Y)
    assert np.corrcoef(fitted.predict(X)["demand"], DEMAND)[0, 1] > 0.5
    assert fitted.predict(X)["segment"].dtype.kind in "OU"


def test_plots_summaries_and_exports_of_tasks(tmp_path):
    from polyleaf import export

    pytest.importorskip("matplotlib")
    from polyleaf.inspection import model_summary, plotting

    fitted = fit_model(n_estimators=3)
    for display in ("CalibrationDisplay", "CoverageDisplay", "OutputsDisplay", "ThresholdDisplay"):
        with pytest.raises(ValueError, match=r"task_estimator\(name\)"):
            getattr(plotting, display).from_estimator(fitted, X, Y)
    importances = plotting.ImportanceDisplay.from_estimator(fitted)
    trees_of = plotting.TreeDisplay.from_estimator(fitted)
    assert importances is not None and trees_of is not None
    assert "tasks with 8 output(s)" in model_summary.summary(fitted.model_)
    export.to_c(fitted, tmp_path / "model.h")
    assert "_raw(" in (tmp_path / "model.h").read_text()


def test_predictor():
    fitted = fit_model()
    predictor, predicted = fitted.predictor(), fitted.predict(X)
    for name, values in predictor(X[:3]).items():
        np.testing.assert_array_equal(values, predicted[name][:3])
    one = predictor(X[0])
    assert one["segment"] == predicted["segment"][0] and one["demand"].shape == (3,)


def test_dataset_with_targets_of_tasks():
    of_dict = Dataset(X, y=dict(Y.items()))
    assert trees(model().fit(Dataset(X, y=Y))) == trees(model().fit(X, Y))
    assert of_dict.y.keys() == set(Y)
    with pytest.raises(ValueError, match="weight per row"):
        Dataset(X, y=Y, sample_weight={"price": np.ones(N)})
    with pytest.raises(ValueError, match="y has 10 rows, but X has 500"):
        Dataset(X, y={"price": PRICE[:10]})


def test_targets_of_tasks_are_not_joined_in_a_fit(monkeypatch):
    monkeypatch.setattr(TaskRows, "target", property(lambda rows: pytest.fail("joined")))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y = {"a": X[:, 0], "b": X[:, 1] > 0, "c": rng.integers(0, 3, 60)}
    model = PolyleafMultiTask(n_estimators=3, n_jobs=1)
    model.fit(X, Y, eval_set=[(X, Y)])
    assert model.d2_scores(X, Y)["a"] > 0
