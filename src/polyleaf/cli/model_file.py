"""Model files: how commands load and save them, and the commands `inspect` and `extract`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from polyleaf.cli import xmc
from polyleaf.cli.messages import pluralise
from polyleaf.cli.options import check_writable
from polyleaf.files.io import ReadError
from polyleaf.files.schema import Schema

_SCHEMA_KEY = "table"  # model metadata: the schema of the training table
_XMC_KEY = "labelled rows"  # model metadata: whether the model was trained from XMC data

# Kind of task of a schema -> what the model's tasks may learn.
_LEARNED_KINDS = {
    "regression": ("values",),
    "multilabel": ("labels",),
    "classification": ("labels", "classes"),
}


def save_table_model(estimator: Any, schema: Schema, path: Path, **options: Any) -> None:
    """Save a model together with the schema of its training table."""
    model = estimator.model_
    model.metadata[_SCHEMA_KEY] = schema.to_dict()
    if model.output_names is None and model.n_outputs == len(schema.targets):
        model.output_names = schema.targets
    estimator.save_model(path, **options)


def save_xmc_model(estimator: Any, path: Path, **options: Any) -> None:
    """Save a model that was trained from XMC data."""
    estimator.model_.metadata[_XMC_KEY] = True
    estimator.save_model(path, **options)


def load_estimator(path: Path) -> Any:
    """Load a model file as an estimator."""
    from polyleaf.estimators import load_model

    if not path.is_file():
        raise ReadError(f"There is no model file {str(path)!r}.")
    return load_model(path)


def load_table_model(path: Path, threads: int | None) -> tuple[Any, Schema]:
    """Load a model that `train` saved, and the schema of its training table."""
    estimator = load_estimator(path)
    fields = estimator.model_.metadata.get(_SCHEMA_KEY)
    if estimator.model_.metadata.get(_XMC_KEY):
        raise ReadError(f"{path} was trained from multi-label data: use --format {xmc.FORMAT}.")
    if fields is None:
        raise ReadError(
            f"{path} was not trained with `polyleaf train`, so it does not name the columns of a "
            "table; use it in Python."
        )
    schema = Schema.from_dict(fields)
    if (
        len(schema.features) != len(estimator.model_.input_names)
        or schema.task not in _get_readable_tasks(estimator)
        or not _has_same_tasks(estimator.model_.objective.tasks, schema)
    ):
        raise ReadError(f"{path} is damaged: its columns do not match its model.")
    return estimator.set_params(n_jobs=threads), schema


def _get_readable_tasks(estimator: Any) -> tuple[str, ...]:
    kind = estimator.model_.metadata["kind"]
    return (kind,) if kind in ("regression", "multilabel", "tasks") else ("classification",)


def _has_same_tasks(places: Any, schema: Schema) -> bool:
    """Check that a schema has the tasks of a multi-task model in the same order."""

    def matches(task: Any, own: Schema) -> bool:
        has_columns = own.task == "classification" or task.n_columns == len(own.targets)
        return has_columns and task.target_kind in _LEARNED_KINDS[own.task]

    schemas = schema.task_schemas
    return [place.task.name for place in places] == list(schemas) and all(
        matches(place.task, own) for place, own in zip(places, schemas.values(), strict=True)
    )


def load_xmc_model(path: Path, file: Path, threads: int | None) -> tuple[Any, Any]:
    """Load a model that was trained from XMC data, and the rows of a file in that format."""
    estimator = load_estimator(path)
    if not estimator.model_.metadata.get(_XMC_KEY):
        raise ReadError(f"{path} was trained from a table: leave --format {xmc.FORMAT} out.")
    rows = xmc.read_rows(file, None, threads)
    xmc.check_shape(rows, estimator.n_features_in_, estimator.model_.n_outputs, file)
    return estimator.set_params(n_jobs=threads), rows


def check_single_task(schema: Schema, path: Path, command: str) -> None:
    """Raise a `ReadError` that names `polyleaf extract` if a model has several tasks."""
    tasks = list(schema.task_schemas)
    if tasks:
        raise ReadError(
            f"{command} does not support multi-task models, and {path} has the tasks "
            f"{', '.join(tasks)}. Extract one of them first: "
            f"polyleaf extract {path} --task {tasks[0]} --out FILE."
        )


# ---- commands ------------------------------------------------------------------------------


def extract(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A multi-task model file.")],
    task: Annotated[str, typer.Option(help="Name of the task, as inspect and evaluate print it.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The model file to write.", show_default=False)
    ],
) -> None:
    """Save one task of a multi-task model as a model.

    calibrate, report and other commands for single-task models can read the result.
    """
    estimator, schema = load_table_model(model, None)
    if not schema.task_columns:
        raise ReadError(f"{model} is not a multi-task model; use it as it is.")
    check_writable(out)
    save_table_model(estimator.task_estimator(task), schema.task_schemas[task], out)


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")],
    tree: Annotated[
        int | None, typer.Option(help="Print the tree with this number, from 0.", min=0)
    ] = None,
    top: Annotated[int, typer.Option(help="Number of features to list by gain.", min=1)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole model as JSON.")] = False,
) -> None:
    """Print a summary of a model, a tree, or all of it as JSON."""
    from polyleaf.inspection.model_summary import dump_json, summary

    content = load_estimator(model).model_
    if as_json:
        print(json.dumps(dump_json(content), default=str))
    elif tree is not None:
        trees = dump_json(content)["trees"]
        if tree >= len(trees):
            raise ReadError(
                f"--tree {tree}: the model has {pluralise(len(trees), 'tree')}, counted from 0."
            )
        _print_tree(trees[tree])
    else:
        print(f"file size {model.stat().st_size / 2**20:.2f} MiB")
        print(summary(content, n_features=top))


def _print_tree(tree: dict[str, Any]) -> None:
    """Print splits with their gain, and leaves with their value for each output."""
    from rich.console import Console
    from rich.tree import Tree

    nodes = tree["nodes"]

    def describe(node: dict[str, Any]) -> str:
        details = [f"gain {node['gain']:.4g}"] if "gain" in node else []
        details += [pluralise(node["count"], "row")] if "count" in node else []
        suffix = f" ({', '.join(details)})" if details else ""
        if "leaf" not in node:
            return f"{_format_condition(node)}{suffix}"
        values = " ".join(f"{value:.4g}" for value in node["value"])
        return f"leaf {node['leaf']}: {values}{suffix}"

    def add_node(branch: Tree, number: int, answer: str) -> None:
        node = nodes[number]
        child = branch.add(f"{answer}{describe(node)}")
        if "leaf" not in node:
            add_node(child, node["left"], "yes: ")
            add_node(child, node["right"], "no: ")

    output = "" if tree["output"] is None else f" for {tree['output']}"
    root = Tree(f"tree {tree['tree']}{output}, round {tree['round']}")
    add_node(root, 0, "")
    Console(highlight=False, markup=False, soft_wrap=True).print(root)


def _format_condition(node: dict[str, Any]) -> str:
    if "categories" in node:
        condition = f"{node['feature']} in {{{', '.join(map(str, node['categories']))}}}"
    elif node["threshold"] is None:
        condition = f"{node['feature']} is not missing"
    else:
        condition = f"{node['feature']} <= {node['threshold']:.6g}"
    return f"{condition}{' or missing' if node['missing_left'] else ''}"
