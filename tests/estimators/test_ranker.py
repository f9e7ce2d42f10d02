"""PolyleafRanker: queries in all forms, data that keep them whole, goals and their trade-offs."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import polyleaf
from polyleaf import (
    Dataset,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRankerCV,
    PolyleafRegressor,
    load_model,
)
from polyleaf.export import to_numeric_matrix
from polyleaf.inspection import ParetoDisplay, make_report, measure_drift
from polyleaf.runtime.collective import ThreadCommunicator
from polyleaf.training import sampling
from polyleaf.user_data.queries import number_queries
from polyleaf.user_data.validation import count_rows

N_QUERIES = 60
rng = np.random.default_rng(0)
QID = rng.permutation(np.repeat(np.arange(N_QUERIES), rng.integers(1, 25, N_QUERIES)))
N = len(QID)
X = rng.random((N, 5))
Y = np.column_stack([4 * X[:, 0] * X[:, 1] + 0.3 * rng.random(N), 3 * (1 - X[:, 0]) + X[:, 2]])
Y = np.floor(Y)
y = Y[:, 0]
SMALL = {"n_estimators": 15, "n_jobs": 1, "max_leaves": 6}
BY_QUERY = np.argsort(QID, kind="stable")
WEIGHTS = [(1, 0), (0.75, 0.25), (0.5, 0.5), (0.25, 0.75), (0, 1)]


def fit(**parameters):
    return PolyleafRanker(**{**SMALL, **parameters})


def same(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b))


@pytest.fixture(scope="module")
def model():
    return fit().fit(X, y, qid=QID)


@pytest.fixture(scope="module")
def front():
    return fit(goal_weights=WEIGHTS, n_estimators=40).fit(X, Y, qid=QID)


# --- queries --------------------------------------------------------------------------------------


def test_learns_the_order_within_queries(model):
    assert model.predict(X).shape == (N,)
    assert model.score(X, y, qid=QID) > 0.95
    assert model.score(rng.random((N, 5)), y, qid=QID) < 0.9


@pytest.mark.parametrize(
    "ids",
    [
        [f"query {q:03}" for q in QID],
        pd.Series(QID + 7, index=range(N, 0, -1)),
        pd.Series(QID).map("q{:03}".format).astype(object),
        pd.Categorical([f"{q:03}" for q in QID]),
        pl.Series(QID),
        QID.astype(float) - 0.5,
        QID.astype(np.uint64) + np.uint64(2**63),
    ],
)
def test_ids_of_any_type(model, ids):
    assert same(fit().fit(X, y, qid=ids).predict(X), model.predict(X))


def test_signed_and_unsigned_ids_of_ranks():
    ids = [np.array([2**63, 2**63 + 1], np.uint64), np.array([1, 2])]
    numbers = ThreadCommunicator.run(2, lambda ranks: number_queries(ids[ranks.rank], ranks))
    assert [part.tolist() for part in numbers] == [[2, 3], [0, 1]]


def test_ids_without_order():
    ids = [q if q % 2 else str(q) for q in QID]
    assert fit().fit(X, y, qid=ids).predict(X).shape == (N,)


def test_order_of_rows_does_not_matter():
    options = {"subsample": 0.6, "validation_fraction": 0.2, "colsample_bytree": 0.6}
    first = fit(**options).fit(X, Y, qid=QID)
    order = rng.permutation(N)
    second = fit(**options).fit(X[order], Y[order], qid=QID[order])
    assert same(first.predict(X), second.predict(X))
    curves = [fitted.evals_result_["validation"]["ndcg@10"] for fitted in (first, second)]
    np.testing.assert_allclose(*curves, rtol=1e-12)


def test_group_is_qid_of_sorted_rows(model):
    sizes = np.bincount(QID)
    grouped = fit().fit(X[BY_QUERY], y[BY_QUERY], group=sizes)
    assert same(grouped.predict(X), model.predict(X))
    assert grouped.score(X[BY_QUERY], y[BY_QUERY], group=sizes) == model.score(X, y, qid=QID)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_column_of_a_table(model, kind, tmp_path):
    table = pd.DataFrame(X, columns=list("abcde"))
    features = {"pandas": table, "polars": pl.DataFrame(table), "arrow": pa.table(table)}[kind]
    table.insert(2, "query", QID)
    with_ids = {"pandas": table, "polars": pl.DataFrame(table), "arrow": pa.table(table)}[kind]
    fitted = fit(validation_fraction=0.2).fit(with_ids, y, qid="query")
    assert list(fitted.feature_names_in_) == list("abcde")
    expected = fit(validation_fraction=0.2).fit(X, y, qid=QID)
    fitted.save_model(tmp_path / "m.polyleaf")
    for each in (fitted, load_model(tmp_path / "m.polyleaf"), pickle.loads(pickle.dumps(fitted))):
        for data in (with_ids, features):
            assert same(each.predict(data), expected.predict(X))
        assert each.score(with_ids, y) == expected.score(X, y, qid=QID)
        assert same(each.shap_values(with_ids), expected.shap_values(X))
        assert same(each.apply(with_ids), expected.apply(X))
        assert same(each.predictor()(with_ids), expected.predict(X))
        assert same(measure_drift(each, with_ids).psi, measure_drift(expected, X).psi)
        assert same(to_numeric_matrix(each, with_ids), to_numeric_matrix(expected, X))
    assert "mrr" in make_report(fitted, with_ids, y).html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Ranking needs the query of each row: pass qid"),
        ({"qid": QID, "group": [N]}, "qid and group are given"),
        ({"qid": QID[1:]}, "qid has .* entries, but X has"),
        ({"qid": np.where(QID == 3, np.nan, QID)}, "qid has missing values"),
        ({"qid": np.column_stack([QID, QID])}, "qid must have one value per row"),
        ({"qid": "query"}, "X is not a table"),
        ({"group": [N - 1]}, "group adds up to"),
        ({"group": QID}, "an id for each row is qid"),
        ({"group": [0.5, 3]}, "integers of at least 1"),
        ({"group": np.array([2**64 - 1, N + 1], np.uint64)}, "group adds up to 1844"),
        ({"qid": QID, "X_val": X, "y_val": y}, "Evaluation set 'validation' needs .* qid_val"),
        ({"qid": QID, "eval_set": [(X, y)]}, "Evaluation set 'validation_0' needs .* eval_qid"),
        ({"qid": 0}, "qid is 0, which is not an array"),
        ({"qid": QID, "positions": "place"}, "positions is 'place', which is not an array"),
        ({"qid": QID, "eval_set": [(X, y)], "eval_qid": []}, "eval_qid has 0 entries"),
        ({"qid": QID, "eval_set": [(X, y)], "eval_group": [[3]]}, r"eval_group\[0\] adds up"),
    ],
)
def test_wrong_queries(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit().fit(X, y, **arguments)


def test_relevances_of_any_unit():
    """Other estimators bound the range of y; messages do not name parameters of these."""
    linear = fit(objective="lambdarank", gains="linear")
    largest, smallest = (
        fit(objective="lambdarank", gains="linear").fit(X, y * unit, qid=QID)
        for unit in (2.0**80, 2.0**-80)
    )
    expected = linear.fit(X, y, qid=QID).predict(X)
    for model in (largest, smallest):
        np.testing.assert_array_equal(model.predict(X), expected)


def test_unknown_column():
    with pytest.raises(ValueError, match="X has no such column; its columns are"):
        fit().fit(pd.DataFrame(X, columns=list("abcde")), y, qid="f")


# --- weights, missing judgements, offsets ---------------------------------------------------------


def test_weight_of_queries():
    weight = rng.integers(1, 5, N_QUERIES).astype(float)
    first = QID[np.sort(np.unique(QID, return_index=True)[1])]  # ids as they occur first
    by_query = fit().fit(X, y, qid=QID, sample_weight=weight[first])
    by_row = fit().fit(X, y, qid=QID, sample_weight=weight[QID])
    assert same(by_query.predict(X), by_row.predict(X))
    scores = [
        by_row.score(X, y, qid=QID, sample_weight=each) for each in (weight[first], weight[QID])
    ]
    assert scores[0] == scores[1]


def test_weight_of_goals():
    weight = rng.random((N, 2)) + 0.5
    fitted = fit().fit(X, Y, qid=QID, sample_weight=weight)
    first = fit().fit(X, Y[:, 0], qid=QID, sample_weight=weight[:, 0])
    assert fitted.predict(X).shape == (N, 2)
    assert 0.8 < first.score(X, Y[:, 0], qid=QID) <= 1


def test_missing_judgements():
    with_gaps = np.where(rng.random(Y.shape) < 0.5, np.nan, Y)
    fitted = fit(n_estimators=40).fit(X, with_gaps, qid=QID)
    assert fitted.score(X, Y, qid=QID) > 0.93
    assert 0 < fitted.score(X, with_gaps, qid=QID) <= 1
    with pytest.raises(ValueError, match="NaN"):
        fit(missing_targets="error").fit(X, with_gaps, qid=QID)


def test_missing_judgements_cost_less_than_dropped_rows():
    """With 70 % of the judgements missing, 9 % of the rows have both of two."""
    known = np.random.default_rng(1).random(Y.shape) >= 0.7
    has_both = known.all(axis=1)
    scores = [
        PolyleafRanker(**SMALL).fit(X[rows], goals[rows], qid=QID[rows]).score(X, Y, qid=QID)
        for rows, goals in ((np.full(N, True), np.where(known, Y, np.nan)), (has_both, Y))
    ]
    assert scores[0] > scores[1] + 0.02


def test_offsets(model):
    offset = 0.3 * X[:, 0]
    fitted = fit().fit(X, y, qid=QID, offset=offset)
    difference = fitted.predict(X, offset=offset) - fitted.predict(X, offset=0 * offset)
    np.testing.assert_allclose(difference, offset, rtol=1e-6)


# --- evaluation and rows that are held out --------------------------------------------------------


def test_evaluation_sets():
    options = {"eval_metric": ["ndcg@5", "map"]}
    half = QID < 30
    training = {"qid": QID[half]}
    evaluated = X[~half], y[~half]
    first = fit(**options).fit(
        X[half], y[half], **training, eval_set=[evaluated], eval_qid=[QID[~half]]
    )
    second = fit(**options).fit(
        X[half], y[half], **training, X_val=evaluated[0], y_val=evaluated[1], qid_val=QID[~half]
    )
    curves = first.evals_result_["validation_0"]
    assert list(curves) == ["ndcg@5", "map"]
    assert curves == second.evals_result_["validation"]
    order = np.argsort(QID[~half], kind="stable")
    sizes = np.bincount(QID[~half])
    third = fit(**options).fit(
        X[half],
        y[half],
        **training,
        eval_set=[(evaluated[0][order], evaluated[1][order])],
        eval_group=[sizes[sizes > 0]],
    )
    assert third.evals_result_["validation_0"] == curves


def test_column_of_evaluation_sets():
    table = pd.DataFrame(X).assign(query=QID)
    half = QID < 30
    fitted = fit().fit(table[half], y[half], qid="query", eval_set=[(table[~half], y[~half])])
    assert len(fitted.evals_result_["validation_0"]) == 1
    ids = QID[~half]
    for features in (table[~half], table[~half].drop(columns="query")):
        again = fit().fit(
            table[half], y[half], qid="query", eval_set=[(features, y[~half])], eval_qid=[ids]
        )
        assert again.evals_result_ == fitted.evals_result_


def test_early_stopping():
    fitted = fit(n_estimators=500, early_stopping_rounds=5, validation_fraction=0.2)
    fitted.fit(X, y, qid=QID)
    assert fitted.n_iter_ < 500
    assert fitted.best_iteration_ is not None


def watch_hold_outs(monkeypatch):
    """Return a list that all splits of rows are added to."""
    splits = []
    rules = polyleaf.binned_data.random_rows.SplitRules
    for name in ("split", "iter_folds", "iter_cross_fits"):
        original = getattr(rules, name)

        def watch(self, *arguments, original=original, name=name):
            found = original(self, *arguments)
            found = [found] if name == "split" else list(found)
            splits.extend(found)
            return found[0] if name == "split" else iter(found)

        monkeypatch.setattr(rules, name, watch)
    return splits


@pytest.mark.parametrize(
    "parameters",
    [
        {"validation_fraction": 0.2},
        {"validation_fraction": 0.2, "validation_order": "time"},
        {"n_estimators": None, "learning_rate": 0.5},
    ],
)
def test_held_out_rows_have_whole_queries(monkeypatch, parameters):
    splits = watch_hold_outs(monkeypatch)
    fit(**parameters).fit(X, Y, qid=QID)
    assert splits
    for training, held in splits:
        assert len(training) and len(held)
        queries = QID if len(training) + len(held) == N else None
        if queries is not None:
            assert not set(queries[training]) & set(queries[held])


def test_time_of_queries(monkeypatch):
    splits = watch_hold_outs(monkeypatch)
    time = QID % 7 + 0.01 * rng.random(N)
    fit(validation_fraction=0.3).fit(X, y, qid=QID, time=time)
    ((training, held),) = splits
    assert not set(QID[training]) & set(QID[held])
    assert set(QID) == set(QID[training]) | set(QID[held])


def test_groups_of_queries(monkeypatch):
    splits = watch_hold_outs(monkeypatch)
    users = QID // 3
    fit(validation_fraction=0.3).fit(X, y, qid=QID, groups=users)
    ((training, held),) = splits
    assert not set(users[training]) & set(users[held])


def test_copies_of_queries_are_held_out_together(monkeypatch):
    splits = watch_hold_outs(monkeypatch)
    order = rng.permutation(2 * N)
    rows, queries = np.tile(np.arange(N), 2)[order], np.append(QID, QID + N_QUERIES)[order]
    fit(validation_fraction=0.3).fit(X[rows], y[rows], qid=queries)
    ((training, held),) = splits
    assert not set(rows[training]) & set(rows[held])


def test_samples_have_whole_queries(monkeypatch):
    drawn = []
    original = sampling.Sampler.draw

    def watch(self, *arguments):
        sample = original(self, *arguments)
        drawn.append(sample.rows)
        return sample

    monkeypatch.setattr(sampling.Sampler, "draw", watch)
    weight = np.where(QID < 10, 0.0, 1.0)
    fit(subsample=0.4, n_estimators=5).fit(X, y, qid=QID, sample_weight=weight)
    for rows in drawn:
        queries, counts = np.unique(QID[rows], return_counts=True)
        assert len(queries) == 20  # of the 50 of positive weight
        assert queries.min() >= 10
        assert same(counts, np.bincount(QID)[queries])
    assert len({rows.tobytes() for rows in drawn}) == 5


def test_few_queries():
    fitted = fit(n_estimators=None, max_leaves=3, learning_rate=0.3)
    assert fitted.fit(X[:50], y[:50], qid=np.arange(50) // 10).n_iter_ == 300
    with pytest.raises(ValueError, match="there is only one"):
        fit(validation_fraction=0.5).fit(X, y, qid=np.zeros(N))


# --- scikit-learn ---------------------------------------------------------------------------------


class OneQuery(PolyleafRanker):
    """A ranker whose rows are one query unless told otherwise, as scikit-learn's checks need."""

    @staticmethod
    def _read_queries(data, column, *ranks):
        if data.rows.query is None:
            data = data.replace_rows(query=np.zeros(count_rows(data.X)))
        return PolyleafRanker._read_queries(data, column, *ranks)


