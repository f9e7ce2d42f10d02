"""Callbacks: early stopping, time limits, learning rate schedules, checkpoints, progress bar.

The boosting loop calls, in order::

    before_training(model)
    for each round:
        before_iteration(model, epoch, evals_log)  -> True: stop before this round
        after_iteration(model, epoch, evals_log)   -> True: stop after this round
    after_training(model)

Callbacks with `watches_layers` are also called with `after_layer(model, epoch, values, tree,
leaves)` after every layer but the last of a tree, if `boosting_step="layer"`.

`epoch` counts the rounds of the model: a training that continues a model of 40 rounds starts at 40.
`evals_log` is `{data name: {metric name: [value of each round of this run]}}`. `model` is the
:class:`polyleaf.Model` in training; a new `model.learning_rate` applies from the next round.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from polyleaf.metrics import Metric, get_metric
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.metrics.patience import Patience
from polyleaf.runtime.checks import require, require_choice
from polyleaf.runtime.temporary_files import remove_temporary_files
from polyleaf.runtime.user_warnings import warn_user

if TYPE_CHECKING:
    from polyleaf.model.leaf_kinds import Leaves
    from polyleaf.model.trees import Tree

__all__ = [
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "EvaluationMonitor",
    "LearningRateScheduler",
    "ProgressBar",
    "TimeLimit",
]


def __dir__() -> list[str]:
    return __all__


Model: TypeAlias = Any  # polyleaf.Model, of a layer above
MAX_PRINTED_OUTPUTS = 8


class Callback:
    """Base class, with the hooks of XGBoost's `TrainingCallback`. They do nothing.

    Attributes
    ----------
    watches_layers : bool
        Whether `after_layer` is called, which evaluates the evaluation sets once more.
    watches_outputs : bool
        Whether `set_per_output_log` is called.
    saves_model : bool
        Whether the callback saves the model: it is called after the others in each round, and
        before them at the end.
    """

    watches_layers = False
    watches_outputs = False
    saves_model = False

    def before_training(self, model: Model) -> object:
        """Called once before the first round. The result is ignored.

        Parameters
        ----------
        model : Model
            Model with the rounds that training continues, if any.
        """

    def after_training(self, model: Model) -> object:
        """Called once after the last round, also if a callback or Ctrl-C ended the training.

        Parameters
        ----------
        model : Model
            Trained model, which may be changed: `truncate` drops rounds.
        """

    def set_per_output_log(self, outputs_log: OutputsLog) -> object:
        """Called once before `before_training`. The result is ignored.

        Parameters
        ----------
        outputs_log : dict
            Metrics of each output, `{data name: {metric name: [ndarray of shape (n_outputs,),
            float64, of each round]}}`. It grows like `evals_log`.
        """

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool | None:
        """Called before a round.

        Parameters
        ----------
        model : Model
            Model with the rounds before this one.
        epoch : int
            Boosting round, from 0, counting the rounds of a model that training continues.
        evals_log : dict
            Metrics so far, `{data name: {metric name: [value of each round]}}`; empty without
            evaluation sets.

        Returns
        -------
        bool or None
            True ends the training.
        """
        return False

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool | None:
        """Called after a round, with the model that has this round.

        Parameters and result are those of `before_iteration`: `model`, `epoch` and `evals_log`.
        """
        return False

    def after_layer(
        self,
        model: Model,
        epoch: int,
        values: dict[str, dict[str, float]],
        tree: Tree,
        leaves: Leaves,
    ) -> object:
        """Called after a layer of a tree, which is not in the model yet. The result is ignored.

        Parameters
        ----------
        model : Model
            Model with the rounds before this one.
        epoch : int
            Boosting round, from 0, counting the rounds of a model that training continues.
        values : dict
            Metrics with the tree so far, `{data name: {metric name: value}}`.
        tree, leaves
            Arguments of `model.append`.
        """


class EarlyStopping(Callback):
    """Stop when a metric has not improved for some rounds.

    A round with a NaN metric is no improvement. If all rounds are NaN, training does not stop early
    and warns at the end.

    With `boosting_step="layer"` the metric is checked after every layer: if the best value was
    reached inside a tree, the tree is cut back to that layer when training ends, and later trees
    are dropped.

    Parameters
    ----------
    rounds : int
        Stop after this many rounds without an improvement.
    metric_name : str, optional
        Name in `evals_log`. Default: the last metric of the data set.
    data_name : str, optional
        Name of the evaluation set. Default: the last.
    save_best : bool, default=False
        Whether the trees after the best round are dropped when training ends. Otherwise they stay
        in the model and predictions use those up to the best round by default.
    min_delta : float, default=0
        Minimum change that counts as an improvement, in the unit of the metric.
    maximize : bool, optional
        Whether larger is better. Default: that of the metric.

    Attributes
    ----------
    best_iteration : int
        Round with the best value, from 0; also set on the model.
    best_score : float
        Best value; also set on the model.
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
        require(rounds >= 1, f"EarlyStopping needs rounds >= 1, got {rounds}.")
        require(min_delta >= 0, f"EarlyStopping needs min_delta >= 0, got {min_delta}.")
        self.rounds = rounds
        self.metric_name = metric_name
        self.data_name = data_name
        self.save_best = save_best
        self.min_delta = min_delta
        self.maximize = maximize
        self._metrics: Sequence[Metric] = ()

    def set_metrics(self, metrics: Sequence[Metric]) -> None:
        """Set `metrics`, to know whether larger is better. Called by the estimators."""
        _require_data(metrics)
        self._metrics = metrics

    def before_training(self, model: Model) -> None:
        """Reset the state, so that one object can be used in several fits."""
        self.best_iteration: int | None = None
        self.best_score: float | None = None
        self._patience = Patience(self.rounds, self.min_delta)
        self._metric: Metric | None = None
        self._first_round: int | None = None
        self._last_round = 0
        self._best_layer: tuple[object, object] | None = None  # tree and leaves, if inside a tree

    def restore_best(self, model: Model, epoch: int, score: float, evaluations: Any) -> None:
        """Take over the best round of the training that goes on.

        It is taken over if the metric still has the value `score` in round `epoch`: otherwise the
        evaluation set is another one.

        Parameters
        ----------
        model : Model
        epoch : int
        score : float
        evaluations : list of (metrics, (tree, leaves) or None)
            Metrics after the layers of the round, and after the round, `{data name: {metric name:
            value}}`.
        """
        for values, layer in evaluations:
            data, name = self._select_metric(values)
            if values[data][name] == score:
                self._note(epoch, name, score, layer)
                model.best_iteration, model.best_score = epoch, score
                self._first_round, self._last_round = 0, model.n_rounds - 1
                return

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        return self._has_to_stop(epoch - 1)

    def after_layer(
        self, model: Model, epoch: int, values: Any, tree: object, leaves: object
    ) -> None:
        """Keep the tree so far if it is the best."""
        data, name = self._select_metric(values)
        self._note(epoch, name, values[data][name], (tree, leaves))

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        data, name = self._select_metric(evals_log)
        self._note(epoch, name, float(evals_log[data][name][-1]), None)
        self._last_round = epoch
        if self._first_round is None:
            self._first_round = epoch
        model.best_iteration, model.best_score = self.best_iteration, self.best_score
        return self._has_to_stop(epoch)

    def after_training(self, model: Model) -> None:
        if self._metric is None:  # no round was trained
            return
        if self.best_iteration is None:
            warn_user(
                f"Early stopping had no effect: the metric {self._metric.name!r} was NaN or "
                "infinite in every round. Check the evaluation set ('auc' needs both classes, 'r2' "
                "targets that vary)."
            )
            return
        if (
            self.best_iteration == self._first_round
            and self._best_layer is None
            and self._last_round > self._first_round
        ):
            direction = "larger" if self._metric.prefers_greater else "smaller"
            warn_user(
                f"The metric {self._metric.name!r} was best at round {self._first_round}, the "
                f"first one, if {direction} is better: a function can return (name, value, "
                "greater_is_better), and EarlyStopping has maximize=. Or the learning rate is too "
                "high."
            )
        if self._best_layer is not None:
            tree, leaves = self._best_layer
            model.truncate(self.best_iteration)
            model.append(tree, leaves, self.best_iteration)
            model.best_iteration, model.best_score = self.best_iteration, self.best_score
        elif self.save_best:
            model.truncate(self.best_iteration + 1)

    def _note(
        self, epoch: int, name: str, value: float, layer: tuple[object, object] | None
    ) -> None:
        """Keep the round, and the layer inside its tree, if the value is the best so far."""
        if self._metric is None:
            self._metric = self._find_metric(name)
        if self._patience.update(self._metric.to_loss(value), epoch):
            self.best_iteration = epoch
            self.best_score = value
            self._best_layer = layer

    def _has_to_stop(self, epoch: int) -> bool:
        # Without any valid value there is nothing to stop by.
        return self.best_iteration is not None and self._patience.is_over(epoch)

    def _select_metric(self, evals_log: EvalsLog) -> tuple[str, str]:
        _require_data(evals_log)
        data = self.data_name if self.data_name is not None else list(evals_log)[-1]
        require_choice(data, evals_log, "EarlyStopping(data_name=)")
        metric = self.metric_name if self.metric_name is not None else list(evals_log[data])[-1]
        require_choice(metric, evals_log[data], "EarlyStopping(metric_name=)")
        return data, metric

    def _find_metric(self, name: str) -> Metric:
        """Return a metric that knows whether larger values are better."""
        if self.maximize is not None:
            return Metric(name, None, greater_is_better=self.maximize)
        for metric in self._metrics:
            if metric.name == name:
                return metric
        try:
            return get_metric(name)
        except ValueError:
            raise ValueError(
                f"It is unknown whether a larger {name!r} is better: pass EarlyStopping(..., "
                "maximize=True) or maximize=False."
            ) from None


