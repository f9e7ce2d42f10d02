"""Kernel benchmarks of `polyleaf._core` on one thread, in nanoseconds per unit of work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from polyleaf import BinMapper, _core, objectives
from polyleaf.inputs.features import read_features

DEPTH = 6
LEAVES = 2**DEPTH
STEP = _core.LeafConfig(
    reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, learning_rate=1.0, block_size=0
)


def _grow_config(**changes: Any) -> _core.GrowConfig:
    """Return settings that isolate the kernels: no sampling, no penalty except the ridge."""
    settings = dict(
        max_leaves=LEAVES,
        max_depth=DEPTH,
        level_wise=False,
        reg_lambda=1.0,
        reg_alpha=0.0,
        min_split_gain=0.0,
        min_child_weight=0.0,
        min_child_samples=1,
        max_delta_step=0.0,
        max_cat_to_onehot=4,
        cat_smooth=10.0,
        colsample_bynode=1.0,
        seed=0,
        histogram_memory=2**30,
        post_prune=False,
        block_size=0,
        leaf_k=0,
        shared_support=False,
        factors=None,
    )
    return _core.GrowConfig(**settings | changes)


@dataclass(frozen=True)
class Kernel:
    """One timed call.

    Attributes
    ----------
    name, unit, includes : str
    n_units : int
        Number of units of work in one call.
    call : callable
    subtract : callable, optional
        Timed right before `call` and subtracted, for kernels that can only be reached through
        another call.
    """

    name: str
    unit: str
    includes: str
    n_units: int
    call: Callable[[], object]
    subtract: Callable[[], object] | None = None


class Workload:
    """Rows, features and derivatives of the size used for timing kernels.

    Gradients are smooth functions of the features, so that trees are as balanced as on real data.
    """

    def __init__(self, quick: bool):
        self.n_rows, self.n_features = (2_000, 16) if quick else (400_000, 32)
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((self.n_rows, self.n_features), dtype=np.float32)
        self.table = read_features(self.X, n_threads=1)
        self.mapper = BinMapper(255).fit(self.table, None, 1)
        self.codes = self.mapper.transform(self.table, 1)
        self.bins = _core.Bins(
            self.codes, self.mapper.n_bins_, self.mapper.is_categorical_, 1, None
        )
        self.grower, self.search = _core.Grower(self.bins, 1), _core.HistogramSearch(self.bins, 1)
        self.rng = rng

    def grow(self, channels: Any, config: _core.GrowConfig) -> Any:
        """Grow one tree; the memory of node histograms is reused."""
        self.search.use(channels)
        return self.grower.grow(self.search, config, None)

    def gradients(self, n_outputs: int) -> np.ndarray:
        """Return float32 gradients (n_rows, n_outputs) without noise."""
        weights = self.rng.standard_normal((8, n_outputs), dtype=np.float32)
        return np.ascontiguousarray(np.tanh(self.X[:, :8]) @ weights)

    def channels(self, n_outputs: int, kind: str) -> Any:
        """Return quantised derivatives; Hessians, if any, are uniform in [0.05, 0.25]."""
        columns = {"unit": 0, "shared": 1, "diagonal": n_outputs}[kind]
        h = (
            self.rng.uniform(0.05, 0.25, (self.n_rows, columns)).astype(np.float32)
            if columns
            else None
        )
        return _core.QuantisedGradients(self.gradients(n_outputs), h, kind, None, None, 1)


def run(
    quick: bool, repeats: int, log: Callable[[str], object] = lambda text: None
) -> Iterator[dict[str, Any]]:
    """Time every kernel and return cases for result files; runs hold `ns_per_unit`."""
    work = Workload(quick)
    for part in (binning, growing, derivatives, leaves, prediction, other_leaves):
        for kernel in part(work):
            runs = [{"ns_per_unit": _nanoseconds(kernel)} for _ in range(repeats)]
            log(f"{kernel.name}: {min(r['ns_per_unit'] for r in runs):.3f} ns per {kernel.unit}")
            yield _case(kernel, work, runs)


def _nanoseconds(kernel: Kernel) -> float:
    taken = 0.0
    if kernel.subtract is not None:
        taken = _seconds(kernel.subtract)
    # The two calls are disturbed differently: on a busy machine the difference may be negative.
    return max(0.0, _seconds(kernel.call) - taken) * 1e9 / kernel.n_units


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _case(kernel: Kernel, work: Workload, runs: list[dict[str, float]]) -> dict[str, Any]:
    contender = {
        "label": "polyleaf",
        "library": "polyleaf",
        "problem": {"n_rows": work.n_rows, "n_features": work.n_features},
        "settings": {"threads": 1, "unit": kernel.unit, "includes": kernel.includes},
        "runs": runs,
        "error": None,
    }
    return {
        "name": kernel.name,
        "title": kernel.name,
        "baseline": "polyleaf",
        "focus": "ns_per_unit",
        "contenders": [contender],
    }


def make_rows(cases: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and cells of the table: the minimum over runs, and the median."""
    header = ["kernel", "best ns", "median ns", "per", "what is included"]
    rows = []
    for case in cases:
        contender = case["contenders"][0]
        ns, settings = contender["summary"]["ns_per_unit"], contender["settings"]
        rows.append(
            [
                case["name"],
                f"{ns['min']:.3f}",
                f"{ns['median']:.3f}",
                settings["unit"],
                settings["includes"],
            ]
        )
    return header, rows


