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
    "data_iterator": lambda f: f["same"] and f["share"] == 1 / 8,
    "cgb": lambda f: f["accuracy"] > 0.75,
    "custom_objective": lambda f: f["asymmetric"] < f["squared"] - 0.1,
    "dask_cluster": lambda f: f["same"] and f["workers"] == 2,
    "distributions": lambda f: (
        f["gain in nats"] > 2 and f["sure"] < 0.8 * f["unsure"] and f["predicted right"] > 0.95
    ),
    "early_stopping": lambda f: f["best"] + 20 < f["rounds"] + 1 <= 1000,
    "shap_values": lambda f: f["error"] < 1e-4 and f["for cooling"] < f["glazing for heating"],
    "extreme_multilabel": lambda f: (
        f["P@1"] > f["P@1 of the most frequent"] + 0.15 and f["nDCG@3"] > 0.7
    ),
    "gbdt_mo": lambda f: f["rmse"] < 0.25 * f["baseline"],
    "autogluon_model": lambda f: max(v for name, v in f.items() if name.startswith("Polyleaf")) < 1,
    "openml_flow": lambda f: f["accuracy"] == f["again"] > 0.8 and f["parameters"] > 30,
    "tabarena_experiment": lambda f: len(f) == 2 and max(f.values()) < 1,
    "jax_objective": lambda f: f["own"] < f["one for all"] - 0.3 and 0.8 < f["inside"] < 0.98,
    "layerwise_boosting": lambda f: (
        f["and layers boosted"] > f["vectors in the leaves"] + 0.01 > f["a tree per class"] + 0.1
    ),
    "linear_leaves": lambda f: f["linear"] < f["lines afterwards"] < f["constant"],
    "visualisation": lambda f: f["least gained"] > 0.05 and f["outputs in the map"] == 6,
    "missing_targets": lambda f: f["ignored"] < min(f["rows dropped"], f["filled"]),
    "monotone": lambda f: (
        f["constrained falls"] == 0 < f["free falls"] and f["constrained"] < 1.1 * f["free"]
    ),
    "multilabel": lambda f: f["hamming"] < f["hamming of the majority"],
    "new_rows": lambda f: (
        f["named"] == f["same scores"] == 1
        and f["named without a change"] == 0
        and f["found"] > 0.6
        and f["accuracy"] > f["accuracy before"]
    ),
    "offsets": lambda f: (
        2 * f["both"] < f["trees"] < f["line"]
        and 1.5 * f["exposure"] < f["feature"]
        and 0.25 < f["rate"] < 0.4
    ),
    "one_output_per_tree": lambda f: max(f.values()) < 3,
    "prediction_sets": lambda f: (
        abs(f["held"] - 0.95) < 0.015 and f["alone"] > 0.3 and abs(f["inside"] - 0.9) < 0.065
    ),
    "ranking": lambda f: f["loss of relevance"] < 0.04 and f["gain of margin"] > 0.02,
    "quantiles": lambda f: 0.75 < f["inside"] < 0.85 and f["error"] < 0.25 * f["baseline"],
    "registered_objective": lambda f: f["too low at 0.9"] < f["too low at 0.5"] - 0.1,
    "report": lambda f: f["sections"] == 3 and 0.1 < f["megabytes"] < 1,
    "hyperparameter_search": lambda f: (
        f["blend"] < f["best"] < f["fast"] and f["blend"] < 1.01 * f["defaults"]
    ),
    "sparse_features": lambda f: f["accuracy"] > 0.9 and 20 * f["megabytes"] < f["dense megabytes"],
    "sparse_leaves": lambda f: f["four of each leaf's own"] > f["all classes"] > 0.85,
    "multitask": lambda f: (
        f["with help"] < f["without"] - 0.5 < f["deviation"] and f["right"] > 0.85
    ),
    "decision_threshold": lambda f: (
        min(f["chosen"], f["without labels"]) > f["one half"] and f["threshold"] < 0.45
    ),
    "http_service": lambda f: (
        f["same"] == 1 and f["error status"] == 400 and f["answers a second"] > 0
    ),
    "small_models": lambda f: (
        abs(f["rounded"] - f["accuracy"]) < 0.01 and f["accuracy"] > f["first"] + 0.3
    ),
    "survival": lambda f: f["error"] < 0.5 * f["of one curve"] and f["correlation"] > 0.7,
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
