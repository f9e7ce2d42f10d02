"""Model files: safetensors with a JSON header, which cannot run code.

A file holds a header and arrays, a format version and a checksum. Files are written next to their
name and renamed; content of any origin is checked before a model is built from it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias, TypeVar

import numpy as np

from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.dataset_file import select_prefix
from polyleaf.metrics.metric import EvalsLog
from polyleaf.model import storage
from polyleaf.model.container import read_arrays, write_arrays
from polyleaf.model.initial import LinearInitialModel
from polyleaf.model.metadata import check_metadata
from polyleaf.objectives import Objective, UnregisteredObjectiveError, objective_from_dict
from polyleaf.runtime.capabilities import check
from polyleaf.runtime.checks import require
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.runtime.temporary_files import open_replacement
from polyleaf.runtime.types import JsonObject
from polyleaf.sketching.projections import Projection

if TYPE_CHECKING:
    from polyleaf.model.model import Model

FORMAT = "polyleaf-model"
FORMAT_VERSION = 1
"""The version of the format that is written, and the newest that can be read."""

SPARE_BYTES, SIZE_FACTOR = 2**26, 64
"""Loading may use SPARE_BYTES + SIZE_FACTOR * file size bytes of memory."""

Header: TypeAlias = JsonObject
Arrays: TypeAlias = dict[str, np.ndarray]
Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""A path, the bytes themselves, or an open binary file."""

Destination: TypeAlias = str | os.PathLike[str] | BinaryIO
"""A path or an open binary file."""

TextDestination: TypeAlias = str | os.PathLike[str] | TextIO
"""A path or an open text file."""

_T = TypeVar("_T")
_M = TypeVar("_M", bound="Model")

_FOREST, _MAPPER, _PROJECTION, _INITIAL = "forest.", "mapper.", "projection.", "initial."
_MIN_SHARED_BASE_OUTPUTS = 1024  # with as many outputs equal base scores are stored once
_BYTES_PER_OUTPUT = 20  # memory of an output: base score, label id, and checks
_VECTORS = ("base_score", "target_scale", "target_offset")
_FIELDS: dict[str, tuple[type, ...]] = {
    "feature_names": (list, type(None)),
    "output_names": (list, type(None)),
    "learning_rate": (int, float),
    "best_iteration": (int, type(None)),
    "best_score": (int, float, type(None)),
    "metadata": (dict,),
    "objective": (dict,),
    "mapper": (dict,),
}


class ModelFileError(ValueError):
    """The file is not a valid model, or this version cannot read it."""


# --- the state of a model -------------------------------------------------------------------------


def to_state(
    model: Model, leaf_dtype: str = "float32", statistics: bool = True
) -> tuple[Header, Arrays]:
    """Return a model as a header and arrays; see `Model.save` for the options."""
    mapper_meta, mapper_arrays = model.mapper.to_state()
    header: Header = {
        name: getattr(model, name) for name in _FIELDS if name not in ("objective", "mapper")
    }
    header |= {"objective": model.objective.to_dict(), "mapper": mapper_meta}
    arrays = {name: getattr(model, name) for name in _VECTORS if getattr(model, name) is not None}
    arrays["round_of_tree"] = model.round_of_tree
    if model.bin_counts is not None:
        arrays["bin_counts"] = model.bin_counts.astype(np.uint32)
    trees = storage.to_arrays(model.forest, leaf_dtype, statistics and model.has_statistics)
    arrays |= {_FOREST + name: array for name, array in trees.items()}
    arrays |= {_MAPPER + name: np.asarray(array) for name, array in mapper_arrays.items()}
    if model.projection is not None:
        header["projection"] = model.projection.to_dict()
        arrays |= {_PROJECTION + name: array for name, array in model.projection.arrays().items()}
    if model.initial is not None:
        check("model_file", model=model)
        assert isinstance(model.initial, LinearInitialModel)
        header["initial"] = model.initial.to_dict()
        arrays |= {_INITIAL + name: array for name, array in model.initial.arrays().items()}
    base = model.base_score
    can_share = _MIN_SHARED_BASE_OUTPUTS <= len(base) <= _max_outputs(arrays)
    if can_share and (base == base[0]).all():
        header["n_outputs"], arrays["base_score"] = len(base), base[:1]
    return header, arrays


