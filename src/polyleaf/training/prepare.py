"""The user's data, made ready: features projected, read and binned, rows held out, evaluation sets alike.

Owns the order of these steps. Must not know objectives, the loop, or scikit-learn's base classes: of an
estimator it reads parameters, and keeps scikit-learn's books of features on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import validate_data

import polyleaf._core as _core
from polyleaf.data.binning import MAX_BINS, BinMapper
from polyleaf.data.dataset import Dataset
from polyleaf.data.holdout import split_rows_stratified
from polyleaf.inputs.features import (
    FeatureTable,
    check_column_labels,
    read_features,
    resolve_categorical_mask,
)
from polyleaf.inputs.frames import as_frame, check_in_memory, check_unique_names
from polyleaf.inputs.objects import find_non_number, replace_nulls_with_nan
from polyleaf.inputs.targets import Target, check_same_rows, encode_evaluation_target
from polyleaf.inputs.validation import check_data
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.runtime.device_arrays import as_device_array, is_device_array
from polyleaf.settings.parameters import SharedParameters
from polyleaf.sketching.projections import Projection, Projector, explain_numeric_only
from polyleaf.training.evaluation import EvalSet

__all__ = [
    "VALIDATION",
    "FeatureReader",
    "TrainingData",
    "PreparedData",
    "Seeds",
    "check_rows",
    "collect_eval_sets",
    "prepare",
    "set_feature_names",
]


VALIDATION = "validation"  # the name of `X_val`, or of what `validation_fraction` sets aside
HELD_OUT = 0.2  # of the rows, where a trial is to tell how many rounds to train


class Seeds(NamedTuple):
    """One for each use of chance."""

    hold_out: int
    projection: int
    training: int


class TrainingData(NamedTuple):
    """Data as the user gave it."""

    name: str
    X: Any
    y: Any
    weight: Any
    offset: Any = None

    def with_dataset_values(self) -> TrainingData:
        """What was not passed is taken from the Dataset, where X is one."""
        if not isinstance(self.X, Dataset):
            return self
        kept = {"y": self.X.y, "weight": self.X.sample_weight, "offset": self.X.offset}
        return self._replace(**{name: kept[name] for name in kept if getattr(self, name) is None})

    def copied_to_host(self, device: _core.Device | None) -> TrainingData:
        """The same with copies, in memory of this machine, of what lies on a device, but for X."""
        if device is None:
            return self
        beside = {"y": self.y, "sample_weight": self.weight, "offset": self.offset}
        found = [
            as_device_array(device, values, name).read() if is_device_array(values) else values
            for name, values in beside.items()
        ]
        return TrainingData(self.name, self.X, *found)


class PreparedData(NamedTuple):
    """What a run reads of the user's data.

    Attributes
    ----------
    dataset : Dataset
    target : Target
        Of the rows of the data set.
    eval_sets : list of EvalSet
    projection : Projection or None
        What made the features.
    offset : ndarray of shape (n_rows, n_scores), float64, or None
        Of the rows of the data set.
    trial : PreparedData or None
        The same for a training on some of the rows that the others are to watch, where there is to be one.
    """

    dataset: Dataset
    target: Target
    eval_sets: list[EvalSet]
    projection: Projection | None
    offset: np.ndarray | None
    trial: PreparedData | None = None


@dataclass(frozen=True)
class FeatureReader:
    """How the features of one model are read, to train and to predict.

    Attributes
    ----------
    estimator : SharedParameters
        Its `n_features_in_` and `feature_names_in_` are set by training data, and checked by further data.
    projection : Projection or None
    n_threads : int
    """

    estimator: SharedParameters
    projection: Projection | None
    n_threads: int

    def read_new(self, X: Any, mapper: BinMapper) -> FeatureTable:
        """X as a checked table that agrees with the training data."""
        if self.projection is not None:
            plain = self.plain(X, reset=False)
            return self.projected(self.projection.transform(plain, self.n_threads), mapper)
        return read_features(
            X, reference=mapper, estimator=self.estimator, n_threads=self.n_threads
        )

    def first(self, X: Any, mapper: BinMapper | None) -> FeatureTable:
        """X to train on, projected already; `mapper` is that of the model to go on from."""
        if self.projection is not None:
            return self.projected(X, mapper)
        return read_features(
            X,
            categorical_features=self.estimator.categorical_features,
            reference=mapper,
            estimator=self.estimator,
            reset=True,
            n_threads=self.n_threads,
        )

    def plain(self, X: Any, *, reset: bool) -> Any:
        """X as numbers, dense or CSR, with scikit-learn's bookkeeping of names."""
        numbers: Any = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": False}
        fewest = 1 if reset else 0  # rows: none are enough to predict
        X = check_data(X, "X")
        frame = None if scipy.sparse.issparse(X) else as_frame(X)
        names = None if frame is None else frame.names
        check_unique_names(names, "X")
        check_column_labels(self.estimator, names, reset)
        _refuse_no_numbers(X, names, self.kind_of_projection)
        return validate_data(self.estimator, X, reset=reset, ensure_min_samples=fewest, **numbers)

    @property
    def kind_of_projection(self) -> str:
        """Of the one there is, or is to be."""
        chosen = self.estimator.projection if self.projection is None else self.projection
        return str(getattr(chosen, "kind", chosen))

    def projected(self, values: Any, mapper: BinMapper | None) -> FeatureTable:
        """What a projection has made, as a table."""
        assert self.projection is not None
        names = self.projection.feature_names
        return read_features(
            values, feature_names=names, reference=mapper, n_threads=self.n_threads
        )


