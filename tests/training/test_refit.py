"""Refit: on the training rows the same model bit for bit, and other rows."""

import warnings

import numpy as np
import pytest
from support import golden
from support.configurations import draw_configuration
from support.distributed_fits import fit_on_threads

from polyleaf import (
    Dataset,
    Model,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRegressor,
    PolyleafRegressorCV,
    RowData,
    refit,
)
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.settings.train_config import make_train_config
from polyleaf.training.prepare import _hold_out
from polyleaf.training.refit import KnownTrees
from polyleaf.training.training_run import Seeds, TrainingData, TrainingRun

OUTPUTS = golden.OUTPUTS
# Blocks of seeds: the first in the fast tier, the other in the full one.
SEEDS = [range(12), pytest.param(range(12, 212), marks=pytest.mark.full)]
SMALL = {"n_estimators": 4, "max_leaves": 8, "min_child_samples": 4, "random_state": 0, "n_jobs": 1}
LEAVES = {
    "constant": {},
    "one tree an output": golden.ONE_EACH,
    "sparse": {"leaf": "sparse", "leaf_k": 2},
    "linear": {"leaf": "linear", "linear_extrapolation": "none"},  # a clipped blend is not linear
    "layers": golden.LAYERS,
    "monotone": {"monotone_constraints": [1, 0, 0, -1, 0, 0]},
    "monotone layers": {"monotone_constraints": [1, 0, 0, -1, 0, 0], **golden.LAYERS},
}


def take_training_rows(estimator, X, y):
    """Return the rows that an estimator with `validation_fraction` has trained on."""
    target = estimator._encoding.encode(RowData(y), name="y")
    settings = make_train_config(estimator, 1, False, 0, 1)
    run = TrainingRun(settings, estimator.model_.objective, target, Seeds(0, 0, 0))
    run.data = TrainingData("training", X, RowData(y))
    X, *_ = _hold_out(estimator, run, estimator.validation_fraction)
    return X, run.target.to_target_scale()


def check_same_bytes(estimator, *rows, **options):
    before = estimator.model_.to_bytes()
    if not isinstance(estimator, PolyleafRanker):  # which has no intervals
        options["recalibrate"] = True
    estimator.refit(*rows, **options)
    assert estimator.model_.to_bytes() == before


def structure(model):
    arrays = ("feature", "threshold", "missing_left", "left", "right", "leaf", "categories")
    return [getattr(tree.structure, name).tolist() for tree in model.trees for name in arrays]


# --- the training rows ---


@pytest.mark.parametrize("name", golden.CONFIGURATIONS)
def test_training_rows_give_the_same_file(name):
    estimator = golden.fitted(name)
    X, y, fit = golden.CONFIGURATIONS[name][1:4]
    rows = (X(),) if y is None else (X(), y())
    if estimator.validation_fraction is not None:
        rows = take_training_rows(estimator, *rows)
    check_same_bytes(estimator, *rows, **({} if fit is None else fit()))


@pytest.mark.parametrize(
    ("objective", "values"),
    [
        ("squared_error", golden.values),
        ("absolute_error", golden.values),
        ("poisson", golden.counts),
        ("normal", golden.values),
        ("negative_binomial", golden.counts),
    ],
)
def test_training_rows_with_offsets_give_the_same_file(objective, values):
    X, Y = golden.numbers(), values()
    offset = golden.weight(3) if objective != "normal" else None
    model = PolyleafRegressor(objective=objective, **SMALL).fit(X, Y, offset=offset)
    check_same_bytes(model, X, Y, offset=offset)


@pytest.mark.parametrize("parameters", [{}, golden.LAYERS])
def test_training_rows_of_several_tasks_give_the_same_file(parameters):
    X, Y = golden.numbers(), golden.values()
    y = {"a": Y[:, 0], "b": golden.two_classes(), "c": Y[:, 1]}
    objectives = {"a": "squared_error", "b": "logistic", "c": "absolute_error"}
    model = PolyleafMultiTask(objectives, **SMALL, **parameters).fit(X, y)
    check_same_bytes(model, X, y)


