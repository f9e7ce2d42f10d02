"""n_jobs in scikit-learn's sense, with OMP_NUM_THREADS for None."""

import joblib
import pytest

from polyleaf.threads import effective_threads


def test_counts_from_the_end(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = joblib.cpu_count()
    assert effective_threads() == effective_threads(-1) == cores
    assert effective_threads(-2) == max(1, cores - 1)
    assert effective_threads(-1000) == 1
    assert effective_threads(3) == 3


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("5,2", 5), (" 7 ", 7), ("0", None), ("many", None), ("", None)]
)
def test_environment_counts_only_for_none(monkeypatch, value, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert effective_threads(None) == (expected or joblib.cpu_count())
    assert effective_threads(2) == 2


def test_what_makes_no_sense():
    with pytest.raises(ValueError, match="n_jobs=0"):
        effective_threads(0)
    for n_jobs in (1.5, "2", True):
        with pytest.raises(TypeError, match="n_jobs must be an integer"):
            effective_threads(n_jobs)
