"""Candidates that Optuna's tree-structured Parzen estimator proposes, where it is installed.

J. Bergstra, R. Bardenet, Y. Bengio, B. Kégl, "Algorithms for hyper-parameter optimization", NIPS 2011. Owns
what Optuna is told. Must not know data or folds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from polyleaf.search.portfolio import Parameters
from polyleaf.search.space import Task, suggest
from polyleaf.search.trials import Candidate

__all__ = ["is_worth_asking", "proposals"]


LEAST_SECONDS = 30.0  # of a search: to load Optuna takes up to two


def is_worth_asking(seconds: float | None) -> bool:
    """Whether there is Optuna, and time for it; it is loaded then, before others count on the seconds.

    What it proposes depends on its version, so a search without a limit, which must be repeatable, does
    without it.
    """
    if seconds is None or seconds < LEAST_SECONDS or find_spec("optuna") is None:
        return False
    import_module("optuna")
    return True


class _Ranges:
    """A trial that only notes what it is asked for."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        from optuna.distributions import FloatDistribution

        self.found[name] = FloatDistribution(low, high, log=log)
        return low

    def suggest_int(self, name: str, low: int, high: int, log: bool) -> int:
        from optuna.distributions import IntDistribution

        self.found[name] = IntDistribution(low, high, log=log)
        return low

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        from optuna.distributions import CategoricalDistribution

        self.found[name] = CategoricalDistribution(choices)
        return choices[0]


def proposals(
    best: Sequence[Candidate],
    task: Task,
    n_outputs: int,
    linear: bool,
    usual: Parameters,
    fixed: Collection[str],
    seed: int,
) -> Iterator[Parameters]:
    """Endlessly: what the estimator proposes, told the order of the candidates so far.

    The order is all that it uses: losses of candidates that were tried on different folds are not compared.

    Parameters
    ----------
    best : sequence of Candidate
        Best first.
    task, n_outputs, linear
        As for `suggest`.
    usual : dict
        What a parameter is that a candidate does not name.
    fixed : collection of str
        Parameters that stay.
    seed : int
    """
    import optuna

    ranges = _Ranges()
    suggest(ranges, task, n_outputs, linear)
    open_to = {name: range_ for name, range_ in ranges.found.items() if name not in fixed}
    if not open_to:
        return
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler)
    optuna.logging.set_verbosity(verbosity)
    for place, candidate in enumerate(best):
        if set(candidate.proposed) <= set(open_to):  # others are of another kind
            values = {name: {**usual, **candidate.proposed}[name] for name in open_to}
            trial = optuna.trial.create_trial(
                params=values, distributions=open_to, value=float(place)
            )
            study.add_trial(trial)
    while True:
        yield dict(study.ask(open_to).params)
