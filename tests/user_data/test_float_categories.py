"""Categories of float32 and float64 numbers are the same."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from polyleaf import PolyleafRegressor, load_model

CODES = np.arange(500) % 5
VALUES = 1 + CODES / 10
Y = np.array([0, 3, -2, 5, 1.0])[CODES]


def make_pandas(dtype):
    return pd.DataFrame({"v": VALUES.astype(dtype)})


CONTAINERS = {
    "array": lambda dtype: VALUES.astype(dtype)[:, None],
    "list": lambda dtype: [[value] for value in VALUES.astype(dtype)],
    "objects": lambda dtype: np.array([[v] for v in VALUES.astype(dtype)], dtype=object),
    "sparse": lambda dtype: scipy.sparse.csr_matrix(VALUES.astype(dtype)[:, None]),
    "pandas": make_pandas,
    "pandas categories": lambda dtype: make_pandas(dtype).astype("category"),
    "pandas nullable": lambda dtype: make_pandas(dtype).astype(dtype.capitalize()),
    "pandas arrow": lambda dtype: pd.DataFrame(
        {"v": pd.array(VALUES.astype(dtype), pd.ArrowDtype(pa.from_numpy_dtype(dtype)))}
    ),
    "polars": lambda dtype: pl.DataFrame({"v": VALUES.astype(dtype)}),
    "arrow": lambda dtype: pa.table({"v": VALUES.astype(dtype)}),
    "dictionary": lambda dtype: pa.table({"v": pa.array(VALUES.astype(dtype)).dictionary_encode()}),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("trained", ["float32", "float64"])
def test_a_model_knows_the_categories_in_the_other_type(container, trained):
    make = CONTAINERS[container]
    model = PolyleafRegressor(n_estimators=300, categorical_features=[0]).fit(make(trained), Y)
    for estimator in (model, load_model(model.save_model())):
        for dtype in ("float32", "float64"):
            assert estimator.score(make(dtype), Y) > 0.99
    assert model.model_.mapper.categories_[0] == [1, 1.1, 1.2, 1.3, 1.4]


def test_large_integers_in_float32_warn():
    ids = (2**24 + CODES).astype(np.float32)[:, None]
    with pytest.warns(UserWarning, match="float32 include numbers above 2\\^24"):
        PolyleafRegressor(n_estimators=2, categorical_features=[0]).fit(ids, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PolyleafRegressor(n_estimators=300, categorical_features=[0])
        model.fit(ids.astype(np.float64) * 0 + 2.0**24 + CODES[:, None], Y)
    assert model.score(2.0**24 + CODES[:, None], Y) > 0.99


def test_half_unknown_categories_warn():
    text = np.array(list("abcde"))[CODES]
    model = PolyleafRegressor(n_estimators=5).fit(pd.DataFrame({"v": text}), Y)
    new = np.where(np.arange(500) < 250, "NEW", text)
    with pytest.warns(UserWarning, match="250 of 500 values of column 'v' .*such as 'NEW'"):
        model.predict(pd.DataFrame({"v": new}))
