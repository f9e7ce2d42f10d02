"""The command `train`: from options and a file to a saved model."""

from __future__ import annotations

import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.binned_data.random_rows import find_repeated_rows, split_validation
from polyleaf.callbacks import TimeLimit
from polyleaf.cli import xmc
from polyleaf.cli.messages import INTERRUPT_EXIT_CODE, describe_training, pluralise, print_error
from polyleaf.cli.model_file import (
    SCHEMA_KEY,
    XMC_KEY,
    check_writable,
    make_dataset,
    open_table,
    read_queries,
    read_weight_column,
    select_column,
)
from polyleaf.cli.parameters import PARAMETERS, check_options, get_estimator_class, read_parameters
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.files.io import ReadError, require
from polyleaf.files.schema import RANKING, SINGLE_TASKS, Schema, infer_task, select_columns
from polyleaf.files.table import Table, abbreviate
from polyleaf.objectives import auto_objective_name, get_objective, objective_class
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.row_data import RowData
from polyleaf.settings import presets
from polyleaf.settings.parameters import SearchParameters
from polyleaf.settings.train_config import LEAVES
from polyleaf.user_data.queries import number_queries
from polyleaf.user_data.weights import weight_known_targets

if TYPE_CHECKING:
    from polyleaf.model import Model
    from polyleaf.objectives import Objective

_INTERRUPT_WARNING = "was interrupted"  # part of the warning of an estimator that keeps rounds


def train(options: Namespace) -> int | None:
    """Train a model on a data file and save it."""
    from polyleaf.model.storage import LEAF_DTYPES

    require_choice(options.leaf_dtype, LEAF_DTYPES, "leaf_dtype")
    is_xmc = xmc.is_xmc(options.file, options.format)
    preset = options.preset or ("gbdt_sparse" if is_xmc else None)
    names = ", ".join(sorted(presets.__all__))
    is_known = preset is None or preset in presets.__all__
    require(is_known, f"--preset: there is no preset {preset!r}; choose one of {names}.")
    params = {} if preset is None else getattr(presets, preset)()
    params |= {"on_interrupt": "keep", "verbose": int(sys.stderr.isatty() and not options.quiet)}
    params |= read_parameters(options)
    if options.seconds is not None:
        is_search = options.time_limit is not None
        require(not is_search, "--time-limit cannot be combined with --search, which has its own.")
        is_valid = options.seconds > 0
        require(is_valid, f"--time-limit must be a number above 0, not {options.seconds:g}.")
        params["callbacks"] = [TimeLimit(options.seconds)]
    is_alone = options.validation is None and options.time_limit is None
    require(
        options.early_stopping_rounds is None or not is_alone,
        "--early-stopping needs --validation: a file, or a fraction such as 0.2.",
    )
    return (_train_xmc if is_xmc else _train_table)(options, params)


def _train_xmc(options: Namespace, params: dict[str, object]) -> int | None:
    check_options(options, "xmc")
    check_writable(options.model)
    estimator = get_estimator_class("multilabel", params)(**params)
    rows = xmc.read_rows(options.file, options.label_names, options.n_jobs)
    line = _describe_data(f"multilabel with {pluralise(rows.Y.shape[1], 'label')}", *rows.X.shape)
    fit = partial(xmc.fit_labels, estimator, rows, options.validation, options.seed, options.n_jobs)
    return _fit_and_save(options, estimator, fit, {XMC_KEY: True}, None, [line])


