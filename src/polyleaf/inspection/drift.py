"""Data drift: how new rows differ from the rows that a model was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import bdtr, bdtrc, chdtrc

from polyleaf.binned_data.binning import BinMapper
from polyleaf.estimators._prediction import resolve_offset
from polyleaf.inspection.model_summary import (
    Scorer,
    get_output_names,
    get_target_names,
    read_raw_offset,
)
from polyleaf.model.model import get_model
from polyleaf.runtime.user_warnings import suppress_warnings
from polyleaf.user_data.feature_table import FeatureTable

if TYPE_CHECKING:
    import pandas as pd

    from polyleaf.model import Model
    from polyleaf.runtime.types import DataLike, ModelLike

_MIN_PSI = 0.02  # smaller differences do not matter, however significant they are

_N_GROUPS = 10  # of adjacent bins, or of categories
_MIN_EXPECTED = 5.0  # rows of a group, for the distribution of chi-squared to hold
_QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


@dataclass(frozen=True)
class Drift:
    """Differences of rows from reference rows; arrays have an entry per feature of X.

    Parameters
    ----------
    feature_names : list of str
    missing, reference_missing : ndarray
        Share of rows without a value.
    unknown : ndarray
        Share of rows whose category the training data did not have.
    outside : ndarray
        Share of rows beyond the range of the training data; 0 for categories.
    psi : ndarray
        Population stability index of the binned distributions: the sum over groups of bins of
        `(p - q) * log(p / q)` for the shares p and q. NaN for features that the model replaces by
        statistics of their categories.
    p_value : ndarray
        Of the tests that both have the same distribution: the chi-squared test of values, and
        tests of the rates of missing values and unknown categories. Rows count as independent.
    is_drifted : ndarray of bool
        Features with `p_value < alpha / n_features` and a psi of at least 0.02.
    output_names : list of str
    predictions : dict of str to ndarray of shape (n_outputs,)
        Mean, standard deviation and quantiles of the predictions, and the `error` of each output if
        y is known, after the name of the metric; of reference rows with `reference_` before.
    error, reference_error : dict of str to float
        Metric of the objective over all outputs, or D2 of each task; empty without y.
    """

    feature_names: list[str]
    missing: np.ndarray
    reference_missing: np.ndarray
    unknown: np.ndarray
    outside: np.ndarray
    psi: np.ndarray
    p_value: np.ndarray
    is_drifted: np.ndarray
    output_names: list[str]
    predictions: dict[str, np.ndarray]
    error: dict[str, float]
    reference_error: dict[str, float]

    @property
    def features(self) -> pd.DataFrame:
        """Table of the features, those with the largest psi first."""
        import pandas as pd

        names = ("psi", "p_value", "is_drifted", "outside", "unknown", "missing")
        columns = {name: getattr(self, name) for name in (*names, "reference_missing")}
        table = pd.DataFrame(columns, index=pd.Index(self.feature_names, name="feature"))
        return table.sort_values("psi", ascending=False, kind="stable")

    @property
    def outputs(self) -> pd.DataFrame:
        """Table of the outputs, with the columns `predictions`."""
        import pandas as pd

        return pd.DataFrame(self.predictions, index=pd.Index(self.output_names, name="output"))


def measure_drift(
    model: ModelLike,
    X: DataLike,
    y: DataLike | None = None,
    *,
    X_reference: DataLike | None = None,
    y_reference: DataLike | None = None,
    offset: Any = None,
    offset_reference: Any = None,
    alpha: float = 0.01,
) -> Drift:
    """Compare rows with those that a model was trained on.

    Distributions are compared by the bins of the model, which has counted its training rows: of
    `fit`, or of the last `refit` or continued training. Values are outside of the range of the rows
    that bins were made from.

    Parameters
    ----------
    model : fitted estimator or polyleaf.Model
        A model that was loaded from a file has the counts, too.
    X : array-like, data frame or sparse matrix of shape (n_rows, n_features)
        New rows, at least some hundred.
    y : array-like, optional
        Their targets, for errors; not for a ranker, see its `score_goals`.
    X_reference, y_reference : optional
        Rows to compare with in place of the training rows, such as validation rows, or the rows of
        last month. Their predictions are compared, too.
    offset, offset_reference : optional
        See `predict`: for a model that was trained with offsets.
    alpha : float, default 0.01
        Probability that one or more features are named if the rows are independent and nothing has
        changed.

    Returns
    -------
    Drift

    Raises
    ------
    ValueError
        If X has no rows, or not the features of the training data; for a model without counts, such
        as an imported one, if there is no `X_reference`.
    TypeError
        If X is a Dataset, which does not hold the values.

    Examples
    --------
    >>> from polyleaf import PolyleafRegressor
    >>> from polyleaf.datasets import load
    >>> from polyleaf.inspection import measure_drift
    >>> X, X_new, y, _ = load("energy").split()
    >>> model = PolyleafRegressor(n_estimators=20).fit(X, y)
    >>> X_new[:, 2] += 60.0
    >>> drift = measure_drift(model, X_new)
    >>> drift.features.index[drift.features["is_drifted"]].tolist()
    ['f2']
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be a probability between 0 and 1, got {alpha!r}.")
    fitted = get_model(model)
    rows = _Rows(fitted, X, "X")
    counts, reference = fitted.bin_counts, None
    if X_reference is not None:
        reference = _Rows(fitted, X_reference, "X_reference")
        counts = reference.counts
    elif fitted.bin_counts is None:
        raise ValueError(
            "The model does not have the counts of its training rows, since it was imported or "
            "saved by an earlier version: pass X_reference."
        )
    assert counts is not None
    statistics = _compare_bins(fitted.mapper, counts, rows)
    n_tested = max(1, int(np.count_nonzero(~np.isnan(statistics["p_value"]))))
    is_drifted = (statistics["p_value"] < alpha / n_tested) & (statistics["psi"] >= _MIN_PSI)
    names, predictions, error = _summarise_outputs(fitted, rows, y, offset)
    reference_error: dict[str, float] = {}
    if reference is not None:
        _, others, reference_error = _summarise_outputs(
            fitted, reference, y_reference, offset_reference
        )
        predictions |= {f"reference_{name}": values for name, values in others.items()}
    return Drift(
        feature_names=fitted.input_names,
        unknown=rows.unknown,
        outside=rows.outside,
        is_drifted=is_drifted,
        output_names=names,
        predictions=predictions,
        error=error,
        reference_error=reference_error,
        **statistics,
    )


