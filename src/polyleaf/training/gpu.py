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
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves, TreeOutputs
from polyleaf.objectives.base import BoundObjective
from polyleaf.settings.train_config import COUPLED, TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import RandomProjection, Sketch, mean_on_device
from polyleaf.training.leaf_fitters import make_leaf_config
from polyleaf.training.raw_scores import (
    DenseScores,
    DenseState,
    Derivatives,
    GrownTree,
    extract_columns,
    number_tree,
)
from polyleaf.training.sampling import TreeSample
from polyleaf.training.tree_builder import SplitGradients, count_hessian, resolve_hessian_kind
from polyleaf.user_data.weights import average_weights


def copy_to_device(device: _core.Device, values: np.ndarray) -> _core.DeviceMatrix:
    """Return a copy of a float32 matrix on a device."""
    matrix = _core.DeviceMatrix(device, *values.shape)
    matrix.write(np.ascontiguousarray(values))
    return matrix


class DeviceDerivatives:
    """Gradients and Hessians of an objective at raw scores on a device.

    Attributes
    ----------
    g : _core.DeviceMatrix of shape (n_rows, K)
    h : _core.DeviceMatrix of shape (n_rows, 1) or (n_rows, K), or None
        None: 1 everywhere.
    full : _core.DeviceMatrix of shape (n_rows, K (K + 1) / 2), or None
        Packed Hessians, if they are used; all derivatives are then computed on the host.
    leaf_hessian : str
        Kind of Hessian of leaf values.
    """

    def __init__(self, device: _core.Device, bound: BoundObjective, settings: TrainConfig) -> None:
        memory_limit, config = settings.growth.histogram_memory_bytes, settings.hessian
        host = Derivatives(bound, config, memory_limit, settings.workers)
        self._host, self.leaf_hessian = host, config.leaf_hessian
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

    @property
    def has_gain_scale(self) -> bool:
        """Whether splits use scaled gradients."""
        return self._host.gain_scale is not None

    def select_weight(self, outputs: TreeOutputs) -> np.ndarray | None:
        """Return the weights in host memory, see `Derivatives`."""
        return self._host.select_weight(outputs)

    def select(self, outputs: TreeOutputs) -> tuple[_core.DeviceMatrix, _core.DeviceMatrix | None]:
        """Return gradients and Hessians of all outputs, or of one."""
        g, h = self.g, self.h
        if outputs is None or g.shape[1] == 1:
            return g, h
        (output,) = outputs.tolist()  # the settings allow no other groups
        return g.column(output), h if h is None or h.shape[1] == 1 else h.column(output)


