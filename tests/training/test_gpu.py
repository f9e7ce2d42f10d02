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


def test_offsets():
    assert_same(
        PolyleafRegressor, np.abs(Y), {"offset": RNG.normal(size=Y.shape)}, objective="poisson"
    )
    assert_same(PolyleafClassifier, Y[:, 0] > 0, {"offset": RNG.normal(size=300)})


def test_unsupported_losses_are_computed_on_the_host():
    assert_same(PolyleafRegressor, Y[:, 0], objective="normal")
    assert_same(PolyleafRegressor, Y, objective=lambda y, z: (z - y, np.full_like(y, 2.0)))
    assert_same(PolyleafClassifier, Y[:, 0] > 0, objective="exponential")


def test_tasks_with_scaled_gains():
    objective = {"value": "squared_error", "sign": "logistic"}
    assert_same(PolyleafMultiTask, {"value": Y[:, 0], "sign": Y[:, 1] > 0}, objective=objective)


def test_hessians_of_many_outputs():
    labels = RNG.random((300, 70)) < 0.3
    assert_same(PolyleafClassifier, labels.astype(int), max_leaves=4, n_estimators=2)
    assert_same(PolyleafClassifier, labels[:, :5].astype(int), leaf_hessian="shared")


def test_weights_per_row_and_per_output():
    assert_same(PolyleafRegressor, Y, {"sample_weight": RNG.integers(0, 3, 300)})
    assert_same(
        PolyleafRegressor,
        Y,
        {"sample_weight": RNG.random(Y.shape)},
        multi_strategy="one_output_per_tree",
    )


@pytest.mark.parametrize("strategy", ["multi_output_tree", "one_output_per_tree"])
def test_weights_instead_of_hessians(strategy):
    none = {"hessian": "none", "leaf_hessian": "none", "multi_strategy": strategy}
    assert_same(PolyleafRegressor, Y, {"sample_weight": RNG.random(Y.shape)}, **none)
    assert_same(PolyleafClassifier, (Y > 0).astype(int), scale_pos_weight=9.0, **none)


@pytest.mark.parametrize("heaviest", [1e4, 1e9])
def test_heavy_rows(heaviest):
    """Check weights that are limited and rounded at random."""
    weight = np.ones(300)
    weight[5] = heaviest
    given = {"sample_weight": weight}
    assert_same(PolyleafRegressor, Y, given)
    assert_same(PolyleafRegressor, Y, given, objective="absolute_error")
    assert_same(PolyleafClassifier, CLASSES, given, subsample=0.7)
    assert_same(PolyleafRegressor, Y, given, hessian="none", leaf_hessian="shared")
    exposure = {"offset": np.log(heaviest) * RNG.normal(size=Y.shape)}
    assert_same(PolyleafRegressor, np.abs(Y), exposure, objective="poisson")


def test_medians_with_one_output_per_tree():
    one = {"multi_strategy": "one_output_per_tree", "objective": "absolute_error"}
    assert_same(PolyleafRegressor, Y, **one)
    assert_same(PolyleafRegressor, Y, {"offset": RNG.normal(size=Y.shape)}, **one)


def test_continued_training_and_evaluation_sets():
    model = assert_same(
        PolyleafRegressor,
        Y,
        {"eval_set": [(X[:50], Y[:50])]},
        early_stopping_rounds=2,
        n_estimators=6,
    )
    more = {"init_model": model.model_}
    assert_same(PolyleafRegressor, Y, more)


def test_end_of_growth():
    assert_same(
        PolyleafRegressor,
        np.ones((300, 2)),
        base_score=[0.0, 0.0],
        learning_rate=1.0,
        n_estimators=20,
    )


LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3, "max_leaves": None}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"rows_per_layer": [0.25, 0.5, 1.0]},
        {"rows_per_layer": [1.0, 150, 80]},
        {"subsample": 0.5},
        {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.3},
        {"pruning": "post", "min_split_gain": 0.5},
        {"pruning": "post", "rows_per_layer": [0.3, 0.6], "min_split_gain": 0.2},
        {"max_leaves": 5},
        {"max_depth": None, "max_leaves": 9},
        {"colsample_bynode": 0.5, "colsample_bytree": 0.7},
        {"hessian": "shared", "min_child_weight": 3.0},
        {"hessian": "none", "leaf_hessian": "none"},
        {"multi_strategy": "one_output_per_tree"},
        {"categorical_features": [4], "max_cat_to_onehot": 2},
        {"min_split_gain": 1e9},
        {"histogram_memory": 1},
    ],
    ids=str,
)
def test_layer_wise_boosting(parameters):
    assert_same(PolyleafClassifier, CLASSES, **LAYERS | parameters)


