"""The user's y and weights -> Target: what the loop learns, and how to turn its answers back into the
user's terms.

Owns the meaning of y: kinds of target, class labels, missing values, weights per row and per output. Must not
know objectives, trees or X, nor in which units outputs are learned (`units`).

Regression targets stay as they are, float64 if the user has float64: objectives take the base score off
before they round to float32. Where outputs are to be normalised they are kept as `(y - offset) / scale` in
float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import scipy.sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array

from polyleaf.inputs.frames import check_in_memory, check_unique_names
from polyleaf.inputs.objects import find_non_number, is_missing, replace_nulls_with_nan, what
from polyleaf.inputs.sparse import find_row, to_canonical_csr
from polyleaf.inputs.target_scaling import Normalize, check_total_weight, compute_target_scale
from polyleaf.inputs.validation import check_data

__all__ = [
    "Target",
    "TargetEncoding",
    "to_numpy",
    "check_same_rows",
    "encode_classification",
    "encode_evaluation_target",
    "encode_regression",
    "encode_sparse",
    "is_sparse",
    "read_labels",
    "negatives_per_positive",
]

Kind = Literal["regression", "binary", "multiclass", "multilabel"]

SMALL_N_CLASSES = 20  # that may be many for few rows, and meant


@dataclass(frozen=True)
class TargetEncoding:
    """How y was encoded: enough to encode further y alike and to decode predictions.

    Attributes
    ----------
    kind : {"regression", "binary", "multiclass", "multilabel"}
    n_outputs : int
        Columns of y; classes (multiclass). (Several quantiles make more raw scores than that per row.)
    one_dimensional : bool
        y had one dimension, so predictions have.
    classes : ndarray of shape (n_classes,) or None
        Sorted labels; `arange(n_outputs)` for multi-label; None for regression.
    output_names : tuple of str or None
        Column names, where y was a data frame.
    offset, scale : ndarray of shape (n_outputs,), float64, or None
        In the unit of y; None where outputs are not normalised.
    one_vs_rest : bool
        Multi-class as an indicator matrix instead of class ids.
    missing : {"error", "ignore"}
    """

    kind: Kind
    n_outputs: int
    one_dimensional: bool
    classes: np.ndarray | None = None
    output_names: tuple[str, ...] | None = None
    offset: np.ndarray | None = None
    scale: np.ndarray | None = None
    one_vs_rest: bool = False
    missing: Literal["error", "ignore"] = "error"

    def encode(
        self, y: Any, sample_weight: Any = None, *, name: str = "y", normalized: bool = True
    ) -> Target:
        """Encode a further y (of validation data) as the training y was; `normalized=False`: in its own unit.

        Raises
        ------
        ValueError
            Where its shape differs, or it holds labels that training has not seen.
        """
        self.check_names(y, sample_weight, name)
        if self.kind == "regression":
            values = _regression_values(y, name, self.missing)
            self._check_shape(values.shape, name)
            values = values.reshape(len(values), -1)
            weight = _check_weight(sample_weight, len(values), self._weight_columns, name)
            return (
                self._scaled(values, weight) if normalized else _with_missing(values, weight, self)
            )
        if self.kind == "multilabel":
            values = _indicator_values(y, name, self.missing)
            self._check_shape(values.shape, name)
            return _with_missing(
                values, _check_weight(sample_weight, len(values), self.n_outputs, name), self
            )
        ids = self._class_ids(_label_vector(y, name), name)
        return self._with_ids(ids, _check_weight(sample_weight, len(ids), 0, name))

    def check_names(self, y: Any, sample_weight: Any, name: str) -> None:
        """Refuse columns of a further y, and of weights, that are not those of the training y, in order."""
        if not self.one_dimensional:
            _check_same_names(_names_given(y), self.output_names, name)
            _check_names_beside(sample_weight, self.output_names, f"sample_weight of {name}")

    def check_offset_names(self, offset: Any, name: str) -> None:
        """Refuse columns of offsets that are those of y, or the classes, in another order."""
        is_classes = self.kind == "multiclass" and self.classes is not None
        known = tuple(map(str, self.classes.tolist())) if is_classes else self.output_names  # type: ignore[union-attr]
        _check_names_beside(offset, known, name)

    @property
    def _weight_columns(self) -> int:
        """Columns that weights may have; 0: one weight per row only."""
        return 0 if self.one_dimensional else self.n_outputs

    def _check_shape(self, shape: tuple[int, ...], name: str) -> None:
        expected = 1 if self.one_dimensional else self.n_outputs
        found = 1 if len(shape) == 1 else shape[1]
        if found != expected:
            raise ValueError(
                f"{name} has {found} column(s), but the model was fitted on {expected}."
            )

    def _class_ids(self, labels: np.ndarray, name: str) -> np.ndarray:
        assert self.classes is not None
        present, inverse = _unique(labels, name)
        position = {label: i for i, label in enumerate(self.classes.tolist())}
        unseen = [label for label in present.tolist() if label not in position]
        if unseen:
            known = ", ".join(map(repr, self.classes[:10].tolist())) + (
                ", ..." if len(self.classes) > 10 else ""
            )
            raise ValueError(
                f"{name} holds the label {unseen[0]!r}, which the training labels do not ({known}). "
                "Remove those rows, or train on data that has every class."
            )
        return np.array([position[label] for label in present.tolist()], np.int32)[inverse]

    def _with_ids(self, ids: np.ndarray, weight: np.ndarray | None) -> Target:
        if self.kind == "binary":
            return Target(ids.astype(np.float32)[:, None], weight, self)
        if self.one_vs_rest:
            return Target(np.eye(self.n_outputs, dtype=np.float32)[ids], weight, self)
        return Target(ids, weight, self)

    def _scaled(self, values: np.ndarray, weight: np.ndarray | None) -> Target:
        if self.offset is not None and self.scale is not None:
            # A block of rows at a time: a float64 copy of y may be large.
            encoded = np.empty(values.shape, np.float32)
            for start in range(0, len(values), 1 << 16):
                rows = slice(start, start + (1 << 16))
                encoded[rows] = (values[rows] - self.offset) / self.scale
            values = encoded
        return _with_missing(values, weight, self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, for a model file.

        Raises
        ------
        ValueError
            When class labels are of a type that JSON cannot hold.
        """
        return {
            "kind": self.kind,
            "n_outputs": self.n_outputs,
            "one_dimensional": self.one_dimensional,
            # Those of labels are their numbers, which may be a million.
            "classes": None
            if self.classes is None or self.kind == "multilabel"
            else _labels_to_json(self.classes),
            "output_names": None if self.output_names is None else list(self.output_names),
            "offset": None if self.offset is None else self.offset.tolist(),
            "scale": None if self.scale is None else self.scale.tolist(),
            "one_vs_rest": self.one_vs_rest,
            "missing": self.missing,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], n_scores: int) -> TargetEncoding:
        """The inverse of :meth:`to_dict`, for fields of any origin.

        Parameters
        ----------
        fields : mapping
        n_scores : int
            Raw scores of the model: it has no more outputs than these.

        Raises
        ------
        ValueError
            Where they do not say how a target was encoded.
        """
        kind: Any = fields.get("kind")
        n_outputs: Any = fields.get("n_outputs")
        _require(kind in get_args(Kind), "kind", f"is one of {', '.join(get_args(Kind))}")
        within = type(n_outputs) is int and 1 <= n_outputs <= n_scores
        _require(within, "n_outputs", f"is a number from 1 to {n_scores}")
        for name in ("one_dimensional", "one_vs_rest"):
            _require(type(fields.get(name)) is bool, name, "is true or false")
        _require(fields.get("missing") in ("error", "ignore"), "missing", 'is "error" or "ignore"')
        encoding = cls(
            kind=kind,
            n_outputs=n_outputs,
            one_dimensional=fields["one_dimensional"],
            classes=_stored_classes(kind, n_outputs, fields.get("classes")),
            output_names=_stored_names(fields.get("output_names"), n_outputs),
            offset=_stored_numbers(fields, "offset", n_outputs),
            scale=_stored_numbers(fields, "scale", n_outputs),
            one_vs_rest=fields["one_vs_rest"],
            missing=fields["missing"],
        )
        encoding._check_agreement()
        return encoding

    def _check_agreement(self) -> None:
        """Of what was read: of each kind of target there is one shape, and units go together."""
        flat = {"multilabel": False, "regression": self.one_dimensional}.get(self.kind, True)
        _require(self.one_dimensional == flat, "one_dimensional", f"is {flat} for {self.kind}")
        alone = self.kind == "multiclass" or not self.one_dimensional or self.n_outputs == 1
        _require(alone, "n_outputs", "is 1 where y has one dimension")
        together = (self.offset is None) == (self.scale is None)
        _require(together, "offset", "goes with the scale")
        _require(self.scale is None or bool((self.scale > 0).all()), "scale", "is above 0")


