"""Golden file tests on a device: supported configurations give the same bytes."""

import pytest
from support import golden, host_device

pytestmark = pytest.mark.full

# Configurations that devices do not support yet (docs/how_to/gpu.md). This list must not grow.
N_UNSUPPORTED = 26


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(host_device.COMPILER is None, reason="g++ is not installed")
def test_models_equal_the_golden_file(monkeypatch):
    host_device.use(monkeypatch)
    expected, found = golden.expected(), golden.hashes_on("cuda")
    taken = {name: made for name, made in found.items() if made is not None}
    assert [name for name, made in taken.items() if made != expected[name]] == []
    assert len(found) - len(taken) <= N_UNSUPPORTED
