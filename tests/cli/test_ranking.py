"""Rankings on the command line, compared with the estimator."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from support.commands import fails, polyleaf

from polyleaf import PolyleafRanker, load_model

RNG = np.random.default_rng(3)
N = 300
X = RNG.random((N, 3)).round(3)
QID = RNG.integers(0, 25, N)
GOALS = np.floor(np.column_stack([4 * X[:, 0] + X[:, 1], 3 - 3 * X[:, 0]]))
FRAME = pd.DataFrame(X, columns=list("xyz")).assign(
    session=[f"s{q:02}" for q in QID], relevance=GOALS[:, 0], margin=GOALS[:, 1]
)
FAST = "--rounds 8 --threads 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranking")
    FRAME.to_csv(folder / "data.csv", index=False)
    order = np.argsort(QID, kind="stable")
    lines = [
        f"{GOALS[i, 0]:g} qid:{QID[i]} " + " ".join(f"{k + 1}:{v}" for k, v in enumerate(X[i]))
        for i in order
    ]
    (folder / "data.svm").write_text("\n".join(lines) + "\n")
    return folder


def make(**parameters):
    return PolyleafRanker(n_estimators=8, n_jobs=1, random_state=0, **parameters)


def test_column_of_queries(folder, capsys):
    polyleaf(
        f"train {folder}/data.csv -t relevance --query session --drop margin -m {folder}/m {FAST}"
    )
    model, expected = load_model(folder / "m"), make().fit(X, GOALS[:, 0], qid=QID)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    polyleaf(f"predict {folder}/data.csv -m {folder}/m --keep session -o {folder}/p.csv")
    predicted = pd.read_csv(folder / "p.csv")
    assert list(predicted) == ["session", "relevance"]
    np.testing.assert_allclose(predicted["relevance"], expected.predict(X))
    capsys.readouterr()
    polyleaf(f"evaluate {folder}/data.csv -m {folder}/m --json")
    scores = json.loads(capsys.readouterr().out)
    assert scores["ndcg"] == pytest.approx(expected.score(X, GOALS[:, 0], qid=QID))
    assert list(scores) == ["ndcg", "ndcg@5", "ndcg@10", "map", "mrr"]


def test_several_goals(folder, capsys):
    weights = "[[1,0],[0.5,0.5],[0,1]]"
    polyleaf(
        f"train {folder}/data.csv -t relevance,margin --query session -m {folder}/m {FAST} "
        f"--set goal_weights={weights}"
    )
    expected = make(goal_weights=json.loads(weights)).fit(X, GOALS, qid=QID)
    np.testing.assert_array_equal(load_model(folder / "m").predict(X), expected.predict(X))
    polyleaf(f"predict {folder}/data.csv -m {folder}/m")
    assert capsys.readouterr().out.splitlines()[0] == "score_0,score_1,score_2"
    capsys.readouterr()
    polyleaf(f"evaluate {folder}/data.csv -m {folder}/m --json")
    scores = json.loads(capsys.readouterr().out)
    assert list(scores["targets"]) == ["score_0", "score_1", "score_2"]
    pytest.importorskip("matplotlib")
    polyleaf(f"report {folder}/data.csv -m {folder}/m -o {folder}/r.html")
    assert "Trade-offs" in (folder / "r.html").read_text("utf-8")


@pytest.mark.parametrize("validation", ["0.3", "data.svm"])
def test_libsvm(folder, validation):
    held = validation if validation == "0.3" else folder / validation
    polyleaf(f"train {folder}/data.svm -m {folder}/m {FAST} --validation {held}")
    model = load_model(folder / "m")
    assert type(model) is PolyleafRanker
    assert len(model.evals_result_["validation_0"]["ndcg@10"]) == 8
    if validation != "0.3":
        expected = make().fit(X, GOALS[:, 0], qid=QID)
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    polyleaf(f"train {folder}/data.svm -m {folder}/m {FAST} --task regression")
    assert load_model(folder / "m").n_features_in_ == 3  # without the queries


def test_positions(folder, capsys):
    shown = np.arange(N) % 5
    frame = FRAME.assign(shown=shown)
    frame.to_csv(folder / "clicks.csv", index=False)
    command = f"{folder}/clicks.csv --positions shown -m {folder}/m"
    polyleaf(f"train {command} -t relevance --query session --drop margin {FAST}")
    model = load_model(folder / "m")
    expected = make().fit(X, GOALS[:, 0], qid=QID, positions=shown)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    np.testing.assert_array_equal(model.position_bias_, expected.position_bias_)
    polyleaf(f"predict {folder}/data.csv -m {folder}/m -o {folder}/p.csv")  # needs no positions
    polyleaf(f"refit {command}")
    expected.refit(X, GOALS[:, 0], qid=QID, positions=shown)
    np.testing.assert_array_equal(load_model(folder / "m").predict(X), expected.predict(X))
    frame["shown"] = frame["shown"] + 0.5
    frame.to_csv(folder / "clicks.csv", index=False)
    command = f"train {folder}/clicks.csv --drop margin -t relevance -m {folder}/m --positions"
    message = fails(capsys, f"{command} shown --query session")
    assert "'shown' has no position in row 0" in message
    assert "--positions takes one column" in fails(capsys, f"{command} x,y --query session")
    assert "--positions is for --task ranking" in fails(capsys, f"{command} z")


def test_search(folder):
    command = f"train {folder}/data.csv -t relevance --query session --drop margin"
    polyleaf(f"{command} -m {folder}/m --search 2 {FAST} --set n_candidates=2")
    assert type(load_model(folder / "m")) is PolyleafRanker


def test_errors(folder, capsys):
    data, model = f"{folder}/data.csv", f"-m {folder}/m"
    assert "needs --query" in fails(capsys, f"train {data} -t relevance --task ranking {model}")
    message = fails(capsys, f"train {data} -t relevance --task regression --query session {model}")
    assert "--query is for --task ranking" in message
    message = fails(capsys, f"train {data} -t relevance --query x,y {model}")
    assert "--query takes one column" in message
    message = fails(capsys, f"train {data} --task relevance=logistic --query session {model}")
    assert "--query does not support multi-task models" in message
    polyleaf(f"train {data} -t relevance --query session {model} {FAST}")
    assert "no intervals" in fails(capsys, f"predict {data} {model} --intervals")
