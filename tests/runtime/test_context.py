"""n_jobs in scikit-learn's sense, with OMP_NUM_THREADS for None."""

import subprocess
import sys

import joblib
import numpy as np
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.runtime.context import effective_threads
from polyleaf.user_data.features import read_features


def test_negative_n_jobs_count_from_the_end(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = joblib.cpu_count()
    assert effective_threads() == effective_threads(-1) == cores
    assert effective_threads(-2) == max(1, cores - 1)
    assert effective_threads(-1000) == 1
    assert effective_threads(3) == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [("3", 3), ("5,2", 5), (" 7 ", 7), ("0", None), ("many", None), ("", None)],
)
def test_omp_num_threads_is_read_for_none_only(monkeypatch, value, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert effective_threads(None) == (expected or joblib.cpu_count())
    assert effective_threads(2) == 2


def test_invalid_n_jobs_raise():
    with pytest.raises(ValueError, match="n_jobs"):
        effective_threads(0)
    for n_jobs in (1.5, "2", True):
        with pytest.raises(TypeError, match="n_jobs"):
            effective_threads(n_jobs)


def test_threads_are_bounded_by_the_machine(monkeypatch):
    most = max(16, 4 * joblib.cpu_count())
    assert [effective_threads(n) for n in (16, 10_000, 2**31, 10**30)] == [16, most, most, most]
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    assert effective_threads(None) == most


def test_huge_thread_counts_are_capped():
    X, y = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300.0)
    one, many = (PolyleafRegressor(n_estimators=3, n_jobs=n).fit(X, y).model_ for n in (1, 10**12))
    expected = one.predict_raw(read_features(X))
    np.testing.assert_array_equal(many.predict_raw(read_features(X)), expected)
    for n_threads in (2**31 - 1, 2**31, 10**30, -5):
        np.testing.assert_array_equal(
            one.predict_raw(read_features(X), n_threads=n_threads), expected
        )
    with pytest.raises(TypeError):
        one.predict_raw(read_features(X), n_threads=1.5)


WITHOUT_THREADS = """
import ctypes, os, sys
import numpy as np
from polyleaf import PolyleafRegressor

X = np.random.default_rng(0).normal(size=(40_000, 6))
y = X[:, 0] * X[:, 1]
fitted = lambda n: PolyleafRegressor(n_estimators=3, n_jobs=n).fit(X, y)
one, n_before = fitted(1).predict(X), len(os.listdir("/proc/self/task"))
if sys.argv[1] == "none":  # a stack larger than the address space
    libc, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    libc.pthread_attr_init(attributes)
    assert libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(2**46)) == 0
    assert libc.pthread_setattr_default_np(attributes) == 0
assert (fitted(8).predict(X) == one).all()
print(len(os.listdir("/proc/self/task")) - n_before)
"""


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses glibc and /proc")
@pytest.mark.parametrize("threads", ["none", "some"])
def test_fit_continues_when_threads_do_not_start(threads):
    """The fit continues with the threads that started and gives the same bits."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THREADS, threads], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (7 if threads == "some" else 0)
