"""feature_penalties: accepted forms, effect, and equality in all kinds of training."""

import numpy as np
import pandas as pd
import pytest
from support.distributed_fits import fit_on_threads

from polyleaf import PolyleafClassifier, PolyleafRegressor

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(600, 4)), columns=list("abcd"))
X["b"] = X["a"] + 0.3 * X["b"]  # nearly as informative
Y = np.column_stack([X["a"] + X["c"], X["a"] - X["d"]]) + 0.1 * RNG.normal(size=(600, 2))


def count_splits(model):
    """Return the number of splits on each feature, by name."""
    found = model.feature_importance("split")
    return dict(zip(model.feature_names_in_, np.asarray(found).tolist(), strict=True))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"boosting_step": "layer", "grow_policy": "depthwise"},
        {"leaf": "linear"},
        {"sketch": "random_projection", "sketch_dim": 1},
        {"multi_strategy": "one_output_per_tree"},
        {"leaf": "sparse", "leaf_k": 1},
        {"hessian": "full"},
        {"monotone_constraints": {"a": 1}},
        {"pruning": "post"},
    ],
    ids=str,
)
def test_penalised_feature_is_used_less(more):
    options = {"n_estimators": 20, "colsample_bynode": 1.0, "max_leaves": 8, **more}
    plain = count_splits(PolyleafRegressor(**options).fit(X, Y))
    penalised = count_splits(PolyleafRegressor(feature_penalties={"a": 0.9}, **options).fit(X, Y))
    assert plain["a"] > plain["b"]
    assert penalised["a"] < plain["a"] / 2 and penalised["b"] > plain["b"]


def test_equivalent_forms():
    numbers = [0.5, 0, 0.1, 0]
    for forms in (
        [{"a": 0.5, 2: 0.1}, {"0": 0.5, "c": 0.1}, numbers, np.array(numbers)],
        [None, [0, 0, 0, 0], {}, {"a": 0}],
    ):
        models = [PolyleafRegressor(n_estimators=5, feature_penalties=form) for form in forms]
        expected, *others = (model.fit(X, Y).predict(X) for model in models)
        for other in others:
            np.testing.assert_array_equal(other, expected)


@pytest.mark.parametrize(
    "wrong, error, sentence",
    [
        ({"e": 0.5}, ValueError, "names the feature 'e'"),
        ([0.5, 0.5], ValueError, "one number for each of the 4 features"),
        ({"a": 1.0}, ValueError, "from 0 to below 1"),
        ({"a": -0.1}, ValueError, "from 0 to below 1"),
        ({"a": float("nan")}, ValueError, "from 0 to below 1"),
        ({"a": "much"}, TypeError, "from 0 to below 1"),
        ({"a": True}, TypeError, "from 0 to below 1"),
        ([None, 0, 0, 0], TypeError, "from 0 to below 1"),
    ],
)
def test_invalid_penalties_raise(wrong, error, sentence):
    with pytest.raises(error, match=sentence):
        PolyleafRegressor(n_estimators=2, feature_penalties=wrong).fit(X, Y)


def test_derived_columns_have_the_penalty_of_their_feature():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 300, 900)
    table = pd.DataFrame({"id": pd.Categorical(ids), "x": rng.normal(size=900)})
    y = rng.normal(size=300)[ids] + 0.3 * table["x"].to_numpy()
    options = {"n_estimators": 10, "max_leaves": 8, "colsample_bynode": 1.0}
    plain = count_splits(PolyleafRegressor(**options).fit(table, y))
    penalised = PolyleafRegressor(feature_penalties={"id": 0.95}, **options).fit(table, y)
    penalised = count_splits(penalised)
    assert penalised["id"] < plain["id"]


@pytest.mark.parametrize("more", [{}, {"leaf": "linear"}], ids=str)
def test_distributed_model_equals_one_machine(more):
    penalties = {"feature_penalties": {0: 0.4, 2: 0.8}}
    estimator = PolyleafRegressor(n_estimators=5, n_jobs=1, **penalties, **more)
    alone = estimator.fit(X.to_numpy(), Y).save_model()
    for each in fit_on_threads(estimator, X.to_numpy(), Y, 3):
        assert each.save_model() == alone


def test_sparse_targets():
    import scipy.sparse as sp

    labels = sp.csr_matrix((Y > 0.5).astype(np.float32))
    options = {"n_estimators": 10, "max_leaves": 6, "colsample_bynode": 1.0}
    options |= {"leaf": "sparse", "leaf_k": 1}
    for search in ("count_sketch", "exact"):
        model = PolyleafClassifier(split_search=search, **options).fit(X.to_numpy(), labels)
        plain = model.feature_importance("split")[0]
        model.set_params(feature_penalties=[0.9, 0, 0, 0]).fit(X.to_numpy(), labels)
        assert model.feature_importance("split")[0] < plain
