"""Objectives that users register: training, saving, loading, and errors."""

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import polyleaf._core as _core
from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor, load_model
from polyleaf.metrics import Metric
from polyleaf.model.serialize import ModelFileError
from polyleaf.objectives import (
    BoundObjective,
    Huber,
    Objective,
    Quantile,
    Softmax,
    SquaredError,
    get_objective,
    objective_class,
    objective_from_dict,
    objective_names,
    register,
    registry,
)
from polyleaf.objectives.base import as_matrices, as_weight

SMALL = {"n_estimators": 5, "max_leaves": 6, "min_child_samples": 3, "random_state": 0}


class OwnProblem(BoundObjective):
    """A loss with ``values(y, z) -> loss, gradient, Hessian``, all (n, K), float64."""

    def base_score(self, n_threads=1):
        return np.zeros(self.n_outputs)

    def _evaluate(self, raw):
        weight = 1.0 if self.weight is None else self.weight
        loss, g, h = self.objective.values(self.target, raw.astype(np.float64) + self.base)
        return loss * weight, g * weight, h * weight, np.broadcast_to(weight, loss.shape)

    def derivatives(self, raw, g, h, n_threads=1):
        _, g[...], hessian, _ = self._evaluate(raw)
        if h is not None:
            h[...] = hessian if h.shape == g.shape else self.weight

    def loss(self, raw, n_threads=1):
        loss, _, _, weight = self._evaluate(raw)
        return float(loss.sum() / weight.sum())


class Own(Objective):
    def bind(self, rows):
        rows = as_matrices(rows)
        return OwnProblem(self, rows, rows.target.shape[1])


@register
@dataclass(frozen=True)
class OwnSquare(Own):
    name: ClassVar[str] = "own square"
    aliases: ClassVar[tuple[str, ...]] = ("own l2",)
    is_translation_invariant: ClassVar[bool] = True
    has_constant_hessian = True

    def values(self, y, z):
        return (z - y) ** 2 / 2, z - y, np.ones_like(z)


@register
@dataclass(frozen=True)
class OwnExpectile(Own):
    name: ClassVar[str] = "own expectile"

    level: float = 0.5
    bounds: tuple[float, ...] = (0.0, 1.0)

    def values(self, y, z):
        c = np.where(z < y, self.level, 1 - self.level)
        return c * (z - y) ** 2 / 2, c * (z - y), c


@register
@dataclass(frozen=True)
class OwnLabels(Own):
    name: ClassVar[str] = "own labels"
    target_kinds: ClassVar[tuple[str, ...]] = ("labels",)
    probabilities: ClassVar[bool] = True

    def transform(self, scores):
        return 1 / (1 + np.exp(-scores))

    def values(self, y, z):
        p = self.transform(z)
        return np.logaddexp(0, z) - y * z, p - y, p * (1 - p)


@register
@dataclass(frozen=True)
class OwnClasses(Objective):
    """Softmax with label smoothing: the class has ``1 - smoothing``, the others the rest."""

    name: ClassVar[str] = "own classes"
    target_kinds: ClassVar[tuple[str, ...]] = ("classes",)
    parameters: ClassVar[dict[str, str]] = {"n_outputs": "n_classes"}
    separable: ClassVar[bool] = False
    has_full_hessian: ClassVar[bool] = False
    probabilities: ClassVar[bool] = True

    smoothing: float = 0.0
    n_classes: int | None = None

    def bind(self, rows):
        return OwnProblem(self, rows.replace(weight=as_weight(rows)), self.n_classes)

    def transform(self, scores):
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def values(self, y, z):
        p, k = self.transform(z), self.n_classes
        share = np.full_like(p, self.smoothing / (k - 1))
        share[np.arange(len(y)), y] = 1 - self.smoothing
        return -(share * np.log(p)).sum(axis=1, keepdims=True), p - share, p * (1 - p)


def data(seed=0, n=200):
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 8, (n, 4)) / 4.0
    return X, np.stack([X[:, 0] * X[:, 1], X[:, 2], -X[:, 3]], axis=1)


def save_and_load(model, tmp_path):
    model.save_model(tmp_path / "own.model")
    return load_model(tmp_path / "own.model")


# --- training ---


@pytest.mark.parametrize("objective", ["own square", "OWN L2", OwnSquare, OwnSquare()])
def test_custom_squared_error_equals_the_built_in_loss(objective, tmp_path):
    X, Y = data()
    settings, weight = {**SMALL, "base_score": 0.0}, np.where(X[:, 0] > 0, 2.0, 0.5)
    own = PolyleafRegressor(objective=objective, **settings).fit(X, Y, sample_weight=weight)
    built_in = PolyleafRegressor(**settings).fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(own.predict(X), built_in.predict(X))
    loaded = save_and_load(own, tmp_path)
    assert loaded.model_.objective == OwnSquare()
    np.testing.assert_array_equal(loaded.predict(X), own.predict(X))