def _train_table(options: Namespace, params: dict[str, object]) -> int | None:
    check_options(options, "table")
    table = open_table(options, options.file)
    if not table.is_folder:
        check_options(options, "file")
    weight, _ = read_weight_column(
        options, table
    )  # before a split, so that errors count FILE's rows
    schema, tasks = _make_schema(options, table, weight)
    if tasks:
        params["objective"] = {task.key: task.objective for task in tasks}
    params = _replace_target_names(params, schema)
    estimator = get_estimator_class(schema.task, params)(**params)
    training, held = _split(options, table, schema, estimator.validation_order)
    check_writable(options.model)
    y = schema.read_targets(training)
    weights = read_weight_column(options, training)[1]
    limits = {}
    if table.is_folder:
        limits = {"cache_dir": options.cache, "memory_limit": options.memory_limit}
    reads_features = LEAVES[estimator.leaf].kind.reads_features
    is_search = isinstance(estimator, SearchParameters)
    queries: dict[str, Any] = read_queries(options, schema, training)
    offsets: dict[str, Any] = {"offset": schema.read_offset(training)} if schema.offset else {}
    if getattr(estimator, "init", None) is not None and table.is_dense_file:
        X, make_eval_rows = training.read_features(schema), Table.read_features
    else:
        X = make_dataset(
            training,
            schema,
            weight_known_targets(RowData(y, weights)),
            max_bins=estimator.max_bins,
            keep_features=reads_features or (is_search and not table.is_sparse),
            n_jobs=estimator.n_jobs,
            **limits,
        )
        keep = X.features is not None
        make_eval_rows = partial(
            make_dataset, reference=X, keep_features=keep, n_jobs=options.n_jobs
        )

    def fit() -> None:
        eval_set = None
        if held is not None:
            eval_set = [(make_eval_rows(held, schema), schema.read_targets(held))]
            if schema.offset:
                offsets["eval_offset"] = [schema.read_offset(held)]
            if queries:
                queries["eval_qid"] = [schema.read_query(held)]
        estimator.fit(X, y, sample_weight=weights, eval_set=eval_set, **offsets, **queries)

    names = schema.targets if len(schema.targets) < 6 else [f"{len(schema.targets)} targets"]
    note = "" if options.task else " (inferred; set it with --task)"
    task = _describe_tasks(tasks) if tasks else f"{schema.task} of {', '.join(names)}{note}"
    lines = [_describe_data(task, training.n_rows, len(schema.features))]
    lines += [f"features: {', '.join(schema.features)}"]
    if schema.text_features:
        lines += [f"text columns read as categories: {abbreviate(schema.text_features)}"]
    metadata = {SCHEMA_KEY: schema.to_dict()}
    return _fit_and_save(options, estimator, fit, metadata, schema.targets, lines)


def _describe_data(task: str, n_rows: int, n_features: int) -> str:
    return f"{task}, {pluralise(n_rows, 'row')}, {pluralise(n_features, 'feature')}"


def _make_schema(
    options: Namespace, table: Table, weight: Sequence[str]
) -> tuple[Schema, list[TaskSpec]]:
    """Select columns and infer tasks."""
    drop = (*select_columns(table, options.drop, "--drop"), *weight)
    drop = (*drop, *select_column(table, options.positions, "--positions"))
    offset = select_columns(table, options.offset, "--offset")
    categorical = select_columns(table, options.categorical, "--categorical")
    is_single = not options.task or (len(options.task) == 1 and options.task[0] in SINGLE_TASKS)
    if is_single:
        targets = select_columns(table, options.target, "--target") or table.targets
        require(targets, "--target is required: name the column or columns to predict.")
        learned = next((name for name in offset if name in targets), None)
        is_free = learned is None
        require(is_free, f"--offset: column {learned!r} is a target; name another column.")
        kind = options.task[0] if options.task else None
        query = _select_query(options, table)
        if kind is None and query is not None:
            kind = RANKING
        if kind == RANKING:
            require(query, "--task ranking needs --query: name the column of queries.")
        elif query is not None:  # marked by the file
            is_marked = options.query is None
            require(is_marked, f"--query is for --task ranking, not for --task {kind}.")
            drop, query = (*drop, query), None
        schema = Schema.from_table(table, targets, kind, drop, offset, categorical, query=query)
        return schema, []
    require(
        not options.target,
        f"--task {options.task[0]} cannot be combined with --target. With --target, --task is "
        f"one of {', '.join(SINGLE_TASKS)}; for a multi-task model, leave --target out.",
    )
    check_options(options, "tasks")
    tasks = [_parse_task(table, text) for text in options.task]
    targets = tuple(name for task in tasks for name in task.columns)
    columns = [(task.kind, task.columns) for task in tasks]
    return Schema.from_table(table, targets, None, drop, (), categorical, columns), tasks


