"""Prediction by the core: batches of bin codes and raw values, and a predictor for single rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.high_cardinality import Category
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.metadata import QUERY_COLUMN
from polyleaf.runtime.capabilities import check, refuse
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.cuda import as_device_array, get_device, is_device_array
from polyleaf.runtime.types import DataLike
from polyleaf.sketching.projections import Projection, read_numbers
from polyleaf.user_data.feature_table import FeatureTable
from polyleaf.user_data.features import make_infinity_error, read_features
from polyleaf.user_data.queries import drop_column
from polyleaf.user_data.read_target import get_column_names, get_given_names
from polyleaf.user_data.validation import abbreviate_names, replace_nulls_with_nan

if TYPE_CHECKING:
    from polyleaf.model.model import Model, ModelData

# Bytes of codes (one per value) and raw values (four) at a time; longer tables are split.
_CHUNK_BYTES = 1 << 28
# If fewer than one in so many features are used, only these are binned, to save memory.
_MIN_FEATURES_PER_USED = 4
# With so few codes, binning all features is faster than finding those that the trees use.
_SMALL_TABLE_CODES = 1 << 14


class Chunk(NamedTuple):
    """Some rows of a table in the form in which the core predicts them."""

    rows: slice
    codes: np.ndarray  # uint8 (n_features, n_rows)
    features: np.ndarray | None  # float32 (n_features, n_rows), if leaves are linear
    feature_ids: np.ndarray | None = None  # int32: the features of the rows of codes; None: all


def read_rows(
    X: Any,
    mapper: BinMapper,
    projection: Projection | None = None,
    estimator: object = None,
    n_threads: int = 1,
) -> FeatureTable:
    """Return X as a table that matches the training data, projected by the projection, if any.

    scikit-learn compares the names of its columns with the names that the fitted `estimator` has.
    """
    if projection is None:
        return read_features(X, reference=mapper, estimator=estimator, n_threads=n_threads)
    numbers = read_numbers(X, projection.kind, estimator)
    return read_features(
        projection.transform(numbers, n_threads),
        feature_names=projection.feature_names,
        reference=mapper,
        n_threads=n_threads,
    )


def iter_chunks(
    model: ModelData,
    table: FeatureTable,
    trees: tuple[int, int],
    n_threads: int = 1,
    with_regressors: bool = True,
    all_features: bool = True,
) -> Iterator[Chunk]:
    """Iterate over a table in chunks of bounded memory for trees `trees[0] .. trees[1] - 1`.

    `with_regressors=False` leaves out the raw values that linear leaves require. With
    `all_features=False`, codes may have rows only for the features that trees split on.
    """
    feature_ids = None if all_features else _find_rare_features(model, table, trees)
    n_codes = model.n_features if feature_ids is None else len(feature_ids)
    n_regressors = len(model.forest.regressors(*trees))
    size = max(1, _CHUNK_BYTES // max(1, n_codes + 4 * n_regressors))
    for begin in range(0, max(1, table.n_rows), size):
        rows = slice(begin, min(begin + size, table.n_rows))
        part = table if rows == slice(0, table.n_rows) else table.rows(rows.start, rows.stop)
        if feature_ids is None:
            codes = bin_features(model, part, trees, n_threads)
        else:
            is_coded = _mask(feature_ids, model.n_features)
            codes = model.mapper.transform(part, n_threads, is_coded, compact=True)
        features = None
        if n_regressors and with_regressors:
            features = read_regressors(model, part, trees)
        yield Chunk(rows, codes, features, feature_ids)


def compute_scores(
    model: ModelData, table: FeatureTable, trees: tuple[int, int], n_threads: int
) -> np.ndarray:
    """Return the raw scores of all outputs, float64 (n_rows, n_outputs)."""
    shape = table.n_rows, model.forest.n_outputs
    try:
        out = np.empty(shape)
    except MemoryError:
        raise MemoryError(
            f"Scores of {shape[0]} rows and {shape[1]} outputs need "
            f"{8 * shape[0] * shape[1] / 2**30:.1f} GiB: use predict_topk, pass fewer rows at "
            "a time, or use predict(X, sparse=True) after training on sparse targets."
        ) from None
    for chunk in iter_chunks(model, table, trees, n_threads, all_features=False):
        scores = model.forest.scores(
            chunk.codes,
            **model.score_scale,
            first=trees[0],
            last=trees[1],
            n_threads=n_threads,
            features=chunk.features,
            coded_features=chunk.feature_ids,
        )
        if len(scores) == len(out):
            return scores
        out[chunk.rows] = scores
    return out


def find_topk(
    model: ModelData, table: FeatureTable, trees: tuple[int, int], k: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs of the k largest scores of each row, int32, and the scores, float64."""
    shape = table.n_rows, max(0, k)
    outputs, scores = np.empty(shape, np.int32), np.empty(shape)
    # Equal base scores do not change the order, so that only outputs with entries are compared.
    base = model.base_score
    is_equal = model.target_scale is None and (base == base[0]).all()
    scale = {"base": None} if is_equal else model.score_scale
    for chunk in iter_chunks(model, table, trees, n_threads):
        outputs[chunk.rows], scores[chunk.rows] = model.forest.topk(
            chunk.codes,
            **scale,
            k=k,
            first=trees[0],
            last=trees[1],
            n_threads=n_threads,
            features=chunk.features,
        )
    return outputs, scores + base[0] if is_equal else scores