def test_parameters_are_stored_and_training_continues_from_a_file(tmp_path):
    X, Y = data()
    objective = OwnExpectile(0.9, bounds=(0.25, 0.75))
    whole = PolyleafRegressor(objective=objective, **{**SMALL, "n_estimators": 8}).fit(X, Y)
    part = save_and_load(PolyleafRegressor(objective=objective, **SMALL).fit(X, Y), tmp_path)
    assert part.objective == part.model_.objective == objective
    part.set_params(n_estimators=3).fit(X, Y, init_model=part.model_)
    np.testing.assert_array_equal(part.predict(X), whole.predict(X))
    watched = PolyleafRegressor(objective=objective, **SMALL).fit(X, Y, eval_set=[(X, Y)])
    log = watched.evals_result_["validation_0"]
    assert list(log) == ["loss"] and np.all(np.diff(log["loss"]) < 0)


def test_custom_multiclass_loss(tmp_path):
    X, Y = data()
    y = np.array(["a", "b", "c"])[Y.argmax(axis=1)]
    model = PolyleafClassifier(objective=OwnClasses(0.1), **SMALL)
    part = y != "c"  # evaluation data may lack classes
    model.fit(X, y, eval_set=[(X[part], y[part])])
    assert model.model_.objective == OwnClasses(0.1, n_classes=3)
    assert np.all(np.diff(model.evals_result_["validation_0"]["loss"]) < 0)
    loaded = save_and_load(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(loaded.predict_proba(X).sum(axis=1), 1)
    assert loaded.score(X, y) > 0.8 and set(loaded.predict(X)) <= set("abc")
    two = PolyleafClassifier(objective="own classes", **SMALL).fit(X, y == "a")
    assert two.predict_proba(X).shape == (len(X), 2) and two.model_.n_outputs == 2


def test_custom_multilabel_loss(tmp_path):
    X, Y = data()
    many = PolyleafClassifier(objective="own labels", **SMALL).fit(X, (Y > 0).astype(int))
    assert many.predict(X).shape == Y.shape and many.score(X, (Y > 0).astype(int)) > 0.4
    two = PolyleafClassifier(objective=OwnLabels, **SMALL).fit(X, Y[:, 1] > 0)
    logistic = PolyleafClassifier(base_score=0.0, **SMALL).fit(X, Y[:, 1] > 0)
    np.testing.assert_allclose(two.predict_proba(X), logistic.predict_proba(X), atol=1e-5)
    against_rest = PolyleafClassifier(objective="own labels", **SMALL).fit(X, Y.argmax(axis=1))
    loaded = save_and_load(against_rest, tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), against_rest.predict_proba(X))


def test_target_kinds_decide_which_estimator_accepts_an_objective():
    X, Y = data()
    with pytest.raises(ValueError, match="'own labels' is for classes: use PolyleafClassifier"):
        PolyleafRegressor(objective="own labels", **SMALL).fit(X, Y)
    with pytest.raises(ValueError, match="'own square' is for numbers: use PolyleafRegressor"):
        PolyleafClassifier(objective=OwnSquare, **SMALL).fit(X, Y > 0)
    with pytest.raises(ValueError, match=r"normalize_targets=True.*'own expectile'"):
        PolyleafRegressor(objective="own expectile", normalize_targets=True, **SMALL).fit(X, Y)
    PolyleafRegressor(objective="own square", normalize_targets=True, **SMALL).fit(X, Y)
    assert not hasattr(PolyleafClassifier(objective=OwnSquare), "predict_proba")
    assert hasattr(PolyleafClassifier(objective="own labels"), "predict_proba")


def test_number_of_classes_of_an_objective_instance_is_inferred():
    X, Y = data()
    y = Y.argmax(axis=1)
    model = PolyleafClassifier(objective=Softmax(), eval_metric="loss", **SMALL)
    model.fit(X, y, eval_set=[(X[y < 2], y[y < 2])])
    assert model.model_.objective == Softmax(n_classes=3)
    with pytest.raises(ValueError, match="4 scores, but y needs 3"):
        PolyleafClassifier(objective=Softmax(n_classes=4), **SMALL).fit(X, y)


