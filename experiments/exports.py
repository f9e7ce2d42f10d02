"""Comparison of exported models with Polyleaf's raw scores, on every data set.

Sets and splits are those of `defaults`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from tests.support.c_programs import COMPILERS, CProgram
from tests.support.export_rows import hard_rows, prepare_features

from .defaults import EVERYTHING, parts
from .harness.context import Context, Unavailable
from .harness.paper import Figures, Paper, Subject, Table
from .sets import DataMissing, DataSet

ROUNDS, MOST_LEAVES, MOST_TRAINED = 10, 31, 3_000
N_ROWS = 200  # of the test part, and the same number of hard rows

SETS = [
    name for name in EVERYTHING if name != "rcv1_subset1"
]  # 47,236 features: takes minutes, and not run yet

Scores = Callable[[np.ndarray], np.ndarray]


# --- formats ---


def _c(compiler: int) -> Callable[[Any, Path], Scores]:
    def made(est: Any, folder: Path) -> Scores:
        from polyleaf.export import to_c

        if len(COMPILERS) <= compiler:
            raise Unavailable("this C compiler is not installed")
        to_c(est, folder / "model.h")
        program = CProgram(folder, COMPILERS[compiler], flags=("-O1",))
        return lambda X: program.raw(X, est.model_.n_outputs)

    return made


def _onnx(version: int) -> Callable[[Any, Path], Scores]:
    def made(est: Any, folder: Path) -> Scores:
        from polyleaf.export import category_mapping, to_onnx

        try:
            import onnxruntime
        except ImportError as error:
            raise Unavailable("onnxruntime is not installed") from error
        if version == 3 and category_mapping(est):
            raise Unavailable("version 3 has no splits by categories")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        graph = to_onnx(est, opset_ml=version).SerializeToString()
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        return lambda X: session.run(["scores"], {"X": X})[0]

    return made


def _treelite(est: Any, folder: Path) -> Scores:
    from polyleaf.export import to_treelite

    try:
        import treelite
    except ImportError as error:
        raise Unavailable("treelite is not installed") from error
    model = to_treelite(est)
    return lambda X: treelite.gtil.predict(model, X, pred_margin=True).reshape(len(X), -1)


LINEAR = {"leaf": "linear"}
FORMATS: dict[str, tuple[Callable[[Any, Path], Scores], dict[str, Any]]] = {
    "C, gcc": (_c(0), {}),
    "C, clang": (_c(1), {}),
    "ONNX 3": (_onnx(3), {}),
    "ONNX 5": (_onnx(5), {}),
    "Treelite": (_treelite, {}),
    "C, linear leaves": (_c(0), LINEAR),
    "ONNX, linear leaves": (_onnx(5), LINEAR),
}


# --- one run ---


def exports(context: Context, method: str, problem: str) -> Figures:
    """Return the largest difference of a raw score for each format, on the set `method`.

    Test rows and hard rows are compared with `difference`. Formats that do not support the model
    are left out.
    """
    try:
        data = context.load(method)
    except DataMissing as error:
        raise Unavailable(str(error)) from error
    figures: Figures = {}
    asked: dict[str, tuple[Any, list[tuple[np.ndarray, np.ndarray]]]] = {}
    for name, (make, parameters) in FORMATS.items():
        kind = str(parameters)
        if kind not in asked:
            if parameters and sp.issparse(data.X):
                continue  # linear leaves require dense features
            asked[kind] = _asked(context, *_fitted(context, data, parameters))
        est, questions = asked[kind]
        try:
            with tempfile.TemporaryDirectory() as folder:
                scores = make(est, Path(folder))
                figures[name] = max(difference(scores(X), expected) for X, expected in questions)
        except Unavailable:
            continue
    return figures


def _asked(
    context: Context, est: Any, rows: Any
) -> tuple[Any, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the model, and matrices with their raw scores: test rows and hard rows."""
    from polyleaf.export import to_numeric_matrix
    from polyleaf.export.ir import build_ir

    real, hard = to_numeric_matrix(est, rows), hard_rows(est, n=context.rows(N_ROWS))
    if est.leaf == "linear":  # sums of lines at infinity exceed float32 in graphs
        hard = np.clip(hard, np.nanmin(real), np.nanmax(real))
    n_rounds = build_ir(est).n_rounds
    return est, [
        (X, est.model_.predict_raw(prepare_features(est, X), 0, n_rounds)) for X in (real, hard)
    ]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the difference in 1e-9 of the largest score of a row, or of 1; -1 for equal bits."""
    found = np.ascontiguousarray(found, np.float64).reshape(expected.shape)
    if (found.view(np.uint64) == expected.view(np.uint64)).all():
        return -1.0
    scale = np.abs(expected).max(axis=1, keepdims=True, initial=1.0)
    return float(1e9 * (np.abs(found - expected) / scale).max())


def _fitted(context: Context, data: DataSet, parameters: dict[str, Any]) -> tuple[Any, Any]:
    """Return the model and rows of the test part."""
    from polyleaf import PolyleafClassifier, PolyleafRegressor

    X, y, X_test, _ = next(parts(context, data))
    categories = (
        np.flatnonzero(data.categorical).tolist() if data.name != "parkinsons_updrs" else []
    )
    estimator = PolyleafRegressor if data.task == "regression" else PolyleafClassifier
    est = estimator(
        n_estimators=context.rounds(ROUNDS),
        max_leaves=MOST_LEAVES,
        categorical_features=categories or None,
        n_jobs=context.threads,
        **parameters,
    )
    est.fit(X[:MOST_TRAINED], y[:MOST_TRAINED])
    return est, X_test[: context.rows(N_ROWS)]


_PROTOCOL = (
    f"{ROUNDS} rounds of {MOST_LEAVES} leaves on at most {MOST_TRAINED:,} rows of each set; "
    "features that "
    f"it calls categories as such. {N_ROWS} rows of the test part, and as many whose values are "
    "thresholds, "
    "their neighbours, NaN, infinities, zeros, the largest numbers, and of categories any code, "
    "unseen ones "
    "too (for linear leaves within the range of the real rows). The largest difference of a raw "
    "score, in "
    "1e-9 of the largest score of its row, or of 1; -1: all bits are the same. Promised are the "
    "same bits of "
    "C, and 1,000 (1e-6) of the others. Empty: version 3 of ONNX's trees has no splits by "
    "categories, and "
    "linear leaves need dense features."
)

PAPER = Paper(
    __name__,
    "Exports",
    "Raw scores of exported models beside Polyleaf's own, on all sets.",
    (
        Table(
            "exports",
            "largest difference of a raw score, 1e-9",
            tuple(Subject(name, "1e-9", None, 0, "raw scores", name) for name in FORMATS),
            exports,
            _PROTOCOL,
            also=tuple(SETS),
        ),
    ),
    golden=("defaults", "defaults, classes", "defaults, labels", "linear", "frame with categories"),
)
