"""Hyperparameter search by successive halving: PolyleafClassifierCV and PolyleafRegressorCV."""
