"""The examples, also those in the README, run and show what they claim."""

from __future__ import annotations

import importlib.util
import json
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from support import ROOT

from polyleaf import PolyleafMultiTask, PolyleafRegressor

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# What each example shows, as a condition on the value of its main().
SHOWS = {
    "data_iterator": lambda found: found["same"] and found["share"] == 1 / 8,
    "cgb": lambda found: found["accuracy"] > 0.75,
    "custom_objective": lambda found: found["asymmetric"] < found["squared"] - 0.1,
    "dask_cluster": lambda found: found["same"] and found["workers"] == 2,
    "distributions": lambda found: (
        found["gain in nats"] > 2
        and found["sure"] < 0.8 * found["unsure"]
        and found["predicted right"] > 0.95
    ),
    "early_stopping": lambda found: found["best"] + 20 < found["rounds"] + 1 <= 1000,
    "shap_values": lambda found: (
        found["error"] < 1e-4 and found["for cooling"] < found["glazing for heating"]
    ),
    "extreme_multilabel": lambda found: (
        found["P@1"] > found["P@1 of the most frequent"] + 0.15 and found["nDCG@3"] > 0.7
    ),
    "gbdt_mo": lambda found: found["rmse"] < 0.25 * found["baseline"],
    "autogluon_model": lambda found: (
        max(v for name, v in found.items() if name.startswith("Polyleaf")) < 1
    ),
    "openml_flow": lambda found: (
        found["accuracy"] == found["again"] > 0.8 and found["parameters"] > 30
    ),
    "tabarena_experiment": lambda found: len(found) == 2 and max(found.values()) < 1,
    "jax_objective": lambda found: (
        found["own"] < found["one for all"] - 0.3 and 0.8 < found["inside"] < 0.98
    ),
    "layerwise_boosting": lambda found: (
        found["and layers boosted"]
        > found["vectors in the leaves"] + 0.01
        > found["a tree per class"] + 0.1
    ),
    "linear_leaves": lambda found: found["linear"] < found["lines afterwards"] < found["constant"],
    "visualisation": lambda found: (
        found["least gained"] > 0.05 and found["outputs in the map"] == 6
    ),
    "missing_targets": lambda found: found["ignored"] < min(found["rows dropped"], found["filled"]),
    "monotone": lambda found: (
        found["constrained falls"] == 0 < found["free falls"]
        and found["constrained"] < 1.1 * found["free"]
    ),
    "multilabel": lambda found: found["hamming"] < found["hamming of the majority"],
    "offsets": lambda found: (
        2 * found["both"] < found["trees"] < found["line"]
        and 1.5 * found["exposure"] < found["feature"]
        and 0.25 < found["rate"] < 0.4
    ),
    "one_output_per_tree": lambda found: max(found.values()) < 3,
    "prediction_sets": lambda found: (
        abs(found["held"] - 0.95) < 0.015
        and found["alone"] > 0.3
        and abs(found["inside"] - 0.9) < 0.065
    ),
    "ranking": lambda found: found["loss of relevance"] < 0.04 and found["gain of margin"] > 0.02,
    "quantiles": lambda found: (
        0.75 < found["inside"] < 0.85 and found["error"] < 0.25 * found["baseline"]
    ),
    "registered_objective": lambda found: found["too low at 0.9"] < found["too low at 0.5"] - 0.1,
    "report": lambda found: found["sections"] == 3 and 0.1 < found["megabytes"] < 1,
    "hyperparameter_search": lambda found: max(found["best"], found["blend"]) < found["defaults"],
    "sparse_features": lambda found: (
        found["accuracy"] > 0.9 and 20 * found["megabytes"] < found["dense megabytes"]
    ),
    "sparse_leaves": lambda found: found["four of each leaf's own"] > found["all classes"] > 0.85,
    "multitask": lambda found: (
        found["with help"] < found["without"] - 0.5 < found["deviation"] and found["right"] > 0.85
    ),
    "decision_threshold": lambda found: (
        min(found["chosen"], found["without labels"]) > found["one half"]
        and found["threshold"] < 0.45
    ),
    "http_service": lambda found: (
        found["same"] == 1 and found["error status"] == 400 and found["answers a second"] > 0
    ),
    "small_models": lambda found: (
        abs(found["rounded"] - found["accuracy"]) < 0.01
        and found["accuracy"] > found["first"] + 0.3
    ),
    "survival": lambda found: (
        found["error"] < 0.5 * found["of one curve"] and found["correlation"] > 0.7
    ),
}


# Optional dependencies of examples.
NEEDS = {
    "dask_cluster": "distributed",
    "autogluon_model": "autogluon.tabular",
    "openml_flow": "openml",
    "tabarena_experiment": "tabarena",
    "jax_objective": "jax",
}


def load_module(path: Path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_main(path: Path) -> dict[str, float]:
    return load_module(path).main()


@pytest.mark.full
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, capsys):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason="an extra is not installed")
    found = run_main(path)
    assert SHOWS[path.stem](found), found
    assert capsys.readouterr().out


def send_request(predict, body: bytes):
    """Return the status and the answer of the example service."""
    service = load_module(ROOT / "examples" / "http_service.py")
    with service.Service(predict) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        connection = HTTPConnection("127.0.0.1", running.port)
        connection.request("POST", "/", body)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        running.shutdown()
    return found


def test_service_keeps_float64_precision():
    """The time stamps are equal in float32."""
    X = 1.7e9 + np.arange(200.0)[:, None]
    model = PolyleafRegressor(n_estimators=3).fit(X, np.arange(200) % 7)
    status, content = send_request(model.predictor(), json.dumps({"rows": X.tolist()}).encode())
    assert status == 200 and content["predictions"] == model.predict(X).tolist()
    assert len(set(content["predictions"])) > 1


def test_service_answers_for_each_task():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = PolyleafMultiTask(n_estimators=2).fit(
        X, {"a": X[:, 0], "b": np.where(X[:, 1] > 0, "p", "q")}
    )
    status, content = send_request(model.predictor(), json.dumps({"rows": X.tolist()}).encode())
    assert status == 200
    assert content["predictions"] == {
        task: found.tolist() for task, found in model.predict(X).items()
    }


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": ' + b"[" * 100_000,
        b'{"rows": ' + b"[" * 90 + b"1" + b"]" * 90 + b"}",
        b"\xff",
        b"[]",
        b"",
        b'{"rows": [[1e999999, "a"]]}',
        b'{"rows": [[1' + b"0" * 400 + b", 1]]}",
        b'{"rows": 3}',
        b'{"rows": [[1], [1, 2]]}',
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)
def test_service_rejects_invalid_rows(body):
    X = np.random.default_rng(0).normal(size=(60, 2))
    status, content = send_request(
        PolyleafRegressor(n_estimators=2).fit(X, X[:, 0]).predictor(), body
    )
    assert status == 400 and content["error"]


def test_all_examples_are_checked():
    assert set(SHOWS) == {path.stem for path in EXAMPLES}
