"""C-GB: trees fitted by least squares to the residuals of all classes, each method tuned on a grid.

Two processor cores require limits: the search uses at most `search_rows` training rows, and only
sets of up to `SEARCH_EACH` rows are searched again for every split.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..harness.context import Context
from ..harness.paper import Figures, Paper, Subject, Table
from ..libraries import Settings, timed_train
from ..problems import Arrays
from ..sets import DataSet
from . import _fits, _poker
from ._fits import Method

ROUNDS, REPEATS = 100, 5
SEARCH_CELLS, SEARCH_ROWS, SEARCH_EACH = 300_000, 2_000, 1_000
HANDS = 200_000  # dealt for the training part of Poker Hand
NO_LIMIT = 30  # a depth of -1 in the paper


@dataclass(frozen=True)
class Tuned:
    """Method and its grid: that of table 2, and for the others that of TFBT.

    `most_leaves` limits the leaves where depth alone does not. "sqrt" is the share of features used
    at a node.
    """

    method: Method
    depths: tuple[int, ...] = (2, 5, 10)
    rates: tuple[float, ...] = (0.025, 0.05, 0.1, 0.5, 1.0)
    subsamples: tuple[float, ...] = (1.0,)
    features: tuple[str, ...] = ("all",)
    most_leaves: int | None = 1024

    def grid(self) -> list[Choice]:
        """Return all combinations."""
        axes = itertools.product(self.depths, self.rates, self.subsamples, self.features)
        return [Choice(*point) for point in axes]


class Choice(NamedTuple):
    """Point of a grid."""

    depth: int
    rate: float
    subsample: float = 1.0
    features: str = "all"


_SUBSAMPLES, _ONE_OUTPUT = (0.75, 0.5, 1.0), {"multi_strategy": "one_output_per_tree"}
_CGB_GRID: dict[str, Any] = {"depths": (NO_LIMIT, 2, 5, 10, 20), "features": ("sqrt", "all")}
_CGB_GRID |= {"subsamples": _SUBSAMPLES, "most_leaves": None}
METHODS = {
    "C-GB": Tuned(Method("polyleaf", recipe="cgb"), **_CGB_GRID),
    "GB": Tuned(Method("polyleaf", _ONE_OUTPUT, "cgb"), **_CGB_GRID),
    "TFBT": Tuned(Method("polyleaf", recipe="tfbt"), most_leaves=None),
    "GBDT-MO": Tuned(Method("polyleaf", {}, "gbdt_mo"), (2, 5, 10, 20), subsamples=_SUBSAMPLES),
    # Not in the paper:
    "Polyleaf": Tuned(Method("polyleaf")),
    "XGBoost": Tuned(Method("xgboost-one-output-per-tree")),
    "XGBoost, vector leaves": Tuned(Method("xgboost-multi-output-tree")),
    "LightGBM": Tuned(Method("lightgbm")),
    "CatBoost": Tuned(Method("catboost"), depths=(2, 5, 8)),
}
OURS = ("C-GB", "GB", "TFBT", "GBDT-MO")
PEERS = ("Polyleaf", "XGBoost", "XGBoost, vector leaves", "LightGBM", "CatBoost")


def settings(method: str, data: DataSet, choice: Choice) -> Settings:
    """Return the settings of a grid point under the parameter names of the method's library."""
    tuned = METHODS[method]
    leaves = None if tuned.most_leaves is None else min(2**choice.depth, tuned.most_leaves)
    own: dict[str, Any] = {}
    if tuned.method.library == "polyleaf":
        recipe = tuned.method.parameters()
        own = {name: v for name, v in recipe.items() if name not in _fits.SHARED[:4]}
        own |= {"subsample": choice.subsample, "random_state": 0}
        if choice.features == "sqrt":
            own["colsample_bynode"] = data.X.shape[1] ** -0.5
    return Settings(ROUNDS, choice.depth, leaves, choice.rate, own=own)


# --- the data ---


def load(context: Context, problem: str) -> DataSet:
    """Load the set of a problem; three of them are included in scikit-learn."""
    if problem in ("iris", "wine", "digits"):
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{problem}")(return_X_y=True)
        X, categorical = X.astype(np.float32), np.zeros(X.shape[1], bool)
        return DataSet(problem, "multiclass", X, y, None, categorical)
    return context.load(problem)


