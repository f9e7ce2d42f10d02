"""Export to ONNX, run by ONNX Runtime."""

import io
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import golden
from support.exports import (
    CASES,
    assert_close,
    estimator,
    hard_rows,
    many_labels,
    predictions,
    prepare_features,
    raw_scores,
    training_rows,
)
from support.models import example_frame, forests, random_model

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
from polyleaf.export import to_numeric_matrix, to_onnx
from polyleaf.export.onnx_graph import _GraphBuilder

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.full


def run(proto, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    graph, providers = proto.SerializeToString(), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(graph, options, providers=providers)
    names = [output.name for output in session.get_outputs()]
    given = inputs if isinstance(inputs, dict) else {"X": inputs}
    return dict(zip(names, session.run(None, given), strict=True))


def get_versions(name):
    return (5,) if "categor" in name else (3, 5)


CELLS = [(name, version) for name in CASES for version in get_versions(name)]


@pytest.mark.parametrize(("name", "version"), CELLS)
def test_scores(name, version):
    est = estimator(name)
    made = to_onnx(est, opset_ml=version)
    for X in (to_numeric_matrix(est, training_rows(name)), hard_rows(est, n=2000)):
        X = clip_rows(name, X)
        assert_close(run(made, X)["scores"], raw_scores(est, X))


def clip_rows(name, X):
    """Clip rows so that sums of unbounded linear leaves stay within float32."""
    return np.clip(X, -1e6, 1e6) if name == "linear, categories" else X


@pytest.mark.parametrize("name", [name for name in CASES if name != "linear, categories"])
def test_links_and_labels(name):
    est, X = estimator(name), hard_rows(estimator(name), seed=1)
    found, raw = run(to_onnx(est), X), raw_scores(est, X)
    expected = predictions(est, raw)
    if not hasattr(est, "classes_"):
        return np.testing.assert_allclose(found["predictions"], expected, rtol=1e-5, atol=1e-6)
    if est.model_.objective.probabilities:
        np.testing.assert_allclose(found["probabilities"], expected, rtol=0, atol=1e-6)
    else:
        assert "probabilities" not in found
    np.testing.assert_array_equal(found["label"], est._prediction(raw))


def test_text_labels():
    y = np.array(["no", "yes", "maybe", "never"])[golden.classes()]
    for labels in (y, np.where(y == "yes", "yes", "other")):
        est = PolyleafClassifier(**golden.SMALL).fit(golden.numbers(), labels)
        X = golden.numbers().astype(np.float32)
        np.testing.assert_array_equal(run(to_onnx(est), X)["label"], est.predict(X))


@settings(max_examples=15, deadline=None)
@given(forests(), st.integers(0, 2**31))
def test_random_forests(model, seed):
    X = hard_rows(model, seed)
    X[:, :3] = np.clip(X[:, :3], -1e3, 1e3)  # linear leaves of any slope: sums stay within float32
    found = run(to_onnx(model, opset_ml=5), X)["scores"]
    expected = model.predict_raw(prepare_features(model, X))
    # Linear leaves are summed in float32, so the error grows with the terms, not with the sum.
    terms = np.abs(np.nan_to_num(X[:, :3])).sum(axis=1, keepdims=True) * model.has_linear_leaves
    largest = np.maximum(1.0, np.abs(expected).max(axis=1, keepdims=True))
    assert (np.abs(found - expected) <= 1e-6 * largest + 2.0**-21 * terms).all()


def test_column_inputs(tmp_path):
    rng = np.random.default_rng(0)
    frame = example_frame(rng, 400).assign(kind=rng.choice([2, 5, 11], 400))
    y = (frame["colour"] == "red") + (frame["kind"] == 5) + frame["height"]
    est = PolyleafRegressor(**golden.SMALL, categorical_features=["colour", "kind"]).fit(frame, y)
    made = to_onnx(est, tmp_path / "m.onnx", input="columns")
    rows = frame.assign(colour=frame["colour"].astype(object))
    rows.loc[:5, "colour"], rows.loc[3:8, "kind"] = "unknown", 4
    columns = {
        name: values.to_numpy()[:, None].astype(object if name == "colour" else np.float32)
        for name, values in rows.items()
    }
    assert_close(run(made, columns)["scores"], est._raw(rows, None))
    import onnx

    assert onnx.load(tmp_path / "m.onnx") == made


def test_model_without_trees():
    model = random_model(n_rounds=0)
    found = run(to_onnx(model), np.zeros((3, 4), np.float32))["scores"]
    np.testing.assert_array_equal(found, np.tile(model.base_score, (3, 1)))


def test_one_row_and_no_rows():
    est = estimator("linear")
    made, X = to_onnx(est), hard_rows(est)
    assert_close(run(made, X[:1])["scores"], raw_scores(est, X[:1]))
    assert run(made, X[:0])["scores"].shape == (0, 3)


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match="opset_ml must be one of None, 3, 5; got 4"):
        to_onnx(estimator("defaults"), opset_ml=4)
    with pytest.raises(ValueError, match="input must be one of 'matrix', 'columns'; got 'frame'"):
        to_onnx(estimator("defaults"), input="frame")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install .polyleaf\[onnx\]."):
        to_onnx(estimator("defaults"))


