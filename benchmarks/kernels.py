"""Kernels of the core, called apart, on one thread.

`time_root` builds and scans the histograms of all rows: a minimum gain that no split reaches ends
the tree there. `time_tree` is a whole tree of depth 6.
"""

from __future__ import annotations

import numpy as np

from polyleaf import BinMapper, RowData, _core, objectives
from polyleaf.user_data.features import read_features

from . import data

N_FEATURES = 32
LEAVES = _core.LeafConfig(
    reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, learning_rate=1.0, block_size=0
)
SPLIT = {
    "reg_lambda": 1.0, "reg_alpha": 0.0, "max_delta_step": 0.0, "min_split_gain": 0.0,
    "min_child_weight": 0.0, "min_child_samples": 1, "max_cat_to_onehot": 4, "cat_smooth": 10.0,
    "block_size": 0, "leaf_k": 0, "shared_support": False,
}  # fmt: skip
GROW = {
    "max_leaves": 64, "max_depth": 6, "level_wise": False, "post_prune": False,
    "colsample_bynode": 1.0, "seed": 0, "histogram_memory": 2**30, "factors": None,
}  # fmt: skip


class _Core:
    """Binned rows, and smooth gradients, so that trees are balanced."""

    n_rows = 100_000

    def prepare(self, n_outputs):
        self.X = data.targets(self.n_rows, N_FEATURES, 1)[0]
        table = read_features(self.X, n_threads=1)
        mapper = BinMapper(255).fit(table, None, 1)
        self.codes = mapper.transform(table, 1)
        self.bins = _core.Bins(self.codes, mapper.n_bins_, mapper.is_categorical_, 1, None)
        self.grower, self.search = _core.Grower(self.bins, 1), _core.HistogramSearch(self.bins, 1)
        weights = np.random.default_rng(1).standard_normal((8, n_outputs), dtype=np.float32)
        self.gradients = np.ascontiguousarray(np.tanh(self.X[:, :8]) @ weights)
        self.channels = _core.QuantisedGradients(self.gradients, None, "unit", None, None, 1)

    def grow(self, *, min_split_gain=0.0, **changes):
        self.search.use(self.channels)
        split = _core.SplitConfig(**SPLIT | {"min_split_gain": min_split_gain})
        config = _core.GrowConfig(split=split, **GROW | changes)
        return self.grower.grow(self.search, config, None)


class Trees(_Core):
    params = [1, 4, 16, 64]
    param_names = ("n_outputs",)

    def setup(self, n_outputs):
        self.prepare(n_outputs)
        tree = self.grow()
        self.leaf_of_row, self.n_leaves = self.grower.leaf_of_row.copy(), tree.n_leaves
        self.raw, self.values = np.zeros_like(self.gradients), self.newton()
        self.forest = _core.Forest(n_outputs)
        for _ in range(20):
            self.forest.append(tree, self.values)

    def newton(self):
        rows = self.leaf_of_row, self.n_leaves
        return _core.fit_newton_leaves(self.gradients, None, *rows, LEAVES, None, None, 1)

    def time_quantise(self, n_outputs):
        _core.QuantisedGradients().quantise(self.gradients, None, "unit", None, None, 1)

    def time_root(self, n_outputs):
        self.grow(max_leaves=2, max_depth=1, min_split_gain=1e300)

    def time_tree(self, n_outputs):
        self.grow()

    def time_leaf_values(self, n_outputs):
        self.newton()

    def time_raw_scores(self, n_outputs):
        _core.add_leaf_values(self.raw, self.leaf_of_row, self.values)

    def time_predict(self, n_outputs):
        self.forest.predict(self.codes, self.raw, 0, 20, 1)


class Derivatives(_Core):
    """Gradients and Hessians of 16 outputs."""

    params = ["squared_error", "logistic", "softmax"]
    param_names = ("objective",)

    def setup(self, objective):
        n_outputs = 16
        self.prepare(n_outputs)
        y, made = self.gradients, objectives.get_objective(objective)
        if objective == "logistic":
            y = (y > 0).astype(np.float32)
        elif objective == "softmax":
            y, made = y.argmax(axis=1).astype(np.int32), objectives.Softmax(n_classes=n_outputs)
        self.problem = made.bind(RowData(y))
        self.problem.set_base_score(self.problem.base_score(1))
        shape = self.problem.hessian_shape()
        self.h = None if shape is None else np.empty(shape, np.float32)
        self.g = np.empty_like(self.gradients)

    def time_derivatives(self, objective):
        self.problem.derivatives(self.gradients, self.g, self.h, 1)
