"""The application: its commands and options, and how errors become messages and exit codes."""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from polyleaf.cli import evaluate, model_file, predict, train, update, xmc
from polyleaf.cli.messages import INTERRUPT_EXIT_CODE, print_error, translate_message
from polyleaf.cli.parameters import (
    OPTION_NAMES,
    OPTIONS,
    PARAMETERS,
    describe,
    find_parameter,
    get_metavar,
)
from polyleaf.files.io import FORMATS, ReadError
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.settings import presets
from polyleaf.user_data.numeric_text import TextColumnError

_EXTENSIONS = (
    f"File extensions: {', '.join(e for extensions in FORMATS.values() for e in extensions)}."
)
_COLUMNS = "names, patterns (label_*), first:N or last:N, separated by commas; repeatable."
_DEFAULT = "Default: that of the training file."
_FLAG = {"action": "store_true"}
_LIST = {"action": "append"}
_PATH = {"type": Path}
_INT = {"type": int}

# Flags, help, and further arguments of `add_argument`; by the heading of their group.
_Option = tuple[str, str, dict[str, Any]]
_Groups = dict[str, list[_Option]]

_FILES: list[_Option] = [
    ("file", f"A file, - for standard input, or a folder of Parquet files. {_EXTENSIONS}", _PATH),
    ("--model -m", "The model file.", {"type": Path, "required": True}),
]
_TABLE: list[_Option] = [
    ("--format", f"Format of FILE: {', '.join(FORMATS)}, {xmc.FORMAT}. Default: by extension.", {}),
    ("--no-header", "CSV: there is no header; columns are named c0, c1, ...", _FLAG),
    ("--sep", "CSV: separator, a character or tab. Default: detected.", {}),
    ("--encoding", "CSV: text encoding.", {"default": "utf-8"}),
    ("--decimal", f"Decimal mark, . or , {_DEFAULT}", {}),
    ("--thousands", f"Mark between thousands. {_DEFAULT}", {}),
    (
        "--na-values",
        f"A cell that is missing, beside those of pandas; repeatable. {_DEFAULT}",
        _LIST,
    ),
]
_RUN: list[_Option] = [
    (
        "--threads -j",
        "Number of threads; it does not change the result.",
        {**_INT, "dest": "n_jobs", "metavar": "NUMBER"},
    ),
    ("--quiet -q", "Print errors only.", _FLAG),
]
_OUT: _Option = (
    "--out --output -o",
    "CSV, Parquet or JSON lines (.jsonl). Default: standard output.",
    _PATH,
)
_NEW_MODEL: _Option = ("--out --output -o", "Model file to write. Default: the same file.", _PATH)
_POSITIONS: _Option = (
    "--positions",
    "Column of the position at which each row was shown, for a ranking from clicks.",
    {},
)
_COLUMNS_TO_LEARN: list[_Option] = [
    ("--target -t", f"Target columns: {_COLUMNS} LIBSVM files mark their own.", _LIST),
    (
        "--task",
        "regression, classification, multilabel or ranking. Default: inferred. With --query it is "
        "ranking. One column of text, or of at most 20 distinct integers, is classification; "
        "several 0/1 columns are multilabel; others are regression. For a multi-task model, give "
        "--task once per task instead of --target: "
        "NAME=LOSS (price=squared_error, demand=quantile:0.1,0.9), or NAME to infer the loss.",
        _LIST,
    ),
    ("--drop", f"Columns to ignore: {_COLUMNS}", _LIST),
    ("--weight", "Column of sample weights.", {}),
    ("--query", "Column of the query of each row, for ranking. LIBSVM files have qid.", {}),
    _POSITIONS,
    ("--offset", "Columns of offsets (base margins) that boosting starts from.", _LIST),
    ("--categorical", "Columns of numbers to treat as categories. Text always is.", _LIST),
    ("--label-names", f"Format {xmc.FORMAT}: file with one label name per line.", _PATH),
]
_TRAINING: list[_Option] = [
    ("--validation", "Evaluation data: a file, or the fraction of rows to hold out.", {}),
    ("--time-limit", "Seconds for all rounds.", {"type": float, "dest": "seconds"}),
    ("--preset", f"Parameters of a paper: {', '.join(sorted(presets.__all__))}.", {}),
    *(
        (flags, describe(name), {"dest": name, "metavar": get_metavar(name)})
        for name, (flags, _) in OPTIONS.items()
    ),
    (
        "--set",
        "NAME=VALUE: any other parameter of the page of parameters; repeatable.",
        {"action": "append", "dest": "settings", "default": [], "metavar": "NAME=VALUE"},
    ),
    ("--seed --random-state", "Random seed.", {**_INT, "default": 0}),
]
_MODEL_FILE: list[_Option] = [
    ("--leaf-dtype", "Type of stored leaf values: float32, float16, int8.", {"default": "float32"}),
    (
        "--statistics",
        "Keep gains and row counts of nodes, which feature importances need.",
        {"action": argparse.BooleanOptionalAction, "default": True},
    ),
    ("--cache", "Folders: directory for binned data that does not fit in memory.", _PATH),
    ("--memory-limit", 'Folders: memory for training, such as "4GiB".', {}),
]
_PREDICT: list[_Option] = [
    _OUT,
    ("--proba", "Add the probability of each class or label.", _FLAG),
    ("--intervals", "Add intervals or sets, after `polyleaf calibrate`.", _FLAG),
    ("--levels", "Add quantiles of predicted distributions, such as 0.05,0.5,0.95.", {}),
    ("--top", f"Format {xmc.FORMAT}: labels per row.", {**_INT, "default": 5}),
    ("--keep", f"Columns of FILE to copy: {_COLUMNS}", _LIST),
    ("--json", "Write JSON lines, one object per row.", _FLAG),
]
_EXPLAIN: list[_Option] = [
    _OUT,
    ("--background", "Background rows for interventional instead of path-dependent values.", _PATH),
    ("--outputs", "Outputs to explain: names or numbers, separated by commas.", {}),
    ("--importance", "Write only the mean |SHAP| of each feature.", _FLAG),
]
_EVALUATE: list[_Option] = [
    ("--weight", "Column of sample weights.", {}),
    ("--json", 'Print JSON; scores of single targets are under "targets".', _FLAG),
]
_REPORT: list[_Option] = [
    ("--out --output -o", "HTML file to write.", {"type": Path, "default": Path("report.html")}),
    ("--title", "Title. Default: name of the model file.", {}),
]
_EXPORT: list[_Option] = [
    ("model", "The model file.", _PATH),
    ("out", "File to write: .onnx, .h (C), .json (XGBoost) or .treelite.", _PATH),
    ("--name", "C: prefix of the functions.", {"default": "model"}),
]
_CALIBRATE: list[_Option] = [
    _NEW_MODEL,
    ("--coverage", "Share of the rows that intervals or sets contain.", {"type": float}),
    ("--joint", "Regression: cover all targets of a row at once.", _FLAG),
    ("--weight", "Column of sample weights.", {}),
]
_REFIT: list[_Option] = [
    _NEW_MODEL,
    ("--decay-rate", "Share of the old leaf values in the new ones.", {"type": float}),
    ("--weight", "Column of sample weights.", {}),
    _POSITIONS,
]
_INSPECT: list[_Option] = [
    ("model", "The model file.", _PATH),
    ("--tree", "Print the tree with this number, from 0.", _INT),
    ("--top", "Number of features to list by gain.", {**_INT, "default": 10}),
    ("--json", "Print the whole model as JSON.", _FLAG),
]
_DEMO: list[_Option] = [
    ("--out", "Folder to write to.", {"type": Path, "default": Path("polyleaf_demo")}),
    ("--quick", "Train only a few rounds.", _FLAG),
    ("--threads -j", "Number of threads.", {**_INT, "dest": "n_jobs", "metavar": "NUMBER"}),
]


