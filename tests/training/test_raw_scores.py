"""Derivatives at raw scores: objectives without second derivatives raise."""

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor, RowData
from polyleaf.objectives import Custom
from polyleaf.runtime.collective import ThreadCommunicator
from polyleaf.runtime.context import Context
from polyleaf.settings.train_config import make_train_config
from polyleaf.training.raw_scores import Derivatives
from polyleaf.user_data.features import read_features

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = X[:, :2] + 5
LABELS = (RNG.standard_normal((90, 3)) > 0).astype(int)
ORDERS = {"hessian": "none", "leaf_hessian": "none"}


def regressor(objective, **changes):
    return PolyleafRegressor(**{"objective": objective, "n_estimators": 4, "n_jobs": 1} | changes)


def classifier(**changes):
    return PolyleafClassifier(**{"n_estimators": 4, "n_jobs": 1} | changes)


def flat(y, z):
    return z - y, 0 * z


def flat_in_one(y, z):
    return z - y, np.array([[1.0, 0.0]]) + 0 * z


def hessians(y, z):
    return z - y, np.zeros((*z.shape, 2))


@pytest.mark.parametrize(
    ("objective", "output", "how"),
    [
        (flat, 0, {}),
        (Custom(flat, hessian="clip"), 0, {"boosting_step": "layer", "grow_policy": "depthwise"}),
        (lambda y, z: (z - y, np.zeros((len(y), 1))), 0, {}),
        (flat_in_one, 1, {}),
        (flat_in_one, 1, {"multi_strategy": "one_output_per_tree"}),
        (hessians, 0, {"hessian": "full", "leaf_hessian": "full"}),
    ],
)
def test_objective_without_second_derivative_raises(objective, output, how):
    with pytest.raises(ValueError, match=rf'0 for output {output} in all rows .* hessian="none"'):
        regressor(objective, **how).fit(X, Y)


def test_objective_whose_hessian_becomes_zero_raises():
    rounds = []
    with pytest.raises(ValueError, match="has no second derivative"):
        regressor(lambda y, z: (z - y, (z.mean() < 1) * np.ones_like(z)), learning_rate=1.0).fit(
            X, Y[:, 0], callbacks=[lambda model, epoch, log: rounds.append(epoch)]
        )
    assert rounds == [0]


def test_rows_with_zero_hessian_and_outputs_with_zero_gradient():
    plain = regressor(lambda y, z: (z - y, None), **ORDERS).fit(X, Y)
    np.testing.assert_array_equal(plain.predict(X), regressor(flat, **ORDERS).fit(X, Y).predict(X))
    huber = regressor(lambda y, z: (np.clip(z - y, -4, 4), (abs(z - y) < 4) * 1.0), n_estimators=60)
    assert huber.fit(X, Y[:, 0]).score(X, Y[:, 0]) > 0.5
    nothing = regressor(lambda y, z: (np.array([[1, 0]]) * (z - y), np.array([[1.0, 0.0]]) + 0 * z))
    assert np.isfinite(nothing.fit(X, Y).predict(X)).all()


def test_task_without_second_derivative_raises():
    of = {"a": "squared_error", "b": flat}
    with pytest.raises(ValueError, match="has no second derivative"):
        PolyleafMultiTask(of, n_estimators=3).fit(X, {"a": Y[:, 0], "b": Y[:, 1]})


@pytest.mark.parametrize("all_flat", [False, True])
def test_rows_of_one_rank_may_have_zero_hessian(all_flat):
    settings = make_train_config(regressor(flat), 3, False, 0, 1)

    def run_rank(communicator):
        is_flat = all_flat or communicator.rank == 0
        objective = Custom(flat if is_flat else lambda y, z: (z - y, 1 + 0 * z))
        workers = Context(1, communicator)
        problem = objective.bind(RowData(Y))
        found = Derivatives(problem, settings.hessian, 1 << 30, workers)
        found.compute(np.zeros_like(Y, np.float32))
        return found.h.any()

    if all_flat:
        with pytest.raises(ValueError, match="has no second derivative"):
            ThreadCommunicator.run(2, run_rank)
    else:
        assert ThreadCommunicator.run(2, run_rank) == [False, True]


@pytest.mark.parametrize("is_matrix", [False, True])
@pytest.mark.parametrize("kind", ["leaf_hessian", "hessian"])
def test_weights_are_used_without_hessians(kind, is_matrix):
    """Check sums of weights with `leaf_hessian="none"` or `hessian="none"`."""
    weight = np.random.default_rng(0).integers(1, 99, LABELS.shape if is_matrix else len(X)) / 4.0
    model = classifier(n_estimators=1, **{kind: "none"}).fit(X, LABELS, sample_weight=weight).model_
    counts = np.broadcast_to((weight if is_matrix else weight[:, None]), LABELS.shape)
    tree = model.forest.tree(0)
    if kind == "hessian":
        np.testing.assert_allclose(tree.cover[0], counts.sum(axis=0).mean(), rtol=1e-3)
        return
    rows = model.apply(read_features(X, reference=model.mapper))[:, 0]
    p = 1 / (1 + np.exp(-model.base_score.astype(np.float32)))
    g = (p - LABELS) * counts
    for leaf in range(tree.n_leaves):
        here = rows == leaf
        step = -g[here].sum(axis=0) / (counts[here].sum(axis=0) + 1) * 0.1
        np.testing.assert_allclose(model.forest.values(0)[leaf], step, rtol=1e-5)


def test_scale_pos_weight_is_used_without_hessians():
    """Check that `scale_pos_weight` equals `class_weight`."""
    scores = [
        classifier(hessian="none", leaf_hessian="none", **given).fit(X, LABELS).decision_function(X)
        for given in ({"scale_pos_weight": 64.0}, {"class_weight": [{0: 1.0, 1: 64.0}] * 3})
    ]
    np.testing.assert_allclose(*scores, rtol=0.02, atol=0.02)
