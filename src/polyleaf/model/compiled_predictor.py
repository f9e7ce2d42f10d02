"""A frozen model for rows of plain numbers: one call of the core from a row to its scores.

Owns: what such rows hold, and what comes out for one row and for several. Must not know: tables, estimators,
how the core predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf.data.binning import BinMapper, Category
from polyleaf.runtime.cuda import get_device
from polyleaf.runtime.device_arrays import as_device_array, is_device_array

__all__ = ["Predictor"]


class Predictor:
    """Predicts a row, or a few, without the checks and the reading that tables need. It may be called by
    several threads at a time, and does not change when the model it was made of is trained on.

    A row is a number for each feature: float32 or float64, NaN where it is missing. Infinities are not looked
    for: they are in the first and the last bin. A category that is a number stands for itself, one that is
    text by its code (`categories`).

    Parameters
    ----------
    model : Model
        Not to be changed from here on.
    finish : callable
        From raw scores (n_rows, n_scores), float64, to what a call gives.
    n_threads : int
        For several rows; one row is the work of one.
    device : {"cpu", "cuda"}, optional
        Where rows walk down the trees. None: on the processor. "cuda": on a card, for very many
        rows of a model whose leaves are constants; the same bits. Rows that lie on the card stay there.
    is_identity : bool
        Whether `finish` leaves the numbers as they are.

    Attributes
    ----------
    categories : dict of int -> dict
        For the number of each categorical feature: category -> the number that stands for it in a row.
    """

    def __init__(
        self,
        model: Any,
        finish: Callable[[np.ndarray], Any],
        n_threads: int = 1,
        device: str | None = None,
        is_identity: bool = False,
    ):
        if device not in (None, "cpu", "cuda"):
            raise ValueError(f'device={device!r} is not one of "cpu", "cuda".')
        if model.projection is not None:
            raise ValueError(
                "The model projects its features before the trees see them, which a predictor of plain rows "
                "does not: use predict."
            )
        if model.mapper.derived_columns_ is not None:
            raise ValueError(
                "The model looks up features of more than 255 categories in a table, which a predictor of "
                "plain rows does not: use predict."
            )
        self._model, self._finish, self._n_threads, self._device = model, finish, n_threads, device
        self._gives_scores = is_identity
        self.categories = _numbers_of_categories(model.mapper)
        self._core = self._made()

    def _made(self) -> _core.RowPredictor | _core.DevicePredictor:
        mapper, device = self._model.mapper, get_device(self._device)
        here = _core.RowPredictor(
            self._model.forest,
            mapper.bin_table,
            [_known(f, numbers, mapper) for f, numbers in self.categories.items()],
            self._model.base_score,
            self._model.target_scale,
            self._model.target_offset,
        )
        if device is None:
            return here
        if any(tree.kind != "dense" for tree in self._model.trees):
            raise ValueError(
                'device="cuda" predicts with leaves of constants, and this model has leaves of another kind: '
                'use device="cpu", which gives the same bits.'
            )
        return _core.DevicePredictor(device, here)

    def predict_raw(self, rows: Any) -> Any:
        """Raw scores, float64 (n_rows, n_scores), of rows (n_rows, n_features) or of one (n_features,); of
        rows that lie on the predictor's card an array there, which CuPy, PyTorch and JAX take by DLPack."""
        if is_device_array(rows):
            return self._raw_there(rows)
        if type(rows) is not np.ndarray or rows.dtype.char not in "fd":
            if scipy.sparse.issparse(rows):
                raise TypeError(
                    "A predictor takes rows of plain numbers, not a sparse matrix: pass rows.toarray(), or "
                    "use the estimator's predict, which takes it as it is."
                )
            rows = np.asarray(rows, np.float64)
        return self._core.scores(rows, self._n_threads)

    def __call__(self, rows: Any) -> Any:
        """Predict.

        Parameters
        ----------
        rows : array of shape (n_rows, n_features) or (n_features,)

        Returns
        -------
        ndarray, or dict of such
            As the method that it stands for gives it; of one row without its first axis. Of rows that lie
            on the predictor's card, an array there (n_rows, n_outputs) where predictions are raw scores as
            they are, such as means; what comes of scores by a link is computed in memory of this machine.

        Raises
        ------
        ValueError
            Where the number of features is not the model's.
        """
        if is_device_array(rows):
            there = self._raw_there(rows)
            return there if self._gives_scores else self._finish(there.read())
        found = self._finish(self.predict_raw(rows))
        if np.ndim(rows) > 1:
            return found
        return (
            {task: of_rows[0] for task, of_rows in found.items()}
            if isinstance(found, dict)
            else found[0]
        )

    def _raw_there(self, rows: Any) -> _core.DeviceArray:
        device = get_device(self._device)
        if device is None or not isinstance(self._core, _core.DevicePredictor):
            raise TypeError(
                'rows lie on a CUDA card: make the predictor with device="cuda", or pass a copy in memory of '
                "this machine."
            )
        array, expected = as_device_array(device, rows, "rows"), len(self._model.mapper.n_bins_)
        if array.ndim != 2 or array.shape[1] != expected:
            raise ValueError(
                f"Rows on a card must be an array (n_rows, {expected}), and these are {array.shape}."
            )
        return self._core.scores_on_device(array)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_core"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._core = self._made()

    def __repr__(self) -> str:
        return f"<polyleaf.Predictor of {self._model!r}>"


def _numbers_of_categories(mapper: BinMapper) -> dict[int, dict[Category, float]]:
    """What stands for each category: itself, where all of a feature are numbers, or its code."""
    found: dict[int, dict[Category, float]] = {}
    for feature in np.flatnonzero(mapper.is_categorical_).tolist():
        codes = mapper.category_codes(feature)
        text = any(isinstance(category, str) for category in codes)
        found[feature] = {c: float(code) if text else float(c) for c, code in codes.items()}
    return found


def _known(feature: int, numbers: dict[Category, float], mapper: BinMapper) -> tuple[int, Any, Any]:
    """Numbers of a feature, ascending, and their codes."""
    codes = mapper.category_codes(feature)
    pairs = sorted({number: codes[category] for category, number in numbers.items()}.items())
    values = np.array([number for number, _ in pairs], np.float64)
    return feature, values, np.array([code for _, code in pairs], np.uint8)
