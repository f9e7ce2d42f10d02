"""A fit on a cluster equals that of one machine, byte for byte; predictions are lazy and keep index
and order.
"""

import itertools
import subprocess
import sys
from contextvars import ContextVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

pytest.importorskip("distributed", reason="the extra dask is not installed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe", reason="dask[dataframe] is not installed")

import dask  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from sklearn.ensemble import RandomForestRegressor  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from polyleaf import PolyleafClassifier, PolyleafRanker, PolyleafRegressor  # noqa: E402
from polyleaf.dask import DaskPolyleafClassifier, DaskPolyleafRegressor, driver  # noqa: E402
from polyleaf.dask import DaskPolyleafRanker as DaskRanker  # noqa: E402
from polyleaf.dask.costs import measure_peak_bytes  # noqa: E402
from polyleaf.estimators import distributed_fit  # noqa: E402
from polyleaf.sketching import Projector  # noqa: E402

pytestmark = pytest.mark.full

SMALL = {"n_estimators": 3, "max_depth": 2, "max_leaves": None, "random_state": 0, "n_jobs": 1}
N = 240


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=3, **options) as cluster, Client(cluster) as client:
        yield client


def make_data():
    rng = np.random.default_rng(0)
    X = rng.integers(-40, 40, (N, 4)) / 8.0
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, np.nan_to_num(X[:, :2]) * 2 + rng.integers(-4, 4, (N, 2)) / 8.0


def chunked(*arrays, rows=60):
    return tuple(da.from_array(values, chunks=(rows, *values.shape[1:])) for values in arrays)


def assert_same_model(model, local):
    """Compare the model of a cluster with one of this process."""
    assert model.to_local().save_model() == local.save_model()


def make_frame():
    """Return data with a category and a class that occur in the last rows only."""
    X, Y = make_data()
    colour = np.array(["red", "green", "blue"])[np.arange(N) % 3].astype(object)
    colour[-20:] = "rare"
    y = np.where(Y[:, 0] > 1, "high", "low").astype(object)
    y[-15:] = "odd"
    df = pd.DataFrame(X, columns=list("abcd"), index=np.arange(N)[::-1] * 2).assign(colour=colour)
    return df, pd.Series(y, index=df.index, name="what")


def split_delayed(values, bounds):
    """Return parts of a frame or array as delayed values, some of them empty."""
    return [dask.delayed(values[a:b]) for a, b in itertools.pairwise(bounds)]


def test_arrays(client):
    X, Y = make_data()
    model = DaskPolyleafRegressor(client=client, **SMALL)
    lazy = da.from_array(X, chunks=(70, 3))
    assert model.fit(lazy, da.from_array(Y, chunks=(100, 1))) is model
    local = PolyleafRegressor(**SMALL).fit(X, Y)
    assert_same_model(model, local)
    assert model.restarts_ == []
    predicted = model.predict(lazy)
    assert isinstance(predicted, da.Array) and predicted.chunks == ((70, 70, 70, 30), (2,))
    np.testing.assert_array_equal(predicted.compute(), local.predict(X))
    np.testing.assert_array_equal(model.apply(lazy).compute(), local.apply(X))
    np.testing.assert_array_equal(model.predict(X), local.predict(X))
    assert model.n_iter_ == 3 and model.get_params()["max_depth"] == 2


def test_client_that_is_not_the_default(client, monkeypatch):
    X, Y = make_data()
    own = Client(client.scheduler.address, set_as_default=False)
    try:
        monkeypatch.setattr("distributed.client._global_clients", {})
        monkeypatch.setattr("distributed.client._current_client", ContextVar("none", default=None))
        model = DaskPolyleafRegressor(client=own, **SMALL).fit(da.from_array(X), da.from_array(Y))
    finally:
        own.close()
    assert_same_model(model, PolyleafRegressor(**SMALL).fit(X, Y))


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize(
    "parameters",
    [
        {"goal_weights": [(1, 0), (0.5, 0.5)], "subsample": 0.5, "objective": "yetirank"},
        {"n_estimators": None, "learning_rate": 0.5, "objective": "lambdarank"},
        {"leaf": "linear"},
    ],
)
def test_ranking(client, is_sorted, parameters):
    """Chunks cut queries, which are put together."""
    rng = np.random.default_rng(7)
    X, Y = make_data()
    Y = np.floor(np.clip(Y, 0, 4))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    qid = rng.integers(0, 25, N)
    qid = np.sort(qid) if is_sorted else qid
    weight = 1.0 + (qid % 3)
    weight[qid == 4] = 0
    evaluated = {"eval_metric": "ndcg@5"}
    local = PolyleafRanker(**SMALL | evaluated | parameters)
    local.fit(X, Y, qid=qid, sample_weight=weight, eval_set=[(X, Y)], eval_qid=[qid])
    model = DaskRanker(client=client, **SMALL | evaluated | parameters)
    parts = [da.from_array(values, chunks=(37, -1)) for values in (X, Y)]
    ids, weights = (da.from_array(values, chunks=37) for values in (qid, weight))
    model.fit(*parts, weights, qid=ids, eval_set=[tuple(parts)], eval_qid=[ids])
    assert model.model_.to_bytes() == local.model_.to_bytes()
    assert model.evals_result_ == local.evals_result_
    np.testing.assert_array_equal(model.predict(parts[0]).compute(), local.predict(X))
    model.refit(*parts, weights, qid=ids)
    local.refit(X, Y, weight, qid=qid)
    assert model.model_.to_bytes() == local.model_.to_bytes()


@pytest.mark.parametrize("rounds", [6, None])
def test_positions(client, rounds):
    """Positions that are on one partition only; bias of all."""
    X, Y = make_data()
    y, qid = (Y[:, 0] > 1).astype(float), np.arange(N) // 7
    positions = np.arange(N) % 7 + 7 * (np.arange(N) > N - 10)
    parameters = SMALL | {"n_estimators": rounds, "position_lambda": 0.01}
    local = PolyleafRanker(**parameters).fit(X, y, qid=qid, positions=positions)
    model = DaskRanker(client=client, **parameters)
    rows, *others = (da.from_array(each, chunks=37) for each in (y, qid, positions))
    features = da.from_array(X, chunks=(37, -1))
    model.fit(features, rows, qid=others[0], positions=others[1])
    assert model.model_.to_bytes() == local.model_.to_bytes()
    assert len(local.positions_) > 7 and local.position_bias_.any()
    model.refit(features, rows, qid=others[0], positions=others[1])
    local.refit(X, y, qid=qid, positions=positions)
    assert model.model_.to_bytes() == local.model_.to_bytes()


