"""Small models with random trees."""

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import polyleaf._core as _core
from polyleaf.binned_data.binning import BinMapper
from polyleaf.model import Model
from polyleaf.objectives import get_objective
from polyleaf.user_data.features import read_features
from support.trees import random_leaves, tree_arrays


def example_frame(rng, n_rows):
    """Draw numeric features, some with missing values or few values, and one of categories."""
    x = rng.normal(size=n_rows)
    x[rng.random(n_rows) < 0.1] = np.nan
    colour = pd.Categorical(rng.choice(["red", "green", "blue", "grey", "pink"], n_rows))
    return pd.DataFrame(
        {
            "height": rng.normal(size=n_rows),
            "gap": x,
            "size": rng.integers(0, 4, n_rows),
            "colour": colour,
        }
    )


def random_tree(rng, mapper, n_outputs, n_leaves):
    """Draw a random tree whose splits are valid for the mapper's codes."""
    n_features = len(mapper.n_bins_)
    arrays = tree_arrays(rng, n_features, n_outputs, n_leaves)
    inner = arrays["feature"] >= 0
    n_bins = np.asarray(mapper.n_bins_, np.int64)[arrays["feature"]]
    is_set = inner & np.asarray(mapper.is_categorical_)[arrays["feature"]]
    arrays["threshold"] = np.where(inner & ~is_set, rng.integers(0, n_bins), -1).astype(np.int32)
    arrays["category_set"][is_set] = np.arange(is_set.sum())
    arrays["categories"] = rng.integers(0, 2**63, (int(is_set.sum()), 4), dtype=np.int64).astype(
        np.uint64
    )
    return _core.Tree.from_arrays(**arrays)


NUMERIC = 3
"""Features of `example_frame` that are numeric; they come first."""


def random_model(
    seed=0,
    n_outputs=3,
    n_rounds=6,
    n_leaves=8,
    scalar=False,
    groups=None,
    objective="squared_error",
    kinds=("dense",),
    **fields,
):
    """Draw a model of `n_rounds` rounds, with leaves of `kinds` in turn.

    `scalar` means one tree per output, `groups` a tree for each list of outputs.
    """
    rng = np.random.default_rng(seed)
    mapper = BinMapper().fit(read_features(example_frame(rng, 400)))
    names = {"feature_names": mapper.feature_names_}
    fields = {"base_score": rng.normal(size=n_outputs), "learning_rate": 0.1, **names} | fields
    model = Model(mapper=mapper, objective=get_objective(objective), **fields)
    for round in range(n_rounds):
        for group in [[k] for k in range(n_outputs)] if scalar else groups or [None]:
            width = n_outputs if group is None else len(group)
            tree = random_tree(rng, mapper, width, n_leaves)
            leaves = random_leaves(rng, kinds[round % len(kinds)], n_leaves, width, NUMERIC)
            outputs = None if group is None else np.array(group, np.int32)
            model.append(tree, leaves, round, outputs)
    return model


@st.composite
def forests(draw, kinds=("dense", "sparse", "linear"), most_leaves=60):
    """Draw random models whose leaves are of some of `kinds`.

    With one tree per output none are sparse.
    """
    scalar = draw(st.booleans())
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
    if scalar:
        chosen = [kind for kind in chosen if kind != "sparse"] or ["dense"]
    seed, n_outputs, n_leaves = (
        draw(st.integers(0, 2**31)),
        draw(st.integers(1, 20)),
        draw(st.integers(1, most_leaves)),
    )
    return random_model(seed, n_outputs, n_leaves=n_leaves, scalar=scalar, kinds=chosen)


def example_table(model, seed=1, n_rows=200):
    return read_features(example_frame(np.random.default_rng(seed), n_rows), reference=model.mapper)
