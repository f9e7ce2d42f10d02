"""Callbacks that log to MLflow, TensorBoard and Weights & Biases."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from polyleaf import PolyleafClassifierCV, PolyleafRegressor, cv
from polyleaf.integrations.loggers import MlflowLogger, TensorBoardLogger, WandbLogger

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 3))
Y = np.column_stack([X[:, 0], X[:, 1] ** 2])
SETS = {"eval_set": [(X, Y)]}


class Run:
    """Records what a logger sends to a run of Weights & Biases."""

    def __init__(self):
        self.parameters, self.steps = {}, []
        self.config = SimpleNamespace(update=self.update)

    def update(self, parameters, allow_val_change):
        self.parameters |= parameters

    def log(self, values, step):
        self.steps.append((step, values))


def fit(logger, n_estimators=4):
    return PolyleafRegressor(n_estimators=n_estimators, max_leaves=5).fit(
        X, Y, **SETS, callbacks=[logger]
    )


def test_wandb(monkeypatch):
    wandb = ModuleType("wandb")
    wandb.run = Run()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    model = fit(WandbLogger(per_output=True))
    logged = model.evals_result_["validation_0"]
    per_output = model.evals_result_per_output_["validation_0"]["rmse"]
    assert wandb.run.parameters["max_leaves"] == 5 and len(wandb.run.steps) == 4
    for step, values in wandb.run.steps:
        assert values["validation_0/rmse"] == logged["rmse"][step]
        assert values["validation_0/rmse_1"] == per_output[step, 1]
    own = Run()
    fit(WandbLogger(own))
    assert own.steps[-1][1].keys() == {"validation_0/rmse", "validation_0/relative_rmse"}
    wandb.run = None
    with pytest.raises(ValueError, match=r"call wandb.init\(\) first"):
        fit(WandbLogger())


def test_tensorboard(monkeypatch, tmp_path):
    written = []

    class SummaryWriter:
        def __init__(self, log_dir):
            self.log_dir = log_dir

        def add_text(self, tag, text):
            written.append((self.log_dir, tag, text))

        def add_scalar(self, tag, value, step):
            written.append((self.log_dir, tag, value, step))

        def close(self):
            written.append("closed")

    package = ModuleType("tensorboardX")
    package.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "tensorboardX", package)
    model = fit(TensorBoardLogger(tmp_path))
    values = model.evals_result_["validation_0"]["rmse"]
    assert "- max_leaves: 5" in written[0][2] and written[-1] == "closed"
    for step, value in enumerate(values):
        assert (str(tmp_path), "validation_0/rmse", value, step) in written
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        fit(TensorBoardLogger(tmp_path))


def test_events_are_read_by_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    fit(TensorBoardLogger(tmp_path))
    assert any(file.name.startswith("events.out") for file in tmp_path.iterdir())


@pytest.fixture
def runs(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    client = mlflow.tracking.MlflowClient()
    return lambda: client.search_runs(["0"], order_by=["start_time asc"])


def test_mlflow(runs):
    import mlflow

    with mlflow.start_run() as active:
        model = fit(MlflowLogger())
    (run,) = runs()
    history = mlflow.tracking.MlflowClient().get_metric_history(
        active.info.run_id, "validation_0/rmse"
    )
    assert [m.value for m in history] == model.evals_result_["validation_0"]["rmse"]
    assert run.data.params["max_leaves"] == "5"


def test_autolog_logs_each_fit_once(runs):
    from polyleaf.integrations.mlflow import autolog, load_model

    autolog(per_output=True)
    try:
        model = PolyleafRegressor(n_estimators=3).fit(X, Y, **SETS)
        (run,) = runs()
        assert run.data.params["n_estimators"] == "3" and "validation_0/rmse_1" in run.data.metrics
        uri = f"runs:/{run.info.run_id}/model"
        np.testing.assert_array_equal(load_model(uri).predict(X), model.predict(X))
        PolyleafClassifierCV(n_candidates=2, n_estimators=3).fit(X, X[:, 0] > 0)
        cv(PolyleafRegressor(n_estimators=3), X, Y)  # folds are not logged
        _, second = runs()
        assert second.info.status == "FINISHED" and "best_score" in second.data.metrics
        with pytest.raises(ValueError):
            PolyleafRegressor(n_estimators=3).fit(X, Y[:50])
        assert [r.info.status for r in runs()] == ["FINISHED", "FINISHED", "FAILED"]
    finally:
        autolog(disable=True)
    PolyleafRegressor(n_estimators=3).fit(X, Y)
    assert len(runs()) == 3
