"""Callbacks that log the metrics of each round to MLflow, TensorBoard or Weights & Biases."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from polyleaf.callbacks import Callback
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.model.metadata import PARAMETERS
from polyleaf.runtime.optional_packages import optional_package

__all__ = ["MetricLogger", "MlflowLogger", "TensorBoardLogger", "WandbLogger"]


def __dir__() -> list[str]:
    return __all__


class MetricLogger(Callback):
    """Base class: logs the parameters that were set, and after each round all metrics.

    Metrics are named `<data>/<metric>`, and `<data>/<metric>_<output>` per output.

    Parameters
    ----------
    per_output : bool, default=False
        Whether metrics of each output are logged as well.
    """

    watches_outputs = True

    def __init__(self, per_output: bool = False):
        self.per_output = per_output
        self._outputs_log: OutputsLog = {}

    @abstractmethod
    def log_parameters(self, parameters: Mapping[str, object]) -> object:
        """Log parameters before the first round.

        Parameters
        ----------
        parameters : dict
            The parameters that are not None, by name.
        """

    @abstractmethod
    def log_metrics(self, values: Mapping[str, float], epoch: int) -> object:
        """Log the metrics of a round.

        Parameters
        ----------
        values : dict
            Values by name.
        epoch : int
            Boosting round, from 0.
        """

    def set_per_output_log(self, outputs_log: OutputsLog) -> None:
        self._outputs_log = outputs_log if self.per_output else {}

    def before_training(self, model: Model) -> None:
        parameters = model.metadata.get(PARAMETERS, {})
        self.log_parameters({n: v for n, v in parameters.items() if v is not None})

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        values = {
            f"{data}/{metric}": float(rounds[-1])
            for data, metrics in evals_log.items()
            for metric, rounds in metrics.items()
        }
        for data, metrics in self._outputs_log.items():
            for metric, rows in metrics.items():
                for k, value in enumerate(rows[-1]):
                    values[f"{data}/{metric}_{model.output_name(k)}"] = float(value)
        if values:
            self.log_metrics(values, epoch)
        return False


class MlflowLogger(MetricLogger):
    """Log to the active run of MLflow, which is begun where there is none.

    See also :func:`polyleaf.integrations.mlflow.autolog`, which logs every fit and its model.

    Parameters
    ----------
    per_output : bool, default=False
        Whether metrics of each output are logged as well.
    """

    def __init__(self, per_output: bool = False):
        super().__init__(per_output)
        with optional_package("MlflowLogger requires MLflow", "mlflow"):
            import mlflow
        self._mlflow: Any = mlflow

    def log_parameters(self, parameters: Mapping[str, object]) -> None:
        self._mlflow.log_params(parameters)

    def log_metrics(self, values: Mapping[str, float], epoch: int) -> None:
        # MLflow refuses other characters.
        named = {re.sub(r"[^\w\-./ ]", "_", name): value for name, value in values.items()}
        self._mlflow.log_metrics(named, step=epoch)


class TensorBoardLogger(MetricLogger):
    """Log scalars that TensorBoard shows.

    Parameters
    ----------
    log_dir : str or path
        Folder of the event files, for `tensorboard --logdir`. Writing needs the package
        tensorboardX or PyTorch.
    per_output : bool, default=False
        Whether metrics of each output are logged as well.
    """

    def __init__(self, log_dir: str | os.PathLike[str], per_output: bool = False):
        super().__init__(per_output)
        self.log_dir = log_dir
        self._writer: Any = None

    def before_training(self, model: Model) -> None:
        self._writer = _find_summary_writer()(os.fspath(self.log_dir))
        super().before_training(model)

    def after_training(self, model: Model) -> None:
        self._writer.close()

    def log_parameters(self, parameters: Mapping[str, object]) -> None:
        lines = (f"- {name}: {value}" for name, value in parameters.items())
        self._writer.add_text("parameters", "\n".join(lines))

    def log_metrics(self, values: Mapping[str, float], epoch: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)


def _find_summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoardLogger needs a writer: pip install tensorboardX."
            ) from error
    return SummaryWriter


class WandbLogger(MetricLogger):
    """Log to a run of Weights & Biases.

    Parameters
    ----------
    run : wandb.Run, optional
        Result of `wandb.init(...)`. Default: the active run.
    per_output : bool, default=False
        Whether metrics of each output are logged as well.
    """

    def __init__(self, run: Any = None, per_output: bool = False):
        super().__init__(per_output)
        self.run = run

    def before_training(self, model: Model) -> None:
        if self.run is None:
            try:
                import wandb
            except ImportError as error:
                raise ImportError("WandbLogger needs wandb: pip install wandb.") from error
            self.run = wandb.run
            if self.run is None:
                raise ValueError("WandbLogger needs a run: call wandb.init() first, or pass run=.")
        super().before_training(model)

    def log_parameters(self, parameters: Mapping[str, object]) -> None:
        self.run.config.update(parameters, allow_val_change=True)

    def log_metrics(self, values: Mapping[str, float], epoch: int) -> None:
        self.run.log(dict(values), step=epoch)
