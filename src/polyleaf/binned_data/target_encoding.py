"""Target statistics of categories, encoded so that training rows do not see their own target.

The statistic of a category is the sum of the standardised target over its rows, divided by their
number plus a prior: the number of rows that a category needs to be as informative as all others,
which is the variance within categories over that between them, estimated by moments. New rows get
the statistic of all training rows. A training row must not see its own target, or trees would
learn from a copy of it: it gets the statistic of the other four of five folds, unless its category
has so many rows that its own target does not matter.

Not only the means of categories may differ, but also the slopes of the target against a numeric
feature; then the slope is another statistic. A statistic that the other features predict well
would be noise to trees, and is left out.

Additions have the same order on every machine: no BLAS, and no sums of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.binned_data.high_cardinality import (
    DerivedColumns,
    HighCardinalityFeature,
    category_key,
)
from polyleaf.binned_data.random_rows import hash64
from polyleaf.user_data.feature_table import CategoryColumn
from polyleaf.user_data.target import Target

# Chosen by benchmarks on data with high-cardinality features.
_N_FOLDS = 5
# Rows over the prior from which a row's own target does not matter in its category.
_KNOWN_FACTOR = 20.0
_MAX_OUTPUTS = 32  # outputs with statistics of their own; for more, directions of all outputs
_N_DIRECTIONS = 16
_MAX_SLOPES = 2
_MIN_SLOPE_SHARE = 0.15  # least share of slopes in the variance within categories
_MIN_SLOPE_SIGMAS = 5.0  # and least number of standard deviations above chance
_MAX_SCREENED = (20_000, 64, 8)  # rows, other features and outputs in the search for slopes
# A statistic must explain this share of the residual variance. Less is enough if it is so many
# standard deviations above chance, more than this share of what the other features explain, and if
# no other feature depends on the category with this share of its variance: interactions of such
# features would be taken for effects of the category.
_MIN_SHARE = 0.04
_MIN_SIGMAS, _MAX_LEFT, _MAX_DEPENDENCE = 4.0, 0.03, 0.25
_N_PASSES, _STEP = 3, 0.5  # backfitting of an additive model of the other features: it leaves 1.6 %
_MIN_PRIOR, _MAX_PRIOR = 0.01, 1e4
# Pairs of rows of one category that are assumed to differ like any two rows: a prior for data with
# hardly any such pairs.
_PRIOR_PAIRS = 10.0
_N_HASHED = 128  # columns that many outputs are hashed to before directions are computed
_N_ITERATIONS = 4

Array = NDArray[np.float64]


class FeatureCodes(NamedTuple):
    """The bin codes of another feature."""

    name: str
    codes: NDArray[np.uint8]
    n_bins: int
    is_numeric: bool = True


class EncodedOutputs(NamedTuple):
    """What statistics of categories are learned from."""

    values: Any  # (n_rows, n_outputs)
    weight: np.ndarray | None  # (n_rows,): A row of weight 0 in all outputs counts as absent
    names: list[str]  # names of the outputs

    @classmethod
    def from_target(cls, target: Target) -> EncodedOutputs:
        """Return the outputs, labels or class indicators of a target."""
        names = target.get_indicator_names()
        return cls(target.to_indicators(), target.get_indicator_weights(), names)


class _Output(NamedTuple):
    """One column of the target: standardised, with weights of mean 1 (None: all 1)."""

    label: str
    values: Array
    weight: Array | None


def fit_target_statistics(
    columns: Sequence[CategoryColumn],
    others: Iterable[FeatureCodes],
    encoded: EncodedOutputs,
    n_features: int,
    n_threads: int,
    groups: NDArray[np.int64] | None = None,
) -> tuple[DerivedColumns, dict[int, NDArray[np.float32]]]:
    """Fit the statistics of high-cardinality features.

    `others`: features that may predict the same as the categories, or whose slopes may differ
    between categories; the first 64 are read. `groups` (n_rows,): groups of rows (copies) that do
    not see each other's targets.

    Returns
    -------
    derived : DerivedColumns
        The columns that replace the features.
    training : dict from feature to ndarray of shape (n_rows, n_statistics), float32
        Statistics of the training rows.
    """
    outputs, others = _Outputs(encoded, n_threads), list(islice(others, _MAX_SCREENED[1]))
    ordered = sorted(columns, key=lambda column: column.feature)
    fitters = [_StatisticFitter(column, outputs, others, groups) for column in ordered]
    derived = DerivedColumns(n_features, tuple(fitter.result for fitter in fitters))
    return derived, {fitter.result.feature: fitter.training for fitter in fitters}


class _StatisticFitter:
    """Fits the statistics of one feature."""

    def __init__(
        self,
        column: CategoryColumn,
        outputs: _Outputs,
        others: Sequence[FeatureCodes],
        groups: NDArray[np.int64] | None,
    ) -> None:
        categories, codes = _encode_positions(column, outputs.row_weight)
        self._others, self._rows = others, np.flatnonzero(codes >= 0)
        self._codes, self._n = codes[self._rows], len(categories)
        ids = self._rows if groups is None else groups[self._rows]
        self._fold = _assign_folds(self._codes, ids)
        used = [
            _take_rows(output, self._rows)
            for output in outputs.iter_outputs(self._codes, self._rows, self._n)
        ]
        self._screened = _select_rows(self._codes)
        bins = [other.codes[self._rows[self._screened]].astype(np.int64) for other in others]
        residuals = [_compute_residual(bins, self._screened, o) for o in used] if others else []
        means = [self._fit_mean(output) for output in used]
        for k, residual in enumerate(residuals):
            if not self._is_useful(residual):
                means[k] = means[k].make_empty()
        self._statistics = [mean for mean in means if mean.values.any()] or means[:1]
        pairs = self._find_strongest_slopes(residuals, others)
        self._statistics += [self._fit_slope(used[k], other) for k, other in pairs]
        self.training = self._encode_training_rows(len(codes))
        values = [statistic.values for statistic in self._statistics]
        self.result = HighCardinalityFeature(
            column.feature,
            categories,
            tuple(statistic.label for statistic in self._statistics),
            np.stack(values, 1).astype(np.float32),
            missing_seen=bool(np.any(_get_weighted_index(column, outputs.row_weight) < 0)),
        )

    def _fit_mean(self, output: _Output) -> _Statistic:
        label, values, weight = output
        sums, counts = _sum_by_category(self._codes, values, weight, self._n)
        prior = _estimate_prior(values, weight, sums, counts)
        cell = self._codes * _N_FOLDS + self._fold
        fold_sums, fold_counts = _sum_by_category(cell, values, weight, self._n * _N_FOLDS)
        other_counts = np.maximum(counts[self._codes] - fold_counts[cell], 0.0)
        out_of_fold = (sums[self._codes] - fold_sums[cell]) / (other_counts + prior)
        is_known = counts >= _KNOWN_FACTOR * prior
        return _Statistic(label, sums / (counts + prior), out_of_fold, is_known)

    def _fit_slope(self, output: _Output, feature: FeatureCodes) -> _Statistic:
        """Fit the slope of the target against ranks of a feature, less the common slope.

        A row sees nothing of its own fold: neither in the products, nor in the means.
        """
        ranks = _standardise_ranks(feature)[self._rows]
        cell = self._codes * _N_FOLDS + self._fold
        total = _Moments.compute(self._codes, output.values, ranks, output.weight, self._n)
        fold = _Moments.compute(cell, output.values, ranks, output.weight, self._n * _N_FOLDS)
        slopes = total.centre()
        out_of_fold = total.take(self._codes).subtract(fold.take(cell)).centre()
        common, prior = slopes.common(), slopes.spread()[0]
        is_known = np.zeros(self._n, bool)
        label = output.label.replace("mean", f"slope by {feature.name}", 1)
        return _Statistic(
            label, slopes.shrink(common, prior), out_of_fold.shrink(common, prior), is_known
        )

    def _is_useful(self, residual: _Output) -> bool:
        """Whether category means of other folds explain enough of a residual.

        The share of the variance that they explain is estimated by moments.
        """
        codes = self._codes[self._screened]
        sums, counts = _sum_by_category(codes, residual.values, residual.weight, self._n)
        prior = _estimate_prior(residual.values, residual.weight, sums, counts)
        other_counts = counts * (1.0 - 1.0 / _N_FOLDS)
        total, n_used = _sum_in_order(counts), np.count_nonzero(counts)
        explained = _sum_in_order(counts * other_counts / (other_counts + prior))
        share = explained / max(total, 1e-300) / (1.0 + prior)
        if share >= _MIN_SHARE or n_used < 2:
            return share >= _MIN_SHARE
        mean_rows = (total - _sum_in_order(counts * counts) / total) / (n_used - 1)
        squares = residual.values * residual.values
        variance = _compute_mean(squares, residual.weight)
        squares = squares if residual.weight is None else squares * residual.weight
        # The variance between categories varies more where tails are heavy and categories small.
        kurtosis = len(codes) * _sum_in_order(squares * squares)
        kurtosis = max(kurtosis / max(_sum_in_order(squares) ** 2, 1e-300) - 3.0, 0.0)
        n_rows = np.bincount(codes, minlength=self._n)[counts > 0]
        per_row = _sum_in_order(1.0 / np.maximum(n_rows, 1)) / n_used
        sigmas = mean_rows / prior / np.sqrt((2.0 + kurtosis * per_row) / (n_used - 1))
        left = _MAX_LEFT * max(1.0 - variance, 0.0)  # of the standardised target
        is_certain = bool(sigmas >= _MIN_SIGMAS and share * variance >= left)
        return is_certain and self._largest_dependence <= _MAX_DEPENDENCE

    @cached_property
    def _largest_dependence(self) -> float:
        """The largest share of another feature's variance that categories explain."""
        codes, rows, largest = self._codes[self._screened], self._rows[self._screened], 0.0
        for other in self._others:
            ranks = _standardise_ranks(other)[rows]
            sums, counts = _sum_by_category(codes, ranks, None, self._n)
            n_free = len(codes) - np.count_nonzero(counts)
            squares = _sum_in_order(ranks * ranks)
            between = _sum_in_order(sums * sums / np.maximum(counts, 1.0))
            if n_free > 0 and squares > 0:  # less what chance explains
                largest = max(largest, 1.0 - (squares - between) / squares * len(codes) / n_free)
        return largest

    def _find_strongest_slopes(
        self, residuals: Sequence[_Output], others: Sequence[FeatureCodes]
    ) -> list[tuple[int, FeatureCodes]]:
        """Return the few outputs and numeric features whose slopes differ most by category."""
        max_outputs = _MAX_SCREENED[2]
        codes, rows, candidates = self._codes[self._screened], self._rows[self._screened], []
        for j, feature in enumerate(others):
            if not feature.is_numeric:
                continue
            ranks = _standardise_ranks(feature)[rows]
            for k, (_, values, weight) in enumerate(residuals[:max_outputs]):
                moments = _Moments.compute(codes, values, ranks, weight, self._n)
                _, share, sigmas = moments.centre().spread()
                if sigmas >= _MIN_SLOPE_SIGMAS and share >= _MIN_SLOPE_SHARE:
                    candidates.append((-share, j, k))
        return [(k, others[j]) for _, j, k in sorted(candidates)[:_MAX_SLOPES]]

    def _encode_training_rows(self, n_rows: int) -> NDArray[np.float32]:
        training = np.full((n_rows, len(self._statistics)), np.nan, np.float32)
        for k, statistic in enumerate(self._statistics):
            is_known = statistic.is_known[self._codes]
            values = statistic.values[self._codes]
            training[self._rows, k] = np.where(is_known, values, statistic.out_of_fold)
        return training