def test_clone_and_pipelines(model):
    copied = clone(model)
    assert not hasattr(copied, "model_")
    assert same(copied.fit(X, y, qid=QID).predict(X), model.predict(X))
    pipeline = make_pipeline(StandardScaler(), fit())
    pipeline.fit(X, y, polyleafranker__qid=QID)
    assert pipeline.predict(X).shape == (N,)


def test_searches_of_scikit_learn():
    table = pd.DataFrame(X, columns=list("abcde")).assign(query=QID)
    scores = cross_val_score(fit(), table, y, cv=GroupKFold(3), groups=QID, params={"qid": "query"})
    assert (scores > 0.8).all()
    search = GridSearchCV(fit(), {"learning_rate": [1e-4, 0.2]}, cv=GroupKFold(3))
    search.fit(table, y, groups=QID, qid="query")
    assert search.best_score_ > 0.8


def test_metadata_routing():
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        ranker = fit().set_fit_request(qid=True, groups=False).set_score_request(qid=True)
        scores = cross_val_score(ranker, X, y, cv=GroupKFold(3), params={"qid": QID, "groups": QID})
    assert (scores > 0.8).all()


# --- files, continued training, data sets ---------------------------------------------------------


def test_saved_model(model, front, tmp_path):
    for fitted in (model, front):
        fitted.save_model(tmp_path / "m.polyleaf")
        for loaded in (load_model(tmp_path / "m.polyleaf"), pickle.loads(pickle.dumps(fitted))):
            assert type(loaded) is PolyleafRanker
            assert same(loaded.predict(X), fitted.predict(X))
            assert same(loaded.goal_weights_, fitted.goal_weights_)
            goals = Y if fitted is front else y
            assert loaded.score(X, goals, qid=QID) == fitted.score(X, goals, qid=QID)
            assert same(clone(loaded).fit(X, goals, qid=QID).predict(X), fitted.predict(X))
    with pytest.raises(ValueError, match="PolyleafRanker"):
        PolyleafRegressor.load_model(tmp_path / "m.polyleaf")


