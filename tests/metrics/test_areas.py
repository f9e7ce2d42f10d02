"""Areas under curves equal those of scikit-learn."""

import numpy as np
import pytest
import sklearn.metrics as sk

from polyleaf.metrics.areas import binary_average_precision, binary_roc_auc


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("decimals", [0, 1, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_areas_equal_scikit_learn(share, decimals, weighted):
    """With ties, few positives and many."""
    rng = np.random.default_rng(int(share * 100) + decimals)
    y = rng.random(500) < share
    y[:2] = [True, False]
    score = (rng.normal(size=500) + y).round(decimals)
    weight = rng.integers(1, 5, 500) / 2 if weighted else None
    assert binary_roc_auc(y, score, weight) == pytest.approx(
        sk.roc_auc_score(y, score, sample_weight=weight)
    )
    expected = sk.average_precision_score(y, score, sample_weight=weight)
    assert binary_average_precision(y, score, weight) == pytest.approx(expected)
    for one_class in (np.zeros(5, bool), np.ones(5, bool)):
        assert np.isnan(binary_roc_auc(one_class, score[:5])) and np.isnan(
            binary_average_precision(one_class, score[:5])
        )