@pytest.mark.parametrize(
    "parameters",
    [
        LEAVES["monotone"],
        LEAVES["monotone layers"],
        {"objective": "absolute_error", "missing_targets": "ignore"},
        {"sampling_method": "goss", "top_rate": 0.25, "other_rate": 0.25, **golden.LAYERS},
        {"subsample": 0.5, "colsample_bynode": 0.5},
        {"leaf": "linear", "objective": "poisson"},
        {"min_split_gain": 1e9},
    ],
)
def test_training_rows_give_the_same_file_for_more_parameters(parameters):
    X, Y = golden.numbers(), golden.counts()
    if "missing_targets" in parameters:
        Y = golden.make_missing_targets()
    model = PolyleafRegressor(**SMALL | parameters).fit(X, Y)
    check_same_bytes(model, X, Y)


@pytest.mark.parametrize("seeds", SEEDS)
def test_training_rows_give_the_same_file_for_random_configurations(seeds):
    for seed in seeds:
        c = draw_configuration(seed)
        estimator = PolyleafRegressor if c.kind == "values" else PolyleafClassifier
        rows = c.X, c.y, c.weight
        model = estimator(**c.parameters).fit(*rows, offset=c.offset)
        check_same_bytes(model, *rows, offset=c.offset)


@pytest.mark.parametrize("parameters", LEAVES.values(), ids=LEAVES)
def test_threads_change_no_bit(parameters):
    X, Y = golden.numbers(30_000), golden.values(30_000)
    model = PolyleafRegressor(**SMALL | parameters).fit(X[:20_000], Y[:20_000])
    rows = X[15_000:], Y[15_000:]
    one = refit(model, *rows, decay_rate=0.25)
    three = refit(model.set_params(n_jobs=3), *rows, decay_rate=0.25)
    np.testing.assert_array_equal(one.predict(X), three.predict(X))


def test_training_rows_in_batches_give_the_same_file(tmp_path):
    X, Y = golden.numbers(), golden.values()
    batches = [(X[:200], Y[:200]), (X[200:], Y[200:])]
    model = PolyleafRegressor(leaf="linear", **SMALL)
    model.fit(Dataset(X, Y, keep_features=True))
    options = {"reference": model.model_.mapper, "keep_features": True}
    check_same_bytes(model, Dataset.from_batches(batches, **options))
    check_same_bytes(model, Dataset.from_batches(batches, cache_dir=tmp_path, **options))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"objective": "absolute_error"},
        {"leaf": "linear", "objective": "poisson"},
        {"subsample": 0.5},
        golden.LAYERS,
    ],
)
def test_ranks_give_the_file_of_one_process(parameters):
    X, Y = golden.numbers(), golden.counts()
    weight = golden.weight(OUTPUTS)
    model = PolyleafRegressor(**SMALL | parameters).fit(X, Y, weight)
    known = KnownTrees(model.model_, 0.25)
    fits = fit_on_threads(model, X[50:], Y[50:], 3, weight[50:], init_model=known)
    expected = model.refit(X[50:], Y[50:], weight[50:], decay_rate=0.25).model_.to_bytes()
    assert all(fit.model_.to_bytes() == expected for fit in fits)


def test_sparse_features_stay_sparse():
    X, Y = golden.mostly_zeros(), golden.values()
    model = PolyleafRegressor(**SMALL).fit(X, Y)
    before, data = model.model_.to_bytes(), Dataset(X, Y, reference=model.model_.mapper)
    size = data.nbytes
    assert model.refit(data).model_.to_bytes() == before
    assert data.nbytes == size < X.shape[0] * X.shape[1]


def test_file_of_an_estimator_can_be_refitted():
    X, y = golden.numbers(), golden.labels()
    model = PolyleafClassifier(**SMALL).fit(X, y)
    loaded = PolyleafClassifier.load_model(model.save_model())
    rows = slice(100, None)
    expected = model.refit(X[rows], y[rows]).model_.to_bytes()
    assert loaded.refit(X[rows], y[rows]).model_.to_bytes() == expected


# --- other rows ---