def test_continued_training(model):
    half = fit(n_estimators=8).fit(X, y, qid=QID)
    whole = fit(n_estimators=7).fit(X, y, qid=QID, init_model=half)
    assert same(whole.predict(X), model.predict(X))
    warm = fit(n_estimators=8, warm_start=True).fit(X, y, qid=QID)
    assert same(warm.set_params(n_estimators=15).fit(X, y, qid=QID).predict(X), model.predict(X))


def test_refit(model):
    again = polyleaf.refit(model, X, y, qid=QID)
    assert same(again.predict(X), model.predict(X))
    table = pd.DataFrame(X).assign(query=QID)
    by_column = fit().fit(table, y, qid="query")
    assert same(polyleaf.refit(by_column, table, y).predict(table), by_column.predict(table))
    with pytest.raises(ValueError, match="Ranking needs the query"):
        polyleaf.refit(model, X, y)


@pytest.mark.parametrize("options", [{}, {"memory_limit": "1 MiB"}])
def test_data_sets(model, options, tmp_path):
    order = rng.permutation(N)  # queries lie in several batches
    whole = Dataset(X[order], y[order], qid=QID[order])
    assert same(fit().fit(whole).predict(X), model.predict(X))
    parts = np.array_split(order, 7)
    batches = [(X[part], y[part], None, QID[part]) for part in parts]
    if options:
        options = {**options, "cache_dir": tmp_path}
    read = Dataset.from_batches(batches, **options)
    fitted = fit().fit(read, eval_set=[whole])
    assert same(fitted.predict(X), model.predict(X))
    table = pa.table({**{f"f{i}": X[:, i] for i in range(5)}, "y": y, "query": QID})
    pa.parquet.write_table(table, tmp_path / "data.parquet")
    parquet = Dataset.from_parquet(tmp_path / "data.parquet", "y", qid="query", batch_rows=100)
    assert same(fit().fit(parquet).predict(X), model.predict(X))
    regressor = PolyleafRegressor(n_estimators=3).fit(whole)  # which has no queries
    assert same(regressor.predict(X), PolyleafRegressor(n_estimators=3).fit(X, y).predict(X))