def prepare(
    p: SharedParameters,
    given: TrainingData,
    target: Target,
    further: Sequence[TrainingData],
    metrics: list[Metric],
    start: Model | None,
    seeds: Seeds,
    n_threads: int,
    trial_metric: Metric | None = None,
) -> PreparedData:
    """Make ready what `fit` was given.

    Parameters
    ----------
    p : SharedParameters
        The estimator.
    given : TrainingData
        To train on. Its offset, and those of `further`, are read already.
    target : Target
        Its y, encoded.
    further : sequence of TrainingData
        To evaluate on.
    metrics : list of Metric
        To measure on evaluation sets.
    start : Model or None
        What training goes on from.
    seeds : Seeds
    n_threads : int
    trial_metric : Metric, optional
        What a trial is to be measured by; by default there is none.

    Raises
    ------
    ValueError
        Where X does not go with y, the parameters or the model to go on from.
    """
    X, target, offset, aside = _hold_out(p, given, target, seeds.hold_out)
    X, projection = _project(FeatureReader(p, None, n_threads), X, target, start, seeds.projection)
    reader = FeatureReader(p, projection, n_threads)
    keep_features = p.leaf == "linear" or (start is not None and start.has_linear_leaves)
    plain = _dataset(reader, X, target, start, keep_features)
    trial = (
        None
        if trial_metric is None
        else make_trial(plain, target, offset, trial_metric, seeds.training)
    )
    dataset = plain.with_target(target, is_first=start is None)
    if plain is not X and start is None and p.device != "cuda":  # devices read the codes themselves
        dataset.keep_only_bins()
    eval_sets = [
        _eval_set(reader, data, dataset.mapper, target, metrics, keep_features)
        for data in [*further, *aside]
    ]
    return PreparedData(dataset, target, eval_sets, projection, offset, trial)


def set_feature_names(estimator: Any, n_features: int, names: Sequence[str] | None) -> None:
    """Keep scikit-learn's books of features that were read before."""
    estimator._column_labels = None
    estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


# --- rows ------------------------------------------------------------------------------------------


def _hold_out(
    p: SharedParameters, given: TrainingData, target: Target, seed: int
) -> tuple[Any, Target, np.ndarray | None, list[TrainingData]]:
    """Set `validation_fraction` of the rows aside: (X, target, offset, the rows set aside, if any)."""
    _, X, y, weight, offset = given
    n_rows = check_rows(p, X, target)
    if p.validation_fraction is None:
        return X, target, offset, []
    if isinstance(X, Dataset):
        raise ValueError(
            "validation_fraction cannot split a Dataset: pass validation data as eval_set."
        )
    if is_device_array(X):
        raise ValueError(
            "validation_fraction cannot split an array on a card: pass validation data as eval_set."
        )
    train, aside = split_rows_stratified(
        n_rows, p.validation_fraction, seed, target.get_row_classes()
    )
    weight, held_y = None if weight is None else _rows_of(weight, aside), _rows_of(y, aside)
    offset, held_offset = (None, None) if offset is None else (offset[train], offset[aside])
    held_out = TrainingData(VALIDATION, _safe_indexing(X, aside), held_y, weight, held_offset)
    return _safe_indexing(X, train), target.take(train), offset, [held_out]


def _rows_of(given: Any, rows: np.ndarray) -> Any:
    """Some rows of y or weights, or of each array of a dict of such; one number is that of any row."""
    if isinstance(given, Mapping):
        return {name: _rows_of(values, rows) for name, values in given.items()}
    if np.ndim(given) == 0 and not hasattr(given, "__len__"):
        return given
    return _safe_indexing(given.tocsr() if hasattr(given, "tocsr") else given, rows)


def check_rows(p: SharedParameters, X: Any, target: Target) -> int:
    """The number of rows, where X and y have as many, and more than one."""
    n_rows = _n_rows(X)
    if target.n_rows != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, y has "
            f"{target.n_rows}."
        )
    if n_rows == 1:
        raise ValueError(
            "Found array with 1 sample(s) (n_samples=1) while a minimum of 2 is required by "
            f"{type(p).__name__}."
        )
    return n_rows