def from_state(cls: type[_M], header: Header, arrays: Arrays) -> _M:
    """Build a model of a class from the result of `to_state`.

    Any exception means that the header and arrays do not describe a model.
    """
    for name, types in _FIELDS.items():
        has_type = isinstance(header.get(name), types) and not isinstance(header.get(name), bool)
        require(has_type, f"The header's {name!r} is missing or of the wrong type.")
    for name in ("feature_names", "output_names"):
        are_texts = all(isinstance(entry, str) for entry in header[name] or ())
        require(are_texts, f"The header's {name!r} must contain strings only.")
    is_valid = 0 < header["learning_rate"] < np.inf
    require(is_valid, "The header's 'learning_rate' must be a positive number.")
    projection = header.get("projection")
    if projection is not None:
        projection = Projection.from_dict(projection, select_prefix(arrays, _PROJECTION))
    model = cls(
        mapper=BinMapper.from_state(header["mapper"], select_prefix(arrays, _MAPPER)),
        objective=_read_objective(header["objective"]),
        base_score=_read_base_score(header, arrays),
        target_scale=arrays.get("target_scale"),
        target_offset=arrays.get("target_offset"),
        projection=projection,
        feature_names=header["feature_names"],
        output_names=header["output_names"],
        learning_rate=header["learning_rate"],
        metadata=header["metadata"],
    )
    if header.get("initial") is not None:
        model.initial = _read_initial(header["initial"], arrays, model)
    if projection is not None:
        is_same = tuple(projection.feature_names) == model.mapper.feature_names_
        require(is_same, "The projection and the mapper have different features.")
    model.bin_counts = _read_bin_counts(arrays.get("bin_counts"), model.mapper)
    model.evals_log = _read_evals_log(header.get("evals_log", {}))
    n_targets, rest = divmod(model.n_outputs, model.objective.outputs_per_target())
    require(
        rest == 0 and model.objective.n_scores(n_targets) == model.n_outputs,
        f"The objective {model.objective.name!r} does not fit the number of outputs, "
        f"{model.n_outputs}.",
    )
    check_metadata(model.metadata, model.n_outputs)
    _restore_trees(model, select_prefix(arrays, _FOREST), arrays["round_of_tree"])
    iteration, score = header["best_iteration"], header["best_score"]
    if iteration is not None:
        is_round = 0 <= iteration < model.n_rounds
        require(is_round, f"The best round is {iteration}, but the model has {model.n_rounds}.")
    require(score is None or score == score, "The best score is NaN.")
    model.best_iteration, model.best_score = iteration, score
    return model


def _read_initial(stored: Any, arrays: Arrays, model: Model) -> LinearInitialModel:
    """Build the initial model, which must fit the features of X and the outputs."""
    initial = LinearInitialModel.from_dict(stored, select_prefix(arrays, _INITIAL))
    mapper, projection = model.mapper, model.projection
    n_features = mapper.n_features_ if projection is None else projection.n_features
    require(
        (initial.n_features, initial.n_scores) == (n_features, model.n_outputs),
        "The initial model and the trees have different features or outputs.",
    )
    return initial


def _read_bin_counts(counts: np.ndarray | None, mapper: BinMapper) -> np.ndarray | None:
    if counts is None:
        return None
    n_bins = mapper.n_bins_[mapper.counted_columns_] + np.int64(1)
    is_valid = counts.dtype == np.uint32 and counts.shape == (n_bins.sum(),)
    require(is_valid, "The array 'bin_counts' must have one uint32 number per bin.")
    return counts.astype(np.int64)


def _restore_trees(model: Model, stored: Arrays, rounds: np.ndarray) -> None:
    """Set the trees of a model, which must fit its mapper."""
    model.has_statistics = storage.has_statistics(stored)
    forest = storage.from_arrays(stored, model.n_outputs, model.n_features)
    are_integers = rounds.shape == (len(forest),) and rounds.dtype.kind == "i"
    require(are_integers, "The array 'round_of_tree' must have one integer per tree.")
    steps = np.diff(rounds.astype(np.int64))
    rises = not rounds[:1].any() and ((steps == 0) | (steps == 1)).all()
    require(rises, "The array 'round_of_tree' must start at 0 and rise by at most one.")
    is_categorical = model.mapper.is_categorical_
    is_numeric = not is_categorical[forest.regressors()].any()
    require(is_numeric, "A linear leaf uses a categorical feature.")
    # Splits fit the mapper's bins; `storage` checks all that memory safety requires.
    feature = stored["feature"]  # -1 of a leaf selects the entry appended to either table
    require(
        (np.append(is_categorical, False)[feature] == (stored["category_set"] >= 0)).all(),
        "A tree splits a numeric feature by categories, or a categorical one by a threshold.",
    )
    exists = (stored["threshold"] < np.append(model.mapper.n_bins_, 1)[feature]).all()
    require(exists, "A tree splits a feature at a bin that does not exist.")
    model.forest, model.rounds = forest, rounds.tolist()


