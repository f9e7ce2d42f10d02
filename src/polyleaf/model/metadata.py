"""Keys of a model's metadata that estimators write: calibrations and decision thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from polyleaf.model.initial import logit
from polyleaf.runtime.checks import require_entry
from polyleaf.runtime.types import DataLike, JsonObject
from polyleaf.user_data.multitask import decode_target_encoding

if TYPE_CHECKING:
    from polyleaf.model.model import Model

ESTIMATOR = "estimator"  # name of the class
PARAMETERS = "parameters"  # of the estimator
SLICE = "slice"  # of a model with a best round: its first round, and the best with its score
INPUT_NAMES = "input_names"  # names of features before a projection
INPUT_LABELS = "input_labels"  # labels that are not all text, as text, instead of names
BLEND = "blend"  # weights and parameters of the models of a blend
MEMBERS = "members"  # weight, rounds and parameters of each member, see training/members.py
HAS_OFFSETS = "has_offsets"  # True for a model trained with offsets
QUERY_COLUMN = "query_column"  # name of the column of X that holds the query of each row
# positions, and after the best and the last round, by the number of rounds as text, the biases of
# each member in each score; see training/position_bias.py
POSITION_BIAS = "position_bias"
CHOSEN_SCORE = "chosen_score"  # number of the score that the `predict` of a ranker returns

CalibrationKind = Literal["intervals", "prediction_sets"]


def set_calibration(model: Model, kind: CalibrationKind, **values: object) -> None:
    """Store the result of a calibration, in JSON types."""
    model.metadata[kind] = values


def get_calibration(model: Model, kind: CalibrationKind) -> JsonObject:
    """Return the last calibration; raise a ValueError if there is none."""
    values = model.metadata.get(kind)
    if values is None:
        raise ValueError(
            f"The model's {kind.replace('_', ' ')} are not calibrated: call calibrate(X, y, "
            "coverage=0.9) with rows outside the training data."
        )
    return values


def clear_calibrations(metadata: Mapping[str, object]) -> JsonObject:
    """Return metadata without calibrations and thresholds, for a model that is about to change."""
    return {key: value for key, value in metadata.items() if key not in CALIBRATIONS}


OUTPUT_GROUPS = "output_groups"  # trials of the search for groups, see `GroupSearch`
LEARNING_RATES = "learning_rates"  # of each round, unless all are that of the model


def set_learning_rates(model: Model, rates: Mapping[int, float]) -> None:
    """Store the learning rate of each round, by its number."""
    model.metadata.pop(LEARNING_RATES, None)
    if set(rates.values()) != {model.learning_rate}:
        model.metadata[LEARNING_RATES] = [rates[round] for round in range(model.n_rounds)]


def get_learning_rates(model: Model) -> list[float]:
    """Return the learning rate of each round."""
    stored, n = model.metadata.get(LEARNING_RATES), model.n_rounds
    if isinstance(stored, list) and len(stored) >= n:
        if all(isinstance(rate, float) for rate in stored):
            return stored[:n]
    return [float(model.learning_rate)] * n


def set_position_bias(model: Model, positions: list[int], members: list[Any]) -> None:
    """Store the biases of each member after the last round, and keep those after the best one."""
    old = model.metadata.get(POSITION_BIAS)
    best = None if model.best_iteration is None else str(model.best_iteration + 1)
    kept = {} if old is None else {n: v for n, v in old["rounds"].items() if n == best}
    rounds = kept | {str(model.n_rounds): members}
    model.metadata[POSITION_BIAS] = {"positions": positions, "rounds": rounds}


def get_position_bias(model: Model, n_rounds: int) -> tuple[list[int], list[Any]] | None:
    """Return the positions, and the biases of each member after so many rounds, if stored."""
    stored = model.metadata.get(POSITION_BIAS, {"rounds": {}})
    members = stored["rounds"].get(str(n_rounds))
    return None if members is None else (stored["positions"], members)


_KEY = "thresholds"  # in the metadata, unless all thresholds are 0.5
CALIBRATIONS = (*get_args(CalibrationKind), _KEY, CHOSEN_SCORE)


def set_decision_thresholds(model: Model, thresholds: DataLike) -> None:
    """Set the probabilities above which labels are predicted: one number, or one per output."""
    model.metadata.pop(_KEY, None)
    model.metadata.update(encode_decision_thresholds(thresholds, model.n_outputs))


def encode_decision_thresholds(thresholds: DataLike, n_outputs: int) -> JsonObject:
    """Return the metadata of thresholds: one number, or one per output."""
    values = np.broadcast_to(np.asarray(thresholds, np.float64), (n_outputs,))
    return {_KEY: values.tolist()} if (values != 0.5).any() else {}


def get_decision_thresholds(model: Model) -> np.ndarray:
    """Return the probability of each output above which it is predicted, float64 (n_outputs,)."""
    stored = model.metadata.get(_KEY)
    return np.full(model.n_outputs, 0.5) if stored is None else np.array(stored)


def get_raw_decision_thresholds(model: Model) -> np.ndarray | float:
    """Return the thresholds as raw scores of a logistic link; 0 if all are 0.5."""
    if _KEY not in model.metadata:
        return 0.0
    thresholds = get_decision_thresholds(model)
    return np.where(thresholds == 0.5, 0.0, logit(thresholds))


# ---- columns of X --------------------------------------------------------------------------------


def get_input_names(model: Model) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return names, and labels other than text, of the columns before the model's projection."""
    names, labels = (model.metadata.get(key) for key in (INPUT_NAMES, INPUT_LABELS))
    return None if names is None else tuple(names), None if labels is None else tuple(labels)


