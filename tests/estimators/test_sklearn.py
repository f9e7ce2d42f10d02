"""scikit-learn's estimator checks, without expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyleaf import PolyleafClassifier, PolyleafRegressor

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@parametrize_with_checks(
    [
        PolyleafRegressor(n_estimators=20, n_jobs=1),
        PolyleafClassifier(n_estimators=20, n_jobs=1),
        PolyleafRegressor(
            n_estimators=20, n_jobs=1, multi_strategy="one_output_per_tree", min_child_samples=1
        ),
        # With more trees, repeated rows and weights differ in the last bit of
        # float32.
        PolyleafClassifier(n_estimators=10, n_jobs=1, objective="squared_hinge"),
    ]
)
def test_estimator_checks(estimator, check):
    check(estimator)