def test_column_of_queries(client):
    X, Y = make_data()
    table = pd.DataFrame(X, columns=list("abcd")).assign(query=np.arange(N) // 7)
    y = pd.Series(np.floor(np.clip(Y[:, 0], 0, 4)))
    lazy, lazy_y = (dd.from_pandas(each, npartitions=5) for each in (table, y))
    model = DaskRanker(client=client, **SMALL)
    model.fit(lazy, lazy_y, qid="query", eval_set=[(lazy, lazy_y)])
    local = PolyleafRanker(**SMALL).fit(table, y, qid="query", eval_set=[(table, y)])
    assert model.to_local().save_model() == local.save_model()
    np.testing.assert_array_equal(model.predict(lazy).compute(), local.predict(table))
    assert model.to_local().score(table, y) == local.score(table, y)
    with pytest.raises(ValueError, match="no DataFrame with such a column"):
        model.fit(lazy, lazy_y, qid="session")
    with pytest.raises(ValueError, match="'validation_0' needs the query of each row"):
        model.fit(lazy, lazy_y, qid=lazy["query"], eval_set=[(lazy, lazy_y)])


def test_shares_of_classes(client):
    """An evaluation set has labels, another set shares."""
    rng = np.random.default_rng(6)
    X, shares = rng.normal(size=(300, 4)), rng.dirichlet([1.0, 2.0, 0.5], 300)
    ids = shares.argmax(axis=1)
    local = PolyleafClassifier(**SMALL).fit(X, shares, eval_set=[(X, shares), (X, ids)])
    model = DaskPolyleafClassifier(client=client, **SMALL)
    *parts, labels = chunked(X, shares, ids, rows=90)
    model.fit(*parts, eval_set=[tuple(parts), (parts[0], labels)])
    assert model.model_.to_bytes() == local.model_.to_bytes()
    assert model.evals_result_ == local.evals_result_


@pytest.mark.parametrize("n_partitions", [1, 7])
def test_frames_with_values_in_some_partitions_only(client, n_partitions):
    df, y = make_frame()
    weight = pd.Series(np.arange(N) % 4 / 2, index=df.index)
    lazy, *others = (
        dd.from_pandas(part, npartitions=n_partitions, sort=False) for part in (df, y, weight)
    )
    model = DaskPolyleafClassifier(client=client, **SMALL).fit(lazy, *others)
    local = PolyleafClassifier(**SMALL).fit(df, y, weight)
    assert_same_model(model, local)
    assert model.classes_.tolist() == ["high", "low", "odd"]
    predicted = model.predict(lazy).compute()
    assert predicted.index.equals(df.index) and (predicted == local.predict(df)).all()
    probabilities = model.predict_proba(lazy).compute()
    assert probabilities.index.equals(df.index)
    np.testing.assert_array_equal(probabilities, local.predict_proba(df))
    labels, scores = model.predict_topk(lazy, 2)
    for lazily, whole in zip((labels, scores), local.predict_topk(df, 2), strict=True):
        np.testing.assert_array_equal(lazily.compute(), whole)


def test_delayed_partitions_some_empty(client):
    df, y = make_frame()
    bounds = [0, 0, 100, 100, 101, 180, N, N]
    model = DaskPolyleafClassifier(client=client, subsample=0.5, **SMALL)
    parts = split_delayed(df, bounds)
    model.fit(parts, split_delayed(y, bounds))
    local = PolyleafClassifier(subsample=0.5, **SMALL).fit(df, y)
    assert_same_model(model, local)
    predicted = dask.compute(*model.predict(parts))
    np.testing.assert_array_equal(np.concatenate(predicted), local.predict(df))


def test_parquet(client, tmp_path):
    """X and y have the partitions of the files, and other columns are not read."""
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra arrow is not installed")
    X, Y = make_data()
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=Y[:, 0], unread=np.arange(N) % 7 / 3)
    for i in range(4):
        path = tmp_path / f"{i}.parquet"
        table[60 * i : 60 * i + 60].to_parquet(path, engine="pyarrow")
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = [group.column(j) for j in range(group.num_columns)]
        (chunk,) = [column for column in columns if column.path_in_schema == "unread"]
        content = bytearray(path.read_bytes())
        first = chunk.dictionary_page_offset
        content[first : first + chunk.total_compressed_size] = b"?" * chunk.total_compressed_size
        path.write_bytes(content)
    frame = dd.read_parquet(tmp_path)
    with pytest.raises(OSError):
        frame["unread"].compute()
    model = DaskPolyleafRegressor(client=client, **SMALL).fit(frame[["a", "c"]], frame["y"])
    local = PolyleafRegressor(**SMALL).fit(table[["a", "c"]], table["y"])
    assert_same_model(model, local)
    predicted = model.predict(frame[["a", "c"]]).compute()
    np.testing.assert_array_equal(predicted, local.predict(table[["a", "c"]]))


def make_sparse(density=0.1):
    """Return words, some of which are in the last rows only, and targets."""
    rng = np.random.default_rng(5)
    X = sp.random(N, 30, density, "csr", np.float32, rng, lambda n: rng.integers(1, 5, n))
    X[:200, 7] = 0
    X.eliminate_zeros()
    return X, X[:, [0, 3]].toarray() + X[:, [7, 9]].toarray()