def sum_sparse_leaves(
    model: ModelData, table: FeatureTable, trees: tuple[int, int], n_threads: int
) -> scipy.sparse.csr_matrix:
    """Return the sums of the entries of sparse leaves, float64 (n_rows, n_outputs)."""
    forest, (first, last) = model.forest, trees
    parts = [
        forest.sparse_scores(
            chunk.codes, first=first, last=last, n_threads=n_threads, features=chunk.features
        )
        for chunk in iter_chunks(model, table, trees, n_threads)
    ]
    indptr = np.cumsum(np.concatenate([[0], *(np.diff(indptr) for indptr, _, _ in parts)]))
    outputs = np.concatenate([outputs for _, outputs, _ in parts])
    sums = np.concatenate([sums for _, _, sums in parts]).astype(np.float64)
    return scipy.sparse.csr_matrix((sums, outputs, indptr), (table.n_rows, forest.n_outputs))


def _find_rare_features(
    model: ModelData, table: FeatureTable, trees: tuple[int, int]
) -> np.ndarray | None:
    """Return the features that trees split on, ascending; None if they are not few of many."""
    if table.n_rows * model.n_features <= _SMALL_TABLE_CODES:
        return None
    used = model.forest.split_features(*trees)
    return used if _MIN_FEATURES_PER_USED * len(used) < model.n_features else None


def _mask(features: np.ndarray, n_features: int) -> np.ndarray:
    mask = np.zeros(n_features, bool)
    mask[features] = True
    return mask


def bin_features(
    model: ModelData, table: FeatureTable, trees: tuple[int, int], n_threads: int = 1
) -> np.ndarray:
    """Return the codes of a table for trees `trees[0] .. trees[1] - 1`: uint8 (n_features, n_rows).

    The rows of features that these do not split on are undefined.
    """
    used = None
    if table.n_rows * model.n_features > _SMALL_TABLE_CODES:
        used = _mask(model.forest.split_features(*trees), model.n_features)
    return model.mapper.transform(table, n_threads, used)


def read_regressors(
    model: ModelData, table: FeatureTable, trees: tuple[int, int]
) -> np.ndarray | None:
    """Return the raw values that the linear leaves of trees `trees[0] .. trees[1] - 1` require.

    They are float32 (n_features, n_rows), see `FeatureTable.get_raw_values`; None if no leaf is
    linear.
    """
    regressors = model.forest.regressors(*trees)
    if not len(regressors):
        return None
    return model.mapper.get_raw_values(table, _mask(regressors, model.n_features))


def iter_stages(
    model: ModelData, table: FeatureTable, first: int, stops: Sequence[int], n_threads: int = 1
) -> Iterator[np.ndarray]:
    """Yield the sums of the leaf values of trees `first .. stop - 1`, float32, for each stop.

    It is one array (n_rows, n_outputs), which the next step changes.
    """
    forest, trees = model.forest, (first, max(stops, default=first))
    codes = bin_features(model, table, trees, n_threads)
    features = read_regressors(model, table, trees)
    raw = np.zeros((codes.shape[1], forest.n_outputs), np.float32)
    for stop in stops:
        forest.predict(codes, raw, first=first, last=stop, n_threads=n_threads, features=features)
        first = stop
        yield raw


