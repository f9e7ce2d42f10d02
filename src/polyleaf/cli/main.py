"""The command line: train, predict, evaluate, calibrate, extract, explain, report, inspect and demo.

Owns options and exit codes. Must not know formats (`readers`), the meaning of columns (`schema`) and of tasks
(`tasks`), what answers are (`predicted`), how they are written (`answers`) and messages worded (`tell`), what
becomes of files without columns (`label_commands`) or anything of training. Every error is one sentence on
the error stream and exit code 2.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
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
        "polyleaf train letters.csv -t letter -m m --recipe tfbt --rounds 50",
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
    help=f"Gradient boosted trees for many outputs.\n\n{_FORMATS}",
    epilog=_examples(*_EXAMPLES),
    add_completion=False,
    rich_markup_mode=None,  # panels cut the names of options where the terminal is narrow
    pretty_exceptions_enable=False,
)


def _parameter(name: str, *flags: str) -> Any:
    """An option for a parameter of the estimators, which says what the parameter says of itself."""
    p = PARAMETERS[name]
    return typer.Option(*flags, help=f"{p.summary} {p.kind}; default {p.default}.")


def _by_topic() -> str:
    """The names of all parameters, for `--set`."""
    topics: dict[str, list[str]] = {}
    for p in PARAMETERS.values():
        topics.setdefault(p.topic, []).append(p.name)
    return " ".join(f"{topic}: {', '.join(names)}." for topic, names in topics.items())


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The data: a file, - for standard input (CSV unless --format says otherwise), or a folder of "
        f"Parquet files, read a few rows at a time. {_FORMATS}",
    ),
]
ModelOption = Annotated[
    Path, typer.Option("--model", "-m", help="The model file.", show_default=False)
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Format of the data ({', '.join(FORMATS)}, or {xmc.FORMAT}: rows with very many "
        "labels), if its ending lies.",
    ),
]


NoHeaderOption = Annotated[
    bool, typer.Option("--no-header", help="CSV: the first line is data; columns are c0, c1, ...")
]
SepOption = Annotated[
    str | None,
    typer.Option("--sep", help="CSV: the character between cells, or tab; by default seen."),
]
DecimalOption = Annotated[
    str, typer.Option("--decimal", help="CSV: the decimal point of numbers, . or ,")
]
EncodingOption = Annotated[str, typer.Option("--encoding", help="CSV: the encoding of the text.")]
WeightOption = Annotated[
    str | None, typer.Option("--weight", help="Column with the weight of each row.")
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        help="Column with the raw score that each row starts from (of counts: the logarithm of the "
        "exposure), or a column for each output. Files to predict need them too.",
    ),
]
LeafDtypeOption = Annotated[
    str,
    typer.Option(
        "--leaf-dtype",
        help="How the file holds leaf values: float32, or smaller and rounded as float16 or int8.",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def _style(no_header: bool, sep: str | None, decimal: str, encoding: str) -> CsvOptions:
    separator = {"tab": "\t", "\\t": "\t", "space": " "}.get(sep or "", sep)
    is_utf_8 = encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")
    return CsvOptions(
        False if no_header else None,
        separator,
        decimal,
        CsvOptions.encoding if is_utf_8 else encoding,
    )


@app.command(epilog=_examples("train"))
def train(
    file: FileArgument,
    model: ModelOption,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="What to predict: column names, patterns (label_*), first:N or last:N, separated by commas. "
            "LIBSVM files say it themselves.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND or NAME=LOSS",
            help="regression, classification or multilabel. By default guessed: text, or at most 20 "
            "different whole numbers, in one column are classes; several 0/1 columns are labels; "
            "the rest is regression. In place of --target, repeatable: targets of unlike kind in one model, "
            "NAME=LOSS (price=squared_error, demand=quantile:0.1,0.9) or NAME, whose loss is guessed.",
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out, written as for --target.")
    ] = None,
    weight: WeightOption = None,
    offset: OffsetOption = None,
    categorical: Annotated[
        str | None,
        typer.Option(help="Number columns to treat as categories. Text columns always are."),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            help="Data to watch while training: a file, or the fraction of FILE's rows to hold out."
        ),
    ] = None,
    early_stopping: Annotated[
        int | None, _parameter("early_stopping_rounds", "--early-stopping")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds that the rounds may take, all together."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"Parameters of a method from the literature: {', '.join(sorted(presets.__all__))}. "
            "Options given beside it count more."
        ),
    ] = None,
    search: Annotated[
        float | None,
        typer.Option(
            help="Seconds to look for the best parameters in, by folds of FILE's rows or on --validation. "
            "Options given beside it are the same for all that is tried.",
            min=0.001,
        ),
    ] = None,
    rounds: Annotated[int | None, _parameter("n_estimators", "--rounds", "-n")] = None,
    learning_rate: Annotated[
        float | None, _parameter("learning_rate", "--learning-rate", "-r")
    ] = None,
    leaves: Annotated[int | None, _parameter("max_leaves", "--leaves")] = None,
    depth: Annotated[int | None, _parameter("max_depth", "--depth")] = None,
    leaf: Annotated[str | None, _parameter("leaf", "--leaf")] = None,
    linear_fit: Annotated[str | None, _parameter("linear_fit", "--linear-fit")] = None,
    label_names: Annotated[
        Path | None,
        typer.Option(help=f"File with the name of a label a line, for --format {xmc.FORMAT}."),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="Loss to minimise; default by the task.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", "-j", help="Threads; the result is the same.")
    ] = None,
    leaf_dtype: LeafDtypeOption = "float32",
    statistics: Annotated[
        bool,
        typer.Option(
            help="Keep gains, row counts and curvatures of nodes in the file; importances need them."
        ),
    ] = True,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder on a disk for a byte for each cell of FILE, where FILE is a folder and even these "
            "do not fit in memory."
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            help='Memory that training may take, such as "4GiB", where FILE is a folder: what does not fit '
            "lies in files, of --cache or of the system's folder for temporary ones."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help=f"Any other parameter of the estimator; repeatable. {_by_topic()}",
        ),
    ] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    quiet: QuietOption = False,
) -> None:
    """Learn from a file and save the model.

    What was learned, and how well, is said on the error stream.
    """
    from polyleaf.model.leaf_storage import check_leaf_dtype

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
    params |= KEEP_ON_INTERRUPT | {
        "random_state": seed,
        "verbose": int(sys.stderr.isatty() and not quiet),
    }
    params |= _parse_settings(settings or [])
    params |= _time_limit(time_limit, search)
    told = TrainOptions(
        file=file,
        model=model,
        format=format,
        style=_style(no_header, sep, decimal, encoding),
        recipe=recipe,
        params=params,
        validation=validation,
        early_stopping=early_stopping,
        search=search,
        objective=objective,
        seed=seed,
        threads=threads,
        saved={"leaf_dtype": leaf_dtype, "statistics": statistics},
        tell=Reporter(quiet),
    )
    columns = ColumnOptions(target, task, drop, weight, offset, categorical)
    if xmc.is_xmc(file, format):
        _train_labels(told, columns, label_names)
    else:
        _refuse_elsewhere(file.is_dir(), label_names, cache, memory_limit)
        _train_table(told, columns, cache, memory_limit)


@app.command(epilog=_examples("predict"))
def predict(
    file: FileArgument,
    model: ModelOption,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="CSV, Parquet or JSON lines (.jsonl) to write; by default CSV to the output.",
        ),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Also the probability of each class or label.")
    ] = False,
    intervals: Annotated[
        bool,
        typer.Option("--intervals", help="Also the intervals, or sets of classes, of calibrate."),
    ] = False,
    levels: Annotated[
        str | None,
        typer.Option(help="Also quantiles of predicted distributions: levels like 0.05,0.5,0.95."),
    ] = None,
    top: Annotated[
        int,
        typer.Option(help=f"Best labels to write for each row of --format {xmc.FORMAT}.", min=1),
    ] = 5,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns of FILE to write before the predictions, written as for --target."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines: an object a row.")
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", "-j", help="Threads.")] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    quiet: QuietOption = False,
) -> None:
    """Predict for each row of a file."""
    if out is not None:
        _check_writable(out)
    if xmc.is_xmc(file, format):
        labeller, rows = _load_labeller(model, file, threads)
        xmc.write_topk(labeller, rows.X, top, out)
        return
    estimator, schema = _load(model, threads)
    if intervals:
        check_single_task(schema, model, "--intervals")
    wanted_levels = [] if levels is None else _levels(levels)
    style = _style(no_header, sep, decimal, encoding)
    source, kept = open_source_and_cells(
        file, format, style, lambda header: select_columns(header, keep, "--keep") if keep else ()
    )
    _, X = read_prediction_rows(source, schema, estimator)
    columns = prediction_columns(estimator, schema, X, proba, wanted_levels, intervals)
    write_predictions(beside(kept, columns), out, as_json)
    if out is not None:
        Reporter(quiet).remark(f"{pluralise(X.shape[0], 'prediction')} written to {out}")


def _levels(given: str) -> list[float]:
    try:
        found = [float(level) for level in given.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < level < 1 for level in found):
        raise ReadError(
            f"--levels {given}: numbers between 0 and 1, separated by commas, are wanted."
        )
    return found


@app.command(epilog=_examples("evaluate"))
def evaluate(
    file: FileArgument,
    model: ModelOption,
    weight: WeightOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print JSON; of several targets each is under "targets".')
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", "-j", help="Threads.")] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
) -> None:
    """Print how well a model predicts a file whose targets are known, in all and for each of several."""
    if xmc.is_xmc(file, format):
        write_scores(xmc.evaluate_labels(*_load_labeller(model, file, threads)), as_json)
        return
    estimator, schema = _load(model, threads)
    source = open_source(file, format, _style(no_header, sep, decimal, encoding))
    table, X, weights = _known_rows(source, schema, estimator, weight)
    if schema.parts:
        write_task_scores(*compute_task_scores(estimator, schema, table, X, weights), as_json)
        return
    y = schema.read_targets(table)
    if strange := describe_unknown_labels(estimator, schema, y):
        Reporter(False).say(strange)
    found = compute_scores(estimator, schema, y, X, weights)
    write_scores(found[0], as_json, found[1])


@app.command(epilog=_examples("calibrate"))
def calibrate(
    file: FileArgument,
    model: ModelOption,
    coverage: Annotated[float, typer.Option(help="Share of new rows that are to be inside.")] = 0.9,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint", help="Intervals hold all targets of a row at once, not each for itself."
        ),
    ] = False,
    weight: WeightOption = None,
    threads: Annotated[int | None, typer.Option("--threads", "-j", help="Threads.")] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
) -> None:
    """Find how wide intervals, or how large sets of classes, must be, on rows that the model has not seen.

    The model file keeps it, and predict --intervals writes them.
    """
    if xmc.is_xmc(file, format):
        raise ReadError(f"calibrate reads tables, not --format {xmc.FORMAT}.")
    estimator, schema = _load(model, threads)
    check_single_task(schema, model, "calibrate")
    if joint and schema.task != "regression":
        raise ReadError(
            "--joint is for the intervals of several numbers; a set has all labels of a row anyway."
        )
    source = open_source(file, format, _style(no_header, sep, decimal, encoding))
    table, X, weights = _known_rows(source, schema, estimator, weight)
    jointly = {"joint": joint} if schema.task == "regression" else {}
    estimator.calibrate(X, schema.read_targets(table), weights, coverage=coverage, **jointly)
    _save(estimator, schema, model)


@app.command(epilog=_examples("extract"))
def extract(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model file, of several tasks.")
    ],
    task: Annotated[
        str, typer.Option(help="The task, by the name that inspect and evaluate give it.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The model file to write.", show_default=False)
    ],
) -> None:
    """Make a model of one task of a model of several: for calibrate, report, and whatever takes one."""
    estimator, schema = _load(model, None)
    if not schema.parts:
        raise ReadError(f"{model} has no tasks: it is of targets of one kind already.")
    _check_writable(out)
    _save(estimator.task_estimator(task), schema.each[task], out)


@app.command(epilog=_examples("explain"))
def explain(
    file: FileArgument,
    model: ModelOption,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="CSV or Parquet file to write; by default CSV to the output."
        ),
    ] = None,
    background: Annotated[
        Path | None,
        typer.Option(
            help="File with rows that stand for what is usual; by default the training rows' counts."
        ),
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            help="Outputs to explain: names or numbers, separated by commas; by default all."
        ),
    ] = None,
    importance: Annotated[
        bool,
        typer.Option(
            "--importance", help="Only how much each feature matters in the mean of all rows."
        ),
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", "-j", help="Threads.")] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
) -> None:
    """Tell what each feature adds to the raw score of each row (Shapley's values)."""
    from polyleaf.cli.shap_output import ContributionWriter
    from polyleaf.estimators.shap_mixin import iter_shap_values, mean_abs_shap

    if out is not None:
        _check_writable(out)
    if xmc.is_xmc(file, format):
        raise ReadError(
            f"explain reads tables; for --format {xmc.FORMAT} use shap_values in Python."
        )
    estimator, schema = _load(model, threads)
    style, usual = _style(no_header, sep, decimal, encoding), None
    rows = make_prediction_dataset(open_source(file, format, style), schema, estimator)
    if background is not None:
        usual = make_prediction_dataset(open_source(background, format, style), schema, estimator)
    chosen = _outputs(outputs, estimator.model_)
    chunks = iter_shap_values(estimator, rows, usual, chosen)
    writer = ContributionWriter(estimator.model_, chosen, out, sys.stdout)
    if importance:
        writer.write_importance(mean_abs_shap(chunks))
    else:
        writer.write(np.atleast_1d(estimator.shap_base_values(usual, chosen)), chunks)
        if out is not None:
            Reporter(False).remark(f"{pluralise(rows.n_rows, 'explanation')} written to {out}")


@app.command(epilog=_examples("report"))
def report(
    file: FileArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, HTML.")] = Path(
        "report.html"
    ),
    title: Annotated[
        str | None, typer.Option(help="Of the page; by default the name of the model.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", "-j", help="Threads.")] = None,
    format: FormatOption = None,
    no_header: NoHeaderOption = False,
    sep: SepOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    quiet: QuietOption = False,
) -> None:
    """Write a page about a model and how well it predicts a file whose targets are known."""
    if xmc.is_xmc(file, format):
        raise ReadError(
            f"report looks at every output of every row, too many for --format {xmc.FORMAT}."
        )
    estimator, schema = _load(model, threads)
    source = open_source(file, format, _style(no_header, sep, decimal, encoding))
    table, X = read_prediction_rows(source, schema, estimator, schema.targets)
    y = schema.read_targets(table)
    _check_writable(out)
    estimator.report(X, y, title=title or f"Report: {model.name}").save(out)
    Reporter(quiet).remark(f"report of {pluralise(table.n_rows, 'row')} written to {out}")


