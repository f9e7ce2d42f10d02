"""Columns that replace high-cardinality features, learned from what the objective sees."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.target_encoding import EncodedOutputs
from polyleaf.objectives import Objective
from polyleaf.objectives._utils import minimise_base_score
from polyleaf.user_data.target import Target

# Smallest Hessian of a row in units of the mean one: rows of a smaller one carry no information.
_MIN_HESSIAN = 1e-3
_TINY = 1e-300
_MAX_SEPARATE_OUTPUTS = 32  # with weights of their own


def derive_columns(
    binned: Dataset, target: Target, objective: Objective, n_threads: int, *, is_first: bool = True
) -> Dataset:
    """Return the data with columns derived from y in place of high-cardinality features.

    With offsets, and for distributions, the columns are learned from what the objective sees: a
    Newton step per row, weighted by its expected Hessian. For counts with exposures these are
    rates, weighted by exposure.

    `target`: target of the rows; offsets have been subtracted if the objective allows that.
    `is_first`: see `Dataset.with_target`.
    """
    offset = target.rows.offset
    sees_target = (
        offset is None or scipy.sparse.issparse(offset)
    ) and not objective.has_distribution
    if sees_target or objective.is_translation_invariant:
        return binned.with_target(target, is_first=is_first)
    return binned.with_target(
        target, lambda: _compute_newton_steps(target, objective, n_threads), is_first=is_first
    )


def _compute_newton_steps(target: Target, objective: Objective, n_threads: int) -> EncodedOutputs:
    """Return the Newton step of each row from the best constant on top of the offsets."""
    bound, offset = objective.bind(target.rows), target.rows.offset
    raw = np.zeros((target.n_rows, bound.n_outputs), np.float32)
    if offset is None:
        bound.set_base_score(bound.base_score(n_threads))
    else:
        raw += offset
        bound.set_base_score(minimise_base_score(bound, raw, n_threads))
    mask = np.tile(objective.offset_mask, raw.shape[1] // len(objective.offset_mask))
    derivatives = bound.expected_derivatives(raw, n_threads)
    g, h = (array[:, mask].astype(np.float64) for array in derivatives)
    weight = np.ones_like(g)
    if target.weight is not None:
        columns = objective.score_columns(raw.shape[1])[mask]
        weights = target.weight[:, None] if target.weight.ndim == 1 else target.weight[:, columns]
        weight = np.broadcast_to(weights, g.shape).astype(np.float64)
    # Sums in order: those of NumPy depend on the processor.
    if g.shape[1] > _MAX_SEPARATE_OUTPUTS:
        h = np.broadcast_to(np.cumsum(h, axis=1)[:, -1:] / h.shape[1], h.shape)
    total = np.maximum(np.cumsum(weight, axis=0)[-1], _TINY)
    least = np.maximum(_MIN_HESSIAN * np.cumsum(h, axis=0)[-1] / total, _TINY)
    h = np.maximum(h, least * weight)
    steps = np.divide(-g, h, out=np.zeros_like(g), where=h > 0)
    names = target.get_indicator_names()
    if len(names) != g.shape[1]:
        names = [str(k) for k in range(g.shape[1])]
    is_shared = g.shape[1] == 1 or g.shape[1] > _MAX_SEPARATE_OUTPUTS
    return EncodedOutputs(steps, h[:, 0] if is_shared else h, names)
