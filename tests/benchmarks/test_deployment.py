"""The study of deployment: a file is served as it would be, and all that is shown is measured."""

import numpy as np
import pytest
from benchmarks import deployment, serving
from benchmarks.c_programs import COMPILERS
from benchmarks.harness.context import Context, Unavailable

from polyleaf import PolyleafRegressor


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    PolyleafRegressor(n_estimators=3).fit(X, X[:, :2]).save_model(folder / "m.polyleaf")
    np.save(folder / "rows.npy", X)
    return {"path": str(folder / "m.polyleaf"), "rows": str(folder / "rows.npy"), "asked": 8}


def shown():
    """Figures of all tables."""
    return {subject.figure for table in deployment.PAPER.tables for subject in table.subjects}


def test_deployment_tables_are_measured(job, monkeypatch):
    monkeypatch.setattr(serving, "LEAST_SECONDS", 0.0)
    pytest.importorskip("pandas")
    figures = serving.measure({**job, "method": "Polyleaf"})
    assert set(figures) | {"file_mb", "header_mb"} == shown()
    assert all(value >= 0 for value in figures.values()) and figures["requests_4"] > 0


@pytest.mark.parametrize("method", ["Polyleaf", "Polyleaf, predictor()"])
def test_a_loaded_model_predicts(job, method):
    X = np.load(job["rows"])
    predict = serving.LOADERS[method]()(job["path"])
    np.testing.assert_array_equal(
        predict(X), PolyleafRegressor(n_estimators=3).fit(X, X[:, :2]).predict(X)
    )


def test_every_method_has_a_loader():
    assert set(serving.LOADERS) == set(deployment.SAVED)


@pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
def test_the_header_is_timed_row_by_row(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "COMPILERS", COMPILERS[:1])
    method = f"Polyleaf as C, {COMPILERS[0].split('-')[0]}"
    figures = deployment.deployment(Context(tmp_path, quick=True), method, "16 targets")
    assert figures["batch_1"] == pytest.approx(1e6 / figures["array_p50_us"])
    assert 0.001 < figures["file_mb"] < 1 and 0.001 < figures["header_mb"] < 1


def test_missing_library_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "is_installed", lambda name: name == "polyleaf")
    with pytest.raises(Unavailable, match="CatBoost is not installed"):
        deployment.deployment(Context(tmp_path, quick=True), "CatBoost", "16 targets")
    monkeypatch.setattr(deployment, "COMPILERS", [])
    with pytest.raises(Unavailable, match="gcc is not installed"):
        deployment.deployment(Context(tmp_path, quick=True), "Polyleaf as C, gcc", "16 targets")