@pytest.mark.parametrize("kind", ["delayed", "array", "frame"])
def test_sparse_features(client, kind):
    X, Y = make_sparse(0.05)
    bounds = [0, 0, 100, 101, N]
    weight = np.arange(N) % 3 / 2
    if kind == "frame":
        X = pd.DataFrame.sparse.from_spmatrix(X, columns=[f"w{i}" for i in range(30)])
        X["a"] = np.arange(N) % 17 / 4
        lazy, *others = (
            dd.from_pandas(part, npartitions=4)
            for part in (X, pd.DataFrame(Y, columns=["u", "v"]), pd.Series(weight))
        )
        Y = pd.DataFrame(Y, columns=["u", "v"])
    else:
        lazy, *others = (split_delayed(values, bounds) for values in (X, Y, weight))
    if kind == "array":
        sizes = np.diff(bounds)
        blocks = [
            da.from_delayed(part, (n, 30), X.dtype, meta=sp.csr_matrix((0, 0), dtype=X.dtype))
            for part, n in zip(lazy, sizes, strict=True)
        ]
        lazy = da.concatenate(blocks)
        others = [da.from_array(v, (tuple(sizes), *v.shape[1:])) for v in (Y, weight)]
    parameters = SMALL | {"n_estimators": None if kind == "delayed" else 3}
    model = DaskPolyleafRegressor(client=client, **parameters).fit(
        lazy, *others, eval_set=[(lazy, others[0])]
    )
    local = PolyleafRegressor(**parameters).fit(X, Y, weight, eval_set=[(X, Y)])
    assert_same_model(model, local)
    predicted = model.predict(lazy)
    predicted = (
        np.concatenate(dask.compute(*predicted)) if kind == "delayed" else predicted.compute()
    )
    assert kind != "frame" or predicted.columns.tolist() == ["u", "v"]
    np.testing.assert_array_equal(predicted, local.predict(X))


@pytest.mark.parametrize("kind", ["gaussian", "columns", "pca", "leml", "threshold", "frame"])
def test_projections(client, kind, monkeypatch):
    """Projections are those of all rows, also of folds, and in models that are continued."""
    X, Y = make_sparse()
    bounds, weight = [0, 0, 100, 101, N], np.arange(N) % 3 / 2
    parameters = SMALL | {"projection": "leml" if kind == "threshold" else kind}
    parameters |= {"projection_dim": 4, "tfidf": True}
    estimators, y = (PolyleafRegressor, DaskPolyleafRegressor), Y
    match kind:
        case "columns":
            parameters |= {"projection": Projector("columns", min_rows=20)}
            parameters |= {"projection_dim": None, "tfidf": False, "leaf": "linear"}
        case "leml":
            parameters |= {"projection": Projector("leml", dim=4, n_folds=3)}
            parameters |= {"projection_dim": None, "tfidf": False}
        case "threshold":
            estimators, y = (PolyleafClassifier, DaskPolyleafClassifier), (Y[:, 0] > 0).astype(int)
            parameters |= {"threshold": "f1"}
        case "frame":
            X = pd.DataFrame(X.toarray(), columns=[f"w{i}" for i in range(30)])
            parameters |= {"projection": "pca"}
    lazy, lazy_y, lazy_weight = (split_delayed(values, bounds) for values in (X, y, weight))
    local = estimators[0](**parameters).fit(X, y, weight, eval_set=[(X, y)])
    model = estimators[1](client=client, **parameters)
    model.fit(lazy, lazy_y, lazy_weight, eval_set=[(lazy, lazy_y)])
    assert_same_model(model, local)
    assert model.to_local().n_features_in_ == 30 and model.evals_result_ == local.evals_result_
    predicted = np.concatenate(dask.compute(*model.predict(lazy)))
    np.testing.assert_array_equal(predicted, local.predict(X))
    local.fit(X, y, init_model=local)
    model.fit(lazy, lazy_y, init_model=model.model_)
    assert_same_model(model, local)
    model.refit(lazy, lazy_y)
    assert_same_model(model, local.refit(X, y))
    monkeypatch.setattr(driver, "MAX_ROWS", N - 1)
    model.refit(lazy, lazy_y)
    if kind in ("gaussian", "columns"):
        return
    with pytest.raises(ValueError, match="takes at most a million rows"):
        model.fit(lazy, lazy_y)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: X.rename(columns={"b": "x"}), "Partition 2: X has other columns"),
        (lambda X: X.assign(b=np.nan), "Partition 2: X holds NaN in row 0, column 1"),
    ],
)
def test_columns_of_projections_are_checked(client, spoil, message):
    X = pd.DataFrame(np.arange(24.0).reshape(8, 3) % 7 + 1, columns=list("abc"))
    parts = [X[:2], X[2:5], spoil(X[5:])]
    model = DaskPolyleafRegressor(client=client, projection="gaussian", **SMALL)
    lazy, y = [dask.delayed(part) for part in parts], X["a"]
    with pytest.raises(ValueError, match=message):
        model.fit(lazy, split_delayed(y, [0, 2, 5, 8]))
    model.set_params(projection=None, tfidf=True)
    with pytest.raises(ValueError, match="require the name of a projection"):
        model.fit(lazy, split_delayed(y, [0, 2, 5, 8]))


def test_columns_that_are_sparse_in_some_partitions(client):
    X, Y = make_sparse()
    parts = [dask.delayed(X[:100]), dask.delayed(X[100:].toarray())]
    with pytest.raises(ValueError, match="Partition 1: columns of X are sparse in some"):
        DaskPolyleafRegressor(client=client, **SMALL).fit(parts, split_delayed(Y, [0, 100, N]))


def test_early_stopping(client):
    X, Y = make_data()
    chosen = SMALL | {"n_estimators": 30, "learning_rate": 1.0, "early_stopping_rounds": 2}
    model = DaskPolyleafRegressor(client=client, **chosen)
    train, held = slice(0, 150), slice(150, None)
    in_memory, names = (X[held], Y[held]), {"eval_names": ["lazy", "memory"]}
    watched = [chunked(*in_memory), in_memory]
    model.fit(*chunked(X[train], Y[train]), eval_set=watched, **names)
    local = PolyleafRegressor(**chosen)
    local.fit(X[train], Y[train], eval_set=[in_memory] * 2, **names)
    assert_same_model(model, local)
    assert model.evals_result_ == local.evals_result_ and model.n_iter_ < 30
    assert model.best_iteration_ == local.best_iteration_


