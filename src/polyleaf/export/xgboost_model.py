"""Models of XGBoost: what its JSON and UBJSON files hold, as a model of Polyleaf.

Owns: these two formats. Must not know: how a model is built of trees (`building`).
"""

from __future__ import annotations

import json
import os
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.export.import_trees import ImportedModel, ImportedTree, build, report_damaged_file
from polyleaf.model import Model

__all__ = ["from_xgboost"]

_LARGEST = np.finfo(np.float32).max

# Objective of XGBoost -> that of Polyleaf, and how its base score becomes a raw score.
_OBJECTIVES = {
    "reg:squarederror": ("squared_error", "identity"),
    "reg:absoluteerror": ("absolute_error", "identity"),
    "reg:squaredlogerror": ("squared_error", "identity"),
    "reg:pseudohubererror": ("squared_error", "identity"),
    "reg:quantileerror": ("squared_error", "identity"),
    "reg:logistic": ("logistic", "logit"),
    "reg:gamma": ("gamma", "log"),
    "reg:tweedie": ("tweedie", "log"),
    "count:poisson": ("poisson", "log"),
    "binary:logistic": ("logistic", "logit"),
    "binary:logitraw": ("squared_error", "identity"),
    "binary:hinge": ("squared_hinge", "identity"),
    "multi:softmax": ("softmax", "identity"),
    "multi:softprob": ("softmax", "identity"),
    "rank:ndcg": ("squared_error", "identity"),
    "rank:map": ("squared_error", "identity"),
    "rank:pairwise": ("squared_error", "identity"),
}


def from_xgboost(model: Any) -> Model:
    """A model of XGBoost as a model of Polyleaf, with equal predictions.

    Parameters
    ----------
    model : str, path, Booster or estimator of XGBoost
        A file is JSON or UBJSON (`save_model("model.json")` or `"model.ubj"`), of XGBoost 2 or later.

        Of an estimator that was stopped early the rounds up to the best are taken, which it predicts with; a
        Booster and a file predict with all.

    Returns
    -------
    Model
        Saved, it is read as an estimator by `polyleaf.load_model`: of classes 0, 1, ...; quantiles and ranks
        are plain numbers; of `binary:hinge` the model predicts scores, and the estimator XGBoost's classes.
        Categories are XGBoost's codes of them. XGBoost sends categories that it has not seen to the left;
        here they are missing.

    Warns
    -----
    UserWarning
        Where an estimator has another `missing` than NaN.

    Raises
    ------
    ValueError
        When it is no such file, the model is linear, its objective has no counterpart, or a feature has more
        than 254 thresholds.
    """
    learner = _content(model)["learner"]
    with report_damaged_file("XGBoost"):
        made = _model(learner)
    if hasattr(model, "get_booster"):
        _as_estimator(made, model)
    return made


def _as_estimator(made: Model, estimator: Any) -> None:
    """What an estimator of XGBoost adds to its booster."""
    best = getattr(estimator, "best_iteration", None)  # none where it was not stopped early
    if best is not None and best + 1 < made.n_rounds:
        made.truncate(int(best) + 1)
    missing = getattr(estimator, "missing", None)
    if missing is not None and not np.isnan(missing):
        warnings.warn(
            f"This estimator of XGBoost takes {missing} for a missing value (missing={missing}), which no "
            "model file holds: give the model NaN in its place.",
            stacklevel=3,
        )


def _model(learner: dict[str, Any]) -> Model:
    booster = learner["gradient_booster"]
    older = booster.get(
        "weight_drop", ()
    )  # of dart, whose trees were one floor down before XGBoost 3.4
    booster = booster.get("gbtree", booster)
    if "model" not in booster or "trees" not in booster["model"]:
        raise ValueError(
            "The XGBoost model has no trees: Polyleaf reads gbtree and dart, not gblinear."
        )
    parts = booster["model"]
    trees = _trees(parts, np.array(parts.get("weight_drop", older), np.float64))
    return build(_about(learner, parts, trees), trees)


