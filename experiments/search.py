"""Search estimators compared with other libraries tuned by Optuna, with equal time.

The tuning of the other libraries is in `tuned.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from .defaults import EVERYTHING, GOLDEN, Deadline, compute_scores, row_losses, splits
from .harness.context import Context, Unavailable
from .harness.paper import Better, Figures, Paper, Table, make_subjects, make_table
from .libraries import is_installed
from .portfolio import SETS, confirmed_on
from .tuned import PEERS, Part, tune

SECONDS = (5, 15, 60, 300)
# Compared with the others' defaults of *out of the box*, up to 30 s, not with tuned ones.
ALONE = (5,)
BLEND = "Polyleaf, blend of 5"
OURS = {"Polyleaf": {}, BLEND: {"ensemble": 5}}
AS_IT_COMES = "Polyleaf as it comes"


def searched(part: Part, seconds: float, **chosen: Any) -> tuple[Any, Any]:
    """Run the search estimator with the processor time of this process as its clock."""
    from polyleaf import PolyleafClassifierCV, PolyleafRegressorCV
    from polyleaf.search import successive_halving

    kind = PolyleafRegressorCV if part.task == "regression" else PolyleafClassifierCV
    model = kind(time_limit=seconds, n_jobs=1, random_state=0, verbose=0, **chosen)
    clock = SimpleNamespace(perf_counter=time.process_time)
    with patch.object(successive_halving, "time", clock):
        model.fit(part.X, part.y, groups=part.people)
    chosen = {"parameters": model.best_params_, "candidates": len(model.leaderboard_)}
    if model.ensemble_ is not None:
        chosen["members"] = [member["weight"] for member in model.ensemble_]
    return model, chosen


def as_it_comes(part: Part, seconds: float) -> tuple[Any, Any]:
    from polyleaf import PolyleafClassifier, PolyleafRegressor

    kind = PolyleafRegressor if part.task == "regression" else PolyleafClassifier
    with Deadline(seconds).interrupting():
        return kind(n_jobs=1, on_interrupt="keep").fit(part.X, part.y), {}


def _cost(model: Any, X: Any) -> dict[str, float]:
    """Return our model's file size in MB, and microseconds per row in batches of a thousand."""
    rows, seconds = X[:1000], []
    for _ in range(5):
        begun = time.process_time()
        model.predict(rows)
        seconds.append(time.process_time() - begun)
    return {"megabytes": len(model.save_model()) / 1e6, "us": 1e6 * min(seconds) / rows.shape[0]}


def _predict(task: str, model: Any, X: Any) -> np.ndarray:
    if task == "regression":
        return np.asarray(model.predict(X), np.float64)
    probability = np.asarray(model.predict_proba(X), np.float64)
    return probability[:, 1] if task == "binary" else probability