class _Statistic(NamedTuple):
    """One number per category."""

    label: str
    values: Array  # (n_categories,), statistics of the categories, from all rows
    out_of_fold: Array  # (n_rows,), statistics of the training rows, from the rows of other folds
    # (n_categories,), categories with so many rows that their training rows get `values`
    is_known: NDArray[np.bool_]

    def make_empty(self) -> _Statistic:
        """Return a statistic without information."""
        is_known = np.zeros_like(self.is_known)
        return _Statistic(self.label, self.values * 0.0, self.out_of_fold * 0.0, is_known)


class _Moments(NamedTuple):
    """Row counts, sums, squares and products of a target v and a number r, per category.

    All are weighted.
    """

    n: Array
    v: Array
    r: Array
    vv: Array
    rr: Array
    vr: Array

    @classmethod
    def compute(
        cls, codes: NDArray[np.int64], v: Array, r: Array, weight: Array | None, n: int
    ) -> _Moments:
        sums = [
            _sum_by_category(codes, values, weight, n) for values in (v, r, v * v, r * r, v * r)
        ]
        return cls(sums[0][1], *(values for values, _ in sums))

    def take(self, codes: NDArray[np.int64]) -> _Moments:
        return _Moments(*(values[codes] for values in self))

    def subtract(self, other: _Moments) -> _Moments:
        return _Moments(*(a - b for a, b in zip(self, other, strict=True)))

    def centre(self) -> _Slopes:
        """Return squares and products about the means; 0 for categories without rows."""
        pairs = (self.vv, self.v, self.v), (self.rr, self.r, self.r), (self.vr, self.v, self.r)
        return _Slopes(self.n, *(self._about_means(*pair) for pair in pairs))

    def _about_means(self, products: Array, first: Array, second: Array) -> Array:
        has_rows = self.n > 0.5
        means = np.divide(first * second, self.n, out=np.zeros_like(self.n), where=has_rows)
        return np.where(has_rows, products - means, 0.0)


