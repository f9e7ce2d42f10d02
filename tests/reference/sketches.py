"""Sketches of outputs, and products of sparse rows with a matrix, with a fixed order of sums."""

import numpy as np

from reference.exact_totals import exponent_above, term_bits
from reference.quantised_gradients import F32
from reference.split_candidates import feature_hash
from reference.split_gain import lane_sum

RUN_OF_PRODUCT = 256  # stored terms that are summed before being added to the total


def random_sign(seed, k, j):
    """Return +1 or -1 for output k and column j: one bit of a hash of (seed, k, j // 64)."""
    return F32(1 - 2 * (feature_hash(seed, k, j // 64) >> (j % 64) & 1))


def bucket_and_sign(seed, k, n_buckets):
    """Return the bucket and sign of output k in count-sketch.

    Charikar, Chen and Farach-Colton, 2002.
    """
    z = feature_hash(seed, k, 0)
    return (z >> 32) * n_buckets >> 32, F32(1 - 2 * (z & 1))


def project(values, matrix, scale):
    """Return float32 (n, d): `values` (n, K) times `matrix` (K, d), then times `scale`.

    Terms are added in order of k from +0.
    """
    out = np.zeros((len(values), matrix.shape[1]), F32)
    for k in range(values.shape[1]):
        out = out + values[:, k : k + 1] * matrix[k]
    return out * F32(scale)


def signed_projection(values, d, seed, scale):
    """Run `project` on random signs (Achlioptas, 2003)."""
    signs = [[random_sign(seed, k, j) for j in range(d)] for k in range(values.shape[1])]
    return project(values, np.array(signs, F32), scale)


def count_sketch(values, d, seed, scale):
    """Return float32 (n, d): every output is added to one bucket with a sign, in order of k.

    The result is multiplied by `scale`.
    """
    out = np.zeros((len(values), d), F32)
    for k in range(values.shape[1]):
        bucket, sign = bucket_and_sign(seed, k, d)
        out[:, bucket] = out[:, bucket] + values[:, k] * sign
    return out * F32(scale)


def column_energy(values):
    """Return float64 (K,): sums of squares, rounded to integers in a unit set by the column
    maximum.
    """
    total = np.zeros(values.shape[1])
    for k, column in enumerate(values.T.astype(np.float64)):
        unit = np.ldexp(1.0, term_bits(len(column)) - 2 * exponent_above(np.abs(column).max()))
        total[k] = sum(int(term) for term in np.rint(column * column * unit)) / unit
    return total


def row_means(values):
    """Return float32 (n, 1): mean over outputs in virtual lanes."""
    return (lane_sum(values) * F32(1.0 / values.shape[1]))[:, None]


def orthonormal(matrix):
    """Apply Gram-Schmidt twice, in float64; a linearly dependent column becomes 0."""
    q = matrix.astype(np.float64).copy()
    for j in range(q.shape[1]):
        before = np.sqrt(ordered_dot(q[:, j], q[:, j]))
        for _ in range(2):
            for i in range(j):
                q[:, j] = q[:, j] - ordered_dot(q[:, i], q[:, j]) * q[:, i]
        after = np.sqrt(ordered_dot(q[:, j], q[:, j]))
        q[:, j] = q[:, j] * (1.0 / after) if after > 1e-6 * before else 0.0
    return q


def ordered_dot(a, b):
    """Return the float64 sum of products, added in order."""
    total = np.float64(0)
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    return total


def transposed_product(values, factors):
    """Return float64 (K, d): transposed values times factors.

    Both are rounded to integers of half the bits of a term, in units set by the column maxima, so
    that sums of their products are exact.
    """
    bits = term_bits(len(values)) // 2
    (left, left_units), (right, right_units) = (round_columns(m, bits) for m in (values, factors))
    return (left.T @ right).astype(np.float64) / np.outer(left_units, right_units)


def round_columns(matrix, bits):
    """Return columns times their units, rounded to integers below 2^bits, and the units."""
    largest = np.abs(matrix).max(axis=0)
    units = np.array([np.ldexp(1.0, bits - exponent_above(x)) for x in largest])
    return np.rint(matrix.astype(np.float64) * units).astype(np.int64), units


def subspace_projection(values, d, seed, n_iterations, scale):
    """Run `project` on a basis of the leading right singular vectors.

    Uses subspace iteration (Halko et al., 2011).
    """
    n_outputs = values.shape[1]
    signs = [[random_sign(seed, k, j) for j in range(d)] for k in range(n_outputs)]
    basis = orthonormal(np.array(signs, F32))
    for _ in range(n_iterations):
        factors = project(values, basis.astype(F32), 1)
        basis = orthonormal(transposed_product(values, factors))
    return project(values, basis.astype(F32), scale)


def csr_product(indptr, indices, data, matrix):
    """Return float32 (n, d): CSR rows times `matrix` (m, d), in stored order, run after run."""
    out = np.zeros((len(indptr) - 1, matrix.shape[1]), F32)
    for i in range(len(out)):
        for start in range(indptr[i], indptr[i + 1], RUN_OF_PRODUCT):
            part = np.zeros(matrix.shape[1], F32)
            for at in range(start, min(start + RUN_OF_PRODUCT, indptr[i + 1])):
                part = part + data[at] * matrix[indices[at]]
            out[i] = out[i] + part
    return out
