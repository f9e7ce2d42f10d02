"""Training on a GPU gives the bytes of the CPU; the device is the host, see `host_device`."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from support import golden, host_device

from polyleaf import Dataset, PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
from polyleaf.callbacks import Callback

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(host_device.COMPILER is None, reason="g++ is not installed"),
]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
Y = np.stack([X[:, 0] + X[:, 1] ** 2, X[:, 2] - X[:, 0], np.sign(X[:, 3])], axis=1)
CLASSES = Y.argmax(axis=1)
X[RNG.random(300) < 0.2, 0], X[:, 4] = np.nan, RNG.integers(0, 9, 300)
SMALL = {"n_estimators": 4, "max_leaves": 6, "n_jobs": 1}


@pytest.fixture(autouse=True)
def device(monkeypatch):
    host_device.use(monkeypatch)


def scores(kind, y, fit=None, **parameters):
    """Return raw scores of models trained on the CPU and on the device."""
    made = []
    for device in ("cpu", "cuda"):
        model = kind(**SMALL | parameters, device=device).fit(X, y, **(fit or {}))
        made.append((model.model_.predict_raw(X), model))
    return made


def assert_same(kind, y, fit=None, **parameters):
    (here, _), (there, model) = scores(kind, y, fit, **parameters)
    np.testing.assert_array_equal(here, there)
    return model


def assert_same_bytes(kind, y, fit=None, **parameters):
    """Compare the model files, not only raw scores."""
    (_, here), (_, there) = scores(kind, y, fit, **parameters)
    assert golden._lasting(here.model_.to_bytes()) == golden._lasting(there.model_.to_bytes())
    return there


OFFSET = {"offset": RNG.normal(size=Y.shape)}
ROWS, OUTPUTS = {"sample_weight": RNG.random(300)}, {"sample_weight": RNG.random(Y.shape)}
COUNTED = {"sample_weight": RNG.integers(0, 3, 300)}
LABELS = RNG.random((300, 70)) < 0.3
MANY = np.tile(Y, 7)
NONE = {"hessian": "none", "leaf_hessian": "none"}
EACH = {"multi_strategy": "one_output_per_tree"}
GOSS = {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.3}
LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3, "max_leaves": None}
SKETCH = {"sketch": "random_projection", "sketch_dim": 2}
FULL = {"hessian": "full"}


@pytest.mark.parametrize(
    ("y", "fit", "parameters"),
    [
        (np.abs(Y), OFFSET, {"objective": "poisson"}),
        (Y[:, 0], {}, {"objective": "normal"}),  # computed on the host
        (Y, {}, {"objective": lambda y, z: (z - y, np.full_like(y, 2.0))}),
        (Y, COUNTED, {}),
        (Y, OUTPUTS, EACH),
        (Y, OUTPUTS, NONE),
        (Y, OUTPUTS, NONE | EACH),
        (Y, {}, EACH | {"objective": "absolute_error"}),
        (Y, OFFSET, EACH | {"objective": "absolute_error"}),
        (np.ones((300, 2)), {}, {"base_score": 0.0, "learning_rate": 1.0, "n_estimators": 20}),
        (Y, {}, LAYERS | {"objective": "absolute_error"}),
        (Y[:, 0], {}, LAYERS | {"objective": "normal"}),
        (np.abs(Y), OFFSET, LAYERS | {"objective": "poisson"}),
        (MANY, {}, LAYERS | SKETCH),
        (Y, COUNTED, LAYERS),
        (MANY, {}, {"sketch": "count_sketch", "sketch_dim": 5}),
        (np.abs(MANY), {}, SKETCH | {"objective": "poisson"}),
        (np.abs(MANY), ROWS, SKETCH | {"objective": "poisson", "hessian": "none"}),
        (MANY, {"sample_weight": RNG.random(MANY.shape)}, SKETCH),
        (Y, {}, FULL | {"leaf_hessian": "full"}),
        (Y, OUTPUTS, FULL),
        (Y[:, 0], {}, FULL),
        (np.abs(Y), {}, {"objective": "poisson", "leaf_hessian": "block", "block_size": 2}),
    ],
)
def test_regressors(y, fit, parameters):
    assert_same(PolyleafRegressor, y, fit, **parameters)


@pytest.mark.parametrize(
    ("y", "fit", "parameters"),
    [
        (Y[:, 0] > 0, {"offset": OFFSET["offset"][:, 0]}, {}),
        (Y[:, 0] > 0, {}, {"objective": "exponential"}),  # computed on the host
        (LABELS, {}, {"max_leaves": 4, "n_estimators": 2}),
        (LABELS[:, :5], {}, {"leaf_hessian": "shared"}),
        (LABELS, ROWS, SKETCH | {"leaf_hessian": "shared"}),
        (CLASSES, ROWS, SKETCH | {"leaf_hessian": "shared"}),
        (Y > 0, {}, NONE | {"scale_pos_weight": 9.0}),
        (Y > 0, {}, NONE | EACH | {"scale_pos_weight": 9.0}),
        (CLASSES, {}, FULL | {"min_child_weight": 3.0, "reg_lambda": 0.0}),
        (CLASSES, ROWS, FULL | {"leaf_hessian": "full", "categorical_features": [4]}),
        (CLASSES, ROWS, SKETCH | {"leaf_hessian": "full"}),
        (CLASSES, {}, {"hessian": "block", "block_size": 2, "subsample": 0.5}),
        (CLASSES, {}, GOSS | {"leaf_hessian": "block", "block_size": 2}),
        (CLASSES, {}, LAYERS | {"hessian": "block", "block_size": 2, "leaf_hessian": "none"}),
        (CLASSES, {}, LAYERS | FULL | {"leaf_hessian": "block", "rows_per_layer": [0.5, 0.8]}),
    ],
)
def test_classifiers(y, fit, parameters):
    model = assert_same(PolyleafClassifier, np.asarray(y, int), fit, **parameters)
    more = {"init_model": model.model_} | fit
    assert_same(PolyleafClassifier, np.asarray(y, int), more, **parameters)


def test_tasks_with_scaled_gains():
    objective = {"value": "squared_error", "sign": "logistic"}
    assert_same(PolyleafMultiTask, {"value": Y[:, 0], "sign": Y[:, 1] > 0}, objective=objective)


@pytest.mark.parametrize("heaviest", [1e4, 1e9])
def test_heavy_rows(heaviest):
    """Check weights that are limited and rounded at random."""
    weight = np.ones(300)
    weight[5] = heaviest
    heavy = {"sample_weight": weight}
    assert_same(PolyleafRegressor, Y, heavy)
    assert_same(PolyleafRegressor, Y, heavy, objective="absolute_error")
    assert_same(PolyleafClassifier, CLASSES, heavy, subsample=0.7)
    assert_same(PolyleafRegressor, Y, heavy, hessian="none", leaf_hessian="shared")
    exposure = {"offset": np.log(heaviest) * OFFSET["offset"]}
    assert_same(PolyleafRegressor, np.abs(Y), exposure, objective="poisson")


@pytest.mark.parametrize("parameters", [{"n_estimators": 6}, LAYERS], ids=str)
def test_evaluation_sets_and_continued_training(parameters):
    watched = {"eval_set": [(X[:50], Y[:50])]}
    model = assert_same(PolyleafRegressor, Y, watched, early_stopping_rounds=2, **parameters)
    assert_same(PolyleafRegressor, Y, {"init_model": model.model_}, **parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"rows_per_layer": [0.25, 0.5, 1.0]},
        {"rows_per_layer": [1.0, 150, 80]},
        {"subsample": 0.5},
        GOSS,
        {"pruning": "post", "min_split_gain": 0.5},
        {"pruning": "post", "rows_per_layer": [0.3, 0.6], "min_split_gain": 0.2},
        {"max_leaves": 5},
        {"max_depth": None, "max_leaves": 9},
        {"colsample_bynode": 0.5, "colsample_bytree": 0.7},
        {"hessian": "shared", "min_child_weight": 3.0},
        NONE,
        EACH,
        {"categorical_features": [4], "max_cat_to_onehot": 2},
        {"min_split_gain": 1e9},
        {"histogram_memory": 1},
    ],
    ids=str,
)
def test_layer_wise_boosting(parameters):
    assert_same(PolyleafClassifier, CLASSES, **LAYERS | parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"leaf_output_set": "shared"},
        {"subsample": 0.5},
        GOSS,
        {"reg_alpha": 0.5, "max_delta_step": 0.2},
        {"boosting_step": "tree", "hessian": "shared", "leaf_hessian": "none"},
        SKETCH,
        {"categorical_features": [4]},
    ],
    ids=str,
)
def test_sparse_leaves(parameters):
    model = assert_same(PolyleafClassifier, CLASSES, leaf="sparse", leaf_k=2, **parameters)
    assert_same(PolyleafRegressor, np.tile(Y, 6), leaf="sparse", leaf_k=3, **parameters)
    more = {"init_model": model.model_}
    assert_same(PolyleafClassifier, CLASSES, more, leaf="sparse", leaf_k=1, **parameters)


RULES = {"monotone_constraints": [[1, -1, 0], [0, 1, 1], [0, 0, 0], [-1, 1, 0], [0, 0, 0]]}
PENALTIES = {"feature_penalties": [0.0, 0.5, 0.9, 0.2, 0.0]}


@pytest.mark.parametrize("rules", [RULES, RULES | PENALTIES])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_leaves": None, "max_depth": 3, "grow_policy": "depthwise"},
        {"categorical_features": [4]},
        {"hessian": "none", "leaf_hessian": "shared"},
        EACH,
        {"subsample": 0.5, "colsample_bynode": 0.6},
        GOSS,
        {"pruning": "post", "min_split_gain": 0.2},
        {"reg_alpha": 0.3, "max_delta_step": 0.5},
        LAYERS,
        LAYERS | {"pruning": "post", "min_split_gain": 0.2, "rows_per_layer": [0.3, 0.6]},
    ],
    ids=str,
)
def test_monotone_constraints(rules, parameters):
    labels = (np.nan_to_num(X[:, :3]) + Y > 0).astype(int)
    assert_same_bytes(PolyleafRegressor, Y, **rules, **parameters)
    assert_same_bytes(PolyleafClassifier, labels, **rules, **parameters)


@pytest.mark.parametrize("objective", ["absolute_error", "huber", "poisson", "gamma", "tweedie"])
def test_monotone_constraints_with_other_losses(objective):
    for parameters in (RULES, RULES | LAYERS):
        assert_same_bytes(PolyleafRegressor, np.exp(Y), objective=objective, **parameters)


def test_monotone_constraints_with_weights_offsets_quantiles_and_init_model():
    rule = {"monotone_constraints": [1, 0, -1, 0, 0]}
    assert_same_bytes(PolyleafRegressor, Y, ROWS, **rule)
    assert_same_bytes(PolyleafRegressor, Y, OUTPUTS, **rule)
    assert_same_bytes(PolyleafRegressor, np.abs(Y), OFFSET, objective="poisson", **rule)
    levels = {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
    assert_same_bytes(PolyleafRegressor, Y[:, :2], **levels, **rule)
    model = assert_same_bytes(PolyleafClassifier, CLASSES, **rule)
    assert_same_bytes(PolyleafClassifier, CLASSES, {"init_model": model.model_}, **rule)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"categorical_features": [4]},
        SKETCH,
        {"leaf": "sparse", "leaf_k": 2},
        FULL,
        EACH,
        {"pruning": "post"},
        LAYERS,
    ],
    ids=str,
)
def test_feature_penalties(parameters):
    free = scores(PolyleafClassifier, CLASSES, **parameters)[0][0]
    model = assert_same_bytes(PolyleafClassifier, CLASSES, **PENALTIES, **parameters)
    assert not np.array_equal(model.model_.predict_raw(X), free)
    assert_same_bytes(PolyleafRegressor, Y, **PENALTIES, **parameters)


class Interrupt(Callback):
    """Raise KeyboardInterrupt in round 2."""

    def after_iteration(self, model, round, evals_log):
        if round == 2:
            raise KeyboardInterrupt
        return False


def test_interrupted_training_keeps_its_rounds():
    model = PolyleafRegressor(**SMALL, device="cuda", on_interrupt="keep", callbacks=[Interrupt()])
    with pytest.warns(UserWarning):
        assert model.fit(X, Y).model_.n_rounds in (2, 3)


def test_estimators_can_be_pickled():
    model = PolyleafRegressor(**SMALL, device="cuda").fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_sparse_features_equal_dense_features():
    few = csr_matrix(np.where(RNG.random((300, 20)) < 0.02, RNG.integers(1, 5, (300, 20)), 0.0))
    here = PolyleafRegressor(**SMALL, device="cpu").fit(few, Y)
    there = PolyleafRegressor(**SMALL, device="cuda").fit(few, Y)
    assert len(np.unique(here.predict(few), axis=0)) > 3
    np.testing.assert_array_equal(there.predict(few), here.predict(few))


def test_memory_mapped_features_equal_features_in_memory(tmp_path):
    parts = [(X[:120], Y[:120]), (X[120:], Y[120:])]
    filed = Dataset.from_batches(lambda: iter(parts), cache_dir=tmp_path)
    there = PolyleafRegressor(**SMALL, device="cuda").fit(filed)
    np.testing.assert_array_equal(there.predict(X), PolyleafRegressor(**SMALL).fit(X, Y).predict(X))