class _Slopes(NamedTuple):
    """Row counts, squares and products about the means, per category: v = slope r + noise."""

    n: Array
    vv: Array
    rr: Array
    vr: Array

    def common(self) -> float:
        squares = _sum_in_order(self.rr)
        return _sum_in_order(self.vr) / squares if squares > 0 else 0.0

    def shrink(self, common: float, prior: float) -> Array:
        """Return the slopes less the common one, shrunk to 0 by a prior in units of r^2."""
        squares = np.maximum(self.rr, 0.0)
        return (self.vr - common * squares) / (squares + prior)

    def spread(self) -> tuple[float, float, float]:
        """Estimate by moments how the slopes of categories differ.

        Returns
        -------
        prior : float
            Variance of the noise over that of the slopes.
        share : float
            Share of the slopes in the variance of v within categories.
        sigmas : float
            Number of standard deviations by which the variance of the slopes exceeds 0.
        """
        common, rr = self.common(), np.maximum(self.rr, 0.0)
        vr = self.vr - common * rr
        vv = self.vv - common * (2.0 * vr + common * rr)
        freedom = _sum_in_order(self.n) - np.count_nonzero(self.n > 0) + _PRIOR_PAIRS
        total, squares = _sum_in_order(vv), _sum_in_order(rr * rr)
        noise = total / freedom
        excess = _sum_in_order(vr * vr) - noise * _sum_in_order(rr)
        if squares <= 0 or noise <= 0 or excess <= 0:
            return _MAX_PRIOR, 0.0, 0.0
        share = excess / squares * _sum_in_order(rr) / total
        prior = np.clip(max(1.0 - share, 0.0) * noise * squares / excess, _MIN_PRIOR, _MAX_PRIOR)
        return float(prior), share, excess / noise / np.sqrt(2.0 * squares)


