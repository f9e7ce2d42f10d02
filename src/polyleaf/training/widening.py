"""Models that grow: outputs for new classes, labels and targets, and new columns of X."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.metadata import OUTPUT_GROUPS, clear_calibrations
from polyleaf.model.storage import NODE_ARRAYS, iter_trees
from polyleaf.objectives.multitask import MultiTask, Task
from polyleaf.runtime.capabilities import check, refuse
from polyleaf.runtime.collective import Communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.training.boosting import refit
from polyleaf.training.training_run import TrainingRun
from polyleaf.user_data.features import read_features
from polyleaf.user_data.multitask import TaskEncodings, decode_target_encoding
from polyleaf.user_data.read_target import count_columns
from polyleaf.user_data.target import Target, TargetEncoding


def widen_outputs(
    model: Model, rows: RowData, ranks: Communicator
) -> tuple[Model, np.ndarray | None]:
    """Return the model with outputs for the classes, labels or targets of y that it lacks.

    Their base scores and leaf values are 0, which `fit_new_outputs` or a refit replaces. Also
    returns which outputs are new, bool (n_outputs,); None if there are none: then the model is the
    same.
    """
    if "kind" not in model.metadata:
        return model, None
    encoding = decode_target_encoding(model.metadata, model.n_outputs)
    objective, widths = model.objective, [model.n_outputs]
    if "relevance" in objective.target_kinds:
        if count_columns(rows.target) > encoding.n_outputs:
            refuse("ranking", "new_outputs")
        return model, None
    if isinstance(encoding, TaskEncodings):
        assert isinstance(objective, MultiTask)
        widths = [task.n_scores for task in objective.parts]
        widened = encoding.widen_tasks(rows, ranks)
        parts = [(old, *new) for old, new in zip(encoding.encodings, widened, strict=True)]
        wide: TargetEncoding = replace(encoding, encodings=tuple(new for _, new, _ in parts))
    else:
        wide, places = encoding.widen(rows, ranks=ranks)
        parts = [(encoding, wide, places)]
    names: list[str] = []
    positions: list[np.ndarray] = []
    new_widths: list[int] = []
    for (old, new, places), width in zip(parts, widths, strict=True):
        each = width // old.n_outputs  # scores of a target
        positions.append(sum(new_widths) + (places[:, None] * each + np.arange(each)).ravel())
        new_widths.append(new.n_outputs * each)
        names += _name_new_outputs(new, places)
    if not names:
        return model, None
    check("new_outputs", model=model)
    if ranks.rank == 0:
        warn_user(
            f"y has {_join(names)}, which the model does not have: it is widened by outputs that "
            "learn from these rows. To leave them out, remove them from y."
        )
    if isinstance(objective, MultiTask):
        pairs = zip(objective.parts, new_widths, strict=True)
        objective = MultiTask(tuple(_widen_task(task, width) for task, width in pairs))
    is_new = np.ones(sum(new_widths), bool)
    is_new[np.concatenate(positions)] = False
    grown = _spread_outputs(model, np.flatnonzero(~is_new), len(is_new))
    grown.objective = objective
    grown.metadata = clear_calibrations(grown.metadata) | wide.to_dict()
    grown.metadata.pop(OUTPUT_GROUPS, None)
    return grown, is_new


def check_new_outputs(target: Target, is_new: np.ndarray, ranks: Communicator) -> None:
    """Raise a ValueError for a new target or label without a known value.

    `is_new` (n_scores,): outputs that `widen_outputs` has added.
    """
    encoding, weight = target.encoding, target.weight
    if encoding.kind not in ("regression", "multilabel") or weight is None or weight.ndim == 1:
        return
    is_new_target = is_new.reshape(encoding.n_outputs, -1).all(axis=1)
    empty = np.flatnonzero(is_new_target & ~ranks.any((weight > 0).any(axis=0)))
    if len(empty):
        names = _name_new_outputs(encoding, np.delete(np.arange(encoding.n_outputs), empty))
        raise ValueError(f"y has no value in {_join(names)} to learn a new output from: remove it.")


def _widen_task(task: Task, n_scores: int) -> Task:
    if n_scores == task.n_scores:
        return task
    objective: Any = task.objective  # of classes
    return replace(task, n_scores=n_scores, objective=replace(objective, n_classes=n_scores))


def _name_new_outputs(encoding: TargetEncoding, old: np.ndarray) -> list[str]:
    new = np.setdiff1d(np.arange(encoding.n_outputs), old).tolist()
    if encoding.kind == "multiclass" and encoding.classes is not None:
        return [f"the class {encoding.classes[k]!s}" for k in new]
    names = encoding.output_names or range(encoding.n_outputs)
    return [f"the column {names[k]!s}" for k in new]


def _join(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _spread_outputs(model: Model, positions: np.ndarray, n_outputs: int) -> Model:
    """Return the model with each output at its new position, and zeros for the others."""
    wide = model.copy()
    wide.output_names = None
    wide.best_iteration = wide.best_score = None
    wide.base_score = np.zeros(n_outputs)
    wide.base_score[positions] = model.base_score
    for name, value in (("target_scale", 1.0), ("target_offset", 0.0)):
        if (old := getattr(model, name)) is not None:
            numbers = np.full(n_outputs, value)
            numbers[positions] = old
            setattr(wide, name, numbers)
    wide.forest, wide.rounds = _core.Forest(n_outputs), []
    places = positions.astype(np.int32)
    trees = zip(iter_trees(model.forest), model.rounds, strict=True)
    for t, ((tree, leaves, outputs), round) in enumerate(trees):
        kind = LEAF_KINDS[model.forest.kind(t)]
        if outputs is None or kind.lists_outputs:
            leaves = kind.expand(leaves, places, n_outputs)
        if outputs is None:
            tree = _spread_gains(tree, positions, n_outputs, model.n_features)
        else:
            outputs = places[outputs]
        wide.append(tree, leaves, round, outputs)
    return wide


def _spread_gains(
    tree: _core.Tree, positions: np.ndarray, n_outputs: int, n_features: int
) -> _core.Tree:
    if tree.n_outputs != len(positions):  # gains of a sketch, or unknown
        return tree
    gains = np.zeros((tree.n_nodes, n_outputs), np.float32)
    gains[:, positions] = tree.output_gain
    arrays = {name: getattr(tree, name) for name in NODE_ARRAYS}
    return _core.Tree.from_arrays(
        **arrays, categories=tree.categories, output_gain=gains, n_features=n_features
    )


def fit_new_outputs(run: TrainingRun) -> None:
    """Fit base scores and leaf values of the new outputs of `run.init_model` on its trees.

    Trees of some outputs, and sparse leaves, have no values for the new ones.
    """
    old, is_new = run.init_model, run.is_new_output
    assert old is not None and is_new is not None
    workers = replace(run.settings.workers, device=None)
    part = run.replace(
        decay_rate=np.where(is_new, 0.0, 1.0), settings=replace(run.settings, workers=workers)
    )
    refit(part)
    wide = part.model.copy()
    wide.evals_log, wide.has_statistics = old.evals_log, old.has_statistics
    wide.forest, wide.rounds = _core.Forest(old.n_outputs), []
    structures = zip(iter_trees(old.forest), old.rounds, strict=True)
    for t, ((tree, _, outputs), round) in enumerate(structures):
        leaves: Any = part.model.forest.values(t)
        wide.append(tree, leaves, round, outputs)
    run.init_model, run.is_new_output = wide, None


def widen_columns(
    model: Model,
    X: DataLike,
    categorical_features: object,
    max_bins: int,
    sample_weight: np.ndarray | None,
    n_threads: int,
    is_refit: bool,
) -> Model:
    """Return the model with bins for further columns of X, which only new trees split on; the same
    model if X does not have its columns and others after them."""
    mapper, n_columns = model.mapper, count_columns(X)
    if n_columns <= mapper.n_features_ or isinstance(X, Dataset) or model.projection is not None:
        return model
    table = read_features(X, categorical_features=categorical_features, n_threads=n_threads)
    names, known = table.feature_names, mapper.feature_names_
    n = mapper.n_features_
    if (names is None) != (known is None) or (names is not None and names[:n] != known):
        return model
    new = [table.describe_feature(feature) for feature in range(n, n_columns)]
    if is_refit:
        raise ValueError(
            f"X has the columns {_join(new)}, which the model does not have, and refit adds no "
            "trees, which could split on them: leave them out, or train a new model."
        )
    check("new_columns", model=model)
    warn_user(
        f"X has the columns {_join(new)}, which the model does not have: only its new trees use "
        "them, and predictions need them."
    )
    wide = model.copy()
    further = BinMapper(max_bins).fit(table, sample_weight, n_threads)
    wide.mapper = mapper.add_features(further)
    wide.feature_names = wide.mapper.column_names_
    return wide
