"""Components for given settings, and the independence of the boosting loop from them."""

import ast
import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from support.small_fits import X, Y

from polyleaf import Dataset, PolyleafRegressor, RowData, _core
from polyleaf.objectives import get_objective
from polyleaf.objectives.elementwise import BoundElementwiseObjective
from polyleaf.settings.train_config import make_train_config
from polyleaf.training import boosting
from polyleaf.training.boosting import make_model
from polyleaf.training.factory import bind_objective, make_components
from polyleaf.training.leaf_fitters import (
    ConstantFitter,
    LinearFitter,
    QuantileFitter,
    SparseTargetFitter,
    TopkFitter,
)
from polyleaf.training.raw_scores import DenseState, Derivatives, SparseState
from polyleaf.training.training_run import Seeds, TrainingRun
from polyleaf.training.tree_builder import (
    ExactSplitFinder,
    HistogramSplitFinder,
    LayerBooster,
    VerifiedSplitFinder,
)
from polyleaf.user_data.target import Target, TargetEncoding

SPARSE = {"leaf": "sparse", "leaf_k": 2}
SPARSE_TARGETS, EXACT = {**SPARSE, "sparse_targets": True}, {"split_search": "exact"}
LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise"}
DENSE = DenseState, HistogramSplitFinder


def settings(sparse_targets=False, **parameters):
    options = {"n_rounds": 2, "has_sparse_targets": sparse_targets, "seed": 0, "n_threads": 1}
    return make_train_config(PolyleafRegressor(**parameters), **options)


def components(objective="squared_error", model=None, **parameters):
    chosen = settings(**parameters)
    y = Y.astype(np.float32)
    rows = RowData(sp.csr_matrix(np.maximum(y, 0)) if chosen.has_sparse_targets else y)
    target = Target(rows, TargetEncoding("regression", y.shape[1], False))
    run = TrainingRun(chosen, get_objective(objective), target, Seeds(0, 0, 0))
    run.dataset = Dataset(X, keep_features=True)
    bound = bind_objective(run.objective, rows, chosen)
    return make_components(run, bound, make_model(run, bound) if model is None else model)


@pytest.mark.parametrize(
    ("parameters", "state", "finder", "fitter"),
    [
        ({}, *DENSE, ConstantFitter),
        ({"sketch": "top_outputs", "sketch_dim": 2}, *DENSE, ConstantFitter),
        ({"objective": "absolute_error"}, *DENSE, QuantileFitter),
        (SPARSE, *DENSE, TopkFitter),
        ({"leaf": "linear"}, *DENSE, LinearFitter),
        ({"leaf": "linear", "linear_fit": "post"}, *DENSE, LinearFitter),
        (SPARSE_TARGETS, SparseState, VerifiedSplitFinder, SparseTargetFitter),
        (SPARSE_TARGETS | EXACT, SparseState, ExactSplitFinder, SparseTargetFitter),
    ],
)
def test_settings_choose_components(parameters, state, finder, fitter):
    (chosen,) = components(**parameters).members
    assert type(chosen.state) is state
    assert type(chosen.builder._finder) is finder
    assert type(chosen.fitter) is fitter


@pytest.mark.parametrize(
    ("fit", "quantised"), [("full", _core.LinearGradients), ("post", _core.QuantisedGradients)]
)
def test_split_search_of_linear_leaves(fit, quantised):
    (member,) = components(leaf="linear", linear_fit=fit).members
    assert type(member.builder._finder._quantised) is quantised


@pytest.mark.parametrize("objective", ["squared_error", "absolute_error"])
def test_layers_use_the_same_fitter(objective):
    (by_layer,) = components(objective=objective, **LAYERS).members
    (by_round,) = components(objective=objective).members
    assert type(by_layer.layers) is LayerBooster
    assert type(by_layer.layers._fitter) is type(by_round.fitter)
    assert by_round.layers is None


@pytest.mark.parametrize("parameters", [{}, LAYERS, SPARSE, {"leaf": "linear"}, SPARSE_TARGETS])
def test_raw_scores_of_training_equal_sums_of_trees(parameters):
    chosen = components(**parameters)
    run = boosting.BoostingLoop(settings(**parameters), chosen)
    assert run.step(0) and run.step(1)
    again = components(**parameters, model=chosen.model)
    states = [parts.members[0].state for parts in (chosen, again)]
    if isinstance(states[0], SparseState):
        for state in states:
            state.update_derivatives()
        mine, theirs = (state.gradients.csr() for state in states)
    else:
        mine, theirs = ([state.raw] for state in states)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_boosting_loop_imports_no_algorithm():
    """Only `factory` imports algorithms."""
    tree = ast.parse(inspect.getsource(boosting))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    algorithms = ("leaf_fitters", "tree_builder", "layer_boosting", "gpu")
    assert not modules & {f"polyleaf.training.{name}" for name in algorithms}
    assert not {"isinstance", "type"} & {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@pytest.mark.parametrize("boosting_step", ["round", "tree"])
@pytest.mark.parametrize("objective", ["absolute_error", "quantile", "squared_error"])
def test_single_output_trees_read_one_output(objective, boosting_step, monkeypatch):
    """Derivatives and leaf updates of other outputs are not computed."""
    n_updates, shapes = [], []
    compute, update = Derivatives.compute, BoundElementwiseObjective.update_leaves

    def count_updates(self, raw):
        n_updates.append(1)
        compute(self, raw)

    def record_shape(self, raw, *arguments, **options):
        shapes.append(raw.shape[1])
        return update(self, raw, *arguments, **options)

    monkeypatch.setattr(Derivatives, "compute", count_updates)
    monkeypatch.setattr(BoundElementwiseObjective, "update_leaves", record_shape)
    X = np.random.default_rng(0).standard_normal((80, 2))
    options = {"multi_strategy": "one_output_per_tree", "boosting_step": boosting_step}
    model = PolyleafRegressor(objective, n_estimators=3, n_jobs=1, **options)
    model.fit(X, np.column_stack([X, X[:, 0] * X[:, 1]]))
    assert len(n_updates) == 3
    assert shapes == ([] if objective == "squared_error" else [1] * 9)


@pytest.mark.parametrize("objective", ["squared_error", "absolute_error"])
def test_objective_sees_a_change_of_the_raw_scores(objective):
    """Leave the first tree out, as DART does, and train on: raw scores do not change."""
    chosen = components(objective=objective, colsample_bynode=1.0)
    run = boosting.BoostingLoop(settings(colsample_bynode=1.0), chosen)
    state = chosen.members[0].state
    state.update_derivatives()
    start = state.derivatives.g.copy()
    assert run.step(0)
    raw = state.raw.copy()
    state.show(lambda scores: np.subtract(scores, raw, out=scores))
    state.update_derivatives()
    np.testing.assert_array_equal(state.derivatives.g, start)
    assert (state.seen_scores() == 0).all()
    np.testing.assert_array_equal(state.raw, raw)
    assert run.step(1)
    np.testing.assert_allclose(state.raw, 2 * raw, rtol=1e-6)
    state.show(None)
    np.testing.assert_array_equal(state.seen_scores(), state.raw)
