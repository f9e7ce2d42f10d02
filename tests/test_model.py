"""Model: rounds, prediction in the unit of y, importances, copies."""

import copy
import pickle

import numpy as np
import pytest
from models import example_table, random_model
from trees import leaves_of, raw_of

import polyleaf.model
from polyleaf.model import Model

N_ROWS = 200


def parts_of(model, first=0, last=None):
    forest = model.forest
    return [
        (forest.tree(t), forest.values(t), forest.output(t))
        for t in range(first, len(forest) if last is None else last)
    ]


def slow_raw(model, codes):
    parts = parts_of(model)
    return model.base_score + raw_of(parts, leaves_of(parts, codes), model.n_outputs)


@pytest.mark.parametrize("scalar", [False, True])
def test_raw_predict_is_base_plus_the_trees(scalar):
    model = random_model(scalar=scalar)
    table = example_table(model)
    raw = model.raw_predict(table, n_threads=2)
    assert raw.dtype == np.float64 and raw.shape == (N_ROWS, 3)
    np.testing.assert_array_equal(raw, slow_raw(model, model.mapper.transform(table, 1)))


def test_target_scale_and_offset():
    plain = random_model()
    table = example_table(plain)
    scale, offset = np.array([2.0, 0.5, 1e6]), np.array([0.0, 1e9, -3.0])
    scaled = random_model(target_scale=scale, target_offset=offset)
    expected = plain.raw_predict(table) * scale + offset
    np.testing.assert_array_equal(scaled.raw_predict(table), expected)
    np.testing.assert_array_equal(list(scaled.staged_raw(table))[-1], expected)


def test_the_link_is_applied():
    model = random_model(objective="logistic")
    table = example_table(model)
    np.testing.assert_allclose(model.predict(table), 1 / (1 + np.exp(-model.raw_predict(table))), rtol=1e-12)


@pytest.mark.parametrize("scalar", [False, True])
def test_rounds(scalar):
    model = random_model(scalar=scalar, n_rounds=5)
    table = example_table(model)
    per_round = 3 if scalar else 1
    assert (model.n_rounds, model.n_trees) == (5, 5 * per_round)
    np.testing.assert_array_equal(model.round_of_tree, np.repeat(np.arange(5), per_round))
    stages = list(model.staged_raw(table))
    assert len(stages) == 5
    for n, stage in enumerate(stages, 1):
        np.testing.assert_array_equal(stage, model.raw_predict(table, last_round=n))
    assert model.apply(table, 1, 3).shape == (N_ROWS, 2 * per_round)
    np.testing.assert_array_equal(model.raw_predict(table, 2, 2), np.tile(model.base_score, (N_ROWS, 1)))
    with pytest.raises(ValueError, match="Rounds 2 to 6 were asked for, but the model has 5 rounds"):
        model.raw_predict(table, 2, 6)
    with pytest.raises(ValueError, match="Rounds 3 to 2"):
        next(model.staged_raw(table, 3, 2))


def test_chunks_change_nothing(monkeypatch):
    model = random_model()
    table = example_table(model)
    raw, leaves = model.raw_predict(table), model.apply(table)
    monkeypatch.setattr(polyleaf.model, "_CHUNK_CODES", 4 * 30)
    np.testing.assert_array_equal(model.raw_predict(table), raw)
    np.testing.assert_array_equal(model.apply(table), leaves)


def test_append_checks_rounds():
    model = random_model(n_rounds=2)
    tree, values, _ = parts_of(model)[0]
    with pytest.raises(ValueError, match=r"round 0 cannot be added.*is of round 1"):
        model.append(tree, values, 0)
    model.append(tree, values, 4)
    assert model.n_rounds == 5 and model.n_trees == 3


def test_truncate():
    model = random_model(n_rounds=6, scalar=True)
    table = example_table(model)
    expected = model.raw_predict(table, last_round=4)
    model.best_iteration, model.best_score = 3, 0.5
    model.truncate(4)
    assert (model.n_rounds, model.n_trees, model.best_iteration) == (4, 12, 3)
    np.testing.assert_array_equal(model.raw_predict(table), expected)
    model.truncate(3)
    assert model.best_iteration is None and model.best_score is None
    model.truncate(0)
    np.testing.assert_array_equal(model.raw_predict(table), np.tile(model.base_score, (N_ROWS, 1)))


def test_importance_of_vector_trees():
    model = random_model()
    gain, split, cover = (model.feature_importance(kind) for kind in ("gain", "split", "cover"))
    trees = [tree for tree, _, _ in parts_of(model)]
    for f in range(4):
        here = [(tree, tree.feature == f) for tree in trees]
        assert split[f] == sum(mask.sum() for _, mask in here)
        assert gain[f] == pytest.approx(sum(tree.gain[mask].sum() for tree, mask in here))
        assert cover[f] == pytest.approx(sum(tree.cover[mask].sum() for tree, mask in here))
        per_output = sum(tree.output_gain[mask].sum(axis=0) for tree, mask in here)
        np.testing.assert_allclose(model.feature_importance(per_output=True)[:, f], per_output, rtol=1e-6)


def test_importance_of_scalar_trees():
    model = random_model(scalar=True)
    per_output = model.feature_importance(per_output=True)
    np.testing.assert_allclose(model.feature_importance(), per_output.mean(axis=0))
    gains = sum(tree.gain.sum() for tree, _, output in parts_of(model) if output == 2)
    assert per_output[2].sum() == pytest.approx(gains)


def test_importance_refuses_what_means_nothing():
    with pytest.raises(ValueError, match="kind='weight' is unknown"):
        random_model().feature_importance("weight")
    with pytest.raises(ValueError, match="kind='gain' only"):
        random_model().feature_importance("split", per_output=True)


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("duplicate", [Model.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(scalar, duplicate):
    model = random_model(scalar=scalar, output_names=["a", "b", "c"], metadata={"kind": "regression"})
    model.best_iteration = 4
    other = duplicate(model)
    assert other.equals(model)
    table = example_table(model)
    np.testing.assert_array_equal(other.raw_predict(table), model.raw_predict(table))
    other.truncate(5)
    other.metadata["kind"] = "changed"
    assert model.n_rounds == 6 and model.metadata == {"kind": "regression"}
    assert not other.equals(model)


def test_equals_sees_every_difference():
    model = random_model()
    for change in (
        lambda m: setattr(m, "learning_rate", 0.3),
        lambda m: setattr(m, "best_iteration", 1),
        lambda m: m.metadata.update(kind="binary"),
        lambda m: m.base_score.__setitem__(0, 7.0),
        lambda m: m.truncate(5),
    ):
        other = model.copy()
        change(other)
        assert not other.equals(model)
    assert not random_model(seed=1).equals(model)
    assert not random_model(objective="huber").equals(model)


def test_wrong_fields_are_refused():
    for fields, message in [
        ({"base_score": [0.0, np.nan, 1.0]}, "finite"),
        ({"feature_names": ["a"]}, "feature_names has 1 names, but 4"),
        ({"output_names": ["a"]}, "output_names has 1 names, but 3"),
        ({"target_scale": np.ones(3)}, "both or neither"),
        ({"target_scale": np.ones(2), "target_offset": np.ones(2)}, "3 finite numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            random_model(**fields)