@app.command(epilog=_examples("inspect"))
def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")],
    tree: Annotated[int | None, typer.Option(help="Show this tree, counted from 0.", min=0)] = None,
    top: Annotated[int, typer.Option(help="How many features to rank by their gain.", min=1)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole model as JSON.")] = False,
) -> None:
    """Show what a model is: a summary and the features that matter, one tree, or everything as JSON."""
    from polyleaf.inspection.model_summary import dump_json, summary

    content = _load_estimator(model).model_
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
        print(f"file of {model.stat().st_size / 2**20:.2f} MiB")
        print(summary(content, n_features=top))


@app.command(epilog=_examples("demo"))
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for models, picture and data; made if absent.")
    ] = Path("polyleaf_demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A few rounds only.")] = False,
    threads: Annotated[int | None, typer.Option("--threads", "-j", help="Threads.")] = None,
) -> None:
    """Train on three small real data sets, print test scores, save models and draw learning curves."""
    from polyleaf.cli.demo import run

    run(out, quick=quick, n_jobs=threads)


def _print_version(wanted: bool) -> None:
    if wanted:
        from polyleaf import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options of no command."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0, 2 for an error, 130 for Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are reported, not raised."""
    try:
        return app(args=arguments or ["--help"], prog_name="polyleaf", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return print_error("interrupted.", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, such as `head`, has left
        sys.stdout = None
        return 1
    except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
        return print_error(translate_parameter_names(str(error) or type(error).__name__))
    except Exception as error:
        # Usage errors: their class moved between versions of typer, their method did not.
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
        raise ReadError(f"--recipe: there is no recipe {name!r}; there are {known}.")
    return getattr(presets, name)()


def _check_parameters(task: str, params: dict[str, Any]) -> Any:
    """The estimator's class, which has all these parameters and allows their values."""
    from polyleaf.estimators import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
    from polyleaf.search.classifier import PolyleafClassifierCV
    from polyleaf.search.regressor import PolyleafRegressorCV

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