def parts(context: Context, data: DataSet, seed: int) -> Arrays:
    """Split into training and test part: 80 / 20 at random, except for the paper's fixed splits."""
    if data.name == "poker25k":  # the file is the paper's test part
        X, y = _poker.deal(context.rows(HANDS), seed)
        return {"X": X, "y": y, "X_test": data.X, "y_test": data.y}
    train, test = data.split(seed)
    if data.name == "mnist":
        train, test = train[:33_600], test[:8_400]
    train, test = train[: context.rows(len(train))], test[: context.rows(len(test))]
    return {"X": data.X[train], "y": data.y[train], "X_test": data.X[test], "y_test": data.y[test]}


# --- the runs ---


def tuned(context: Context, method: str, problem: str) -> Figures:
    """Search the grid on the training part, train with the best point, score on the test part."""
    data = load(context, problem)
    large = len(data.y) > 20_000 or problem in ("covtype20k", "poker25k")
    found, choice = [], None
    for seed in context.seeds(1 if large else REPEATS):
        arrays = parts(context, data, seed)
        if choice is None or len(data.y) <= SEARCH_EACH:
            choice = search(context, method, data, arrays)
        found.append(evaluate(context, method, data, arrays, choice))
    if len(found) == 1 and "accuracy" in found[0]:
        error = _fits.accuracy_error(found[0]["accuracy"], len(arrays["y_test"]))
        return {**found[0], "errors": {"accuracy": error}}
    return {name: [figures[name] for figures in found] for name in found[0]}


