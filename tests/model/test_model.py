"""Model: rounds, predictions in units of y, importances, copies."""

import copy
import pickle

import numpy as np
import pytest
import reference
import scipy.sparse
from support.models import example_table, random_model
from support.trees import leaves_at, raw_scores_at

import polyleaf.model.prediction
from polyleaf import PolyleafRegressor
from polyleaf.model import Model
from polyleaf.model.combine import select_outputs
from polyleaf.model.prediction import read_regressors

N_ROWS = 200


def split_rows(model, first=0, last=None):
    forest = model.forest
    trees = range(first, len(forest) if last is None else last)
    return [(forest.tree(t), forest.values(t), forest.outputs(t)) for t in trees]


def slow_raw(model, table):
    parts, codes = split_rows(model), model.mapper.transform(table, 1)
    leaves, features = leaves_at(parts, codes), table.get_raw_values()
    return model.base_score + raw_scores_at(parts, leaves, model.n_outputs, features)


ALL_KINDS = ("sparse", "linear", "dense")


@pytest.mark.parametrize(
    ("scalar", "kinds"),
    [(False, ("dense",)), (True, ("dense",)), (False, ALL_KINDS), (True, ("linear", "dense"))],
)
def test_raw_scores_are_base_score_plus_trees(scalar, kinds):
    model = random_model(scalar=scalar, kinds=kinds)
    table = example_table(model)
    raw = model.predict_raw(table, n_threads=2)
    assert raw.dtype == np.float64 and raw.shape == (N_ROWS, 3)
    np.testing.assert_array_equal(raw, slow_raw(model, table))


def test_target_scale_and_offset():
    plain = random_model()
    table = example_table(plain)
    scale, offset = np.array([2.0, 0.5, 1e6]), np.array([0.0, 1e9, -3.0])
    scaled = random_model(target_scale=scale, target_offset=offset)
    expected = plain.predict_raw(table) * scale + offset
    np.testing.assert_array_equal(scaled.predict_raw(table), expected)
    np.testing.assert_array_equal(list(scaled.staged_predict_raw(table))[-1], expected)


def test_link_is_applied():
    model = random_model(objective="logistic")
    table = example_table(model)
    expected = 1 / (1 + np.exp(-model.predict_raw(table)))
    np.testing.assert_allclose(model.predict(table), expected, rtol=1e-12)


@pytest.mark.parametrize(("scalar", "kinds"), [(False, ALL_KINDS), (True, ("dense",))])
def test_rounds(scalar, kinds):
    model = random_model(scalar=scalar, n_rounds=5, kinds=kinds)
    table = example_table(model)
    per_round = 3 if scalar else 1
    assert (model.n_rounds, model.n_trees) == (5, 5 * per_round)
    np.testing.assert_array_equal(model.round_of_tree, np.repeat(np.arange(5), per_round))
    stages = list(model.staged_predict_raw(table))
    assert len(stages) == 5
    for n, stage in enumerate(stages, 1):
        np.testing.assert_array_equal(stage, model.predict_raw(table, last_round=n))
    assert model.apply(table, 1, 3).shape == (N_ROWS, 2 * per_round)
    base = np.tile(model.base_score, (N_ROWS, 1))
    np.testing.assert_array_equal(model.predict_raw(table, 2, 2), base)
    with pytest.raises(ValueError, match="Rounds 2 to 6"):
        model.predict_raw(table, 2, 6)
    with pytest.raises(ValueError, match="Rounds 3 to 2"):
        next(model.staged_predict_raw(table, 3, 2))


