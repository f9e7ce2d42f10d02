"""Names of other libraries have hints; methods and inputs that their users expect."""

import inspect
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import polyleaf
from polyleaf import (
    Dataset,
    Model,
    PolyleafClassifier,
    PolyleafClassifierCV,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRegressor,
)
from polyleaf.settings.aliases import read_foreign_names
from polyleaf.settings.param_spec import get_param_specs

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 3))
Y = np.stack([X[:, 0], X[:, 1] * X[:, 2]], axis=1)
TWO = np.where(X[:, 0] > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
LABELS = (Y > 0).astype(int)
SMALL = {"n_estimators": 3, "n_jobs": 1}
ESTIMATORS = (PolyleafRegressor, PolyleafClassifier)


def regressor(**changes):
    return PolyleafRegressor(**SMALL | changes)


def classifier(**changes):
    return PolyleafClassifier(**SMALL | changes)


# --- suggestions for foreign names ---


@pytest.mark.parametrize(
    ("foreign", "own_name"),
    [
        ("num_leaves", "max_leaves"),
        ("eta", "learning_rate"),
        ("n_round", "n_estimators"),
        ("min_data_in_leaf", "min_child_samples"),
        ("l2_leaf_reg", "reg_lambda"),
        ("max_leaf_nodes", "max_leaves"),
        ("nthread", "n_jobs"),
        ("monotonic_cst", "monotone_constraints"),
        ("mono_constraints", "monotone_constraints"),
        ("interaction_cst", "interaction_constraints"),
        ("n_estimatorz", "n_estimators"),
        ("reg_gamma", "min_split_gain"),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_foreign_parameters_suggest_polyleaf_names(estimator, foreign, own_name):
    message = rf"{estimator.__name__}\(\) takes no '{foreign}': did you mean {own_name}\?"
    with pytest.raises(TypeError, match=message):
        estimator(**{foreign: 1})
    message = rf"set_params\(\) takes no '{foreign}': did you mean {own_name}\?"
    with pytest.raises(ValueError, match=message):
        estimator().set_params(**{foreign: 1})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: PolyleafRegressor(enable_categorical=True), "categorical columns of a data"),
        (lambda m: PolyleafRegressor(base_margin=1), "it is offset of fit"),
        (lambda m: PolyleafRegressor(baseline="zero"), "it is offset of fit"),
        (lambda m: PolyleafClassifier(eval_set=[(X, Y)]), "it is eval_set of fit"),
        (lambda m: PolyleafRegressor(ntree_limit=3), "it is iteration_range of predict"),
        (lambda m: m.predict(X, output_margin=True), "predict_raw returns raw scores"),
        (lambda m: m.predict(X, num_iteration=2), r"did you mean iteration_range\?"),
        (lambda m: m.fit(X, Y, verbose=False), "it is a parameter of the constructor"),
        (lambda m: m.fit(X, Y, n_round=3), r"did you mean n_estimators of the constructor\?"),
        (lambda m: m.fit(X, Y, xgb_model=None), r"did you mean init_model\?"),
        (lambda m: m.fit(X, Y, feature_name=list("abc")), "columns of a data frame"),
        (lambda m: m.fit(X, Y, zzz=1), "it takes X, y, sample_weight, offset, groups"),
        (lambda m: m.fit(X, Y, exposure=np.ones(80)), r"offset=np.log\(exposure\)"),
    ],
)
def test_foreign_arguments_have_hints(call, message):
    with pytest.raises(TypeError, match=rf"takes no '\w+'.*{message}"):
        call(regressor().fit(X, Y))


