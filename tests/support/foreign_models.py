"""Small models in the file formats of XGBoost and LightGBM, with their predictions.

`python tests/support/foreign_models.py` regenerates `files/foreign/` and requires both libraries.
The existing files were made by XGBoost 3.4.1 and LightGBM 4.7.0; tests require neither.
"""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "files" / "foreign"
N, ROUNDS = 300, 4


def rows():
    """Return float32 (n, 5): numbers, some missing, zeros, few values, and codes of eleven
    categories.
    """
    rng = np.random.default_rng(0)
    X = rng.integers(-64, 65, (N, 5)) / np.float32(16)
    X[rng.random(N) < 0.2, 1] = np.nan
    X[:, 3] = rng.integers(0, 3, N)
    X[:, 4] = rng.integers(0, 11, N)
    return X.astype(np.float32)


def targets():
    X, rng = np.nan_to_num(rows()), np.random.default_rng(1)
    one = (
        X[:, 0]
        + np.abs(X[:, 1])
        + np.array([3, -1, 2, 0, 5, 1, -2, 4, 0, 1, 2])[X[:, 4].astype(int)]
    )
    two = np.column_stack([one, X[:, 2] * X[:, 3]]) + rng.normal(size=(N, 2))
    return {
        "one": two[:, 0],
        "two": two,
        "classes": np.digitize(two[:, 0], [0, 3]),
        "binary": (two[:, 0] > 2).astype(int),
        "labels": (two > 1).astype(int),
        "counts": np.floor(np.abs(two[:, 0])),
    }


XGBOOST = {  # target, parameters; all have the same rows
    "one": ("one", {}),
    "vectors": ("two", {"multi_strategy": "multi_output_tree"}),
    "two": ("two", {}),
    "classes": ("classes", {"objective": "multi:softprob", "num_class": 3}),
    "vectors, classes": (
        "classes",
        {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
    ),
    "binary": ("binary", {"objective": "binary:logistic"}),
    "labels": ("labels", {"objective": "binary:logistic", "multi_strategy": "multi_output_tree"}),
    "poisson": ("counts", {"objective": "count:poisson"}),
    "tweedie": ("counts", {"objective": "reg:tweedie", "tweedie_variance_power": 1.25}),
    "gamma": ("positive", {"objective": "reg:gamma"}),
    "dart": ("one", {"booster": "dart", "rate_drop": 0.5}),
    "forest": ("one", {"num_parallel_tree": 2, "subsample": 0.5}),
    "categories": ("one", {"max_cat_to_onehot": 1}),
    "categories one by one": ("one", {"max_cat_to_onehot": 20}),
    "linear": ("one", {"booster": "gblinear"}),
    "hinge": ("binary", {"objective": "binary:hinge"}),
    "hinge, labels": (
        "labels",
        {"objective": "binary:hinge", "multi_strategy": "multi_output_tree"},
    ),
}
LIGHTGBM = {
    "one": ("one", {"objective": "regression"}),
    "no missing values": ("one", {"objective": "regression", "use_missing": False}),
    "classes": ("classes", {"objective": "multiclass", "num_class": 3}),
    "binary": ("binary", {"objective": "binary"}),
    "sigmoid": ("binary", {"objective": "binary", "sigmoid": 0.5}),
    "poisson": ("counts", {"objective": "poisson"}),
    "tweedie": ("counts", {"objective": "tweedie", "tweedie_variance_power": 1.25}),
    "gamma": ("positive", {"objective": "gamma"}),
    "quantile": ("one", {"objective": "quantile", "alpha": 0.75}),
    "dart": ("one", {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}),
    "forest": ("one", {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}),
    "categories": ("one", {"objective": "regression", "max_cat_to_onehot": 1}),
    "categories one by one": ("one", {"objective": "regression", "max_cat_to_onehot": 20}),
    "zeros are missing": ("one", {"objective": "regression", "zero_as_missing": True}),
    "linear": ("one", {"objective": "regression", "linear_tree": True}),
    "one against the rest": ("classes", {"objective": "multiclassova", "num_class": 3}),
}


def path_to_model(library, name):
    """Return the path of a model; every other one of XGBoost is UBJSON."""
    suffix = ".txt"
    if library == "xgboost":
        suffix = ".ubj" if list(XGBOOST).index(name) % 2 else ".json"
    return FOLDER / f"{library}-{name.replace(' ', '-').replace(',', '')}{suffix}"


def get_rows_with_edge_cases():
    """Return the rows and edge cases: thresholds of both libraries lie between or on sixteenths."""
    rng = np.random.default_rng(2)
    X = rng.choice(
        np.array([-3.9375, -1.5, 0, 0.03125, 1 / 3, 2, 5, np.nan, 1e-40, 3e38, -3e38]), (200, 5)
    )
    X[:, 4] = rng.choice(np.array([*range(11), np.nan]), 200)
    return np.vstack([rows(), X.astype(np.float32)])


def expected():
    """Return `{library-name: (raw scores, predictions)}`, both (n, k)."""
    with np.load(FOLDER / "expected.npz") as stored:
        names = {name.rpartition("/")[0] for name in stored.files}
        return {name: (stored[f"{name}/raw"], stored[f"{name}/predictions"]) for name in names}


def _xgboost(known):
    import xgboost as xgb

    found = {}
    for name, (target, parameters) in XGBOOST.items():
        types = ["q"] * 4 + ["c" if name.startswith("categories") else "q"]

        def matrix(X, y=None, types=types):
            return xgb.DMatrix(X, y, feature_types=types, enable_categorical=True)

        settings = {"max_depth": 3, "seed": 0, "nthread": 1} | parameters
        model = xgb.train(settings, matrix(rows(), known[target]), ROUNDS)
        model.save_model(path_to_model("xgboost", name))
        X = matrix(get_rows_with_edge_cases())
        raw, predictions = model.predict(X, output_margin=True), model.predict(X)
        found |= {f"xgboost/{name}/raw": raw, f"xgboost/{name}/predictions": predictions}
    return found


def _lightgbm(known):
    import lightgbm as lgb

    found = {}
    for name, (target, parameters) in LIGHTGBM.items():
        settings = {"num_leaves": 6, "verbose": -1, "seed": 0, "num_threads": 1} | parameters
        categories = [4] if name.startswith("categories") else []
        X = rows().astype(np.float64)
        model = lgb.train(
            settings, lgb.Dataset(X, known[target], categorical_feature=categories), ROUNDS
        )
        model.save_model(path_to_model("lightgbm", name))
        X = get_rows_with_edge_cases().astype(np.float64)
        raw, predictions = model.predict(X, raw_score=True), model.predict(X)
        found |= {f"lightgbm/{name}/raw": raw, f"lightgbm/{name}/predictions": predictions}
    return found


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    known = targets()
    known["positive"] = known["counts"] + 1
    made = _xgboost(known) | _lightgbm(known)
    taken = {name: a for name, a in made.items() if "/linear/" not in name}
    made = {
        name: a.reshape(len(get_rows_with_edge_cases()), -1).astype(np.float32)
        for name, a in taken.items()
    }
    np.savez_compressed(FOLDER / "expected.npz", **made)
