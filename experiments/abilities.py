"""Feature support of each library, determined by trial rather than from documentation.

An attempt that raises an error counts as a "no", with the error as its reason. Attempts that could
succeed without effect also verify their result.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Attempt = Callable[[], Any]

N_ROWS, N_FEATURES = 400, 5
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
Y = np.column_stack([X[:, 0] + X[:, 1], X[:, 0] * X[:, 2], X[:, 3]])
Y_UNKNOWN = np.where(_RNG.random(Y.shape) < 0.3, np.nan, Y)
LABELS = (Y > 0).astype(np.int64)
CLASSES = LABELS.sum(axis=1)
WEIGHTS = np.abs(Y)
RISING = [1, 0, 0, 0, 0]
FALLING = np.column_stack(
    [X[:, 0] + X[:, 1], X[:, 2] - X[:, 0], np.sin(3 * X[:, 0])]
)  # unless monotone constraints are set
LEVELS = [0.1, 0.5, 0.9]
GROUPS = np.repeat(np.arange(N_ROWS // 20), 20)
GOALS = np.clip(np.round(Y), 0, 3).astype(np.int64)
GRADES = GOALS[:, 0]
HAS_WORD = _RNG.random(N_ROWS) < 0.5


def run() -> list[tuple[str, str, str]]:
    """Return (library and version, ability, "works" or the reason) for installed libraries."""
    found = []
    for module, attempts in _LIBRARIES.items():
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        name = f"{module} {library.__version__}"
        found += [(name, ability, _outcome(attempt)) for ability, attempt in attempts().items()]
    return found


def make_rows(found: list[tuple[str, str, str]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a table for `report.show`."""
    return ["library", "ability", "outcome"], [list(line) for line in found]


def _outcome(attempt: Attempt) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt()
        except Exception as error:
            return f"no: {type(error).__name__}: {' '.join(str(error).split())[:90]}"
    return "works"


def _frame() -> Any:
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcde"))
    return frame.assign(kind=pd.Categorical(_RNG.choice(["x", "y", "z"], N_ROWS)))


def _many_categories() -> Any:
    import pandas as pd

    return _frame().assign(kind=pd.Categorical(np.arange(N_ROWS).astype(str)))


def _make_text() -> Any:
    """Make distinct texts, some of which contain a given word."""
    texts = [f"a {'costly' if has else 'cheap'} thing {i}" for i, has in enumerate(HAS_WORD)]
    return _frame().assign(kind=texts)


def _make_embeddings() -> Any:
    return _frame().assign(kind=[row.tolist() for row in X])


def _adds_up(contributions: Any, raw: Any) -> None:
    """Check that SHAP values and the base value add up to the model's raw scores."""
    difference = float(np.abs(np.asarray(contributions).sum(axis=-1) - raw).max())
    if difference > 1e-4:
        raise ValueError(f"the values do not add up to the scores, by {difference:g}.")


def _reads_words(fit: Callable[[Any, Any], Any]) -> None:
    """Check that a text column is used as a feature rather than as a category.

    The words must be predictive for texts that were not in the training data.
    """
    frame, known = _make_text(), N_ROWS // 2
    predicted = fit(frame[:known], HAS_WORD[:known].astype(float)).predict(frame[known:])
    difference = np.mean(predicted[HAS_WORD[known:]]) - np.mean(predicted[~HAS_WORD[known:]])
    if difference < 0.2:
        raise ValueError(f"texts with a word and others differ by {difference:.2f} of 1.")


def _rises(predict: Callable[[Any], Any]) -> None:
    """Check that no output decreases along the first feature."""
    steps = np.linspace(-3, 3, 20)
    rows = np.repeat(X[:50], len(steps), axis=0)
    rows[:, 0] = np.tile(steps, 50)
    least = float(np.diff(np.reshape(predict(rows), (50, len(steps), -1)), axis=1).min())
    if least < -1e-6:
        raise ValueError(f"an output falls, by {-least:g}.")


def _shape(predicted: Any, expected: tuple[int, ...]) -> None:
    if np.shape(predicted) != expected:
        raise ValueError(f"predictions of shape {np.shape(predicted)} in place of {expected}.")


def _sparse_labels() -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(LABELS)


