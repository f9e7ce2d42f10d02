"""Test scores on generated data: a change of models that costs accuracy shows here."""

from __future__ import annotations

import numpy as np

from .fit import KINDS, SHAPE


class Score:
    """Score of the last fifth of the rows by `score` of the estimator."""

    params = [kind for kind in KINDS if kind not in ("words", "quantiles")]
    param_names = ("kind",)

    def setup(self, kind):
        estimator, make, changes = KINDS[kind]
        self.X, self.y = make()
        self.estimator = estimator(**SHAPE | changes)

    def track_score(self, kind):
        n = self.X.shape[0] * 4 // 5
        model = self.estimator.fit(self.X[:n], self.y[:n])
        if "labels" in kind:
            best = model.predict_topk(self.X[n:], k=1)[0].ravel()
            return float(np.mean(self.y[n:][np.arange(len(best)), best]))
        return model.score(self.X[n:], self.y[n:])
