"""Predictions of fitted estimators: raw scores, rounds, leaves, SHAP values and importances."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, overload

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from polyleaf.binned_data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.model.metadata import HAS_OFFSETS
from polyleaf.model.prediction import Predictor
from polyleaf.model.shap import BinnedRows, OutputSelection, ShapExplainer, resolve_outputs
from polyleaf.model.statistics import IMPORTANCE_KINDS
from polyleaf.objectives import Objective
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.param_spec import suggest_on_unknown_kwargs
from polyleaf.user_data.feature_table import FeatureTable
from polyleaf.user_data.offsets import OffsetReader
from polyleaf.user_data.read_target import check_same_rows
from polyleaf.user_data.target import Target, TargetEncoding

TableLibrary: TypeAlias = Literal["default", "pandas", "polars", "pyarrow"]
_LIBRARIES = ("default", "pandas", "polars", "pyarrow")


class RowOffsetReader(Protocol):
    """Reads the offsets of rows on the scale of raw scores."""

    def read(self, offset: DataLike, n_rows: int | None = None, name: str = ...) -> np.ndarray: ...


def resolve_offset(model: Model, X: DataLike, offset: DataLike | None) -> DataLike | None:
    """Return the offset as given, or that of a Dataset.

    Warn if the model was trained with offsets and there is none.
    """
    row_offset = X.offset if offset is None and isinstance(X, Dataset) else offset
    if row_offset is None and model.metadata.get(HAS_OFFSETS):
        warn_user(
            "The model was trained with an offset, but these rows have none: pass offset (zeros to "
            "silence this warning)."
        )
    return row_offset


class PredictionMixin:
    """Prediction methods of all estimators."""

    if TYPE_CHECKING:
        model_: Model
        n_jobs: int | None
        _encoding: TargetEncoding

        def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray: ...

    # --- raw scores ----------------------------------------------------------------------------

    def _rounds(self, iteration_range: tuple[int, int] | None) -> tuple[int, int]:
        """Return the first and last round (exclusive) to predict with."""
        if "model_" not in vars(self):  # check_is_fitted takes as long as predicting one row
            check_is_fitted(self)
        if iteration_range is None:
            best = self.model_.best_iteration
            return 0, self.model_.n_rounds if best is None else best + 1
        try:
            begin, end = iteration_range
            begin, end = index(begin), 0 if end is None else index(end)
        except (TypeError, ValueError):
            raise TypeError(
                "iteration_range must be a pair (first, last) of integers, where the last round is "
                f"not used; got {iteration_range!r}. (0, n) is the first n rounds, "
                "(0, 0) is all rounds."
            ) from None
        return begin, end or self.model_.n_rounds

    def _features(self, X: DataLike, n_threads: int | None = None) -> FeatureTable:
        """Read X and check it against the training data."""
        return self.model_.prepare_features(X, n_threads or self._n_threads(), self)

    def _n_threads(self) -> int:
        return effective_threads(self.n_jobs)

    def _raw(
        self, X: DataLike, iteration_range: tuple[int, int] | None, offset: DataLike | None = None
    ) -> np.ndarray:
        """Compute raw scores (n_rows, n_scores), float64."""
        first, last = self._rounds(iteration_range)
        n_threads = self._n_threads()
        data = X if isinstance(X, Dataset) else self._features(X, n_threads)
        raw = self.model_.predict_raw(data, first, last, n_threads)
        offset = resolve_offset(self.model_, X, offset)
        return raw if offset is None else raw + self._offsets(offset, len(raw))

    def _staged_raw(
        self,
        X: DataLike,
        iteration_range: tuple[int, int] | None,
        offset: DataLike | None = None,
        rounds: list[int] | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield raw scores after `rounds`, by default each."""
        first, last = self._rounds(iteration_range)
        table = self._features(X)
        stages = self.model_.staged_predict_raw(table, first, last, self._n_threads(), rounds)
        offset = resolve_offset(self.model_, X, offset)
        if offset is None:
            return stages
        row_offsets = self._offsets(offset, table.n_rows)
        return (raw + row_offsets for raw in stages)

    def _offsets(self, offset: DataLike, n_rows: int) -> np.ndarray:
        return self._offset_reader(self._encoding, self.model_.objective).read(offset, n_rows)

    @staticmethod
    def _offset_reader(encoding: TargetEncoding, objective: Objective) -> RowOffsetReader:
        return OffsetReader(encoding, objective.n_scores(encoding.n_outputs), objective.offset_mask)

    @suggest_on_unknown_kwargs
    def predict_raw(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Predict raw scores, before the link function of the objective.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_scores); float64
            One-dimensional if there is one score and y had one dimension. Logarithms of means for
            "poisson", "gamma" and "tweedie", log-odds for "logistic", in the unit of y without a
            link.
        """
        raw = self._flatten(self._raw(X, iteration_range, offset))
        return raw if raw.ndim == 1 else self._wrap_output(raw, self._get_score_names, X)

    # --- predictions ---------------------------------------------------------------------------

    def _prediction(self, raw: np.ndarray) -> Any:
        """Return the prediction of raw scores."""
        return self._flatten(self.model_.objective.transform(raw))

    def _flatten(self, columns: np.ndarray) -> np.ndarray:
        """Return a single column in one dimension if y had one."""
        is_flat = self._encoding.one_dimensional and columns.shape[1] == 1
        return columns[:, 0] if is_flat else columns

    @overload
    def predict(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = ...,
        offset: DataLike | None = ...,
        sparse: Literal[False] = ...,
    ) -> np.ndarray: ...

    @overload
    def predict(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = ...,
        offset: DataLike | None = ...,
        sparse: bool,
    ) -> np.ndarray | scipy.sparse.csr_matrix: ...

    @suggest_on_unknown_kwargs
    def predict(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
        sparse: bool = False,
    ) -> np.ndarray | scipy.sparse.csr_matrix:
        """Predict.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            Use rounds `begin .. end - 1`. An end of 0 stands for the last round, as in XGBoost:
            (0, 0) is all rounds. Default: all rounds, or those up to the best one after early
            stopping.
        offset : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Initial raw scores, as in `fit`. Default: the offset of X if it is a Dataset with one,
            else 0, with a warning if the model was trained with offsets.
        sparse : bool
            Return a sparse matrix without computing all outputs. For models with sparse leaves that
            were trained on sparse targets (`split_search` "count_sketch" or "exact").

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_outputs) if y had several columns
            Regression: float64. Classification: labels; multi-label: int64 indicators. With
            `sparse` a csr_matrix of the same values. A table if `set_output` chose one.
        """
        if not sparse:
            predicted = self._predict_rows(X, iteration_range, offset)
            return self._wrap_output(predicted, self._get_prediction_names, X)
        if offset is not None:
            refuse("offset", "sparse_predictions")
        return self._predict_sparse(X, iteration_range)

    def _predict_rows(
        self, X: DataLike, iteration_range: tuple[int, int] | None, offset: DataLike | None
    ) -> np.ndarray:
        return self._prediction(self._raw(X, iteration_range, offset))

    @property
    def _predicts_sparse(self) -> bool:
        """Whether outputs without trees are predicted 0, as after training on sparse targets."""
        model = self.model_
        base = model.objective.sparse_base_score
        is_base = base is not None and bool((model.base_score == base).all())
        return is_base and model.target_scale is None

    def _predict_sparse(
        self, X: DataLike, iteration_range: tuple[int, int] | None
    ) -> scipy.sparse.csr_matrix:
        first, last = self._rounds(iteration_range)
        if not self._predicts_sparse:
            refuse("dense_y", "sparse_predictions")
        scores = self.model_.predict_sparse(self._features(X), first, last, self._n_threads())
        scores.data = self._prediction_of_scores(scores.data)
        scores.eliminate_zeros()
        return scores

    def predict_topk(
        self,
        X: DataLike,
        k: int = 5,
        *,
        names: bool = False,
        iteration_range: tuple[int, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict the k outputs with the largest scores of each row.

        With sparse leaves the time does not depend on the number of outputs.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        k : int
            Number of outputs to return per row.
        names : bool
            Return the names of outputs: those of the columns of y, or `model_.output_names`.
        iteration_range : (int, int), optional
            Rounds to use, see `predict`.

        Returns
        -------
        labels : ndarray of shape (n_rows, k)
            Outputs by decreasing score, ties by index. Multiclass: classes; multi-label and
            regression: int64 indices of outputs. -1 (None for classes, "" for names) if fewer than
            k outputs have a score.
        scores : ndarray of shape (n_rows, k), float64
            Raw scores; -inf if there is none.

        Raises
        ------
        ValueError
            For two classes, which have one score, and for `names` if outputs have no names.
        """
        check_is_fitted(self)
        if self._encoding.kind == "binary":
            refuse("two_classes", "topk")
        output_names = tuple(self.model_.output_names or ())
        if names and not output_names:
            raise ValueError(
                "The outputs of this model have no names: fit it on a data frame, or set "
                "model_.output_names."
            )
        first, last = self._rounds(iteration_range)
        outputs, scores = self.model_.predict_topk(
            self._features(X), k, first, last, self._n_threads()
        )
        if names:
            return np.array([*output_names, ""])[outputs], scores  # -1 is the last
        classes = self._encoding.classes
        if classes is None or self._encoding.kind == "multilabel":
            return outputs.astype(np.int64), scores
        if (outputs >= 0).all():
            return classes[outputs], scores
        named = classes.astype(object)[outputs]
        named[outputs < 0] = None
        return named, scores

    def staged_predict(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield the prediction after each round of `iteration_range`.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Yields
        ------
        ndarray of shape (n_rows,), or (n_rows, n_outputs) if y had several columns
            The last one equals `predict`. PolyleafMultiTask yields a dict of these by task. Never a
            table.
        """
        return map(self._prediction, self._staged_raw(X, iteration_range, offset))

    def apply(self, X: DataLike, *, iteration_range: tuple[int, int] | None = None) -> np.ndarray:
        """Return the leaf that each row falls into in each tree.

        Parameters
        ----------
        X, iteration_range
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_trees), int32
            Leaf indices, from 0 in each tree.
        """
        rounds = self._rounds(iteration_range)
        return self.model_.apply(self._features(X), *rounds, self._n_threads())

    def predictor(
        self,
        method: Literal["predict", "predict_proba", "decision_function"] = "predict",
        n_threads: int = 1,
        device: Literal["cpu", "cuda"] | None = None,
    ) -> Predictor:
        """Return a frozen predictor with low latency for single rows, for serving.

        Parameters
        ----------
        method : {"predict", "predict_proba", "decision_function"}
            Method whose results it returns; "predict_proba" for classes and several tasks only,
            "decision_function" for classes only.
        n_threads : int
            Number of threads for several rows.
        device : {"cpu", "cuda"}, optional
            Device that rows are evaluated on, with the same results bit for bit. None: the CPU.
            "cuda" is for large numbers of rows and models with constant leaves.

        Returns
        -------
        Predictor
            `predictor(rows)` returns the same bits as the method, for rows (n_rows, n_features) or
            one row (n_features,). Fitting the estimator again does not change it.

        Examples
        --------
        >>> from polyleaf import PolyleafRegressor
        >>> from sklearn.datasets import make_regression
        >>> X, Y = make_regression(n_targets=3, random_state=0)
        >>> model = PolyleafRegressor(n_estimators=20, min_child_samples=5).fit(X, Y)
        >>> bool((model.predictor()(X[0]) == model.predict(X[:1])[0]).all())
        True
        """
        last = self._rounds(None)[1]
        frozen = copy.copy(self)
        frozen.model_ = self.model_.copy()
        frozen.model_.truncate(last)
        methods = frozen._output_methods()
        require_choice(method, methods, "The method of this model")
        is_identity = method == "predict" and self._predicts_scores()
        return Predictor(frozen.model_, methods[method], n_threads, device, is_identity)

    def _predicts_scores(self) -> bool:
        """Whether predictions equal raw scores."""
        return False

    def _output_methods(self) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
        """Functions from raw scores to the result of each method."""
        return {"predict": self._prediction}

    def _score_inputs(
        self, X: DataLike, rows: RowData, predict: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> tuple[Target, np.ndarray]:
        """Encode y in its own unit and predict X, (n_rows, n_outputs), from raw scores."""
        check_is_fitted(self)
        target = self._encoding.encode(rows, normalized=False)
        predicted = (predict or self._prediction)(self._raw(X, None, rows.offset))
        check_same_rows(len(predicted), target.n_rows)
        return target, predicted.reshape(target.n_rows, -1)

    # --- tables --------------------------------------------------------------------------------

    def set_output(self, *, predict: TableLibrary = "default") -> Self:
        """Choose the type of predictions with several columns.

        Parameters
        ----------
        predict : {"default", "pandas", "polars", "pyarrow"}
            Type of two-dimensional results of `predict`, `predict_proba`, `predict_log_proba`,
            `predict_raw` and `decision_function`: an array, or a table with the names of the
            columns of y or of the classes. pandas tables have the index of X. A y of one column
            counts as one-dimensional: its predictions stay arrays of shape (n_rows,).

        Returns
        -------
        self
        """
        require_choice(predict, _LIBRARIES, "set_output(predict=)")
        self._sklearn_output_config = {"predict": predict}  # copied by clone
        return self

    def _wrap_output(self, values: Any, get_names: Callable[[], Sequence[str]], X: Any) -> Any:
        library = vars(self).get("_sklearn_output_config", {}).get("predict", "default")
        return values if library == "default" else make_table(library, values, get_names(), X)

    def _get_score_names(self) -> list[str]:
        return [self.model_.output_name(i) for i in range(self.model_.n_outputs)]

    def _get_prediction_names(self) -> list[str]:
        return self._get_score_names()

    # --- importances ---------------------------------------------------------------------------

    @property
    def output_groups_(self) -> list[list[int]]:
        """Outputs that share trees: the numbers of the raw scores of each group, of all groups of
        the rounds that alternate."""
        check_is_fitted(self)
        return self.model_.output_groups

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each feature in the total gain, float64 (n_features,).

        Share of the number of splits if the model was saved without statistics.
        """
        check_is_fitted(self)
        sums = self.feature_importance("gain" if self.model_.has_statistics else "split")
        total = sums.sum()
        return sums / total if total > 0 else sums

    def feature_importance(
        self,
        kind: Literal["gain", "split", "cover", "shap"] = "gain",
        per_output: bool = False,
        X: DataLike | None = None,
    ) -> np.ndarray:
        """Compute the importance of each feature, not normalised.

        Parameters
        ----------
        kind : {"gain", "split", "cover", "shap"}
            "gain": total gain of its splits, averaged over outputs; "split": number of splits;
            "cover": total Hessian of the rows that it splits; "shap": mean absolute SHAP value over
            the rows of X.
        per_output : bool
            Return the importance for each output ("gain" and "shap" only).
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features), optional
            Rows for "shap", such as a test set.

        Returns
        -------
        ndarray of shape (n_features,), or (n_outputs, n_features); float64
            A high-cardinality feature has the sum over the columns derived from it;
            `model_.feature_importance` lists these separately.
        """
        check_is_fitted(self)
        if not isinstance(kind, str):
            raise TypeError(
                f"kind must be a string such as 'gain', got {type(kind).__name__}; pass rows as X=."
            )
        if kind == "shap":
            if X is None:
                raise ValueError("kind='shap' needs rows: pass them as X.")
            importance = mean_abs_shap(iter_shap_values(self, X))
            return importance if per_output else importance.mean(axis=0)
        require_choice(kind, (*IMPORTANCE_KINDS, "shap"), "kind")
        importance = self.model_.feature_importance(kind, per_output)
        return self.model_.mapper.sum_by_feature(importance)