def test_layers_with_other_losses_and_offsets():
    assert_same(PolyleafRegressor, Y, objective="absolute_error", **LAYERS)
    assert_same(PolyleafRegressor, Y[:, 0], objective="normal", **LAYERS)
    assert_same(
        PolyleafRegressor,
        np.abs(Y),
        {"offset": RNG.normal(size=Y.shape)},
        objective="poisson",
        **LAYERS,
    )
    assert_same(
        PolyleafRegressor, np.tile(Y, 8), sketch="random_projection", sketch_dim=4, **LAYERS
    )
    assert_same(PolyleafRegressor, Y, {"sample_weight": RNG.integers(0, 3, 300)}, **LAYERS)


def test_layers_with_callbacks_and_continued_training():
    watched = {"eval_set": [(X[:50], Y[:50])]}
    model = assert_same(PolyleafRegressor, Y, watched, early_stopping_rounds=2, **LAYERS)
    assert_same(PolyleafRegressor, Y, {"init_model": model.model_}, **LAYERS)


@pytest.mark.parametrize("weights", [None, "rows", "outputs"])
@pytest.mark.parametrize(
    ("kind", "y", "parameters"),
    [
        (PolyleafRegressor, np.tile(Y, 7), {}),
        (PolyleafRegressor, np.tile(Y, 7), {"sketch": "count_sketch"}),
        (PolyleafRegressor, np.tile(np.abs(Y), 7), {"objective": "poisson"}),
        (PolyleafRegressor, np.tile(np.abs(Y), 7), {"objective": "poisson", "hessian": "none"}),
        (PolyleafClassifier, CLASSES, {"leaf_hessian": "shared"}),
        (PolyleafClassifier, np.tile(Y > 0, 7), {"leaf_hessian": "shared"}),
    ],
    ids=str,
)
def test_sketches(kind, y, parameters, weights):
    rng = np.random.default_rng(1)
    fit = None
    if weights == "rows" or (weights == "outputs" and y.ndim == 1):
        fit = {"sample_weight": rng.random(300)}
    elif weights == "outputs":
        fit = {"sample_weight": rng.random(y.shape)}
    assert_same(kind, y, fit, **{"sketch": "random_projection", "sketch_dim": 5} | parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"leaf_output_set": "shared"},
        {"subsample": 0.5},
        {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.3},
        {"reg_alpha": 0.5, "max_delta_step": 0.2},
        {"boosting_step": "tree", "hessian": "shared", "leaf_hessian": "none"},
        {"sketch": "random_projection", "sketch_dim": 2},
        {"categorical_features": [4]},
    ],
    ids=str,
)
def test_sparse_leaves(parameters):
    model = assert_same(PolyleafClassifier, CLASSES, leaf="sparse", leaf_k=2, **parameters)
    assert_same(PolyleafRegressor, np.tile(Y, 6), leaf="sparse", leaf_k=3, **parameters)
    more = {"init_model": model.model_}
    assert_same(PolyleafClassifier, CLASSES, more, leaf="sparse", leaf_k=1, **parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {"hessian": "full"},
        {"hessian": "full", "leaf_hessian": "full"},
        {"leaf_hessian": "full", "sketch": "random_projection", "sketch_dim": 2},
        {"hessian": "block", "block_size": 2, "subsample": 0.5},
        {"leaf_hessian": "block", "block_size": 2, "sampling_method": "goss"},
        {"hessian": "full", "min_child_weight": 3.0, "reg_lambda": 0.0},
        {"hessian": "full", "leaf_hessian": "full", "categorical_features": [4]},
        {
            "hessian": "full",
            "leaf_hessian": "block",
            "block_size": 2,
            "rows_per_layer": [0.5, 0.8],
            **LAYERS,
        },
        {"hessian": "block", "block_size": 2, "leaf_hessian": "none", **LAYERS},
    ],
    ids=str,
)
def test_full_hessians(parameters):
    model = assert_same(PolyleafClassifier, CLASSES, **parameters)
    assert_same(
        PolyleafClassifier,
        CLASSES,
        {"init_model": model.model_, "sample_weight": RNG.random(300)},
        **parameters,
    )