def test_suggested_names_exist():
    estimators = (*ESTIMATORS, PolyleafRanker)
    own_names = {p.name for estimator in estimators for p in get_param_specs(estimator)}
    own_names |= {
        name
        for method in (PolyleafRegressor.fit, PolyleafRanker.fit, PolyleafRegressor.predict)
        for name in _names(method)
    }
    table = read_foreign_names("parameters")
    assert set(table) - own_names <= {"offset"}
    for method, names in read_foreign_names("method_arguments").items():
        assert set(names.split()) <= {*_names(getattr(PolyleafRegressor, method)), "offset"}
    foreign = [name for names in table.values() for name in names.split()]
    assert set(foreign) & {p.name for p in get_param_specs(PolyleafClassifier)} <= {"n_estimators"}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"max_depth": -1}, "None means no limit"),
        ({"max_leaves": 0}, "None means no limit"),
        ({"max_leaves": 2**31}, "None means no limit"),
        ({"max_depth": 2**31}, "None means no limit"),
        ({"verbose": -1}, "0 is silent"),
        ({"random_state": np.random.default_rng(0)}, "Draw an int"),
        ({"grow_policy": "Lossguide"}, 'Use "lossguide"'),
        ({"grow_policy": "SymmetricTree"}, '"depthwise" is closest'),
        ({"objective": {"eta": 1}}, r"\*\*parameters; a dict .* PolyleafMultiTask"),
        ({"objective": ["logistic"]}, "One objective applies to all outputs"),
        ({"device": "cuda:0"}, 'Use "cuda"'),
        ({"monotone_constraints": "(1,0,0)"}, "Pass a list"),
        ({"interaction_constraints": "[[0, 1]]"}, "Pass a list of lists"),
    ],
)
def test_foreign_values_have_hints(parameters, words):
    with pytest.raises(ValueError, match=words):
        regressor(**parameters).fit(X, Y)


@pytest.mark.parametrize("name", ["binary:logistic", "binary", "log_loss"])
def test_binary_objective_name_warns_once_with_more_classes(name):
    with pytest.warns(UserWarning, match='each of the 3 classes .*objective="softmax"') as caught:
        named = classifier(objective=name).fit(X, THREE)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = classifier(objective="logistic").fit(X, THREE)
        for y in (TWO, LABELS):
            classifier(objective=name).fit(X, y)
    np.testing.assert_array_equal(named.predict_raw(X), fitted.predict_raw(X))


def test_search_warns_once_about_a_binary_objective_name():
    with pytest.warns(UserWarning, match='each of the 3 classes .*objective="softmax"') as caught:
        search = PolyleafClassifierCV(objective="binary:logistic", n_candidates=3, cv=2, **SMALL)
        fitted = search.fit(X, THREE)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert fitted.best_params_["objective"] == "logistic"


def test_each_task_warns_once_about_a_binary_objective_name():
    tasks = {"a": THREE, "b": THREE[::-1], "c": THREE, "d": TWO}
    losses = {"a": "binary:logistic", "b": "Binary", "c": "logistic", "d": "binary:logistic"}
    with pytest.warns(UserWarning, match="each of the 3 classes") as caught:
        PolyleafMultiTask(losses, **SMALL).fit(X, tasks)
    assert [str(one.message)[:8] for one in caught] == ["Task 'a'", "Task 'b'"]
    assert {one.filename for one in caught} == {__file__}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exposure", r"offset=np.log\(exposure\)"),
        ("alpha", "reg_alpha or quantile_alpha or huber_delta"),
        ("silent", "verbose=0"),
        ("early_stopping", "early_stopping_rounds=10"),
    ],
)
def test_hints_keep_the_meaning_of_the_value(name, words):
    with pytest.raises(TypeError, match=f"takes no '{name}': .*{words}"):
        PolyleafRegressor(**{name: 1})


def test_other_invalid_values_have_no_hint():
    with pytest.raises(ValueError, match=r"Got '6' instead\.$"):
        regressor(max_depth="6").fit(X, Y)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("QueryRMSE", "'xendcg', 'lambdarank', 'pairwise' and 'yetirank' rank"),
        ("survival:cox", "polyleaf.distributions.survival"),
        ("rank:map", "lambda_metric='map'"),
        ("YetiRankPairwise", "'yetirank' and 'pairwise'"),
        ("StochasticRank", "'yetirank' rank"),
        ("reg:pseudohubererror", "'huber' is closest"),
        ("reg:squaredlogerror", r"np.log1p\(y\)"),
        ("Quantile:alpha=0.5", "quantile_alpha"),
        ("multiclassova", "'logistic' learns each class"),
        ("squared_eror", "Did you mean 'squared_error'"),
    ],
)
def test_foreign_objectives_have_hints(name, words):
    with pytest.raises(ValueError, match=f"Unknown objective '{name}'. .*{words}"):
        regressor(objective=name).fit(X, Y)