class DeviceState(DenseState):
    """Raw scores and derivatives of all rows and outputs, on a device."""

    def __init__(
        self,
        bound: BoundObjective,
        derivatives: DeviceDerivatives,
        dataset: Dataset,
        model: Model,
        grower: _core.Grower,
        settings: TrainConfig,
        offset: np.ndarray | None = None,
        row_ids: np.ndarray | None = None,
    ) -> None:
        seed = settings.sampling.seed
        super().__init__(
            bound, derivatives.host, dataset, model, settings.workers, offset, row_ids, seed
        )
        self.device_derivatives, self._grower = derivatives, grower
        self._device_scores = copy_to_device(derivatives.device, self._raw)
        self._leaves = _core.DeviceLeaves(derivatives.device)
        del self._raw  # the device has the scores
        self._adds_trees = False
        self._is_stale = True  # derivatives may be on the host only

    @property
    def raw(self) -> np.ndarray:
        """A copy in host memory."""
        return self._device_scores.read()

    @property
    def _scores(self) -> _core.DeviceMatrix:
        return self._device_scores

    def _copy_scores(self) -> _core.DeviceMatrix:
        if self._buffer is None:
            device = self.device_derivatives.device
            self._buffer = _core.DeviceMatrix(device, *self._device_scores.shape)
        self._buffer.copy(self._device_scores)
        return self._buffer

    def _read_columns(self, scores: _core.DeviceMatrix, outputs: TreeOutputs) -> np.ndarray:
        return scores.read() if outputs is None else scores.column(int(outputs[0])).read()

    def update_derivatives(self) -> None:
        if self._is_stale:
            seen = self._device_scores if self._shown is None else self._shown
            on_device = seen if self._offset is None else None
            self.device_derivatives.compute(on_device, self.seen_scores)
        self._is_stale = False

    def sampling_gradients(self) -> np.ndarray:
        return self.device_derivatives.host.scaled_gradients(None)

    def gradients_cancel_out(self, outputs: TreeOutputs) -> bool:
        return self.device_derivatives.host.gradients_cancel_out(outputs)

    def _add_leaves(
        self, scores: Any, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs
    ) -> None:
        output = -1 if outputs is None else int(outputs[0])
        self._leaves.add(scores, self._grower, leaves, output)

    def add_last_tree(self, forest: _core.Forest) -> None:
        scores = DenseScores(self.raw, self._workers)
        scores.add_trees(forest, len(forest) - 1, self._dataset.codes, self._features)
        self._device_scores.write(scores.raw)
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
        device, self._monotone = derivatives.device, monotone
        self._derivatives, self._sketch, self._settings = derivatives, sketch, settings
        self._quantised = _core.DeviceQuantisedGradients(device)
        self._search = _core.DeviceSearch(bins, settings.workers)
        self._weights: dict[int, _core.DeviceMatrix] = {}

    def configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        if self._monotone is not None:
            self._search.set_monotone_constraints(extract_columns(self._monotone, outputs))
        selected = self._select_on_device(sample, outputs)
        kind, g, h = selected or self._copy_from_host(sample, outputs)
        self._quantised.quantise(g, h, kind, sample.rows, sample.multiplier)
        self._search.use(self._quantised)
        return self._search

    def _select_on_device(
        self, sample: TreeSample, outputs: TreeOutputs
    ) -> tuple[str, _core.DeviceMatrix, _core.DeviceMatrix | None] | None:
        """Return the kind of Hessian, gradients and Hessians on the device; None if they must be
        computed."""
        derivatives = self._derivatives
        if derivatives.has_gain_scale or derivatives.has_heavy_rows:
            return None
        g, h = derivatives.select(outputs)
        if self._sketch is not None:
            if not isinstance(self._sketch, RandomProjection):
                return None
            h = None if self._settings.hessian.hessian == "none" else h
            seed = self._settings.sampling.seed
            g, h = self._sketch.sketch_on_device(g, h, sample.round, seed)
        columns = None if h is None else h.shape[1]
        kind = resolve_hessian_kind(self._settings.hessian.hessian, columns, g.shape[1])
        if kind == "none":
            weight = derivatives.select_weight(outputs)
            if self._sketch is not None and weight is not None:
                weight = average_weights(weight)
            kind, counts = count_hessian(g.shape[0], weight, sample)
            return kind, g, None if counts is None else self._get_weight(counts, outputs)
        if kind == "full":
            return kind, g, derivatives.full
        if kind == "shared":
            assert h is not None
            return kind, g, mean_on_device(h)
        return (kind, g, h) if columns == g.shape[1] else None

    def _get_weight(self, weight: np.ndarray, outputs: TreeOutputs) -> _core.DeviceMatrix:
        """Return the weights of rows, which are constant and copied once for each output."""
        number = number_tree(outputs)
        if number not in self._weights:
            self._weights[number] = copy_to_device(self._derivatives.device, weight)
        return self._weights[number]

    def _copy_from_host(
        self, sample: TreeSample, outputs: TreeOutputs
    ) -> tuple[str, _core.DeviceMatrix, _core.DeviceMatrix | None]:
        gradients = SplitGradients(self._derivatives.host, self._sketch, self._settings)
        kind, g, h = gradients.select(sample, outputs)
        device = self._derivatives.device
        return kind, copy_to_device(device, g), None if h is None else copy_to_device(device, h)


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
        return self._leaves.newton(
            *self._select(outputs),
            self._grower,
            grown.tree.n_leaves,
            step,
            sample.rows,
            sample.multiplier,
        )

    def sum_hessians(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        """Return the sum of Hessians of each leaf, see `leaf_fitters.DenseLeafFitter`."""
        _, h = self._select(outputs)
        n_leaves = grown.tree.n_leaves
        return self._leaves.sum_hessians(h, self._grower, n_leaves, sample.rows, sample.multiplier)

    def _select(self, outputs: TreeOutputs) -> tuple[_core.DeviceMatrix, _core.DeviceMatrix | None]:
        """Return gradients and Hessians of leaf values."""
        g, h = self._derivatives.select(outputs)
        kind, full = self._derivatives.leaf_hessian, self._derivatives.full
        if kind in COUPLED and full is not None:
            return g, full
        if kind == "shared" and h is not None:
            return g, mean_on_device(h)
        if kind != "none":
            return g, h
        _, host_h = self._derivatives.host.select_for_leaves(outputs)
        return g, None if host_h is None else copy_to_device(self._derivatives.device, host_h)


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
        return self._leaves.topk(
            *self._select(outputs),
            self._grower,
            grown.tree.n_leaves,
            self._leaf.leaf_k,
            grown.tree if self._leaf.leaf_output_set == "shared" else None,
            make_leaf_config(self._regularisation, rate),
            sample.rows,
            sample.multiplier,
        )