@pytest.mark.parametrize("which", ["plain", "time", "classes", "offset", "linear", "members"])
def test_automatic_n_estimators_equal_those_of_one_machine(client, which):
    """With few rows, the number of rounds is chosen on the same hold-out rows."""
    rng = np.random.default_rng(1)
    X = rng.integers(-40, 40, (N, 3)) / 8.0
    y, weight = X[:, 0] + rng.integers(-80, 80, N) / 8.0, np.arange(N) % 3 / 1.0
    chosen = {"max_depth": 2, "max_leaves": None, "learning_rate": 0.2, "n_jobs": 1}
    kinds, options = (DaskPolyleafRegressor, PolyleafRegressor), {}
    if which == "classes":
        y = np.where(y > 3, "a", np.where(y > -3, "b", "c"))
        kinds = DaskPolyleafClassifier, PolyleafClassifier
    elif which == "offset":
        y, options = np.round(np.abs(y)), {"offset": X[:, 1] / 8}
        chosen |= {"objective": "poisson", "base_score": 2.0}
    elif which == "linear":
        chosen |= {"leaf": "linear"}
    elif which == "time":
        chosen |= {"validation_order": "time"}
    elif which == "members":
        chosen = {"n_jobs": 1}
    local = kinds[1](**chosen).fit(X, y, weight, **options)
    bounds = [0, 0, 101, 180, N]
    lazy = [split_delayed(values, bounds) for values in (X, y, weight)]
    options = {name: split_delayed(values, bounds) for name, values in options.items()}
    model = kinds[0](client=client, **chosen).fit(*lazy, **options)
    assert_same_model(model, local)
    assert model.n_iter_ != 300
    assert ("members" in local.model_.metadata) == (which == "members")


def test_evaluation_sets_do_not_change_the_number_of_rounds(client):
    X, Y = make_data()
    chosen = {"max_depth": 1, "max_leaves": None, "n_jobs": 1}
    local = PolyleafRegressor(**chosen).fit(X, Y, eval_set=[(X, Y)])
    bounds = [0, 100, N]
    model = DaskPolyleafRegressor(client=client, **chosen)
    model.fit(split_delayed(X, bounds), split_delayed(Y, bounds), eval_set=[(X, Y)])
    assert_same_model(model, local)
    assert model.n_iter_ == PolyleafRegressor(**chosen).fit(X, Y).n_iter_ != 300


def test_refit(client):
    X, Y = make_data()
    rows = slice(60, None)
    local, parts = PolyleafRegressor(**SMALL).fit(X, Y), chunked(X, Y)
    model = DaskPolyleafRegressor(client=client, **SMALL).fit(*parts)
    before = model.to_local().save_model()
    assert model.refit(*parts).to_local().save_model() == before
    model.refit(*chunked(X[rows], Y[rows], rows=50), decay_rate=0.5)
    local.refit(X[rows], Y[rows], decay_rate=0.5)
    assert_same_model(model, local)


@pytest.mark.filterwarnings("ignore:.* it is widened by outputs")
def test_new_classes_and_targets(client):
    X, Y = make_data()
    classes = np.digitize(X[:, 0], [-1, 1])
    wider = np.where(np.arange(N) > 200, 9, classes)  # in the last partition only
    cases = [
        (DaskPolyleafClassifier, PolyleafClassifier, classes, wider, {}),
        (DaskPolyleafRegressor, PolyleafRegressor, Y[:, :1], Y, {"normalize_targets": False}),
    ]
    for on_dask, cls, y, y_wider, parameters in cases:
        old = cls(**SMALL, **parameters).fit(X, y)
        lazy = chunked(X, y_wider)
        model = on_dask(client=client, **SMALL, **parameters).fit(*lazy, init_model=old)
        assert_same_model(model, cls(**SMALL, **parameters).fit(X, y_wider, init_model=old))
        before = on_dask(client=client, **SMALL, **parameters).fit(*chunked(X, y))
        assert_same_model(before.refit(*lazy), old.refit(X, y_wider))
    scaled = PolyleafRegressor(**SMALL, normalize_targets=True).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="cannot be widened on Dask"):
        DaskPolyleafRegressor(client=client, **SMALL).fit(*chunked(X, Y), init_model=scaled)


@pytest.mark.parametrize("linear_fit", ["half_additive", "full", "post"])
def test_linear_leaves(client, linear_fit):
    """Raw features are kept by workers, evaluation sets and initial models."""
    X, Y = make_data()
    chosen = SMALL | {"leaf": "linear", "linear_fit": linear_fit}
    train, held = slice(0, 180), slice(180, None)
    lazy = chunked(X[train], Y[train], rows=50)
    model = DaskPolyleafRegressor(client=client, **chosen).fit(*lazy, eval_set=[(X[held], Y[held])])
    local = PolyleafRegressor(**chosen).fit(X[train], Y[train], eval_set=[(X[held], Y[held])])
    assert_same_model(model, local)
    assert model.evals_result_ == local.evals_result_ and local.model_.has_linear_leaves
    model = DaskPolyleafRegressor(client=client, **SMALL).fit(*lazy, init_model=local)
    assert_same_model(model, PolyleafRegressor(**SMALL).fit(X[train], Y[train], init_model=local))
    assert model.n_iter_ == 6


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "absolute_error"},
        {"objective": "quantile", "quantile_alpha": [0.1, 0.9], "calibrate_quantiles": False},
        {"sampling_method": "goss"},
    ],
)
def test_quantiles_and_goss(client, parameters):
    X, Y = make_data()
    chosen = SMALL | parameters
    model = DaskPolyleafRegressor(client=client, **chosen).fit(*chunked(X, Y, rows=70))
    assert_same_model(model, PolyleafRegressor(**chosen).fit(X, Y))


def few_labels():
    """Return sparse labels, and weights of which some are zero."""
    X, _ = make_data()
    rng = np.random.default_rng(2)
    chance = np.where(np.sin(np.nan_to_num(X) @ rng.normal(size=(4, 30))) > 0.7, 0.6, 0.02)
    Y = sp.csr_matrix((rng.random((N, 30)) < chance).astype(np.float32))
    return X, Y, rng.integers(0, 3, N) / 2.0