def _select_query(options: Namespace, table: Table) -> str | None:
    """Return the column that `--query` names, or that the file marks."""
    chosen = select_column(table, options.query, "--query")
    return chosen[0] if chosen else table.query


def _replace_target_names(params: dict[str, object], schema: Schema) -> dict[str, object]:
    """Replace names of targets in monotone constraints and groups of outputs by numbers, which
    estimators take: y is an array."""
    if len(schema.targets) == 1:
        return params
    numbers = {name: number for number, name in enumerate(schema.targets)}
    groups = params.get("output_groups")
    if schema.task != "tasks" and isinstance(groups, list):
        numbered = [
            [numbers.get(member, member) if isinstance(member, str) else member for member in group]
            if isinstance(group, list)
            else group
            for group in groups
        ]
        params = params | {"output_groups": numbered}
    constraints = params.get("monotone_constraints")
    if not isinstance(constraints, dict):
        return params
    replaced = {
        feature: {numbers.get(name, name): sign for name, sign in signs.items()}
        if isinstance(signs, dict)
        else signs
        for feature, signs in constraints.items()
    }
    return params | {"monotone_constraints": replaced}


def _split(
    options: Namespace, table: Table, schema: Schema, order: str
) -> tuple[Table, Table | None]:
    """Return the training rows and the evaluation rows, if there are any."""
    if options.validation is None:
        return table, None
    ids = schema.read_query(table)
    parts = split_validation(
        options.validation,
        order,
        table.n_rows,
        options.seed,
        lambda: _find_repeated_rows(table, schema),
        None if ids is None else number_queries(ids),
    )
    if parts is None:
        return table, open_table(options, Path(options.validation), schema)
    require(
        not table.is_folder,
        f"--validation {options.validation}: rows of a folder cannot be held out; give a file "
        "of evaluation data.",
    )
    kept, held = parts
    if schema.task == "classification":
        y = schema.read_targets(table)
        only = ~np.isin(y[held], y[kept])  # rows of classes that training would not see
        kept, held = np.sort(np.append(kept, held[only])), held[~only]
        share = f"--validation {options.validation}"
        require(len(held), f"{share} leaves no row: every class has one row.")
    return table.take_rows(kept), table.take_rows(held)


def _find_repeated_rows(table: Table, schema: Schema) -> np.ndarray | None:
    """Return the number of the distinct row that each row is; None if no row is a copy."""
    from polyleaf.binned_data.dataset import Dataset

    if table.is_folder:
        return None
    y = schema.read_targets(table)
    columns = list(y.values()) if isinstance(y, dict) else [y]
    values = np.column_stack([c if c.dtype.kind in "fiub" else number_queries(c) for c in columns])
    return find_repeated_rows(Dataset(table.read_features(schema)).hash_rows(), values)


# ---- tasks of a multi-task model -------------------------------------------------------------


@dataclass(frozen=True)
class TaskSpec:
    """A task of a multi-task model: its kind, targets and loss, and whether that was inferred."""

    kind: str
    columns: tuple[str, ...]
    objective: str | Objective | None
    is_inferred: bool

    @property
    def key(self) -> str | tuple[str, ...]:
        """The name by which the estimator knows the task."""
        return self.columns if len(self.columns) > 1 else self.columns[0]


def _parse_task(table: Table, text: str) -> TaskSpec:
    """Parse `--task NAME`, `NAME=LOSS` and `NAME=LOSS:VALUE`."""
    name, equals, loss = (text, "", "") if text in table.names else text.rpartition("=")
    name, loss = (name, loss.strip()) if equals else (text, "")
    option = f"--task {text}"
    columns = select_columns(table, name, option)
    require(
        columns and (loss or not equals),
        f"--task takes NAME or NAME=LOSS, such as price=squared_error, not {text!r}.",
    )
    if not loss:
        kind = infer_task(table, columns)
        return TaskSpec(kind, columns, _get_default_loss(table, columns[0], kind), True)
    try:
        objective = _parse_objective(loss, option)
        kinds = objective_class(objective).target_kinds
    except ValueError as error:
        raise ReadError(f"{option}: {error}".replace(f"{option}: {option}", option)) from None
    if set(kinds) == {"values"}:
        kind = "regression"
    elif "values" not in kinds:
        kind = "classification" if len(columns) == 1 else "multilabel"
    else:
        kind = infer_task(table, columns)
    return TaskSpec(kind, columns, objective, False)


