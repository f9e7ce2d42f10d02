"""The parameter space around the portfolio, for Optuna studies, and candidates proposed by Optuna's
TPE.

J. Bergstra, R. Bardenet, Y. Bengio, B. Kégl, "Algorithms for hyper-parameter optimization", NIPS
2011. Optuna is imported only when candidates are proposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from polyleaf.runtime.types import Parameters
from polyleaf.search.trials import Candidate

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Task: TypeAlias = Literal["regression", "binary", "multiclass", "multilabel"]

_FLOAT_RANGES: dict[str, tuple[float, float, bool]] = {  # low, high, log
    "learning_rate": (0.01, 0.3, True),
    "reg_lambda": (0.05, 20.0, True),
    "colsample_bynode": (0.1, 1.0, False),
    "subsample": (0.4, 1.0, False),
}
_INT_RANGES = {"max_leaves": (4, 256), "min_child_samples": (1, 50)}

MIN_SECONDS = 30.0  # time limit from which TPE is used: loading Optuna takes up to two seconds


def suggest_params(
    trial: Any, task: Task, n_outputs: int | None = None, linear: bool = True
) -> Parameters:
    """Suggest estimator parameters with an Optuna trial.

    `n_estimators` is not suggested: train with `early_stopping_rounds` and at most
    `60 / learning_rate` rounds.

    Parameters
    ----------
    trial : optuna.Trial
        Any object with `suggest_float`, `suggest_int` and `suggest_categorical`.
    task : {"regression", "binary", "multiclass", "multilabel"}
    n_outputs : int, optional
        Number of outputs. With one output `multi_strategy` is not suggested. None means several
        outputs, except for "binary".
    linear : bool
        Whether to suggest linear leaves. They need dense features, and an objective whose gradients
        are not just signs (unlike quantiles and absolute error).

    Returns
    -------
    dict
        Parameters for `PolyleafRegressor` or `PolyleafClassifier`.

    Raises
    ------
    ValueError
        If `task` is unknown.
    """
    if task not in get_args(Task):
        raise ValueError(
            f"task must be one of {', '.join(map(repr, get_args(Task)))}, got {task!r}."
        )
    params: Parameters = {
        name: trial.suggest_float(name, low, high, log=log)
        for name, (low, high, log) in _FLOAT_RANGES.items()
    }
    for name, bounds in _INT_RANGES.items():
        params[name] = trial.suggest_int(name, *bounds, log=True)
    if linear:
        params["leaf"] = trial.suggest_categorical("leaf", ["constant", "linear"])
    if task != "binary" and n_outputs != 1:
        strategies = ["multi_output_tree", "one_output_per_tree"]
        params["multi_strategy"] = trial.suggest_categorical("multi_strategy", strategies)
    return params


def is_optuna_useful(seconds: float | None) -> bool:
    """Check that Optuna is installed and the time limit is long enough; if so, import it.

    Proposals depend on Optuna's version, so searches without a time limit, which are reproducible,
    do not use it. It is imported here so that the import is not counted as time of a trial.
    """
    if seconds is None or seconds < MIN_SECONDS or find_spec("optuna") is None:
        return False
    import_module("optuna")
    return True


class _RangeRecorder:
    """A trial that records the distributions it is asked for."""

    def __init__(self) -> None:
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        from optuna.distributions import FloatDistribution

        self.distributions[name] = FloatDistribution(low, high, log=log)
        return low

    def suggest_int(self, name: str, low: int, high: int, log: bool) -> int:
        from optuna.distributions import IntDistribution

        self.distributions[name] = IntDistribution(low, high, log=log)
        return low

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> object:
        from optuna.distributions import CategoricalDistribution

        self.distributions[name] = CategoricalDistribution(choices)
        return choices[0]


def propose_candidates(
    ranked: Sequence[Candidate],
    task: Task,
    n_outputs: int,
    linear: bool,
    defaults: Parameters,
    fixed: Collection[str],
    seed: int,
) -> Iterator[Parameters]:
    """Yield TPE proposals endlessly, given the ranking of the candidates so far.

    Only the ranks are used: losses of candidates evaluated on different folds cannot be compared.

    Parameters
    ----------
    ranked : sequence of Candidate
        Candidates, best first.
    task, n_outputs, linear
        Arguments of `suggest_params`.
    defaults : dict
        Values of parameters that a candidate does not set.
    fixed : collection of str
        Parameters that must not change.
    """
    import optuna

    recorder = _RangeRecorder()
    suggest_params(recorder, task, n_outputs, linear)
    space = {name: d for name, d in recorder.distributions.items() if name not in fixed}
    if not space:
        return
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler)
    optuna.logging.set_verbosity(verbosity)
    for rank, candidate in enumerate(ranked):
        if set(candidate.proposed) <= set(space):  # others lie outside of the space
            values = {name: {**defaults, **candidate.proposed}[name] for name in space}
            trial = optuna.trial.create_trial(params=values, distributions=space, value=float(rank))
            study.add_trial(trial)
    while True:
        yield dict(study.ask(space).params)
