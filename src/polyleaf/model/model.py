"""A trained model: forest, bin mapper and link, and how to predict with them.

Owns: rounds, base scores, prediction, and what a model is as a header and arrays.
Must not know: how trees are grown, scikit-learn's contract, what files look like (`serialize`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array

import polyleaf._core as _core
from polyleaf.data.binning import BinMapper
from polyleaf.data.dataset import Dataset
from polyleaf.inputs.features import FeatureTable, read_features
from polyleaf.metrics.metric import RENAMED_METRICS
from polyleaf.model import serialize, sizes, storage
from polyleaf.model.batch_predict import Chunk, bin_features, iter_chunks, read_regressors
from polyleaf.model.compiled_predictor import Predictor
from polyleaf.model.html import render_model
from polyleaf.model.importance import importance
from polyleaf.model.io import Destination, Source
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.model.shap import ShapExplainer, TargetScale, resolve_outputs
from polyleaf.model.trees import Trees
from polyleaf.objectives import Objective, UnregisteredObjectiveError, objective_from_dict
from polyleaf.objectives.columns import apply_rowwise
from polyleaf.sketching.projections import Projection

EvalsLog: TypeAlias = dict[str, dict[str, list[float]]]
"""`{data name: {metric name: [value of each round]}}`."""

_FOREST, _MAPPER, _PROJECTION = "forest.", "mapper.", "projection."
_PROJECTION_SINCE, _MADE_SINCE = 2, 3  # versions of the format
_MANY_OUTPUTS = 1024  # from here on base scores that are all the same are kept as one
_VECTORS = ("base_score", "target_scale", "target_offset")
_FIELDS: dict[str, tuple[type, ...]] = {
    "feature_names": (list, type(None)),
    "output_names": (list, type(None)),
    "learning_rate": (int, float),
    "best_iteration": (int, type(None)),
    "best_score": (int, float, type(None)),
    "metadata": (dict,),
    "objective": (dict,),
    "mapper": (dict,),
}


class Model:
    """A forest with all that prediction needs. Training appends to it, round by round.

    Parameters
    ----------
    mapper : BinMapper
        From features to codes.
    objective : Objective
        Its link (`transform`) turns raw scores into predictions.
    base_score : array of shape (n_outputs,), float64
        Added to the sum of the leaf values.
    feature_names, output_names : sequence of str, optional
    learning_rate : float
        Of the next round; schedules change it. Leaf values hold it already.
    target_scale, target_offset : array of shape (n_outputs,), float64, optional
        Where training saw `(y - offset) / scale`: raw scores are brought back to the unit of y. Both or
        neither.
    projection : Projection, optional
        What made the features of the user's X. Tables and codes that the model takes are of projected
        features.
    metadata : dict, optional
        JSON types only: parameters, kind of target ("regression", "binary", "multiclass", "multilabel"),
        classes.

    Attributes
    ----------
    forest : _core.Forest
    round_of_tree : ndarray of shape (n_trees,), int32
    best_iteration : int or None
        Round (from 0) with the best validation score, where there was early stopping.
    best_score : float or None
    evals_log : dict
        What an estimator's file held of its training, `{data name: {metric name: [value of each round]}}`.
        Training neither reads nor writes it, and it is no part of what a model is.
    has_statistics : bool
        Whether gains, counts and covers of nodes are known; not after loading a file that was saved without.
    """

    def __init__(
        self,
        *,
        mapper: Any,
        objective: Any,
        base_score: Any,
        learning_rate: float,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        target_scale: Any = None,
        target_offset: Any = None,
        projection: Projection | None = None,
        metadata: dict[str, Any] | None = None,
    ):
        self.mapper = mapper
        self.objective = objective
        self.base_score = np.array(base_score, np.float64, ndmin=1)
        if self.base_score.ndim != 1 or not np.isfinite(self.base_score).all():
            raise ValueError("base_score must be a vector of finite numbers, one for each output.")
        self.feature_names = _names(feature_names, self.n_features, "feature_names")
        self.output_names = _names(output_names, self.n_outputs, "output_names")
        self.learning_rate = learning_rate
        self.set_target_scale(target_scale, target_offset)
        self.projection = projection
        self.metadata: dict[str, Any] = {} if metadata is None else dict(metadata)
        self.best_iteration: int | None = None
        self.best_score: float | None = None
        self.evals_log: EvalsLog = {}
        self.has_statistics = True
        self.forest = _core.Forest(self.n_outputs)
        self._rounds: list[int] = []  # of each tree; rises

    # --- what it holds ----------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """Raw scores per row."""
        return len(self.base_score)

    @property
    def n_features(self) -> int:
        return len(self.mapper.n_bins_)

    @property
    def n_trees(self) -> int:
        return len(self.forest)

    @property
    def has_linear_leaves(self) -> bool:
        """Whether predictions need the features themselves: some leaf is linear in them."""
        return len(self.forest.regressors(0, len(self.forest))) > 0

    @property
    def n_rounds(self) -> int:
        """Rounds of boosting: one more than the round of the last tree."""
        return self._rounds[-1] + 1 if self._rounds else 0

    @property
    def trees(self) -> Trees:
        """The trees, to be read: structure and leaves (`polyleaf.model.trees`)."""
        return Trees(self.forest, self._rounds, self.mapper)

    @property
    def round_of_tree(self) -> np.ndarray:
        return np.array(self._rounds, np.int32)

    @property
    def input_names(self) -> list[str]:
        """Names of the features of the tables that it takes: as `feature_name`, but of what X holds."""
        if self.mapper.derived_columns_ is None:
            return [self.feature_name(f) for f in range(self.n_features)]
        names = self.mapper.feature_names_
        return [f"f{f}" for f in range(self.mapper.n_features_)] if names is None else list(names)

    def feature_name(self, feature: int) -> str:
        """Name of the feature of number `feature`, or `f<number>` where features have no names."""
        return f"f{feature}" if self.feature_names is None else self.feature_names[feature]

    def output_name(self, output: int) -> str:
        """Name of the output of number `output`, or that number where outputs have no names."""
        return str(output) if self.output_names is None else self.output_names[output]

    # --- what training does -----------------------------------------------------------------------

    def append(self, tree: _core.Tree, leaves: Leaves, round: int, output: int = -1) -> None:
        """Add a tree.

        Parameters
        ----------
        tree : _core.Tree
        leaves : ndarray of shape (n_leaves, n_outputs), float32, or TopkLeaves, or LinearLeaves
            What the leaves hold (docs/leaves.md), with the learning rate in it; of one column where output >=
            0.
        round : int
            Of boosting, from 0: that of the tree before, or the next.
        output : int
            The one output that the tree is for; -1: all.
        """
        last = self._rounds[-1] if self._rounds else -1
        if not max(0, last) <= round <= last + 1:
            raise ValueError(
                f"A tree of round {round} cannot be added: rounds count from 0 and rise by one at most, and "
                f"the last tree is of round {last if self._rounds else None}."
            )
        if isinstance(leaves, np.ndarray):
            leaves = np.ascontiguousarray(leaves, np.float32)
        self.forest.append(tree, leaves, output)
        self._rounds.append(round)

    def set_target_scale(self, target_scale: Any, target_offset: Any) -> None:
        """Bring raw scores to the unit of y from now on: `target_scale * score + target_offset`.

        Parameters
        ----------
        target_scale, target_offset : array of shape (n_outputs,), float64, or None
            Both or neither.

        Raises
        ------
        ValueError
            Where there is one alone, or they are no finite numbers, one for each output.
        """
        if (target_scale is None) != (target_offset is None):
            raise ValueError("target_scale and target_offset go together; give both or neither.")
        self.target_scale = _per_output(target_scale, self.n_outputs, "target_scale")
        self.target_offset = _per_output(target_offset, self.n_outputs, "target_offset")

    def add_to_base_score(self, by: np.ndarray) -> None:
        """Add to the scores of every row `by` (n_outputs,), in the unit that was trained on."""
        scale = np.ones(self.n_outputs) if self.target_scale is None else self.target_scale
        offset = 0.0 if self.target_offset is None else self.target_offset
        self.set_target_scale(scale, offset + scale * by)

    def truncate(self, n_rounds: int) -> None:
        """Keep the first `n_rounds` rounds."""
        n_trees = self._tree_range(0, n_rounds)[1]
        self.forest.truncate(n_trees)
        del self._rounds[n_trees:]
        if self.best_iteration is not None and self.best_iteration >= n_rounds:
            self.best_iteration = self.best_score = None

    # --- prediction -------------------------------------------------------------------------------

    def prepare_features(self, X: Any, n_threads: int = 1) -> FeatureTable:
        """X as the trees see it: what all predictions below begin with.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_rows, n_features), or FeatureTable
            What the estimators take. A FeatureTable is read already (and projected, where there is a
            projection).
        n_threads : int

        Raises
        ------
        ValueError, TypeError
            Where X is not such as the model was trained on.
        """
        if isinstance(X, FeatureTable):
            return X
        if isinstance(X, Dataset):
            raise TypeError("A Dataset holds bins, which do for predictions only: pass X itself.")
        names = None
        if self.projection is not None:
            given = check_array(
                X,
                accept_sparse="csr",
                dtype="numeric",
                ensure_all_finite=False,
                ensure_min_samples=0,
            )
            X, names = self.projection.transform(given, n_threads), self.projection.feature_names
        return read_features(X, feature_names=names, reference=self.mapper, n_threads=n_threads)

    def predict_raw_binned(
        self,
        codes: np.ndarray,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
        features: np.ndarray | None = None,
    ) -> np.ndarray:
        """Raw scores of binned rows.

        Parameters
        ----------
        codes : ndarray of shape (n_features, n_rows), uint8
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are summed; None: up to the last.
        n_threads : int
        features : ndarray of shape (n_features, n_rows), float32, optional
            Raw features (`FeatureTable.get_raw_values`), needed where leaves are linear.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
            `base_score + sum of leaves` (the sum in float32, in order of the trees, as in training), in the
            unit of y.
        """
        first, last = self._tree_range(first_round, last_round)
        if features is None and len(self.forest.regressors(first, last)):
            raise ValueError(
                "The model has linear leaves, which read the features themselves, but only their bins were "
                "given; predict from X instead of a Dataset."
            )
        return self.forest.scores(
            codes, **self._unit(), first=first, last=last, n_threads=n_threads, features=features
        )

    def predict_raw(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Raw scores of X: `predict_raw_binned` of `prepare_features`.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix, FeatureTable or Dataset of shape (n_rows, n_features)
            As in `prepare_features`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are summed; None: up to the last.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
            In the unit of y.

        Raises
        ------
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        if isinstance(table, Dataset):
            data = table.rebinned_to(self.mapper)
            return self.predict_raw_binned(
                data.codes, first_round, last_round, n_threads, data.features
            )
        table = self.prepare_features(table, n_threads)
        trees = self._tree_range(first_round, last_round)
        out = np.empty((table.n_rows, self.n_outputs))
        for chunk in iter_chunks(
            self.forest, self.mapper, table, trees, n_threads, all_features=False
        ):
            scores = self.forest.scores(
                chunk.codes,
                **self._unit(),
                first=trees[0],
                last=trees[1],
                n_threads=n_threads,
                features=chunk.features,
                coded_features=chunk.coded,
            )
            if len(scores) == len(out):
                return scores
            out[chunk.rows] = scores
        return out

    def predict(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Predictions for X: raw scores through the link.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix, FeatureTable or Dataset of shape (n_rows, n_features)
            As in `prepare_features`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are summed; None: up to the last.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
            In the unit of y, or probabilities; of an objective that predicts distributions their means, of
            shape (n_rows, n_targets).

        Raises
        ------
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        return self.objective.transform(self.predict_raw(table, first_round, last_round, n_threads))

    def predict_topk(
        self,
        table: Any,
        k: int = 5,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The outputs with the highest raw scores of each row of X.

        With sparse leaves the work per row grows with what its leaves hold, not with the number of outputs.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix or FeatureTable of shape (n_rows, n_features)
            As in `prepare_features`.
        k : int
            How many.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are summed; None: up to the last.
        n_threads : int

        Returns
        -------
        outputs : ndarray of shape (n_rows, k), int32
            Numbers of outputs, the highest score first, ties by number.
        scores : ndarray of shape (n_rows, k), float64
            Their raw scores, the bits of `predict_raw`. Links that do not mix outputs (identity, logistic)
            rise, so predictions rank the same.

        Notes
        -----
        All outputs take part, unless they have one base score and y was not scaled: then an output that no
        leaf of the row holds was never voted for, and does not. Where there are fewer than k, -1 and -inf
        follow.
        """
        if not isinstance(k, Integral):
            raise TypeError(
                f"k is how many outputs to name of each row, a whole number; got {k!r}."
            )
        table = self.prepare_features(table, n_threads)
        first, last = self._tree_range(first_round, last_round)
        shape = table.n_rows, max(0, k)
        outputs, scores = np.empty(shape, np.int32), np.empty(shape)
        unit = {"base": None} if self._is_one_base else self._unit()
        for chunk in self._chunks(table, n_threads, (first, last)):
            outputs[chunk.rows], scores[chunk.rows] = self.forest.topk(
                chunk.codes,
                **unit,
                k=k,
                first=first,
                last=last,
                n_threads=n_threads,
                features=chunk.features,
            )
        return outputs, scores + self.base_score[0] if self._is_one_base else scores

    def predict_sparse(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> scipy.sparse.csr_matrix:
        """Raw scores of the outputs that the leaves of each row of X hold.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix or FeatureTable of shape (n_rows, n_features)
            As in `prepare_features`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are summed; None: up to the last.
        n_threads : int

        Returns
        -------
        csr_matrix of shape (n_rows, n_outputs), float64
            What is stored has the bits of `predict_raw`. What is not stored has the raw score of a row
            without any tree: `to_target_scale(0)`, which is 0 where base scores are. A link is to be applied to
            both: logistic makes 1/2 of a score 0, so its predictions have no zeros to leave out.

        Raises
        ------
        ValueError
            Where leaves hold all outputs: then nothing is sparse.
        """
        table = self.prepare_features(table, n_threads)
        first, last = self._tree_range(first_round, last_round)
        parts = [
            self.forest.sparse_scores(
                chunk.codes, first=first, last=last, n_threads=n_threads, features=chunk.features
            )
            for chunk in self._chunks(table, n_threads, (first, last))
        ]
        indptr = np.cumsum(np.concatenate([[0], *(np.diff(indptr) for indptr, _, _ in parts)]))
        outputs = np.concatenate([outputs for _, outputs, _ in parts])
        scores = np.concatenate([sums for _, _, sums in parts]).astype(np.float64)
        scores += self.base_score[outputs]
        if self.target_scale is not None and self.target_offset is not None:
            scores = scores * self.target_scale[outputs] + self.target_offset[outputs]
        return scipy.sparse.csr_matrix((scores, outputs, indptr), (table.n_rows, self.n_outputs))

    def predictor(self, n_threads: int = 1, device: str | None = None) -> Predictor:
        """A frozen predictor for a row of numbers, or a few, in one call of the core.

        Parameters
        ----------
        n_threads : int
        device : {"cpu", "cuda"}, optional
            Where rows walk down the trees. None: on the processor.

        Returns
        -------
        Predictor
            `predictor(rows)` gives the bits of `predict`, `predictor.predict_raw(rows)` those of `predict_raw`.
        """
        frozen = self.copy()
        return Predictor(frozen, frozen.objective.transform, n_threads, device)

    def staged_predict_raw(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> Iterator[np.ndarray]:
        """Yield raw scores after each of the rounds.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix or FeatureTable of shape (n_rows, n_features)
            As in `prepare_features`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are summed one after the other; None: up to the last.
        n_threads : int

        Yields
        ------
        ndarray of shape (n_rows, n_outputs), float64
            In the unit of y; the last has the bits of `predict_raw`.

        Raises
        ------
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        table = self.prepare_features(table, n_threads)
        last_round = self.n_rounds if last_round is None else last_round
        trees = self._tree_range(first_round, last_round)
        codes = bin_features(self.forest, self.mapper, table, *trees, n_threads)
        features = read_regressors(self.forest, self.mapper, table, *trees)
        raw = np.zeros((codes.shape[1], self.n_outputs), np.float32)
        for round in range(first_round, last_round):
            first, last = self._tree_range(round, round + 1)
            self.forest.predict(
                codes, raw, first=first, last=last, n_threads=n_threads, features=features
            )
            yield self.to_target_scale(raw)

    def apply(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """The leaf that each row of X falls into in each tree.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix or FeatureTable of shape (n_rows, n_features)
            As in `prepare_features`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are looked at; None: up to the last.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_rows, n_trees), int32
            Ids, which count from 0 in each tree, of the trees of these rounds only.

        Raises
        ------
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        table = self.prepare_features(table, n_threads)
        first, last = self._tree_range(first_round, last_round)
        out = np.empty((table.n_rows, last - first), np.int32)
        for chunk in iter_chunks(
            self.forest, self.mapper, table, (first, last), n_threads, numbers=False
        ):
            out[chunk.rows] = self.forest.apply(
                chunk.codes, first=first, last=last, n_threads=n_threads
            )
        return out

    def to_target_scale(self, raw: np.ndarray) -> np.ndarray:
        """Sums of leaf values -> raw scores in the unit of y.

        Parameters
        ----------
        raw : ndarray of shape (n_rows, n_outputs), float32

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
        """
        scores = np.empty(raw.shape)
        apply_rowwise(np.add, raw, self.base_score, scores)
        if self.target_scale is not None and self.target_offset is not None:
            apply_rowwise(np.multiply, scores, self.target_scale, scores)
            apply_rowwise(np.add, scores, self.target_offset, scores)
        return scores

    @property
    def _is_one_base(self) -> bool:
        """Whether a row without any tree has the same score for all outputs."""
        return self.target_scale is None and bool((self.base_score == self.base_score[0]).all())

    def _unit(self) -> dict[str, Any]:
        """What the core needs to make raw scores of sums of leaves."""
        return {"base": self.base_score, "scale": self.target_scale, "offset": self.target_offset}

    def _chunks(self, table: Any, n_threads: int, trees: tuple[int, int]) -> Iterator[Chunk]:
        return iter_chunks(self.forest, self.mapper, table, trees, n_threads)

    def _tree_range(self, first_round: int, last_round: int | None) -> tuple[int, int]:
        last_round = self.n_rounds if last_round is None else last_round
        if not 0 <= first_round <= last_round <= self.n_rounds:
            raise ValueError(
                f"Rounds {first_round} to {last_round} were asked for, but the model has "
                f"{self.n_rounds} rounds."
            )
        return bisect_left(self._rounds, first_round), bisect_left(self._rounds, last_round)

    # --- explanation ------------------------------------------------------------------------------

    def make_shap_explainer(
        self,
        first_round: int = 0,
        last_round: int | None = None,
        background: Any = None,
        n_threads: int = 1,
    ) -> ShapExplainer:
        """What features add to the raw scores of rows, to be asked for rows and outputs (docs/explaining.md).

        Parameters
        ----------
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are explained; None: up to the last.
        background : FeatureTable or BinnedRows, optional
            Rows that stand for what is usual. None: the training rows, as the nodes have counted them.
        n_threads : int

        Raises
        ------
        ValueError
            Where the model was saved without its counts and there is no background; where that has no rows.
        """
        if background is None and not self.has_statistics:
            raise ValueError(
                "What is not known of a row is judged by how many training rows each node had, which "
                "this model was saved without (statistics=False): pass a background, rows that stand for "
                "what is usual."
            )
        unit = TargetScale(self.base_score, self.target_scale, self.target_offset)
        trees = self._tree_range(first_round, last_round)
        return ShapExplainer(self.forest, self.mapper, unit, trees, background, n_threads)

    def shap_values(
        self,
        table: Any,
        background: Any = None,
        interactions: bool = False,
        outputs: Any = None,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
    ) -> np.ndarray:
        """What each feature adds to the raw scores of each row, as the estimators' method.

        Parameters
        ----------
        table : FeatureTable of shape (n_rows, n_features)
            Rows to explain, as `prepare_features` makes them of X.
        background : FeatureTable or BinnedRows, optional
            As in `contributions`.
        interactions : bool
            Of each pair of features what both add together besides what each does.
        outputs : optional
            As in the estimators' `shap_values`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are explained; None: up to the last.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_rows, n_features, n_outputs), float32; (n_rows, n_features) for one output
            With interactions (n_rows, n_features, n_features, n_outputs). In the unit of raw scores.

        Raises
        ------
        ValueError
            As `contributions`, and where there are no such outputs.
        """
        chosen = resolve_outputs(outputs, self.n_outputs, self.output_names)
        if chosen.numbers.ndim == 2 and len(chosen.numbers) != table.n_rows:
            raise ValueError(f"outputs has {len(chosen.numbers)} rows, but X has {table.n_rows}.")
        found = self.make_shap_explainer(first_round, last_round, background, n_threads)
        values = found.values(table, chosen, interactions)
        return values[..., 0] if chosen.is_one else values

    def shap_base_values(
        self,
        background: Any = None,
        outputs: Any = None,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
    ) -> np.ndarray | np.float64:
        """The raw scores of a row of which nothing is known.

        Parameters
        ----------
        background : FeatureTable or BinnedRows, optional
            As in `contributions`.
        outputs : optional
            As in the estimators' `shap_values`.
        first_round, last_round : int
            Rounds `first_round .. last_round - 1` are explained; None: up to the last.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_outputs,), or a number for one output; float64

        Raises
        ------
        ValueError
            As `contributions`, and where there are no such outputs.
        """
        chosen = resolve_outputs(outputs, self.n_outputs, self.output_names)
        base = self.make_shap_explainer(first_round, last_round, background, n_threads).base_values(
            chosen
        )
        return np.float64(base[0]) if chosen.is_one else base

    # --- inspection -------------------------------------------------------------------------------

    def feature_importance(
        self, kind: Literal["gain", "split", "cover"] = "gain", per_output: bool = False
    ) -> np.ndarray:
        """How much each feature does in the splits of all trees; sums, not normalised.

        Parameters
        ----------
        kind : {"gain", "split", "cover"}
            Gain of the splits, averaged over outputs; number of splits; summed curvature of the rows
            that they split.
        per_output : bool
            Gains of each output for itself; "gain" only, because a split of a vector tree serves all
            outputs.

        Returns
        -------
        ndarray of shape (n_features,), or (n_outputs, n_features); float64
            The mean of the second over outputs is the first, up to rounding.
        """
        if kind in ("gain", "cover") and not self.has_statistics:
            raise ValueError(
                f"Importance by {kind} is not known: the model was saved with statistics=False. "
                "kind='split' counts the splits."
            )
        return importance(self.forest, self.n_outputs, self.n_features, kind, per_output)

    def size_report(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        metrics: Any = None,
        rounds: Sequence[int] | None = None,
        n_threads: int = 1,
    ) -> dict[str, Any]:
        """How large the model is, and with data, how good it is with its first rounds only.

        Parameters
        ----------
        X, y, sample_weight : optional
            Data as the model's estimator takes them: of a test set, say.
        metrics : str, callable or list of these, optional
            As the estimators' `eval_metric`. Default: the metric that goes with the objective.
        rounds : sequence of int, optional
            Sizes to score. Default: 1, 2, 5, 10, 25, 50, 100, 250, ... and all.
        n_threads : int

        Returns
        -------
        dict
            `rounds`, `features`, `outputs`, `trees`, `nodes`, `leaves`, `features_used` (in splits or by
            linear leaves), `kinds` (number of trees with each kind of leaves that occurs), `bytes` (of the
            trees in a file), `bytes_of` ("structure", "statistics", "values": their parts),
            `bytes_by_leaf_dtype` (what `bytes` is with that `leaf_dtype`; None where values do not fit it),
            `depth` and `leaves_per_tree` (each `min`, `mean`, `max` over trees); where there are sparse or
            linear leaves `entries_per_leaf`, the mean number of outputs or regressors of these. With data
            also `scores`: for each size a dict of `rounds`, `trees`, `nodes`, `bytes` and the metrics by
            name.
        """
        about = {"rounds": self.n_rounds, "features": self.n_features, "outputs": self.n_outputs}
        report = about | sizes.forest_size(self.forest, self.has_statistics)
        if X is not None:
            scorer = self.make_scorer(X, y, sample_weight, metrics)
            report["scores"] = [
                self._size_to(n) | scorer(self.predict_raw(scorer.table, 0, n, n_threads))
                for n in sizes.rounds_to_score(self.n_rounds, rounds)
            ]
        return report

    def make_scorer(
        self, X: Any, y: Any, sample_weight: Any = None, metrics: Any = None
    ) -> sizes.Scorer:
        """From raw scores of this data to metrics by name.

        Parameters
        ----------
        X, y, sample_weight, metrics
            As in `size_report`.

        Returns
        -------
        Scorer
            Call it with raw scores (n_rows, n_outputs): a dict of metric name to number.
        """
        table = X if isinstance(X, Dataset) else self.prepare_features(X)
        return sizes.Scorer(
            self.objective, self.metadata, self.n_outputs, table, y, sample_weight, metrics
        )

    def _size_to(self, n_rounds: int) -> dict[str, Any]:
        part = self.copy()
        part.truncate(n_rounds)
        about = {"rounds": n_rounds, "trees": part.n_trees, "nodes": sizes.n_nodes(part.forest)}
        return about | {"bytes": sizes.trees_nbytes(part.forest, self.has_statistics)}

    # --- copies and files -------------------------------------------------------------------------

    def copy(self) -> Model:
        """A model that can be trained on without changing this one. Trees and mapper are shared."""
        other = Model.__new__(Model)
        other.__dict__.update(self.__dict__)
        other.base_score, other._rounds, other.metadata = (
            self.base_score.copy(),
            [],
            dict(self.metadata),
        )
        other.forest = _core.Forest(self.n_outputs)
        for (tree, leaves, output), round in zip(
            storage.iter_trees(self.forest), self._rounds, strict=True
        ):
            other.append(tree, leaves, round, output)
        return other

    def select_outputs(
        self, outputs: slice, objective: Objective, metadata: dict[str, Any]
    ) -> Model:
        """A model of some of the outputs: its raw scores are theirs, bit for bit.

        Parameters
        ----------
        outputs : slice
            A run of them.
        objective : Objective
            Their link.
        metadata : dict
            What is said of them in place of `metadata`.
        """
        chosen = range(*outputs.indices(self.n_outputs))
        scaled = self.target_scale is not None and self.target_offset is not None
        other = Model(
            mapper=self.mapper,
            objective=objective,
            base_score=self.base_score[outputs],
            learning_rate=self.learning_rate,
            feature_names=self.feature_names,
            output_names=None if self.output_names is None else self.output_names[outputs],
            target_scale=self.target_scale[outputs] if scaled else None,  # type: ignore[index]
            target_offset=self.target_offset[outputs] if scaled else None,  # type: ignore[index]
            projection=self.projection,
            metadata=metadata,
        )
        other.best_iteration, other.has_statistics = self.best_iteration, self.has_statistics
        trees = storage.iter_output_trees(self.forest, self.n_outputs, chosen, self.n_features)
        for t, tree, leaves, output in trees:
            other.append(tree, leaves, self._rounds[t], output)
        return other

    def equals(self, other: Model) -> bool:
        """Whether this and `other` have the same trees, values and settings, bit for bit."""
        return self.to_bytes() == other.to_bytes()

    def save(self, path: Destination, leaf_dtype: str = "float32", statistics: bool = True) -> None:
        """Write the model to a file that cannot run code.

        The file is written beside `path` and then renamed, so that `path` holds the old file or the new one,
        whole, at any time. Equal models give equal files.

        Parameters
        ----------
        path : str, path or open file
        leaf_dtype : {"float32", "float16", "int8"}
            Leaf values as they are, or rounded: see :mod:`polyleaf.model.leaf_storage`, and
            :func:`polyleaf.inspection.model_summary.leaf_dtype_report` for what that costs. Loading gives float32 again.
        statistics : bool
            Whether gains, numbers of rows and curvatures of the nodes are kept. Prediction does not need
            them; importances by gain and cover do. They are most of a file where there are many outputs.

        Raises
        ------
        OSError
            When the file cannot be written (no space, no permission); the old file is then left as it was.
        ValueError
            When the metadata hold something that JSON cannot, leaf values do not fit `leaf_dtype`, or the
            name ends in ".json", which the file is not.
        """
        serialize.write(path, self.to_bytes(leaf_dtype, statistics))

    @classmethod
    def load(cls, path: Source) -> Model:
        """Read a model from a file (or bytes, or an open file), of this version of the format or an older
        one. Nothing in it is trusted.

        Parameters
        ----------
        path : str, path, bytes or open binary file

        Returns
        -------
        Model

        Raises
        ------
        ModelFileError (a ValueError)
            When the file is truncated, changed, of a newer version, or not a model at all.
        OSError
            When it cannot be read.
        """
        return serialize.read(path, cls.from_state)

    def to_bytes(
        self,
        leaf_dtype: str = "float32",
        statistics: bool = True,
        evals_log: EvalsLog | None = None,
    ) -> bytes:
        """The content of a model file.

        Parameters
        ----------
        leaf_dtype, statistics
            As in `save`.
        evals_log : dict, optional
            Is kept as well: see the attribute.

        Returns
        -------
        bytes

        Raises
        ------
        ValueError
            As `save`.
        """
        header, arrays = self.to_state(leaf_dtype, statistics)
        if evals_log:
            header["evals_log"] = evals_log
        return serialize.to_bytes(header, arrays, self._format_version())

    @classmethod
    def from_bytes(cls, data: bytes) -> Model:
        """The inverse of `to_bytes`, for `data` of any origin; see `load`."""
        return serialize.from_bytes(data, cls.from_state)

    def to_state(
        self, leaf_dtype: str = "float32", statistics: bool = True
    ) -> tuple[serialize.Header, serialize.Arrays]:
        """The model as a header and arrays (docs/model-format.md), `leaf_dtype` and `statistics` as in
        `save`."""
        mapper_meta, mapper_arrays = self.mapper.to_state()
        header = {
            name: getattr(self, name) for name in _FIELDS if name not in ("objective", "mapper")
        }
        header |= {"objective": self.objective.to_dict(), "mapper": mapper_meta}
        arrays = {name: getattr(self, name) for name in _VECTORS if getattr(self, name) is not None}
        arrays["round_of_tree"] = self.round_of_tree
        trees = storage.to_arrays(self.forest, leaf_dtype, statistics and self.has_statistics)
        arrays |= {_FOREST + name: array for name, array in trees.items()}
        arrays |= {_MAPPER + name: np.asarray(array) for name, array in mapper_arrays.items()}
        if self.projection is not None:
            header["projection"] = self.projection.to_dict()
            arrays |= {
                _PROJECTION + name: array for name, array in self.projection.arrays().items()
            }
        base = self.base_score
        many = _MANY_OUTPUTS <= len(base) <= _outputs_of(arrays)  # as many as loading believes
        if self._format_version() > 1 and many and (base == base[0]).all():
            header["n_outputs"], arrays["base_score"] = len(base), base[:1]
        return header, arrays

    @classmethod
    def from_state(cls, header: serialize.Header, arrays: serialize.Arrays) -> Model:
        """The inverse of `to_state`. Any exception says that `header` and `arrays` describe no model."""
        for name, types in _FIELDS.items():
            if not isinstance(header.get(name), types) or isinstance(header.get(name), bool):
                raise ValueError(f"The header's {name!r} is missing or of the wrong type.")
        for name in ("feature_names", "output_names"):
            if not all(isinstance(entry, str) for entry in header[name] or ()):
                raise ValueError(f"The header's {name!r} holds what is no text.")
        if not 0 < header["learning_rate"] < np.inf:
            raise ValueError("The header's 'learning_rate' must be a positive number.")
        projection = header.get("projection")
        if projection is not None:
            projection = Projection.from_dict(projection, _with_prefix(arrays, _PROJECTION))
        model = cls(
            mapper=BinMapper.from_state(header["mapper"], _with_prefix(arrays, _MAPPER)),
            objective=_objective(header["objective"]),
            base_score=_base_score(header, arrays),
            target_scale=arrays.get("target_scale"),
            target_offset=arrays.get("target_offset"),
            projection=projection,
            **{
                name: header[name]
                for name in ("feature_names", "output_names", "learning_rate", "metadata")
            },
        )
        if (
            projection is not None
            and tuple(projection.feature_names) != model.mapper.feature_names_
        ):
            raise ValueError("The projection does not give the features that the mapper has.")
        model.evals_log = _evals_log(header.get("evals_log", {}))
        _check_objective(model.objective, model.n_outputs)
        model._take_trees(_with_prefix(arrays, _FOREST), arrays["round_of_tree"])
        model._take_best(header["best_iteration"], header["best_score"])
        return model

    def _take_trees(self, stored: serialize.Arrays, rounds: np.ndarray) -> None:
        """Append the trees of a file, which must be such as the mapper's codes have."""
        self.has_statistics = storage.has_statistics(stored)
        trees = storage.from_arrays(stored, self.n_outputs, self.n_features)
        if rounds.shape != (len(trees),) or rounds.dtype.kind != "i":
            raise ValueError("The array 'round_of_tree' must have one integer for each tree.")
        rises = np.diff(rounds.astype(np.int64))
        if rounds[:1].any() or (rises < 0).any() or (rises > 1).any():
            raise ValueError(
                "The rounds of the trees are not such: rounds count from 0 and rise by one at most."
            )
        if self.mapper.is_categorical_[trees.regressors()].any():
            raise ValueError("A linear leaf reads a categorical feature.")
        _check_splits(stored, self.mapper)
        self.forest, self._rounds = trees, rounds.tolist()

    def _take_best(self, iteration: int | None, score: float | None) -> None:
        """The best round of a file, which must be one of the model's."""
        if iteration is not None and not 0 <= iteration < self.n_rounds:
            raise ValueError(f"The best round is {iteration}, but the model has {self.n_rounds}.")
        if score is not None and score != score:
            raise ValueError("The best score is no number.")
        self.best_iteration, self.best_score = iteration, score

    def _format_version(self) -> int:
        """The oldest that can hold the model."""
        projection = 1 if self.projection is None else _PROJECTION_SINCE
        made = 1 if self.mapper.derived_columns_ is None else _MADE_SINCE
        return max(storage.required_version(self.forest), projection, made)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"forest": storage.to_arrays(self.forest)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forest = storage.from_arrays(state["forest"], self.n_outputs, self.n_features)

    def _repr_html_(self) -> str:
        return render_model(self)

    def __repr__(self) -> str:
        return (
            f"<polyleaf.Model: {self.n_trees} trees in {self.n_rounds} rounds, {self.n_features} features, "
            f"{self.n_outputs} outputs>"
        )


def _objective(stored: Any) -> Objective:
    try:
        return objective_from_dict(stored)
    except UnregisteredObjectiveError as error:  # the file is sound, and the error says what to do
        raise serialize.ModelFileError(str(error)) from error


def _evals_log(stored: Any) -> EvalsLog:
    """The log of a file, checked: lists of numbers by metric by name of the data."""
    log = stored if isinstance(stored, dict) else {"": stored}
    for metrics in log.values():
        logged = metrics.values() if isinstance(metrics, dict) else [None]
        if not all(isinstance(values, list) and all(map(_is_number, values)) for values in logged):
            raise ValueError(
                "The header's 'evals_log' must hold lists of numbers by data and metric."
            )
    return {
        data: {_current_metric_name(name): values for name, values in metrics.items()}
        for data, metrics in log.items()
    }


def _current_metric_name(name: str) -> str:
    """Return the name of a metric, or of a task's (`task: metric`), as this version calls it."""
    task, separator, metric = name.rpartition(": ")
    return task + separator + RENAMED_METRICS.get(metric, metric)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(names: Sequence[str] | None, size: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if len(names) != size:
        raise ValueError(f"{what} has {len(names)} names, but {size} are needed.")
    return tuple(str(name) for name in names)


def _per_output(values: Any, n_outputs: int, what: str) -> np.ndarray | None:
    if values is None:
        return None
    array = np.array(values, np.float64, ndmin=1)
    if array.shape != (n_outputs,) or not np.isfinite(array).all():
        raise ValueError(f"{what} must hold {n_outputs} finite numbers, one for each output.")
    return array


def _base_score(header: serialize.Header, arrays: serialize.Arrays) -> np.ndarray:
    base, n_outputs = arrays["base_score"], header.get("n_outputs")
    if n_outputs is None:
        return base
    if (
        not isinstance(n_outputs, int)
        or isinstance(n_outputs, bool)
        or n_outputs < 1
        or base.shape != (1,)
    ):
        raise ValueError(
            "The header's 'n_outputs' must be the number of outputs that one base score is for."
        )
    most = _outputs_of(arrays)
    if n_outputs > most:
        raise ValueError(
            f"The header names {n_outputs} outputs, but arrays of this size have {most} at most."
        )
    return np.broadcast_to(base, n_outputs)


_BYTES_AN_OUTPUT = 20  # base score, number of a label, and what checks take


def _outputs_of(arrays: serialize.Arrays) -> int:
    """The outputs that a file with these arrays may have: what loading may take is enough for them."""
    size = sum(array.nbytes for name, array in arrays.items() if name != "base_score")
    return min(2**31 - 1, (serialize.SPARE_BYTES + serialize.TIMES_SIZE * size) // _BYTES_AN_OUTPUT)


def _check_objective(objective: Objective, n_outputs: int) -> None:
    """The link must take as many scores as there are."""
    n_targets, rest = divmod(n_outputs, objective.outputs_per_target())
    if rest or objective.n_scores(n_targets) != n_outputs:
        raise ValueError(
            f"The objective {objective.name!r} has another number of outputs than {n_outputs}."
        )


def _check_splits(trees: serialize.Arrays, mapper: BinMapper) -> None:
    """Splits must be such as the mapper's codes have: `storage` has checked all that memory safety needs."""
    feature = trees["feature"]  # -1: a leaf, for which the last entry of either table is
    if (np.append(mapper.is_categorical_, False)[feature] != (trees["category_set"] >= 0)).any():
        raise ValueError(
            "A tree splits a numeric feature by categories, or a categorical one by a threshold."
        )
    if (trees["threshold"] >= np.append(mapper.n_bins_, 1)[feature]).any():
        raise ValueError("A tree splits a feature at a bin that it does not have.")


def _with_prefix(arrays: serialize.Arrays, prefix: str) -> serialize.Arrays:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
