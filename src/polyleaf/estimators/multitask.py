"""PolyleafMultiTask: several targets of unlike kind, each with its own loss, in one model.

Owns how a task is chosen, encoded and answered for. The losses side by side are `objectives.tasks`, the
matrix of their targets `inputs.tasks`; the rest is `estimators.base`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.distributions import Distribution
from polyleaf.estimators.base import PolyleafEstimator, add_parameter_docs, has_levels
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.decision_functions import decided, probabilities
from polyleaf.estimators.multitask_offsets import TaskOffsetReader
from polyleaf.estimators.output_frames import as_table
from polyleaf.estimators.regressor import PolyleafRegressor, unit_for
from polyleaf.estimators.single_task import plain_estimator
from polyleaf.inputs.multitask import (
    TaskColumns,
    TaskEncodings,
    TaskKey,
    decode_target_encoding,
    encode_labelled_rows,
    get_task_name,
    get_task_weight,
    has_class_ids,
    name_outputs,
    stack_task_targets,
)
from polyleaf.inputs.objects import find_non_number, get_missing_mask, replace_nulls_with_nan
from polyleaf.inputs.targets import (
    Target,
    TargetEncoding,
    check_same_rows,
    encode_classification,
    encode_regression,
    to_numpy,
)
from polyleaf.metrics import get_metrics
from polyleaf.model import Model
from polyleaf.objectives import Objective, auto_objective_name, objective_class
from polyleaf.objectives.multitask import MultiTask, Task, TaskSlice
from polyleaf.settings.aliases import suggest_on_unknown_kwargs, warn_one_vs_rest
from polyleaf.settings.param_spec import make_constraints
from polyleaf.settings.parameters import MultiTaskParameters

__all__ = ["PolyleafMultiTask"]


@add_parameter_docs
class PolyleafMultiTask(PolyleafEstimator, MultiTaskParameters):
    """Gradient boosted trees for several targets of unlike kind: numbers, classes, labels, quantiles, counts.

    One tree serves all tasks; its leaves hold the scores of each. Y is a data frame, or a dict of arrays, and
    so are weights and offsets of single tasks; with `missing_targets="ignore"` a row teaches the tasks whose
    target it has. A model of one task is that of the estimator for it.

    {parameters}

    Attributes
    ----------
    classes_ : dict of str to ndarray
        Sorted labels of the tasks that have classes.
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafMultiTask
    >>> from sklearn.datasets import load_iris
    >>> X, species = load_iris(return_X_y=True)
    >>> Y = {"width": X[:, 3], "species": species}
    >>> model = PolyleafMultiTask({"width": "squared_error", "species": "softmax"}, n_estimators=20)
    >>> {name: found.shape for name, found in model.fit(X[:, :3], Y).predict(X[:, :3]).items()}
    {'width': (150,), 'species': (150,)}
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = make_constraints(MultiTaskParameters)
    _sparse_kind = "regression"
    _kinds = ("tasks",)

    # --- fit ---

    def _encode_target(self, y: Any, sample_weight: Any, start: Model | None) -> Target:
        columns = TaskColumns(y)
        if start is not None:
            return decode_target_encoding(start.metadata, start.n_outputs).encode(y, sample_weight)
        chosen = self._chosen(columns)
        found = [self._encoded(key, chosen[key], columns, sample_weight) for key in chosen]
        return stack_task_targets(list(chosen), found, self.missing_targets)

    def _chosen(self, columns: TaskColumns) -> dict[TaskKey, Any]:
        """The objective of each task by its key; None: by the kind of its column."""
        if self.objective is None:
            return dict.fromkeys(columns.names or [])
        if not self.objective:
            raise ValueError("objective names no task: give a loss for at least one column of Y.")
        return dict(self.objective)

    def _encoded(
        self, key: TaskKey, chosen: Any, columns: TaskColumns, sample_weight: Any
    ) -> Target:
        """The target of one task as its own estimator would encode it."""
        y, weight = columns.select(key), get_task_weight(sample_weight, key)
        missing = self.missing_targets
        try:
            kinds = (
                ("labels", "classes") if chosen is None else objective_class(chosen).target_kinds
            )
            if not _has_classes(y, chosen):
                cls = objective_class("squared_error" if chosen is None else chosen)
                normalize = unit_for(cls, self.multi_strategy == "multi_output_tree")
                found = encode_regression(y, weight, missing=missing, normalize=normalize)
                return name_outputs(found, key)
            encode = partial(
                encode_classification,
                one_vs_rest="labels" in kinds and "classes" not in kinds,
                two_scores="labels" not in kinds,
            )
            if np.ndim(y) == 2 and np.shape(y)[1] > 1:
                return name_outputs(encode(y, weight, missing=missing), key)
            return encode_labelled_rows(encode, y, weight, missing)
        except ValueError as error:
            raise ValueError(f"Task {get_task_name(key)!r}: {error}") from None

    def _make_objective(self, target: Target, start: Model | None) -> Objective:
        encodings = target.encoding
        assert isinstance(encodings, TaskEncodings)
        weights = self._task_weights(encodings.names)
        parts = []
        for key, name, encoding in zip(
            encodings.keys, encodings.names, encodings.encodings, strict=True
        ):
            chosen = None if self.objective is None else self.objective.get(key)
            objective = self._objective_of(name, chosen, encoding)
            learns: Any = (
                "values"
                if encoding.kind == "regression"
                else "classes"
                if has_class_ids(encoding)
                else "labels"
            )
            n_columns = 1 if learns == "classes" else encoding.n_outputs
            n_scores = objective.n_scores(encoding.n_outputs)
            parts.append(Task(name, objective, learns, n_columns, n_scores, weights.get(name, 1.0)))
        return MultiTask(tuple(parts))

    def _objective_of(self, name: str, chosen: Any, encoding: TargetEncoding) -> Objective:
        of_numbers = encoding.kind == "regression"
        if chosen is None:
            chosen = (
                "squared_error" if of_numbers else auto_objective_name(encoding.kind, sparse=False)
            )
        try:
            objective = self._complete_objective(chosen, None if of_numbers else encoding.n_outputs)
        except ValueError as error:
            raise ValueError(f"Task {name!r}: {error}") from None
        if encoding.kind == "multilabel" and "labels" not in objective.target_kinds:
            raise ValueError(
                f"Task {name!r} has several labels a row, but objective {objective.name!r} picks one of "
                f'several classes: use "logistic".'
            )
        if encoding.kind == "multiclass" and not has_class_ids(encoding):
            warn_one_vs_rest(chosen, objective.name, encoding.n_outputs, f"Task {name!r}: ")
        return objective

    def _task_weights(self, names: list[str]) -> dict[str, float]:
        weights = {get_task_name(key): weight for key, weight in (self.task_weight or {}).items()}
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise ValueError(
                f"task_weight names the task {unknown[0]!r}; there are {', '.join(map(repr, names))}."
            )
        return {name: float(weight) for name, weight in weights.items()}

    @staticmethod
    def _check_unit(encoding: TargetEncoding, objective: Objective) -> None:
        """Each task was encoded in the unit that its objective asks for."""

    @staticmethod
    def _offset_reader(encoding: TargetEncoding, objective: Objective) -> Any:
        assert isinstance(encoding, TaskEncodings)
        return TaskOffsetReader(encoding, objective.tasks)

    def _is_calibrated(self, objective: Objective) -> bool:
        return self.calibrate_quantiles and has_levels(objective)

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str]:
        assert isinstance(encoding, TaskEncodings)
        places = zip(objective.tasks, encoding.encodings, strict=True)
        names = [name for place, own in places for name in _get_score_names(place.task, own)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"Two scores would be called {name!r}: rename a column of Y, or a class."
                )
        return names

    # --- fitted state ---

    def _set_model(self, model: Model, encoding: TargetEncoding) -> None:
        super()._set_model(model, encoding)
        self.classes_: Any = {
            place.task.name: own.classes
            for place, own in self._iter_tasks()
            if own.classes is not None
        }

    @classmethod
    def _objective_parameter(cls, model: Model) -> Any:
        encoding = decode_target_encoding(model.metadata, model.n_outputs)
        cls._check_agreement(model, encoding)
        assert isinstance(encoding, TaskEncodings)
        objectives = [place.task.objective for place in model.objective.tasks]
        return dict(zip(encoding.keys, objectives, strict=True))

    @classmethod
    def _check_agreement(cls, model: Model, encoding: TargetEncoding) -> None:
        places = model.objective.tasks
        if not isinstance(encoding, TaskEncodings) or not places:
            raise ValueError(f"A {cls.__name__} learns tasks, of which the model names none.")
        names = [place.task.name for place in places]
        widths = [place.task.n_columns for place in places]
        if names != encoding.names or widths != encoding.widths:
            raise ValueError("The tasks of the model's objective are not those of its target.")
        for place, own in zip(places, encoding.encodings, strict=True):
            learns = (
                "values"
                if own.kind == "regression"
                else "classes"
                if has_class_ids(own)
                else "labels"
            )
            of_classes = learns == "classes" and place.task.n_scores != own.n_outputs
            if place.task.target_kind != learns or of_classes:
                raise ValueError(f"Task {place.task.name!r} does not learn what its target is.")

    def _iter_tasks(self) -> Iterator[tuple[TaskSlice, TargetEncoding]]:
        """Where each task is, and how its target was encoded."""
        encoding = self._encoding
        assert isinstance(encoding, TaskEncodings)
        return zip(self.model_.objective.tasks, encoding.encodings, strict=True)

    # --- predictions ---

    @suggest_on_unknown_kwargs
    def predict(  # type: ignore[override]
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> Any:
        """Predict what each task's own estimator would: numbers, quantiles, classes or labels.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            Use rounds `begin .. end - 1`. An end of 0 stands for the last round, as in XGBoost: (0, 0) is all
            rounds. Default: all, or up to the best one where early stopping chose one.
        offset : dict of arrays, optional
            Raw scores that rows start from, by task, as in `fit`.

        Returns
        -------
        dict of str to ndarray of shape (n_rows,) or (n_rows, n)
            Or one table with all columns, as `set_output` has it.
        """
        return self._in_tables(
            self._prediction(self._raw(X, iteration_range, offset)), X, self._names_of
        )

    def _prediction(self, raw: np.ndarray) -> Any:
        return {
            place.task.name: _answer(place.task, own, raw[:, place.scores])
            for place, own in self._iter_tasks()
        }

    @suggest_on_unknown_kwargs
    def predict_proba(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> Any:
        """Probabilities of the tasks that have classes or labels.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            As in `predict`.
        offset : dict of arrays, optional
            As in `predict`.

        Returns
        -------
        dict of str to ndarray of shape (n_rows, n_classes or n_labels), float64
            Columns of classes in their order. Tasks whose objective gives no probabilities are left out. Or
            one table, as `set_output` has it.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        raw = self._raw(X, iteration_range, offset)
        found = {
            place.task.name: probabilities(raw[:, place.scores], own, place.task.objective)
            for place, own in self._iter_tasks()
            if own.kind != "regression" and place.task.objective.probabilities
        }
        return self._in_tables(found, X, self._names_of_chances)

    def predict_dist(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> dict[str, Distribution]:
        """The distributions of the tasks that predict such, by task (docs/distributions.md).

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range : (int, int), optional
            As in `predict`.
        offset : dict of arrays, optional
            As in `predict`.

        Returns
        -------
        dict of str to Distribution of shape (n_rows,), or (n_rows, n)
            n columns where the task has several. Tasks that predict numbers or classes are left out.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X is not such as the model was trained on, or there are no such rounds.
        """
        raw, found = self._raw(X, iteration_range, offset), {}
        for place, own in self._iter_tasks():
            if place.task.objective.has_distribution:
                law = place.task.objective.distribution(raw[:, place.scores])
                found[place.task.name] = law[:, 0] if own.one_dimensional else law
        return found

    def predict_topk(self, *args: Any, **kwargs: Any) -> Any:
        """Not of tasks, whose scores cannot be ranked among each other.

        Parameters
        ----------
        *args, **kwargs
            Whatever they are.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            "predict_topk ranks outputs, but scores of unlike tasks cannot be ranked together."
        )

    def task_estimator(self, name: str) -> PolyleafRegressor | PolyleafClassifier:
        """One task as the estimator of its kind, with predictions equal bit for bit: for whatever takes one
        estimator, such as reports, `calibrate`, `predict_interval`, `predict_set`, `choose_threshold`,
        displays and exports.

        Parameters
        ----------
        name : str
            Of the task; one of several columns is called by their names with "+" between them.

        Returns
        -------
        PolyleafRegressor or PolyleafClassifier
            Fitted. Its trees are those of all tasks with the task's part of each leaf, a copy: what is
            calibrated or chosen for it stays with it, and `save_model` writes it to a file of its own.
            Fitting it again learns the task alone.

        Raises
        ------
        ValueError
            Where there is no such task.
        """
        check_is_fitted(self)
        tasks = {place.task.name: (place, own) for place, own in self._iter_tasks()}
        if name not in tasks:
            raise ValueError(f"There is no task {name!r}; there are {', '.join(map(repr, tasks))}.")
        found = plain_estimator(self.model_, *tasks[name], self.evals_result_)
        return found.set_params(n_jobs=self.n_jobs, verbose=self.verbose)

    def d2_scores(
        self, X: Any, Y: Any, sample_weight: Any = None, *, offset: Any = None
    ) -> dict[str, float]:
        """Of each task the share of the best constant's error that predictions are without: R2 for squared
        error, in general D2 (of deviance, pinball loss, log loss, absolute error; of distributions CRPS).

        Parameters
        ----------
        X, Y, sample_weight, offset
            As in `fit`.

        Returns
        -------
        dict of str to float
        """
        check_is_fitted(self)
        target = self._encoding.encode(Y, sample_weight, normalized=False)
        raw, objective = self._raw(X, None, offset), self.model_.objective
        check_same_rows(len(raw), target.n_rows)
        names = [place.task.name for place in objective.tasks]
        metrics = get_metrics(dict.fromkeys(names, "d2"), objective)
        found = [metric(target.values, raw, target.weight) for metric in metrics]
        return dict(zip(names, found, strict=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> float:
        """The mean of `d2_scores`.

        Parameters
        ----------
        X, y, sample_weight, offset
            As `X`, `Y`, `sample_weight` and `offset` of `d2_scores`.

        Returns
        -------
        float
            1 is perfect, 0 the best constant. Tasks whose skill is NaN do not count; NaN where all are.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            Where X or y is not such as the model was trained on.
        """
        found = np.array(list(self.d2_scores(X, y, sample_weight, offset=offset).values()))
        return float(np.nanmean(found)) if not np.isnan(found).all() else float("nan")

    def _in_tables(
        self,
        found: dict[str, np.ndarray],
        X: Any,
        names: Callable[[TaskSlice, TargetEncoding], list[str]],
    ) -> Any:
        """The dict, or one table of all its columns."""
        library = getattr(self, "_sklearn_output_config", {}).get("predict", "default")
        if library == "default":
            return found
        columns: dict[str, np.ndarray] = {}
        for place, own in self._iter_tasks():
            if place.task.name in found:
                values = found[place.task.name]
                values = values if values.ndim == 2 else values[:, None]
                columns |= dict(zip(names(place, own), values.T, strict=True))
        return as_table(library, columns, list(columns), X)

    @staticmethod
    def _names_of(place: TaskSlice, own: TargetEncoding) -> list[str]:
        if own.kind in ("binary", "multiclass"):
            return [place.task.name]
        if place.task.objective.has_distribution:
            return _names_of_columns(place.task.name, own)
        return _get_score_names(place.task, own)

    @staticmethod
    def _names_of_chances(place: TaskSlice, own: TargetEncoding) -> list[str]:
        if own.kind == "multilabel" or own.classes is None:
            return _names_of_columns(place.task.name, own)
        return [f"{place.task.name}_{label}" for label in own.classes.tolist()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


def _answer(task: Task, encoding: TargetEncoding, raw: np.ndarray) -> np.ndarray:
    if encoding.kind != "regression":
        return decided(raw, encoding)
    found = task.objective.transform(raw)
    return found[:, 0] if encoding.one_dimensional and found.shape[1] == 1 else found


def _names_of_columns(name: str, encoding: TargetEncoding) -> list[str]:
    if encoding.n_outputs == 1:
        return [name]
    return list(encoding.output_names or [f"{name}_{k}" for k in range(encoding.n_outputs)])


def _get_score_names(task: Task, encoding: TargetEncoding) -> list[str]:
    if encoding.kind == "multiclass" and encoding.classes is not None:
        return [f"{task.name}_{label}" for label in encoding.classes.tolist()]
    columns, parts = _names_of_columns(task.name, encoding), task.objective.score_names
    return [f"{column}_{part}" for column in columns for part in parts] if parts else columns


def _has_classes(y: Any, chosen: Any) -> bool:
    """Whether the column, or the columns, of a task are classes or labels, and not numbers."""
    kinds = ("values", "labels") if chosen is None else objective_class(chosen).target_kinds
    if "values" not in kinds or set(kinds) == {"values"}:
        return "values" not in kinds
    values = np.asarray(to_numpy(y))
    of_type = values.dtype.kind == "b" or str(getattr(y, "dtype", "")) == "category"
    if of_type or values.dtype.kind not in "biufO":
        return True
    if values.dtype.kind == "O":
        known = values[~get_missing_mask(values)]
        if any(isinstance(value, str | bool | np.bool_) for value in known.tolist()):
            return True
        if find_non_number(replace_nulls_with_nan(values)) is not None:
            return False  # whoever reads numbers says what it is
        values = known.astype(np.float64)
    values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if chosen is not None and "classes" in kinds:  # a function takes anything: numbers stay numbers
        return False
    if chosen is None:
        return bool(np.isin(values, (0, 1)).all())
    return bool((values == np.round(values)).all())
