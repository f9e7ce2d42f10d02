"""Statistics of a model: feature importances, sizes, and scores at each size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.metrics import get_metrics
from polyleaf.metrics.metric import BoundMetric
from polyleaf.model import storage
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.storage import LEAF_DTYPES
from polyleaf.model.trees import node_depths
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike, JsonObject
from polyleaf.user_data.multitask import decode_target_encoding
from polyleaf.user_data.read_target import check_same_rows

if TYPE_CHECKING:
    from polyleaf.model.model import Model

IMPORTANCE_KINDS = ("gain", "split", "cover")


# --- importances ----------------------------------------------------------------------------------


def feature_importance(model: Model, kind: str, per_output: bool = False) -> np.ndarray:
    """Sum a statistic of the splits by feature; see `Model.feature_importance`."""
    if kind in ("gain", "cover") and not model.has_statistics:
        raise ValueError(
            f"kind={kind!r} is not available, as the model was saved with statistics=False: use "
            "kind='split'."
        )
    if kind not in IMPORTANCE_KINDS:
        raise ValueError(f"kind={kind!r} must be one of {', '.join(IMPORTANCE_KINDS)}.")
    if per_output and kind != "gain":
        raise ValueError(f"per_output=True requires kind='gain'; got kind={kind!r}.")
    n_outputs, n_features = model.n_outputs, model.n_features
    if per_output:
        return _gain_per_output(model)
    total = np.zeros(n_features)
    for tree, _, outputs in _iter_used_trees(model):
        inner = tree.feature >= 0
        weights = None if kind == "split" else getattr(tree, kind)[inner]
        sums = np.bincount(tree.feature[inner], weights, n_features)
        # The gain of some outputs is a share of the mean over all.
        share = 1.0 if kind != "gain" or outputs is None else len(outputs) / n_outputs
        total += sums * share
    return total


def _iter_used_trees(model: Model) -> Iterator[Any]:
    """Yield the trees of the rounds that predictions use, as `storage.iter_trees` does."""
    best = model.best_iteration
    for round, tree in zip(model.round_of_tree, storage.iter_trees(model.forest), strict=True):
        if best is None or round <= best:
            yield tree


def _gain_per_output(model: Model) -> np.ndarray:
    n_outputs, n_features = model.n_outputs, model.n_features
    total = np.zeros((n_outputs, n_features))
    for tree, _, listed in _iter_used_trees(model):
        inner = tree.feature >= 0
        outputs = range(n_outputs) if listed is None else listed.tolist()
        is_single = listed is not None and len(outputs) == 1
        if not is_single and tree.output_gain.shape[1] != len(outputs):
            raise ValueError(
                "per_output=True is not available for trees that were grown on a sketch of the "
                "outputs."
            )
        gains = tree.gain[inner][:, None] if is_single else tree.output_gain[inner]
        for k, weights in zip(outputs, gains.T, strict=True):
            total[k] += np.bincount(tree.feature[inner], weights, n_features)
    return total


# --- sizes ----------------------------------------------------------------------------------------


def size_report(
    model: Model,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    metrics: object = None,
    rounds: Sequence[int] | None = None,
    n_threads: int = 1,
) -> JsonObject:
    """Return the size of a model; see `polyleaf.inspection.size_report`."""
    report = {
        "rounds": model.n_rounds,
        "features": model.n_features,
        "outputs": model.n_outputs,
        **_forest_size(model.forest, model.has_statistics),
    }
    if X is not None:
        scorer = Scorer(model, X, y, sample_weight, metrics)
        report["scores"] = [
            _truncated_size(model, n) | scorer(model.predict_raw(scorer.table, 0, n, n_threads))
            for n in _choose_rounds(model.n_rounds, rounds)
        ]
    return report


def _forest_size(forest: _core.Forest, statistics: bool) -> dict[str, object]:
    """Return counts and bytes of all trees."""
    trees = [tree for tree, _, _ in storage.iter_trees(forest)]
    kinds = [kind.name for kind in storage.get_leaf_kinds(forest)]
    arrays = storage.to_arrays(forest, statistics=statistics)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    statistics_size = sum(sizes.get(name, 0) for name in storage.STATISTICS)
    values_size = sum(sizes.get(name, 0) for name in storage.LEAF_ARRAYS)
    report: dict[str, object] = {
        "trees": len(trees),
        "nodes": _count_nodes(forest),
        "leaves": sum(tree.n_leaves for tree in trees),
        "features_used": len(np.union1d(forest.split_features(), forest.regressors())),
        "bytes": sum(sizes.values()),
        "bytes_of": {
            "structure": sum(sizes.values()) - statistics_size - values_size,
            "statistics": statistics_size,
            "values": values_size,
        },
        "bytes_by_leaf_dtype": {
            dtype: _stored_bytes(forest, statistics, dtype) for dtype in LEAF_DTYPES
        },
        "depth": _range_and_mean([int(node_depths(tree).max()) for tree in trees]),
        "leaves_per_tree": _range_and_mean([tree.n_leaves for tree in trees]),
        "kinds": {kind: kinds.count(kind) for kind in LEAF_KINDS if kind in kinds},
    }
    if len(arrays["leaf_entries"]):
        report["entries_per_leaf"] = float(arrays["leaf_entries"].mean())
    return report


def _truncated_size(model: Model, n_rounds: int) -> dict[str, object]:
    part = model.copy()
    part.truncate(n_rounds)
    return {
        "rounds": n_rounds,
        "trees": part.n_trees,
        "nodes": _count_nodes(part.forest),
        "bytes": _stored_bytes(part.forest, model.has_statistics),
    }


def _count_nodes(forest: _core.Forest) -> int:
    return sum(tree.n_nodes for tree, _, _ in storage.iter_trees(forest))


def _stored_bytes(
    forest: _core.Forest, statistics: bool, leaf_dtype: str = "float32"
) -> int | None:
    """Return the bytes of the trees in a file; None if leaf values do not fit the dtype."""
    try:
        arrays = storage.to_arrays(forest, leaf_dtype, statistics)
        return sum(array.nbytes for array in arrays.values())
    except ValueError:
        return None


def _range_and_mean(numbers: list[int]) -> dict[str, float]:
    if not numbers:
        return {"min": 0, "mean": 0.0, "max": 0}
    return {"min": min(numbers), "mean": float(np.mean(numbers)), "max": max(numbers)}


def _choose_rounds(n_rounds: int, rounds: Sequence[int] | None) -> list[int]:
    """Return the numbers of rounds to score: as given, or a geometric series up to all."""
    if rounds is None:
        series = [1, 2, 5] + [digits * 10**power for power in range(7) for digits in (10, 25, 50)]
        return sorted({size for size in series if size < n_rounds} | {n_rounds})
    invalid = [size for size in rounds if not 0 <= size <= n_rounds]
    if invalid:
        raise ValueError(f"rounds contains {invalid[0]}, but the model has {n_rounds} rounds.")
    return list(rounds)


# --- scores ---------------------------------------------------------------------------------------


class Scorer:
    """Metrics of a model's raw scores on one data set.

    `X`, `y`, `sample_weight`: data as the model's estimator takes them. `metrics`: see
    `eval_metric` of the estimators. Default: the metric of the objective. `table`: X as
    `Model.predict_raw` takes it.
    """

    def __init__(
        self,
        model: Model,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        metrics: object = None,
    ) -> None:
        if "one_dimensional" not in model.metadata:
            raise ValueError(
                "The model cannot be scored: no estimator trained it, so its kind of target is "
                "unknown."
            )
        self.table = X if isinstance(X, Dataset) else model.prepare_features(X)
        encoding = decode_target_encoding(model.metadata, model.n_outputs)
        target = encoding.encode(RowData(y, sample_weight), normalized=False)
        check_same_rows(self.table.n_rows, target.n_rows)
        self._objective, rows = model.objective, target.rows
        self._metrics = [
            replace(metric, has_classes=encoding.has_class_ids).bind(rows)
            for metric in get_metrics(metrics, model.objective)
        ]

    def per_output(self, raw: np.ndarray) -> tuple[np.ndarray, str]:
        """Return the first metric of each output, (n_outputs,), and its name.

        Raises a ValueError if it is not defined for a single output.
        """
        metric = self._metrics[0]
        values, name = metric.per_output(self._prediction(metric, raw)), metric.metric.name
        if values is None:
            raise ValueError(f"metric={name!r} is not defined for a single output: choose another.")
        return values, name

    def __call__(self, raw: np.ndarray) -> dict[str, float]:
        """Return the metrics, by name, of raw scores (n_rows, n_outputs)."""
        return {
            metric.metric.name: metric(self._prediction(metric, raw)) for metric in self._metrics
        }

    def _prediction(self, metric: BoundMetric, raw: np.ndarray) -> np.ndarray:
        return raw if metric.metric.prediction_type == "raw" else self._objective.transform(raw)