def _n_rows(X: Any) -> int:
    """Rows of X as far as can be told before it is read; shape is checked when it is."""
    if not is_device_array(X):
        check_in_memory(X, "X")
    shape = getattr(X, "shape", None)
    if shape is None:
        shape = np.asarray(X).shape
    if len(shape) > 2:
        raise ValueError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required: X is {shape}."
        )
    if len(shape) < 2:
        found = "1D array" if shape else "scalar array"
        raise ValueError(
            f"Expected 2D array, got {found} instead. Reshape your data either using array.reshape(-1, 1) if "
            "your data has a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    return int(shape[0])


# --- features --------------------------------------------------------------------------------------


def checked_projector(p: SharedParameters) -> Projector | None:
    """What `projection` and the parameters that go with it ask for."""
    alone = p.projection_dim is None and not p.tfidf
    if isinstance(p.projection, Projector):
        if not alone:
            raise ValueError(
                "projection_dim and tfidf go with the name of a projection; a Projector has its own."
            )
        return p.projection
    if p.projection is None:
        if not alone:
            raise ValueError(
                'projection_dim and tfidf mean nothing without projection ("leml", say).'
            )
        return None
    projector = Projector(p.projection, tfidf=p.tfidf)
    return projector if p.projection_dim is None else replace(projector, dim=p.projection_dim)


def _project(
    reader: FeatureReader, X: Any, target: Target, start: Model | None, seed: int
) -> tuple[Any, Projection | None]:
    """X to train on: projected, where that is wanted, by what is learned here or was learned before."""
    projector = checked_projector(reader.estimator)
    projection = None if start is None else start.projection
    if projector is None and projection is None:
        return X, None
    if isinstance(X, Dataset):
        raise ValueError(
            "A Dataset holds features that are binned already: pass the raw X where projection is set."
        )
    categorical = reader.estimator.categorical_features
    if not (categorical is None or isinstance(categorical, str)):
        raise ValueError(
            "projection mixes all features as numbers: categorical_features cannot be set."
        )
    check_in_memory(X, "X")  # to be projected here
    plain = reader.plain(X, reset=True)
    if projection is not None:
        return projection.transform(plain, reader.n_threads), projection
    assert projector is not None
    check_same_rows(plain.shape[0], target.n_rows)
    projection, projected = projector.fit_transform(
        plain, target.to_indicators(), seed=seed, n_threads=reader.n_threads
    )
    return projected, projection


def _refuse_no_numbers(X: Any, names: Sequence[Any] | None, kind: str) -> None:
    """A sentence about the first cell of X that a projection cannot read, where it holds text or objects."""
    if scipy.sparse.issparse(X) or np.ndim(X) != 2:
        return
    cells = np.asarray(X)
    if cells.dtype.kind not in "OUS":
        return
    cells = replace_nulls_with_nan(cells.astype(object))
    place = find_non_number(cells)
    if place is not None:
        row, column = place
        called = f"number {column}" if names is None else repr(names[column])
        raise ValueError(
            f"Column {called} of X holds {cells[place]!r} in row {row}.{explain_numeric_only(kind)}"
        )


def _dataset(
    reader: FeatureReader, X: Any, target: Target, start: Model | None, keep_features: bool
) -> Dataset:
    """X in bins, without columns that are made of y."""
    if isinstance(X, Dataset):
        set_feature_names(reader.estimator, X.n_features, X.feature_names)
        if start is None:
            _warn_of_own_bins(reader.estimator, X)
            return X
        if not X.mapper.has_same_bins(start.mapper) and not start.mapper.is_extension_of(X.mapper):
            raise ValueError(
                "This Dataset was binned apart from the model to go on from: make it with "
                "reference=model.mapper, or pass the raw X."
            )
        return X.rebinned_to(start.mapper)
    mapper = None if start is None else start.mapper
    return Dataset(
        reader.first(X, mapper),
        sample_weight=target.weight,
        max_bins=reader.estimator.max_bins,
        reference=mapper,
        keep_features=keep_features,
        n_jobs=reader.estimator.n_jobs,
    )


def _warn_of_own_bins(p: SharedParameters, X: Dataset) -> None:
    """Warn of parameters that come too late, because features are binned already."""
    for name, is_other in (
        (
            "max_bins",
            p.max_bins not in (MAX_BINS, X.mapper.max_bins),
        ),  # the default asks for nothing
        ("categorical_features", _names_others(p.categorical_features, X)),
    ):
        if is_other:
            warnings.warn(
                f"{name}={getattr(p, name)!r} does nothing: the Dataset is binned already. Make it with this "
                "parameter.",
                stacklevel=6,
            )


def _names_others(categorical_features: Any, X: Dataset) -> bool:
    """Whether these are not the categorical features of the data set."""
    if isinstance(categorical_features, str):
        return False
    empty = FeatureTable(X.n_rows, X.n_features, X.feature_names)
    mask = resolve_categorical_mask(categorical_features, empty)
    return mask is not None and bool((mask != X.mapper.is_categorical_).any())


# --- trials ----------------------------------------------------------------------------------------


def make_trial(
    plain: Dataset, target: Target, offset: np.ndarray | None, metric: Metric, seed: int
) -> PreparedData:
    """Some rows to learn from, and those that are held out: in the bins of all, which know nothing of y;
    columns that are made of y are made of the rows to learn from."""
    classes = target.get_row_classes()
    rows, held = split_rows_stratified(target.n_rows, HELD_OUT, seed, classes)
    if classes is not None:
        held = held[np.isin(classes[held], classes[rows])]
    part = target.take(rows)
    dataset = plain.rows(rows).with_target(part)
    watched, own = plain.rows(held).rebinned_to(dataset.mapper), target.take(held)
    offsets = (None, None) if offset is None else (offset[rows], offset[held])
    evaluated = EvalSet(
        "held out",
        watched.codes,
        own.to_target_scale(),
        own.weight,
        [metric],
        watched.features,
        offsets[1],
    )
    return PreparedData(dataset, part, [evaluated], None, offsets[0])


# --- evaluation sets -------------------------------------------------------------------------------


def _eval_set(
    reader: FeatureReader,
    data: TrainingData,
    mapper: BinMapper,
    training: Target,
    metrics: list[Metric],
    reads_features: bool,
) -> EvalSet:
    """Evaluation data, binned as the training data is; its target in the user's unit."""
    name, X, y, weight, offset = data
    if isinstance(X, Dataset):
        X = X.rebinned_to(mapper)
        codes, features = X.codes, X.raw_features() if reads_features else None
    else:
        table = reader.read_new(X, mapper)
        codes = mapper.transform(table, reader.n_threads)
        features = mapper.get_raw_values(table) if reads_features else None
    is_sparse = scipy.sparse.issparse(training.values)
    target = encode_evaluation_target(
        y, weight, name=f"y of {name!r}", like=training.encoding, is_sparse=is_sparse
    )
    return EvalSet(name, codes, target.values, target.weight, metrics, features, offset)


def collect_eval_sets(
    eval_set: Any,
    names: Sequence[str] | None = None,
    weights: Sequence[Any] | None = None,
    offsets: Sequence[Any] | None = None,
    val: TrainingData | None = None,
    holds_out: bool = False,
) -> list[TrainingData]:
    """All evaluation data given to `fit`: a list, and what `X_val` and its like are, where `fit` has them.

    `holds_out`: `prepare` will add rows that `validation_fraction` sets aside, by a name of their own.
    """
    sets = [] if eval_set is None else [eval_set] if isinstance(eval_set, tuple) else list(eval_set)
    for i, data in enumerate(sets):
        if isinstance(data, Dataset):
            sets[i] = (data, None)
        elif not isinstance(data, tuple | list) or len(data) != 2:
            raise ValueError(f"eval_set[{i}] must be a pair (X, y); eval_set is a list of them.")
    names = [f"validation_{i}" for i in range(len(sets))] if names is None else list(names)
    weights = [None] * len(sets) if weights is None else list(weights)
    offsets = [None] * len(sets) if offsets is None else list(offsets)
    counted = (("eval_names", names), ("eval_sample_weight", weights), ("eval_offset", offsets))
    for what, entries in counted:
        if len(entries) != len(sets):
            raise ValueError(f"{what} has {len(entries)} entries, but eval_set has {len(sets)}.")
    beside = zip(names, sets, weights, offsets, strict=True)
    found = [TrainingData(name, X, y, weight, offset) for name, (X, y), weight, offset in beside]
    if val is not None and val.X is not None:
        found.append(val)
    elif val is not None and any(given is not None for given in val[2:]):
        raise ValueError("y_val, sample_weight_val and offset_val need X_val.")
    if holds_out and val is not None and val.X is not None:
        raise ValueError(
            "X_val and validation_fraction both say which rows are for validation: leave one of them out, or "
            "pass further rows to be watched as eval_set."
        )
    known = [data.name for data in found] + [VALIDATION] * holds_out
    if len(set(known)) < len(known):
        held_out = f", of which {VALIDATION!r} is of the rows that validation_fraction sets aside"
        raise ValueError(
            f"Evaluation sets need different names, got {known}{held_out * holds_out}."
        )
    return [data.with_dataset_values() for data in found]
