"""Training on a GPU: scores, derivatives, splits and leaf values whose rows stay on the device.

Nothing of the size of the rows is copied between trees if the device supports the objective and
splits use its derivatives unchanged. Otherwise derivatives are computed on the host, from a copy
of the scores, and copied back: the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.model.leaf_kinds import Leaves, TreeOutputs
from polyleaf.objectives.base import BoundObjective
from polyleaf.settings.train_config import TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import RandomProjection, Sketch, mean_on_device
from polyleaf.training.leaf_fitters import make_leaf_config
from polyleaf.training.raw_scores import (
    DenseScores,
    DenseState,
    DerivativeMatrices,
    Derivatives,
    GrownTree,
    extract_columns,
    number_tree,
)
from polyleaf.training.sampling import TreeSample
from polyleaf.training.tree_builder import SplitGradients


def copy_to_device(device: _core.Device, values: np.ndarray) -> _core.DeviceMatrix:
    """Return a copy of a float32 matrix on a device."""
    matrix = _core.DeviceMatrix(device, *values.shape)
    matrix.write(np.ascontiguousarray(values))
    return matrix


class DeviceDerivatives(DerivativeMatrices):
    """Gradients and Hessians of an objective at raw scores, on a device.

    With full Hessians, all derivatives are computed on the host.
    """

    def __init__(self, device: _core.Device, bound: BoundObjective, settings: TrainConfig) -> None:
        memory_limit, config = settings.growth.histogram_memory, settings.hessian
        host = Derivatives(bound, config, memory_limit, settings.workers)
        self._host, self.leaf_hessian = host, config.leaf_hessian
        self._weights: dict[tuple[str, int], _core.DeviceMatrix] = {}
        self.device, self.g = device, _core.DeviceMatrix(device, *host.g.shape)
        self.h = None if host.h is None else _core.DeviceMatrix(device, *host.h.shape)
        self.full = None if host.full is None else _core.DeviceMatrix(device, *host.full.shape)
        self._loss = bound.make_device_loss(device) if host.full is None else None
        if self._loss is not None and self.h is not None and bound.objective.has_constant_hessian:
            assert bound.weight is not None
            self.h.write(bound.weight)  # it never changes
        self._is_on_host = True  # whether the host has the current derivatives

    def compute(self, raw: _core.DeviceMatrix | None, scores: Callable[[], np.ndarray]) -> None:
        """Compute derivatives at raw scores on the device, or if these are None at `scores()`."""
        self._is_on_host = self._loss is None or raw is None or self.has_heavy_rows
        if self._loss is not None and raw is not None and not self.has_heavy_rows:
            self._loss.derivatives(raw, self.g, self.h)
            return
        host = self._host
        host.compute(scores())
        self.g.write(host.g)
        if self.h is not None and host.h is not None:
            self.h.write(host.h)
        if self.full is not None and host.full is not None:
            self.full.write(host.full)

    @property
    def host(self) -> Derivatives:
        """The same derivatives in host memory."""
        host = self._host
        if not self._is_on_host:
            host.g[...] = self.g.read()
            if self.h is not None and host.h is not None:
                host.h[...] = self.h.read()
        self._is_on_host = True
        return host

    @property
    def has_heavy_rows(self) -> bool:
        """Whether derivatives are limited and rounded, on the host."""
        return self._host.heavy_rows is not None

    def can_serve(self, sketch: Sketch | None) -> bool:
        """Return whether splits can use the derivatives on the device."""
        is_projection = sketch is None or isinstance(sketch, RandomProjection)
        return is_projection and self._host.gain_scale is None and not self.has_heavy_rows

    def select(self, outputs: TreeOutputs) -> tuple[_core.DeviceMatrix, _core.DeviceMatrix | None]:
        g, h = self.g, self.h
        if outputs is None or g.shape[1] == 1:
            return g, h
        (output,) = outputs.tolist()  # the settings allow no other groups
        return g.column(output), h if h is None or h.shape[1] == 1 else h.column(output)

    def select_weight(self, outputs: TreeOutputs) -> np.ndarray | None:
        return self._host.select_weight(outputs)

    def hold_weight(self, weight: np.ndarray | None, name: str, outputs: TreeOutputs) -> Any:
        if weight is None:
            return None
        key = name, number_tree(outputs)
        if key not in self._weights:
            self._weights[key] = copy_to_device(self.device, weight)
        return self._weights[key]

    def average_outputs(self, h: _core.DeviceMatrix) -> _core.DeviceMatrix:
        return mean_on_device(h)

    def repeat_column(self, h: _core.DeviceMatrix, n: int) -> _core.DeviceMatrix:
        return copy_to_device(self.device, np.repeat(h.read(), n, axis=1))

    def sketch(self, sketch: Sketch, g: Any, h: Any, round: int, seed: int) -> tuple[Any, Any]:
        assert isinstance(sketch, RandomProjection)
        return sketch.sketch_on_device(g, h, round, seed)


class DeviceState(DenseState):
    """Raw scores and derivatives of all rows and outputs, on a device."""

    def __init__(
        self,
        bound: BoundObjective,
        derivatives: DeviceDerivatives,
        dataset: Dataset,
        forest: _core.Forest,
        grower: _core.Grower,
        settings: TrainConfig,
        offset: np.ndarray | None = None,
        row_ids: np.ndarray | None = None,
    ) -> None:
        seed = settings.sampling.seed
        super().__init__(
            bound, derivatives.host, dataset, forest, settings.workers, offset, row_ids, seed
        )
        self.device_derivatives, self._grower = derivatives, grower
        self._scores = copy_to_device(derivatives.device, self._scores)
        self._leaves = _core.DeviceLeaves(derivatives.device)
        self._adds_trees = False
        self._is_stale = True  # derivatives may be on the host only

    @property
    def raw(self) -> np.ndarray:
        """A copy in host memory."""
        return self._scores.read()

    def _copy_scores(self) -> _core.DeviceMatrix:
        if self._buffer is None:
            device = self.device_derivatives.device
            self._buffer = _core.DeviceMatrix(device, *self._scores.shape)
        self._buffer.copy(self._scores)
        return self._buffer

    def _see_columns(self, scores: _core.DeviceMatrix, outputs: TreeOutputs) -> np.ndarray:
        columns = scores.read() if outputs is None else scores.column(int(outputs[0])).read()
        return columns if self._offset is None else columns + extract_columns(self._offset, outputs)

    def update_derivatives(self) -> None:
        if self._is_stale:
            seen = self._scores if self._shown is None else self._shown
            on_device = seen if self._offset is None else None
            self.device_derivatives.compute(on_device, self.seen_scores)
        self._is_stale = False

    def sampling_gradients(self) -> np.ndarray:
        return self.device_derivatives.host.scaled_gradients(None)

    def _gradients_cancel_out(self, outputs: TreeOutputs) -> bool:
        return self.device_derivatives.host.gradients_cancel_out(outputs)

    def _add_leaves(
        self, scores: Any, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs
    ) -> None:
        output = -1 if outputs is None else int(outputs[0])
        self._leaves.add(scores, self._grower, leaves, output)

    def add_last_tree(self, forest: _core.Forest) -> None:
        scores = DenseScores(self.raw, self._workers)
        assert isinstance(self._dataset, Dataset)
        scores.add_trees(forest, len(forest) - 1, self._dataset.codes, self._features)
        self._scores.write(scores.raw)
        self._is_stale = True


class DeviceSplitFinder:
    """Splits by histograms of quantised gradients, on a device."""

    def __init__(
        self,
        bins: _core.DeviceBins,
        derivatives: DeviceDerivatives,
        sketch: Sketch | None,
        monotone: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        self._derivatives, self._monotone = derivatives, monotone
        self._on_device = SplitGradients(derivatives, sketch, settings)
        self._sketch, self._settings = sketch, settings
        self._quantised = _core.DeviceQuantisedGradients(derivatives.device)
        self._search = _core.DeviceSearch(bins, settings.workers)

    def configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        derivatives = self._derivatives
        if self._monotone is not None:
            self._search.set_monotone_constraints(extract_columns(self._monotone, outputs))
        if derivatives.can_serve(self._sketch):
            kind, g, h = self._on_device.select(sample, outputs)
        else:
            gradients = SplitGradients(derivatives.host, self._sketch, self._settings)
            kind, g, h = gradients.select(sample, outputs)
            g = copy_to_device(derivatives.device, g)
            h = None if h is None else copy_to_device(derivatives.device, h)
        self._quantised.quantise(g, h, kind, sample.rows, sample.multiplier)
        self._search.use(self._quantised)
        return self._search


class DeviceFitter:
    """A vector in each leaf: one Newton step, from sums over rows on a device."""

    def __init__(
        self, derivatives: DeviceDerivatives, grower: _core.Grower, settings: TrainConfig
    ) -> None:
        self._derivatives, self._grower = derivatives, grower
        self._regularisation = settings.regularisation
        self._block_size = settings.hessian.leaf_block_size
        self._leaves = _core.DeviceLeaves(derivatives.device)

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        step = make_leaf_config(self._regularisation, rate, self._block_size)
        g, h = self._derivatives.select_for_leaves(outputs)
        return self._leaves.newton(
            g, h, self._grower, grown.tree.n_leaves, step, sample.rows, sample.multiplier
        )

    def sum_hessians(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        _, h = self._derivatives.select_for_leaves(outputs)
        n_leaves = grown.tree.n_leaves
        return self._leaves.sum_hessians(h, self._grower, n_leaves, sample.rows, sample.multiplier)


class DeviceTopkFitter(DeviceFitter):
    """Values of the outputs of largest gain, from sums over rows on a device."""

    def __init__(
        self,
        derivatives: DeviceDerivatives,
        grower: _core.Grower,
        leaf: TopkLeaf,
        settings: TrainConfig,
    ) -> None:
        super().__init__(derivatives, grower, settings)
        self._leaf = leaf

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        g, h = self._derivatives.select_for_leaves(outputs)
        return self._leaves.topk(
            g,
            h,
            self._grower,
            grown.tree.n_leaves,
            self._leaf.leaf_k,
            grown.tree if self._leaf.leaf_output_set == "shared" else None,
            make_leaf_config(self._regularisation, rate),
            sample.rows,
            sample.multiplier,
        )