def find_best_outputs(
    model: ModelData, table: FeatureTable, rounds: tuple[int, int], n_threads: int = 1
) -> np.ndarray:
    """Return the output with the highest raw score of each row, (n_rows,), ties by number.

    Most rows do not pass all trees of the rounds, `rounds[1]` excluded: those whose best output the
    remaining trees cannot change are done.
    """
    first, last = trees = model.find_trees(*rounds)
    if _find_rare_features(model, table, trees) is not None:
        return compute_scores(model, table, trees, n_threads).argmax(axis=1)
    best = np.empty(table.n_rows, np.int32)
    for chunk in iter_chunks(model, table, trees, n_threads):
        best[chunk.rows] = model.forest.best_outputs(
            chunk.codes,
            **model.score_scale,
            first=first,
            last=last,
            n_threads=n_threads,
            features=chunk.features,
        )
    return best


class Predictor:
    """Predicts a row or a few without the validation and conversion of tables.

    It may be called by several threads at a time, and does not change when its model is trained
    further. A row has a number for each feature: float32 or float64, NaN for missing values.
    Calls refuse infinities, except in GPU memory; there and in `predict_raw` they belong to the
    first and the last bin. Numeric categories are given as they are, text categories by their code
    (`categories`).

    `categories`: for the number of each categorical feature: category -> its number in a row.

    Parameters
    ----------
    model : Model
        It must not be changed.
    finish : callable
        Maps raw scores (n_rows, n_scores), float64, to the result of a call.
    n_threads : int
        For several rows; a single row is predicted by one thread.
    device : {"cpu", "cuda"}, optional
        Where trees are evaluated. Default: on the CPU. "cuda" is for very many rows and dense
        leaves, and gives the same bits. Rows in GPU memory stay there.
    is_identity : bool
        Whether `finish` returns raw scores unchanged.
    """

    def __init__(
        self,
        model: Model,
        finish: Callable[[np.ndarray], Any],
        n_threads: int = 1,
        device: str | None = None,
        is_identity: bool = False,
    ):
        require_choice(device, (None, "cpu", "cuda"), "device")
        check("predictor", model=model)
        self._model = model
        self._finish = finish
        self._n_threads = n_threads
        self._device = device
        self._is_identity = is_identity
        self.categories = _number_categories(model.mapper)
        self._core = self._make_core()

    def _make_core(self) -> _core.RowPredictor | _core.DevicePredictor:
        mapper, device = self._model.mapper, get_device(self._device)
        transform = mapper.regressor_transform_
        predictor = _core.RowPredictor(
            self._model.forest,
            mapper.bin_table,
            [_code_table(f, numbers, mapper) for f, numbers in self.categories.items()],
            None if transform is None else (transform.centre, transform.low, transform.high),
            self._model.base_score,
            self._model.target_scale,
            self._model.target_offset,
        )
        if device is None:
            return predictor
        check("device_predictor", model=self._model)
        kinds = [LEAF_KINDS[tree.kind] for tree in self._model.trees]
        if any(kind.lists_outputs or kind.reads_features for kind in kinds):
            refuse("sparse_leaves", "device_predictor")
        return _core.DevicePredictor(device, predictor)

    def predict_raw(self, rows: Any) -> Any:
        """Return raw scores, float64 (n_rows, n_scores), of rows (n_rows, n_features) or one row.

        For rows in the memory of the predictor's GPU the result is an array there, which CuPy,
        PyTorch and JAX accept through DLPack.
        """
        if is_device_array(rows):
            return self._predict_raw_on_device(rows)
        if type(rows) is not np.ndarray or rows.dtype.char not in "fd":
            rows = self._read_rows(rows)
        scores, initial = self._core.scores(rows, self._n_threads), self._model.initial
        if initial is None:
            return scores
        return initial.add_to(np.atleast_2d(scores), np.atleast_2d(rows)).reshape(scores.shape)

    def __call__(self, rows: Any) -> Any:
        """Return predictions of rows.

        Raises a ValueError if the number of features differs from the model's.

        Parameters
        ----------
        rows : array of shape (n_rows, n_features) or (n_features,)

        Returns
        -------
        ndarray, or dict of such
            The result of the method that it replaces; for a single row without the first axis. For
            rows in the memory of the predictor's GPU, an array there (n_rows, n_outputs) if
            predictions are raw scores; other links are applied on the CPU.
        """
        if is_device_array(rows):
            scores = self._predict_raw_on_device(rows)
            return scores if self._is_identity else self._finish(scores.read())
        if type(rows) is not np.ndarray or rows.dtype.char not in "fd":
            rows = self._read_rows(rows)
        self._check_finite(rows)
        predictions = self._finish(self.predict_raw(rows))
        if np.ndim(rows) > 1:
            return predictions
        if isinstance(predictions, dict):
            return {task: values[0] for task, values in predictions.items()}
        return predictions[0]

    def _check_finite(self, rows: np.ndarray) -> None:
        if not np.vdot(rows, rows) < np.inf:  # infinite, NaN, or so large that its square is
            is_infinite = np.isinf(rows)
            if is_infinite.any():
                row, column = np.argwhere(np.atleast_2d(is_infinite))[0].tolist()
                names = self._model.mapper.feature_names_
                raise make_infinity_error(row, repr(names[column]) if names else f"number {column}")

    def _read_rows(self, rows: Any) -> np.ndarray:
        """Convert rows to float64; columns must have the names of the training data."""
        if scipy.sparse.issparse(rows):
            raise TypeError(
                "rows must not be a sparse matrix: pass rows.toarray(), or use the estimator."
            )
        rows = drop_column(rows, self._model.metadata.get(QUERY_COLUMN))
        names, expected = get_given_names(rows), self._model.mapper.feature_names_
        if names is not None and expected is not None and names != expected:
            raise ValueError(
                f"rows have the columns {abbreviate_names(names)}, but the model was fitted to "
                f"{abbreviate_names(expected)}, in this order."
            )
        if expected is None:
            self._model.mapper.spec_.check_labels(get_column_names(rows))
        array = np.asarray(rows)
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
        cells = replace_nulls_with_nan(np.asarray(rows, object))
        is_text = np.frompyfunc(lambda cell: isinstance(cell, str | bytes), 1, 1)(cells)
        for index in np.argwhere(np.asarray(is_text, bool)).tolist():
            if index[-1] in self.categories:  # text such as "7" is not the number of a category
                raise ValueError(
                    f"rows hold {cells[tuple(index)]!r} in column {index[-1]}: pass the number of "
                    f"the category, which is in predictor.categories[{index[-1]}], or use the "
                    "estimator's predict."
                )
        return cells.astype(np.float64)

    def _predict_raw_on_device(self, rows: DataLike | None) -> _core.DeviceArray:
        device = get_device(self._device)
        if device is None or not isinstance(self._core, _core.DevicePredictor):
            raise TypeError(
                "rows are in GPU memory: pass a copy in host memory, or make the predictor with "
                'device="cuda".'
            )
        array, expected = as_device_array(device, rows, "rows"), len(self._model.mapper.n_bins_)
        if array.ndim != 2 or array.shape[1] != expected:
            raise ValueError(f"rows must have shape (n_rows, {expected}); got {array.shape}.")
        return self._core.scores_on_device(array)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_core"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._core = self._make_core()

    def __repr__(self) -> str:
        return f"<polyleaf.Predictor of {self._model!r}>"


def _number_categories(mapper: BinMapper) -> dict[int, dict[Category, float]]:
    """Return the number of each category: itself if all of a feature are numbers, else its code."""
    numbers: dict[int, dict[Category, float]] = {}
    for feature in np.flatnonzero(mapper.is_categorical_).tolist():
        codes = mapper.category_codes(feature)
        has_text = any(isinstance(category, str) for category in codes)
        numbers[feature] = {c: float(code if has_text else c) for c, code in codes.items()}
    return numbers


def _code_table(
    feature: int, numbers: dict[Category, float], mapper: BinMapper
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return a feature, the numbers of its categories, ascending, and their codes."""
    codes = mapper.category_codes(feature)
    pairs = sorted({number: codes[category] for category, number in numbers.items()}.items())
    values = np.array([number for number, _ in pairs], np.float64)
    return feature, values, np.array([code for _, code in pairs], np.uint8)
