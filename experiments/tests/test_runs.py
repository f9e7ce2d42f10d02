"""Every study runs anew on small data: each method of ours on each problem, nothing stored."""

import json

import numpy as np
import pytest
from experiments import defaults
from experiments.__main__ import STUDIES, main
from experiments.harness import runner
from experiments.harness.context import Context, Unavailable
from experiments.harness.paper import Paper, Subject, Table
from experiments.harness.store import Store
from experiments.harness.tables import PEERS
from experiments.papers import _poker, all_papers

# Kind, number of features and number of classes, targets or labels of the data sets that are made.
SETS = {
    "covtype20k": ("multiclass", 10, 7),
    "letter": ("multiclass", 16, 10),
    "mnist": ("multiclass", 784, 10),
    "poker25k": ("multiclass", 10, 10),
    "vehicle": ("multiclass", 18, 4),
    "waveform": ("multiclass", 21, 3),
    "yeast": ("multiclass", 8, 10),
    "otto": ("multiclass", 20, 9),
    "higgs7500": ("binary", 28, 2),
    "atp1d": ("regression", 20, 6),
    "enb": ("regression", 8, 2),
    "student_por": ("regression", 30, 3),
    "casp": ("regression", 9, 1),
    "california_housing": ("regression", 8, 1),
    "sarcos4449": ("regression", 21, 7),
    "rf1": ("regression", 64, 8),
    "delicious": ("multilabel", 30, 12),
    "emotions": ("multilabel", 12, 6),
}
# Studies of all sets run on these alone.
FEW = {"enb", "rf1", "vehicle", "higgs7500", "emotions", "etth1", "delicious"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("sets"), np.random.default_rng(0)
    for name, (task, n_features, n_outputs) in SETS.items():
        n = 30_200 if name == "casp" else 600  # the paper's test part begins at row 30,000
        X = rng.random((n, n_features)).astype(np.float32)
        scores = X @ rng.standard_normal((n_features, n_outputs))
        arrays = {"X": X, "task": task, "train_idx": np.arange(500), "test_idx": np.arange(500, n)}
        if task == "multilabel":
            Y = (scores > np.quantile(scores, 0.7, axis=0)) | (rng.random(scores.shape) < 0.05)
            arrays |= {"Y_indices": np.nonzero(Y)[1], "Y_shape": Y.shape}
            arrays["Y_indptr"] = np.r_[0, np.cumsum(Y.sum(axis=1))]
        elif task == "regression":
            arrays["y"] = scores.astype(np.float32)
        elif name == "poker25k":
            arrays["X"], arrays["y"] = _poker.deal(n, seed=1)
        else:
            arrays["y"] = np.argsort(np.argsort(scores[:, 0])) * n_outputs // n
        np.savez(folder / f"{name}.npz", **arrays)
    hours = rng.normal(size=(2400, 7)).cumsum(axis=0)
    np.savez(folder / "etth1.npz", values=hours.astype(np.float32), split=[800, 1600, 2400])
    return folder


def run(study, data, tmp_path, methods=None):
    """Run the methods of ours without a file of finished runs; return the records."""
    store = Store(tmp_path / "runs.jsonl")
    tasks = [
        task
        for task in study.tasks()
        if (task.method in methods if methods else not task.method.startswith(PEERS))
        and (".papers." in study.module or FEW.issuperset(task.needs))
        and not {"within_60", "within_300"}.intersection(task.key.split("/"))
    ]
    context = Context(data, quick=True)
    failed = runner.run(tasks, context, store, runner.measure_in_process)
    assert failed == [], [store.find_error(task.key) for task in failed]
    assert store.records
    return store


@pytest.mark.parametrize("name", [*all_papers(), *STUDIES])
def test_every_method_runs_on_small_data(name, data, tmp_path, monkeypatch):
    monkeypatch.setattr(defaults, "LIMIT", 200.0)  # no fit is interrupted
    study = {**all_papers(), **STUDIES}[name]
    store = run(study, data, tmp_path)
    for table in study.tables:
        for method, subject in table.runs():
            figures = store.figures(study.task(table, method, subject).key)
            if isinstance(table, Table) and figures is not None:
                values = np.asarray(figures.get(subject.figure, np.nan), float)
                assert np.isfinite(values).all() or subject.figure not in figures


@pytest.mark.parametrize(("case", "n_cases"), [("few", 1), ("words", 2)])
def test_cases_beside_other_libraries_run(case, n_cases, tmp_path):
    path = tmp_path / "peers.json"
    arguments = ["peers", "--quick", "--case", case, "--libraries", "lightgbm", "--threads", "1"]
    assert main([*arguments, "--out", str(path)]) == 0
    cases = json.loads(path.read_text())["cases"]
    assert len(cases) == n_cases
    for contender in (c for found in cases for c in found["contenders"]):
        assert contender["library"] != "polyleaf" or np.isfinite(contender["runs"][0]["score"])


def test_explanations_run():
    assert main(["explain", "--quick"]) == 0


# --- failures ---


def study_of(run):
    subject = Subject("digits", "accuracy", "higher", 1)
    table = Table("Table 1", "t", (subject,), run, "p", paper="digits\nOurs  1.0", ours=("Ours",))
    return Paper("tests", "Small", "Nobody, 2026", (table,), ())


@pytest.mark.parametrize(
    ("error", "code"), [(TypeError("no such argument"), 1), (Unavailable("not installed"), 0)]
)
def test_a_failed_run_of_ours_ends_with_exit_code_1(error, code, tmp_path, monkeypatch, capsys):
    def broken(context, method, problem):
        raise error

    study = study_of(broken)
    monkeypatch.setitem(STUDIES, "softmax", study)
    monkeypatch.setattr("experiments.harness.paper.find", lambda module: study)
    out = tmp_path / "runs.jsonl"
    assert main(["softmax", "--quick", "--out", str(out)]) == code
    assert main(["softmax", "--quick", "--out", str(out)]) == code, "a failed run is not kept"
    assert ("1 runs failed: tests" in capsys.readouterr().err) == bool(code)
