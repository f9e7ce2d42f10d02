"""mlforecast with one model for all horizons: equal to a model of the same windows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mlforecast")

import mlforecast
import mlforecast.utils
import pandas as pd
import polars as pl
from sklearn.tree import DecisionTreeRegressor

from polyleaf import PolyleafRegressor
from polyleaf.integrations.mlforecast import MLForecast

pytestmark = pytest.mark.full

SMALL = {"n_estimators": 20, "max_leaves": 6, "n_jobs": 1}
N, LAGS, HORIZON = 90, 7, 4
DATES = pd.date_range("2024-01-01", periods=N, freq="D")


def make_series(n_series=3):
    """Return series in long format; y depends on the price of its day."""
    rng = np.random.default_rng(0)
    parts = []
    for i in range(n_series):
        price = rng.integers(1, 5, N).astype(float)
        weekly = 5.0 * np.sin(2 * np.pi * np.arange(N) / 7)
        y = 10.0 * i + weekly - 2.0 * price + 0.3 * rng.normal(size=N)
        parts.append(pd.DataFrame({"unique_id": f"s{i}", "ds": DATES, "y": y, "price": price}))
    return pd.concat(parts, ignore_index=True)


def make_windows(frame, price=False):
    """Return lags, next values with NaN for the unknown, their first days, and the last lags."""
    X, Y, first, last = [], [], [], []
    for _, part in frame.groupby("unique_id"):
        y = np.append(part["y"], np.full(HORIZON, np.nan))
        known = np.append(part["price"], np.full(HORIZON, np.nan))
        for t in range(LAGS, N + 1):
            later = list(known[t : t + HORIZON]) if price else []
            row = later + list(y[t - LAGS : t][::-1])
            if t < N:
                X.append(row)
                Y.append(y[t : t + HORIZON])
                first.append(t)
            else:
                last.append(row)
    return np.array(X), np.array(Y), np.array(first), np.array(last)


def fit_by_hand(X, Y, time, **settings):
    model = PolyleafRegressor(**SMALL | settings, missing_targets="ignore", init="auto")
    return model.fit(X, Y, time=time)


def make(models, library="pandas", **options):
    freq = "D" if library == "pandas" else "1d"
    return MLForecast(models, freq=freq, lags=range(1, LAGS + 1), **options)


@pytest.mark.parametrize("as_numpy", [False, True])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_one_model_of_all_windows(library, as_numpy):
    """Check that the last rows, whose later targets are unknown, are used."""
    frame = make_series().drop(columns="price")
    X, Y, first, last = make_windows(frame.assign(price=0.0))
    assert np.isnan(Y).sum() == 3 * 6
    given = frame if library == "pandas" else pl.from_pandas(frame)
    found = make(PolyleafRegressor(**SMALL), library)
    found.fit(given, max_horizon=HORIZON, as_numpy=as_numpy)
    forecast = found.predict(HORIZON)["PolyleafRegressor"].to_numpy()
    expected = fit_by_hand(X, Y, first).predict(last)
    np.testing.assert_array_equal(forecast.reshape(3, HORIZON), expected)
    views = found.models_["PolyleafRegressor"].values()
    assert next(iter(views)).feature_importances_.shape == (LAGS,)
    assert len({id(view.model) for view in views}) == 1 and len(views) == HORIZON
    part = found.predict(2, ids=["s1"])["PolyleafRegressor"].to_numpy()
    np.testing.assert_array_equal(part, expected[1, :2])


def test_features_of_dates_are_those_of_the_first_step():
    frame = make_series().drop(columns="price")
    X, Y, first, last = make_windows(frame.assign(price=0.0))
    day = (DATES.dayofweek.to_numpy()[first], np.full(3, (DATES[-1].dayofweek + 1) % 7))
    model = fit_by_hand(np.column_stack([X, day[0]]), Y, first)
    found = make(PolyleafRegressor(**SMALL), date_features=["dayofweek"])
    forecast = found.fit(frame, max_horizon=HORIZON).predict(HORIZON)["PolyleafRegressor"]
    expected = model.predict(np.column_stack([last, day[1]]))
    np.testing.assert_array_equal(forecast.to_numpy().reshape(3, HORIZON), expected)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_all_steps(library):
    frame = make_series()
    X, Y, first, last = make_windows(frame, price=True)
    prices = np.random.default_rng(1).integers(1, 5, (3, HORIZON)).astype(float)
    last[:, :HORIZON] = prices
    future = pd.DataFrame(
        {
            "unique_id": np.repeat(["s0", "s1", "s2"], HORIZON),
            "ds": np.tile(pd.date_range(DATES[-1], periods=HORIZON + 1, freq="D")[1:], 3),
            "price": prices.ravel(),
        }
    )
    found = make({"m": PolyleafRegressor(**SMALL)}, library)
    if library == "polars":
        frame, future = pl.from_pandas(frame), pl.from_pandas(future)
    found.fit(frame, max_horizon=HORIZON, static_features=[])
    assert found.ts.features_order_[:4] == ["price", "price_h2", "price_h3", "price_h4"]
    forecast = found.predict(HORIZON, X_df=future)["m"].to_numpy().reshape(3, HORIZON)
    np.testing.assert_array_equal(forecast, fit_by_hand(X, Y, first).predict(last))


def test_quantiles_have_columns():
    frame = make_series().drop(columns="price")
    X, Y, first, last = make_windows(frame.assign(price=0.0))
    levels = {"objective": "quantile", "quantile_alpha": [0.1, 0.5, 0.9]}
    found = make({"m": PolyleafRegressor(**SMALL, **levels)})
    forecast = found.fit(frame, max_horizon=HORIZON, fitted=True).predict(HORIZON)
    names = ["m_q0.1", "m_q0.5", "m_q0.9"]
    assert list(forecast.columns) == ["unique_id", "ds", *names]
    expected = fit_by_hand(X, Y, first, **levels).predict(last)
    np.testing.assert_array_equal(forecast[names].to_numpy().reshape(3, -1), expected)
    assert names[0] in found.forecast_fitted_values()


def test_other_models_are_trained_as_before():
    frame = make_series().drop(columns="price")
    others = {"tree": DecisionTreeRegressor(random_state=0, max_depth=3)}
    plain = mlforecast.MLForecast(others, freq="D", lags=range(1, LAGS + 1))
    plain = plain.fit(frame, max_horizon=HORIZON).predict(HORIZON)
    found = make({"m": PolyleafRegressor(**SMALL)} | others)
    forecast = found.fit(frame, max_horizon=HORIZON).predict(HORIZON)
    assert list(forecast.columns[2:]) == ["m", "tree"]
    np.testing.assert_array_equal(forecast["tree"], plain["tree"])


@pytest.mark.parametrize("refit", [True, False])
def test_cross_validation(refit):
    found = make({"m": PolyleafRegressor(**SMALL | {"n_estimators": 60})})
    options = {"n_windows": 2, "h": HORIZON, "max_horizon": HORIZON, "refit": refit}
    scored = found.cross_validation(make_series(), static_features=[], **options)
    assert len(scored) == 3 * 2 * HORIZON
    assert abs(scored["y"] - scored["m"]).mean() < abs(scored["y"] - scored["y"].mean()).mean() / 2


def test_weights_and_prediction_intervals():
    frame = make_series().drop(columns="price")
    frame["w"] = np.where(frame["unique_id"] == "s0", 0.0, 1.0)
    found = make({"m": PolyleafRegressor(**SMALL)})
    weighted = found.fit(frame, max_horizon=HORIZON, weight_col="w", static_features=[])
    without = make({"m": PolyleafRegressor(**SMALL)})
    without.fit(frame[frame["w"] > 0].drop(columns="w"), max_horizon=HORIZON)
    forecasts = weighted.predict(HORIZON)["m"][HORIZON:], without.predict(HORIZON)["m"]
    np.testing.assert_allclose(*forecasts, atol=0.5)
    intervals = mlforecast.utils.PredictionIntervals(n_windows=2, h=HORIZON)
    found.fit(frame.drop(columns="w"), max_horizon=HORIZON, prediction_intervals=intervals)
    assert "m-lo-80" in found.predict(HORIZON, level=[80])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_steps_after_the_last_known_row_repeat_its_values(library):
    frame, dates = make_series(), pd.date_range(DATES[-1], periods=HORIZON + 1, freq="D")[1:]
    prices = np.array([[3.0, 4.0], [1.0, 2.0], [2.0, 1.0]])
    whole = np.column_stack([prices, prices[:, 1:], prices[:, 1:]])
    future = pd.DataFrame(
        {
            "unique_id": np.repeat(["s0", "s1", "s2"], HORIZON),
            "ds": np.tile(dates, 3),
            "price": whole.ravel(),
        }
    )
    short = future.groupby("unique_id").head(2)
    if library == "polars":
        frame, future, short = map(pl.from_pandas, (frame, future, short))
    found = make({"m": PolyleafRegressor(**SMALL)}, library)
    found.fit(frame, max_horizon=HORIZON, static_features=[])
    expected = found.predict(HORIZON, X_df=future)["m"].to_numpy().reshape(3, HORIZON)
    forecast = found.predict(2, X_df=short)["m"].to_numpy().reshape(3, 2)
    np.testing.assert_array_equal(forecast, expected[:, :2])


def test_prediction_intervals_are_those_of_the_same_model():
    """The models of the intervals have the same columns as the final one."""
    found, widths = make({"m": PolyleafRegressor(**SMALL)}), []
    fit_models = found.fit_models

    def record(*args, **options):
        widths.append(len(found.ts.features_order_))
        return fit_models(*args, **options)

    found.fit_models = record
    intervals = mlforecast.utils.PredictionIntervals(n_windows=2, h=HORIZON)
    options = {"max_horizon": HORIZON, "static_features": []}
    found.fit(make_series(), prediction_intervals=intervals, **options)
    assert len(widths) >= 2 and set(widths) == {LAGS + HORIZON}


def test_several_levels_need_one_model_of_all_steps():
    frame, levels = make_series().drop(columns="price"), {"quantile_alpha": [0.1, 0.9]}
    found = make(PolyleafRegressor(**SMALL, **levels, objective="quantile"))
    with pytest.raises(ValueError, match=r"quantile_alpha=\[0.1, 0.9\]: .* need max_horizon"):
        found.fit(frame)
    intervals = mlforecast.utils.PredictionIntervals(n_windows=2, h=HORIZON)
    with pytest.raises(ValueError, match=r"quantile_alpha=.*intervals of its own: leave"):
        found.fit(frame, max_horizon=HORIZON, prediction_intervals=intervals)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_levels_of_distributions_and_quantiles(library):
    frame = make_series().drop(columns="price")
    X, Y, first, last = make_windows(frame.assign(price=0.0))
    alpha = {"objective": "quantile", "quantile_alpha": [0.1, 0.5, 0.9]}
    models = {
        "q": PolyleafRegressor(**SMALL, **alpha),
        "n": PolyleafRegressor(**SMALL, objective="normal"),
    }
    found = make(models, library)
    frame = frame if library == "pandas" else pl.from_pandas(frame)
    forecast = found.fit(frame, max_horizon=HORIZON).predict(HORIZON, level=[80])
    bounds = [f"{name}-{side}-80" for name in "qn" for side in ("lo", "hi")]
    assert list(forecast.columns[2:]) == ["q_q0.1", "q_q0.5", "q_q0.9", "n", *bounds]
    np.testing.assert_array_equal(forecast["q-hi-80"], forecast["q_q0.9"])
    expected = fit_by_hand(X, Y, first, objective="normal").predict_dist(last)
    lower = forecast["n-lo-80"].to_numpy().reshape(3, HORIZON)
    np.testing.assert_allclose(lower, expected.ppf(0.1), rtol=1e-9)
    assert list(found.models_) == ["q_q0.1", "q_q0.5", "q_q0.9", "n"]
    with pytest.raises(ValueError, match=r"no quantile of level 0.05"):
        found.predict(HORIZON, level=[90])


def test_levels_of_other_models_need_prediction_intervals():
    frame = make_series().drop(columns="price")
    models = {"m": PolyleafRegressor(**SMALL), "n": PolyleafRegressor(**SMALL, objective="normal")}
    found = make(models).fit(frame, max_horizon=HORIZON)
    with pytest.warns(UserWarning, match="passing a proper value to prediction intervals"):
        forecast = found.predict(HORIZON, level=[80, 95])
    bounds = ["n-lo-95", "n-lo-80", "n-hi-80", "n-hi-95"]
    assert list(forecast.columns[2:]) == ["m", "n", *bounds]


@pytest.mark.filterwarnings("ignore:The following series were dropped")
@pytest.mark.parametrize("max_horizon", [HORIZON, None])
@pytest.mark.parametrize("library", ["pandas", "polars", "numpy"])
def test_short_series_keep_their_level(library, max_horizon):
    """The lags before the first value repeat it."""
    frame = make_series().drop(columns="price")
    frame.loc[frame["unique_id"] == "s0", "y"] -= 60.0
    short = frame[:3].assign(unique_id="z", y=[101.0, 102.0, 103.0])
    whole = np.append(np.full(LAGS - 3, 101.0), short["y"])
    long = pd.DataFrame({"unique_id": "z", "ds": DATES[:LAGS], "y": whole})
    given = pd.concat([frame, short], ignore_index=True)
    as_numpy = library == "numpy"
    library = "pandas" if as_numpy else library
    given, long = (part if library == "pandas" else pl.from_pandas(part) for part in (given, long))
    found = make({"m": PolyleafRegressor(**SMALL)}, library)
    found.fit(given, max_horizon=max_horizon, as_numpy=as_numpy)
    forecast = found.predict(HORIZON, ids=["z"])["m"].to_numpy()
    np.testing.assert_array_equal(forecast, found.predict(HORIZON, new_df=long)["m"].to_numpy())
    assert abs(forecast - 103).max() < 15


def test_recursive_models_start_from_a_linear_model():
    frame = make_series().drop(columns="price")
    X, Y, first, last = make_windows(frame.assign(price=0.0))
    found = make({"m": PolyleafRegressor(**SMALL), "t": DecisionTreeRegressor(random_state=0)})
    forecast = found.fit(frame).predict(2)
    expected = fit_by_hand(X, Y[:, 0], first).predict(last)
    np.testing.assert_array_equal(forecast["m"].to_numpy()[::2], expected)
    assert list(forecast.columns[2:]) == ["m", "t"] and found.models["m"].init is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"horizons": [2, 4]}, "use max_horizon"),
        ({"horizon_features": {1: ["price"]}}, "horizon_features is not available"),
        ({"fitted": True}, "fitted is not available with columns that change with time"),
        ({}, "'price' changes with time"),
    ],
)
def test_what_needs_one_model_per_horizon(options, match):
    models = {"m": PolyleafRegressor(**SMALL)} | ({} if options else {"t": DecisionTreeRegressor()})
    known = {} if "horizons" in options else {"max_horizon": HORIZON}
    with pytest.raises(ValueError, match=match):
        make(models).fit(make_series(), static_features=[], **known | options)


@pytest.mark.filterwarnings("ignore:The following series were dropped")
def test_series_shorter_than_the_lags_are_named():
    short = make_series(1).head(LAGS).drop(columns="price")
    with pytest.raises(ValueError, match=r"has a value 1 steps after.*lags. Take fewer lags"):
        make({"m": PolyleafRegressor(**SMALL)}).fit(short, max_horizon=HORIZON)


def test_series_shorter_than_the_horizon_are_named():
    short = make_series().groupby("unique_id").head(LAGS + 3)
    with pytest.raises(ValueError, match=r"max_horizon=4: .* Set max_horizon to at most 3"):
        make({"m": PolyleafRegressor(**SMALL)}).fit(
            short.drop(columns="price"), max_horizon=HORIZON
        )


def test_saved_models(tmp_path):
    frame = make_series().drop(columns="price")
    found = make({"m": PolyleafRegressor(**SMALL)}, date_features=["dayofweek"])
    found.fit(frame, max_horizon=HORIZON).save(tmp_path / "folder")
    loaded = MLForecast.load(tmp_path / "folder")
    pd.testing.assert_frame_equal(loaded.predict(HORIZON), found.predict(HORIZON))
