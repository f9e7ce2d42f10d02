"""Integrations with other frameworks: AutoGluon, MLflow and Optuna."""
