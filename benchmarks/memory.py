"""Memory: the most that a process holds while training or predicting."""

from __future__ import annotations

from .fit import KINDS, SHAPE


class PeakMemory:
    """Peak memory of the process; the data is part of it."""

    params = ["one output", "16 outputs", "1,000 labels, sparse leaves", "words"]
    param_names = ("kind",)

    def setup(self, kind):
        estimator, make, changes = KINDS[kind]
        self.X, self.y = make()
        self.estimator = estimator(**SHAPE | changes)

    def peakmem_data(self, kind):
        """Measure the data alone, to be subtracted."""

    def peakmem_fit(self, kind):
        self.estimator.fit(self.X, self.y)

    def peakmem_predict(self, kind):
        self.estimator.fit(self.X[:300], self.y[:300]).predict(self.X)
