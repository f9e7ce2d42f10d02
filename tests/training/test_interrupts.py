"""Ctrl-C at any place of a training: it is raised or kept, and the continued model is the same."""

import numpy as np
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.training import group_search

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = np.column_stack([X[:, 0] + RNG.normal(size=200), X[:, 1] + RNG.normal(size=200)])
OPTIONS = dict(
    n_estimators=6, early_stopping_rounds=5, on_interrupt="keep", learning_rate=0.9, max_leaves=15
)
SETS = {"eval_set": [(X[::-1] + 0.3, Y)]}


class InterruptOnce:
    """A callback or metric that Ctrl-C reaches in one of its calls."""

    def __init__(self, call):
        self.calls, self.call = 0, call

    def __call__(self, *args):
        self.calls += 1
        if self.calls == self.call + 1:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("groups", [None, [[0, 1], [0], [1]]])
def test_a_training_interrupted_in_a_callback_ends_as_the_whole_one(call, groups):
    model = PolyleafRegressor(output_groups=groups, **OPTIONS)
    whole = model.fit(X, Y, **SETS).model_
    with pytest.warns(UserWarning, match=f"the {call + 1} complete rounds are kept"):
        model.fit(X, Y, callbacks=[InterruptOnce(call)], **SETS)
    assert model.best_iteration_ is not None
    more = PolyleafRegressor(output_groups=groups, **OPTIONS)
    more.set_params(n_estimators=max(1, 5 - call))
    if call < 5:
        more.fit(X, Y, init_model=model, **SETS)
        assert more.best_iteration_ == whole.best_iteration
        np.testing.assert_array_equal(more.model_.predict_raw(X), whole.predict_raw(X))


@pytest.mark.parametrize("call", [0, 2])
def test_a_round_whose_evaluation_is_interrupted_is_dropped(call):
    metric = InterruptOnce(call)
    model = PolyleafRegressor(eval_metric=metric, **OPTIONS)
    if call:
        with pytest.warns(UserWarning, match=f"the {call} complete rounds are kept"):
            model.fit(X, Y, **SETS)
        assert model.n_iter_ == call == len(model.evals_result_["validation_0"]["InterruptOnce"])
    else:
        with pytest.warns(UserWarning):
            model.fit(X, Y, **SETS)
        assert model.n_iter_ == 0


@pytest.mark.parametrize("on_interrupt", ["keep", "raise"])
@pytest.mark.parametrize("call", [0, 1, 5])
def test_an_interrupted_comparison_of_groups_ends_the_fit(monkeypatch, on_interrupt, call):
    interrupt = InterruptOnce(call)
    monkeypatch.setattr(
        group_search._HeldOutLoss, "before_iteration", lambda *args: interrupt(*args)
    )
    model = PolyleafRegressor(n_estimators=20, output_groups="auto", on_interrupt=on_interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, np.column_stack([Y, -Y[:, 0], X[:, 2]]))
    assert not hasattr(model, "model_")
