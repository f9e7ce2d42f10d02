"""PolyleafRegressorCV and PolyleafClassifierCV: scores, winners, blends, resuming, interrupts,
errors.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyleaf import (
    Dataset,
    PolyleafClassifier,
    PolyleafClassifierCV,
    PolyleafRegressor,
    PolyleafRegressorCV,
    load_model,
)
from polyleaf.search import base, ensemble
from polyleaf.search.successive_halving import FinalFit, SuccessiveHalving

REGRESSION = make_regression(150, 5, n_targets=2, noise=5.0, random_state=0)
CLASSIFICATION = make_classification(150, 6, n_informative=4, n_classes=3, random_state=0)
LONGER = {"n_candidates": 10, "n_estimators": 40}  # several candidates reach the last fold
QUICK = {"n_estimators": 12, "n_candidates": 4, "n_jobs": 1}


def get_base_class(model):
    return PolyleafRegressor if isinstance(model, PolyleafRegressor) else PolyleafClassifier


@pytest.mark.parametrize(
    ("search", "data"), [(PolyleafRegressorCV, REGRESSION), (PolyleafClassifierCV, CLASSIFICATION)]
)
def test_model_equals_that_of_the_base_estimator_with_best_params(search, data):
    model = search(**QUICK).fit(*data)
    again = get_base_class(model)(**model.best_params_, n_jobs=1).fit(*data)
    assert again.model_.equals(model.model_)
    assert model.n_features_in_ == data[0].shape[1]
    assert model.best_score_ == model.leaderboard_[0]["score"]
    restored = load_model(model.save_model())
    assert type(restored) is get_base_class(model)
    np.testing.assert_array_equal(restored.predict(data[0]), model.predict(data[0]))


def test_results_are_independent_of_n_jobs():
    first, second = (
        PolyleafClassifierCV(**{**QUICK, "n_candidates": 14, "n_jobs": n}).fit(*CLASSIFICATION)
        for n in (1, 2)
    )
    for model in (first, second):
        model.model_.metadata.clear()  # it holds n_jobs
    assert first.model_.equals(second.model_)
    assert first.cv_results_["params"] == second.cv_results_["params"]
    scores = (model.cv_results_["mean_test_score"] for model in (first, second))
    np.testing.assert_array_equal(*scores)
    assert first.cv_results_["origin"][-1] == "variation"


def test_scores_equal_those_of_held_out_rows():
    X, Y = REGRESSION
    train, valid = np.arange(100), np.arange(100, 150)
    weight = np.random.default_rng(0).random(150)
    model = PolyleafRegressorCV(cv=[(train, valid)], n_candidates=1, n_estimators=12)
    model.fit(X, Y, weight)
    bins = Dataset(X, sample_weight=weight)
    held = {"X_val": Dataset(X[valid], reference=bins), "y_val": Y[valid]}
    held["sample_weight_val"] = weight[valid]
    alone = PolyleafRegressor(n_estimators=12)
    alone.fit(Dataset(X[train], reference=bins), Y[train], weight[train], **held)
    assert model.best_score_ == min(alone.evals_result_["validation"]["relative_rmse"])


def test_target_encoding_is_fitted_in_each_fold():
    rng = np.random.default_rng(0)
    shop = pd.Categorical([f"s{i}" for i in rng.integers(300, size=900)])
    X = pd.DataFrame({"shop": shop, "size": rng.normal(size=900)})
    noise = rng.normal(size=900)  # encodings of all rows would leak it
    model = PolyleafRegressorCV(n_candidates=1, n_estimators=5, metric="r2").fit(X, noise)
    assert model.best_score_ < 0.02
    assert model.predict(X.iloc[:3]).shape == (3,)


def test_candidates_are_compared_on_an_evaluation_set():
    X, y = CLASSIFICATION
    model = PolyleafClassifierCV(**QUICK).fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    losses = model.evals_result_["validation_0"]["mlogloss"]
    assert model.best_score_ == losses[-1]
    assert "split1_test_score" not in model.cv_results_


def test_metric_to_maximise():
    model = PolyleafClassifierCV(**QUICK, metric="accuracy").fit(*CLASSIFICATION)
    scores = [row["score"] for row in model.leaderboard_ if row["n_folds"] == 3]
    assert scores == sorted(scores, reverse=True) and 0 < scores[0] <= 1
    assert "accuracy (greater is better)" in model.report()


def test_user_parameters_are_fixed():
    model = PolyleafRegressorCV(n_candidates=4, n_estimators=8, max_leaves=5).fit(*REGRESSION)
    assert all("max_leaves" not in params for params in model.cv_results_["params"])
    assert model.best_params_["max_leaves"] == 5


def test_failed_candidates_have_an_error():
    X, y = REGRESSION[0], np.abs(REGRESSION[1][:, 0]) + 1
    model = PolyleafRegressorCV("absolute_error", n_candidates=4, n_estimators=8).fit(X, y)
    assert "leaf=" in model.cv_results_["error"][2]


def test_tiny_time_limit_gives_a_fitted_estimator():
    with pytest.warns(UserWarning, match="ended after 1 rounds"):
        model = PolyleafRegressorCV(time_limit=1e-3).fit(*REGRESSION)
    assert model.n_iter_ < 100 and len(model.leaderboard_) == 1


def test_search_without_time_for_a_trial_is_the_plain_estimator(monkeypatch):
    monkeypatch.setattr(base.Budget, "is_spent", lambda budget: True)
    model = PolyleafRegressorCV(time_limit=1e4, n_jobs=1).fit(*REGRESSION)
    assert len(model.leaderboard_) == 1
    assert model.best_params_ == {"quality": "high", "n_estimators": None}
    assert model.cv_results_["params"] == [{"quality": "high"}]
    plain = PolyleafRegressor(quality="high", n_jobs=1).fit(*REGRESSION)
    assert model.model_.equals(plain.model_)


def test_short_time_limit_keeps_the_standard_quality(monkeypatch):
    monkeypatch.setattr(base, "HIGH_QUALITY_COST", 1e9)
    monkeypatch.setattr(base.Budget, "is_spent", lambda budget: True)
    model = PolyleafRegressorCV(time_limit=1e4, n_jobs=1).fit(*REGRESSION)
    assert model.best_params_ == {"n_estimators": None}
    assert model.model_.equals(PolyleafRegressor(n_jobs=1).fit(*REGRESSION).model_)


def test_quality_that_is_cut_leaves_the_standard_quality(monkeypatch):
    limits = iter([base.SpentTime(lambda: math.inf), base.SpentTime(lambda: 0.0)])
    monkeypatch.setattr(base.Budget, "limit_final_fit", lambda budget: next(limits))
    monkeypatch.setattr(base.Budget, "is_spent", lambda budget: True)
    model = PolyleafRegressorCV(time_limit=1e4, n_jobs=1).fit(*REGRESSION)
    assert model.model_.equals(PolyleafRegressor(n_jobs=1).fit(*REGRESSION).model_)


def test_defaults_are_the_model_if_the_fit_of_the_best_candidate_times_out(monkeypatch):
    monkeypatch.setattr(SuccessiveHalving, "ranking", lambda search: search.candidates[::-1])
    limits = iter([base.SpentTime(lambda: math.inf), base.SpentTime(lambda: 0.0)])
    monkeypatch.setattr(base.Budget, "limit_final_fit", lambda budget: next(limits))
    settings = {"quality": "standard", "n_jobs": 1}
    search = PolyleafRegressorCV(time_limit=1e4, n_candidates=2, **settings)
    monkeypatch.setattr(base, "HIGH_QUALITY_COST", 1e9)
    with pytest.warns(UserWarning, match="the defaults are the model"):
        search.fit(*REGRESSION)
    assert search.best_params_ == {"n_estimators": None}
    assert search.model_.equals(PolyleafRegressor(**settings).fit(*REGRESSION).model_)


def test_ctrl_c_in_the_fit_of_the_defaults_ends_the_search(monkeypatch):
    def interrupt(callback, model, epoch, evals_log):
        if epoch == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(base.SpentTime, "before_iteration", interrupt)
    search = PolyleafRegressorCV(time_limit=1e4, on_interrupt="keep", n_jobs=1)
    with pytest.raises(KeyboardInterrupt, match="nothing is fitted"):
        search.fit(*REGRESSION)


@pytest.mark.parametrize(
    ("search", "data", "own"),
    [
        (PolyleafRegressorCV, REGRESSION, {}),
        (PolyleafRegressorCV, REGRESSION, {"max_leaves": 4, "metric": "mae", "time_limit": 10**4}),
        (PolyleafClassifierCV, CLASSIFICATION, {"leaf": "constant", "learning_rate": 0.3}),
    ],
)
def test_first_candidate_is_the_estimator_as_it_is_without_a_search(search, data, own):
    model = search(n_candidates=1, n_jobs=1, cv=2, random_state=0, **own).fit(*data)
    assert model.best_params_["n_estimators"] is None
    plain = get_base_class(model)(**model.best_params_, n_jobs=1).fit(*data)
    assert plain.model_.equals(model.model_)
    assert model.best_params_.get("eval_metric") == own.get("metric")
    assert model.best_score_ == model.leaderboard_[0]["score"]


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("on_interrupt", ["raise", "keep"])
def test_interrupted_search_fits_the_best_candidate(on_interrupt, n_jobs, monkeypatch):
    def interrupt(self, candidate, fold, trained):
        if candidate.number == 2:
            raise KeyboardInterrupt
        return record(self, candidate, fold, trained)

    record = base.SuccessiveHalving._record
    monkeypatch.setattr(base.SuccessiveHalving, "_record", interrupt)
    model = PolyleafRegressorCV(**QUICK | {"n_jobs": n_jobs}, on_interrupt=on_interrupt)
    raises = pytest.raises(KeyboardInterrupt, match="was interrupted")
    with raises if on_interrupt == "raise" else pytest.warns(UserWarning):
        model.fit(*REGRESSION)
    assert len(model.leaderboard_) == 2
    assert model.predict(REGRESSION[0]).shape == (150, 2)


def test_parallel_trials_give_the_results_of_sequential_ones(tmp_path):
    X, y = CLASSIFICATION
    found, logs = [], []
    for n_jobs in (1, 3, 16):
        log = tmp_path / str(n_jobs)
        parameters = QUICK | LONGER | {"n_candidates": 14, "early_stopping_rounds": 3}
        parameters["n_jobs"] = n_jobs
        found.append(PolyleafClassifierCV(**parameters, ensemble=3).fit(X, y, resume=log))
        lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
        logs.append([{**line, "seconds": 0} for line in lines])
    assert logs[0] == logs[1] == logs[2]
    for other in found[1:]:
        np.testing.assert_array_equal(other.model_.predict_raw(X), found[0].model_.predict_raw(X))
        assert other.ensemble_ == found[0].ensemble_ and other.best_score_ == found[0].best_score_
        assert other.cv_results_["params"] == found[0].cv_results_["params"]


def test_winner_that_uses_all_rounds_is_tried_with_more(monkeypatch):
    # 10 rounds at the default learning rate
    monkeypatch.setattr(base, "MAX_ROUNDS", 1.0)
    # The plain estimator, whose rounds have no limit, would win.
    monkeypatch.setattr(PolyleafRegressorCV, "_finds_rounds", lambda *_: False)
    X, Y = REGRESSION
    search = PolyleafRegressorCV(n_candidates=14, n_jobs=1, cv=2, random_state=0).fit(X, Y)
    given = [params.get("n_estimators") for params in search.cv_results_["params"]]
    first = next(n for n in given if n)
    assert first in (25, 50)  # 2.5 times the rounds of its learning rate
    assert search.best_params_["n_estimators"] > 20
    fixed = PolyleafRegressorCV(n_candidates=14, n_estimators=10, n_jobs=1, cv=2).fit(X, Y)
    assert not any("n_estimators" in params for params in fixed.cv_results_["params"])
    assert fixed.best_params_["n_estimators"] <= 10


def test_error_in_a_parallel_trial_is_raised(monkeypatch):
    def fail(self, candidate, *args):
        if candidate.number == 2:
            raise MemoryError("out of memory")
        return run_trial(self, candidate, *args)

    run_trial = base.SuccessiveHalving._run_trial
    monkeypatch.setattr(base.SuccessiveHalving, "_run_trial", fail)
    with pytest.raises(MemoryError, match="out of memory"):
        PolyleafRegressorCV(**QUICK | {"n_jobs": 2}).fit(*REGRESSION)


def test_trials_on_large_data_run_one_at_a_time(monkeypatch):
    model, n_jobs = PolyleafRegressorCV(n_jobs=2), []
    monkeypatch.setattr(base, "MAX_PARALLEL_CELLS", 150 * 5 * 2)
    fits = PolyleafRegressor.fit

    def fit(self, *arguments, **options):
        n_jobs.append(self.n_jobs)
        return fits(self, *arguments, **options)

    monkeypatch.setattr(PolyleafRegressor, "fit", fit)
    model.set_params(n_candidates=2, n_estimators=4).fit(*REGRESSION)
    assert set(n_jobs) == {2}
    monkeypatch.setattr(base, "MAX_PARALLEL_CELLS", 150 * 5 * 2 + 1)
    n_jobs.clear()
    model.fit(*REGRESSION)
    assert set(n_jobs[:-1]) == {1} and n_jobs[-1] == 2


@pytest.mark.parametrize(
    ("search", "data"), [(PolyleafRegressorCV, REGRESSION), (PolyleafClassifierCV, CLASSIFICATION)]
)
def test_blend_is_one_model_with_no_higher_loss_on_folds(search, data):
    X, y = data
    alone = search(**QUICK | LONGER).fit(X, y)
    model = search(**QUICK | LONGER, ensemble=3).fit(X, y)
    assert model.leaderboard_[0]["params"] == alone.leaderboard_[0]["params"]
    assert model.best_score_ < alone.best_score_  # both losses
    weights = [member["weight"] for member in model.ensemble_]
    assert sum(weights) == pytest.approx(1) and weights == sorted(weights)[::-1]
    assert 1 < len(weights) <= 3
    expected = sum(
        member["weight"]
        * get_base_class(model)(**member["params"] | {"n_jobs": 1}).fit(X, y).predict_raw(X)
        for member in model.ensemble_
    )
    close = {"rtol": 1e-4, "atol": 1e-4 * abs(expected).max()}
    np.testing.assert_allclose(model.predict_raw(X), expected, **close)
    restored = load_model(model.save_model())
    assert type(restored) is get_base_class(model)
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    assert f"blend of {len(weights)}" in model.report() and "microseconds per row" in model.report()
    assert alone.ensemble_ is None and "blend" not in alone.report()


def test_resumed_search_does_not_repeat_trials(tmp_path, monkeypatch):
    X, y = CLASSIFICATION
    whole = PolyleafClassifierCV(**QUICK | {"n_candidates": 14}, ensemble=2).fit(X, y)
    PolyleafClassifierCV(**QUICK, ensemble=2).fit(X, y, resume=tmp_path / "log")
    trained = []
    record = base.SuccessiveHalving._record

    def record_and_note(self, candidate, fold, found):
        trained.extend([(candidate, fold)] if found.n_rounds else [])
        return record(self, candidate, fold, found)

    monkeypatch.setattr(base.SuccessiveHalving, "_record", record_and_note)
    resumed = PolyleafClassifierCV(**QUICK | {"n_candidates": 14}, ensemble=2)
    resumed.fit(X, y, resume=tmp_path / "log")
    assert resumed.model_.equals(whole.model_) and resumed.ensemble_ == whole.ensemble_
    again = {(repr(candidate.parameters), fold) for candidate, fold in trained}
    # The first four were already evaluated on the first fold.
    assert not again & {(repr(params), 0) for params in whole.cv_results_["params"][:4]}
    with pytest.raises(ValueError, match="another search: seed"):
        PolyleafClassifierCV(**QUICK, random_state=3).fit(X, y, resume=tmp_path / "log")


def test_log_of_other_data_raises(tmp_path):
    (X, Y), others, log = REGRESSION, REGRESSION[0][::-1], tmp_path / "log"
    common = {"n_candidates": 1, "n_estimators": 3, "n_jobs": 1}

    def check_error(what, first, second, **own):
        log.unlink(missing_ok=True)
        PolyleafRegressorCV(**common, **own).fit(*first[0], resume=log, **first[1])
        with pytest.raises(ValueError, match=f"another search: {what} differ"):
            PolyleafRegressorCV(**common, **own).fit(*second[0], resume=log, **second[1])

    # The bins are equal, but the raw features of linear leaves differ.
    check_error("data", ((X, Y), {}), ((np.exp(X), Y), {}), leaf="linear")
    check_error("data", ((X, Y), {"eval_set": [(X, Y)]}), ((X, Y), {"eval_set": [(others, Y)]}))
    near, far = np.arange(150) // 2, np.arange(150) // 50
    same = np.zeros_like(Y)  # folds have equal y
    check_error("data", ((X, same), {"groups": near}), ((X, same), {"groups": far}))
    log.unlink()
    PolyleafRegressorCV(**common, metric="mae").fit(X, Y, resume=log)
    with pytest.raises(ValueError, match="another search: metric differ"):
        PolyleafRegressorCV(**common, metric="rmse").fit(X, Y, resume=log)


def test_search_by_number_is_resumed_with_a_time_limit(tmp_path):
    objective = lambda y, p: (p - y, np.ones_like(y))  # noqa: E731
    common = {"n_estimators": 3, "n_jobs": 1, "objective": objective, "metric": "rmse"}
    PolyleafRegressorCV(n_candidates=2, **common).fit(*REGRESSION, resume=tmp_path / "log")
    n_before = len((tmp_path / "log").read_text().splitlines())
    PolyleafRegressorCV(time_limit=0.1, **common).fit(*REGRESSION, resume=tmp_path / "log")
    assert len((tmp_path / "log").read_text().splitlines()) >= n_before
    (tmp_path / "binary").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ValueError, match="is not the log"):
        PolyleafRegressorCV(n_candidates=2).fit(*REGRESSION, resume=tmp_path / "binary")


def test_error_names_a_fold_with_a_nan_metric():
    X, y = CLASSIFICATION[0], (CLASSIFICATION[1] > 0).astype(int)
    y[100:] = 1
    folds = [(np.arange(50, 150), np.arange(50)), (np.arange(100), np.arange(100, 150))]
    message = "NaN after every round of the default parameters on fold 2 of 2"
    with pytest.raises(ValueError, match=message):
        PolyleafClassifierCV(metric="roc_auc", cv=folds, **QUICK).fit(X, y)


def test_search_interrupted_before_the_first_trial_is_not_fitted(monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt("the 255 rounds that were complete are kept")

    monkeypatch.setattr(base.SuccessiveHalving, "_run_trial", interrupt)
    search = PolyleafRegressorCV(**QUICK, on_interrupt="keep")
    with pytest.raises(KeyboardInterrupt, match="nothing is fitted"):
        search.fit(*REGRESSION)
    with pytest.raises(NotFittedError):
        search.report()


def test_parameters_equal_to_the_default_are_not_fixed():
    assert PolyleafRegressorCV(reg_lambda=1, subsample=1)._fixed_parameters() == {}
    assert PolyleafRegressorCV(reg_lambda=2)._fixed_parameters() == {"reg_lambda": 2}


def test_missing_blend_warns():
    with pytest.warns(UserWarning, match="no blend"):
        model = PolyleafRegressorCV(time_limit=1e-3, ensemble=3).fit(*REGRESSION)
    assert model.ensemble_ is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"time_limit": 0.0}, "time_limit"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"ensemble": 1}, "ensemble"),
    ],
)
def test_invalid_parameters_raise(parameters, message):
    with pytest.raises(ValueError, match=message):
        PolyleafRegressorCV(**parameters).fit(*REGRESSION)


def test_offsets():
    X, y = REGRESSION[0], np.random.default_rng(1).poisson(3.0, 150)
    offset = np.linspace(-1.0, 1.0, 150)
    train, valid = np.arange(0, 150, 2), np.arange(1, 150, 2)
    options = {**QUICK, "n_candidates": 1, "objective": "poisson", "cv": [(train, valid)]}
    model = PolyleafRegressorCV(**options).fit(X, y, offset=offset)
    binned = PolyleafRegressorCV(**options).fit(Dataset(X, y, offset=offset, keep_features=True))
    alone = {**model.best_params_, "n_estimators": 12, "n_jobs": 1}
    held = {"eval_set": [(Dataset(X).rows(valid), y[valid])], "eval_offset": [offset[valid]]}
    one = PolyleafRegressor(**alone)
    one.fit(Dataset(X).rows(train), y[train], offset=offset[train], **held)
    loss = min(one.evals_result_["validation_0"]["poisson_deviance"])
    assert loss == model.best_score_ == binned.best_score_
    winner = PolyleafRegressor(**model.best_params_, n_jobs=1).fit(X, y, offset=offset)
    assert winner.model_.equals(model.model_)
    blend = PolyleafRegressorCV(**{**options, "n_candidates": 4, "ensemble": 2})
    blend.fit(X, y, offset=offset)
    assert blend.best_score_ <= blend.leaderboard_[0]["score"]
    with pytest.raises(ValueError, match="validation_0"):
        PolyleafRegressorCV(**options).fit(X, y, offset=offset, eval_set=[(X, y)])


def test_dataset():
    X, y = CLASSIFICATION
    binned = PolyleafClassifierCV(**QUICK).fit(Dataset(X, y))
    assert not any("leaf" in params for params in binned.cv_results_["params"])  # linear candidates
    assert not any(binned.cv_results_["error"])
    kept = PolyleafClassifierCV(**QUICK).fit(Dataset(X, keep_features=True), y)
    assert kept.model_.equals(PolyleafClassifierCV(**QUICK).fit(X, y).model_)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [
        search(n_estimators=20, n_candidates=2, n_jobs=1)
        for search in (PolyleafRegressorCV, PolyleafClassifierCV)
    ]
)
def test_sklearn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("own", [{"learning_rate": 0.07}, {"n_estimators": 20}], ids=str)
def test_user_parameters_apply_to_the_final_fit(own):
    search = PolyleafRegressorCV(time_limit=10_000, n_candidates=3, n_jobs=1, cv=2, **own)
    search.fit(*REGRESSION)
    rounds = search.leaderboard_[0]["n_estimators"]
    assert search.best_params_["n_estimators"] == (rounds if "n_estimators" in own else None)
    assert rounds <= own.get("n_estimators", np.inf)
    assert search.best_params_.get("learning_rate", 0.1) in (0.05, 0.1, own.get("learning_rate"))


def test_final_fit_is_bounded_by_n_estimators(monkeypatch):
    monkeypatch.setattr(SuccessiveHalving, "final_fit", lambda race, candidate: FinalFit({}, 40))
    search = PolyleafRegressorCV(n_estimators=20, n_candidates=1, n_jobs=1).fit(*REGRESSION)
    assert search.best_params_["n_estimators"] == 20


def stop_after_three(limit, model, epoch, evals_log):
    limit.was_reached = epoch == 3
    return limit.was_reached


def test_timed_out_final_fit_warns(monkeypatch):
    monkeypatch.setattr(SuccessiveHalving, "final_fit", lambda race, candidate: FinalFit({}, 4))
    monkeypatch.setattr(base.SpentTime, "before_iteration", stop_after_three)
    with pytest.warns(UserWarning, match="after 3 rounds"):
        search = PolyleafRegressorCV(n_candidates=1, n_jobs=1).fit(*REGRESSION)
    assert search.best_params_["n_estimators"] == 3


def test_blend_of_both_multi_strategies(monkeypatch):
    X, Y = (REGRESSION[0], REGRESSION[1] * [1.0, 100.0])  # multi-output trees scale the targets
    each = {"multi_strategy": "one_output_per_tree"}
    monkeypatch.setattr(base, "get_portfolio", lambda *data: [{}, each])
    equal = np.array([0.5, 0.5]), 0.0
    monkeypatch.setattr(ensemble, "compute_weights", lambda raws, *rest: equal)
    search = PolyleafRegressorCV(n_candidates=2, n_estimators=8, n_jobs=1, cv=2, ensemble=2)
    search.fit(X, Y)
    members = [PolyleafRegressor(**m["params"], n_jobs=1).fit(X, Y) for m in search.ensemble_]
    assert {m.model_.target_scale is None for m in members} == {True, False}
    expected = np.mean([m.predict(X) for m in members], axis=0)
    np.testing.assert_allclose(search.predict(X), expected, rtol=1e-5, atol=1e-5 * np.abs(Y).max())
