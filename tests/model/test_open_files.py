"""Models in files, open files and memory, and the content of a saved estimator."""

import io
import tempfile

import numpy as np
import pytest

from polyleaf import Model, PolyleafClassifier, PolyleafRegressor, load_model
from polyleaf.model import serialize

X = np.random.default_rng(0).standard_normal((80, 3))
Y = np.stack([X[:, 0], X[:, 1] * X[:, 2]], axis=1)


@pytest.fixture(scope="module")
def fitted():
    return PolyleafRegressor(n_estimators=5, n_jobs=1).fit(X, Y, eval_set=[(X, Y)])


def test_bytes_open_files_and_paths_give_the_same_model(fitted, tmp_path):
    data, memory = fitted.save_model(), io.BytesIO()
    assert isinstance(data, bytes)
    assert fitted.save_model(memory) is None and fitted.save_model(tmp_path / "m.polyleaf") is None
    assert memory.getvalue() == data == (tmp_path / "m.polyleaf").read_bytes()
    memory.seek(0)
    with open(tmp_path / "m.polyleaf", "rb") as file:
        for source in (
            data,
            bytearray(data),
            memoryview(data),
            memory,
            file,
            str(tmp_path / "m.polyleaf"),
        ):
            loaded = load_model(source)
            np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert PolyleafRegressor.load_model(data).model_.equals(fitted.model_)
    assert Model.load(io.BytesIO(data)).equals(fitted.model_)


def test_continued_training_from_bytes_and_open_files(fitted):
    whole = PolyleafRegressor(n_estimators=8, n_jobs=1).fit(X, Y).predict(X)
    for start in (fitted.save_model(), io.BytesIO(fitted.save_model())):
        rest = PolyleafRegressor(n_estimators=3, n_jobs=1).fit(X, Y, init_model=start)
        np.testing.assert_array_equal(rest.predict(X), whole)


def test_evals_result_is_saved(fitted):
    loaded = load_model(fitted.save_model())
    assert (
        loaded.evals_result_ == fitted.evals_result_
        and len(fitted.evals_result_["validation_0"]["rmse"]) == 5
    )
    assert loaded.save_model() == fitted.save_model()
    assert load_model(PolyleafRegressor(n_estimators=1).fit(X, Y).save_model()).evals_result_ == {}


def test_evals_result_is_not_part_of_the_model(fitted):
    loaded = load_model(fitted.save_model())
    assert loaded.model_.to_bytes() == fitted.model_.to_bytes()
    assert b"evals_log" not in fitted.model_.to_bytes()


@pytest.mark.parametrize(
    "log", [[1.0], {"a": [1.0]}, {"a": {"rmse": 1.0}}, {"a": {"rmse": [True]}}]
)
def test_invalid_evals_log_raises(fitted, log):
    data = fitted.model_.to_bytes(evals_log=log)
    with pytest.raises(serialize.ModelFileError, match="'evals_log'"):
        load_model(data)


def test_best_only_truncates_an_early_stopped_model():
    model = PolyleafRegressor(
        n_estimators=200,
        learning_rate=0.7,
        early_stopping_rounds=4,
        n_jobs=1,
        validation_fraction=0.3,
    ).fit(X, X[:, 0] + np.random.default_rng(1).standard_normal(80))
    best = model.best_iteration_
    assert best is not None and model.n_iter_ > best + 1
    cut, whole = load_model(model.save_model(best_only=True)), load_model(model.save_model())
    assert (cut.n_iter_, whole.n_iter_, model.n_iter_) == (best + 1, model.n_iter_, model.n_iter_)
    assert (cut.best_iteration_, cut.best_score_) == (best, model.best_score_)
    for loaded in (cut, whole):
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert len(model.save_model(best_only=True)) < len(model.save_model())


def test_best_only_without_early_stopping_keeps_all_rounds(fitted):
    assert fitted.save_model(best_only=True) == fitted.save_model()


@pytest.mark.parametrize("name", ["m.json", "m.JSON"])
def test_json_suffix_raises(fitted, tmp_path, name):
    for save in (fitted.save_model, fitted.model_.save):
        with pytest.raises(ValueError, match=r"dump_json"):
            save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_text_files_and_other_objects_raise(fitted, tmp_path):
    with open(tmp_path / "text", "w") as file, pytest.raises(TypeError, match=r"'wb'"):
        fitted.save_model(file)
    with pytest.raises(TypeError, match="the open file returns str"):
        load_model(io.StringIO("x"))
    with pytest.raises(TypeError, match=r"a path, an open file or bytes; got int"):
        load_model(3)
    with (
        tempfile.TemporaryFile() as file,
        pytest.raises(ValueError, match=r"the open file cannot be loaded"),
    ):
        load_model(file)
    with pytest.raises(ValueError, match=r"a model in memory cannot be loaded"):
        load_model(b"no model")
    with pytest.raises(ValueError, match=r"a model in memory .*: it holds a PolyleafRegressor"):
        PolyleafClassifier.load_model(fitted.save_model())
