"""The application: its commands, and how errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from polyleaf.cli.evaluate import calibrate, evaluate, report
from polyleaf.cli.explain import explain
from polyleaf.cli.messages import INTERRUPT_EXIT_CODE, print_error, translate_parameter_names
from polyleaf.cli.model_file import extract, inspect
from polyleaf.cli.options import FORMATS_HELP, ThreadsOption, format_examples
from polyleaf.cli.predict import predict
from polyleaf.cli.train import train
from polyleaf.model.serialize import polyleaf_version

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
            f"unexpected error ({type(error).__name__}: {error}). This is a bug in Polyleaf, or a "
            "file is damaged. Set POLYLEAF_TRACEBACK=1 to see the traceback."
        )
