"""Estimators that train on the workers of a Dask cluster (extra ``polyleaf[dask]``; docs/dask.md).

The model is the one that the local estimator would have fitted on all rows together, byte for byte, whatever
the number of workers, the partitions, and the workers lost on the way.
"""

from importlib.util import find_spec

if find_spec("dask") is None or find_spec("distributed") is None:
    raise ImportError('polyleaf.dask needs Dask: pip install "polyleaf[dask]".')

from polyleaf.dask.estimators import DaskPolyleafClassifier, DaskPolyleafRegressor

__all__ = ["DaskPolyleafClassifier", "DaskPolyleafRegressor"]
