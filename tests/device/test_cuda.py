"""What "cuda" and "auto" mean, and what is said where there is no card, or not what it takes."""

import warnings

import numpy as np
import pytest
from support.host_device import COMPILER, library

from polyleaf import PolyleafRegressor, _core
from polyleaf.runtime import cuda, nvrtc

X = np.random.default_rng(0).random((50, 3))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the driver is compiled by g++")


@pytest.fixture(autouse=True)
def anew():
    cuda.card.cache_clear()
    yield
    cuda.card.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_auto_is_the_processor(device, monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", "libthere_is_no_such_driver.so")
    assert cuda.device_of(device) is None
    PolyleafRegressor(n_estimators=1, device=device).fit(X, X[:, 0])


def test_without_a_driver_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", "libthere_is_no_such_driver.so")
    with pytest.raises(_core.DeviceError, match=r'needs a CUDA card\. No driver .* device="cpu"'):
        PolyleafRegressor(device="cuda").fit(X, X[:, 0])


@needs_compiler
def test_without_a_compiler_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", library())
    monkeypatch.setattr(nvrtc, "found", lambda newest: None)
    with pytest.raises(
        _core.DeviceError, match=r"NVRTC of CUDA 12 or earlier.*pip install 'polyleaf\[cuda\]'"
    ):
        cuda.card()


@needs_compiler
def test_a_driver_that_is_too_old(monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", library())
    monkeypatch.setattr(cuda, "_OLDEST_DRIVER", 99)
    with pytest.raises(
        _core.DeviceError, match=r"needs a driver for CUDA 99 or later; .* is for CUDA 12"
    ):
        cuda.card()


@needs_compiler
def test_a_card_gets_the_program_of_its_architecture_once_and_a_warning(monkeypatch):
    asked = []
    monkeypatch.setattr(cuda, "_DRIVER", library())
    monkeypatch.setattr(nvrtc, "found", lambda newest: f"of CUDA {newest}")
    monkeypatch.setattr(
        cuda, "program", lambda compiler, arch: asked.append((compiler, arch)) or b"program"
    )
    with pytest.warns(UserWarning, match="not on a card"):
        assert cuda.device_of("cuda").is_loaded
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuda.card() is cuda.card()
    assert asked == [("of CUDA 12", "sm_90")]


@pytest.mark.parametrize("device", ["gpu", "CUDA", None, 0])
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match="device"):
        PolyleafRegressor(device=device).fit(X, X[:, 0])