# ---- the target ---------------------------------------------------------------------------------


class _Outputs:
    """The columns of a target that statistics are fitted to."""

    def __init__(self, encoded: EncodedOutputs, n_threads: int) -> None:
        self._n_threads = n_threads
        values, weight, names = encoded
        self.row_weight: Array | None = None
        if weight is not None:
            rows = weight if weight.ndim == 1 else weight.max(axis=1)
            self.row_weight = _normalise_weights(rows.astype(np.float64))
        n_outputs = values.shape[1]
        self._plain: list[_Output] | None = None
        if n_outputs <= _MAX_OUTPUTS:
            self._plain = [
                _Output(
                    "mean" if n_outputs == 1 else f"mean of {names[k]}",
                    *_standardise(_get_column(values, k), self._get_weight(weight, k)),
                )
                for k in range(n_outputs)
            ]
        else:
            self._many = _hash_outputs(values)
            for column in self._many.T:
                column[:] = _standardise(column.astype(np.float64), self.row_weight)[0]

    def _get_weight(self, weight: Any, k: int) -> Array | None:
        if weight is None or weight.ndim == 1:
            return self.row_weight
        return _normalise_weights(weight[:, k].astype(np.float64))

    def iter_outputs(
        self, codes: NDArray[np.int64], rows: NDArray[np.int64], n: int
    ) -> Iterator[_Output]:
        """Yield the columns for a feature with category `codes` in `rows`."""
        if self._plain is not None:
            yield from self._plain
            return
        matrix = self._compute_directions(codes, rows, n)
        projected = _core.sketch_project(self._many, matrix, 1.0, self._n_threads)
        for k in range(matrix.shape[1]):
            column = projected[:, k].astype(np.float64)
            yield _Output(f"mean in direction {k}", *_standardise(column, self.row_weight))

    def _compute_directions(
        self, codes: NDArray[np.int64], rows: NDArray[np.int64], n: int
    ) -> NDArray[np.float32]:
        """Return the directions, (columns, directions), in which category means differ most."""
        means = np.empty((n, self._many.shape[1]), np.float32)
        weight = None if self.row_weight is None else self.row_weight[rows]
        for k in range(means.shape[1]):
            column = self._many[rows, k].astype(np.float64)
            sums, counts = _sum_by_category(codes, column, weight, n)
            prior = _estimate_prior(column, weight, sums, counts)
            means[:, k] = sums / (counts + prior) * np.sqrt(counts)
        transposed = np.ascontiguousarray(means.T)
        bits = hash64(np.arange(means.shape[1] * _N_DIRECTIONS)) >> np.uint64(63)
        basis = np.where(bits == 0, -1.0, 1.0).reshape(-1, _N_DIRECTIONS)
        for _ in range(_N_ITERATIONS):
            basis = _orthonormalise(basis)
            seen = _core.sketch_project(means, basis.astype(np.float32), 1.0, self._n_threads)
            basis = _core.sketch_project(transposed, seen, 1.0, self._n_threads).astype(np.float64)
        return _orthonormalise(basis).astype(np.float32)


