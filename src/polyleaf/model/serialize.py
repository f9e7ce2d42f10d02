"""Model files: safetensors with a JSON header (docs/model-format.md), which cannot run code.

Owns: the container, its version, the checksum, writing beside and renaming, refusing what is damaged.
Must not know: what the header and the arrays mean (`Model.to_state`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from polyleaf.model.io import Destination, Source, format_source, read_bytes, write_bytes

FORMAT = "polyleaf-model"
FORMAT_VERSION = 3
"""The newest that is read; a model is written as the oldest that holds it."""

SPARE_BYTES, TIMES_SIZE = 2**26, 64
"""What loading may take, in bytes: the first, and so many times the size of the file."""

Header: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, np.ndarray]
_T = TypeVar("_T")


class ModelFileError(ValueError):
    """A file that is not a valid model, or not one that this version can read."""


def write(target: Destination, data: bytes) -> None:
    """Write a model. A file is written beside its name and renamed, so that the name stands for the old file
    or the new one at any time.

    What is no file (a device, a pipe) is written into.

    Raises
    ------
    OSError
        When the file cannot be written (no space, no permission); the old file is then left as it was.
    ValueError
        When the name is one of another format.
    """
    write_bytes(target, data, _replace_file)


def read(source: Source, build: Callable[[Header, Arrays], _T]) -> _T:
    """What `build` makes of a file or bytes; see `from_bytes`. Errors name the place."""
    try:
        return from_bytes(read_bytes(source), build)
    except ModelFileError as error:
        raise ModelFileError(
            f"{format_source(source)} cannot be loaded: {error}"
        ) from error.__cause__


def to_bytes(header: Header, arrays: Arrays, version: int) -> bytes:
    """A header and arrays in the format of model files, of one of its versions. Equal ones give equal bytes.

    Raises
    ------
    ValueError
        When the header holds something that JSON cannot.
    """
    from safetensors.numpy import save

    try:
        header = json.loads(json.dumps(header, default=_to_json))
    except TypeError as error:
        raise ValueError(
            f"The model cannot be saved, because JSON cannot hold its metadata: {error}."
        ) from error
    arrays = {name: np.require(array, requirements="C") for name, array in sorted(arrays.items())}
    about = {
        "format_version": version,
        "polyleaf_version": polyleaf_version(),
        "checksum": _checksum(header, arrays),
        "model": header,
    }
    # One entry of metadata: safetensors keeps several in no particular order.
    return save(arrays, {FORMAT: json.dumps(about)})


def from_bytes(data: bytes, build: Callable[[Header, Arrays], _T]) -> _T:
    """What `build` makes of a header and arrays, the inverse of `to_bytes`, from bytes of any origin.

    Raises
    ------
    ModelFileError (a ValueError)
        When they are truncated, changed, of a newer version or of something else, or when `build` raises.
    MemoryError
        When there is not enough memory. Sound bytes or not take no more than `SPARE_BYTES` and `TIMES_SIZE`
        times their number.
    """
    try:
        about, arrays = _read_container(data)
        if about.get("checksum") != _checksum(about.get("model"), arrays):
            raise ValueError(
                "it does not match its checksum, so the file was damaged; take another copy"
            )
        return build(about["model"], arrays)
    except ModelFileError:  # says itself what is wrong
        raise
    except MemoryError:
        raise MemoryError(
            f"There is not enough memory to load a model file of {len(data)} bytes. That says nothing "
            "against the file: keep it, and try with more memory."
        ) from None
    except (
        Exception
    ) as error:  # whatever hostile content trips over, here or in a mapper or an objective
        raise ModelFileError(f"its content is not a valid model: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """What an error says: ours are sentences, those from below are called by their kind."""
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


def polyleaf_version() -> str:
    """Version of the installed package; "unknown" where it runs without being installed."""
    try:
        return version("polyleaf")
    except PackageNotFoundError:
        return "unknown"


def _to_json(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


# --- the container --------------------------------------------------------------------------------


def _read_container(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a safetensors file says about its model, of a version that we know; and its arrays."""
    from safetensors.numpy import load

    try:
        arrays = load(data)
        # The length of safetensors' own JSON header comes first.
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
        about = json.loads(metadata[FORMAT]) if FORMAT in metadata else None
    except MemoryError:
        raise
    except Exception as error:  # SafetensorError, and whatever else its header leads to
        raise ModelFileError(
            f"it is truncated, damaged or no model file at all ({error})."
        ) from error
    if not isinstance(about, dict):
        raise ModelFileError("it is a safetensors file, but not a Polyleaf model.")
    written = about.get("format_version")
    if not isinstance(written, int) or written < 1:
        raise ModelFileError("it does not say which version of the format it has.")
    if written > FORMAT_VERSION:
        raise ModelFileError(
            f"it has version {written} of the format, written by Polyleaf {about.get('polyleaf_version')}; "
            f"this Polyleaf reads versions up to {FORMAT_VERSION}. Upgrade Polyleaf to read it."
        )
    return about, arrays


def _checksum(header: Any, arrays: dict[str, np.ndarray]) -> str:
    """CRC-32 over the header (JSON, sorted keys), then name, dtype, shape and bytes of each array by name."""
    crc = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        crc = zlib.crc32(f"{name}{array.dtype.str}{array.shape}".encode(), crc)
        crc = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def remove_stale(directory: Path, name: str) -> None:
    """Remove what `write` had to leave of files whose names match a pattern: it was killed while it wrote.

    Parameters
    ----------
    directory : Path
    name : str
        A regular expression. Nobody may be writing files of such names just now.
    """
    pattern = re.compile(rf"\.(?:{name})\.[0-9a-f]{{12}}\.tmp")
    for path in directory.glob(".*.tmp"):
        if pattern.fullmatch(path.name) and path.is_file():
            with suppress(OSError):
                path.unlink()


def _replace_file(path: Path, data: bytes) -> None:
    path = Path(os.path.realpath(path))  # a link keeps pointing to the file
    if path.exists() and not path.is_file():
        return _write_into(path, data)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path} cannot be written: there is no folder {path.parent}. Make it first."
        )
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if path.exists():
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def _write_into(path: Path, data: bytes) -> None:
    """A device or a pipe is written to: in its place there would be a file. OSError for a folder."""
    with open(path, "wb") as stream:
        stream.write(data)


def _sync_directory(directory: Path) -> None:
    """Make the rename last through a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
