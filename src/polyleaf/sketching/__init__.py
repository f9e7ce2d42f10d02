"""Dimensionality reduction: sketches of gradients and projections of features."""
