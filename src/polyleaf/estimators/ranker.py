"""Ranking: the order of the rows of each query, for one goal or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators._fitting import refuse_objective
from polyleaf.estimators.base import PolyleafEstimator, _checks_parameters
from polyleaf.metrics.metric import get_metric
from polyleaf.model import Model
from polyleaf.model.metadata import CHOSEN_SCORE, MEMBERS, QUERY_COLUMN, get_position_bias
from polyleaf.objectives import Objective
from polyleaf.objectives.registry import ObjectiveSpec, ResolvedObjective
from polyleaf.runtime.capabilities import FEATURES, refuse
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.queries import Queries
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.param_spec import (
    add_parameter_docs,
    make_constraints,
    suggest_on_unknown_kwargs,
)
from polyleaf.settings.parameters import RankerParameters
from polyleaf.training.fit import complete_objective
from polyleaf.training.prepare import VALIDATION, collect_eval_sets
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.queries import drop_column, get_query_ids, read_queries, separate_column
from polyleaf.user_data.target import Target, TargetEncoding, encode_regression
from polyleaf.user_data.validation import count_rows, get_index

if TYPE_CHECKING:
    from sklearn.utils import Tags


REPORTED_METRICS = ("ndcg", "ndcg@5", "ndcg@10", "map", "mrr")

# Methods of regressors and classifiers.
_REFUSED_METHODS = (
    "calibrate",
    "predict_dist",
    "predict_interval",
    "predict_proba",
    "predict_set",
    "predict_uncertainty",
)


@add_parameter_docs
class PolyleafRanker(PolyleafEstimator, RankerParameters):
    """Gradient boosted trees that rank the rows of queries, for one goal or several.

    y holds the relevance of each row, 0 or greater, with a column for each goal; NaN is no
    judgement for this goal. One tree learns all goals. Queries are never cut: rows are sampled,
    held out and divided into folds by whole queries.

    {parameters}

    Attributes
    ----------
    goal_weights_ : ndarray of shape (n_scores, n_goals), float64
        Weights of the goals in each column of predictions.
    chosen_score_ : int or None
        The column that `predict` returns, if `choose_goal_weights` has chosen one.
    positions_ : ndarray of shape (n_positions,), int64, or None
        The positions of the training rows.
    position_bias_ : ndarray of shape (n_positions, n_scores), float64, or None
        What each position added to the scores of its rows in training, by the round that
        predictions use: 0 for the first, and less where fewer users look.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from polyleaf import PolyleafRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.random((200, 3)), np.repeat(np.arange(20), 10)
    >>> y = (4 * X[:, 0]).astype(int)
    >>> model = PolyleafRanker(n_estimators=20).fit(X, y, qid=qid)
    >>> model.predict(X).shape, model.score(X, y, qid=qid) > 0.9
    ((200,), True)
    """

    _parameter_constraints: ClassVar[dict[str, object]] = make_constraints(RankerParameters)
    _sparse_kind = "regression"
    _kinds = ("regression",)
    _learned_numbers = "relevance"
    _query_column: str | None = None  # of the last fit

    # --- fit ---

    @suggest_on_unknown_kwargs
    @_checks_parameters
    def fit(  # type: ignore[override]
        self,
        X: DataLike,
        y: DataLike | None = None,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        positions: Any = None,
        offset: DataLike | None = None,
        groups: Any = None,
        time: Any = None,
        eval_set: object = None,
        eval_names: Sequence[str] | None = None,
        eval_qid: Sequence[object] | None = None,
        eval_group: Sequence[object] | None = None,
        eval_sample_weight: Sequence[object] | None = None,
        eval_offset: Sequence[object] | None = None,
        X_val: DataLike | None = None,
        y_val: DataLike | None = None,
        qid_val: Any = None,
        group_val: Any = None,
        sample_weight_val: DataLike | None = None,
        offset_val: DataLike | None = None,
        callbacks: object = None,
        init_model: object = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_goals)
            Relevance, 0 or greater. NaN: no judgement.
        sample_weight : array-like of shape (n_rows,) or (n_queries,), or with n_goals columns
            Weights of rows, or of queries in the order in which they occur first; or of each goal.
        qid : array-like of shape (n_rows,), or str
            Query of each row, numbers or text in any order; or the name of the column of X that
            holds it, which is then no feature, and is read by predictions and `score` as well.
        group : array-like of shape (n_queries,)
            Instead of `qid`: the number of rows of each query, if these are consecutive.
        positions : array-like of shape (n_rows,), optional
            Position at which each row was shown, an integer, if y are clicks: users look at the
            first positions more. The fit learns a constant of each position beside the trees,
            which predictions leave out.
        eval_qid, eval_group : list of array-like, optional
            Queries of the evaluation sets. They may be left out if `qid` is the name of a column.
        qid_val, group_val : optional
            Queries of `X_val`.
        X, offset, groups, time, eval_set, eval_names, eval_sample_weight, eval_offset, X_val, \
        y_val, sample_weight_val, offset_val, callbacks, init_model
            See :meth:`PolyleafRegressor.fit`. Splits of a fit keep queries together as well.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid.
        KeyboardInterrupt
            After Ctrl-C, depending on `on_interrupt`; the estimator has the complete rounds.
        """
        self._query_column = qid if isinstance(qid, str) else None
        query = get_query_ids(X, qid, group)
        rows = RowData(y, sample_weight, offset, groups, time, query, positions)
        query_val = get_query_ids(X_val, qid_val, group_val, ("qid_val", "group_val"))
        val = TrainingData(
            VALIDATION, X_val, RowData(y_val, sample_weight_val, offset_val, query=query_val)
        )
        eval_data = collect_eval_sets(
            eval_set,
            eval_names,
            eval_sample_weight,
            eval_offset,
            val,
            self.validation_fraction is not None,
            eval_qid,
            eval_group,
        )
        data = TrainingData("training", X, rows)
        return self._fit_data(data, eval_data, callbacks, init_model)

    @suggest_on_unknown_kwargs
    def refit(  # type: ignore[override]
        self,
        X: DataLike,
        y: DataLike | None = None,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        positions: Any = None,
        offset: DataLike | None = None,
        decay_rate: float = 0.0,
    ) -> Self:
        """Fit the leaf values anew on other queries; the splits of the trees stay.

        So does the choice of `choose_goal_weights`.

        Parameters
        ----------
        X, y, sample_weight, qid, group, positions, offset
            As in `fit`. The column of X that `fit` read queries from is read again.
        decay_rate : float, default 0
            From 0 to 1: the share of the old leaf values in the new ones.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data do not match the model, or `decay_rate` is out of range.
        """
        query = get_query_ids(X, qid, group)
        rows = RowData(y, sample_weight, offset, query=query, positions=positions)
        data = TrainingData("training", X, rows)
        check_is_fitted(self)
        old_model = self.model_
        chosen = old_model.metadata.pop(CHOSEN_SCORE, None)  # it is kept, so no warning is due
        try:
            return self._refit_data(data, decay_rate)
        finally:
            if chosen is not None:
                for model in (old_model, self.model_):
                    model.metadata[CHOSEN_SCORE] = chosen

    def _read_rows(self, data: TrainingData, ranks: Communicator = SINGLE_PROCESS) -> TrainingData:
        return self._read_queries(data, self._query_column, ranks)

    @staticmethod
    def _read_queries(
        data: TrainingData, column: str | None, ranks: Communicator = SINGLE_PROCESS
    ) -> TrainingData:
        """Return data with the number of the query of each row, and X without the column of ids.

        `data`: as the user passed them. `column`: name of the column of ids, for data without
        others.
        """
        X, rows = data.X, data.rows
        ids = column if rows.query is None else rows.query
        if isinstance(ids, str):
            X, ids = separate_column(X, ids, "qid")
        else:
            X = drop_column(X, column)
        n_rows = len(rows.target) if X is None else count_rows(X)  # None: Dask keeps X elsewhere
        return data._replace(
            X=X, rows=read_queries(rows.replace(query=ids), n_rows, ranks, data.name)
        )

    def _encode_target(
        self,
        rows: RowData,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Target:
        if old_model is None:
            target = encode_regression(
                rows, missing=self.missing_targets, normalize=None, ranks=ranks
            )
        else:
            target = self._get_encoding(old_model).encode(rows, ranks=ranks)
        if ranks.size == 1:
            _warn_of_equal_rows(target)
        return target

    def _make_objective(
        self,
        target: Target,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Objective:
        assert isinstance(resolved, ObjectiveSpec)
        if self._learned_numbers not in resolved.cls.target_kinds:
            refuse_objective(resolved.cls)
        return complete_objective(self, resolved, None)

    def _set_model(self, model: Model, encoding: TargetEncoding) -> None:
        super()._set_model(model, encoding)
        self._query_column = model.metadata.get(QUERY_COLUMN)

    def _calibration_metadata(self, encoding: TargetEncoding) -> dict[str, object]:
        return {} if self._query_column is None else {QUERY_COLUMN: self._query_column}

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str] | None:
        goals = encoding.output_names
        if goals is None or self.goal_weights is None:
            return None if goals is None else list(goals)
        return [
            " + ".join(f"{w:g} {goal}" for w, goal in zip(weights, goals, strict=True) if w != 0)
            for weights in np.asarray(self.goal_weights, np.float64).tolist()
        ]

    # --- predictions ---

    def _prediction_of_scores(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def _prediction(self, raw: np.ndarray) -> np.ndarray:
        scores = self.model_.objective.transform(raw)
        chosen = self.model_.metadata.get(CHOSEN_SCORE)
        return self._flatten(scores) if chosen is None else scores[:, chosen]

    def predict_topk(
        self,
        X: DataLike,
        k: int = 5,
        *,
        names: bool = False,
        iteration_range: tuple[int, int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Not supported: a ranking orders the rows of a query, not the outputs of a row.

        Raises
        ------
        ValueError
        """
        refuse("ranking", "topk")

    # --- scores and trade-offs ---

    @property
    def goal_weights_(self) -> np.ndarray:
        """Weights of the goals in each score, float64 (n_scores, n_goals)."""
        check_is_fitted(self)
        weights = self.model_.objective.to_dict().get("goal_weights")
        return np.eye(self._encoding.n_outputs) if weights is None else np.array(weights, float)

    @property
    def chosen_score_(self) -> int | None:
        """Number of the score that `choose_goal_weights` has chosen, if it was called."""
        check_is_fitted(self)
        return self.model_.metadata.get(CHOSEN_SCORE)

    @property
    def positions_(self) -> np.ndarray | None:
        """The positions of the training rows, int64 (n_positions,), if `fit` received them."""
        check_is_fitted(self)
        bias = get_position_bias(self.model_, self._rounds(None)[1])
        return None if bias is None else np.array(bias[0])

    @property
    def position_bias_(self) -> np.ndarray | None:
        """Scores that positions added in training, float64 (n_positions, n_scores)."""
        check_is_fitted(self)
        bias = get_position_bias(self.model_, self._rounds(None)[1])
        if bias is None:
            return None
        weights = [member["weight"] for member in self.model_.metadata.get(MEMBERS, ())]
        return np.average(bias[1], axis=0, weights=weights or None)

    def score(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        offset: DataLike | None = None,
    ) -> float:
        """Return the mean NDCG of the queries, averaged over goals; 1 is best.

        A query without relevant rows counts 1. With `goal_weights` the NDCG of a score is the mean
        over the goals by its weights; it is averaged over scores, unless `choose_goal_weights` has
        chosen one.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,) or (n_rows, n_goals)
            NaN: no judgement.
        sample_weight : array-like, optional
            Weights of rows or queries, see `fit`.
        qid, group : optional
            Queries, see `fit`. Default: the column of X that `fit` read them from.
        offset : array-like, optional
            Initial raw scores, see `predict`.

        Returns
        -------
        float
        """
        rows = RowData(y, sample_weight, offset, query=get_query_ids(X, qid, group))
        return self._evaluate(X, rows, ["ndcg"])["ndcg"][0]

    def _evaluate(
        self, X: DataLike, rows: RowData, metrics: Sequence[str] = REPORTED_METRICS
    ) -> dict[str, tuple[float, np.ndarray]]:
        """Return metrics of predictions, by name: the mean over scores, and of each score."""
        target, scores = self._score_inputs(X, rows)
        objective: Any = self.model_.objective
        chosen = self.model_.metadata.get(CHOSEN_SCORE)
        if chosen is not None:
            objective = replace(objective, goal_weights=(tuple(self.goal_weights_[chosen]),))
        return {
            name: cast(Any, get_metric(name, objective).bind(target.rows)).value_and_per_output(
                scores
            )
            for name in metrics
        }

    def score_goals(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        metric: str = "ndcg",
        offset: DataLike | None = None,
    ) -> np.ndarray:
        """Evaluate each score by each goal: the front of trade-offs that `goal_weights` spans.

        Parameters
        ----------
        X, y, sample_weight, qid, group, offset
            As in `score`.
        metric : str
            Metric of the queries, such as "ndcg@10", "map" or "mrr".

        Returns
        -------
        ndarray of shape (n_scores, n_goals), float64
        """
        rows = RowData(y, sample_weight, offset, query=get_query_ids(X, qid, group))
        check_is_fitted(self)
        target, scores = self._score_inputs(X, rows, self.model_.objective.transform)
        single = get_metric(metric, replace(cast(Any, self.model_.objective), goal_weights=None))
        values = np.empty((scores.shape[1], self._encoding.n_outputs))
        for goal in range(values.shape[1]):
            rows = target.rows.column(goal)
            rows = rows.replace(target=rows.target[:, None])
            for score in range(len(values)):
                values[score, goal] = single(rows, scores[:, [score]])
        return values

    def choose_goal_weights(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        goal: int | str = 0,
        max_loss: float = 0.01,
        metric: str = "ndcg",
        offset: DataLike | None = None,
    ) -> Self:
        """Choose the score that `predict` returns from the trade-offs of `goal_weights`.

        The mean metric of the other goals is as high as possible while one goal loses at most a
        share of its best value. The choice is stored in the model and its file until the model is
        fitted again; `predict_raw` and exports have all scores.

        Parameters
        ----------
        X, y, sample_weight, qid, group, offset
            As in `score`; of queries outside the training data.
        goal : int or str
            Number or name of the goal that may lose little.
        max_loss : float in [0, 1)
            Share of the best value of this goal over all scores, 0.01 for 1%.
        metric : str
            Metric of the queries, such as "ndcg@10".

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the model has one goal, or no goal of this name.
        """
        check_is_fitted(self)
        n_goals = self._encoding.n_outputs
        if n_goals == 1:
            raise ValueError("choose_goal_weights is for several goals, but y had one column.")
        number = get_index(goal, self._encoding.output_names, n_goals, "goal", "goal")
        if not 0 <= max_loss < 1:
            raise ValueError(f"max_loss must be at least 0 and below 1, got {max_loss!r}.")
        front = self.score_goals(
            X, y, sample_weight, qid=qid, group=group, metric=metric, offset=offset
        )
        if unknown := np.flatnonzero(np.isnan(front[0])).tolist():
            raise ValueError(
                f"Goal {unknown[0]} of y has no judgement of positive weight in these rows, so its "
                "trade-off with others is unknown: pass rows that are judged for every goal."
            )
        kept = front[:, number]
        others = np.delete(front, number, axis=1).mean(axis=1)
        others[kept < (1 - max_loss) * kept.max()] = -np.inf
        self.model_.metadata[CHOSEN_SCORE] = int(np.lexsort((kept, others))[-1])
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _REFUSED_METHODS:
                sentence = FEATURES["ranking"].refused["intervals"]
                raise AttributeError(sentence.format(method=name))
            return super().__getattr__(name)

    def _score_inputs(
        self, X: DataLike, rows: RowData, predict: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> tuple[Target, np.ndarray]:
        check_is_fitted(self)
        data = self._read_queries(TrainingData("X", X, rows), self._query_column)
        return super()._score_inputs(data.X, data.rows, predict)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _warn_of_equal_rows(target: Target) -> None:
    """Warn if no query has rows of different relevance, which is often a wrong `qid`."""
    rows = target.rows
    if rows.query is None:
        return
    queries = Queries.make(rows.query, rows.target.shape[1], rows.weight)
    if not queries.find_varied(rows.target).any():
        warn_user(
            f"None of the {queries.n} queries has rows of different relevance, so there is no "
            "order to learn: qid must be the same for all rows that are ranked together."
        )