def _require_data(data: object) -> None:
    require(
        data,
        "Early stopping needs data to evaluate on: pass eval_set=[(X, y)] or X_val and y_val to "
        "fit, or set validation_fraction.",
    )


class EvaluationMonitor(Callback):
    """Print metric values; with two to eight outputs also the values of each output.

    Parameters
    ----------
    period : int, default=1
        Print every `period` rounds, and the last round.
    logger : callable, default=print
        Function that receives one line of text.
    """

    watches_outputs = True

    def __init__(self, period: int = 1, logger: Callable[[str], object] = print):
        require(period >= 1, f"EvaluationMonitor needs period >= 1, got {period}.")
        self.period = period
        self.logger = logger
        self._outputs_log: OutputsLog = {}

    def set_per_output_log(self, outputs_log: OutputsLog) -> None:
        self._outputs_log = outputs_log

    def before_training(self, model: Model) -> None:
        self._pending: str | None = None

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        per_output = {
            f"{data}-{metric}": f" ({', '.join(_format_outputs(values[-1], model))})"
            for data, metrics in self._outputs_log.items()
            for metric, values in metrics.items()
            if values and 1 < len(values[-1]) <= MAX_PRINTED_OUTPUTS
        }
        texts = [
            text + per_output.get(text.rpartition(":")[0], "") for text in _format_last(evals_log)
        ]
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
        `learning_rates(epoch)`, or the rate of each round; later rounds use the last one.
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
    """Save the model periodically, so that an interrupted training can be continued.

    Files are written atomically; incomplete files of a killed training are removed when the next
    one begins, so a directory and name must be used by one training at a time. To continue, run the
    same program again with `resume=True`: with the same data, parameters and callbacks the result
    equals the model of an uninterrupted training, bit for bit, also under early stopping. A file
    that cannot be written, for example because the disk is full, is a warning and does not end the
    training.

    Parameters
    ----------
    directory : str or path
        Created if it does not exist.
    interval : int, default=100
        Save every `interval` rounds, and at the end.
    keep : int or None, default=1
        Number of most recent files to keep; None: all.
    name : str, default="checkpoint"
        Files are named `<name>_<rounds>.polyleaf`.
    resume : bool, default=False
        Whether `fit` continues from the file with the most rounds, if there is one, until the model
        has `n_estimators` rounds. The file must come from a training with the same parameters.
    """

    saves_model = True

    def __init__(
        self,
        directory: str | Path,
        interval: int = 100,
        keep: int | None = 1,
        name: str = "checkpoint",
        resume: bool = False,
    ):
        require(interval >= 1, f"Checkpoint needs interval >= 1, got {interval}.")
        require(keep is None or keep >= 1, f"Checkpoint needs keep >= 1 or None, got {keep}.")
        self.directory = Path(directory)
        self.interval = interval
        self.keep = keep
        self.name = name
        self.resume = resume

    def before_training(self, model: Model) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_temporary_files(self.directory, _file_pattern(self.name))
        self._n_rounds = self._n_saved = 0

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self._n_rounds = epoch + 1
        if self._n_rounds % self.interval == 0:
            self._save(model)
        return False

    def after_training(self, model: Model) -> None:
        if self._n_rounds > self._n_saved:
            self._save(model)

    @staticmethod
    def latest(directory: str | Path, name: str = "checkpoint") -> Path | None:
        """Return the checkpoint with the most rounds.

        Parameters
        ----------
        directory : str or Path
        name : str
            `name` of the Checkpoint.

        Returns
        -------
        Path or None
            None if there is no checkpoint.
        """
        files = _list_checkpoints(Path(directory), name)
        return files[-1] if files else None

    def _save(self, model: Model) -> None:
        self._n_saved = self._n_rounds
        path = self.directory / f"{self.name}_{self._n_rounds}.polyleaf"
        try:
            model.save(path)
        except OSError as error:
            warn_user(f"The checkpoint {str(path)!r} cannot be written: {error}. Training goes on.")
            return
        if self.keep is not None:
            for old in _list_checkpoints(self.directory, self.name)[: -self.keep]:
                old.unlink(missing_ok=True)