@dataclass(frozen=True)
class Target:
    """An encoded target.

    Attributes
    ----------
    values : ndarray or csr_matrix
        `(n_rows, n_outputs)`, float32 or (regression) float64; int32 `(n_rows,)` class ids for multi-class.
        Missing values are 0. From `encode_sparse`: a float32 csr_matrix, canonical.
    weight : ndarray of float32 or None
        `(n_rows,)` or `(n_rows, n_outputs)`; None: one everywhere. Zero where a value is missing.
    encoding : TargetEncoding
    """

    values: Any
    weight: np.ndarray | None
    encoding: TargetEncoding

    @property
    def n_rows(self) -> int:
        return self.values.shape[0]

    def take(self, rows: np.ndarray) -> Target:
        """The target of some rows."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, values=self.values[rows], weight=weight)

    def subtract_offset(self, offset: np.ndarray) -> Target:
        """What is left to learn of numbers of which `offset` (n_rows, n_outputs), in the unit of y, is known;
        float64."""
        scale = 1.0 if self.encoding.scale is None else self.encoding.scale
        return replace(self, values=self.values - offset / scale)

    def to_target_scale(self) -> Any:
        """The values as metrics read them."""
        encoding = self.encoding
        if encoding.scale is None:
            return self.values
        return self.values * encoding.scale + encoding.offset

    def get_row_classes(self) -> np.ndarray | None:
        """A number for the class of each row; None where rows have no class, or several labels."""
        if self.encoding.kind == "binary":
            return self.values[:, 0]
        if self.encoding.kind != "multiclass":
            return None
        return self.values if self.values.ndim == 1 else self.values.argmax(axis=1)

    def to_indicators(self) -> Any:
        """What projections learn from: outputs, labels, or classes as sparse indicators."""
        if self.values.ndim == 2:
            return self.values
        n, ones = self.n_rows, np.ones(self.n_rows, np.float32)
        return scipy.sparse.csr_matrix(
            (ones, (np.arange(n), self.values)), (n, self.encoding.n_outputs)
        )

    def get_indicator_weights(self) -> np.ndarray | None:
        """Weights of the rows, or of each column of `indicators`."""
        return self.weight

    def get_indicator_names(self) -> list[str]:
        """What columns of `indicators` are called; numbers, where they have no names."""
        encoding = self.encoding
        if encoding.output_names is not None:
            return list(encoding.output_names)
        if encoding.classes is not None:
            return [str(label) for label in encoding.classes]
        return [str(k) for k in range(encoding.n_outputs)]


def encode_regression(
    y: Any,
    sample_weight: Any = None,
    *,
    missing: Literal["error", "ignore"] = "error",
    normalize: Normalize = False,
) -> Target:
    """Encode a regression target.

    Parameters
    ----------
    y : array-like or data frame of shape (n_rows,) or (n_rows, n_columns)
    sample_weight : array-like of shape (n_rows,) or (n_rows, n_columns), optional
    missing : {"error", "ignore"}
        Whether NaN in y is an error or a value of weight 0.
    normalize : bool or "auto"
        Whether outputs are learned in their own unit: see :func:`polyleaf.inputs.target_scaling.compute_target_scale`.

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        Where y or the weights are not what they should be.
    """
    values, one_dimensional = _ravel_column(_regression_values(y, "y", missing))
    names = None if one_dimensional else _column_names(y)
    columns = values[:, None] if values.ndim == 1 else values
    weight = _check_weight(
        sample_weight, len(values), 0 if one_dimensional else columns.shape[1], "y"
    )
    _check_names_beside(sample_weight, names, "sample_weight of y")
    _check_every_output_has_weight(columns, weight, names)
    offset, scale = compute_target_scale(columns, weight, normalize)
    encoding = TargetEncoding(
        kind="regression",
        n_outputs=columns.shape[1],
        one_dimensional=one_dimensional,
        output_names=names,
        offset=offset,
        scale=scale,
        missing=missing,
    )
    return encoding._scaled(columns, weight)


def encode_classification(
    y: Any,
    sample_weight: Any = None,
    *,
    class_weight: Any = None,
    missing: Literal["error", "ignore"] = "error",
    one_vs_rest: bool = False,
    two_scores: bool = False,
    like: TargetEncoding | None = None,
) -> Target:
    """Encode class labels (binary, multi-class) or an indicator matrix (multi-label).

    Parameters
    ----------
    y : array-like or data frame of shape (n_rows,), or indicator matrix (n_rows, n_labels)
        Indicator matrices may be sparse, of SciPy or of pandas' Sparse columns.
    sample_weight : array-like of shape (n_rows,), or (n_rows, n_labels) for multi-label, optional
    class_weight : dict {label: weight}, "balanced", or list of dicts (multi-label), optional
    missing : {"error", "ignore"}
        Whether NaN in a multi-label y is an error or a value of weight 0.
    one_vs_rest : bool
        Encode multi-class labels as an indicator matrix instead of class ids.
    two_scores : bool
        Encode two classes as class ids, too, as more of them are.
    like : TargetEncoding, optional
        Encode as an earlier y was, to go on with its model.

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        Where y or the weights are not what they should be.
    """
    if _is_multilabel(y, missing):
        return _encode_multilabel(y, sample_weight, class_weight, missing, like)
    labels = _label_vector(y, "y", warn=True)
    if missing == "ignore":
        raise ValueError(
            'missing_targets="ignore" is for regression and multi-label targets: '
            "a row whose only class is unknown teaches nothing, so remove it."
        )
    weight = _check_weight(sample_weight, len(labels), 0, "y")
    if like is None:
        classes, ids = _unique(labels, "y")
        _check_two_classes(classes, ids, weight)
        _check_class_count(classes, len(labels))
        encoding = _class_encoding(classes, one_vs_rest, two_scores)
    else:
        if like.kind == "multilabel":
            raise ValueError(
                "The model to go on from has several labels per row, but y is one-dimensional."
            )
        encoding, ids = like, like._class_ids(labels, "y")
    assert encoding.classes is not None
    factors = _class_factors(class_weight, encoding.classes, ids)
    if factors is not None:
        weight = _times(weight, factors[ids].astype(np.float32))
    return encoding._with_ids(ids.astype(np.int32), weight)


def encode_evaluation_target(
    y: Any, sample_weight: Any, *, name: str, like: TargetEncoding, is_sparse: bool
) -> Target:
    """Encode y of rows that are watched: as an earlier y was, in the unit of y.

    Parameters
    ----------
    y, sample_weight
        As those of `encode_sparse`, or of `TargetEncoding.encode`.
    name : str
        What messages call y.
    like : TargetEncoding
    is_sparse : bool
        Whether the earlier y was kept sparse.

    Raises
    ------
    ValueError
        Where y or the weights are not what they should be.
    """
    if not is_sparse:
        return like.encode(y, sample_weight, name=name, normalized=False)
    kind: Any = like.kind
    return encode_sparse(y, sample_weight, kind=kind, name=name, like=like)


def encode_sparse(
    y: Any,
    sample_weight: Any = None,
    *,
    kind: Literal["multilabel", "regression"],
    name: str = "y",
    like: TargetEncoding | None = None,
) -> Target:
    """Encode a target of which few values are not 0, without making it dense.

    Parameters
    ----------
    y : sparse matrix, array-like or data frame of shape (n_rows, n_outputs)
        Labels (0 and 1) or numbers. The order of entries does not matter; duplicates are refused.
    sample_weight : array-like of shape (n_rows,), optional
    kind : {"multilabel", "regression"}
    name : str
        What messages call y.
    like : TargetEncoding, optional
        Encode as an earlier y was.

    Returns
    -------
    Target
        Its values are a csr_matrix, float32, with ascending columns.

    Raises
    ------
    ValueError
        Where y or the weights are not what they should be.
    """
    values = to_canonical_csr(_sparse_matrix(y, name), name, repeated="refuse")
    n_rows, n_outputs = values.shape
    weight = _check_weight(sample_weight, n_rows, 0, name)
    if kind == "multilabel" and (values.data != 1).any():
        at = int(np.flatnonzero(values.data != 1)[0])
        cell = f"{name}[{find_row(values, at)}, {values.indices[at]}]"
        raise ValueError(f"{cell} is {values.data[at]:g}: an indicator matrix holds 0 and 1 only.")
    if like is not None:
        if like.kind != kind or like.one_dimensional:
            raise ValueError(
                f"The model was fitted on another kind of target than {name}, which is {kind}."
            )
        like._check_shape(values.shape, name)
        like.check_names(y, None, name)
        return Target(values, weight, like)
    if values.nnz == 0:
        raise ValueError(f"{name} holds nothing but zeros, so there is nothing to learn.")
    names = None if scipy.sparse.issparse(y) else _column_names(y)
    classes = np.arange(n_outputs) if kind == "multilabel" else None
    return Target(
        values, weight, TargetEncoding(kind, n_outputs, False, classes=classes, output_names=names)
    )


def _class_encoding(classes: np.ndarray, one_vs_rest: bool, two_scores: bool) -> TargetEncoding:
    binary = len(classes) == 2 and not two_scores
    return TargetEncoding(
        kind="binary" if binary else "multiclass",
        n_outputs=1 if binary else len(classes),
        one_dimensional=True,
        classes=classes,
        one_vs_rest=one_vs_rest and not binary,
    )


def _encode_multilabel(
    y: Any,
    sample_weight: Any,
    class_weight: Any,
    missing: Literal["error", "ignore"],
    like: TargetEncoding | None,
) -> Target:
    values = _indicator_values(y, "y", missing)
    n_labels = values.shape[1]
    weight = _check_weight(sample_weight, len(values), n_labels, "y")
    names = _column_names(y)
    _check_names_beside(sample_weight, names, "sample_weight of y")
    _check_every_output_has_weight(values, weight, names)
    if like is not None:
        if like.kind != "multilabel":
            raise ValueError(
                "The model to go on from has one class per row, but y is an indicator matrix."
            )
        like._check_shape(values.shape, "y")
        like.check_names(y, None, "y")
    encoding = like or TargetEncoding(
        kind="multilabel",
        n_outputs=n_labels,
        one_dimensional=False,
        classes=np.arange(n_labels),
        output_names=names,
        missing=missing,
    )
    negative, positive = _label_factors(class_weight, values, names)
    if np.any(negative != 1) or np.any(positive != 1):
        weight = _times(weight, np.where(values == 1, positive, negative).astype(np.float32))
    return _with_missing(values, weight, encoding)


# --- reading y ---


def is_sparse(y: Any) -> bool:
    """Whether only what is not 0 is stored: matrices of SciPy, and frames of pandas' Sparse columns alone."""
    if scipy.sparse.issparse(y):
        return True
    if not hasattr(y, "iloc") or np.ndim(y) != 2 or len(y.dtypes) == 0:
        return False
    return all(_is_sparse_type(dtype) and dtype.fill_value == 0 for dtype in y.dtypes)


