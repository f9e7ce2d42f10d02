"""`Target`: the encoded y and weights of a training, and how predictions are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import scipy.sparse

from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.checks import require_entry
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike, JsonObject
from polyleaf.user_data.read_target import (
    INDICATOR_RULE,
    check_column_order,
    check_n_classes,
    check_related_names,
    count_columns,
    get_class_names,
    get_column_names,
    get_given_names,
    has_columns,
    has_fractions,
    is_multilabel,
    ravel_column,
    read_indicators,
    read_labels,
    read_regression_values,
    read_shares,
    read_sparse_matrix,
    sort_classes,
    sort_classes_of_ranks,
)
from polyleaf.user_data.target_scaling import Normalize, compute_target_scale
from polyleaf.user_data.validation import abbreviate_names, find_row, to_canonical_csr
from polyleaf.user_data.weights import (
    check_outputs_have_weight,
    check_two_classes,
    compute_class_factors,
    compute_label_factors,
    multiply_weights,
    read_target_weight,
    read_weight,
    weight_shares,
)

Kind = Literal["regression", "binary", "multiclass", "multilabel"]
_KIND_NOUNS = {
    "regression": "numbers",
    "binary": "labels of two classes, one per row",
    "multiclass": "labels of several classes, one per row",
    "multilabel": "several labels per row",
}

MAX_GOALS = 1 << 16
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class TargetEncoding:
    """How y was encoded, to encode further data in the same way and to decode predictions."""

    kind: Kind  # {"regression", "binary", "multiclass", "multilabel"}: kind of target
    # Columns of y, or classes (multiclass). Several quantiles give more raw scores per row.
    n_outputs: int
    # whether y had one dimension or one column, so that predictions have one dimension
    one_dimensional: bool
    # (n_classes,), sorted labels; `arange(n_outputs)` for multi-label; None for regression
    classes: np.ndarray | None = None
    output_names: tuple[str, ...] | None = None  # column names if y was a data frame
    # offset, scale: (n_outputs,), target scaling: a value is `(y - offset) / scale`; None if
    # outputs are not scaled
    offset: np.ndarray | None = None
    scale: np.ndarray | None = None
    # whether multiclass labels are an indicator matrix instead of class ids
    one_vs_rest: bool = False
    # {"error", "ignore"}: whether NaN is an error or a value of weight 0
    missing: Literal["error", "ignore"] = "error"

    def encode(
        self,
        rows: RowData,
        *,
        name: str = "y",
        normalized: bool = True,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Target:
        """Encode further data as the training y was, without target scaling if not `normalized`.

        `rows`: target and weights as the user passed them. `ranks`: connection to the other rows.

        Raises a ValueError if the shape differs, or for labels that the training data did not have.
        """
        self.check_names(rows, name)
        y = rows.target
        if self.kind == "regression":
            values = read_regression_values(y, name, self.missing)
            self._check_shape(values.shape, name)
            n_weight_columns = 0 if self.one_dimensional else self.n_outputs
            columns = values.reshape(len(values), -1)
            read = read_weight(rows, columns, n_weight_columns, name, ranks)
            return self._scale_values(read, ranks) if normalized else _make_target(read, self)
        if self.kind == "multilabel":
            values = read_indicators(y, name, self.missing)
            self._check_shape(values.shape, name)
            read = read_weight(rows, values, self.n_outputs, name, ranks)
            return _make_target(read, self, ranks)
        if self.has_class_ids and has_columns(y):
            return self._encode_shares(rows, name, ranks)
        ids = self._encode_labels(read_labels(y, name), name)
        return self._encode_ids(read_weight(rows, ids, 0, name, ranks))

    def replace_missing(self, missing: Literal["error", "ignore"]) -> TargetEncoding:
        """Return the encoding with another rule for NaN; a class cannot be missing."""
        if self.kind not in ("regression", "multilabel"):
            return self
        return replace(self, missing=missing)

    def widen(
        self, rows: RowData, name: str = "y", ranks: Communicator = SINGLE_PROCESS
    ) -> tuple[TargetEncoding, np.ndarray]:
        """Return the encoding with the classes or columns of further data that it lacks, and the
        new position of each of its outputs, ascending; itself if these data do not extend it.

        Raises a ValueError for a third class.
        """
        old = np.arange(self.n_outputs)
        n_outputs = count_columns(rows.target)
        if self.kind in ("binary", "multiclass"):
            if n_outputs > self.n_outputs and self.has_class_ids:
                refuse("shares", "new_outputs")
            if n_outputs > 1:
                return self, old
            return self._widen_classes(read_labels(rows.target, name), name, ranks)
        if n_outputs <= self.n_outputs:
            return self, old
        names, known = get_given_names(rows.target), self.output_names
        if known is not None:
            if names is None or not set(known) <= set(names):
                return self, old
            places = np.array([names.index(column) for column in known])
            if (np.diff(places) <= 0).any():
                return self, old
            old = places
        offset, scale = self.offset, self.scale
        if offset is not None and scale is not None:
            if ranks.size > 1:
                raise ValueError(
                    f"{name} has new columns, and a model of scaled targets cannot be widened on "
                    "Dask: continue or refit its to_local()."
                )
            is_new = np.ones(n_outputs, bool)
            is_new[old] = False
            # Whether values may be missing is known when the widened y is encoded.
            values = read_regression_values(rows.target, name, "ignore")[:, is_new]
            numbers = np.empty((2, n_outputs))
            numbers[:, old] = offset, scale
            numbers[:, is_new] = compute_target_scale(RowData(values), True)
            offset, scale = numbers
        return replace(
            self,
            n_outputs=n_outputs,
            one_dimensional=False,
            classes=np.arange(n_outputs) if self.kind == "multilabel" else None,
            output_names=names,
            offset=offset,
            scale=scale,
        ), old

    def _widen_classes(
        self, labels: np.ndarray, name: str, ranks: Communicator
    ) -> tuple[TargetEncoding, np.ndarray]:
        assert self.classes is not None
        known = self.classes.tolist()
        present, _ = sort_classes_of_ranks(labels, name, ranks)
        new = [label for label in present.tolist() if label not in set(known)]
        is_text = isinstance(known[0], str)
        if not new or any(isinstance(label, str) != is_text for label in new):
            return self, np.arange(self.n_outputs)
        if self.kind == "binary":
            refuse(
                "two_classes",
                "new_outputs",
                name=name,
                label=repr(new[0]),
                classes=abbreviate_names(known),
            )
        added = np.array(new, present.dtype)
        classes, _ = sort_classes(np.concatenate([self.classes, added]), name)
        index = {label: i for i, label in enumerate(classes.tolist())}
        positions = np.array([index[label] for label in known])
        return replace(self, n_outputs=len(classes), classes=classes), positions

    def check_names(self, rows: RowData, name: str) -> None:
        """Raise a ValueError unless y and weights have the columns of the training y, in order."""
        if not self.one_dimensional:
            check_column_order(get_given_names(rows.target), self.output_names, name)
            check_related_names(rows.weight, self.output_names, f"sample_weight of {name}")

    def check_offset_names(self, offset: DataLike, name: str) -> None:
        """Raise a ValueError if offsets have columns of y, or classes, in another order."""
        known = self.output_names
        if self.kind == "multiclass" and self.classes is not None:
            known = tuple(map(str, self.classes.tolist()))
        check_related_names(offset, known, name)

    def _check_shape(self, shape: tuple[int, ...], name: str) -> None:
        expected = 1 if self.one_dimensional and not self.has_class_ids else self.n_outputs
        n_columns = 1 if len(shape) == 1 else shape[1]
        if n_columns != expected:
            raise ValueError(
                f"{name} has {n_columns} column(s), but the model was fitted on {expected}."
            )

    def _check_kind(self, is_same: bool, name: str, content: str) -> None:
        """Raise a ValueError for a target of another kind than the training y."""
        if not is_same:
            raise ValueError(
                f"{name} holds {content}, but the model was fitted on {_KIND_NOUNS[self.kind]}."
            )

    @property
    def has_class_ids(self) -> bool:
        """Whether a row has one class id, or shares of the classes, instead of indicators."""
        return self.kind == "multiclass" and not self.one_vs_rest

    def _encode_shares(
        self, rows: RowData, name: str, ranks: Communicator = SINGLE_PROCESS
    ) -> Target:
        assert self.classes is not None
        y = rows.target
        self._check_shape(np.shape(y), name)
        check_column_order(get_given_names(y), tuple(map(str, self.classes.tolist())), name)
        return Target(read_weight(rows, read_shares(y, name), 0, name, ranks), self)

    def _encode_labels(self, labels: np.ndarray, name: str) -> np.ndarray:
        assert self.classes is not None
        present, inverse = sort_classes(labels, name)
        index = {label: i for i, label in enumerate(self.classes.tolist())}
        unseen = [label for label in present.tolist() if label not in index]
        if unseen:
            raise ValueError(
                f"{name} has the label {unseen[0]!r}, but the training labels are "
                f"{abbreviate_names(self.classes.tolist())}. Remove those rows, or train on data "
                "that has every class."
            )
        return np.array([index[label] for label in present.tolist()], np.int32)[inverse]

    def _encode_ids(self, rows: RowData) -> Target:
        ids = rows.target
        if self.kind == "binary":
            rows = rows.replace(target=ids.astype(np.float32)[:, None])
        elif self.one_vs_rest:
            rows = rows.replace(target=np.eye(self.n_outputs, dtype=np.float32)[ids])
        return Target(rows, self)

    def _scale_values(self, rows: RowData, ranks: Communicator = SINGLE_PROCESS) -> Target:
        if self.offset is not None and self.scale is not None:
            values = rows.target
            scaled = np.empty(values.shape, np.float32)
            for start in range(0, len(values), _BLOCK_ROWS):  # a float64 copy may be large
                block = slice(start, start + _BLOCK_ROWS)
                scaled[block] = (values[block] - self.offset) / self.scale
            rows = rows.replace(target=scaled)
        return _make_target(rows, self, ranks)

    def to_dict(self) -> JsonObject:
        """Return JSON types, for a model file.

        Raises a ValueError for class labels of a type that JSON cannot hold.
        """
        classes = None
        if self.classes is not None and self.kind != "multilabel":
            classes = _labels_to_json(self.classes)
        return {
            "kind": self.kind,
            "n_outputs": self.n_outputs,
            "one_dimensional": self.one_dimensional,
            "classes": classes,
            "output_names": None if self.output_names is None else list(self.output_names),
            "offset": None if self.offset is None else self.offset.tolist(),
            "scale": None if self.scale is None else self.scale.tolist(),
            "one_vs_rest": self.one_vs_rest,
            "missing": self.missing,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], n_scores: int) -> TargetEncoding:
        """Invert :meth:`to_dict`, for fields from untrusted files.

        Raises a ValueError if the fields do not describe an encoding. `fields`: output of
        `to_dict`. `n_scores`: raw scores of the model, an upper bound of its outputs except in a
        ranking.
        """
        kind: Any = fields.get("kind")
        n_outputs: Any = fields.get("n_outputs")
        require_entry(kind in get_args(Kind), "kind", f"must be one of {', '.join(get_args(Kind))}")
        # Goals of a ranking may be more than its scores.
        limit = MAX_GOALS if kind == "regression" else n_scores
        is_valid = type(n_outputs) is int and 1 <= n_outputs <= max(limit, n_scores)
        require_entry(is_valid, "n_outputs", f"must be an integer from 1 to {n_scores}")
        for name in ("one_dimensional", "one_vs_rest"):
            require_entry(type(fields.get(name)) is bool, name, "must be true or false")
        is_valid = fields.get("missing") in ("error", "ignore")
        require_entry(is_valid, "missing", 'must be "error" or "ignore"')
        encoding = cls(
            kind=kind,
            n_outputs=n_outputs,
            one_dimensional=fields["one_dimensional"],
            classes=_read_classes(kind, n_outputs, fields.get("classes")),
            output_names=_read_names(fields.get("output_names"), n_outputs),
            offset=_read_numbers(fields, "offset", n_outputs),
            scale=_read_numbers(fields, "scale", n_outputs),
            one_vs_rest=fields["one_vs_rest"],
            missing=fields["missing"],
        )
        encoding._check_consistency()
        return encoding

    def _check_consistency(self) -> None:
        """Check fields that were read from a file against each other."""
        flat = {"multilabel": False, "regression": self.one_dimensional}.get(self.kind, True)
        require_entry(
            self.one_dimensional == flat, "one_dimensional", f"must be {flat} for {self.kind}"
        )
        is_valid = self.kind == "multiclass" or not self.one_dimensional or self.n_outputs == 1
        require_entry(is_valid, "n_outputs", "must be 1 if y has one dimension")
        is_valid = (self.offset is None) == (self.scale is None)
        require_entry(is_valid, "offset", "must come with a scale")
        is_valid = self.scale is None or bool((self.scale > 0).all())
        require_entry(is_valid, "scale", "must be positive")


@dataclass(frozen=True)
class Target:
    """The encoded target, and what else belongs to its rows."""

    # The target is `(n_rows, n_outputs)`, float32 or (regression) float64; int32 class ids
    # `(n_rows,)` for multiclass, or shares of the classes `(n_rows, n_outputs)`; a canonical
    # float32 csr_matrix from `encode_sparse`. Missing values are 0. Weights are float32 `(n_rows,)`
    # or `(n_rows, n_outputs)`, zero where a value is missing; None: 1 everywhere.
    rows: RowData
    encoding: TargetEncoding  # how y was encoded

    @property
    def values(self) -> Any:
        """The target of the rows."""
        return self.rows.target

    @property
    def weight(self) -> np.ndarray | None:
        """The weights of the rows."""
        return self.rows.weight

    @property
    def is_sparse(self) -> bool:
        """Whether the target is a csr_matrix."""
        return scipy.sparse.issparse(self.rows.target)

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    def replace_rows(self, **values: object) -> Self:
        """Return a copy with other values in `rows`."""
        return replace(self, rows=self.rows.replace(**values))

    def take(self, rows: np.ndarray) -> Self:
        """Return the target of some rows."""
        return replace(self, rows=self.rows.take(rows))

    def subtract_offset(self, outputs_per_target: int) -> Self:
        """Return the difference to the offset of the rows, in the unit of y; float64."""
        scale = 1.0 if self.encoding.scale is None else self.encoding.scale
        offset = self.rows.offset[:, ::outputs_per_target]
        return self.replace_rows(target=self.values - offset / scale)

    def to_target_scale(self) -> Any:
        """Return the values in the unit of y, as metrics read them."""
        encoding = self.encoding
        if encoding.scale is None:
            return self.values
        return self.values * encoding.scale + encoding.offset

    def to_target_rows(self) -> RowData:
        """Return the rows with the target in the unit of y."""
        return self.rows.replace(target=self.to_target_scale())

    def get_row_classes(self) -> np.ndarray | None:
        """Return the (most probable) class id of each row; None for numbers and labels."""
        if self.encoding.kind == "binary":
            return self.values[:, 0]
        if self.encoding.kind != "multiclass":
            return None
        return self.values if self.values.ndim == 1 else self.values.argmax(axis=1)

    def to_indicators(self) -> Any:
        """Return outputs, labels, or classes as sparse indicators, for supervised projections."""
        if self.values.ndim == 2:
            return self.values
        n, ones = self.n_rows, np.ones(self.n_rows, np.float32)
        return scipy.sparse.csr_matrix(
            (ones, (np.arange(n), self.values)), (n, self.encoding.n_outputs)
        )

    def get_indicator_weights(self) -> np.ndarray | None:
        """Return weights of the rows, or of each column of the indicators."""
        return self.weight

    def get_indicator_names(self) -> list[str]:
        """Return the names of the columns of the indicators, by default their numbers."""
        encoding = self.encoding
        if encoding.output_names is not None:
            return list(encoding.output_names)
        if encoding.classes is not None:
            return [str(label) for label in encoding.classes]
        return [str(k) for k in range(encoding.n_outputs)]


def weigh_targets(target: Target, target_weight: object) -> Target:
    """Multiply the weights of each target by a number; see `read_target_weight`.

    Raises a ValueError for y with one target, or with classes.
    """
    if target_weight is None:
        return target
    encoding = target.encoding
    if encoding.kind in ("binary", "multiclass"):
        refuse("target_weight", "one_label")
    if encoding.one_dimensional:
        raise ValueError(
            "target_weight weighs several targets or labels against each other, but y has one "
            "target: leave it out."
        )
    factors = read_target_weight(target_weight, encoding.n_outputs, encoding.output_names)
    weight = target.weight
    if weight is None:
        weight = np.ones((target.n_rows, 1), np.float32)
    return target.replace_rows(weight=np.ascontiguousarray(multiply_weights(weight, factors[None])))


def weigh_classes(target: Target, class_weight: object) -> Target:
    """Multiply the weights of rows by factors of their classes; those of labels, of 0 and 1."""
    encoding, rows = target.encoding, target.rows
    if encoding.kind == "multilabel":
        negative, positive = compute_label_factors(class_weight, rows, encoding.output_names)
        each = np.where(rows.target == 1, positive, negative)
    else:
        ids, classes = target.get_row_classes(), encoding.classes
        assert ids is not None and classes is not None
        ids = ids.astype(np.int32)
        factors = compute_class_factors(class_weight, classes, rows.replace(target=ids))
        assert factors is not None
        each = factors[ids]
    return target.replace_rows(weight=multiply_weights(rows.weight, each.astype(np.float32)))


def _make_target(
    rows: RowData, encoding: TargetEncoding, ranks: Communicator = SINGLE_PROCESS
) -> Target:
    """Make a target in which NaN is a value 0 of weight 0."""
    values = rows.target
    if encoding.missing == "error" or not ranks.any(np.isnan(values).any()):
        return Target(rows, encoding)
    present = ~np.isnan(values)
    columns = present[:, 0] if encoding.n_outputs == 1 else present
    weight = multiply_weights(rows.weight, columns.astype(np.float32))
    known_values = np.where(present, values, values.dtype.type(0))
    return Target(rows.replace(target=known_values, weight=weight), encoding)


# ---- encoding ----------------------------------------------------------------------------------


def encode_regression(
    rows: RowData,
    *,
    missing: Literal["error", "ignore"] = "error",
    normalize: Normalize | None = False,
    ranks: Communicator = SINGLE_PROCESS,
) -> Target:
    """Encode a regression target.

    Raises a ValueError for invalid y or weights.

    Parameters
    ----------
    rows : RowData
        Target values, array-like or a data frame of shape (n_rows,) or (n_rows, n_columns), and
        weights of rows or of single values.
    missing : {"error", "ignore"}
        Whether NaN in y is an error or a value of weight 0.
    normalize : bool, "auto" or None
        Target scaling: see :func:`polyleaf.user_data.target_scaling.compute_target_scale`. None:
        for relevances, whose unit does not matter.
    ranks : Communicator
        Connection to the other rows.
    """
    y = rows.target
    values, one_dimensional = ravel_column(read_regression_values(y, "y", missing))
    values = values.astype(np.result_type(*ranks.allgather_objects(values.dtype)), copy=False)
    names = None if one_dimensional else get_column_names(y)
    columns = values[:, None] if values.ndim == 1 else values
    read = RowData(columns, query=rows.query, positions=rows.positions)
    if rows.weight is not None:
        read = read_weight(rows, columns, 0 if one_dimensional else columns.shape[1], "y", ranks)
        check_related_names(rows.weight, names, "sample_weight of y")
    if rows.weight is not None or missing == "ignore":
        check_outputs_have_weight(read, names, ranks)
    offset = scale = None
    if normalize is not None:
        offset, scale = compute_target_scale(read, normalize, ranks)
    encoding = TargetEncoding(
        kind="regression",
        n_outputs=columns.shape[1],
        one_dimensional=one_dimensional,
        output_names=names,
        offset=offset,
        scale=scale,
        missing=missing,
    )
    return encoding._scale_values(read, ranks)


def encode_classification(
    rows: RowData,
    *,
    class_weight: object = None,
    missing: Literal["error", "ignore"] = "error",
    one_vs_rest: bool = False,
    two_scores: bool = False,
    shares: Literal["never", "fractions", "always"] = "never",
    like: TargetEncoding | None = None,
    ranks: Communicator = SINGLE_PROCESS,
) -> Target:
    """Encode class labels, shares of classes, or an indicator matrix (multi-label).

    Raises a ValueError for invalid y or weights.

    Parameters
    ----------
    rows : RowData
        Labels, array-like or a data frame of shape (n_rows,), or an indicator matrix (n_rows,
        n_labels), dense or sparse (of SciPy or of pandas' Sparse columns), and weights of rows or
        of single labels.
    class_weight : dict {label: weight}, "balanced", or list of dicts (multi-label), optional
        Factors of the weights.
    missing : {"error", "ignore"}
        Whether NaN in a multi-label y is an error or a value of weight 0.
    one_vs_rest : bool
        Whether to encode multiclass labels as an indicator matrix instead of class ids.
    two_scores : bool
        Whether to encode two classes as class ids, like several classes.
    shares : {"never", "fractions", "always"}
        Whether a matrix y holds shares of the classes: if it has fractions, or always.
    like : TargetEncoding, optional
        Encoding of the model to continue.
    ranks : Communicator
        Connection to the other rows.
    """
    y = rows.target
    if shares == "fractions":
        shares = "always" if missing == "error" and ranks.any(has_fractions(y)) else "never"
    has_shares = shares == "always" and has_columns(y)
    if not has_shares and is_multilabel(y, missing, ranks):
        return _encode_multilabel(rows, class_weight, missing, like, ranks)
    if missing == "ignore":
        refuse("missing_targets", "one_label")
    if has_shares:
        return _encode_shares(rows, class_weight, like, ranks)
    labels = read_labels(y, "y", warn=True)
    read = read_weight(rows, labels, 0, "y", ranks)
    if like is None:
        classes, ids = sort_classes_of_ranks(labels, "y", ranks)
        check_two_classes(classes, read.replace(target=ids), ranks)
        check_n_classes(classes, ranks.sum(len(labels)))
        encoding = _make_class_encoding(classes, one_vs_rest, two_scores)
    else:
        like._check_kind(like.kind != "multilabel", "y", "one label per row")
        encoding, ids = like, like._encode_labels(labels, "y")
    assert encoding.classes is not None
    factors = compute_class_factors(class_weight, encoding.classes, read.replace(target=ids), ranks)
    weight = read.weight
    if factors is not None:
        weight = multiply_weights(weight, factors[ids].astype(np.float32))
    return encoding._encode_ids(RowData(ids.astype(np.int32, copy=False), weight))


def _encode_shares(
    rows: RowData, class_weight: object, like: TargetEncoding | None, ranks: Communicator
) -> Target:
    if like is None:
        y = rows.target
        classes = get_class_names(y, np.shape(y)[1])
        like = TargetEncoding("multiclass", len(classes), one_dimensional=True, classes=classes)
    like._check_kind(like.has_class_ids, "y", "shares of classes")
    target = like._encode_shares(rows, "y", ranks)
    assert like.classes is not None
    check_two_classes(like.classes, target.rows, ranks)
    factors = compute_class_factors(class_weight, like.classes, target.rows, ranks)
    return target if factors is None else Target(weight_shares(target.rows, factors), like)


def _make_class_encoding(
    classes: np.ndarray, one_vs_rest: bool, two_scores: bool
) -> TargetEncoding:
    is_binary = len(classes) == 2 and not two_scores
    return TargetEncoding(
        kind="binary" if is_binary else "multiclass",
        n_outputs=1 if is_binary else len(classes),
        one_dimensional=True,
        classes=classes,
        one_vs_rest=one_vs_rest and not is_binary,
    )


def _encode_multilabel(
    rows: RowData,
    class_weight: object,
    missing: Literal["error", "ignore"],
    like: TargetEncoding | None,
    ranks: Communicator,
) -> Target:
    values, names = read_indicators(rows.target, "y", missing), get_column_names(rows.target)
    n_labels = values.shape[1]
    read = read_weight(rows, values, n_labels, "y", ranks)
    check_related_names(rows.weight, names, "sample_weight of y")
    if like is None:
        check_outputs_have_weight(read, names, ranks)
    else:
        like._check_kind(like.kind == "multilabel", "y", "several labels per row")
        like._check_shape(values.shape, "y")
        like.check_names(RowData(rows.target), "y")
    encoding = like or TargetEncoding(
        kind="multilabel",
        n_outputs=n_labels,
        one_dimensional=False,
        classes=np.arange(n_labels),
        output_names=names,
        missing=missing,
    )
    negative, positive = compute_label_factors(class_weight, read, names, ranks)
    if np.any(negative != 1) or np.any(positive != 1):
        factors = np.where(values == 1, positive, negative).astype(np.float32)
        read = read.replace(weight=multiply_weights(read.weight, factors))
    return _make_target(read, encoding, ranks)


def encode_sparse(
    rows: RowData,
    *,
    kind: Literal["multilabel", "regression"],
    name: str = "y",
    like: TargetEncoding | None = None,
    ranks: Communicator = SINGLE_PROCESS,
) -> Target:
    """Encode a sparse target without making it dense.

    Raises a ValueError for invalid y or weights. The values of the target are a
    canonical csr_matrix, float32.

    `rows`: labels (0 and 1) or numbers, a sparse matrix, array-like or data frame of shape (n_rows,
    n_outputs), whose entries may have any order, but no duplicates, and weights of rows. `name`:
    name of y in error messages. `like`: encoding of the training y. `ranks`: connection to the
    other rows.
    """
    y = rows.target
    values = to_canonical_csr(read_sparse_matrix(y, name), name, repeated="raise")
    n_outputs, read = values.shape[1], read_weight(rows, values, 0, name, ranks)
    if kind == "multilabel" and (values.data != 1).any():
        entry = int(np.flatnonzero(values.data != 1)[0])
        cell = f"{name}[{find_row(values, entry)}, {values.indices[entry]}]"
        raise ValueError(f"{cell} is {values.data[entry]:g}, but {INDICATOR_RULE}.")
    if like is not None:
        is_same = like.kind == kind and not like.one_dimensional
        like._check_kind(is_same, name, f"a sparse matrix for {kind}")
        like._check_shape(values.shape, name)
        like.check_names(RowData(y), name)
        return Target(read, like)
    if not ranks.any(values.nnz > 0):
        raise ValueError(f"{name} holds only zeros, so there is nothing to learn.")
    names = None if scipy.sparse.issparse(y) else get_column_names(y)
    classes = np.arange(n_outputs) if kind == "multilabel" else None
    encoding = TargetEncoding(kind, n_outputs, False, classes=classes, output_names=names)
    return Target(read, encoding)


def encode_evaluation_target(
    rows: RowData, *, name: str, like: TargetEncoding, is_sparse: bool
) -> Target:
    """Encode y of an evaluation set like the training y, in the unit of y.

    See `encode_sparse` and `TargetEncoding.encode`. `is_sparse`: whether the training y is sparse.
    """
    if not is_sparse:
        return like.encode(rows, name=name, normalized=False)
    kind: Any = like.kind
    return encode_sparse(rows, kind=kind, name=name, like=like)


# ---- encodings in model files ------------------------------------------------------------------

# NumPy stores text at the width of the longest: the most memory that labels from a file may take.
_MAX_BYTES_PER_CHARACTER, _SPARE_BYTES = 64, 1 << 20


def _labels_to_json(classes: np.ndarray) -> dict[str, object]:
    labels, is_plain = classes.tolist(), classes.dtype.kind in "iufbU"
    if is_plain or all(isinstance(label, str) for label in labels):
        return {"dtype": classes.dtype.str if is_plain else "object", "labels": labels}
    raise ValueError(
        f"Class labels of type {type(labels[0]).__name__} cannot be written to a model file: use "
        "text, numbers or booleans, or pickle the estimator."
    )


def _read_classes(kind: Kind, n_outputs: int, fields: Any) -> np.ndarray | None:
    if kind == "regression":
        require_entry(fields is None, "classes", "is for classification only")
        return None
    if kind == "multilabel":  # label indices, which are not stored
        return np.arange(n_outputs)
    require_entry(isinstance(fields, Mapping), "classes", "must have a dtype and labels")
    classes = _labels_from_json(fields)
    n_classes = 2 if kind == "binary" else n_outputs
    is_valid = len(set(classes.tolist())) == len(classes) == n_classes
    require_entry(is_valid, "classes", f"must have {n_classes} different labels")
    return classes


def _labels_from_json(fields: Mapping[str, object]) -> np.ndarray:
    name: Any = fields.get("dtype")
    labels: Any = fields.get("labels")
    is_valid = isinstance(labels, list) and isinstance(name, str)
    require_entry(is_valid, "classes", "must have a dtype and labels")
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError):
        dtype = np.dtype(np.void)
    is_text = dtype.kind in "OU"
    require_entry(is_text or dtype.kind in "iufb", "classes", "must be text, numbers or booleans")
    is_valid = all(isinstance(label, (str, bool, int, float)) for label in labels) and all(
        isinstance(label, str) == is_text for label in labels
    )
    require_entry(is_valid, "classes", "must have labels of its dtype")
    n_characters = sum(len(label) + 1 for label in labels) if is_text else 0
    max_bytes = _SPARE_BYTES + _MAX_BYTES_PER_CHARACTER * n_characters
    is_valid = dtype.kind != "U" or 0 <= dtype.itemsize * len(labels) <= max_bytes  # NumPy 1 wraps
    require_entry(is_valid, "classes", "has a text dtype that is too wide")
    try:
        with np.errstate(invalid="ignore"):  # labels that do not fit become others
            classes = np.array(labels).astype(dtype)
        is_valid = classes.tolist() == labels
    except (OverflowError, ValueError):
        is_valid = False
    require_entry(is_valid, "classes", "must have labels that its dtype can hold")
    return classes


def _read_names(names: Any, n_outputs: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    is_valid = isinstance(names, list) and len(names) == n_outputs
    is_valid = is_valid and all(isinstance(name, str) for name in names)
    require_entry(is_valid, "output_names", f"must be {n_outputs} texts")
    return tuple(names)


def _read_numbers(fields: Mapping[str, object], name: str, n_outputs: int) -> np.ndarray | None:
    values: Any = fields.get(name)
    if values is None:
        return None
    is_valid = isinstance(values, list) and len(values) == n_outputs
    is_valid = is_valid and all(
        isinstance(v, (int, float)) and bool(np.isfinite(v)) for v in values
    )
    require_entry(is_valid, name, f"must be {n_outputs} finite numbers")
    return np.array(values, np.float64)
