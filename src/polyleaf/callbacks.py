"""What may watch and steer a training run: early stopping, time limits, learning rates, checkpoints, progress
bar.

Owns the four hooks and the stock callbacks. Must not know how a tree is grown: a callback sees the model so
far and the metric values so far.

The loop (`boosting.boost`) calls, in order::

    before_training(model)
    for each round:
        before_iteration(model, epoch, evals_log)  -> True: stop before this round
        ... one round ...
        after_iteration(model, epoch, evals_log)   -> True: stop after this round
    after_training(model)

and, for callbacks whose `watches_layers` is true, `after_layer(model, epoch, values, tree, leaves)` after
every layer but the last of a tree that is grown with `boosting_step="layer"`.

`epoch` counts the rounds of the model: a training that goes on from a model of 40 rounds starts at 40.
`evals_log` is `{data name: {metric name: [value of each round of this run]}}`. `model` is the
:class:`polyleaf.Model` being trained; `model.learning_rate` may be set and holds from the next round on.
"""

from __future__ import annotations

import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from polyleaf.inputs.functions import describe_signature_mismatch
from polyleaf.model.model import EvalsLog
from polyleaf.model.serialize import remove_stale

if TYPE_CHECKING:
    import numpy as np

    from polyleaf.metrics import Metric
    from polyleaf.model import Model

__all__ = [
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "EvaluationMonitor",
    "LearningRateScheduler",
    "ProgressBar",
    "TimeLimit",
    "as_callbacks",
]

OutputsLog: TypeAlias = "dict[str, dict[str, list[np.ndarray]]]"
"""`EvalsLog` with an array `(n_outputs,)` for each round."""

_MOST_OUTPUTS = 8  # whose values fit a line


class Callback:
    """Base class: four hooks that do nothing, named and called like those of XGBoost's `TrainingCallback`.

    Attributes
    ----------
    watches_layers : bool
        Whether `after_layer` is to be called; every call scores the evaluation sets once more.
    watches_outputs : bool
        Whether `set_per_output_log` is to be called.
    """

    watches_layers = False
    watches_outputs = False

    def before_training(self, model: Model) -> Any:
        """Called once, before the first round. What it returns is ignored.

        Parameters
        ----------
        model : Model
            With the rounds that training goes on from, or none yet.
        """

    def after_training(self, model: Model) -> Any:
        """Called once, after the last round, also when a callback or Ctrl-C ended the training.

        Parameters
        ----------
        model : Model
            What was trained. It may be changed: `truncate` drops rounds.
        """

    def set_per_output_log(self, outputs_log: OutputsLog) -> Any:
        """Called once, before `before_training`. What it returns is ignored.

        Parameters
        ----------
        outputs_log : dict
            `{data name: {metric name: [ndarray of shape (n_outputs,), float64, of each round]}}`: metrics of
            each output, which grow as `evals_log` does.
        """

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool | None:
        """Called before a round.

        Parameters
        ----------
        model : Model
            With the rounds before this one.
        epoch : int
            Round of boosting, from 0; of a model that is trained on it goes on from there.
        evals_log : dict
            `{data name: {metric name: [value of each round]}}`, with the rounds so far; empty without data to
            evaluate on.

        Returns
        -------
        bool or None
            True ends the training.
        """
        return False

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool | None:
        """Called after a round.

        Parameters
        ----------
        model : Model
            With this round.
        epoch : int
            Round of boosting, from 0; of a model that is trained on it goes on from there.
        evals_log : dict
            `{data name: {metric name: [value of each round]}}`, with the rounds so far; empty without data to
            evaluate on.

        Returns
        -------
        bool or None
            True ends the training.
        """
        return False

    def after_layer(
        self, model: Model, epoch: int, values: dict[str, dict[str, float]], tree: Any, leaves: Any
    ) -> Any:
        """Called after a layer of a tree, which is not in the model yet. What it returns is ignored.

        Parameters
        ----------
        model : Model
            With the rounds before this one.
        epoch : int
            Round of boosting, from 0; of a model that is trained on it goes on from there.
        values : dict
            `{data name: {metric name: value}}`, with the tree so far.
        tree, leaves
            What `model.append` takes.
        """