# --- trade-offs -----------------------------------------------------------------------------------


def test_several_goals():
    fitted = fit(n_estimators=40).fit(X, pd.DataFrame(Y, columns=["relevance", "margin"]), qid=QID)
    assert fitted.predict(X).shape == (N, 2)
    assert same(fitted.goal_weights_, np.eye(2))
    front = fitted.score_goals(X, Y, qid=QID)
    assert front.shape == (2, 2)
    assert front[0, 0] > front[1, 0]
    assert front[1, 1] > front[0, 1]
    np.testing.assert_allclose(fitted.score(X, Y, qid=QID), np.diag(front).mean())
    table = fitted.set_output(predict="pandas").predict(X)
    assert list(table) == ["relevance", "margin"]


def test_front_of_one_fit(front):
    assert front.predict(X).shape == (N, 5)
    assert same(front.goal_weights_, WEIGHTS)
    values = front.score_goals(X, Y, qid=QID, metric="ndcg@10")
    assert values[0, 0] == values[:, 0].max()
    assert values[-1, 1] == values[:, 1].max()
    weighted = (np.array(WEIGHTS) * front.score_goals(X, Y, qid=QID)).sum(axis=1)
    np.testing.assert_allclose(front.score(X, Y, qid=QID), weighted.mean())


def test_display_and_report(front, model):
    pytest.importorskip("matplotlib")
    chosen = pickle.loads(pickle.dumps(front)).choose_goal_weights(X, Y, qid=QID, max_loss=0.1)
    display = ParetoDisplay.from_estimator(chosen, X, Y, qid=QID, metric="ndcg@5")
    assert same(display.values, front.score_goals(X, Y, qid=QID, metric="ndcg@5"))
    for j, is_optimal in enumerate(display.is_optimal):
        is_worse = (display.values >= display.values[j]).all(axis=1)
        is_worse &= (display.values > display.values[j]).any(axis=1)
        assert is_optimal == (not is_worse.any())
    assert len(display.points_.get_xdata()) == 5
    page = make_report(chosen, X, Y, qid=QID).html
    assert "Trade-offs" in page and "0.75, 0.25" in page and "(chosen)" in page
    page = make_report(model, X, y, qid=QID).html
    assert "mrr" in page and "Trade-offs" not in page
    with pytest.raises(ValueError, match="between several goals"):
        ParetoDisplay.from_estimator(model, X, y, qid=QID)


