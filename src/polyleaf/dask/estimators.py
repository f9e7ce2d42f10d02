"""Estimators on collections of Dask: `fit` on the workers of a cluster, predictions as lazy collections.

Owns: the conventions of Dask's users. Must not know: how a fit is done (`plan`), or what an estimator of one
machine does.
"""

from __future__ import annotations

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

from polyleaf.callbacks import as_callbacks
from polyleaf.dask.collections import Rows, alike, is_lazy
from polyleaf.dask.driver import Restart, Watched, fit
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.regressor import PolyleafRegressor
from polyleaf.inputs.offsets import check_all_or_none
from polyleaf.inputs.targets import TargetEncoding
from polyleaf.training.boosting import BoostResult
from polyleaf.training.prepare import collect_eval_sets, set_feature_names

__all__ = ["DaskPolyleafClassifier", "DaskPolyleafRegressor"]


class _DaskEstimator(BaseEstimator):
    """What both have in common."""

    _local_class: ClassVar[type[PolyleafEstimator]]

    def __init__(self, *, client: Client | None = None, **parameters: Any) -> None:
        self.client = client
        self._local = self._local_class(**parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters: the client, and those of the local estimator."""
        return {"client": self.client, **self._local.get_params(deep)}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        **parameters
            Those of the constructor.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where there is no such parameter.
        """
        if "client" in parameters:
            self.client = parameters.pop("client")
        self._local.set_params(**parameters)
        return self

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Sequence[Any] | None = None,
        eval_offset: Sequence[Any] | None = None,
        callbacks: Any = None,
        init_model: Any = None,
        max_restarts: int = 3,
        wait_for_workers: float = 10.0,
    ) -> Self:
        """Train on the workers of a cluster. It blocks until the model is there.

        Parameters
        ----------
        X : dask DataFrame, dask Array of shape (n_rows, n_features), or list of delayed
            Parts of a list are what the local estimator takes: arrays or data frames. Partitions without
            rows are left out, divisions need not be known.
        y : dask Series, DataFrame or Array, or list of delayed
            In as many partitions, of as many rows each. Very many labels (docs/sparse-leaves.md): a list of
            delayed SciPy matrices, whatever X is.
        sample_weight : like y, optional
        offset : like y, optional
            Raw scores that rows start from (docs/offsets.md), for predictions and evaluation sets as well.
        eval_set : list of (X, y), optional
            Data to measure metrics on after every round, lazy or in memory. Each set is held by one worker.
        eval_names : list of str, optional
            Default: "validation_0", "validation_1", ...
        eval_sample_weight, eval_offset : list, optional
            Those of these sets.
        callbacks : list, optional
            They are called on the worker of the first rank, on copies: what they print appears there.
        init_model : polyleaf.Model, fitted local estimator, or path or content of a model file, optional
            Go on from this model.
        max_restarts : int
            How many times workers may be lost. The round that was being trained is then trained again, by
            those that are left and those that have come.
        wait_for_workers : float
            Seconds to wait for a worker where none is left.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where partitions do not go together, data or parameters are not what they should be, or ask for
            what is not done on several workers; the message names the alternative.
        polyleaf.dask.driver.Lost
            Where workers were lost more often than `max_restarts`.
        """
        further = collect_eval_sets(eval_set, eval_names, eval_sample_weight, eval_offset)
        have = [each is not None for each in (offset, *(data.offset for data in further))]
        check_all_or_none(["training", *(data.name for data in further)], have, False)
        watched = [
            Watched(
                data.name, Rows(data.X, data.y, data.weight, data.offset, f"X of {data.name!r}")
            )
            for data in further
        ]
        self._local._validate_params()
        with _on(self.client) as client:
            rows, chosen = Rows(X, y, sample_weight, offset), as_callbacks(callbacks)
            found, self.restarts_ = fit(
                client,
                self._local,
                rows,
                watched,
                chosen,
                init_model,
                max_restarts,
                wait_for_workers,
            )
        model = found.model
        local = self._local_class(**self._local.get_params(deep=False))
        set_feature_names(local, model.mapper.n_features_, model.mapper.feature_names_)
        encoding = TargetEncoding.from_dict(model.metadata, model.n_outputs)
        local._store_result(BoostResult(model, found.evals_log, found.outputs_log, False), encoding)
        self._fitted = local
        return self

    restarts_: list[Restart]

    def to_local(self) -> Any:
        """The fitted estimator of one machine: what its own `fit` would have made of all rows.

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

    def predict(self, X: Any, *, offset: Any = None, sparse: bool = False) -> Any:
        """Predict.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        offset : like X, optional
            Raw scores that rows start from: a collection of the same kind, cut as X is.
        sparse : bool
            Never make all outputs of a row, see the local estimator. X must be a list of delayed values, or
            data in memory.

        Returns
        -------
        dask Series, DataFrame or Array, list of delayed, ndarray, or (`sparse`) csr_matrix
            Lazy where X is: its partitions, order and index. What it holds is what the local estimator
            predicts.

        Raises
        ------
        ValueError
            Where the offset is a collection of another kind, or cut otherwise; where `sparse` is asked of an
            Array or a DataFrame.
        """
        if not sparse:
            return self._lazily("predict", X, offset=offset)
        if is_dask_collection(X):
            raise ValueError(
                "predict(sparse=True) makes a SciPy matrix of each partition, which no Array or DataFrame "
                "holds: pass X as a list of delayed values, or call predict_topk."
            )
        return self._lazily("predict", X, offset=offset, sparse=True)

    def apply(self, X: Any) -> Any:
        """The leaf that each row falls into in each tree.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory

        Returns
        -------
        as `predict`, of shape (n_rows, n_trees), int32
        """
        return self._lazily("apply", X)

    def predict_topk(self, X: Any, k: int = 5) -> tuple[Any, Any]:
        """The k best outputs of each row.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        k : int

        Returns
        -------
        labels, scores : as `predict`, each of shape (n_rows, k)
            As of the local estimator.
        """
        return self._lazily("predict_topk", X, 0, k=k), self._lazily("predict_topk", X, 1, k=k)

    def _lazily(
        self, method: str, X: Any, part: int | None = None, offset: Any = None, **options: Any
    ) -> Any:
        def predicted(rows: Any, offset: Any = None) -> Any:
            beside = {} if offset is None else {"offset": offset}
            found = getattr(local, method)(rows, **beside, **options)
            found = found if part is None else found[part]
            return found if issparse(found) else np.asarray(found)

        local = self.to_local()
        if not is_lazy(X):
            return predicted(X, offset)
        beside = [] if offset is None else [alike(offset, X, "offset")]
        if isinstance(X, da.Array):
            return _of_array(predicted, X, *beside)
        if is_dask_collection(X) and hasattr(X, "map_partitions"):
            return _of_frame(predicted, X, *beside)
        return [delayed(predicted)(*rows) for rows in zip(X, *beside, strict=True)]


class DaskPolyleafRegressor(_DaskEstimator):
    """`PolyleafRegressor` on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        Default: the one that there is.
    **parameters
        Those of :class:`polyleaf.PolyleafRegressor`. `n_jobs` is the worker's number of threads.

    Attributes
    ----------
    restarts_ : list of polyleaf.dask.driver.Restart
        What the loss of workers has cost.
    model_, evals_result_, ...
        Those of the local estimator, once fitted.
    """

    _local_class = PolyleafRegressor


class DaskPolyleafClassifier(_DaskEstimator):
    """`PolyleafClassifier` on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        Default: the one that there is.
    **parameters
        Those of :class:`polyleaf.PolyleafClassifier`. `n_jobs` is the worker's number of threads.

    Attributes
    ----------
    restarts_ : list of polyleaf.dask.driver.Restart
        What the loss of workers has cost.
    classes_, model_, evals_result_, ...
        Those of the local estimator, once fitted.
    """

    _local_class = PolyleafClassifier

    def predict_proba(self, X: Any, *, offset: Any = None) -> Any:
        """Probabilities.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        offset : like X, optional
            As in `predict`.

        Returns
        -------
        as `predict`, of shape (n_rows, n_classes or n_labels), float64
        """
        return self._lazily("predict_proba", X, offset=offset)

    def decision_function(self, X: Any, *, offset: Any = None) -> Any:
        """Raw scores.

        Parameters
        ----------
        X : dask DataFrame or Array, list of delayed, or data in memory
        offset : like X, optional
            As in `predict`.

        Returns
        -------
        as `predict`, of shape (n_rows, n_classes or n_labels), or (n_rows,) for two classes; float64
        """
        return self._lazily("decision_function", X, offset=offset)


@contextmanager
def _on(client: Client | None) -> Iterator[Client]:
    """The client to work with; inside a task, one that lets others take the task's place."""
    if client is not None:
        yield client
    elif hasattr(thread_state, "key"):
        with worker_client() as own:
            yield own
    else:
        yield get_client()


