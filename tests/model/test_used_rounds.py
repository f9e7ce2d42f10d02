"""Importances and joined slices of models with a best round of early stopping."""

import numpy as np
import pytest

from polyleaf import Model, PolyleafRegressor, concatenate, load_model


@pytest.fixture(scope="module")
def stopped():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    Y = np.column_stack([X[:, 0] + rng.normal(size=300), X[:, 1] + rng.normal(size=300)])
    options = dict(learning_rate=0.5, early_stopping_rounds=8, validation_fraction=0.3)
    model = PolyleafRegressor(n_estimators=100, **options).fit(X, Y)
    assert model.best_iteration_ < model.n_iter_ - 1
    return model, X


@pytest.mark.parametrize("kind", ["gain", "split", "cover"])
def test_importances_count_the_rounds_of_predictions(stopped, kind):
    model, _ = stopped
    used = load_model(model.save_model(best_only=True))
    np.testing.assert_array_equal(model.feature_importance(kind), used.feature_importance(kind))
    if kind == "gain":
        np.testing.assert_array_equal(
            model.feature_importance(kind, per_output=True),
            used.feature_importance(kind, per_output=True),
        )
        np.testing.assert_array_equal(model.feature_importances_, used.feature_importances_)


def test_joined_slices_have_the_best_round(stopped):
    model = stopped[0].model_
    best = model.best_iteration
    for cut in (1, best, best + 1, best + 3):
        parts = [Model.load(part.to_bytes()) for part in (model[:cut], model[cut:])]
        joined = concatenate(parts)
        assert (joined.best_iteration, joined.best_score) == (best, model.best_score)
        assert joined.n_rounds == model.n_rounds
    first, second, third = model[:2], model[2:5], model[5:]
    assert concatenate([first, second, third]).best_iteration == best
    halves = [model[::2], model[1::2]]
    for other in ([first, third], [second, first, third], halves, [model, model]):
        assert concatenate(other).best_iteration is None
