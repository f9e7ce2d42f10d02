"""Fits and predictions in several threads of Python at once."""

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor

N_THREADS = 4


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    return X, X[:, :2] + rng.normal(size=(600, 2)), (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_fits_in_threads_equal_fits_one_after_another(data, n_jobs):
    X, Y, y = data
    fits = [
        lambda: PolyleafRegressor(n_estimators=8, n_jobs=n_jobs).fit(X, Y),
        lambda: PolyleafClassifier(n_estimators=8, n_jobs=n_jobs).fit(X, y),
        lambda: PolyleafRegressor(n_estimators=4, leaf="linear", n_jobs=n_jobs).fit(X, Y),
    ]
    expected = [fit().save_model() for fit in fits]
    with ThreadPoolExecutor(N_THREADS) as threads:
        saved = list(threads.map(lambda i: fits[i % 3]().save_model(), range(4 * len(fits))))
    assert saved == expected * 4


def test_predictions_of_one_model_in_threads_are_the_same(data):
    X, Y, _ = data
    model = PolyleafRegressor(n_estimators=8, n_jobs=2).fit(X, Y)
    expected = model.predict(X)
    with ThreadPoolExecutor(N_THREADS) as threads:
        predictions = list(threads.map(lambda _: model.predict(X), range(20)))
    assert all((prediction == expected).all() for prediction in predictions)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a global lock"
)
def test_core_leaves_the_global_lock_off():
    program = "import sys, polyleaf._core; print(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
