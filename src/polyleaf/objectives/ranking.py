"""Losses of rankings: the scores order the rows (documents) of each query.

The target has a column for each goal: relevance, 0 or more. A row of weight 0 has no judgement for
a goal and is not part of the query for this goal. Each output learns one goal, or with
`goal_weights` a weighted sum of the goals' losses.

The losses do not change if a constant is added to all scores of a query, so the base score is 0.
Queries with one rated row, or with one relevance, have no derivatives. Rows of equal score are
treated alike, whatever their order, so that models do not depend on the order of the rows.

A weight that is the same for all rows of a query is the weight of the query. A weight that differs
belongs to the row, as in learning from clicks, whose weight is the inverse of the probability that
a position is examined (Joachims, Swaminathan and Schnabel, "Unbiased learning-to-rank with biased
feedback", WSDM 2017).

Derivatives are in cpp/losses/query_losses.cpp.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives._utils import Floats
from polyleaf.objectives.base import Array, BoundObjective, Objective, as_matrices, check_domain
from polyleaf.objectives.registry import register
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.context import Context
from polyleaf.runtime.queries import (
    GAIN_RANGE,
    Gains,
    Queries,
    check_gains,
    compute_gains,
    is_gain,
    make_discounts,
)
from polyleaf.runtime.row_data import RowData

# Share of a row without relevance in the distribution of `XeNdcg`: the mean of the random shares
# that its paper draws from [0, 1].
_LEAST_SHARE = 0.5
_ALL_RANKS = 2**62
# Of `YetiRank`. Its paper has no size of pairs: with 1, a query of 20 rows has about the Hessians
# of a logistic loss, which suit reg_lambda and min_child_weight.
_N_ORDERS, _RANK_DECAY, _PAIR_SIZE = 10, 0.85, 1.0


@dataclass(frozen=True)
class RankingObjective(Objective):
    """A loss of the scores of queries.

    Parameters
    ----------
    gains : {"exponential", "linear"} or tuple of float, default "exponential"
        Gain of a relevance r: 2^r - 1, r, or entry r of a table, whose entries must not decrease.
    goal_weights : tuple of tuple of float, shape (m, K), optional
        Weights of the K goals in each of m outputs: one model then holds m trade-offs. Default: K
        outputs, each of which learns its goal.
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("relevance",)
    parameters: ClassVar[Mapping[str, str]] = {"gains": "gains", "goal_weights": "goal_weights"}
    separable: ClassVar[bool] = False
    has_full_hessian: ClassVar[bool] = False
    is_row_separable: ClassVar[bool] = False
    default_metric: ClassVar[str] = "ndcg@10"

    gains: Gains = "exponential"
    goal_weights: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "gains", check_gains(self.gains))
        if self.goal_weights is None:
            return
        weights = np.asarray(self.goal_weights, dtype=np.float64)
        if weights.ndim != 2 or 0 in weights.shape:
            raise ValueError(
                "goal_weights must have a row for each output and a column for each goal; got "
                f"shape {weights.shape}."
            )
        in_range = (weights == 0) | ((weights >= 1e-9) & (weights <= 1e9))
        if not (in_range.all() and weights.any(axis=1).all()):
            raise ValueError(
                "goal_weights must be 0 or from 1e-9 to 1e9, and not all 0 in a row; got "
                f"{self.goal_weights!r}."
            )
        object.__setattr__(self, "goal_weights", tuple(map(tuple, weights.tolist())))

    def n_scores(self, n_targets: int) -> int:
        return n_targets if self.goal_weights is None else len(self.goal_weights)

    def score_columns(self, n_scores: int) -> NDArray[np.intp]:
        """Column of the target of each score; with `goal_weights` its most important goal."""
        if self.goal_weights is None:
            return super().score_columns(n_scores)
        return np.argmax(self.goal_weights, axis=1)

    def metric_parameters(self) -> dict[str, Any]:
        return {"gains": self.gains, "goal_weights": self.goal_weights}

    def check_target(self, rows: RowData) -> None:
        """Raise ValueError if a relevance is outside the domain of the gains.

        Parameters
        ----------
        rows : RowData
            Targets (n, K), weights (n, 1) or (n, K), or None.
        """
        target = rows.target
        is_valid = is_gain(target)
        domain = f"relevances that are {GAIN_RANGE}"
        if self.gains != "linear":
            largest = 31 if self.gains == "exponential" else len(self.gains) - 1
            is_valid &= (target <= largest) & (target == np.floor(target))
            hint = 'as gains="exponential" needs; gains="linear" takes any numbers'
            if self.gains != "exponential":
                hint = "of which gains has entries"
            domain = f"whole numbers from 0 to {largest}, {hint}"
        check_domain(is_valid, rows, self.name, domain)

    def bind(self, rows: RowData) -> BoundRankingObjective:
        if rows.query is None:
            raise ValueError(
                f"Objective {self.name!r} ranks the rows of queries: pass qid to the fit of a "
                "PolyleafRanker."
            )
        rows = as_matrices(rows)
        n_goals = rows.target.shape[1]
        if self.goal_weights is not None and len(self.goal_weights[0]) != n_goals:
            raise ValueError(
                f"goal_weights has {len(self.goal_weights[0])} columns, but y has {n_goals} goals."
            )
        self.check_target(rows)
        return BoundRankingObjective(self, rows)

    @abstractmethod
    def make_loss(self, bound: BoundRankingObjective) -> _core.QueryLoss:
        """Return the core's loss of the rows.

        Parameters
        ----------
        bound : BoundRankingObjective
            This objective, bound to the rows.
        """


