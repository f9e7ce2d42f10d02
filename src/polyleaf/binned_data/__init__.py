"""Binned data sets: binning, high-cardinality categories, iterators over batches."""
