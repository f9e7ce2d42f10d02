"""GPU arrays of other libraries; the device is this machine (`host_device`)."""

import ctypes

import numpy as np


class ByInterface:
    """Array with the interface of CuPy and Numba: a dict that describes the memory.

    `stream` is included unless False.
    """

    def __init__(self, values, stream=None, **interface):
        self.values, self.shape, self.dtype, self.ndim = (
            values,
            values.shape,
            values.dtype,
            values.ndim,
        )
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (values.ctypes.data, True),
            "strides": None if values.flags.c_contiguous else values.strides,
            "version": 3,
        } | interface
        if stream is not False:
            self.__cuda_array_interface__["stream"] = stream

    def __len__(self):
        return self.shape[0]

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion is not allowed.")


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class ByDLPack:
    """Array with the interface of PyTorch and JAX: a capsule made with ctypes.

    `asked` records the requested streams, and `gone` counts the deletions.
    """

    CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # noqa: RUF012

    def __init__(self, values, device=0):
        self.values, self.shape, self.dtype, self.ndim = (
            values,
            values.shape,
            values.dtype,
            values.ndim,
        )
        self.device, self.asked, self.gone = device, [], 0

    def __len__(self):
        return self.shape[0]

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion is not allowed.")

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        values, n = self.values, self.values.ndim
        shape = (ctypes.c_int64 * n)(*values.shape)
        strides = (ctypes.c_int64 * n)(*(s // values.itemsize for s in values.strides))
        dtype = _DType(self.CODES[values.dtype.kind], 8 * values.itemsize, 1)
        tensor = _Tensor(values.ctypes.data, _Device(2, self.device), n, dtype, shape, strides, 0)

        def delete(_):
            self.gone += 1

        managed = _Managed(tensor, None, _DELETER(delete))
        self.kept = (managed, shape, strides, values)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        return new(ctypes.addressof(managed), b"dltensor", None)


def taken(array):
    """Return what a library receives through `__cuda_array_interface__`."""
    interface = array.__cuda_array_interface__
    n, kind = int(np.prod(interface["shape"])), np.dtype(interface["typestr"])
    memory = (ctypes.c_char * (n * kind.itemsize)).from_address(interface["data"][0])
    return np.frombuffer(memory, kind).reshape(interface["shape"]).copy()
