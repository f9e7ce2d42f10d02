"""NVRTC, which compiles kernels while a program runs: found among installed packages, called by ctypes.

Owns: where its library lies, and its calls. Must not know: kernels, devices, what becomes of a program.

Eight functions of one library need no package around them; so whatever major version of CUDA is installed
will do.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Nvrtc", "NvrtcError", "found"]

# Where the packages of NVIDIA keep it, by major version, and what it is called where the system has it.
_FOLDERS = {12: "nvidia/cuda_nvrtc/lib", 13: "nvidia/cu13/lib"}
_NAME = "libnvrtc.so.{}"


class NvrtcError(RuntimeError):
    """A program that does not compile, or a library that does not answer."""


class Nvrtc:
    """The compiler.

    Attributes
    ----------
    version : tuple of int
        Of CUDA: (12, 9), say.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)

    def compile(
        self, name: str, sources: Mapping[str, str], architecture: str, options: Sequence[str] = ()
    ) -> bytes:
        """The machine code of a program.

        Parameters
        ----------
        name : str
            Of the source that includes others.
        sources : mapping of str to str
            All of them, by the names that they are included by.
        architecture : str
            "sm_90", say.
        options : sequence of str

        Raises
        ------
        NvrtcError
            With what the compiler says.
        """
        headers = {other: text for other, text in sources.items() if other != name}
        texts = _strings(list(headers.values()))
        program = ctypes.c_void_p()
        of_program = (
            sources[name].encode(),
            name.encode(),
            len(headers),
            texts,
            _strings(list(headers)),
        )
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program), *of_program))
        try:
            options = [f"--gpu-architecture={architecture}", *options]
            result = self._library.nvrtcCompileProgram(program, len(options), _strings(options))
            if result != 0:
                said = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise NvrtcError(f"The kernels do not compile for {architecture}:\n{said}")
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


def found(newest: int | None = None) -> Nvrtc | None:
    """The compiler that is installed; None: none is.

    Parameters
    ----------
    newest : int, optional
        The newest major version of CUDA that will do: programs of a newer one may be refused by a driver.
    """
    for major in sorted(_FOLDERS, reverse=True):
        if newest is not None and major > newest:
            continue
        name = _NAME.format(major)
        for library in [str(path) for path in _installed(_FOLDERS[major], name)] + [name]:
            try:
                return Nvrtc(library)
            except (OSError, AttributeError, NvrtcError):
                continue
    return None


def _installed(folder: str, name: str) -> list[Path]:
    paths = [Path(entry) / folder / name for entry in sys.path if entry]
    return [path for path in paths if path.is_file()]


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