class BoundRankingObjective(BoundObjective):
    """A `RankingObjective` bound to data.

    Attributes
    ----------
    queries : Queries
    """

    objective: RankingObjective

    def __init__(self, objective: RankingObjective, rows: RowData) -> None:
        n_goals = rows.target.shape[1]
        super().__init__(objective, rows, objective.n_scores(n_goals))
        assert rows.query is not None
        self.queries = Queries.make(rows.query, n_goals, rows.weight)
        if objective.goal_weights is not None and rows.weight is not None:
            self.weight = _weigh_outputs(rows.weight, np.asarray(objective.goal_weights))
        self._loss = objective.make_loss(self)

    @property
    def gains(self) -> Floats:
        """Gain of each relevance, (n, K)."""
        return compute_gains(self.target, self.objective.gains)

    def make_loss(
        self,
        target: Floats,
        scale: Floats,
        pairs: _core.PairLossOptions | None = None,
        neighbours: _core.NeighbourLossOptions | None = None,
    ) -> _core.QueryLoss:
        """Return the core's loss of targets (n, K).

        `scale` (n_queries, K): see cpp/losses/query_losses.h; queries whose relevances are all the
        same are left out.
        """
        goal_weights = self.objective.goal_weights
        self._used = self.queries.find_varied(self.target) & (scale > 0)
        return _core.QueryLoss(
            rows=self.queries.rows,
            begin=self.queries.begin,
            target=target.astype(np.float32),
            weight=self.rows.weight,
            scale=np.where(self._used, scale, 0.0),
            goal_weight=None if goal_weights is None else np.array(goal_weights, np.float32),
            pairs=pairs,
            neighbours=neighbours,
        )

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        return np.zeros(self.n_outputs)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        assert h is not None  # the Hessian is never constant
        self._loss.derivatives(raw, g, h, n_threads)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        losses = self._loss.losses(raw, n_threads)
        weight = np.where(self._used, self.queries.weight, 0.0)
        if self.objective.goal_weights is not None:
            weight = _weigh_outputs(weight, np.asarray(self.objective.goal_weights))
        total = math.fsum(weight.ravel())
        return math.fsum(losses.ravel()) / total if total > 0 else 0.0


def _weigh_outputs(weight: NDArray[np.float32], goal_weights: Floats) -> NDArray[np.float32]:
    """Return the weights of rows in each output, (n, 1) or (n, m), of their weights for goals."""
    if weight.shape[1] == 1:
        return weight
    total, m = np.zeros((len(weight), len(goal_weights))), goal_weights.shape[1]
    for k in range(m):
        total += weight[:, k : k + 1] * goal_weights[:, k]
    return (total / goal_weights.sum(axis=1)).astype(np.float32)