class _Rows:
    """Rows to compare: `counts` as `Model.bin_counts`, and shares (n_features,)."""

    def __init__(self, model: Model, X: DataLike, name: str) -> None:
        mapper, table = model.mapper, model.prepare_features(X)
        n_rows = table.n_rows
        if n_rows == 0:
            raise ValueError(f"{name} has no rows: pass at least some hundred, to compare them.")
        with suppress_warnings():  # predictions warn of unknown categories
            self.counts = mapper.count_bins(mapper.encode(table))
        self.unknown = _count_unknown(mapper, table) / n_rows
        self.outside = np.full(mapper.n_features_, np.nan)
        if mapper.ranges_ is not None:
            self.outside = mapper.count_outside(table) / n_rows
        self.X, self.table, self.n_rows = X, table, n_rows


def _count_unknown(mapper: BinMapper, table: FeatureTable) -> np.ndarray:
    """Return the rows with a category that training did not have, (n_features,)."""
    counts = np.zeros(mapper.n_features_, np.int64)
    derived = () if mapper.derived_columns_ is None else mapper.derived_columns_.features
    codes = {feature.feature: feature.codes for feature in derived}
    for column in table.categories:
        f = column.feature
        known = codes[f] if f in codes else mapper.category_codes(f)
        is_unknown = np.array([c not in known for c in column.categories] + [False])
        counts[f] = np.count_nonzero(is_unknown[column.index])
    return counts