@pytest.mark.parametrize("split_search", ["count_sketch", "exact"])
def test_extreme_multilabel(client, split_search):
    X, Y, weight = few_labels()
    chosen = SMALL | {"leaf": "sparse", "leaf_k": 4, "objective": "squared_hinge"}
    chosen |= {"min_child_samples": 5, "split_search": split_search}
    train, held, bounds = slice(0, 180), slice(180, None), [0, 0, 50, 51, 120, 120, 180]
    parts = [split_delayed(values[train], bounds) for values in (X, Y, weight)]
    lazy_held = split_delayed(X[held], [0, 30, 60]), split_delayed(Y[held], [0, 30, 60])
    local = PolyleafClassifier(**chosen)
    local.fit(X[train], Y[train], weight[train], eval_set=[(X[held], Y[held])] * 2)
    model = DaskPolyleafClassifier(client=client, **chosen)
    model.fit(*parts, eval_set=[lazy_held, (X[held], Y[held])])
    assert_same_model(model, local)
    assert model.evals_result_ == local.evals_result_ and local.model_.forest.tree(0).n_leaves > 2
    # Labels in partitions, features as an array.
    rows = da.from_array(X[train], chunks=((50, 1, 69, 60), 4))
    without_empty = split_delayed(Y[train], sorted(set(bounds)))
    again = DaskPolyleafClassifier(client=client, **chosen).fit(rows, without_empty)
    assert_same_model(again, PolyleafClassifier(**chosen).fit(X[train], Y[train]))

    lazy_best, best = model.predict_topk(rows, 2), local.predict_topk(X[train], 2)
    for lazily, whole in zip(lazy_best, best, strict=True):
        np.testing.assert_array_equal(lazily.compute(), whole)
    predicted = sp.vstack(dask.compute(*model.predict(split_delayed(X, [0, 100, N]), sparse=True)))
    np.testing.assert_array_equal(predicted.toarray(), local.predict(X))
    with pytest.raises(ValueError, match="sparse=True"):
        model.predict(rows, sparse=True)


def make_counts():
    """Return counts with a known exposure."""
    X, _ = make_data()
    rng = np.random.default_rng(1)
    offset = rng.integers(-8, 8, N) / 4.0
    return X, rng.poisson(np.exp(offset)).astype(float), offset


def test_offsets_of_arrays(client):
    X, y, offset = make_counts()
    chosen = SMALL | {"objective": "poisson"}
    held, train = slice(150, None), slice(0, 150)
    lazy = chunked(y[train], offset[train], y[held], offset[held])
    rows = da.from_array(X, chunks=(60, 3))
    model = DaskPolyleafRegressor(client=client, **chosen)
    watched = {"eval_set": [(rows[held], lazy[2])], "eval_offset": [lazy[3]]}
    model.fit(rows[train], lazy[0], offset=lazy[1], **watched)
    local = PolyleafRegressor(**chosen)
    watched = {"eval_set": [(X[held], y[held])], "eval_offset": [offset[held]]}
    local.fit(X[train], y[train], offset=offset[train], **watched)
    assert_same_model(model, local)
    assert model.evals_result_ == local.evals_result_
    plain = PolyleafRegressor(**chosen).fit(X[train], y[train])
    assert model.to_local().save_model() != plain.save_model()
    whole = da.from_array(offset, chunks=100)  # other partitions
    expected = local.predict(X, offset=offset)
    np.testing.assert_array_equal(model.predict(rows, offset=whole), expected)
    np.testing.assert_array_equal(model.predict(X, offset=offset), expected)
    with pytest.raises(ValueError, match="validation_0"):
        model.fit(rows[train], lazy[0], offset=lazy[1], eval_set=[(rows[held], lazy[2])])
    again = DaskPolyleafRegressor(client=client, **chosen)
    with pytest.raises(ValueError, match="pass offset"):
        again.fit(rows[train], lazy[0], init_model=local)
    again.fit(rows[train], lazy[0], init_model=local, offset=lazy[1])
    on = PolyleafRegressor(**chosen).fit(X[train], y[train], init_model=local, offset=offset[train])
    assert_same_model(again, on)


