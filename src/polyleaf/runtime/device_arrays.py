"""Arrays of other libraries that lie on a card, taken without a copy.

Owns: the two protocols by which they are handed over, DLPack and `__cuda_array_interface__`. Must not know:
what they hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import polyleaf._core as _core

__all__ = ["as_device_array", "is_device_array"]

_CARDS = (2, 13)  # what DLPack calls memory of CUDA, and memory that CUDA and the processor share
_LEGACY_STREAM = 1  # what those who name no stream work in


def is_device_array(data: Any) -> bool:
    """Whether data are an array in memory of a CUDA card."""
    if type(data) is np.ndarray or hasattr(
        type(data), "columns"
    ):  # frames search columns for any name
        return False
    device_of = getattr(data, "__dlpack_device__", None)
    if device_of is not None and not isinstance(data, np.ndarray | type):
        return int(device_of()[0]) in _CARDS
    return hasattr(data, "__cuda_array_interface__")


def as_device_array(device: _core.Device, data: Any, name: str) -> _core.DeviceArray:
    """The array where it lies, once what was asked for before it is done.

    Parameters
    ----------
    device : _core.Device
    data : array for which `is_device_array`
        Of one dimension or two, with any strides; float32, float64, integers or booleans. It is only read.
    name : str
        What errors call it.

    Raises
    ------
    TypeError
        For other numbers.
    ValueError
        For another number of dimensions, a mask, and what its library refuses to hand over.
    polyleaf._core.DeviceError
        Where it lies on another card.
    """
    dtype = str(getattr(data, "dtype", ""))
    if any(kind in dtype for kind in ("float16", "half", "complex", "object", "float8")):
        raise TypeError(f"{name} holds {dtype}, which is not read on a card: make it float32.")
    shape = tuple(data.shape)
    if len(shape) not in (1, 2):
        raise ValueError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required: {name} is {shape}."
        )
    try:
        if hasattr(data, "__dlpack__"):
            # Whoever hands it over lets our stream wait.
            return _core.DeviceArray.from_dlpack(device, data.__dlpack__(stream=device.stream))
        return _by_interface(device, data, name)
    except (BufferError, RuntimeError) as error:
        if isinstance(error, _core.DeviceError):
            raise
        raise ValueError(f"{name} is not handed over by its library: {error}") from error


def _by_interface(device: _core.Device, data: Any, name: str) -> _core.DeviceArray:
    told = data.__cuda_array_interface__
    if told.get("mask") is not None:
        raise ValueError(
            f"{name} has a mask, which is not read on a card: write NaN where values are missing."
        )
    dtype, shape = np.dtype(told["typestr"]), tuple(told["shape"])
    if not dtype.isnative or dtype.kind not in "fiub":
        raise TypeError(f"{name} holds {dtype}, which is not read on a card: make it float32.")
    strides = told.get("strides") or _of_rows_in_order(shape, dtype.itemsize)
    # None: all is there. Of those that do not say, nobody knows in which stream they work.
    stream = told.get("stream", _LEGACY_STREAM)
    if stream is not None:
        device.wait_for(stream)
    return _core.DeviceArray.from_address(
        device, told["data"][0], dtype.kind, dtype.itemsize, shape, strides, data
    )


def _of_rows_in_order(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    return (size,) if len(shape) == 1 else (size * shape[1], size)
