"""MLflow models without pickles, with a flavour that `mlflow.pyfunc` serves."""

from __future__ import annotations

import copy
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators import (
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRegressor,
)
from polyleaf.estimators import load_model as load_estimator
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.integrations.loggers import MlflowLogger
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.runtime.optional_packages import optional_package
from polyleaf.runtime.types import DataLike
from polyleaf.search.base import SearchMixin
from polyleaf.training.fit import as_callbacks

if TYPE_CHECKING:
    from polyleaf.runtime.types import ModelLike

__all__ = ["autolog", "load_model", "log_model", "save_model"]


def __dir__() -> list[str]:
    return __all__


FLAVOR = "polyleaf"
_FILE = "model.polyleaf"
_LOGGED = (PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask, PolyleafRanker)
_METHODS = ("predict", "predict_proba", "predict_raw", "predict_interval")


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    *,
    method: str = "predict",
    mlflow_model: Any = None,
    pip_requirements: object = None,
    **options: object,
) -> None:
    """Save a fitted estimator as an MLflow model.

    Parameters
    ----------
    model : fitted PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask or PolyleafRanker
        Or a Dask estimator, of which the local one is saved.
    path : str or path
        A folder that does not exist yet, or is empty.
    method : {"predict", "predict_proba", "predict_raw", "predict_interval"}
        The method that `mlflow.pyfunc` calls. Several tasks are served as one table.
    mlflow_model : mlflow.models.Model, optional
        The model to which the flavour is added.
    pip_requirements : list of str or path, optional
        Default: this version of Polyleaf, whose dependencies follow.
    **options
        Options of `mlflow.pyfunc.save_model`: `signature`, `input_example`,
        `extra_pip_requirements`, `conda_env`, `code_paths`, `metadata`. With a signature, MLflow
        sorts and checks columns. Default: that of an `input_example`, a frame without categorical
        dtypes (MLflow refuses them) or an array, and of its predictions; False: none.

    Raises
    ------
    TypeError
        If the model is not a Polyleaf estimator.
    ValueError
        If it has no such method.
    ImportError
        If MLflow is not installed.

    Notes
    -----
    The folder contains the model file, which cannot run code when it is read, and MLflow's text
    files; no pickle. Callbacks and functions among the parameters are not saved, as in
    `save_model` of the estimator.
    """
    pyfunc = _pyfunc()
    model = _get_local(model)
    _check(model, method)
    signature = options.pop("signature", None)
    if signature is None:
        signature = _infer_signature(model, method, options.get("input_example"))
    if mlflow_model is None:
        from mlflow.models import Model

        mlflow_model = Model()
    mlflow_model.add_flavor(
        FLAVOR,
        polyleaf_version=polyleaf_version(),
        data=f"data/{_FILE}",
        estimator=type(model).__name__,
    )
    if pip_requirements is None and options.get("conda_env") is None:
        pip_requirements = [f"polyleaf=={polyleaf_version()}"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        model.save_model(file)
        pyfunc.save_model(
            os.fspath(path),
            loader_module=__name__,
            data_path=os.fspath(file),
            mlflow_model=mlflow_model,
            model_config={"method": method},
            pip_requirements=pip_requirements,
            signature=signature,
            **options,
        )


def _infer_signature(model: PolyleafEstimator, method: str, example: Any) -> Any:
    """Return the signature of rows and their predictions; None if the example is no table, or has
    a categorical dtype, which MLflow refuses in served rows."""
    rows, params = example if isinstance(example, tuple) else (example, None)
    if len(getattr(rows, "shape", ())) != 2:
        return None
    from mlflow.models import infer_signature

    if "category" in map(str, getattr(rows, "dtypes", ())):  # of pandas
        return None
    predicted = _PyfuncModel(model, method).predict(rows, params)
    return infer_signature(rows, predicted, params)


def log_model(model: ModelLike, name: str = "model", **options: Any) -> Any:
    """Log a fitted estimator to the active run, or to a new one.

    Parameters
    ----------
    model : fitted estimator
        See :func:`save_model`.
    name : str
        The name of the model.
    **options
        Options of :func:`save_model`, and of `mlflow.models.Model.log`: `registered_model_name`,
        `params`, `tags`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        With the `model_uri` for :func:`load_model` and `mlflow.pyfunc.load_model`.
    """
    _pyfunc()
    from mlflow.models import Model

    import polyleaf.integrations.mlflow

    model = _get_local(model)
    _check(model, options.get("method", "predict"))
    return Model.log(
        artifact_path=None, name=name, flavor=polyleaf.integrations.mlflow, model=model, **options
    )


def load_model(
    model_uri: str, dst_path: str | None = None
) -> PolyleafRegressor | PolyleafClassifier | PolyleafMultiTask | PolyleafRanker:
    """Load the estimator of an MLflow model that was saved or logged by this module.

    Parameters
    ----------
    model_uri : str
        A folder, or an MLflow URI: `models:/name/1`, `runs:/<id>/model`.
    dst_path : str, optional
        The folder for downloads.

    Raises
    ------
    ValueError
        If the model does not have this flavour, or its file is damaged.
    """
    _pyfunc()
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model

    folder = Path(download_artifacts(artifact_uri=os.fspath(model_uri), dst_path=dst_path))
    flavors = Model.load(os.fspath(folder)).flavors
    if FLAVOR not in flavors:
        raise ValueError(
            f"The MLflow model {model_uri} was not saved by polyleaf.integrations.mlflow; it has "
            f"the flavours {', '.join(sorted(flavors))}."
        )
    return load_estimator(folder / flavors[FLAVOR]["data"])


def autolog(*, log_models: bool = True, per_output: bool = False, disable: bool = False) -> None:
    """Log every fit to MLflow from now on: parameters, metrics of each round, and the model.

    A fit uses the active run, or a run of its own. Fits within a search, a cross-validation or
    other threads are not logged.

    Parameters
    ----------
    log_models : bool, default True
        Whether fitted models are logged, those that :func:`log_model` takes.
    per_output : bool, default False
        Whether metrics of each output are logged as well.
    disable : bool, default False
        Log no more fits.
    """
    _autolog.options = None if disable else {"log_models": log_models, "per_output": per_output}
    if not disable:
        _pyfunc()
        for cls, name in ((PolyleafEstimator, "_fit_data"), (SearchMixin, "_search")):
            method = getattr(cls, name)
            if not hasattr(method, "is_logged"):
                setattr(cls, name, _log_calls(method))


class _Autolog(threading.local):
    options: dict[str, bool] | None = None  # of the thread that called `autolog`
    is_fitting = False


_autolog = _Autolog()


def _log_calls(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of an estimator that logs its outermost calls."""
    takes_callbacks = method.__name__ == "_fit_data"

    @functools.wraps(method)
    def fit(self: Any, *args: Any) -> Any:
        options = _autolog.options
        if options is None or _autolog.is_fitting:
            return method(self, *args)
        import mlflow

        is_new = mlflow.active_run() is None
        if is_new:
            mlflow.start_run()
        _autolog.is_fitting, status = True, "FAILED"
        try:
            if takes_callbacks:
                data, eval_data, callbacks, *rest = args
                logger = MlflowLogger(options["per_output"])
                args = (data, eval_data, [*as_callbacks(callbacks), logger], *rest)
            fitted = method(self, *args)
            if not takes_callbacks:
                mlflow.log_params(fitted.best_params_)
                mlflow.log_metric("best_score", fitted.best_score_)
            if options["log_models"] and isinstance(fitted, _LOGGED):
                log_model(fitted)
            status = "FINISHED"
            return fitted
        finally:
            _autolog.is_fitting = False
            if is_new:
                mlflow.end_run(status)

    fit.is_logged = True  # type: ignore[attr-defined]
    return fit


class _PyfuncModel:
    """The model that `mlflow.pyfunc` calls."""

    def __init__(self, estimator: PolyleafEstimator, method: str) -> None:
        self._estimator = served = estimator
        if isinstance(served, PolyleafMultiTask):
            served = copy.copy(served).set_output(predict="pandas")
        self._method = getattr(served, method)

    def get_raw_model(self) -> PolyleafEstimator:
        """Return the estimator."""
        return self._estimator

    def predict(self, data: DataLike | None, params: Mapping[str, object] | None = None) -> Any:
        """Return predictions of a table; `params` are arguments of the method."""
        return self._method(data, **(params or {}))


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> _PyfuncModel:
    """Load a model; MLflow calls this function of the loader module."""
    return _PyfuncModel(load_estimator(path), (model_config or {}).get("method", "predict"))


def _get_local(model: Any) -> Any:
    """Return the local estimator of a fitted Dask estimator; others as they are."""
    return model.to_local() if hasattr(model, "to_local") else model


def _check(model: object, method: str) -> None:
    if not isinstance(model, _LOGGED):
        raise TypeError(
            "model must be a fitted PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask or "
            f"PolyleafRanker, or one of Dask; got {type(model).__name__}."
        )
    check_is_fitted(model)
    methods = [name for name in _METHODS if hasattr(model, name)]
    if method not in methods:
        raise ValueError(
            f"method={method!r} must be a method of {type(model).__name__}: "
            f"{', '.join(map(repr, methods))}."
        )


def _pyfunc() -> ModuleType:
    """Import mlflow.pyfunc; raise ImportError with instructions if MLflow is not installed."""
    with optional_package("polyleaf.integrations.mlflow requires MLflow", "mlflow"):
        import mlflow.pyfunc
    return mlflow.pyfunc