# --- the parts ---


def binning(work: Workload) -> Iterator[Kernel]:
    """Yield kernels from features to codes to packed words."""
    values = work.n_rows * work.n_features
    unit = "row x feature"
    yield Kernel(
        "thresholds",
        unit,
        "choosing 255 quantile bins from float32 columns; from a sample of 200,000 rows where "
        "there are more",
        values,
        lambda: BinMapper(255).fit(work.table, None, 1),
    )
    yield Kernel(
        "codes",
        unit,
        "float32 to uint8 codes",
        values,
        partial(work.mapper.transform, work.table, 1),
    )
    yield Kernel(
        "packing",
        unit,
        "codes to the words of eight features that training reads",
        values,
        partial(_core.Bins, work.codes, work.mapper.n_bins_, work.mapper.is_categorical_, 1, None),
    )


def growing(work: Workload) -> Iterator[Kernel]:
    """Yield kernels of quantisation, the root's histograms with their scan, and the nodes below."""
    yield _partition(work)
    for n_outputs, kind in (
        (1, "unit"),
        (1, "shared"),
        (4, "unit"),
        (16, "unit"),
        (16, "diagonal"),
        (64, "unit"),
    ):
        channels = work.channels(n_outputs, kind)
        name = f"{_outputs(n_outputs)}, {kind} curvature"
        g = work.gradients(n_outputs)
        if kind == "unit":
            yield Kernel(
                f"channels, {name}",
                "row x output",
                "float32 gradients to int16, both passes, in memory that is reused",
                work.n_rows * n_outputs,
                partial(_core.QuantisedGradients().quantise, g, None, "unit", None, None, 1),
            )
        yield from _histograms(work, channels, name)


def _partition(work: Workload) -> Kernel:
    channels = work.channels(1, "unit")
    one_split = _grow_config(max_leaves=2)
    no_split = _grow_config(max_leaves=2, min_split_gain=1e300)
    return Kernel(
        "partition",
        "row x feature",
        "one split of all rows less the search for it: the words of all features and the row "
        "numbers move "
        "to the children, and every row's leaf is noted",
        work.n_rows * work.n_features,
        partial(work.grow, channels, one_split),
        subtract=partial(work.grow, channels, no_split),
    )


def _outputs(n: int) -> str:
    return f"{n} output" + "s" * (n > 1)