class EarlyStopping(Callback):
    """Stop when a metric has not improved for some rounds.

    Rounds in which the metric is NaN are no improvement; where it has been NaN in all of them there is
    nothing to stop by, and a warning in the end.

    Trees that are boosted layer by layer are watched layer by layer: where the best value was reached inside
    a tree, that tree is cut back to it when the training ends, and the trees after it are dropped.

    Parameters
    ----------
    rounds : int
        Stop after this many rounds without an improvement.
    metric_name : str, optional
        Name in `evals_log`. Default: the last metric of the data set.
    data_name : str, optional
        Which evaluation set. Default: the last.
    save_best : bool, default=False
        Drop the trees after the best round when the training ends. Otherwise they stay in the model and
        prediction uses those up to the best round unless told otherwise.
    min_delta : float, default=0
        Smallest change that counts as an improvement. In the unit of the metric.
    maximize : bool, optional
        Whether larger is better. Default: what the metric of that name says.

    Attributes
    ----------
    best_iteration : int
        Round of the best value, from 0; set on the model as well.
    best_score : float
        The best value; set on the model as well.
    """

    watches_layers = True

    def __init__(
        self,
        rounds: int,
        metric_name: str | None = None,
        data_name: str | None = None,
        save_best: bool = False,
        min_delta: float = 0.0,
        maximize: bool | None = None,
    ):
        if rounds < 1:
            raise ValueError(f"EarlyStopping needs rounds >= 1, got {rounds}.")
        if min_delta < 0:
            raise ValueError(f"EarlyStopping needs min_delta >= 0, got {min_delta}.")
        self.rounds = rounds
        self.metric_name = metric_name
        self.data_name = data_name
        self.save_best = save_best
        self.min_delta = min_delta
        self.maximize = maximize
        self._known: Sequence[Metric] = ()

    def set_metrics(self, metrics: Sequence[Metric]) -> None:
        """Learn the directions of `metrics` that have no built-in name; the estimators call this."""
        self._known = metrics

    def before_training(self, model: Model) -> None:
        """Forget an earlier run, so that one object may serve many fits (clones, cross-validation)."""
        self.best_iteration: int | None = None
        self.best_score: float | None = None
        self._sign: float | None = None
        self._first: int | None = None  # round of this run
        self._last = 0
        self._metric = ""
        self._best_layer: tuple[Any, Any] | None = (
            None  # tree and leaves, where the best is inside a tree
        )

    def after_layer(self, model: Model, epoch: int, values: Any, tree: Any, leaves: Any) -> None:
        """Keep the tree so far where it is the best yet."""
        data, metric = self._watched(values)
        value = values[data][metric]
        if self._improves(value, metric):
            self.best_iteration, self.best_score, self._best_layer = epoch, value, (tree, leaves)

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        data, metric = self._watched(evals_log)
        value = float(evals_log[data][metric][-1])
        self._metric, self._last = metric, epoch
        self._first = epoch if self._first is None else self._first
        if self._improves(value, metric):
            self.best_iteration, self.best_score, self._best_layer = epoch, value, None
            model.best_iteration, model.best_score = epoch, value
        # A metric that has been NaN from the start says nothing of when to stop.
        return self.best_iteration is not None and epoch - self.best_iteration >= self.rounds

    def after_training(self, model: Model) -> None:
        if self.best_iteration is None:
            if self._first is not None:
                warnings.warn(
                    f"Early stopping watched {self._metric!r}, which was NaN in every round: nothing was "
                    "stopped by it, and there is no best round. It needs rows of which it is a number (both "
                    "classes for 'auc', targets that vary for 'r2'), or take another metric.",
                    stacklevel=2,
                )
            return
        if (
            self.best_iteration == self._first
            and self._best_layer is None
            and self._last > self._first
        ):
            warnings.warn(
                f"The metric {self._metric!r} was best at round {self._first}, the first of all. It is taken "
                f"that {'larger' if self._sign == 1 else 'smaller'} is better: a function may return (name, "
                "value, greater_is_better), and EarlyStopping takes maximize=. Or the learning rate is too "
                "high.",
                stacklevel=2,
            )
        if self._best_layer is not None:
            tree, leaves = self._best_layer
            model.truncate(self.best_iteration)
            model.append(tree, leaves, self.best_iteration)
            model.best_iteration, model.best_score = self.best_iteration, self.best_score
        elif self.save_best:
            model.truncate(self.best_iteration + 1)

    def _improves(self, value: float, metric: str) -> bool:
        if self._sign is None:
            self._sign = 1.0 if self._is_maximized(metric) else -1.0
        if math.isnan(value):
            return False
        if self.best_score is None:
            return True
        return self._sign * (value - self.best_score) > self.min_delta

    def _watched(self, evals_log: EvalsLog) -> tuple[str, str]:
        if not evals_log:
            raise ValueError(
                "Early stopping needs data to evaluate on: pass eval_set=[(X, y)] or X_val and y_val to fit, "
                "or set validation_fraction."
            )
        data = self.data_name if self.data_name is not None else list(evals_log)[-1]
        if data not in evals_log:
            raise ValueError(
                f"Early stopping watches the data set {data!r}; there are {list(evals_log)}."
            )
        metric = self.metric_name if self.metric_name is not None else list(evals_log[data])[-1]
        if metric not in evals_log[data]:
            raise ValueError(
                f"Early stopping watches the metric {metric!r}; there are {list(evals_log[data])}."
            )
        return data, metric

    def _is_maximized(self, metric: str) -> bool:
        if self.maximize is not None:
            return self.maximize
        from polyleaf.metrics import get_metric

        for known in self._known:
            if known.name == metric:
                return known.greater_is_better
        try:
            return get_metric(metric).greater_is_better
        except ValueError:
            raise ValueError(
                f"Early stopping cannot tell whether a larger {metric!r} is better: "
                "pass EarlyStopping(..., maximize=True) or maximize=False."
            ) from None


