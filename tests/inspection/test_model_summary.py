"""Tables, dumps and summaries describe the trees in the user's features and values."""

import json

import numpy as np
import pandas as pd
import pytest
from support.models import example_frame, random_model

from polyleaf import PolyleafRegressor
from polyleaf.datasets import load
from polyleaf.inspection.model_summary import (
    dump_json,
    leaf_dtype_report,
    nodes_table,
    size_report,
    summary,
    tree_nodes,
    tree_to_dot,
)
from polyleaf.user_data.features import read_features


def predict_row(nodes, row):
    """Return the value of a row of user data in a dumped tree."""
    by_id = {node["node"]: node for node in nodes}
    node = by_id[0]
    while "leaf" not in node:
        value = row[node["feature"]]
        if pd.isna(value):
            goes_left = node["missing_left"]
        elif "categories" in node:
            goes_left = str(value) in node["categories"]
        else:
            goes_left = node["threshold"] is None or np.float32(value) <= node["threshold"]
        node = by_id[node["left" if goes_left else "right"]]
    return node


def add_leaf(raw, columns, leaf, row, names):
    """Add a dumped leaf to the raw scores of its outputs, in the given columns."""
    if "value_outputs" in leaf:
        raw[[names.index(name) for name in leaf["value_outputs"]]] += leaf["value"]
        return
    value = np.array(leaf["value"])
    for name, centre, coefficients in zip(
        leaf.get("regressors", []),
        leaf.get("centre", []),
        leaf.get("coefficients", []),
        strict=True,
    ):
        if not pd.isna(row[name]):
            value += np.array(coefficients) * (row[name] - centre)
    if "lower" in leaf:
        lower, upper = (
            [infinite if bound is None else bound for bound in leaf[side]]
            for side, infinite in (("lower", -np.inf), ("upper", np.inf))
        )
        value = np.clip(value, lower, upper)
    raw[columns] += value


@pytest.mark.parametrize(
    ("scalar", "kinds"),
    [
        (False, ("dense",)),
        (True, ("dense",)),
        (False, ("sparse", "linear", "dense")),
        (True, ("linear",)),
    ],
)
def test_dump_predicts_as_the_model(scalar, kinds):
    model = random_model(scalar=scalar, kinds=kinds, output_names=["a", "b", "c"])
    frame = example_frame(np.random.default_rng(5), 60)
    dump = json.loads(json.dumps(dump_json(model)))
    expected = model.predict_raw(read_features(frame, reference=model.mapper))
    for row, prediction in zip(frame.to_dict("records"), expected, strict=True):
        raw = np.array(dump["base_score"])
        for tree in dump["trees"]:
            names = dump["output_names"]
            columns = [names.index(name) for name in tree["outputs"] or names]
            add_leaf(raw, columns, predict_row(tree["nodes"], row), row, names)
        np.testing.assert_allclose(raw, prediction, rtol=1e-5, atol=1e-5)


def test_dump_to_a_file(tmp_path):
    model = random_model()
    dump = dump_json(model, tmp_path / "model.json")
    content = (tmp_path / "model.json").read_bytes()
    assert json.loads(content) == json.loads(json.dumps(dump))
    assert b"\r" not in content  # the same bytes on Windows


def test_deep_trees_are_dumped():
    model = random_model(n_rounds=1, n_leaves=3000)
    assert len(dump_json(model)["trees"][0]["nodes"]) == 5999


@pytest.mark.parametrize(
    ("scalar", "kinds"), [(True, ("dense",)), (False, ("sparse", "linear")), (True, ("linear",))]
)
def test_node_table_formats_are_equal(scalar, kinds):
    model = random_model(scalar=scalar, kinds=kinds)
    plain = nodes_table(model, "dict")
    assert ("value_outputs" in plain) == ("sparse" in kinds) and ("centre" in plain) == (
        "linear" in kinds
    )
    assert len(plain["tree"]) == size_report(model)["nodes"]
    for kind in ("pandas", "polars", "pyarrow"):
        table = nodes_table(model, kind)
        columns = (
            table.to_pydict() if kind == "pyarrow" else {name: list(table[name]) for name in plain}
        )
        for name, expected in plain.items():
            for found, value in zip(columns[name], expected, strict=True):
                found = found.to_list() if hasattr(found, "to_list") else found
                assert found == value or (value is None and pd.isna(found)), (kind, name)
    with pytest.raises(ValueError, match="got 'csv'"):
        nodes_table(model, "csv")


