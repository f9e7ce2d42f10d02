"""Growth problems with monotone constraints: random and invalid ones."""

from dataclasses import replace

import numpy as np
import pytest
import reference


def add_directions(p, draw=0):
    """Return the problem with random directions of its numeric features, one vector per output."""
    shape = len(p.n_bins), p.g.shape[1]
    directions = np.random.default_rng(draw).integers(-1, 2, shape).astype(np.int8)
    directions[p.is_categorical] = 0
    return replace(p, directions=directions)


# Arguments of problems for `split_off_missing_values`.
MISSING_VALUES = {"n_bins": (9, 30, 255), "missing": 0.5}


def split_off_missing_values(p):
    """Return the problem with low gradients where feature 1 is missing, and rising constraints."""
    g = p.g + np.where(p.codes[1] == reference.MISSING, -3, 0).astype(np.float32)[:, None]
    return replace(p, g=g, directions=np.ones((len(p.n_bins), p.g.shape[1]), np.int8))


# Invalid problems of four features and two outputs: directions, other fields, and the error
# message.
INVALID_DIRECTIONS = [
    pytest.param(np.ones((3, 2), np.int8), {}, "one row per feature", id="features"),
    pytest.param(np.ones((4, 2), np.int8), {"categorical": [1]}, "categorical", id="categories"),
    pytest.param(np.ones((4, 3), np.int8), {}, "different numbers of outputs", id="outputs"),
    pytest.param(np.ones((4, 2), np.int8), {"leaf_k": 1}, "one value per output", id="few outputs"),
    pytest.param(np.ones((4, 2), np.int8), {"kind": "full"}, "one value per output", id="full"),
]
