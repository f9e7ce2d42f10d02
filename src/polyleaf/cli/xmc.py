"""Extreme multi-label data (XMC): training, prediction and evaluation without a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.data.random_rows import split_validation
from polyleaf.files.io import ReadError, get_extension, spool_to_disk, write_csv
from polyleaf.files.xmc import LabelledRows, read_multilabel, write_sparse_matrix
from polyleaf.metrics.ranking import ranking_scores

FORMAT = "xmc"
_EXTENSION = ".xmc"
_BATCH_ROWS = 1 << 14  # rows predicted at a time


def is_xmc(path: Path, format: str | None) -> bool:
    """Check whether a file is XMC data and not a table."""
    return format == FORMAT or (format is None and get_extension(path) == _EXTENSION)


def read_rows(path: Path, names: Path | None, threads: int | None) -> LabelledRows:
    """Read a file; `names` is a file with one label name per line."""
    with spool_to_disk(path, _EXTENSION) as file:
        return read_multilabel(file, FORMAT, labels=names, n_threads=threads or 1)


def fit_labels(
    estimator: Any, rows: LabelledRows, validation: str | None, seed: int, threads: int | None
) -> None:
    """Fit a classifier.

    Parameters
    ----------
    estimator : PolyleafClassifier
    rows : LabelledRows
    validation : str or None
        Fraction of the rows to hold out for evaluation, or a file to evaluate on.
    seed : int
        Seed of the held-out rows.
    threads : int or None

    Raises
    ------
    ReadError
        If `validation` leaves no training rows, or its file has other features or labels.
    """
    X, Y, eval_set = rows.X, rows.Y, None
    if validation is not None:
        parts = split_validation(validation, X.shape[0], seed)
        if parts is None:
            held = read_rows(Path(validation), None, threads)
            check_shape(held, X.shape[1], Y.shape[1], validation)
            eval_set = [(held.X, held.Y)]
        else:
            kept, out = parts
            eval_set, X, Y = [(X[out], Y[out])], X[kept], Y[kept]
    estimator.fit(X, Y, eval_set=eval_set)
    if rows.label_names is not None:
        estimator.model_.output_names = rows.label_names


def check_shape(rows: LabelledRows, n_features: int, n_labels: int, path: Any) -> None:
    """Raise a `ReadError` if a file does not have the features and labels of the model."""
    for noun, found, expected in (
        ("features", rows.X.shape[1], n_features),
        ("labels", rows.Y.shape[1], n_labels),
    ):
        if found != expected:
            raise ReadError(f"{path} has {found} {noun}, but the model has {expected}.")


def _predict_topk(
    estimator: Any, X: sp.csr_matrix, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield labels and scores of shape (n, k), batch by batch."""
    for start in range(0, X.shape[0], _BATCH_ROWS):
        yield estimator.predict_topk(X[start : start + _BATCH_ROWS], k)


def write_topk(estimator: Any, X: sp.csr_matrix, k: int, out: Path | None) -> None:
    """Write the k best labels of each row with their scores.

    A file with the extension ``.txt`` is a sparse matrix of scores in the format of the extreme
    classification repository. Otherwise the format is CSV, with a line per row,
    ``label_1,score_1,label_2,...``, the best label first, by name if the model knows names.
    """
    if out is not None and out.suffix.lower() == ".txt":
        matrix = _to_matrix(list(_predict_topk(estimator, X, k)), estimator.model_.n_outputs)
        write_sparse_matrix(out, matrix)
        return
    if out is not None and out.suffix.lower() != ".csv":
        raise ReadError(
            f"--out {out.name}: unknown extension; use .csv, or .txt for a sparse matrix of scores."
        )
    header = (f"{noun}_{place}" for place in range(1, k + 1) for noun in ("label", "score"))
    names = estimator.model_.output_names
    write_csv(out, header, _format_rows(_predict_topk(estimator, X, k), names))


def _format_rows(
    batches: Iterator[tuple[np.ndarray, np.ndarray]], names: tuple[str, ...] | None
) -> Iterator[list[Any]]:
    """Yield labels and scores of each row in turn, empty cells where a row has fewer than k."""
    for label_rows, score_rows in batches:
        for labels, scores in zip(label_rows.tolist(), score_rows.tolist(), strict=True):
            cells: list[Any] = []
            for label, score in zip(labels, scores, strict=True):
                name = label if names is None else names[label]
                cells += ["", ""] if label < 0 else [name, f"{score:.7g}"]
            yield cells


def _to_matrix(batches: list[tuple[np.ndarray, np.ndarray]], n_labels: int) -> sp.csr_matrix:
    labels, scores = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    is_label = labels >= 0
    indptr = np.concatenate([[0], np.cumsum(is_label.sum(axis=1))])
    matrix = sp.csr_matrix((scores[is_label], labels[is_label], indptr), (len(labels), n_labels))
    matrix.sort_indices()
    return matrix


def evaluate_labels(estimator: Any, rows: LabelledRows) -> dict[str, float]:
    """Compute P@k and nDCG@k for k = 1, 3, 5."""
    batches = list(_predict_topk(estimator, rows.X, 5))
    best = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return ranking_scores(rows.Y, best)