def test_tables_of_a_model_without_trees():
    model = random_model(n_rounds=0)
    for kind in ("pandas", "polars", "pyarrow"):
        assert len(nodes_table(model, kind)) == 0
    assert size_report(model)["depth"] == {"min": 0, "mean": 0.0, "max": 0}
    assert "0 trees in 0 rounds" in summary(model)


def test_size_report():
    model = random_model(n_rounds=4, n_leaves=5)
    report = size_report(model)
    assert (report["trees"], report["nodes"], report["leaves"]) == (4, 36, 20)
    assert report["leaves_per_tree"] == {"min": 5, "mean": 5.0, "max": 5}
    assert 3 <= report["depth"]["max"] <= 4
    depths = nodes_table(model, "dict")["depth"]
    assert report["depth"]["max"] == max(depths)


def test_size_report_of_sparse_and_linear_leaves():
    model = random_model(n_rounds=4, kinds=("sparse", "linear"))
    report = size_report(model)
    assert report["kinds"] == {"sparse": 2, "linear": 2}
    entries = [
        len(tree.leaves.outputs if tree.kind == "sparse" else tree.leaves.features)
        for tree in model.trees
    ]
    assert report["entries_per_leaf"] == pytest.approx(sum(entries) / report["leaves"])
    assert "2 trees have sparse leaves, 2 trees have linear leaves" in summary(model)
    assert size_report(random_model())["kinds"] == {"dense": 6}


def test_summary_names_the_most_important_feature():
    model = random_model()
    model.best_iteration, model.best_score = 3, 0.25
    text = summary(model, n_features=1)
    best = model.feature_name(int(np.argmax(model.feature_importance())))
    assert best in text and "best round 4" in text and "squared_error" in text


def test_estimators_are_accepted_as_models():
    X = np.random.default_rng(0).normal(size=(30, 2))
    fitted = PolyleafRegressor(n_estimators=2, n_jobs=1).fit(X, X[:, 0])
    model = fitted.model_
    assert nodes_table(fitted, "dict") == nodes_table(model, "dict") and dump_json(
        fitted
    ) == dump_json(model)
    assert size_report(fitted) == size_report(model) and summary(fitted) == summary(model)
    assert tree_nodes(fitted, 1) == tree_nodes(model, 1)
    assert leaf_dtype_report(fitted, X, X[:, 0]) == leaf_dtype_report(model, X, X[:, 0])
    with pytest.raises(TypeError, match="PolyleafRegressor"):
        summary(PolyleafRegressor())


def test_trees_in_the_dot_language():
    X, _, y, _ = load("energy").split()
    frame = pd.DataFrame(X, columns=[f'"{name}"' for name in load("energy").feature_names])
    model = PolyleafRegressor(n_estimators=2, max_leaves=4).fit(frame, y)
    text = tree_to_dot(model, 1)
    nodes = tree_nodes(model, 1)
    assert text.startswith("digraph tree_1 {") and text.endswith("}")
    assert text.count("[label=yes]") == text.count("style=dashed") == 3
    for number, node in enumerate(nodes):
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {number} [")]
        if "leaf" in node:
            assert ", ".join(f"{value:.4g}" for value in node["value"]) in line
        else:
            assert f"  {number} -> {node['left']} [label=yes];" in text
            assert f"{node['feature']} <= ".replace('"', '\\"') in line
    graphviz = pytest.importorskip("graphviz")
    assert graphviz.Source(text).source.startswith("digraph")
