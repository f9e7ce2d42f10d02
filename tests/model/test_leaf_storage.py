"""Rounded leaf values: their error, values out of range, and files with them."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_files import reseal
from support.models import example_table, random_model
from support.pairwise import parametrize_pairs

from polyleaf import Model, PolyleafClassifier, PolyleafRegressor, load_model
from polyleaf.cli.main import run
from polyleaf.inspection.model_summary import leaf_dtype_report, nodes_table, size_report, summary
from polyleaf.model.serialize import ModelFileError
from polyleaf.model.storage import LEAF_DTYPES, decode, encode, to_arrays
from polyleaf.runtime.checks import format_bytes

ROUNDED = ("float16", "int8")


def make_blocks(seed, scale=1.0):
    """Return leaf values of three trees; each output has its own scale."""
    rng = np.random.default_rng(seed)
    scales = scale * 10.0 ** rng.uniform(-2, 2, 4)
    return [(rng.standard_normal((n, 4)) * scales).astype(np.float32) for n in (1, 7, 30)]


def save_and_load(blocks, leaf_dtype):
    stored, scales = encode(blocks, leaf_dtype)
    assert all(block.dtype == LEAF_DTYPES[leaf_dtype] for block in stored)
    return [decode(block, scales[i] if scales else None) for i, block in enumerate(stored)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-2, 1.0, 100.0]))
def test_rounding_is_to_the_nearest_of_11_or_8_bits(seed, scale):
    blocks = make_blocks(seed, scale)
    for block, half, eight in zip(
        blocks, save_and_load(blocks, "float16"), save_and_load(blocks, "int8"), strict=True
    ):
        assert half.dtype == eight.dtype == np.float32
        assert (np.abs(half - block) <= 2.0**-11 * np.abs(block) + 2.0**-25).all()
        step = np.abs(block).max(axis=0) / 127 * (1 + 2.0**-15)
        assert (np.abs(eight - block) <= step / 2 * (1 + 1e-6)).all()
        assert (np.abs(eight).max(axis=0) >= np.abs(block).max(axis=0) * (1 - 1e-6)).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(ROUNDED), st.sampled_from([1e-30, 1.0, 1e30]))
def test_rounding_is_idempotent(seed, leaf_dtype, scale):
    once = save_and_load(make_blocks(seed, 1.0 if leaf_dtype == "float16" else scale), leaf_dtype)
    for first, second in zip(once, save_and_load(once, leaf_dtype), strict=True):
        np.testing.assert_array_equal(first, second)


def test_columns_of_zeros_and_no_trees():
    for leaf_dtype in LEAF_DTYPES:
        assert encode([], leaf_dtype) == ([], [])
        assert (save_and_load([np.zeros((3, 2), np.float32)], leaf_dtype)[0] == 0).all()


def test_values_beyond_float16_raise():
    fits = np.array([[65504.0, 1e-9]], np.float32)
    assert np.isfinite(save_and_load([fits], "float16")[0]).all()
    with pytest.raises(
        ValueError, match=r"up to 65504, but a leaf value is 70000\..*int8.*normalize_targets=True"
    ):
        encode([np.array([[7e4]], np.float32)], "float16")
    with pytest.raises(ValueError, match=r"float16.*1e-06"):
        encode([np.array([[1e-6]], np.float32)], "float16")
    with pytest.raises(
        ValueError, match="leaf_dtype must be one of 'float32', 'float16', 'int8'; got 'float64'"
    ):
        encode([fits], "float64")


# --- files ---


@parametrize_pairs(leaf_dtype=ROUNDED, scalar=[False, True], n_rounds=[0, 4])
def test_files_change_only_the_rounding_of_leaf_values(tmp_path, leaf_dtype, scalar, n_rounds):
    model = random_model(scalar=scalar, n_rounds=n_rounds)
    model.save(tmp_path / "m", leaf_dtype=leaf_dtype)
    loaded = Model.load(tmp_path / "m")
    mine, theirs = to_arrays(model.forest), to_arrays(loaded.forest)
    assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine if name != "values")
    largest = np.abs(mine["values"]).max(initial=0.0)
    assert np.abs(mine["values"] - theirs["values"]).max(initial=0.0) <= largest / 127
    assert loaded.forest.values(0).dtype == np.float32 if n_rounds else True
    loaded.save(tmp_path / "again", leaf_dtype=leaf_dtype)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), leaf_dtype=st.sampled_from(ROUNDED))
def test_malformed_values_raise_or_predict(seed, leaf_dtype):
    rng = np.random.default_rng(seed)

    def change(header, arrays):
        name = "forest." + rng.choice(
            ["values", "value_scales"] if leaf_dtype == "int8" else ["values"]
        )
        kind = rng.integers(4)
        if kind == 0:
            arrays[name].view(np.uint8)[rng.integers(arrays[name].nbytes)] = rng.integers(256)
        elif kind == 1:
            arrays[name] = arrays[name][: rng.integers(len(arrays[name]))]
        elif kind == 2:
            arrays[name] = arrays[name].astype(rng.choice(["int8", "float16", "float64", "int32"]))
        else:
            del arrays[name]

    try:
        loaded = Model.from_bytes(reseal(random_model(n_rounds=2).to_bytes(leaf_dtype), change))
    except ModelFileError as error:
        assert "not a valid model" in str(error)
        return
    assert np.isfinite(loaded.predict_raw(example_table(loaded, n_rows=20))).all()


def test_invalid_scales_raise():
    data = random_model(n_rounds=2).to_bytes("int8")
    for value in (np.nan, np.inf, 3e38):
        with pytest.raises(ModelFileError, match="not finite"):
            Model.from_bytes(
                reseal(data, lambda _, a, value=value: a["forest.value_scales"].fill(value))
            )


# --- files without statistics ---


@pytest.mark.parametrize("leaf_dtype", LEAF_DTYPES)
@pytest.mark.parametrize("scalar", [False, True])
def test_files_without_statistics_predict_the_same(tmp_path, leaf_dtype, scalar):
    model = random_model(scalar=scalar)
    for name, statistics in (("all", True), ("bare", False)):
        model.save(tmp_path / name, leaf_dtype=leaf_dtype, statistics=statistics)
    whole, bare = Model.load(tmp_path / "all"), Model.load(tmp_path / "bare")
    table = example_table(model)
    np.testing.assert_array_equal(bare.predict_raw(table), whole.predict_raw(table))
    assert whole.has_statistics and not bare.has_statistics
    assert (tmp_path / "bare").stat().st_size < 0.75 * (tmp_path / "all").stat().st_size
    for again in (bare, pickle.loads(pickle.dumps(bare)), bare.copy()):
        again.save(tmp_path / "again", leaf_dtype=leaf_dtype)
        assert (tmp_path / "again").read_bytes() == (tmp_path / "bare").read_bytes()
    with pytest.raises(ModelFileError, match="'cover' is missing"):
        Model.from_bytes(reseal(model.to_bytes(), lambda _, a: a.pop("forest.cover")))


def test_functions_that_require_statistics_raise():
    model = Model.from_bytes(random_model().to_bytes(statistics=False))
    for kind in ("gain", "cover"):
        with pytest.raises(ValueError, match=f"kind='{kind}'.*statistics=False"):
            model.feature_importance(kind)
    np.testing.assert_array_equal(
        model.feature_importance("split"), random_model().feature_importance("split")
    )
    table, report = nodes_table(model, "dict"), size_report(model)
    assert set(table["gain"]) == set(table["count"]) == set(table["cover"]) == {None}
    assert (
        report["bytes_of"]["statistics"] == 0
        and report["bytes"] < size_report(random_model())["bytes"]
    )
    assert "share of the splits" in summary(model)


# --- size and quality ---


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 6))
    y = (np.c_[X[:, 0] + X[:, 1] ** 2, X[:, 2] * X[:, 3], np.sin(2 * X[:, 4])]).argmax(1)
    model = PolyleafClassifier(n_estimators=30, eval_metric="merror").fit(X[:1000], y[:1000])
    return model, X[1000:], y[1000:]


def test_estimators_save_and_load_rounded_models(trained, tmp_path):
    model, X, _ = trained
    for leaf_dtype in LEAF_DTYPES:
        model.save_model(tmp_path / leaf_dtype, leaf_dtype=leaf_dtype)
        p = load_model(tmp_path / leaf_dtype).predict_proba(X)
        np.testing.assert_allclose(p, model.predict_proba(X), atol=0.02)
    sizes = [(tmp_path / leaf_dtype).stat().st_size for leaf_dtype in LEAF_DTYPES]
    assert sizes[0] > sizes[1] > sizes[2]
    with pytest.raises(ValueError, match="leaf_dtype must be one of"):
        model.save_model(tmp_path / "x", leaf_dtype="int4")


def test_report_of_leaf_dtypes(trained, tmp_path):
    model, X, y = trained
    report = leaf_dtype_report(model.model_, X, y, metrics=["merror", "mlogloss"])
    assert [row["leaf_dtype"] for row in report] == list(LEAF_DTYPES)
    changes = [row["largest_change"] for row in report]
    assert changes[0] == 0 < changes[1] < changes[2] < 0.2
    for row in report:
        assert row["merror"] == pytest.approx(1 - model.score(X, y), abs=0.01)
        model.save_model(tmp_path / "m", leaf_dtype=row["leaf_dtype"])
        assert row["file_bytes"] == (tmp_path / "m").stat().st_size
        model.save_model(tmp_path / "m", leaf_dtype=row["leaf_dtype"], statistics=False)
        assert row["file_bytes_without_statistics"] == (tmp_path / "m").stat().st_size
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 2)), 1e7 * rng.standard_normal(200)
    report = leaf_dtype_report(PolyleafRegressor(n_estimators=3).fit(X, y).model_, X, y)
    assert "up to 65504" in report[1]["error"] and report[2]["rmse"] == pytest.approx(
        report[0]["rmse"], rel=0.01
    )


def test_size_report_by_ensemble_size(trained):
    model, X, y = trained
    report = size_report(model, X, y, metrics="merror")
    assert json.loads(json.dumps(report)) == report
    assert [row["rounds"] for row in report["scores"]] == [1, 2, 5, 10, 25, 30]
    for row in report["scores"]:
        assert row["trees"] == row["rounds"] and row["bytes"] <= report["bytes"]
        expected = np.mean(model.predict(X, iteration_range=(0, row["rounds"])) != y)
        assert row["merror"] == pytest.approx(expected)
    assert (
        report["scores"][-1]["nodes"] == report["nodes"]
        and report["scores"][-1]["bytes"] == report["bytes"]
    )
    parts, by_dtype = report["bytes_of"], report["bytes_by_leaf_dtype"]
    assert sum(parts.values()) == report["bytes"] == by_dtype["float32"]
    assert report["bytes"] - by_dtype["float16"] == parts["values"] // 2
    assert "scores" not in size_report(model)
    few = size_report(model.model_, X, y, rounds=[3], metrics=["merror", "mlogloss"])["scores"]
    assert [sorted(row) for row in few] == [
        ["bytes", "merror", "mlogloss", "nodes", "rounds", "trees"]
    ]
    with pytest.raises(ValueError, match=r"rounds.*31"):
        size_report(model.model_, X, y, rounds=[31])
    with pytest.raises(ValueError, match="no estimator"):
        size_report(random_model(), X[:, :4], y)
    size = format_bytes(by_dtype["float16"])
    assert f"with leaf_dtype float16 {size}" in summary(model.model_)


def test_command_line(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 3))
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c", comments="")
    train = ["train", str(tmp_path / "t.csv"), "-t", "c", "--rounds", "100", "-m"]
    sizes = {}
    for leaf_dtype in LEAF_DTYPES:
        path = tmp_path / leaf_dtype
        assert run([*train, str(path), "--leaf-dtype", leaf_dtype]) == 0
        sizes[leaf_dtype] = path.stat().st_size
    assert sizes["float32"] > sizes["float16"] > sizes["int8"]
    assert run(["inspect", str(tmp_path / "int8")]) == 0
    message = capsys.readouterr().out
    assert f"file size {format_bytes(sizes['int8'])}\n" in message
    assert "with leaf_dtype float16 " in message
    assert run([*train, str(tmp_path / "bare"), "--no-statistics"]) == 0
    assert (tmp_path / "bare").stat().st_size < 0.7 * sizes["float32"]
    capsys.readouterr()
    for path, shown in (("float32", ["gain ", "rows"]), ("bare", [])):
        assert run(["inspect", str(tmp_path / path), "--tree", "0"]) == 0
        message = capsys.readouterr().out
        assert all((word in message) == (word in shown) for word in ("gain ", "rows"))
    assert run([*train, str(tmp_path / "x"), "--leaf-dtype", "float64"]) == 2
    assert "leaf_dtype must be one of 'float32', 'float16', 'int8'" in capsys.readouterr().err