def test_parameters_without_equivalent_have_hints():
    for name, hint in read_foreign_names("parameters_without_equivalent").items():
        with pytest.raises(TypeError) as error:
            PolyleafRegressor(**{name: 1})
        assert str(error.value).endswith(hint), name


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_foreign_attributes_have_hints_and_hide_no_attributes(estimator):
    model = estimator(**SMALL).fit(X, TWO if estimator is PolyleafClassifier else Y)
    for name, words in read_foreign_names("attributes").items():
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match="has no attribute") as error:
            getattr(model, name)
        assert str(error.value).endswith(words)
    with pytest.raises(AttributeError, match="feature_names_in_"):
        model.feature_names_in_  # noqa: B018


def test_foreign_functions_have_hints_and_hide_no_functions():
    for name, words in read_foreign_names("functions").items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}': ") as error:
            getattr(polyleaf, name)
        assert str(error.value).endswith(words)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = polyleaf.nothing


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_positional_parameters_raise(estimator):
    assert estimator("squared_hinge").objective == "squared_hinge"
    message = rf"{estimator.__name__}\(\) takes 1 .* given 2: pass the others by name"
    with pytest.raises(TypeError, match=message):
        estimator(100, 0.1)


def test_dict_of_parameters_is_not_an_objective():
    for estimator in (PolyleafRegressor, PolyleafClassifier, PolyleafClassifierCV):
        with pytest.raises(TypeError, match=r"a dict as its first parameter: .*\(\*\*parameters\)"):
            estimator({"eta": 1})
    assert PolyleafMultiTask({"a": "squared_error"}).objective == {"a": "squared_error"}


def test_column_name_as_target_raises():
    with pytest.raises(ValueError, match="y is 'a', which is not an array"):
        regressor().fit(pd.DataFrame(X, columns=list("abc")), "a")


def _names(method):
    return list(inspect.signature(method).parameters)


def test_signatures_for_editors_and_scikit_learn():
    assert "max_leaves" in _names(PolyleafRegressor) and "kwargs" not in _names(PolyleafRegressor)
    assert _names(PolyleafRegressor.predict) == ["self", "X", "iteration_range", "offset", "sparse"]
    assert "eval_set" in _names(PolyleafClassifier.fit)


# --- methods ---


def test_raw_scores_of_both_estimators():
    counts = np.abs(np.round(Y * 3))
    model = regressor(objective="poisson").fit(X, counts)
    np.testing.assert_array_equal(np.exp(model.predict_raw(X)), model.predict(X))
    assert regressor().fit(X, Y[:, 0]).predict_raw(X).shape == (80,)
    first = model.predict_raw(X, iteration_range=(0, 1))
    np.testing.assert_array_equal(first, model.model_.predict_raw(X, 0, 1))
    for y in (TWO, THREE, LABELS):
        fitted = classifier().fit(X, y)
        np.testing.assert_array_equal(fitted.predict_raw(X), fitted.decision_function(X))
        np.testing.assert_array_equal(fitted.predict_log_proba(X), np.log(fitted.predict_proba(X)))


@pytest.mark.parametrize("objective", ["softmax", "multi:softprob", "multiclass"])
def test_softmax_with_two_classes(objective):
    model = classifier(objective=objective).fit(X, TWO, eval_set=[(X, TWO)])
    p = model.predict_proba(X)
    assert p.shape == (80, 2) and model.model_.n_outputs == 2 and model.score(X, TWO) > 0.9
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    scores = model.decision_function(X)
    assert scores.shape == (80,)
    np.testing.assert_array_equal(model.predict(X), model.classes_[(scores > 0).astype(int)])
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), p[:, 1])
    loaded = PolyleafClassifier.load_model(model.save_model())
    np.testing.assert_array_equal(loaded.predict_proba(X), p)
    assert classifier().fit(X, TWO).model_.n_outputs == 1  # unchanged