def _get_column(values: Any, k: int) -> Array:
    column = values[:, [k]].toarray()[:, 0] if scipy.sparse.issparse(values) else values[:, k]
    return np.asarray(column, np.float64)


def _hash_outputs(values: Any) -> NDArray[np.float32]:
    """Add outputs with random signs to at most `_N_HASHED` columns: a new array (n, columns)."""
    n_rows, n_outputs = values.shape
    if n_outputs <= _N_HASHED:
        dense = values.toarray() if scipy.sparse.issparse(values) else values
        return np.array(dense, np.float32, order="C")
    bits = hash64(np.arange(n_outputs))
    column = (bits % np.uint64(_N_HASHED)).astype(np.int64)
    sign = np.where(bits >> np.uint64(63), 1.0, -1.0)
    columns = np.zeros((n_rows, _N_HASHED), np.float32)
    if scipy.sparse.issparse(values):
        row = np.repeat(np.arange(n_rows), np.diff(values.indptr))
        np.add.at(columns, (row, column[values.indices]), values.data * sign[values.indices])
    else:
        for k in range(n_outputs):
            columns[:, column[k]] += values[:, k] * sign[k]
    return columns


# ---- rows and categories ------------------------------------------------------------------------


def _get_weighted_index(column: CategoryColumn, weight: Array | None) -> NDArray[np.int32]:
    """Return the category index of rows of positive weight; -1: missing."""
    return column.index if weight is None else column.index[weight > 0]


def _encode_positions(
    column: CategoryColumn, weight: Array | None
) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """Return the sorted categories of rows of positive weight, and each row's code; -1: none."""
    index = _get_weighted_index(column, weight)
    used = np.bincount(index[index >= 0], minlength=len(column.categories)) > 0
    order = sorted(np.flatnonzero(used).tolist(), key=lambda i: category_key(column.categories[i]))
    position = np.full(len(column.categories) + 1, -1, np.int64)  # the last is for missing values
    position[order] = np.arange(len(order))
    return tuple(column.categories[i] for i in order), position[column.index]