def _parse_objective(loss: str, option: str) -> str | Objective:
    """Return a name, or an objective with its parameter: `quantile:0.1,0.9`."""
    name, colon, value = loss.partition(":")
    try:
        cls = objective_class(name)
    except ValueError:
        cls = None
    if cls is None or not colon:
        return loss  # the whole text: XGBoost's names contain colons
    parameter = next(iter(cls.parameters), None)
    if parameter is None:
        raise ReadError(f"{option}: objective {name!r} takes no value after a colon.")
    text = f"[{value}]" if "," in value else value
    return get_objective(name, **{parameter: PARAMETERS[parameter].read(text)})


def _get_default_loss(table: Table, column: str, kind: str) -> str:
    if kind == "regression":
        return "squared_error"
    if kind == "multilabel":
        return auto_objective_name("multilabel", sparse=False)
    labels = table.read(column, table.infer_kind(column, as_category=True)).drop_null().unique()
    return auto_objective_name("binary" if len(labels) <= 2 else "multiclass", sparse=False)


def _describe_tasks(tasks: Sequence[TaskSpec]) -> str:
    """Return the number of tasks, their targets and their losses as text."""
    texts = []
    for task in tasks:
        loss = getattr(task.objective, "name", task.objective)
        note = ", inferred" if task.is_inferred else ""
        texts.append(f"{'+'.join(task.columns)} ({loss}{note})")
    return f"{pluralise(len(tasks), 'task')}: {', '.join(texts)}"


# ---- fit, report and Ctrl-C ------------------------------------------------------------------


def _fit_and_save(
    options: Namespace,
    estimator: PolyleafEstimator,
    fit: Callable[[], object],
    metadata: Mapping[str, object],
    names: Sequence[str] | None,
    lines: list[str],
) -> int | None:
    """Fit, save and print a summary; after Ctrl-C, save what is complete."""
    with _capture_interrupt() as interrupts:
        fit()
    model: Model | None = getattr(estimator, "model_", None)
    if model is None or (interrupts and model.n_rounds == 0):
        message = "interrupted before the first round was complete; no model was saved."
        return print_error(message, INTERRUPT_EXIT_CODE)
    model.metadata |= metadata
    if model.output_names is None and names is not None and model.n_outputs == len(names):
        model.output_names = tuple(names)
    estimator.save_model(
        options.model, leaf_dtype=options.leaf_dtype, statistics=options.statistics
    )
    if not options.quiet:
        report = [estimator.report()] if options.time_limit is not None else []
        last = f"{describe_training(estimator)}, saved to {options.model}"
        print(*lines, *report, last, sep="\n", file=sys.stderr)
    if not interrupts:
        return None
    rounds, trials = pluralise(model.n_rounds, "round"), getattr(estimator, "leaderboard_", None)
    message = f"interrupted after {rounds}; the model so far was saved to {options.model}."
    if trials is not None:
        message = (
            f"search interrupted; the best of {pluralise(len(trials), 'candidate')}, trained for "
            f"{rounds} on all rows, was saved to {options.model}."
        )
    return print_error(message, INTERRUPT_EXIT_CODE)


@contextmanager
def _capture_interrupt() -> Iterator[list[str]]:
    """Yield a list that Ctrl-C during a fit fills; what the fit prints goes to the error stream."""
    interrupts: list[str] = []
    show = warnings.showwarning

    def show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if _INTERRUPT_WARNING in str(message):
            interrupts.append(str(message))
        else:
            show(message, *args, **kwargs)

    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_INTERRUPT_WARNING}")
        warnings.showwarning = show_warning
        try:
            yield interrupts
        except KeyboardInterrupt:  # before the first round, or after the last
            interrupts.append("interrupted")