@register
@dataclass(frozen=True)
class XeNdcg(RankingObjective):
    """Cross entropy of the softmax of the scores and the distribution of gains (Bruch, "An
    alternative cross entropy loss for learning-to-rank", 2019, arXiv 1911.09798): a convex bound of
    NDCG, in time linear in the rows.

    With scores s, weights w, r = softmax(s) and p_i = (gain_i + 1/2) / sum_j (gain_j + 1/2):
    ``loss = - sum_i w_i p_i ln r_i``, ``g_i = c r_i - w_i p_i``, ``h_i = c r_i (1 - r_i)``, where
    ``c = sum_j w_j p_j``. The paper draws 2^y - u with u in [0, 1] for each row in each round; its
    mean is used here, so that a model does not depend on the order of the rows.
    """

    name: ClassVar[str] = "xendcg"
    aliases: ClassVar[tuple[str, ...]] = (
        "rank_xendcg",
        "xe_ndcg",
        "xe_ndcg_mart",
        "xendcg_mart",
        "listwise",
    )

    def make_loss(self, bound: BoundRankingObjective) -> _core.QueryLoss:
        queries = bound.queries
        share = bound.gains + _LEAST_SHARE
        total = queries.sum(np.where(queries.is_rated, share, 0.0))[queries.number]
        target = np.divide(share, total, out=np.zeros_like(share), where=queries.is_rated)
        target = (target * queries.row_weight).astype(np.float32).astype(np.float64)
        return bound.make_loss(target, queries.sum(target))


@dataclass(frozen=True)
class _PairObjective(RankingObjective):
    """A sum of losses ``w_ij ln(1 + e^(s_j - s_i))`` over pairs of rows, i more relevant than j."""

    def _make_pairs(
        self,
        bound: BoundRankingObjective,
        measure: str,
        truncation: int | None,
        largest_difference: float,
        normalise: bool,
    ) -> _core.PairLossOptions:
        discounts, sums = make_discounts(bound.queries.n_longest)
        return _core.PairLossOptions(
            measure=measure,
            truncation=_ALL_RANKS if truncation is None else truncation,
            largest_difference=largest_difference,
            normalise=normalise,
            discount=discounts,
            discount_sums=sums,
        )


@register
@dataclass(frozen=True)
class LambdaRank(_PairObjective):
    """LambdaMART (Burges, "From RankNet to LambdaRank to LambdaMART: an overview", MSR-TR-2010-82):
    pairs weigh as much as NDCG, or average precision, changes if the two rows are exchanged.

    With ranks by the present scores s, discounts d = 1 / log2(rank + 1), the largest possible DCG Z
    and a row i that is more relevant than j:
    ``w_ij = weight_i (gain_i - gain_j) |d_i - d_j| / Z``, and
    ``g_i = - sum_j w_ij / (1 + e^(s_i - s_j))``; j has the negative of each term. The Hessian of
    both is ``w_ij p (1 - p)`` with p the fraction. Wang et al., "The LambdaLoss framework for
    ranking metric optimization" (CIKM 2018), say which loss this minimises. Rows of equal score
    have no order: d_i - d_j is the mean over their possible orders.

    Parameters
    ----------
    truncation : int, optional
        Pairs count only if the row with the greater score is at one of so many first ranks; Z is
        that of these ranks. None: all pairs.
    lambda_metric : {"ndcg", "map"}, default "ndcg"
        Metric whose change is the weight. Relevant for "map" are rows of relevance above 0.
    lambda_normalization : bool, default True
        Divide w_ij by ``0.01 + |s_i - s_j|``, and the derivatives of a query by s / log2(1 + s),
        where s is the sum of their magnitudes, as LightGBM does.
    """

    name: ClassVar[str] = "lambdarank"
    aliases: ClassVar[tuple[str, ...]] = ("rank:ndcg", "lambdamart")
    parameters: ClassVar[Mapping[str, str]] = {
        **RankingObjective.parameters,
        "truncation": "truncation",
        "lambda_metric": "lambda_metric",
        "lambda_normalization": "lambda_normalization",
    }

    truncation: int | None = 30
    lambda_metric: str = "ndcg"
    lambda_normalization: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.lambda_metric, ("ndcg", "map"), "Objective 'lambdarank': lambda_metric")
        if self.truncation is not None and self.truncation < 1:
            raise ValueError(f"truncation must be at least 1, or None; got {self.truncation!r}.")

    def make_loss(self, bound: BoundRankingObjective) -> _core.QueryLoss:
        queries, is_map = bound.queries, self.lambda_metric == "map"
        if is_map:
            target = (bound.target > 0).astype(np.float64)
            best = queries.sum(np.where(queries.is_rated, target, 0.0))
        else:
            target = bound.gains
            best = queries.compute_ideal_dcg(target, self.truncation)
        scale = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0)
        pairs = self._make_pairs(
            bound,
            self.lambda_metric,
            self.truncation,
            1.0 if is_map else math.inf,
            self.lambda_normalization,
        )
        return bound.make_loss(target, scale, pairs)