def test_offsets_of_frames_and_of_delayed_parts(client):
    df, y = make_frame()
    df = df.drop(columns="colour")
    names = ["high", "low", "odd"]
    offset = pd.DataFrame(np.random.default_rng(0).integers(-4, 4, (N, 3)) / 2, df.index, names)
    local = PolyleafClassifier(**SMALL).fit(df, y, offset=offset)
    lazy = [dd.from_pandas(values, npartitions=4, sort=False) for values in (df, y, offset)]
    model = DaskPolyleafClassifier(client=client, **SMALL).fit(lazy[0], lazy[1], offset=lazy[2])
    assert_same_model(model, local)
    probabilities = model.predict_proba(lazy[0], offset=lazy[2]).compute()
    assert probabilities.index.equals(df.index)
    np.testing.assert_array_equal(probabilities, local.predict_proba(df, offset=offset))
    bounds = [0, 0, 100, 101, N]
    parts = [split_delayed(values, bounds) for values in (df, y, offset)]
    again = DaskPolyleafClassifier(client=client, **SMALL).fit(parts[0], parts[1], offset=parts[2])
    assert_same_model(again, local)
    scores = np.concatenate(dask.compute(*again.decision_function(parts[0], offset=parts[2])))
    np.testing.assert_array_equal(scores, local.decision_function(df, offset=offset))
    array = da.from_array(offset.to_numpy())
    for other, message in (
        (array, "X is a dask DataFrame or Series, but offset is a dask Array"),
        (offset, "offset is in memory"),
        (dd.from_pandas(offset, npartitions=3, sort=False), "X has 4 partitions, but offset has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(lazy[0], offset=other)


@pytest.mark.parametrize(
    ("labels", "threshold"), [(False, 0.1), (False, {"high": 0.8}), (True, {1: 0.2})]
)
def test_thresholds_equal_those_of_one_machine(client, labels, threshold):
    X, Y = make_data()
    y = (Y > 1).astype(int) if labels else np.where(Y[:, 0] > 1, "low", "high").astype(object)
    parts = [split_delayed(values, (0, 100, N)) for values in (X, y)]
    local = PolyleafClassifier(threshold=threshold, **SMALL).fit(X, y)
    model = DaskPolyleafClassifier(client=client, threshold=threshold, **SMALL).fit(*parts)
    np.testing.assert_array_equal(model.thresholds_, local.thresholds_)
    predicted = np.concatenate(dask.compute(*model.predict(parts[0])))
    np.testing.assert_array_equal(predicted, local.predict(X))
    assert_same_model(model, local)
    assert (local.predict(X) != PolyleafClassifier(**SMALL).fit(X, y).predict(X)).any()


@pytest.mark.parametrize(("labels", "is_evaluated"), [(False, False), (True, True)])
def test_chosen_thresholds_equal_those_of_one_machine(client, labels, is_evaluated):
    X, Y = make_data()
    y = (Y > 1).astype(int) if labels else np.where(Y[:, 0] > 1, "low", "high").astype(object)
    weight = np.arange(N) % 5 / 2
    parameters = SMALL | {"threshold": "f1", "class_weight": "balanced"}
    parts = [split_delayed(values, (0, 100, 101, N)) for values in (X, y, weight)]
    sets = [(X, y)] if is_evaluated else None
    local = PolyleafClassifier(**parameters).fit(X, y, weight, eval_set=sets)
    model = DaskPolyleafClassifier(client=client, **parameters).fit(*parts, eval_set=sets)
    np.testing.assert_array_equal(model.thresholds_, local.thresholds_)
    assert_same_model(model, local)


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "quantile", "quantile_alpha": [0.1, 0.9]},
        {"output_groups": "auto"},
        {"output_groups": "auto", "n_estimators": None},
    ],
)
def test_comparisons_on_one_worker(client, parameters, monkeypatch):
    """Calibrated quantiles and groups of outputs equal those of one machine."""
    X, Y = make_data()
    Y = np.column_stack([Y, X[:, :2] ** 2])
    Y[np.isnan(Y)] = 0
    local = PolyleafRegressor(**SMALL | parameters).fit(X, Y)
    lazy = chunked(X, Y)
    model = DaskPolyleafRegressor(client=client, **SMALL | parameters).fit(*lazy)
    assert_same_model(model, local)
    monkeypatch.setattr(distributed_fit, "MAX_ROWS", N - 1)
    with pytest.raises(ValueError, match="takes at most a million rows"):
        model.fit(*lazy)


def make_cities():
    """Return data with a column of more than 255 categories, and what they explain."""
    rng = np.random.default_rng(8)
    n = 900
    city, effect = rng.integers(0, 300, n), rng.normal(size=300)
    X = pd.DataFrame({"city": np.char.add("c", city.astype(str)).astype(object)})
    X["a"], X["b"] = rng.normal(size=(2, n))
    X.loc[5, "city"] = None
    y = effect[city] * 2 + X["a"] + rng.normal(size=n) / 4
    return X, pd.Series(y, name="y"), pd.Series(rng.integers(0, 40, n))


@pytest.mark.parametrize(
    "case", ["values", "rounds", "quantiles", "threshold", "ranking", "counts", "continued"]
)
def test_columns_of_many_categories(client, case, monkeypatch):
    X, y, qid = make_cities()
    fit, kind, parameters = {}, (PolyleafRegressor, DaskPolyleafRegressor), dict(SMALL)
    match case:
        case "values":
            parameters |= {"leaf": "linear"}
        case "rounds":
            parameters |= {"n_estimators": None, "learning_rate": 0.5, "output_groups": "auto"}
            y = pd.DataFrame({"u": y, "v": X["b"]})
        case "quantiles":
            parameters |= {"objective": "quantile", "quantile_alpha": 0.9}
        case "threshold":
            kind, parameters = (
                (PolyleafClassifier, DaskPolyleafClassifier),
                parameters | {"threshold": "f1"},
            )
            y = (y > 1).astype(int)
        case "ranking":
            kind, y, fit = (PolyleafRanker, DaskRanker), (y > 1).astype(float), {"qid": qid}
            parameters |= {"n_estimators": None, "learning_rate": 0.5}
        case "counts":
            parameters |= {"objective": "poisson"}
            y, fit = np.floor(np.exp(y / 2)), {"offset": X["b"] / 4}
    local = kind[0](**parameters).fit(X, y, **fit)
    lazy, lazy_y, *others = (
        dd.from_pandas(part, npartitions=4, sort=False) for part in (X, y, *fit.values())
    )
    model = kind[1](client=client, **parameters)
    model.fit(lazy, lazy_y, **dict(zip(fit, others, strict=True)))
    assert_same_model(model, local)
    if case == "continued":
        local.fit(X, y, init_model=local)
        model.fit(lazy, lazy_y, init_model=model.model_)
        assert_same_model(model, local)
        model.refit(lazy, lazy_y)
        assert_same_model(model, local.refit(X, y))
        monkeypatch.setattr(driver, "MAX_ROWS", len(X) - 1)
        with pytest.raises(ValueError, match="Column city of X has more than 255 categories"):
            model.fit(lazy, lazy_y)


def test_concurrent_fits_and_a_fit_within_a_task(client):
    X, Y = make_data()

    def one(seed):
        lazy = da.from_array(X, chunks=(60, -1)), da.from_array(Y, chunks=(60, -1))
        return DaskPolyleafRegressor(**SMALL | {"random_state": seed}, subsample=0.5).fit(*lazy)

    for seed, model in enumerate(client.gather(client.map(one, [0, 1], pure=False))):
        local = PolyleafRegressor(**SMALL | {"random_state": seed}, subsample=0.5).fit(X, Y)
        assert_same_model(model, local)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([3, 4], [3, 5], "Partition 1: y has 5 rows, but X has 4"),
        ([3, 4], [3, 4, 5], "X has 2 partitions, but y has 3"),
        ([0, 0], [0, 0], "X has no rows"),
    ],
)
def test_mismatched_partitions(client, X, y, message):
    parts = [dask.delayed(np.zeros((n, 2))) for n in X], [dask.delayed(np.zeros(n)) for n in y]
    with pytest.raises(ValueError, match=message):
        DaskPolyleafRegressor(client=client, **SMALL).fit(*parts)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"validation_fraction": 0.2}, "eval_set"),
        ({"sketch": lambda g, *_: (g, None)}, "random_projection"),
    ],
)
def test_unsupported_parameters_name_the_alternative(client, parameters, message):
    with pytest.raises(ValueError, match=message):
        DaskPolyleafRegressor(client=client, **SMALL | parameters).fit(*chunked(*make_data()))


