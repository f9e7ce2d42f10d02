"""Which parts a run is made of, and that the loop asks for no more than the contracts say."""

import ast
import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from support.small_fits import X, Y

from polyleaf import Dataset, PolyleafRegressor
from polyleaf.model import Model
from polyleaf.objectives import get_objective
from polyleaf.settings.train_config import make_train_config
from polyleaf.training import boosting
from polyleaf.training.factory import bind_objective, parts_of
from polyleaf.training.layer_boosting import Layers
from polyleaf.training.leaf_fitters import (
    ConstantFitter,
    LabelFitter,
    LinearFitter,
    QuantileFitter,
    TopkFitter,
)
from polyleaf.training.raw_scores import DenseState
from polyleaf.training.sparse_raw_scores import LabelState
from polyleaf.training.tree_builder import (
    ExactSplits,
    HistogramSplits,
    LookaheadChannels,
    PlainChannels,
    VerifiedSplits,
)

SPARSE = {"leaf": "sparse", "leaf_k": 2}
LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise"}


def settings(sparse_targets=False, **parameters):
    estimator = PolyleafRegressor(**parameters)
    return make_train_config(
        estimator, n_rounds=2, has_sparse_targets=sparse_targets, seed=0, n_threads=1
    )


def parts(objective="squared_error", model=None, **parameters):
    chosen, dataset = settings(**parameters), Dataset(X, keep_features=True)
    target = Y.astype(np.float32)
    if chosen.has_sparse_targets:
        target = sp.csr_matrix(np.maximum(target, 0))
    problem = bind_objective(get_objective(objective), target, None, chosen)
    if model is None:
        base = problem.base_score()
        model = Model(
            mapper=dataset.mapper, objective=problem.objective, base_score=base, learning_rate=0.1
        )
    problem.set_base_score(model.base_score)
    return parts_of(chosen, problem, dataset, None, model, [], [])


@pytest.mark.parametrize(
    ("parameters", "state", "splits", "fitter"),
    [
        ({}, DenseState, HistogramSplits, ConstantFitter),
        ({"sketch": "top_outputs", "sketch_dim": 2}, DenseState, HistogramSplits, ConstantFitter),
        ({"objective": "absolute_error"}, DenseState, HistogramSplits, QuantileFitter),
        (SPARSE, DenseState, HistogramSplits, TopkFitter),
        ({"leaf": "linear"}, DenseState, HistogramSplits, LinearFitter),
        ({"leaf": "linear", "linear_fit": "post"}, DenseState, HistogramSplits, LinearFitter),
        ({**SPARSE, "sparse_targets": True}, LabelState, VerifiedSplits, LabelFitter),
        (
            {**SPARSE, "sparse_targets": True, "split_search": "exact"},
            LabelState,
            ExactSplits,
            LabelFitter,
        ),
    ],
)
def test_settings_choose_parts(parameters, state, splits, fitter):
    chosen = parts(**parameters)
    assert type(chosen.state) is state
    assert type(chosen.structure._splits) is splits
    assert type(chosen.fitter) is fitter


@pytest.mark.parametrize(
    ("fit", "channels"), [("full", LookaheadChannels), ("post", PlainChannels)]
)
def test_linear_leaves_are_looked_ahead_to_unless_they_are_fitted_afterwards(fit, channels):
    assert type(parts(leaf="linear", linear_fit=fit).structure._splits._channels) is channels


@pytest.mark.parametrize("objective", ["squared_error", "absolute_error"])
def test_layers_are_structure_and_fitter_in_one(objective):
    chosen = parts(objective=objective, **LAYERS)
    assert type(chosen.structure) is Layers and chosen.structure is chosen.fitter
    assert type(chosen.fitter._fitter) is type(parts(objective=objective).fitter)


@pytest.mark.parametrize(
    "parameters", [{}, LAYERS, SPARSE, {"leaf": "linear"}, {**SPARSE, "sparse_targets": True}]
)
def test_raw_scores_of_training_are_those_of_the_trees(parameters):
    chosen = parts(**parameters)
    run = boosting.Run(settings(**parameters), chosen)
    assert run.step(0) and run.step(1)
    again = parts(**parameters, model=chosen.model)
    if isinstance(chosen.state, LabelState):
        chosen.state.renew()
        again.state.renew()
        mine, theirs = (state.gradients.csr() for state in (chosen.state, again.state))
    else:
        mine, theirs = [chosen.state.raw], [again.state.raw]
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_loop_names_no_algorithm():
    """Only `parts` knows which there are."""
    tree = ast.parse(inspect.getsource(boosting))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not modules & {
        f"polyleaf.{name}" for name in ("fitters", "splits", "structure", "state", "layers")
    }
    assert not {"isinstance", "type"} & {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
