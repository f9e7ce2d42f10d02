"""The full text of Polyleaf's error messages, in one snapshot file.

Messages of scikit-learn, such as those of invalid types, are left out. Other tests check the class
of an error and the name of the argument. After a rewording on purpose, run
`python tests/whole/test_messages.py` and read the difference.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polyleaf import (
    BinMapper,
    Dataset,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRegressor,
    blend,
    load_model,
)
from polyleaf.callbacks import EarlyStopping, TimeLimit
from polyleaf.distributions import survival
from polyleaf.metrics import get_metric
from polyleaf.objectives import Huber, get_objective
from polyleaf.sketching import Projector

SNAPSHOT = Path(__file__).with_name("messages.txt")

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = X[:, :2] + rng.normal(size=(60, 2))
CLASSES = np.digitize(X[:, 0], [-0.5, 0.5])
LABELS = (Y > 0).astype(int)
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])
NAN_Y = np.where(np.arange(120).reshape(60, 2) == 7, np.nan, Y)
INF_X = np.where(np.arange(240).reshape(60, 4) == 9, np.inf, X)


def regressor(**parameters: Any) -> PolyleafRegressor:
    return PolyleafRegressor(n_estimators=2, n_jobs=1, **parameters)


def classifier(**parameters: Any) -> PolyleafClassifier:
    return PolyleafClassifier(n_estimators=2, n_jobs=1, **parameters)


def dates() -> pd.DataFrame:
    return FRAME.assign(d=pd.date_range("2020-01-01", periods=60))


def text_among_numbers() -> pd.DataFrame:
    column = [str(i) for i in range(60)]
    column[17] = "oops"
    return FRAME.assign(d=column)


MESSAGES: dict[str, Callable[[], Any]] = {
    "unknown parameter": lambda: PolyleafRegressor(num_leaves=8),
    "unknown argument of fit": lambda: regressor().fit(X, Y, weights=np.ones(60)),
    "layers without depthwise": lambda: regressor(boosting_step="layer").fit(X, Y),
    "full Hessian with reg_alpha": lambda: classifier(hessian="full", reg_alpha=1.0).fit(
        X, CLASSES
    ),
    "linear leaves with quantiles": lambda: regressor(leaf="linear", objective="quantile").fit(
        X, Y
    ),
    "leaf_k above the outputs": lambda: regressor(leaf="sparse", leaf_k=9).fit(X, Y),
    "objective unknown": lambda: regressor(objective="rmsle").fit(X, Y),
    "objective of classes in a regressor": lambda: regressor(objective="softmax").fit(X, Y),
    "negative counts": lambda: regressor(objective="poisson").fit(X, Y),
    "metric unknown": lambda: regressor(eval_metric="rmsee").fit(X, Y, eval_set=[(X, Y)]),
    "infinite X": lambda: regressor().fit(INF_X, Y),
    "missing y": lambda: regressor().fit(X, NAN_Y),
    "rows of y": lambda: regressor().fit(X, Y[:50]),
    "dates in X": lambda: regressor().fit(dates(), Y),
    "text among numbers": lambda: regressor().fit(text_among_numbers(), Y),
    "categorical_features out of range": lambda: regressor(categorical_features=[7]).fit(X, Y),
    "one class": lambda: classifier().fit(X, np.zeros(60, int)),
    "class_weight of an unknown class": lambda: classifier(class_weight={"x": 2.0}).fit(X, CLASSES),
    "negative weights": lambda: regressor().fit(X, Y, sample_weight=-np.ones(60)),
    "weights of 0": lambda: regressor().fit(X, Y, sample_weight=np.zeros(60)),
    "offset of classes": lambda: classifier().fit(X, CLASSES, offset=np.zeros(60)),
    "monotone_constraints of 2": lambda: regressor(monotone_constraints=[2, 0, 0, 0]).fit(X, Y),
    "feature_penalties of 1": lambda: regressor(feature_penalties={0: 1.0}).fit(X, Y),
    "early stopping without rows": lambda: regressor(early_stopping_rounds=2).fit(X, Y),
    "predict_interval before calibrate": lambda: regressor().fit(X, Y).predict_interval(X),
    "predict_dist of squared error": lambda: regressor().fit(X, Y).predict_dist(X),
    "iteration_range": lambda: regressor().fit(X, Y).predict(X, iteration_range=(1, 9)),
    "tasks without columns": lambda: PolyleafMultiTask({"a": "logistic"}).fit(X, {"b": LABELS}),
    "model file of other content": lambda: load_model(b"no model at all"),
    "Dataset of other rows": lambda: Dataset(X, Y[:10]),
    "BinMapper of too few bins": lambda: BinMapper(max_bins=1).fit(X),
    "EarlyStopping of 0 rounds": lambda: EarlyStopping(0),
    "TimeLimit of 0 seconds": lambda: TimeLimit(0),
    "get_metric unknown": lambda: get_metric("accurracy"),
    "get_objective unknown": lambda: get_objective("absolut_error"),
    "Huber delta of 0": lambda: Huber(delta=0.0),
    "Projector unknown": lambda: Projector("svd", dim=2),
    "survival times of 0": lambda: survival.make_intervals([0.0, 1.0], [1, 1]),
    "top-k of classes": lambda: regressor().fit(X, Y).predict_topk(X, 0),
    "SHAP of unknown outputs": lambda: regressor().fit(X, Y).shap_values(X, outputs="third"),
    "decay_rate of 2": lambda: regressor().fit(X, Y).refit(X, Y, decay_rate=2),
    "refit of another leaf": lambda: regressor().fit(X, Y).set_params(leaf="linear").refit(X, Y),
    "refit after calibrate": lambda: regressor().fit(X, Y).calibrate(X, Y).refit(X, Y),
    "objective of another link": lambda: regressor(objective="poisson").fit(
        X, Y**2, init_model=regressor().fit(X, Y)
    ),
    "blend of other bins": lambda: blend([regressor().fit(X, Y), regressor().fit(X[:40], Y[:40])]),
    "blend without weight": lambda: blend([regressor().fit(X, Y)], weights=[0]),
    "one round of a model": lambda: regressor().fit(X, Y).model_[0],
}


def read_message(call: Callable[[], Any]) -> str:
    """Return the class and the text of what a call raises, or of its first warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {normalise(str(error))}"
    return f"{caught[0].category.__name__}: {normalise(str(caught[0].message))}" if caught else ""


def normalise(text: str) -> str:
    """Replace the text of other libraries, and names that tests register."""
    text = re.sub(r"Known are .*?, and any", "Known are ..., and any", text)
    text = re.sub(r"dtype \w+\(.*?\),", "dtype ...,", text)
    return re.sub(r" \(Error while deserializing.*?\)", "", text).strip()


def read_snapshot() -> dict[str, str]:
    """Return the recorded messages by name."""
    blocks = SNAPSHOT.read_text("utf-8").strip().split("\n\n## ")
    return dict(block.removeprefix("## ").split("\n", 1) for block in blocks)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_equal_the_snapshot(name):
    message = read_message(MESSAGES[name])
    assert message, f"{name}: neither an error nor a warning"
    assert message == read_snapshot()[name].strip()


def test_snapshot_has_no_other_messages():
    assert set(read_snapshot()) == set(MESSAGES)


if __name__ == "__main__":
    sections = [f"## {name}\n{read_message(call)}" for name, call in MESSAGES.items()]
    SNAPSHOT.write_text("\n\n".join(sections) + "\n", "utf-8")
    sys.exit(0)
