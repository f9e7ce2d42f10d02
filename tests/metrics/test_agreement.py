"""Agreement beyond chance: of labels it is the mean of each."""

import numpy as np
import pytest
import sklearn.metrics as sk

from polyleaf.metrics import get_metric


def test_agreement_of_labels_is_their_mean():
    rng = np.random.default_rng(0)
    Y, raw = rng.random((200, 3)) < 0.3, rng.normal(size=(200, 3))
    for name, theirs in (
        ("balanced_accuracy", sk.balanced_accuracy_score),
        ("mcc", sk.matthews_corrcoef),
        ("kappa", sk.cohen_kappa_score),
    ):
        each = [theirs(Y[:, k], raw[:, k] > 0) for k in range(3)]
        metric = get_metric(name)
        assert metric(Y.astype(np.float32), raw) == pytest.approx(np.mean(each))
        np.testing.assert_allclose(metric.per_output(Y.astype(np.float32), raw), each)
        assert metric.greater_is_better
    constant = np.ones((200, 1), np.float32)
    assert get_metric("mcc")(constant, constant) == 0.0
