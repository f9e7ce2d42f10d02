"""`init`: trees on top of another estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import polyleaf
from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.export import to_treelite, to_xgboost
from polyleaf.inspection.report.report_data import SingleTaskReportData
from polyleaf.model.combine import select_outputs
from polyleaf.model.initial import EstimatorInitialModel, LinearInitialModel, SparseStart
from polyleaf.model.serialize import ModelFileError
from polyleaf.training.initial_scores import N_FOLDS

ROUNDS = {"n_estimators": 12, "n_jobs": 1, "min_child_samples": 5}
SPARSE = {"leaf": "sparse", "leaf_k": 3, "objective": "squared_hinge", **ROUNDS}


def make_values(n: int = 300, n_targets: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A linear function of the features, and steps."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    steps = np.where(X[:, [0]] > 0.3, 1.0, -1.0) * np.where(X[:, [1]] > 0, 1.0, -1.0)
    return X, 3 * X @ rng.normal(size=(5, n_targets)) + steps


def make_classes(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    X, Y = make_values(n)
    return X, np.array(["a", "b", "c"])[(Y[:, 0] > 0).astype(int) + (Y[:, 1] > 1)]


def make_labels(n: int = 300, n_labels: int = 6) -> tuple[np.ndarray, np.ndarray]:
    X, Y = make_values(n, n_labels)
    return X, (Y > 2).astype(int)


def make_wide_labels() -> tuple[np.ndarray, np.ndarray]:
    X, Y = make_labels()
    return np.hstack([X, np.zeros((300, 60))]), Y


def test_a_linear_model_and_trees_are_better_than_either() -> None:
    X, Y = make_values(600)
    train, test = slice(400), slice(400, None)
    both = PolyleafRegressor(init=LinearRegression(), **ROUNDS).fit(X[train], Y[train])
    trees = PolyleafRegressor(**ROUNDS).fit(X[train], Y[train])
    line = LinearRegression().fit(X[train], Y[train])
    scores = [model.score(X[test], Y[test]) for model in (both, trees, line)]
    assert scores[0] > max(scores[1:]) + 0.005


def test_rows_start_from_models_that_were_fitted_without_their_fold() -> None:
    X, Y = make_values()
    rules, seed = polyleaf.binned_data.random_rows.SplitRules(), 0
    out_of_fold = np.empty_like(Y)
    for rows, held in rules.iter_cross_fits(len(X), N_FOLDS, seed, None):
        part = Ridge().fit(X[rows], Y[rows])
        shift = Ridge().fit(X, Y).predict(X).mean(axis=0) - part.predict(X).mean(axis=0)
        out_of_fold[held] = part.predict(X[held]) + shift
    first = PolyleafRegressor(init=Ridge(), random_state=seed, **ROUNDS).fit(X, Y)
    fitted = Ridge().fit(X, Y)
    second = PolyleafRegressor(init=fitted, random_state=seed, **ROUNDS)
    second.fit(X, Y, init_scores=out_of_fold)
    assert np.allclose(first.predict(X), second.predict(X), rtol=1e-5)
    third = PolyleafRegressor(init=FrozenEstimator(fitted), **ROUNDS).fit(X, Y)
    assert not np.allclose(first.predict(X), third.predict(X), rtol=1e-3)
    expected = PolyleafRegressor(**ROUNDS).fit(X, Y, offset=out_of_fold)
    offset = fitted.predict(X)
    assert np.allclose(second.predict(X), expected.predict(X, offset=offset), rtol=1e-5)


LINEAR = {
    "ridge": (make_values, Ridge()),
    "a ridge regression per target": (make_values, MultiOutputRegressor(Ridge())),
    "scaled": (make_values, make_pipeline(StandardScaler(), Ridge())),
    "scaled twice": (make_values, make_pipeline(MinMaxScaler(), RobustScaler(), Ridge())),
    "filled": (make_values, make_pipeline(SimpleImputer(), StandardScaler(), Ridge())),
    "classes": (make_classes, LogisticRegression()),
    "margins": (make_classes, OneVsRestClassifier(LinearSVC())),
    "ridge of classes": (make_classes, RidgeClassifier()),
    "stochastic gradients": (make_classes, SGDClassifier(loss="log_loss", random_state=0)),
    "labels": (make_labels, OneVsRestClassifier(LogisticRegression())),
    "probabilities of labels": (make_labels, MultiOutputClassifier(LogisticRegression())),
    "sparse coefficients": (make_wide_labels, OneVsRestClassifier(LogisticRegression())),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_model_file_holds_linear_models(name: str) -> None:
    make, init = LINEAR[name]
    X, y = make()
    if name == "filled":
        X[::7, 1] = np.nan
    cls = PolyleafRegressor if make is make_values else PolyleafClassifier
    model = cls(init=init, **ROUNDS).fit(X, y)
    initial = model.model_.initial
    assert isinstance(initial, LinearInitialModel)
    assert sp.issparse(initial.coef) == (name == "sparse coefficients")
    loaded = cls.load_model(model.save_model())
    raw = model.predict_raw(X)
    assert np.array_equal(loaded.predict_raw(X), raw)
    assert loaded.save_model() == model.save_model()
    assert loaded.model_.initial.equals(initial)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_raw(X), raw)
    own = clone(init).fit(X, y)
    expected = initial.factor * (
        own.predict(X)
        if make is make_values
        else own.decision_function(X)
        if hasattr(own, "decision_function")
        else np.log([p[:, 1] / p[:, 0] for p in own.predict_proba(X)]).T
    )
    assert np.allclose(initial.scores(X), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["scaled", "filled", "classes", "labels"])
def test_every_prediction_adds_the_scores(name: str) -> None:
    make, init = LINEAR[name]
    X, y = make()
    if name == "filled":
        X[::7, 1] = np.nan
    model = (PolyleafRegressor if make is make_values else PolyleafClassifier)(
        init=init, **ROUNDS
    ).fit(X, y)
    raw, predicted = model.predict_raw(X), model.predict(X)
    assert np.array_equal(
        raw, np.concatenate([model.predict_raw(X[i : i + 1]) for i in range(300)])
    )
    assert np.array_equal(raw, model.model_.predict_raw(X))
    *_, last = model.staged_predict(X)
    assert np.array_equal(last, predicted)
    predictor = model.predictor()
    assert np.array_equal(predictor(X), predicted)
    assert np.array_equal(predictor(X[3]), predicted[3])
    assert np.array_equal(pickle.loads(pickle.dumps(predictor))(X), predicted)
    scores = model.predict_topk(X, 2)[1]
    assert np.array_equal(scores, -np.sort(-raw, axis=1)[:, :2])
    plain = model.predict_raw(X) - model.model_.initial.scores(X)
    assert plain.std() < raw.std()


def test_shap_values_add_up_with_the_linear_part() -> None:
    X, Y = make_values()
    model = PolyleafRegressor(init=Ridge(), **ROUNDS).fit(X, Y)
    some, raw = X[:40], model.predict_raw(X[:40])
    for given in ({}, {"background": X[40:90]}):
        values, base = model.shap_values(some, **given), model.shap_base_values(**given)
        assert np.allclose(values.sum(axis=1) + base, raw, atol=1e-4)
    both = model.shap_values(some, interactions=True)
    assert np.allclose(both.sum(axis=2), model.shap_values(some), atol=1e-4)
    assert np.allclose(model.shap_values(some, outputs=1), model.shap_values(some)[..., 1])
    chosen = np.where(np.arange(40)[:, None] % 3, [[1, 0]], [[-1, 1]])
    of_rows = model.shap_values(some, outputs=chosen)
    expected = np.take_along_axis(model.shap_values(some), np.maximum(chosen, 0)[:, None], axis=2)
    assert np.allclose(of_rows, np.where(chosen[:, None] < 0, 0.0, expected), atol=1e-5)
    linear = model.model_.initial.contributions(X, np.array([0]))[..., 0]
    assert np.allclose(linear, (X - X.mean(axis=0)) * Ridge().fit(X, Y).coef_[0], atol=1e-5)


def test_fit_leaves_a_sparse_matrix_unchanged() -> None:
    X, Y = make_values()
    entries = np.tile(X[:, :1] / 2, 2).ravel()  # every entry is stored twice
    twice = sp.csr_matrix((entries, np.zeros(600, np.int32), np.arange(0, 601, 2)), (300, 1))
    PolyleafRegressor(init=Ridge(), **ROUNDS).fit(twice, Y)
    assert twice.nnz == 600
    np.testing.assert_array_equal(twice.data, entries)


@pytest.mark.parametrize("as_rows", [np.asarray, sp.csr_matrix])
def test_sparse_labels_start_from_the_largest_scores(as_rows) -> None:
    X, Y = make_labels(300, 40)
    X, Y = as_rows(X), sp.csr_matrix(Y, dtype=np.float32)
    model = PolyleafClassifier(
        init=OneVsRestClassifier(LinearSVC()), eval_metric="p@3", **SPARSE
    ).fit(X, Y, eval_set=[(X, Y)])
    initial = model.model_.initial
    assert initial.sparse == SparseStart(15, -1.0)
    start = initial.scores(X)
    assert np.diff(start.indptr).max() <= 15 and (start.data > 0).all()
    raw = model.predict_raw(X)
    trees = model.model_.predict_raw_binned(model.model_.mapper.transform(model._features(X)))
    assert np.array_equal(raw, trees + start.toarray())
    outputs, scores = model.predict_topk(X, 3)
    assert np.array_equal(scores, np.take_along_axis(raw, outputs, axis=1))
    assert np.array_equal(np.sort(scores)[:, ::-1], -np.sort(-raw, axis=1)[:, :3])
    assert np.array_equal(model.predict(X, sparse=True).toarray(), model.predict(X))
    found = polyleaf.metrics.ranking.precision_at(Y, (outputs, scores), 3)
    assert np.isclose(model.evals_result_["validation_0"]["p@3"][-1], found)
    loaded = PolyleafClassifier.load_model(model.save_model())
    assert np.array_equal(loaded.predict_topk(X, 3)[1], scores)


def test_evaluation_sets_start_from_the_scores_of_the_model() -> None:
    X, y = make_classes(400)
    model = PolyleafClassifier(init=LogisticRegression(), **ROUNDS, early_stopping_rounds=3)
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    curve = model.evals_result_["validation"]["mlogloss"]
    p = model.predict_proba(X[300:])
    loss = -np.log(p[np.arange(100), np.searchsorted(model.classes_, y[300:])]).mean()
    assert np.isclose(curve[model.best_iteration_], loss, rtol=1e-5)
    held = PolyleafClassifier(init=LogisticRegression(), validation_fraction=0.2, **ROUNDS)
    assert len(held.fit(X, y).evals_result_["validation"]["mlogloss"]) == 12
    PolyleafClassifier(init=LogisticRegression(), n_jobs=1).fit(X[:120], y[:120])  # finds rounds


def test_rows_without_weight_are_not_fitted() -> None:
    X, Y = make_values()
    weight = np.ones(300)
    weight[200:] = 0
    model = PolyleafRegressor(init=make_pipeline(StandardScaler(), Ridge()), **ROUNDS)
    model.fit(X, Y, weight)
    coef = make_pipeline(StandardScaler(), Ridge()).fit(X[:200], Y[:200])[1].coef_
    assert np.allclose(model.model_.initial.coef.T * X[:200].std(axis=0), coef, rtol=1e-4)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        PolyleafClassifier(init=OneVsRestClassifier(LinearSVC()), **ROUNDS).fit(
            X, Y[:, 0] > 0, weight
        )
    with pytest.raises(ValueError, match="one sample_weight per row"):
        PolyleafRegressor(init=Ridge(), **ROUNDS).fit(X, Y, np.ones((300, 2)))


def test_continued_training_is_one_training_on_the_same_rows() -> None:
    X, y = make_classes()
    settings = {**ROUNDS, "init": LogisticRegression()}
    whole = PolyleafClassifier(**settings).fit(X, y)
    part = PolyleafClassifier(**{**settings, "n_estimators": 5}).fit(X, y)
    rest = PolyleafClassifier(**{**settings, "n_estimators": 7}).fit(X, y, init_model=part)
    assert np.array_equal(rest.predict_raw(X), whole.predict_raw(X))
    loaded = PolyleafClassifier.load_model(part.save_model())
    loaded.set_params(n_estimators=7)
    with pytest.raises(ValueError, match="fitted to these rows"):
        clone(loaded).fit(X, y, init_model=loaded)
    new = clone(loaded).fit(X[:200], y[:200], init_model=loaded)
    assert new.n_iter_ == 12 and new.model_.initial.equals(part.model_.initial)
    plain = PolyleafClassifier(**ROUNDS).fit(X, y)
    with pytest.raises(ValueError, match="has no initial model"):
        PolyleafClassifier(**settings).fit(X, y, init_model=plain)


def test_refit_on_the_training_rows_gives_the_same_file() -> None:
    X, y = make_classes()
    model = PolyleafClassifier(init=LogisticRegression(), **ROUNDS).fit(X, y)
    before = model.save_model()
    assert model.refit(X, y).save_model() == before


def test_models_with_an_initial_model_are_combined() -> None:
    X, Y = make_values()
    models = [
        PolyleafRegressor(init=Ridge(a), base_score=0.0, **ROUNDS).fit(X, Y) for a in (1.0, 100.0)
    ]
    blend = polyleaf.blend(models, [0.25, 0.75])
    expected = 0.25 * models[0].predict(X) + 0.75 * models[1].predict(X)
    assert np.allclose(blend.predict(X), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="another initial model"):
        polyleaf.concatenate(models)
    half = models[0].model_[:6]
    assert half.initial is models[0].model_.initial
    one = select_outputs(models[0].model_, slice(1, 2), models[0].model_.objective, {})
    assert np.array_equal(one.predict_raw(X)[:, 0], models[0].predict_raw(X)[:, 1])


def test_links_are_inverted() -> None:
    X, Y = make_values()
    counts = np.random.default_rng(0).poisson(np.exp(0.2 * Y[:, 0]))
    model = PolyleafRegressor(objective="poisson", init=PoissonRegressor(), **ROUNDS).fit(X, counts)
    assert isinstance(model.model_.initial, LinearInitialModel)
    mean = PoissonRegressor().fit(X, counts).predict(X)
    assert np.allclose(model.model_.initial.scores(X)[:, 0], np.log(mean), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="not positive"):
        PolyleafRegressor(objective="poisson", init=Ridge(), **ROUNDS).fit(X, counts)
    levels = PolyleafRegressor(
        objective="quantile", quantile_alpha=[0.1, 0.5, 0.9], init=Ridge(), **ROUNDS
    ).fit(X, Y)
    assert levels.predict(X).shape == (300, 6)
    normal = PolyleafRegressor(objective="normal", init=Ridge(), **ROUNDS).fit(X, Y)
    assert np.abs(normal.model_.initial.coef[:, 1]).max() == 0  # the scale of the distribution
    binary = PolyleafClassifier(objective="softmax", init=LogisticRegression(), **ROUNDS)
    binary.fit(X, Y[:, 0] > 0)
    assert binary.score(X, Y[:, 0] > 0) > 0.9


def test_the_factor_turns_margins_into_log_odds() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1))
    y = rng.random(2000) < 1 / (1 + np.exp(-2 * X[:, 0]))
    fitted = LogisticRegression(C=1e6).fit(X, y)
    halved = clone(fitted).fit(X, y)
    halved.coef_, halved.intercept_ = halved.coef_ / 4, halved.intercept_ / 4
    models = [
        PolyleafClassifier(init=FrozenEstimator(init), **ROUNDS).fit(X, y)
        for init in (fitted, halved)
    ]
    assert np.isclose(models[0].model_.initial.factor, 1, rtol=1e-2)
    assert np.isclose(models[1].model_.initial.factor, 4, rtol=1e-2)


@pytest.mark.parametrize("is_linear", [True, False])
def test_scores_that_trees_do_not_need_are_shrunk(is_linear: bool, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 40))
    signal = X[:, 0] + X[:, 1] if is_linear else 2 * np.sign(X[:, 0] * X[:, 1]) + X[:, 2]
    y = rng.random(1200) < 1 / (1 + np.exp(-2 * signal))
    model = PolyleafClassifier(init=LogisticRegression(C=100), **ROUNDS)
    used = model.fit(X, y).model_.initial.factor
    raw = model.predict_raw(X) - model.model_.initial.scores(X)
    monkeypatch.setattr("polyleaf.training.fit.INIT_FACTORS", (1.0,))
    whole = model.fit(X, y).model_.initial.factor
    assert (used / whole == 1) == is_linear
    assert np.isclose(raw, model.predict_raw(X) - model.model_.initial.scores(X)).all() == is_linear


@pytest.mark.filterwarnings("ignore:Label")
def test_labels_that_never_vary_are_the_least_or_the_most_likely() -> None:
    X, Y = make_labels()
    Y[:, 2], Y[:, 4] = 0, 1
    model = PolyleafClassifier(init=OneVsRestClassifier(LogisticRegression()), **ROUNDS).fit(X, Y)
    means = model.model_.initial.scores(X).mean(axis=0)
    assert np.isclose(means[2], means.min()) and np.isclose(means[4], means.max())


def test_other_estimators_are_pickled_only() -> None:
    X, Y = make_values()
    forest = RandomForestRegressor(n_estimators=5, random_state=0)
    model = PolyleafRegressor(init=forest, **ROUNDS).fit(X, Y)
    assert isinstance(model.model_.initial, EstimatorInitialModel)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    with pytest.raises(ValueError, match=r"RandomForestRegressor.*pickle the estimator"):
        model.save_model()
    with pytest.raises(ValueError, match=r"SHAP values.*not linear"):
        model.shap_values(X)
    with pytest.raises(ValueError, match="predictor does not support"):
        model.predictor()
    X, y = make_classes()
    classes = PolyleafClassifier(init=RandomForestClassifier(5, random_state=0), **ROUNDS)
    assert classes.fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("export", [to_treelite, to_xgboost])
def test_formats_of_trees_raise(export, tmp_path) -> None:
    if export is to_treelite:
        pytest.importorskip("treelite")
    X, Y = make_values()
    model = PolyleafRegressor(init=Ridge(), **ROUNDS).fit(X, Y)
    given = (str(tmp_path / "model.json"),) if export is to_xgboost else ()
    with pytest.raises(ValueError, match="hold trees only"):
        export(model, *given)


def test_invalid_uses_raise() -> None:
    X, Y = make_values()
    ridge = PolyleafRegressor(init=Ridge(), **ROUNDS)
    with pytest.raises(ValueError, match="init_scores are the out-of-fold scores"):
        PolyleafRegressor(**ROUNDS).fit(X, Y, init_scores=Y)
    with pytest.raises(ValueError, match="init_scores has 299 rows"):
        PolyleafRegressor(init=Ridge().fit(X, Y), **ROUNDS).fit(X, Y, init_scores=Y[1:])
    with pytest.raises(ValueError, match="neither decision_function nor predict_proba"):
        PolyleafClassifier(init=Ridge(), **ROUNDS).fit(X, Y[:, 0] > 0)
    one_output = r"init=LogisticRegression cannot be fitted: y should be a 1d .* MultiOutputClass"
    with pytest.raises(ValueError, match=one_output):
        PolyleafClassifier(init=LogisticRegression(), **ROUNDS).fit(X, Y > 0)
    for init in ("zero", 3):
        with pytest.raises(ValueError, match=r"init' parameter .* an object implementing 'fit'"):
            PolyleafRegressor(init=init, **ROUNDS).fit(X, Y)
    ridge.fit(X, Y)
    with pytest.raises(ValueError, match="pass the raw X"):
        ridge.predict(Dataset(X, reference=ridge.model_.mapper))
    with pytest.raises(ValueError, match="Column 0 of X has missing values"):
        ridge.predict(np.full((2, 5), np.nan))


def test_damaged_files_raise() -> None:
    X, Y = make_values()
    model = PolyleafRegressor(init=Ridge(), **ROUNDS).fit(X, Y)
    plain, arrays = model.model_.initial.to_dict(), model.model_.initial.arrays()
    for change in ({"factor": 0.0}, {"top": 0, "floor": -1.0}, {"rows_id": None}):
        with pytest.raises(ValueError, match="initial model"):
            LinearInitialModel.from_dict(plain | change, arrays)
    for name, values in (
        ("coef", arrays["coef"][1:]),
        ("coef", arrays["coef"] * np.nan),
        ("mean", arrays["mean"][1:]),
        ("intercept", arrays["intercept"].astype(np.float32)),
        ("indptr", np.zeros(3, np.int64)),
    ):
        with pytest.raises((ValueError, KeyError)):
            LinearInitialModel.from_dict(plain, arrays | {name: values})
    with pytest.raises(ModelFileError):
        PolyleafRegressor.load_model(model.save_model()[:-4])


@pytest.mark.parametrize("init", [Ridge(), RandomForestRegressor(5, random_state=0)])
def test_reports_include_the_initial_model(init) -> None:
    X, Y = make_values()
    model = PolyleafRegressor(init=init, **ROUNDS).fit(X, Y)
    data = SingleTaskReportData(model, X[:100], Y[:100])
    assert np.array_equal(data.predicted, model.predict(X[:100]))
    if isinstance(init, Ridge):
        assert np.allclose(data.shap_values, model.shap_values(X[:100])[data.explained_rows])
    else:
        assert data.shap_values is None


def test_init_parameters_are_nested() -> None:
    model = PolyleafRegressor(init=Ridge(alpha=3.0))
    assert model.get_params()["init__alpha"] == 3.0
    assert clone(model).set_params(init__alpha=4.0).init.alpha == 4.0


@pytest.mark.parametrize("objective", ["lognormal", "gamma_distribution"])
def test_scores_of_positive_distributions_are_logarithms(objective: str) -> None:
    X, Y = make_values(n_targets=1)
    y = np.exp(0.2 * Y[:, 0])
    init = GammaRegressor(alpha=1e-6).fit(X, y)
    model = PolyleafRegressor(objective=objective, init=FrozenEstimator(init), **ROUNDS).fit(X, y)
    assert np.allclose(model.model_.initial.scores(X)[:, 0], np.log(init.predict(X)))


def test_linear_models_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6_000, 120))
    Y = X @ rng.normal(size=(120, 3)) + rng.normal(size=(6_000, 3))
    models = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            models.append(PolyleafRegressor(init="linear", **ROUNDS).fit(X, Y).model_.to_bytes())
    assert models[0] == models[1]
