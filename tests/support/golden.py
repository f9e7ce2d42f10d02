"""The golden file: hashes of models over combinations of settings.

Data are integers and exact fractions, and neither BLAS nor exp of a library is used, so hashes are
equal on all machines.

`python tests/support/golden.py --check` compares models of the installed package with the file, and
with `--device cuda` those of a GPU. `python tests/support/golden.py --write` writes
`files/golden.json` again: only on purpose, with a line in CHANGELOG.md.
"""

import hashlib
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from polyleaf import Dataset, PolyleafClassifier, PolyleafRanker, PolyleafRegressor
from polyleaf.settings import presets
from polyleaf.sketching.sketches import SKETCHES
from polyleaf.user_data.features import read_features

FILE = Path(__file__).parent / "files" / "golden.json"
N, OUTPUTS = 420, 3
SMALL = {"n_estimators": 3, "max_leaves": 8, "min_child_samples": 4, "random_state": 0}
SPARSE_LABELS = {"leaf": "sparse", "leaf_k": 3, "min_child_samples": 5}
LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3}
ONE_EACH = {"multi_strategy": "one_output_per_tree"}
GROUPS = {"output_groups": [[0, 2], [1]]}
PLAIN_FEATURES = {"projection": None, "projection_dim": None, "tfidf": False}


# --- data ---


@cache
def numbers(n=N):
    """Return float64 (n, 6): sixty-fourths; column 1 has missing values, column 5 few values."""
    rng = np.random.default_rng(0)
    X = rng.integers(-256, 256, (n, 6)) / 64.0
    X[rng.random(n) < 0.2, 1] = np.nan
    X[:, 5] = rng.integers(0, 3, n)
    return X


@cache
def frame():
    """Return the same as a pandas frame, with a column of categories of which some are missing."""
    codes = np.random.default_rng(1).integers(-1, 11, N)
    colour = pd.Categorical.from_codes(codes, [f"c{i:02}" for i in range(11)])
    return pd.DataFrame(numbers(), columns=[*"abcdef"]).assign(colour=colour)


@cache
def mostly_zeros():
    """Return CSR (N, 40): columns stored by few rows, and two stored by all."""
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((N, 40)) < 0.04, rng.integers(1, 9, (N, 40)), 0).astype(np.float64)
    dense[:, :2] = rng.integers(-8, 8, (N, 2))
    return csr_matrix(dense)


@cache
def values(n=N, n_outputs=OUTPUTS):
    """Return float64 (n, n_outputs): sixteenths that trees can partly learn."""
    X, rng = np.nan_to_num(numbers(n), nan=2.0), np.random.default_rng(3)
    weights = rng.integers(-2, 3, (6, n_outputs))
    mixed = sum(
        np.round(X[:, [j]] * np.sign(X[:, [(j + 1) % 6]]) * 8) * weights[j] for j in range(6)
    )
    return (mixed + rng.integers(-16, 17, (n, n_outputs))) / 16.0


def coloured(n_outputs=OUTPUTS):
    """Return the same plus effects of the categories of `frame`, including a missing one."""
    codes = frame()["colour"].cat.codes.to_numpy()
    added = np.random.default_rng(7).integers(-256, 257, (12, n_outputs)) / 16.0
    return values(n_outputs=n_outputs) + added[codes]


def one():
    return values()[:, 0]


def classes():
    return values(n_outputs=4).argmax(axis=1)


def two_classes():
    return (one() > 0).astype(int)