def _content(model: Any) -> dict[str, Any]:
    """The model as JSON types."""
    if hasattr(model, "get_booster"):
        model = model.get_booster()
    data = (
        bytes(model.save_raw("json"))
        if hasattr(model, "save_raw")
        else Path(os.fspath(model)).read_bytes()
    )
    try:
        found = _Ubjson(data).value() if data[1:2] not in (b"\n", b" ", b'"') else json.loads(data)
        if "learner" not in found:
            raise ValueError("it has no learner")
    except (ValueError, TypeError, KeyError, struct.error, IndexError) as error:
        raise ValueError(
            f"This is no XGBoost model in JSON or UBJSON ({error}); save it as .json or .ubj."
        ) from error
    return found


def _about(
    learner: dict[str, Any], parts: dict[str, Any], trees: list[ImportedTree]
) -> ImportedModel:
    about, name = learner["learner_model_param"], learner["objective"]["name"]
    if name not in _OBJECTIVES:
        raise ValueError(
            f"Objective {name!r} of XGBoost has no counterpart here; known are {', '.join(_OBJECTIVES)}."
        )
    objective, link = _OBJECTIVES[name]
    n_outputs = max(1, int(about["num_class"]), int(about.get("num_target", 1)))
    base = np.resize(np.array(json.loads(_as_list(about["base_score"])), np.float64), n_outputs)
    if link == "logit":
        base = np.log(base) - np.log1p(-base)
    elif link == "log":
        base = np.log(base)
    kinds = {"multi:softmax": "multiclass", "multi:softprob": "multiclass"}
    kinds["binary:logistic"] = kinds["binary:hinge"] = "binary" if n_outputs == 1 else "multilabel"
    parameters = {}
    if objective == "tweedie":
        parameters = {
            "variance_power": float(
                learner["objective"]["tweedie_regression_param"]["tweedie_variance_power"]
            )
        }
    n_features = int(about["num_feature"])
    return ImportedModel(
        library="XGBoost",
        n_features=n_features,
        feature_names=learner.get("feature_names") or None,
        wide=False,
        base_score=base,
        objective=objective,
        parameters=parameters,
        kind=kinds.get(name, "regression"),
        categories=_categories(learner, parts),
    )


def _as_list(text: str) -> str:
    return text if text.startswith("[") else f"[{text}]"


def _categories(learner: dict[str, Any], parts: dict[str, Any]) -> dict[int, range]:
    """Of each categorical feature the codes up to the largest that a split names."""
    types = learner.get("feature_types") or []
    largest = {f: 0 for f, kind in enumerate(types) if kind in ("c", "categorical")}
    largest |= _largest_codes(parts["trees"])
    return {feature: range(code + 1) for feature, code in largest.items()}


def _sets(tree: dict[str, Any]) -> dict[int, list[int]]:
    """Node -> the categories that go right."""
    codes = np.asarray(tree.get("categories", ()), np.int64)
    segments = zip(
        tree.get("categories_nodes", ()),
        tree.get("categories_segments", ()),
        tree.get("categories_sizes", ()),
        strict=True,
    )
    return {int(node): codes[int(at) : int(at) + int(size)].tolist() for node, at, size in segments}


def _trees(parts: dict[str, Any], weights: np.ndarray) -> list[ImportedTree]:
    ends = parts.get("iteration_indptr")
    trees, groups = parts["trees"], parts["tree_info"]
    n_groups = max([0, *map(int, groups)]) + 1
    if ends is None:  # before XGBoost 2.1
        per_round = n_groups * int(parts["gbtree_model_param"].get("num_parallel_tree") or 1)
        ends = range(0, len(trees) + per_round, per_round)
    rounds = np.searchsorted(np.asarray(ends, np.int64), np.arange(len(trees)), side="right") - 1
    largest = _largest_codes(trees)
    return [
        _tree(tree, int(group), int(round), weights[t] if len(weights) else 1.0, largest)
        for t, (tree, group, round) in enumerate(zip(trees, groups, rounds, strict=True))
    ]


