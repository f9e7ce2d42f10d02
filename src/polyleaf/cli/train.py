"""The command `train`: from options and a file to a saved model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from polyleaf.callbacks import TimeLimit
from polyleaf.cli import xmc
from polyleaf.cli.input import (
    Source,
    get_header,
    make_training_dataset,
    open_source,
    read_columns,
    select_weight_column,
)
from polyleaf.cli.messages import INTERRUPT_EXIT_CODE, Reporter, pluralise, print_error
from polyleaf.cli.model_file import save_table_model, save_xmc_model
from polyleaf.cli.multitask import TaskSpec, describe_tasks, get_single_kind, parse_tasks
from polyleaf.cli.options import (
    PARAMETERS,
    DecimalOption,
    EncodingOption,
    FileArgument,
    FormatOption,
    ModelOption,
    NoHeaderOption,
    QuietOption,
    SepOption,
    ThreadsOption,
    WeightOption,
    check_writable,
    list_parameters,
    make_csv_options,
    parameter_option,
)
from polyleaf.data.random_rows import split_validation
from polyleaf.files.folders import ParquetFolder
from polyleaf.files.io import ReadError
from polyleaf.files.readers import CsvOptions, read_table
from polyleaf.files.schema import (
    Schema,
    decimal_comma_hint,
    infer_task,
    read_weights,
    select_columns,
)
from polyleaf.files.table import Table
from polyleaf.inputs.weights import weight_known_targets
from polyleaf.settings import presets
from polyleaf.settings.aliases import suggest
from polyleaf.settings.param_spec import get_param_specs
from polyleaf.settings.parameters import SearchParameters

KEEP_ON_INTERRUPT = {"on_interrupt": "keep"}
"""Parameters with which estimators, and the final fit of a search, keep finished rounds."""

_INTERRUPT_WARNING = "was interrupted"  # part of the warning of an estimator that keeps rounds


def train(
    file: FileArgument,
    model: ModelOption,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Target columns: names, patterns (label_*), first:N or last:N, separated by "
            "commas. LIBSVM files mark their own.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND or NAME=LOSS",
            help="regression, classification or multilabel. Default: inferred. One text column, or "
            "one column of at most 20 distinct integers, is classification; several 0/1 columns "
            "are multilabel; everything else is regression. For a multi-task model, give --task "
            "once per task instead of --target: NAME=LOSS (price=squared_error, "
            "demand=quantile:0.1,0.9), or NAME to infer the loss.",
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Columns to ignore; same syntax as --target.")
    ] = None,
    weight: WeightOption = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            help="Column of offsets (base margins): the raw score that boosting starts from, such "
            "as the log exposure of counts; or one column per output. Data to predict needs them "
            "too.",
        ),
    ] = None,
    categorical: Annotated[
        str | None,
        typer.Option(help="Numeric columns to treat as categorical. Text columns always are."),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(help="Evaluation data: a file, or the fraction of FILE's rows to hold out."),
    ] = None,
    early_stopping: Annotated[
        int | None, parameter_option("early_stopping_rounds", "--early-stopping")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds for all boosting rounds.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Parameters of a published method: "
            f"{', '.join(sorted(presets.__all__))}. Other options override them."
        ),
    ] = None,
    search: Annotated[
        float | None,
        typer.Option(
            help="Seconds for a hyperparameter search, by cross-validation or on --validation. "
            "Parameters that are given stay fixed.",
            min=0.001,
        ),
    ] = None,
    rounds: Annotated[int | None, parameter_option("n_estimators", "--rounds", "-n")] = None,
    learning_rate: Annotated[
        float | None, parameter_option("learning_rate", "--learning-rate", "-r")
    ] = None,
    leaves: Annotated[int | None, parameter_option("max_leaves", "--leaves")] = None,
    depth: Annotated[int | None, parameter_option("max_depth", "--depth")] = None,
    leaf: Annotated[str | None, parameter_option("leaf", "--leaf", summary="Kind of leaf.")] = None,
    linear_fit: Annotated[
        str | None,
        parameter_option(
            "linear_fit", "--linear-fit", summary="How split gains account for linear leaves."
        ),
    ] = None,
    label_names: Annotated[
        Path | None,
        typer.Option(help=f"File with one label name per line, for --format {xmc.FORMAT}."),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="Loss to minimise. Default: by the task.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    threads: ThreadsOption = None,
    leaf_dtype: Annotated[
        str,
        typer.Option(
            "--leaf-dtype",
            help="Type of leaf values in the model file: float32, or the smaller float16 or int8.",
        ),
    ] = "float32",
    statistics: Annotated[
        bool,
        typer.Option(
            help="Keep gains, row counts and Hessian sums of nodes in the model file; feature "
            "importances need them."
        ),
    ] = True,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="If FILE is a folder: directory for binned data that does not fit in memory, one "
            "byte per value."
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            help='If FILE is a folder: memory for training, such as "4GiB". What does not fit is '
            "kept in files in --cache, or in the system's temporary directory."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help=f"Set any other parameter of the estimator; repeatable. {list_parameters()}",
        ),
    ] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    quiet: QuietOption = False,
) -> None:
    """Train a model on a data file and save it.

    Progress and a summary are printed to standard error.
    """
    from polyleaf.model.storage import check_leaf_dtype

    check_leaf_dtype(leaf_dtype)
    chosen = {
        "n_estimators": rounds,
        "learning_rate": learning_rate,
        "max_leaves": leaves,
        "max_depth": depth,
        "leaf": leaf,
        "linear_fit": linear_fit,
        "objective": objective,
        "early_stopping_rounds": early_stopping,
        "n_jobs": threads,
        "time_limit": search,
    }
    params = {name: value for name, value in chosen.items() if value is not None}
    params |= KEEP_ON_INTERRUPT
    params |= {"random_state": seed, "verbose": int(sys.stderr.isatty() and not quiet)}
    params |= _parse_settings(settings or [])
    params |= _make_time_limit(time_limit, search)
    options = TrainOptions(
        file=file,
        model=model,
        format=format,
        csv_options=make_csv_options(no_header, sep, decimal, encoding),
        preset=preset,
        params=params,
        validation=validation,
        early_stopping=early_stopping,
        search=search,
        objective=objective,
        seed=seed,
        threads=threads,
        save_options={"leaf_dtype": leaf_dtype, "statistics": statistics},
        reporter=Reporter(quiet),
    )
    columns = ColumnOptions(target, task, drop, weight, offset, categorical)
    if xmc.is_xmc(file, format):
        _train_xmc(options, columns, label_names)
    else:
        _check_input_options(file.is_dir(), label_names, cache, memory_limit)
        _train_table(options, columns, cache, memory_limit)


@dataclass(frozen=True)
class TrainOptions:
    """Options of `train` that are not about columns; `params` does not include the preset."""

    file: Path
    model: Path
    format: str | None
    csv_options: CsvOptions
    preset: str | None
    params: dict[str, Any]
    validation: str | None
    early_stopping: int | None
    search: float | None
    objective: str | None
    seed: int
    threads: int | None
    save_options: dict[str, Any]
    reporter: Reporter


@dataclass(frozen=True)
class ColumnOptions:
    """Options of `train` that select columns, as they were given."""

    target: str | None
    task: list[str] | None
    drop: str | None
    weight: str | None
    offset: str | None
    categorical: str | None


@dataclass(frozen=True)
class TrainingSpec:
    """Specification of a training run on a table.

    Attributes
    ----------
    schema : Schema
    table : Table
        Targets, weights and offsets of all rows; of a file also the features.
    weight_column : tuple of str
        The column of weights, if there is one.
    params : dict
        Parameters of the estimator, with those of the preset.
    texts : set of str
        Text columns.
    categorical : tuple of str
        Columns that `--categorical` names.
    tasks : list of TaskSpec
        Tasks of a multi-task model; empty for a single task.
    """

    schema: Schema
    table: Table
    weight_column: tuple[str, ...]
    params: dict[str, Any]
    texts: set[str]
    categorical: tuple[str, ...]
    tasks: list[TaskSpec]


def _train_xmc(options: TrainOptions, columns: ColumnOptions, label_names: Path | None) -> None:
    """Train on extreme multi-label data and save the model."""
    for name, value in asdict(columns).items():
        if value:
            raise ReadError(f"--{name} selects columns, but --format {xmc.FORMAT} has none.")
    _check_validation(options.validation, options.early_stopping)
    check_writable(options.model)
    if options.search is not None:
        raise ReadError(f"--search does not support --format {xmc.FORMAT}.")
    params = _get_preset(options.preset or "gbdt_sparse") | options.params
    estimator = _get_estimator_class("multilabel", params)(**params)
    rows = xmc.read_rows(options.file, label_names, options.threads)
    with capture_interrupt() as interrupt:
        xmc.fit_labels(estimator, rows, options.validation, options.seed, options.threads)
    _exit_without_model(interrupt, estimator)
    save_xmc_model(estimator, options.model, **options.save_options)
    options.reporter.training_data(
        f"multilabel with {pluralise(rows.Y.shape[1], 'label')}", rows.X.shape
    )
    options.reporter.trained(estimator, options.model)
    _exit_if_interrupted(interrupt, estimator, options.model)


def _train_table(
    options: TrainOptions, columns: ColumnOptions, cache: Path | None, memory_limit: str | None
) -> None:
    """Train on a table and save the model."""
    source = open_source(options.file, options.format, options.csv_options)
    is_folder = options.file.is_dir()
    spec = _make_training_spec(options, columns, source)
    schema, reporter = spec.schema, options.reporter
    estimator = _get_estimator_class(schema.task, spec.params)(**spec.params)
    _check_validation(
        options.validation, options.early_stopping if options.search is None else None
    )
    _check_folder_validation(is_folder, options.validation)
    training, held = _split(spec.table, options)
    check_writable(options.model)
    weights = read_weights(training, spec.weight_column[0]) if spec.weight_column else None
    bin_weights = weight_known_targets(schema.read_targets(training), weights)
    texts = spec.texts - set(spec.categorical)
    X = make_training_dataset(
        source if is_folder else training,
        schema,
        estimator,
        bin_weights,
        texts,
        cache,
        memory_limit,
    )
    with capture_interrupt() as interrupt:
        _fit(estimator, schema, X, training, held, weights)
    _exit_without_model(interrupt, estimator)
    save_table_model(estimator, schema, options.model, **options.save_options)
    tasks = describe_tasks(spec.tasks) if spec.tasks else ""
    reporter.training_table(schema, columns.task is None, training.n_rows, spec.texts, tasks)
    text_features = [name for name in schema.features if name in texts]
    if hint := decimal_comma_hint(get_header(source), text_features):
        reporter.info(hint.strip())
    if options.search is not None:
        reporter.info(estimator.report())
    reporter.trained(estimator, options.model)
    _exit_if_interrupted(interrupt, estimator, options.model)


def _make_training_spec(
    options: TrainOptions, columns: ColumnOptions, source: Source
) -> TrainingSpec:
    """Select columns and parameters."""
    header = get_header(source)
    kind = get_single_kind(columns.task or [], columns.target)
    tasks: list[TaskSpec] = []
    if columns.task and kind is None:
        _check_multitask_options(options, columns)
        tasks = parse_tasks(header, columns.task, lambda names: read_columns(source, names))
    targets = tuple(name for task in tasks for name in task.columns)
    targets = targets or _select_targets(header, columns.target)
    dropped = _select(header, columns.drop, "--drop")
    weight_column = select_weight_column(header, columns.weight)
    offsets = _select(header, columns.offset, "--offset")
    categorical = _select(header, columns.categorical, "--categorical")
    texts = set(header.categories)
    header = header.convert_to_categorical([name for name in categorical if name not in targets])
    table = read_columns(
        source if isinstance(source, ParquetFolder) else header,
        (*targets, *weight_column, *offsets),
    )
    if weight_column:
        read_weights(table, weight_column[0])  # before a split, so that errors count FILE's rows
    params = _get_preset(options.preset) | options.params
    _check_decimal_commas(table, tasks, () if kind == "classification" else targets)
    ignored = (*dropped, *weight_column)
    if tasks:
        schema = Schema.from_tasks(header, [(t.kind, t.columns) for t in tasks], ignored)
        params |= {"objective": {task.key: task.objective for task in tasks}}
    else:
        kind = kind or infer_task(table, targets)
        schema = Schema.from_table(header, targets, kind, ignored, offsets)
        params = _replace_target_names(params, schema)
    schema.check_stray_text(header, categorical)
    return TrainingSpec(schema, table, weight_column, params, texts, categorical, tasks)


def _select(header: Table, text: str | None, option: str) -> tuple[str, ...]:
    return select_columns(header, text, option) if text else ()


def _select_targets(header: Table, text: str | None) -> tuple[str, ...]:
    if text:
        return select_columns(header, text, "--target")
    if header.targets:
        return header.targets
    raise ReadError("--target is required: name the column or columns to predict.")


def _get_preset(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    if name not in presets.__all__:
        names = ", ".join(sorted(presets.__all__))
        raise ReadError(f"--preset: there is no preset {name!r}; choose one of {names}.")
    return getattr(presets, name)()


def _parse_settings(settings: list[str]) -> dict[str, Any]:
    """Parse ``["subsample=0.8", "max_depth=None", "objective=huber"]``."""
    parsed = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ReadError(f"--set takes NAME=VALUE, such as subsample=0.8, not {setting!r}.")
        try:
            parsed[name] = PARAMETERS[name].read(text) if name in PARAMETERS else text
        except ValueError as error:
            raise ReadError(f"--set {setting}: {error}") from None
    return parsed


def _make_time_limit(seconds: float | None, search: float | None) -> dict[str, Any]:
    if seconds is None:
        return {}
    if search is not None:
        raise ReadError("--time-limit cannot be combined with --search, which has its own limit.")
    if not seconds > 0:
        raise ReadError(f"--time-limit must be a number of seconds above 0, not {seconds:g}.")
    return {"callbacks": [TimeLimit(seconds)]}


def _get_estimator_class(task: str, params: dict[str, Any]) -> Any:
    """Return the class of the estimator, after a check of the parameters."""
    from polyleaf.estimators import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
    from polyleaf.search.base import PolyleafClassifierCV, PolyleafRegressorCV

    is_search = "time_limit" in params
    if task == "tasks":
        cls: Any = PolyleafMultiTask
    elif task == "regression":
        cls = PolyleafRegressorCV if is_search else PolyleafRegressor
    else:
        cls = PolyleafClassifierCV if is_search else PolyleafClassifier
    known = [p.name for p in get_param_specs(cls)]
    unknown = [name for name in params if name not in known]
    if unknown:
        if unknown[0] in {p.name for p in get_param_specs(SearchParameters)}:
            raise ReadError(f"--set: {unknown[0]} needs --search SECONDS.")
        hint = suggest(unknown[0], known) or f"; choose one of {', '.join(sorted(known))}."
        raise ReadError(f"--set: there is no parameter {unknown[0]!r}{hint}")
    cls(**params)._validate_params()
    return cls


def _replace_target_names(params: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Replace names of targets in monotone constraints by numbers, which estimators take."""
    constraints = params.get("monotone_constraints")
    if not isinstance(constraints, dict) or len(schema.targets) == 1:
        return params
    numbers = {name: number for number, name in enumerate(schema.targets)}
    replaced = {
        feature: {numbers.get(name, name): sign for name, sign in signs.items()}
        if isinstance(signs, dict)
        else signs
        for feature, signs in constraints.items()
    }
    return params | {"monotone_constraints": replaced}


