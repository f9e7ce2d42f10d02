"""SHAP values of fitted models for all leaf kinds, objectives, target scales and kinds of X."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from reference.shap import leaf_value

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, inspection, load_model
from polyleaf.datasets import load
from polyleaf.inspection import shap_interop
from polyleaf.model import shap
from polyleaf.sketching.projections import Projector

CLOSE = 2.0**-20  # of the sum of magnitudes
rng = np.random.default_rng(0)
N, F = 300, 6
X = rng.normal(size=(N, F)).astype(np.float32)
X[rng.random(X.shape) < 0.05] = np.nan
FILLED = np.nan_to_num(X)
a, b, c, d = FILLED[:, :4].T
Y = np.column_stack([a * b, c, np.sin(3 * d)]).astype(np.float32)
LABELS = (Y > 0).astype(int)
CLASSES = np.array(["low", "middle", "high"])[np.digitize(Y[:, 0], [-0.5, 0.5])]
SMALL = {"n_estimators": 12, "max_leaves": 10}


def raw_scores(model, rows):
    """Return raw scores in the unit of y, float64 (n_rows, n_scores), without float32 rounding."""
    inner = model.model_
    table = model._features(rows)
    numbers, leaves = table.get_raw_values(), inner.apply(table)
    known = set(range(inner.n_features))
    sums = np.tile(inner.base_score, (table.n_rows, 1))
    for tree in inner.trees[: leaves.shape[1]]:
        columns = slice(None) if tree.outputs is None else tree.outputs
        for row in range(table.n_rows):
            leaf = leaves[row, tree.number]
            sums[row, columns] += leaf_value(tree.leaves, leaf, numbers[:, row], known)
    if inner.target_scale is not None:
        sums = sums * inner.target_scale + inner.target_offset
    np.testing.assert_allclose(sums, model._raw(rows, (0, inner.n_rounds)), rtol=1e-5, atol=1e-5)
    return sums


def assert_additive(model, rows, background=None):
    values = model.shap_values(rows, background, iteration_range=(0, 0)).astype(np.float64)
    base = model.shap_base_values(background, iteration_range=(0, 0))
    raw = raw_scores(model, rows)
    if values.ndim == 2:
        raw = raw[:, 0]
    error = np.abs(values.sum(axis=1) + base - raw)
    assert (error <= CLOSE * np.abs(values).sum(axis=1)).all()
    assert np.abs(values).max() > 0.01


def regress(y=Y, **parameters):
    return PolyleafRegressor(**SMALL | parameters).fit(X, y)


def classify(y=CLASSES, **parameters):
    return PolyleafClassifier(**SMALL, **parameters).fit(X, y)


SCALED = Y * [1, 50, 1e-3] + 7
PER_OUTPUT = {"multi_strategy": "one_output_per_tree", "normalize_targets": True}
BY_LAYER = {"boosting_step": "layer", "rows_per_layer": [200, 90], "grow_policy": "depthwise"}
BY_LAYER |= {"n_estimators": 5, "max_depth": 4, "max_leaves": None}
MODELS = {
    "many targets": regress,
    "one target": lambda: regress(Y[:, 0]),
    "normalised": lambda: regress(SCALED, normalize_targets=True),
    "far from 0": lambda: regress(Y + np.array([30, 0, 0]), base_score=0.0),
    "quantiles": lambda: regress(objective="quantile", quantile_alpha=[0.2, 0.8]),
    "poisson": lambda: regress(np.exp(Y), objective="poisson"),
    "two classes": lambda: classify(LABELS[:, 0]),
    "classes": classify,
    "labels": lambda: classify(LABELS),
    "one output per tree": lambda: regress(**PER_OUTPUT),
    "layers": lambda: regress(**BY_LAYER),
    "sampled": lambda: regress(sampling_method="goss"),
    "full curvature": lambda: classify(hessian="full"),
    "sparse leaves": lambda: regress(leaf="sparse", leaf_k=2),
    "linear leaves": lambda: regress(leaf="linear"),
    "linear leaves, scaled": lambda: regress(SCALED, leaf="linear", normalize_targets=True),
    "linear leaves, one target": lambda: regress(
        Y[:, 0], leaf="linear", linear_extrapolation="none"
    ),
    "projected": lambda: PolyleafRegressor(**SMALL, projection=Projector("pca", 3)).fit(FILLED, Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_shap_values_sum_to_raw_scores(name):
    model = MODELS[name]()
    rows = FILLED[:60] if name == "projected" else X[:60]
    if "linear" in name:
        # outside the training range, where leaf values are clipped
        rows = np.vstack([rows, 40 * rows[:10]])
    assert_additive(model, rows)
    assert_additive(model, rows[:20] if "linear" in name else rows, rows[-9:])


def test_additive_to_a_millionth_after_many_trees():
    X, X_test, y, _ = load("energy").split()
    model = PolyleafRegressor(n_estimators=300, n_jobs=1).fit(X, y)
    assert_additive(model, X_test[:40])
    assert_additive(model, X_test[:40], X)


def test_background_of_training_rows_has_the_same_base_values():
    model = MODELS["many targets"]()
    np.testing.assert_allclose(model.shap_base_values(), model.shap_base_values(X), atol=1e-12)
    np.testing.assert_allclose(model.shap_base_values(), model.predict(X).mean(axis=0), atol=1e-5)


def test_shapes():
    many, one = MODELS["many targets"](), MODELS["one target"]()
    assert many.shap_values(X[:4]).shape == (4, F, 3)
    assert many.shap_values(X[:4], interactions=True).shape == (4, F, F, 3)
    assert many.shap_base_values().shape == (3,)
    assert one.shap_values(X[:4]).shape == (4, F)
    assert one.shap_values(X[:4], interactions=True).shape == (4, F, F)
    assert np.ndim(one.shap_base_values()) == 0
    assert one.shap_values(X[:4], outputs=[0]).shape == (4, F, 1)
    assert many.shap_values(X[:4], outputs=1).shape == (4, F)
    assert many.shap_values(X[:4]).dtype == np.float32


def test_outputs_by_number_or_name():
    frame = pd.DataFrame(Y, columns=["a", "b", "c"])
    model = PolyleafRegressor(**SMALL).fit(X, frame)
    whole, base = model.shap_values(X[:9]), model.shap_base_values()
    for chosen, numbers in (
        ([2, 0], [2, 0]),
        (["c", "a"], [2, 0]),
        (["b", 2], [1, 2]),
        (np.array([1]), [1]),
        ([1, 1, 0], [1, 1, 0]),
    ):
        assert (model.shap_values(X[:9], outputs=chosen) == whole[..., numbers]).all()
        assert (model.shap_base_values(outputs=chosen) == base[numbers]).all()
    assert (model.shap_values(X[:9], outputs="b") == whole[..., 1]).all()
    assert model.shap_base_values(outputs="b") == base[1]


def test_outputs_per_row(monkeypatch):
    monkeypatch.setattr(shap, "_ROWS_PER_BATCH", 4)
    model = MODELS["labels"]()
    whole, base = model.shap_values(X[:9]), model.shap_base_values()
    best, _ = model.predict_topk(X[:9], 2)
    best[3, 1] = -1
    found = model.shap_values(X[:9], outputs=best)
    expected = model.shap_base_values(outputs=best)
    for row in range(9):
        for column, k in enumerate(best[row]):
            assert (found[row, :, column] == (whole[row, :, k] if k >= 0 else 0)).all()
            np.testing.assert_equal(expected[row, column], base[k] if k >= 0 else np.nan)
    with_pairs = model.shap_values(X[:9], interactions=True, outputs=best)
    np.testing.assert_allclose(with_pairs.sum(axis=1), found, atol=1e-6)


def test_shap_values_use_the_best_round():
    model = PolyleafRegressor(n_estimators=80, early_stopping_rounds=5, learning_rate=0.5)
    model.fit(X[:200], Y[:200], X_val=X[200:], y_val=Y[200:])
    best = model.best_iteration_ + 1
    assert best < model.n_iter_
    total = model.shap_values(X[:20]).sum(axis=1) + model.shap_base_values()
    np.testing.assert_allclose(total, model.predict(X[:20]), atol=1e-5)
    assert (model.shap_values(X[:5]) == model.shap_values(X[:5], iteration_range=(0, best))).all()
    parts = [model.shap_values(X[:5], iteration_range=part) for part in ((0, 3), (3, best))]
    np.testing.assert_allclose(sum(parts), model.shap_values(X[:5]), atol=1e-6)
    assert (model.shap_values(X[:5], iteration_range=(0, 0)) != model.shap_values(X[:5])).any()


def test_categories_missing_values_and_frames():
    names = np.array(["red", "green", "blue"])
    colour = pd.Categorical(names[np.digitize(FILLED[:, 0], [-0.4, 0.4])])
    frame = pd.DataFrame(X[:, 1:4], columns=["a", "b", "c"]).assign(colour=colour)
    model = PolyleafRegressor(**SMALL).fit(frame, Y)
    assert_additive(model, frame[:40])
    assert_additive(model, frame[:40], frame[100:110])
    data = shap_interop._get_values(model._read_shap_rows(frame[:3]))
    assert data.dtype == object and data[0, 3] == colour[0]
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        model.shap_values(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        model.shap_values(frame, background=frame.rename(columns={"a": "z"}))


def test_dataset_equals_its_table():
    for name in ("many targets", "linear leaves"):
        model = MODELS[name]()
        data = Dataset(X[:30], reference=model.model_.mapper, keep_features=True)
        assert (model.shap_values(data) == model.shap_values(X[:30])).all()
        few = model.shap_values(X[:4], background=data)
        assert (few == model.shap_values(X[:4], background=X[:30])).all()
    bare = Dataset(X[:30], reference=model.model_.mapper)
    with pytest.raises(ValueError, match="linear leaves"):
        model.shap_values(bare)
    with pytest.raises(ValueError, match="reference="):
        model.shap_values(Dataset(X[:30]))


def test_sparse_features_and_sparse_targets():
    words = sp.random(200, 40, 0.1, random_state=0, format="csr", dtype=np.float32)
    labels = sp.csr_matrix((words.toarray()[:, :12] > 0.3).astype(np.float32))
    model = PolyleafClassifier(n_estimators=8, leaf="sparse", leaf_k=3).fit(words, labels)
    whole = model.shap_values(words[:30])
    assert whole.shape == (30, 40, 12)
    assert_additive(model, words[:30])
    best, _ = model.predict_topk(words[:30], 3)
    own = model.shap_values(words[:30], outputs=best)
    for row in range(30):
        assert (own[row] == np.where(best[row] >= 0, whole[row][:, best[row]], 0)).all()


def test_memory_is_bounded_by_chunks(monkeypatch):
    for name in ("many targets", "linear leaves", "sparse leaves"):
        model = MODELS[name]()
        whole = model.shap_values(X[:50])
        with_pairs = model.shap_values(X[:50], interactions=True)
        data = Dataset(X[:50], reference=model.model_.mapper, keep_features=True)
        with monkeypatch.context() as patch:
            patch.setattr(shap, "_CHUNK_BYTES", 200)
            patch.setattr(shap, "_CHUNK_VALUES", 7 * 3 * F)
            assert (model.shap_values(X[:50]) == whole).all()
            assert (model.shap_values(data) == whole).all()
            assert (model.shap_values(X[:50], interactions=True) == with_pairs).all()
            chunks = list(inspection.iter_shap_values(model, X[:50]))
        assert [rows.stop - rows.start for rows, _ in chunks] == [7] * 7 + [1]
        assert (np.concatenate([values for _, values in chunks]) == whole).all()


def test_memory_error_names_the_size():
    model = MODELS["many targets"]()
    found, chosen = shap.ShapExplainer(model.model_), shap.resolve_outputs(None, 3, None)
    with pytest.raises(MemoryError, match=r"1000000000000000, 6, 3.* GiB"):
        found._zeros(10**15, 3, False)
    assert found.values(model._read_shap_rows(X[:2]), chosen).shape == (2, F, 3)


def test_saved_model_has_the_same_shap_values_on_several_threads(tmp_path):
    model = MODELS["many targets"]()
    expected = model.set_params(n_jobs=1).shap_values(X)
    for n_jobs in (2, 5):
        assert (model.set_params(n_jobs=n_jobs).shap_values(X) == expected).all()
    model.save_model(tmp_path / "with")
    model.save_model(tmp_path / "without", statistics=False)
    again = load_model(tmp_path / "with")
    assert (again.shap_values(X[:9]) == model.shap_values(X[:9])).all()
    bare = load_model(tmp_path / "without")
    with pytest.raises(ValueError, match="background is required"):
        bare.shap_values(X[:9])
    assert (bare.shap_values(X[:9], background=X) == model.shap_values(X[:9], background=X)).all()


def test_importance_is_the_mean_absolute_value():
    model = MODELS["many targets"]()
    values = model.shap_values(X)
    per_output = model.feature_importance("shap", per_output=True, X=X)
    np.testing.assert_allclose(per_output, np.abs(values).mean(axis=0).T, rtol=1e-6)
    np.testing.assert_allclose(model.feature_importance("shap", X=X), per_output.mean(axis=0))
    assert per_output[1].argmax() == 2 and per_output[2].argmax() == 3
    with pytest.raises(ValueError, match="pass them as X"):
        model.feature_importance("shap")


def test_invalid_input_raises():
    model = MODELS["many targets"]()
    for outputs, message in (
        ("a", "names the output 'a', but outputs have no names: use numbers"),
        (3, "outputs names output 3"),
        (-1, "outputs names output -1"),
        ([], "outputs must be"),
        ([[[0]]], "outputs must be"),
        ([[3]] * 2, "outputs names output 3"),
        ([[0]], "outputs has 1 rows, but X has 2"),
    ):
        with pytest.raises(ValueError, match=message):
            model.shap_values(X[:2], outputs=outputs)
    for outputs in ([True], [0.5]):
        with pytest.raises(TypeError, match=r"must name outputs by text .* got (True|0\.5)"):
            model.shap_values(X[:2], outputs=outputs)
    for explained, rows, options, message in (
        (model, X[:, :3], {}, "X has 3 features"),
        (model, X, {"background": X[:, :3]}, "X has 3 features"),
        (model, X, {"background": X[:0]}, "background must have"),
        (model, X, {"iteration_range": (0, 99)}, "Rounds 0 to 99"),
        (PolyleafRegressor(), X, {}, "is not fitted yet"),
        (classify(), X, {"outputs": "huge"}, "names the output 'huge'"),
    ):
        with pytest.raises(ValueError, match=message):
            explained.shap_values(rows, **options)
