"""GBDT-PL's runs, on data that are made on the spot."""

import numpy as np
import pytest
from benchmarks.harness.context import Context
from benchmarks.papers import gbdt_pl


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path, quick=True)


def test_polynomials_are_the_same_every_time():
    one, two = (gbdt_pl.polynomial(3, 5, 40, 20) for _ in range(2))
    assert one["X"].shape == (40, 5) and one["y_test"].shape == (20,)
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_rounds_and_seconds_to_an_error():
    fitted = gbdt_pl.Fitted(None, 3.0, [(1, 0.5, 9.0), (5, 1.5, 4.0), (10, 3.0, 5.0)])
    assert fitted.best == 4.0
    assert fitted.reaches(8.0) == (5, 1.5) and fitted.reaches(3.0) is None
    assert fitted.curves()["seconds"][0] == [0.5, 9.0]


@pytest.mark.parametrize("method", ["GBDT-PL", "post-fit", "fully corrective", "constant leaves"])
def test_costs_of_linear_and_constant_leaves(context, method):
    found = gbdt_pl.cost(context, method, "one output")
    assert found["milliseconds"] > 0 and found["ratio"] > 0


def test_paper_settings_are_translated_for_each_library():
    own = gbdt_pl.paper_settings("GBDT-PL", 63).own
    assert own["min_child_weight"] == 100 and own["leaf"] == "linear" and "n_estimators" not in own
    assert gbdt_pl.paper_settings("LightGBM", 63).own == {"min_sum_hessian_in_leaf": 100}
    assert gbdt_pl.paper_settings("GBDT-PL", 63, goss=True).own["sampling_method"] == "goss"