def _split(table: Table, options: TrainOptions) -> tuple[Table, Table | None]:
    """Return the training rows and the evaluation rows, if there are any."""
    if options.validation is None:
        return table, None
    parts = split_validation(options.validation, table.n_rows, options.seed)
    if parts is None:
        return table, read_table(options.validation, options.format, options.csv_options)
    kept, held = parts
    return table.take_rows(kept), table.take_rows(held)


def _fit(
    estimator: Any,
    schema: Schema,
    X: Any,
    training: Table,
    held: Table | None,
    weights: np.ndarray | None,
) -> None:
    """Fit on the features `X` and the targets of a table; evaluate on the table `held`."""
    from polyleaf.data.dataset import Dataset

    offset, eval_set, eval_offset = schema.read_offset(training), None, None
    if held is not None:
        features = schema.read_features(held)
        keep = X.features is not None
        X_held = Dataset(features, reference=X, keep_features=keep, n_jobs=estimator.n_jobs)
        eval_offset = None if offset is None else [schema.read_offset(held)]
        eval_set = [(X_held, schema.read_targets(held))]
    estimator.fit(
        X,
        schema.read_targets(training),
        sample_weight=weights,
        offset=offset,
        eval_set=eval_set,
        eval_offset=eval_offset,
    )


# ---- checks --------------------------------------------------------------------------------


