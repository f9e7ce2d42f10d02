"""Models in MLflow can be saved, loaded and served without pickles."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor, datasets
from polyleaf.integrations.mlflow import load_model, log_model, save_model

mlflow = pytest.importorskip("mlflow")

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def tracked(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())


@pytest.fixture(scope="module")
def energy():
    small = datasets.load("energy")
    X, X_test, y, _ = small.split()
    X, X_test = (pd.DataFrame(rows, columns=small.feature_names) for rows in (X, X_test))
    return PolyleafRegressor(n_estimators=5).fit(
        X, pd.DataFrame(y, columns=small.output_names)
    ), X_test


@pytest.fixture(scope="module")
def letters():
    X, X_test, y, _ = datasets.load("letter").split()
    return PolyleafClassifier(n_estimators=3, max_leaves=8).fit(X[:800], y[:800]), X_test[:50]


@pytest.fixture
def no_pickles(monkeypatch):
    def raise_on_pickle(*args, **kwargs):
        raise AssertionError("A pickle is read.")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, raise_on_pickle)


def test_saved_model_is_served(energy, tmp_path, no_pickles):
    model, X = energy
    save_model(model, tmp_path / "m")
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(served.predict(X), model.predict(X))
    again = load_model(str(tmp_path / "m"))
    assert type(again) is PolyleafRegressor and again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_raw"])
def test_predict_method_is_chosen_when_saving(letters, tmp_path, method):
    model, X = letters
    save_model(model, tmp_path / "m", method=method)
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(served.predict(X), getattr(model, method)(X))
    assert served.get_raw_model().get_params() == model.get_params()


def test_signature_is_stored_and_checked(energy, tmp_path):
    model, X = energy
    signature = mlflow.models.infer_signature(X, model.predict(X))
    save_model(model, tmp_path / "m", signature=signature, input_example=X.head(2))
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    assert served.metadata.signature == signature
    with pytest.raises(mlflow.exceptions.MlflowException, match="wall_area"):
        served.predict(X.drop(columns="wall_area"))


def test_inference_parameters_are_passed_to_the_method(energy, tmp_path):
    model, X = energy
    signature = mlflow.models.infer_signature(X, model.predict(X), params={"sparse": False})
    save_model(model, tmp_path / "m", signature=signature)
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(served.predict(X, params={"sparse": False}), model.predict(X))


def test_logged_model_is_loaded(energy, no_pickles):
    model, X = energy
    with mlflow.start_run():
        info = log_model(model, "energy")
    assert set(info.flavors) == {"polyleaf", "python_function"}
    for predict in (
        load_model(info.model_uri).predict,
        mlflow.pyfunc.load_model(info.model_uri).predict,
    ):
        np.testing.assert_array_equal(predict(X), model.predict(X))


def test_folder_has_one_model_file_and_text_files(energy, tmp_path):
    save_model(energy[0], tmp_path / "m")
    files = {path.name for path in (tmp_path / "m").rglob("*") if path.is_file()}
    assert files == {
        "MLmodel",
        "conda.yaml",
        "model.polyleaf",
        "python_env.yaml",
        "requirements.txt",
    }
    assert (
        (tmp_path / "m" / "requirements.txt")
        .read_text("utf-8")
        .splitlines()[-1]
        .startswith("polyleaf==")
    )


def test_custom_requirements(energy, tmp_path):
    save_model(energy[0], tmp_path / "m", pip_requirements=["polyleaf", "pandas"])
    assert "pandas" in (tmp_path / "m" / "requirements.txt").read_text("utf-8")


def test_unsupported_models_raise(energy, tmp_path):
    with pytest.raises(TypeError, match="got Model"):
        save_model(energy[0].model_, tmp_path / "m")
    with pytest.raises(ValueError, match="not fitted"):
        log_model(PolyleafRegressor())
    with pytest.raises(ValueError, match="method='predict_proba'"):
        save_model(energy[0], tmp_path / "m", method="predict_proba")


def test_model_of_another_flavour_raises(tmp_path):
    mlflow.models.Model(flavors={"sklearn": {}}).save(str(tmp_path / "MLmodel"))
    with pytest.raises(ValueError, match="flavours sklearn"):
        load_model(str(tmp_path))


def test_damaged_file_raises(energy, tmp_path):
    save_model(energy[0], tmp_path / "m")
    file = Path(tmp_path / "m" / "data" / "model.polyleaf")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError):
        mlflow.pyfunc.load_model(str(tmp_path / "m"))


def test_signature_follows_from_the_example(energy, letters, tmp_path):
    model, X = energy
    save_model(model, tmp_path / "m", input_example=X.head(2))
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    assert served.metadata.signature == mlflow.models.infer_signature(X, model.predict(X))
    mixed = X[X.columns[::-1]].assign(unused=0.0)
    np.testing.assert_array_equal(served.predict(mixed), model.predict(X))
    with pytest.raises(mlflow.exceptions.MlflowException, match="wall_area"):
        served.predict(X.drop(columns="wall_area"))
    with mlflow.start_run():
        info = log_model(letters[0], method="predict_proba", input_example=letters[1][:2])
    assert info.signature.outputs.inputs[0].shape == (-1, 26)
    save_model(model, tmp_path / "none", input_example=X.head(2), signature=False)
    assert mlflow.pyfunc.load_model(str(tmp_path / "none")).metadata.signature is None
    # MLflow refuses categorical dtypes in the rows of a model with a signature.
    frame = X.assign(kind=pd.Series(["a", "b"] * (len(X) // 2), dtype="category"))
    other = PolyleafRegressor(n_estimators=2).fit(frame, frame["wall_area"])
    save_model(other, tmp_path / "c", input_example=frame.head(2))
    served = mlflow.pyfunc.load_model(str(tmp_path / "c"))
    np.testing.assert_array_equal(served.predict(frame), other.predict(frame))


def test_several_tasks_are_served_as_a_table(tmp_path, no_pickles):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    Y = pd.DataFrame({"kind": np.where(X["a"] > 0, "p", "q"), "size": X["b"]})
    model = PolyleafMultiTask(n_estimators=3).fit(X, Y)
    save_model(model, tmp_path / "m", input_example=X.head(2))
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    found, expected = served.predict(X), model.predict(X)
    assert list(found.columns) == served.metadata.signature.outputs.input_names()
    for name in Y:
        np.testing.assert_array_equal(found[name], expected[name])
    assert load_model(str(tmp_path / "m")).predict(X).keys() == expected.keys()
    save_model(model, tmp_path / "p", method="predict_proba")
    assert mlflow.pyfunc.load_model(str(tmp_path / "p")).predict(X).shape == (60, 2)


def test_dask_estimators_are_saved_as_local_ones(tmp_path):
    dask_array = pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    from polyleaf.dask import DaskPolyleafRegressor

    X = np.random.default_rng(0).normal(size=(80, 3))
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None):
        rows = dask_array.from_array(X, chunks=(40, 3))
        model = DaskPolyleafRegressor(n_estimators=2).fit(rows, rows[:, 0])
        save_model(model, tmp_path / "m", input_example=X[:2])
    served = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(served.predict(X), model.to_local().predict(X))