def test_chosen_goal_weights(front, tmp_path):
    values = front.score_goals(X, Y, qid=QID)
    for max_loss in (0.0, 0.02, 0.99):
        chosen = pickle.loads(pickle.dumps(front))
        chosen.choose_goal_weights(X, Y, qid=QID, max_loss=max_loss)
        number = chosen.chosen_score_
        allowed = values[:, 0] >= (1 - max_loss) * values[:, 0].max()
        assert allowed[number]
        assert values[number, 1] == values[allowed, 1].max()
        assert same(chosen.predict(X), front.predict(X)[:, number])
        assert same(chosen.predict_raw(X), front.predict_raw(X))
        assert same(chosen.predictor()(X), chosen.predict(X))
        expected = values[number] @ WEIGHTS[number] / np.sum(WEIGHTS[number])
        np.testing.assert_allclose(chosen.score(X, Y, qid=QID), expected)
        chosen.save_model(tmp_path / "m.polyleaf")
        assert same(load_model(tmp_path / "m.polyleaf").predict(X), chosen.predict(X))
        refitted = polyleaf.refit(chosen, X, Y, qid=QID)
        assert same(refitted.predict(X), chosen.predict(X))
    assert chosen.fit(X, Y, qid=QID).predict(X).shape == (N, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": 2}, "goal names goal 2, but goals are numbered from 0 to 1"),
        ({"goal": "margin"}, "names the goal"),
        ({"max_loss": 1.0}, "max_loss must be"),
        ({"y": Y * [1, np.nan]}, "Goal 1 of y has no judgement"),
    ],
)
def test_wrong_choice(front, options, message):
    with pytest.raises(ValueError, match=message):
        front.choose_goal_weights(X, **{"y": Y, "qid": QID} | options)