def _check_multitask_options(options: TrainOptions, columns: ColumnOptions) -> None:
    values = {
        "--objective": (options.objective, "give each task its loss: --task NAME=LOSS"),
        "--offset": (columns.offset, "give offsets of single tasks in Python"),
        "--search": (options.search, "a search supports single-task models only"),
    }
    for option, (value, hint) in values.items():
        if value is not None:
            raise ReadError(f"{option} does not support multi-task models: {hint}.")


def _check_decimal_commas(table: Table, tasks: Sequence[TaskSpec], targets: Sequence[str]) -> None:
    """Reject text targets that are numbers with decimal commas, unless declared as classes."""
    if tasks:
        unclear = [task for task in tasks if task.is_inferred or task.kind == "regression"]
        targets = [name for task in unclear for name in task.columns]
    if hint := decimal_comma_hint(table, targets):
        kind = "NAME=softmax" if tasks else "classification"
        raise ReadError(f"{hint.strip()} If they are class labels, use --task {kind}.")


def _check_validation(validation: str | None, early_stopping: int | None) -> None:
    if validation is None and early_stopping is not None:
        raise ReadError("--early-stopping needs --validation: a file, or a fraction such as 0.2.")


def _check_folder_validation(is_folder: bool, validation: str | None) -> None:
    """Reject a fraction for a folder, whose rows are read in order."""
    if is_folder and validation is not None and split_validation(validation, 100, 0) is not None:
        raise ReadError(
            f"--validation {validation}: rows of a folder cannot be held out; give a file of "
            "evaluation data."
        )


