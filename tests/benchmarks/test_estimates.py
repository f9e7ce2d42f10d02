"""The study of memory estimates: every training is done as it is estimated."""

import sys

import numpy as np
import pytest
from benchmarks import estimates, memory
from benchmarks.harness.context import Context

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize("name", estimates.TRAININGS)
def test_a_training_is_measured_and_estimated(name, tmp_path):
    figures = estimates.estimates(Context(tmp_path, quick=True, threads=2), name, "growth")
    assert figures["ratio"] == pytest.approx(figures["estimated"] / figures["measured"])
    assert 0.1 < figures["estimated"] < 100


def test_growth_is_what_a_call_holds_at_most():
    def call():
        np.ones(1 << 24)
        np.ones(1 << 22)

    grown = memory.growth(call)
    if grown is None:
        pytest.skip("the most memory held cannot be told apart here")
    assert 0.9 * (1 << 27) < grown < 1.2 * (1 << 27)