def test_full_hessians_of_separable_losses():
    assert_same(PolyleafRegressor, Y, hessian="full", leaf_hessian="full")
    assert_same(PolyleafRegressor, Y, {"sample_weight": RNG.random(Y.shape)}, hessian="full")
    assert_same(
        PolyleafRegressor, np.abs(Y), objective="poisson", leaf_hessian="block", block_size=2
    )
    assert_same(PolyleafRegressor, Y[:, 0], hessian="full")


OWN = np.array([[1, -1, 0], [0, 1, 1], [0, 0, 0], [-1, 1, 0], [0, 0, 0]])
PENALTIES = [0.0, 0.5, 0.9, 0.2, 0.0]


@pytest.mark.parametrize(
    "rules",
    [{"monotone_constraints": OWN}, {"monotone_constraints": OWN, "feature_penalties": PENALTIES}],
)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_leaves": None, "max_depth": 3, "grow_policy": "depthwise"},
        {"categorical_features": [4]},
        {"hessian": "none", "leaf_hessian": "shared"},
        {"multi_strategy": "one_output_per_tree"},
        {"subsample": 0.5, "colsample_bynode": 0.6},
        {"sampling_method": "goss", "top_rate": 0.3, "other_rate": 0.3},
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
    assert_same_bytes(PolyleafRegressor, np.exp(Y), objective=objective, monotone_constraints=OWN)
    assert_same_bytes(
        PolyleafRegressor, np.exp(Y), objective=objective, monotone_constraints=OWN, **LAYERS
    )


def test_monotone_constraints_with_weights_offsets_quantiles_and_init_model():
    rule = {"monotone_constraints": [1, 0, -1, 0, 0]}
    assert_same_bytes(PolyleafRegressor, Y, {"sample_weight": RNG.random(300)}, **rule)
    assert_same_bytes(PolyleafRegressor, Y, {"sample_weight": RNG.random(Y.shape)}, **rule)
    assert_same_bytes(
        PolyleafRegressor,
        np.abs(Y),
        {"offset": RNG.normal(size=Y.shape)},
        objective="poisson",
        **rule,
    )
    assert_same_bytes(
        PolyleafRegressor, Y[:, :2], objective="quantile", quantile_alpha=[0.1, 0.9], **rule
    )
    model = assert_same_bytes(PolyleafClassifier, CLASSES, **rule)
    assert_same_bytes(PolyleafClassifier, CLASSES, {"init_model": model.model_}, **rule)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"categorical_features": [4]},
        {"sketch": "random_projection", "sketch_dim": 2},
        {"leaf": "sparse", "leaf_k": 2},
        {"hessian": "full"},
        {"multi_strategy": "one_output_per_tree"},
        {"pruning": "post"},
        LAYERS,
    ],
    ids=str,
)
def test_feature_penalties(parameters):
    free = scores(PolyleafClassifier, CLASSES, **parameters)[0][0]
    model = assert_same_bytes(
        PolyleafClassifier, CLASSES, feature_penalties=PENALTIES, **parameters
    )
    assert not np.array_equal(model.model_.predict_raw(X), free)
    assert_same_bytes(PolyleafRegressor, Y, feature_penalties=PENALTIES, **parameters)


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


@pytest.mark.parametrize(
    ("parameters", "message"), [({"leaf": "linear"}, 'leaf="linear"')], ids=str
)
def test_unsupported_parameters_raise(parameters, message):
    with pytest.raises(ValueError, match='device="cuda"') as error:
        PolyleafRegressor(**SMALL, **parameters, device="cuda").fit(X, Y)
    assert message in str(error.value)


def test_sparse_targets_raise():
    few = csr_matrix(RNG.random((300, 20)) < 0.1).astype(float)
    with pytest.raises(ValueError, match="split_search"):
        PolyleafClassifier(**SMALL, leaf="sparse", leaf_k=2, device="cuda").fit(X, few)


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
