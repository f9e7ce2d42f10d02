"""Polyleaf: gradient boosted trees for many outputs."""
