"""Extreme multi-label data (XMC): training, prediction and evaluation without a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from polyleaf.binned_data.random_rows import find_repeated_rows, hash_values, split_validation
from polyleaf.files.io import get_extension, open_writer, require
from polyleaf.files.xmc import LabelledRows, read_multilabel, write_sparse_matrix
from polyleaf.metrics.ranking import ranking_scores
from polyleaf.runtime.types import StrPath

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator

FORMAT = "xmc"
_BATCH_ROWS = 1 << 14  # rows predicted at a time


def is_xmc(path: Path, format: str | None) -> bool:
    """Check whether a file is XMC data and not a table."""
    return format == FORMAT or (format is None and get_extension(path) == f".{FORMAT}")


def read_rows(path: Path, names: Path | None, n_jobs: int | None) -> LabelledRows:
    """Read a file; `names` is a file with one label name per line."""
    return read_multilabel(path, labels=names, n_threads=n_jobs or 1)


def fit_labels(
    estimator: PolyleafEstimator,
    rows: LabelledRows,
    validation: str | None,
    seed: int,
    n_jobs: int | None,
) -> None:
    """Fit a classifier; `validation` is a file, or the fraction of rows to hold out."""
    X, Y, eval_set = rows.X, rows.Y, None
    if validation is not None:
        parts = split_validation(
            validation,
            estimator.validation_order,
            X.shape[0],
            seed,
            lambda: find_repeated_rows(hash_values(X), Y),
        )
        if parts is None:
            held = read_rows(Path(validation), None, n_jobs)
            check_shape(held, X.shape[1], Y.shape[1], validation)
            eval_set = [(held.X, held.Y)]
        else:
            kept, out = parts
            eval_set, X, Y = [(X[out], Y[out])], X[kept], Y[kept]
    estimator.fit(X, Y, eval_set=eval_set)
    if rows.label_names is not None:
        estimator.model_.output_names = rows.label_names


def check_shape(rows: LabelledRows, n_features: int, n_labels: int, path: StrPath) -> None:
    """Raise a `ReadError` if a file does not have the features and labels of the model."""
    for noun, number, expected in (
        ("features", rows.X.shape[1], n_features),
        ("labels", rows.Y.shape[1], n_labels),
    ):
        message = f"{path} has {number} {noun}, but the model has {expected}."
        require(number == expected, message)


def _predict_topk(
    estimator: PolyleafEstimator, X: sp.csr_matrix, k: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield labels and scores of shape (n, k), batch by batch."""
    for first in range(0, X.shape[0], _BATCH_ROWS):
        yield estimator.predict_topk(X[first : first + _BATCH_ROWS], k)


def write_topk(estimator: PolyleafEstimator, X: sp.csr_matrix, k: int, out: Path | None) -> None:
    """Write the k best labels of each row with their scores.

    A file with the extension ``.txt`` is a sparse matrix of scores in the format of the extreme
    classification repository. Otherwise the columns are ``label_1,score_1,label_2,...``, the best
    label first, by name if the model knows names; rows with fewer labels end in empty cells.
    """
    if out is not None and out.suffix.lower() == ".txt":
        batches = list(_predict_topk(estimator, X, k))
        labels, scores = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        rows, places = np.nonzero(labels >= 0)
        shape = (len(labels), estimator.model_.n_outputs)
        entries = (scores[rows, places], (rows, labels[rows, places]))
        write_sparse_matrix(out, sp.csr_matrix(entries, shape))
        return
    names = estimator.model_.output_names
    label_names = None if names is None else np.array([*names, None], dtype=object)
    with open_writer(out) as write:
        for labels, scores in _predict_topk(estimator, X, k):
            columns: dict[str, np.ndarray] = {}
            for place in range(k):
                label = labels[:, place]
                named = label.astype(object) if label_names is None else label_names[label]
                named[label < 0] = None
                columns[f"label_{place + 1}"] = named
                columns[f"score_{place + 1}"] = np.where(label < 0, np.nan, scores[:, place])
            write(columns)


def evaluate_labels(estimator: PolyleafEstimator, rows: LabelledRows) -> dict[str, float]:
    """Compute P@k and nDCG@k for k = 1, 3, 5."""
    batches = list(_predict_topk(estimator, rows.X, 5))
    best = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return ranking_scores(rows.Y, best)