def test_subclass_of_a_built_in_objective(tmp_path):
    @register
    @dataclass(frozen=True)
    class Named(Huber):
        name: ClassVar[str] = "named"
        default_metric: ClassVar[str] = "rmse"

    X, Y = data()
    own = PolyleafRegressor(objective=Named(0.5), **SMALL).fit(X, Y, eval_set=[(X, Y)])
    assert list(own.evals_result_["validation_0"]) == ["rmse", "relative_rmse"]
    built_in = PolyleafRegressor(objective="huber", huber_delta=0.5, **SMALL).fit(X, Y)
    np.testing.assert_array_equal(save_and_load(own, tmp_path).predict(X), built_in.predict(X))


# --- files and names ---


def test_loading_an_unregistered_objective_raises(tmp_path, monkeypatch):
    X, Y = data()
    model = PolyleafRegressor(objective=OwnExpectile(0.9), **SMALL).fit(X, Y)
    model.save_model(tmp_path / "own.model")
    monkeypatch.delitem(registry._BY_NAME, "own expectile")
    message = r"class OwnExpectile of the module .*test_registry(?s:.*)register\(OwnExpectile\)"
    with pytest.raises(ModelFileError, match=message):
        load_model(tmp_path / "own.model")


def test_loading_a_file_imports_no_modules():
    stored = {"name": "own expectile", "class": "calendar_of_mine:Missing", "level": 0.9}
    # the name identifies a class, which may move
    assert objective_from_dict(stored) == OwnExpectile(0.9)
    with pytest.raises(ValueError, match="class Missing of the module this"):
        objective_from_dict({"name": "nobody's", "class": "this:Missing"})
    assert "this" not in sys.modules


def test_built_in_names_cannot_be_registered():
    with pytest.raises(ValueError, match="class Huber of the module mine"):
        objective_from_dict({"name": "huber", "class": "mine:Huber", "delta": 1.0})
    with pytest.raises(ValueError, match="Unknown objective 'own square' in stored model"):
        objective_from_dict({"name": "own square"})


def test_class_can_be_registered_again():
    again = register(OwnSquare)
    assert again is OwnSquare is objective_class("own square")
    assert "own square" not in objective_names()
    assert get_objective(OwnExpectile, level=0.75) == OwnExpectile(0.75)


def make_class(**traits):
    return dataclass(frozen=True)(type("Described", (OwnSquare,), {"aliases": (), **traits}))


@pytest.mark.parametrize(
    ("cls", "kind", "message"),
    [
        (OwnSquare(), TypeError, "takes a subclass"),
        (int, TypeError, "takes a subclass"),
        (type("Bare", (OwnSquare,), {"name": "bare"}), TypeError, r"@dataclass\(frozen=True\)"),
        (
            dataclass(frozen=True)(type("Open", (Objective,), {"name": "open"})),
            TypeError,
            "define bind",
        ),
        (make_class(name="huber"), ValueError, "taken by polyleaf.objectives.elementwise:Huber"),
        (make_class(name="new", aliases=("L2",)), ValueError, "'L2'.*taken by"),
        (make_class(name="auto"), ValueError, "taken by Polyleaf itself"),
        (make_class(name="own expectile"), ValueError, "taken by .*test_registry:OwnExpectile"),
        (make_class(name=""), ValueError, "needs a name"),
        (
            make_class(name="new", target_kinds=("numbers",)),
            ValueError,
            "some of values, labels, classes",
        ),
        (make_class(name="new", parameters={"huber_delta": "delta"}), ValueError, "'delta'"),
    ],
)
def test_register_raises(cls, kind, message):
    with pytest.raises(kind, match=message):
        register(cls)
    assert "new" not in registry.registered_objectives()


# --- attributes of built-in objectives ---


def test_losses_with_unit_hessian():
    constant = {name for name in objective_names() if get_objective(name).has_constant_hessian}
    assert constant == {
        "squared_error",
        "absolute_error",
        "absolute_percentage_error",
        "quantile",
        "huber",
        "log_cosh",
        "squared_hinge",
    }


def test_losses_of_the_core_require_exactly_their_parameters():
    assert _core.Loss.available()["huber"] == ["delta"] and _core.ClassLoss.available()[
        "softmax"
    ] == ["factor"]
    for bad, message in (
        (("nothing", {}), 'no loss "nothing"'),
        (("huber", {}), 'needs the parameter "delta"'),
        (("huber", {"delta": 1.0, "slope": 2.0}), 'no parameter "slope"'),
    ):
        with pytest.raises(ValueError, match=message):
            _core.Loss(*bad)


def test_estimator_arguments_are_passed_to_objectives():
    known = (
        set(PolyleafRegressor().get_params())
        | set(PolyleafClassifier().get_params())
        | {"n_outputs"}
    )
    for name in objective_names():
        if "relevance" in objective_class(name).target_kinds:  # rankers have their parameters
            continue
        taken = objective_class(name).parameters
        assert set(taken.values()) == {taken[argument] for argument in taken if argument in known}


