"""The user's data as training sees it: features, their bins and codes, targets, rows held out."""