class ShapMixin(PredictionMixin):
    """The SHAP methods of estimators."""

    def shap_values(
        self,
        X: DataLike,
        background: DataLike | None = None,
        interactions: bool = False,
        outputs: DataLike | None = None,
        *,
        iteration_range: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Return SHAP values: the contribution of each feature to the raw scores of each row.

        They and `shap_base_values` add up to the raw scores (`predict_raw`; `decision_function` of
        a classifier, except for two classes of an objective that scores both, such as "softmax"),
        without offsets and up to float32 rounding.

        Parameters
        ----------
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features)
        background : like X, optional
            Reference rows: interventional values, the change of the scores against these rows.
            Their number does not affect the running time, except with linear leaves. Default:
            path-dependent values, the change against the training rows as the row counts of the
            nodes represent them.
        interactions : bool
            Return interaction values of each pair of features, half on either side; the diagonal
            has the main effects.
        outputs : int, str, list of these, or ndarray of shape (n_rows, m), optional
            Numbers or names of the raw scores to explain; a matrix selects other outputs for each
            row, as `predict_topk` returns them (0 where it has -1). Default: all.
        iteration_range : (int, int), optional
            See `predict`. Default: up to the best round, if early stopping found one.

        Returns
        -------
        ndarray of shape (n_rows, n_features, n_outputs), float32
            In the unit of the raw scores, which is that of y if y was normalised. Without the last
            axis if there is one raw score, or `outputs` is a number or a name; with interactions
            (n_rows, n_features, n_features, n_outputs). With `projection` the features are the
            projected ones; columns derived from a high-cardinality feature count as that feature.

        Raises
        ------
        ValueError
            If X or the background do not have the features of the training data, for unknown
            outputs, or without a background if the model was saved without row counts.
        MemoryError
            If the result does not fit in memory.
        """
        selection, explainer = self._prepare_shap(background, outputs, iteration_range)
        values = explainer.values(self._read_shap_rows(X), selection, interactions)
        return values[..., 0] if selection.is_single else values

    def shap_base_values(
        self,
        background: DataLike | None = None,
        outputs: DataLike | None = None,
        *,
        iteration_range: tuple[int, int] | None = None,
    ) -> np.ndarray | np.float64:
        """Return the expected raw scores, to which SHAP values are added.

        Parameters
        ----------
        background, outputs, iteration_range
            See `shap_values`.

        Returns
        -------
        ndarray of shape (n_outputs,), float64, or a float64 number
            A number if `shap_values` has no axis of outputs. For a matrix of `outputs` in its
            shape, NaN for -1.
        """
        selection, explainer = self._prepare_shap(background, outputs, iteration_range)
        base = explainer.base_values(selection)
        return np.float64(base[0]) if selection.is_single else base

    def _prepare_shap(
        self,
        background: DataLike | None = None,
        outputs: object = None,
        iteration_range: tuple[int, int] | None = None,
    ) -> tuple[OutputSelection, ShapExplainer]:
        check_is_fitted(self)
        first, last = self._rounds(iteration_range)
        reference = None if background is None else self._read_shap_rows(background, "background")
        model, n_threads = self.model_, self._n_threads()
        selection = resolve_outputs(outputs, model.n_outputs, model.output_names)
        return selection, ShapExplainer(model, first, last, reference, n_threads)

    def _read_shap_rows(self, X: DataLike, name: str = "X") -> FeatureTable | BinnedRows:
        if isinstance(X, Dataset):
            X = X.rebinned_to(self.model_.mapper)
            return BinnedRows(X.codes, X.features)
        if name != "X" and getattr(X, "shape", (1,))[0] == 0:
            raise ValueError(f"{name} must have at least one row.")
        return self._features(X)


def iter_shap_values(
    estimator: Any, X: Any, background: Any = None, outputs: Any = None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield SHAP values in chunks of rows, for data whose values do not fit in memory.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier
    X, background, outputs
        See `shap_values` of the estimators.

    Yields
    ------
    rows : slice
    values : ndarray of shape (n_chunk_rows, n_features, n_outputs), float32
    """
    selection, explainer = estimator._prepare_shap(background, outputs)
    return explainer.iter_values(estimator._read_shap_rows(X), selection)


