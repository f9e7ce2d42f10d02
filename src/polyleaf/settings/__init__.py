"""Declarations of all parameters, and the immutable configurations of a training run."""
