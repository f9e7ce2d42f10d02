"""Settings that say the same."""

import numpy as np
import pytest

from polyleaf import Dataset, PolyleafRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))


@pytest.mark.parametrize("penalty", [{"min_split_gain": 1e3}, {"reg_alpha": 10.0}])
def test_a_number_of_groups_of_one_is_the_list_of_them(penalty):
    Y = X * [1, 1e4, 1]
    groups = [
        PolyleafRegressor(output_groups=g, n_estimators=5, **penalty) for g in (3, [[0], [1], [2]])
    ]
    first, second = (model.fit(X, Y).predict(X) for model in groups)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("seed", range(10))
def test_a_dataset_with_weights_has_the_bins_of_fit(seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    weight = 0.1 * rng.integers(1, 4, size=(30, 2))
    options = dict(n_estimators=3, max_bins=7)
    fitted = PolyleafRegressor(**options).fit(X, Y, sample_weight=weight)
    dataset = Dataset(X, Y, sample_weight=weight, max_bins=7)
    batches = Dataset.from_batches(
        [(X[:9], Y[:9], weight[:9]), (X[9:], Y[9:], weight[9:])], max_bins=7
    )
    for data in (dataset, batches):
        same = PolyleafRegressor(**options).fit(data)
        np.testing.assert_array_equal(same.predict(X), fitted.predict(X))
