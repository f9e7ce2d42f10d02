"""Offsets: scores that rows start from, which no tree has to learn.

Owns their shapes, and which data of a training must have them. Must not know objectives, or what becomes of
the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.inputs.frames import check_in_memory
from polyleaf.inputs.objects import find_non_number, replace_nulls_with_nan, what
from polyleaf.inputs.targets import TargetEncoding, to_numpy

__all__ = ["OffsetReader", "check_all_or_none"]


@dataclass(frozen=True)
class OffsetReader:
    """How the offsets of one model are read.

    Attributes
    ----------
    encoding : TargetEncoding
    n_scores : int
        Raw scores of a row.
    moved : tuple of bool
        Of the raw scores of each column of y, which its offset moves: all levels of quantiles, but of a mean
        and a spread the mean.
    """

    encoding: TargetEncoding
    n_scores: int
    moved: tuple[bool, ...]

    def read(
        self, offset: Any, n_rows: int | None = None, name: str = "offset"
    ) -> NDArray[np.float64]:
        """Offsets in the unit of raw scores, (n_rows, n_scores).

        Parameters
        ----------
        offset : array-like or data frame of shape (n_rows,) or (n_rows, n_columns)
        n_rows : int, optional
            Of what they belong to.
        name : str
            What messages call them.

        Raises
        ------
        ValueError
            Where the shape is another, or numbers are not finite.
        """
        self.encoding.check_offset_names(offset, name)
        values = _numbers(to_numpy(offset, name), name)
        if values.ndim not in (1, 2):
            raise ValueError(
                f"{name} must have shape {self._shapes('n_rows')}, got {values.shape}."
            )
        if n_rows is not None and len(values) != n_rows:
            raise ValueError(f"{name} has {len(values)} rows, but X has {n_rows}.")
        columns = values[:, None] if values.ndim == 1 else values
        n_columns = self.n_scores // len(self.moved)
        if columns.shape[1] == 1 and n_columns > 1:
            self._refuse_one_for_classes(name)
            columns = np.broadcast_to(columns, (len(columns), n_columns))
        if columns.shape[1] != n_columns:
            raise ValueError(
                f"{name} has shape {values.shape}, but must have shape {self._shapes(len(values))}."
                + (" It moves all quantiles of a target alike." if sum(self.moved) > 1 else "")
            )
        moves = np.where(self.moved, columns[:, :, None], 0.0).reshape(len(columns), self.n_scores)
        return np.ascontiguousarray(moves)  # columns of a data frame lie one after the other

    def _refuse_one_for_classes(self, name: str) -> None:
        if self.encoding.kind == "multiclass":
            raise ValueError(
                f"{name} has one number a row, which raises the scores of all classes alike and so changes "
                f"nothing: give one for each class, of shape (n_rows, {self.n_scores}), in the order of "
                "classes_."
            )

    def _shapes(self, n_rows: int | str) -> str:
        n_columns = self.n_scores // len(self.moved)
        for_all = [] if self.encoding.kind == "multiclass" else [f"({n_rows},)"]
        return " or ".join([*for_all, f"({n_rows}, {n_columns})"])


def check_all_or_none(names: Sequence[str], have: Sequence[bool], is_continued: bool) -> None:
    """Data of one training have offsets all, or none has.

    Parameters
    ----------
    names : sequence of str
        Of the data; the first is what is trained on.
    have : sequence of bool
        Which of them have offsets.
    is_continued : bool
        The model to go on from was trained with offsets.
    """
    if is_continued and not have[0]:
        raise ValueError(
            "The model to go on from was trained with an offset for each row: pass offset (zeros, where rows "
            "have none)."
        )
    for name, has in zip(names[1:], have[1:], strict=True):
        if has != have[0]:
            raise ValueError(
                f"The training rows have {'an' if have[0] else 'no'} offset, but the evaluation set "
                f"{name!r} has {'one' if has else 'none'}: pass offset and eval_offset (offset_val), or "
                "neither. Zeros are no offset."
            )


def _numbers(values: Any, name: str) -> NDArray[np.float64]:
    check_in_memory(values, name)
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        given = replace_nulls_with_nan(np.asarray(given, dtype=object))
        place = find_non_number(given)
        if place is not None:
            raise ValueError(
                f"{name} holds {what(given[place])} in row {place[0]}, which is no number."
            )
    numbers = given.astype(np.float64)
    with np.errstate(over="ignore"):
        finite = np.isfinite(numbers.astype(np.float32))  # which scores are summed in
    if not finite.all():
        row = int(np.argwhere(~finite)[0][0])
        raise ValueError(
            f"{name} holds {numbers[row] if numbers.ndim == 1 else numbers[row].tolist()} in row {row}: "
            "offsets must be finite (the logarithm of an exposure of 0 is not), and no larger than float32 "
            "holds. Remove the row, or correct it."
        )
    return numbers