def test_leaf_values_are_newton_steps_on_the_new_rows():
    X, Y = golden.numbers(), golden.values()
    model = PolyleafRegressor(learning_rate=0.3, reg_lambda=2.0, **SMALL).fit(X[:200], Y[:200])
    before = structure(model.model_)
    model.refit(X[200:], Y[200:])
    leaves, scores = model.apply(X[200:]), np.full((len(X) - 200, 3), model.model_.base_score)
    assert structure(model.model_) == before
    np.testing.assert_allclose(model.model_.base_score, Y[200:].mean(axis=0), rtol=1e-6)
    for t, tree in enumerate(model.model_.trees):
        for leaf in range(tree.n_leaves):
            rows = leaves[:, t] == leaf
            step = 0.3 * (Y[200:] - scores)[rows].sum(axis=0) / (rows.sum() + 2.0)
            np.testing.assert_allclose(tree.leaves[leaf], step, rtol=1e-4, atol=1e-5)
            node = np.flatnonzero(tree.structure.leaf == leaf)[0]
            assert tree.structure.count[node] == tree.structure.cover[node] == rows.sum()
        scores += tree.leaves[leaves[:, t]]
        assert tree.structure.count[0] == len(X) - 200


@pytest.mark.parametrize("parameters", LEAVES.values(), ids=LEAVES)
def test_decay_rate_blends_old_and_new_values(parameters):
    X, Y = golden.numbers(), golden.values()
    few, one_round = np.arange(150), {"n_estimators": 1, "min_child_samples": 20, "base_score": 0}
    options = SMALL | one_round | parameters
    fitted = [PolyleafRegressor(**options).fit(X, Y) for _ in range(3)]
    old, new, blend = fitted
    new.refit(X[few], Y[few])
    blend.refit(X[few], Y[few], decay_rate=0.25)
    complete = ~np.isnan(X).any(axis=1)  # a blend of linear leaves moves the centres of features
    expected = 0.25 * old.predict(X[complete]) + 0.75 * new.predict(X[complete])
    if parameters.get("leaf") == "sparse":  # of the outputs of both, the largest are kept
        sizes = [np.diff(m.model_.trees[0].leaves.indptr).max() for m in fitted]
        assert max(sizes) == 2
    else:
        np.testing.assert_allclose(blend.predict(X[complete]), expected, rtol=1e-4, atol=1e-4)
    assert structure(blend.model_) == structure(old.model_)


@pytest.mark.parametrize("parameters", LEAVES.values(), ids=LEAVES)
def test_decay_rate_one_keeps_all_values(parameters):
    X, Y = golden.numbers(), golden.values()
    model = PolyleafRegressor(**SMALL | parameters).fit(X, Y)
    before = model.predict(X)
    model.refit(X[:50], Y[:50] + 10.0, decay_rate=1)
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("parameters", LEAVES.values(), ids=LEAVES)
def test_leaves_that_no_row_reaches_keep_their_values(parameters):
    X, Y = golden.numbers(), golden.values()
    model = PolyleafRegressor(**SMALL | parameters).fit(X, Y)
    old = [(tree.kind, tree.leaves) for tree in model.model_.trees]
    few = np.flatnonzero(X[:, 0] < -1)
    model.refit(X[few], Y[few])
    reached, n_kept = model.apply(X[few]), 0
    for t, (kind, leaves) in enumerate(old):
        new = model.model_.trees[t].leaves
        for leaf in set(range(model.model_.trees[t].n_leaves)) - set(reached[:, t].tolist()):
            values = [LEAF_KINDS[kind].value(each, leaf) for each in (leaves, new)]
            if "monotone" not in str(parameters):
                np.testing.assert_array_equal(*values)
            n_kept += 1
    assert n_kept > 0


def test_monotone_constraints_hold_after_a_refit_on_few_rows():
    X, Y = golden.numbers(), golden.values()
    for name in ("monotone", "monotone layers"):
        model = PolyleafRegressor(**SMALL | LEAVES[name]).fit(X, Y)
        model.refit(X[:30], Y[:30, ::-1] * [[-3.0]], decay_rate=0.25)
        grid = np.repeat(X[:20], 9, axis=0)
        grid[:, 0] = np.tile(np.linspace(-4, 4, 9), 20)
        steps = np.diff(model.predict(grid).reshape(20, 9, 3), axis=1)
        assert steps.min() >= -1e-5