def _read_objective(stored: Any) -> Objective:
    try:
        return objective_from_dict(stored)
    except UnregisteredObjectiveError as error:  # the file is valid, and the error names the remedy
        raise ModelFileError(str(error)) from error


def _read_evals_log(stored: Any) -> EvalsLog:
    """Return the log of a header, which must hold lists of numbers."""
    log = stored if isinstance(stored, dict) else {"": stored}
    for metrics in log.values():
        curves = metrics.values() if isinstance(metrics, dict) else [None]
        require(
            all(isinstance(curve, list) and all(map(_is_number, curve)) for curve in curves),
            "The header's 'evals_log' must hold lists of numbers by data and metric.",
        )
    return log


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_base_score(header: Header, arrays: Arrays) -> np.ndarray:
    base, n_outputs = arrays["base_score"], header.get("n_outputs")
    if n_outputs is None:
        return base
    is_shared = type(n_outputs) is int and n_outputs >= 1 and base.shape == (1,)
    require(is_shared, "The header's 'n_outputs' must be a count that shares one base score.")
    limit = _max_outputs(arrays)
    require(
        n_outputs <= limit,
        f"The header's 'n_outputs' is {n_outputs}, but the arrays can have at most {limit}.",
    )
    return np.broadcast_to(base, n_outputs)


