"""Hostile model files load and predict, or raise `ModelFileError`, in bounded memory."""

import subprocess
import sys

import numpy as np
import pytest
from support import mutants
from support.model_files import read_header, reseal

import polyleaf
from polyleaf.estimators._persistence import make_estimator_builder
from polyleaf.model import Model, serialize
from polyleaf.model.serialize import ModelFileError


def load_bytes(content):
    return serialize.from_bytes(content, make_estimator_builder(mutants.ESTIMATORS))


def change_model(seed, change):
    return reseal(mutants.seeds()[seed][0], change)


@pytest.mark.parametrize("seed", mutants.seeds())
def test_valid_files_load_and_predict(seed):
    assert mutants.take(*mutants.seeds()[seed])


def test_hostile_files_load_or_raise_model_file_error():
    taken = [mutants.take(*mutants.mutant(np.random.default_rng(seed))) for seed in range(400)]
    assert 0 < sum(taken) < len(taken)


@pytest.mark.full
def test_hundred_thousand_files():
    for seed in range(1000, 101_000):
        mutants.take(*mutants.mutant(np.random.default_rng(seed)))


# Metadata entries that must be rejected.
METADATA = [
    ("numbers", "parameters", None, "'parameters'"),
    ("numbers", "parameters", {"n_jobs": "y"}, "n_jobs"),
    ("numbers", "parameters", {"n_jobs": True}, "n_jobs must be an integer"),
    ("numbers", "parameters", {"n_jobs": 0}, "n_jobs must not be 0"),
    ("numbers", "estimator", None, "'estimator' of the model must be the name of a class"),
    ("intervals", "intervals", {"coverage": 0.9, "joint": False}, "one width per target"),
    ("sets", "prediction_sets", {"coverage": 0.9}, "a number as depth"),
    ("sets", "thresholds", [0.5, 0.5, 1.0], "3 probabilities"),
    ("intervals", "has_offsets", "yes", "true or false"),
    ("numbers", "estimator", "object", "it holds a object"),
    ("numbers", "estimator", "PolyleafClassifier", "does not learn a target of kind 'regression'"),
    ("numbers", "kind", "nonsense", "'kind' of the model must be one of"),
    ("numbers", "kind", "multilabel", "does not learn a target of kind 'multilabel'"),
    ("numbers", "n_outputs", 2, "do not have the model's 3 scores"),
    ("numbers", "n_outputs", 10**12, "from 1 to 3"),
    ("numbers", "n_outputs", 3.0, "from 1 to 3"),
    ("numbers", "one_dimensional", True, "'n_outputs' of the model must be 1"),
    (
        "numbers",
        "classes",
        {"dtype": "<i8", "labels": [1]},
        "'classes' of the model is for classification",
    ),
    ("numbers", "output_names", ["a", 1, "b"], "'output_names'.*3"),
    ("named", "offset", None, "'offset'.*scale"),
    ("named", "scale", [1.0, 0.0, 1.0], "'scale' of the model must be positive"),
    ("named", "scale", [1.0, float("nan"), 1.0], "finite"),
    ("numbers", "missing", "perhaps", "'missing' of the model must"),
    ("labels", "n_outputs", 300_000_000, "from 1 to 3"),
    ("two classes", "classes", {"dtype": "<U3", "labels": ["no"]}, "2 different labels"),
    ("two classes", "classes", {"dtype": "<U3", "labels": ["no", "no"]}, "2 different labels"),
    (
        "two classes",
        "classes",
        {"dtype": "<U1000000000", "labels": ["no", "yes"]},
        "text, numbers or booleans|too wide",
    ),
    ("two classes", "classes", {"dtype": "<U9999999", "labels": ["no", "yes"]}, "too wide"),
    (
        "two classes",
        "classes",
        {"dtype": "<M8[Y]", "labels": ["2020", "2021"]},
        "text, numbers or booleans",
    ),
    ("two classes", "classes", {"dtype": "<i8", "labels": ["no", "yes"]}, "labels of its dtype"),
    ("two classes", "classes", {"dtype": "|i1", "labels": [1, 1000]}, "dtype|bounds"),
    ("two classes", "classes", None, "dtype and labels"),
    ("classes", "classes", {"dtype": "object", "labels": ["a", "b"]}, "3 different labels"),
    ("classes", "one_vs_rest", True, "with objective 'softmax'"),
    ("projected", "input_names", ["a"], "40 features of X"),
]


@pytest.mark.parametrize(("seed", "name", "value", "message"), METADATA)
def test_invalid_metadata_raise(seed, name, value, message):
    def put(header, arrays):
        header["metadata"][name] = value

    def remove(header, arrays):
        del header["metadata"][name]

    with pytest.raises(ModelFileError, match=message):
        load_bytes(change_model(seed, put))
    optional = "intervals", "prediction_sets", "thresholds", "has_offsets"
    if name not in ("offset", "scale", "output_names", "classes", "input_names", *optional):
        with pytest.raises(ModelFileError):
            load_bytes(change_model(seed, remove))


HEADERS = [
    ("objective", {"name": "softmax", "n_classes": 7}, "'softmax'.*number of outputs"),
    (
        "objective",
        {"name": "softmax", "n_classes": 3},
        "does not learn a target of kind 'regression'",
    ),
    ("objective", {"name": "quantile", "alpha": [0.2, 0.8]}, "'quantile'.*number of outputs"),
    ("best_iteration", -1, "best round is -1"),
    ("best_iteration", 2, "best round is 2, but the model has 2"),
    ("best_score", float("nan"), "best score"),
    ("learning_rate", float("nan"), "positive number"),
    ("learning_rate", 0, "positive number"),
    ("output_names", ["a", "b", 3], "'output_names'"),
]


