"""GPU arrays of other libraries, read in place through DLPack or `__cuda_array_interface__`."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyleaf._core as _core

__all__ = ["as_device_array", "is_device_array"]

_CUDA_DEVICE_TYPES = (2, 13)  # DLPack: CUDA memory, and memory that CUDA and the CPU share
_LEGACY_STREAM = 1


def is_device_array(data: Any) -> bool:
    """Whether data is an array in GPU memory."""
    # Frames look up any attribute name among their columns.
    if type(data) is np.ndarray or hasattr(type(data), "columns"):
        return False
    dlpack_device = getattr(data, "__dlpack_device__", None)
    if dlpack_device is not None and not isinstance(data, np.ndarray | type):
        return int(dlpack_device()[0]) in _CUDA_DEVICE_TYPES
    return hasattr(data, "__cuda_array_interface__")


def as_device_array(device: _core.Device, data: Any, name: str) -> _core.DeviceArray:
    """Wrap an array in GPU memory without a copy, after its pending work has been queued.

    Parameters
    ----------
    device : _core.Device
        GPU that holds the array.
    data : array for which `is_device_array` holds
        One or two dimensions, any strides; float32, float64, integers or booleans. It is only read.
    name : str
        Name of the array in error messages.

    Raises
    ------
    TypeError
        For other dtypes.
    ValueError
        For another number of dimensions, a mask, or an array that its library does not share.
    polyleaf._core.DeviceError
        For an array on another GPU.
    """
    dtype = str(getattr(data, "dtype", ""))
    if any(kind in dtype for kind in ("float16", "half", "complex", "object", "float8")):
        raise _unreadable_dtype(name, dtype)
    shape = tuple(data.shape)
    if len(shape) not in (1, 2):
        raise ValueError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required: {name} is {shape}."
        )
    try:
        if hasattr(data, "__dlpack__"):
            # The exporting library makes our stream wait for its own.
            return _core.DeviceArray.from_dlpack(device, data.__dlpack__(stream=device.stream))
        return _wrap_cuda_array_interface(device, data, name)
    except (BufferError, RuntimeError) as error:
        if isinstance(error, _core.DeviceError):
            raise
        raise ValueError(f"{name} cannot be shared by its library: {error}") from error


def _wrap_cuda_array_interface(device: _core.Device, data: Any, name: str) -> _core.DeviceArray:
    interface = data.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ValueError(
            f"{name} has a mask, which is not supported on a GPU: write NaN for missing values."
        )
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    if not dtype.isnative or dtype.kind not in "fiub":
        raise _unreadable_dtype(name, dtype)
    size = dtype.itemsize
    row_major = (size,) if len(shape) == 1 else (size * shape[1], size)
    strides = interface.get("strides") or row_major
    # None: the array is ready. Without an entry, its stream is unknown.
    stream = interface.get("stream", _LEGACY_STREAM)
    if stream is not None:
        device.wait_for(stream)
    return _core.DeviceArray.from_address(
        device, interface["data"][0], dtype.kind, size, shape, strides, data
    )


def _unreadable_dtype(name: str, dtype: Any) -> TypeError:
    return TypeError(f"{name} has dtype {dtype}, which cannot be read on a GPU: use float32.")
