"""Displays of what a model learned: feature importances, outputs and trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from polyleaf.inspection.drift import Drift, measure_drift
from polyleaf.inspection.model_summary import (
    Scorer,
    get_output_names,
    get_target_names,
    read_raw_offset,
    tree_nodes,
)
from polyleaf.inspection.plotting.display import (
    REFERENCE_LINE,
    Display,
    get_evaluation_offset,
    get_single_task_model,
    import_pyplot,
    label_outputs,
)
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.metadata import HAS_OFFSETS, OUTPUT_GROUPS
from polyleaf.model.model import get_model
from polyleaf.runtime.types import DataLike, JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

    import polyleaf._core as _core
    from polyleaf.estimators.base import PolyleafEstimator

_UNITS = {
    "gain": "share of the gain",
    "split": "share of the splits",
    "cover": "share of the sum of Hessians",
    "shap": "mean |SHAP value|",
}


class ImportanceDisplay(Display):
    """Importances as bars, or as a map of features and outputs; gains, splits and covers as shares.

    Parameters
    ----------
    importance : array of shape (n_features,) or (n_outputs, n_features)
    feature_names : sequence of str
    output_names : sequence of str
        Required if `importance` has two dimensions.
    kind : str
        The kind of importance, for the label.
    max_features : int
        The number of features to draw, those with the largest means.

    Attributes
    ----------
    bars_ : matplotlib BarContainer or None
    image_ : matplotlib AxesImage or None
    """

    def __init__(
        self,
        importance: object,
        feature_names: Sequence[str],
        output_names: Sequence[str] = (),
        kind: str = "gain",
        max_features: int = 15,
    ):
        self.importance = np.asarray(importance, np.float64)
        self.feature_names, self.output_names = feature_names, output_names
        self.kind, self.max_features = kind, max_features

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        kind: Literal["gain", "split", "cover", "shap"] = "gain",
        *,
        X: DataLike | None = None,
        per_output: bool = False,
        max_features: int = 15,
        ax: Axes | None = None,
    ) -> Self:
        """Draw importances.

        Parameters
        ----------
        estimator : fitted estimator
        kind, X, per_output
            See its `feature_importance`.
        max_features : int
            The number of features to draw, those with the largest means.
        ax : matplotlib Axes, optional
        """
        model = get_model(estimator)
        importance = estimator.feature_importance(kind, per_output, X=X)
        names = get_output_names(model)
        return cls(importance, model.input_names, names, kind, max_features).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        values, total = self.importance, self.importance.sum()
        if self.kind in ("gain", "split", "cover") and total > 0:
            values = values / total
        by_output = np.atleast_2d(values)
        order = np.argsort(-by_output.mean(axis=0), kind="stable")[: self.max_features]
        names, unit = [self.feature_names[f] for f in order], _UNITS.get(self.kind, self.kind)
        self.bars_ = self.image_ = None
        if self.importance.ndim == 1:
            self.bars_ = ax.barh(np.arange(len(order)), values[order])
            ax.bar_label(self.bars_, fmt="%.3g", padding=2, fontsize=8)
            ax.margins(x=0.12)
            ax.set(xlabel=unit)
            ax.invert_yaxis()
        else:
            self.image_ = ax.imshow(by_output[:, order].T, aspect="auto", cmap="viridis", vmin=0)
            label_outputs(ax, self.output_names[: len(by_output)])
            self.figure_.colorbar(self.image_, ax=ax, label=unit)
        ax.set_yticks(np.arange(len(order)), names)
        if len(order) < len(self.feature_names):
            ax.set_title(f"{len(order)} of {len(self.feature_names)} features")
        return self._finish()


class DriftDisplay(Display):
    """The population stability index of features, those with the largest first.

    Parameters
    ----------
    drift : Drift
        Result of `measure_drift`.
    max_features : int
        The number of features to draw.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        Bars of features that have not drifted are grey.
    line_ : matplotlib Line2D
        The index 0.1, from which a change is usually called moderate (0.25: large).
    """

    def __init__(self, drift: Drift, max_features: int = 15):
        self.drift, self.max_features = drift, max_features

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        X: DataLike,
        *,
        X_reference: DataLike | None = None,
        max_features: int = 15,
        ax: Axes | None = None,
    ) -> Self:
        """Compare rows with those that an estimator was trained on.

        Parameters
        ----------
        estimator : fitted estimator
        X, X_reference
            See :func:`polyleaf.inspection.measure_drift`.
        max_features : int
            The number of features to draw.
        ax : matplotlib Axes, optional
        """
        drift = measure_drift(estimator, X, X_reference=X_reference)
        return cls(drift, max_features).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        psi = np.nan_to_num(self.drift.psi)
        order = np.argsort(-psi, kind="stable")[: self.max_features]
        colours = np.where(self.drift.is_drifted[order], "C1", "lightgrey").tolist()
        self.bars_ = ax.barh(np.arange(len(order)), psi[order], color=colours)
        self.line_ = ax.axvline(0.1, **REFERENCE_LINE)
        ax.set(xlabel="population stability index")
        ax.set_yticks(np.arange(len(order)), [self.drift.feature_names[f] for f in order])
        ax.invert_yaxis()
        if len(order) < len(psi):
            ax.set_title(f"{len(order)} of {len(psi)} features")
        return self._finish()


class OutputGroupsDisplay(Display):
    """The outputs that share trees, and what `output_groups="auto"` compared them with.

    A row is a choice of groups, and the outputs of one group have one colour; of the last groups if
    rounds alternate. The label has the error on held-out rows and the time of a round, both
    relative to one group, and the share of the gains of separate splits that sharing loses.

    Parameters
    ----------
    groups : list of list of int
        Outputs of each group of the model.
    output_names : sequence of str
    trials : sequence of dict
        `groups`, `loss`, `cost` and `loss_of_sharing` of each candidate.

    Attributes
    ----------
    image_ : matplotlib AxesImage
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        output_names: Sequence[str],
        trials: Sequence[Mapping[str, Any]] = (),
    ):
        self.groups, self.trials = groups, trials
        self.output_names = output_names

    @classmethod
    def from_estimator(cls, estimator: PolyleafEstimator, *, ax: Axes | None = None) -> Self:
        """Draw the groups of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
        ax : matplotlib Axes, optional
        """
        model = get_model(estimator)
        trials = model.metadata.get(OUTPUT_GROUPS, ())
        return cls(model.output_groups, get_output_names(model), trials).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax, n = self._set_axes(ax), len(self.output_names)
        trials = list(self.trials) or [{"groups": self.groups}]
        colours, labels = np.zeros((len(trials), n)), []
        for row, trial in enumerate(trials):
            counts: list[int] = []
            n_left = 0
            for number, group in enumerate(trial["groups"]):
                if n_left == 0:
                    counts, n_left = [*counts, 0], n
                counts[-1] += 1
                n_left -= len(group)
                colours[row, group] = number
            is_chosen = [list(g) for g in trial["groups"]] == [list(g) for g in self.groups]
            label = f"{' and '.join(map(str, counts))} group{'s' * (counts != [1])}"
            if is_chosen and len(trials) > 1:
                label += ", chosen"
            if "loss" in trial:
                lost = f"{trial['loss_of_sharing']:.0%} of the gain lost"
                label += f"\nerror x {trial['loss']:.3f}, time x {trial['cost']:.1f}, {lost}"
            labels.append(label)
        self.image_ = ax.imshow(colours % 20, aspect="auto", cmap="tab20", vmin=0, vmax=19)
        label_outputs(ax, self.output_names)
        ax.set_yticks(np.arange(len(trials)), labels)
        ax.set_title("outputs of one colour share trees")
        return self._finish()