def test_choice_needs_goals(model):
    with pytest.raises(ValueError, match="for several goals"):
        model.choose_goal_weights(X, y, qid=QID)


def test_more_goals_than_scores(tmp_path):
    fitted = fit(goal_weights=[(0.7, 0.3)]).fit(X, Y, qid=QID)
    assert fitted.predict(X).shape == (N, 1)
    fitted.save_model(tmp_path / "m.polyleaf")
    assert same(load_model(tmp_path / "m.polyleaf").predict(X), fitted.predict(X))


def test_names_of_trade_offs():
    goals = pd.DataFrame(Y, columns=["relevance", "margin"])
    fitted = fit(goal_weights=WEIGHTS[:3]).fit(X, goals, qid=QID)
    assert list(fitted.model_.output_names) == [
        "1 relevance",
        "0.75 relevance + 0.25 margin",
        "0.5 relevance + 0.5 margin",
    ]


# --- search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, GroupKFold(3), None])
def test_search(cv):
    table = pd.DataFrame(X, columns=list("abcde")).assign(query=QID)
    search = PolyleafRankerCV(n_candidates=3, cv=cv, n_estimators=20, n_jobs=1)
    search.fit(table, y, qid="query")
    assert search.score(table, y) > 0.9
    best = PolyleafRanker(**search.best_params_, n_jobs=1).fit(X, y, qid=QID)
    assert same(best.predict(X), search.predict(table))


