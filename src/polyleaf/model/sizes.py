"""What the trees of a model weigh, and how good predictions are of data in the user's terms.

Owns: counts and bytes of a forest, and the scores of one data set that go with sizes. Must not know: models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.inputs.multitask import decode_target_encoding
from polyleaf.inputs.targets import check_same_rows
from polyleaf.metrics import get_metrics
from polyleaf.model import storage
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.leaf_storage import LEAF_DTYPES

__all__ = ["Scorer", "trees_nbytes", "node_depths", "n_nodes", "rounds_to_score", "forest_size"]


def forest_size(forest: _core.Forest, statistics: bool) -> dict[str, Any]:
    """Counts and bytes of trees; see `Model.size_report`."""
    trees = [tree for tree, _, _ in storage.iter_trees(forest)]
    kinds = [kind.name for kind in storage.get_leaf_kinds(forest)]
    arrays = storage.to_arrays(forest, statistics=statistics)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    of_statistics = sum(sizes.get(name, 0) for name in storage.STATISTICS)
    of_values = sum(sizes.get(name, 0) for name in storage.LEAF_ARRAYS)
    report: dict[str, Any] = {
        "trees": len(trees),
        "nodes": n_nodes(forest),
        "leaves": sum(tree.n_leaves for tree in trees),
        "features_used": len(np.union1d(forest.split_features(), forest.regressors())),
        "bytes": sum(sizes.values()),
        "bytes_of": {
            "structure": sum(sizes.values()) - of_statistics - of_values,
            "statistics": of_statistics,
            "values": of_values,
        },
        "bytes_by_leaf_dtype": {
            dtype: trees_nbytes(forest, statistics, dtype) for dtype in LEAF_DTYPES
        },
        "depth": _spread([int(node_depths(tree).max()) for tree in trees]),
        "leaves_per_tree": _spread([tree.n_leaves for tree in trees]),
        "kinds": {kind: kinds.count(kind) for kind in LEAF_KINDS if kind in kinds},
    }
    if "leaf_entries" in arrays:
        report["entries_per_leaf"] = float(arrays["leaf_entries"].mean())
    return report


def n_nodes(forest: _core.Forest) -> int:
    """Nodes of all trees."""
    return sum(tree.n_nodes for tree, _, _ in storage.iter_trees(forest))


def trees_nbytes(forest: _core.Forest, statistics: bool, leaf_dtype: str = "float32") -> int | None:
    """Bytes of the trees in a file; None where leaf values do not fit."""
    try:
        arrays = storage.to_arrays(forest, leaf_dtype, statistics)
        return sum(array.nbytes for array in arrays.values())
    except ValueError:
        return None


def node_depths(tree: _core.Tree) -> np.ndarray:
    """Depth of each node; 0 for the root."""
    depths = [0] * tree.n_nodes
    for node, (left, right) in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        if left >= 0:
            depths[left] = depths[right] = depths[node] + 1
    return np.array(depths)


def _spread(numbers: list[int]) -> dict[str, float]:
    if not numbers:
        return {"min": 0, "mean": 0.0, "max": 0}
    return {"min": min(numbers), "mean": float(np.mean(numbers)), "max": max(numbers)}


def rounds_to_score(n_rounds: int, wanted: Sequence[int] | None) -> list[int]:
    """Numbers of rounds to score: those wanted, or a geometric series up to all."""
    if wanted is None:
        decades = [1, 2, 5] + [digits * 10**power for power in range(7) for digits in (10, 25, 50)]
        return sorted({size for size in decades if size < n_rounds} | {n_rounds})
    bad = [size for size in wanted if not 0 <= size <= n_rounds]
    if bad:
        raise ValueError(f"rounds has {bad[0]}, but the model has {n_rounds} rounds.")
    return list(wanted)


class Scorer:
    """Metrics on one data set whose target is in the user's terms.

    Parameters
    ----------
    objective, metadata, n_outputs
        Of the model whose predictions are scored.
    table : FeatureTable or Dataset
        As `Model.predict_raw` takes it.
    y, sample_weight
        As its estimator takes them.
    metrics : str, callable or list of these, or None
        As the estimators' `eval_metric`; None: the metric that goes with the objective.

    Attributes
    ----------
    table : FeatureTable or Dataset
    """

    def __init__(
        self,
        objective: Any,
        metadata: Any,
        n_outputs: int,
        table: Any,
        y: Any,
        sample_weight: Any,
        metrics: Any,
    ):
        if "one_dimensional" not in metadata:
            raise ValueError(
                "This model does not say what its target is, because no estimator trained it: it cannot be "
                "scored."
            )
        self.table = table
        encoding = decode_target_encoding(metadata, n_outputs)
        self._target = encoding.encode(y, sample_weight, normalized=False)
        check_same_rows(self.table.n_rows, self._target.n_rows)
        self._objective, self._metrics = objective, get_metrics(metrics, objective)

    def per_output(self, raw: np.ndarray) -> tuple[np.ndarray, str]:
        """The first metric for each output alone, (n_outputs,), and its name.

        Raises
        ------
        ValueError
            Where it means nothing for one output.
        """
        metric, target = self._metrics[0], self._target
        prediction = raw if metric.prediction_type == "raw" else self._objective.transform(raw)
        found = metric.per_output(target.values, prediction, target.weight)
        if found is None:
            raise ValueError(
                f"The metric {metric.name!r} means nothing for one output alone; name another."
            )
        return found, metric.name

    def __call__(self, raw: np.ndarray) -> dict[str, float]:
        """The metrics, by name, of raw scores (n_rows, n_outputs)."""
        prediction, target = self._objective.transform(raw), self._target
        return {
            metric.name: float(
                metric(
                    target.values,
                    raw if metric.prediction_type == "raw" else prediction,
                    target.weight,
                )
            )
            for metric in self._metrics
        }