class OutputsDisplay(Display):
    """A metric of each output.

    Parameters
    ----------
    scores : dict of str -> array of shape (n_outputs,)
        The metric of each model; "constant" has the metric of the base scores.
    output_names : sequence of str
    metric : str

    Attributes
    ----------
    bars_ : dict of str -> matplotlib BarContainer
    """

    def __init__(self, scores: Mapping[str, object], output_names: Sequence[str], metric: str):
        self.scores = {name: np.asarray(score, np.float64) for name, score in scores.items()}
        self.output_names, self.metric = output_names, metric

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        X: DataLike,
        y: DataLike,
        *,
        metric: str | None = None,
        others: Mapping[str, PolyleafEstimator] | None = None,
        offset: DataLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Evaluate each output of a fitted estimator, its base scores and other estimators.

        Parameters
        ----------
        estimator : fitted PolyleafRegressor or PolyleafClassifier
        X, y
            Rows that are not in the training data.
        metric : str, optional
            A metric that is defined for a single output. Default: the metric of the objective.
        others : dict of str -> fitted estimator, optional
            Estimators of the same outputs, such as one with a tree per output.
        offset : optional
            See `predict`: the offset of the constant, of the model, and of others that were trained
            with offsets.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the metric is not defined for a single output.
        """
        fitted = {"model": estimator, **(others or {})}
        offset = get_evaluation_offset(estimator, X, y, offset)
        scores: dict[str, np.ndarray] = {}
        name = ""
        for label, one in fitted.items():
            model = get_single_task_model(one)
            scorer = Scorer(model, X, y, metrics=metric)
            n_rounds = model.n_rounds if model.best_iteration is None else model.best_iteration + 1
            has_offset = one is estimator or model.metadata.get(HAS_OFFSETS)
            first = read_raw_offset(model, offset if has_offset else None)
            if label == "model":
                raw = model.predict_raw(scorer.table, 0, 0) + first
                scores["constant"], name = scorer.per_output(raw)
            raw = model.predict_raw(scorer.table, 0, n_rounds) + first
            scores[label], name = scorer.per_output(raw)
        model = get_model(estimator)
        names = get_output_names(model)
        if len(scores["model"]) < len(names):  # a target has several raw scores
            names = get_target_names(model)
        return cls(scores, names, name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        n, width = len(self.output_names), 0.8 / len(self.scores)
        self.bars_ = {}
        for i, (label, scores) in enumerate(self.scores.items()):
            at = np.arange(n) + (i - (len(self.scores) - 1) / 2) * width
            colour = "lightgrey" if label == "constant" else f"C{(i - 1) % 10}"
            self.bars_[label] = ax.bar(at, scores, width, label=label, color=colour)
        label_outputs(ax, self.output_names)
        ax.set(ylabel=self.metric)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(self.scores))
        return self._finish()


_MAX_TITLE_NAMES = 4  # outputs in a title
_MAX_NAMES = 3  # outputs or regressors of a leaf
_MAX_NAME_LENGTH = 22  # longer names are shortened in the middle


class TreeDisplay(Display):
    """A tree whose leaves are strips: a coloured cell per output, on one scale for all leaves.

    Rows go left where the answer is yes. Below a strip are its values, or the largest of many.
    Linear leaves are labelled with their regressors, and have their values at the centre.

    Parameters
    ----------
    model : Model
    tree : int
        Its index in the model.
    path : sequence of int
        The nodes on the path of a row, drawn in bold.

    Attributes
    ----------
    nodes : list of dict
        See `polyleaf.inspection.tree_nodes`.
    position : ndarray of shape (n_nodes, 2)
        x: leaves are 0, 1, 2, ... from the left; y: minus the depth.
    strips_ : list of matplotlib AxesImage
        The strips of the leaves, from the left.
    texts_ : list of matplotlib Text
    """

    def __init__(self, model: Model, tree: int, path: Iterable[int] = ()):
        self.model, self.tree = model, tree
        self.path = [int(node) for node in path]
        self.nodes = tree_nodes(model, tree)
        self.position = _layout(self.nodes)

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        tree: int = 0,
        *,
        row: DataLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw one tree.

        Parameters
        ----------
        estimator : fitted PolyleafRegressor or PolyleafClassifier, or Model
        tree : int
        row : table of one row, optional
            As the estimator takes X; its path is drawn in bold. Not for a Model.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If there is no such tree, or `row` is not one row.
        """
        model = get_model(estimator)
        if not -model.n_trees <= tree < model.n_trees:
            raise ValueError(f"tree={tree} must be below {model.n_trees}, the number of trees.")
        tree = tree % model.n_trees
        path: list[int] = []
        if row is not None:
            leaves = estimator.apply(row, iteration_range=(0, 0))
            if len(leaves) != 1:
                raise ValueError(f"row must have one row; got {len(leaves)}.")
            path = _find_path(model.trees[tree].structure, int(leaves[0, tree]))
        return cls(model, tree, path).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`; by default on new axes as wide as the tree."""
        if ax is None:
            width = max(4.0, 1.25 * (self.position[:, 0].max() + 1))
            height = 1.25 * (2 - self.position[:, 1].min())
            ax = import_pyplot().subplots(figsize=(width, height), layout="constrained")[1]
        self._set_axes(ax)
        self.strips_: list[AxesImage] = []
        self.texts_: list[Text] = []
        self._draw_branches()
        view = self.model.trees[self.tree]
        leaves = {node: entry["leaf"] for node, entry in enumerate(self.nodes) if "leaf" in entry}
        values = {node: view.leaf_values(leaf) for node, leaf in leaves.items()}
        largest = max(float(np.abs(strip).max(initial=0.0)) for strip in values.values()) or 1.0
        for node in sorted(range(len(self.nodes)), key=lambda node: self.position[node, 0]):
            if node in values:
                self._draw_leaf(node, values[node], largest)
            else:
                self._write(node, _describe_split(self.nodes[node]), 0.0, "center")
        ax.set_xlim(-0.6, self.position[:, 0].max() + 0.6)
        ax.set_ylim(self.position[:, 1].min() - 0.8, 0.4)
        ax.set_axis_off()
        ax.set_title(f"tree {self.tree}: {self._describe_cells()}")
        self.figure_.colorbar(self.strips_[0], ax=ax, label="value of an output", shrink=0.6)
        return self._finish()

    def _get_cell_names(self) -> list[str]:
        """Return the names of the outputs that the leaves of the tree have."""
        outputs = self.model.trees[self.tree].outputs
        numbers = range(self.model.n_outputs) if outputs is None else outputs
        return [self.model.output_name(int(k)) for k in numbers]

    def _describe_cells(self) -> str:
        names = self._get_cell_names()
        if len(names) > _MAX_TITLE_NAMES:
            return f"cells are {len(names)} outputs, {_shorten(names[0])} to {_shorten(names[-1])}"
        return f"cells are {', '.join(map(_shorten, names))}"

    def _draw_branches(self) -> None:
        on_path = set(self.path)
        for node, entry in enumerate(self.nodes):
            for side in ("left", "right") if "leaf" not in entry else ():
                child = entry[side]
                x, y = self.position[[node, child]].mean(axis=0)
                box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
                answer = "yes" if side == "left" else "no"
                self.ax_.text(x, y, answer, ha="center", va="center", fontsize=6, bbox=box)
                is_bold = node in on_path and child in on_path
                x, y = self.position[[node, child]].T
                colour, width = ("black", 2.5) if is_bold else ("grey", 0.8)
                self.ax_.plot(x, y, color=colour, linewidth=width, zorder=0)

    def _draw_leaf(self, node: int, values: np.ndarray, largest: float) -> None:
        x, y = self.position[node]
        extent = (x - 0.4, x + 0.4, y - 0.12, y + 0.12)
        colours: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
        strip = self.ax_.imshow(values[None, :], extent=extent, aspect="auto", zorder=1, **colours)
        self.strips_.append(strip)
        entry, kind = self.nodes[node], self.model.trees[self.tree].kind
        lines = [f"{entry['count']:,} rows"] if "count" in entry else []
        lines += self._describe_values(values)
        named = LEAF_KINDS[kind].label_column
        if named == "regressors" and entry[named]:
            lines.append(f"slopes: {_join_names(entry[named])}")
        self._write(node, "\n".join(lines), -0.17, "top")

    def _describe_values(self, values: np.ndarray) -> list[str]:
        """Return the values of a leaf, the largest ones first if there are many."""
        names = self._get_cell_names()
        if len(values) <= _MAX_TITLE_NAMES:  # in the order of the title
            return [", ".join(f"{value:.3g}" for value in values)]
        order = np.argsort(-np.abs(values), kind="stable")[:_MAX_NAMES]
        lines = [f"{_shorten(names[k])} {values[k]:.3g}" for k in order if values[k] != 0]
        n_others = int(np.count_nonzero(values)) - len(lines)
        return [*lines, f"and {n_others} others"] if n_others else lines

    def _write(self, node: int, text: str, below: float, at: str) -> None:
        x, y = self.position[node]
        box = None
        if at == "center":
            box = {"facecolor": "white", "edgecolor": "grey", "boxstyle": "round"}
        weight = "bold" if node in self.path else "normal"
        label = self.ax_.text(
            x, y + below, text, ha="center", va=at, fontsize=7, bbox=box, fontweight=weight
        )
        self.texts_.append(label)


def _describe_split(entry: JsonObject) -> str:
    """Return the condition for going left."""
    missing = "\nor missing" if entry["missing_left"] else ""
    name = _shorten(entry["feature"])
    if "categories" in entry:
        shown = _join_names(entry["categories"])
        rule = f"{name}\nin {shown}{missing}"
    elif entry["threshold"] is None:
        rule = f"{name}\nis not missing"
    else:
        rule = f"{name}\n<= {entry['threshold']:.4g}{missing}"
    if "count" in entry:
        rule += f"\n{entry['count']:,} rows, gain {entry['gain']:.3g}"
    return rule


def _join_names(names: list[str]) -> str:
    return ", ".join(map(_shorten, names[:_MAX_NAMES])) + ", ..." * (len(names) > _MAX_NAMES)


def _shorten(name: str) -> str:
    half = _MAX_NAME_LENGTH // 2 - 1
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:half]}...{name[-half:]}"


def _layout(nodes: list[JsonObject]) -> np.ndarray:
    """Place leaves next to each other, and splits above the middle of their children."""
    position = np.zeros((len(nodes), 2))
    position[:, 1] = [-entry["depth"] for entry in nodes]
    n_leaves, stack = 0, [0]
    while stack:  # depth first, from the left
        node = stack.pop()
        if "leaf" in nodes[node]:
            position[node, 0] = n_leaves
            n_leaves += 1
        else:
            stack += [nodes[node]["right"], nodes[node]["left"]]
    for node in reversed(range(len(nodes))):  # children follow their parent
        if "leaf" not in nodes[node]:
            position[node, 0] = position[[nodes[node]["left"], nodes[node]["right"]], 0].mean()
    return position


def _find_path(structure: _core.Tree, leaf: int) -> list[int]:
    """Return the nodes from the root to a leaf."""
    parent = {
        int(child): node
        for node in range(structure.n_nodes)
        for child in (structure.left[node], structure.right[node])
    }
    path = [int(np.flatnonzero(structure.leaf == leaf)[0])]
    while path[-1] != 0:
        path.append(parent[path[-1]])
    return path[::-1]
