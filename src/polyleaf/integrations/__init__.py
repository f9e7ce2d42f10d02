"""Integrations with other frameworks: AutoGluon, MLflow, Optuna, mlforecast, Darts, skforecast."""
