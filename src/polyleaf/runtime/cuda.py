"""The card that there is, ready to be used.

Owns: what "cuda" and "auto" mean, and what is said where there is no card. Must not know: what runs on it.
"""

from __future__ import annotations

import functools
import warnings

import polyleaf._core as _core
from polyleaf.runtime import nvrtc
from polyleaf.runtime.cuda_programs import program

__all__ = ["card", "get_device"]

_DRIVER = "libcuda.so.1"
_OLDEST_DRIVER = 12  # of CUDA
_CPU = 'Or use device="cpu", which makes the same model.'
_UNTRIED = (
    'device="cuda" has been compared with the CPU on kernels compiled for the CPU only, not on a card '
    "(docs/gpu.md): check what it makes, and tell us. This warning comes once."
)


def get_device(name: str | None) -> _core.Device | None:
    """The device that the parameter `device` names; None, of either: the processor.

    "auto" is the processor: until cards have been measured nobody knows where they are faster.
    """
    return card() if name == "cuda" else None


@functools.cache
def card() -> _core.Device:
    """The first card that the driver shows (`CUDA_VISIBLE_DEVICES` says which), with its kernels.

    Raises
    ------
    polyleaf._core.DeviceError
        Where there is none, or what it takes is not installed: it says what to do.
    """
    try:
        found = _core.Device(_DRIVER, 0)
    except _core.DeviceError as error:
        raise _core.DeviceError(f'device="cuda" needs a CUDA card. {error} {_CPU}') from None
    newest = found.driver_version // 1000
    if newest < _OLDEST_DRIVER:
        raise _core.DeviceError(
            f'device="cuda" needs a driver for CUDA {_OLDEST_DRIVER} or later; that of {found.name} is for '
            f"CUDA {newest}: update it. {_CPU}"
        )
    compiler = nvrtc.found(newest)
    if compiler is None:
        raise _core.DeviceError(
            f'device="cuda" compiles its kernels with NVRTC of CUDA {newest} or earlier, which is not '
            f"installed: pip install 'polyleaf[cuda]'. {_CPU}"
        )
    found.load(program(compiler, found.architecture))
    warnings.warn(_UNTRIED, stacklevel=2)
    return found