# ---- metadata of files ---------------------------------------------------------------------------


def check_metadata(metadata: Mapping[str, Any], n_outputs: int) -> None:
    """Check what estimators and exports read from the metadata of a file; other keys are free.

    Raises a ValueError if an entry is not what an estimator of `n_outputs` raw scores writes.
    """
    entries = metadata.get
    require_entry(isinstance(entries(ESTIMATOR, ""), str), ESTIMATOR, "must be the name of a class")
    require_entry(isinstance(entries(PARAMETERS, {}), dict), PARAMETERS, "must be given by name")
    require_entry(
        isinstance(entries(HAS_OFFSETS, True), bool), HAS_OFFSETS, "must be true or false"
    )
    is_text = isinstance(entries(QUERY_COLUMN, ""), str)
    require_entry(is_text, QUERY_COLUMN, "must be the name of a column")
    is_valid = POSITION_BIAS not in metadata or _is_bias(metadata[POSITION_BIAS], n_outputs)
    require_entry(is_valid, POSITION_BIAS, "must have a number for each position and score")
    chosen = entries(CHOSEN_SCORE, 0)
    is_valid = type(chosen) is int and 0 <= chosen < n_outputs
    require_entry(is_valid, CHOSEN_SCORE, f"must be an integer from 0 to {n_outputs - 1}")
    for key in (INPUT_NAMES, INPUT_LABELS):
        names = entries(key)
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        require_entry(names is None or is_list, key, "must be a list of texts")
    require_entry(isinstance(entries("kind", ""), str), "kind", "must be a text")
    n_targets = None
    if ESTIMATOR in metadata or "one_dimensional" in metadata or entries("kind") == "tasks":
        n_targets = decode_target_encoding(metadata, n_outputs).n_outputs
    if _KEY in metadata:
        is_valid = _is_list_of_numbers(metadata[_KEY], n_outputs)
        is_valid = is_valid and all(0 < threshold < 1 for threshold in metadata[_KEY])
        require_entry(is_valid, _KEY, f"must be {n_outputs} probabilities, one per output")
    for kind in get_args(CalibrationKind):
        if kind in metadata:
            _check_calibration(kind, metadata[kind], n_targets)


def _check_calibration(kind: CalibrationKind, values: Any, n_targets: int | None) -> None:
    require_entry(isinstance(values, dict), kind, "must have a coverage")
    coverage = values.get("coverage")
    is_valid = _is_number(coverage) and 0 < coverage < 1
    require_entry(is_valid, kind, "must have a coverage between 0 and 1")
    if kind == "prediction_sets":
        require_entry(_is_number(values.get("depth")), kind, "must have a number as depth")
        return
    require_entry(isinstance(values.get("joint"), bool), kind, "must be joint or not")
    require_entry(isinstance(values.get("scaled", False), bool), kind, "must be scaled or not")
    widths = values.get("widths")
    is_valid = n_targets is not None and _is_list_of_numbers(widths, n_targets)
    require_entry(is_valid, kind, "must have one width per target")


def _is_bias(bias: Any, n_outputs: int) -> bool:
    try:
        shape = (len(bias["positions"]), n_outputs)
        parts = [np.array(members, np.float64) for members in bias["rounds"].values()]
        return all(part.shape[1:] == shape and np.isfinite(part).all() for part in parts)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _is_list_of_numbers(values: DataLike, length: int) -> bool:
    return isinstance(values, list) and len(values) == length and all(map(_is_number, values))
