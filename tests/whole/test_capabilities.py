"""Every cell of the table "what works with what": what it refuses raises its sentence, and what it
does not refuse works on small data."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from support.distributed_fits import fit_on_threads

from polyleaf import (
    Dataset,
    PolyleafClassifier,
    PolyleafClassifierCV,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRankerCV,
    PolyleafRegressor,
    PolyleafRegressorCV,
    blend,
    load_model,
    memory_estimate,
)
from polyleaf.estimators import distributed_fit
from polyleaf.export import register_skl2onnx, to_c, to_onnx, to_treelite, to_xgboost
from polyleaf.inspection import export_shap_trees, make_report
from polyleaf.model import prediction
from polyleaf.objectives import AbsoluteError
from polyleaf.runtime import capabilities
from polyleaf.runtime.capabilities import FEATURES, PLACES, WITHIN
from polyleaf.settings.train_config import make_train_config
from polyleaf.training import hold_out_search

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 4))
Y = X[:, :3] + 0.1 * rng.standard_normal((60, 3))
LABELS = (Y > 0).astype(int)
SMALL = {"n_estimators": 1, "max_leaves": 4, "n_jobs": 1}


class OwnMedian(AbsoluteError):
    """Its leaf updates do not communicate."""

    updates_leaves_distributed = False


class ArrayOnGpu:
    """Looks like an array in GPU memory."""

    shape = (60, 4)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": "<f8", "data": (0, True), "version": 3}


def take_first_output(g, h, round, seed, n_threads):
    return g[:, :1], None


@dataclass
class Recipe:
    """A small fit with one feature.

    Attributes
    ----------
    parameters : dict
        What makes the feature.
    needs : dict
        Other parameters without which it would not work; those of another feature replace them.
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, Any] = field(default_factory=dict)
    estimator: type | None = None
    X: Any = None
    y: Any = None
    fit: dict[str, Any] = field(default_factory=dict)

    def join(self, other: Recipe) -> Recipe | None:
        """Return a fit with both features; None if they set the same thing to different values."""
        if any(other.parameters.get(k, v) is not v for k, v in self.parameters.items()):
            return None
        needs = {**other.needs, **self.needs}
        parameters = {**self.parameters, **other.parameters}
        joined = Recipe(parameters, needs)
        if any(other.needs.get(k, v) != v for k, v in self.needs.items() if k not in parameters):
            return None
        if (CITIES is self.X and other.fit) or (CITIES is other.X and self.fit):
            return None  # they have different rows
        joined.fit = {**self.fit, **other.fit}
        for name in ("estimator", "X", "y"):
            own, others = getattr(self, name), getattr(other, name)
            if own is not None and others is not None and own is not others:
                return None
            setattr(joined, name, others if own is None else own)
        return joined

    def make(self, **fixed: Any) -> Any:
        cls = self.estimator or PolyleafRegressor
        return cls(**{**SMALL, **fixed, **self.needs, **self.parameters})

    def data(self) -> tuple[Any, Any]:
        """Return X and y."""
        targets = {PolyleafClassifier: LABELS, PolyleafMultiTask: {"a": Y[:, 0], "b": Y[:, 1]}}
        y = targets.get(self.estimator, Y) if self.y is None else self.y
        return X if self.X is None else self.X, y


DEPTHWISE = {"grow_policy": "depthwise"}
SPARSE = {"leaf": "sparse", "leaf_k": 1}


BINNED = Dataset(X, keep_features=True)
CLASSES = Y.argmax(axis=1)
CODES = np.where(np.arange(4) == 3, np.digitize(X[:, :1], [-0.5, 0.5]), rng.random(X.shape))
CLOSE = np.where(np.arange(4) == 3, 1 + 1e-12 * X, X)
CITIES = pd.DataFrame(rng.random((900, 3))).assign(city=[f"c{i % 300}" for i in range(900)])
CITIES.columns = ["a", "b", "c", "city"]
CITY_Y = rng.random((900, 3))
RELEVANCE = np.digitize(Y, [-0.5, 0.5]).astype(float)
QUERY, POSITION = np.arange(60) // 6, np.arange(60) % 6
WITH_GAPS = np.where(Y > 1, np.nan, Y)
SHARES = LABELS / np.maximum(LABELS.sum(axis=1, keepdims=True), 1)
SHARES[LABELS.sum(axis=1) == 0] = 1 / 3


