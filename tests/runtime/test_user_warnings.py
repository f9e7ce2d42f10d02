"""Warnings point to the user's line."""

import warnings

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafClassifierCV, PolyleafRegressor


def test_warning_names_the_callers_file():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PolyleafRegressor(n_estimators=1).fit(np.arange(40.0).reshape(20, 2), np.ones((20, 1)))
    assert caught and all(warning.filename == __file__ for warning in caught)


@pytest.mark.parametrize(
    "estimator",
    [
        PolyleafRegressor("huber"),
        PolyleafClassifier(monotone_constraints={0: 1}),
        PolyleafClassifier(monotone_constraints={0: 1}, init="linear"),
        PolyleafClassifierCV(monotone_constraints={0: 1}, n_candidates=2),
    ],
)
def test_fits_that_a_final_fit_repeats_do_not_warn(estimator):
    """Hold-out fits and the trials of a search have the warnings of the final fit."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = 1000 * X[:, 0] if isinstance(estimator, PolyleafRegressor) else np.arange(60) % 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    texts = [str(warning.message) for warning in caught]
    assert texts and len(texts) == len(set(texts)), texts