def read_labels(y: Any, name: str = "y") -> np.ndarray:
    """Class labels (n_rows,) as a training reads them: Python objects and types of pandas as those of NumPy.

    Raises
    ------
    ValueError
        Where there is not one label for each row.
    """
    return _label_vector(y, name)


def check_same_rows(n_rows: int, of_target: int, called: str = "y") -> None:
    """ValueError unless features and target have as many rows."""
    if n_rows != of_target:
        raise ValueError(f"X has {n_rows} rows, {called} has {of_target}.")


def to_numpy(y: Any, name: str = "y") -> Any:
    """SciPy, polars and Arrow as NumPy; pandas as it is, because check_array knows its missing values."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    check_in_memory(y, name)
    y = check_data(y, name)
    if scipy.sparse.issparse(y):
        return y.toarray()
    check_unique_names(_column_names(y), name)
    if hasattr(y, "iloc"):
        return _densely(y)
    if hasattr(y, "column_names") and hasattr(y, "columns"):  # an Arrow table
        return np.column_stack([np.asarray(column) for column in y.columns])
    try:
        return np.asarray(y)
    except ValueError:
        raise ValueError(
            f"{name} holds lists of different lengths. Several labels per row go into an indicator matrix of "
            "0 and 1: sklearn.preprocessing.MultiLabelBinarizer makes one."
        ) from None


def _is_sparse_type(dtype: Any) -> bool:
    """By its name, so that pandas need not be there."""
    return type(dtype).__name__ == "SparseDtype"


def _densely(y: Any) -> Any:
    """A series or frame of pandas without Sparse columns."""
    if np.ndim(y) == 1:
        return y.astype(y.dtype.subtype) if _is_sparse_type(y.dtype) else y
    subtypes = {name: dtype.subtype for name, dtype in y.dtypes.items() if _is_sparse_type(dtype)}
    return y.astype(subtypes) if subtypes else y


def _sparse_matrix(y: Any, name: str) -> Any:
    """y as SciPy has it, or a dense matrix of which few values are not 0."""
    if scipy.sparse.issparse(y):
        return y
    if is_sparse(y):
        check_unique_names(_column_names(y), name)
        return y.sparse.to_coo()
    return _indicators(to_numpy(y, name), name)


def _column_names(y: Any) -> tuple[str, ...] | None:
    columns = getattr(y, "column_names", getattr(y, "columns", None))  # Arrow; pandas, polars
    return None if columns is None else tuple(str(column) for column in columns)


def _names_given(data: Any) -> tuple[str, ...] | None:
    """Names of the columns of y or of weights, where somebody gave them: not the numbers of pandas."""
    names = _column_names(data)
    return None if names is None or names == tuple(map(str, range(len(names)))) else names


def _check_same_names(
    names: tuple[str, ...] | None, known: tuple[str, ...] | None, what: str
) -> None:
    if names is None or known is None or names == known:
        return
    is_permuted = sorted(names) == sorted(known)
    if known == tuple(map(str, range(len(known)))) and not is_permuted:
        return  # the numbers of pandas, which others may have named
    if is_permuted:
        raise ValueError(
            f"The columns of {what} are those of the training y in another order, "
            f"{_some(names)} for {_some(known)}: reorder them."
        )
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise ValueError(
            f"{what} has a column {unknown!r}, which the training y does not have: its columns are "
            f"{_some(known)}, and have to come in this order."
        )


def _check_names_beside(data: Any, known: tuple[str, ...] | None, what: str) -> None:
    """Weights and offsets may have names of their own, but not those of y at other places."""
    names = None if data is None else _names_given(data)
    if names is not None and known is not None and set(names) & set(known):
        _check_same_names(names, known, what)


def _indicators(y: Any, name: str) -> np.ndarray:
    """A dense matrix of which few values are not 0."""
    if np.ndim(y) == 1:
        raise ValueError(
            f"{name} has one dimension, but where it stays sparse it is a matrix (n_rows, n_outputs), of "
            "classes an indicator matrix, which sklearn.preprocessing.LabelBinarizer(sparse_output=True) "
            'makes; or set split_search="auto".'
        )
    return _finite(y, name, "error", np.float32)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")


def _finite(y: Any, name: str, missing: str, dtype: Any) -> np.ndarray:
    """scikit-learn's checks and wording: at most two dimensions, at least one row, finite."""
    finite: bool | Literal["allow-nan"] = "allow-nan" if missing == "ignore" else True
    try:
        return check_array(
            y,
            dtype=dtype,
            ensure_2d=False,
            ensure_all_finite=finite,
            input_name=name,
            ensure_min_features=0,
        )
    except ValueError as error:
        if missing == "error" and f"Input {name} contains NaN" in str(error):
            raise ValueError(
                f'Input {name} contains NaN. Remove those rows, or set missing_targets="ignore" '
                "(regression and multi-label) to learn from the values that are there."
            ) from None
        raise


