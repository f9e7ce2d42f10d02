"""Model files: round trips, versions, damaged and hostile content, full disks."""

import json
import os
import pickle
import re
import signal
import stat
import threading
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save
from sklearn.exceptions import InconsistentVersionWarning
from support.high_cardinality import effects
from support.kept_models import make_table
from support.model_files import FILES, read_header, reseal
from support.models import example_table, random_model

import polyleaf.model.serialize as serialize
import polyleaf.runtime.compatibility
from polyleaf import Dataset, PolyleafRegressor, load_model
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.serialize import FORMAT_VERSION, ModelFileError


def replace_entries(data, **entries):
    return save(load(data), {serialize.FORMAT: json.dumps(read_header(data) | entries)})


@pytest.fixture(
    scope="module", params=[("dense",), ("sparse", "linear", "dense")], ids=["dense", "all kinds"]
)
def model(request):
    about = {"output_names": ["a", "b", "c"], "metadata": {"kind": "regression"}}
    model = random_model(n_rounds=3, kinds=request.param, **about)
    model.best_iteration, model.best_score = 2, float(np.float32(0.1))
    return model


@pytest.fixture(scope="module")
def data(model):
    return model.to_bytes()


@pytest.mark.parametrize(
    ("scalar", "kinds"),
    [
        *product((False, True), (("dense",), ("linear",), ("linear", "dense"))),
        *((False, kinds) for kinds in (("sparse",), ("linear", "dense", "sparse"))),
    ],
)
@pytest.mark.parametrize("n_rounds", [0, 4])
@pytest.mark.parametrize("objective", ["squared_error", "softmax"])
def test_round_trip(tmp_path, kinds, scalar, n_rounds, objective):
    scale = {"target_scale": np.ones(3), "target_offset": np.arange(3.0)} if scalar else {}
    size = {"scalar": scalar, "n_rounds": n_rounds}
    model = random_model(objective=objective, kinds=kinds, **size, **scale)
    model.metadata["classes"] = np.array(["x", "y"])
    model.save(tmp_path / "m.polyleaf")
    loaded = Model.load(tmp_path / "m.polyleaf")
    assert loaded.equals(model)
    table = example_table(model)
    assert loaded.predict(table).tobytes() == model.predict(table).tobytes()
    assert loaded.to_bytes() == model.to_bytes()
    assert len(load(model.to_bytes())) < 40  # trees are stored as flat arrays


@pytest.mark.parametrize("leaf_dtype", ["float16", "int8"])
@pytest.mark.parametrize("kinds", [("sparse",), ("linear",), ("sparse", "linear", "dense")])
def test_leaf_values_of_all_kinds_are_rounded_once(leaf_dtype, kinds):
    model = random_model(n_rounds=3, kinds=kinds)
    data = model.to_bytes(leaf_dtype)
    loaded = Model.from_bytes(data)
    assert loaded.to_bytes(leaf_dtype) == data
    table, step = example_table(model), {"float16": 2.0**-10, "int8": 1 / 50}[leaf_dtype]
    expected = model.predict_raw(table)
    np.testing.assert_allclose(loaded.predict_raw(table), expected, atol=3 * 4 * step)


def test_size_of_sparse_leaves_depends_on_their_entries():
    models = (
        random_model(n_outputs=500, n_rounds=2, kinds=(kind,)) for kind in ("dense", "sparse")
    )
    values = [load(model.to_bytes())["forest.values"] for model in models]
    assert values[0].size == 2 * 8 * 500 and values[1].size <= 2 * 8 * 5


FORMER_WORDS = {"curvature", "free", "leaf_support", "made", "refresh", "skill", "wide"}