def _error_and_hessian(y, scores):
    return scores - y, np.ones_like(scores)


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (_error_and_hessian, "a custom objective has no link"),
        ("squared_hinge", "has no probabilities"),
    ],
)
def test_missing_predict_proba_has_a_reason(objective, why):
    model = classifier(objective=objective)
    for estimator in (model, clone(model).fit(X, TWO)):
        assert not hasattr(estimator, "predict_proba")
        for name in ("predict_proba", "predict_log_proba", "staged_predict_proba"):
            message = f"PolyleafClassifier has no '{name}': .*{why}"
            with pytest.raises(AttributeError, match=message):
                getattr(estimator, name)
    for estimator in (classifier(), classifier(objective="x")):
        assert hasattr(estimator, "predict_proba")


# --- models ---


@pytest.mark.parametrize("is_fitted", [False, True])
def test_load_model_on_an_instance_warns(is_fitted):
    data = regressor().fit(X, Y).save_model()
    model = regressor().fit(X, -Y) if is_fitted else regressor()
    before = model.predict(X) if is_fitted else None
    words = r"leaves the one .* m = PolyleafRegressor\.load_model\(path\)"
    with pytest.warns(UserWarning, match=words) as caught:
        loaded = model.load_model(data)
    assert len(caught) == 1 and caught[0].filename == __file__
    np.testing.assert_array_equal(loaded.predict(X), regressor().fit(X, Y).predict(X))
    assert hasattr(model, "model_") == is_fitted
    if is_fitted:
        np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("cls", [*ESTIMATORS, PolyleafMultiTask, PolyleafClassifierCV])
def test_load_model_on_a_class_has_its_docstring(cls):
    assert _names(cls.load_model) == ["path"] and cls.load_model.__self__ is cls
    text = inspect.getdoc(cls.load_model)
    assert "Read a fitted estimator" in text == inspect.getdoc(cls().load_model)


def test_load_model_on_a_class_does_not_warn():
    data = regressor().fit(X, Y).save_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PolyleafRegressor.load_model(data)


@pytest.mark.parametrize(
    "changes", [{}, {"leaf": "linear"}, {"projection": "gaussian", "projection_dim": 2}]
)
def test_model_accepts_input_of_estimators(changes):
    frame = pd.DataFrame(X, columns=list("abc"))
    estimator = regressor(**changes).fit(frame, Y)
    model = Model.from_bytes(estimator.model_.to_bytes())
    expected = estimator.predict(frame)
    for data in (X, X.tolist(), sp.csr_matrix(X), frame):
        np.testing.assert_array_equal(model.predict(data), expected)
    np.testing.assert_array_equal(model.apply(X), estimator.apply(X))
    *_, last = model.staged_predict_raw(X)
    np.testing.assert_array_equal(last, expected)
    np.testing.assert_array_equal(model.predict_topk(X, 1)[0][:, 0], expected.argmax(axis=1))


def test_model_accepts_datasets_and_rejects_other_features():
    data = Dataset(X, Y)
    estimator = regressor().fit(data)
    np.testing.assert_array_equal(estimator.model_.predict(data), estimator.predict(X))
    with pytest.raises(ValueError, match="binned differently"):
        estimator.model_.predict(Dataset(X[:40]))
    with pytest.raises(ValueError, match="X has 2 features"):
        estimator.model_.predict(X[:, :2])
    with pytest.raises(TypeError, match="X is a Dataset"):
        estimator.model_.apply(data)


# --- no rows ---