def test_outputs_without_targets_keep_their_values():
    X, Y = golden.numbers(), golden.values().copy()
    model = PolyleafRegressor(missing_targets="ignore", **SMALL | {"n_estimators": 1}).fit(X, Y)
    old = model.model_.trees[0].leaves
    first = model.apply(X)[:, 0] == 0
    Y[first, 1] = np.nan
    model.refit(X, Y)
    new = model.model_.trees[0].leaves
    assert new[0, 1] == old[0, 1]
    assert (new[1:, 1] != old[1:, 1]).any()


@pytest.mark.parametrize("objective", ["squared_error", "quantile", "normal", "logistic"])
def test_targets_without_values_keep_their_predictions(objective):
    """Other targets are refitted: the columns of a matrix, or a task."""
    X, Y = golden.numbers(), golden.values()
    cls, parameters = PolyleafRegressor, {"objective": objective, "missing_targets": "ignore"}
    if objective == "logistic":
        cls, Y = PolyleafClassifier, (Y > np.median(Y, axis=0)).astype(float)
    if objective == "quantile":
        parameters |= {"quantile_alpha": [0.1, 0.9], "calibrate_quantiles": False}
    model = cls(**SMALL | parameters).fit(X, Y + 9 * (cls is PolyleafRegressor))
    before = model.predict_raw(X).reshape(len(X), Y.shape[1], -1)
    Y_new = Y.copy()
    Y_new[:, 1] = np.nan
    after = model.refit(X[:200], Y_new[:200]).predict_raw(X).reshape(before.shape)
    np.testing.assert_array_equal(after[:, 1], before[:, 1])
    assert (after[:, 0] != before[:, 0]).any()
    with pytest.raises(ValueError, match="y has no value of positive weight to learn from"):
        model.refit(X, np.full_like(Y, np.nan))


def test_tasks_without_values_keep_their_predictions():
    X, Y = golden.numbers(), golden.values()
    tasks = {"a": Y[:, 0] + 9, "b": (Y[:, 1] > 0).astype(float)}
    model = PolyleafMultiTask(
        {"b": "logistic", "a": "squared_error"}, missing_targets="ignore", **SMALL
    ).fit(X, tasks)
    before = model.predict(X)["a"]
    model.refit(X, tasks | {"a": np.full(len(X), np.nan)})
    np.testing.assert_array_equal(model.predict(X)["a"], before)


def test_weights_of_zero_leave_rows_out():
    X, Y = golden.numbers(), golden.values()
    models = [PolyleafRegressor(**SMALL).fit(X, Y) for _ in range(2)]
    weight = (np.arange(len(X)) < 300).astype(float)
    models[0].refit(X, Y, sample_weight=weight)
    models[1].refit(X[:300], Y[:300])
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))


def test_models_are_refitted_to_new_ones():
    X, Y = golden.numbers(), golden.values()
    estimator = PolyleafRegressor(**SMALL).fit(X, Y)
    before = estimator.model_.to_bytes()
    other = refit(estimator, X[:200], Y[:200], decay_rate=0.5)
    model = refit(estimator.model_, X[:200], Y[:200], decay_rate=0.5)
    assert isinstance(model, Model) and isinstance(other, PolyleafRegressor)
    assert model.to_bytes() == other.model_.to_bytes() != before
    assert estimator.model_.to_bytes() == before
    with pytest.raises(TypeError, match="model must be a fitted estimator"):
        refit("model", X, Y)
    del model.metadata["estimator"]
    with pytest.raises(ValueError, match="not trained by an estimator"):
        refit(model, X, Y)


def test_a_search_refits_with_the_parameters_that_it_has_found():
    X, Y = golden.numbers(), golden.values()
    search = PolyleafRegressorCV(n_candidates=3, n_estimators=4, random_state=0).fit(X, Y)
    before = search.model_.to_bytes()
    assert search.refit(X, Y).model_.to_bytes() == before


