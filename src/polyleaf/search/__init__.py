"""Estimators that search for hyperparameters, which are public as `polyleaf.Polyleaf*CV`."""
