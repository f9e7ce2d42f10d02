"""Warnings point to the user's line."""

import warnings

import numpy as np

from polyleaf import PolyleafRegressor


def test_warning_names_the_callers_file():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PolyleafRegressor(n_estimators=1).fit(np.arange(40.0).reshape(20, 2), np.ones((20, 1)))
    assert caught and all(warning.filename == __file__ for warning in caught)