@pytest.mark.parametrize("kinds", [("dense",), ("sparse",), ALL_KINDS])
def test_predictions_are_independent_of_chunks(monkeypatch, kinds):
    model = random_model(kinds=kinds)
    table = example_table(model)

    def predictions():
        found = [model.predict_raw(table), model.apply(table), *model.predict_topk(table, 2)]
        return found + ([model.predict_sparse(table).toarray()] if kinds == ("sparse",) else [])

    whole = predictions()
    monkeypatch.setattr(polyleaf.model.prediction, "_CHUNK_BYTES", 4 * 30)
    for part, expected in zip(predictions(), whole, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_linear_leaves_require_raw_features():
    model = random_model(kinds=("linear",))
    table = example_table(model)
    codes = model.mapper.transform(table)
    with pytest.raises(ValueError, match="features is required"):
        model.predict_raw_binned(codes)
    raw = model.predict_raw_binned(codes, features=read_regressors(model, table, (0, 6)))
    np.testing.assert_array_equal(raw, model.predict_raw(table))
    assert read_regressors(random_model(), table, (0, 6)) is None
    constant = random_model(kinds=("dense", "linear"), n_rounds=2)
    np.testing.assert_array_equal(  # the first round is dense
        constant.predict_raw_binned(codes, last_round=1), constant.predict_raw(table, last_round=1)
    )


@pytest.mark.parametrize("kinds", [("dense",), ("sparse",), ALL_KINDS])
@pytest.mark.parametrize("unit", ["raw", "based", "scaled"])
def test_predict_topk_sorts_raw_scores(kinds, unit):
    scale = {"target_scale": np.array([1.0, 2, 3]), "target_offset": np.array([0.0, 5, -1])}
    base = {} if unit == "based" else {"base_score": np.zeros(3)}
    model = random_model(kinds=kinds, n_rounds=2, **base, **(scale if unit == "scaled" else {}))
    table = example_table(model)
    raw = model.predict_raw(table)
    held = np.ones(raw.shape, bool)
    if kinds == ("sparse",) and unit == "raw":  # only sparse leaves omit outputs without votes
        held = raw != 0
    expected = reference.top_outputs(raw, held, 2)
    best = model.predict_topk(table, 2, n_threads=2)
    for found, expected_scores in zip(best, expected, strict=True):
        assert found.dtype == expected_scores.dtype
        np.testing.assert_array_equal(found, expected_scores)
    with pytest.raises(ValueError, match="k must be at least 1, but is -1"):
        model.predict_topk(table, -1)


@pytest.mark.parametrize("unit", ["raw", "based", "scaled"])
def test_predict_sparse_stores_entries_of_leaves(unit):
    scale = {"target_scale": np.full(40, 2.0), "target_offset": np.arange(40.0)}
    base = {} if unit == "based" else {"base_score": np.zeros(40)}
    base |= scale if unit == "scaled" else {}
    model = random_model(kinds=("sparse",), n_outputs=40, n_rounds=3, **base)
    table = example_table(model)
    sparse, raw = model.predict_sparse(table), model.predict_raw(table)
    assert sparse.shape == raw.shape and sparse.dtype == np.float64 and sparse.has_canonical_format
    rows, outputs = sparse.nonzero()
    stored = np.repeat(np.arange(N_ROWS), np.diff(sparse.indptr)), sparse.indices
    np.testing.assert_array_equal(sparse.data, raw[stored])
    absent = np.ones(raw.shape, bool)
    absent[rows, outputs] = False
    nothing = np.tile(model.to_target_scale(np.zeros((1, 40), np.float32)), (N_ROWS, 1))
    np.testing.assert_array_equal(raw[absent], nothing[absent])
    with pytest.raises(ValueError, match="only where leaves are"):
        random_model().predict_sparse(table)


def test_append_checks_rounds():
    model = random_model(n_rounds=2)
    tree, values, _ = split_rows(model)[0]
    with pytest.raises(ValueError, match=r"round=0"):
        model.append(tree, values, 0)
    with pytest.raises(ValueError, match="round=3"):
        model.append(tree, values, 3)
    model.append(tree, values, 2)
    assert model.n_rounds == 3 and model.n_trees == 3


def test_truncate():
    model = random_model(n_rounds=6, scalar=True)
    table = example_table(model)
    expected = model.predict_raw(table, last_round=4)
    model.best_iteration, model.best_score = 3, 0.5
    model.truncate(4)
    assert (model.n_rounds, model.n_trees, model.best_iteration) == (4, 12, 3)
    np.testing.assert_array_equal(model.predict_raw(table), expected)
    model.truncate(3)
    assert model.best_iteration is None and model.best_score is None
    model.truncate(0)
    np.testing.assert_array_equal(model.predict_raw(table), np.tile(model.base_score, (N_ROWS, 1)))


def test_importance_of_vector_trees():
    model = random_model()
    gain, split, cover = (model.feature_importance(kind) for kind in ("gain", "split", "cover"))
    trees = [tree for tree, _, _ in split_rows(model)]
    for f in range(4):
        here = [(tree, tree.feature == f) for tree in trees]
        assert split[f] == sum(mask.sum() for _, mask in here)
        assert gain[f] == pytest.approx(sum(tree.gain[mask].sum() for tree, mask in here))
        assert cover[f] == pytest.approx(sum(tree.cover[mask].sum() for tree, mask in here))
        per_output = sum(tree.output_gain[mask].sum(axis=0) for tree, mask in here)
        np.testing.assert_allclose(
            model.feature_importance(per_output=True)[:, f], per_output, rtol=1e-6
        )


def test_importance_of_scalar_trees():
    model = random_model(scalar=True)
    per_output = model.feature_importance(per_output=True)
    np.testing.assert_allclose(model.feature_importance(), per_output.mean(axis=0))
    gains = sum(tree.gain.sum() for tree, _, output in split_rows(model) if output == 2)
    assert per_output[2].sum() == pytest.approx(gains)


def test_invalid_importance_raises():
    with pytest.raises(ValueError, match="got 'weight'"):
        random_model().feature_importance("weight")
    with pytest.raises(ValueError, match="per_output"):
        random_model().feature_importance("split", per_output=True)


@pytest.mark.parametrize(
    ("scalar", "kinds"), [(False, ("dense",)), (True, ("dense",)), (False, ALL_KINDS)]
)
@pytest.mark.parametrize(
    "duplicate", [Model.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies(scalar, kinds, duplicate):
    model = random_model(
        scalar=scalar, kinds=kinds, output_names=["a", "b", "c"], metadata={"kind": "regression"}
    )
    model.best_iteration = 4
    other = duplicate(model)
    assert other.equals(model)
    table = example_table(model)
    np.testing.assert_array_equal(other.predict_raw(table), model.predict_raw(table))
    other.truncate(5)
    other.metadata["kind"] = "changed"
    assert model.n_rounds == 6 and model.metadata == {"kind": "regression"}
    assert not other.equals(model)


@pytest.mark.parametrize(
    ("scalar", "kinds"), [(False, ALL_KINDS), (True, ("dense",)), (True, ("linear", "dense"))]
)
@pytest.mark.parametrize("outputs", [slice(0, 1), slice(1, 3), slice(0, 3)])
def test_part_of_a_model_has_the_scores_of_its_outputs(scalar, kinds, outputs):
    unit = {"target_scale": [2.0, 0.5, 1e6], "target_offset": [0.0, 1e9, -3.0]}
    model = random_model(scalar=scalar, kinds=kinds, output_names=["a", "b", "c"], **unit)
    model.best_iteration = 4
    part = select_outputs(model, outputs, model.objective, {"of": "it"})
    part = Model.from_bytes(part.to_bytes())
    assert part.metadata == {"of": "it"} and part.best_iteration == 4 and part.n_rounds == 6
    assert part.output_names == model.output_names[outputs]
    table = example_table(model)
    np.testing.assert_array_equal(part.predict_raw(table), model.predict_raw(table)[:, outputs])
    gains = model.feature_importance("gain", per_output=True)[outputs]
    np.testing.assert_allclose(part.feature_importance("gain", per_output=True), gains, rtol=1e-6)
    np.testing.assert_allclose(part.feature_importance("gain"), gains.mean(axis=0), rtol=1e-5)


def test_equals_detects_all_differences():
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
    assert not random_model(kinds=("linear",)).equals(model)
    assert not random_model(kinds=("sparse",)).equals(
        random_model(kinds=("sparse", "sparse", "linear"))
    )


def test_invalid_fields_raise():
    for fields, message in [
        ({"base_score": [0.0, np.nan, 1.0]}, "finite"),
        ({"feature_names": ["a"]}, "feature_names has 1 names, but 4"),
        ({"output_names": ["a"]}, "output_names has 1 names, but 3"),
        ({"target_scale": np.ones(3)}, "target_scale"),
        ({"target_scale": np.ones(2), "target_offset": np.ones(2)}, "3 finite numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            random_model(**fields)


@pytest.mark.parametrize(
    "options", [{}, {"leaf": "linear"}, {"multi_strategy": "one_output_per_tree"}]
)
def test_wide_sparse_rows_are_predicted_as_dense_rows(options):
    """Only columns that the trees use have codes."""
    rng = np.random.default_rng(5)
    X = scipy.sparse.random(400, 900, 0.02, "lil", np.float32, rng)
    X[:, 7] = rng.normal(size=(400, 1))
    X = X.tocsr()
    y = np.asarray(X[:, [3, 7]].todense()) + 0.1 * rng.normal(size=(400, 2))
    estimator = PolyleafRegressor(n_estimators=5, max_leaves=4, **options).fit(X, y)
    used = estimator.model_.forest.split_features(0, estimator.model_.n_trees)
    assert 0 < len(used) < 100
    for rows in (X, X[:20], X[:1]):
        np.testing.assert_array_equal(estimator.predict(rows), estimator.predict(rows.toarray()))
