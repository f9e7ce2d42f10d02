import math

import pytest

from polyleaf.metrics.patience import Patience


@pytest.mark.parametrize(
    ("losses", "min_delta", "best", "stops_after"),
    [
        ([5, 4, 3, 3, 3.5, 3.2, 1], 0.0, 2, 5),
        ([3, 2.8, 2.6, 2.55], 0.5, 0, 3),
        ([math.inf, math.nan, 2, math.nan, 1, 1, math.inf, 1], 0.0, 4, 7),
        ([math.nan] * 5, 0.0, None, 2),
        ([-math.inf] * 5, 0.0, 0, 3),
        ([3, 2, 1], 0.0, 2, None),
    ],
)
def test_rounds_without_improvement(losses, min_delta, best, stops_after):
    patience = Patience(3, min_delta)
    stopped = None
    for round, loss in enumerate(losses):
        improves = patience.update(loss, round)
        assert improves == (patience.best_round == round)
        if patience.is_over(round):
            stopped = round
            break
    assert (patience.best_round, stopped) == (best, stops_after)
    assert patience.lowest == (math.inf if best is None else losses[best])
