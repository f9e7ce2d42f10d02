"""Offsets (base margins): raw scores that the rows start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.types import DataLike
from polyleaf.user_data.read_target import check_same_rows, to_numpy
from polyleaf.user_data.target import TargetEncoding
from polyleaf.user_data.validation import convert_objects, describe_type


@dataclass(frozen=True)
class OffsetReader:
    """Reader of the offsets of one model."""

    encoding: TargetEncoding  # encoding of the model's target
    n_scores: int  # raw scores per row
    # For the raw scores of one column of y: whether the offset is added. It is added to all
    # quantiles, but only to the location of a distribution.
    mask: tuple[bool, ...]

    def read(
        self, offset: DataLike, n_rows: int | None = None, name: str = "offset"
    ) -> NDArray[np.float64]:
        """Return offsets on the scale of raw scores, (n_rows, n_scores).

        Raises a ValueError for other shapes, and for values that are not finite numbers.

        `offset` (n_rows,) or (n_rows, n_columns): finite numbers. `n_rows`: rows of X. `name`: name
        of the offsets in error messages.
        """
        self.encoding.check_offset_names(offset, name)
        values = _to_finite_float64(to_numpy(offset, name), name)
        if values.ndim not in (1, 2):
            raise ValueError(
                f"{name} must have shape {self._describe_shapes('n_rows')}, got {values.shape}."
            )
        if n_rows is not None:
            check_same_rows(n_rows, len(values), name)
        columns = values[:, None] if values.ndim == 1 else values
        n_columns = self.n_scores // len(self.mask)
        if columns.shape[1] == 1 and n_columns > 1:
            if self.encoding.kind == "multiclass":
                raise ValueError(
                    f"{name} has one value per row, which is added to the scores of all classes "
                    "and so has no effect: pass one per class, of shape "
                    f"(n_rows, {self.n_scores}), in the order of classes_."
                )
            columns = np.broadcast_to(columns, (len(columns), n_columns))
        if columns.shape[1] != n_columns:
            raise ValueError(
                f"{name} must have shape {self._describe_shapes(len(values))}, got {values.shape}."
                + (" It is added to all quantiles of a target." if sum(self.mask) > 1 else "")
            )
        scores = np.where(self.mask, columns[:, :, None], 0.0).reshape(len(columns), self.n_scores)
        return np.ascontiguousarray(scores)  # a data frame may give Fortran order

    def _describe_shapes(self, n_rows: int | str) -> str:
        n_columns = self.n_scores // len(self.mask)
        one_column = [] if self.encoding.kind == "multiclass" else [f"({n_rows},)"]
        return " or ".join([*one_column, f"({n_rows}, {n_columns})"])


def check_all_or_none(names: Sequence[str], have: Sequence[bool], is_continued: bool) -> None:
    """Check that all data of a training have offsets, or none.

    `names`: names of the data; the first is the training data. `have`: whether each has offsets.
    `is_continued`: whether the training continues a model that was trained with offsets.
    """
    if is_continued and not have[0]:
        raise ValueError(
            "The model to continue was trained with offsets: pass offset (zeros for rows without "
            "one)."
        )
    for name, has in zip(names[1:], have[1:], strict=True):
        if has != have[0]:
            raise ValueError(
                f"The training rows have {'an' if have[0] else 'no'} offset, but the evaluation "
                f"set {name!r} has {'one' if has else 'none'}: pass offset and eval_offset "
                "(offset_val), or neither. A column of zeros stands for no offset."
            )


def _to_finite_float64(values: DataLike, name: str) -> NDArray[np.float64]:
    def describe(value: object, place: tuple[int, ...]) -> Exception:
        return ValueError(
            f"{name} holds {describe_type(value)} in row {place[0]}, which is not a number."
        )

    array = np.asarray(values)
    is_plain = array.dtype.kind in "biuf"
    numbers = array.astype(np.float64) if is_plain else convert_objects(array, describe)
    with np.errstate(over="ignore"):
        finite = np.isfinite(numbers.astype(np.float32))  # the dtype that scores are summed in
    if not finite.all():
        row = int(np.argwhere(~finite)[0][0])
        raise ValueError(
            f"{name} holds {numbers[row] if numbers.ndim == 1 else numbers[row].tolist()} in row "
            f"{row}: offsets must be finite (the logarithm of an exposure of 0 is not) and fit in "
            "float32. Remove the row, or correct it."
        )
    return numbers
