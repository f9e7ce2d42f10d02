"""What splits are judged by: derivatives in some columns, with some curvature, for one of the searches.

Owns: which columns and which curvature splits see, and what a search is told. Must not know: how trees grow,
or how leaf values are fitted.
"""

from __future__ import annotations

import numpy as np

import polyleaf._core as _core
from polyleaf.data.random import SCORED_ROWS, derive_seed
from polyleaf.runtime.context import Context
from polyleaf.settings.train_config import COUPLED, LinearLeaf, TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import CountSketch, Sketch, mean_over_outputs
from polyleaf.training.derivatives import Derivatives, column
from polyleaf.training.leaf_fitters import leaf_config
from polyleaf.training.sampling import Draw
from polyleaf.training.sparse_raw_scores import LabelState

__all__ = [
    "ExactSplits",
    "HistogramSplits",
    "LookaheadChannels",
    "PlainChannels",
    "SplitColumns",
    "VerifiedSplits",
    "counted",
    "resolve_hessian_kind",
]

# Outputs up to which hessian="auto" judges splits by K curvatures; above, by their mean, which saves K
# channels.
DIAGONAL_UP_TO = 64
# SplitColumns of the count-sketch that proposes splits of labels. Measured: docs/sparse-leaves.md.
LABEL_SKETCH_DIM = 32


class PlainChannels:
    """Quantised derivatives, as they are."""

    def __init__(self, workers: Context) -> None:
        self._channels, self._workers = _core.QuantisedGradients(), workers

    def of(
        self, kind: str, g: np.ndarray, h: np.ndarray | None, draw: Draw
    ) -> _core.QuantisedGradients:
        """The core's channels of these gradients and curvatures; they are overwritten by the next."""
        self._channels.quantise(g, h, kind, *draw.sample, self._workers)
        return self._channels


class LookaheadChannels:
    """The same, for splits whose sides are worth what linear leaves will achieve (GBDT-PL)."""

    def __init__(self, table: _core.LinearTable, leaf: LinearLeaf, workers: Context) -> None:
        self._channels, self._workers = _core.LinearGradients(table), workers
        self._config = _core.LinearConfig(
            fit=leaf.linear_fit,
            max_regressors=leaf.linear_features,
            linear_lambda=leaf.slope_lambda,
        )

    def of(
        self, kind: str, g: np.ndarray, h: np.ndarray | None, draw: Draw
    ) -> _core.LinearGradients:
        """As those of `PlainChannels`."""
        self._channels.renew(g, h, kind, self._config, *draw.sample, self._workers)
        return self._channels