def _polyleaf() -> dict[str, Attempt]:
    from polyleaf import PolyleafClassifier, PolyleafRanker, PolyleafRegressor

    def fit(X: Any = X, y: Any = Y, weight: Any = None, **params: Any) -> Any:
        return (
            PolyleafRegressor(n_estimators=5, **params).fit(X, y, sample_weight=weight).predict(X)
        )

    def labels(y: Any, **params: Any) -> Any:
        return PolyleafClassifier(n_estimators=5, **params).fit(X, y).predict(X)

    def rank(y: Any, **params: Any) -> Any:
        return PolyleafRanker(n_estimators=5, **params).fit(X, y, qid=GROUPS).predict(X)

    def shap(y: Any = Y, **params: Any) -> None:
        model = PolyleafRegressor(n_estimators=5, **params).fit(X, y)
        contributions = np.swapaxes(model.shap_values(X), 1, -1)
        base = np.broadcast_to(model.shap_base_values()[:, None], (*contributions.shape[:-1], 1))
        _adds_up(np.concatenate([contributions, base], axis=-1), model.predict(X))

    quantiles = {"objective": "quantile", "quantile_alpha": LEVELS}
    return {
        "one tree for all outputs": lambda: _shape(fit(), Y.shape),
        "multi-label": lambda: labels(LABELS),
        "several quantiles in one model": lambda: _shape(fit(y=Y[:, 0], **quantiles), (N_ROWS, 3)),
        "missing targets": lambda: fit(y=Y_UNKNOWN, missing_targets="ignore"),
        "weights per row and output": lambda: fit(weight=WEIGHTS),
        "linear leaves": lambda: fit(leaf="linear"),
        "linear leaves of several outputs": lambda: _shape(fit(leaf="linear"), Y.shape),
        "sparse targets": lambda: labels(_sparse_labels(), leaf="sparse", leaf_k=2),
        "categorical features": lambda: fit(_frame()),
        "monotone constraints": lambda: fit(monotone_constraints=RISING),
        "monotone constraints of several outputs": lambda: _rises(
            PolyleafRegressor(n_estimators=50, monotone_constraints=RISING).fit(X, FALLING).predict
        ),
        "400 categories": lambda: fit(_many_categories()),
        "SHAP values": shap,
        "SHAP values of linear leaves": lambda: shap(leaf="linear"),
        "SHAP values of sparse leaves": lambda: shap(leaf="sparse", leaf_k=2),
        "ranking": lambda: rank(GRADES),
        "ranking of several goals": lambda: _shape(
            rank(GOALS, goal_weights=[(1, 0, 0), (0.5, 0.5, 0)]), (N_ROWS, 2)
        ),
        "text as a feature": lambda: _reads_words(PolyleafRegressor(n_estimators=50).fit),
        "embeddings as a feature": lambda: fit(_make_embeddings()),
    }


def _xgboost() -> dict[str, Attempt]:
    import xgboost

    vectors = {"tree_method": "hist", "multi_strategy": "multi_output_tree", "n_estimators": 5}

    def model(X: Any = X, y: Any = Y, weight: Any = None, **params: Any) -> Any:
        return xgboost.XGBRegressor(**vectors, **params).fit(X, y, sample_weight=weight)

    def shap() -> None:
        booster, rows = model().get_booster(), xgboost.DMatrix(X)
        _adds_up(
            booster.predict(rows, pred_contribs=True), booster.predict(rows, output_margin=True)
        )

    quantiles = {"objective": "reg:quantileerror", "quantile_alpha": np.array(LEVELS)}
    return {
        "one tree for all outputs": lambda: _shape(model().predict(X), Y.shape),
        "multi-label": lambda: xgboost.XGBClassifier(**vectors).fit(X, LABELS).predict(X),
        "several quantiles in one model": lambda: _shape(
            model(y=Y[:, 0], **quantiles).predict(X), (N_ROWS, 3)
        ),
        "missing targets": lambda: model(y=Y_UNKNOWN),
        "weights per row and output": lambda: model(weight=WEIGHTS),
        "sparse targets": lambda: xgboost.XGBClassifier(**vectors).fit(X, _sparse_labels()),
        "categorical features": lambda: model(_frame(), enable_categorical=True),
        "monotone constraints": lambda: model(monotone_constraints=tuple(RISING)),
        "monotone constraints of several outputs": lambda: _rises(
            model(y=FALLING, monotone_constraints=tuple(RISING)).predict
        ),
        "400 categories": lambda: model(_many_categories(), enable_categorical=True),
        "SHAP values": shap,
        "ranking": lambda: xgboost.XGBRanker(n_estimators=5).fit(X, GRADES, qid=GROUPS),
        "ranking of several goals": lambda: xgboost.XGBRanker(**vectors).fit(X, GOALS, qid=GROUPS),
        "text as a feature": lambda: _reads_words(
            xgboost.XGBRegressor(enable_categorical=True).fit
        ),
        "embeddings as a feature": lambda: model(_make_embeddings(), enable_categorical=True),
    }


