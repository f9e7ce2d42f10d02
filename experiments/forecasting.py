"""Forecasting frameworks with one Polyleaf model for all steps, beside a LightGBM model per step.

Every framework forecasts 24 hours and scores them with its own metric: mlforecast 24 series of M4
hourly, the others the load of ETTh1. Both libraries have 100 rounds of 31 leaves, at least 20 rows
each, and one thread; seconds are processor time of training and forecasting.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMRegressor

from polyleaf import PolyleafRegressor

from . import report

__all__ = ["CASES", "make_rows", "measure"]

STEPS, LAGS, N_TEST_DAYS = 24, 48, 28
QUANTILES = [0.1, 0.5, 0.9]
SETTINGS = {"n_estimators": 100, "learning_rate": 0.1, "min_child_samples": 20, "n_jobs": 1}
MODELS: dict[str, dict[str, Any] | None] = {
    "LightGBM": None,
    "one tree": {},
    "six groups": {"output_groups": 6},
    "a tree per step": {"multi_strategy": "one_output_per_tree"},
}
"""Parameters of Polyleaf by the name of a model; None: LightGBM."""

Scores = dict[str, float]


def _make(parameters: dict[str, Any] | None) -> Any:
    if parameters is None:
        return LGBMRegressor(num_leaves=31, verbose=-1, **SETTINGS)
    return PolyleafRegressor(max_leaves=31, **SETTINGS | parameters)


def _load_etth1(folder: Path, quick: bool) -> np.ndarray:
    """Return 8,640 hours of the load HUFL, and 28 days to forecast."""
    values = np.load(folder / "etth1.npz")["values"][:, 0].astype(float)
    return values[7_200 if quick else 0 : 8_640 + 24 * N_TEST_DAYS]


def mlforecast(folder: Path, parameters: dict[str, Any] | None, quick: bool) -> Scores:
    import pandas as pd
    from mlforecast import MLForecast
    from mlforecast.target_transforms import Differences, LocalStandardScaler
    from utilsforecast.losses import mase, smape

    data = np.load(folder / "m4_hourly.npz")
    series = np.split(data["values"].astype(float), data["indptr"][1:-1])[:: 100 if quick else 17]
    parts = [
        pd.DataFrame({"unique_id": f"h{i:02}", "ds": np.arange(y.size), "y": y})
        for i, y in enumerate(series)
    ]
    train = pd.concat([part[:-STEPS] for part in parts], ignore_index=True)
    test = pd.concat([part[-STEPS:] for part in parts], ignore_index=True)
    if parameters is not None:
        from polyleaf.integrations.mlforecast import MLForecast
    changes = {"target_transforms": [Differences([24]), LocalStandardScaler()]}
    lags = [*range(1, LAGS + 1), 168]
    forecast = MLForecast({"model": _make(parameters)}, freq=1, lags=lags, **changes)
    found = forecast.fit(train, max_horizon=STEPS).predict(STEPS).merge(test)
    scaled = mase(found, ["model"], seasonality=24, train_df=train)
    scores = {"MASE": scaled, "sMAPE": smape(found, ["model"])}
    return {name: float(score["model"].mean()) for name, score in scores.items()}


def darts(folder: Path, parameters: dict[str, Any] | None, quick: bool) -> Scores:
    from darts import TimeSeries
    from darts.metrics import mae, mql

    series = TimeSeries.from_values(_load_etth1(folder, quick))
    options = {"lags": LAGS, "output_chunk_length": STEPS, "quantiles": QUANTILES, **SETTINGS}
    if parameters is None:
        from darts.models import LightGBMModel

        model = LightGBMModel(likelihood="quantile", num_leaves=31, verbose=-1, **options)
    else:
        from polyleaf.integrations.darts import PolyleafForecastingModel

        options |= {"likelihood": "multiquantile", "calibrate_quantiles": False, "max_leaves": 31}
        model = PolyleafForecastingModel(**options | parameters)
    model.fit(series[: -24 * N_TEST_DAYS])
    days = {"start": -24 * N_TEST_DAYS, "start_format": "position", "stride": STEPS}
    days |= {"forecast_horizon": STEPS, "retrain": False, "last_points_only": False}
    forecasts = model.historical_forecasts(series, **days, predict_likelihood_parameters=True)
    medians = [mae(series, forecast, q=0.5) for forecast in forecasts]
    losses = [mql(series, forecast, q=QUANTILES) for forecast in forecasts]
    return {"MAE": float(np.mean(medians)), "quantile loss": float(np.mean(losses))}


def skforecast(folder: Path, parameters: dict[str, Any] | None, quick: bool) -> Scores:
    import pandas as pd
    from skforecast.direct import ForecasterDirect
    from skforecast.model_selection import TimeSeriesFold, backtesting_forecaster

    values = _load_etth1(folder, quick)
    y = pd.Series(values, pd.date_range("2016-07-01", periods=values.size, freq="h"), name="y")
    if parameters is not None:
        from polyleaf.integrations.skforecast import ForecasterDirect
    fold = TimeSeriesFold(steps=STEPS, initial_train_size=len(y) - 24 * N_TEST_DAYS, refit=False)
    forecaster = ForecasterDirect(_make(parameters), steps=STEPS, lags=LAGS)
    options = {"metric": ["mean_absolute_error"], "n_jobs": 1, "show_progress": False}
    scores, _ = backtesting_forecaster(forecaster, y, fold, **options)
    return {"MAE": float(scores["mean_absolute_error"].iloc[0])}


def sktime(folder: Path, parameters: dict[str, Any] | None, quick: bool) -> Scores:
    import pandas as pd
    from sktime.forecasting.compose import make_reduction
    from sktime.forecasting.model_evaluation import evaluate
    from sktime.performance_metrics.forecasting import MeanAbsoluteError
    from sktime.split import ExpandingWindowSplitter

    y, steps = pd.Series(_load_etth1(folder, quick)), np.arange(1, STEPS + 1)
    strategy = "direct" if parameters is None else "multioutput"
    forecaster = make_reduction(_make(parameters), strategy=strategy, window_length=LAGS)
    days = ExpandingWindowSplitter(steps, len(y) - 24 * N_TEST_DAYS, STEPS)
    found = evaluate(forecaster, days, y, strategy="no-update_params", scoring=MeanAbsoluteError())
    return {"MAE": float(found["test_MeanAbsoluteError"].mean())}


CASES: dict[str, Callable[[Path, dict[str, Any] | None, bool], Scores]] = {
    "mlforecast": mlforecast,
    "darts": darts,
    "skforecast": skforecast,
    "sktime": sktime,
}


def measure(folder: Path, quick: bool, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the scores and seconds of each framework and model.

    Frameworks that are not installed are left out.

    Returns
    -------
    list of dict
        `framework`, `model`, `scores` by metric, and `seconds`.
    """
    found = []
    for framework, forecast in CASES.items():
        if find_spec(framework) is None:
            log(f"{framework} is not installed")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forecast(folder, {}, True)  # imports what it needs
            for model, parameters in MODELS.items():
                begin = time.process_time()
                scores = forecast(folder, parameters, quick)
                about = {"seconds": time.process_time() - begin, "scores": scores}
                found.append({"framework": framework, "model": model, **about})
                log(f"{framework}, {model}: {about}")
    return found


def make_rows(results: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a table."""
    rows = [
        [
            result["framework"],
            result["model"],
            ", ".join(f"{name} {score:.3f}" for name, score in result["scores"].items()),
            f"{result['seconds']:.1f}",
        ]
        for result in results
    ]
    return ["framework", "model", "score", "processor seconds"], rows


def main() -> None:
    """Measure, and print the table. A program of its own, since it needs an older pandas."""
    parser = argparse.ArgumentParser(prog="python -m experiments.forecasting")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of sets")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all works")
    options = parser.parse_args()
    report.show("Forecasts of 24 hours", *make_rows(measure(options.data, options.quick, _log)))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