def search(context: Context, method: str, data: DataSet, arrays: Arrays) -> Choice:
    """Return the best grid point by mean accuracy or R2 over two folds; the first on ties."""
    most = context.rows(max(SEARCH_ROWS, SEARCH_CELLS // arrays["X"].shape[1]))
    rows = np.random.default_rng(0).permutation(len(arrays["y"]))[:most]
    folds = [(rows[1::2], rows[::2]), (rows[::2], rows[1::2])]
    grid = METHODS[method].grid()
    grid = grid[:: max(1, len(grid) // 3)] if context.quick else grid

    def score(choice: Choice) -> float:
        found = []
        for train, test in folds:
            X, y = arrays["X"], arrays["y"]
            fold = {"X": X[train], "y": y[train], "X_test": X[test], "y_test": y[test]}
            figures = evaluate(context, method, data, fold, choice)
            found.append(figures.get("accuracy", figures.get("R2")))
        return float(np.mean(found))

    return max(grid, key=score)


def evaluate(
    context: Context, method: str, data: DataSet, arrays: Arrays, choice: Choice
) -> dict[str, float]:
    """Train, and return the test accuracy in percent; or RMSE of each target and the mean R2."""
    chosen, library = settings(method, data, choice), METHODS[method].method.library
    y = arrays["y_test"]
    if data.task != "regression":
        classes, codes = np.unique(arrays["y"], return_inverse=True)  # those of a small fold
        model, _ = timed_train(context, library, "multiclass", {**arrays, "y": codes}, chosen)
        predicted = classes[model.predict(arrays["X_test"]).argmax(axis=1)]
        return {"accuracy": float(100 * np.mean(predicted == y))}
    model, _ = timed_train(context, library, "regression", arrays, chosen)
    predicted = model.predict(arrays["X_test"]).astype(np.float64)
    error = np.mean((predicted - y) ** 2, axis=0)
    figures = {f"RMSE {k}": float(e**0.5) for k, e in enumerate(error)}
    return figures | {"R2": float(np.mean(1 - error / np.var(y, axis=0)))}


# --- the tables ---

_SETS = {"Cover Type": "covtype20k", "Digits": "digits", "Iris": "iris", "Letter-26": "letter"}
_SETS |= {"MNIST": "mnist", "Poker Hand": "poker25k", "Vehicle": "vehicle"}
_SETS |= {"Waveform": "waveform", "Wine": "wine"}
_TARGETS = {"ATP1d": ("atp1d", 6), "Energy": ("enb", 2)}


def _subject(title: str, name: str, *shown: Any) -> Subject:
    needs = () if name in ("digits", "iris", "wine") else (name,)
    return Subject(title, *shown[:3], name, shown[3], needs=needs)


_ACCURACY = tuple(
    _subject(title, name, "accuracy, %", "higher", 2, "accuracy") for title, name in _SETS.items()
)
_RMSE = tuple(
    _subject(f"{title} {k}", name, "RMSE", "lower", 2, f"RMSE {k}")
    for title, (name, n) in _TARGETS.items()
    for k in range(n)
)
_R2 = tuple(
    _subject(title, name, "mean R2", "higher", 4, "R2") for title, (name, _) in _TARGETS.items()
)
_PROTOCOL = (
    "100 rounds; depth, learning rate, subsample and features of a node from the paper's grid "
    "(table 2), by two folds within the training part; methods that the paper does not have get "
    "the depths and rates of TFBT's grid (CatBoost depths 2, 5, 8). 80 / 20 at random, five "
    "splits; one for the large sets. Scaled: the search sees at most "
    f"{SEARCH_CELLS:,} numbers (of wide sets {SEARCH_ROWS:,} rows), and is made once for sets "
    f"above {SEARCH_EACH:,} rows. Cover Type: the first 20,000 of 581,012 rows, so not comparable "
    "to the paper's. MNIST: 42,000 of the 70,000 images. Poker Hand: tested on the paper's rows, "
    f"trained on {HANDS:,} dealt hands (the paper: the 1,000,000 of the source) with 10 features "
    "(the paper says 15). CIFAR-10, Sensit, Vowel and ATP7d are not among the data. GB is C-GB "
    "with one tree for each output."
)
_WITH_TARGETS = ("C-GB", "GB", "GBDT-MO")

PAPER = Paper(
    __name__,
    "C-GB",
    "S. Emami and G. Martínez-Muñoz, Condensed-Gradient Boosting, International Journal of "
    "Machine Learning and Cybernetics, 2025.",
    (
        Table(
            "Table 3", "Accuracy", _ACCURACY, tuned, _PROTOCOL,
            paper="""
                            C-GB   GB     TFBT   GBDT-MO
                Cover Type  97.23  97.25  73.94  84.60
                Digits      97.17  97.39  95.94  96.39
                Iris        94.00  95.33  93.33  92.67
                Letter-26   96.80  96.57  76.44  94.74
                MNIST       97.48  97.63  80.48  96.71
                Poker Hand  74.87  76.81  57.63  78.15
                Vehicle     75.06  75.06  64.24  72.12
                Waveform    85.12  85.24  80.00  84.40
                Wine        98.89  97.78  92.78  86.67
            """,
            ours=OURS, also=PEERS, subjects_are="rows", ranks=True,
            explained={(m, "Cover Type"): "20,000 of the 581,012 rows." for m in OURS}
            | {
                ("C-GB", "MNIST"): "1.6 standard errors, on one split. Other points of the grid "
                    "have 95.4 to 96.9.",
                ("GBDT-MO", "MNIST"): "The search sees 2,000 rows and takes depth 5; depth 10 has "
                    "97.3.",
                ("C-GB", "Letter-26"): "Algorithm 1 written apart, over scikit-learn's trees, has "
                    "96.21 on these splits, as ours at the same point of the grid.",
            },
        ),
        Table(
            "Table 4", "RMSE of each target", _RMSE, tuned, _PROTOCOL,
            paper="""
                         C-GB    GB      GBDT-MO
                ATP1d 0  51.98   48.38   77.04
                ATP1d 1  107.79  113.19  171.22
                ATP1d 2  79.58   74.55   136.08
                ATP1d 3  51.74   32.26   129.41
                ATP1d 4  61.99   51.27   90.34
                ATP1d 5  59.48   34.24   134.34
                Energy 0  0.37   0.49    1.21
                Energy 1  0.94   0.83    2.10
            """,
            ours=_WITH_TARGETS, also=PEERS, subjects_are="rows", ranks=True,
            explained={("C-GB", "Energy 0"): "On thirty splits it is 0.36."},
        ),
        Table(
            "Table 5", "R2, mean over targets", _R2, tuned, _PROTOCOL,
            paper="""
                        C-GB    GB      GBDT-MO
                ATP1d   0.8210  0.8381  0.4567
                Energy  0.9944  0.9982  0.9606
            """,
            ours=_WITH_TARGETS, also=PEERS, subjects_are="rows",
            explained={
                ("GB", "Energy"): "The paper's RMSE of GB in table 4, of targets with standard "
                    "deviations of 10.1 and 9.5, make 0.995; ours there are lower than these.",
            },
        ),
    ),
    golden=("cgb", "cgb, classes", "tfbt", "gbdt_mo", "gbdt_mo, classes"),
)  # fmt: skip