def test_arguments_of_other_kinds_are_refused(client):
    X, Y = make_data()
    frame = dd.from_pandas(pd.DataFrame(X).assign(y=Y[:, 0]), npartitions=2)
    model = DaskPolyleafRegressor(client=client, **SMALL)
    cases = [
        (("folder/of/files", frame["y"]), "X is a path, 'folder/of/files': read it by"),
        ((frame, "y"), "y is text, 'y': pass the column itself"),
        ((X, frame["y"]), "X is in memory, but y is a dask DataFrame or Series"),
        ((frame, Y), "X is a dask DataFrame or Series, but y is in memory"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            model.fit(*arguments)


def test_representation_has_changed_parameters_only():
    model = DaskPolyleafRegressor(max_depth=3, random_state=1)
    assert repr(model) == "DaskPolyleafRegressor(max_depth=3, random_state=1)"


def test_error_names_a_column_of_mixed_types(client):
    parts = [dask.delayed(pd.DataFrame({"a": values})) for values in ([1.0, 2.0], ["x", "y"])]
    y = [dask.delayed(np.array([0.0, 1.0]))] * 2
    with pytest.raises(ValueError, match="Partition 1: column 'a'"):
        DaskPolyleafRegressor(client=client, **SMALL).fit(parts, y)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"y": "x"}, r"Partition 2: y holds the text 'x' in row 1,"),
        ({"weight": -1.0}, r"Partition 2: sample_weight .* but row 1 has -1"),
    ],
)
def test_error_names_the_partition_of_a_row(client, bad, message):
    """Empty partitions count."""
    y, weight = np.zeros(9).astype(object), np.ones(9)
    for name, value in bad.items():
        {"y": y, "weight": weight}[name][5] = value
    bounds = (0, 4, 4, 7, 9)
    parts = [split_delayed(values, bounds) for values in (np.zeros((9, 2)), y, weight)]
    with pytest.raises(ValueError, match=message):
        DaskPolyleafRegressor(client=client, **SMALL).fit(*parts)


def test_error_of_a_rank_reaches_the_caller(client):
    def fail(y_true, y_pred):
        raise ZeroDivisionError("mine")

    model = DaskPolyleafRegressor(client=client, objective=fail, base_score=0.0, **SMALL)
    with pytest.raises(ZeroDivisionError, match="mine"):
        model.fit(*chunked(*make_data()))


def test_labels_of_columns_in_another_order_are_refused(client):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 3)))
    y = 3 * frame[0] + frame[1]
    model = DaskPolyleafRegressor(n_estimators=3)
    model.fit(dd.from_pandas(frame, npartitions=2), dd.from_pandas(y, npartitions=2))
    changed = dd.from_pandas(frame[[2, 1, 0]], npartitions=2)
    with pytest.raises(ValueError, match="another order"):
        model.predict(changed).compute()