def _regression_values(y: Any, name: str, missing: str) -> np.ndarray:
    given, dtypes = to_numpy(y, name), [np.float64, np.float32]
    if np.ndim(given) == 0:
        raise ValueError(
            f"{name} is {y!r}, which is no array: pass the values, such as the column of that name."
        )
    _refuse_dates(given, name)
    try:
        values = _finite(given, name, missing, dtypes)
    except (TypeError, ValueError):
        if np.asarray(given).dtype.kind not in "OUST":
            raise
        objects = replace_nulls_with_nan(np.asarray(given, dtype=object))
        place = find_non_number(objects)
        if place is not None:
            raise ValueError(_not_a_number(objects[place], place, name)) from None
        values = _finite(objects.astype(np.float64), name, missing, dtypes)
    if values.ndim > 2 or (values.ndim == 2 and values.shape[1] == 0):
        raise ValueError(
            f"{name} must have shape (n_rows,) or (n_rows, n_outputs), got {values.shape}."
        )
    return values


def _not_a_number(value: Any, place: tuple[int, ...], name: str) -> str:
    """A sentence about what a regressor cannot learn."""
    where = f"row {place[0]}" + "".join(f", column {column}" for column in place[1:])
    if isinstance(value, str):
        return (
            f"{name} holds the text {value!r} in {where}, and a regressor learns numbers: use "
            "PolyleafClassifier for labels, or correct the cell."
        )
    if isinstance(value, list | tuple | np.ndarray):
        return (
            f"{name} holds {what(value)} in {where}: several targets go into a matrix (n_rows, n_outputs), "
            f"as numpy.stack({name}) makes one."
        )
    return f"{name} holds {what(value)} in {where}, which is no number: convert it (a date to days, say)."