def test_another_loss_refits_the_leaves():
    X, Y = golden.numbers(), golden.values()
    model = PolyleafRegressor(**SMALL | {"n_estimators": 1, "learning_rate": 1.0}).fit(X, Y)
    model.set_params(objective="absolute_error").refit(X, Y)
    leaves = model.apply(X)[:, 0]
    for leaf in range(leaves.max() + 1):
        rows = leaves == leaf
        predicted = model.predict(X[rows][:1])
        below, above = np.mean(Y[rows] < predicted, axis=0), np.mean(Y[rows] > predicted, axis=0)
        assert max(*below, *above) <= 0.5
    assert model.model_.objective.name == "absolute_error"


# --- calibrations and bad input ---


def test_calibrations_of_the_old_rows_are_dropped_with_a_warning():
    X, Y = golden.numbers(), golden.values()
    model = PolyleafRegressor(**SMALL).fit(X, Y).calibrate(X, Y, coverage=0.8)
    with pytest.warns(UserWarning, match="refit has dropped the intervals"):
        model.refit(X, Y)
    with pytest.raises(ValueError, match="not calibrated"):
        model.predict_interval(X)
    model.calibrate(X, Y, coverage=0.8)
    with pytest.warns(UserWarning, match=r"rows\. Call calibrate"):
        model.refit(X, Y, recalibrate=True)


def test_quantiles_are_calibrated_again_if_asked():
    X, y = golden.numbers(), golden.one()
    levels = {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
    model = PolyleafRegressor(**SMALL, **levels).fit(X, y)
    with pytest.warns(UserWarning, match="shifts of quantiles"):
        model.refit(X[:200], y[:200])
    assert model.model_.target_offset is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.refit(X[:200], y[:200], recalibrate=True)
    assert model.model_.target_offset is not None


@pytest.mark.parametrize("decay_rate", [-0.1, 1.5, np.nan, "much", None])
def test_decay_rate_must_be_a_share(decay_rate):
    model = PolyleafRegressor(**SMALL).fit(golden.numbers(), golden.values())
    with pytest.raises(ValueError, match="decay_rate must be a number from 0 to 1"):
        model.refit(golden.numbers(), golden.values(), decay_rate=decay_rate)


def test_models_do_not_change_if_a_refit_fails():
    X, y = golden.numbers(), golden.classes()
    model = PolyleafClassifier(**SMALL).fit(X, y)
    before = model.model_.to_bytes()
    with pytest.raises(ValueError, match="label 'x'"):
        model.refit(X, np.where(y == 0, "x", "y"))
    with pytest.raises(ValueError, match="features"):
        model.refit(X[:, :3], y)
    model.set_params(leaf="linear")
    with pytest.raises(
        ValueError, match="leaf='linear' cannot refit tree 0, which has leaf='constant'"
    ):
        model.refit(X, y)
    assert model.model_.to_bytes() == before
    assert model.n_features_in_ == 6


@pytest.mark.parametrize("objective", ["poisson", "logistic", "softmax"])
def test_pruned_layers_keep_their_predictions(objective):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 4))
        y = np.exp(X[:, 0]) + 0.1 * rng.random(300)
        layers = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 4}
        settings = {"n_estimators": 4, "random_state": 0, "pruning": "post", **layers}
        if objective == "poisson":
            model = PolyleafRegressor(objective=objective, min_split_gain=0.5, **settings)
        else:
            y = (y > 1).astype(int) + (objective == "softmax") * (y > 2)
            model = PolyleafClassifier(min_split_gain=0.02, **settings)
        before = model.fit(X, y).predict_raw(X)
        np.testing.assert_array_equal(model.refit(X, y).predict_raw(X), before)


@pytest.mark.parametrize("is_missing", [False, True])
def test_linear_leaves_of_outputs_without_rows_keep_their_bits(is_missing):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 4))
        Y = X[:, :2] + 0.1 * rng.normal(size=(300, 2))
        is_out = rng.random(Y.shape) < 0.4
        weight = None if is_missing else rng.exponential(size=Y.shape) * ~is_out
        Y = np.where(is_out, np.nan, Y) if is_missing else Y
        model = PolyleafRegressor(
            leaf="linear", n_estimators=4, random_state=0, missing_targets="ignore"
        )
        before = model.fit(X, Y, weight).model_.to_bytes()
        assert model.refit(X, Y, weight).model_.to_bytes() == before
