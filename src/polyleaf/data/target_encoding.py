"""What the target is in each category of a feature, learned so that training rows do not see their own.

A statistic of a category is the sum of the standardised target over its rows, divided by their number and a
prior: the rows that a category needs to say as much as the others together, which is the variance within
categories over that between them, by moments. For new rows it is taken from all rows. A training row must not
see itself, or trees would learn from a copy of the target: it sees the rows of the other four of five folds,
unless its category has so many rows that its own is lost among them.

Where the mean is not all that differs between categories, the slope of the target against a numeric feature
may: then a category has its slope, too. And where the other features say already what the
categories say, a statistic is one more column of noise to trees, and left out.

Owns: these statistics, and how many columns they make. Must not know: how tables are read, bins, trees.

Additions are in one order on every machine: no BLAS, and no sum of NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.data.high_cardinality import DerivedColumns, HighCardinalityFeature, category_key
from polyleaf.inputs.features import CategoryColumn
from polyleaf.inputs.targets import Target

__all__ = ["FeatureCodes", "learn"]

# Measured: docs/categories.md.
_FOLDS = 5
_KNOWN = (
    20.0  # rows over the prior from which on a row's own target is lost among those of its category
)
_MOST_OUTPUTS = 32  # each with statistics of its own; above, these directions of all outputs
_DIRECTIONS = 16
_MOST_SLOPES = 2
_SLOPE_SHARE = 0.15  # least share of the variance within categories that their slopes make
_SLOPE_SIGMAS = 5.0  # ... and how unlikely that must be by chance
_SCREENED = (20_000, 64, 8)  # rows, other features and outputs that are looked through for slopes
_LEAST_SHARE = 0.04  # of what the other features leave, for a statistic to be worth its column
_PASSES, _STEP = 3, 0.5  # of the sum of functions of the other features that tells
_MOST_PARTS, _MOST_COLUMNS = 4, 32  # columns that share one statistic, and of one feature
_GROUP_PRIOR = 0.15  # up to this prior the categories of a single output are offered themselves,
_MOST_GROUPS, _GROUP_SIZE = 16, 254  # in so many columns of so many
_LEAST_PRIOR, _LARGEST_PRIOR = 0.01, 1e4
_DOUBT = 10.0  # pairs of rows of one category that are thought to differ as any two do: some data has hardly any
_HASHED = 128  # columns that more outputs than that are added to before directions are found
_ITERATIONS = 4

Array = NDArray[np.float64]


class FeatureCodes(NamedTuple):
    """Another feature, by its bins."""

    name: str
    codes: NDArray[np.uint8]
    n_bins: int
    is_numeric: bool = True


class _Output(NamedTuple):
    """One column of the target: standardised, with weights that are 1 on average; None: all 1."""

    label: str
    values: Array
    weight: Array | None


def learn(
    columns: Sequence[CategoryColumn],
    others: Sequence[FeatureCodes],
    target: Target,
    n_features: int,
    n_threads: int,
) -> tuple[DerivedColumns, dict[int, NDArray[np.float32]]]:
    """Learn the statistics of wide features.

    Parameters
    ----------
    columns : sequence of CategoryColumn
        The wide features.
    others : sequence of FeatureCodes
        Features that may say already what the categories say, or whose slopes may differ by category.
    target : Target
    n_features : int
        Of the table.
    n_threads : int
        Any number gives the same result.

    Returns
    -------
    made : DerivedColumns
    training : dict from feature to ndarray of shape (n_rows, n_statistics), float32
        What the rows that were learned from are to see.
    """
    outputs = _Outputs(target, n_threads)
    learners = [
        _Learner(column, outputs, others) for column in sorted(columns, key=lambda c: c.feature)
    ]
    made = DerivedColumns(n_features, tuple(learner.wide for learner in learners))
    return made, {learner.wide.feature: learner.training for learner in learners}


class _Learner:
    """The statistics of one feature."""

    def __init__(
        self, column: CategoryColumn, outputs: _Outputs, others: Sequence[FeatureCodes]
    ) -> None:
        categories, place = _positions(column, outputs.row_weight)
        self._rows = np.flatnonzero(place >= 0)
        self._place, self._n = place[self._rows], len(categories)
        self._fold = _folds(self._place, self._rows)
        taken = [
            _taken(output, self._rows) for output in outputs.of(self._place, self._rows, self._n)
        ]
        self._some = _some(self._place)
        bins = [
            other.codes[self._rows[self._some]].astype(np.int64) for other in others[: _SCREENED[1]]
        ]
        left = [_left_by(bins, self._some, output) for output in taken] if others else []
        means = [self._mean(output) for output in taken]
        priors = [mean.prior for mean in means]
        for k, output in enumerate(left):
            share, priors[k] = self._share(output)
            if share < _LEAST_SHARE:
                means[k] = means[k].nothing()
        self._found = [statistic for statistic in means if statistic.values.any()] or means[:1]
        n_groups = 0
        if len(means) == 1 and priors[0] <= _GROUP_PRIOR:
            n_groups = min(_MOST_GROUPS, -(-self._n // _GROUP_SIZE))
        parts = [self._parts_of(statistic) for statistic in self._found]
        slopes = [self._slope(taken[k], other) for k, other in self._strongest_slopes(left, others)]
        self._found += slopes
        parts += [[(-np.inf, np.inf)]] * len(slopes)
        self.training = self._of_training(len(place))
        self.wide = HighCardinalityFeature(
            column.feature,
            categories,
            tuple(statistic.label for statistic in self._found),
            np.stack([statistic.values for statistic in self._found], 1).astype(np.float32),
            np.repeat(np.arange(len(parts), dtype=np.int32), [len(p) for p in parts]),
            np.array([low for part in parts for low, _ in part], np.float32),
            np.array([high for part in parts for _, high in part], np.float32),
            n_groups,
            missing_seen=bool(np.any(_seen(column, outputs.row_weight) < 0)),
        )

    def _mean(self, output: _Output) -> _Statistic:
        label, values, weight = output
        sums, counts = _sums(self._place, values, weight, self._n)
        prior = _prior(values, weight, sums, counts)
        cell = self._place * _FOLDS + self._fold
        own, own_counts = _sums(cell, values, weight, self._n * _FOLDS)
        left = np.maximum(counts[self._place] - own_counts[cell], 0.0)
        others = (sums[self._place] - own[cell]) / (left + prior)
        return _Statistic(label, sums / (counts + prior), others, counts >= _KNOWN * prior, prior)

    def _slope(self, output: _Output, feature: FeatureCodes) -> _Statistic:
        """Of the target against a number's ranks within each category, less that of all rows. A row sees
        nothing of its own fold: neither in the products, nor in the means that are taken off them."""
        ranks = _ranks(feature)[self._rows]
        cell = self._place * _FOLDS + self._fold
        whole = _Moments.of(self._place, output.values, ranks, output.weight, self._n)
        own = _Moments.of(cell, output.values, ranks, output.weight, self._n * _FOLDS)
        slopes, others = whole.within(), whole.at(self._place).less(own.at(cell)).within()
        common, prior = slopes.common(), slopes.spread()[0]
        unknown = np.zeros(self._n, bool)
        label = output.label.replace("mean", f"slope by {feature.name}", 1)
        return _Statistic(
            label, slopes.drawn(common, prior), others.drawn(common, prior), unknown, prior
        )

    def _share(self, left: _Output) -> tuple[float, float]:
        """Of the variance that is left of an output, what the means of categories explain to rows that did
        not teach them, by moments; and the prior of these means."""
        sums, counts = _sums(self._place[self._some], left.values, left.weight, self._n)
        prior = _prior(left.values, left.weight, sums, counts)
        taught = counts * (1.0 - 1.0 / _FOLDS)
        explained = _total(counts * taught / (taught + prior)) / max(_total(counts), 1e-300)
        return explained / (1.0 + prior), prior

    def _strongest_slopes(
        self, left: Sequence[_Output], others: Sequence[FeatureCodes]
    ) -> list[tuple[int, FeatureCodes]]:
        """The few outputs and numbers whose slopes differ most between categories."""
        _, features, outputs = _SCREENED
        place, rows, found = self._place[self._some], self._rows[self._some], []
        for j, feature in enumerate(others[:features]):
            if not feature.is_numeric:
                continue
            ranks = _ranks(feature)[rows]
            for k, (_, values, weight) in enumerate(left[:outputs]):
                _, share, sigmas = (
                    _Moments.of(place, values, ranks, weight, self._n).within().spread()
                )
                if sigmas >= _SLOPE_SIGMAS and share >= _SLOPE_SHARE:
                    found.append((-share, j, k))
        return [(k, others[j]) for _, j, k in sorted(found)[:_MOST_SLOPES]]

    def _of_training(self, n_rows: int) -> NDArray[np.float32]:
        training = np.full((n_rows, len(self._found)), np.nan, np.float32)
        for k, statistic in enumerate(self._found):
            known = statistic.known[self._place]
            training[self._rows, k] = np.where(
                known, statistic.values[self._place], statistic.others
            )
        return training

    def _parts_of(self, statistic: _Statistic) -> list[tuple[float, float]]:
        """Parts of its range: several where its values are exact enough to be told apart."""
        known = int(np.count_nonzero(statistic.known))
        most = max(1, min(_MOST_PARTS, _MOST_COLUMNS // len(self._found)))
        if 2 * np.count_nonzero(statistic.known[self._place]) <= len(self._place):
            most = 1
        values = np.unique(statistic.values[statistic.known].astype(np.float32))
        n = min(most, -(-known // _GROUP_SIZE), max(1, len(values)))
        edges = [-np.inf, *(float(values[len(values) * i // n]) for i in range(1, n)), np.inf]
        return list(pairwise(edges))


class _Statistic(NamedTuple):
    """One number for each category.

    Attributes
    ----------
    label : str
    values : of each category, from all rows
    others : of each row, from the rows of the other folds
    known : whether a category has so many rows that its own rows may see all of them
    prior : float
    """

    label: str
    values: Array
    others: Array
    known: NDArray[np.bool_]
    prior: float

    def nothing(self) -> _Statistic:
        """The same where nothing is known."""
        none = np.zeros_like(self.known)
        return _Statistic(self.label, self.values * 0.0, self.others * 0.0, none, _LARGEST_PRIOR)


class _Moments(NamedTuple):
    """Numbers of rows, sums, squares and products of a target v and of a number r, by place, weighted."""

    rows: Array
    v: Array
    r: Array
    vv: Array
    rr: Array
    vr: Array

    @classmethod
    def of(
        cls, place: NDArray[np.int64], v: Array, r: Array, weight: Array | None, n: int
    ) -> _Moments:
        sums = [_sums(place, column, weight, n) for column in (v, r, v * v, r * r, v * r)]
        return cls(sums[0][1], *(column for column, _ in sums))

    def at(self, place: NDArray[np.int64]) -> _Moments:
        return _Moments(*(column[place] for column in self))

    def less(self, other: _Moments) -> _Moments:
        return _Moments(*(a - b for a, b in zip(self, other, strict=True)))

    def within(self) -> _Slopes:
        """Squares and products about the means of each place; 0 where there are no rows."""
        pairs = (self.vv, self.v, self.v), (self.rr, self.r, self.r), (self.vr, self.v, self.r)
        return _Slopes(self.rows, *(self._about_means(*pair) for pair in pairs))

    def _about_means(self, products: Array, first: Array, second: Array) -> Array:
        means = np.divide(
            first * second, self.rows, out=np.zeros_like(self.rows), where=self.rows > 0.5
        )
        return np.where(self.rows > 0.5, products - means, 0.0)


class _Slopes(NamedTuple):
    """Numbers of rows, and squares and products about the means, by place; in each v = slope r + noise."""

    rows: Array
    vv: Array
    rr: Array
    vr: Array

    def common(self) -> float:
        squares = _total(self.rr)
        return _total(self.vr) / squares if squares > 0 else 0.0

    def drawn(self, common: float, prior: float) -> Array:
        """Of each place, less the common one, drawn to 0 by a prior in units of r^2."""
        squares = np.maximum(self.rr, 0.0)
        return (self.vr - common * squares) / (squares + prior)

    def spread(self) -> tuple[float, float, float]:
        """How the slopes of places differ, by moments.

        Returns
        -------
        prior : float
            Variance of the noise over that of the slopes.
        share : float
            Of the variance of v within places, what the slopes make.
        sigmas : float
            By how many deviations the slopes' variance is above 0.
        """
        common, rr = self.common(), np.maximum(self.rr, 0.0)
        vr = self.vr - common * rr
        vv = self.vv - common * (2.0 * vr + common * rr)
        freedom = _total(self.rows) - np.count_nonzero(self.rows > 0) + _DOUBT
        all_of_it, squares = _total(vv), _total(rr * rr)
        noise = all_of_it / freedom
        excess = _total(vr * vr) - noise * _total(rr)
        if squares <= 0 or noise <= 0 or excess <= 0:
            return _LARGEST_PRIOR, 0.0, 0.0
        share = excess / squares * _total(rr) / all_of_it
        prior = np.clip(
            max(1.0 - share, 0.0) * noise * squares / excess, _LEAST_PRIOR, _LARGEST_PRIOR
        )
        return float(prior), share, excess / noise / np.sqrt(2.0 * squares)


# ---- the target --------------------------------------------------------------------------------------------


class _Outputs:
    """The columns of a target that statistics are taken of."""

    def __init__(self, target: Target, n_threads: int) -> None:
        self._n_threads = n_threads
        weight = target.get_indicator_weights()
        self.row_weight: Array | None = None
        if weight is not None:
            rows = weight if weight.ndim == 1 else weight.max(axis=1)
            self.row_weight = _of_mean_one(rows.astype(np.float64))
        values = target.to_indicators()
        n_outputs = values.shape[1]
        self._plain: list[_Output] | None = None
        if n_outputs <= _MOST_OUTPUTS:
            names = target.get_indicator_names()
            self._plain = [
                _Output(
                    "mean" if n_outputs == 1 else f"mean of {names[k]}",
                    *_standardised(_column(values, k), self._weight_of(weight, k)),
                )
                for k in range(n_outputs)
            ]
        else:
            self._many = self._standardised_all(_hashed(values))

    def _weight_of(self, weight: Any, k: int) -> Array | None:
        if weight is None or weight.ndim == 1:
            return self.row_weight
        return _of_mean_one(weight[:, k].astype(np.float64))

    def _standardised_all(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        for k in range(values.shape[1]):
            values[:, k] = _standardised(values[:, k].astype(np.float64), self.row_weight)[0]
        return values

    def of(self, place: NDArray[np.int64], rows: NDArray[np.int64], n: int) -> Iterator[_Output]:
        """The columns for a feature whose categories are at `place` in `rows`."""
        if self._plain is not None:
            yield from self._plain
            return
        matrix = self._directions(place, rows, n)
        projected = _core.sketch_project(self._many, matrix, 1.0, self._n_threads)
        for k in range(matrix.shape[1]):
            column = projected[:, k].astype(np.float64)
            yield _Output(f"mean in direction {k}", *_standardised(column, self.row_weight))

    def _directions(
        self, place: NDArray[np.int64], rows: NDArray[np.int64], n: int
    ) -> NDArray[np.float32]:
        """(columns, directions): those that the means of categories differ most along."""
        means = np.empty((n, self._many.shape[1]), np.float32)
        weight = None if self.row_weight is None else self.row_weight[rows]
        for k in range(means.shape[1]):
            column = self._many[rows, k].astype(np.float64)
            sums, counts = _sums(place, column, weight, n)
            prior = _prior(column, weight, sums, counts)
            means[:, k] = sums / (counts + prior) * np.sqrt(counts)
        transposed = np.ascontiguousarray(means.T)
        bits = _mix(np.arange(means.shape[1] * _DIRECTIONS)) >> np.uint64(63)
        basis = np.where(bits == 0, -1.0, 1.0).reshape(-1, _DIRECTIONS)
        for _ in range(_ITERATIONS):
            basis = _orthonormal(basis)
            seen = _core.sketch_project(means, basis.astype(np.float32), 1.0, self._n_threads)
            basis = _core.sketch_project(transposed, seen, 1.0, self._n_threads).astype(np.float64)
        return _orthonormal(basis).astype(np.float32)


def _column(values: Any, k: int) -> Array:
    column = values[:, [k]].toarray()[:, 0] if scipy.sparse.issparse(values) else values[:, k]
    return np.asarray(column, np.float64)


def _hashed(values: Any) -> NDArray[np.float32]:
    """Outputs added up in at most `_HASHED` columns, with signs: (n, columns), float32, to be changed."""
    n_rows, n_outputs = values.shape
    if n_outputs <= _HASHED:
        dense = values.toarray() if scipy.sparse.issparse(values) else values
        return np.array(dense, np.float32, order="C")
    bits = _mix(np.arange(n_outputs))
    place, sign = (
        (bits % np.uint64(_HASHED)).astype(np.int64),
        np.where(bits >> np.uint64(63), 1.0, -1.0),
    )
    columns = np.zeros((n_rows, _HASHED), np.float32)
    if scipy.sparse.issparse(values):
        row = np.repeat(np.arange(n_rows), np.diff(values.indptr))
        np.add.at(columns, (row, place[values.indices]), values.data * sign[values.indices])
    else:
        for k in range(n_outputs):
            columns[:, place[k]] += values[:, k] * sign[k]
    return columns


# ---- rows and categories -----------------------------------------------------------------------------------


def _seen(column: CategoryColumn, weight: Array | None) -> NDArray[np.int32]:
    """The categories of rows that weigh something, by index; -1: missing."""
    return column.index if weight is None else column.index[weight > 0]


def _positions(
    column: CategoryColumn, weight: Array | None
) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """Categories that some row weighs something of, sorted, and which one each row has; -1: none."""
    seen = _seen(column, weight)
    used = np.bincount(seen[seen >= 0], minlength=len(column.categories)) > 0
    order = sorted(np.flatnonzero(used).tolist(), key=lambda i: category_key(column.categories[i]))
    position = np.full(len(column.categories) + 1, -1, np.int64)  # the last one is for missing
    position[order] = np.arange(len(order))
    return tuple(column.categories[i] for i in order), position[column.index]


def _some(place: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where so many rows are looked at as are screened: those of some categories, all of them."""
    step = np.uint64(max(1, len(place) // _SCREENED[0]))
    return np.flatnonzero(_mix(place) % step == 0)


def _folds(place: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A fold for each row: the rows of a category are dealt out in an order of chance."""
    order = np.lexsort((_mix(rows), place))
    sorted_place = place[order]
    begin = np.concatenate([[True], sorted_place[1:] != sorted_place[:-1]])
    start = np.maximum.accumulate(np.where(begin, np.arange(len(place)), 0))
    folds = np.empty(len(place), np.int64)
    first = (_mix(sorted_place) % np.uint64(_FOLDS)).astype(np.int64)
    folds[order] = (np.arange(len(place)) - start + first) % _FOLDS
    return folds


def _sums(
    place: NDArray[np.int64], values: Array, weight: Array | None, n: int
) -> tuple[Array, Array]:
    """Sums and numbers of rows by place, (n,) each, both weighted."""
    if weight is not None:
        values = values * weight
    counts = np.bincount(place, weight, n)
    return np.bincount(place, values, n).astype(np.float64), counts.astype(np.float64)


def _left_by(bins: Sequence[NDArray[np.int64]], rows: NDArray[np.intp], output: _Output) -> _Output:
    """What a sum of functions of other features leaves of an output in some rows, whose bins these are."""
    left, weight = output.values[rows], None if output.weight is None else output.weight[rows]
    for codes in [*bins] * _PASSES:
        sums, counts = _sums(codes, left, weight, 256)
        left = left - _STEP * (sums / (counts + _prior(left, weight, sums, counts)))[codes]
    return _Output(output.label, _centred(left, weight), weight)


def _prior(values: Array, weight: Array | None, sums: Array, counts: Array) -> float:
    """Variance within categories over that between them, from their sums and numbers of rows."""
    used = counts > 0
    n_used, total = int(np.count_nonzero(used)), _total(counts)
    if n_used < 2:
        return _LARGEST_PRIOR
    squares = values * values
    all_of_it = _total(squares if weight is None else squares * weight)
    between = _total(np.divide(sums * sums, counts, out=np.zeros_like(sums), where=used))
    within = (max(all_of_it - between, 0.0) + _DOUBT * all_of_it / total) / (
        total - n_used + _DOUBT
    )
    spread = between / (n_used - 1)
    if spread <= within:
        return _LARGEST_PRIOR
    each = (total - _total(counts * counts) / total) / (
        n_used - 1
    )  # rows of a category, on average
    return float(np.clip(within * each / (spread - within), _LEAST_PRIOR, _LARGEST_PRIOR))


def _ranks(feature: FeatureCodes) -> Array:
    """Of each row, standardised; 0 where the value is missing."""
    counts = np.bincount(feature.codes, minlength=256)[: feature.n_bins].astype(np.float64)
    total = _total(counts)
    ranks = np.cumsum(counts) - counts / 2 - total / 2
    spread = _total(counts * ranks * ranks)
    table = np.zeros(256)
    if spread > 0:
        table[: feature.n_bins] = ranks / np.sqrt(spread / total)
    return table[feature.codes]


# ---- sums in one order -------------------------------------------------------------------------------------


def _total(values: Array) -> float:
    """The sum, one after the other: NumPy's depends on the processor."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _centred(values: Array, weight: Array | None) -> Array:
    return values - _mean_of(values, weight)


def _mean_of(values: Array, weight: Array | None) -> float:
    rows = float(len(values)) if weight is None else _total(weight)
    return _total(values if weight is None else values * weight) / max(rows, 1e-300)


def _standardised(values: Array, weight: Array | None) -> tuple[Array, Array | None]:
    centred = _centred(values, weight)
    rows = float(len(values)) if weight is None else _total(weight)
    squares = centred * centred
    deviation = np.sqrt(_total(squares if weight is None else squares * weight) / max(rows, 1e-300))
    return centred / deviation if deviation > 0 else np.zeros_like(centred), weight


def _of_mean_one(weight: Array) -> Array | None:
    """Weights in units of their mean over the rows that have any; None where all are the same."""
    if len(weight) and (weight == weight[0]).all():
        return None
    return weight * (np.count_nonzero(weight) / _total(weight))


def _taken(output: _Output, rows: NDArray[np.int64]) -> _Output:
    """Of some rows, centred on them."""
    if len(rows) == len(output.values):
        return output
    weight = None if output.weight is None else output.weight[rows]
    return _Output(output.label, _centred(output.values[rows], weight), weight)


def _orthonormal(basis: Array) -> Array:
    """Columns made orthonormal one after the other; what is left of nothing becomes 0."""
    basis = basis.copy()
    for j in range(basis.shape[1]):
        before = np.sqrt(_total(basis[:, j] ** 2))
        for _ in range(2):  # once more, for what the first time rounds off
            for i in range(j):
                basis[:, j] -= _total(basis[:, i] * basis[:, j]) * basis[:, i]
        length = np.sqrt(_total(basis[:, j] ** 2))
        basis[:, j] = basis[:, j] / length if length > 1e-6 * before else 0.0
    return basis


def _mix(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """64 bits that look drawn by chance, the same for a number at all times (SplitMix64)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))