def _folds(part: Part) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the three folds of the search, which all libraries use."""
    from polyleaf import PolyleafRegressor, RowData
    from polyleaf.search.cv_splits import split_rows
    from polyleaf.training.prepare import read_split_rules
    from polyleaf.training.training_run import TrainingData
    from polyleaf.user_data.target import encode_classification, encode_regression

    encode = encode_regression if part.task == "regression" else encode_classification
    data = TrainingData("training", part.X, RowData(part.y, groups=part.people))
    rules = read_split_rules(PolyleafRegressor(), data.rows, len(part.y))
    return split_rows(3, data, encode(data.rows), 0, rules)


# --- runs ---


def _within(context: Context, method: str, problem: str, seconds: float) -> Figures:
    """Return the figures of a search on the first split.

    Figures: `loss`, `score`, `seconds` of processor time, for Polyleaf `megabytes` and `us`, and
    the choice. For the search also those of `_compare_with_defaults`; the defaults have their own
    time.
    """
    peer = PEERS.get(method)
    if peer is not None and not (is_installed(method.lower()) and find_spec("optuna")):
        raise Unavailable(f"{method} or Optuna is not installed")
    data = context.load(problem)
    X, y, X_test, y_test, people = next(splits(context, data))
    part, seconds = Part(data.task, X, y, people), seconds / 20 if context.quick else seconds
    folds = _folds(part)
    if peer is not None:
        peer.load()
    begun, cost = time.process_time(), {}
    if peer is not None:
        predict, chosen = tune(peer, part, folds, seconds)
        spent = time.process_time() - begun
        predicted = np.asarray(predict(X_test), np.float64)
    else:
        ours, own = (as_it_comes, {}) if method == AS_IT_COMES else (searched, OURS[method])
        model, chosen = ours(part, seconds, **own)
        spent = time.process_time() - begun
        predicted, cost = _predict(part.task, model, X_test), _cost(model, X_test)
    loss, score = compute_scores(data.task, y_test, predicted)
    figures = {"loss": loss, "score": score, "seconds": spent, **cost, "chosen": chosen}
    if method == "Polyleaf":
        usual = _predict(part.task, as_it_comes(part, seconds)[0], X_test)
        figures["behind"] = _compare_with_defaults(part.task, y_test, predicted, usual)
    return figures


def _compare_with_defaults(task: str, y: np.ndarray, ours: np.ndarray, usual: np.ndarray) -> float:
    """Return the excess loss over that of the defaults (`usual`), in standard errors.

    The standard error is that of the mean difference over the test rows. The value is 0 if both
    losses are equal. Test rows that belong to groups, such as people, make it too small.
    """
    differences = row_losses(task, y, ours) - row_losses(task, y, usual)
    error = float(differences.std(ddof=1)) / np.sqrt(len(differences))
    excess = compute_scores(task, y, ours)[0] - compute_scores(task, y, usual)[0]
    return excess / error if error > 0 else 0.0


def within_5(context: Context, method: str, problem: str) -> Figures:
    return _within(context, method, problem, 5)


def within_15(context: Context, method: str, problem: str) -> Figures:
    return _within(context, method, problem, 15)


def within_60(context: Context, method: str, problem: str) -> Figures:
    return _within(context, method, problem, 60)


def within_300(context: Context, method: str, problem: str) -> Figures:
    return _within(context, method, problem, 300)


RUNS = dict(zip(SECONDS, (within_5, within_15, within_60, within_300), strict=True))

# --- tables ---

_PROTOCOL = (
    "The same seconds of processor time for all, the last training on all rows included; one "
    "thread. Polyleaf: `PolyleafRegressorCV(time_limit=...)` or the classifier, which takes one "
    "of the three folds where time is short, and draws them anew for its leaders. The others: "
    "Optuna's TPE over TabArena's ranges, the defaults first, three folds (the same for all), "
    "early stopping with the same patience (4 / learning rate), trials pruned between folds by "
    "the median, a last training with the mean of the rounds. Folds are of whole persons where "
    "test rows are (parkinsons_updrs). At most 10,000 training rows, as many test rows, one "
    "split; measures as in *out of the box*. LightGBM trains one model for each target or label."
)
_MEASURES: dict[str, Better] = {"loss": "lower", "score": "higher"}


def apart() -> list[str]:
    """Return the sets that were not used for choosing the portfolio."""
    chosen = set(SETS) - set(confirmed_on())
    return [name for name in EVERYTHING if name not in chosen]


def _tables() -> Iterator[Table]:
    # In random order, so that the finished ones are a random sample if not all were run.
    order = np.random.default_rng(5).permutation(EVERYTHING).tolist()
    for seconds in SECONDS:
        for what, better in _MEASURES.items():
            for words, is_apart in (("apart", True), ("chosen on", False)):
                names = [name for name in order if (name in apart()) == is_apart]
                yield _table(seconds, what, better, words, names)


def _table(seconds: int, what: str, better: Better, words: str, names: Sequence[str]) -> Table:
    is_alone = seconds in ALONE
    return make_table(
        f"{seconds} s, {what}, sets {words}",
        f"test {what} after {seconds} s of processor time",
        make_subjects(names, what, better, 4, what),
        RUNS[seconds],
        _PROTOCOL,
        ["Polyleaf"] if is_alone else ["Polyleaf", *PEERS, AS_IT_COMES],
        ranks=not is_alone,
    )


def _noise_tables() -> Iterator[Table]:
    """Yield tables that test whether the search is worse than the defaults beyond the noise."""
    title = "standard errors of the paired difference over test rows"
    title += "; below 2 is noise, below 0 is better"
    for words, is_apart in (("apart", True), ("chosen on", False)):
        names = [name for name in sorted(EVERYTHING) if (name in apart()) == is_apart]
        subjects = make_subjects(names, "standard errors", "lower", 1, "behind")
        name = f"15 s, behind the defaults, sets {words}"
        yield make_table(name, title, subjects, within_15, _PROTOCOL, ["Polyleaf"])


# Sets of every kind of task, for measuring a blend.
BLENDED = ("usps", "satimage", "rf1", "scene", "casp", "bike_hour", "cal500")


def _blend_tables() -> Iterator[Table]:
    """Yield tables of the blend among the tuned libraries, and of its gain and cost.

    The gain and the cost are shown beside the default search.
    """
    for what, better in _MEASURES.items():
        subjects = make_subjects(sorted(EVERYTHING), what, better, 4, what)
        methods = (BLEND, *PEERS)
        name, title = f"15 s, {what}, a blend", f"test {what}"
        yield make_table(name, title, subjects, within_15, _PROTOCOL, methods, (BLEND,))
    units = {"megabytes": "MB of the file", "us": "microseconds a row, a thousand at a time"}
    for what in (*_MEASURES, *units):
        better = _MEASURES.get(what)
        subjects = make_subjects(BLENDED, what, better, 4 if better else 2, what)
        name, title = f"15 s, blend, {what}", units.get(what, f"test {what}")
        yield make_table(name, title, subjects, within_15, _PROTOCOL, OURS)


PAPER = Paper(
    __name__,
    "Hyperparameter search with a time budget",
    "Polyleaf's search beside XGBoost, LightGBM and CatBoost tuned by Optuna, in equal seconds.",
    (*_tables(), *_noise_tables(), *_blend_tables()),
    golden=GOLDEN,
)
