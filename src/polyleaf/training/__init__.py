"""Training of models: the boosting loop and its components."""