class EvaluationMonitor(Callback):
    """Print the metric values; of two to eight outputs also those of each one, by its name or number.

    Parameters
    ----------
    period : int, default=1
        Print every so many rounds, and the last.
    logger : callable, default=print
        Takes one line of text.
    """

    watches_outputs = True

    def __init__(self, period: int = 1, logger: Callable[[str], Any] = print):
        if period < 1:
            raise ValueError(f"EvaluationMonitor needs period >= 1, got {period}.")
        self.period = period
        self.logger = logger
        self._outputs_log: OutputsLog = {}

    def set_per_output_log(self, outputs_log: OutputsLog) -> None:
        self._outputs_log = outputs_log

    def before_training(self, model: Model) -> None:
        self._pending: str | None = None

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        each = {
            f"{data}-{metric}": f" ({', '.join(_by_name(values[-1], model))})"
            for data, metrics in self._outputs_log.items()
            for metric, values in metrics.items()
            if values and 1 < len(values[-1]) <= _MOST_OUTPUTS
        }
        texts = [text + each.get(text.rpartition(":")[0], "") for text in _newest(evals_log)]
        line = f"[{epoch}]" + "".join(f"\t{text}" for text in texts)
        if epoch % self.period == 0:
            self.logger(line)
            self._pending = None
        else:
            self._pending = line
        return False

    def after_training(self, model: Model) -> None:
        if self._pending is not None:
            self.logger(self._pending)


class LearningRateScheduler(Callback):
    """Set the learning rate of each round.

    Parameters
    ----------
    learning_rates : callable or sequence of float
        `learning_rates(epoch)`, or the rate of each round; beyond its end the last one holds.
    """

    def __init__(self, learning_rates: Callable[[int], float] | Sequence[float]):
        if not callable(learning_rates):
            learning_rates = [float(rate) for rate in learning_rates]
            if not learning_rates:
                raise ValueError("LearningRateScheduler needs at least one learning rate.")
        self.learning_rates = learning_rates

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        if callable(self.learning_rates):
            rate = float(self.learning_rates(epoch))
        else:
            rate = self.learning_rates[min(epoch, len(self.learning_rates) - 1)]
        if not (math.isfinite(rate) and rate > 0):
            raise ValueError(
                f"The learning rate of round {epoch} is {rate}; it must be a positive number."
            )
        model.learning_rate = rate
        return False