@register
@dataclass(frozen=True)
class PairwiseRank(_PairObjective):
    """RankNet (Burges et al., "Learning to rank using gradient descent", ICML 2005): all pairs of
    different relevance weigh alike, ``w_ij = weight_i``, before the normalisation; see
    `LambdaRank`.

    Parameters
    ----------
    lambda_normalization : bool, default True
        As for `LambdaRank`. False: the loss itself.
    """

    name: ClassVar[str] = "pairwise"
    aliases: ClassVar[tuple[str, ...]] = ("rank:pairwise", "pairlogit", "ranknet")
    parameters: ClassVar[Mapping[str, str]] = {
        **RankingObjective.parameters,
        "lambda_normalization": "lambda_normalization",
    }

    lambda_normalization: bool = True

    def make_loss(self, bound: BoundRankingObjective) -> _core.QueryLoss:
        levels = np.unique(bound.target, return_inverse=True)[1].reshape(bound.target.shape)
        pairs = self._make_pairs(bound, "none", None, 1.0, self.lambda_normalization)
        scale = np.ones((bound.queries.n, bound.target.shape[1]))
        return bound.make_loss(levels.astype(np.float64), scale, pairs)


@register
@dataclass(frozen=True)
class YetiRank(RankingObjective):
    """Pairs of neighbours in random orders (Gulin, Kuralenok and Pavlov, "Winning the transfer
    learning track of Yahoo!'s learning to rank challenge with YetiRank", JMLR W&CP 14, 2011).

    A query is ordered by the present scores plus noise of the Gumbel distribution, ten times in
    each round. Neighbours i, more relevant, and j, the upper one at rank k from 0, have the loss
    ``w_ij ln(1 + e^(s_j - s_i))`` with ``w_ij = weight_i 0.85^k (y_i - y_j) / max y``, where y is
    the relevance, not its gain, for the first 30 ranks. The noise keeps trees from fitting the
    order of few, noisy judgements. It follows from the scores and relevances of the query, so that
    models depend on neither `random_state` nor the order of the rows.
    """

    name: ClassVar[str] = "yetirank"

    def make_loss(self, bound: BoundRankingObjective) -> _core.QueryLoss:
        queries, target = bound.queries, bound.target.astype(np.float64)
        best = queries.find_largest(target)
        scale = np.divide(_PAIR_SIZE, best, out=np.zeros_like(best), where=best > 0)
        discount = np.cumprod([1.0] + [_RANK_DECAY] * 29, dtype=np.float64)
        neighbours = _core.NeighbourLossOptions(
            n_orders=_N_ORDERS, discount=discount, noise=_make_noise()
        )
        return bound.make_loss(target, scale, neighbours=neighbours)


def _make_noise() -> NDArray[np.float32]:
    """Return 4,096 quantiles of the Gumbel distribution."""
    levels = (np.arange(4096.0) + 0.5) / 4096
    return (-_core.log(-_core.log(levels))).astype(np.float32)
