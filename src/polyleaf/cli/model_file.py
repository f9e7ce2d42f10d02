"""Data and model files as the commands open them, and the command `inspect`."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.cli import xmc
from polyleaf.files.cells import CellFormat
from polyleaf.files.io import ReadError, require
from polyleaf.files.readers import CsvOptions, read_table
from polyleaf.files.schema import RANKING, Schema, read_positions, read_weights, select_columns
from polyleaf.files.table import Table
from polyleaf.runtime.checks import format_bytes

if TYPE_CHECKING:
    from polyleaf.binned_data.dataset import Dataset
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.files.xmc import LabelledRows
    from polyleaf.objectives.multitask import Task

SCHEMA_KEY = "table"  # model metadata: the schema of the training table
XMC_KEY = "xmc"  # model metadata: whether the model was trained from XMC data

# Kind of task of a schema -> what the model's tasks may learn.
_LEARNED_KINDS = {
    "regression": ("values",),
    "multilabel": ("labels",),
    "classification": ("labels", "classes"),
}


def open_table(options: Namespace, path: Path, schema: Schema | None = None) -> Table:
    """Read a table with the options of a command; others are those of the training file."""
    trained = CellFormat() if schema is None else schema.format
    format = CellFormat(
        trained.decimal if options.decimal is None else options.decimal,
        trained.thousands if options.thousands is None else options.thousands,
        trained.na_values if options.na_values is None else tuple(options.na_values),
    )
    separator = {"tab": "\t", "\\t": "\t", "space": " "}.get(options.sep or "", options.sep)
    header = False if options.no_header else None
    return read_table(path, options.format, CsvOptions(header, separator, options.encoding, format))


def check_writable(path: Path | None) -> None:
    """Raise a `ReadError` before a long computation if its result cannot be saved."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        reason = "it is a folder" if path.is_dir() else "its folder does not exist"
        raise ReadError(f"{path} cannot be written: {reason}.")


def load_estimator(path: Path) -> PolyleafEstimator:
    """Load a model file as an estimator."""
    from polyleaf.estimators import load_model

    require(path.is_file(), f"There is no model file {str(path)!r}.")
    return load_model(path)


def load_table_model(options: Namespace) -> tuple[PolyleafEstimator, Schema]:
    """Load a model that `train` saved, and the schema of its training table."""
    path = options.model
    estimator = load_estimator(path)
    fields = estimator.model_.metadata.get(SCHEMA_KEY)
    is_xmc = estimator.model_.metadata.get(XMC_KEY)
    require(not is_xmc, f"{path} was trained from multi-label data: use --format {xmc.FORMAT}.")
    require(
        fields is not None,
        f"{path} was not trained with `polyleaf train`, so it does not name the columns of a "
        "table; use it in Python.",
    )
    schema = Schema.from_dict(fields)
    kind = estimator.model_.metadata["kind"]
    kind = kind if kind in ("regression", "multilabel", "tasks") else "classification"
    if "relevance" in estimator.model_.objective.target_kinds:
        kind = RANKING
    places, task_schemas = estimator.model_.objective.tasks, schema.task_schemas
    matches = (
        len(schema.features) == len(estimator.model_.input_names)
        and schema.task == kind
        and [place.task.name for place in places] == list(task_schemas)
        and all(map(_is_same_task, [place.task for place in places], task_schemas.values()))
    )
    require(matches, f"{path} is damaged: its columns do not match its model.")
    return estimator.set_params(n_jobs=options.n_jobs), schema


def _is_same_task(task: Task, schema: Schema) -> bool:
    has_columns = schema.task == "classification" or task.n_columns == len(schema.targets)
    return has_columns and task.target_kind in _LEARNED_KINDS[schema.task]


def make_dataset(
    table: Table, schema: Schema, weights: np.ndarray | None = None, **arguments: Any
) -> Dataset:
    """Return the features of rows, and weights for binning, as a `Dataset`."""
    from polyleaf.binned_data.dataset import Dataset

    def read_batches() -> Iterator[tuple[object, None, np.ndarray | None]]:
        first = 0
        for X in table.iter_features(schema):
            end = first + X.num_rows
            yield X, None, None if weights is None else weights[first:end]
            first = end

    if table.is_folder:
        return Dataset.from_batches(read_batches, **arguments)
    return Dataset(table.read_features(schema), sample_weight=weights, **arguments)


def open_rows(
    options: Namespace, path: Path, schema: Schema, estimator: PolyleafEstimator
) -> tuple[Table, Any, np.ndarray | None]:
    """Return a table, its features as a model reads them (as a `Dataset` in its bins, if it starts
    from no initial model), and its offsets."""
    table, model = open_table(options, path, schema), estimator.model_
    offset = schema.read_offset(table)
    if model.initial is not None and table.is_dense_file:
        return table, table.read_features(schema), offset
    X = make_dataset(
        table,
        schema,
        reference=model.mapper,
        keep_features=model.has_linear_leaves,
        n_jobs=estimator.n_jobs,
    )
    return table, X, offset


def name_ranking_scores(
    estimator: PolyleafEstimator, schema: Schema, predicted: np.ndarray
) -> list[str]:
    """Return the names of predicted scores: the targets, unless `goal_weights` mix them."""
    if estimator.get_params(deep=False)["goal_weights"] is None:
        return list(schema.targets)
    return [f"score_{j}" for j in range(predicted[0].size)]


def select_column(table: Table, name: str | None, option: str) -> tuple[str, ...]:
    """Return the column that an option selects, if any."""
    chosen = select_columns(table, name, option)
    n_chosen = len(chosen)
    require(n_chosen < 2, f"{option} takes one column, but {name!r} selects {n_chosen}.")
    return chosen


def read_weight_column(
    options: Namespace, table: Table
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Return the column that `--weight` names, if any, and the weights."""
    chosen = select_column(table, options.weight, "--weight")
    return chosen, read_weights(table, chosen[0]) if chosen else None


def read_queries(options: Namespace, schema: Schema, table: Table) -> dict[str, np.ndarray]:
    """Return the arguments of a fit of a ranker: queries, and positions with `--positions`."""
    query = schema.read_query(table)
    positions = select_column(table, getattr(options, "positions", None), "--positions")
    if query is None:
        require(not positions, f"--positions is for --task ranking, not for {schema.task}.")
        return {}
    arguments = {"qid": query}
    if positions:
        arguments["positions"] = read_positions(table, positions[0])
    return arguments


def load_xmc_model(options: Namespace) -> tuple[PolyleafEstimator, LabelledRows]:
    """Load a model that was trained from XMC data, and the rows of a file in that format."""
    estimator = load_estimator(options.model)
    is_xmc = estimator.model_.metadata.get(XMC_KEY)
    require(is_xmc, f"{options.model} was trained from a table: leave --format {xmc.FORMAT} out.")
    rows = xmc.read_rows(options.file, None, options.n_jobs)
    xmc.check_shape(rows, estimator.n_features_in_, estimator.model_.n_outputs, options.file)
    return estimator.set_params(n_jobs=options.n_jobs), rows


def inspect(options: Namespace) -> None:
    """Print a summary of a model, a tree, or all of it as JSON."""
    from polyleaf.inspection.model_summary import dump_json, format_tree, summary

    content = load_estimator(options.model).model_
    if options.json:
        print(json.dumps(dump_json(content), default=str))
    elif options.tree is not None:
        print(format_tree(content, options.tree))
    else:
        print(f"file size {format_bytes(options.model.stat().st_size)}")
        print(summary(content, n_features=options.top))