def mean_abs_shap(chunks: Iterable[tuple[slice, np.ndarray]]) -> np.ndarray:
    """Return the mean absolute SHAP values.

    Parameters
    ----------
    chunks : iterable of (slice, ndarray of shape (n_chunk_rows, n_features, n_outputs), float32)
        The result of `iter_shap_values`.

    Returns
    -------
    ndarray of shape (n_outputs, n_features), float64
        In the unit of raw scores.
    """
    total, n_rows = 0.0, 0
    for rows, values in chunks:
        total, n_rows = total + np.abs(values).sum(axis=0, dtype=np.float64), rows.stop
    if not n_rows:
        raise ValueError("X must have at least one row for importances by SHAP values.")
    return np.asarray(total).T / n_rows


def make_table(
    library: TableLibrary,
    values: np.ndarray | dict[str, np.ndarray],
    names: Sequence[str],
    X: DataLike,
) -> Any:
    """Return a matrix, or a dict of columns, as a table; pandas tables have the index of X.

    Vectors stay arrays.
    """
    if library == "default" or (isinstance(values, np.ndarray) and values.ndim == 1):
        return values
    if library == "pandas":
        import pandas as pd

        return pd.DataFrame(
            values, columns=list(names), index=X.index if isinstance(X, pd.DataFrame) else None
        )
    if library == "polars":
        import polars as pl

        return pl.DataFrame(values, schema=list(names))
    import pyarrow as pa

    columns = list(values.T) if isinstance(values, np.ndarray) else [values[name] for name in names]
    return pa.table(columns, names=list(names))