class Checkpoint(Callback):
    """Save the model every so often, so that a training that was interrupted can go on.

    A file appears whole or not at all; what a training that was killed left of one is removed when the next
    begins, so one directory and name are for one training at a time. To go on, pass
    `init_model=Checkpoint.latest(directory)` to `fit` with the rounds still to do: the result is the model
    that the uninterrupted training would have made, bit for bit.

    Parameters
    ----------
    directory : str or path
        Made if it does not exist.
    interval : int, default=100
        Save after every so many rounds, and at the end.
    keep : int or None, default=1
        How many files to keep, the newest; None: all.
    name : str, default="checkpoint"
        Files are called `<name>_<rounds>.polyleaf`.
    """

    def __init__(
        self,
        directory: str | Path,
        interval: int = 100,
        keep: int | None = 1,
        name: str = "checkpoint",
    ):
        if interval < 1:
            raise ValueError(f"Checkpoint needs interval >= 1, got {interval}.")
        if keep is not None and keep < 1:
            raise ValueError(f"Checkpoint needs keep >= 1 or None, got {keep}.")
        self.directory = Path(directory)
        self.interval = interval
        self.keep = keep
        self.name = name

    def before_training(self, model: Model) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_stale(self.directory, _file_pattern(self.name))
        self._rounds = self._saved = 0

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self._rounds = epoch + 1
        if self._rounds % self.interval == 0:
            self._save(model)
        return False

    def after_training(self, model: Model) -> None:
        if self._rounds > self._saved:
            self._save(model)

    @staticmethod
    def latest(directory: str | Path, name: str = "checkpoint") -> Path | None:
        """The checkpoint with the most rounds.

        Parameters
        ----------
        directory : str or Path
        name : str
            What the names of its files begin with.

        Returns
        -------
        Path or None
            None when there is none.
        """
        files = _checkpoints(Path(directory), name)
        return files[-1] if files else None

    def _save(self, model: Model) -> None:
        model.save(self.directory / f"{self.name}_{self._rounds}.polyleaf")
        self._saved = self._rounds
        if self.keep is not None:
            for old in _checkpoints(self.directory, self.name)[: -self.keep]:
                old.unlink(missing_ok=True)


