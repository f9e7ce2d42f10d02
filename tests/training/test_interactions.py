"""interaction_constraints: accepted forms, and models that satisfy them."""

import numpy as np
import pandas as pd
import pytest

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(600, 5)), columns=list("abcde"))
Y = np.column_stack([X["a"] * X["b"], X["c"] * X["d"] + X["e"]])


def find_path_features(model):
    """Return the names of the features on the path to each leaf."""
    names = np.asarray(model.feature_names_in_)
    for t in range(len(model.model_.forest)):
        tree = model.model_.forest.tree(t)
        above = {0: set()}
        for i in range(tree.n_nodes):
            if tree.left[i] < 0:
                yield above[i]
            else:
                above[tree.left[i]] = above[tree.right[i]] = above[i] | {
                    str(names[tree.feature[i]])
                }


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"boosting_step": "layer", "grow_policy": "depthwise"},
        {"leaf": "linear"},
        {"sketch": "random_projection", "sketch_dim": 1},
        {"multi_strategy": "one_output_per_tree"},
        {"leaf": "sparse", "leaf_k": 1},
        {"colsample_bynode": 1.0, "hessian": "full"},
    ],
    ids=str,
)
def test_paths_use_features_of_one_group(more):
    groups = [["a", "b"], [2, "d"]]
    model = PolyleafRegressor(n_estimators=20, interaction_constraints=groups, **more).fit(X, Y)
    found = list(find_path_features(model))
    assert all(path <= {"a", "b"} or path <= {"c", "d"} or path <= {"e"} for path in found)
    assert {"a", "b"} in found


@pytest.mark.parametrize("constraint, most", [("no_interactions", 1), ("pairwise", 2)])
def test_named_constraints(constraint, most):
    model = PolyleafRegressor(n_estimators=20, interaction_constraints=constraint).fit(X, Y)
    assert max(map(len, find_path_features(model))) == most


def test_model_without_interactions_is_additive():
    model = PolyleafRegressor(n_estimators=50, interaction_constraints="no_interactions").fit(X, Y)
    low, high = X.iloc[[0]].copy(), X.iloc[[1]].copy()
    mixed = low.assign(a=high["a"].to_numpy()), high.assign(a=low["a"].to_numpy())
    left = model.predict(low) + model.predict(high)
    np.testing.assert_allclose(sum(map(model.predict, mixed)), left, rtol=0, atol=1e-5)


def test_sparse_targets():
    Y = RNG.random((600, 30)) < 0.1
    from scipy.sparse import csr_matrix

    for search in ("exact", "count_sketch"):
        model = PolyleafClassifier(
            interaction_constraints=[["a", "b"]],
            objective="squared_hinge",
            leaf="sparse",
            leaf_k=5,
            split_search=search,
            n_estimators=5,
        )
        model.fit(X, csr_matrix(Y.astype(np.float32)))
        assert all(
            path <= {"a", "b"} or path <= {"c", "d", "e"} for path in find_path_features(model)
        )


def test_names_with_a_dataset_and_numbers_with_an_array():
    by_name = PolyleafRegressor(n_estimators=5, interaction_constraints=[["a", "b"]]).fit(
        Dataset(X), Y
    )
    by_number = PolyleafRegressor(n_estimators=5, interaction_constraints=[(0, 1)]).fit(
        X.to_numpy(), Y
    )
    np.testing.assert_array_equal(by_name.predict(X), by_number.predict(X.to_numpy()))


@pytest.mark.parametrize(
    "constraints, error, sentence",
    [
        ([["a", "z"]], ValueError, "names the feature 'z'"),
        ([[0, 9]], ValueError, "feature 9, but features are numbered from 0 to 4"),
        ([[]], ValueError, "empty group"),
        (["ab"], TypeError, "must hold groups"),
        ([[0.5]], TypeError, "interaction_constraints must name features"),
        ("some", ValueError, "pairwise"),
    ],
)
def test_invalid_constraints_raise(constraints, error, sentence):
    with pytest.raises(error, match=sentence):
        PolyleafRegressor(n_estimators=1, interaction_constraints=constraints).fit(X, Y)


def test_names_require_feature_names():
    with pytest.raises(ValueError, match="X has no names"):
        PolyleafRegressor(n_estimators=1, interaction_constraints=[["a"]]).fit(X.to_numpy(), Y)
