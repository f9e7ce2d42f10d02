"""Benchmark of categorical features with many categories, on synthetic and real data.

Each library uses its own method for categories. All libraries get the same learning rate, the same
maximum number of rounds and the same rows for early stopping; nothing else is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .defaults import compute_scores
from .harness.context import Context
from .harness.paper import Better, Figures, Paper, Subject, Table, make_table
from .libraries import Settings, train

ROUNDS, PATIENCE, RATE = 400, 25, 0.1
TRAINING, TEST = 15_000, 5_000  # rows of synthetic sets
MOST_ROWS = 15_000  # of real sets
SIZES = (100, 400, 1_000, 3_000, 10_000)


@dataclass(frozen=True)
class Rows:
    """One problem: numbers (n, F), category ids (n, C), target, and three parts of the rows."""

    task: str
    numbers: np.ndarray
    categories: np.ndarray
    y: np.ndarray
    train: np.ndarray
    watched: np.ndarray
    test: np.ndarray

    def frame(self, text: bool = False) -> Any:
        """Return a pandas frame with categories of the fitted rows, or all categories as text."""
        import pandas as pd

        columns: dict[str, Any] = {f"x{j}": column for j, column in enumerate(self.numbers.T)}
        for j, ids in enumerate(self.categories.T):
            known = np.unique(ids[np.concatenate([self.train, self.watched])])
            columns[f"c{j}"] = ids.astype(str) if text else pd.Categorical(ids, categories=known)
        return pd.DataFrame(columns)

    @property
    def target(self) -> np.ndarray:
        return self.y[:, 0] if self.y.ndim == 2 and self.y.shape[1] == 1 else self.y


# --- libraries ---


def predict(rows: Rows, method: str, threads: int) -> np.ndarray:
    """Train a library, and return its predictions of the test rows.

    Each library is told in its own way which columns are categories.
    """
    columns = [f"c{j}" for j in range(rows.categories.shape[1])]
    library, own = {
        "Polyleaf": ("polyleaf", {"categorical_features": columns}),
        "XGBoost": ("xgboost", {"enable_categorical": True}),
        "LightGBM": ("lightgbm", {}),
        "CatBoost": ("catboost", {"cat_features": columns}),
    }[method]
    X, y = rows.frame(text=method == "CatBoost"), rows.target
    data = {"X": X.iloc[rows.train], "y": y[rows.train]}
    data |= {"X_val": X.iloc[rows.watched], "y_val": y[rows.watched]}
    common = {"learning_rate": RATE, "max_bins": None, "patience": PATIENCE}
    settings = Settings(ROUNDS, **common, threads=threads, own=own)
    model = train(library, rows.task, data, settings)
    return np.asarray(model.predict(X.iloc[rows.test]), np.float64)


LIBRARIES = ("Polyleaf", "XGBoost", "LightGBM", "CatBoost")


# --- data ---


def effects(context: Context, n_categories: int, seed: int) -> Rows:
    """Make one categorical feature with N(0, 1) effects and noise of scale 0.3."""
    rng = np.random.default_rng(seed)
    n_train = context.rows(TRAINING)
    n = n_train + context.rows(TEST)
    ids = rng.integers(0, n_categories, n)
    y = rng.normal(size=(n_categories, 1))[ids] + 0.3 * rng.normal(size=(n, 1))
    parts = np.split(np.arange(n), [n_train * 4 // 5, n_train])
    return Rows("regression", np.zeros((n, 0)), ids[:, None], y, *parts)


@dataclass(frozen=True)
class Crossed:
    """Real set in which some columns are combined into features of many categories.

    Attributes
    ----------
    file : str
    crosses : tuple of tuple of (column, cut)
        Columns that are combined into each feature. Cut: None for the column's values unchanged,
        an int for that number of quantiles, a float for the width of a cell.
    dropped : tuple of int
        Columns removed because they would reveal the combined values.
    """

    file: str
    crosses: tuple[tuple[tuple[int, int | float | None], ...], ...]
    dropped: tuple[int, ...] = ()

    def rows(self, context: Context, seed: int) -> Rows:
        data = context.load(self.file)
        rng = np.random.default_rng(seed)
        X, y = np.asarray(data.X, np.float64), data.y
        if y.ndim == 1:  # a class of few rows may be missing from a part
            usual = np.flatnonzero(np.bincount(y)[y] > 10)
            X, y = X[usual], np.unique(y[usual], return_inverse=True)[1]
        order = rng.permutation(len(y))[: context.rows(MOST_ROWS)]
        X, y = X[order], y[order]
        ids = np.stack([_crossed(X, cross, rng) for cross in self.crosses], axis=1)
        taken = {column for cross in self.crosses for column, _ in cross} | set(self.dropped)
        numbers = np.delete(X, sorted(taken), axis=1)
        n = len(y)
        parts = np.split(np.arange(n), [n * 64 // 100, n * 8 // 10])
        task = data.task if y.ndim == 2 or y.max() > 1 else "binary"
        return Rows(task, numbers, ids, y, *parts)


def _crossed(
    X: np.ndarray, cross: Sequence[tuple[int, int | float | None]], rng: Any
) -> np.ndarray:
    """Return ids of the combined values of columns, in random order."""
    ids = np.zeros(len(X), np.int64)
    for column, cut in cross:
        x = X[:, column]
        if isinstance(cut, int):
            x = np.searchsorted(np.quantile(x, np.linspace(0, 1, cut + 1)[1:-1]), x)
        elif cut is not None:
            x = np.floor(x / cut)
        values = np.unique(x, return_inverse=True)[1]
        ids = ids * (values.max() + 1) + values
    ids = np.unique(ids, return_inverse=True)[1]
    return rng.permutation(ids.max() + 1)[ids]


def _pairs(columns: Sequence[tuple[int, ...]], n: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(tuple((column, n) for column in columns_of_one) for columns_of_one in columns)


# No default of Polyleaf was chosen on these.
CONFIRMED_ON = {
    "california, cells of 0.03 degrees": Crossed("california_housing", (((0, 0.03), (1, 0.03)),)),
    "bike, day and hour of the week": Crossed(
        "bike_hour", (((1, None), (2, None), (12, None)), ((5, None), (3, None))), (0, 6)
    ),
    "casp, fine bins": Crossed("casp", _pairs([(0,), (1,), (2,)], 1500)),
    "sarcos, pairs": Crossed("sarcos4449", _pairs([(0, 7), (1, 8), (2, 9), (3, 10)], 25)),
    "gas turbine, fine bins": Crossed("gas_turbine", _pairs([(0,), (3,), (5,)], 2000)),
    "rf1, fine bins": Crossed("rf1", _pairs([(j,) for j in range(0, 64, 8)], 1000)),
    "covtype, pairs": Crossed("covtype20k", _pairs([(0, 1), (5, 9)], 40)),
    "nursery, crosses": Crossed(
        "nursery",
        tuple(
            tuple((column, None) for column in cross)
            for cross in ((0, 1, 2, 3, 6), (1, 4, 6, 7, 2), (0, 1, 5, 6, 7))
        ),
    ),
}  # fmt: skip
# At most 255 categories each.
MANY_CONFIRMED_ON = {
    "bike, days x months": Crossed("bike_hour", (((3, None), (12, None)), ((9, 30),))),
    "parkinsons, 60 bins": Crossed("parkinsons_updrs", _pairs([(0,), (8,), (12,)], 60)),
    "enb, pairs": Crossed("enb", _pairs([(0, 3), (1, 6)], 12)),
    "water quality, 30 bins": Crossed("wq", _pairs([(0,), (4,), (8,), (12,)], 30)),
    "rf2, 40 bins": Crossed("rf2", _pairs([(64,), (128,), (192,)], 40)),
    "higgs, 50 bins": Crossed("higgs7500", _pairs([(0,), (5,), (22,), (25,)], 50)),
    "yeast, 30 bins": Crossed("yeast", _pairs([(0,), (1,), (2,), (3,)], 30)),
    "vehicle, 30 bins": Crossed("vehicle", _pairs([(j,) for j in range(0, 18, 3)], 30)),
    "optdigits, pairs": Crossed("optdigits", _pairs([(10, 18), (21, 29), (34, 42), (53, 61)], 9)),
    "usps, pairs": Crossed("usps", _pairs([(100, 116), (120, 136), (88, 104), (150, 166)], 9)),
}
REAL = CONFIRMED_ON | MANY_CONFIRMED_ON
_CLASSES = (  # sets of classes
    "covtype20k higgs7500 letter nursery optdigits pendigits satimage usps vehicle waveform yeast"
).split()


# --- runs ---


def made(context: Context, method: str, problem: str) -> Figures:
    """Return R2 on synthetic sets, named "1,000 categories"."""
    size = int(problem.split()[0].replace(",", ""))
    return _figures(method, context, (effects(context, size, seed) for seed in context.seeds(3)))


def real(context: Context, method: str, problem: str) -> Figures:
    """Return R2, or log loss, on a real set."""
    draws = (REAL[problem].rows(context, seed) for seed in context.seeds(1))
    return _figures(method, context, draws)


def _figures(method: str, context: Context, draws: Iterator[Rows]) -> Figures:
    figures: Figures = {"loss": [], "score": []}
    for rows in draws:
        predicted = predict(rows, method, context.threads)
        loss, score = compute_scores(rows.task, rows.target[rows.test], predicted)
        figures["loss"].append(loss)
        figures["score"].append(score)
    return figures


# --- tables ---

_PROTOCOL = (
    f"Rate {RATE}, at most {ROUNDS} rounds, stopped after {PATIENCE} without a better score on a "
    "fifth of the training rows, the same rows for all; nothing else is set. Each library is "
    "told which columns are categories, in its own way: `categorical_features`, "
    "`enable_categorical`, pandas' categories, `cat_features` (as text). LightGBM trains one "
    "model for each output, CatBoost is told that there are several."
)
_MADE = (
    f"One feature, {TRAINING:,} rows to learn from and {TEST:,} to test on: an effect N(0, 1) of "
    "each category, and noise of deviation 0.3, so that an R2 of .917 is to be had, on average. "
    "Three draws. " + _PROTOCOL
)
_REAL = (
    "Columns of real sets, cut into quantiles or cells and crossed with each other, their values "
    f"numbered by chance; the columns themselves are taken out. At most {MOST_ROWS:,} rows, 64 % "
    "to learn from, 16 % to stop on, 20 % to test on; one draw. " + _PROTOCOL
)


def _made() -> Table:
    subjects = (Subject(f"{size:,}", "R2", "higher", 4, f"{size:,} categories") for size in SIZES)
    columns = {"subjects_are": "columns"}
    title = "R2 by number of categories"
    return make_table("Made", title, subjects, made, _MADE, LIBRARIES, **columns)


def _real(name: str, sets: Sequence[str], figure: str, unit: str, better: Better) -> Table:
    subjects = (Subject(n, unit, better, 4, n, figure, (REAL[n].file,)) for n in sets)
    title = f"test {unit}, real sets with crossed columns"
    return make_table(name, title, subjects, real, _REAL, LIBRARIES)


def _tables() -> Iterator[Table]:
    yield _made()
    named = {"confirmed on": CONFIRMED_ON, "20 to 255 categories, confirmed on": MANY_CONFIRMED_ON}
    for words, sets in named.items():
        numbers, classes = (
            [name for name in sets if (sets[name].file in _CLASSES) == is_classification]
            for is_classification in (False, True)
        )
        yield _real(f"Real, {words}, numbers", numbers, "score", "R2", "higher")
        yield _real(f"Real, {words}, classes", classes, "loss", "log loss", "lower")


PAPER = Paper(
    __name__,
    "High-cardinality categorical features",
    "Features of 20 to 255 categories, and of more, beside XGBoost, LightGBM and CatBoost.",
    tuple(_tables()),
    golden=("frame with categories", "frame, one output", "frame, classes"),
)
