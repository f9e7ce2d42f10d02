"""Models that grow: old outputs keep their scores bit for bit, new ones follow the old trees."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from support.distributed_fits import fit_on_threads

from polyleaf import (
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRegressor,
    concatenate,
    load_model,
    refit,
)

RNG = np.random.default_rng(0)
N, OLD_ROUNDS = 400, 6
X = RNG.normal(size=(N, 4))
VALUES = np.column_stack([X[:, 0] + X[:, 1], X[:, 2] * X[:, 0], X[:, 3] - X[:, 0] + 5])
LABELS = (VALUES > [0.3, 0, 5]).astype(int)
CLASSES = np.array(list("abd"))[np.digitize(X[:, 0], [-0.5, 0.5])]
WIDER_CLASSES = np.where(X[:, 1] > 0.8, "c", CLASSES)
SMALL = {"n_estimators": OLD_ROUNDS, "max_leaves": 8, "n_jobs": 1, "random_state": 0}

REGRESSION = {
    "squared error": {},
    "scaled targets": {"normalize_targets": True},
    "poisson": {"objective": "poisson"},
    "quantiles": {
        "objective": "quantile",
        "quantile_alpha": [0.2, 0.7],
        "calibrate_quantiles": False,  # shifts are those of the last training
    },
    "normal": {"objective": "normal"},
    "linear leaves": {"leaf": "linear"},
    "sparse leaves": {"leaf": "sparse", "leaf_k": 1},
    "layers": {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3},
    "shared": {"hessian": "shared"},
    "sampled": {"subsample": 0.6},
    "one tree an output": {"multi_strategy": "one_output_per_tree"},
    "members": {"quality": "standard", "n_estimators": None},
}


def make_regressor(parameters):
    return PolyleafRegressor(**{**SMALL, **parameters})


def continue_training(model, X, y, n_estimators=3, **arguments):
    parameters = {**model.get_params(), "n_estimators": n_estimators}
    with pytest.warns(UserWarning, match="it is widened by outputs"):
        return type(model)(**parameters).fit(X, y, init_model=model, **arguments)


def widened_refit(model, X, y, **options):
    with pytest.warns(UserWarning, match="it is widened by outputs"):
        return refit(model, X, y, **options)


@pytest.mark.filterwarnings("ignore:refit has dropped")
@pytest.mark.parametrize("kind", REGRESSION)
def test_old_targets_keep_their_scores(kind):
    y = np.abs(VALUES) if kind == "poisson" else VALUES
    old = make_regressor(REGRESSION[kind]).fit(X, y[:, :2])
    n_rounds, before = old.n_iter_, old.model_.predict_raw(X)
    bytes_before = old.save_model()
    model = continue_training(old, X, y)
    after = model.model_.predict_raw(X, 0, n_rounds)
    np.testing.assert_array_equal(after[:, : before.shape[1]], before)
    assert old.save_model() == bytes_before
    assert model.n_iter_ == n_rounds + 3 and model.n_outputs_ == before.shape[1] // 2 * 3
    loaded = load_model(model.save_model())
    np.testing.assert_array_equal(loaded.predict_raw(X), model.predict_raw(X))
    assert concatenate([model.model_[:n_rounds], model.model_[n_rounds:]]).n_trees


@pytest.mark.parametrize("kind", ["squared error", "linear leaves", "layers", "sampled", "shared"])
def test_new_outputs_follow_the_old_trees(kind):
    """With a loss that is separable, as a refit of these trees to the new target alone."""
    old = make_regressor(REGRESSION[kind]).fit(X, VALUES[:, 0])
    model = continue_training(old, X, VALUES[:, [0, 2]])
    alone = refit(old, X, VALUES[:, 2])
    found = model.model_.predict_raw(X, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(found[:, 1], alone.model_.predict_raw(X)[:, 0])
    np.testing.assert_array_equal(found[:, 0], old.predict_raw(X))
    both = widened_refit(old, X, VALUES[:, [0, 2]])
    np.testing.assert_array_equal(both.predict_raw(X)[:, 1], found[:, 1])
    again = refit(old, X, VALUES[:, 0])
    np.testing.assert_array_equal(both.predict_raw(X)[:, 0], again.predict_raw(X))


def test_a_refit_blends_old_outputs_only():
    old = make_regressor({}).fit(X, VALUES[:, :2])
    half = widened_refit(old, X[:200], VALUES[:200], decay_rate=0.5)
    same = refit(old, X[:200], VALUES[:200, :2], decay_rate=0.5)
    np.testing.assert_array_equal(half.predict_raw(X)[:, :2], same.predict_raw(X))
    new = widened_refit(old, X[:200], VALUES[:200])
    np.testing.assert_array_equal(half.predict_raw(X)[:, 2], new.predict_raw(X)[:, 2])


def test_new_outputs_of_groups_are_learned_by_new_trees():
    old = make_regressor({"output_groups": [[0], [1]]}).fit(X, VALUES[:, :2])
    for groups, found in (("auto", [[0], [1], [2]]), ([[0, 2], [1]], [[0, 2], [1]])):
        old.output_groups = groups
        model = continue_training(old, X, VALUES)
        assert model.model_.output_groups == found
        raw = model.model_.predict_raw(X, 0, OLD_ROUNDS)
        np.testing.assert_array_equal(raw[:, :2], old.predict_raw(X))
        assert not np.ptp(raw[:, 2]) and np.ptp(model.predict(X)[:, 2])
    old.output_groups = [[0], [1]]
    wide = widened_refit(old, X, VALUES).predict_raw(X)
    np.testing.assert_array_equal(wide[:, :2], refit(old, X, VALUES[:, :2]).predict_raw(X))
    np.testing.assert_allclose(wide[:, 2], VALUES[:, 2].mean())


def test_statistics_of_old_trees_stay():
    old = make_regressor({}).fit(X, VALUES[:, :2])
    model = continue_training(old, X[:100], VALUES[:100], n_estimators=1)
    for tree, wide in zip(old.model_.trees, model.model_.trees, strict=False):
        for name in ("feature", "count", "cover", "gain"):
            np.testing.assert_array_equal(
                getattr(tree.structure, name), getattr(wide.structure, name)
            )
    gains = model.model_[:OLD_ROUNDS].feature_importance(per_output=True)
    np.testing.assert_array_equal(gains[:2], old.model_.feature_importance(per_output=True))
    assert not gains[2].any()


def test_columns_of_frames_are_matched_by_name():
    frame = pd.DataFrame(VALUES, columns=["x", "new", "y"])
    old = make_regressor({}).fit(X, frame[["x", "y"]])
    model = continue_training(old, X, frame)
    np.testing.assert_array_equal(model.model_.predict_raw(X, 0, 6)[:, [0, 2]], old.predict_raw(X))
    assert model.model_.output_names == ("x", "new", "y")
    with pytest.raises(ValueError, match="in this order"):
        make_regressor({}).fit(X, frame[["y", "new", "x"]], init_model=old)
    with pytest.raises(ValueError, match="3 column"):  # unknown which are new
        make_regressor({}).fit(X, frame.to_numpy(), init_model=old)


@pytest.mark.parametrize("objective", ["softmax", "logistic", "exponential"])
def test_a_new_class_has_its_place_among_the_sorted(objective):
    old = PolyleafClassifier(objective=objective, **SMALL).fit(X, CLASSES)
    for y, known in ((WIDER_CLASSES, [0, 1, 3]), (np.where(X[:, 1] > 1, "e", CLASSES), [0, 1, 2])):
        model = continue_training(old, X, y, n_estimators=20)
        assert model.classes_.tolist() == sorted({*"abd", *y})
        raw = model.model_.predict_raw(X, 0, OLD_ROUNDS)
        np.testing.assert_array_equal(raw[:, known], old.model_.predict_raw(X))
        assert model.score(X, y) > 0.9
        assert model.predict_proba(X).shape == (N, 4)
        again = widened_refit(old, X, y)
        assert again.classes_.tolist() == model.classes_.tolist() and again.score(X, y) > 0.7
        assert (load_model(again.save_model()).predict(X) == again.predict(X)).all()


def test_classes_are_numbers_too():
    y = np.digitize(X[:, 0], [-0.5, 0.5]) * 10
    old = PolyleafClassifier(**SMALL).fit(X, y)
    model = continue_training(old, X, np.where(X[:, 1] > 1, 300, y))
    assert model.classes_.tolist() == [0, 10, 20, 300]
    with pytest.raises(ValueError, match="the label 'a', but the training labels are 0"):
        PolyleafClassifier(**SMALL).fit(X, np.where(X[:, 1] > 1, "x", CLASSES), init_model=old)


def test_two_classes_of_one_score_cannot_be_widened():
    y = np.where(CLASSES == "d", "b", CLASSES)
    old = PolyleafClassifier(**SMALL).fit(X, y)
    for train in (lambda: PolyleafClassifier().fit(X, CLASSES, init_model=old),
                  lambda: refit(old, X, CLASSES)):  # fmt: skip
        with pytest.raises(ValueError, match=r"label 'd', .* one score .* cannot be widened"):
            train()
    two = PolyleafClassifier(objective="softmax", **SMALL).fit(X, y)
    model = continue_training(two, X, CLASSES)
    raw = model.model_.predict_raw(X, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(raw[:, :2], two.model_.predict_raw(X))


def test_labels_grow_with_missing_ones_and_weights():
    weight = RNG.random(N)
    old = PolyleafClassifier(missing_targets="ignore", **SMALL)
    old.fit(X, LABELS[:, :2], sample_weight=weight)
    y = LABELS.astype(float)
    y[:300, 2] = np.nan  # labelled since the last hundred rows
    model = continue_training(old, X, y, sample_weight=weight)
    found = model.model_.predict_raw(X, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(found[:, :2], old.model_.predict_raw(X))
    alone = refit(old, X[300:], LABELS[300:, [2, 2]], sample_weight=weight[300:])
    reached = old.model_.apply(X)
    seen = np.all([np.isin(leaf, leaf[300:]) for leaf in reached.T], axis=0)
    assert seen.sum() > 300
    expected = alone.model_.predict_raw(X[seen])[:, 0]
    np.testing.assert_allclose(found[seen, 2], expected, rtol=1e-5)


def test_sparse_targets_grow():
    parameters = {**SMALL, "leaf": "sparse", "leaf_k": 2}
    old = PolyleafClassifier(**parameters).fit(X, sp.csr_matrix(LABELS[:, :2]))
    model = continue_training(old, X, sp.csr_matrix(LABELS), n_estimators=10)
    found = model.model_.predict_raw(X, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(found[:, :2], old.model_.predict_raw(X))
    assert not np.ptp(found[:, 2]) and np.ptp(model.model_.predict_raw(X)[:, 2]) > 0.5


def test_tasks_get_new_classes():
    kinds = np.array(list("pqr"))[np.digitize(X[:, 3], [-1, 1])].astype(object)
    kinds[:30] = None
    Y = pd.DataFrame({"k": CLASSES, "x": X[:, 1], "z": kinds})
    parameters = {**SMALL, "missing_targets": "ignore"}
    old = PolyleafMultiTask(**parameters).fit(X, Y)
    wider = Y.assign(k=WIDER_CLASSES)
    model = continue_training(old, X, wider, n_estimators=10)
    raw = model.model_.predict_raw(X, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(raw[:, [0, 1, 3, 4, 5, 6, 7]], old.model_.predict_raw(X))
    assert model.score(X, wider) > 0.5
    assert load_model(model.save_model()).task_estimator("k").classes_.tolist() == [*"abcd"]
    refitted = widened_refit(old, X, wider)
    assert refitted.task_estimator("k").classes_.tolist() == [*"abcd"]


def test_ranks_equal_one_machine():
    old = make_regressor({}).fit(X, VALUES[:, :2])
    alone = continue_training(old, X, VALUES)
    estimator = make_regressor({"n_estimators": 3})
    with pytest.warns(UserWarning, match="it is widened by outputs"):
        fits = fit_on_threads(estimator, X, VALUES, 3, init_model=old.model_)
    assert all(fitted.save_model() == alone.save_model() for fitted in fits)


def test_initial_models_cannot_be_widened():
    old = PolyleafRegressor(init=Ridge(), **SMALL).fit(X, VALUES[:, :2])
    with pytest.raises(ValueError, match=r"starts from .* cannot be widened"):
        PolyleafRegressor(init=Ridge(), **SMALL).fit(X, VALUES, init_model=old)


# --- columns ---


def continue_with_columns(model, X, y, **parameters):
    with pytest.warns(UserWarning, match="only its new trees use them"):
        return make_regressor({"n_estimators": 5, **parameters}).fit(X, y, init_model=model)


@pytest.mark.parametrize("parameters", [{}, {"leaf": "linear"}])
def test_new_columns_are_used_by_new_trees(parameters):
    frame = pd.DataFrame(X, columns=[*"abcd"])
    frame["b"] = pd.cut(frame["b"], 4, labels=list("wxyz"))
    wider = frame.assign(e=RNG.normal(size=N), f=pd.Series(RNG.choice(["u", "v"], N)))
    y = VALUES[:, 0] + 2 * wider["e"] + (wider["f"] == "u")
    old = make_regressor(parameters).fit(frame, VALUES[:, 0])
    model = continue_with_columns(old, wider, y, **parameters)
    first = model.model_.predict_raw(wider, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(first, old.model_.predict_raw(frame))
    assert model.feature_names_in_.tolist() == [*"abcdef"]
    assert model.feature_importances_[4] > 0.1 and model.score(wider, y) > old.score(frame, y)
    loaded = load_model(model.save_model())
    np.testing.assert_array_equal(loaded.predict(wider), model.predict(wider))
    empty = wider.assign(e=np.nan, f=None)
    np.testing.assert_array_equal(model.model_.predict_raw(empty, 0, OLD_ROUNDS), first)
    with pytest.raises(ValueError, match="now missing"):
        model.predict(frame)


def test_columns_and_outputs_at_once():
    wider = np.column_stack([X, RNG.normal(size=N)])
    old = make_regressor({}).fit(X, VALUES[:, :2])
    with pytest.warns(UserWarning) as caught:
        model = make_regressor({}).fit(wider, VALUES, init_model=old)
    assert [w for w in caught if "columns number 4" in str(w.message)]
    found = model.model_.predict_raw(wider, 0, OLD_ROUNDS)
    np.testing.assert_array_equal(found[:, :2], old.predict_raw(X))


def test_columns_that_cannot_be_added():
    frame = pd.DataFrame(X, columns=[*"abcd"])
    old = make_regressor({}).fit(frame, VALUES)
    with pytest.raises(ValueError, match=r"the columns 'e', .* refit adds no trees"):
        refit(old, frame.assign(e=1.0), VALUES)
    with pytest.raises(ValueError, match="feature names should match"):
        make_regressor({}).fit(frame[[*"bacd"]].assign(e=1.0), VALUES, init_model=old)
    many = frame.assign(a=[f"n{i}" for i in np.arange(N) % 300])
    old = make_regressor({}).fit(many, VALUES)
    with pytest.raises(ValueError, match="more than 255 categories takes no further"):
        make_regressor({}).fit(many.assign(e=1.0), VALUES, init_model=old)


def test_continued_training_may_begin_to_ignore_missing_targets():
    old = make_regressor({}).fit(X, VALUES[:, :2])
    y = VALUES.copy()
    y[::3, 1] = y[::2, 2] = np.nan
    with pytest.raises(ValueError, match="contains NaN"), pytest.warns(UserWarning):
        PolyleafRegressor(**SMALL).fit(X, y, init_model=old)
    with pytest.warns(UserWarning, match="it is widened by outputs"):
        new = PolyleafRegressor(**SMALL, missing_targets="ignore").fit(X, y, init_model=old)
    assert np.isfinite(new.predict(X)).all()
    y[:, 2] = np.nan
    with (
        pytest.raises(ValueError, match="y has no value in the column 2"),
        pytest.warns(UserWarning),
    ):
        PolyleafRegressor(**SMALL, missing_targets="ignore").fit(X, y, init_model=old)
