"""X and y as users pass them: frames, arrays, sparse matrices, targets, weights, offsets."""