def test_files_use_the_names_of_the_api():
    """The header, the metadata and the arrays of a model with many parts."""
    rng = np.random.default_rng(0)
    X, y = effects(2000, 400, n_outputs=2)
    given = {"boosting_step": "tree", "linear_extrapolation": "none"}
    given |= {"hessian": "shared", "leaf_hessian": "diagonal"}
    options = {"n_estimators": 2, "categorical_features": [0], "leaf": "linear"}
    options |= {"validation_fraction": 0.2, "eval_metric": "d2"}
    estimator = PolyleafRegressor(**options, **given)
    estimator.fit(X, y).calibrate(X[:50], y[:50] + rng.normal(size=(50, 2)))
    data = estimator.model_.to_bytes(evals_log=estimator.evals_result_)
    content, arrays = read_header(data), load(data)
    assert list(content) == ["format_version", "polyleaf_version", "checksum", "model"]
    assert content["format_version"] == FORMAT_VERSION == 1
    parameters = content["model"]["metadata"]["parameters"]
    assert parameters.keys() <= estimator.get_params().keys()
    assert given.items() <= parameters.items()
    words = set(re.findall(r"\w+", json.dumps(content))) | set(re.findall(r"\w+", str([*arrays])))
    assert {"derived_columns", "float64_bins", "d2"} <= words
    assert words.isdisjoint(FORMER_WORDS)
    assert not any("curvature" in word for word in words)


KEPT = sorted(FILES.glob("version-*/*.polyleaf"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_stored_models_of_all_releases_predict_the_same(path, tmp_path):
    stored = np.load(path.with_name("raw_scores.npz"))
    model = load_model(path)
    X = make_table(stored["numbers"], stored["codes"])[list(model.feature_names_in_)]
    np.testing.assert_array_equal(model.predict_raw(X), stored[path.stem])
    model.save_model(tmp_path / "again.polyleaf")
    again = load_model(tmp_path / "again.polyleaf")
    np.testing.assert_array_equal(again.predict_raw(X), stored[path.stem])


def test_newer_versions_raise(data, tmp_path):
    path = tmp_path / "m.polyleaf"
    newer = FORMAT_VERSION + 1
    path.write_bytes(replace_entries(data, format_version=newer, polyleaf_version="9.1"))
    expected = rf"m\.polyleaf' cannot be loaded: .*version {newer}, .*9\.1.*Upgrade"
    with pytest.raises(ModelFileError, match=expected):
        Model.load(path)
    for version in (None, 0, -1, "1", [1]):
        with pytest.raises(ModelFileError, match="format version"):
            Model.from_bytes(replace_entries(data, format_version=version))


def test_other_and_truncated_files_raise(data, tmp_path):
    for size in {*range(0, len(data), 97), len(data) - 1}:
        with pytest.raises(ModelFileError):
            Model.from_bytes(data[:size])
    for content in (b"", b"PK", b"\x00" * 100, os.urandom(1000), b"\xff" * 8 + b"{}"):
        with pytest.raises(ModelFileError, match=r"not a model file|not a Polyleaf model"):
            Model.from_bytes(content)
    with pytest.raises(ModelFileError, match="not a Polyleaf model"):
        Model.from_bytes(save({"a": np.zeros(3)}))
    with pytest.raises(FileNotFoundError):
        Model.load(tmp_path / "absent")


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 2**32), bit=st.integers(0, 7))
def test_flipped_bits_raise(data, model, place, bit):
    damaged = bytearray(data)
    damaged[place % len(data)] ^= 1 << bit
    try:
        loaded = Model.from_bytes(bytes(damaged))
    except ModelFileError:
        return
    assert loaded.equals(model)  # a flip in the version of the writer has no effect


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_malformed_arrays_raise_or_predict(data, seed):
    """Random entries with a correct checksum, as an attacker would write them."""
    rng = np.random.default_rng(seed)

    def change(header, arrays):
        for name in rng.choice(sorted(arrays), rng.integers(1, 3)):
            flat = arrays[name].reshape(-1).view(np.uint8)
            kind = rng.integers(4)
            if kind == 0 and len(flat):
                flat[rng.integers(len(flat))] = rng.integers(256)
            elif kind == 1 and arrays[name].dtype.kind == "i" and arrays[name].size:
                arrays[name].flat[rng.integers(arrays[name].size)] = rng.integers(-5, 40)
            elif kind == 2:
                arrays[name] = arrays[name][: rng.integers(len(arrays[name]) + 1)]
            else:
                with np.errstate(invalid="ignore"):  # bounds may be infinite
                    arrays[name] = arrays[name].astype(rng.choice(["int32", "float64", "uint8"]))

    try:
        loaded = Model.from_bytes(reseal(data, change))
    except ModelFileError as error:
        assert str(error)
        return
    table = example_table(loaded, n_rows=70)
    assert loaded.predict_raw(table).shape == (70, 3)
    assert loaded.apply(table).shape == (70, loaded.n_trees)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_malformed_headers_raise_or_predict(data, seed):
    rng = np.random.default_rng(seed)
    odd = [None, True, -1, 2**62, 1e308, "x", [], {}, [None] * 4, {"name": "softmax"}]

    def change(header, arrays):
        place, path = header, rng.choice(sorted(header))
        while isinstance(place[path], dict) and place[path] and rng.random() < 0.7:
            place = place[path]
            path = rng.choice(sorted(place))
        place[str(path)] = odd[rng.integers(len(odd))]

    try:
        loaded = Model.from_bytes(reseal(data, change))
    except ModelFileError:
        return
    shape = loaded.n_features, 5
    loaded.predict_raw_binned(np.zeros(shape, np.uint8), features=np.zeros(shape, np.float32))


