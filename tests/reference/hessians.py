"""Hessians of losses with coupled outputs, float32, packed as lower triangles."""

import numpy as np

from reference.quantised_gradients import F32


def packed(H):
    """Return (n, K (K + 1) / 2): the lower triangles of `H` (n, K, K), row by row."""
    return H[:, *np.tril_indices(H.shape[1])]


def softmax_hessian(p):
    """Return float32 diag(p) - p p', packed, of float32 probabilities (n, K), floored on the
    diagonal.

    1 - p is the sum of the preceding and the following probabilities, each added in order from its
    end.
    """
    before, after = np.zeros_like(p), np.zeros_like(p)
    before[:, 1:] = np.cumsum(p, axis=1)[:, :-1]
    after[:, :-1] = np.cumsum(p[:, ::-1], axis=1)[:, ::-1][:, 1:]
    H = -(p[:, :, None] * p[:, None, :])
    return pack_with_diagonal(H, p * (before + after))


def exponential_hessian(e, label, n_classes):
    """Return float32 e v v', packed, of the losses e (n,).

    v is 1 - 1/K for the class of a row, and -1/K for the others.
    """
    other = F32(1) / F32(n_classes)
    own = F32(1) - other
    is_own = np.arange(n_classes) == label[:, None]
    pair = np.where(is_own[:, :, None] | is_own[:, None, :], -(own * other), other * other)
    diagonal = np.where(is_own, own * own, other * other)
    return pack_with_diagonal(pair * e[:, None, None], diagonal * e[:, None])


def margin_hessian(e, total, label):
    """Return a packed float32 Hessian of the factors e (n, K) of the other classes.

    `total` (n,) holds their sums.
    """
    rows, n_classes = np.arange(len(e)), e.shape[1]
    H = np.zeros((len(e), n_classes, n_classes), F32)
    H[rows, label] = H[rows, :, label] = F32(-0.25) * e
    diagonal = F32(0.25) * e
    diagonal[rows, label] = F32(0.25) * total
    return pack_with_diagonal(H, diagonal)


def pack_with_diagonal(H, diagonal):
    """Pack `H` (n, K, K) with the given diagonal (n, K), floored as Hessians are."""
    i = np.arange(H.shape[1])
    H[:, i, i] = np.maximum(diagonal, F32(1e-16))
    return packed(H)