def _demo(options: Namespace) -> None:
    """Train on three bundled data sets, print test scores, and save models and plots."""
    from polyleaf.cli.demo import run

    run(options.out, quick=options.quick, n_jobs=options.n_jobs)


def _with_rows(title: str, options: list[_Option]) -> _Groups:
    """Return the groups of a command that reads rows and a model."""
    return {"files": _FILES, title: options, "format of the data": _TABLE, "running": _RUN}


# Function, options, examples.
_COMMANDS: dict[Callable[[Namespace], int | None], tuple[_Groups, str]] = {
    train.train: (
        {
            "files": _FILES,
            "columns": _COLUMNS_TO_LEARN,
            "training": _TRAINING,
            "model file": _MODEL_FILE,
            "format of the data": _TABLE,
            "running": _RUN,
        },
        """
polyleaf train houses.csv --target price --model houses.polyleaf
polyleaf train energy.csv -t heating,cooling --validation 0.2 --early-stopping 20 -m m
polyleaf train energy.csv -t heating -t cooling -m m --search 60 --set subsample=0.8
polyleaf train claims.csv -t claims -m m --objective poisson --offset log_exposure
polyleaf train clicks.csv -t clicked,bought --query session --positions shown_at -m m
polyleaf train visits/ -t visits -m m --validation later.parquet --drop id,date
polyleaf train houses.csv --task price=squared_error --task sold=logistic --task segment -m m
polyleaf train tags.txt --format xmc --leaf sparse --label-names tags.names -m m""",
    ),
    predict.predict: (
        _with_rows("output", _PREDICT),
        """
polyleaf predict new.csv --model m --out predictions.csv
polyleaf predict new.csv --model m --proba --keep id | head
cat new.csv | polyleaf predict - --model m --json
polyleaf predict new.txt --format xmc --model m --top 5 --out best.csv""",
    ),
    evaluate.evaluate: (
        _with_rows("scores", _EVALUATE),
        "\npolyleaf evaluate test.csv --model m --json",
    ),
    predict.explain: (
        _with_rows("output", _EXPLAIN),
        """
polyleaf explain new.csv --model m --out shap.parquet
polyleaf explain new.csv --model m --background houses.csv --outputs price""",
    ),
    evaluate.report: (
        _with_rows("output", _REPORT),
        "\npolyleaf report test.csv --model m --out report.html",
    ),
    update.calibrate: (
        _with_rows("calibration", _CALIBRATE),
        "\npolyleaf calibrate held_out.csv --model m --coverage 0.9",
    ),
    update.refit: (
        _with_rows("new leaf values", _REFIT),
        "\npolyleaf refit new.csv --model m --decay-rate 0.5 --out m2",
    ),
    update.export: (
        {"files": _EXPORT, "running": _RUN[1:]},
        "\npolyleaf export m model.onnx\npolyleaf export m model.h --name houses",
    ),
    model_file.inspect: ({"model": _INSPECT}, "\npolyleaf inspect m --tree 0"),
    _demo: ({"demo": _DEMO}, "\npolyleaf demo --quick --out /tmp/demo"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ReadError(message)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser("polyleaf", description="Gradient boosted trees for many outputs.")
    parser.epilog = "Examples: polyleaf train houses.csv --target price --model houses.polyleaf"
    parser.add_argument("--version", action="version", version=polyleaf_version())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command, (groups, examples) in _COMMANDS.items():
        summary = (command.__doc__ or "").splitlines()[0]
        command_parser = commands.add_parser(
            command.__name__.strip("_"),
            help=summary,
            description=inspect.getdoc(command),
            epilog=f"Examples{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command_parser.set_defaults(command=command)
        for title, options in groups.items():
            group = command_parser.add_argument_group(title)
            for flags, text, arguments in options:
                group.add_argument(*flags.split(), help=text.replace("%", "%%"), **arguments)
    return parser


def _check_flags(arguments: Sequence[str]) -> None:
    """Raise a `ReadError` for an option that the command does not have, with a suggestion."""
    commands = {command.__name__.strip("_"): groups for command, (groups, _) in _COMMANDS.items()}
    if not arguments or arguments[0] not in commands:
        return
    options = [option for group in commands[arguments[0]].values() for option in group]
    known = {flag for flags, _, _ in options for flag in flags.split() if flag[0] == "-"}
    switches = (f for f, _, a in options if a.get("action") is argparse.BooleanOptionalAction)
    known |= {f"--no-{flag[2:]}" for flags in switches for flag in flags.split()}
    known |= {"--help", "--"}
    for flag in (argument.partition("=")[0] for argument in arguments[1:]):
        if flag.startswith("--") and flag not in known:
            raise ReadError(f"{flag} is not an option of {arguments[0]}{_suggest(flag, known)}")


def _suggest(flag: str, known: set[str]) -> str:
    name = flag[2:].replace("-", "_")
    name = find_parameter(name) or name
    if name in PARAMETERS and "--set" in known:
        return f": use {OPTION_NAMES.get(name) or f'--set {name}=VALUE'}."
    close = difflib.get_close_matches(flag, sorted(known), n=1)
    return f": did you mean {close[0]}?" if close else "; --help lists the options."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code: 0, 2 for an error, 130 for Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    print_error(f"warning: {message}")


# Remedies of a `TextColumnError`, by its kind.
_TEXT_REMEDIES = {
    "text": "Correct the cell; if {cell!r} is a missing value, use --na-values {cell!r}",
    "separators": "Use --decimal or --thousands",
    "date": "Replace the dates by numbers, such as the year, the month and the hour",
}


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; errors are printed, not raised."""
    try:
        with warnings.catch_warnings():
            _check_flags(arguments)
            options = make_parser().parse_args(arguments or ["--help"])
            warnings.simplefilter(
                "ignore" if getattr(options, "quiet", False) else "default", UserWarning
            )
            warnings.showwarning = _print_warning
            return options.command(options) or 0
    except SystemExit as exit:
        return int(exit.code or 0)
    except KeyboardInterrupt:
        return print_error("interrupted.", INTERRUPT_EXIT_CODE)
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        sys.stdout = None
        return 1
    except TextColumnError as error:
        column = error.column.strip("'")
        remedy = _TEXT_REMEDIES.get(error.kind, "Write the cells of the file as plain numbers")
        remedy = remedy.format(cell=error.cell)
        return print_error(
            f"{error.problem} {remedy}; if the cells are categories, use --categorical {column!r}; "
            f"--drop {column!r} leaves the column out."
        )
    except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
        return print_error(translate_message(str(error) or type(error).__name__))
    except Exception as error:
        if os.environ.get("POLYLEAF_TRACEBACK"):
            raise
        return print_error(
            f"unexpected error ({type(error).__name__}: {error}). This is a bug in Polyleaf, or a "
            "file is damaged. Set POLYLEAF_TRACEBACK=1 to see the traceback."
        )