def _histograms(work: Workload, channels: Any, name: str) -> Iterator[Kernel]:
    # With an unreachable minimum gain only the root is built and scanned.
    only_root = _grow_config(max_leaves=2, max_depth=1, min_split_gain=1e300)
    whole_tree = _grow_config()
    tree = work.grow(channels, whole_tree)
    yield Kernel(
        f"root, {name}",
        "row x feature",
        "histogram of all rows and the scan of all bins for the best split",
        work.n_rows * work.n_features,
        partial(work.grow, channels, only_root),
    )
    yield Kernel(
        f"deep nodes, {name}",
        "row x feature",
        f"levels 1 to {DEPTH - 1} of a tree less its root: gathering, histogram of the smaller "
        "child, "
        f"subtraction, scan of both children; and the partition of all rows on {DEPTH} levels",
        rows_in_smaller_children(tree, DEPTH) * work.n_features,
        partial(work.grow, channels, whole_tree),
        subtract=partial(work.grow, channels, only_root),
    )


def rows_in_smaller_children(tree: Any, max_depth: int) -> int:
    """Count the rows whose histograms are built below the root.

    The histogram of the larger child comes from subtraction. Children at `max_depth` are leaves and
    have none.
    """
    left, right, count = tree.left, tree.right, tree.count
    depth = np.zeros(len(left), np.int64)
    rows = 0
    for node in range(len(left)):  # children come after their parent
        if left[node] < 0:
            continue
        depth[[left[node], right[node]]] = depth[node] + 1
        if depth[node] + 1 < max_depth:
            rows += min(count[left[node]], count[right[node]])
    return max(1, int(rows))


def derivatives(work: Workload) -> Iterator[Kernel]:
    """Yield kernels of gradients and Hessians of built-in objectives, 16 outputs."""
    n_outputs = 16
    raw = work.gradients(n_outputs)
    targets = {
        "squared_error": work.gradients(n_outputs),
        "logistic": (work.gradients(n_outputs) > 0).astype(np.float32),
        "softmax": work.rng.integers(0, n_outputs, work.n_rows).astype(np.int32),
    }
    for name, target in targets.items():
        objective = objectives.get_objective(name)
        if name == "softmax":
            objective = objectives.Softmax(n_classes=n_outputs)
        problem = objective.bind(target, None)
        problem.set_base_score(problem.base_score(1))
        shape = problem.hessian_shape()
        g, h = np.empty_like(raw), None if shape is None else np.empty(shape, np.float32)
        yield Kernel(
            f"derivatives, {name}, {n_outputs} outputs",
            "row x output",
            "gradient" + ("" if h is None else " and curvature") + " of float32 raw scores",
            work.n_rows * n_outputs,
            partial(problem.derivatives, raw, g, h, 1),
        )


def leaves(work: Workload) -> Iterator[Kernel]:
    """Yield kernels of leaf values of a grown tree, and of their addition to the raw scores."""
    for n_outputs in (1, 16):
        g = work.gradients(n_outputs)
        tree = work.grow(_core.QuantisedGradients(g, None, "unit", None, None, 1), _grow_config())
        leaf_of_row, n_leaves = work.grower.leaf_of_row.copy(), tree.n_leaves
        newton = partial(
            _core.fit_newton_leaves, g, None, leaf_of_row, n_leaves, STEP, None, None, 1
        )
        values, raw = newton(), np.zeros_like(g)
        yield Kernel(
            f"leaf values, {_outputs(n_outputs)}",
            "row x output",
            f"exact sums of gradients by leaf ({n_leaves} leaves) and the Newton step",
            g.size,
            newton,
        )
        yield Kernel(
            f"raw scores, {_outputs(n_outputs)}",
            "row x output",
            "adding each row's leaf value",
            g.size,
            partial(_core.add_leaf_values, raw, leaf_of_row, values),
        )