@pytest.mark.parametrize(
    ("estimator", "y", "n"),
    [
        (PolyleafRegressor(objective="poisson"), [0, 1, 2, 5], 1),
        (PolyleafRegressor(objective=Quantile()), [0, 1, 2, 5], 0),
        (PolyleafClassifier(), [0, 1, 2, 2], 1),
        (PolyleafMultiTask({"a": "huber", "b": "softmax"}), {"a": [0, 1, 2], "b": [0, 1, 2]}, 2),
    ],
)
def test_name_of_an_objective_is_looked_up_once_in_a_fit(monkeypatch, estimator, y, n):
    names = []
    look_up = registry.get_registered
    monkeypatch.setattr(
        registry, "get_registered", lambda name: names.append(name) or look_up(name)
    )
    X = np.arange(len(next(iter(y.values())) if isinstance(y, dict) else y), dtype=float)[:, None]
    estimator.set_params(n_estimators=1).fit(X, y)
    assert len(names) == n


class Watching(SquaredError):
    """Keeps the rows that it is bound to."""

    bound: ClassVar[list] = []

    def bind(self, rows):
        self.bound.append(rows)
        return super().bind(rows)


def test_objectives_and_metrics_receive_groups(monkeypatch):
    """A loss or metric of groups of rows needs no change elsewhere."""
    monkeypatch.setattr(Watching, "bound", [])
    X = np.random.default_rng(0).normal(size=(80, 3))
    groups = [f"g{i % 20:02}" for i in range(80)]
    evaluated = []
    largest = Metric(
        "largest group",
        lambda rows, prediction: evaluated.append(rows) or np.bincount(rows.groups).max(),
    )
    model = PolyleafRegressor(Watching(), n_estimators=2, validation_fraction=0.2, n_jobs=1)
    model.set_params(eval_metric=largest).fit(X, X[:, 0], groups=groups)
    (trained,), held_out = Watching.bound, evaluated[0]
    assert trained.n_rows == 64 and held_out.n_rows == 16
    assert not set(trained.groups) & set(held_out.groups)
    names = [int(name[1:]) for name in groups]
    expected = dict(zip(X[:, 0].astype(np.float32).tolist(), names, strict=True))
    for rows in (trained, held_out):
        target = rows.target[:, 0].astype(np.float32).tolist()
        assert [expected[y] for y in target] == rows.groups.tolist()


@dataclass(frozen=True)
class Pairwise(Objective):
    """Logistic loss of pairs of rows of a group whose targets differ (RankNet)."""

    name: ClassVar[str] = "pairwise"
    is_row_separable: ClassVar[bool] = False

    def bind(self, rows):
        return BoundPairwise(self, as_matrices(rows), 1)


class BoundPairwise(BoundObjective):
    def base_score(self, n_threads=1):
        return np.zeros(1)

    def derivatives(self, raw, g, h, n_threads=1):
        better = self.target > self.target.T  # row i before row j
        pairs = better & (self.rows.groups[:, None] == self.rows.groups)
        wrong = np.where(pairs, 1 / (1 + np.exp(raw - raw.T)), 0.0)
        g[:, 0] = wrong.sum(axis=0) - wrong.sum(axis=1)
        hessian = wrong * (1 - wrong)
        h[:, 0] = hessian.sum(axis=0) + hessian.sum(axis=1) + 1e-6

    def loss(self, raw, n_threads=1):
        pairs = (self.target > self.target.T) & (self.rows.groups[:, None] == self.rows.groups)
        return float(np.log1p(np.exp(raw.T - raw))[pairs].mean())


def share_of_ordered_pairs(rows, prediction):
    pairs = (rows.target > rows.target.T) & (rows.groups[:, None] == rows.groups)
    return float((prediction > prediction.T)[pairs].mean())


def test_ranking_within_groups_takes_an_objective_and_a_metric():
    """The level of a group, which no feature shows, says nothing about the order in it."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] + 10 * rng.normal(size=40)[groups]
    metric = Metric("ordered", share_of_ordered_pairs, greater_is_better=True)
    common = dict(n_estimators=60, eval_metric=metric, validation_fraction=0.25, n_jobs=1)
    found = {}
    for objective in (Pairwise(), "squared_error"):
        model = PolyleafRegressor(objective, random_state=0, early_stopping_rounds=20, **common)
        model.fit(X, y, groups=groups)
        found[model.model_.objective.name] = model.best_score_
    assert found["pairwise"] > 0.9 > 0.8 > found["squared_error"]
