"""CUDA devices and arrays that live on them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import polyleaf._core as _core
from polyleaf.runtime.temporary_files import open_replacement
from polyleaf.runtime.types import DataLike

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# No fused multiply-add; exact division and subnormal numbers are NVRTC's default. The kernels then
# give the same bits as the CPU.
COMPILE_OPTIONS = ("--std=c++20", "--fmad=false", "--device-as-default-execution-space")

_DRIVER = "libcuda.so.1"
_MIN_CUDA_VERSION = 12
_CPU_HINT = 'Or use device="cpu", which makes the same model.'

# Where NVIDIA's packages keep NVRTC, by major version of CUDA, and its name on the system.
_NVRTC_FOLDERS = {12: "nvidia/cuda_nvrtc/lib", 13: "nvidia/cu13/lib"}
_NVRTC_NAME = "libnvrtc.so.{}"


def get_device(name: str | None) -> _core.Device | None:
    """Return the device that the parameter `device` names; None is the CPU.

    "auto" is the CPU, because no measurement tells yet where a GPU is faster.
    """
    return _get_cuda_device() if name == "cuda" else None


@functools.cache
def _get_cuda_device() -> _core.Device:
    """Return the first GPU that the driver shows (see `CUDA_VISIBLE_DEVICES`), kernels loaded.

    Raises a polyleaf._core.DeviceError without a GPU, a recent driver or NVRTC; the message says
    what to install.
    """
    try:
        device = _core.Device(_DRIVER, 0)
    except _core.DeviceError as error:
        raise _core.DeviceError(f'device="cuda" needs a CUDA GPU. {error} {_CPU_HINT}') from None
    version = device.driver_version // 1000
    if version < _MIN_CUDA_VERSION:
        raise _core.DeviceError(
            f'device="cuda" needs a driver for CUDA {_MIN_CUDA_VERSION} or later, but the driver '
            f"of {device.name} is for CUDA {version}: update it. {_CPU_HINT}"
        )
    nvrtc = find_nvrtc(version)
    if nvrtc is None:
        raise _core.DeviceError(
            f'device="cuda" compiles its kernels with NVRTC of CUDA {version} or earlier, which is '
            f"not installed: pip install 'polyleaf[cuda]'. {_CPU_HINT}"
        )
    device.load(get_kernels(nvrtc, device.architecture))
    return device


# ---- compiled kernels --------------------------------------------------------------------------


def get_cache_folder() -> Path:
    """Return the folder of compiled kernels: `POLYLEAF_CACHE`, or the user's cache folder."""
    folder = os.environ.get("POLYLEAF_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyleaf"


def get_kernels(nvrtc: Nvrtc, architecture: str) -> bytes:
    """Return the kernels for an architecture such as "sm_90", compiled or read from the cache."""
    sources = _core.device_sources()
    inputs = [*sorted(sources.items()), *COMPILE_OPTIONS, nvrtc.version]
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()[:32]
    path = get_cache_folder() / f"kernels-{architecture}-{key}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        pass
    kernels = nvrtc.compile(_core.DEVICE_PROGRAM, sources, architecture, COMPILE_OPTIONS)
    _write_cache(path, kernels)
    return kernels


def _write_cache(path: Path, kernels: bytes) -> None:
    """Write a file atomically; without a writable folder the kernels are compiled every time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_replacement(path) as file:
            file.write(kernels)
    except OSError:
        pass


# ---- NVRTC -------------------------------------------------------------------------------------


class NvrtcError(RuntimeError):
    """A program does not compile, or the library fails."""


class Nvrtc:
    """The runtime compiler, a shared library; `version` is the version of CUDA, such as (12, 9)."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)

    def compile(
        self, name: str, sources: Mapping[str, str], architecture: str, options: Sequence[str] = ()
    ) -> bytes:
        """Compile a program to machine code for a GPU architecture, such as "sm_90".

        The source `name` includes the others of `sources` by their names there. Raise an NvrtcError
        with the compiler's log if it does not compile.
        """
        headers = {other: text for other, text in sources.items() if other != name}
        program = ctypes.c_void_p()
        result = self._library.nvrtcCreateProgram(
            ctypes.byref(program),
            sources[name].encode(),
            name.encode(),
            len(headers),
            _to_c_strings(list(headers.values())),
            _to_c_strings(list(headers)),
        )
        self._check(result)
        try:
            options = [f"--gpu-architecture={architecture}", *options]
            result = self._library.nvrtcCompileProgram(
                program, len(options), _to_c_strings(options)
            )
            if result != 0:
                log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise NvrtcError(f"The kernels do not compile for {architecture}:\n{log}")
            return self._read(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, text))
        return text.raw

    def _check(self, result: int) -> None:
        if result != 0:
            raise NvrtcError(f"NVRTC failed: {self._library.nvrtcGetErrorString(result).decode()}.")


def find_nvrtc(max_version: int | None = None) -> Nvrtc | None:
    """Return the newest installed compiler, or None.

    A driver may refuse kernels of a major version of CUDA that is newer than `max_version`.
    """
    for major in sorted(_NVRTC_FOLDERS, reverse=True):
        if max_version is not None and major > max_version:
            continue
        name = _NVRTC_NAME.format(major)
        paths = [Path(entry) / _NVRTC_FOLDERS[major] / name for entry in sys.path if entry]
        for library in [*(str(path) for path in paths if path.is_file()), name]:
            try:
                return Nvrtc(library)
            except (OSError, AttributeError, NvrtcError):
                continue
    return None


def _to_c_strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


_CUDA_DEVICE_TYPES = (2, 13)  # DLPack: CUDA memory, and memory that CUDA and the CPU share
_LEGACY_STREAM = 1


def is_device_array(data: DataLike) -> bool:
    """Whether data is an array in GPU memory."""
    # Frames look up any attribute name among their columns.
    if type(data) is np.ndarray or hasattr(type(data), "columns"):
        return False
    dlpack_device = getattr(data, "__dlpack_device__", None)
    if dlpack_device is not None and not isinstance(data, np.ndarray | type):
        try:
            return int(dlpack_device()[0]) in _CUDA_DEVICE_TYPES
        except TypeError:  # PyArrow's arrays of text, or with nulls
            return False
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


def _unreadable_dtype(name: str, dtype: DTypeLike) -> TypeError:
    return TypeError(f"{name} has dtype {dtype}, which cannot be read on a GPU: use float32.")