def prediction(work: Workload) -> Iterator[Kernel]:
    """Yield kernels of prediction with a small forest on codes."""
    n_trees = 20
    for n_outputs in (1, 16):
        forest = _core.Forest(n_outputs)
        for _ in range(n_trees):
            g = work.gradients(n_outputs)
            channels = _core.QuantisedGradients(g, None, "unit", None, None, 1)
            tree = work.grow(channels, _grow_config())
            rows = work.grower.leaf_of_row, tree.n_leaves
            forest.append(tree, _core.fit_newton_leaves(g, None, *rows, STEP, None, None, 1))
        raw = np.zeros((work.n_rows, n_outputs), np.float32)
        yield Kernel(
            f"prediction, {_outputs(n_outputs)}",
            "row x tree",
            f"walking {n_trees} trees of depth {DEPTH} on codes (binning apart) and adding leaf "
            "values",
            work.n_rows * n_trees,
            partial(forest.predict, work.codes, raw, 0, n_trees, 1),
        )


def other_leaves(work: Workload) -> Iterator[Kernel]:
    """Yield kernels of forests with sparse or linear leaves: random leaf data on grown trees."""
    n_trees, n_rows = 100, min(work.n_rows, 20_000)
    codes = np.ascontiguousarray(work.codes[:, :n_rows])
    channels = _core.QuantisedGradients(work.gradients(1), None, "unit", None, None, 1)
    tree = work.grow(channels, _grow_config())
    n_held = 20
    for n_outputs in (1_000, 100_000):
        forest = _core.Forest(n_outputs)
        for _ in range(n_trees):
            forest.append(tree, _sparse_leaves(work, tree.n_leaves, n_held, n_outputs))
        yield Kernel(
            f"top 5, sparse leaves, {n_outputs} outputs",
            "row x tree x output held",
            f"walking {n_trees} trees of depth {DEPTH}, merging leaves of {n_held} outputs, "
            "ranking",
            n_rows * n_trees * n_held,
            partial(forest.topk, codes, None, 5),
        )
    n_regressors, features = 5, np.ascontiguousarray(work.X[:n_rows].T)
    for n_outputs in (1, 16):
        forest = _core.Forest(n_outputs)
        for _ in range(n_trees):
            forest.append(tree, _linear_leaves(work, tree.n_leaves, n_regressors, n_outputs))
        raw = np.zeros((n_rows, n_outputs), np.float32)
        yield Kernel(
            f"prediction, linear leaves, {_outputs(n_outputs)}",
            "row x tree",
            f"walking {n_trees} trees of depth {DEPTH} and adding functions of {n_regressors} "
            "features",
            n_rows * n_trees,
            partial(forest.predict, codes, raw, features=features),
        )


def _chosen(
    work: Workload, n_leaves: int, n_entries: int, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return indptr, and for each leaf `n_entries` numbers below `limit`, ascending."""
    chosen = [np.sort(work.rng.choice(limit, n_entries, replace=False)) for _ in range(n_leaves)]
    return np.arange(n_leaves + 1, dtype=np.int64) * n_entries, np.concatenate(chosen).astype(
        np.int32
    )


def _sparse_leaves(work: Workload, n_leaves: int, n_entries: int, n_outputs: int) -> Any:
    indptr, outputs = _chosen(work, n_leaves, n_entries, n_outputs)
    values = work.rng.standard_normal(len(outputs), dtype=np.float32)
    return _core.TopkLeaves(indptr, outputs, values, n_outputs)


def _linear_leaves(work: Workload, n_leaves: int, n_entries: int, n_outputs: int) -> Any:
    indptr, features = _chosen(work, n_leaves, n_entries, work.n_features)
    weights = work.rng.standard_normal((len(features), n_outputs), dtype=np.float32)
    centre, values = (
        np.zeros(len(features), np.float32),
        np.zeros((n_leaves, n_outputs), np.float32),
    )
    return _core.LinearLeaves(indptr, features, weights, centre, values, values - 5, values + 5)
