"""The commands on extreme multi-label data (XMC)."""

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp
from support.commands import fails, polyleaf

from polyleaf import PolyleafClassifier, load_model
from polyleaf.files.xmc import read_sparse_matrix, write_multilabel
from polyleaf.metrics.ranking import ranking_scores
from polyleaf.settings import presets

FAST = "--rounds 6 --set min_child_samples=10 --set projection_dim=6 --set leaf_k=3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows of five groups as text files, a file of names, and a model."""
    folder = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    group = rng.integers(0, 5, 400)
    X = sp.csr_matrix(
        (rng.random((400, 30)) < np.where(rng.random((5, 30)) < 0.2, 0.6, 0.03)[group]) * 1.0
    )
    Y = sp.csr_matrix(
        (rng.random((400, 12)) < np.where(rng.random((5, 12)) < 0.2, 0.8, 0.02)[group]) * 1.0
    )
    write_multilabel(folder / "train.txt", X[:300], Y[:300])
    write_multilabel(folder / "test.xmc", X[300:], Y[300:])
    write_multilabel(folder / "narrow.xmc", X[300:, :29], Y[300:])
    (folder / "names.txt").write_text("".join(f"topic {k}\n" for k in range(12)))
    np.savez(folder / "data.npz", X=X.toarray(), Y=Y.toarray())
    train = f"train {folder}/train.txt --format xmc --leaf sparse -m {folder}/model"
    polyleaf(f"{train} --label-names {folder}/names.txt {FAST}")
    return folder


def read(folder):
    with np.load(folder / "data.npz") as file:
        return file["X"], sp.csr_matrix(file["Y"])


def test_model_equals_the_estimator(folder):
    X, Y = read(folder)
    settings = {"n_estimators": 6, "min_child_samples": 10, "projection_dim": 6, "leaf_k": 3}
    expected = PolyleafClassifier(**presets.gbdt_sparse() | settings, random_state=0).fit(
        X[:300], Y[:300]
    )
    model = load_model(folder / "model")
    for mine, theirs in zip(model.predict_topk(X, 4), expected.predict_topk(X, 4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert model.predict_topk(X, 2, names=True)[0][0, 0].startswith("topic ")


def test_topk_labels_as_csv(folder):
    polyleaf(f"predict {folder}/test.xmc -m {folder}/model --top 2 -o {folder}/best.csv")
    with open(folder / "best.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["label_1", "score_1", "label_2", "score_2"] and len(rows) == 100
    labels, scores = load_model(folder / "model").predict_topk(read(folder)[0][300:], 2)
    assert [row[0] for row in rows] == [f"topic {k}" for k in labels[:, 0]]
    np.testing.assert_allclose([float(row[3]) for row in rows], scores[:, 1], rtol=1e-6)


def test_topk_labels_as_a_sparse_matrix(folder):
    polyleaf(f"predict {folder}/test.xmc -m {folder}/model --top 3 -o {folder}/best.txt")
    values = read_sparse_matrix(folder / "best.txt")
    labels, scores = load_model(folder / "model").predict_topk(read(folder)[0][300:], 3)
    assert values.shape == (100, 12)
    rows = np.arange(100)[:, None]
    np.testing.assert_allclose(np.asarray(values[rows, labels].todense()), scores, rtol=1e-6)


def test_scores(folder, capsys):
    capsys.readouterr()
    polyleaf(f"evaluate {folder}/test.xmc -m {folder}/model --json")
    scores = json.loads(capsys.readouterr().out)
    X, Y = read(folder)
    expected = ranking_scores(Y[300:], load_model(folder / "model").predict_topk(X[300:], 5))
    assert scores == pytest.approx(expected)
    most_frequent = int(np.argmax(np.asarray(Y[:300].sum(axis=0))))
    assert scores["P@1"] > Y[300:].toarray()[:, most_frequent].mean() + 0.1


@pytest.mark.parametrize("validation", ["0.25", "file"])
def test_validation(folder, validation):
    data = folder / "test.xmc" if validation == "file" else validation
    arguments = f"--validation {data} --early-stopping 2"
    polyleaf(f"train {folder}/train.txt --format xmc -m {folder}/validated {FAST} {arguments}")
    assert load_model(folder / "validated").best_iteration_ is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train train.txt --format xmc --target a", "--target does not support"),
        ("train train.txt --format xmc --drop a", "--drop does not support"),
        ("train train.txt --format xmc --early-stopping 3", "--early-stopping needs"),
        ("train train.txt --format xmc --validation 1.5", "leaves no row"),
        ("train train.txt --format xmc --validation narrow.xmc", "29 features"),
        ("train train.txt --format xmc --set leafs=3", "no parameter 'leafs'"),
        ("train absent.xmc", "absent.xmc"),
        ("train names.txt --format xmc", "line 1"),
        ("train train.txt --label-names names.txt", "--label-names needs"),
        ("predict narrow.xmc", "has 29 features, but the model has 30"),
        ("predict test.xmc -o best.xlsx", "unknown extension"),
        ("predict train.txt --format csv", "use --format xmc"),
        ("evaluate train.txt --format arrow", "use --format xmc"),
    ],
)
def test_errors(folder, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    model = "other" if arguments.startswith("train") else "model"
    assert message in fails(capsys, f"{arguments} -m {model}")
    assert not (folder / "other").exists()


def test_model_trained_from_a_table_is_rejected(folder, capsys, tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n" + "".join(f"{i},{i * 0.1}\n" for i in range(60)))
    polyleaf(f"train {tmp_path}/table.csv -t b -m {tmp_path}/m --rounds 2")
    assert "trained from a table" in fails(capsys, f"predict {folder}/test.xmc -m {tmp_path}/m")