def _of_array(predicted: Callable[..., np.ndarray], X: da.Array, *beside: da.Array) -> da.Array:
    """Predictions of an array, chunk by chunk; columns lie together in each."""
    rows, columns, outputs = "i", iter("xo"), "k"
    given: list[Any] = []
    for values in (X, *beside):
        values = values.rechunk({1: -1}) if values.ndim > 1 and values.numblocks[1] > 1 else values
        given += [values, rows + next(columns) if values.ndim > 1 else rows]
    example = predicted(np.zeros((1, X.shape[1]), X.dtype))
    found, about = rows, {"dtype": example.dtype, "meta": example[:0]}
    if example.ndim > 1:
        found, about["new_axes"] = rows + outputs, {outputs: example.shape[1]}
    return da.blockwise(predicted, found, *given, concatenate=True, align_arrays=False, **about)


def _of_frame(predicted: Callable[..., np.ndarray], X: Any, *beside: Any) -> Any:
    """Predictions of a data frame, partition by partition, with its index."""
    import pandas as pd

    def framed(rows: Any, *beside: Any) -> Any:
        found = predicted(rows, *beside)
        kind = pd.Series if found.ndim == 1 else pd.DataFrame
        return kind(found, index=rows.index)

    meta = framed(X._meta_nonempty).iloc[:0]
    return X.map_partitions(framed, *beside, meta=meta, align_dataframes=False)
