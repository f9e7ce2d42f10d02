"""Dask estimators: `fit` on the workers of a cluster, predictions as lazy collections."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed
from distributed import Client, get_client, worker_client
from distributed.worker import thread_state
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from polyleaf.dask.costs import FitCosts
from polyleaf.dask.driver import LazyData, LazyEvalSet, Restart, align, fit, is_lazy, plan_costs
from polyleaf.estimators._fitting import replace_refitted_model, store_result
from polyleaf.estimators._persistence import set_input_names
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.ranker import PolyleafRanker
from polyleaf.estimators.regressor import PolyleafRegressor
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.training.fit import as_callbacks
from polyleaf.training.prepare import collect_eval_sets
from polyleaf.training.refit import KnownTrees, check_decay_rate
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.offsets import check_all_or_none
from polyleaf.user_data.queries import check_has_ids
from polyleaf.user_data.target import TargetEncoding


class _DaskEstimator(BaseEstimator):
    """Base class of the Dask estimators."""

    _local_class: ClassVar[type[PolyleafEstimator]]

    def __init__(self, *, client: Client | None = None, **parameters: Any) -> None:
        self.client = client
        self._local = self._local_class(**parameters)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the class with the parameters that have other values than their defaults."""
        local = BaseEstimator.__repr__(self._local, N_CHAR_MAX)
        return type(self).__name__ + local.removeprefix(self._local_class.__name__)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the client and the parameters of the local estimator."""
        return {"client": self.client, **self._local.get_params(deep)}

    def set_params(self, **parameters: object) -> Self:
        """Set parameters.

        Parameters
        ----------
        **parameters
            Parameters of the constructor.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter does not exist.
        """
        if "client" in parameters:
            self.client = parameters.pop("client")
        self._local.set_params(**parameters)
        return self

    def fit(
        self,
        X: DataLike | None,
        y: DataLike | None,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
        eval_set: Sequence[tuple[object, object]] | None = None,
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Sequence[object] | None = None,
        eval_offset: Sequence[object] | None = None,
        callbacks: object = None,
        init_model: object = None,
        max_restarts: int = 3,
        wait_for_workers: float = 10.0,
    ) -> Self:
        """Train on the workers of a cluster. The call blocks until training ends.

        Parameters
        ----------
        X : dask DataFrame, dask Array of shape (n_rows, n_features), or list of delayed
            Elements of a list are arrays or data frames. Partitions without rows are dropped, and
            divisions need not be known.
        y : dask Series, DataFrame or Array, or list of delayed
            Target, with the partitions of X. For extreme multi-label targets: a list of delayed
            SciPy matrices, whatever X is.
        sample_weight : like y, optional
            Weights.
        offset : like y, optional
            Initial raw scores of the rows. Predictions and evaluation sets need offsets too then.
        eval_set : list of (X, y), optional
            Evaluation sets, lazy or in memory. Each is held by one worker.
        eval_names : list of str, optional
            Names of the evaluation sets. Default: "validation_0", "validation_1", ...
        eval_sample_weight, eval_offset : list, optional
            Weights and offsets of the evaluation sets.
        callbacks : list, optional
            Copies of them are called on the worker of rank 0, where their output is printed.
        init_model : Model, fitted local estimator, path or bytes, optional
            Model, or its file, to continue training from.
        max_restarts : int
            How often workers may be lost. The round in progress is then trained again by the
            remaining and the new workers.
        wait_for_workers : float
            Seconds to wait for a worker if none is left.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If partitions do not match, or data or parameters are invalid or not supported with
            several workers.
        polyleaf.dask.driver.WorkersLostError
            If workers were lost more often than `max_restarts`.
        """
        eval_data = collect_eval_sets(eval_set, eval_names, eval_sample_weight, eval_offset)
        rows = RowData(y, sample_weight, offset)
        restarts = max_restarts, wait_for_workers
        return self._fit_lazily(X, rows, eval_data, callbacks, init_model, *restarts)

    def _fit_lazily(
        self,
        X: Any,
        rows: RowData,
        eval_data: list[TrainingData],
        callbacks: object,
        init_model: object,
        max_restarts: int,
        wait_for_workers: float,
    ) -> Self:
        """Train on collections as the user passed them."""
        have = [each.offset is not None for each in (rows, *(data.rows for data in eval_data))]
        check_all_or_none(["training", *(data.name for data in eval_data)], have, False)
        eval_sets = [
            LazyEvalSet(d.name, LazyData(d.X, d.rows, f"X of {d.name!r}")) for d in eval_data
        ]
        self._local._validate_params()
        with _use_client(self.client) as client:
            result, self.restarts_, self.costs_ = fit(
                client,
                self._local,
                LazyData(X, rows),
                max_restarts,
                wait_for_workers,
                eval_sets=eval_sets,
                callbacks=as_callbacks(callbacks),
                init_model=init_model,
            )
        model = result.model
        local = self._local_class(**self._local.get_params(deep=False))
        set_input_names(local, model)
        encoding = TargetEncoding.from_dict(model.metadata, model.n_outputs)
        store_result(local, model, encoding, result.evals_log, result.outputs_log)
        self._fitted = local
        return self

    def refit(
        self,
        X: DataLike | None,
        y: DataLike | None,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
        decay_rate: float = 0.0,
        max_restarts: int = 3,
        wait_for_workers: float = 10.0,
    ) -> Self:
        """Fit the leaf values anew on other rows, on the workers of a cluster.

        Parameters
        ----------
        X, y, sample_weight, offset, max_restarts, wait_for_workers
            As in `fit`.
        decay_rate : float, default 0
            Share of the old values, from 0 to 1; see :meth:`polyleaf.PolyleafRegressor.refit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data do not match the model, or parameters are not supported with several workers.
        """
        rows = RowData(y, sample_weight, offset)
        return self._refit_lazily(X, rows, decay_rate, max_restarts, wait_for_workers)

    def _refit_lazily(
        self, X: Any, rows: RowData, decay_rate: float, max_restarts: int, wait_for_workers: float
    ) -> Self:
        """Refit the leaves to collections as the user passed them."""
        local = copy.copy(self.to_local())
        check_decay_rate(decay_rate)
        with _use_client(self.client) as client:
            result, self.restarts_, self.costs_ = fit(
                client,
                local,
                LazyData(X, rows),
                max_restarts,
                wait_for_workers,
                init_model=KnownTrees(local.model_, float(decay_rate)),
            )
        encoding = TargetEncoding.from_dict(result.model.metadata, result.model.n_outputs)
        replace_refitted_model(local, result.model, encoding)
        self._fitted = local
        return self

    restarts_: list[Restart]
    costs_: FitCosts

    def plan(
        self,
        X: DataLike | None,
        y: DataLike | None,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        offset: DataLike | None = None,
        wait_for_workers: float = 10.0,
    ) -> FitCosts:
        """Plan a fit without training: `print` shows partitions, bytes and memory of each worker.

        X and y are computed on the cluster, as for `fit`; persist them to compute them once.

        Parameters
        ----------
        X, y, sample_weight, qid, offset, wait_for_workers
            As in `fit`. Only rankers have `qid`.

        Returns
        -------
        FitCosts
            Planned costs; `costs_` has the measured ones as well, after `fit`.

        Raises
        ------
        ValueError
            If partitions do not match, or data or parameters are invalid or not supported with
            several workers.
        """
        X, qid = _separate_column(X, qid)
        data = LazyData(X, RowData(y, sample_weight, offset, query=qid))
        self._local._validate_params()
        with _use_client(self.client) as client:
            return plan_costs(client, self._local, data, wait_for_workers)

    def to_local(self) -> Any:
        """Return the fitted local estimator, as if it had been fitted on all rows.

        Returns
        -------
        PolyleafRegressor or PolyleafClassifier

        Raises
        ------
        sklearn.exceptions.NotFittedError
        """
        if not hasattr(self, "_fitted"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit.")
        return self._fitted

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not name.endswith("_") or "_fitted" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._fitted, name)

    def predict(self, X: DataLike | None, *, offset: Any = None, sparse: bool = False) -> Any:
        """Predict.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        offset : like X, optional
            Initial raw scores of the rows: a collection of the same kind and partitions.
        sparse : bool
            Return sparse matrices, as the local estimator does. X must be a list of delayed values,
            or data in memory.

        Returns
        -------
        dask Series, DataFrame or Array, list of delayed, ndarray, or (`sparse`) csr_matrix
            Predictions of the local estimator; lazy if X is, with its partitions, order and index.

        Raises
        ------
        ValueError
            If the offset is another kind of collection or has other partitions, or if `sparse` is
            set and X is an Array or a DataFrame.
        """
        if not sparse:
            return self._call_lazily("predict", X, offset=offset)
        if is_dask_collection(X):
            raise ValueError(
                "sparse=True returns a SciPy matrix per partition, which dask Arrays and "
                "DataFrames cannot hold: pass X as a list of delayed values, or call predict_topk."
            )
        return self._call_lazily("predict", X, offset=offset, sparse=True)

    def apply(self, X: DataLike) -> Any:
        """Return the index of the leaf that each row reaches in each tree.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory

        Returns
        -------
        collection like that of `predict`, of shape (n_rows, n_trees), int32
        """
        return self._call_lazily("apply", X)

    def predict_topk(self, X: DataLike, k: int = 5) -> tuple[Any, Any]:
        """Return the `k` outputs with the highest scores of each row.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory

        Returns
        -------
        labels, scores : collections like that of `predict`, each of shape (n_rows, k)
            Labels and scores of the local estimator.
        """
        labels = self._call_lazily("predict_topk", X, 0, k=k)
        return labels, self._call_lazily("predict_topk", X, 1, k=k)

    def _call_lazily(
        self,
        method: str,
        X: Any,
        part: int | None = None,
        offset: DataLike | None = None,
        **options: object,
    ) -> Any:
        def call(rows: DataLike, offset: DataLike | None = None) -> Any:
            offsets = {} if offset is None else {"offset": offset}
            values = getattr(local, method)(rows, **offsets, **options)
            values = values if part is None else values[part]
            return values if issparse(values) else np.asarray(values)

        local = self.to_local()
        if not is_lazy(X):
            return call(X, offset)
        others = [] if offset is None else [align(offset, X, "offset")]
        if isinstance(X, da.Array):
            return _map_chunks(call, X, *others)
        if is_dask_collection(X) and hasattr(X, "map_partitions"):
            names = local._encoding.output_names if method == "predict" else None
            return _map_frame(call, names, X, *others)
        return [delayed(call)(*rows) for rows in zip(X, *others, strict=True)]


class DaskPolyleafRegressor(_DaskEstimator):
    """`PolyleafRegressor` on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        Default: the current client.
    **parameters
        Parameters of :class:`polyleaf.PolyleafRegressor`, except that `n_jobs` is always the number
        of threads of the worker.

    Attributes
    ----------
    restarts_ : list of polyleaf.dask.driver.Restart
        Restarts after the loss of workers.
    costs_ : polyleaf.dask.costs.FitCosts
        Planned and measured costs of each worker; `print` shows them.
    model_, evals_result_, ...
        Attributes of the fitted local estimator.
    """

    _local_class = PolyleafRegressor


class DaskPolyleafClassifier(_DaskEstimator):
    """`PolyleafClassifier` on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        Default: the current client.
    **parameters
        Parameters of :class:`polyleaf.PolyleafClassifier`, except that `n_jobs` is always the
        number of threads of the worker.

    Attributes
    ----------
    restarts_ : list of polyleaf.dask.driver.Restart
        Restarts after the loss of workers.
    costs_ : polyleaf.dask.costs.FitCosts
        Planned and measured costs of each worker; `print` shows them.
    classes_, model_, evals_result_, ...
        Attributes of the fitted local estimator.
    """

    _local_class = PolyleafClassifier

    def predict_proba(self, X: DataLike, *, offset: DataLike | None = None) -> Any:
        """Predict probabilities.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        offset : like X, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        collection like that of `predict`, of shape (n_rows, n_classes or n_labels), float64
        """
        return self._call_lazily("predict_proba", X, offset=offset)

    def decision_function(self, X: DataLike, *, offset: DataLike | None = None) -> Any:
        """Predict raw scores.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        offset : like X, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        collection like that of `predict`, float64
            Its shape is (n_rows, n_classes or n_labels), or (n_rows,) for two classes.
        """
        return self._call_lazily("decision_function", X, offset=offset)


class DaskPolyleafRanker(_DaskEstimator):
    """`PolyleafRanker` on a Dask cluster.

    The rows of a query may lie in several partitions: they are moved to the first of them.

    Parameters
    ----------
    client : distributed.Client, optional
        Default: the current client.
    **parameters
        Parameters of :class:`polyleaf.PolyleafRanker`, except that `n_jobs` is always the number of
        threads of the worker.

    Attributes
    ----------
    restarts_ : list of polyleaf.dask.driver.Restart
        Restarts after the loss of workers.
    costs_ : polyleaf.dask.costs.FitCosts
        Planned and measured costs of each worker; `print` shows them.
    model_, evals_result_, ...
        Attributes of the fitted local estimator.
    """

    _local_class = PolyleafRanker

    def fit(  # type: ignore[override]
        self,
        X: DataLike | None,
        y: DataLike | None,
        sample_weight: DataLike | None = None,
        *,
        qid: Any,
        positions: Any = None,
        offset: DataLike | None = None,
        eval_set: Sequence[tuple[object, object]] | None = None,
        eval_names: Sequence[str] | None = None,
        eval_qid: Sequence[object] | None = None,
        eval_sample_weight: Sequence[object] | None = None,
        eval_offset: Sequence[object] | None = None,
        callbacks: object = None,
        init_model: object = None,
        max_restarts: int = 3,
        wait_for_workers: float = 10.0,
    ) -> Self:
        """Train on the workers of a cluster. The call blocks until training ends.

        Parameters
        ----------
        X, y, offset, eval_set, eval_names, eval_sample_weight, eval_offset, callbacks, \
        init_model, max_restarts, wait_for_workers
            See :meth:`DaskPolyleafRegressor.fit`.
        sample_weight : like y, optional
            Weights of rows.
        qid : dask Series or Array, list of delayed, or str
            Query of each row, numbers or text, with the partitions of X; or the name of the column
            of the DataFrame X that holds it. Partitions stay balanced if rows are sorted by query.
        positions : like y, optional
            Position at which each row was shown, an integer, if y are clicks; see
            :meth:`polyleaf.PolyleafRanker.fit`.
        eval_qid : list, optional
            Queries of the evaluation sets. They may be left out if `qid` is the name of a column.

        Returns
        -------
        self
        """
        eval_data = collect_eval_sets(
            eval_set, eval_names, eval_sample_weight, eval_offset, qids=eval_qid
        )
        self._local._query_column = qid if isinstance(qid, str) else None
        if isinstance(qid, str):
            eval_data = [
                data if data.rows.query is not None else _separate_queries(data, qid)
                for data in eval_data
            ]
        for data in eval_data:
            check_has_ids(data.rows.query, data.name)
        X, qid = _separate_column(X, qid)
        rows = RowData(y, sample_weight, offset, query=qid, positions=positions)
        restarts = max_restarts, wait_for_workers
        return self._fit_lazily(X, rows, eval_data, callbacks, init_model, *restarts)

    def refit(  # type: ignore[override]
        self,
        X: DataLike | None,
        y: DataLike | None,
        sample_weight: DataLike | None = None,
        *,
        qid: Any,
        positions: Any = None,
        offset: DataLike | None = None,
        decay_rate: float = 0.0,
        max_restarts: int = 3,
        wait_for_workers: float = 10.0,
    ) -> Self:
        """Fit the leaf values anew on other queries, on the workers of a cluster.

        Parameters
        ----------
        X, y, sample_weight, qid, positions, offset, max_restarts, wait_for_workers
            As in `fit`.
        decay_rate : float, default 0
            Share of the old values, from 0 to 1.

        Returns
        -------
        self
        """
        X, qid = _separate_column(X, qid)
        rows = RowData(y, sample_weight, offset, query=qid, positions=positions)
        return self._refit_lazily(X, rows, decay_rate, max_restarts, wait_for_workers)


def _separate_column(X: Any, qid: Any) -> tuple[Any, Any]:
    """Return X without a column of queries, and the queries."""
    if not isinstance(qid, str):
        return X, qid
    if qid not in getattr(X, "columns", ()):
        raise ValueError(f"qid={qid!r}: X is no DataFrame with such a column; pass a collection.")
    return X.drop(columns=[qid]), X[qid]


def _separate_queries(data: TrainingData, column: str) -> TrainingData:
    """Return data with the queries taken from a column of X."""
    X, query = _separate_column(data.X, column)
    return data._replace(X=X).replace_rows(query=query)


@contextmanager
def _use_client(client: Client | None) -> Iterator[Client]:
    """Yield the client to work with; within a task, one that frees the thread of the task."""
    if client is not None:
        yield client
    elif hasattr(thread_state, "key"):
        with worker_client() as client_of_task:
            yield client_of_task
    else:
        yield get_client()


def _map_chunks(predict: Callable[..., np.ndarray], X: da.Array, *others: da.Array) -> da.Array:
    """Predict an array chunk by chunk, with all columns in each chunk."""
    rows, columns, outputs = "i", iter("xo"), "k"
    arguments: list[object] = []
    for values in (X, *others):
        values = values.rechunk({1: -1}) if values.ndim > 1 and values.numblocks[1] > 1 else values
        arguments += [values, rows + next(columns) if values.ndim > 1 else rows]
    example = predict(np.zeros((1, X.shape[1]), X.dtype))
    indices, options = rows, {"dtype": example.dtype, "meta": example[:0]}
    if example.ndim > 1:
        indices, options["new_axes"] = rows + outputs, {outputs: example.shape[1]}
    return da.blockwise(
        predict, indices, *arguments, concatenate=True, align_arrays=False, **options
    )


def _map_frame(
    predict: Callable[..., np.ndarray], names: Sequence[str] | None, X: Any, *others: Any
) -> Any:
    """Predict a data frame partition by partition, with its index; `names` of several targets."""
    import pandas as pd

    def predict_frame(rows: Any, *others: object) -> Any:
        values = predict(rows, *others)
        if values.ndim == 1:
            return pd.Series(values, index=rows.index)
        is_named = names is not None and len(names) == values.shape[1]
        return pd.DataFrame(values, index=rows.index, columns=names if is_named else None)

    meta = predict_frame(X._meta_nonempty).iloc[:0]
    return X.map_partitions(predict_frame, *others, meta=meta, align_dataframes=False)
