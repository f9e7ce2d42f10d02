"""One of several classes: exponential losses of class codes. Owns these losses.

The code of class c is the vector ``e_c - 1/K``: proportional to (1, -1/(K-1), ..., -1/(K-1)), the encoding of
SAMME and GAMBLE, and at once a corner of a regular simplex, the codeword of GD-MCBoost. The entries of each
code sum to zero, so every gradient below does. Therefore leaf values sum to zero by themselves where the
outputs of a leaf share their curvature (``leaf_hessian`` "none" or "shared"): the constraint of SAMME needs
no multiplier, and GD-MCBoost's predictor of K - 1 dimensions, seen through its codewords, is the one here of
K. So they do with ``"full"`` and ``reg_lambda > 0``, for both losses are flat along (1, ..., 1); with
``"diagonal"`` they do not.

Raw scores are logits: probabilities are their softmax. In SAMME's paper scores are (K - 1) times as large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives.multiclass import MulticlassObjective
from polyleaf.objectives.registry import register

__all__ = ["Exponential", "ExponentialMargin"]


@dataclass(frozen=True)
class _CodedClasses(MulticlassObjective):
    """What both losses have in common."""

    def best_constant(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log shares: either loss is least where the softmax of the scores is the shares."""
        scores = np.log(shares)
        return scores - scores.mean()


@register
@dataclass(frozen=True)
class Exponential(_CodedClasses):
    """``e^(mean of the scores - score_y)``: the multi-class exponential loss.

    It is ``exp(-<code, scores> / K)`` of Zhu, Zou, Rosset and Hastie, "Multi-class AdaBoost", Statistics and
    Its Interface 2, 2009 (SAMME, first order), and of Huang, Ertekin, Song, Zha and Giles, "Efficient
    multiclass boosting classification with active learning", SIAM Data Mining, 2007 (GAMBLE; second order),
    in scores divided by K - 1. The Hessian of a row has rank one: the loss times the code's outer product.
    """

    name: ClassVar[str] = "exponential"


@register
@dataclass(frozen=True)
class ExponentialMargin(_CodedClasses):
    """``sum over k != y of e^((score_k - score_y) / 2)``: an exponential of each margin.

    Saberian and Vasconcelos, "Multiclass boosting: theory and algorithms", NIPS 2011 (GD-MCBoost), where
    ``score_k = <codeword_k, f>`` with simplex codewords. AdaBoost's loss where there are two classes.
    """

    name: ClassVar[str] = "exponential_margin"
