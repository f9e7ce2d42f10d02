"""A trained model: `ModelData` is what a file holds, `Model` adds predictions and files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.metrics.metric import EvalsLog
from polyleaf.model import combine, serialize, statistics, storage
from polyleaf.model.html import render_model
from polyleaf.model.initial import InitialModel, top_scores
from polyleaf.model.leaf_kinds import Leaves, TreeOutputs
from polyleaf.model.metadata import MEMBERS, QUERY_COLUMN
from polyleaf.model.prediction import (
    Predictor,
    compute_scores,
    find_topk,
    iter_chunks,
    iter_stages,
    read_rows,
    sum_sparse_leaves,
)
from polyleaf.model.serialize import Destination, Source
from polyleaf.model.trees import Trees
from polyleaf.objectives import Objective
from polyleaf.objectives._utils import apply_rowwise
from polyleaf.runtime.compatibility import add_version, remove_version
from polyleaf.runtime.types import DataLike, JsonObject, ModelLike
from polyleaf.sketching.projections import Projection
from polyleaf.user_data.feature_table import FeatureTable
from polyleaf.user_data.queries import drop_column
from polyleaf.user_data.validation import check_names, check_vector

if TYPE_CHECKING:
    from polyleaf.binned_data.binning import BinMapper

Inputs: TypeAlias = "DataLike | FeatureTable"  # rows, as users pass them or as they were read


class ModelData:
    """The data of a model: a forest and all that prediction requires.

    Training appends trees, round by round.

    Parameters
    ----------
    mapper : BinMapper
        Maps features to bins.
    objective : Objective
        Its `transform` turns raw scores into predictions.
    base_score : array of shape (n_outputs,), float64
        Added to the sum of the leaf values.
    feature_names, output_names : sequence of str, optional
    learning_rate : float
        The rate of the next round; schedules change it. Leaf values include it.
    target_scale, target_offset : array of shape (n_outputs,), float64, optional
        Given if training used `(y - offset) / scale`: raw scores are returned in the unit of y.
        Both or neither.
    projection : Projection, optional
        Applied to X first. Tables and codes have projected features.
    metadata : dict, optional
        Parameters, kind of target, classes and so on, as JSON types.
    initial : InitialModel, optional
        Model of `init`, whose raw scores the trees are added to.
    bin_counts : ndarray of int64, optional
        Rows of the last training in each bin of a column, and without a value, for one column after
        another, without derived columns. None: not known.

    Attributes
    ----------
    forest : _core.Forest
        The trees, none at first.
    rounds : list of int
        The round of each tree, ascending.
    round_of_tree : ndarray of shape (n_trees,), int32
    best_iteration : int or None
        Round (from 0) with the best validation score, if there was early stopping.
    best_score : float or None
    evals_log : dict
        Log of an estimator's file: `{data name: {metric name: [value of each round]}}`.
    has_statistics : bool
        Whether gains, counts and covers of nodes are available; files may omit them.
    """

    def __init__(
        self,
        *,
        mapper: BinMapper,
        objective: Objective,
        base_score: DataLike | None,
        learning_rate: float,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        target_scale: np.ndarray | None = None,
        target_offset: np.ndarray | None = None,
        projection: Projection | None = None,
        metadata: JsonObject | None = None,
        initial: InitialModel | None = None,
        bin_counts: np.ndarray | None = None,
    ):
        self.mapper = mapper
        self.objective = objective
        self.base_score = np.array(base_score, np.float64, ndmin=1)
        if self.base_score.ndim != 1 or not np.isfinite(self.base_score).all():
            raise ValueError("base_score must be a vector of finite numbers, one per output.")
        self.feature_names = check_names(feature_names, self.n_features, "feature_names")
        self.output_names = check_names(output_names, self.n_outputs, "output_names")
        self.learning_rate = learning_rate
        if (target_scale is None) != (target_offset is None):
            raise ValueError("target_scale and target_offset require each other: give both.")
        self.target_scale = check_vector(target_scale, self.n_outputs, "target_scale")
        self.target_offset = check_vector(target_offset, self.n_outputs, "target_offset")
        self.projection = projection
        self.initial, self.bin_counts = initial, bin_counts
        self.metadata: JsonObject = {} if metadata is None else dict(metadata)
        self.best_iteration: int | None = None
        self.best_score: float | None = None
        self.evals_log: EvalsLog = {}
        self.has_statistics = True
        self.forest = _core.Forest(self.n_outputs)
        self.rounds: list[int] = []

    # --- properties -------------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """Number of raw scores per row."""
        return len(self.base_score)

    @property
    def n_features(self) -> int:
        return len(self.mapper.n_bins_)

    @property
    def n_trees(self) -> int:
        return len(self.forest)

    @property
    def has_linear_leaves(self) -> bool:
        """Whether a leaf is linear, so that prediction requires raw feature values."""
        return len(self.forest.regressors(0, len(self.forest))) > 0

    @property
    def n_rounds(self) -> int:
        """Number of boosting rounds: one more than the round of the last tree."""
        return self.rounds[-1] + 1 if self.rounds else 0

    @property
    def output_groups(self) -> list[list[int]]:
        """Outputs of each tree of a round, or of the rounds that alternate; without trees one
        group."""
        everything = list(range(self.n_outputs))
        turns: list[list[list[int]]] = []
        for round in range(self.n_rounds - 1, -1, -1):
            trees = np.flatnonzero(self.round_of_tree == round).tolist()
            outputs = [self.forest.outputs(t) for t in trees]
            groups = [everything if group is None else group.tolist() for group in outputs]
            # The members of a model have trees of the same outputs.
            groups = [group for i, group in enumerate(groups) if group not in groups[:i]]
            if groups in turns:
                break
            turns.insert(0, groups)
        first = -self.n_rounds % max(1, len(turns))
        return [group for turn in turns[first:] + turns[:first] for group in turn] or [everything]

    @property
    def trees(self) -> Trees:
        """The trees, read-only: structure and leaves (`polyleaf.model.trees`)."""
        return Trees(self)

    @property
    def round_of_tree(self) -> np.ndarray:
        return np.array(self.rounds, np.int32)

    @property
    def input_names(self) -> list[str]:
        """Names of the columns of X, which may be fewer than the features of the trees."""
        if self.mapper.derived_columns_ is None:
            return [self.feature_name(f) for f in range(self.n_features)]
        names = self.mapper.feature_names_
        return [f"f{f}" for f in range(self.mapper.n_features_)] if names is None else list(names)

    def feature_name(self, feature: int) -> str:
        """Return the name of `feature`, or `f<number>` if features have no names."""
        return f"f{feature}" if self.feature_names is None else self.feature_names[feature]

    def output_name(self, output: int) -> str:
        """Return the name of `output`, or its number if outputs have no names."""
        return str(output) if self.output_names is None else self.output_names[output]

    # --- training ---------------------------------------------------------------------------------

    def append(
        self, tree: _core.Tree, leaves: Leaves, round: int, outputs: TreeOutputs = None
    ) -> None:
        """Add a tree.

        Parameters
        ----------
        tree : _core.Tree
        leaves : ndarray of shape (n_leaves, n_outputs), float32, or TopkLeaves, or LinearLeaves
            Leaf values times the learning rate; with a column for each of `outputs`.
        round : int
            The boosting round, from 0: the round of the last tree, or the next.
        outputs : ndarray of shape (m,), int32, optional
            The outputs that the tree predicts, ascending; None: all.
        """
        last = self.rounds[-1] if self.rounds else -1
        if not max(0, last) <= round <= last + 1:
            raise ValueError(
                f"round={round} must be the round of the last tree "
                f"({last if self.rounds else None}) or the next; rounds start at 0."
            )
        if isinstance(leaves, np.ndarray):
            leaves = np.ascontiguousarray(leaves, np.float32)
        self.forest.append(tree, leaves, outputs)
        self.rounds.append(round)

    def add_to_base_score(self, shift: np.ndarray) -> None:
        """Add `shift` (n_outputs,), in the unit of training, to the scores of every row."""
        if self.target_scale is None or self.target_offset is None:
            self.target_scale, self.target_offset = (
                np.ones(self.n_outputs),
                np.zeros(self.n_outputs),
            )
        self.target_offset = self.target_offset + self.target_scale * shift

    def truncate(self, n_rounds: int) -> None:
        """Keep the first `n_rounds` rounds."""
        if not isinstance(n_rounds, Integral):
            raise TypeError(f"n_rounds must be an integer, the rounds to keep; got {n_rounds!r}.")
        n_trees = self.find_trees(0, n_rounds)[1]
        self.forest.truncate(n_trees)
        del self.rounds[n_trees:]
        if self.best_iteration is not None and self.best_iteration >= n_rounds:
            self.best_iteration = self.best_score = None

    # --- rounds and scales ------------------------------------------------------------------------

    def find_trees(self, first_round: int, last_round: int | None) -> tuple[int, int]:
        """Return the trees of the rounds `first_round .. last_round - 1`: the first, and the last
        excluded. None: up to the last round."""
        last_round = self.n_rounds if last_round is None else last_round
        if not 0 <= first_round <= last_round <= self.n_rounds:
            raise ValueError(
                f"Rounds {first_round} to {last_round} are out of range: the model has "
                f"{self.n_rounds} rounds."
            )
        return bisect_left(self.rounds, first_round), bisect_left(self.rounds, last_round)

    @property
    def score_scale(self) -> dict[str, Any]:
        """How the core converts sums of leaf values to raw scores: (base + sum) * scale + offset.

        Arrays (n_outputs,), float64.
        """
        return {"base": self.base_score, "scale": self.target_scale, "offset": self.target_offset}

    def to_target_scale(self, raw: np.ndarray) -> np.ndarray:
        """Convert sums of leaf values `raw`, float32 (n_rows, n_outputs), to the unit of y."""
        scores = np.empty(raw.shape)
        apply_rowwise(np.add, raw, self.base_score, scores)
        if self.target_scale is not None and self.target_offset is not None:
            apply_rowwise(np.multiply, scores, self.target_scale, scores)
            apply_rowwise(np.add, scores, self.target_offset, scores)
        return scores

    # --- copies -----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return a model that can be trained further; trees and mapper are shared."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.base_score, other.metadata = self.base_score.copy(), dict(self.metadata)
        other.forest, other.rounds = _core.Forest(self.n_outputs), []
        for (tree, leaves, outputs), round in zip(
            storage.iter_trees(self.forest), self.rounds, strict=True
        ):
            other.append(tree, leaves, round, outputs)
        return other

    def __getstate__(self) -> dict[str, object]:
        return add_version(self.__dict__ | {"forest": storage.to_arrays(self.forest)})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(remove_version("Model", state))
        self.forest = storage.from_arrays(state["forest"], self.n_outputs, self.n_features)


class Model(ModelData):
    """A trained model: predictions, importances and files of the data of `ModelData`.

    It has the parameters and attributes of `ModelData`.
    """

    # --- predictions ------------------------------------------------------------------------------

    def prepare_features(
        self, X: Inputs | None, n_threads: int = 1, estimator: object = None
    ) -> FeatureTable:
        """Read X, without a column of queries, and project it if the model has a projection.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_rows, n_features), or FeatureTable
            A FeatureTable is returned as it is, without an estimator.
        n_threads : int
        estimator : fitted estimator, optional
            With the names of the columns of the training data, which scikit-learn compares.

        Raises
        ------
        ValueError, TypeError
            If X does not have the features of the training data.
        """
        if isinstance(X, FeatureTable) and estimator is None:
            return X
        if isinstance(X, Dataset):
            raise TypeError("X is a Dataset, whose bins suffice for predictions only: pass raw X.")
        X = drop_column(X, self.metadata.get(QUERY_COLUMN))
        table = read_rows(X, self.mapper, self.projection, estimator, n_threads)
        if self.initial is None:
            return table
        # Features that are projected are numbers, and the table has their projection.
        reads_table = self.initial.reads_table and self.projection is None
        return replace(table, source=table.to_float64() if reads_table else X)

    def predict_raw_binned(
        self,
        codes: np.ndarray,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
        features: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return raw scores of binned rows.

        Parameters
        ----------
        codes : ndarray of shape (n_features, n_rows), uint8
        first_round, last_round, n_threads
            See `predict_raw`.
        features : ndarray of shape (n_features, n_rows), float32, optional
            Raw feature values (`FeatureTable.get_raw_values`), required by linear leaves.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
            `base_score + sum of leaves` in the unit of y. The sum is in float32, in order of the
            trees, as in training.
        """
        first, last = self.find_trees(first_round, last_round)
        if features is None and len(self.forest.regressors(first, last)):
            raise ValueError(
                "features is required for linear leaves: predict from X instead of a Dataset."
            )
        return self.forest.scores(
            codes,
            **self.score_scale,
            first=first,
            last=last,
            n_threads=n_threads,
            features=features,
        )

    def predict_raw(
        self, table: Inputs, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Return raw scores of X.

        Parameters
        ----------
        table : array-like, data frame, sparse matrix, FeatureTable or Dataset
            X of shape (n_rows, n_features), see `prepare_features`.
        first_round, last_round : int
            The range of rounds to use, `last_round` excluded; None: up to the last.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
            In the unit of y.

        Raises
        ------
        ValueError, TypeError
            If X does not have the features of the training data, or for rounds out of range.
        """
        if isinstance(table, Dataset):
            data = table.rebinned_to(self.mapper)
            raw = self.predict_raw_binned(
                data.codes, first_round, last_round, n_threads, data.features
            )
            return raw if self.initial is None else self.initial.add_to(raw, None)
        table = self.prepare_features(table, n_threads)
        trees = self.find_trees(first_round, last_round)
        out = compute_scores(self, table, trees, n_threads)
        return out if self.initial is None else self.initial.add_to(out, table.source)

    def predict(
        self, table: Inputs, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Return predictions for X: the link applied to raw scores.

        Parameters
        ----------
        table, first_round, last_round, n_threads
            See `predict_raw`.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs), float64
            Of shape (n_rows, n_targets) for the means of predicted distributions.
        """
        return self.objective.transform(self.predict_raw(table, first_round, last_round, n_threads))

    def predict_topk(
        self,
        table: Inputs,
        k: int = 5,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the outputs with the highest raw scores of each row.

        With sparse leaves, the time per row depends on the entries of its leaves, not on the number
        of outputs.

        Parameters
        ----------
        k : int
            The number of outputs to return.
        table, first_round, last_round, n_threads
            See `predict_raw`; a Dataset is not accepted.

        Returns
        -------
        outputs : ndarray of shape (n_rows, k), int32
            Numbers of outputs, by descending score, ties by number.
        scores : ndarray of shape (n_rows, k), float64
            Their raw scores, the bits of `predict_raw`. Links that act on single outputs (identity,
            logistic) are increasing, so predictions have the same order.

        Notes
        -----
        If all outputs have the same base score and y was not scaled, only outputs with an entry in
        a leaf of the row are considered. Rows with fewer than k such outputs are padded with -1 and
        -inf.
        """
        if not isinstance(k, Integral):
            raise TypeError(f"k must be an integer, the number of outputs per row; got {k!r}.")
        table = self.prepare_features(table, n_threads)
        if self.initial is not None:
            predict = self.predict_raw if self.initial.sparse is None else self.predict_sparse
            return top_scores(predict(table, first_round, last_round, n_threads), k)
        trees = self.find_trees(first_round, last_round)
        return find_topk(self, table, trees, k, n_threads)

    def predict_sparse(
        self, table: Inputs, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> scipy.sparse.csr_matrix:
        """Return raw scores of the outputs that have an entry in the leaves of each row.

        Parameters
        ----------
        table, first_round, last_round, n_threads
            See `predict_raw`; a Dataset is not accepted.

        Returns
        -------
        csr_matrix of shape (n_rows, n_outputs), float64
            Stored values have the bits of `predict_raw`. Outputs that are not stored have the raw
            score of a row without trees, `to_target_scale(0)`, which is 0 if base scores are. Apply
            a link to these as well: the logistic link maps a score of 0 to 1/2.

        Raises
        ------
        ValueError
            If the leaves are dense.
        """
        table = self.prepare_features(table, n_threads)
        trees = self.find_trees(first_round, last_round)
        sums = sum_sparse_leaves(self, table, trees, n_threads)
        if self.initial is not None:
            return self.initial.merge(sums, table.source, self.base_score)
        sums.data += self.base_score[sums.indices]
        if self.target_scale is not None and self.target_offset is not None:
            scale, offset = self.target_scale[sums.indices], self.target_offset[sums.indices]
            sums.data = sums.data * scale + offset
        return sums

    def predictor(self, n_threads: int = 1, device: str | None = None) -> Predictor:
        """Return a fast predictor for rows of numbers, which does not change with the model.

        `predictor(rows)` and `predictor.predict_raw(rows)` return the bits of `predict` and
        `predict_raw`. See `Predictor` for `n_threads` and `device`.
        """
        frozen = self.copy()
        return Predictor(frozen, frozen.objective.transform, n_threads, device)

    def staged_predict_raw(
        self,
        table: Inputs,
        first_round: int = 0,
        last_round: int | None = None,
        n_threads: int = 1,
        rounds: Sequence[int] | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield raw scores after each round.

        Parameters
        ----------
        table, first_round, last_round, n_threads
            See `predict_raw`; a Dataset is not accepted.
        rounds : sequence of int, optional
            The `last_round` of each result, ascending. Default: of every round.

        Returns
        -------
        iterator of ndarray of shape (n_rows, n_outputs), float64
        """
        last_round = self.n_rounds if last_round is None else last_round
        first, _ = self.find_trees(first_round, last_round)
        ends = range(first_round + 1, last_round + 1) if rounds is None else rounds
        stops = [self.find_trees(first_round, end)[1] for end in ends]
        table = self.prepare_features(table, n_threads)
        stages = iter_stages(self, table, first, stops, n_threads)
        if self.initial is None:
            return map(self.to_target_scale, stages)
        initial_scores = self.initial.add_to(np.zeros((table.n_rows, self.n_outputs)), table.source)
        return (self.to_target_scale(stage) + initial_scores for stage in stages)

    def apply(
        self, table: Inputs, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Return the leaf of each row in each tree.

        Parameters
        ----------
        table, first_round, last_round, n_threads
            See `predict_raw`; a Dataset is not accepted.

        Returns
        -------
        ndarray of shape (n_rows, n_trees), int32
            Leaf ids, counted from 0 in each tree, for the trees of these rounds.
        """
        table = self.prepare_features(table, n_threads)
        first, last = trees = self.find_trees(first_round, last_round)
        out = np.empty((table.n_rows, last - first), np.int32)
        for chunk in iter_chunks(self, table, trees, n_threads, with_regressors=False):
            out[chunk.rows] = self.forest.apply(
                chunk.codes, first=first, last=last, n_threads=n_threads
            )
        return out

    # --- explanation ------------------------------------------------------------------------------

    def feature_importance(
        self, kind: Literal["gain", "split", "cover"] = "gain", per_output: bool = False
    ) -> np.ndarray:
        """Return the importance of each feature as a sum over splits, not normalised.

        Rounds after the best one of early stopping, which predictions leave out, do not count.

        Parameters
        ----------
        kind : {"gain", "split", "cover"}
            Gain of the splits, averaged over outputs; number of splits; sum of Hessians of the rows
            that they split.
        per_output : bool
            Return the gain of each output. For "gain" only, because a split of a vector tree serves
            all outputs.

        Returns
        -------
        ndarray of shape (n_features,) or (n_outputs, n_features), float64
        """
        return statistics.feature_importance(self, kind, per_output)

    # --- copies and files -------------------------------------------------------------------------

    def __getitem__(self, rounds: slice) -> Model:
        """Return a model of some rounds, `model[a:b]`, numbered from 0; the base score stays.

        Calibrations and thresholds, which depend on all rounds, are dropped.
        """
        return combine.select_rounds(self, rounds)

    def equals(self, other: Model) -> bool:
        """Return whether `other` has the same trees, values and settings, bit for bit."""
        return self.to_bytes() == other.to_bytes()

    def save(self, path: Destination, leaf_dtype: str = "float32", statistics: bool = True) -> None:
        """Write the model to a file that cannot run code.

        The file is written next to `path` and then renamed, so that `path` always refers to the
        complete old file or the complete new one. Equal models give equal files.

        Parameters
        ----------
        path : str, path or open file
        leaf_dtype : {"float32", "float16", "int8"}
            Leaf values as they are, or rounded: see :mod:`polyleaf.model.storage`, and
            :func:`polyleaf.inspection.leaf_dtype_report` for the loss of accuracy. They are
            float32 again after loading.
        statistics : bool
            Whether gains, row counts and sums of Hessians of the nodes are stored. Importances by
            gain and cover use them, prediction does not.

        Raises
        ------
        OSError
            If the file cannot be written; the old file is kept.
        ValueError
            If JSON cannot represent the metadata, leaf values do not fit `leaf_dtype`, the name
            ends in ".json", or the file could not be loaded again.
        """
        serialize.write(path, self.to_bytes(leaf_dtype, statistics), Model.from_bytes)

    @classmethod
    def load(cls, path: Source) -> Model:
        """Read a model from a file of any origin.

        Parameters
        ----------
        path : str, path, bytes or open binary file

        Raises
        ------
        ModelFileError (a ValueError)
            If the file is truncated, changed, of a newer version, or not a model.
        OSError
            If it cannot be read.
        """
        return serialize.read(path, partial(serialize.from_state, cls))

    def to_bytes(
        self,
        leaf_dtype: str = "float32",
        statistics: bool = True,
        evals_log: EvalsLog | None = None,
    ) -> bytes:
        """Return the content of a model file; see `save` for `leaf_dtype` and `statistics`.

        `evals_log` is what the attribute of this name will be after loading.
        """
        header, arrays = serialize.to_state(self, leaf_dtype, statistics)
        if evals_log:
            header["evals_log"] = evals_log
        return serialize.to_bytes(header, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Model:
        """Return the model of the content `data` of a file, of any origin; see `load`."""
        return serialize.from_bytes(data, partial(serialize.from_state, cls))

    def _repr_html_(self) -> str:
        return render_model(self)

    def __repr__(self) -> str:
        size = f"{self.n_trees} trees in {self.n_rounds} rounds"
        if len(members := self.metadata.get(MEMBERS, ())) > 1:
            size += f" of {len(members)} members"
        return f"<polyleaf.Model: {size}, {self.n_features} features, {self.n_outputs} outputs>"


def get_model(model: ModelLike) -> Model:
    """Return a model itself, or the model of a fitted estimator; raise a TypeError without one."""
    inner = getattr(model, "model_", model)
    if not isinstance(inner, Model):
        raise TypeError(
            "model must be a polyleaf.Model or a fitted estimator, not "
            f"{type(model).__name__}; call fit first."
        )
    return inner
