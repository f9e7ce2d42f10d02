"""Estimators that train on the workers of a Dask cluster (``pip install "polyleaf[dask]"``).

The model is the one that the local estimator fits on all rows together, byte for byte, whatever
the number of workers and partitions, and whichever workers are lost during training.
"""

from importlib.util import find_spec

if find_spec("dask") is None or find_spec("distributed") is None:
    raise ImportError('polyleaf.dask needs Dask: pip install "polyleaf[dask]".')

from polyleaf.dask.estimators import (
    DaskPolyleafClassifier,
    DaskPolyleafRanker,
    DaskPolyleafRegressor,
)

__all__ = ["DaskPolyleafClassifier", "DaskPolyleafRanker", "DaskPolyleafRegressor"]


def __dir__() -> list[str]:
    return __all__
