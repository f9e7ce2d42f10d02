"""Multi-task models on the command line, compared with the estimator."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from support.commands import fails, polyleaf

from polyleaf import Dataset, PolyleafMultiTask, load_model
from polyleaf.objectives import Quantile

N = 400
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 3)).round(3)
FRAME = pd.DataFrame(X, columns=list("xyz")).assign(
    price=(X[:, 0] + 0.3 * RNG.normal(size=N)).round(3),
    demand=(X[:, 1] + RNG.normal(size=N)).round(3),
    sold=np.where(X[:, 2] + 0.3 * RNG.normal(size=N) > 0, "yes", "no"),
    rooms=np.digitize(X[:, 0], [-0.5, 0.5]),
    a=(X[:, 0] > 0).astype(int),
    b=(X[:, 1] > 0).astype(int),
)
LOSSES = {"price": "normal", "demand": Quantile((0.1, 0.9)), "sold": "logistic"}
LOSSES |= {"rooms": "softmax", ("a", "b"): "logistic"}
TASKS = "--task price=normal --task demand=quantile:0.1,0.9 --task sold=logistic"
TASKS += " --task rooms --task a,b"
FAST = "--rounds 8 --threads 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    FRAME[:300].to_csv(folder / "train.csv", index=False)
    FRAME[300:].to_csv(folder / "test.csv", index=False)
    polyleaf(f"train {folder}/train.csv -m {folder}/m {TASKS} {FAST}")
    return folder


@pytest.fixture(scope="module")
def expected():
    model = PolyleafMultiTask(LOSSES, n_estimators=8, random_state=0, n_jobs=1)
    return model.fit(X[:300], FRAME[:300])


def read(path):
    with open(path, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_predictions_equal_the_estimator(folder, expected):
    options = f"--proba --levels 0.5 -o {folder}/p.csv"
    polyleaf(f"predict {folder}/test.csv -m {folder}/m {options}")
    columns, predicted = read(folder / "p.csv"), expected.predict(X[300:])
    proba = expected.predict_proba(X[300:])
    first = ["price", "demand_q0.1", "demand_q0.9", "sold", "rooms", "a", "b", "price_q0.5"]
    assert list(columns)[:8] == first
    upper = np.array(columns["demand_q0.9"], float)
    np.testing.assert_array_equal(np.array(columns["price"], float), predicted["price"])
    np.testing.assert_array_equal(upper, predicted["demand"][:, 1])
    assert columns["sold"] == predicted["sold"].tolist()
    np.testing.assert_array_equal(np.array(columns["rooms"], int), predicted["rooms"])
    np.testing.assert_array_equal(np.array([columns["a"], columns["b"]], int).T, predicted["a+b"])
    np.testing.assert_array_equal(np.array(columns["proba_rooms_2"], float), proba["rooms"][:, 2])
    np.testing.assert_array_equal(np.array(columns["proba_sold_yes"], float), proba["sold"][:, 1])
    np.testing.assert_array_equal(np.array(columns["proba_b"], float), proba["a+b"][:, 1])
    median = expected.predict_dist(X[300:])["price"].ppf(0.5)
    np.testing.assert_array_equal(np.array(columns["price_q0.5"], float), median)


def test_scores_of_each_task(folder, expected, capsys):
    capsys.readouterr()
    polyleaf(f"evaluate {folder}/test.csv -m {folder}/m --json")
    values = json.loads(capsys.readouterr().out)
    d2 = expected.d2_scores(X[300:], FRAME[300:])
    assert {name: scores["d2"] for name, scores in values["tasks"].items()} == pytest.approx(d2)
    assert values["d2"] == pytest.approx(np.mean(list(d2.values())))
    assert {"RMSE", "NLL", "CRPS"} <= values["tasks"]["price"].keys()
    assert {"pinball loss q0.1", "share below q0.9"} <= values["tasks"]["demand"].keys()
    right = np.mean(expected.predict(X[300:])["sold"] == FRAME["sold"][300:])
    assert values["tasks"]["sold"]["accuracy"] == pytest.approx(right)
    assert set(values["tasks"]["a+b"]["targets"]) == {"a", "b"}
    polyleaf(f"evaluate {folder}/test.csv -m {folder}/m")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("d2") and "rooms" in lines
    assert any("micro F1" in line for line in lines)


@pytest.mark.full
def test_one_task_in_python(folder, expected, capsys, tmp_path):
    """The steps in docs/how_to/command_line.md for single tasks and calibration."""
    test, sold = pd.read_csv(folder / "test.csv"), tmp_path / "sold"
    model = load_model(folder / "m").task_estimator("sold")
    np.testing.assert_array_equal(
        model.predict_raw(X), expected.task_estimator("sold").predict_raw(X)
    )
    model.calibrate(test[["x", "y", "z"]], test["sold"]).save_model(sold)
    assert load_model(sold).predict_set(test[["x", "y", "z"]]).shape == (100, 2)
    polyleaf(f"report {folder}/test.csv -m {folder}/m -o {tmp_path}/all.html")
    assert '<section id="task1">' in (tmp_path / "all.html").read_text("utf-8")
    capsys.readouterr()
    outputs = "--outputs price_mean,rooms_2"
    polyleaf(f"explain {folder}/test.csv -m {folder}/m {outputs} --importance")
    assert "price_mean,mean_shap_rooms_2" in capsys.readouterr().out


def test_missing_targets(folder, tmp_path, capsys):
    train = FRAME[:300].copy()
    train.loc[::4, "price"] = np.nan
    train.loc[1::4, "sold"] = None
    train.to_csv(tmp_path / "some.csv", index=False)
    options = f"--task price --task sold --set missing_targets=ignore {FAST}"
    polyleaf(f"train {tmp_path}/some.csv -m {tmp_path}/m {options}")
    plain = PolyleafMultiTask(
        {"price": "squared_error", "sold": "logistic"}, missing_targets="ignore", n_estimators=8
    )
    features = train[["x", "y", "z", "demand", "rooms", "a", "b"]]
    plain.set_params(random_state=0, n_jobs=1).fit(Dataset(features), train)  # bins of all rows
    np.testing.assert_array_equal(
        load_model(tmp_path / "m").predict_raw(features), plain.predict_raw(features)
    )
    capsys.readouterr()
    polyleaf(f"evaluate {tmp_path}/some.csv -m {tmp_path}/m --json")
    is_known, tasks = train["sold"].notna(), json.loads(capsys.readouterr().out)["tasks"]
    right = plain.predict(features)["sold"][is_known] == train["sold"][is_known]
    assert tasks["sold"]["accuracy"] == pytest.approx(right.mean())


def test_settings_and_validation_data(folder, tmp_path, capsys):
    options = "--task price --task sold --validation 0.2 --early-stopping 3"
    more = ["--set", 'task_weight={"sold": 2}', "--set", 'eval_metric={"sold": "logloss"}']
    polyleaf(f"train {folder}/train.csv -m {tmp_path}/m --rounds 60 {options}", *more)
    printed = capsys.readouterr().err
    assert "2 tasks: price (squared_error, inferred), sold (logistic, inferred)" in printed
    assert "validation sold: logloss" in printed
    assert [place.task.weight for place in load_model(tmp_path / "m").model_.objective.tasks] == [
        1.0,
        2.0,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-t price --task price=normal", "leave --target out"),
        ("--task cost=normal", "there is no column 'cost'"),
        ("--task price=", "such as price=squared_error, not 'price='"),
        ("--task price=nice", "Unknown objective 'nice'"),
        ("--task price=normal:3", "'normal' takes no value"),
        ("--task price=huber:x", "--task price=huber:x: huber_delta"),
        ("--task price --task price=normal", "target of two tasks"),
        ("--task sold=squared_error --task price", "Column 'sold' holds"),
        ("--task price --objective normal", "--objective does not support multi-task"),
        ("--task price --offset x", "--offset does not support multi-task"),
        ("--task price --search 3", "--search does not support multi-task"),
        ("--task regression -t sold,rooms", "which is not a number"),
        ("-t sold,rooms", "each target with --task"),
    ],
)
def test_errors(folder, tmp_path, capsys, options, message):
    assert message in fails(capsys, f"train {folder}/train.csv -m {tmp_path}/m {options}")


def test_intervals_of_tasks_raise(folder, capsys):
    message = fails(capsys, f"predict {folder}/test.csv -m {folder}/m --intervals")
    assert "--intervals does not support multi-task models" in message