EMPTY = {
    "array": X[:0],
    "objects": X[:0].astype(object),
    "sparse": sp.csr_matrix(X[:0]),
    "pandas": pd.DataFrame(X[:0]),
    "polars": pl.DataFrame(X[:0], schema=list("abc")),
    "arrow": pa.table({name: np.zeros(0) for name in "abc"}),
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize(
    "changes", [{}, {"leaf": "linear"}, {"projection": "gaussian", "projection_dim": 2}]
)
def test_zero_rows_give_empty_results(kind, changes):
    Z = EMPTY[kind]
    model = regressor(**changes).fit(X, Y)
    assert model.predict(Z).shape == model.predict_raw(Z).shape == (0, 2)
    assert model.apply(Z).shape == (0, 3)
    assert [scores.shape for scores in model.staged_predict(Z)] == [(0, 2)] * 3
    assert regressor(**changes).fit(X, Y[:, 0]).predict(Z).shape == (0,)
    for y, columns in ((TWO, 2), (THREE, 3), (LABELS, 2)):
        fitted = classifier(**changes).fit(X, y)
        assert fitted.predict_proba(Z).shape == (0, columns)
        assert len(fitted.predict(Z)) == 0 and fitted.predict(Z).dtype == fitted.predict(X).dtype
    with pytest.raises(ValueError, match="0 sample"):
        model.fit(X[:0], Y[:0])


# --- data frames of predictions ---


def test_data_frames_of_predictions_have_target_names():
    named = pd.DataFrame(Y, columns=["heat", "cold"])
    model = regressor().fit(X, named)
    plain, rows = model.predict(X), pd.DataFrame(X, index=np.arange(80) + 7)
    predicted = model.set_output(predict="pandas").predict(rows)
    assert predicted.columns.tolist() == ["heat", "cold"]
    assert predicted.index.tolist() == rows.index.tolist()
    np.testing.assert_array_equal(predicted.to_numpy(), plain)
    assert model.predict_raw(X).columns.tolist() == ["heat", "cold"]
    for library, kind in (("polars", pl.DataFrame), ("pyarrow", pa.Table)):
        table = model.set_output(predict=library).predict(X)
        assert isinstance(table, kind)
        np.testing.assert_array_equal(np.column_stack([table["heat"], table["cold"]]), plain)
    assert model.score(X, Y) == model.set_output().score(X, Y)
    assert isinstance(model.predict(X), np.ndarray)


def test_data_frames_of_probabilities_have_class_names():
    for y, names in ((TWO, ["no", "yes"]), (THREE, ["0", "1", "2"]), (LABELS, ["0", "1"])):
        model = classifier().fit(X, y).set_output(predict="pandas")
        for table in (model.predict_proba(X), model.predict_log_proba(X)):
            assert table.columns.tolist() == names
        assert model.predict(X).shape == y.shape
    levels = regressor(objective="quantile", quantile_alpha=[0.1, 0.9]).fit(X, Y[:, 0])
    assert levels.set_output(predict="polars").predict(X).columns == ["q0.1", "q0.9"]


def test_set_output_is_cloned_and_checked():
    model = clone(regressor().set_output(predict="polars")).fit(X, Y)
    assert isinstance(model.predict(X), pl.DataFrame)
    with pytest.raises(ValueError, match="'polars', 'pyarrow'; got 'frames'"):
        model.set_output(predict="frames")


def test_saving_to_a_missing_folder_raises(tmp_path):
    model = regressor().fit(X, Y)
    with pytest.raises(FileNotFoundError, match=r"model cannot be written"):
        model.save_model(tmp_path / "none" / "model")


@pytest.mark.parametrize("leaf", [{}, {"leaf": "sparse", "leaf_k": 2}], ids=["constant", "sparse"])
def test_k_of_topk_beyond_the_number_of_classes(leaf):
    y = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    model = PolyleafClassifier(n_estimators=2, **leaf).fit(X, y)
    labels, scores = model.predict_topk(X, 5)
    assert (np.equal(labels, None) == np.isneginf(scores)).all()
    assert set(labels[0, :2]) <= set("abc")
    assert (labels[:, 3:] == None).all()  # noqa: E711
    if leaf == "constant":
        assert model.predict_topk(X, 3)[0].dtype.kind == "U"


def test_invalid_inputs_have_clear_messages():
    model = PolyleafClassifier(n_estimators=2)
    with pytest.raises(ValueError, match=r"sample_weight holds text, but .* class_weight"):
        model.fit(X, TWO, np.full(len(X), "a"))
    with pytest.raises(ValueError, match=r"y has one dimension.*LabelBinarizer"):
        PolyleafClassifier(leaf="sparse", leaf_k=1, split_search="exact").fit(X, TWO)
    with pytest.raises(TypeError, match=r"kind must be a string .* pass rows as X="):
        model.fit(X, TWO).feature_importance(X)


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="polars has no Int128 before 1.18")
def test_128_bit_integers_are_read():
    wide = pl.DataFrame({"a": np.arange(len(X))}).cast(pl.Int128)
    plain = PolyleafRegressor(n_estimators=2).fit(wide.cast(pl.Int64), X[:, 0])
    np.testing.assert_array_equal(
        PolyleafRegressor(n_estimators=2).fit(wide, X[:, 0]).predict(wide), plain.predict(wide)
    )