class HistogramSplits:
    """Splits by histograms of quantised derivatives: of all outputs, or of the columns of a sketch."""

    def __init__(
        self,
        bins: _core.Bins,
        derivatives: Derivatives,
        sketch: Sketch | None,
        channels: PlainChannels | LookaheadChannels,
        directions: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        self._columns, self._channels = SplitColumns(derivatives, sketch, settings), channels
        self._search, self._directions = _core.HistogramSearch(bins, settings.workers), directions

    def use(self, draw: Draw, output: int) -> _core.Search:
        if self._directions is not None:
            self._search.set_monotone_constraints(
                self._directions if output < 0 else column(self._directions, output)
            )
        self._search.use(self._channels.of(*self._columns.of(draw, output), draw))
        return self._search


class SplitColumns:
    """What histograms sum: derivatives in the columns, and with the curvature, that splits see."""

    def __init__(
        self, derivatives: Derivatives, sketch: Sketch | None, settings: TrainConfig
    ) -> None:
        self._derivatives, self._sketch, self._workers = derivatives, sketch, settings.workers
        self._curvature, self._seed = settings.hessian.hessian, settings.sampling.seed

    def of(self, draw: Draw, output: int) -> tuple[str, np.ndarray, np.ndarray | None]:
        """Kind of channels, gradients and curvatures."""
        g, h = self._derivatives.of_output(output)
        wanted = resolve_hessian_kind(
            self._curvature, None if h is None else h.shape[1], g.shape[1]
        )
        g = self._derivatives.in_unit(
            output, wanted in ("none", "shared") or self._sketch is not None
        )
        if self._sketch is not None:
            used = None if self._curvature == "none" else h
            g, h = self._sketch.sketch(
                g, used, draw.round, self._seed, self._workers.n_threads_or_context
            )
            wanted = resolve_hessian_kind(
                self._curvature, None if h is None else h.shape[1], g.shape[1]
            )
        if wanted == "full":
            return wanted, g, self._derivatives.full
        if wanted == "none" or h is None:
            kind, of_rows = counted(len(g), self._derivatives.row_weight, draw)
            return kind, g, of_rows
        if wanted == "shared":
            return wanted, g, mean_over_outputs(h, self._workers.n_threads)
        return wanted, g, h if h.shape[1] == g.shape[1] else np.repeat(h, g.shape[1], axis=1)


class VerifiedSplits:
    """Splits of few labels of very many: proposed by histograms of a count-sketch, judged by exact sums."""

    def __init__(
        self,
        bins: _core.Bins,
        state: LabelState,
        leaf: TopkLeaf,
        numbers: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        self._state, self._leaf, self._workers, self._numbers = (
            state,
            leaf,
            settings.workers,
            numbers,
        )
        self._step, self._seed = leaf_config(settings.regularisation), settings.sampling.seed
        self._sketch = CountSketch(settings.boosting.sketch_dim or LABEL_SKETCH_DIM)
        self._channels = PlainChannels(settings.workers)
        histograms = _core.HistogramSearch(bins, self._workers)
        self._search = _core.VerifiedSearch(histograms, self._workers)

    def use(self, draw: Draw, output: int) -> _core.Search:
        gradients, weight, n_threads = (
            self._state.gradients,
            self._state.weight,
            self._workers.n_threads,
        )
        g = self._sketch.sketch_labels(gradients, draw.round, self._seed, n_threads)
        kind, h = counted(len(g), weight, draw)
        channels = self._channels.of(kind, g, h, draw)
        drawn = self._numbers, derive_seed(self._seed, draw.round, SCORED_ROWS)
        self._search.use(gradients, weight, channels, self._step, self._leaf.leaf_k, *drawn)
        return self._search


class ExactSplits:
    """Splits of few labels of very many by exact sums of every feature (GBDT-SPARSE, Algorithm 1)."""

    def __init__(
        self, bins: _core.Bins, state: LabelState, leaf: TopkLeaf, settings: TrainConfig
    ) -> None:
        self._state, self._leaf, self._step = state, leaf, leaf_config(settings.regularisation)
        self._search = _core.ExactSearch(bins, settings.workers)

    def use(self, draw: Draw, output: int) -> _core.Search:
        data, leaf = (self._state.gradients, self._state.weight), self._leaf
        self._search.use(*data, *draw.sample, self._step, leaf.leaf_k, leaf.threshold_step)
        return self._search


def counted(n_rows: int, weight: np.ndarray | None, draw: Draw) -> tuple[str, np.ndarray | None]:
    """Kind of channels and curvature (n_rows, 1) where a row counts 1, or its weight (n_rows,)."""
    if weight is None and draw.multiplier is None:
        return "unit", None
    ones = np.ones(n_rows, np.float32) if weight is None else weight
    return "shared", np.ascontiguousarray(ones, np.float32).reshape(-1, 1)


def resolve_hessian_kind(curvature: str, of_h: int | None, n_outputs: int) -> str:
    """The curvature that splits are judged with: "none", "shared", "diagonal" or "full".

    "auto": none where the objective's curvature is constant; shared where one column serves all outputs, or
    there is only one, or there are more than `DIAGONAL_UP_TO`; diagonal otherwise. Measured: see section 5 of
    docs/design.md. A block is read from the full curvature. `of_h`: columns of the curvature, None where
    there is none.
    """
    if curvature == "none" or of_h is None:
        return "none"
    if n_outputs == 1:
        return "shared"
    if curvature in COUPLED:
        return "full"
    if curvature == "auto":
        curvature = "diagonal" if 1 < of_h <= DIAGONAL_UP_TO else "shared"
    return curvature
