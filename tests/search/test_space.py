"""The space that trials are asked for: what it suggests is what estimators take."""

from __future__ import annotations

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.search.space import suggest


class Edge:
    """Suggests the least of everything, or the most."""

    def __init__(self, highest):
        self.highest = highest

    def suggest_float(self, name, low, high, log):
        return high if self.highest else low

    suggest_int = suggest_float

    def suggest_categorical(self, name, choices):
        return choices[-1 if self.highest else 0]


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("highest", [False, True])
def test_estimators_take_what_is_suggested(task, highest):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = {
        "regression": X[:, :2],
        "binary": X[:, 0] > 0,
        "multiclass": rng.integers(3, size=120),
        "multilabel": (X[:, :2] > 0).astype(int),
    }[task]
    kind = PolyleafRegressor if task == "regression" else PolyleafClassifier
    parameters = suggest(Edge(highest), task)
    assert kind(n_estimators=3, n_jobs=1, **parameters).fit(X, y).n_iter_ == 3
    assert ("multi_strategy" in parameters) == (task != "binary")


def test_what_does_not_go_is_not_suggested():
    assert "leaf" not in suggest(Edge(True), "regression", linear=False)
    assert "multi_strategy" not in suggest(Edge(True), "regression", n_outputs=1)
    assert "multi_strategy" not in suggest(Edge(True), "binary", n_outputs=2)


def test_there_is_no_other_task():
    with pytest.raises(ValueError, match=r"task must be one of 'regression', .*, got 'foo'"):
        suggest(None, "foo")