def _select_rows(codes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Select all rows of some categories, about as many as are screened."""
    step = np.uint64(max(1, len(codes) // _MAX_SCREENED[0]))
    return np.flatnonzero(hash64(codes) % step == 0)


def _assign_folds(codes: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a fold per row: the ids of a category are dealt out in random order."""
    order = np.lexsort((hash64(ids), codes))
    ordered, ordered_ids = codes[order], ids[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    is_new = is_first | np.concatenate([[True], ordered_ids[1:] != ordered_ids[:-1]])
    number = np.cumsum(is_new)
    start = np.maximum.accumulate(np.where(is_first, number, 0))
    folds = np.empty(len(codes), np.int64)
    first_fold = (hash64(ordered) % np.uint64(_N_FOLDS)).astype(np.int64)
    folds[order] = (number - start + first_fold) % _N_FOLDS
    return folds


def _sum_by_category(
    codes: NDArray[np.int64], values: Array, weight: Array | None, n: int
) -> tuple[Array, Array]:
    """Return sums and row counts per category, (n,) each, both weighted."""
    if weight is not None:
        values = values * weight
    counts = np.bincount(codes, weight, n)
    return np.bincount(codes, values, n).astype(np.float64), counts.astype(np.float64)


def _compute_residual(
    bins: Sequence[NDArray[np.int64]], rows: NDArray[np.intp], output: _Output
) -> _Output:
    """Return the residual of an additive model of other features, given by bins in `rows`."""
    values, weight = output.values[rows], None if output.weight is None else output.weight[rows]
    for codes in [*bins] * _N_PASSES:
        sums, counts = _sum_by_category(codes, values, weight, 256)
        prior = _estimate_prior(values, weight, sums, counts)
        values = values - _STEP * (sums / (counts + prior))[codes]
    return _Output(output.label, _centre(values, weight), weight)


def _estimate_prior(values: Array, weight: Array | None, sums: Array, counts: Array) -> float:
    """Estimate the variance within categories over that between them."""
    used = counts > 0
    n_used, total = int(np.count_nonzero(used)), _sum_in_order(counts)
    if n_used < 2:
        return _MAX_PRIOR
    squares = values * values
    sum_squares = _sum_in_order(squares if weight is None else squares * weight)
    between = _sum_in_order(np.divide(sums * sums, counts, out=np.zeros_like(sums), where=used))
    within = (max(sum_squares - between, 0.0) + _PRIOR_PAIRS * sum_squares / total) / (
        total - n_used + _PRIOR_PAIRS
    )
    spread = between / (n_used - 1)
    if spread <= within:
        return _MAX_PRIOR
    mean_rows = (total - _sum_in_order(counts * counts) / total) / (n_used - 1)
    return float(np.clip(within * mean_rows / (spread - within), _MIN_PRIOR, _MAX_PRIOR))


def _standardise_ranks(feature: FeatureCodes) -> Array:
    """Return the standardised rank of each row; 0 for missing values."""
    counts = np.bincount(feature.codes, minlength=256)[: feature.n_bins].astype(np.float64)
    total = _sum_in_order(counts)
    ranks = np.cumsum(counts) - counts / 2 - total / 2
    spread = _sum_in_order(counts * ranks * ranks)
    table = np.zeros(256)
    if spread > 0:
        table[: feature.n_bins] = ranks / np.sqrt(spread / total)
    return table[feature.codes]


# ---- sums in one order --------------------------------------------------------------------------


def _sum_in_order(values: Array) -> float:
    """Sum sequentially: the order of NumPy's sum depends on the CPU."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _centre(values: Array, weight: Array | None) -> Array:
    return values - _compute_mean(values, weight)


def _compute_mean(values: Array, weight: Array | None) -> float:
    rows = float(len(values)) if weight is None else _sum_in_order(weight)
    return _sum_in_order(values if weight is None else values * weight) / max(rows, 1e-300)


def _standardise(values: Array, weight: Array | None) -> tuple[Array, Array | None]:
    centred = _centre(values, weight)
    rows = float(len(values)) if weight is None else _sum_in_order(weight)
    squares = centred * centred
    deviation = np.sqrt(
        _sum_in_order(squares if weight is None else squares * weight) / max(rows, 1e-300)
    )
    return centred / deviation if deviation > 0 else np.zeros_like(centred), weight


def _normalise_weights(weight: Array) -> Array | None:
    """Divide weights by the mean of the positive ones; None if all are equal."""
    if len(weight) and (weight == weight[0]).all():
        return None
    return weight * (np.count_nonzero(weight) / _sum_in_order(weight))


def _take_rows(output: _Output, rows: NDArray[np.int64]) -> _Output:
    """Return some rows of an output, centred."""
    if len(rows) == len(output.values):
        return output
    weight = None if output.weight is None else output.weight[rows]
    return _Output(output.label, _centre(output.values[rows], weight), weight)


def _orthonormalise(basis: Array) -> Array:
    """Orthonormalise columns one after the other; dependent ones become 0."""
    basis = basis.copy()
    for j in range(basis.shape[1]):
        before = np.sqrt(_sum_in_order(basis[:, j] ** 2))
        for _ in range(2):  # twice, to remove rounding errors
            for i in range(j):
                basis[:, j] -= _sum_in_order(basis[:, i] * basis[:, j]) * basis[:, i]
        length = np.sqrt(_sum_in_order(basis[:, j] ** 2))
        basis[:, j] = basis[:, j] / length if length > 1e-6 * before else 0.0
    return basis