class TimeLimit(Callback):
    """End the training before the round that would take longer than there is time.

    The next round is taken to last as long as the last one did, or as the mean of all if that is more. One
    round is always done. The time begins with the first round: reading and binning data come before, and what
    quantiles need to be moved to their levels (`calibrate_quantiles`) comes after.

    Parameters
    ----------
    seconds : float
        For all rounds of one training.
    clock : callable, default=time.monotonic
        Gives the time in seconds.

    Attributes
    ----------
    was_reached : bool
        Whether the limit ended the training.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        if not seconds > 0:
            raise ValueError(f"TimeLimit needs seconds > 0, got {seconds}.")
        self.seconds = seconds
        self.clock = clock

    def before_training(self, model: Model) -> None:
        """Start the clock anew, so that one object may serve many fits."""
        self.was_reached = False
        self._start = self._last = self.clock()
        self._longest = 0.0  # of the last round and the mean
        self._done = 0

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        elapsed = self.clock() - self._start
        self.was_reached = self._done > 0 and elapsed + self._longest > self.seconds
        return self.was_reached

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        now = self.clock()
        self._done += 1
        self._longest = max(now - self._last, (now - self._start) / self._done)
        self._last = now
        return False


def _file_pattern(name: str) -> str:
    """Of checkpoint files, whose rounds are the first group."""
    return re.escape(name) + r"_(\d+)\.polyleaf"


def _checkpoints(directory: Path, name: str) -> list[Path]:
    """Checkpoint files in order of rounds (by number: 1000 comes after 200)."""
    pattern = re.compile(_file_pattern(name))
    found = [
        (match, path)
        for path in directory.glob("*.polyleaf")
        if (match := pattern.fullmatch(path.name))
    ]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found)]


class ProgressBar(Callback):
    """A progress bar with the newest metric values, on the terminal's error stream.

    Where that stream is no terminal nothing is written, unless `force`: then a plain line about ten times a
    run. Where the package rich is not installed (``pip install "polyleaf[cli]"``) a terminal gets these
    lines.

    Parameters
    ----------
    total : int, optional
        Rounds to do in this run; the estimators fill it in.
    delay : float, default=0
        Seconds of training before the bar appears: short work stays quiet.
    force : bool, default=False
        Report also where there is no terminal.
    """

    def __init__(self, total: int | None = None, delay: float = 0.0, force: bool = False):
        self.total = total
        self.delay = delay
        self.force = force
        self._bar: Any = None

    def before_training(self, model: Model) -> None:
        self._task: Any = None
        self._done = 0
        self._start = time.monotonic()
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._on_terminal = terminal and find_spec("rich") is not None
        self._lacks_bar = terminal and not self._on_terminal

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self._done += 1
        if self._on_terminal:
            self._update_bar(evals_log)
        elif self.force or (self._lacks_bar and time.monotonic() - self._start >= self.delay):
            self._print_line(evals_log)
        return False

    def after_training(self, model: Model) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar off the terminal; also where training ended with an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _update_bar(self, evals_log: EvalsLog) -> None:
        if self._bar is None:
            if time.monotonic() - self._start < self.delay:
                return
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("boosting"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[values]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("boosting", total=self.total, values="")
        self._bar.update(self._task, completed=self._done, values="  ".join(_newest(evals_log)))

    def _print_line(self, evals_log: EvalsLog) -> None:
        step = max(1, (self.total or 100) // 10)
        if self._done % step == 0 or self._done == self.total:
            of = f"/{self.total}" if self.total else ""
            print("  ".join([f"round {self._done}{of}", *_newest(evals_log)]), file=sys.stderr)


class _FunctionCallback(Callback):
    """A plain function `f(model, epoch, evals_log) -> bool or None`, called after each round."""

    def __init__(self, function: Callable[[Any, int, EvalsLog], Any]):
        self.function = function

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        return bool(self.function(model, epoch, evals_log))


_HOOKS = ("before_training", "after_training", "before_iteration", "after_iteration")


def as_callbacks(callbacks: Any) -> list[Any]:
    """Turn what a user passes into a list of objects with the four hooks.

    Parameters
    ----------
    callbacks : callback, function, iterable of these, or None
        An object with the four hooks (a :class:`Callback`, or XGBoost's own), or a function
        `f(model, epoch, evals_log)` called after each round.

    Raises
    ------
    TypeError
        For anything else.
    """
    if callbacks is None:
        return []
    if callable(callbacks) or _has_hooks(callbacks):
        callbacks = [callbacks]
    if not isinstance(callbacks, Iterable):
        raise TypeError(
            f"callbacks must be a list of callbacks or functions, got {type(callbacks).__name__}."
        )
    return [_as_callback(callback) for callback in callbacks]


def _as_callback(callback: Any) -> Any:
    if isinstance(callback, type):
        name = callback.__name__
        raise TypeError(f"callbacks needs an instance, got the class {name}: write {name}(...).")
    if _has_hooks(callback):
        return callback
    if callable(callback):
        _check_signature(callback)
        return _FunctionCallback(callback)
    raise TypeError(
        f"A callback is a polyleaf.callbacks.Callback or a function (model, epoch, evals_log), "
        f"got {type(callback).__name__}."
    )


def _check_signature(function: Callable[..., Any]) -> None:
    """A TypeError for a function that cannot be called as others are, such as LightGBM's of one `env`."""
    why = describe_signature_mismatch(function, 3)
    if why:
        raise TypeError(
            "A callback is called after each round with three arguments, (model, epoch, evals_log), and ends "
            f"the training by returning True; {why}."
        )


def _has_hooks(callback: Any) -> bool:
    return not isinstance(callback, type) and all(
        callable(getattr(callback, hook, None)) for hook in _HOOKS
    )


def _by_name(values: np.ndarray, model: Model) -> list[str]:
    return [f"{model.output_name(k)}:{value:.5f}" for k, value in enumerate(values)]


def _newest(evals_log: EvalsLog) -> list[str]:
    return [
        f"{data}-{metric}:{values[-1]:.5f}"
        for data, metrics in evals_log.items()
        for metric, values in metrics.items()
        if values
    ]
