"""The application: its commands, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from polyleaf.callbacks import TimeLimit
from polyleaf.cli import xmc
from polyleaf.cli.input import (
    Source,
    get_header,
    make_prediction_dataset,
    make_training_dataset,
    open_source,
    open_source_and_cells,
    read_columns,
    read_prediction_rows,
)
from polyleaf.cli.keyboard_interrupt import KEEP_ON_INTERRUPT, InterruptRecord, watched
from polyleaf.cli.messages import (
    INTERRUPTED,
    Reporter,
    pluralise,
    print_error,
    translate_parameter_names,
    write_scores,
    write_task_scores,
)
from polyleaf.cli.multitask import (
    TaskSpec,
    check_single_task,
    describe_tasks,
    get_single_kind,
    parse_tasks,
)
from polyleaf.cli.output import beside, write_predictions
from polyleaf.cli.parameters import PARAMETERS
from polyleaf.cli.predictions import (
    compute_scores,
    compute_task_scores,
    describe_unknown_labels,
    prediction_columns,
)
from polyleaf.data.holdout import split_validation
from polyleaf.files.folders import Folder
from polyleaf.files.io import ReadError
from polyleaf.files.readers import FORMATS, CsvOptions, read_table
from polyleaf.files.schema import (
    Schema,
    decimal_comma_hint,
    infer_task,
    read_weights,
    select_columns,
)
from polyleaf.files.table import Table
from polyleaf.inputs.targets import weight_known_targets
from polyleaf.settings import presets
from polyleaf.settings.aliases import meant
from polyleaf.settings.param_spec import get_param_specs
from polyleaf.settings.parameters import SearchParameters

__all__ = ["app", "main", "run"]

_EXAMPLES = {
    "train": (
        "polyleaf train houses.csv --target price --model houses.polyleaf",
        "polyleaf train energy.csv -t heating,cooling --validation 0.2 --early-stopping 20 -m m",
        "polyleaf train energy.csv -t heating,cooling -m m --rounds 5000 --time-limit 60",
        "polyleaf train energy.csv -t heating,cooling -m m --search 60",
        "polyleaf train emotions.arff -t last:6 -m m --rounds 300 --set subsample=0.8",
        "polyleaf train visits.parquet -t visits -m m --objective poisson --drop id,date",
        "polyleaf train claims.csv -t claims -m m --objective poisson --offset log_exposure",
        "polyleaf train visits/ -t visits -m m --validation later.parquet",
        "polyleaf train energy.csv -t heating,cooling -m m --leaf linear --linear-fit full",
        "polyleaf train letters.csv -t letter -m m --preset tfbt --rounds 50",
        "polyleaf train letters.csv -t letter -m m --depth 4 --set grow_policy=depthwise --set boosting_step=layer",
        "polyleaf train houses.csv --task price=squared_error --task sold=logistic --task segment -m m",
        "polyleaf train tags.txt --format xmc --leaf sparse --label-names tags.names -m m",
    ),
    "predict": (
        "polyleaf predict new.csv --model m --out predictions.csv",
        "polyleaf predict new.csv --model m --proba --keep id | head",
        "cat new.csv | polyleaf predict - --model m --json",
        "polyleaf predict visits/ --model m --keep id --out predictions.parquet",
        "polyleaf predict new.csv --model normal.polyleaf --levels 0.05,0.95",
        "polyleaf predict new.txt --format xmc --model m --top 5 --out best.csv",
    ),
    "evaluate": (
        "polyleaf evaluate test.csv --model m",
        "polyleaf evaluate test.csv --model m --json",
    ),
    "calibrate": (
        "polyleaf calibrate held_out.csv --model m --coverage 0.95",
        "polyleaf calibrate held_out.csv --model m --joint && polyleaf predict new.csv -m m --intervals",
    ),
    "extract": ("polyleaf extract m --task price --out price.polyleaf",),
    "explain": (
        "polyleaf explain new.csv --model m --out contributions.parquet",
        "polyleaf explain new.csv --model m --background houses.csv --outputs price",
        "polyleaf explain test.csv --model m --importance",
    ),
    "report": ("polyleaf report test.csv --model m --out report.html",),
    "inspect": (
        "polyleaf inspect m",
        "polyleaf inspect m --tree 0",
        "polyleaf inspect m --json > m.json",
    ),
    "demo": ("polyleaf demo", "polyleaf demo --quick --out /tmp/demo"),
}


def _examples(*commands: str) -> str:
    lines = [line for command in commands for line in _EXAMPLES[command]]
    return "\n\n".join(["Examples", *lines])


_FORMATS = (
    f"Formats, known by their endings: {', '.join(e for known in FORMATS.values() for e in known)}."
)

app = typer.Typer(
    name="polyleaf",
    help=f"Gradient boosted trees for many outputs.\n\n{FORMATS_HELP}",
    epilog=format_examples(),
    add_completion=False,
    rich_markup_mode=None,  # rich panels truncate option names in narrow terminals
    pretty_exceptions_enable=False,
)


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for models, plots and data; created if missing.")
    ] = Path("polyleaf_demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Train only a few rounds.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Train on three bundled data sets.

    Prints test scores, saves the models and plots learning curves.
    """
    from polyleaf.cli.demo import run

    run(out, quick=quick, n_jobs=threads)


