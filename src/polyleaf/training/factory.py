"""Choice of the components of a training for given settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.objectives import Objective
from polyleaf.objectives.base import BoundObjective
from polyleaf.objectives.sparse_multilabel import BoundSparseObjective
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.user_warnings import suppress_warnings
from polyleaf.settings.train_config import LinearLeaf, TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import Sketch, get_sketch
from polyleaf.training import constraints, gpu, leaf_fitters
from polyleaf.training.balance import Balance, BalancedFitter
from polyleaf.training.evaluation import Evaluation
from polyleaf.training.members import Member, make_member_forest
from polyleaf.training.memory_usage import make_row_allocator
from polyleaf.training.position_bias import PositionBias
from polyleaf.training.raw_scores import (
    DenseState,
    Derivatives,
    SparseState,
    limit_weights,
    make_scores,
)
from polyleaf.training.refit import (
    BlendingFitter,
    BlendingLayers,
    KnownTreeBuilder,
    check_leaf_kinds,
)
from polyleaf.training.sampling import Sampler, global_row_ids
from polyleaf.training.training_run import TrainingRun
from polyleaf.training.tree_builder import (
    ExactSplitFinder,
    HistogramSplitFinder,
    LayerBooster,
    SplitFinder,
    TreeBuilder,
    VerifiedSplitFinder,
)


class MemberComponents(NamedTuple):
    """The components of one member.

    `layers`: builds trees layer by layer, if that is wanted. `positions`: if rows have positions.
    """

    member: Member
    state: DenseState | SparseState
    builder: TreeBuilder
    fitter: leaf_fitters.LeafFitter
    sampler: Sampler
    layers: LayerBooster | BlendingLayers | None = None
    positions: PositionBias | None = None


class Components(NamedTuple):
    """The components of a training."""

    members: list[MemberComponents]
    model: Model
    evaluation: Evaluation | None


def bind_objective(objective: Objective, rows: RowData, settings: TrainConfig) -> Any:
    """Bind an objective to dense or sparse targets."""
    if settings.has_sparse_targets:
        weight = limit_weights(rows.weight, settings.workers.communicator)
        return BoundSparseObjective(objective, rows.replace(weight=weight))
    return objective.bind(rows.protect())


def make_components(
    run: TrainingRun, bound: Any, model: Model, layer_hooks: Sequence[Callable[..., object]] = ()
) -> Components:
    """Make the components of a training.

    `bound`: result of `bind_objective`. `model`: its trees are added to the raw scores.
    `layer_hooks`: methods `after_layer` of callbacks.
    """
    bound.set_base_score(model.base_score)
    evaluation = None
    if run.eval_sets or layer_hooks or run.settings.boosting.boosting_step == "layer":
        evaluation = Evaluation(
            run.eval_sets,
            model,
            partial(make_scores, bound, run.settings.workers),
            layer_hooks,
            run.rows,
        )
    members: list[MemberComponents] = []
    for i, m in enumerate(run.members):
        member_run = run.replace(settings=m.apply(run.settings))
        # The first member warns of what concerns all of them.
        with suppress_warnings() if members else nullcontext():
            members.append(_make_member(member_run, bound, model, i, m, evaluation))
    if not members:
        members = [_make_member(run, bound, model, 0, Member(run.settings), evaluation)]
    return Components(members, model, evaluation)


def _make_member(
    run: TrainingRun,
    bound: Any,
    model: Model,
    number: int,
    member: Member,
    evaluation: Evaluation | None,
) -> MemberComponents:
    forest = model.forest
    if member.weight != 1:
        forest = make_member_forest(model, number, member.weight)
    settings, dataset, rows = run.settings, run.dataset, run.rows
    make: Callable[..., _Parts] = _make_dense
    if settings.has_sparse_targets:
        make = _make_sparse
    elif settings.workers.device is not None:
        make = _make_gpu
    state, grower, finder, fitter, limits, monotone = make(run, bound, model, forest)
    growth, mapper = settings.growth, dataset.mapper
    boosts_layers = settings.boosting.boosting_step == "layer"
    if growth.interaction_constraints is not None:
        interactions = constraints.encode_interaction_constraints(
            growth.interaction_constraints, mapper
        )
        grower.set_interaction_constraints(*interactions)
    factors = None
    if growth.feature_penalties is not None:
        factors = constraints.encode_feature_penalties(growth.feature_penalties, mapper)
    builder = TreeBuilder(grower, finder, limits, factors, settings)
    if run.decay_rate is not None:
        assert run.init_model is not None
        known = make_member_forest(run.init_model, number, member.weight)
        check_leaf_kinds(known, settings)
        output_weight = None if settings.has_sparse_targets else bound.output_weight
        builder = KnownTreeBuilder(
            known, run.decay_rate, run.coded_dataset, finder, output_weight, settings.workers
        )
    constrained = None
    if monotone is not None:
        fitter = constrained = leaf_fitters.MonotoneFitter(
            fitter, monotone, mapper.n_bins_, settings
        )
    balance = None
    if bound.objective.balances_totals and isinstance(state, DenseState):
        balance = Balance(state, settings.workers)
    step_fitter = fitter  # of single layers, too
    if balance is not None:
        fitter = BalancedFitter(fitter, balance)
    if isinstance(builder, KnownTreeBuilder):
        fitter = BlendingFitter(fitter, builder, constrained)
    sampler = Sampler(
        settings.sampling,
        mapper.informative_columns_,
        dataset.n_rows,
        rows.weight,
        growth.colsample_bynode < 1,
        run.row_ids,
        rows.query,
    )
    positions = None
    if rows.positions is not None and isinstance(state, DenseState):
        positions = PositionBias(state, rows, settings)
        if run.init_model is not None and run.decay_rate is None:
            positions.start_from(run.init_model, number)
    components = MemberComponents(member, state, builder, fitter, sampler, positions=positions)
    if not boosts_layers:
        return components
    assert isinstance(state, DenseState) and evaluation is not None
    layers = LayerBooster(
        state, builder, step_fitter, sampler, model, evaluation.report_layer, balance
    )
    if isinstance(fitter, BlendingFitter):
        return components._replace(layers=BlendingLayers(layers, fitter))
    return components._replace(layers=layers)


class _Parts(NamedTuple):
    """Components that depend on the kind of targets and the device."""

    state: DenseState | SparseState
    grower: _core.Grower
    finder: SplitFinder
    fitter: Any
    leaf_limits: dict[str, Any]  # see `TreeBuilder`
    monotone: np.ndarray | None = None  # (n_columns, K), monotone constraints


def _make_sparse(
    run: TrainingRun, bound: BoundSparseObjective, model: Model, forest: _core.Forest
) -> _Parts:
    """Make components for sparse targets: sparse leaves, and splits by exact gains."""
    settings, dataset, rows = run.settings, run.dataset, run.rows
    leaf, bins = settings.leaf, dataset.bins
    assert isinstance(leaf, TopkLeaf)
    is_exact = leaf.split_search == "exact"
    if is_exact and np.any(dataset.mapper.is_categorical_):
        raise ValueError(
            'split_search="exact" requires numeric features; use "count_sketch" for categorical '
            "ones."
        )
    state = SparseState(bound, dataset, forest, settings.workers, rows.offset)
    finder: SplitFinder
    if is_exact:
        finder = ExactSplitFinder(bins, state, leaf, settings)
    else:
        ids = global_row_ids(rows.weight, run.row_ids)
        finder = VerifiedSplitFinder(bins, state, leaf, ids, settings)
    grower = _core.Grower(bins, settings.workers)
    fitter = leaf_fitters.SparseTargetFitter(state, leaf, settings)
    return _Parts(state, grower, finder, fitter, _NO_LIMITS)


def _make_dense(
    run: TrainingRun, bound: BoundObjective, model: Model, forest: _core.Forest
) -> _Parts:
    """Make components for dense targets: splits by histograms, and a fitter for each kind of
    leaf."""
    settings, dataset, rows = run.settings, run.dataset, run.rows
    allocate: Callable[..., np.ndarray] = np.zeros
    if isinstance(dataset, Dataset):
        allocate = make_row_allocator(bound, settings, dataset)
    leaf, workers, bins = settings.leaf, settings.workers, dataset.bins
    derivatives = Derivatives(
        bound, settings.hessian, settings.growth.histogram_memory, workers, allocate
    )
    ids, seed = global_row_ids(rows.weight, run.row_ids), settings.sampling.seed
    state = DenseState(
        bound, derivatives, dataset, forest, workers, rows.offset, ids, seed, allocate
    )
    monotone = None
    if settings.growth.monotone_constraints is not None:
        monotone = _encode_monotone(settings.growth.monotone_constraints, bound, model)
    quantised: _core.QuantisedGradients | _core.LinearGradients = _core.QuantisedGradients()
    fitter: leaf_fitters.LeafFitter
    match leaf:
        case TopkLeaf():
            _check_sparse_leaves(bound, leaf)
            fitter = leaf_fitters.TopkFitter(derivatives, leaf, settings)
        case LinearLeaf():
            fitter = leaf_fitters.LinearFitter(derivatives, leaf, dataset, settings)
            if leaf.gain_regressors >= 0:
                quantised = leaf_fitters.make_linear_gradients(fitter.table, leaf)
        case _:
            fitter = leaf_fitters.ConstantFitter(derivatives, settings)
            if bound.objective.updates_leaves:
                fitter = leaf_fitters.QuantileFitter(state, fitter, settings)
    sketch = None
    if settings.boosting.sketch is not None:
        sketch = get_sketch(settings.boosting.sketch, settings.boosting.sketch_dim, bound.n_outputs)
    finder = HistogramSplitFinder(bins, derivatives, sketch, quantised, monotone, settings)
    limits = _make_leaf_limits(settings, sketch)
    return _Parts(state, _core.Grower(bins, workers), finder, fitter, limits, monotone)


def _make_gpu(
    run: TrainingRun, bound: BoundObjective, model: Model, forest: _core.Forest
) -> _Parts:
    """Make components for dense targets on a GPU: splits by histograms, and constant leaves."""
    settings, dataset, rows = run.settings, run.coded_dataset, run.rows
    workers, device, leaf = settings.workers, settings.workers.device, settings.leaf
    assert device is not None
    bins = dataset.get_device_bins(device)
    grower = _core.Grower(bins, workers)
    derivatives = gpu.DeviceDerivatives(device, bound, settings)
    ids = global_row_ids(rows.weight, run.row_ids)
    state = gpu.DeviceState(bound, derivatives, dataset, forest, grower, settings, rows.offset, ids)
    monotone = None
    if settings.growth.monotone_constraints is not None:
        monotone = _encode_monotone(settings.growth.monotone_constraints, bound, model)
    fitter: leaf_fitters.LeafFitter
    if isinstance(leaf, TopkLeaf):
        _check_sparse_leaves(bound, leaf)
        fitter = gpu.DeviceTopkFitter(derivatives, grower, leaf, settings)
    else:
        fitter = gpu.DeviceFitter(derivatives, grower, settings)
        if bound.objective.updates_leaves:
            fitter = leaf_fitters.QuantileFitter(state, fitter, settings)
    sketch = None
    if settings.boosting.sketch is not None:
        sketch = get_sketch(settings.boosting.sketch, settings.boosting.sketch_dim, bound.n_outputs)
    finder = gpu.DeviceSplitFinder(bins, derivatives, sketch, monotone, settings)
    limits = _make_leaf_limits(settings, sketch)
    return _Parts(state, grower, finder, fitter, limits, monotone)


# Limits of leaf values in split gains; columns of a sketch have none.
_NO_LIMITS: dict[str, object] = {
    "reg_alpha": 0.0,
    "max_delta_step": 0.0,
    "leaf_k": 0,
    "shared_support": False,
}


def _make_leaf_limits(settings: TrainConfig, sketch: Sketch | None) -> dict[str, object]:
    if sketch is not None:
        return _NO_LIMITS
    regularisation = settings.regularisation
    limits = {
        "reg_alpha": regularisation.reg_alpha,
        "max_delta_step": regularisation.max_delta_step,
    }
    return _NO_LIMITS | limits | settings.leaf.gain_limits


def _encode_monotone(
    monotone_constraints: object, bound: BoundObjective, model: Model
) -> np.ndarray | None:
    tied = constraints.tie_output_constraints(bound.objective, bound.n_outputs)
    monotone = constraints.encode_monotone_constraints(
        monotone_constraints, model.mapper, tied, model.output_names
    )
    if monotone is not None:
        constraints.check_monotone_constraints(monotone, bound.objective, model)
    return monotone


def _check_sparse_leaves(bound: BoundObjective, leaf: TopkLeaf) -> None:
    if leaf.leaf_k > bound.n_outputs:
        raise ValueError(
            f"leaf_k={leaf.leaf_k} is more than the number of outputs, {bound.n_outputs}; set it "
            'to fewer, or leaf="constant" for all of them.'
        )
