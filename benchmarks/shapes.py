"""How the time of training grows with the size of the data and of the trees."""

from __future__ import annotations

from polyleaf import PolyleafRegressor

from . import data
from .fit import SHAPE


class _Growth:
    """Training of ten rounds while one size varies; others are fixed."""

    rows, features, outputs, changes = 20_000, 40, 4, {}

    def setup(self, value):
        sizes = {"rows": self.rows, "features": self.features, "outputs": self.outputs}
        name = self.param_names[0]
        own = {name: value} if name not in sizes else {}
        sizes |= {name: value} if name in sizes else {}
        self.X, self.y = data.targets(sizes["rows"], sizes["features"], sizes["outputs"])
        self.estimator = PolyleafRegressor(**SHAPE | {"n_estimators": 10} | own)

    def time_fit(self, value):
        self.estimator.fit(self.X, self.y)


class Rows(_Growth):
    params = [1_000, 10_000, 100_000]
    param_names = ("rows",)


class Features(_Growth):
    params = [5, 50, 500]
    param_names = ("features",)


class Outputs(_Growth):
    params = [1, 4, 16, 64]
    param_names = ("outputs",)


class Leaves(_Growth):
    params = [4, 64, 512]
    param_names = ("max_leaves",)


class Bins(_Growth):
    params = [15, 63, 255]
    param_names = ("max_bins",)
