"""Hostile model files: small valid files of every kind with random changes."""

import json
import warnings
from functools import cache

import numpy as np
import pandas as pd
import scipy.sparse as sp

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.estimators._persistence import make_estimator_builder
from polyleaf.inspection.model_summary import dump_json, nodes_table, summary
from polyleaf.model import serialize
from polyleaf.model.serialize import ModelFileError
from support.model_files import reseal

ESTIMATORS = {cls.__name__: cls for cls in (PolyleafRegressor, PolyleafClassifier)}
SMALL = {"n_estimators": 2, "max_leaves": 4, "min_child_samples": 5, "random_state": 0, "n_jobs": 1}
N_ROWS = 60

ODD = (
    *(None, True, False, 0, -1, 1, 2, 3, 255, 256, 2**31 - 1, 2**31, 2**53, 2**63, -(2**63)),
    *(10**30, 1e308, -1e308, 1e-308, float("nan"), float("inf"), 0.5, "", "x", "softmax"),
    *("regression", "multilabel", [], {}, [[]], [None] * 3, [0, 1, 2], ["a", "b"]),
    *({"name": "softmax", "n_classes": 7}, {"name": "quantile"}),
    *({"dtype": "<U1000000000", "labels": ["a"]}, {"dtype": "O", "labels": []}),
)


@cache
def data():
    """Return X as an array and as a frame, and targets."""
    rng = np.random.default_rng(0)
    X = rng.integers(-16, 16, (N_ROWS, 4)) / 4.0
    X[rng.random(X.shape) < 0.1] = np.nan
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["colour"] = pd.Categorical(rng.choice(["red", "green", "blue"], N_ROWS))
    Y = np.nan_to_num(X[:, :3]) + rng.normal(size=(N_ROWS, 3))
    return X, frame, Y


@cache
def seeds():
    """Return {name: (content of a valid file, X that its model accepts)}."""
    X, frame, Y = data()
    classes, labels = Y.argmax(axis=1), (Y > 0).astype(int)
    wide, many = (
        sp.csr_matrix((np.random.default_rng(seed).random((N_ROWS, k)) < p).astype(np.float32))
        for seed, k, p in ((1, 40, 0.2), (2, 1100, 0.01))
    )
    few = SMALL | {"leaf": "sparse", "leaf_k": 2}
    town = np.arange(810) % 270
    towns = pd.DataFrame({"town": pd.Categorical([f"t{i}" for i in town]), "x": np.arange(810) % 7})
    two = {"objective": "quantile", "quantile_alpha": [0.2, 0.8]}
    stopped = SMALL | {"n_estimators": 4, "validation_fraction": 0.3, "early_stopping_rounds": 1}
    pca = few | {"projection": "pca", "projection_dim": 3, "tfidf": True}
    words = np.array(["no", "yes"])[labels[:, 0]]
    named = pd.DataFrame(Y, columns=list("pqr"))
    made = {
        "numbers": (PolyleafRegressor(**SMALL), X, Y),
        "one number": (PolyleafRegressor(**SMALL), frame, Y[:, 0]),
        "named": (PolyleafRegressor(normalize_targets=True, **SMALL), frame, named),
        "quantiles": (PolyleafRegressor(**SMALL, **two), X, Y[:, 0]),
        "linear": (PolyleafRegressor(leaf="linear", **SMALL), X, Y),
        "many categories": (PolyleafRegressor(**SMALL), towns, town / 30),
        "one by one": (PolyleafRegressor(multi_strategy="one_output_per_tree", **SMALL), X, Y),
        "custom": (PolyleafRegressor(objective=_halved, **SMALL), X, Y),
        "early stopping": (PolyleafRegressor(**stopped), X, Y),
        "two classes": (PolyleafClassifier(**SMALL), X, words),
        "classes": (PolyleafClassifier(**SMALL), frame, np.array(["a", "b", "c"], object)[classes]),
        "each against the rest": (PolyleafClassifier("logistic", **SMALL), X, classes * 2),
        "labels": (PolyleafClassifier(**SMALL), X, labels),
        "sparse labels": (PolyleafClassifier(**few), X, many),
        "projected": (PolyleafClassifier(**pca), wide, many),
    }
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (estimator, features, y) in made.items():
            found[name] = estimator.fit(features, y).model_.to_bytes(), features
        for name, estimator, y in (
            ("intervals", PolyleafRegressor(**SMALL), Y),
            ("sets", PolyleafClassifier(threshold=0.4, **SMALL), labels),
        ):
            offset = np.zeros(Y.shape)
            estimator.fit(X, y, offset=offset).calibrate(X, y, coverage=0.8, offset=offset)
            found[name] = estimator.model_.to_bytes(), X
    numbers = PolyleafRegressor(**SMALL).fit(X, Y).model_
    return found | {dtype: (numbers.to_bytes(dtype), X) for dtype in ("float16", "int8")}


def _halved(y_true, y_pred):
    return 0.5 * (y_pred - y_true), None


# --- changes ---


