"""Model files: safetensors with a JSON header (docs/model-format.md), which cannot run code.

Owns: the format, its version, the checksum, writing beside and renaming, refusing what is not valid.
Must not know: what the mapper's and objective's states mean, how trees are laid out in arrays (`forest`).
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import zlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf import forest
from polyleaf.model import Model
from polyleaf.objectives import NotRegistered, objective_from_dict
from polyleaf.projections import Projection

FORMAT = "polyleaf-model"
FORMAT_VERSION = 2  # the newest that is read; a model is written as the oldest that can hold it

_FOREST, _MAPPER, _PROJECTION = "forest.", "mapper.", "projection."
_MANY_OUTPUTS = 1024  # from here on base scores that are all the same are kept as one
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
    """A file that is not a valid model, or not one that this version can read."""


def save_model(model: Model, path: str | Path, leaf_dtype: str = "float32", statistics: bool = True) -> None:
    """Write a model to a file.

    The file is written beside `path` and then renamed, so that `path` holds the old file or the new one,
    whole, at any time. Equal models give equal files.

    Parameters
    ----------
    model : Model
    path : str or Path
    leaf_dtype : {"float32", "float16", "int8"}
        Leaf values as they are, or rounded: see :mod:`polyleaf.leaf_storage`, and
        :func:`polyleaf.inspect.leaf_dtype_report` for what that costs. Loading gives float32 again.
    statistics : bool
        Whether gains, numbers of rows and curvatures of the nodes are kept. Prediction does not need them;
        importances by gain and cover do. They are most of a file where there are many outputs.

    Raises
    ------
    OSError
        When the file cannot be written (no space, no permission); the old file is then left as it was.
    ValueError
        When the model's metadata holds something that JSON cannot, or leaf values do not fit `leaf_dtype`.
    """
    _replace_file(Path(path), to_bytes(model, leaf_dtype, statistics))


def load_model(path: str | Path) -> Model:
    """Read a model from a file, of this version of the format or an older one. Nothing in it is trusted.

    Raises
    ------
    ModelFileError (a ValueError)
        When the file is truncated, changed, of a newer version, or not a model at all.
    OSError
        When it cannot be read.
    """
    try:
        return from_bytes(Path(path).read_bytes())
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error.__cause__


def to_bytes(model: Model, leaf_dtype: str = "float32", statistics: bool = True) -> bytes:
    """A model in the format of model files."""
    from safetensors.numpy import save

    header, arrays = _to_state(model, leaf_dtype, statistics and model.has_statistics)
    about = {
        "format_version": _version_needed(arrays),
        "polyleaf_version": polyleaf_version(),
        "checksum": _checksum(header, arrays),
        "model": header,
    }
    # One entry of metadata: safetensors keeps several in no particular order.
    return save(arrays, {FORMAT: json.dumps(about)})


def from_bytes(data: bytes) -> Model:
    """A model from bytes of any origin; the inverse of `to_bytes`. Raises ModelFileError."""
    about, arrays = _read_container(data)
    try:
        if about["checksum"] != _checksum(about["model"], arrays):
            raise ValueError("it does not match its checksum, so the file was damaged; take another copy")
        return _from_state(about["model"], arrays)
    except NotRegistered as error:
        raise ModelFileError(str(error)) from error
    except Exception as error:  # whatever hostile content trips over, here or in a mapper or an objective
        raise ModelFileError(f"its content is not a valid model: {error}") from error


def polyleaf_version() -> str:
    """Version of the installed package; "unknown" where it runs without being installed."""
    try:
        return version("polyleaf")
    except PackageNotFoundError:
        return "unknown"


# --- model <-> header and arrays ------------------------------------------------------------------


def _to_state(
    model: Model, leaf_dtype: str, statistics: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    mapper_meta, mapper_arrays = model.mapper.to_state()
    header = {
        "feature_names": model.feature_names,
        "output_names": model.output_names,
        "learning_rate": model.learning_rate,
        "best_iteration": model.best_iteration,
        "best_score": model.best_score,
        "metadata": model.metadata,
        "objective": model.objective.to_dict(),
        "mapper": mapper_meta,
    }
    arrays = {name: getattr(model, name) for name in _VECTORS if getattr(model, name) is not None}
    arrays["round_of_tree"] = model.round_of_tree
    trees = forest.to_arrays(model.forest, leaf_dtype, statistics)
    arrays |= {_FOREST + name: array for name, array in trees.items()}
    arrays |= {_MAPPER + name: np.asarray(array) for name, array in mapper_arrays.items()}
    if model.projection is not None:
        header["projection"] = model.projection.to_dict()
        arrays |= {_PROJECTION + name: array for name, array in model.projection.arrays().items()}
    base = model.base_score
    if _version_needed(arrays) > 1 and len(base) >= _MANY_OUTPUTS and (base == base[0]).all():
        header["n_outputs"], arrays["base_score"] = len(base), base[:1]
    arrays = {name: np.require(array, requirements="C") for name, array in sorted(arrays.items())}
    try:
        return json.loads(json.dumps(header, default=_to_json)), arrays
    except TypeError as error:
        raise ValueError(
            f"The model cannot be saved, because JSON cannot hold its metadata: {error}."
        ) from error


def _version_needed(arrays: dict[str, np.ndarray]) -> int:
    """Version 1 holds dense leaves only, and no projection."""
    newer = {_FOREST + name for name in forest.KIND_ARRAYS} | {_PROJECTION + "columns"}
    return 1 if newer.isdisjoint(arrays) else 2


def _from_state(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    from polyleaf.binning import BinMapper

    for name, types in _FIELDS.items():
        if not isinstance(header.get(name), types) or isinstance(header.get(name), bool):
            raise ValueError(f"The header's {name!r} is missing or of the wrong type.")
    projection = header.get("projection")
    if projection is not None:
        projection = Projection.from_dict(projection, _with_prefix(arrays, _PROJECTION))
    model = Model(
        mapper=BinMapper.from_state(header["mapper"], _with_prefix(arrays, _MAPPER)),
        objective=objective_from_dict(header["objective"]),
        feature_names=header["feature_names"],
        output_names=header["output_names"],
        learning_rate=header["learning_rate"],
        metadata=header["metadata"],
        base_score=_base_score(header, arrays),
        target_scale=arrays.get("target_scale"),
        target_offset=arrays.get("target_offset"),
        projection=projection,
    )
    if projection is not None and projection.dim != model.n_features:
        raise ValueError("The projection does not give the features that the mapper has.")
    model.best_iteration, model.best_score = header["best_iteration"], header["best_score"]
    stored = _with_prefix(arrays, _FOREST)
    model.has_statistics = forest.has_statistics(stored)
    trees = forest.from_arrays(stored, model.n_outputs, model.n_features)
    rounds = arrays["round_of_tree"]
    if rounds.shape != (len(trees),) or rounds.dtype.kind != "i":
        raise ValueError("The array 'round_of_tree' must have one integer for each tree.")
    if model.mapper.is_categorical_[trees.regressors()].any():
        raise ValueError("A linear leaf reads a categorical feature.")
    for round, (tree, leaves, output) in zip(rounds.tolist(), forest.trees_of(trees), strict=True):
        _check_splits(tree, model.mapper)
        model.append(tree, leaves, round, output)
    return model


def _base_score(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> np.ndarray:
    base, n_outputs = arrays["base_score"], header.get("n_outputs")
    if n_outputs is None:
        return base
    if not isinstance(n_outputs, int) or not 0 < n_outputs < 2**31 or base.shape != (1,):
        raise ValueError("The header's 'n_outputs' must be the number of outputs that one base score is for.")
    return np.full(n_outputs, base[0])


def _check_splits(tree: Any, mapper: Any) -> None:
    """Splits must be such as the mapper's codes have: `forest` has checked all that memory safety needs."""
    inner = tree.feature >= 0
    features = tree.feature[inner]
    categorical = np.asarray(mapper.is_categorical_, bool)[features]
    if (categorical != (tree.category_set[inner] >= 0)).any():
        raise ValueError(
            "A tree splits a numeric feature by categories, or a categorical one by a threshold."
        )
    if (tree.threshold[inner] >= np.asarray(mapper.n_bins_)[features]).any():
        raise ValueError("A tree splits a feature at a bin that it does not have.")


def _with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


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
    except Exception as error:  # SafetensorError, and whatever else its header leads to
        raise ModelFileError(f"it is truncated, damaged or no model file at all ({error}).") from error
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


def _replace_file(path: Path, data: bytes) -> None:
    path = Path(os.path.realpath(path))  # a link keeps pointing to the file
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


def _sync_directory(directory: Path) -> None:
    """Make the rename last through a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