def _check_input_options(
    is_folder: bool, label_names: Path | None, cache: Path | None, memory_limit: str | None
) -> None:
    """Reject options that do not apply to the kind of input."""
    if label_names is not None:
        raise ReadError(f"--label-names needs --format {xmc.FORMAT}; tables have column names.")
    for option, value in (("--cache", cache), ("--memory-limit", memory_limit)):
        if value is not None and not is_folder:
            raise ReadError(f"{option} needs a folder of Parquet files, not a single file.")


# ---- Ctrl-C --------------------------------------------------------------------------------


@dataclass
class InterruptStatus:
    """Whether Ctrl-C interrupted a fit."""

    was_interrupted: bool = False


@contextmanager
def capture_interrupt() -> Iterator[InterruptStatus]:
    """Record Ctrl-C during a fit, and redirect what the fit prints to the error stream."""
    status, show = InterruptStatus(), warnings.showwarning

    def show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if _INTERRUPT_WARNING in str(message):
            status.was_interrupted = True
        else:
            show(message, *args, **kwargs)

    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_INTERRUPT_WARNING}")
        warnings.showwarning = show_warning
        try:
            yield status
        except KeyboardInterrupt:  # before the first round, or after the last
            status.was_interrupted = True


def _exit_without_model(status: InterruptStatus, estimator: Any) -> None:
    """Exit if Ctrl-C came before the first round was complete."""
    model = getattr(estimator, "model_", None)
    if status.was_interrupted and (model is None or model.n_rounds == 0):
        message = "interrupted before the first round was complete; no model was saved."
        raise typer.Exit(print_error(message, INTERRUPT_EXIT_CODE))


def _exit_if_interrupted(status: InterruptStatus, estimator: Any, path: Path) -> None:
    """Exit with a description of the model that was saved."""
    if not status.was_interrupted:
        return
    rounds = pluralise(estimator.model_.n_rounds, "round")
    trials = getattr(estimator, "leaderboard_", None)
    if trials is None:
        message = f"interrupted after {rounds}; the model so far was saved to {path}."
    else:
        message = (
            f"search interrupted; the best of {pluralise(len(trials), 'candidate')}, trained for "
            f"{rounds} on all rows, was saved to {path}."
        )
    raise typer.Exit(print_error(message, INTERRUPT_EXIT_CODE))
