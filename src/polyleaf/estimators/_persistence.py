"""Estimators and model files: metadata of a fitted model, and estimators made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polyleaf.model import Model, serialize
from polyleaf.model.metadata import (
    ESTIMATOR,
    HAS_OFFSETS,
    INPUT_LABELS,
    INPUT_NAMES,
    PARAMETERS,
    get_input_names,
)
from polyleaf.model.serialize import ModelFileError, Source
from polyleaf.runtime.context import effective_threads
from polyleaf.training.prepare import set_feature_names
from polyleaf.user_data.multitask import decode_target_encoding
from polyleaf.user_data.target import TargetEncoding

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator

_Estimator = TypeVar("_Estimator", bound="PolyleafEstimator")


def make_metadata(
    estimator: PolyleafEstimator, encoding: TargetEncoding, has_offsets: bool, is_projected: bool
) -> dict[str, Any]:
    """Return the metadata of a new model, from which the estimator can be made again."""
    metadata: dict[str, object] = {HAS_OFFSETS: True} if has_offsets else {}
    if is_projected:  # the model's own feature names are those of projected features
        names = getattr(estimator, "feature_names_in_", None)
        metadata[INPUT_NAMES] = None if names is None else [str(name) for name in names]
        if estimator._column_labels is not None:
            metadata[INPUT_LABELS] = list(estimator._column_labels)
    return metadata | {
        ESTIMATOR: type(estimator).__name__,
        PARAMETERS: {
            name: plain
            for name, value in estimator.get_params(deep=False).items()
            if (plain := _to_plain(value)) is not _NOT_PLAIN
        },
        **encoding.to_dict(),
    }


def make_estimator(cls: type[_Estimator], model: Model) -> _Estimator:
    """Make the fitted estimator of a model that was read from a file.

    Raises a ValueError if the model is not one of this class.
    """
    parameters = model.metadata.get(PARAMETERS)
    if parameters is None:
        raise ValueError("The metadata names no parameters.")
    # Files hold objectives by name only; for others the model has the objective.
    values = {"objective": cls._objective_parameter(model), **_from_plain(parameters)}
    names = cls._get_param_names()
    estimator = cls(**{name: value for name, value in values.items() if name in names})
    estimator._validate_params()
    effective_threads(estimator.n_jobs)  # scikit-learn accepts True and 0 as numbers of threads
    encoding = decode_target_encoding(model.metadata, model.n_outputs)
    cls._check_agreement(model, encoding)
    set_input_names(estimator, model)
    estimator._set_model(model, encoding)
    estimator.evals_result_, estimator.evals_result_per_output_ = model.evals_log, {}
    return estimator


def set_input_names(estimator: PolyleafEstimator, model: Model) -> None:
    """Set scikit-learn's attributes of the columns of X that a model was trained on.

    Raises a ValueError if the metadata of the model name another number of columns.
    """
    if model.projection is None:
        set_feature_names(estimator, model.mapper.n_features_, model.mapper.feature_names_)
        return
    n_features, known = model.projection.n_features, get_input_names(model)
    for columns in known:
        if columns is not None and len(columns) != n_features:
            raise ValueError(f"The metadata must name {n_features} features of X, or none.")
    set_feature_names(estimator, n_features, *known)


def read_estimator(path: Source, classes: Mapping[str, type[_Estimator]]) -> _Estimator:
    """Read a fitted estimator of one of these classes, by name, from a file.

    Raises a ModelFileError (a ValueError) if the file is not a model file, is damaged, or holds a
    model of another class or of no estimator.
    """
    return serialize.read(path, make_estimator_builder(classes))


def make_estimator_builder(
    classes: Mapping[str, type[_Estimator]],
) -> Callable[[serialize.Header, serialize.Arrays], _Estimator]:
    """Return the function that makes an estimator of one of these classes from a file's content."""

    def build(header: serialize.Header, arrays: serialize.Arrays) -> _Estimator:
        model = serialize.from_state(Model, header, arrays)
        name = model.metadata.get(ESTIMATOR)
        if name is None:
            raise ModelFileError(
                "it holds a model without an estimator: read it with polyleaf.Model.load."
            )
        if name not in classes:
            raise ModelFileError(
                f"it holds a {name}, not a {' or '.join(classes)}: read it with {name}.load_model."
            )
        return make_estimator(classes[name], model)

    return build


_NOT_PLAIN = object()
_PAIRS, _SET = "__pairs__", "__set__"  # mappings with keys other than text, and sets


def find_unsaved(parameters: Mapping[str, object]) -> list[str]:
    """Return the names of parameters that model files do not hold."""
    return [
        name
        for name, value in parameters.items()
        if name != "objective" and _to_plain(value) is _NOT_PLAIN  # models hold objectives
    ]


def _to_plain(value: object) -> object:
    """Return a value as JSON holds it; `_NOT_PLAIN` for functions, random generators and others."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__array__"):  # also an index or a column of a frame
        array = np.asarray(value)
        return _NOT_PLAIN if array.dtype.kind in "mM" else _to_plain(array.tolist())
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key not in (_PAIRS, _SET) for key in value):
            plain = {key: _to_plain(entry) for key, entry in value.items()}
            return _NOT_PLAIN if _NOT_PLAIN in plain.values() else plain
        pairs = _to_plain([list(pair) for pair in value.items()])
        return pairs if pairs is _NOT_PLAIN else {_PAIRS: pairs}
    if isinstance(value, Set):
        entries = _to_plain(list(value))
        return {_SET: sorted(entries, key=repr)} if isinstance(entries, list) else _NOT_PLAIN
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        plain_entries = [_to_plain(entry) for entry in value]
        return _NOT_PLAIN if _NOT_PLAIN in plain_entries else plain_entries
    return _NOT_PLAIN


def _from_plain(plain: Any) -> Any:
    """Invert `_to_plain`, except that arrays and tuples are lists."""
    if isinstance(plain, list):
        return [_from_plain(entry) for entry in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {_PAIRS}:
        return {_to_key(key): _from_plain(value) for key, value in plain[_PAIRS]}
    if plain.keys() == {_SET}:
        return {_to_key(entry) for entry in plain[_SET]}
    return {key: _from_plain(value) for key, value in plain.items()}


def _to_key(plain: Any) -> Any:
    return tuple(map(_to_key, plain)) if isinstance(plain, list) else plain