def labels(n_outputs=OUTPUTS):
    Y = values(n_outputs=n_outputs)
    return (Y > np.sort(Y, axis=0)[len(Y) // 2]).astype(int)


def counts():
    return np.abs(np.round(values()))


def make_missing_targets():
    Y = values().copy()
    Y[np.random.default_rng(4).random(Y.shape) < 0.2] = np.nan
    return Y


def relevances():
    """Return float64 (N, 2): relevances 0 to 4; of the second goal some are missing."""
    Y = np.clip(np.round(values(n_outputs=2) / 4.0) + 1.0, 0.0, 4.0)
    Y[np.random.default_rng(8).random(N) < 0.3, 1] = np.nan
    return Y


def queries():
    return {"qid": np.random.default_rng(9).integers(0, 20, N)}


def few_labels():
    """Return CSR (N, 50): about five labels per row."""
    drawn = np.random.default_rng(5).random((N, 50)) < 0.04
    drawn[np.arange(N), (np.nan_to_num(numbers()[:, 0]) * 5 + 20).astype(int)] = True
    return csr_matrix(drawn.astype(np.float64))


def weight(n_outputs=None):
    """Return weights in quarters, including 0."""
    shape = N if n_outputs is None else (N, n_outputs)
    return np.random.default_rng(6).integers(0, 9, shape) / 4.0


def squared_error_derivatives(y_true, y_pred):
    """Return derivatives of a custom loss: squared error, times four for low predictions."""
    cost = np.where(y_pred < y_true, 4.0, 1.0)
    return cost * (y_pred - y_true), cost


# --- configurations ---


def regressor(y, X=numbers, fit=None, **parameters):
    return PolyleafRegressor, X, y, fit, parameters


def classifier(y, X=numbers, fit=None, **parameters):
    return PolyleafClassifier, X, y, fit, parameters


def ranker(y, X=numbers, fit=queries, **parameters):
    return PolyleafRanker, X, y, fit, parameters


def large():
    """Return enough rows for several blocks of every loop over rows."""
    return values(30_000)


CONFIGURATIONS = {
    # Defaults.
    "defaults": regressor(values),
    "defaults, one output": regressor(one),
    "defaults, classes": classifier(classes),
    "defaults, two classes": classifier(two_classes),
    "defaults, labels": classifier(labels),
    "30,000 rows": regressor(large, X=lambda: numbers(30_000), max_leaves=31),
    "30,000 rows, sampled": regressor(
        large, X=lambda: numbers(30_000), subsample=0.3, max_leaves=31
    ),
    "20 outputs": regressor(lambda: values(n_outputs=20)),
    "70 outputs": classifier(lambda: labels(70)),
    "frame with categories": regressor(coloured, X=frame),
    "frame, one output": regressor(lambda: coloured()[:, 0], X=frame),
    "frame, classes": classifier(lambda: coloured(4).argmax(axis=1), X=frame),
    "categories one by one": regressor(coloured, X=frame, max_cat_to_onehot=20),
    "few bins": regressor(values, max_bins=7),
    "dataset": regressor(None, X=lambda: Dataset(numbers(), values())),
    # Objectives.
    "absolute error": regressor(values, objective="absolute_error"),
    "quantiles": regressor(one, objective="quantile", quantile_alpha=[0.125, 0.5, 0.875]),
    "quantiles as they are": regressor(
        one, objective="quantile", quantile_alpha=[0.125, 0.5, 0.875], calibrate_quantiles=False
    ),
    "huber": regressor(values, objective="huber", huber_delta=0.75),
    "poisson": regressor(counts, objective="poisson"),
    "gamma": regressor(lambda: counts() + 1, objective="gamma"),
    "tweedie": regressor(counts, objective="tweedie"),
    "custom": regressor(values, objective=squared_error_derivatives),
    "squared hinge": classifier(labels, objective="squared_hinge"),
    "xendcg": ranker(relevances),
    "lambdarank": ranker(
        relevances,
        objective="lambdarank",
        goal_weights=[(1, 0), (0.5, 0.5)],
        fit=lambda: queries() | {"sample_weight": weight() + 0.25},
    ),
    "lambdarank of average precision": ranker(
        relevances, objective="lambdarank", lambda_metric="map", truncation=5
    ),
    "pairwise": ranker(lambda: relevances()[:, 0], objective="pairwise"),
    "yetirank": ranker(relevances, objective="yetirank"),
    # Presets.
    "gbdt_mo": regressor(values, **presets.gbdt_mo()),
    "gbdt_mo, classes": classifier(classes, **presets.gbdt_mo()),
    "gbdt_mo_sparse": regressor(values, **presets.gbdt_mo_sparse(2)),
    "gbdt_mo_sparse, unrestricted": classifier(
        labels, **presets.gbdt_mo_sparse(2, restricted=False)
    ),
    "gbdt_pl": regressor(values, **presets.gbdt_pl()),
    "gbdt_so": regressor(values, **presets.gbdt_so()),
    "gbdt_sparse": classifier(few_labels, **presets.gbdt_sparse() | PLAIN_FEATURES | SPARSE_LABELS),
    "gbdt_sparse, exact": classifier(
        few_labels, **presets.gbdt_sparse(exact=True) | PLAIN_FEATURES | SPARSE_LABELS
    ),
    "cgb": regressor(values, **presets.cgb()),
    "cgb, classes": classifier(classes, **presets.cgb()),
    "tfbt": classifier(classes, **presets.tfbt()),
    "tfbt, values": regressor(values, **presets.tfbt()),
    "tfbt_full": classifier(classes, **presets.tfbt_full()),
    "samme": classifier(classes, **presets.samme()),
    "gamble": classifier(classes, **presets.gamble()),
    "gd_mcboost": classifier(classes, **presets.gd_mcboost()),
    # Hessians of structure and leaves.
    **{
        f"curvature {kind}": classifier(classes, hessian=kind)
        for kind in ("none", "shared", "full", "block")
    },
    **{
        f"leaf curvature {kind}": classifier(classes, leaf_hessian=kind)
        for kind in ("none", "shared", "full", "block")
    },
    "block of 3": classifier(classes, hessian="block", block_size=3),
    **{
        f"softmax {kind}": classifier(classes, softmax_hessian=kind)
        for kind in ("diagonal", "friedman", "upper", "residual")
    },
    # Boosting steps, one tree per output, layers.
    "one tree an output": regressor(values, **ONE_EACH),
    "one tree an output, renewed": classifier(classes, boosting_step="tree", **ONE_EACH),
    "groups": regressor(values, **GROUPS),
    "groups, layers": regressor(values, **GROUPS, **LAYERS),
    "groups, classes": classifier(classes, boosting_step="tree", output_groups=2),
    "groups, linear": regressor(values, **GROUPS, leaf="linear"),
    "groups, sparse leaves": regressor(
        lambda: values(n_outputs=20), leaf="sparse", leaf_k=4, output_groups=3
    ),
    "layers": classifier(classes, **LAYERS),
    "layers, one tree an output": regressor(values, **LAYERS, **ONE_EACH),
    "layers on fewer rows": regressor(values, **LAYERS, rows_per_layer=[0.25, 0.5, 1.0]),
    "layers of medians": regressor(values, **LAYERS, objective="absolute_error"),
    "layers, cut back": classifier(classes, **LAYERS, pruning="post", min_split_gain=0.5),
    # Growth.
    "by level": regressor(values, grow_policy="depthwise", max_depth=4),
    "depth alone": regressor(values, max_depth=3, max_leaves=None),
    "cut back": regressor(values, pruning="post", min_split_gain=0.25),
    "penalties": regressor(
        values, reg_alpha=0.5, max_delta_step=0.75, min_child_weight=6.0, reg_lambda=2.0
    ),
    "half the features a tree": regressor(values, colsample_bytree=0.5, colsample_bynode=1.0),
    # Rows.
    "subsample": regressor(values, subsample=0.5),
    "goss": classifier(classes, sampling_method="goss", top_rate=0.25, other_rate=0.25),
    "weights": regressor(values, fit=lambda: {"sample_weight": weight()}),
    "weights of outputs": regressor(values, fit=lambda: {"sample_weight": weight(OUTPUTS)}),
    "weights, classes": classifier(classes, fit=lambda: {"sample_weight": weight()}),
    "weights, sampled": classifier(labels, subsample=0.5, fit=lambda: {"sample_weight": weight()}),
    "missing targets": regressor(make_missing_targets, missing_targets="ignore"),
    "normalized targets": regressor(lambda: values() * [1, 1024, 0.25], normalize_targets=True),
    "base score": regressor(values, base_score=[0.5, -1.0, 2.0]),
    "validation": regressor(values, validation_fraction=0.25, early_stopping_rounds=2),
    # Sketches.
    **{
        f"sketch {kind}": regressor(lambda: values(n_outputs=20), sketch=kind, sketch_dim=4)
        for kind in SKETCHES
    },
    "sketch, classes": classifier(classes, sketch="random_projection", sketch_dim=2),
    "sketch, layers": classifier(classes, sketch="count_sketch", sketch_dim=2, **LAYERS),
    # Leaves.
    "linear": regressor(values, leaf="linear"),
    "linear, one output": regressor(one, leaf="linear"),
    "linear, all features": regressor(one, leaf="linear", linear_fit="full", linear_features=3),
    "linear, many outputs and all features": regressor(values, leaf="linear", linear_fit="full"),
    "linear, after growth": regressor(values, leaf="linear", linear_fit="post", linear_lambda=0.5),
    "linear, categories": regressor(coloured, X=frame, leaf="linear", linear_extrapolation="none"),
    "linear, classes": classifier(classes, leaf="linear"),
    "linear, one tree an output": classifier(classes, leaf="linear", **ONE_EACH),
    "linear, sampled": regressor(
        values, leaf="linear", subsample=0.5, fit=lambda: {"sample_weight": weight()}
    ),
    "sparse leaves": regressor(lambda: values(n_outputs=20), leaf="sparse", leaf_k=4),
    "sparse leaves, sketch": regressor(
        lambda: values(n_outputs=20),
        leaf="sparse",
        leaf_k=4,
        sketch="random_projection",
        sketch_dim=4,
    ),
    "sparse leaves, penalties": classifier(
        lambda: labels(20),
        leaf="sparse",
        leaf_k=4,
        leaf_output_set="shared",
        reg_alpha=0.25,
        max_delta_step=1.0,
    ),
    # Sparse X and sparse Y.
    "sparse X": regressor(values, X=mostly_zeros),
    "sparse X, classes": classifier(classes, X=mostly_zeros),
    "sparse X, layers": classifier(classes, X=mostly_zeros, **LAYERS),
    "sparse X, linear leaves": regressor(one, X=mostly_zeros, leaf="linear"),
    "sparse Y": classifier(few_labels, **SPARSE_LABELS),
    "sparse Y, exact": classifier(few_labels, **SPARSE_LABELS, split_search="exact"),
    "sparse Y, categories": classifier(few_labels, X=frame, **SPARSE_LABELS),
    "sparse Y, values": regressor(few_labels, **SPARSE_LABELS, subsample=0.5),
    "sparse Y, weights": classifier(
        few_labels, **SPARSE_LABELS, fit=lambda: {"sample_weight": weight()}
    ),
    "sparse X and Y": classifier(few_labels, X=mostly_zeros, **SPARSE_LABELS),
    # Continued training.
    "warm start": regressor(values, warm_start=True),
    "warm start, layers": classifier(classes, warm_start=True, **LAYERS),
    "warm start, linear": regressor(one, warm_start=True, leaf="linear"),
    "warm start, sparse Y": classifier(few_labels, warm_start=True, **SPARSE_LABELS),
}


# --- hashes ---


def fitted(name, n_jobs=1, device="cpu"):
    """Return the estimator of a configuration; `warm_start` fits twice, with more rounds."""
    kind, X, y, fit, parameters = CONFIGURATIONS[name]
    own = {"n_estimators": SMALL["n_estimators"], "n_jobs": n_jobs, "device": device}
    estimator = kind(**SMALL | parameters | own)
    arguments = (X(),) if y is None else (X(), y())
    for rounds in (3, 5) if estimator.warm_start else (3,):
        estimator.set_params(n_estimators=rounds).fit(*arguments, **({} if fit is None else fit()))
    return estimator


def hashes(name, n_jobs=1, device="cpu"):
    """Return hashes of the model file and of raw scores, 16 hexadecimal digits each."""
    X = CONFIGURATIONS[name][1]()
    model = fitted(name, n_jobs, device).model_
    if not isinstance(X, Dataset):
        table = read_features(X, reference=model.mapper)
        scores = (
            model.predict_topk(table, 3, n_threads=n_jobs)
            if model.n_outputs == 50
            else [model.predict_raw(table, n_threads=n_jobs)]
        )
    else:
        scores = [model.predict_raw_binned(X.codes, n_threads=n_jobs)]
    return {
        "model": _hash(_lasting(model.to_bytes())),
        "scores": _hash(*(a.tobytes() for a in scores)),
    }


def all_hashes(n_jobs=1):
    return {name: hashes(name, n_jobs) for name in CONFIGURATIONS}


def hashes_on(device):
    """Return hashes of the configurations that a device supports; None for the others."""
    found = {}
    for name in CONFIGURATIONS:
        try:
            found[name] = hashes(name, device=device)
        except ValueError as error:
            if "device=" not in str(error):
                raise
            found[name] = None
    return found


def expected():
    return json.loads(FILE.read_text())


def _lasting(data):
    """Return a model file's bytes without package version and user settings such as `n_jobs`."""
    size = 8 + int.from_bytes(data[:8], "little")
    about = json.loads(json.loads(data[8:size])["__metadata__"]["polyleaf-model"])
    del about["polyleaf_version"], about["checksum"], about["model"]["metadata"]["parameters"]
    return json.dumps(about, sort_keys=True).encode() + data[size:]


def _hash(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def differing():
    """Return configurations whose models differ from the golden file, or that are only in one."""
    kept, made = expected(), all_hashes()
    return sorted(name for name in kept.keys() | made.keys() if kept.get(name) != made.get(name))


def check_device(device):
    """Print the configurations that differ on a device, and those that it does not support."""
    found, kept = hashes_on(device), expected()
    taken = {name: made for name, made in found.items() if made is not None}
    wrong = sorted(name for name, made in taken.items() if made != kept[name])
    print(
        f"{device}: {len(taken) - len(wrong)} models of {len(taken)} are the bytes of the golden "
        "file."
    )
    print("Refused:", ", ".join(name for name, made in found.items() if made is None))
    return wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"] and sys.argv[2:3] == ["--device"]:
        if wrong := check_device(sys.argv[3]):
            sys.exit("Other models than in the golden file: " + ", ".join(wrong))
        sys.exit()
    if sys.argv[1:] == ["--check"]:
        if wrong := differing():
            sys.exit("Other models than in the golden file: " + ", ".join(wrong))
        print(len(expected()), "models are the bytes of the golden file")
        sys.exit()
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    FILE.write_text(json.dumps(all_hashes(), indent=1) + "\n")