def _largest_codes(trees: list[dict[str, Any]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for tree in trees:
        for node, codes in _sets(tree).items():
            feature = int(tree["split_indices"][node])
            found[feature] = max([found.get(feature, 0), *codes])
    return found


def _tree(
    tree: dict[str, Any], group: int, round: int, weight: float, largest: dict[int, int]
) -> ImportedTree:
    left = np.array(tree["left_children"], np.int64)
    right = np.array(tree["right_children"], np.int64)
    split = np.array(tree["split_conditions"], np.float32)
    feature = np.array(tree["split_indices"], np.int64)
    width = int(tree["tree_param"].get("size_leaf_vector") or 1)
    values = split.astype(np.float64)[:, None]
    if width > 1:
        values = np.zeros((len(left), width))
        leaves = np.array(tree["leaf_weights"], np.float64).reshape(-1, width)
        values[left < 0] = leaves[right[left < 0]]
    to_left = {
        node: set(range(largest[int(feature[node])] + 1)) - set(codes)
        for node, codes in _sets(tree).items()
    }
    return ImportedTree(
        feature=feature,
        left=left,
        right=right,
        threshold=_largest_below(split),
        missing_left=np.array(tree["default_left"], bool),
        categories_left=to_left,
        values=values * weight,
        output=-1 if width > 1 else group,
        round=round,
        gain=np.array(tree["loss_changes"], np.float64),
        cover=np.array(tree["sum_hessian"], np.float64),
    )


def _largest_below(split: np.ndarray) -> np.ndarray:
    """XGBoost's x < t as x <= the float32 number before t."""
    before = np.nextafter(split, np.float32(-np.inf)).astype(np.float64)
    return np.where(before >= _LARGEST, np.inf, np.maximum(before, -_LARGEST))


# ---- UBJSON ------------------------------------------------------------------------------------------------

_NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}


class _Ubjson:
    """Reads one value of https://ubjson.org, with typed arrays."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def value(self, marker: str | None = None) -> Any:
        marker = self._marker() if marker is None else marker
        if marker == "{":
            return self._object()
        if marker == "[":
            return self._array()
        if marker in _NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in ("S", "H"):
            return self._text()
        if marker == "C":
            return self._take(1).decode()
        constants = {"Z": None, "T": True, "F": False}
        if marker not in constants:
            raise ValueError(f"unknown marker {marker!r} at byte {self._at}")
        return constants[marker]

    def _take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if size < 0 or len(part) < size:
            raise ValueError("it ends too early")
        self._at += size
        return part

    def _marker(self) -> str:
        marker = self._take(1).decode("latin-1")
        return self._marker() if marker == "N" else marker

    def _peek(self) -> str:
        return self._data[self._at : self._at + 1].decode("latin-1")

    def _numbers(self, marker: str, count: int) -> np.ndarray:
        dtype = np.dtype(_NUMBERS[marker])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _text(self) -> str:
        return self._take(int(self.value())).decode()

    def _container(self) -> tuple[str | None, int | None]:
        """Type of the elements and their number, where they are said beforehand."""
        kind = count = None
        if self._peek() == "$":
            self._take(1)
            kind = self._marker()
        if self._peek() == "#":
            self._take(1)
            count = int(self.value())
        return kind, count

    def _object(self) -> dict[str, Any]:
        kind, count = self._container()
        found: dict[str, Any] = {}
        while self._peek() != "}" if count is None else len(found) < count:
            name = self._text()
            found[name] = self.value(kind)
        if count is None:
            self._take(1)
        return found

    def _array(self) -> Any:
        kind, count = self._container()
        if kind in _NUMBERS and count is not None:
            return self._numbers(kind, count).tolist()
        found: list[Any] = []
        while self._peek() != "]" if count is None else len(found) < count:
            found.append(self.value(kind))
        if count is None:
            self._take(1)
        return found