def test_hostile_well_formed_content_raises(data):
    def other_kind(header, arrays):
        arrays["forest.feature"][arrays["forest.threshold"] >= 0] = 3

    def missing_bin(header, arrays):
        arrays["forest.feature"][arrays["forest.threshold"] >= 0] = 2

    def shifted_entries(header, arrays):
        arrays["forest.leaf_entries"][0] += 1

    def swapped_kinds(header, arrays):
        arrays["forest.leaf_kind"][:] = arrays["forest.leaf_kind"][::-1]

    def regressor_with_categories(header, arrays):
        of_linear = arrays["forest.leaf_entries"][8:] > 0
        arrays["forest.entry"][np.cumsum(arrays["forest.leaf_entries"])[8:][of_linear] - 1] = 3

    def write(name, index, value):
        return lambda header, arrays: np.put(arrays[name], index, value)

    def delete(name):
        return lambda header, arrays: arrays.pop(name)

    every = range(len(load(data)["forest.entry"]))
    changes_of_leaves = [
        (write("forest.leaf_entries", 0, -1), "leaf_entries"),
        (shifted_entries, "too (short|long)|longer than its trees require|ascending order"),
        (write("forest.entry", every, 1), "ascending order"),
        (write("forest.entry", every, 7), "outside 0 .. 2"),
        (write("forest.leaf_kind", 0, len(LEAF_KINDS)), "leaf_kind"),
        (swapped_kinds, "too short|longer than its trees require"),
        (regressor_with_categories, "categorical feature"),
        (write("forest.weights", 0, np.inf), "weights holds a number that is not finite"),
        (write("forest.lower", 0, np.inf), "lower must not be above upper"),
        (delete("forest.centre"), "'centre' is missing"),
    ]
    for change, message in [
        *(changes_of_leaves if len(every) else []),
        (write("forest.values", 0, np.inf), "not finite"),
        (other_kind, "by a threshold"),
        (missing_bin, "a bin that"),
        (delete("base_score"), "base_score"),
        (write("round_of_tree", range(3), [2, 1, 0]), "round_of_tree"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            Model.from_bytes(reseal(data, change))
    deep = json.loads('{"a":' * 900 + "1" + "}" * 900)
    assert Model.from_bytes(reseal(data, lambda h, _: h.update(metadata=deep))).n_trees == 3
    with pytest.raises(ModelFileError):
        Model.from_bytes(save(load(data), {serialize.FORMAT: "[" * 100_000}))


CALIBRATIONS = {
    "intervals": [
        None,
        [1.0],
        {},
        {"coverage": 0.9, "joint": False},
        {"coverage": 0.9, "joint": False, "widths": [1.0]},
        {"coverage": 0.9, "joint": False, "widths": [1.0, None]},
        {"coverage": 0.9, "joint": False, "widths": [1.0, np.nan]},
        {"coverage": 1.5, "joint": False, "widths": [1.0, 1.0]},
        {"coverage": 0.9, "joint": "no", "widths": [1.0, 1.0]},
    ],
    "prediction_sets": [None, {}, {"coverage": 0.9}, {"coverage": 0.9, "depth": [0.5]}],
}
WRONG_METADATA = CALIBRATIONS | {
    "thresholds": [None, "all", [0.5], [0.5, 1.0], [0.5, None], [[0.5], [0.5]]],
    "has_offsets": [None, 1, "yes"],
    "estimator": [None, 1, ["PolyleafRegressor"]],
    "parameters": [None, 1, ["n_estimators"]],
    "position_bias": [
        None,
        {},
        {"positions": [1], "rounds": [[0.0, 0.0]]},
        {"positions": [1], "rounds": {"2": [[0.0, 0.0]]}},
        {"positions": [1, 2], "rounds": {"2": [[[0.0, 0.0]]]}},
        {"positions": [1], "rounds": {"2": [[[0.0, np.nan]]]}},
        {"positions": [1], "rounds": {"2": [[[0.0, "low"]]]}},
    ],
    "input_names": [False, 1, "ab", [1, 2]],
    "kind": [None, 1, "unknown"],
    "n_outputs": [None, 0, 3, True],
    "one_dimensional": [None, 0, True],
    "classes": [0, [1], {"dtype": "", "labels": [0, 1]}, {"dtype": "int64", "labels": [0, np.inf]}],
    "output_names": [0, ["a"], [1, 2]],
    "scale": [0, [1.0], [1.0, 0.0], [1.0, np.nan]],
}


@pytest.mark.parametrize("key", WRONG_METADATA)
def test_invalid_estimator_metadata_raise(key):
    X, y = effects(60, 5, n_outputs=2)
    estimator = PolyleafRegressor(n_estimators=1).fit(X, y).calibrate(X, y)
    data = estimator.model_.to_bytes()
    assert Model.from_bytes(data).n_trees == 1
    for value in WRONG_METADATA[key]:

        def change(header, arrays, value=value):
            header["metadata"][key] = value

        for load_anything in (Model.from_bytes, load_model):
            with pytest.raises(ModelFileError, match=f"'{key}'|metadata entry"):
                load_anything(reseal(data, change))


@pytest.mark.parametrize("make", ["unfitted", "estimator", "model", "dataset"])
def test_pickles_of_another_version_warn(make, monkeypatch):
    X, y = effects(60, 5)
    estimator = PolyleafRegressor(n_estimators=1)
    fitted = PolyleafRegressor(n_estimators=1).fit(X, y)
    pickled = {"unfitted": estimator, "estimator": fitted, "model": fitted.model_}
    pickled = {**pickled, "dataset": Dataset(X, y)}[make]
    written = {}
    for version in ("1.2.0", "1.2.3", "1.3.0"):
        monkeypatch.setattr(polyleaf.runtime.compatibility, "polyleaf_version", lambda v=version: v)
        written[version] = pickle.dumps(pickled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(written["1.3.0"])
    assert "_polyleaf_version" not in vars(again)
    for version in ("1.2.0", "1.2.3"):
        with pytest.warns(InconsistentVersionWarning, match=rf"Polyleaf {version} .* 1\.3\.0") as w:
            pickle.loads(written[version])
        assert len(w) == 1 and w[0].filename == __file__


def test_metadata_without_json_form_raises(model):
    other = model.copy()
    other.metadata["function"] = print
    with pytest.raises(ValueError, match="metadata"):
        other.to_bytes()


def test_full_disk_keeps_the_old_file(model, tmp_path):
    path = tmp_path / "m.polyleaf"
    model.save(path)
    before = path.read_bytes()
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            random_model(n_rounds=20).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.polyleaf"]


def test_saving_keeps_mode_and_symbolic_link(model, tmp_path):
    path, link = tmp_path / "m.polyleaf", tmp_path / "link"
    model.save(path)
    os.chmod(path, 0o640)
    link.symlink_to(path)
    random_model().save(link)
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert Model.load(path).equals(random_model())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_saving_does_not_replace_a_pipe(model, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    model.save(path)
    reader.join()
    assert stat.S_ISFIFO(path.stat().st_mode) and read == [model.to_bytes()]
    assert os.listdir(tmp_path) == ["pipe"]


def test_saving_does_not_replace_a_device(model, tmp_path):
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.stat("/dev/null").st_rdev)
        path.write_bytes(b"x")
    except (PermissionError, AttributeError):
        pytest.skip("device files cannot be created")
    model.save(path)
    assert stat.S_ISCHR(path.stat().st_mode)


def test_invalid_model_is_not_saved(tmp_path):
    model = PolyleafRegressor(n_estimators=2, n_jobs=1).fit(np.eye(30), np.arange(30.0))
    model.save_model(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    model.model_.output_names = ("a", "b")
    for write in (model.save_model, model.model_.save):
        with pytest.raises(ValueError, match="not saved, because it could not be loaded again"):
            write(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
