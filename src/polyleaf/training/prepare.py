"""Preparation of the user's data: hold-out, projection, reading and binning of features,
evaluation sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from polyleaf.binned_data.binning import MAX_BINS, BinMapper
from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.random_rows import SplitRules, find_repeated_queries, find_repeated_rows
from polyleaf.metrics import Metric
from polyleaf.model.metadata import get_input_names
from polyleaf.model.prediction import read_rows
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.checks import require
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.row_data import RowData, select_rows
from polyleaf.runtime.timing import measure_phase
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.parameters import SharedParameters
from polyleaf.sketching.projections import Projection, Projector, read_numbers
from polyleaf.training.derived_columns import derive_columns
from polyleaf.training.evaluation import EvalSet, name_eval_set
from polyleaf.training.left_ranges import warn_of_left_ranges
from polyleaf.training.training_run import MakeFoldData, TrainingData, TrainingRun
from polyleaf.training.widening import widen_columns
from polyleaf.user_data.feature_table import FeatureSpec, FeatureTable
from polyleaf.user_data.features import read_features, resolve_categorical_mask
from polyleaf.user_data.multitask import TaskTarget
from polyleaf.user_data.queries import get_query_ids
from polyleaf.user_data.read_target import check_same_rows, count_columns
from polyleaf.user_data.target import Target, encode_evaluation_target
from polyleaf.user_data.validation import check_in_memory, count_rows, read_row_values
from polyleaf.user_data.weights import average_weights

HELD_OUT = 0.2  # fraction of the rows that a hold-out fit is evaluated on
VALIDATION = "validation"  # name of `X_val`, or of the rows of `validation_fraction`


def read_training_features(
    estimator: SharedParameters,
    X: DataLike,
    n_threads: int,
    mapper: BinMapper | None = None,
    projection: Projection | None = None,
) -> FeatureTable:
    """Return X to train on as a table.

    `mapper`: bins of the model to continue. `projection`: X is projected by it already; otherwise
    `n_features_in_` and `feature_names_in_` of the estimator are set. `read_rows` of the models
    reads other data.
    """
    if projection is not None:
        names = projection.feature_names
        return read_features(X, feature_names=names, reference=mapper, n_threads=n_threads)
    return read_features(
        X,
        categorical_features=estimator.categorical_features,
        reference=mapper,
        estimator=estimator,
        reset=True,
        n_threads=n_threads,
    )


def prepare(
    params: SharedParameters,
    run: TrainingRun,
    has_hold_outs: bool = False,
    is_cross_fitted: bool = False,
) -> None:
    """Read and bin the features of a training: fill in the data sets of its run.

    Raises a ValueError if X does not match y, the parameters or init_model.

    `run`: the offsets of its data have been read. `has_hold_outs`: whether `run.make_hold_out_run`
    will be called, and `free_codes` afterwards. `is_cross_fitted`: whether models of folds will be
    trained after the fit.
    """
    X, eval_data, n_threads = run.data.X, run.eval_data, run.settings.workers.n_threads
    check_rows(params, X, run.target)
    rows = run.data.rows
    if rows.groups is not None or rows.time is not None or params.validation_order == "time":
        run.rules = read_split_rules(params, rows, run.target.n_rows)
        run.target = run.target.replace_rows(groups=run.rules.groups, time=run.rules.time)
    query = run.target.rows.query
    if query is not None and params.validation_fraction is not None and query.min() == query.max():
        raise ValueError("validation_fraction holds out whole queries, but there is only one.")
    # Rows are held out first, so that nothing is learned from them.
    if params.validation_fraction is not None:
        X, held_out, held_target = _hold_out(params, run, params.validation_fraction)
        eval_data = [*eval_data, held_out]
    unprojected = X
    X = project_features(params, run, X)
    binned = _make_dataset(params, X, run)
    # Trials and folds divide rows whose bins are complete: thresholds do not depend on y, but
    # columns that are derived from it are learned again from the rows that are trained on.
    finds_groups = isinstance(params.output_groups, str)
    if is_cross_fitted or has_hold_outs or finds_groups:
        run.rules = join_copies(run.rules, binned.hash_rows, run.target)
    if is_cross_fitted:
        run.make_fold_data = get_fold_maker(params, unprojected, binned, run)
    run.dataset = binned
    if has_hold_outs:
        run.make_hold_out_run = partial(make_hold_out_run, binned)
        if run.rules.time is not None:
            earlier, later = run.rules.split(run.target.n_rows, HELD_OUT, 0, None)
            others = np.delete(np.arange(run.target.n_rows), earlier)
            counts = binned.count_bins() - binned.rows(others).count_bins()
            counts_of_later = binned.rows(later).count_bins()
            init = getattr(params, "init", None)
            warn_of_left_ranges(binned.mapper, counts, counts_of_later, init=init)
    if binned.has_high_cardinality:
        with measure_phase("binning"):
            run.dataset = derive_columns(
                binned, run.target, run.objective, n_threads, is_first=run.init_model is None
            )
    run.bin_counts = run.dataset.count_bins()
    # Nothing else reads the codes of the training rows, except for a few parts.
    reads_codes = params.device == "cuda" or finds_groups
    run.frees_codes = binned is not X and run.init_model is None and not reads_codes
    if not has_hold_outs:
        free_codes(run)
    # Evaluation sets have the bins and derived columns of the training.
    for data in eval_data:
        with name_eval_set(data.name):
            run.eval_sets = [*run.eval_sets, _make_eval_set(params, data, run)]
    if params.validation_fraction is not None:
        run.eval_sets[-1].weighed = _weigh_held_out(run, run.eval_sets[-1].rows, held_target)


def free_codes(run: TrainingRun) -> None:
    """Free the codes of the data set if only its bins are read from here on."""
    run.make_hold_out_run = None
    if run.frees_codes and isinstance(run.dataset, Dataset):
        run.dataset = run.dataset.to_training_bins()


def set_feature_names(
    estimator: Any,
    n_features: int,
    names: Sequence[str] | None,
    labels: tuple[str, ...] | None = None,
) -> None:
    """Set scikit-learn's attributes of features that were read before, and labels other than text
    that a projection takes."""
    estimator._column_labels = labels
    estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


# --- rows ---


def _hold_out(
    params: SharedParameters, run: TrainingRun, fraction: float
) -> tuple[Any, TrainingData, Target]:
    """Split off a fraction of the rows: return X to train on, and the rows held out, as the user
    passed them and with the encoded target."""
    X, target = run.data.X, run.target
    rules = join_copies(run.rules, lambda: hash_rows(params, X), target)
    train, held = rules.split(target.n_rows, fraction, run.seeds.hold_out, target.get_row_classes())
    check_parts(train, held)
    groups, time = (select_rows(ranks, held) for ranks in (target.rows.groups, target.rows.time))
    held_out, held_target = run.data.take(held)._replace(name=VALIDATION), target.take(held)
    offset = held_target.rows.offset
    if run.initial_scores is not None:
        initial_scores = run.initial_scores.take(held)
        held_out = held_out._replace(initial_scores=initial_scores)
        offset = offset if run.initial is None else initial_scores.scale(1.0)
        run.initial_scores = run.initial_scores.take(train)
    held_out = held_out.replace_rows(offset=offset, groups=groups, time=time)
    if run.linear is not None:
        run.linear = run.linear.take(train)
    run.target, run.rules = target.take(train), rules.take(train)
    return select_rows(X, train), held_out, held_target


def join_copies(
    rules: SplitRules, hash_features: Callable[[], np.ndarray | None], target: Target
) -> SplitRules:
    """Return rules that keep copies of a row together; in a ranking, queries and their copies."""
    rows, hashes = target.rows, hash_features()
    if rows.query is not None:
        rules = rules.keep_queries(rows.query)
        return rules.keep_copies(find_repeated_queries(hashes, target.values, rows.query))
    return rules.keep_copies(find_repeated_rows(hashes, target.values, rows.offset))


def check_rows(p: SharedParameters, X: DataLike, target: Target) -> int:
    """Return the number of rows; raise if X and y differ in it, or there is only one row."""
    n_rows = count_rows(X)
    if target.n_rows != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, y "
            f"has {target.n_rows}."
        )
    if n_rows == 1:
        raise ValueError(
            "Found array with 1 sample(s) (n_samples=1) while a minimum of 2 is required by "
            f"{type(p).__name__}."
        )
    return n_rows


def read_split_rules(p: SharedParameters, rows: RowData, n_rows: int) -> SplitRules:
    """Read `groups` and `time` of `fit`, and `validation_order`.

    Raises a ValueError if they have another number of rows, missing values, or one value for all
    rows.
    """
    ranks = _rank(rows.time, "time", n_rows)
    if ranks is None and p.validation_order == "time":
        ranks = np.arange(n_rows)
    return SplitRules(_rank(rows.groups, "groups", n_rows), ranks)


def _rank(values: Any, name: str, n_rows: int) -> np.ndarray | None:
    """Return the rank of each value, int64 (n_rows,), from 0."""
    if values is None:
        return None
    array = read_row_values(values, name, n_rows)
    if array.dtype.kind == "O" and name == "groups":  # values of several types cannot be sorted
        numbers = {value: i for i, value in enumerate(dict.fromkeys(array.tolist()))}
        array = np.array([numbers[value] for value in array.tolist()])
    if name == "time" and any(isinstance(value, str) for value in array[:1].tolist()):
        array = _parse_dates(array)
    try:
        unique, ranks = np.unique(array, return_inverse=True)
    except TypeError as error:  # such as times with and without a time zone
        raise ValueError(f"{name} has values that cannot be ordered: {error}.") from None
    if len(unique) < 2:
        raise ValueError(f"{name} has the same value in all rows, which leaves nothing to split.")
    return ranks.astype(np.int64)


def _parse_dates(texts: np.ndarray) -> np.ndarray:
    """Return dates as datetime64; others do not have the order of their text."""
    try:
        with warnings.catch_warnings():  # of time zones, which are converted
            warnings.simplefilter("ignore")
            return texts.astype("datetime64[us]")
    except ValueError as error:
        raise ValueError(
            f"time holds text that is no date in ISO format, so its order is not known ({error}): "
            "convert it by pandas.to_datetime, or to numbers."
        ) from None


def check_parts(training: np.ndarray, validation: np.ndarray) -> None:
    """Raise a ValueError if a split leaves no rows to train on, or none to validate on."""
    if not len(training) or not len(validation):
        raise ValueError(
            "groups and time leave no rows to train on, or none to validate on: groups must not "
            "span the whole time."
        )


def hash_rows(p: SharedParameters, X: DataLike) -> np.ndarray | None:
    """Return hashes of the features of X in bins, to find repeated rows before it is split."""
    n_threads = effective_threads(p.n_jobs)
    projector = make_projector(p)
    if projector is not None:
        numbers = read_numbers(X, projector.kind, p, reset=True)
        table = read_features(numbers, n_threads=n_threads)
    else:
        table = read_training_features(p, X, n_threads)
    return Dataset(table, n_jobs=n_threads).hash_rows()


# --- features ---


def make_projector(p: SharedParameters) -> Projector | None:
    """Return the projector of `projection` and its parameters, if any."""
    if not isinstance(p.projection, str):
        require(
            p.projection_dim is None and not p.tfidf,
            "projection_dim and tfidf require the name of a projection, such as "
            'projection="leml"; a Projector has parameters of its own for them.',
        )
        return p.projection
    projector = Projector(p.projection, tfidf=p.tfidf)
    return projector if p.projection_dim is None else replace(projector, dim=p.projection_dim)


def project_features(params: SharedParameters, run: TrainingRun, X: DataLike) -> Any:
    """Return X to train on, projected by a new projection or the one of the model to continue.

    Without a projection X stays as it is. Names and number of its columns become attributes of
    `params`.
    """
    projector = make_projector(params)
    if projector is None and (run.init_model is None or run.init_model.projection is None):
        return X
    check_in_memory(X, "X")
    n_threads = run.settings.workers.n_threads
    if run.init_model is not None and run.init_model.projection is not None:
        run.projection = run.init_model.projection
        names, labels = get_input_names(run.init_model)
        n_features = run.projection.n_features
        if count_columns(X) > n_features:
            refuse("projection", "new_columns")
        columns = FeatureSpec(n_features, names, np.zeros(n_features, bool), labels)
        numeric = read_numbers(X, run.projection.kind, params, True, columns)
        return run.projection.transform(numeric, n_threads)
    assert projector is not None
    numeric = read_numbers(X, projector.kind, params, reset=True)
    check_same_rows(numeric.shape[0], run.target.n_rows)
    run.projection, projected = projector.fit_transform(
        numeric,
        run.target.to_indicators(),
        seed=run.seeds.projection,
        n_threads=n_threads,
        sample_weight=get_row_weights(run.target),
    )
    return projected


def get_row_weights(target: Target) -> np.ndarray | None:
    """Return one weight for each row, or None."""
    weight = target.weight
    return weight if weight is None or weight.ndim == 1 else average_weights(weight).ravel()


def _make_dataset(params: SharedParameters, X: Any, run: TrainingRun) -> Dataset:
    """Return X in bins, without columns derived from y."""
    if run.init_model is not None:
        run.init_model = widen_columns(
            run.init_model,
            X,
            params.categorical_features,
            params.max_bins,
            run.target.weight,
            run.settings.workers.n_threads,
            is_refit=run.decay_rate is not None,
        )
    init_model = run.init_model
    if isinstance(X, Dataset):
        set_feature_names(params, X.n_features, X.feature_names)
        if init_model is None:
            _warn_ignored_parameters(params, X)
            return X
        old = init_model.mapper
        if not X.mapper.has_same_bins(old) and not old.is_extension_of(X.mapper):
            refuse("dataset", "new_columns")
        return X.rebinned_to(old)
    return _bin_features(
        params, X, run, run.target, None if init_model is None else init_model.mapper
    )


def _bin_features(
    params: SharedParameters, X: Any, run: TrainingRun, target: Target, mapper: BinMapper | None
) -> Dataset:
    """Read X and bin it; `mapper` has the bins of the model to continue."""
    with measure_phase("reading"):
        n_threads = run.settings.workers.n_threads
        table = read_training_features(params, X, n_threads, mapper, run.projection)
    with measure_phase("binning"):
        return Dataset(
            table,
            sample_weight=target.weight,
            max_bins=params.max_bins,
            reference=mapper,
            keep_features=run.reads_features,
            n_jobs=params.n_jobs,
        )


def get_fold_maker(
    params: SharedParameters, X: DataLike | None, binned: Dataset, run: TrainingRun
) -> MakeFoldData | None:
    """Return the function `TrainingRun.make_fold_data`; None if no feature is learned from y.

    `X`: the features before a projection. `binned`: X in bins, without columns derived from y
    unless training continues a model.
    """
    target, objective, keeps_features = run.target, run.objective, run.reads_features
    n_threads = run.settings.workers.n_threads
    projector = make_projector(params)
    if projector is not None and projector.kind == "leml":
        numeric = read_numbers(X, projector.kind, params)
        numeric = numeric.tocsr() if scipy.sparse.issparse(numeric) else numeric

        def project_again(rows: np.ndarray, held: np.ndarray) -> tuple[Dataset, Dataset]:
            part = target.take(rows)
            projection, projected = projector.fit_transform(
                numeric[rows], part.to_indicators(), seed=run.seeds.training, n_threads=n_threads
            )
            fold_run = run.replace(projection=projection)
            dataset = _bin_features(params, projected, fold_run, part, None)
            rest = projection.transform(numeric[held], n_threads)
            others = read_training_features(params, rest, n_threads, dataset.mapper, projection)
            return dataset, Dataset(others, reference=dataset, keep_features=keeps_features)

        return project_again
    if not binned.has_high_cardinality:
        return None
    base = binned
    if run.init_model is not None:  # whose bins have derived columns
        base = X if isinstance(X, Dataset) else _bin_features(params, X, run, target, None)

    def derive_again(rows: np.ndarray, held: np.ndarray) -> tuple[Dataset, Dataset]:
        dataset = derive_columns(base.rows(rows), target.take(rows), objective, n_threads)
        return dataset, base.rows(held).rebinned_to(dataset.mapper)

    return derive_again


def _warn_ignored_parameters(p: SharedParameters, X: Dataset) -> None:
    """Warn about parameters that have no effect because features are binned already."""
    for name, is_ignored in (
        ("max_bins", p.max_bins not in (MAX_BINS, X.mapper.max_bins)),
        ("categorical_features", _differs_in_categories(p.categorical_features, X)),
    ):
        if is_ignored:
            warn_user(
                f"{name}={getattr(p, name)!r} has no effect: the Dataset is binned already. Make "
                "it with this parameter."
            )


def _differs_in_categories(categorical_features: object, X: Dataset) -> bool:
    """Return whether these differ from the categorical features of the data set."""
    if isinstance(categorical_features, str):
        return False
    empty = FeatureTable(X.n_rows, X.n_features, X.feature_names)
    mask = resolve_categorical_mask(categorical_features, empty)
    return mask is not None and bool((mask != X.mapper.is_categorical_).any())


# --- hold-out fits ---


def make_hold_out_run(
    binned: Dataset, run: TrainingRun, rows: np.ndarray, held: np.ndarray, metric: Metric
) -> TrainingRun:
    """Return a training on some rows, evaluated on others, for `TrainingRun.make_hold_out_run`.

    Bins are those of all rows, which do not depend on y; columns derived from y use only the rows
    to train on. Held-out rows have the weights that they have in training.

    `binned`: all rows, without columns derived from y.
    """
    part = run.target.take(rows)
    dataset = binned.rows(rows)
    n_threads = effective_threads(binned.n_jobs)
    dataset = derive_columns(dataset, part, run.objective, n_threads)
    evaluated = binned.rows(held).rebinned_to(dataset.mapper)
    eval_set = EvalSet(
        "held out",
        evaluated.codes,
        run.objective.weigh_held_out(run.target.take(held).to_target_rows()),
        [metric],
        evaluated.features,
        logs_outputs=False,
    )
    make_fold_data = run.make_fold_data

    def make_part_of_fold(used: np.ndarray, others: np.ndarray) -> tuple[Dataset, Dataset]:
        assert make_fold_data is not None
        return make_fold_data(rows[used], rows[others])

    return run.replace(
        dataset=dataset,
        target=part,
        eval_sets=[eval_set],
        rules=run.rules.take(rows),
        # for a fit that is interrupted in the hold-out fit
        make_fold_data=None if make_fold_data is None else make_part_of_fold,
    )


# --- evaluation sets ---


def _make_eval_set(params: SharedParameters, data: TrainingData, run: TrainingRun) -> EvalSet:
    """Return evaluation data, binned as the training data; its target is on the scale of y."""
    name, X, rows, initial_scores = data
    mapper = run.dataset.mapper
    if isinstance(X, Dataset):
        X = X.rebinned_to(mapper)
        codes, features = X.codes, X.raw_features() if run.reads_features else None
    else:
        n_threads = run.settings.workers.n_threads
        table = read_rows(X, mapper, run.projection, params, n_threads)
        codes = mapper.transform(table, n_threads)
        features = mapper.get_raw_values(table) if run.reads_features else None
        if name == VALIDATION and run.rules.time is not None:
            assert run.bin_counts is not None
            later = Dataset.from_codes(mapper, codes).count_bins()
            outside, init = mapper.count_outside(table), getattr(params, "init", None)
            warn_of_left_ranges(mapper, run.bin_counts, later, outside, init)
    target = encode_evaluation_target(
        rows,
        name=f"y of {name!r}",
        like=run.target.encoding,
        is_sparse=run.settings.has_sparse_targets,
    )
    evaluated = target.rows.replace(offset=rows.offset, groups=rows.groups, time=rows.time)
    return EvalSet(name, codes, evaluated, run.metrics, features, initial_scores=initial_scores)


def _weigh_held_out(run: TrainingRun, rows: RowData, target: Target) -> RowData:
    """Return the rows of `validation_fraction` with the weights that they would have in training.

    `rows`: as an evaluation set has them: the target is in the unit of y. `target`: encoded as the
    training rows, with weights of classes and targets.
    """
    if target.encoding.kind in ("binary", "multiclass", "multilabel"):
        rows = rows.replace(target=target.values, weight=target.weight)
    elif target.encoding.kind == "regression":
        rows = rows.replace(weight=target.weight)
    elif isinstance(target, TaskTarget):
        rows = rows.replace(tasks=target.to_target_rows().tasks)
    return run.objective.weigh_held_out(rows)


def collect_eval_sets(
    eval_set: Any,
    names: Sequence[str] | None = None,
    weights: Sequence[object] | None = None,
    offsets: Sequence[object] | None = None,
    val: TrainingData | None = None,
    holds_out: bool = False,
    qids: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
) -> list[TrainingData]:
    """Return all evaluation data of `fit`: those of eval_set, then `X_val` if given.

    `holds_out`: whether `prepare` will add the rows of `validation_fraction`, with a name of their
    own.
    """
    sets = [] if eval_set is None else [eval_set] if isinstance(eval_set, tuple) else list(eval_set)
    for i, data in enumerate(sets):
        if isinstance(data, Dataset):
            sets[i] = (data, None)
        elif not isinstance(data, tuple | list) or len(data) != 2:
            raise ValueError(f"eval_set[{i}] must be a pair (X, y); eval_set is a list of them.")
    lists: dict[str, Any] = {
        "eval_names": [f"validation_{i}" for i in range(len(sets))] if names is None else names,
        "eval_sample_weight": weights,
        "eval_offset": offsets,
        "eval_qid": qids,
        "eval_group": groups,
    }
    for parameter, entries in lists.items():
        if entries is None:
            lists[parameter] = [None] * len(sets)
        elif len(entries) != len(sets):
            raise ValueError(
                f"{parameter} has {len(entries)} entries, but eval_set has {len(sets)}."
            )
    eval_data = []
    for i, (X, y) in enumerate(sets):
        name, weight, offset, qid, group = (entries[i] for entries in lists.values())
        query = get_query_ids(X, qid, group, (f"eval_qid[{i}]", f"eval_group[{i}]"))
        eval_data.append(TrainingData(name, X, RowData(y, weight, offset, query=query)))
    if val is not None and val.X is not None:
        eval_data.append(val)
    elif val is not None and val.rows.to_dict():
        raise ValueError("y_val, sample_weight_val, offset_val and qid_val require X_val.")
    if holds_out and val is not None and val.X is not None:
        raise ValueError(
            "X_val and validation_fraction cannot be combined: pass only one of them, or pass "
            "additional evaluation data as eval_set."
        )
    set_names = [data.name for data in eval_data] + [VALIDATION] * holds_out
    if len(set(set_names)) < len(set_names):
        held_out = f" ({VALIDATION!r} is the name of the rows of validation_fraction)"
        raise ValueError(f"eval_names must be different, got {set_names}{held_out * holds_out}.")
    return [data.fill_from_dataset() for data in eval_data]