def _refuse_dates(values: Any, name: str) -> None:
    """Times would be taken for numbers of nanoseconds."""
    of_columns = getattr(values, "dtypes", None) if np.ndim(values) == 2 else None
    dtypes = [getattr(values, "dtype", None)] if of_columns is None else list(of_columns)
    if any(getattr(dtype, "kind", "") in ("m", "M") for dtype in dtypes):
        raise ValueError(
            f"{name} holds dates or times, which are not numbers. Convert them, for example to days: "
            "(y - y.min()) / numpy.timedelta64(1, 'D')."
        )


def _is_multilabel(y: Any, missing: str) -> bool:
    y = to_numpy(y)
    shape = np.shape(y)
    if len(shape) > 2:
        raise ValueError(f"y must have shape (n_rows,) or (n_rows, n_labels), got {shape}.")
    if len(shape) != 2 or shape[1] <= 1:
        return False
    if missing == "ignore":
        return True
    values = _plain(_finite(y, "y", missing, None))
    if values.dtype.kind in "biuf" and np.all((values == 0) | (values == 1)):
        return True
    kind = type_of_target(values)
    if kind == "multiclass-multioutput":
        raise ValueError(
            "y has several columns with other values than 0 and 1. Several labels per row go into an "
            "indicator matrix of 0 and 1 (sklearn.preprocessing.MultiLabelBinarizer makes one); several "
            "multi-class targets need one model each (sklearn.multioutput.MultiOutputClassifier)."
        )
    check_classification_targets(values)
    return True


