"""Settings of the core, which has no defaults: by default those of the reference implementation."""

from dataclasses import asdict, replace

import reference
from reference.extreme_multilabel import Step
from reference.linear_split_search import LinearConfig

from polyleaf import _core

MEMORY = 2**30  # bytes of kept histograms


def grow_config(config=None, histogram_memory=MEMORY, **changes):
    """`_core.GrowConfig` from a `reference.GrowConfig`, some of its fields changed."""
    fields = asdict(replace(config or reference.GrowConfig(), **changes))
    return _core.GrowConfig(**fields, histogram_memory=histogram_memory)


def leaf_config(step=None, block_size=0, **changes):
    """`_core.LeafConfig` from a `reference.extreme_multilabel.Step`."""
    fields = asdict(replace(step or Step(), **changes))
    return _core.LeafConfig(**fields, block_size=block_size)


def make_leaf_config(config, learning_rate=1.0):
    """`_core.LeafConfig` with the penalties of a `reference.GrowConfig`."""
    names = ("reg_lambda", "reg_alpha", "max_delta_step", "block_size")
    return _core.LeafConfig(
        **{name: getattr(config, name) for name in names}, learning_rate=learning_rate
    )


def linear_leaf_config(**changes):
    """`_core.LinearLeafConfig`: the defaults of `reference.linear_leaves.linear_leaves`, some of
    them changed.
    """
    fields = dict(reg_lambda=1.0, linear_lambda=1.0, learning_rate=1.0, max_regressors=5, clip=True)
    return _core.LinearLeafConfig(**fields | changes)


def linear_config(config=None):
    """`_core.LinearConfig` from a `reference.linear_split_search.LinearConfig`."""
    return _core.LinearConfig(**asdict(config or LinearConfig()))