def regressor(
    parameters: dict[str, Any], needs: dict[str, Any] | None = None, **data: Any
) -> Recipe:
    return Recipe(parameters, needs or {}, PolyleafRegressor, **data)


def fit_members() -> PolyleafRegressor:
    """Return a model of two members."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hold_out_search, "choose_weights", lambda *_: ({0: 0.5, 1: 0.5}, np.zeros(1)))
        return PolyleafRegressor(n_jobs=1).fit(X, Y)


RECIPES = {
    "monotone_constraints": Recipe({"monotone_constraints": [1, 0, 0, 0]}),
    "interaction_constraints": Recipe({"interaction_constraints": "pairwise"}),
    "feature_penalties": Recipe({"feature_penalties": [0.5, 0, 0, 0]}),
    "layers": Recipe({"boosting_step": "layer"}, DEPTHWISE),
    "quality": Recipe({"quality": "fast"}),
    "members": regressor({}, fit={"init_model": fit_members()}),
    "best_first": Recipe({"grow_policy": "lossguide"}),
    "whole_trees": Recipe({"boosting_step": "tree"}),
    "rows_per_layer": Recipe({"rows_per_layer": [0.5, 1]}, {"boosting_step": "layer", **DEPTHWISE}),
    "subsample": Recipe({"subsample": 0.5}),
    "goss": Recipe({"sampling_method": "goss"}),
    "sparse_leaves": Recipe({"leaf": "sparse"}, {"leaf_k": 1}),
    "linear_leaves": Recipe({"leaf": "linear"}),
    "full_linear_fit": Recipe({"leaf": "linear", "linear_fit": "full"}),
    "dense_leaves": Recipe({"leaf": "constant"}),
    "leaf_limits": Recipe({"reg_alpha": 0.1}),
    "one_output_per_tree": Recipe({"multi_strategy": "one_output_per_tree"}),
    "output_groups": Recipe({"output_groups": 2}),
    "auto_output_groups": Recipe({"output_groups": "auto"}),
    "tasks": Recipe(estimator=PolyleafMultiTask),
    "ranking": Recipe(estimator=PolyleafRanker, y=RELEVANCE, fit={"qid": QUERY}),
    "positions": Recipe(
        estimator=PolyleafRanker, y=RELEVANCE, fit={"qid": QUERY, "positions": POSITION}
    ),
    "position_lambda": Recipe(
        {"position_lambda": 0.1},
        estimator=PolyleafRanker,
        y=RELEVANCE,
        fit={"qid": QUERY, "positions": POSITION},
    ),
    "no_positions": Recipe(
        estimator=PolyleafRanker, y=RELEVANCE, fit={"qid": QUERY, "positions": None}
    ),
    "intervals": Recipe(),
    "blend": Recipe(),
    "sketch": Recipe({"sketch": "random_projection"}, {"sketch_dim": 2}),
    "own_sketch": Recipe({"sketch": take_first_output}),
    "diagonal_splits": Recipe({"hessian": "diagonal"}),
    "diagonal_leaves": Recipe({"leaf_hessian": "diagonal"}),
    "coupled_splits": regressor({"hessian": "full"}, {"objective": "normal"}),
    "coupled_leaves": regressor({"leaf_hessian": "block"}, {"objective": "normal"}),
    "sparse_targets": Recipe({"split_search": "count_sketch"}, {**SPARSE, "eval_metric": "p@1"}),
    "sparse_y": Recipe({"leaf": "sparse"}, {"leaf_k": 1}, y=scipy.sparse.csr_matrix(LABELS)),
    "dense_sketch": Recipe({"sketch": "top_outputs"}, {"sketch_dim": 2}),
    "shared_outputs": Recipe({"leaf_output_set": "shared"}, SPARSE),
    "missing_targets": Recipe({"missing_targets": "ignore"}),
    "one_label": Recipe({}, {}, PolyleafClassifier, y=CLASSES),
    "missing_values_in_y": regressor({"missing_targets": "ignore"}, y=WITH_GAPS),
    "sparse_numbers": regressor(SPARSE, y=scipy.sparse.csr_matrix(Y)),
    "shares": Recipe({"objective": "softmax"}, {}, PolyleafClassifier, y=SHARES),
    "normalised_targets": regressor({"normalize_targets": True}),
    "class_weight": Recipe({"class_weight": {0: 1, 1: 2}}, {}, PolyleafClassifier),
    "target_weight": Recipe({"target_weight": {0: 2.0}}),
    "output_weights": regressor({}, fit={"sample_weight": np.ones((60, 3))}),
    "offset": regressor({}, fit={"offset": np.zeros((60, 3))}),
    "offset_in_link": regressor(
        {"objective": "poisson"}, y=np.abs(Y), fit={"offset": np.zeros((60, 3))}
    ),
    "two_classes": Recipe({}, {}, PolyleafClassifier, y=LABELS[:, 0]),
    "dense_y": regressor({}),
    "metrics_of_outputs": regressor({"eval_metric": "rmse"}),
    "updated_leaves": regressor({"objective": "absolute_error"}),
    "local_leaf_updates": regressor({"objective": OwnMedian()}),
    "joint_rows": Recipe(estimator=PolyleafMultiTask),
    "calibrated_quantiles": regressor({"objective": "quantile", "quantile_alpha": 0.2}),
    "threshold": Recipe({"threshold": 0.4}, {}, PolyleafClassifier),
    "several_classes": Recipe({}, {}, PolyleafClassifier, y=CLASSES),
    "other_links": Recipe({"objective": "squared_hinge"}, {}, PolyleafClassifier),
    "tuned_threshold": Recipe({"threshold": "f1"}, {}, PolyleafClassifier),
    "label_frequencies": Recipe({"eval_metric": "psp@1"}, {}, PolyleafClassifier),
    "init": regressor({"init": "linear"}),
    "init_estimator": regressor({"init": Ridge()}),
    "opaque_init": regressor({"init": KNeighborsRegressor()}),
    "projection": Recipe({"projection": "pca"}, {"projection_dim": 2}),
    "high_cardinality": regressor({}, X=CITIES, y=CITY_Y),
    "categories": Recipe({"categorical_features": [3]}, {"colsample_bynode": 1.0}, X=CODES),
    "float64_features": Recipe(X=CLOSE),
    "sparse_X": Recipe(X=scipy.sparse.csr_matrix(X)),
    "listed_categories": Recipe({"categorical_features": [3]}),
    "validation_fraction": Recipe({"validation_fraction": 0.3}),
    "warm_start": Recipe({"warm_start": True}),
    "dataset": Recipe(X=BINNED),
    "bins_on_disk": Recipe(),
    "bins": Recipe(X=Dataset(X)),
    "evaluated_dataset": regressor({}, fit={"eval_set": [(BINNED, Y)]}),
    "device_array": Recipe(X=ArrayOnGpu()),
    "cuda": Recipe({"device": "cuda"}),
}


def fit(recipe: Recipe) -> None:
    X, y = recipe.data()
    if recipe.parameters.get("device") == "cuda":  # the table comes before the device
        model = getattr(recipe.fit.get("init_model"), "model_", None)
        capabilities.check(parameters=recipe.make(), model=model)
        make_train_config(recipe.make(), 1, scipy.sparse.issparse(y), 0, 1)
        return
    rows = X if isinstance(X, pd.DataFrame) else globals()["X"]
    raw = recipe.make().fit(X, y, **recipe.fit).model_.predict_raw(rows)
    assert np.isfinite(raw).all()


def get_queries(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in recipe.fit.items() if name == "qid"}


def get_clicks(recipe: Recipe) -> dict[str, Any]:
    """Return the queries of a ranking, and positions if there are any."""
    return {name: value for name, value in recipe.fit.items() if name in ("qid", "positions")}


def search(recipe: Recipe) -> None:
    classes = {PolyleafClassifier: PolyleafClassifierCV, PolyleafRanker: PolyleafRankerCV}
    estimator = classes.get(recipe.estimator, PolyleafRegressorCV)
    searching = replace(recipe, estimator=estimator).make(n_candidates=1, cv=2)
    searching.fit(*recipe.data(), **get_clicks(recipe))


def train_on_ranks(recipe: Recipe) -> None:
    fit_on_threads(recipe.make(), *recipe.data(), 2, **get_clicks(recipe))


def train_on_many_rows(recipe: Recipe) -> None:
    with mock.patch.object(distributed_fit, "MAX_ROWS", 1):
        train_on_ranks(recipe)


def fit_model(recipe: Recipe) -> Any:
    """Return a fitted estimator."""
    X, y = recipe.data()
    return recipe.make().fit(X, y, **recipe.fit)


def estimate_memory(recipe: Recipe) -> None:
    if recipe.estimator is None:
        memory_estimate(60, 4, 3, **recipe.needs, **recipe.parameters)


def refit(recipe: Recipe) -> None:
    if isinstance(recipe.X, ArrayOnGpu):
        PolyleafRegressor(**SMALL).fit(X, Y).refit(recipe.X, Y)
        return
    fitted, keys = fit_model(recipe), ("sample_weight", "offset", "qid", "positions")
    if recipe is RECIPES["blend"]:
        fitted = blend([fitted, fitted])
    fitted.refit(*recipe.data(), **{k: v for k, v in recipe.fit.items() if k in keys})


def take_outputs(values: Any, n_outputs: int) -> Any:
    """Return the first columns of y, or of weights and offsets of outputs."""
    return (
        values[:, :n_outputs] if np.ndim(values) == 2 or scipy.sparse.issparse(values) else values
    )


def widen_outputs(recipe: Recipe) -> None:
    """Continue a model of two outputs or classes with a third one."""
    X, y = recipe.data()
    if recipe.estimator is PolyleafMultiTask:
        return  # its tasks have no classes
    first = {k: take_outputs(v, 2) for k, v in recipe.fit.items() if k != "eval_set"}
    if recipe is RECIPES["two_classes"]:
        old, y = recipe.make().fit(X, y, **first), CLASSES
    elif np.ndim(y) == 1:
        old = recipe.make(objective="softmax").fit(X, np.minimum(y, 1), **first)
        recipe = replace(recipe, needs={**recipe.needs, "objective": "softmax"})
    elif recipe is RECIPES["shares"]:
        two = y[:, :2] + 0.1
        old = recipe.make().fit(X, two / two.sum(axis=1, keepdims=True), **first)
    else:
        old = recipe.make().fit(X, take_outputs(y, 2), **first)
    if recipe is RECIPES["blend"]:
        old = blend([old, old])
    wide = recipe.make().fit(X, y, init_model=old, **recipe.fit)
    assert wide.model_.n_outputs % 3 == 0


# Parameters with an entry for each feature of X.
PER_FEATURE = ("monotone_constraints", "feature_penalties", "categorical_features")


def widen_columns(recipe: Recipe) -> None:
    """Continue a model with a fifth column of X."""
    X, y = recipe.data()
    old = fit_model(recipe)
    if recipe is RECIPES["blend"]:
        old = blend([old, old])
    if isinstance(X, pd.DataFrame):
        X = X.assign(further=rng.random(len(X)))
    elif isinstance(X, Dataset):
        X = Dataset(rng.random((60, 5)))
    elif scipy.sparse.issparse(X):
        X = scipy.sparse.hstack([X, X[:, :1]]).tocsr()
    else:
        X = np.column_stack([X, rng.random(len(X))])
    kept = {k: v for k, v in recipe.parameters.items() if k not in PER_FEATURE}
    fit = {k: v for k, v in recipe.fit.items() if k not in ("init_model", "eval_set")}
    wide = replace(recipe, parameters=kept).make().fit(X, y, init_model=old, **fit)
    assert wide.n_features_in_ == 5


def get_topk(recipe: Recipe) -> None:
    is_binned = isinstance(recipe.X, Dataset)
    fit_model(recipe).predict_topk(X if recipe.X is None or is_binned else recipe.X, 1)


def predict_sparse(recipe: Recipe) -> None:
    offset = recipe.fit.get("offset")
    if recipe is RECIPES["dense_y"]:
        fit_model(recipe).predict(X, sparse=True)
    elif offset is not None or (recipe.y is not None and scipy.sparse.issparse(recipe.y)):
        fit_model(recipe).predict(X, sparse=True, offset=offset)


def make_predictor(recipe: Recipe, device: str | None = None) -> None:
    fit_model(recipe).predictor(device=device)


def make_device_predictor(recipe: Recipe) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "get_device", lambda name: name)
        with contextlib.suppress(TypeError):  # the core refuses this device
            make_predictor(recipe, "cuda")


def save(recipe: Recipe) -> None:
    load_model(fit_model(recipe).save_model())


def export_c(recipe: Recipe) -> None:
    to_c(fit_model(recipe), io.StringIO())


def export_xgboost(recipe: Recipe) -> None:
    to_xgboost(fit_model(recipe), io.StringIO())


def export_treelite(recipe: Recipe) -> None:
    pytest.importorskip("treelite")
    to_treelite(fit_model(recipe))


def export_onnx_3(recipe: Recipe) -> None:
    pytest.importorskip("onnx")
    to_onnx(fit_model(recipe), opset_ml=3)


def convert(recipe: Recipe) -> None:
    pytest.importorskip("skl2onnx")
    import skl2onnx

    if recipe.estimator in (None, PolyleafRegressor):
        register_skl2onnx(PolyleafRegressor)
        skl2onnx.to_onnx(fit_model(recipe), X[:1].astype(np.float32))


def export_shap(recipe: Recipe) -> None:
    export_shap_trees(fit_model(recipe))


def report(recipe: Recipe) -> None:
    Figure = pytest.importorskip("matplotlib.figure").Figure
    rows, y = recipe.data()
    if recipe.estimator in (None, PolyleafRanker) or scipy.sparse.issparse(y):
        rows = X if isinstance(rows, Dataset) else rows
        with pytest.MonkeyPatch.context() as patch:  # what is drawn is not rendered
            patch.setattr(Figure, "savefig", lambda self, stream, **_: stream.write("<svg></svg>"))
            make_report(fit_model(recipe), rows, y, **get_queries(recipe))


ACTIONS: dict[str, Callable[[Recipe], object]] = {
    "dask": train_on_ranks,
    "many_dask_rows": train_on_many_rows,
    "search": search,
    "memory_estimate": estimate_memory,
    "refit": refit,
    "new_outputs": widen_outputs,
    "new_columns": widen_columns,
    "topk": get_topk,
    "sparse_predictions": predict_sparse,
    "predictor": make_predictor,
    "device_predictor": make_device_predictor,
    "model_file": save,
    "exports": export_c,
    "onnx_3": export_onnx_3,
    "treelite": export_treelite,
    "xgboost": export_xgboost,
    "skl2onnx": convert,
    "shap_trees": export_shap,
    "report": report,
}

PAIRS = [*itertools.combinations(FEATURES, 2)]
UNTRIED = {
    # These are methods, which tests/estimators/test_ranker.py calls.
    ("ranking", "intervals"),
    # Rankers have no weights of targets.
    ("ranking", "target_weight"),
    ("positions", "target_weight"),
    ("position_lambda", "target_weight"),
    ("no_positions", "target_weight"),
    # A search has no multi-task models.
    ("tasks", "search"),
    ("joint_rows", "search"),
    # Multi-task models have weights of tasks.
    ("tasks", "target_weight"),
    ("target_weight", "joint_rows"),
    # Partitions of Dask collections are tried in tests/on_dask and tests/training.
    ("high_cardinality", "dask"),
    ("sparse_X", "dask"),
    ("projection", "dask"),
    ("high_cardinality", "many_dask_rows"),
    ("init", "many_dask_rows"),
    ("sparse_X", "many_dask_rows"),
    ("projection", "many_dask_rows"),
    # Batches are tried in tests/binned_data.
    ("high_cardinality", "bins_on_disk"),
    # Text is no number.
    ("init_estimator", "high_cardinality"),
    ("opaque_init", "high_cardinality"),
    ("projection", "high_cardinality"),
    # A file does not have the class of the objective.
    ("local_leaf_updates", "model_file"),
    # Shapes and values of y, weights and offsets are checked before.
    ("sparse_targets", "shares"),
    ("sparse_targets", "output_weights"),
    ("sparse_y", "output_weights"),
    ("sparse_numbers", "output_weights"),
    ("offset", "evaluated_dataset"),
    ("offset_in_link", "evaluated_dataset"),
    # Counts are not scaled.
    ("normalised_targets", "offset_in_link"),
    # A model to continue has its encoding of y, objective, initial model and features.
    ("members", "new_outputs"),
    ("members", "offset_in_link"),
    ("members", "missing_values_in_y"),
    ("members", "coupled_splits"),
    ("members", "coupled_leaves"),
    ("members", "init"),
    ("members", "init_estimator"),
    ("members", "opaque_init"),
    ("members", "projection"),
    # The bins differ from those of the other Dataset.
    ("categories", "evaluated_dataset"),
    ("float64_features", "evaluated_dataset"),
    ("sparse_X", "evaluated_dataset"),
    ("listed_categories", "evaluated_dataset"),
    ("projection", "evaluated_dataset"),
    ("validation_fraction", "evaluated_dataset"),
}
# Features that show after y is encoded.
IMPLIED = {
    "sparse_targets": {"sparse_numbers", "other_links"},
    "sparse_y": {"sparse_numbers", "other_links"},
    "one_label": {"several_classes"},
    "two_classes": {"one_label"},
    "high_cardinality": {"categories"},
    "opaque_init": {"init", "init_estimator"},
    "init_estimator": {"init"},
    "listed_categories": {"categories"},
    "several_classes": {"one_label"},
    "shares": {"one_label", "several_classes"},
}
# Pairs whose recipes cannot be joined.
JOINED = {
    ("tasks", "init_estimator"): Recipe({"init": Ridge()}, estimator=PolyleafMultiTask),
    ("shares", "init_estimator"): Recipe(
        {"objective": "softmax", "init": LogisticRegression()}, {}, PolyleafClassifier, y=SHARES
    ),
}
NEEDS_GPU = {"device_array", "cuda"}


def get_sentences(name: str, column: str) -> list[str]:
    """Return the sentences of a cell, those of both features if the column is a feature."""
    refused = FEATURES[name].refused
    sentences = [refused.get(column), refused.get(WITHIN.get(column, ""))]
    if column in FEATURES:
        sentences.append(FEATURES[column].refused.get(name))
    return [sentence for sentence in sentences if sentence is not None]


def matches(message: str, sentences: list[str]) -> bool:
    """Whether a message is one of the sentences, with values in place of braces."""
    patterns = (re.sub(r"\\{[^}]*\\}", ".*", re.escape(sentence)) for sentence in sentences)
    return any(re.fullmatch(pattern, message, re.DOTALL) for pattern in patterns)


@functools.cache
def find_features(name: str) -> set[str]:
    """Return the features that the recipe of one of them has, such as a default."""
    uses = []

    def record(place: str | None, use: capabilities.Use) -> None:
        uses.append(use)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "find_refusal", record)
        with contextlib.suppress(ValueError):
            fit(RECIPES[name])
    later = IMPLIED.get(name, set())
    return {
        name,
        *later,
        *(n for n, f in FEATURES.items() for use in uses if f.find(use) is not None),
    }


def try_cell(run: Callable[[Recipe], object], recipe: Recipe, name: str, column: str) -> None:
    """Run a recipe, and check that it is refused by the sentence of its cell, or works."""
    sentences = get_sentences(name, column)
    try:
        run(recipe)
    except ValueError as error:
        if not sentences and " has no effect: it requires " in str(error):
            return  # one feature has replaced what the other needs
        if not sentences:  # the recipe has further features
            names = find_features(name) | (find_features(column) if column in FEATURES else set())
            columns = names if column in FEATURES else {*names, column}
            sentences = [s for n in names for c in columns for s in get_sentences(n, c)]
        assert matches(str(error), sentences), error
    else:
        assert not sentences


def test_every_feature_has_a_recipe_and_every_place_an_action():
    assert list(RECIPES) == list(FEATURES)
    assert list(ACTIONS) == list(PLACES)
    columns = {column for feature in FEATURES.values() for column in feature.refused}
    assert columns <= {*FEATURES, *PLACES}
    for name in FEATURES:
        assert NEEDS_GPU & {name} or name in find_features(name)


def try_pair(pair: tuple[str, str]) -> None:
    if pair in UNTRIED:
        return
    recipe = JOINED.get(pair) or RECIPES[pair[0]].join(RECIPES[pair[1]])
    if recipe is None:
        assert not get_sentences(*pair), "the recipes set the same parameter"
    elif get_sentences(*pair) or not NEEDS_GPU & {*pair}:
        try_cell(fit, recipe, *pair)


def test_pairs_of_features_work_or_raise():
    """All refusals, and some of the pairs that work; the next test has all of these."""
    for pair in PAIRS:
        if get_sentences(*pair):
            try_pair(pair)
    for pair in PAIRS[::13]:
        try_pair(pair)


@pytest.mark.full
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_all_pairs_of_features_work_or_raise(pair):
    try_pair(pair)


@pytest.mark.parametrize("place", PLACES)
def test_features_work_at_places_or_raise(place):
    for name in FEATURES:
        is_refused = bool(get_sentences(name, place))
        if (name, place) not in UNTRIED and (is_refused or not NEEDS_GPU & {name}):
            try_cell(ACTIONS[place], RECIPES[name], name, place)
