"""The parts of a run whose rows stay on a device: scores, derivatives, splits, leaf values.

Owns: what crosses between the device and this machine, and when. Must not know: kernels, how a card is found.

Nothing of the size of the rows crosses between trees where the device knows the objective and splits see its
derivatives as they are. Otherwise they are computed here, from a copy, and sent back: the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import polyleaf._core as _core
from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.objectives.base import BoundObjective
from polyleaf.settings.train_config import COUPLED, TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import Sketch
from polyleaf.training.derivatives import Derivatives, column
from polyleaf.training.leaf_fitters import leaf_config
from polyleaf.training.raw_scores import DenseScores, DenseState
from polyleaf.training.sampling import Draw
from polyleaf.training.split_finder import SplitColumns, counted, resolve_hessian_kind
from polyleaf.training.tree_builder import Grown

__all__ = [
    "DeviceDerivatives",
    "DeviceFitter",
    "DeviceSplits",
    "DeviceState",
    "DeviceTopkFitter",
    "sent",
]


def sent(device: _core.Device, values: np.ndarray) -> _core.DeviceMatrix:
    """A copy of a float32 matrix on a device."""
    matrix = _core.DeviceMatrix(device, *values.shape)
    matrix.write(np.ascontiguousarray(values))
    return matrix


class DeviceDerivatives:
    """What an objective says at raw scores that lie on a device.

    Attributes
    ----------
    device : _core.Device
    g : _core.DeviceMatrix of shape (n_rows, K)
    h : _core.DeviceMatrix of shape (n_rows, 1) or (n_rows, K), or None
        None: 1 throughout.
    full : _core.DeviceMatrix of shape (n_rows, K (K + 1) / 2), or None
        Hessians, where they are asked for; all derivatives are computed on this machine then.
    wanted_by_leaves : str
        The curvature that leaves are fitted with.
    """

    def __init__(
        self,
        device: _core.Device,
        problem: BoundObjective,
        weight: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        memory, self.wanted_by_leaves = (
            settings.growth.histogram_memory_bytes,
            settings.hessian.leaf_hessian,
        )
        self._here = Derivatives(problem, settings.hessian, weight, memory, settings.workers)
        self.device, self.g = device, _core.DeviceMatrix(device, *self._here.g.shape)
        self.h = None if self._here.h is None else _core.DeviceMatrix(device, *self._here.h.shape)
        full = self._here.full
        self.full = None if full is None else _core.DeviceMatrix(device, *full.shape)
        self._loss = problem.on_device(device) if full is None else None
        if self._loss is not None and self.h is not None and problem.objective.has_constant_hessian:
            assert problem.weight is not None
            self.h.write(problem.weight)  # where it stays
        self._is_here = True  # whether this machine has them too

    def renew(self, raw: _core.DeviceMatrix | None, scores: Callable[[], np.ndarray]) -> None:
        """Compute them at raw scores, or, where there are none on the device that tell all, at `scores()`."""
        self._is_here = self._loss is None or raw is None
        if self._loss is not None and raw is not None:
            self._loss.derivatives(raw, self.g, self.h)
            return
        here = self._here
        here.renew(scores())
        self.g.write(here.g)
        if self.h is not None and here.h is not None:
            self.h.write(here.h)
        if self.full is not None and here.full is not None:
            self.full.write(here.full)

    @property
    def here(self) -> Derivatives:
        """The same in memory of this machine."""
        here = self._here
        if not self._is_here:
            here.g[...] = self.g.read()
            if self.h is not None and here.h is not None:
                here.h[...] = self.h.read()
        self._is_here = True
        return here

    @property
    def has_unit(self) -> bool:
        """Whether gradients are judged in another unit than their own."""
        return self._here.unit is not None

    @property
    def row_weight(self) -> np.ndarray | None:
        return self._here.row_weight

    def of_output(self, output: int) -> tuple[_core.DeviceMatrix, _core.DeviceMatrix | None]:
        """Gradient and curvature of one output (n_rows, 1), or of all where `output` is -1."""
        g, h = self.g, self.h
        if output < 0 or g.shape[1] == 1:
            return g, h
        return g.column(output), h if h is None or h.shape[1] == 1 else h.column(output)


class DeviceState(DenseState):
    """Raw scores and derivatives of all rows and outputs, on a device."""

    def __init__(
        self,
        problem: BoundObjective,
        derivatives: DeviceDerivatives,
        dataset: Dataset,
        model: Model,
        grower: _core.Grower,
        settings: TrainConfig,
        offset: np.ndarray | None = None,
    ) -> None:
        super().__init__(problem, derivatives.here, dataset, model, settings.workers, offset)
        self.on_device, self._grower = derivatives, grower
        self._scores, self._leaves = (
            sent(derivatives.device, self._raw),
            _core.DeviceLeaves(derivatives.device),
        )
        del self._raw  # what there is lies on the device
        self._kept: _core.DeviceMatrix | None = None

    @property
    def raw(self) -> np.ndarray:
        """A copy in memory of this machine."""
        return self._scores.read()

    def renew(self) -> None:
        if self._is_stale:
            self.on_device.renew(self._scores if self._offset is None else None, self.scores)
        self._is_stale = False

    def gradients_of_rows(self) -> np.ndarray:
        return self.on_device.here.in_unit(-1)

    def cancel(self, output: int) -> bool:
        return self.on_device.here.cancel(output)

    def add(self, grown: Grown, leaves: Leaves, output: int) -> None:
        if grown.is_added:
            return
        self._leaves.add(self._scores, self._grower, leaves, output)
        self._is_stale = True

    def add_last(self, forest: _core.Forest) -> None:
        scores = DenseScores(self.raw, self._workers)
        scores.add_trees(forest, len(forest) - 1, self._dataset.codes, self._features)
        self._scores.write(scores.raw)
        self._is_stale = True

    def mark(self) -> None:
        if self._kept is None:
            self._kept = _core.DeviceMatrix(self.on_device.device, *self._scores.shape)
        self._kept.copy(self._scores)

    def rewind(self) -> None:
        assert self._kept is not None
        self._scores.copy(self._kept)
        self._is_stale = True


class DeviceSplits:
    """Splits by histograms of quantised derivatives, on a device."""

    def __init__(
        self,
        bins: _core.DeviceBins,
        derivatives: DeviceDerivatives,
        sketch: Sketch | None,
        directions: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        device, self._directions = derivatives.device, directions
        self._derivatives, self._sketch, self._settings = derivatives, sketch, settings
        self._channels, self._search = (
            _core.DeviceQuantisedGradients(device),
            _core.DeviceSearch(bins, settings.workers),
        )
        self._weight: _core.DeviceMatrix | None = None

    def use(self, draw: Draw, output: int) -> _core.Search:
        if self._directions is not None:
            self._search.set_monotone_constraints(
                self._directions if output < 0 else column(self._directions, output)
            )
        kind, g, h = self._columns(draw, output) or self._columns_from_here(draw, output)
        self._channels.quantise(g, h, kind, *draw.sample)
        self._search.use(self._channels)
        return self._search

    def _columns(
        self, draw: Draw, output: int
    ) -> tuple[str, _core.DeviceMatrix, _core.DeviceMatrix | None] | None:
        """Kind of channels, gradients and curvatures, as they lie on the device; None: they do not."""
        derivatives = self._derivatives
        if self._sketch is not None or derivatives.has_unit:
            return None
        g, h = derivatives.of_output(output)
        columns = None if h is None else h.shape[1]
        wanted = resolve_hessian_kind(self._settings.hessian.hessian, columns, g.shape[1])
        if wanted == "none":
            kind, weight = counted(g.shape[0], derivatives.row_weight, draw)
            return kind, g, None if weight is None else self._sent_weight(weight)
        if wanted == "full":
            return wanted, g, derivatives.full
        fits = columns == (1 if wanted == "shared" else g.shape[1])
        return (wanted, g, h) if fits else None

    def _sent_weight(self, weight: np.ndarray) -> _core.DeviceMatrix:
        """What rows count, which does not change: sent once."""
        if self._weight is None:
            self._weight = sent(self._derivatives.device, weight)
        return self._weight

    def _columns_from_here(
        self, draw: Draw, output: int
    ) -> tuple[str, _core.DeviceMatrix, _core.DeviceMatrix | None]:
        columns = SplitColumns(self._derivatives.here, self._sketch, self._settings)
        kind, g, h = columns.of(draw, output)
        device = self._derivatives.device
        return kind, sent(device, g), None if h is None else sent(device, h)


class DeviceFitter:
    """A vector in each leaf: one Newton step, from sums over rows on a device."""

    def __init__(
        self, derivatives: DeviceDerivatives, grower: _core.Grower, settings: TrainConfig
    ) -> None:
        self._derivatives, self._grower, self._step = derivatives, grower, settings.regularisation
        self._block_size = settings.hessian.leaf_block_size
        self._leaves = _core.DeviceLeaves(derivatives.device)

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        step = leaf_config(self._step, learning_rate, self._block_size)
        return self._leaves.newton(
            *self._columns(output), self._grower, grown.tree.n_leaves, step, *draw.sample
        )

    def curvature(self, grown: Grown, draw: Draw, output: int) -> np.ndarray:
        """What rows sum to in each leaf, as `fitters.DenseFitter` has it."""
        _, h = self._columns(output)
        return self._leaves.sum_hessians(h, self._grower, grown.tree.n_leaves, *draw.sample)

    def _columns(self, output: int) -> tuple[_core.DeviceMatrix, _core.DeviceMatrix | None]:
        """What leaf values are fitted on."""
        g, h = self._derivatives.of_output(output)
        wanted, full = self._derivatives.wanted_by_leaves, self._derivatives.full
        if wanted in COUPLED and full is not None:
            return g, full
        is_as_it_lies = wanted != "none" and (wanted != "shared" or h is None or h.shape[1] == 1)
        if is_as_it_lies:
            return g, h
        _, from_here = self._derivatives.here.for_leaves(output)
        return g, None if from_here is None else sent(self._derivatives.device, from_here)


class DeviceTopkFitter(DeviceFitter):
    """A value for each of the outputs that gain most, from sums over rows on a device."""

    def __init__(
        self,
        derivatives: DeviceDerivatives,
        grower: _core.Grower,
        leaf: TopkLeaf,
        settings: TrainConfig,
    ) -> None:
        super().__init__(derivatives, grower, settings)
        self._leaf = leaf

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        step, columns = leaf_config(self._step, learning_rate), self._columns(output)
        shared = grown.tree if self._leaf.leaf_output_set == "shared" else None
        n_leaves, k = grown.tree.n_leaves, self._leaf.leaf_k
        return self._leaves.topk(*columns, self._grower, n_leaves, k, shared, step, *draw.sample)