def _lightgbm() -> dict[str, Attempt]:
    import lightgbm

    def model(X: Any = X, y: Any = Y[:, 0], weight: Any = None, **params: Any) -> Any:
        fresh = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, **params)
        return fresh.fit(X, y, sample_weight=weight)

    return {
        "one tree for all outputs": lambda: model(y=Y),
        "multi-label": lambda: lightgbm.LGBMClassifier(verbose=-1).fit(X, LABELS),
        "several quantiles in one model": lambda: model(objective="quantile", alpha=LEVELS),
        "missing targets": lambda: model(y=Y_UNKNOWN[:, 0]),
        "weights per row and output": lambda: model(weight=WEIGHTS),
        "linear leaves": lambda: model(linear_tree=True),
        "linear leaves of several outputs": lambda: model(y=Y, linear_tree=True),
        "SHAP values of linear leaves": lambda: model(linear_tree=True).predict(
            X, pred_contrib=True
        ),
        "categorical features": lambda: model(_frame()),
        "monotone constraints": lambda: model(monotone_constraints=RISING),
        "400 categories": lambda: model(_many_categories()),
        "SHAP values": lambda: _adds_up(model().predict(X, pred_contrib=True), model().predict(X)),
        "ranking": lambda: lightgbm.LGBMRanker(verbose=-1).fit(
            X, GRADES, group=np.bincount(GROUPS)
        ),
        "ranking of several goals": lambda: lightgbm.LGBMRanker(verbose=-1).fit(
            X, GOALS, group=np.bincount(GROUPS)
        ),
        "text as a feature": lambda: _reads_words(lightgbm.LGBMRegressor(verbose=-1).fit),
        "embeddings as a feature": lambda: model(_make_embeddings()),
    }


def _catboost() -> dict[str, Attempt]:
    import catboost

    def model(y: Any = Y, loss: str = "MultiRMSE", weight: Any = None, **params: Any) -> Any:
        fresh = catboost.CatBoostRegressor(
            iterations=5, loss_function=loss, verbose=0, allow_writing_files=False, **params
        )
        return fresh.fit(X, y, sample_weight=weight)

    def labels(y: Any) -> Any:
        fresh = catboost.CatBoostClassifier(
            iterations=5, loss_function="MultiLogloss", verbose=0, allow_writing_files=False
        )
        return fresh.fit(X, y)

    def shap() -> None:
        fitted = model()
        _adds_up(
            fitted.get_feature_importance(catboost.Pool(X, Y), type="ShapValues"), fitted.predict(X)
        )

    def fit_kinds(frame: Any, y: Any = Y[:, 0], iterations: int = 5, **kinds: Any) -> Any:
        fresh = catboost.CatBoostRegressor(
            iterations=iterations, verbose=0, allow_writing_files=False
        )
        return fresh.fit(frame, y, **kinds)

    def rank(y: Any) -> Any:
        fresh = catboost.CatBoostRanker(iterations=5, verbose=0, allow_writing_files=False)
        return fresh.fit(X, y, group_id=GROUPS)

    quantiles = f"MultiQuantile:alpha={','.join(map(str, LEVELS))}"
    return {
        "one tree for all outputs": lambda: _shape(model().predict(X), Y.shape),
        "multi-label": lambda: labels(LABELS),
        "several quantiles in one model": lambda: _shape(
            model(Y[:, 0], quantiles).predict(X), (N_ROWS, 3)
        ),
        "missing targets": lambda: model(Y_UNKNOWN, "MultiRMSEWithMissingValues"),
        "weights per row and output": lambda: model(weight=WEIGHTS),
        "sparse targets": lambda: labels(_sparse_labels()),
        "categorical features": lambda: fit_kinds(_frame(), cat_features=["kind"]),
        "400 categories": lambda: fit_kinds(_many_categories(), cat_features=["kind"]),
        "text as a feature": lambda: _reads_words(
            lambda frame, y: fit_kinds(frame, y, iterations=50, text_features=["kind"])
        ),
        "embeddings as a feature": lambda: fit_kinds(
            _make_embeddings(), embedding_features=["kind"]
        ),
        "ranking": lambda: rank(GRADES),
        "ranking of several goals": lambda: rank(GOALS),
        "monotone constraints": lambda: _rises(
            model(FALLING[:, 1], "RMSE", monotone_constraints=RISING).predict
        ),
        "monotone constraints of several outputs": lambda: _rises(
            model(FALLING, monotone_constraints=RISING).predict
        ),
        "SHAP values": shap,
    }


def _sklearn() -> dict[str, Attempt]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    def model(X: Any = X, y: Any = Y[:, 0], weight: Any = None, **params: Any) -> Any:
        return HistGradientBoostingRegressor(max_iter=5, **params).fit(X, y, sample_weight=weight)

    def classes(y: Any, **params: Any) -> Any:
        return HistGradientBoostingClassifier(max_iter=5, **params).fit(X, y)

    return {
        "one tree for all outputs": lambda: model(y=Y),
        "multi-label": lambda: classes(LABELS),
        "several quantiles in one model": lambda: model(loss="quantile", quantile=LEVELS),
        "missing targets": lambda: model(y=Y_UNKNOWN[:, 0]),
        "weights per row and output": lambda: model(weight=WEIGHTS),
        "categorical features": lambda: model(_frame()),
        "monotone constraints": lambda: model(monotonic_cst=RISING),
        "monotone constraints, three classes": lambda: classes(CLASSES, monotonic_cst=RISING),
        "400 categories": lambda: model(_many_categories()),
        "text as a feature": lambda: _reads_words(HistGradientBoostingRegressor().fit),
        "embeddings as a feature": lambda: model(_make_embeddings()),
    }


_LIBRARIES: dict[str, Callable[[], dict[str, Attempt]]] = {
    "polyleaf": _polyleaf,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "sklearn": _sklearn,
}
