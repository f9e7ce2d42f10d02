"""Binning: from containers of features to codes."""

from __future__ import annotations

from polyleaf import BinMapper, Dataset
from polyleaf.user_data.features import read_features

from . import data

CONTAINERS = {
    "array": lambda: data.targets(50_000)[0],
    "float64 array": lambda: data.targets(50_000)[0].astype("float64"),
    "frame": lambda: data.frame(50_000)[0],
    "CSR": lambda: data.words(5_000)[0],
}


class Containers:
    """Reading and binning of one container."""

    params = list(CONTAINERS)
    param_names = ("container",)

    def setup(self, container):
        self.X = CONTAINERS[container]()

    def time_read(self, container):
        read_features(self.X, n_threads=1)

    def time_dataset(self, container):
        Dataset(self.X)


class Mapper:
    """Thresholds and codes of dense columns."""

    def setup(self):
        self.table = read_features(data.targets(50_000)[0], n_threads=1)
        self.mapper = BinMapper(255).fit(self.table, None, 1)

    def time_thresholds(self):
        BinMapper(255).fit(self.table, None, 1)

    def time_codes(self):
        self.mapper.transform(self.table, 1)