def _max_outputs(arrays: Arrays) -> int:
    """Return how many outputs a file with these arrays may have within the memory of loading."""
    size = sum(array.nbytes for name, array in arrays.items() if name != "base_score")
    return min(2**31 - 1, (SPARE_BYTES + SIZE_FACTOR * size) // _BYTES_PER_OUTPUT)


# --- bytes and their container --------------------------------------------------------------------


def to_bytes(header: Header, arrays: Arrays) -> bytes:
    """Return the content of a model file; equal models give equal bytes.

    Raises a ValueError if the header contains a value that JSON cannot represent.
    """
    try:
        header = json.loads(json.dumps(header, default=_to_json))
    except TypeError as error:
        raise ValueError(
            f"The model cannot be saved, because JSON cannot represent its metadata: {error}."
        ) from error
    content = {
        "format_version": FORMAT_VERSION,
        "polyleaf_version": polyleaf_version(),
        "checksum": _checksum(header, arrays),
        "model": header,
    }
    return write_arrays(arrays, {FORMAT: json.dumps(content)})


def from_bytes(data: bytes, build: Callable[[Header, Arrays], _T]) -> _T:
    """Return `build(header, arrays)` for the content of a model file of any origin.

    Raises
    ------
    ModelFileError (a ValueError)
        If the bytes are truncated, changed, of a newer version or not a model, or if `build` fails.
    MemoryError
        If there is not enough memory. At most `SPARE_BYTES` plus `SIZE_FACTOR` times the size of
        the data is used, whether the bytes are valid or not.
    """
    try:
        content, arrays = _read_container(data)
        is_complete = content.get("checksum") == _checksum(content.get("model"), arrays)
        require(
            is_complete, "its checksum does not match, so the file is damaged; use another copy"
        )
        return build(content["model"], arrays)
    except ModelFileError:
        raise
    except MemoryError:
        raise MemoryError(
            f"There is not enough memory to load a model file of {len(data)} bytes. The file may "
            "be valid: keep it, and try again with more memory."
        ) from None
    except Exception as error:  # whatever malformed content raises, here, in a mapper or objective
        raise ModelFileError(f"its content is not a valid model: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """Return the message of our own errors; others are preceded by their class."""
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


def _to_json(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


def _read_container(data: bytes) -> tuple[Header, Arrays]:
    """Return the metadata of a model file of this format, and its arrays."""
    try:
        arrays, metadata = read_arrays(data)
        content = json.loads(metadata[FORMAT]) if FORMAT in metadata else None
    except MemoryError:
        raise
    except Exception as error:  # whatever a malformed header raises
        raise ModelFileError(f"it is truncated, damaged or not a model file ({error}).") from error
    if not isinstance(content, dict):
        raise ModelFileError("it is a safetensors file, but not a Polyleaf model.")
    format_version = content.get("format_version")
    if not isinstance(format_version, int) or format_version < 1:
        raise ModelFileError("its format version is missing.")
    if format_version > FORMAT_VERSION:
        raise ModelFileError(
            f"it has format version {format_version}, written by Polyleaf "
            f"{content.get('polyleaf_version')}; this version of Polyleaf reads format versions up "
            f"to {FORMAT_VERSION}. Upgrade Polyleaf to read it."
        )
    return content, arrays


def _checksum(header: object, arrays: Arrays) -> str:
    """Return the CRC-32 of the header (JSON, sorted keys), then of each array in order of names.

    Of an array its name, dtype, shape and bytes are included.
    """
    crc = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        crc = zlib.crc32(f"{name}{array.dtype.str}{array.shape}".encode(), crc)
        crc = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


# --- reading and writing --------------------------------------------------------------------------


def read(source: Source, build: Callable[[Header, Arrays], _T]) -> _T:
    """Return `from_bytes` of a file or bytes; errors name the source."""
    try:
        return from_bytes(read_bytes(source), build)
    except ModelFileError as error:
        raise ModelFileError(
            f"{format_source(source)} cannot be loaded: {error}"
        ) from error.__cause__


def read_bytes(source: Source) -> bytes:
    """Read a path, or an open file from its current position to its end.

    Raises an OSError if it cannot be read, and a TypeError if it is neither a path nor bytes nor a
    binary file.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if hasattr(source, "read"):
        try:
            data = source.read()
        except UnicodeDecodeError:  # a text file
            data = ""
        if not isinstance(data, bytes):
            raise TypeError(
                f"{format_source(source)} returns {type(data).__name__}: open it with mode 'rb'."
            )
        return data
    return as_path(source).read_bytes()


def write(target: Destination, data: bytes, load: Callable[[bytes], object]) -> None:
    """Write a model that can be loaded again.

    A file is written next to its name and renamed, so that the name always refers to the complete
    old file or the complete new one. Devices and pipes are written to directly.

    `data`: content of a model file. `load`: raises a ModelFileError if the data cannot be loaded,
    before anything is written.

    Raises
    ------
    OSError
        If the file cannot be written (no space, no permission); the old file is kept.
    TypeError
        If the target is neither a path nor a binary file.
    ValueError
        If the name has the suffix of another format, or the data cannot be loaded.
    """
    try:
        load(data)
    except ModelFileError as error:
        raise ValueError(
            f"The model was not saved, because it could not be loaded again: {error}"
        ) from error
    if hasattr(target, "write"):
        write_open(target, data)
        return
    path = as_path(target)
    if path.suffix.lower() == ".json":
        raise ValueError(
            f"Model files are binary, but {str(path)!r} ends in '.json': choose another suffix, "
            "such as '.polyleaf'. polyleaf.inspection.dump_json writes a model as JSON."
        )
    with open_replacement(path) as file:
        file.write(data)


def write_text(target: TextDestination, text: str) -> None:
    """Write text to a path or an open text file; raise TypeError for other targets.

    Files have the same bytes on every system: UTF-8, with lines that end in a line feed.
    """
    if hasattr(target, "write"):
        write_open(target, text)
    else:
        as_path(target).write_text(text, "utf-8", newline="\n")


def write_open(target: Any, data: bytes | str) -> None:
    """Write bytes or text to an open file; raise TypeError if it has the wrong mode."""
    try:
        target.write(data)
    except TypeError as error:
        kind, mode = ("text", "w") if isinstance(data, str) else ("bytes", "wb")
        raise TypeError(
            f"{format_source(target)} does not accept {kind}: open it with mode {mode!r} ({error})."
        ) from None


def format_source(place: Source | Destination | TextDestination) -> str:
    """Return what messages call a source or a destination."""
    if isinstance(place, bytes | bytearray | memoryview):
        return "a model in memory"
    if hasattr(place, "read") or hasattr(place, "write"):
        name = getattr(place, "name", None)
        return f"the file {name!r}" if isinstance(name, str) else "the open file"
    return repr(os.fspath(place))


def as_path(place: object) -> Path:
    """Return a name as a path; raise TypeError if it is not a name."""
    if not isinstance(place, str | os.PathLike):
        raise TypeError(
            "A model is read from and written to a path, an open file or bytes; got "
            f"{type(place).__name__}."
        )
    return Path(place)