for _command in (train, predict, evaluate, calibrate, extract, explain, report, inspect, demo):
    app.command(epilog=format_examples(_command.__name__))(_command)


def _print_version(is_set: bool) -> None:
    if is_set:
        print(polyleaf_version())
        raise typer.Exit


@app.callback()
def _app_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Accept the options of the application itself."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code: 0, 2 for an error, 130 for Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are printed, not raised."""
    try:
        return app(args=arguments or ["--help"], prog_name="polyleaf", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return print_error("interrupted.", INTERRUPT_EXIT_CODE)
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        sys.stdout = None
        return 1
    except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
        return print_error(translate_parameter_names(str(error) or type(error).__name__))
    except Exception as error:
        # Usage errors: their class differs between versions of typer, their method does not.
        if hasattr(error, "format_message"):
            return print_error(error.format_message())
        if os.environ.get("POLYLEAF_TRACEBACK"):
            raise
        return print_error(
            f"this is a fault of ours, or of a damaged file ({type(error).__name__}: {error}). Set "
            "POLYLEAF_TRACEBACK=1 to see where it happens."
        )


# ---- train -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainOptions:
    """What `train` was told, but for which columns are what."""

    file: Path
    model: Path
    format: str | None
    style: CsvOptions
    recipe: str | None
    params: dict[str, Any]  # of the estimator, those of the recipe apart
    validation: str | None
    early_stopping: int | None
    search: float | None
    objective: str | None
    seed: int
    threads: int | None
    saved: dict[str, Any]  # how the model is
    tell: Reporter


@dataclass(frozen=True)
class ColumnOptions:
    """The options that say which columns are what, as they were given."""

    target: str | None
    task: list[str] | None
    drop: str | None
    weight: str | None
    offset: str | None
    categorical: str | None


@dataclass(frozen=True)
class TrainingSpec:
    """What is learned from a table."""

    schema: Schema
    known: Table  # with targets, weights and offsets of all rows; of a file with its features, too
    weighted: tuple[str, ...]
    params: dict[str, Any]
    texts: set[str]  # columns of text
    meant: tuple[str, ...]  # columns that were said to be categories
    wanted: list[TaskSpec]  # tasks, where there are several


def _train_labels(told: TrainOptions, columns: ColumnOptions, label_names: Path | None) -> None:
    """Learn from rows with labels, and save the model."""
    _refuse_columns(asdict(columns))
    _check_validation(told.validation, told.early_stopping)
    _check_writable(told.model)
    if told.search is not None:
        raise ReadError(f"--search is for tables, not for --format {xmc.FORMAT}.")
    params = _recipe(told.recipe or "gbdt_sparse") | told.params
    labeller = _check_parameters("multilabel", params)(**params)
    rows = xmc.read_rows(told.file, label_names, told.threads)
    with watched() as outcome:
        xmc.fit_labels(labeller, rows, told.validation, told.seed, told.threads)
    _refuse_nothing(outcome, labeller)
    labeller.model_.metadata[_LABELS] = True
    labeller.save_model(told.model, **told.saved)
    told.tell.data(pluralise(rows.Y.shape[1], "label"), rows.X.shape)
    told.tell.learned(labeller, told.model)
    _leave_if_interrupted(outcome, labeller, told.model)


def _train_table(
    told: TrainOptions, columns: ColumnOptions, cache: Path | None, memory_limit: str | None
) -> None:
    """Learn from a table, and save the model."""
    source = open_source(told.file, told.format, told.style)
    is_folder = told.file.is_dir()
    lesson = _lesson(told, columns, source)
    schema = lesson.schema
    estimator = _check_parameters(schema.task, lesson.params)(**lesson.params)
    _check_validation(told.validation, told.early_stopping if told.search is None else None)
    _refuse_fraction(is_folder, told.validation)
    training, held = _split(lesson.known, told.validation, told.seed, told.format, told.style)
    _check_writable(told.model)
    weights = read_weights(training, lesson.weighted[0]) if lesson.weighted else None
    of_bins = weight_known_targets(schema.read_targets(training), weights)
    only_text = lesson.texts - set(lesson.meant)
    learned_from = source if is_folder else training
    X = make_training_dataset(
        learned_from, schema, estimator, of_bins, only_text, cache, memory_limit
    )
    with watched() as outcome:
        _fit(estimator, schema, X, training, held, weights)
    _refuse_nothing(outcome, estimator)
    _save(estimator, schema, told.model, **told.saved)
    tasks = describe_tasks(lesson.wanted) if lesson.wanted else ""
    told.tell.table(schema, columns.task is None, training.n_rows, lesson.texts, tasks)
    features = [name for name in schema.features if name in only_text]
    if hint := decimal_comma_hint(get_header(source), features):
        told.tell.say(hint.strip())
    if told.search is not None:
        told.tell.say(estimator.report())
    told.tell.learned(estimator, told.model)
    _leave_if_interrupted(outcome, estimator, told.model)


def _refuse_nothing(outcome: InterruptRecord, estimator: Any) -> None:
    """Leave where Ctrl-C came before there was a model to save."""
    if outcome.has_nothing(estimator):
        raise typer.Exit(
            print_error("interrupted before anything was complete: no model is saved.", INTERRUPTED)
        )


def _leave_if_interrupted(outcome: InterruptRecord, estimator: Any, path: Path) -> None:
    if outcome.was_interrupted:
        raise typer.Exit(print_error(outcome.outcome(estimator, path), INTERRUPTED))


def _lesson(told: TrainOptions, columns: ColumnOptions, source: Source) -> TrainingSpec:
    """Which columns are learned from which, and by which parameters."""
    table, task = get_header(source), columns.task
    kind = get_single_kind(task or [], columns.target)
    wanted: list[TaskSpec] = []
    if task and kind is None:
        refused = {
            "--objective": told.objective,
            "--offset": columns.offset,
            "--search": told.search,
        }
        _refuse_beside_tasks([name for name, given in refused.items() if given is not None])
        wanted = parse_tasks(table, task, lambda names: read_columns(source, names))
    targets = tuple(name for each in wanted for name in each.columns) or _targets(
        table, columns.target
    )
    dropped = select_columns(table, columns.drop, "--drop") if columns.drop else ()
    weighted = _weighted(table, columns.weight)
    offsets = select_columns(table, columns.offset, "--offset") if columns.offset else ()
    meant = (
        select_columns(table, columns.categorical, "--categorical") if columns.categorical else ()
    )
    texts = set(table.categories)
    table = table.convert_to_categorical([name for name in meant if name not in targets])
    known = read_columns(
        source if isinstance(source, Folder) else table, (*targets, *weighted, *offsets)
    )
    if weighted:
        read_weights(known, weighted[0])  # of all rows: a sentence counts those of the file
    params = _recipe(told.recipe) | told.params
    _refuse_commas(known, wanted, () if kind == "classification" else targets)
    if wanted:
        schema = Schema.from_tasks(
            table, [(each.kind, each.columns) for each in wanted], (*dropped, *weighted)
        )
        params |= {"objective": {each.key: each.objective for each in wanted}}
    else:
        schema = Schema.from_table(
            table, targets, kind or infer_task(known, targets), (*dropped, *weighted), offsets
        )
        params = _with_numbered_targets(params, schema)
    schema.check_stray_text(table, meant)
    return TrainingSpec(schema, known, weighted, params, texts, meant, wanted)


def _targets(table: Table, wanted: str | None) -> tuple[str, ...]:
    if wanted:
        return select_columns(table, wanted, "--target")
    if table.targets:
        return table.targets
    raise ReadError("--target is needed: which column, or columns, are to be predicted?")


def _parse_settings(settings: list[str]) -> dict[str, Any]:
    """``["subsample=0.8", "max_depth=None", "objective=huber"]`` -> values as the parameters read them."""
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


def _recipe(name: str | None) -> dict[str, Any]:
    """The recipe's parameters."""
    if name is None:
        return {}
    if name not in presets.__all__:
        known = ", ".join(sorted(presets.__all__))
        raise ReadError(f"--preset: there is no recipe {name!r}; there are {known}.")
    return getattr(presets, name)()


def _check_parameters(task: str, params: dict[str, Any]) -> Any:
    """The estimator's class, which has all these parameters and allows their values."""
    from polyleaf.estimators import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
    from polyleaf.search.estimators import PolyleafClassifierCV, PolyleafRegressorCV

    searches = "time_limit" in params
    if task == "tasks":
        kind: Any = PolyleafMultiTask
    elif task == "regression":
        kind = PolyleafRegressorCV if searches else PolyleafRegressor
    else:
        kind = PolyleafClassifierCV if searches else PolyleafClassifier
    known = [p.name for p in get_param_specs(kind)]
    unknown = [name for name in params if name not in known]
    if unknown:
        if unknown[0] in {p.name for p in get_param_specs(SearchParameters)}:
            raise ReadError(f"--set: {unknown[0]} is of a search: give --search SECONDS as well.")
        hint = meant(unknown[0], known) or f"; there are {', '.join(sorted(known))}."
        raise ReadError(f"--set: there is no parameter {unknown[0]!r}{hint}")
    kind(**params)._validate_params()
    return kind


def _refuse_beside_tasks(given: list[str]) -> None:
    why = {
        "--objective": "each has its own loss: --task NAME=LOSS",
        "--offset": "offsets are each task's own, and given in Python",
        "--search": "a search is for targets of one kind",
    }
    if given:
        raise ReadError(f"{given[0]} does not go with tasks: {why[given[0]]}.")


def _time_limit(seconds: float | None, search: float | None) -> dict[str, Any]:
    if seconds is None:
        return {}
    if search is not None:
        raise ReadError("--time-limit is for one training: --search has its seconds already.")
    if not seconds > 0:
        raise ReadError(f"--time-limit takes a number of seconds above 0, not {seconds:g}.")
    return {"callbacks": [TimeLimit(seconds)]}


def _refuse_commas(table: Table, wanted: Sequence[TaskSpec], targets: Sequence[str]) -> None:
    """Refuse to take numbers with decimal commas for classes, unless it is said that they are."""
    if wanted:
        unsaid = [task for task in wanted if task.is_guessed or task.kind == "regression"]
        targets = [name for task in unsaid for name in task.columns]
    if hint := decimal_comma_hint(table, targets):
        classes = "NAME=softmax" if wanted else "classification"
        raise ReadError(f"{hint.strip()} Text that is meant to be classes: --task {classes}.")


def _refuse_columns(options: dict[str, Any]) -> None:
    for name, given in options.items():
        if given:
            raise ReadError(
                f"--{name} is about columns, which --format {xmc.FORMAT} does not have."
            )


def _check_validation(validation: str | None, early_stopping: int | None) -> None:
    if validation is None and early_stopping is not None:
        raise ReadError("--early-stopping needs --validation: a file, or a fraction such as 0.2.")


def _split(
    table: Table, validation: str | None, seed: int, format: str | None, style: CsvOptions
) -> tuple[Table, Table | None]:
    """The rows to learn from, and those to watch."""
    if validation is None:
        return table, None
    parts = split_validation(validation, table.n_rows, seed)
    if parts is None:
        return table, read_table(validation, format, style)
    kept, watched = parts
    return table.rows(kept), table.rows(watched)


def _refuse_fraction(is_folder: bool, validation: str | None) -> None:
    """Rows of a folder are read in their order, so none can be drawn beforehand."""
    if is_folder and validation is not None and split_validation(validation, 100, 0) is not None:
        raise ReadError(
            f"--validation {validation} holds rows of one file out; beside a folder, name a file of others."
        )


def _with_numbered_targets(params: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The parameters, with target columns as numbers: estimators are given targets without names."""
    constraints = params.get("monotone_constraints")
    if not isinstance(constraints, dict) or len(schema.targets) == 1:
        return params
    numbers = {name: number for number, name in enumerate(schema.targets)}
    numbered = {
        feature: {numbers.get(name, name): direction for name, direction in of_feature.items()}
        if isinstance(of_feature, dict)
        else of_feature
        for feature, of_feature in constraints.items()
    }
    return params | {"monotone_constraints": numbered}


def _fit(
    estimator: Any,
    schema: Schema,
    X: Any,
    training: Table,
    watched: Table | None,
    weights: np.ndarray | None,
) -> None:
    """Train on a data set, whose targets a table holds, and watch another table."""
    from polyleaf.data.dataset import Dataset

    offset, eval_set, eval_offset = schema.read_offset(training), None, None
    if watched is not None:
        kept = {"keep_features": X.features is not None, "n_jobs": estimator.n_jobs}
        X_watched = Dataset(schema.read_features(watched), reference=X, **kept)
        eval_offset = None if offset is None else [schema.read_offset(watched)]
        eval_set = [(X_watched, schema.read_targets(watched))]
    y, about = schema.read_targets(training), {"eval_set": eval_set, "eval_offset": eval_offset}
    estimator.fit(X, y, sample_weight=weights, offset=offset, **about)


def _known_rows(
    source: Source, schema: Schema, estimator: Any, weight: str | None
) -> tuple[Table, Any, np.ndarray | None]:
    """Rows whose targets are known: the table, their features, and the weights, if a column is named."""
    weighted = _weighted(get_header(source), weight)
    table, X = read_prediction_rows(source, schema, estimator, (*schema.targets, *weighted))
    return table, X, read_weights(table, weighted[0]) if weighted else None


def _refuse_elsewhere(
    is_folder: bool, label_names: Path | None, cache: Path | None, memory_limit: str | None
) -> None:
    """Refuse options that the format of the file has no use for."""
    if label_names is not None:
        raise ReadError(f"--label-names is for --format {xmc.FORMAT}; tables name their columns.")
    for option, given in (("--cache", cache), ("--memory-limit", memory_limit)):
        if given is not None and not is_folder:
            raise ReadError(
                f"{option} is for a folder of Parquet files; one file is read as a whole."
            )


def _weighted(table: Table, weight: str | None) -> tuple[str, ...]:
    """The column with the weights, if one is named."""
    chosen = select_columns(table, weight, "--weight") if weight else ()
    if len(chosen) > 1:
        raise ReadError(f"--weight names one column, not {len(chosen)}.")
    return chosen


def _outputs(text: str | None, model: Any) -> list[str | int]:
    """``"price,2"`` -> names, and numbers where no output has such a name; None: all."""
    if text is None:
        return list(range(model.n_outputs))
    wanted = [name.strip() for name in text.split(",")]
    names = model.output_names or ()
    return [int(name) if name.isdecimal() and name not in names else name for name in wanted]


# ---- models -----------------------------------------------------------------------------------------------

_SCHEMA = "table"  # where a model's metadata keeps the schema of the file it was trained from
_LABELS = "labelled rows"  # and where it says that this was a file without columns


def _save(estimator: Any, schema: Schema, path: Path, **how: Any) -> None:
    model = estimator.model_
    model.metadata[_SCHEMA] = schema.to_dict()
    if model.output_names is None and model.n_outputs == len(schema.targets):
        model.output_names = schema.targets
    estimator.save_model(path, **how)


def _load_estimator(path: Path) -> Any:
    from polyleaf.estimators import load_model

    if not path.is_file():
        raise ReadError(f"There is no model file {str(path)!r}.")
    return load_model(path)


def _load(path: Path, threads: int | None) -> tuple[Any, Schema]:
    """The estimator in a file that `train` wrote, and how it reads a table."""
    estimator = _load_estimator(path)
    fields = estimator.model_.metadata.get(_SCHEMA)
    if estimator.model_.metadata.get(_LABELS):
        raise ReadError(f"{path} learned from rows with labels: use --format {xmc.FORMAT}.")
    if fields is None:
        raise ReadError(
            f"{path} was not trained by this command, so its columns are not known; use it in Python."
        )
    schema = Schema.from_dict(fields)
    if (
        len(schema.features) != len(estimator.model_.input_names)
        or schema.task not in _tasks_of(estimator)
        or not _agree_on_tasks(estimator.model_.objective.tasks, schema)
    ):
        raise ReadError(f"{path} does not agree with itself about its columns; take another copy.")
    return estimator.set_params(n_jobs=threads), schema


def _tasks_of(estimator: Any) -> tuple[str, ...]:
    """The tasks that an estimator's predictions may be read as."""
    kind = estimator.model_.metadata["kind"]
    return (kind,) if kind in ("regression", "multilabel", "tasks") else ("classification",)


def _agree_on_tasks(places: Any, schema: Schema) -> bool:
    """Whether a table's schema has the tasks of a model, in the same order."""
    kinds = {
        "regression": ("values",),
        "multilabel": ("labels",),
        "classification": ("labels", "classes"),
    }

    def agrees(task: Any, of_own: Schema) -> bool:
        is_as_wide = of_own.task == "classification" or task.n_columns == len(of_own.targets)
        return is_as_wide and task.target_kind in kinds[of_own.task]

    return [place.task.name for place in places] == list(schema.each) and all(
        agrees(place.task, of_own)
        for place, of_own in zip(places, schema.each.values(), strict=True)
    )


def _load_labeller(path: Path, file: Path, threads: int | None) -> tuple[Any, Any]:
    """The estimator that `train` made of rows with labels, and the rows of a file that suit it."""
    estimator = _load_estimator(path)
    if not estimator.model_.metadata.get(_LABELS):
        raise ReadError(
            f"{path} learned from a table, not from rows with labels; leave --format out."
        )
    rows = xmc.read_rows(file, None, threads)
    xmc.check_shape(rows, estimator.n_features_in_, estimator.model_.n_outputs, file)
    return estimator.set_params(n_jobs=threads), rows


def _print_tree(tree: dict[str, Any]) -> None:
    """A tree as text: splits with their gain, leaves with their value for each output."""
    from rich.console import Console
    from rich.tree import Tree

    nodes = tree["nodes"]

    def describe(node: dict[str, Any]) -> str:
        known = [f"gain {node['gain']:.4g}"] if "gain" in node else []
        known += [pluralise(node["count"], "row")] if "count" in node else []
        about = f" ({', '.join(known)})" if known else ""
        if "leaf" in node:
            return (
                f"leaf {node['leaf']}: {' '.join(f'{value:.4g}' for value in node['value'])}{about}"
            )
        return f"{_condition(node)}{about}"

    def grow(branch: Tree, number: int, answer: str) -> None:
        node = nodes[number]
        child = branch.add(f"{answer}{describe(node)}")
        if "leaf" not in node:
            grow(child, node["left"], "yes: ")
            grow(child, node["right"], "no: ")

    of_output = "" if tree["output"] is None else f" of {tree['output']}"
    root = Tree(f"tree {tree['tree']}{of_output}, round {tree['round']}")
    grow(root, 0, "")
    Console(highlight=False, markup=False, soft_wrap=True).print(root)


def _condition(node: dict[str, Any]) -> str:
    if "categories" in node:
        question = f"{node['feature']} in {{{', '.join(map(str, node['categories']))}}}"
    elif node["threshold"] is None:
        question = f"{node['feature']} is known"
    else:
        question = f"{node['feature']} <= {node['threshold']:.6g}"
    return f"{question}{' or missing' if node['missing_left'] else ''}"


# ---- files -------------------------------------------------------------------------------------------------


def _check_writable(path: Path) -> None:
    """Say before a long training, not after it, that its result could not be saved."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ReadError(
            f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'its folder does not exist'}."
        )
