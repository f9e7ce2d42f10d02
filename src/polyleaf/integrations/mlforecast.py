"""Nixtla's mlforecast with one Polyleaf model for all horizons.

It requires mlforecast (extra ``polyleaf[mlforecast]``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import narwhals as nw
import numpy as np
from sklearn.base import clone

from polyleaf.estimators import PolyleafRegressor
from polyleaf.integrations._output_view import (
    OutputView,
    SharedModel,
    has_quantiles,
    predict_quantile,
    use_linear_model,
)
from polyleaf.runtime.optional_packages import optional_package
from polyleaf.runtime.types import StrPath

with optional_package("polyleaf.integrations.mlforecast requires mlforecast", "mlforecast"):
    import mlforecast

__all__ = ["MLForecast"]


def __dir__() -> list[str]:
    return __all__


class MLForecast(mlforecast.MLForecast):
    """`mlforecast.MLForecast` that trains one Polyleaf model for all horizons.

    With `max_horizon`, a `PolyleafRegressor` or `PolyleafRegressorCV` among the models is fitted
    once, on one column of targets per horizon; other models are fitted once per horizon, as always.
    Unknown targets of the last rows are missing targets, and splits of the fit are in the order of
    time. `init=None` means "auto": a linear model follows levels that trees cannot reach. Forecasts
    use the features of the first step, as training does. Columns that change with time get further
    columns, with their values of the later steps ("price_h2" is the price of the second); steps
    after the last row of `X_df` repeat its values. Several levels of `objective="quantile"` are
    forecast in columns of their own, such as "PolyleafRegressor_q0.9". Models of several levels or
    of a distribution (`objective="normal"`) have intervals without `prediction_intervals`:
    `predict(24, level=[80])`. Lags that a short series does not have repeat its first value.

    Without `max_horizon` each step is forecast from the one before, by a model of one step.

    Parameters
    ----------
    models, freq, **options
        See `mlforecast.MLForecast`.

    Examples
    --------
    >>> forecast = MLForecast(PolyleafRegressor(), freq="h", lags=range(1, 25))  # doctest: +SKIP
    >>> forecast.fit(df, max_horizon=24).predict(24)  # doctest: +SKIP
    """

    def __init__(self, models: object, freq: object, **options: object) -> None:
        super().__init__(models, freq, **options)
        self.models: dict[str, Any]
        self.models_: dict[str, Any]
        self._frame: Any = None
        self._later_columns: list[str] = []  # that the fit under way has added to the frame

    def fit(
        self,
        df: Any,
        id_col: str = "unique_id",
        time_col: str = "ds",
        target_col: str = "y",
        static_features: list[str] | None = None,
        **options: Any,
    ) -> Self:
        """Train the models.

        Parameters
        ----------
        df, id_col, time_col, target_col, static_features, **options
            See `mlforecast.MLForecast.fit`. With columns that change with time, `fitted` and
            `horizon_features` are not available.
        """
        is_ours = [isinstance(model, PolyleafRegressor) for model in self.models.values()]
        _check_levels(self.models.values(), options)
        outer_columns = self._later_columns
        if outer_columns:  # prediction intervals cross-validate the frame that has them already
            df = nw.from_native(df, eager_only=True).drop(outer_columns).to_native()
        if options.get("max_horizon") is not None and any(is_ours):
            known = {id_col, time_col, target_col, options.get("weight_col")}
            known |= set(df.columns if static_features is None else static_features)
            changing = [name for name in df.columns if name not in known]
            if changing:
                _check_changing(changing[0], options, all(is_ours))
            horizon = options["max_horizon"]
            df = _add_later_values(df, changing, horizon, id_col, time_col)
            steps = range(2, horizon + 1)
            self._later_columns = [f"{name}_h{step}" for name in changing for step in steps]
        try:
            super().fit(df, id_col, time_col, target_col, static_features, **options)
        finally:
            self._later_columns, self._frame = outer_columns, None
        return self

    def preprocess(self, df: object, *args: object, **options: Any) -> Any:
        """Add features to `df`; `args` and `options` are as in mlforecast."""
        if not options.get("return_X_y"):
            self._frame = super().preprocess(df, *args, **options)
            return self._frame
        # The frame has the times of the rows, which X and y do not have.
        as_numpy = bool(options.get("as_numpy"))
        own = options | {"return_X_y": False, "as_numpy": False}
        self._frame = super().preprocess(df, *args, **own)
        self.ts.as_numpy = as_numpy
        X, y = self._extract_X_y(self._frame, self.ts.target_col, self.ts.weight_col)
        return (X.to_numpy() if as_numpy else X), y

    def fit_models(
        self,
        X: object = None,
        y: object = None,
        models_fit_kwargs: dict[str, dict[str, object]] | None = None,
        generator_factory: Callable[[], object] | None = None,
    ) -> Self:
        """Train the models on `X` and `y`, or on horizons of `generator_factory`, each with its
        `models_fit_kwargs`."""
        models, options = self.models, models_fit_kwargs or {}
        ours = [name for name, model in models.items() if isinstance(model, PolyleafRegressor)]
        if not ours:
            return super().fit_models(X, y, models_fit_kwargs, generator_factory)
        if generator_factory is None:
            return self._fit_recursive(X, y, ours, options)
        if self.ts._horizons != list(range(self.ts.max_horizon)):
            raise ValueError(
                "horizons selects some models, but a Polyleaf model is for all: use max_horizon."
            )
        others = {name: values for name, values in options.items() if name not in ours}
        try:
            self.models = {name: model for name, model in models.items() if name not in ours}
            super().fit_models(models_fit_kwargs=others, generator_factory=generator_factory)
        finally:
            self.models = models
        trained, self.models_ = self.models_, {}
        for name in models:
            if name in ours:
                self.models_ |= self._fit_one(name, options.get(name, {}))
            else:
                self.models_[name] = trained[name]
        return self

    def _fit_recursive(
        self, X: Any, y: object, ours: Sequence[str], options: dict[str, dict[str, object]]
    ) -> Self:
        """Train models of the next step."""
        models = self.models
        options = options | {name: dict(options.get(name) or {}) for name in ours}
        is_whole = self._frame is not None and len(self._frame) == len(X)
        try:
            self.models = dict(models)
            for name in ours:
                self.models[name] = model = clone(models[name])
                use_linear_model(model)
                if is_whole:
                    options[name].setdefault("time", self._frame[self.ts.time_col].to_numpy())
            X = self._fill_lags(X) if len(ours) == len(models) else X
            return super().fit_models(X, y, options)
        finally:
            self.models = models

    def _fit_one(self, name: str, options: dict[str, Any]) -> dict[str, dict[int, OutputView]]:
        """Fit a model to all horizons; return views of its outputs by name and horizon."""
        ts, frame = self.ts, self._frame
        X = frame[ts.features_order_]
        Y = frame[[f"{ts.target_col}{h}" for h in range(ts.max_horizon)]].to_numpy()
        is_unknown = np.isnan(Y.astype(float)).all(axis=0)
        if is_unknown.any():
            step = 1 + int(is_unknown.argmax())
            way_out = f"Set max_horizon to at most {step - 1}, or take" if step > 1 else "Take"
            raise ValueError(
                f"max_horizon={ts.max_horizon}: no series has a value {step} steps after values of "
                f"all lags. {way_out} fewer lags."
            )
        options = {"time": frame[ts.time_col].to_numpy(), **options}
        if ts.weight_col is not None:
            options["sample_weight"] = frame[ts.weight_col].to_numpy()
        model = clone(self.models[name]).set_params(missing_targets="ignore")
        use_linear_model(model)
        model.fit(self._fill_lags(X.to_numpy() if ts.as_numpy else X), Y, **options)
        shared, names = SharedModel(model), [name]
        if model.objective == "quantile" and np.size(model.quantile_alpha) > 1:
            names = [f"{name}_q{level:g}" for level in model.quantile_alpha]
        return {
            column: {h: OutputView(shared, len(names) * h + i) for h in range(ts.max_horizon)}
            for i, column in enumerate(names)
        }

    def predict(self, h: int, before_predict_callback: Any = None, **options: Any) -> Any:
        """Forecast `h` steps; `before_predict_callback` and `options` are as in mlforecast."""
        models = vars(self).get("models_", {})
        views = {
            name: model[0]
            for name, model in models.items()
            if isinstance(model, dict) and isinstance(model[0], OutputView)
        }
        bounds: dict[str, dict[int, OutputView]] = {}
        if options.get("level") is not None and vars(self).get("_cs_df") is None:
            bounds = self._make_bounds(views, options["level"])
            if len(bounds) == 2 * len(self.models) * len(options["level"]):
                options["level"] = None
        shared = [view.shared for view in views.values()]
        shared += [bound[0].shared for bound in bounds.values()]
        is_recursive = not views and all(isinstance(m, PolyleafRegressor) for m in models.values())

        def prepare_step(X: Any) -> object:
            X = X if before_predict_callback is None else before_predict_callback(X)
            if is_recursive:
                return self._fill_lags(X)
            for model in shared:
                model.hold(self._fill_lags(X))  # no effect after the first step
            return X

        features, n_steps = self.ts.features_order_, self.ts.max_horizon
        names = [name for name in features if f"{name}_h{n_steps}" in features]
        for table in {"new_df", "X_df"} & {name for name in options if options[name] is not None}:
            options[table] = _add_later_values(
                options[table],
                names,
                n_steps,
                self.ts.id_col,
                self.ts.time_col,
                repeats_last=table == "X_df",
            )
        try:
            with warnings.catch_warnings():
                # Lags are filled, and the last rows of new_df know no later steps.
                known = ".*" if names else r"(lag\d+(, )?)+\.$"
                warnings.filterwarnings("ignore", f"Found null values in {known}")
                if models:
                    self.models_ = models | bounds
                return super().predict(h, prepare_step, **options)
        finally:
            if models:
                self.models_ = models
            for model in shared:
                model.release()

    def _make_bounds(
        self, views: dict[str, OutputView], levels: Sequence[float]
    ) -> dict[str, dict[int, OutputView]]:
        """Return views of the bounds of intervals by the names of mlforecast, of models that have
        quantiles; `levels` are coverages in percent."""
        bounds = {}
        for name, view in views.items():
            if not has_quantiles(view.model):
                continue
            for side, sign in (("lo", -1), ("hi", 1)):
                for level in sorted(levels, reverse=sign < 0):
                    quantile = partial(predict_quantile, level=0.5 + sign * level / 200)
                    shared = SharedModel(view.model, quantile)
                    steps = range(self.ts.max_horizon)
                    column = f"{_get_model_name(name, view)}-{side}-{level}"
                    bounds[column] = {step: OutputView(shared, step) for step in steps}
        return bounds

    def _fill_lags(self, X: Any) -> Any:
        """Return features in which missing lags repeat the first value of their series."""
        features = self.ts.features_order_
        names = [f"lag{lag}" for lag in sorted(self.ts.lags or ()) if f"lag{lag}" in features]
        if not names:
            return X
        is_array = isinstance(X, np.ndarray)
        # A column of weights stands before the features.
        places = [X.shape[1] - len(features) + features.index(name) for name in names]
        frame = None if is_array else nw.from_native(X, eager_only=True)
        values = X[:, places] if frame is None else frame.select(names).to_numpy().astype(float)
        if not np.isnan(values).any():
            return X
        for i in range(1, len(names)):
            values[:, i] = np.where(np.isnan(values[:, i]), values[:, i - 1], values[:, i])
        if frame is None:
            X = X.copy()
            X[:, places] = values
            return X
        columns = zip(names, values.T, strict=True)
        native = frame.implementation
        return frame.with_columns(
            nw.new_series(name, column, backend=native) for name, column in columns
        ).to_native()

    @staticmethod
    def load(path: StrPath) -> MLForecast:
        """Load what `save` wrote to `path`."""
        forecast = mlforecast.MLForecast.load(path)
        forecast.__class__ = MLForecast
        return forecast


def _check_changing(name: str, options: dict[str, Any], are_all_ours: bool) -> None:
    """Raise if a column that changes with time does not go with the other settings."""
    if not are_all_ours:
        raise ValueError(
            f"The column {name!r} changes with time. A Polyleaf model gets its values of all "
            "steps, another model the values of its step: use one MLForecast for each."
        )
    for option in "fitted", "horizon_features", "horizon_feature_templates":
        if options.get(option):
            raise ValueError(
                f"{option} is not available with columns that change with time ({name!r}): a "
                "Polyleaf model is for all horizons, and gets their values of all steps."
            )


def _get_model_name(column: str, view: OutputView) -> str:
    """Return the name of the model of a column, which ends with its level if it has several."""
    return (
        column.rpartition("_q")[0]
        if len(view.model.model_.objective.quantile_levels) > 1
        else column
    )


def _check_levels(models: Iterable[object], options: dict[str, Any]) -> None:
    """Raise where mlforecast needs one forecast per step, but a model has several levels."""
    for model in models:
        levels: Any = getattr(model, "quantile_alpha", None)
        is_quantile = isinstance(model, PolyleafRegressor) and model.objective == "quantile"
        if not is_quantile or np.size(levels) < 2:
            continue
        if options.get("max_horizon") is None:
            raise ValueError(
                f"quantile_alpha={levels!r}: several levels need max_horizon, which trains one "
                "model of all steps; without it each step is predicted from one forecast of the "
                "step before. Pass max_horizon to fit, or one level."
            )
        if options.get("prediction_intervals") is not None:
            raise ValueError(
                f"quantile_alpha={levels!r} has intervals of its own: leave prediction_intervals "
                "out, and pass level to predict."
            )


def _add_later_values(
    df: Any, columns: list[str], n_steps: int, *keys: str, repeats_last: bool = False
) -> object:
    """Add the values of each column in the next `n_steps - 1` steps.

    Values after the last row of a series are null, or repeat the last row.
    """
    if not columns:
        return df
    frame = nw.from_native(df, eager_only=True).sort(*keys)
    for step in range(1, n_steps):
        later = [nw.col(name).shift(-step).over(keys[0]) for name in columns]
        if repeats_last:
            is_known = ~nw.col(keys[1]).shift(-step).over(keys[0]).is_null()
            before = [name if step == 1 else f"{name}_h{step}" for name in columns]
            later = [
                nw.when(is_known).then(value).otherwise(nw.col(name))
                for value, name in zip(later, before, strict=True)
            ]
        frame = frame.with_columns(
            value.alias(f"{name}_h{step + 1}") for value, name in zip(later, columns, strict=True)
        )
    return frame.to_native()
