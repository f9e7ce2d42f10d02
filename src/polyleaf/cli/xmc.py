"""What the command line does with rows of very many labels: train, predict and evaluate without a table.

Owns how a file of the extreme classification repository becomes a model, and a model's answers a file. Must
not know options (`cli`), formats (`multilabel`) or anything of training.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.data.holdout import split_validation
from polyleaf.files.io import ReadError, get_extension, spool_to_disk, write_csv
from polyleaf.files.xmc import LabelledRows, read_multilabel, write_sparse_matrix
from polyleaf.metrics.ranking import ranking_scores

__all__ = ["FORMAT", "evaluate_labels", "is_xmc", "read_rows", "fit_labels", "write_topk"]

FORMAT = "xmc"
_ENDING = ".xmc"
_ROWS_AT_A_TIME = 1 << 14  # predicted


def is_xmc(path: Path, format: str | None) -> bool:
    """Whether a file is one of rows with labels rather than a table."""
    return format == FORMAT or (format is None and get_extension(path) == _ENDING)


def read_rows(path: Path, names: Path | None, threads: int | None) -> LabelledRows:
    """The rows of a file; `names` is a file with one label's name a line."""
    with spool_to_disk(path, _ENDING) as file:
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
        Share of the rows to hold out, or a file: watched while training.
    seed : int
        Of the rows held out.
    threads : int or None

    Raises
    ------
    ReadError
        Where `validation` leaves no row to learn from, or its file has other features or labels.
    """
    X, Y, eval_set = rows.X, rows.Y, None
    if validation is not None:
        parts = split_validation(validation, X.shape[0], seed)
        if parts is None:
            watched = read_rows(Path(validation), None, threads)
            check_shape(watched, X.shape[1], Y.shape[1], validation)
            eval_set = [(watched.X, watched.Y)]
        else:
            kept, out = parts
            eval_set, X, Y = [(X[out], Y[out])], X[kept], Y[kept]
    estimator.fit(X, Y, eval_set=eval_set)
    if rows.label_names is not None:
        estimator.model_.output_names = rows.label_names


def check_shape(rows: LabelledRows, n_features: int, n_labels: int, path: Any) -> None:
    """`ReadError` where a file has other features or labels than the model."""
    for what, found, wanted in (
        ("features", rows.X.shape[1], n_features),
        ("labels", rows.Y.shape[1], n_labels),
    ):
        if found != wanted:
            raise ReadError(f"{path} has {found} {what}, but the model learned from {wanted}.")


def predict_topk_batches(
    estimator: Any, X: sp.csr_matrix, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Labels and scores (n, k), some rows at a time."""
    for start in range(0, X.shape[0], _ROWS_AT_A_TIME):
        yield estimator.predict_topk(X[start : start + _ROWS_AT_A_TIME], k)


def write_topk(estimator: Any, X: sp.csr_matrix, k: int, out: Path | None) -> None:
    """Write the k best labels of each row with their scores.

    A file that ends in ``.txt`` is a sparse matrix as the repository has them, labels with scores in order
    of label; all else is CSV, to a file or the output: a line a row, ``label_1,score_1,label_2,...``, the
    best first, by name where the model knows names.
    """
    if out is not None and out.suffix.lower() == ".txt":
        write_sparse_matrix(
            out, _as_matrix(list(predict_topk_batches(estimator, X, k)), estimator.model_.n_outputs)
        )
        return
    if out is not None and out.suffix.lower() != ".csv":
        raise ReadError(
            f"--out writes CSV or, ending in .txt, a sparse matrix; {out.name!r} ends like neither."
        )
    header = (f"{what}_{place}" for place in range(1, k + 1) for what in ("label", "score"))
    write_csv(
        out, header, _lines(predict_topk_batches(estimator, X, k), estimator.model_.output_names)
    )


def _lines(
    best: Iterator[tuple[np.ndarray, np.ndarray]], names: tuple[str, ...] | None
) -> Iterator[list[Any]]:
    """Cells of each row: a label and its score in turn, empty where there are no more."""
    for labels, scores in best:
        for row, of_row in zip(labels.tolist(), scores.tolist(), strict=True):
            cells: list[Any] = []
            for label, score in zip(row, of_row, strict=True):
                called = label if names is None else names[label]
                cells += ["", ""] if label < 0 else [called, f"{score:.7g}"]
            yield cells


def _as_matrix(parts: list[tuple[np.ndarray, np.ndarray]], n_labels: int) -> sp.csr_matrix:
    labels, scores = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    held = labels >= 0
    indptr = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    matrix = sp.csr_matrix((scores[held], labels[held], indptr), (len(labels), n_labels))
    matrix.sort_indices()
    return matrix


def evaluate_labels(estimator: Any, rows: LabelledRows) -> dict[str, float]:
    """P@k and nDCG@k for k = 1, 3, 5."""
    parts = list(predict_topk_batches(estimator, rows.X, 5))
    best = tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return ranking_scores(rows.Y, best)
