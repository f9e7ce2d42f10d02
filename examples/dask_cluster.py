"""Training on the workers of a Dask cluster: the model equals that of one machine.

The cluster here is two threads of this process, so that the script runs anywhere. For a real
cluster use `Client("scheduler:8786")`. Needs `pip install "polyleaf[dask]"`.
"""

from typing import Any

import numpy as np

from polyleaf import PolyleafRegressor


def main() -> dict[str, float]:
    try:
        import dask.array as da
        from distributed import Client, LocalCluster

        from polyleaf.dask import DaskPolyleafRegressor
    except ImportError as error:
        print(error)
        return {}

    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 10))
    Y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2]]) + 0.1 * rng.normal(size=(4_000, 2))
    # Fewer rounds of communication per tree.
    by_level: dict[str, Any] = {"n_estimators": 5, "max_depth": 4, "max_leaves": None}

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        lazy_X, lazy_Y = (da.from_array(values, chunks=(500, -1)) for values in (X, Y))
        model = DaskPolyleafRegressor(**by_level).fit(lazy_X, lazy_Y)
        print(model.predict(lazy_X))
        found: dict[str, float] = {"workers": len(client.nthreads())}

    local = PolyleafRegressor(**by_level).fit(X, Y)
    found["same"] = model.to_local().save_model() == local.save_model()
    print(
        f"the model of {found['workers']} workers",
        "is" if found["same"] else "is not",
        "that of one machine",
    )
    return found


if __name__ == "__main__":
    main()