@pytest.mark.parametrize(("name", "value", "message"), HEADERS)
def test_invalid_headers_raise(name, value, message):
    def put(header, arrays):
        header[name] = value

    with pytest.raises(ModelFileError, match=message):
        load_bytes(change_model("numbers", put))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("round_of_tree", 2**31 - 1, "'round_of_tree'"),
        ("forest.gain", np.nan, "gains that are not finite"),
        ("forest.output_gain", np.inf, "gains that are not finite"),
        ("forest.cover", np.nan, "cover"),
        ("forest.count", -1, "negative number of rows"),
    ],
)
def test_invalid_statistics_and_rounds_raise(name, value, message):
    def put(header, arrays):
        arrays[name][-1] = value

    with pytest.raises(ModelFileError, match=message):
        load_bytes(change_model("numbers", put))


def test_number_of_outputs_is_bounded_by_the_file_size():
    for n_outputs, sound in [
        (3_000_000, True),
        (5_000_000, False),
        (2**31 - 1, False),
        (2**80, False),
    ]:

        def put(header, arrays, n_outputs=n_outputs):
            header["n_outputs"] = header["metadata"]["n_outputs"] = n_outputs

        content = change_model("sparse labels", put)
        if sound:  # sparse leaves require no memory for other labels
            assert load_bytes(content).n_outputs_ == n_outputs
        else:
            with pytest.raises(ModelFileError, match=r"'n_outputs' is .*at most"):
                load_bytes(content)


def test_saved_models_pass_the_checks(monkeypatch):
    """Check a model with many outputs and few trees, which stores a base score per output."""
    few = Model.from_bytes(mutants.seeds()["sparse labels"][0])
    assert read_header(few.to_bytes())["model"]["n_outputs"] == 1100
    monkeypatch.setattr(serialize, "SPARE_BYTES", 0)
    monkeypatch.setattr(serialize, "SIZE_FACTOR", 1)
    assert "n_outputs" not in read_header(few.to_bytes())["model"]
    assert Model.from_bytes(few.to_bytes()).equals(few)


def test_error_names_the_file(tmp_path):
    def put(header, arrays):
        header["metadata"]["kind"] = "nonsense"

    path = tmp_path / "m.polyleaf"
    path.write_bytes(change_model("numbers", put))
    for load in (polyleaf.load_model, polyleaf.PolyleafRegressor.load_model, Model.load):
        with pytest.raises(ModelFileError, match=r"m\.polyleaf' cannot be loaded: .*'kind'"):
            load(path)


def test_memory_error_differs_from_a_damaged_file(monkeypatch):
    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(serialize, "_restore_trees", fail)
    with pytest.raises(MemoryError, match="not enough memory to load"):
        load_bytes(mutants.seeds()["numbers"][0])


def many_features(header, arrays):
    n, end = 300_000, arrays["mapper.offsets"][-1]
    header["mapper"]["n_features"] = n
    del arrays["mapper.ranges"], arrays["bin_counts"]
    arrays["mapper.offsets"] = np.concatenate([arrays["mapper.offsets"], np.full(n - 4, end)])
    arrays["mapper.float64_bins"] = np.concatenate(
        [arrays["mapper.float64_bins"], np.zeros(n - 4, np.uint8)]
    )


def many_trees(header, arrays):
    n = 60_000
    for name in ("feature", "left", "right", "threshold", "category_set"):
        arrays["forest." + name] = np.full(n, -1, np.int32)
    arrays["forest.leaf"], arrays["forest.missing_left"] = np.zeros(n, np.int32), np.zeros(n, bool)
    for name in ("gain", "count", "cover", "gain_outputs", "output_gain"):
        del arrays["forest." + name]
    arrays["forest.node_offsets"] = np.arange(n + 1)
    arrays["forest.set_offsets"] = np.zeros(n + 1, np.int64)
    arrays["forest.leaf_kind"] = np.zeros(n, np.uint8)
    arrays["forest.output"], arrays["round_of_tree"] = np.zeros(n, np.int32), np.zeros(n, np.int32)
    arrays["forest.values"] = np.zeros(n, np.float16)


def many_dicts(header, arrays):
    header["metadata"]["x"] = [{} for _ in range(1_000_000)]


MEASURE = """
import os, sys
from polyleaf import load_model
import polyleaf.estimators
def peak():
    line = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
load_model(sys.argv[1]), (before := peak())
load_model(sys.argv[2])
print(peak() - before)
"""


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("change", [many_features, many_trees, many_dicts])
def test_memory_is_bounded_by_the_size_of_the_file(change, tmp_path):
    """Check that memory stays within the multiple stated in docs/reference/model_format.md."""
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(mutants.seeds()["numbers"][0])
    large.write_bytes(change_model("numbers", change))
    taken = subprocess.run(
        [sys.executable, "-c", MEASURE, small, large], check=True, capture_output=True, text=True
    )
    bound = serialize.SPARE_BYTES + serialize.SIZE_FACTOR * large.stat().st_size
    assert read_header(large.read_bytes()) and int(taken.stdout) < bound