def mutant(rng):
    """Draw a changed file, and return it with X for its model."""
    name = list(seeds())[rng.integers(len(seeds()))]
    content, X = seeds()[name]
    kind = rng.random()
    if kind < 0.1:
        return _damaged(content, rng), X

    def change(header, arrays):
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            if rng.random() < 0.5:
                _change_header(header, rng)
            else:
                _change_arrays(arrays, rng)

    try:
        return reseal(content, change), X
    except (ValueError, TypeError, OverflowError):  # values that JSON or safetensors cannot write
        return _damaged(content, rng), X


def _damaged(content, rng):
    """Flip, cut, insert or duplicate bytes, as damage by disks and networks does."""
    damaged, at = bytearray(content), int(rng.integers(len(content)))
    kind = rng.integers(4)
    if kind == 0:
        damaged[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del damaged[at:]
    elif kind == 2:
        damaged[at:at] = rng.bytes(int(rng.integers(1, 9)))
    else:
        damaged[at : at + 8] = (2 ** int(rng.integers(64))).to_bytes(8, "little")
    return bytes(damaged)


def _change_header(header, rng):
    """Replace, remove, repeat or change one entry of the header at a random place."""
    place, key = header, _key(header, rng)
    while isinstance(place[key], dict | list) and len(place[key]) and rng.random() < 0.75:
        place, key = place[key], _key(place[key], rng)
    kind = rng.random()
    if kind < 0.15:
        del place[key]
    elif kind < 0.3 and isinstance(place, dict):
        place[key] = place[_key(place, rng)]
    elif kind < 0.4 and isinstance(place[key], list):
        place[key] = place[key] * 2
    elif kind < 0.6 and type(place[key]) in (int, float):
        place[key] += int(rng.integers(-3, 4))
    else:
        place[key] = ODD[rng.integers(len(ODD))]


def _key(place, rng):
    keys = sorted(place) if isinstance(place, dict) else range(len(place))
    return keys[int(rng.integers(len(keys)))]


def _change_arrays(arrays, rng):
    name = str(rng.choice(sorted(arrays)))
    array = arrays[name]
    kind = rng.integers(8)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[name] = array[: rng.integers(len(array) + 1)]
    elif kind == 2:
        arrays[name] = np.concatenate([array, array[: rng.integers(1, 3)]])
    elif kind == 3:
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(
                rng.choice(["int32", "int64", "float32", "float64", "uint8", "bool"])
            )
    elif kind == 4:
        arrays[name] = array.reshape(1, *array.shape) if rng.random() < 0.5 else array.reshape(-1)
    elif array.size and kind == 5 and array.dtype.kind == "f":
        array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf, 6e4, -1.0, 0.0])
    elif array.size and kind == 6 and array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        odd = [info.min, info.max, info.max // 2, *range(max(info.min, -5), 40)]
        array.flat[rng.integers(array.size)] = odd[rng.integers(len(odd))]
    elif array.size:
        flat = array.reshape(-1).view(np.uint8)
        flat[rng.integers(len(flat))] = rng.integers(256)


# --- the rule ---


def take(content, X):
    """Return whether a file loads, and predict with it.

    Exceptions other than `ModelFileError` propagate.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            estimator = serialize.from_bytes(content, make_estimator_builder(ESTIMATORS))
        except ModelFileError as error:
            assert str(error)
            return False
        use(estimator, X)
    return True


def use(estimator, X):
    """Call all functions that read a model, with generated data if X does not fit it."""
    model = estimator.model_
    X = X[:7]
    fits = X.shape[1] == estimator.n_features_in_
    names = getattr(estimator, "feature_names_in_", None)
    fits = fits and (names is None) == (not hasattr(X, "columns"))
    if fits and names is not None:
        fits = list(X.columns) == list(names)
    if fits and model.projection is None:
        given = [column.feature for column in _table(X).categories]
        fits = given == np.flatnonzero(model.mapper.is_categorical_).tolist()
    if fits:
        n = (
            len(estimator.predict(X))
            if model.n_outputs < 1000
            else estimator.predict(X, sparse=False).shape[0]
        )
        assert n == 7
        if hasattr(estimator, "predict_proba"):
            estimator.predict_proba(X)
        if "intervals" in model.metadata and hasattr(estimator, "predict_interval"):
            assert estimator.predict_interval(X).shape[-1] == 2
        if "prediction_sets" in model.metadata and hasattr(estimator, "predict_set"):
            assert len(estimator.predict_set(X)) == 7
        estimator.apply(X)
        if estimator._encoding.kind != "binary":
            estimator.predict_topk(X, 2)
        for _ in estimator.staged_predict(X):
            pass
    shape = model.n_features, 5
    model.predict_raw_binned(np.zeros(shape, np.uint8), features=np.zeros(shape, np.float32))
    assert not np.isnan(estimator.feature_importances_).any()
    json.dumps(dump_json(model), default=str)
    nodes_table(model, "dict")
    assert summary(model)
    assert model.copy().n_rounds == model.n_rounds


def _table(X):
    from polyleaf.user_data.features import read_features

    return read_features(X)