def test_search_refuses_folds_that_cut_queries():
    from sklearn.model_selection import KFold

    with pytest.raises(ValueError, match="cuts a query"):
        PolyleafRankerCV(n_candidates=1, cv=KFold(3)).fit(X, y, qid=QID)


# --- what is refused ------------------------------------------------------------------------------


def test_refused_methods(model):
    assert not hasattr(model, "predict_interval")
    with pytest.raises(AttributeError, match="A ranking has no 'calibrate'"):
        model.calibrate(X, y)


def test_queries_without_an_order():
    for relevance, ids in ((y, np.arange(N)), (np.ones(N), QID), (y, y)):
        with pytest.warns(UserWarning, match="queries has rows of different relevance"):
            model = fit(n_estimators=2).fit(X, relevance, qid=ids)
        assert not model.predict(X).any()


def test_query_of_one_column(model):
    assert same(fit().fit(X, y, qid=QID[:, None]).predict(X), model.predict(X))


def test_text_is_no_relevance():
    with pytest.raises(ValueError, match="holds the text 'high' in row 0, but must hold numbers"):
        fit().fit(X, ["high"] * N, qid=QID)


def test_metrics_are_those_of_queries(model):
    for metric, message in (("rmse", "Valid names are ndcg"), ("ndgc@10", "Did you mean 'ndcg'")):
        with pytest.raises(ValueError, match=message):
            fit(eval_metric=metric).fit(X, y, qid=QID, X_val=X, y_val=y, qid_val=QID)
        with pytest.raises(ValueError, match=message):
            model.score_goals(X, y, qid=QID, metric=metric)


def test_score_names_queries(model):
    with pytest.raises(ValueError, match=r"name a column of X.*set_score_request\(qid=True\)"):
        model.score(X, y)


def test_estimators_refuse_objectives_of_others():
    with pytest.raises(ValueError, match="use PolyleafRegressor"):
        fit(objective="squared_error").fit(X, y, qid=QID)
    with pytest.raises(ValueError, match="PolyleafRanker"):
        PolyleafRegressor("xendcg").fit(X, y)
    with pytest.raises(ValueError, match="PolyleafRanker"):
        PolyleafMultiTask({"a": "xendcg"}).fit(X, {"a": y})


# --- scikit-learn's checks ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [OneQuery(n_estimators=5, n_jobs=1)],
    # A row that is repeated competes with itself in its query, unlike a row of weight 2.
    expected_failed_checks=lambda estimator: {
        f"check_sample_weight_equivalence_on_{kind}_data": "rows of a query are no sample"
        for kind in ("dense", "sparse")
    },
)
def test_estimator_checks(estimator, check):
    check(estimator)
