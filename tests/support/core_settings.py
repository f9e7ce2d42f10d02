"""Settings of the core, with the defaults of the reference implementation.

The core has no defaults of its own.
"""

from dataclasses import asdict, replace

import reference
from reference.extreme_multilabel import Step
from reference.linear_split_search import LinearConfig

from polyleaf import _core

MEMORY = 2**30  # bytes of stored histograms
_GROWTH_FIELDS = (
    "max_leaves",
    "max_depth",
    "level_wise",
    "post_prune",
    "colsample_bynode",
    "seed",
    "factors",
)


def grow_config(config=None, histogram_memory=MEMORY, **changes):
    """Return `_core.GrowConfig` from a `reference.GrowConfig`, with some fields changed."""
    fields = asdict(replace(config or reference.GrowConfig(), **changes))
    limits = {name: fields.pop(name) for name in _GROWTH_FIELDS}
    split = _core.SplitConfig(**fields)
    return _core.GrowConfig(split=split, **limits, histogram_memory=histogram_memory)


def leaf_config(step=None, block_size=0, **changes):
    """Return `_core.LeafConfig` from a `reference.extreme_multilabel.Step`."""
    fields = asdict(replace(step or Step(), **changes))
    return _core.LeafConfig(**fields, block_size=block_size)


def make_leaf_config(config, learning_rate=1.0):
    """Return `_core.LeafConfig` with the penalties of a `reference.GrowConfig`."""
    names = ("reg_lambda", "reg_alpha", "max_delta_step", "block_size")
    return _core.LeafConfig(
        **{name: getattr(config, name) for name in names}, learning_rate=learning_rate
    )


def linear_leaf_config(**changes):
    """Return `_core.LinearLeafConfig` with some fields changed.

    The defaults are those of `reference.linear_leaves.linear_leaves`.
    """
    fields = dict(reg_lambda=1.0, linear_lambda=1.0, learning_rate=1.0, max_regressors=5, clip=True)
    return _core.LinearLeafConfig(**fields | changes)


def linear_config(config=None):
    """Return `_core.LinearConfig` from a `reference.linear_split_search.LinearConfig`."""
    return _core.LinearConfig(**asdict(config or LinearConfig()))
