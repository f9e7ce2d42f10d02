"""Multi-task objectives: each block equals the objective alone, and gains are scaled."""

import numpy as np
import pytest
from reference import multitask

from polyleaf import RowData
from polyleaf.objectives import (
    Huber,
    Logistic,
    NormalLikelihood,
    Poisson,
    Quantile,
    Softmax,
    SquaredError,
    objective_from_dict,
)
from polyleaf.objectives.multitask import MultiTask, Task
from polyleaf.runtime.row_data import TaskRows

N = 400
RNG = np.random.default_rng(5)
TARGET = np.column_stack(
    [
        50 * RNG.standard_normal(N) + 1e3,
        RNG.integers(0, 2, N),
        RNG.integers(0, 3, N),
        RNG.standard_normal(N),
        RNG.poisson(3.0, N),
        RNG.standard_normal((N, 2)) * [1, 4],
    ]
)
PARTS = (
    Task("number", SquaredError(), "values", 1, 1),
    Task("yes", Logistic(), "labels", 1, 1, 3.0),
    Task("class", Softmax(n_classes=3), "classes", 1, 3),
    Task("levels", Quantile((0.1, 0.5, 0.9)), "values", 1, 3, 0.5),
    Task("count", Poisson(), "values", 1, 1),
    Task("two", NormalLikelihood(), "values", 2, 4),
)
ALL = MultiTask(PARTS)
COLUMNS = [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 4), slice(4, 5), slice(5, 7)]
SCORES = [slice(0, 1), slice(1, 2), slice(2, 5), slice(5, 8), slice(8, 9), slice(9, 13)]
RAW = (0.3 * RNG.standard_normal((N, 13))).astype(np.float32)
WEIGHT = RNG.integers(0, 4, (N, 7)).astype(np.float32)


def bind_alone(i, weight=None):
    """Bind the objective of a task to its own columns."""
    part, values = PARTS[i], TARGET[:, COLUMNS[i]]
    of = {"classes": lambda v: v[:, 0].astype(np.int32), "labels": lambda v: v.astype(np.float32)}
    own = None if weight is None else weight if weight.ndim == 1 else weight[:, COLUMNS[i]]
    if part.target_kind == "classes" and own is not None and own.ndim == 2:
        own = own[:, 0]
    return part.objective.bind(RowData(of.get(part.target_kind, lambda v: v)(values), own))


def derivatives(problem, raw):
    shape = problem.hessian_shape()
    g, h = np.empty_like(raw), None if shape is None else np.empty(shape, np.float32)
    problem.derivatives(raw, g, h)
    return g, np.ones_like(g) if h is None else np.broadcast_to(h, g.shape)


@pytest.mark.parametrize("weight", [None, WEIGHT, WEIGHT[:, 0]], ids=["none", "cells", "rows"])
def test_each_block_equals_the_objective_alone(weight):
    problem = ALL.bind(RowData(TARGET, weight))
    base = problem.base_score()
    problem.set_base_score(base)
    g, h = derivatives(problem, RAW)
    losses = 0.0
    for i, own in enumerate(SCORES):
        one = bind_alone(i, weight)
        np.testing.assert_array_equal(base[own], one.base_score())
        one.set_base_score(base[own])
        raw = np.ascontiguousarray(RAW[:, own])
        of_one = derivatives(one, raw)
        np.testing.assert_array_equal(g[:, own], of_one[0])
        np.testing.assert_array_equal(h[:, own], of_one[1])
        losses += one.loss(raw)
    assert problem.loss(RAW) == pytest.approx(losses, rel=1e-12)


def test_single_task_is_passed_through():
    """No array is added: a unit Hessian stays None, and a class Hessian is not copied."""
    for i, part in enumerate(PARTS):
        one, own = MultiTask((part,)), bind_alone(i)
        problem = one.bind(RowData(TARGET[:, COLUMNS[i]]))
        assert problem.hessian_shape() == own.hessian_shape()
        assert one.is_translation_invariant == part.objective.is_translation_invariant
        assert problem.gain_scale(RAW[:, SCORES[i]], None) is None