def _indicator_values(y: Any, name: str, missing: str) -> np.ndarray:
    values = _finite(to_numpy(y, name), name, missing, np.float32)
    if values.ndim != 2:
        raise ValueError(
            f"{name} must be an indicator matrix (n_rows, n_labels), got shape {values.shape}."
        )
    wrong = ~((values == 0) | (values == 1) | np.isnan(values))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{name}[{row}, {column}] is {values[row, column]:g}: an indicator matrix holds 0 and 1 only."
        )
    return values


def _label_vector(y: Any, name: str, warn: bool = False) -> np.ndarray:
    given = to_numpy(y, name)
    values = np.asarray(given)
    _check_labels(values, name)
    values = _plain(values)
    # Numbers and booleans stay what they are, also those of pandas' own dtypes.
    labels = _finite(values if values.dtype.kind in "iubf" else given, name, "error", None)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = _ravel_column(labels)[0] if warn else labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label per row, got shape {labels.shape}.")
    return labels


def _plain(values: np.ndarray) -> np.ndarray:
    """Objects that are numbers or booleans, as pandas has them where something was missing, as such."""
    numbers = int | float | np.integer | np.floating | np.bool_
    if values.dtype != object or not all(isinstance(v, numbers) for v in values.ravel().tolist()):
        return values
    return np.array(values.tolist())


def _check_labels(labels: np.ndarray, name: str) -> None:
    """A sentence about the first that is missing; of Python objects, about the first that is no label."""
    if labels.dtype.kind in "mM":
        raise ValueError(
            f"{name} holds dates or times: labels are text, numbers or booleans, so convert them to text "
            f"({name}.astype(str))."
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        _refuse_no_label(int(np.isnan(labels.ravel()).argmax()), name)
    if labels.dtype != object or labels.ndim != 1:
        return
    for row, label in enumerate(labels.tolist()):
        if is_missing(label):
            _refuse_no_label(row, name)
        if isinstance(label, list | tuple | set | np.ndarray):
            raise ValueError(
                f"{name} holds {what(label)} in row {row}. Several labels per row go into an indicator "
                "matrix of 0 and 1: sklearn.preprocessing.MultiLabelBinarizer makes one."
            )
        is_time = isinstance(label, np.datetime64 | np.timedelta64)
        if is_time or not isinstance(label, str | bytes | Number | np.generic):
            raise ValueError(
                f"{name} holds {what(label)} in row {row}: labels are text, numbers or booleans, so convert "
                "them to text."
            )


def _refuse_no_label(row: int, name: str) -> NoReturn:
    raise ValueError(
        f"Input {name} contains NaN: row {row} has no label. A row whose only class is unknown teaches "
        "nothing, so remove it."
    )


def _unique(labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes, and the class number of each row."""
    try:
        if labels.dtype.kind in "OUS":  # many times faster than sorting a million strings
            rows = labels.tolist()
            classes = np.array(sorted(set(rows)), dtype=labels.dtype)
            number = {label: i for i, label in enumerate(classes.tolist())}
            ids = np.fromiter(map(number.__getitem__, rows), np.int64, len(rows))
        else:
            classes, ids = np.unique(labels, return_inverse=True)
    except TypeError:
        types = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(
            f"{name} mixes labels of types {', '.join(types)}; use one type."
        ) from None
    # Each class three times: of mostly distinct labels scikit-learn would warn that they may be continuous.
    check_classification_targets(np.repeat(classes, 3))
    return classes, ids


def _ravel_column(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """A column vector becomes one-dimensional, with scikit-learn's warning."""
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
            "(n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=6,
        )
        values = values[:, 0]
    return values, values.ndim == 1


def _with_missing(
    values: np.ndarray, weight: np.ndarray | None, encoding: TargetEncoding
) -> Target:
    """NaN becomes value 0 of weight 0."""
    if encoding.missing == "error" or not np.isnan(values).any():
        return Target(values, weight, encoding)
    there = ~np.isnan(values)
    if encoding.n_outputs == 1:
        weight = _times(weight, there[:, 0].astype(np.float32))
    else:
        weight = _times(weight, there.astype(np.float32))
    return Target(np.where(there, values, values.dtype.type(0)), weight, encoding)


# --- weights ---


def weight_known_targets(y: Any, sample_weight: Any) -> Any:
    """What rows count for where bins are chosen: their weights, for each target that is known.

    Parameters
    ----------
    y : array-like or None
        As given to a `Dataset`. NaN among numbers is not known; what else stands there is all known.
    sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), or None

    Returns
    -------
    array-like or None
        `sample_weight` itself where all targets are known, or none is.
    """
    known = find_known_targets(y)
    if known is None or known.all() or not known.any():
        return sample_weight
    return mask_weights(known, sample_weight)


def find_known_targets(y: Any) -> np.ndarray | None:
    """Which targets are known, a bool for each; None where all are, whatever they hold."""
    if y is None or isinstance(y, Mapping) or is_sparse(y):
        return None
    values = np.asarray(y)
    return None if values.dtype.kind != "f" else ~np.isnan(values)


def mask_weights(known: np.ndarray, sample_weight: Any) -> np.ndarray:
    """`weight_known_targets` where some are."""
    if sample_weight is None:
        return known.astype(np.float32)
    weight = np.asarray(sample_weight, np.float32)
    return (weight[:, None] if weight.ndim < known.ndim else weight) * known


def _check_weight(sample_weight: Any, n_rows: int, n_columns: int, name: str) -> np.ndarray | None:
    """float32 `(n_rows,)` or, where `n_columns` > 0 allows it, `(n_rows, n_columns)`."""
    if sample_weight is None:
        return None
    sample_weight = to_numpy(sample_weight, "sample_weight")
    if np.ndim(sample_weight) == 0:
        sample_weight = np.full(n_rows, sample_weight)
    if np.asarray(sample_weight).dtype.kind in "US":
        raise ValueError(
            "sample_weight holds text, but must hold numbers: weights of classes are class_weight."
        )
    weight = check_array(
        sample_weight,
        dtype=np.float32,
        ensure_2d=False,
        ensure_min_features=0,
        input_name="sample_weight",
    )
    allowed = [(n_rows,)] + ([(n_rows, n_columns)] if n_columns else [])
    if weight.shape not in allowed:
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but {name} needs {' or '.join(map(str, allowed))}."
        )
    if weight.min() < 0:
        raise ValueError(
            f"sample_weight contains negative values (row {int(np.argwhere(weight < 0)[0][0])})."
        )
    if not weight.any():
        raise ValueError("sample_weight is zero everywhere: at least one weight must not be zero.")
    check_total_weight(weight)
    return weight