def make_starts(case):
    """Return X, y, parameters, an evaluation set, and the estimators of a case of `init`."""
    rng = np.random.default_rng(3)
    n = 1_200 if case in ("factor", "labels") else N
    X = rng.integers(-40, 40, (n, 4)) / 8.0
    X[rng.random(X.shape) < 0.1] = np.nan
    Y = np.nan_to_num(X[:, :2]) * 2 + np.sin(3 * np.nan_to_num(X[:, 2:])) + rng.normal(size=(n, 2))
    kinds, parameters = (PolyleafRegressor, DaskPolyleafRegressor), {"init": "linear"}
    match case:
        case "auto" | "auto rounds" | "time":
            parameters = {"init": "auto"}
            if case == "auto rounds":
                parameters["n_estimators"] = None
            if case == "time":
                parameters["validation_order"] = "time"
        case "rounds":
            parameters |= {"n_estimators": None, "learning_rate": 0.5}
        case "missing":
            Y[rng.random(Y.shape) < 0.2] = np.nan
            parameters["missing_targets"] = "ignore"
        case "quantiles":
            parameters |= {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
            Y = Y[:, 0]
        case "counts":
            parameters |= {"init": "auto", "objective": "poisson"}
            Y = np.floor(np.exp(Y[:, 0] / 6))
        case "trees alone":
            parameters |= {"init": "auto", "n_estimators": 40}
            Y = np.nan_to_num(X[:, :2]) ** 2
        case "estimator":
            parameters["init"] = make_pipeline(SimpleImputer(), Ridge())
        case "forest":
            parameters["init"] = RandomForestRegressor(5, max_depth=3, random_state=0)
            X = np.nan_to_num(X)
        case "sparse":
            X, Y = sp.csr_matrix(np.nan_to_num(X) * (rng.random(X.shape) < 0.3)), Y[:, 0]
        case "factor":
            kinds = PolyleafClassifier, DaskPolyleafClassifier
            Y = np.digitize(Y[:, 0], [-3, 2])
        case "labels":
            kinds = PolyleafClassifier, DaskPolyleafClassifier
            Y, parameters["threshold"] = (Y > 1).astype(int), "f1"
        case "sparse labels":
            kinds = PolyleafClassifier, DaskPolyleafClassifier
            X, Y, _ = few_labels()
            X = np.nan_to_num(X)
            parameters |= {"leaf": "sparse", "leaf_k": 4, "objective": "squared_hinge"}
            parameters |= {"min_child_samples": 5, "split_search": "exact"}
        case _:
            assert case == "linear"
    return X, Y, parameters, kinds


@pytest.mark.parametrize(
    "case",
    [
        "linear",
        "auto",
        "auto rounds",
        "time",
        "rounds",
        "missing",
        "quantiles",
        "counts",
        "trees alone",
        "estimator",
        "forest",
        "sparse",
        "factor",
        "labels",
        "sparse labels",
        "offset, auto",
        "offset, rounds",
        "offset, counts",
        "offset, factor",
    ],
)
def test_initial_models(client, case):
    """They are fitted on one worker as one machine fits them."""
    X, Y, parameters, kinds = make_starts(case.removeprefix("offset, "))
    n = X.shape[0]
    held, parameters = slice(0, 80), SMALL | parameters
    bounds, rows, lazy_rows = [0, 0, 100, 101, n], {}, {}
    if case.startswith("offset"):
        n_scores = 3 if case.endswith("factor") else Y.reshape(n, -1).shape[1]
        offset = 0.3 * np.random.default_rng(4).normal(size=(n, n_scores))
        rows = {"offset": offset, "eval_offset": [offset[held]]}
        lazy_rows = rows | {"offset": split_delayed(offset, bounds)}
    local = kinds[0](**parameters).fit(X, Y, eval_set=[(X[held], Y[held])], **rows)
    lazy = [split_delayed(values, bounds) for values in (X, Y)]
    model = kinds[1](client=client, **parameters)
    model.fit(*lazy, eval_set=[(X[held], Y[held])], **lazy_rows)
    if case != "forest":  # which a file cannot hold
        assert model.model_.to_bytes() == local.model_.to_bytes()
    assert model.evals_result_ == local.evals_result_
    assert (local.model_.initial is None) == (case == "trees alone")
    predicted = np.concatenate(dask.compute(*model.predict(lazy[0])))
    np.testing.assert_array_equal(predicted, local.predict(X))


def test_models_with_initial_models_are_continued_and_refitted(client, monkeypatch):
    X, Y, parameters, _ = make_starts("linear")
    bounds, other = [0, 100, 101, 200], slice(200, None)
    first = slice(0, 200)
    lazy = [split_delayed(values, bounds) for values in (X, Y)]
    rest = [split_delayed(values[other], [0, 15, N]) for values in (X, Y)]
    parameters = SMALL | parameters
    local = PolyleafRegressor(**parameters).fit(X[first], Y[first])
    model = DaskPolyleafRegressor(client=client, **parameters).fit(*lazy)
    on = DaskPolyleafRegressor(client=client, **parameters).fit(*rest, init_model=model.model_)
    expected = PolyleafRegressor(**parameters).fit(X[other], Y[other], init_model=local)
    assert_same_model(on, expected)
    assert_same_model(model.refit(*rest), local.refit(X[other], Y[other]))
    monkeypatch.setattr(driver, "MAX_ROWS", 199)
    with pytest.raises(ValueError, match="fitted on one Dask worker"):
        model.fit(*lazy)


@pytest.mark.parametrize("init", ["linear", "auto"])
def test_initial_models_of_frames(client, init):
    """Categories and columns of many categories are left to the trees."""
    X, y, _ = make_cities()
    X["colour"] = np.where(np.arange(len(X)) > 700, "red", "blue").astype(object)
    parameters = SMALL | {"init": init}
    local = PolyleafRegressor(**parameters).fit(X, y)
    lazy, lazy_y = (dd.from_pandas(part, npartitions=4, sort=False) for part in (X, y))
    assert_same_model(DaskPolyleafRegressor(client=client, **parameters).fit(lazy, lazy_y), local)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes do not inherit peaks")
def test_peak_memory_is_not_the_one_of_the_parent():
    held = np.ones(2**26)
    code = "from polyleaf.dask.costs import measure_peak_bytes; print(measure_peak_bytes())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert 2**20 < int(printed) < held.nbytes <= measure_peak_bytes()


def test_costs_are_planned_and_measured(client):
    """Stumps send the histogram that was planned, and a few sums."""
    X = np.random.default_rng(0).permuted(np.repeat(np.arange(1024.0)[:, None], 24, axis=1), axis=0)
    Y = np.sin(X[:, :3] / 50)
    lazy = [each.persist() for each in chunked(X, Y, rows=100)]
    parameters = {"n_estimators": 60, "max_depth": 1, "max_leaves": None, "random_state": 0}
    model = DaskPolyleafRegressor(client=client, **parameters)
    plan = model.plan(*lazy)
    assert not hasattr(model, "costs_") and not plan.measured
    model.fit(*lazy)
    assert model.model_.forest.tree(59).n_leaves == 2
    for costs in (plan.planned, model.costs_.planned, model.costs_.measured):
        assert sum(each.n_rows for each in costs) == 1024
        assert sorted(i for each in costs for i in each.partitions) == list(range(11))
    assert sum(each.data_bytes for each in plan.planned) == X.nbytes
    planned, measured = plan.planned[0].sent_bytes, model.costs_.measured[0].sent_bytes
    assert planned == 24 * 256 * (4 * 4 + 1 / 8) * 2 / 3
    assert 0.85 * planned < measured < planned  # bins without rows are not sent
    assert all(each.peak_bytes > 0 for each in (*plan.planned, *model.costs_.measured))
    table = str(model.costs_)
    assert table.count("planned") == table.count("measured") == 3 and "rows" in table
    qid = np.arange(1024) // 8
    ranker = DaskRanker(client=client, **parameters)
    lazy_qid = da.from_array(qid, chunks=100)
    assert len(ranker.plan(lazy[0], da.floor(abs(lazy[1])), qid=lazy_qid).planned) == 3
    sparse = DaskPolyleafClassifier(client=client, leaf="sparse", **SMALL)
    labels = few_labels()
    parts = [split_delayed(each, [0, 100, N]) for each in labels[:2]]
    assert "KiB" in str(sparse.plan(*parts))
    words = [split_delayed(each, [0, 100, N]) for each in make_sparse(0.02)]
    (first, *_) = DaskPolyleafRegressor(client=client, **SMALL).plan(*words).planned
    assert first.sent_bytes is None and 0 < first.peak_bytes