def test_hessians_are_blocks():
    parts = PARTS[:3]
    problem = MultiTask(parts).bind(RowData(TARGET[:, :3]))
    raw = np.ascontiguousarray(RAW[:, :5])
    g, h = np.empty_like(raw), np.empty((N, 15), np.float32)
    problem.full_hessian(raw, g, h)
    full = np.zeros((N, 5, 5))
    i, j = np.tril_indices(5)
    full[:, i, j] = full[:, j, i] = h
    for task in range(3):
        own, one = SCORES[task], bind_alone(task)
        k = own.stop - own.start
        of_one = np.empty((N, k), np.float32), np.empty((N, k * (k + 1) // 2), np.float32)
        one.full_hessian(np.ascontiguousarray(raw[:, own]), *of_one)
        np.testing.assert_array_equal(g[:, own], of_one[0])
        a, b = np.tril_indices(k)
        np.testing.assert_array_equal(full[:, own.start + a, own.start + b], of_one[1])
        full[:, own, own] = 0
    assert not full.any()


@pytest.mark.parametrize("weight", [None, WEIGHT, WEIGHT[:, 0]], ids=["none", "cells", "rows"])
def test_gain_scale_equals_the_reference(weight):
    problem = ALL.bind(RowData(TARGET, weight))
    problem.set_base_score(problem.base_score())
    g, h = derivatives(problem, RAW)
    h = np.ascontiguousarray(h)
    of_scores = None
    if weight is not None:
        columns = np.repeat(weight[:, None], 7, axis=1) if weight.ndim == 1 else weight
        of_scores = columns[:, ALL.score_columns(13)]
    blocks = [(own, p.weight) for own, p in zip(SCORES, PARTS, strict=True)]
    expected = multitask.units(blocks, g, h, of_scores)
    np.testing.assert_allclose(problem.gain_scale(g, h), expected, rtol=1e-7)
    np.testing.assert_array_equal(problem.gain_scale(g, h, n_threads=3), problem.gain_scale(g, h))


def test_gain_scale_of_squared_error_is_the_deviation_of_residuals():
    parts = PARTS[0], Task("yes", Logistic(), "labels", 1, 1)
    problem = MultiTask(parts).bind(RowData(TARGET[:, :2]))
    problem.set_base_score(problem.base_score())
    raw = np.zeros((N, 2), np.float32)
    g, h = derivatives(problem, raw)
    unit = problem.gain_scale(g, np.ascontiguousarray(h))
    assert unit[0] == pytest.approx(1 / TARGET[:, 0].std(), rel=1e-6)
    assert unit[1] == pytest.approx(
        1, rel=1e-6
    )  # for predicted probabilities equal to the frequencies


@pytest.mark.parametrize("weight", [None, WEIGHT, WEIGHT[:, 0]], ids=["none", "cells", "rows"])
def test_rows_of_tasks_equal_one_matrix_of_their_columns(weight):
    matrix = RowData(TARGET, weight)
    rows = TaskRows([place.select_rows(matrix) for place in ALL.tasks])
    np.testing.assert_array_equal(rows.target, TARGET)
    used = np.arange(0, N, 3)
    for own, other in (
        (rows, matrix),
        (rows.take(used), matrix.take(used)),
        (rows.keep_weights(used), matrix.keep_weights(used)),
        (TaskRows.concatenate([rows, rows]), RowData.concatenate([matrix, matrix])),
    ):
        assert own.n_rows == other.n_rows
        problems = [ALL.bind(each) for each in (own, other)]
        raw = RAW[used] if own.n_rows == len(used) else np.tile(RAW, (own.n_rows // N, 1))
        for problem in problems:
            problem.set_base_score(problems[0].base_score())
        np.testing.assert_array_equal(problems[0].base, problems[1].base_score())
        for found, expected in zip(*(derivatives(p, raw) for p in problems), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_integer_weights_equal_repeated_rows():
    counts = WEIGHT[:, 0].astype(int)
    weighted = ALL.bind(RowData(TARGET, WEIGHT[:, 0]))
    repeated = ALL.bind(RowData(np.repeat(TARGET, counts, axis=0)))
    base = weighted.base_score()
    found = []
    for problem, raw in ((weighted, RAW), (repeated, np.repeat(RAW, counts, axis=0))):
        problem.set_base_score(base)
        g, h = derivatives(problem, raw)
        found.append(problem.gain_scale(g, np.ascontiguousarray(h)))
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_gain_scale_without_residuals():
    problem = MultiTask((PARTS[0], PARTS[1])).bind(RowData(TARGET[:, :2]))
    g, h = np.zeros((N, 2), np.float32), np.ones((N, 2), np.float32)
    np.testing.assert_allclose(problem.gain_scale(g, h), [1, np.sqrt(3)])


def test_only_scores_of_updating_losses_are_updated():
    problem = ALL.bind(RowData(TARGET))
    problem.set_base_score(problem.base_score())
    np.testing.assert_array_equal(np.flatnonzero(problem.updated_outputs), [5, 6, 7])
    leaf = (np.arange(N) % 4).astype(np.int32)
    values = problem.update_leaves(RAW, leaf, 4)
    one = bind_alone(3)
    one.set_base_score(problem.base[SCORES[3]])
    own = np.ascontiguousarray(RAW[:, SCORES[3]])
    np.testing.assert_array_equal(values[:, SCORES[3]], one.update_leaves(own, leaf, 4))
    assert not np.delete(values, [5, 6, 7], axis=1).any()
    for k in (5, 6, 7):
        raw = np.ascontiguousarray(RAW[:, [k]])
        found = problem.update_leaves(raw, leaf, 4, outputs=np.array([k]))
        np.testing.assert_array_equal(values[:, [k]], found)


def test_predictions_are_concatenated():
    scores = RAW.astype(np.float64)
    predicted = ALL.transform(scores)
    assert predicted.shape == (N, 11)  # a distribution predicts its mean
    for place, own in zip(ALL.tasks, SCORES, strict=True):
        assert place.scores == own
        of_one = place.task.objective.transform(scores[:, own])
        np.testing.assert_array_equal(predicted[:, place.predictions], of_one)
    np.testing.assert_array_equal(ALL.score_columns(13), [0, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 6, 6])
    levels = ALL.score_quantile_levels(13)
    np.testing.assert_array_equal(levels[5:8], [0.1, 0.5, 0.9])
    assert np.isnan(np.delete(levels, [5, 6, 7])).all()


def test_to_dict_round_trip():
    stored = ALL.to_dict()
    assert objective_from_dict(stored) == ALL
    for wrong in (
        {"name": "tasks"},
        {"name": "tasks", "parts": []},
        {"name": "tasks", "parts": [1]},
        {"name": "tasks", "parts": [stored["parts"][0], stored["parts"][0]]},
        *(
            {"name": "tasks", "parts": [stored["parts"][2] | change]}
            for change in (
                {"n_scores": 4}, {"n_columns": 2}, {"weight": 0.0}, {"weight": True},
                {"learns": "values"},
                {"learns": []}, {"objective": stored}, {"name": 3}, {"more": 1}, {"n_scores": -3},
            )
        ),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"\."):
            objective_from_dict(wrong)


def test_multitask_is_not_available_by_name():
    from polyleaf import PolyleafRegressor

    with pytest.raises(ValueError, match="Unknown objective 'tasks'"):
        PolyleafRegressor("tasks").fit(TARGET, TARGET[:, 0])
    assert Huber(2.0).tasks == ()