def _times(weight: np.ndarray | None, factor: np.ndarray) -> np.ndarray:
    """The product of weights of shapes (n,) and (n, K)."""
    if weight is None:
        return factor
    if weight.ndim < factor.ndim:
        weight = weight[:, None]
    return weight * factor


def _check_every_output_has_weight(
    columns: np.ndarray, weight: np.ndarray | None, names: tuple[str, ...] | None
) -> None:
    there = ~np.isnan(columns)
    if weight is not None:
        there &= (weight if weight.ndim == 2 else weight[:, None]) > 0
    empty = np.flatnonzero(~there.any(axis=0))
    if len(empty):
        which = f"{names[empty[0]]!r}" if names else f"{empty[0]}"
        raise ValueError(
            f"Output {which} of y has no value of positive weight, so nothing can be learned for it: "
            "remove the column."
        )


def _check_two_classes(classes: np.ndarray, ids: np.ndarray, weight: np.ndarray | None) -> None:
    if len(ids) == 1:
        raise ValueError(
            "y has 1 sample (n_samples=1), hence one class: a classifier needs two classes at least."
        )
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only, {classes.tolist()[0]!r}: a classifier needs two classes at least."
        )
    if weight is not None:
        present = np.unique(ids[weight > 0])
        if len(present) < 2:
            raise ValueError(
                f"Only one class, {classes.tolist()[present[0]]!r}, has rows of positive weight: "
                "a classifier needs two classes at least."
            )


def _check_class_count(classes: np.ndarray, n_rows: int) -> None:
    if len(classes) > SMALL_N_CLASSES and 2 * len(classes) > n_rows:
        some = ", ".join(map(repr, classes[:3].tolist()))
        raise ValueError(
            f"y has {len(classes)} different labels ({some}, ...) in {n_rows} rows: almost as many classes "
            "as rows, of which none can be learned. Numbers are for PolyleafRegressor; a stray cell of text "
            "makes labels of them, so correct it. Of classes that are meant, keep those with several rows."
        )


# --- weights of classes ---


