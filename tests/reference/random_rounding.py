"""Unbiased rounding of derivatives whose rows count very differently, and squared norms."""

import numpy as np

from reference.quantised_gradients import F32, LARGEST_INTEGER, LARGEST_SUM


def hash_ids(ids, keys):
    """Hash ids below 2^32: twice a key and the finaliser of MurmurHash3."""
    h = ids.astype(np.uint32)
    for key in keys:
        h ^= key
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h


def round_at_random(values, rows, multiplier, ids, keys):
    """Return derivatives (n, m) as multiples of the steps by which they are quantised."""
    used = values if multiplier is None else values * multiplier[:, None]
    used = used.astype(np.float64)
    rows = slice(None) if rows is None else rows
    largest = np.abs(used[rows]).max(axis=0)
    step = np.where(largest > 0, largest / LARGEST_INTEGER, 1.0)
    for k in range(values.shape[1]):
        draws = hash_ids(ids, keys[k]) * 2.0**-32
        while True:
            integers = round_up_or_down(used[:, k] / step[k], draws)
            if np.abs(integers[rows]).sum() + len(integers[rows]) <= LARGEST_SUM:
                break
            step[k] *= 2.0
        used[:, k] = integers * step[k]
    if multiplier is not None:
        used /= np.where(multiplier > 0, multiplier, 1.0)[:, None]
    return used.astype(F32)


def round_up_or_down(values, draws):
    """Round up with the probability of the fraction; integers but for rounding errors stay."""
    nearest, lower = np.rint(values), np.floor(values)
    drawn = lower + (draws < values - lower)
    return np.where(np.abs(values - nearest) < 2.0**-8, nearest, drawn)


def squared_norms(values):
    """Return sums of squares of rows: the halves of a row are added until one number is left."""
    squares = np.square(values)
    width = squares.shape[1]
    while width > 1:
        half = (width + 1) // 2
        squares[:, : width - half] += squares[:, half:width]
        width = half
    return squares[:, 0]
