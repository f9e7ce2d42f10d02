"""Multi-task learning: several targets of different kinds, each with its own loss, in one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.distributions import Distribution
from polyleaf.estimators._fitting import refuse_objective
from polyleaf.estimators._persistence import make_estimator
from polyleaf.estimators._prediction import make_table
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.calibration import compute_probabilities, decide
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.regressor import PolyleafRegressor, get_auto_scaling
from polyleaf.metrics import get_metrics
from polyleaf.model import Model
from polyleaf.model.combine import select_outputs
from polyleaf.model.metadata import ESTIMATOR, HAS_OFFSETS, INPUT_LABELS, INPUT_NAMES, PARAMETERS
from polyleaf.objectives import Objective, SquaredError, auto_objective_name
from polyleaf.objectives.multitask import MultiTask, Task, TaskSlice
from polyleaf.objectives.registry import ObjectiveSpec, ResolvedObjective, resolve_objective
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.settings.aliases import warn_one_vs_rest
from polyleaf.settings.param_spec import (
    add_parameter_docs,
    make_constraints,
    suggest_on_unknown_kwargs,
)
from polyleaf.settings.parameters import MultiTaskParameters
from polyleaf.training.fit import complete_objective, has_quantiles
from polyleaf.training.output_groups import has_shared_trees
from polyleaf.user_data.multitask import (
    TaskColumns,
    TaskEncodings,
    TaskKey,
    check_task_names,
    check_task_weights,
    decode_target_encoding,
    encode_labelled_rows,
    get_class_weight,
    get_task_name,
    get_task_weight,
    join_task_targets,
    name_outputs,
    weigh_task_classes,
)
from polyleaf.user_data.offsets import OffsetReader
from polyleaf.user_data.read_target import check_same_rows, to_numpy
from polyleaf.user_data.target import (
    Target,
    TargetEncoding,
    encode_classification,
    encode_regression,
)
from polyleaf.user_data.validation import find_non_number, get_missing_mask, replace_nulls_with_nan

if TYPE_CHECKING:
    from sklearn.utils import Tags

# Parameters with task names or scores of all tasks, which the estimator of one task does not have.
_ALL_TASKS_PARAMETERS = ("objective", "eval_metric", "base_score", "class_weight")


@add_parameter_docs
class PolyleafMultiTask(PolyleafEstimator, MultiTaskParameters):
    """Gradient boosted trees for several targets of different kinds.

    Targets may be numbers, classes, labels, quantiles or counts. One tree serves all tasks; its
    leaves hold the scores of each. Y is a data frame or a dict of arrays, and so are weights and
    offsets of single tasks. With `missing_targets="ignore"` a row contributes to the tasks whose
    target it has. A model of one task equals that of the single-task estimator.

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

    _parameter_constraints: ClassVar[dict[str, object]] = make_constraints(MultiTaskParameters)
    _sparse_kind = "regression"
    _kinds = ("tasks",)

    # --- fit ---

    def _resolve_objective(self) -> dict[TaskKey, ObjectiveSpec]:
        resolved: dict[TaskKey, ObjectiveSpec] = {}
        for key, objective in (self.objective or {}).items():
            if not isinstance(objective, str) or objective != "auto":
                with _name_task(get_task_name(key)):
                    resolved[key] = resolve_objective(objective)
                    if "relevance" in resolved[key].cls.target_kinds:
                        refuse_objective(resolved[key].cls)
        return resolved

    def _encode_target(
        self,
        rows: RowData,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Target:
        assert ranks.size == 1  # no Dask estimator has several tasks
        columns = TaskColumns(rows.target)
        if old_model is not None:
            encoding = self._get_encoding(old_model)
            assert isinstance(encoding, TaskEncodings)
            names = {get_task_name(key) for key in self.objective or encoding.keys}
            if names != set(encoding.names):
                raise ValueError(
                    f"objective has the tasks {sorted(names)}, but the model to continue has "
                    f"{sorted(encoding.names)}."
                )
            return weigh_task_classes(encoding.encode(rows), self.class_weight)
        assert isinstance(resolved, Mapping)
        if self.objective is not None and not self.objective:
            raise ValueError("objective names no task: give a loss for at least one column of Y.")
        keys: list[TaskKey] = list(self.objective or columns.names or ())
        check_task_weights(rows, keys, columns)
        targets = [
            self._encode_task(
                key, resolved.get(key), RowData(columns.select(key), get_task_weight(rows, key))
            )
            for key in keys
        ]
        target = join_task_targets(keys, targets, self.missing_targets)
        return weigh_task_classes(target, self.class_weight)

    def _encode_task(self, key: TaskKey, spec: ObjectiveSpec | None, rows: RowData) -> Target:
        """Encode the target of one task as its own estimator would."""
        y, missing = rows.target, self.missing_targets
        with _name_task(get_task_name(key)):
            cls = None if spec is None else spec.cls
            kinds = ("labels", "classes") if cls is None else cls.target_kinds
            if not _has_classes(y, cls):
                cls = cls or SquaredError
                normalize = get_auto_scaling(cls, has_shared_trees(self))
                target = encode_regression(rows, missing=missing, normalize=normalize)
                return name_outputs(target, key)
            encode = partial(
                encode_classification,
                one_vs_rest="labels" in kinds and "classes" not in kinds,
                two_scores="labels" not in kinds,
            )
            if np.ndim(y) == 2 and np.shape(y)[1] > 1:
                return name_outputs(encode(rows, missing=missing), key)
            return encode_labelled_rows(encode, rows, missing)

    def _make_objective(
        self,
        target: Target,
        old_model: Model | None,
        resolved: ResolvedObjective,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> Objective:
        encodings = target.encoding
        assert isinstance(encodings, TaskEncodings) and isinstance(resolved, Mapping)
        weights = self._get_task_weights(encodings.names)
        tasks = []
        for key, name, encoding in zip(
            encodings.keys, encodings.names, encodings.encodings, strict=True
        ):
            objective = self._make_task_objective(name, resolved.get(key), encoding)
            learns: Any = _get_target_kind(encoding)
            n_columns = 1 if learns == "classes" else encoding.n_outputs
            n_scores = objective.n_scores(encoding.n_outputs)
            tasks.append(Task(name, objective, learns, n_columns, n_scores, weights.get(name, 1.0)))
        return MultiTask(tuple(tasks))

    def _make_task_objective(
        self, name: str, spec: ObjectiveSpec | None, encoding: TargetEncoding
    ) -> Objective:
        is_regression = encoding.kind == "regression"
        if spec is None:
            auto = auto_objective_name(encoding.kind, sparse=False)
            spec = resolve_objective("squared_error" if is_regression else auto)
        with _name_task(name):
            made = complete_objective(self, spec, None if is_regression else encoding.n_outputs)
        if encoding.kind == "multilabel" and "labels" not in made.target_kinds:
            raise ValueError(
                f"Task {name!r} has several labels per row, but objective {made.name!r} is for one "
                'of several classes: use "logistic".'
            )
        if encoding.one_vs_rest:
            warn_one_vs_rest(spec.label, made.name, encoding.n_outputs, f"Task {name!r}: ")
        return made

    def _get_task_weights(self, names: list[str]) -> dict[str, float]:
        weights = {get_task_name(key): weight for key, weight in (self.task_weight or {}).items()}
        check_task_names(weights, names, "task_weight")
        return {name: float(weight) for name, weight in weights.items()}

    @staticmethod
    def _check_scaling(encoding: TargetEncoding, objective: Objective) -> None:
        """Nothing to check: each task is scaled as its objective requires."""

    @staticmethod
    def _offset_reader(encoding: TargetEncoding, objective: Objective) -> TaskOffsetReader:
        assert isinstance(encoding, TaskEncodings)
        return TaskOffsetReader(encoding, objective.tasks)

    def _is_calibrated(self, objective: Objective) -> bool:
        parts = [place.task.objective for place in objective.tasks]
        return self.calibrate_quantiles and any(map(has_quantiles, parts))

    def _score_names(self, encoding: TargetEncoding, objective: Objective) -> list[str]:
        assert isinstance(encoding, TaskEncodings)
        places = zip(objective.tasks, encoding.encodings, strict=True)
        names = [
            name
            for place, task_encoding in places
            for name in _get_score_names(place.task, task_encoding)
        ]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"Two scores have the same name {name!r}: rename a column of Y, or a class."
                )
        return names

    # --- fitted state ---

    def _set_model(self, model: Model, encoding: TargetEncoding) -> None:
        super()._set_model(model, encoding)
        self.classes_: Any = {
            place.task.name: task_encoding.classes
            for place, task_encoding in self._iter_tasks()
            if task_encoding.classes is not None
        }

    @classmethod
    def _objective_parameter(cls, model: Model) -> object:
        encoding = decode_target_encoding(model.metadata, model.n_outputs)
        cls._check_agreement(model, encoding)
        assert isinstance(encoding, TaskEncodings)
        objectives = [place.task.objective for place in model.objective.tasks]
        return dict(zip(encoding.keys, objectives, strict=True))

    @classmethod
    def _check_agreement(cls, model: Model, encoding: TargetEncoding) -> None:
        places = model.objective.tasks
        if not isinstance(encoding, TaskEncodings) or not places:
            raise ValueError(f"A {cls.__name__} learns tasks, but the model has none.")
        names = [place.task.name for place in places]
        widths = [place.task.n_columns for place in places]
        if names != encoding.names or widths != encoding.widths:
            raise ValueError("The tasks of the model's objective differ from those of its target.")
        for place, task_encoding in zip(places, encoding.encodings, strict=True):
            learns = _get_target_kind(task_encoding)
            differs = learns == "classes" and place.task.n_scores != task_encoding.n_outputs
            if place.task.target_kind != learns or differs:
                raise ValueError(f"Task {place.task.name!r} does not match its target.")

    def _iter_tasks(self) -> Iterator[tuple[TaskSlice, TargetEncoding]]:
        """Iterate over tasks and the encodings of their targets."""
        encoding = self._encoding
        assert isinstance(encoding, TaskEncodings)
        return zip(self.model_.objective.tasks, encoding.encodings, strict=True)

    # --- predictions ---

    @suggest_on_unknown_kwargs
    def predict(  # type: ignore[override]
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> Any:
        """Predict each task as its own estimator would: numbers, quantiles, classes or labels.

        Parameters
        ----------
        X, iteration_range
            See :meth:`PolyleafRegressor.predict`.
        offset : dict of arrays, optional
            Initial raw scores by task, as in `fit`.

        Returns
        -------
        dict of str to ndarray of shape (n_rows,) or (n_rows, n)
            Or one table with all columns if `set_output` chose one.
        """
        predicted = self._prediction(self._raw(X, iteration_range, offset))
        return self._wrap_tasks(predicted, X, _get_prediction_columns)

    def _prediction(self, raw: np.ndarray) -> Any:
        return {
            place.task.name: _predict_task(place.task, task_encoding, raw[:, place.scores])
            for place, task_encoding in self._iter_tasks()
        }

    @suggest_on_unknown_kwargs
    def predict_proba(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> Any:
        """Predict probabilities of the tasks with classes or labels.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        dict of str to ndarray of shape (n_rows, n_classes or n_labels), float64
            Columns of classes in sorted order. Tasks without probabilities are left out. Or one
            table if `set_output` chose one.
        """
        probabilities = self._probabilities(self._raw(X, iteration_range, offset))
        return self._wrap_tasks(probabilities, X, _get_probability_columns)

    def _probabilities(self, raw: np.ndarray) -> dict[str, np.ndarray]:
        return {
            place.task.name: compute_probabilities(
                raw[:, place.scores], task_encoding, place.task.objective
            )
            for place, task_encoding in self._iter_tasks()
            if task_encoding.kind != "regression" and place.task.objective.probabilities
        }

    def _output_methods(self) -> dict[str, Callable[[np.ndarray], Any]]:
        return super()._output_methods() | {"predict_proba": self._probabilities}

    def predict_dist(
        self,
        X: DataLike,
        *,
        iteration_range: tuple[int, int] | None = None,
        offset: DataLike | None = None,
    ) -> dict[str, Distribution]:
        """Predict distributions of the tasks whose objective learns one.

        Parameters
        ----------
        X, iteration_range, offset
            As in `predict`.

        Returns
        -------
        dict of str to Distribution of shape (n_rows,), or (n_rows, n)
            With n columns if the task has several. Other tasks are left out.
        """
        raw, distributions = self._raw(X, iteration_range, offset), {}
        for place, task_encoding in self._iter_tasks():
            if place.task.objective.has_distribution:
                predicted = place.task.objective.distribution(raw[:, place.scores])
                distributions[place.task.name] = (
                    predicted[:, 0] if task_encoding.one_dimensional else predicted
                )
        return distributions

    def predict_topk(self, *args: object, **kwargs: object) -> Any:
        """Not available, because scores of different tasks cannot be compared.

        Parameters
        ----------
        *args, **kwargs
            Ignored.

        Raises
        ------
        ValueError
            Always.
        """
        refuse("tasks", "topk")

    def task_estimator(self, name: str) -> PolyleafRegressor | PolyleafClassifier:
        """Return one task as a single-task estimator whose predictions are equal bit for bit.

        It can be used wherever a single-task estimator can: reports, `calibrate`,
        `predict_interval`, `predict_set`, `choose_threshold`, displays and exports.

        Parameters
        ----------
        name : str
            Name of the task; for several columns their names joined by "+".

        Returns
        -------
        PolyleafRegressor or PolyleafClassifier
            A fitted estimator with its own copy of the trees and the task's part of each leaf.
            Calibration and thresholds of the copy do not change this model, `save_model` writes a
            file of its own, and `fit` trains the task alone.

        Raises
        ------
        ValueError
            If there is no such task.
        """
        check_is_fitted(self)
        tasks = {
            place.task.name: (place, task_encoding) for place, task_encoding in self._iter_tasks()
        }
        check_task_names([name], tasks, "task_estimator")
        estimator = _make_task_estimator(self.model_, *tasks[name], self.evals_result_)
        estimator.set_params(n_jobs=self.n_jobs, verbose=self.verbose)
        if isinstance(estimator, PolyleafClassifier):
            estimator.set_params(class_weight=get_class_weight(self.class_weight, name))
        return estimator

    def d2_scores(
        self,
        X: DataLike,
        Y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
    ) -> dict[str, float]:
        """Compute the D2 score of each task: the fraction of the constant baseline's error removed.

        R2 for squared error; in general D2 of deviance, pinball loss, log loss or absolute error,
        and of the CRPS for distributions.

        Parameters
        ----------
        X, Y, sample_weight, offset
            Data as passed to `fit`.

        Returns
        -------
        dict of str to float
        """
        check_is_fitted(self)
        target = self._encoding.encode(RowData(Y, sample_weight), normalized=False)
        raw, objective = self._raw(X, None, offset), self.model_.objective
        check_same_rows(len(raw), target.n_rows)
        names = [place.task.name for place in objective.tasks]
        metrics = get_metrics(dict.fromkeys(names, "d2"), objective)
        scores = [metric(target.rows, raw) for metric in metrics]
        return dict(zip(names, scores, strict=True))

    def score(
        self,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        offset: DataLike | None = None,
    ) -> float:
        """Return the mean of `d2_scores`.

        Parameters
        ----------
        X, y, sample_weight, offset
            Data as passed to `fit`.

        Returns
        -------
        float
            1 is perfect, 0 is the constant baseline. Tasks with NaN are left out; NaN if all are.
        """
        scores = np.array(list(self.d2_scores(X, y, sample_weight, offset=offset).values()))
        return float(np.nanmean(scores)) if not np.isnan(scores).all() else float("nan")

    def _wrap_tasks(
        self,
        values: dict[str, np.ndarray],
        X: DataLike,
        get_names: Callable[[TaskSlice, TargetEncoding], list[str]],
    ) -> Any:
        """Return the dict, or one table of all its columns."""
        library = getattr(self, "_sklearn_output_config", {}).get("predict", "default")
        if library == "default":
            return values
        columns: dict[str, np.ndarray] = {}
        for place, task_encoding in self._iter_tasks():
            if place.task.name in values:
                matrix = values[place.task.name]
                matrix = matrix if matrix.ndim == 2 else matrix[:, None]
                columns |= dict(zip(get_names(place, task_encoding), matrix.T, strict=True))
        return make_table(library, columns, list(columns), X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


class TaskOffsetReader:
    """Reads the offsets of a multi-task model, by task."""

    def __init__(self, encoding: TaskEncodings, places: tuple[TaskSlice, ...]) -> None:
        self._readers = {
            place.task.name: (
                place,
                OffsetReader(task_encoding, place.task.n_scores, place.task.objective.offset_mask),
            )
            for place, task_encoding in zip(places, encoding.encodings, strict=True)
        }
        self._n_scores = places[-1].scores.stop

    def read(self, offset: DataLike, n_rows: int | None = None, name: str = "offset") -> np.ndarray:
        """Return offsets in the unit of raw scores, float64 (n_rows, n_scores), 0 for other tasks.

        Raises a ValueError if `offset` is not a dict of tasks, or an array is invalid.
        """
        if not isinstance(offset, Mapping) or not offset:
            raise ValueError(
                f"{name} must be a dict from tasks to initial raw scores, such as "
                f"{{{next(iter(self._readers))!r}: array}}; got {type(offset).__name__}."
            )
        check_task_names(offset, self._readers, name)
        offsets: np.ndarray | None = None
        for task, values in offset.items():
            place, reader = self._readers[task]
            task_offsets = reader.read(values, n_rows, f"{name} of task {task!r}")
            if offsets is None:
                offsets = np.zeros((len(task_offsets), self._n_scores))
            if len(task_offsets) != len(offsets):
                raise ValueError(
                    f"{name} of task {task!r} has {len(task_offsets)} rows, others have "
                    f"{len(offsets)}."
                )
            offsets[:, place.scores] = task_offsets
        assert offsets is not None
        return offsets


# --- one task as an estimator ---------------------------------------------------------------------


def _make_task_estimator(
    model: Model,
    place: TaskSlice,
    encoding: TargetEncoding,
    evals_result: Mapping[str, Mapping[str, list[float]]],
) -> PolyleafRegressor | PolyleafClassifier:
    cls = PolyleafRegressor if encoding.kind == "regression" else PolyleafClassifier
    metadata = {
        name: model.metadata[name]
        for name in (HAS_OFFSETS, INPUT_NAMES, INPUT_LABELS)
        if name in model.metadata
    }
    parameters = {
        name: value
        for name, value in model.metadata[PARAMETERS].items()
        if name not in _ALL_TASKS_PARAMETERS
    }
    if _is_per_output(parameters.get("monotone_constraints")):
        del parameters["monotone_constraints"]
    metadata |= {ESTIMATOR: cls.__name__, PARAMETERS: parameters, **encoding.to_dict()}
    part = select_outputs(model, place.scores, place.task.objective, metadata)
    estimator: PolyleafRegressor | PolyleafClassifier = make_estimator(cls, part)
    names = estimator._score_names(encoding, place.task.objective)
    if names is not None:  # names of classes without the name of the task
        estimator.model_.output_names = tuple(names)
    estimator.evals_result_, prefix = {}, f"{place.task.name}: "
    for data_name, metrics in evals_result.items():
        task_metrics = {
            name.removeprefix(prefix): values
            for name, values in metrics.items()
            if name.startswith(prefix)
        }
        if task_metrics:
            estimator.evals_result_[data_name] = task_metrics
    return estimator


def _is_per_output(constraints: Any) -> bool:
    """Whether monotone constraints name outputs, which the estimator of one task does not have."""
    each = constraints.values() if isinstance(constraints, Mapping) else constraints or ()
    return any(isinstance(of_feature, Mapping | list) for of_feature in each)


@contextmanager
def _name_task(name: str) -> Iterator[None]:
    """Begin messages of errors with the name of a task."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"Task {name!r}: {error}") from None


# --- targets and names of a task ------------------------------------------------------------------


def _get_target_kind(encoding: TargetEncoding) -> str:
    if encoding.kind == "regression":
        return "values"
    return "classes" if encoding.has_class_ids else "labels"


def _predict_task(task: Task, encoding: TargetEncoding, raw: np.ndarray) -> np.ndarray:
    if encoding.kind != "regression":
        return decide(raw, encoding)
    predicted = task.objective.transform(raw)
    flat = encoding.one_dimensional and predicted.shape[1] == 1
    return predicted[:, 0] if flat else predicted


def _get_prediction_columns(place: TaskSlice, encoding: TargetEncoding) -> list[str]:
    if encoding.kind in ("binary", "multiclass"):
        return [place.task.name]
    if place.task.objective.has_distribution:
        return _get_column_names(place.task.name, encoding)
    return _get_score_names(place.task, encoding)


def _get_probability_columns(place: TaskSlice, encoding: TargetEncoding) -> list[str]:
    if encoding.kind == "multilabel" or encoding.classes is None:
        return _get_column_names(place.task.name, encoding)
    return [f"{place.task.name}_{label}" for label in encoding.classes.tolist()]


def _get_column_names(name: str, encoding: TargetEncoding) -> list[str]:
    if encoding.n_outputs == 1:
        return [name]
    return list(encoding.output_names or [f"{name}_{k}" for k in range(encoding.n_outputs)])


def _get_score_names(task: Task, encoding: TargetEncoding) -> list[str]:
    if encoding.kind == "multiclass" and encoding.classes is not None:
        return [f"{task.name}_{label}" for label in encoding.classes.tolist()]
    columns, parts = _get_column_names(task.name, encoding), task.objective.score_names
    return [f"{column}_{part}" for column in columns for part in parts] if parts else columns


def _has_classes(y: DataLike, cls: type[Objective] | None) -> bool:
    """Whether the columns of a task are classes or labels rather than numbers."""
    kinds = ("values", "labels") if cls is None else cls.target_kinds
    if "values" not in kinds or set(kinds) == {"values"}:
        return "values" not in kinds
    values = np.asarray(to_numpy(y))
    is_categorical = values.dtype.kind == "b" or str(getattr(y, "dtype", "")) == "category"
    if is_categorical or values.dtype.kind not in "biufO":
        return True
    if values.dtype.kind == "O":
        present = values[~get_missing_mask(values)]
        if any(isinstance(value, str | bool | np.bool_) for value in present.tolist()):
            return True
        if find_non_number(replace_nulls_with_nan(values)) is not None:
            return False  # reading the numbers raises the error
        values = present.astype(np.float64)
    values = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if cls is not None and "classes" in kinds:  # a function takes any target: numbers stay numbers
        return False
    if cls is None:
        return bool(np.isin(values, (0, 1)).all())
    return bool((values == np.round(values)).all())
