"""Prediction: seconds by kind of leaf and number of rows."""

from __future__ import annotations

from polyleaf import PolyleafRegressor

from . import data
from .fit import KINDS, SHAPE


class Predict:
    """Prediction with a small model of each kind."""

    params = (
        [
            "one output",
            "16 outputs",
            "10 classes",
            "linear leaves, 16 outputs",
            "words",
            "frame with categories",
        ],
        [1, 10_000],
    )
    param_names = ("kind", "n_rows")

    def setup(self, kind, n_rows):
        estimator, make, changes = KINDS[kind]
        X, y = make()
        self.model = estimator(**SHAPE | changes).fit(X, y)
        self.X = X[:n_rows]

    def time_predict(self, kind, n_rows):
        self.model.predict(self.X)


class Labels:
    """The five best labels of sparse leaves."""

    def setup(self):
        estimator, make, changes = KINDS["1,000 labels, sparse leaves"]
        self.X, Y = make()
        self.model = estimator(**SHAPE | changes).fit(self.X, Y)

    def time_predict_topk(self):
        self.model.predict_topk(self.X, k=5)


class Explain:
    """SHAP values, the compiled predictor, and files."""

    def setup(self):
        X, y = data.targets(5_000)
        self.X = X[:200]
        self.model = PolyleafRegressor(**SHAPE).fit(X, y)
        self.predict = self.model.predictor()
        self.bytes = self.model.save_model()

    def time_shap_values(self):
        self.model.shap_values(self.X)

    def time_one_row_compiled(self):
        self.predict(self.X[:1])

    def time_save(self):
        self.model.save_model()

    def time_load(self):
        PolyleafRegressor.load_model(self.bytes)

    def track_model_bytes(self):
        return len(self.bytes)

    track_model_bytes.unit = "bytes"
