"""Options, examples and parameter names that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyleaf.cli import xmc
from polyleaf.files.io import ReadError
from polyleaf.files.readers import FORMATS, CsvOptions
from polyleaf.settings.param_spec import ParamSpec, get_param_specs
from polyleaf.settings.parameters import (
    ClassifierSearchParameters,
    MultiTaskParameters,
    RegressorSearchParameters,
)

PARAMETERS: dict[str, ParamSpec] = {
    p.name: p
    for group in (MultiTaskParameters, RegressorSearchParameters, ClassifierSearchParameters)
    for p in get_param_specs(group)
}
"""Parameters of all estimators by name."""

OPTION_NAMES = {
    "n_estimators": "--rounds",
    "learning_rate": "--learning-rate",
    "max_leaves": "--leaves",
    "max_depth": "--depth",
    "leaf": "--leaf",
    "linear_fit": "--linear-fit",
    "objective": "--objective",
    "early_stopping_rounds": "--early-stopping",
    "n_jobs": "--threads",
    "random_state": "--seed",
    "time_limit": "--search",
}
"""Parameters that have an option of their own; `--set` takes the others."""

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
        "polyleaf train letters.csv -t letter -m m --depth 4 --set grow_policy=depthwise "
        "--set boosting_step=layer",
        "polyleaf train houses.csv --task price=squared_error --task sold=logistic "
        "--task segment -m m",
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
        "polyleaf calibrate held_out.csv --model m --joint && "
        "polyleaf predict new.csv -m m --intervals",
    ),
    "extract": ("polyleaf extract m --task price --out price.polyleaf",),
    "explain": (
        "polyleaf explain new.csv --model m --out shap.parquet",
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

FORMATS_HELP = f"File extensions: {', '.join(e for found in FORMATS.values() for e in found)}."


def format_examples(command: str | None = None) -> str:
    """Return the examples of a command as help text, or the first one of each command."""
    lines = [lines[0] for lines in _EXAMPLES.values()] if command is None else _EXAMPLES[command]
    return "\n\n".join(["Examples", *lines])


def parameter_option(name: str, *flags: str, summary: str | None = None) -> Any:
    """Make the option of an estimator's parameter, by default with the parameter's summary."""
    p = PARAMETERS[name]
    return typer.Option(*flags, help=f"{summary or p.summary} {p.kind}; default {p.default}.")


def list_parameters() -> str:
    """Return the names of all parameters, grouped by topic."""
    topics: dict[str, list[str]] = {}
    for p in PARAMETERS.values():
        topics.setdefault(p.topic, []).append(p.name)
    return " ".join(f"{topic}: {', '.join(names)}." for topic, names in topics.items())


def make_csv_options(no_header: bool, sep: str | None, decimal: str, encoding: str) -> CsvOptions:
    """Return the options of CSV files as the readers take them."""
    separator = {"tab": "\t", "\\t": "\t", "space": " "}.get(sep or "", sep)
    is_utf_8 = encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig")
    return CsvOptions(
        False if no_header else None,
        separator,
        decimal,
        CsvOptions.encoding if is_utf_8 else encoding,
    )


def check_writable(path: Path) -> None:
    """Check before a long computation that its result can be saved.

    Raises
    ------
    ReadError
        If the path is a folder, or its folder does not exist.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        reason = "it is a folder" if path.is_dir() else "its folder does not exist"
        raise ReadError(f"{path} cannot be written: {reason}.")


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The data: a file, - for standard input (CSV unless --format is given), or a folder "
        f"of Parquet files, which is read in batches. {FORMATS_HELP}",
    ),
]
ModelOption = Annotated[
    Path, typer.Option("--model", "-m", help="The model file.", show_default=False)
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Format of the data: {', '.join(FORMATS)}, or {xmc.FORMAT} (extreme multi-label "
        "data). Default: by file extension.",
    ),
]
NoHeaderOption = Annotated[
    bool, typer.Option("--no-header", help="CSV: no header line; columns are named c0, c1, ...")
]
SepOption = Annotated[
    str | None,
    typer.Option("--sep", help="CSV: field separator, a character or tab. Default: detected."),
]
DecimalOption = Annotated[str, typer.Option("--decimal", help="CSV: decimal mark, . or ,")]
EncodingOption = Annotated[str, typer.Option("--encoding", help="CSV: text encoding.")]
WeightOption = Annotated[str | None, typer.Option("--weight", help="Column of sample weights.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", "-j", help="Number of threads; it does not change the result."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