def _compare_bins(mapper: BinMapper, reference: np.ndarray, rows: _Rows) -> dict[str, np.ndarray]:
    """Return what `Drift` says of features by their bins."""
    names = ("missing", "reference_missing", "psi", "p_value")
    found = {name: np.full(mapper.n_features_, np.nan) for name in names}
    begin = 0
    for f in np.flatnonzero(mapper.counted_columns_).tolist():
        end = begin + int(mapper.n_bins_[f]) + 1
        before, after = reference[begin:end].astype(float), rows.counts[begin:end].astype(float)
        begin, n_unknown = end, rows.unknown[f] * rows.n_rows
        after[-1] -= n_unknown
        found["missing"][f] = after[-1] / rows.n_rows
        found["reference_missing"][f] = before[-1] / np.maximum(1.0, before.sum())
        groups = [_group_bins(counts[:-1], before[:-1]) for counts in (before, after)]
        others = np.array([[before[-1], 0.0], [after[-1], n_unknown]])
        found["psi"][f] = _compute_psi(*np.hstack([groups, others]))
        sizes = before.sum(), float(rows.n_rows)
        values = (before[:-1], after[:-1]) if mapper.is_categorical_[f] else groups
        p_values = [
            _test_homogeneity(*values),
            *(_test_rate(a, b, sizes) for a, b in others.T if a + b),
        ]
        found["p_value"][f] = min(1.0, len(p_values) * min(p_values))
    return found


def _group_bins(counts: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the rows of groups of bins that have about equal numbers of the rows `before`."""
    middle = np.cumsum(before) - before / 2
    group = (middle / max(1.0, before.sum()) * _N_GROUPS).astype(np.intp)
    return np.bincount(np.minimum(group, _N_GROUPS - 1), counts, _N_GROUPS)


def _compute_psi(before: np.ndarray, after: np.ndarray) -> float:
    """Return the population stability index of two vectors of counts."""
    used = before + after > 0
    p, q = ((c[used] + 0.5) / (c.sum() + 0.5 * used.sum()) for c in (before, after))
    return float(((q - p) * np.log(q / p)).sum())


def _test_homogeneity(before: np.ndarray, after: np.ndarray) -> float:
    """Return the p-value of the chi-squared test that counts have the same distribution."""
    counts, sizes = np.stack([before, after]), np.array([before.sum(), after.sum()])
    if sizes.min() == 0:
        return 1.0
    # Groups with few rows are joined, the smallest first, until all have enough.
    while counts.shape[1] > 1:
        counts = counts[:, np.argsort(counts.sum(axis=0), kind="stable")]
        if counts[:, 0].sum() * sizes.min() / sizes.sum() >= _MIN_EXPECTED:
            break
        counts[:, 1] += counts[:, 0]
        counts = counts[:, 1:]
    expected = np.outer(sizes, counts.sum(axis=0)) / sizes.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(chdtrc(counts.shape[1] - 1, statistic)) if counts.shape[1] > 1 else 1.0


def _test_rate(before: float, after: float, sizes: tuple[float, float]) -> float:
    """Return the p-value of the test that events are as frequent, given their number in all."""
    total, share = int(before + after), sizes[1] / sum(sizes)
    at_most = bdtr(after, total, share)
    at_least = bdtrc(after - 1, total, share) if after else 1.0
    return min(1.0, 2.0 * min(at_most, at_least))


def _summarise_outputs(
    model: Model, rows: _Rows, y: DataLike | None, offset: Any
) -> tuple[list[str], dict[str, np.ndarray], dict[str, float]]:
    """Return the names of the outputs, the distribution of their predictions and their errors, and
    the error of all."""
    n_rounds = model.n_rounds if model.best_iteration is None else model.best_iteration + 1
    offset = read_raw_offset(model, resolve_offset(model, rows.X, offset))
    raw = model.predict_raw(rows.table, 0, n_rounds) + offset
    predicted = model.objective.transform(raw)
    predicted = predicted.reshape(len(predicted), -1)
    names = get_output_names(model)
    if predicted.shape[1] < len(names):
        names = get_target_names(model)
    summary = {"mean": predicted.mean(axis=0), "std": predicted.std(axis=0)}
    summary |= {name: np.quantile(predicted, q, axis=0) for name, q in _QUANTILES.items()}
    if y is None:
        return names, summary, {}
    tasks = [place.task.name for place in model.objective.tasks]
    scorer = Scorer(model, rows.table, y, metrics=dict.fromkeys(tasks, "d2") if tasks else None)
    error = scorer(raw)
    try:
        values, metric = scorer.per_output(raw)
    except ValueError:  # the metric is defined over all outputs only
        return names, summary, error
    if len(values) == len(names):
        summary[metric] = values
    return names, summary, error
