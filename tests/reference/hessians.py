"""Hessians of losses with coupled outputs, float32, packed as lower triangles."""

import numpy as np

from reference.quantised_gradients import F32


def packed(H):
    """(n, K (K + 1) / 2): the lower triangles of `H` (n, K, K), row by row."""
    return H[:, *np.tril_indices(H.shape[1])]


def softmax_hessian(p):
    """Float32 diag(p) - p p', packed, of float32 probabilities (n, K), floored on the diagonal.

    1 - p is the sum of the probabilities before and of those after, each in order from its end.
    """
    before, after = np.zeros_like(p), np.zeros_like(p)
    before[:, 1:] = np.cumsum(p, axis=1)[:, :-1]
    after[:, :-1] = np.cumsum(p[:, ::-1], axis=1)[:, ::-1][:, 1:]
    H = -(p[:, :, None] * p[:, None, :])
    return pack_with_diagonal(H, p * (before + after))


def exponential_hessian(e, label, n_classes):
    """Float32 e v v', packed, of the losses e (n,): v is 1 - 1/K for the class of a row, -1/K
    elsewhere.
    """
    other = F32(1) / F32(n_classes)
    own = F32(1) - other
    is_own = np.arange(n_classes) == label[:, None]
    pair = np.where(is_own[:, :, None] | is_own[:, None, :], -(own * other), other * other)
    diagonal = np.where(is_own, own * own, other * other)
    return pack_with_diagonal(pair * e[:, None, None], diagonal * e[:, None])


def margin_hessian(e, total, label):
    """Float32, packed, of the factors e (n, K) of the other classes and their sums `total` (n,)."""
    rows, n_classes = np.arange(len(e)), e.shape[1]
    H = np.zeros((len(e), n_classes, n_classes), F32)
    H[rows, label] = H[rows, :, label] = F32(-0.25) * e
    diagonal = F32(0.25) * e
    diagonal[rows, label] = F32(0.25) * total
    return pack_with_diagonal(H, diagonal)


def pack_with_diagonal(H, diagonal):
    """`H` (n, K, K) with that diagonal (n, K), floored as hessians are, packed."""
    i = np.arange(H.shape[1])
    H[:, i, i] = np.maximum(diagonal, F32(1e-16))
    return packed(H)
