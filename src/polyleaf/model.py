"""A trained model: forest, bin mapper and link, and how to predict with them.

Owns: rounds, base scores, prediction in chunks of rows, importances.
Must not know: how trees are grown, scikit-learn's contract, file formats (`serialize`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf import forest
from polyleaf.forest import Leaves
from polyleaf.projections import Projection
from polyleaf.trees import Trees

IMPORTANCE_KINDS = ("gain", "split", "cover")

# Codes (one byte per value) and raw features (four) held at a time in prediction: longer tables go in chunks.
_CHUNK_BYTES = 1 << 28
# So few are found faster than the features are that trees split on, for which all nodes are gone through.
_FEW_CODES = 1 << 14


class _Chunk(NamedTuple):
    """Some rows of a table, as the core reads them."""

    rows: slice
    codes: np.ndarray  # uint8 (n_features, n_rows)
    features: np.ndarray | None  # float32 (n_features, n_rows), where leaves are linear


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
    has_statistics : bool
        Whether gains, counts and covers of nodes are known; not after loading a file that was saved without.
    """

    def __init__(
        self,
        *,
        mapper: Any,
        objective: Any,
        base_score: Any,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        learning_rate: float = 0.1,
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
        if (target_scale is None) != (target_offset is None):
            raise ValueError("target_scale and target_offset go together; give both or neither.")
        self.target_scale = _per_output(target_scale, self.n_outputs, "target_scale")
        self.target_offset = _per_output(target_offset, self.n_outputs, "target_offset")
        self.projection = projection
        self.metadata: dict[str, Any] = {} if metadata is None else dict(metadata)
        self.best_iteration: int | None = None
        self.best_score: float | None = None
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
    def reads_features(self) -> bool:
        """Whether predictions need the features themselves: some leaf is linear in them."""
        return len(self.forest.regressors(0, len(self.forest))) > 0

    @property
    def n_rounds(self) -> int:
        """Rounds of boosting: one more than the round of the last tree."""
        return self._rounds[-1] + 1 if self._rounds else 0

    @property
    def trees(self) -> Trees:
        """The trees, to be read: structure and leaves (`polyleaf.trees`)."""
        return Trees(self)

    @property
    def round_of_tree(self) -> np.ndarray:
        return np.array(self._rounds, np.int32)

    def feature_name(self, feature: int) -> str:
        """Name of a feature, or `f<number>` where features have no names."""
        return f"f{feature}" if self.feature_names is None else self.feature_names[feature]

    def output_name(self, output: int) -> str:
        """Name of an output, or its number where outputs have no names."""
        return str(output) if self.output_names is None else self.output_names[output]

    # --- what training does -----------------------------------------------------------------------

    def append(self, tree: _core.Tree, leaves: Leaves, round: int, output: int = -1) -> None:
        """Add a tree.

        Parameters
        ----------
        tree : _core.Tree
        leaves : ndarray of shape (n_leaves, n_outputs), float32, or SparseLeaves, or LinearLeaves
            What the leaves hold (docs/leaves.md), with the learning rate in it; of one column where output >=
            0.
        round : int
            Of boosting, from 0; not smaller than that of the tree before.
        output : int
            The one output that the tree is for; -1: all.
        """
        if round < 0 or (self._rounds and round < self._rounds[-1]):
            raise ValueError(
                f"A tree of round {round} cannot be added: rounds count from 0 and rise, and the last tree "
                f"is of round {self._rounds[-1] if self._rounds else None}."
            )
        if isinstance(leaves, np.ndarray):
            leaves = np.ascontiguousarray(leaves, np.float32)
        self.forest.append(tree, leaves, output)
        self._rounds.append(round)

    def truncate(self, n_rounds: int) -> None:
        """Keep the first `n_rounds` rounds."""
        n_trees = self._tree_range(0, n_rounds)[1]
        self.forest.truncate(n_trees)
        del self._rounds[n_trees:]
        if self.best_iteration is not None and self.best_iteration >= n_rounds:
            self.best_iteration = self.best_score = None

    # --- prediction -------------------------------------------------------------------------------

    def raw_predict_codes(
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
            Raw features (`FeatureTable.numbers`), needed where leaves are linear.

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

    def raw_predict(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Raw scores (n_rows, n_outputs), float64, of a FeatureTable; see `raw_predict_codes`."""
        trees = self._tree_range(first_round, last_round)
        out = np.empty((table.n_rows, self.n_outputs))
        for chunk in self._chunks(table, n_threads, trees):
            scores = self.raw_predict_codes(chunk.codes, first_round, last_round, n_threads, chunk.features)
            if len(scores) == len(out):
                return scores
            out[chunk.rows] = scores
        return out

    def predict(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Predictions of a FeatureTable: raw scores through the objective's link, float64."""
        return self.objective.transform(self.raw_predict(table, first_round, last_round, n_threads))

    def predict_topk(
        self, table: Any, k: int = 5, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The outputs with the highest raw scores of each row of a FeatureTable.

        With sparse leaves the work per row grows with what its leaves hold, not with the number of outputs.

        Parameters
        ----------
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
            Their raw scores, the bits of `raw_predict`. Links that do not mix outputs (identity, logistic)
            rise, so predictions rank the same.

        Notes
        -----
        All outputs take part, unless they have one base score and y was not scaled: then an output that no
        leaf of the row holds was never voted for, and does not. Where there are fewer than k, -1 and -inf
        follow.
        """
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
        """Raw scores of the outputs that the leaves of each row of a FeatureTable hold.

        Returns
        -------
        csr_matrix of shape (n_rows, n_outputs), float64
            What is stored has the bits of `raw_predict`. What is not stored has the raw score of a row
            without any tree: `in_unit_of_y(0)`, which is 0 where base scores are. A link is to be applied to
            both: logistic makes 1/2 of a score 0, so its predictions have no zeros to leave out.

        Raises
        ------
        ValueError
            Where leaves hold all outputs: then nothing is sparse.
        """
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

    def staged_raw(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> Iterator[np.ndarray]:
        """Yield raw scores (n_rows, n_outputs), float64, after each of the rounds."""
        last_round = self.n_rounds if last_round is None else last_round
        trees = self._tree_range(first_round, last_round)
        codes, features = self.codes_of(table, *trees, n_threads), self.regressors_of(table, *trees)
        raw = np.zeros((codes.shape[1], self.n_outputs), np.float32)
        for round in range(first_round, last_round):
            first, last = self._tree_range(round, round + 1)
            self.forest.predict(codes, raw, first=first, last=last, n_threads=n_threads, features=features)
            yield self.in_unit_of_y(raw)

    def apply(
        self, table: Any, first_round: int = 0, last_round: int | None = None, n_threads: int = 1
    ) -> np.ndarray:
        """Leaf ids of a FeatureTable: int32 (n_rows, n_trees)."""
        first, last = self._tree_range(first_round, last_round)
        out = np.empty((table.n_rows, last - first), np.int32)
        for chunk in self._chunks(table, n_threads, (first, last), numbers=False):
            out[chunk.rows] = self.forest.apply(chunk.codes, first=first, last=last, n_threads=n_threads)
        return out

    def regressors_of(self, table: Any, first: int = 0, last: int | None = None) -> np.ndarray | None:
        """What the linear leaves of trees `first .. last - 1` read of a FeatureTable.

        Returns
        -------
        ndarray of shape (n_features, n_rows), float32, or None where no leaf is linear
            See `FeatureTable.numbers`.
        """
        wanted = self.forest.regressors(first, last)
        if not len(wanted):
            return None
        only = np.zeros(self.n_features, bool)
        only[wanted] = True
        return table.numbers(only)

    def codes_of(self, table: Any, first: int, last: int, n_threads: int = 1) -> np.ndarray:
        """What trees `first .. last - 1` read of a FeatureTable.

        Returns
        -------
        ndarray of shape (n_features, n_rows), uint8
            See `BinMapper.transform`; rows of features that no tree splits on may hold anything.
        """
        only = None
        if table.n_rows * self.n_features > _FEW_CODES:
            only = np.zeros(self.n_features, bool)
            only[self.forest.split_features(first, last)] = True
        return self.mapper.transform(table, n_threads, only)

    def in_unit_of_y(self, raw: np.ndarray) -> np.ndarray:
        """Sums of leaf values (n_rows, n_outputs), float32 -> raw scores in the unit of y, float64."""
        scores = self.base_score + raw
        if self.target_scale is not None:
            scores *= self.target_scale
            scores += self.target_offset
        return scores

    @property
    def _is_one_base(self) -> bool:
        """Whether a row without any tree has the same score for all outputs."""
        return self.target_scale is None and bool((self.base_score == self.base_score[0]).all())

    def _unit(self) -> dict[str, Any]:
        """What the core needs to make raw scores of sums of leaves."""
        return {"base": self.base_score, "scale": self.target_scale, "offset": self.target_offset}

    def _chunks(
        self, table: Any, n_threads: int, trees: tuple[int, int], numbers: bool = True
    ) -> Iterator[_Chunk]:
        """Codes, and the features that linear leaves read, in chunks: memory stays bounded for any table."""
        bytes_per_row = self.n_features + 4 * len(self.forest.regressors(*trees))
        size = max(1, _CHUNK_BYTES // max(1, bytes_per_row))
        for begin in range(0, max(1, table.n_rows), size):
            end = min(begin + size, table.n_rows)
            part = table if end - begin == table.n_rows else table.rows(begin, end)
            codes = self.codes_of(part, *trees, n_threads)
            yield _Chunk(slice(begin, end), codes, self.regressors_of(part, *trees) if numbers else None)

    def _tree_range(self, first_round: int, last_round: int | None) -> tuple[int, int]:
        last_round = self.n_rounds if last_round is None else last_round
        if not 0 <= first_round <= last_round <= self.n_rounds:
            raise ValueError(
                f"Rounds {first_round} to {last_round} were asked for, but the model has "
                f"{self.n_rounds} rounds."
            )
        return bisect_left(self._rounds, first_round), bisect_left(self._rounds, last_round)

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
        if kind not in IMPORTANCE_KINDS:
            raise ValueError(f"kind={kind!r} is unknown; it must be one of {', '.join(IMPORTANCE_KINDS)}.")
        if per_output and kind != "gain":
            raise ValueError(f"Importance per output exists for kind='gain' only, not for kind={kind!r}.")
        if kind != "split" and not self.has_statistics:
            raise ValueError(
                f"Importance by {kind} is not known: the model was saved with statistics=False. "
                "kind='split' counts the splits."
            )
        total = np.zeros((self.n_outputs if per_output else 1, self.n_features))
        for tree, _, output in forest.trees_of(self.forest):
            inner = tree.feature >= 0
            features = tree.feature[inner]
            if per_output:
                if output < 0 and tree.output_gain.shape[1] != self.n_outputs:
                    raise ValueError(
                        "Importance per output is not known for trees that were grown on a sketch of the "
                        "outputs."
                    )
                gains = tree.output_gain[inner] if output < 0 else tree.gain[inner][:, None]
                for k, weights in zip(
                    [output] if output >= 0 else range(self.n_outputs), gains.T, strict=True
                ):
                    total[k] += np.bincount(features, weights, self.n_features)
                continue
            weights = None if kind == "split" else getattr(tree, kind)[inner]
            sums = np.bincount(features, weights, self.n_features)
            # One output's gain is a share of the mean over outputs.
            total[0] += sums / self.n_outputs if kind == "gain" and output >= 0 else sums
        return total if per_output else total[0]

    # --- copies and files -------------------------------------------------------------------------

    def copy(self) -> Model:
        """A model that can be trained on without changing this one. Trees and mapper are shared."""
        other = Model.__new__(Model)
        other.__dict__.update(self.__dict__)
        other.base_score, other._rounds, other.metadata = self.base_score.copy(), [], dict(self.metadata)
        other.forest = _core.Forest(self.n_outputs)
        for (tree, leaves, output), round in zip(forest.trees_of(self.forest), self._rounds, strict=True):
            other.append(tree, leaves, round, output)
        return other

    def save(self, path: str | Path, leaf_dtype: str = "float32", statistics: bool = True) -> None:
        """Write the model to a file that cannot run code; see `polyleaf.serialize.save_model`."""
        from polyleaf.serialize import save_model

        save_model(self, path, leaf_dtype, statistics)

    def size_report(self, X: Any = None, y: Any = None, **options: Any) -> dict[str, Any]:
        """How large the model is, and how good at each size; see `polyleaf.inspect.size_report`."""
        from polyleaf.inspect import size_report

        return size_report(self, X, y, **options)

    @staticmethod
    def load(path: str | Path) -> Model:
        """Read a model from a file; see `polyleaf.serialize.load_model`."""
        from polyleaf.serialize import load_model

        return load_model(path)

    def equals(self, other: Model) -> bool:
        """Whether both have the same trees, values and settings, bit for bit."""
        mine, theirs = forest.to_arrays(self.forest), forest.to_arrays(other.forest)
        return (
            mine.keys() == theirs.keys()
            and all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)
            and self._rounds == other._rounds
            and self._settings() == other._settings()
            and _same_mapper(self.mapper, other.mapper)
            and _same_projection(self.projection, other.projection)
        )

    def _settings(self) -> list[Any]:
        vectors = [
            None if v is None else v.tolist()
            for v in (self.base_score, self.target_scale, self.target_offset)
        ]
        names = [self.feature_names, self.output_names]
        best = [self.learning_rate, self.best_iteration, self.best_score]
        plain = [vectors, names, best, self.metadata, self.objective.to_dict()]
        return json.loads(json.dumps(plain, default=lambda value: value.tolist()))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"forest": forest.to_arrays(self.forest)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forest = forest.from_arrays(state["forest"], self.n_outputs, self.n_features)

    def __repr__(self) -> str:
        return (
            f"<polyleaf.Model: {self.n_trees} trees in {self.n_rounds} rounds, {self.n_features} features, "
            f"{self.n_outputs} outputs>"
        )


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


def _same_projection(a: Projection | None, b: Projection | None) -> bool:
    if a is None or b is None:
        return a is b
    mine, theirs = a.arrays(), b.arrays()
    same = mine.keys() == theirs.keys() and a.to_dict() == b.to_dict()
    return same and all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


def _same_mapper(mine: Any, theirs: Any) -> bool:
    (meta, arrays), (other_meta, other_arrays) = mine.to_state(), theirs.to_state()
    return (
        json.dumps(meta, sort_keys=True) == json.dumps(other_meta, sort_keys=True)
        and arrays.keys() == other_arrays.keys()
        and all(arrays[name].tobytes() == other_arrays[name].tobytes() for name in arrays)
    )