def negatives_per_positive(values: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Weight of the rows that a label does not hold for, over that of those it does: float64 (n_labels,); 1
    where one of them has none."""
    known = np.ones(values.shape) if weight is None else np.broadcast_to(weight.T, values.T.shape).T
    yes = (known * values).sum(axis=0, dtype=np.float64)
    no = known.sum(axis=0, dtype=np.float64) - yes
    return np.divide(no, yes, out=np.ones(len(yes)), where=(yes > 0) & (no > 0))


def _class_factors(class_weight: Any, classes: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
    """Weight factor of each class, float64 (n_classes,); None: one."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        return len(ids) / (len(classes) * np.bincount(ids, minlength=len(classes)))
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            'class_weight must be a dict {label: weight} or "balanced"; a list of dicts is for '
            "multi-label targets."
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise ValueError(f"class_weight names the label {unknown[0]!r}, which y does not hold.")
    return _check_factors([class_weight.get(label, 1.0) for label in labels], "class_weight")


def _of_labels(
    class_weight: Mapping[Any, Any], n_labels: int, names: tuple[str, ...] | None
) -> list[Mapping[Any, Any]]:
    """`{label: {0: weight, 1: weight}}` as a list with an entry for each label."""
    found: list[Mapping[Any, Any]] = [{}] * n_labels
    for label, weights in class_weight.items():
        at = names.index(label) if names and label in names else label
        if (
            not isinstance(at, int | np.integer)
            or not 0 <= at < n_labels
            or not isinstance(weights, Mapping)
        ):
            known = _some(names) if names else f"0 to {n_labels - 1}"
            raise ValueError(
                f"class_weight has {label!r}: {weights!r}; it must be {{label: {{0: weight, 1: weight}}}}, "
                f"and the labels of y are {known}."
            )
        found[at] = weights
    return found


def _label_factors(
    class_weight: Any, values: np.ndarray, names: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Weight factors of the values 0 and 1 of each label, two float64 arrays (n_labels,)."""
    n_labels = values.shape[1]
    if class_weight is None:
        return np.ones(n_labels), np.ones(n_labels)
    if isinstance(class_weight, str):
        known = np.count_nonzero(~np.isnan(values), axis=0)
        ones = np.count_nonzero(values == 1, axis=0)
        # A label with a single value has nothing to balance.
        both = (ones > 0) & (ones < known)
        negative = np.where(both, known / np.maximum(2 * (known - ones), 1), 1.0)
        return negative, np.where(both, known / np.maximum(2 * ones, 1), 1.0)
    if isinstance(class_weight, Mapping) and any(
        isinstance(w, Mapping) for w in class_weight.values()
    ):
        class_weight = _of_labels(class_weight, n_labels, names)
    weights = [class_weight] * n_labels if isinstance(class_weight, Mapping) else list(class_weight)
    if len(weights) != n_labels:
        raise ValueError(f"class_weight has {len(weights)} dicts, but y has {n_labels} labels.")
    unknown = [value for entry in weights for value in entry if value not in (0, 1)]
    if unknown:
        raise ValueError(
            f"class_weight of a multi-label target has keys 0 and 1, got {unknown[0]!r}."
        )
    negative = _check_factors([entry.get(0, 1.0) for entry in weights], "class_weight")
    return negative, _check_factors([entry.get(1, 1.0) for entry in weights], "class_weight")


def _check_factors(factors: Any, name: str) -> np.ndarray:
    array = np.asarray(factors, np.float64)
    if not np.all(np.isfinite(array) & (array >= 0)):
        raise ValueError(f"{name} must be finite and not negative, got {factors}.")
    return array


# --- labels in files ---


def _labels_to_json(classes: np.ndarray) -> dict[str, Any]:
    labels = classes.tolist()
    if classes.dtype.kind in "iufbU" or all(isinstance(label, str) for label in labels):
        return {
            "dtype": classes.dtype.str if classes.dtype.kind in "iufbU" else "object",
            "labels": labels,
        }
    raise ValueError(
        f"Class labels of type {type(labels[0]).__name__} cannot be written to a model file: "
        "use strings, numbers or booleans, or pickle the estimator."
    )


def _require(condition: bool, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"The model does not say how its target was encoded: {name!r} {what}.")


def _stored_classes(kind: Kind, n_outputs: int, fields: Any) -> np.ndarray | None:
    if kind == "regression":
        _require(fields is None, "classes", "belongs to classification")
        return None
    if kind == "multilabel":  # their numbers, which are not stored
        return np.arange(n_outputs)
    _require(isinstance(fields, Mapping), "classes", "has a dtype and labels")
    classes = _labels_from_json(fields)
    wanted = 2 if kind == "binary" else n_outputs
    _require(
        len(set(classes.tolist())) == len(classes) == wanted,
        "classes",
        f"has {wanted} different labels",
    )
    return classes


# NumPy gives every text the room of the longest: what labels may take for each character there is.
_BYTES_A_CHARACTER, _SPARE_BYTES = 64, 1 << 20


def _labels_from_json(fields: Mapping[str, Any]) -> np.ndarray:
    name: Any = fields.get("dtype")
    labels: Any = fields.get("labels")
    _require(
        isinstance(labels, list) and isinstance(name, str), "classes", "has a dtype and labels"
    )
    dtype = np.dtype(object) if name == "object" else np.dtype(name)
    is_text = dtype.kind in "OU"
    _require(is_text or dtype.kind in "iufb", "classes", "is text, numbers or booleans")
    of_kind = all(isinstance(label, str) == is_text for label in labels)
    plain = all(isinstance(label, (str, bool, int, float)) for label in labels)
    _require(of_kind and plain, "classes", "has labels of its dtype")
    characters = sum(len(label) + 1 for label in labels) if is_text else 0
    room = _SPARE_BYTES + _BYTES_A_CHARACTER * characters
    _require(
        dtype.kind != "U" or dtype.itemsize * len(labels) <= room, "classes", "has a text too wide"
    )
    classes = np.array(labels, dtype)
    _require(classes.tolist() == labels, "classes", "has labels that its dtype holds")
    return classes


def _stored_names(names: Any, n_outputs: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    is_list = isinstance(names, list) and len(names) == n_outputs
    _require(
        is_list and all(isinstance(name, str) for name in names),
        "output_names",
        f"has {n_outputs} texts",
    )
    return tuple(names)


def _stored_numbers(fields: Mapping[str, Any], name: str, n_outputs: int) -> np.ndarray | None:
    values: Any = fields.get(name)
    if values is None:
        return None
    is_list = isinstance(values, list) and len(values) == n_outputs
    numbers = is_list and all(isinstance(v, (int, float)) and bool(np.isfinite(v)) for v in values)
    _require(numbers, name, f"has {n_outputs} finite numbers")
    return np.array(values, np.float64)