@pytest.mark.full
@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("n_labels", [2_000, 20_000])
def test_many_labels(n_labels, version):
    """The graph has the sparse entries of leaves, not dense vectors of all labels."""
    est = many_labels(n_labels)
    rows = to_numeric_matrix(est, golden.numbers(3000))[::10]
    made = to_onnx(est, opset_ml=version)
    for X in (rows, hard_rows(est, n=100)):
        found, raw = run(made, X), raw_scores(est, X)
        assert_close(found["scores"], raw)
        decided = np.abs(raw) > 1e-5
        np.testing.assert_array_equal(found["label"][decided], (raw > 0)[decided])
    assert found["label"].shape == (100, n_labels) and run(made, rows)["label"].any()
    assert made.ByteSize() < 2 * len(est.model_.to_bytes()) + 8 * 3 * n_labels


@pytest.mark.parametrize("init", [None, "linear"])
def test_multitask_model_has_raw_scores_only(init):
    """A graph has no common label for several tasks."""
    X = np.random.default_rng(0).standard_normal((80, 3)).astype(np.float32)
    model = PolyleafMultiTask({"a": "squared_error", "b": "softmax"}, n_estimators=3, init=init)
    model.fit(X, {"a": X[:, 0], "b": np.where(X[:, 1] > 0, "p", "q")})
    found = run(to_onnx(model), X)
    assert list(found) == ["scores"]
    assert_close(found["scores"], model.predict_raw(X))


def test_open_files(tmp_path):
    est = estimator(next(iter(CASES)))
    written = io.BytesIO()
    made = to_onnx(est, written)
    assert written.getvalue() == made.SerializeToString()
    with pytest.raises(TypeError, match="open it with mode 'wb'"):
        to_onnx(est, io.StringIO())
    with pytest.raises(TypeError, match="got int"):
        to_onnx(est, 5)


HOSTILE_NAMES = ["c0", "c7", "_c0", "__c1", "scores", "predictions", "output_scores", "cast3", "X"]


def run_columns(est, frame, **options):
    made = to_onnx(est, input="columns", **options)
    dtypes = {1: np.float32, 7: np.int64, 8: object, 11: np.float64}
    kinds = {i.name: dtypes[i.type.tensor_type.elem_type] for i in made.graph.input}
    return run(made, {n: frame[n].to_numpy().astype(kinds[n])[:, None] for n in frame})


def test_names_of_features_cannot_collide_with_the_graph():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((300, 9)).astype(np.float32), columns=HOSTILE_NAMES)
    frame["kind"] = rng.choice(["u", "v", "w"], 300).astype(object)
    y = frame["c7"] * 5 + (frame["kind"] == "u") * 10 + frame["scores"]
    est = PolyleafRegressor(n_estimators=20, categorical_features=["kind"]).fit(frame, y)
    found = run_columns(est, frame)
    assert set(found) == {"output_output_scores", "output_predictions"}
    np.testing.assert_allclose(found["output_predictions"][:, 0], est.predict(frame), rtol=1e-4)
    frame = frame.rename(columns={"c0": ""})
    est = PolyleafRegressor(n_estimators=2, categorical_features=["kind"]).fit(frame, y)
    with pytest.raises(ValueError, match="number 0 has an empty name"):
        to_onnx(est, input="columns")


@pytest.mark.parametrize(
    "categories",
    [
        [2**24, 2**24 + 1, 2**24 + 2],
        [2**53, 2**53 + 1, 2**53 + 2],
        [0.1, 0.1 + 2**-54, 0.3],
        [1e17, 1.5, 2**40 + 1.0],
        [1, 2, 3],
        ["1", "1.0", "01"],
    ],
)
def test_categories_keep_their_identity(categories):
    index = np.random.default_rng(0).integers(0, 3, 300)
    dtype = object if isinstance(categories[0], str) else None
    frame = pd.DataFrame({"c": np.array(categories, dtype)[index], "x": np.float32(index * 0)})
    est = PolyleafRegressor(n_estimators=30, categorical_features=["c"]).fit(frame, index * 10.0)
    found = run_columns(est, frame)["predictions"][:, 0]
    np.testing.assert_allclose(found, est.predict(frame), rtol=1e-5, atol=1e-5)
    assert len(np.unique(found)) == 3


def test_categories_of_text_and_numbers_raise():
    frame = pd.DataFrame({"c": pd.Series([1, "1", 2.5] * 50, dtype=object)})
    est = PolyleafRegressor(n_estimators=3, categorical_features=["c"]).fit(frame, [0, 5, 9] * 50)
    with pytest.raises(ValueError, match="categories of text and of numbers"):
        to_onnx(est, input="columns")


def test_check_allows_the_rounding_of_thousands_of_trees():
    """Each of the last trees adds less to a float32 sum than its unit in the last place."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((12, 2))
    y = np.sin(X) + 1
    model = PolyleafRegressor(
        n_estimators=20_000, learning_rate=0.002, quality="fast", max_leaves=8
    )
    to_onnx(model.fit(X, y))


@pytest.mark.parametrize("name", ["frame with categories", "defaults, classes", "linear"])
def test_export_compares_the_graph_with_the_model(name, monkeypatch):
    for layout in ("matrix", "columns"):
        to_onnx(estimator(name), input=layout)
    plain = _GraphBuilder._add_scores

    def shifted(self, rows):
        half = self._graph.add_constant(np.array([[0.5]]))
        return self._graph.add("Add", plain(self, rows), half)

    monkeypatch.setattr(_GraphBuilder, "_add_scores", shifted)
    with pytest.raises(RuntimeError, match=r"ONNX export gives other raw scores .* by up to 0\.5"):
        to_onnx(estimator(name))
    to_onnx(estimator(name), check=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    to_onnx(estimator(name))  # no sample input to compare
