"""The commands `calibrate`, `refit` and `export`: from a model file to another file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyleaf.cli import xmc
from polyleaf.cli.messages import pluralise, print_hint
from polyleaf.cli.model_file import (
    check_writable,
    load_estimator,
    load_table_model,
    open_rows,
    read_queries,
    read_weight_column,
)
from polyleaf.files.io import ReadError, require
from polyleaf.user_data.validation import count_rows

_DEFAULT_COVERAGE = 0.9


def calibrate(options: Namespace) -> None:
    """Calibrate prediction intervals, or sets of classes, on held-out rows.

    `predict --intervals` then adds them.
    """
    estimator, X, y, weight, offset, _ = _read_rows(options, "calibrate")
    coverage = _DEFAULT_COVERAGE if options.coverage is None else options.coverage
    arguments: dict[str, Any] = {"coverage": coverage}
    if options.joint:
        arguments["joint"] = True
    require(hasattr(estimator, "calibrate"), "calibrate: this kind of model has no intervals.")
    estimator.calibrate(X, y, weight, offset=offset, **arguments)
    out = _save(options, estimator)
    print_hint(
        f"calibrated on {pluralise(count_rows(X), 'row')} for a coverage of {coverage:g}; the "
        f"model is written to {out}",
        options.quiet,
    )


def refit(options: Namespace) -> None:
    """Fit the leaf values of a model again on other rows; its splits stay."""
    estimator, X, y, weight, offset, queries = _read_rows(options, "refit")
    decay_rate = options.decay_rate or 0.0
    estimator.refit(X, y, weight, offset=offset, decay_rate=decay_rate, **queries)
    out = _save(options, estimator)
    rows = pluralise(count_rows(X), "row")
    print_hint(f"refitted on {rows}; the model is written to {out}", options.quiet)


def export(options: Namespace) -> None:
    """Write a model in another format, by the extension of the file."""
    from polyleaf.export import to_c, to_onnx, to_treelite, to_xgboost

    check_writable(options.out)
    estimator: Any = load_estimator(options.model)
    out = options.out
    writers: dict[str, Callable[[], object]] = {
        ".onnx": lambda: to_onnx(estimator, out),
        ".h": lambda: to_c(estimator, out, name=options.name),
        ".json": lambda: to_xgboost(estimator, out),
        ".treelite": lambda: to_treelite(estimator).serialize(str(out)),
    }
    if out.suffix not in writers:
        raise ReadError(
            f"{out} must end in {', '.join(writers)}, which are ONNX, C, XGBoost and Treelite."
        )
    writers[out.suffix]()
    size = out.stat().st_size
    print_hint(f"{out} written, {size:,} bytes", options.quiet)


def _read_rows(options: Namespace, command: str) -> tuple[Any, ...]:
    """Return the model, and the features, targets, weights, offsets and queries (by argument)."""
    is_xmc = xmc.is_xmc(options.file, options.format)
    require(not is_xmc, f"{command} does not support --format {xmc.FORMAT}.")
    estimator, schema = load_table_model(options)
    check_writable(options.out)
    table, X, offset = open_rows(options, options.file, schema, estimator)
    weight, queries = read_weight_column(options, table)[1], read_queries(options, schema, table)
    return estimator, X, schema.read_targets(table), weight, offset, queries


def _save(options: Namespace, estimator: Any) -> Path:
    out: Path = options.out or options.model
    estimator.save_model(out)
    return out