class TimeLimit(Callback):
    """Stop before the round that would exceed a time limit.

    The duration of the next round is estimated as that of the last round, or the mean of all rounds
    if that is longer. At least one round is trained. Time is counted from the first round, without
    reading and binning data before and the calibration of quantiles (`calibrate_quantiles`) after.
    If the number of rounds is found on held-out rows (`n_estimators=None`), the first round is that
    of the search. The search leaves out or ends what would leave no time for the training on all
    rows; if the limit is reached in its first hold-out fit, the model of this fit is kept.

    Parameters
    ----------
    seconds : float
        Time limit for all rounds of one training.
    clock : callable, default=time.monotonic
        Returns the time in seconds.

    Attributes
    ----------
    was_reached : bool
        Whether the limit ended the training.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        require(seconds > 0, f"TimeLimit needs seconds > 0, got {seconds}.")
        self.seconds = seconds
        self.clock = clock
        self._is_running = False

    def start(self) -> None:
        """Start the clock before the first of several trainings of a fit."""
        self.was_reached, self._is_running = False, True
        self._start = self.clock()

    def remaining(self) -> float:
        """Return the seconds from now until the limit, which is counted from `start`."""
        return self.seconds - (self.clock() - self._start)

    def is_over(self) -> bool:
        """Return whether the limit has been reached since `start`."""
        self.was_reached = self.remaining() < 0
        return self.was_reached

    def before_training(self, model: Model) -> None:
        """Reset the clock, so that one object can be used in several fits."""
        if not self._is_running:
            self.start()
        self._begin_rounds = self._last = self.clock()
        self._estimate = 0.0  # duration of the next round
        self._n_done = 0

    def after_training(self, model: Model) -> None:
        """Stop the clock."""
        self._is_running = False

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        elapsed = self.clock() - self._start
        self.was_reached = self._n_done > 0 and elapsed + self._estimate > self.seconds
        return self.was_reached

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        now = self.clock()
        self._n_done += 1
        self._estimate = max(now - self._last, (now - self._begin_rounds) / self._n_done)
        self._last = now
        return False


def _file_pattern(name: str) -> str:
    """Return the regular expression of checkpoint files; the first group is the number of
    rounds."""
    return re.escape(name) + r"_(\d+)\.polyleaf"


def _list_checkpoints(directory: Path, name: str) -> list[Path]:
    """Return checkpoint files by increasing number of rounds."""
    pattern = re.compile(_file_pattern(name))
    matches = [
        (match, path)
        for path in directory.glob("*.polyleaf")
        if (match := pattern.fullmatch(path.name))
    ]
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches)]


class ProgressBar(Callback):
    """Show a progress bar with the last metric values on the error stream.

    If the stream is not a terminal, nothing is written, or with `force` about ten plain lines. A
    terminal gets these lines if the package rich is not installed
    (``pip install "polyleaf[cli]"``).

    Parameters
    ----------
    total : int, optional
        Number of rounds of this run; set by the estimators.
    delay : float, default=0
        Seconds of training before the bar appears.
    force : bool, default=False
        Whether lines are written without a terminal.
    """

    def __init__(self, total: int | None = None, delay: float = 0.0, force: bool = False):
        self.total = total
        self.delay = delay
        self.force = force
        self._bar: Any = None

    def before_training(self, model: Model) -> None:
        self._task: object = None
        self._n_done = 0
        self._start = time.monotonic()
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._on_terminal = terminal and find_spec("rich") is not None
        self._lacks_bar = terminal and not self._on_terminal

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self._n_done += 1
        if self._on_terminal:
            self._update_bar(evals_log)
        elif self.force or (self._lacks_bar and time.monotonic() - self._start >= self.delay):
            self._print_line(evals_log)
        return False

    def after_training(self, model: Model) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar from the terminal."""
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
        self._bar.update(
            self._task, completed=self._n_done, values="  ".join(_format_last(evals_log))
        )

    def _print_line(self, evals_log: EvalsLog) -> None:
        step = max(1, (self.total or 100) // 10)
        if self._n_done % step == 0 or self._n_done == self.total:
            total = f"/{self.total}" if self.total else ""
            print(
                "  ".join([f"round {self._n_done}{total}", *_format_last(evals_log)]),
                file=sys.stderr,
            )


def _format_outputs(values: np.ndarray, model: Model) -> list[str]:
    return [f"{model.output_name(k)}:{value:.5f}" for k, value in enumerate(values)]


def _format_last(evals_log: EvalsLog) -> list[str]:
    return [
        f"{data}-{metric}:{values[-1]:.5f}"
        for data, metrics in evals_log.items()
        for metric, values in metrics.items()
        if values
    ]
