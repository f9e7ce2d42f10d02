"""C headers compute raw scores bit for bit with all compilers and flags."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.c_programs import COMPILERS, CProgram
from support.exports import (
    CASES,
    class_numbers,
    estimator,
    hard_rows,
    many_labels,
    predictions,
    raw_scores,
    training_rows,
)
from support.models import forests, random_model

from polyleaf import Model, PolyleafRegressor, _core
from polyleaf.export import to_c, to_numeric_matrix

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler is installed")


def assert_same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a.view(np.uint64), b.view(np.uint64))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    programs = {}

    def compile(name, compiler=COMPILERS[0], flags=("-O1",)):
        key = name, compiler, flags
        if key not in programs:
            folder = tmp_path_factory.mktemp("c")
            to_c(estimator(name), folder / "model.h")
            programs[key] = CProgram(folder, compiler, flags=flags)
        return programs[key]

    return compile


@pytest.mark.parametrize("name", CASES)
def test_raw_scores_of_training_rows(name, program):
    est = estimator(name)
    X = to_numeric_matrix(est, training_rows(name))
    assert_same_bits(
        program(name).raw(X, est.model_.n_outputs), est._raw(training_rows(name), None)
    )


@pytest.mark.parametrize("name", CASES)
def test_raw_scores_of_hard_rows(name, program):
    est = estimator(name)
    X = hard_rows(est, n=2000)
    assert_same_bits(program(name).raw(X, est.model_.n_outputs), raw_scores(est, X))


@pytest.mark.parametrize("name", CASES)
def test_links_and_classes(name, program, monkeypatch):
    est, X = estimator(name), hard_rows(estimator(name), seed=1)
    raw = raw_scores(est, X)
    if hasattr(est, "classes_") and est._encoding.kind != "multilabel":
        np.testing.assert_array_equal(program(name).classes(X), class_numbers(est, raw))
    if hasattr(est, "classes_") and not est.model_.objective.probabilities:
        assert program(name).n_predictions == 0
        return
    # exp of the C library may differ from the correctly rounded one, and NumPy's by more.
    monkeypatch.setattr(np, "exp", _core.exp)
    np.testing.assert_allclose(
        program(name).predictions(X), predictions(est, raw), rtol=4e-16, atol=5e-324
    )


@pytest.mark.parametrize("name", ["quantiles", "absolute error", "normalized targets"])
def test_predictions_without_exp_are_exact(name, program):
    est, X = estimator(name), hard_rows(estimator(name), seed=2)
    assert_same_bits(program(name).predictions(X), predictions(est, raw_scores(est, X)))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [("-O0",), ("-O2",), ("-O3", "-march=native")], ids=" ".join)
@pytest.mark.parametrize("name", ["normalized targets", "linear, categories"])
def test_compilers_and_flags(name, compiler, flags, program):
    est, X = estimator(name), hard_rows(estimator(name), seed=3)
    assert_same_bits(
        program(name, compiler, flags).raw(X, est.model_.n_outputs), raw_scores(est, X)
    )


@pytest.mark.full
@settings(max_examples=8, deadline=None)
@given(forests(most_leaves=300), st.integers(0, 2**31))
def test_random_forests(tmp_path_factory, model, seed):
    folder = tmp_path_factory.mktemp("any")
    to_c(model, folder / "model.h")
    X = hard_rows(model, seed)
    assert_same_bits(
        CProgram(folder, flags=("-O0",)).raw(X, model.n_outputs), model_raw_scores(model, X)
    )


@pytest.mark.full
@pytest.mark.parametrize("n_labels", [2_000, 20_000])
def test_many_labels(n_labels, tmp_path):
    est = many_labels(n_labels)
    to_c(est, tmp_path / "model.h")
    X = hard_rows(est, n=100)
    assert_same_bits(CProgram(tmp_path).raw(X, n_labels), raw_scores(est, X))


def model_raw_scores(model, X):
    class Holder:
        model_ = model

    return raw_scores(Holder(), X)


def test_model_without_trees(tmp_path):
    model = random_model(n_rounds=0)
    to_c(model, tmp_path / "model.h")
    found = CProgram(tmp_path).raw(np.zeros((2, 4)), 3)
    assert_same_bits(found, np.tile(model.base_score, (2, 1)))


def test_two_headers_in_one_program(tmp_path):
    to_c(estimator("defaults"), tmp_path / "a.h", name="a")
    to_c(estimator("linear"), tmp_path / "b.h", name="b")
    both = '#include "a.h"\n#include "b.h"\n'
    (tmp_path / "both.h").write_text(both + "typedef a_input both_input;\n")
    for line in ("_raw", "_predict", "_N_FEATURES", "_N_OUTPUTS", "_N_PREDICTIONS"):
        with open(tmp_path / "both.h", "a") as file:
            file.write(f"#define both{line} b{line}\n")
    est = estimator("linear")
    X = hard_rows(est)
    assert_same_bits(CProgram(tmp_path, name="both").raw(X, 3), raw_scores(est, X))


def test_fast_math_is_rejected(tmp_path, capfd):
    to_c(estimator("defaults"), tmp_path / "model.h")
    with pytest.raises(Exception, match="returned non-zero") as failure:
        CProgram(tmp_path, flags=("-ffast-math",))
    assert "compile it without -ffast-math" in failure.value.stderr


def test_names_cannot_end_the_comment(tmp_path):
    names = ["*/ int x;", "\\", "new\nline", "??/"]
    model = random_model(feature_names=names)
    to_c(model, tmp_path / "model.h")
    X = hard_rows(model)
    assert_same_bits(CProgram(tmp_path).raw(X, 3), model_raw_scores(model, X))


def test_invalid_input_raises(tmp_path):
    with pytest.raises(ValueError, match="must be a C identifier"):
        to_c(estimator("defaults"), tmp_path / "m.h", name="2nd")
    with pytest.raises(TypeError, match="call fit first"):
        to_c(PolyleafRegressor(), tmp_path / "m.h")
    small = random_model(n_outputs=1)
    many = Model(
        mapper=small.mapper,
        objective=small.objective,
        base_score=np.zeros(70_000),
        learning_rate=0.1,
    )
    with pytest.raises(ValueError, match="has 70000 outputs"):
        to_c(many, tmp_path / "m.h")
    assert list(tmp_path.iterdir()) == []
