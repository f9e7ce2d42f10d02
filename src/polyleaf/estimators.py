"""PolyleafRegressor and PolyleafClassifier: the scikit-learn contract.

Owns the parameters, their checks, and the translation between the user's terms and the loop's: y to a
Target, X to a Dataset, parameters to a BoostConfig, raw scores to predictions. No algorithm: that is
`boosting.py` and the core.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, _fit_context
from sklearn.metrics import d2_pinball_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .binning import BinMapper
from .boosting import EvalSet, boost
from .callbacks import EarlyStopping, EvaluationMonitor, ProgressBar, as_callbacks
from .config import BoostConfig
from .dataset import Dataset
from .explain import Explained, in_chunks, mean_magnitude
from .features import as_features
from .metrics import Metric, get_metrics
from .model import Model
from .objectives import Custom, Objective, get_objective
from .parameters import SHARED_CONSTRAINTS, Constraints, document
from .projections import Projector
from .targets import Target, TargetEncoding, encode_classification, encode_regression, encode_sparse
from .threads import effective_threads

__all__ = ["PolyleafClassifier", "PolyleafRegressor", "load_model"]

_Self = TypeVar("_Self", bound="_PolyleafEstimator")


class _PolyleafEstimator(Explained, BaseEstimator):
    """What regressor and classifier have in common."""

    _parameter_constraints: ClassVar[Constraints] = SHARED_CONSTRAINTS

    def __init__(self, objective: Any, **shared: Any):
        self.objective = objective
        for name, value in shared.items():
            setattr(self, name, value)

    # ------------------------------------------------------------------------------------------------ fit

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self: _Self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        eval_names: Sequence[str] | None = None,
        eval_sample_weight: Sequence[Any] | None = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        callbacks: Any = None,
        init_model: Any = None,
    ) -> _Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix, pandas/polars/Arrow table of shape (n_rows, n_features), or polyleaf.Dataset
            NaN (null) is a missing value.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Classification: labels of any type, or an indicator matrix (dense or sparse). May be left out
            where X is a Dataset that holds it.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Weights of rows, or of each output of each row (not for multi-class).
        eval_set : list of (X, y), optional
            Data to measure metrics on after every round. X may be a Dataset binned with `reference=` the
            training's.
        eval_names : list of str, optional
            Names of these in `evals_result_`. Default: "validation_0", "validation_1", ...
        eval_sample_weight : list of array-like, optional
            Weights of these.
        X_val, y_val, sample_weight_val : optional
            One more evaluation set, called "validation".
        callbacks : list, optional
            On top of those of the constructor.
        init_model : polyleaf.Model, fitted estimator, or path of a model file, optional
            Go on from this model: `n_estimators` more rounds. Its bins, labels and units are kept.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where data or parameters are not what they should be; the message says what and where.
        """
        if isinstance(X, Dataset):
            y, sample_weight = _from_dataset(X, y, sample_weight)
        start = self._starting_model(init_model)
        rounds = self._rounds_to_do(start, init_model)
        search = self._resolved_search(y)
        if search == "histogram":
            target = self._encode_target(y, sample_weight, start)
        else:
            target = self._encode_sparse_target(y, sample_weight, start)
        objective = self._objective(target, start)
        X, target, held_out = self._hold_out(X, y, sample_weight, target)
        X = self._project(X, target, start)
        reads_features = self.leaf == "linear" or (start is not None and start.reads_features)
        dataset = self._dataset(X, target, start, reads_features)
        given = _evaluation_data(eval_set, eval_names, eval_sample_weight, X_val, y_val, sample_weight_val)
        if held_out is not None:
            given.append(("validation", *held_out))
        metrics = self._metrics(objective, target)
        about = dataset.mapper, target, metrics, reads_features
        eval_sets = [self._eval_set(*about, *data) for data in given]
        encoding = target.encoding
        all_callbacks = self._all_callbacks(callbacks, rounds, metrics if eval_sets else [])
        try:
            model, self.evals_result_, per_output = boost(
                dataset,
                target.values,
                target.weight,
                objective,
                self._config(rounds, search),
                eval_sets=eval_sets,
                callbacks=all_callbacks,
                init_model=start,
                base_score=self._encoded_base_score(encoding),
                target_scale=self._per_score(encoding.scale),
                target_offset=self._per_score(encoding.offset),
                output_names=self._score_names(encoding),
                projection=self.projection_,
                model_metadata=self._metadata(encoding),
            )
        finally:
            for callback in all_callbacks:
                if isinstance(callback, ProgressBar):
                    callback.close()
        self._adopt(model, encoding)
        self.evals_result_per_output_ = {
            name: {metric: np.array(rows) for metric, rows in metrics.items()}
            for name, metrics in per_output.items()
        }
        return self

    def _starting_model(self, init_model: Any) -> Model | None:
        if init_model is None:
            return self.model_ if self.warm_start and hasattr(self, "model_") else None
        if isinstance(init_model, _PolyleafEstimator):
            check_is_fitted(init_model)
            init_model = init_model.model_
        elif isinstance(init_model, str | os.PathLike):
            init_model = Model.load(Path(init_model))
        if not isinstance(init_model, Model):
            raise TypeError(
                "init_model must be a polyleaf.Model, a fitted estimator or the path of a model file, "
                f"got {type(init_model).__name__}."
            )
        made_by = init_model.metadata.get("estimator")
        if made_by != type(self).__name__:
            raise ValueError(
                f"init_model was trained by {made_by}, it cannot be continued by {type(self).__name__}."
            )
        return init_model

    def _rounds_to_do(self, start: Model | None, init_model: Any) -> int:
        if start is None or init_model is not None:
            return self.n_estimators
        rounds = self.n_estimators - start.n_rounds
        if rounds < 0:
            raise ValueError(
                f"warm_start: n_estimators={self.n_estimators} is less than the {start.n_rounds} rounds "
                "that the model has."
            )
        return rounds

    def _objective(self, target: Target, start: Model | None) -> Objective:
        encoding = target.encoding
        objective = self._make_objective(encoding, scipy.sparse.issparse(target.values))
        if encoding.scale is not None and not getattr(objective, "location", False):
            raise ValueError(
                f"normalize_targets=True moves targets, which objective {objective.name!r} does not allow: "
                "it is for squared_error, absolute_error, quantile and huber."
            )
        if start is not None and start.objective.to_dict() != objective.to_dict():
            raise ValueError(
                f"The model to go on from was trained with objective {start.objective.to_dict()}, "
                f"not {objective.to_dict()}."
            )
        return objective

    def _hold_out(
        self, X: Any, y: Any, sample_weight: Any, target: Target
    ) -> tuple[Any, Target, tuple[Any, Any, Any] | None]:
        """Set `validation_fraction` of the rows aside: (X, target, (X, y, weight) of the rows set aside)."""
        n_rows = _n_rows(X)
        if target.n_rows != n_rows:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, "
                f"y has {target.n_rows}."
            )
        if n_rows == 1:
            raise ValueError(
                "Found array with 1 sample(s) (n_samples=1) while a minimum of 2 is required by "
                f"{type(self).__name__}."
            )
        if self.validation_fraction is None:
            return X, target, None
        if isinstance(X, Dataset):
            raise ValueError("validation_fraction cannot split a Dataset: pass validation data as eval_set.")
        train, aside = _split_rows(target, self.validation_fraction, self._seed())
        weight = None if np.ndim(sample_weight) == 0 else np.asarray(sample_weight)[aside]
        return (
            _safe_indexing(X, train),
            target.take(train),
            (_safe_indexing(X, aside), _take(y, aside), weight),
        )

    def _dataset(self, X: Any, target: Target, start: Model | None, reads_features: bool) -> Dataset:
        if isinstance(X, Dataset):
            self._take_feature_names(X.n_features, X.feature_names)
            if start is not None and not X.mapper.same_bins(start.mapper):
                raise ValueError(
                    "This Dataset was binned apart from the model to go on from: make it with "
                    "reference=model.mapper, or pass the raw X."
                )
            return X
        mapper = None if start is None else start.mapper
        if self.projection_ is not None:
            table = self._projected_features(X, mapper)
        else:
            table = as_features(
                X,
                categorical_features=self.categorical_features,
                reference=mapper,
                estimator=self,
                reset=True,
                n_threads=self._n_threads(),
            )
        dataset = Dataset(
            table,
            sample_weight=target.weight,
            max_bins=self.max_bins,
            reference=mapper,
            keep_features=reads_features,
            n_jobs=self.n_jobs,
        )
        if start is None:
            dataset.pack()
        return dataset

    def _eval_set(
        self,
        mapper: BinMapper,
        training: Target,
        metrics: list[Metric],
        reads_features: bool,
        name: str,
        X: Any,
        y: Any,
        weight: Any,
    ) -> EvalSet:
        """Evaluation data, binned as the training data is; its target in the user's unit."""
        if isinstance(X, Dataset):
            y, weight = _from_dataset(X, y, weight)
        if isinstance(X, Dataset):
            codes, features = self._codes(X, mapper), X.raw_features() if reads_features else None
        else:
            table = self._features(X, mapper)
            codes = mapper.transform(table, self._n_threads())
            features = table.numbers() if reads_features else None
        called, encoding = f"y of {name!r}", training.encoding
        if scipy.sparse.issparse(training.values):
            target = encode_sparse(y, weight, kind=self._sparse_kind, name=called, like=encoding)
        else:
            target = encoding.encode(y, weight, name=called, normalized=False)
        if target.n_rows != codes.shape[1]:
            raise ValueError(f"y of {name!r} has {target.n_rows} rows, its X has {codes.shape[1]}.")
        return EvalSet(name, codes, target.values, target.weight, metrics, features)

    def _codes(self, X: Dataset, mapper: BinMapper) -> np.ndarray:
        if not X.mapper.same_bins(mapper):
            raise ValueError(
                "This Dataset was binned apart from the training data: make it with reference=, "
                "or pass the raw X."
            )
        return X.codes

    def _features(self, X: Any, mapper: Any) -> Any:
        """X as a checked FeatureTable that agrees with the training data."""
        if self.projection_ is None:
            return as_features(X, reference=mapper, estimator=self, reset=False, n_threads=self._n_threads())
        projected = self.projection_.transform(self._plain(X, reset=False), self._n_threads())
        return self._projected_features(projected, mapper)

    # ------------------------------------------------------------------------------------------------
    # projections

    def _project(self, X: Any, target: Target, start: Model | None) -> Any:
        """X to train on: projected, where that is wanted, by what is learned here or was learned before."""
        projector = self._projector()
        self.projection_ = None if start is None else start.projection
        if projector is None and self.projection_ is None:
            return X
        if isinstance(X, Dataset):
            raise ValueError(
                "A Dataset holds features that are binned already: pass the raw X where projection is set."
            )
        if not (self.categorical_features is None or isinstance(self.categorical_features, str)):
            raise ValueError("projection mixes all features as numbers: categorical_features cannot be set.")
        plain, n_threads = self._plain(X, reset=True), self._n_threads()
        if self.projection_ is not None:
            return self.projection_.transform(plain, n_threads)
        assert projector is not None
        if plain.shape[0] != target.n_rows:
            raise ValueError(f"X has {plain.shape[0]} rows, y has {target.n_rows}.")
        self.projection_, projected = projector.fit_transform(
            plain, _as_indicators(target), seed=self._seed(), n_threads=n_threads
        )
        return projected

    def _projector(self) -> Projector | None:
        if isinstance(self.projection, Projector):
            if self.projection_dim is not None or self.tfidf:
                raise ValueError(
                    "projection_dim and tfidf go with the name of a projection; a Projector has its own."
                )
            return self.projection
        if self.projection is None:
            if self.projection_dim is not None or self.tfidf:
                raise ValueError('projection_dim and tfidf mean nothing without projection ("leml", say).')
            return None
        dim = {} if self.projection_dim is None else {"dim": self.projection_dim}
        return Projector(self.projection, tfidf=self.tfidf, **dim)

    def _plain(self, X: Any, reset: bool) -> Any:
        """X as numbers, dense or CSR, with scikit-learn's bookkeeping of names."""
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=False
        )

    def _projected_features(self, projected: Any, mapper: Any) -> Any:
        assert self.projection_ is not None
        return as_features(
            projected,
            feature_names=self.projection_.feature_names,
            reference=mapper,
            n_threads=self._n_threads(),
        )

    # ------------------------------------------------------------------------------------------------
    # sparse targets

    def _resolved_search(self, y: Any) -> str:
        """`split_search`, where "auto" depends on y."""
        if self.split_search != "auto":
            return self.split_search
        return "sketch" if self.leaf == "sparse" and scipy.sparse.issparse(y) else "histogram"

    def _encode_sparse_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if self.missing_targets != "error":
            raise ValueError(
                'missing_targets="ignore" needs a dense y; sparse targets hold no missing values.'
            )
        like = None if start is None else TargetEncoding.from_dict(start.metadata)
        return encode_sparse(y, sample_weight, kind=self._sparse_kind, like=like)

    def _metrics(self, objective: Objective, target: Target) -> list[Metric]:
        chosen, encoding = self.eval_metric, target.encoding
        if scipy.sparse.issparse(target.values):
            return _ranking_metrics(
                get_metrics(("p@1", "p@3", "p@5") if chosen is None else chosen, objective)
            )
        if chosen is None and objective.name == "custom":
            names = {"multiclass": "merror", "binary": "error", "multilabel": "error"}
            is_as_wide = self._n_scores(encoding) == encoding.n_outputs
            chosen = names.get(encoding.kind, None if is_as_wide else "loss")
        return get_metrics(chosen, objective)

    def _config(self, rounds: int, search: str) -> BoostConfig:
        names = {field.name for field in dataclasses.fields(BoostConfig)}
        settings = {name: value for name, value in self.get_params(deep=False).items() if name in names}
        settings |= {"n_estimators": rounds, "seed": self._seed(), "n_threads": self._n_threads()}
        return BoostConfig(**settings | {"split_search": search})

    def _all_callbacks(self, callbacks: Any, rounds: int, metrics: list[Metric]) -> list[Any]:
        chosen = as_callbacks(self.callbacks) + as_callbacks(callbacks)
        if self.early_stopping_rounds is not None:
            if not metrics:
                raise ValueError(
                    "early_stopping_rounds needs data to evaluate on: pass eval_set=[(X, y)] or X_val and "
                    "y_val to fit, or set validation_fraction."
                )
            chosen.append(EarlyStopping(self.early_stopping_rounds))
        for callback in chosen:
            if isinstance(callback, EarlyStopping):
                callback.know(metrics)
        verbose = self.verbose
        if verbose is None:
            interactive = hasattr(sys, "ps1") or sys.flags.interactive
            return [*chosen, ProgressBar(rounds, delay=2.0)] if interactive else chosen
        if verbose == 1:
            return [*chosen, ProgressBar(rounds, force=True)]
        return [*chosen, EvaluationMonitor(int(verbose))] if verbose > 1 else chosen

    def _encoded_base_score(self, encoding: TargetEncoding) -> np.ndarray | None:
        if self.base_score is None:
            return None
        score = np.asarray(self.base_score, np.float64).reshape(-1)
        n_outputs = self._n_scores(encoding)
        if score.size not in (1, n_outputs) or not np.all(np.isfinite(score)):
            raise ValueError(
                f"base_score must be a finite number or {n_outputs} of them, got {self.base_score}."
            )
        score = np.resize(score, n_outputs)
        offset, scale = self._per_score(encoding.offset), self._per_score(encoding.scale)
        return score if offset is None or scale is None else (score - offset) / scale

    def _scores_per_output(self) -> int:
        return 1

    def _n_scores(self, encoding: TargetEncoding) -> int:
        """Raw scores of a row; a custom objective may have more or less than there are outputs."""
        own = self.objective.n_outputs if isinstance(self.objective, Custom) else None
        return own or encoding.n_outputs * self._scores_per_output()

    def _custom(self, objective: Custom, n_outputs: int | None) -> Custom:
        """A custom objective with what the estimator knows: the number of scores, and whether it needs any
        second derivative."""
        first_order = self.curvature == self.leaf_curvature == "none"
        curvature = "none" if first_order else objective.curvature
        return dataclasses.replace(objective, n_outputs=objective.n_outputs or n_outputs, curvature=curvature)

    def _per_score(self, per_output: np.ndarray | None) -> np.ndarray | None:
        """One number per output -> one per raw score (several quantiles of an output stand side by side)."""
        return None if per_output is None else np.repeat(per_output, self._scores_per_output())

    def _metadata(self, encoding: TargetEncoding) -> dict[str, Any]:
        """What a model file holds besides the model, so that the estimator can be made again."""
        parameters = _plain_parameters(self.get_params(deep=False))
        if self.projection_ is not None:  # the model's own names are those of projected features
            names = getattr(self, "feature_names_in_", None)
            encoding_names = {"input_names": None if names is None else [str(name) for name in names]}
        else:
            encoding_names = {}
        return encoding_names | {
            "estimator": type(self).__name__,
            "parameters": parameters,
            **encoding.to_dict(),
        }

    def _seed(self) -> int:
        """An int stands for itself, so that a training that is taken up again goes on as it would have."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _n_threads(self) -> int:
        return effective_threads(self.n_jobs)

    # ------------------------------------------------------------------------------------------------
    # fitted state

    def _adopt(self, model: Model, encoding: TargetEncoding) -> None:
        """Take over a model, trained or loaded."""
        self.model_ = model
        self.projection_ = model.projection
        self._encoding = encoding
        self.n_iter_ = model.n_rounds
        self.n_outputs_ = 1 if encoding.kind in ("binary", "multiclass") else model.n_outputs
        self.best_iteration_ = model.best_iteration
        self.best_score_ = model.best_score
        if encoding.classes is not None:
            self.classes_ = encoding.classes

    def _take_feature_names(self, n_features: int, names: Sequence[str] | None) -> None:
        self.n_features_in_ = n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------------------------------------------
    # prediction

    def _rounds(self, iteration_range: tuple[int, int] | None) -> tuple[int, int]:
        """First and last round (exclusive) to predict with."""
        if iteration_range is None:
            best = self.model_.best_iteration
            return 0, self.model_.n_rounds if best is None else best + 1
        begin, end = iteration_range
        return int(begin), int(end) if end else self.model_.n_rounds

    def _raw(self, X: Any, iteration_range: tuple[int, int] | None) -> np.ndarray:
        """Raw scores (n_rows, n_scores), float64."""
        check_is_fitted(self)
        first, last = self._rounds(iteration_range)
        if isinstance(X, Dataset):
            codes = self._codes(X, self.model_.mapper)
            return self.model_.raw_predict_codes(codes, first, last, self._n_threads(), X.features)
        return self.model_.raw_predict(self._features(X, self.model_.mapper), first, last, self._n_threads())

    def _staged_raw(self, X: Any, iteration_range: tuple[int, int] | None) -> Iterator[np.ndarray]:
        check_is_fitted(self)
        table = self._features(X, self.model_.mapper)
        return self.model_.staged_raw(table, *self._rounds(iteration_range), self._n_threads())

    def predict(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, sparse: bool = False
    ) -> np.ndarray | scipy.sparse.csr_matrix:
        """Predict.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            Use rounds `begin .. end - 1`; an end of 0 is the last. Default: all, or up to the best one
            where early stopping chose one.
        sparse : bool
            Never make all outputs of a row. For models whose leaves are sparse, trained on targets that are 0
            where no tree says otherwise (multi-label or regression with `split_search` "sketch" or "exact").

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_outputs) where y had two dimensions
            Regression: float64. Classification: labels; multi-label: int64 indicators. With `sparse` a
            csr_matrix of the same values.
        """
        if sparse:
            return self._sparse_prediction(X, iteration_range)
        return self._prediction(self._raw(X, iteration_range))

    def predict_topk(
        self,
        X: Any,
        k: int = 5,
        *,
        names: bool = False,
        iteration_range: tuple[int, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best outputs of each row. With sparse leaves the work does not depend on the number of
        outputs.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        k : int
        names : bool
            Outputs by the names that y's columns had, or that `model_.output_names` was set to.
        iteration_range : (int, int), optional
            As in `predict`.

        Returns
        -------
        labels : ndarray of shape (n_rows, k)
            Best first, ties by number: multi-class: classes; multi-label and regression: int64 numbers of
            outputs. -1 where a row has fewer than k outputs that any tree has voted for (sparse leaves).
            With `names`: str, and "" where there are fewer.
        scores : ndarray of shape (n_rows, k), float64
            Raw scores, as `decision_function` has them; -inf where there is none.

        Raises
        ------
        ValueError
            For two classes, which have one score, and for `names` where outputs have none.
        """
        check_is_fitted(self)
        if self._encoding.kind == "binary":
            raise ValueError(
                "predict_topk ranks outputs, but two classes have one score; use decision_function."
            )
        known = tuple(self.model_.output_names or ())
        if names and not known:
            raise ValueError(
                "The outputs of this model have no names: fit it on a data frame, or set model_.output_names."
            )
        first, last = self._rounds(iteration_range)
        n_threads = self._n_threads()
        table = self._features(X, self.model_.mapper)
        outputs, scores = self.model_.predict_topk(table, k, first, last, n_threads)
        if names:
            return np.array([*known, ""])[outputs], scores  # -1 is the last
        classes = self._encoding.classes
        if classes is None or self._encoding.kind == "multilabel":
            return outputs.astype(np.int64), scores
        return classes[outputs], scores

    def _sparse_prediction(self, X: Any, iteration_range: tuple[int, int] | None) -> scipy.sparse.csr_matrix:
        check_is_fitted(self)
        objective, base = self.model_.objective, self.model_.base_score
        if (
            objective.zero_base is None
            or (base != objective.zero_base).any()
            or self.model_.target_scale is not None
        ):
            raise ValueError(
                "predict(sparse=True) is for models trained on sparse targets: predictions of this "
                "one are not 0 where "
                "no tree says otherwise. Use predict_topk, or predict(sparse=False)."
            )
        first, last = self._rounds(iteration_range)
        scores = self.model_.predict_sparse(
            self._features(X, self.model_.mapper), first, last, self._n_threads()
        )
        scores.data = self._prediction_of_scores(scores.data)
        scores.eliminate_zeros()
        return scores

    def staged_predict(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield what `predict` gives after each round of `iteration_range`."""
        return map(self._prediction, self._staged_raw(X, iteration_range))

    def apply(self, X: Any, *, iteration_range: tuple[int, int] | None = None) -> np.ndarray:
        """The leaf that each row falls into in each tree.

        Returns
        -------
        ndarray of shape (n_rows, n_trees), int32
        """
        check_is_fitted(self)
        table = self._features(X, self.model_.mapper)
        return self.model_.apply(table, *self._rounds(iteration_range), self._n_threads())

    @property
    def feature_importances_(self) -> np.ndarray:
        """Share of each feature in the total gain, float64 (n_features,)."""
        gains = self.feature_importance("gain")
        total = gains.sum()
        return gains / total if total > 0 else gains

    def feature_importance(
        self,
        kind: Literal["gain", "split", "cover", "shap"] = "gain",
        per_output: bool = False,
        X: Any = None,
    ) -> np.ndarray:
        """What each feature does in the splits of all trees (sums, not normalised), or to raw scores.

        Parameters
        ----------
        kind : {"gain", "split", "cover", "shap"}
            Gain averaged over outputs; number of splits; summed curvature of the rows they split; mean
            magnitude of the contributions (`shap_values`) to the raw scores of the rows of X.
        per_output : bool
            Each output for itself ("gain" and "shap" only).
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features), optional
            "shap" only: the rows, of a test set say.

        Returns
        -------
        ndarray of shape (n_features,), or (n_outputs, n_features); float64
        """
        check_is_fitted(self)
        if kind == "shap":
            if X is None:
                raise ValueError("Importance of kind='shap' is that for some rows: pass them as X.")
            magnitude = mean_magnitude(in_chunks(self, X))
            return magnitude if per_output else magnitude.mean(axis=0)
        return self.model_.feature_importance(kind, per_output)

    # ------------------------------------------------------------------------------------------------ files

    def save_model(
        self, path: str | os.PathLike[str], *, leaf_dtype: str = "float32", statistics: bool = True
    ) -> None:
        """Write the model to a file that cannot run code, for `load_model`.

        The file has the forest, the bins, labels and units, and those parameters of the estimator that are
        plain values. Written beside and renamed: an old file stays whole until the new one is.

        Parameters
        ----------
        path : str or path
        leaf_dtype : {"float32", "float16", "int8"}
            Leaf values as they are, or rounded; :func:`polyleaf.inspect.leaf_dtype_report` measures what that
            saves and costs.
        statistics : bool
            False leaves out gains, numbers of rows and curvatures of the nodes, which importances need and
            predictions do not.

        Raises
        ------
        ValueError
            When class labels are neither strings, numbers nor booleans, or leaf values do not fit
            `leaf_dtype`.
        """
        check_is_fitted(self)
        self.model_.save(Path(path), leaf_dtype, statistics)

    @classmethod
    def load_model(cls: type[_Self], path: str | os.PathLike[str]) -> _Self:
        """Read a fitted estimator of this class from a file.

        Raises
        ------
        ValueError
            When the file is no model file, damaged, or holds a model of another estimator.
        """
        estimator = load_model(path)
        if not isinstance(estimator, cls):
            raise ValueError(f"{os.fspath(path)} holds a {type(estimator).__name__}, not a {cls.__name__}.")
        return estimator

    # ------------------------------------------------------------------------------------------------ by
    # subclass

    _sparse_kind: ClassVar[Literal["multilabel", "regression"]]

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        raise NotImplementedError

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        """Predictions of single outputs from their raw scores, where targets were sparse."""
        raise NotImplementedError

    def _make_objective(self, encoding: TargetEncoding, sparse: bool) -> Objective:
        raise NotImplementedError

    def _score_names(self, encoding: TargetEncoding) -> list[str] | None:
        raise NotImplementedError

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@document
class PolyleafRegressor(RegressorMixin, _PolyleafEstimator):
    """Gradient boosted trees for one or many numbers.

    Parameters
    ----------
    objective : str, callable or polyleaf.objectives.Objective, default="squared_error"
        "squared_error", "absolute_error", "quantile", "huber", "poisson", "gamma", "tweedie", "logistic" (y
        in [0, 1]), a name that XGBoost or LightGBM has for these, or a loss written with JAX, or a
        function that returns `(gradient, curvature)`: see :class:`polyleaf.objectives.Custom`.
    {trees}
    quantile_alpha : float or list of float, default=0.5
        Levels for objective "quantile". Several make several outputs: for y with T columns and A levels,
        predictions are `(n_rows, T * A)`, the levels of the first column first.
    huber_delta : float, default=1.0
        Where the Huber loss becomes linear; in the unit of y, or of the normalised y.
    tweedie_variance_power : float, default=1.5
        Between 1 (Poisson) and 2 (gamma).
    normalize_targets : bool, default=False
        Train on outputs of mean 0 and standard deviation 1, so that outputs on large scales do not decide
        the splits alone; predictions and metrics are in the unit of y.
    {training}

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, Y = make_regression(n_targets=3, random_state=0)
    >>> PolyleafRegressor(n_estimators=20, min_child_samples=5).fit(X, Y).predict(X).shape
    (100, 3)
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED_CONSTRAINTS,
        "objective": [str, callable, Objective],
        "quantile_alpha": [Interval(Real, 0, 1, closed="neither"), "array-like"],
        "huber_delta": [Interval(Real, 0, None, closed="neither")],
        "tweedie_variance_power": [Interval(Real, 1, 2, closed="neither")],
        "normalize_targets": ["boolean"],
    }

    def __init__(
        self,
        objective: str | Callable[..., Any] | Objective = "squared_error",
        *,
        n_estimators: int = 300,
        learning_rate: float = 0.1,
        max_depth: int | None = None,
        max_leaves: int | None = 31,
        grow_policy: str = "lossguide",
        max_bins: int = 255,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        min_split_gain: float = 0.0,
        min_child_weight: float = 1e-3,
        min_child_samples: int = 1,
        max_delta_step: float = 0.0,
        subsample: float = 1.0,
        sampling_method: str = "uniform",
        top_rate: float = 0.2,
        other_rate: float = 0.1,
        colsample_bytree: float = 1.0,
        colsample_bynode: float = 0.5,
        multi_strategy: str = "multi_output_tree",
        curvature: str = "auto",
        leaf_curvature: str = "auto",
        block_size: int = 2,
        refresh: str = "round",
        rows_per_layer: Any = None,
        pruning: str = "pre",
        sketch: Any = None,
        sketch_dim: int | None = None,
        leaf: str = "constant",
        linear_fit: str = "half_additive",
        linear_features: int = 5,
        linear_lambda: float | None = None,
        linear_extrapolation: str = "clip",
        leaf_k: int = 20,
        leaf_support: str = "own",
        split_search: str = "auto",
        threshold_step: float = 0.05,
        projection: Any = None,
        projection_dim: int | None = None,
        tfidf: bool = False,
        base_score: Any = None,
        missing_targets: str = "error",
        categorical_features: Any = "from_dtype",
        max_cat_to_onehot: int = 4,
        cat_smooth: float = 10.0,
        eval_metric: Any = None,
        early_stopping_rounds: int | None = None,
        validation_fraction: float | None = None,
        callbacks: Any = None,
        warm_start: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int | None = None,
        histogram_memory: int | None = None,
        quantile_alpha: Any = 0.5,
        huber_delta: float = 1.0,
        tweedie_variance_power: float = 1.5,
        normalize_targets: bool = False,
    ):
        super().__init__(
            objective,
            n_estimators=n_estimators,
            learning_rate=learning_rate,
            max_depth=max_depth,
            max_leaves=max_leaves,
            grow_policy=grow_policy,
            max_bins=max_bins,
            reg_lambda=reg_lambda,
            reg_alpha=reg_alpha,
            min_split_gain=min_split_gain,
            min_child_weight=min_child_weight,
            min_child_samples=min_child_samples,
            max_delta_step=max_delta_step,
            subsample=subsample,
            sampling_method=sampling_method,
            top_rate=top_rate,
            other_rate=other_rate,
            colsample_bytree=colsample_bytree,
            colsample_bynode=colsample_bynode,
            multi_strategy=multi_strategy,
            curvature=curvature,
            leaf_curvature=leaf_curvature,
            block_size=block_size,
            refresh=refresh,
            rows_per_layer=rows_per_layer,
            pruning=pruning,
            sketch=sketch,
            sketch_dim=sketch_dim,
            leaf=leaf,
            linear_fit=linear_fit,
            linear_features=linear_features,
            linear_lambda=linear_lambda,
            linear_extrapolation=linear_extrapolation,
            leaf_k=leaf_k,
            leaf_support=leaf_support,
            split_search=split_search,
            threshold_step=threshold_step,
            projection=projection,
            projection_dim=projection_dim,
            tfidf=tfidf,
            base_score=base_score,
            missing_targets=missing_targets,
            categorical_features=categorical_features,
            max_cat_to_onehot=max_cat_to_onehot,
            cat_smooth=cat_smooth,
            eval_metric=eval_metric,
            early_stopping_rounds=early_stopping_rounds,
            validation_fraction=validation_fraction,
            callbacks=callbacks,
            warm_start=warm_start,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            histogram_memory=histogram_memory,
        )
        self.quantile_alpha = quantile_alpha
        self.huber_delta = huber_delta
        self.tweedie_variance_power = tweedie_variance_power
        self.normalize_targets = normalize_targets

    _sparse_kind = "regression"

    def _encode_sparse_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if self.normalize_targets:
            raise ValueError(
                "normalize_targets=True moves what is 0, which sparse targets cannot hold: set it to False."
            )
        return super()._encode_sparse_target(y, sample_weight, start)

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if start is not None:
            return TargetEncoding.from_dict(start.metadata).encode(y, sample_weight)
        return encode_regression(
            y, sample_weight, missing=self.missing_targets, normalize=self.normalize_targets
        )

    def _make_objective(self, encoding: TargetEncoding, sparse: bool) -> Objective:
        parameters = {
            "quantile": {"alpha": self.quantile_alpha},
            "huber": {"delta": float(self.huber_delta)},
            "tweedie": {"variance_power": float(self.tweedie_variance_power)},
        }
        objective = get_objective(self.objective)
        if objective.class_ids or objective.name == "squared_hinge":
            raise ValueError(f"objective={objective.name!r} is for classes: use PolyleafClassifier.")
        if isinstance(self.objective, str) and objective.name in parameters:
            return get_objective(self.objective, **parameters[objective.name])
        return self._custom(objective, None) if isinstance(objective, Custom) else objective

    def _scores_per_output(self) -> int:
        return (
            len(np.atleast_1d(self.quantile_alpha)) if get_objective(self.objective).name == "quantile" else 1
        )

    def _score_names(self, encoding: TargetEncoding) -> list[str] | None:
        names = encoding.output_names
        if self._n_scores(encoding) == encoding.n_outputs:
            return None if names is None else list(names)
        if isinstance(self.objective, Custom):
            return None
        levels = [f"q{alpha:g}" for alpha in np.atleast_1d(self.quantile_alpha)]
        if encoding.one_dimensional:
            return levels
        names = names or tuple(map(str, range(encoding.n_outputs)))
        return [f"{name}_{level}" for name in names for level in levels]

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        prediction = self.model_.objective.transform(raw)
        return prediction[:, 0] if self._encoding.one_dimensional and prediction.shape[1] == 1 else prediction

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination R2, the mean over outputs.

        With several quantiles per output: the share of the pinball loss explained (D2), the mean over levels.
        """
        predicted = self.predict(X)
        levels = np.atleast_1d(getattr(self.model_.objective, "alpha", 0.5))
        if len(levels) == 1:
            return float(r2_score(y, predicted, sample_weight=sample_weight))
        scores = [
            d2_pinball_score(
                y, predicted[:, i :: len(levels)].reshape(np.shape(y)), sample_weight=sample_weight, alpha=a
            )
            for i, a in enumerate(levels)
        ]
        return float(np.mean(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _gives_probabilities(estimator: PolyleafClassifier) -> bool:
    if hasattr(estimator, "model_"):
        return estimator.model_.objective.probabilities
    if isinstance(estimator.objective, str):
        return estimator.objective != "squared_hinge"
    return getattr(estimator.objective, "probabilities", False)


@document
class PolyleafClassifier(ClassifierMixin, _PolyleafEstimator):
    """Gradient boosted trees for two classes, many classes, or many labels.

    Parameters
    ----------
    objective : str, callable or polyleaf.objectives.Objective, default="auto"
        "auto": "logistic" for two classes and for labels, "softmax" for more classes. "exponential" and
        "exponential_margin" are for more classes, too; "logistic" and "squared_hinge" (which gives no
        probabilities) take these one against the rest. Or a name that XGBoost or LightGBM has for these, or a
        loss written with JAX, or a function that returns `(gradient, curvature)`: see
        :class:`polyleaf.objectives.Custom`. Targets are then class numbers, or 0 and 1.
    {trees}
    softmax_curvature : {"residual", "friedman", "diagonal", "upper"}, default="residual"
        Curvature of the softmax objective: see :mod:`polyleaf.objectives.softmax`.
    class_weight : dict, list of dict, "balanced" or None, default=None
        `{label: weight}`; "balanced": inverse to the frequency. Multi-label: `{0: weight, 1: weight}` for
        all labels or a list of these; "balanced" is done for each label.
    scale_pos_weight : float, array-like of shape (n_labels,) or None, default=None
        Weight of the positive class, or of the positives of each label. Objective "logistic" only.
    {training}

    Attributes
    ----------
    classes_ : ndarray
        Sorted labels; `arange(n_labels)` for multi-label.
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> PolyleafClassifier(n_estimators=20).fit(X, y).predict_proba(X).shape
    (150, 3)
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED_CONSTRAINTS,
        "objective": [str, callable, Objective],
        "softmax_curvature": [StrOptions({"friedman", "diagonal", "upper", "residual"})],
        "class_weight": [dict, list, StrOptions({"balanced"}), None],
        "scale_pos_weight": [Interval(Real, 0, None, closed="neither"), "array-like", None],
    }

    def __init__(
        self,
        objective: str | Callable[..., Any] | Objective = "auto",
        *,
        n_estimators: int = 300,
        learning_rate: float = 0.1,
        max_depth: int | None = None,
        max_leaves: int | None = 31,
        grow_policy: str = "lossguide",
        max_bins: int = 255,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        min_split_gain: float = 0.0,
        min_child_weight: float = 1e-3,
        min_child_samples: int = 1,
        max_delta_step: float = 0.0,
        subsample: float = 1.0,
        sampling_method: str = "uniform",
        top_rate: float = 0.2,
        other_rate: float = 0.1,
        colsample_bytree: float = 1.0,
        colsample_bynode: float = 0.5,
        multi_strategy: str = "multi_output_tree",
        curvature: str = "auto",
        leaf_curvature: str = "auto",
        block_size: int = 2,
        refresh: str = "round",
        rows_per_layer: Any = None,
        pruning: str = "pre",
        sketch: Any = None,
        sketch_dim: int | None = None,
        leaf: str = "constant",
        linear_fit: str = "half_additive",
        linear_features: int = 5,
        linear_lambda: float | None = None,
        linear_extrapolation: str = "clip",
        leaf_k: int = 20,
        leaf_support: str = "own",
        split_search: str = "auto",
        threshold_step: float = 0.05,
        projection: Any = None,
        projection_dim: int | None = None,
        tfidf: bool = False,
        base_score: Any = None,
        missing_targets: str = "error",
        categorical_features: Any = "from_dtype",
        max_cat_to_onehot: int = 4,
        cat_smooth: float = 10.0,
        eval_metric: Any = None,
        early_stopping_rounds: int | None = None,
        validation_fraction: float | None = None,
        callbacks: Any = None,
        warm_start: bool = False,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int | None = None,
        histogram_memory: int | None = None,
        softmax_curvature: str = "residual",
        class_weight: Any = None,
        scale_pos_weight: Any = None,
    ):
        super().__init__(
            objective,
            n_estimators=n_estimators,
            learning_rate=learning_rate,
            max_depth=max_depth,
            max_leaves=max_leaves,
            grow_policy=grow_policy,
            max_bins=max_bins,
            reg_lambda=reg_lambda,
            reg_alpha=reg_alpha,
            min_split_gain=min_split_gain,
            min_child_weight=min_child_weight,
            min_child_samples=min_child_samples,
            max_delta_step=max_delta_step,
            subsample=subsample,
            sampling_method=sampling_method,
            top_rate=top_rate,
            other_rate=other_rate,
            colsample_bytree=colsample_bytree,
            colsample_bynode=colsample_bynode,
            multi_strategy=multi_strategy,
            curvature=curvature,
            leaf_curvature=leaf_curvature,
            block_size=block_size,
            refresh=refresh,
            rows_per_layer=rows_per_layer,
            pruning=pruning,
            sketch=sketch,
            sketch_dim=sketch_dim,
            leaf=leaf,
            linear_fit=linear_fit,
            linear_features=linear_features,
            linear_lambda=linear_lambda,
            linear_extrapolation=linear_extrapolation,
            leaf_k=leaf_k,
            leaf_support=leaf_support,
            split_search=split_search,
            threshold_step=threshold_step,
            projection=projection,
            projection_dim=projection_dim,
            tfidf=tfidf,
            base_score=base_score,
            missing_targets=missing_targets,
            categorical_features=categorical_features,
            max_cat_to_onehot=max_cat_to_onehot,
            cat_smooth=cat_smooth,
            eval_metric=eval_metric,
            early_stopping_rounds=early_stopping_rounds,
            validation_fraction=validation_fraction,
            callbacks=callbacks,
            warm_start=warm_start,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            histogram_memory=histogram_memory,
        )
        self.softmax_curvature = softmax_curvature
        self.class_weight = class_weight
        self.scale_pos_weight = scale_pos_weight

    _sparse_kind = "multilabel"

    def _encode_sparse_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        if self.class_weight is not None:
            raise ValueError(
                "class_weight weighs absent labels as well, which sparse targets do not keep; use "
                "sample_weight."
            )
        return super()._encode_sparse_target(y, sample_weight, start)

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return (scores > 0).astype(np.int64)

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        auto = self.objective == "auto"
        one_vs_rest = not auto and get_objective(self.objective).name in ("logistic", "squared_hinge")
        target = encode_classification(
            y,
            sample_weight,
            class_weight=self.class_weight,
            missing=self.missing_targets,
            one_vs_rest=one_vs_rest,
            like=None if start is None else TargetEncoding.from_dict(start.metadata),
        )
        return target

    def _make_objective(self, encoding: TargetEncoding, sparse: bool) -> Objective:
        auto = "softmax" if encoding.kind == "multiclass" else "squared_hinge" if sparse else "logistic"
        chosen = auto if self.objective == "auto" else self.objective
        objective = get_objective(chosen)
        if not objective.class_ids and objective.name not in ("logistic", "squared_hinge", "custom"):
            raise ValueError(f"objective={objective.name!r} is for numbers: use PolyleafRegressor.")
        if objective.class_ids and encoding.kind != "multiclass":
            what = (
                "y has two classes"
                if encoding.kind == "binary"
                else "a multi-label y has several labels per row"
            )
            raise ValueError(
                f"objective={objective.name!r} picks one of three classes or more, but {what}: "
                'use "logistic".'
            )
        if self.scale_pos_weight is not None and (
            objective.name != "logistic" or encoding.kind == "multiclass"
        ):
            raise ValueError(
                "scale_pos_weight is for the logistic objective with two classes or with labels: "
                "use class_weight."
            )
        if isinstance(objective, Custom):
            if objective.n_outputs not in (None, encoding.n_outputs):
                raise ValueError(
                    f"The objective has n_outputs={objective.n_outputs}, but y needs {encoding.n_outputs} "
                    f"score(s), {'one' if encoding.kind == 'binary' else 'one for each class or label'}. "
                    "Leave n_outputs out; for an encoding of your own train PolyleafRegressor on the encoded "
                    "labels."
                )
            return self._custom(objective, encoding.n_outputs)
        if isinstance(chosen, Objective):
            return chosen
        if objective.name == "softmax":
            return get_objective(
                chosen, n_classes=encoding.n_outputs, softmax_curvature=self.softmax_curvature
            )
        if objective.class_ids:
            return get_objective(chosen, n_classes=encoding.n_outputs)
        if objective.name == "logistic" and self.scale_pos_weight is not None:
            return get_objective(chosen, scale_pos_weight=self.scale_pos_weight)
        return objective

    def _score_names(self, encoding: TargetEncoding) -> list[str] | None:
        if encoding.kind == "multiclass" and encoding.classes is not None:
            return [str(label) for label in encoding.classes.tolist()]
        return None if encoding.output_names is None else list(encoding.output_names)

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        if self._encoding.kind == "multilabel":
            return (raw > 0).astype(np.int64)
        ids = raw.argmax(axis=1) if raw.shape[1] > 1 else (raw[:, 0] > 0).astype(np.intp)
        return self.classes_[ids]

    def decision_function(self, X: Any, *, iteration_range: tuple[int, int] | None = None) -> np.ndarray:
        """Raw scores: a row belongs to the class of the largest, a label holds where its score is above 0.

        Returns
        -------
        ndarray of shape (n_rows, n_classes or n_labels), or (n_rows,) for two classes; float64
            For two classes the score of the second: above 0 where it is the likelier.
        """
        raw = self._raw(X, iteration_range)
        return raw[:, 0] if self._encoding.kind == "binary" else raw

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any, *, iteration_range: tuple[int, int] | None = None) -> np.ndarray:
        """Probabilities.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); float64
            Columns in order of `classes_`; they sum to 1 for classes. Multi-label: the probability that
            each label holds.
        """
        return self._probabilities(self._raw(X, iteration_range))

    @available_if(_gives_probabilities)
    def staged_predict_proba(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield what `predict_proba` gives after each round of `iteration_range`."""
        return map(self._probabilities, self._staged_raw(X, iteration_range))

    def _probabilities(self, raw: np.ndarray) -> np.ndarray:
        p = self.model_.objective.transform(raw)
        if self._encoding.kind == "binary":
            return np.column_stack([1.0 - p[:, 0], p[:, 0]])
        if self._encoding.one_vs_rest:
            total = p.sum(axis=1, keepdims=True)
            return np.divide(p, total, out=np.full_like(p, 1.0 / p.shape[1]), where=total > 0)
        return p

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


_ESTIMATORS: dict[str, type[_PolyleafEstimator]] = {
    cls.__name__: cls for cls in (PolyleafRegressor, PolyleafClassifier)
}


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator from a file written by `save_model`.

    Returns
    -------
    PolyleafRegressor or PolyleafClassifier
        Whichever was saved.

    Raises
    ------
    ValueError
        When the file is no model file, damaged, or was not written by an estimator.
    """
    model = Model.load(Path(path))
    name = model.metadata.get("estimator")
    if name not in _ESTIMATORS:
        raise ValueError(
            f"{os.fspath(path)} holds a model that no estimator wrote: read it with polyleaf.Model.load."
        )
    cls = _ESTIMATORS[name]
    known = cls._get_param_names()
    estimator = cls(**{key: value for key, value in model.metadata["parameters"].items() if key in known})
    if model.projection is None:
        estimator._take_feature_names(model.n_features, model.feature_names)
    else:
        estimator._take_feature_names(model.projection.n_features, model.metadata.get("input_names"))
    estimator._adopt(model, TargetEncoding.from_dict(model.metadata))
    estimator.evals_result_ = {}
    estimator.evals_result_per_output_ = {}
    return estimator


# --- helpers ---------------------------------------------------------------------------------------


def _from_dataset(X: Dataset, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """What is not passed is taken from the Dataset."""
    return X.y if y is None else y, X.sample_weight if sample_weight is None else sample_weight


def _as_indicators(target: Target) -> Any:
    """What projections learn from: labels, outputs, or classes as indicators."""
    if target.values.ndim == 2:
        return target.values
    n, classes = target.n_rows, target.encoding.n_outputs
    return scipy.sparse.csr_matrix((np.ones(n, np.float32), (np.arange(n), target.values)), (n, classes))


def _ranking_metrics(metrics: list[Metric]) -> list[Metric]:
    """The metrics, where all of them need no more than the best outputs of a row."""
    for metric in metrics:
        if not hasattr(metric.function, "k"):
            raise ValueError(
                f"eval_metric={metric.name!r} needs all outputs of a row, which sparse targets do not "
                "have; use "
                '"p@5", "ndcg@5", "psp@5" or "psndcg@5", with any number of places.'
            )
    return metrics


def _n_rows(X: Any) -> int:
    """Rows of X as far as can be told before it is read; shape is checked when it is."""
    shape = getattr(X, "shape", None)
    if shape is None:
        shape = np.asarray(X).shape
    if len(shape) > 2:
        raise ValueError(f"Found array with dim {len(shape)}, while dim <= 2 is required: X is {shape}.")
    if len(shape) < 2:
        found = "1D array" if shape else "scalar array"
        raise ValueError(
            f"Expected 2D array, got {found} instead. Reshape your data either using array.reshape(-1, 1) if "
            "your data has a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    return int(shape[0])


def _take(y: Any, rows: np.ndarray) -> Any:
    return _safe_indexing(y.tocsr() if hasattr(y, "tocsr") else y, rows)


def _split_rows(target: Target, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and to set aside, ascending; stratified by class where every class has two rows."""
    rows, labels = np.arange(target.n_rows), None
    n_aside = min(max(1, round(fraction * target.n_rows)), target.n_rows - 1)
    if target.encoding.kind in ("binary", "multiclass"):
        labels = (
            target.values if target.values.ndim == 1 else target.values @ np.arange(target.values.shape[1])
        )
        if target.encoding.kind == "binary":
            labels = target.values[:, 0]
        _, counts = np.unique(labels, return_counts=True)
        if np.any(counts < 2) or n_aside < len(counts) or target.n_rows - n_aside < len(counts):
            labels = None
    train, aside = train_test_split(rows, test_size=n_aside, random_state=seed % 2**32, stratify=labels)
    return np.sort(train), np.sort(aside)


def _evaluation_data(
    eval_set: Any,
    names: Sequence[str] | None,
    weights: Sequence[Any] | None,
    X_val: Any,
    y_val: Any,
    weight_val: Any,
) -> list[tuple[str, Any, Any, Any]]:
    """All evaluation data given to `fit`, as (name, X, y, weight)."""
    sets = [] if eval_set is None else [eval_set] if isinstance(eval_set, tuple) else list(eval_set)
    for i, data in enumerate(sets):
        if isinstance(data, Dataset):
            sets[i] = (data, None)
        elif not isinstance(data, tuple | list) or len(data) != 2:
            raise ValueError(f"eval_set[{i}] must be a pair (X, y); eval_set is a list of them.")
    names = [f"validation_{i}" for i in range(len(sets))] if names is None else list(names)
    weights = [None] * len(sets) if weights is None else list(weights)
    for what, entries in (("eval_names", names), ("eval_sample_weight", weights)):
        if len(entries) != len(sets):
            raise ValueError(f"{what} has {len(entries)} entries, but eval_set has {len(sets)}.")
    found = [(name, X, y, weight) for name, (X, y), weight in zip(names, sets, weights, strict=True)]
    if X_val is not None:
        found.append(("validation", X_val, y_val, weight_val))
    elif y_val is not None or weight_val is not None:
        raise ValueError("y_val and sample_weight_val need X_val.")
    if len({name for name, *_ in found}) < len(found):
        raise ValueError(f"Evaluation sets need different names, got {[name for name, *_ in found]}.")
    return found


def _plain_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that JSON can hold; functions, callbacks and random generators are left out."""
    return {name: value for name, given in parameters.items() if (value := _plain(given)) is not _NOT_PLAIN}


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        entries = [_plain(entry) for entry in value]
        return _NOT_PLAIN if any(entry is _NOT_PLAIN for entry in entries) else entries
    return _NOT_PLAIN
