"""Invalid input raises an error that says what is wrong, where, and what to do."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.callbacks import EarlyStopping
from polyleaf.objectives import Custom, SquaredError

NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = X @ RNG.standard_normal((3, 2))
C = (Y[:, 0] > 0).astype(int) + (Y[:, 1] > 0)
L = (Y > 0).astype(int)


def regressor(**parameters):
    return PolyleafRegressor(**{"n_estimators": 3, **parameters})


def classifier(**parameters):
    return PolyleafClassifier(**{"n_estimators": 3, **parameters})


def replace_value(array, value, place=(4, 1)):
    array = np.array(array, float)
    array[place[: array.ndim]] = value
    return array


@pytest.mark.parametrize(
    ("features", "match"),
    [
        (X[:, 0], "Expected 2D array, got 1D array"),
        (X[None], "dim 3"),
        (replace_value(X, INF), r"infinity.*row 4.*column number 1"),
        (X[:0], "X has 0 rows"),
        (X[:1], r"n_samples=1"),
        (X[:59], r"inconsistent numbers of samples: X has 59 rows, y has 60"),
        (np.full((60, 2), "text"), "convert|text|dtype"),
    ],
)
@pytest.mark.parametrize("make", [regressor, classifier])
def test_invalid_features_raise(make, features, match):
    y = (Y if make is regressor else C)[: 1 if features.shape == (1, 3) else None]
    with pytest.raises((ValueError, TypeError), match=match):
        make().fit(features, y)


@pytest.mark.parametrize(
    "features", [np.zeros((60, 2)), np.full((60, 2), NAN), sp.csr_array((60, 2))]
)
def test_constant_and_missing_columns_are_accepted(features):
    predicted = regressor().fit(features, Y).predict(features)
    np.testing.assert_allclose(predicted, np.broadcast_to(Y.mean(0), (60, 2)), atol=1e-6)
    assert set(classifier().fit(features, C).predict(features)) == {np.bincount(C).argmax()}


@pytest.mark.parametrize(
    ("estimator", "y", "match"),
    [
        (regressor(), None, "requires y"),
        (regressor(), replace_value(Y, NAN), r"Input y contains NaN.*missing_targets"),
        (regressor(), Y[:0], "0 sample"),
        (classifier(), C[:0], "0 sample"),
        (regressor(), Y[:50], "X has 60 rows, y has 50"),
        (regressor(objective="poisson"), -np.abs(Y), "poisson"),
        (classifier(), Y[:, 0], "Unknown label type"),
        (classifier(), L + 1, "0 and 1 only"),
        (classifier(missing_targets="ignore"), C, "missing_targets"),
    ],
)
def test_invalid_targets_raise(estimator, y, match):
    with pytest.raises(ValueError, match=match):
        estimator.fit(X, y)
    assert not hasattr(estimator, "model_")


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (np.zeros(60), "zero for every row"),
        (np.ones(59), "sample_weight has shape"),
        (np.where(C > 0, 0, 1), None),
    ],
)
def test_invalid_weights_raise(weight, match):
    if match is not None:
        with pytest.raises(ValueError, match=match):
            regressor().fit(X, Y, sample_weight=weight)
    with pytest.raises(ValueError, match=match or "Only one class"):
        classifier().fit(X, C, sample_weight=weight)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_estimators": 0}, "n_estimators"),
        ({"max_leaves": 1}, "max_leaves"),
        ({"max_depth": None, "max_leaves": None}, "max_leaves"),
        ({"sampling_method": "goss", "subsample": 0.5}, "goss"),
        ({"sampling_method": "goss", "top_rate": 0.7, "other_rate": 0.5}, "top_rate"),
        ({"multi_strategy": "both"}, "multi_strategy"),
        ({"eval_metric": "rmsee"}, "Did you mean 'rmse'"),
        ({"early_stopping_rounds": 5}, "eval_set"),
        ({"callbacks": [EarlyStopping(5)]}, "eval_set"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"categorical_features": [7]}, "names feature 7, but features are numbered"),
        ({"missing_targets": "drop"}, "missing_targets"),
        ({"histogram_memory": 0}, "histogram_memory"),
    ],
)
@pytest.mark.parametrize("make", [regressor, classifier])
def test_invalid_parameters_raise(make, parameters, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make(**parameters).fit(X, Y if make is regressor else C, eval_set=None)


def two_score_derivatives(y, scores):
    """Return derivatives of the first two scores only."""
    return scores[:, :2] - y, None


@pytest.mark.parametrize(
    ("estimator", "y", "match"),
    [
        (regressor(objective="softmax"), Y, "PolyleafClassifier"),
        (regressor(objective="squared_hinge"), Y, "PolyleafClassifier"),
        (regressor(objective="quantile", quantile_alpha=[0.5, 1.5]), Y, "alpha"),
        (regressor(objective="quantile", quantile_alpha=[0.5, 0.5]), Y, "different numbers"),
        (regressor(objective="poisson", normalize_targets=True), Y**2, "normalize_targets"),
        (regressor(quantile_alpha=2.0), Y, "quantile_alpha"),
        (regressor(tweedie_variance_power=3.0), Y, "tweedie_variance_power"),
        (classifier(objective="poisson"), C, "PolyleafRegressor"),
        (classifier(objective="softmax"), L, 'several labels per row: use "logistic"'),
        (classifier(scale_pos_weight=2.0), C, "class_weight"),
        (classifier(scale_pos_weight=2.0, objective="squared_hinge"), C > 0, "scale_pos_weight"),
        (classifier(scale_pos_weight=[1.0, 2.0, 3.0]), L, "3 numbers, but y has 2"),
        (classifier(class_weight={7: 2.0}), C, "label 7"),
        (classifier(class_weight="even"), C, "class_weight"),
        (classifier(softmax_hessian="full"), C, "softmax_hessian"),
        (classifier(objective="exponential"), L, "multi-label"),
        (classifier(objective="exponential_margin"), L, "multi-label y has several labels"),
        (regressor(objective="exponential"), Y, "PolyleafClassifier"),
        (regressor(objective=Custom(two_score_derivatives, n_outputs=5)), Y, r"expected \(60, 5\)"),
        (classifier(objective=Custom(lambda y, z: (z, None), n_outputs=2)), C, "y needs 3"),
        (classifier(base_score=[0.0, 0.0]), C, "3 of them"),
    ],
)
def test_incompatible_parameters_and_targets_raise(estimator, y, match):
    with pytest.raises(ValueError, match=match):
        estimator.fit(X, y)


def make_derivatives(y, scores, **changes):
    """Return gradients and Hessians (n, 2, 2), with the given entries changed."""
    hessian = np.tile(np.array([[2.0, 0.5], [0.5, 1.0]]), (len(scores), 1, 1))
    for place, value in changes.items():
        row, i, j = map(int, place.strip("_").split("_"))
        hessian[row, i, j] = value
    return scores - y, hessian


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (
            lambda y, z: make_derivatives(y, z, _7_0_1=0.2),
            r"not symmetric at row 7: entry \(0, 1\) is 0.2.*transpose",
        ),
        (lambda y, z: (z - y, np.ones((60, 3, 3))), r"shape \(60, 3, 3\); expected"),
        (lambda y, z: (z - y, np.ones((60, 2))), r'needs \(60, 2, 2\).*"diagonal"'),
        (
            lambda y, z: (make_derivatives(y, z)[0][:, :1], make_derivatives(y, z)[1]),
            r"of shape \(60, 1\); expected \(60, 2\)",
        ),
    ],
)
@pytest.mark.parametrize("hessian", ["full", "block"])
def test_invalid_hessians_raise(function, match, hessian):
    for boosting_step in ("round", "layer"):
        steps = {"boosting_step": boosting_step, "grow_policy": "depthwise"}
        estimator = regressor(objective=function, hessian=hessian, **steps)
        with pytest.raises(ValueError, match=match):
            estimator.fit(X, Y)
        assert not hasattr(estimator, "model_")


def test_indefinite_row_hessians_are_accepted():
    """Leaves solve with sums of Hessians; directions in which a sum is not positive are skipped."""
    hessians = np.tile([[1.0, 9.0], [9.0, 1.0]], (60, 1, 1))
    estimator = regressor(objective=lambda y, z: (z - y, hessians), hessian="full")
    assert np.isfinite(estimator.fit(X, Y).predict(X)).all()


def test_hessian_shape_must_match_the_hessian_parameter():
    with pytest.raises(ValueError, match=r"Hessians \(60, 2, 2\).*hessian=\"full\""):
        regressor(objective=make_derivatives).fit(X, Y)
    with pytest.raises(ValueError, match=r'has no full Hessian.*"diagonal"'):
        regressor(objective=WithoutHessian(), hessian="full").fit(X, Y)


class WithoutHessian(SquaredError):
    name = "without"
    has_full_hessian = False


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"eval_set": [(X[:, :2], C)]}, "'validation_0': X has 2 features.*expecting 3"),
        ({"eval_set": [(X[:0], C[:0])]}, "Evaluation set 'validation_0': .*0 sample"),
        (
            {"eval_set": [(X, C)] * 2, "eval_sample_weight": [None, np.zeros(60)]},
            "'validation_1': sample_weight is zero for every row",
        ),
        ({"eval_set": [(X, C + 1)]}, "'validation_0' has the label 3"),
        ({"eval_set": [(X, C[:9])]}, "'validation_0' has 9 rows, but X has 60"),
        ({"eval_set": [X]}, r"eval_set\[0\] must be a pair"),
        ({"eval_set": [(X, C)], "eval_names": ["a", "b"]}, "eval_names has 2 entries"),
        ({"eval_set": [(X, C)] * 2, "eval_names": ["a", "a"]}, "must be different"),
        ({"eval_set": [(X, C)], "eval_sample_weight": []}, "eval_sample_weight has 0"),
        ({"eval_set": [(X, C)], "eval_sample_weight": [np.ones(3)]}, r"shape \(3,\)"),
        ({"eval_set": [(X, None)]}, "y"),
        ({"X_val": X, "y_val": replace_value(C, NAN)}, "contains NaN"),
        ({"y_val": C}, "X_val"),
        ({"eval_set": [(Dataset(X[:30]), C[:30])]}, "binned differently"),
        ({"callbacks": EarlyStopping}, "instance"),
        ({"init_model": 3}, "init_model"),
        ({"init_model": "no such file"}, "no such file"),
    ],
)
def test_invalid_fit_arguments_raise(options, match):
    with pytest.raises((ValueError, TypeError, OSError), match=match):
        classifier().fit(X, C, **options)


@pytest.mark.parametrize(
    ("name", "largest", "others"),
    [
        ("max_leaves", 2**31 - 1, {}),
        ("max_depth", 2**31 - 1, {}),
        ("min_child_samples", 2**31 - 1, {}),
        ("max_cat_to_onehot", 2**31 - 1, {}),
        ("linear_features", 2**31 - 1, {"leaf": "linear"}),
        ("block_size", 2**31 - 1, {"hessian": "block", "leaf_hessian": "full"}),
        ("histogram_memory", 2**63 - 1, {}),
    ],
)
def test_integers_too_large_for_the_core_raise(name, largest, others):
    assert regressor(**{name: largest}, **others).fit(X, Y).n_iter_ > 0
    for number in (largest + 1, 2**70):
        with pytest.raises(ValueError, match=rf"'{name}' parameter .* {largest}\]"):
            regressor(**{name: number}, **others).fit(X, Y)


@pytest.mark.parametrize("projection", [None, "pca"])
def test_repeated_column_names_raise(projection):
    frame, arguments = pd.DataFrame(X, columns=list("abc")), {"projection": projection}
    twice = frame.rename(columns={"b": "a"})
    model = regressor(**arguments).fit(frame, Y)
    for call in (
        lambda: model.predict(twice),
        lambda: regressor(**arguments).fit(twice, Y),
        lambda: regressor(**arguments).fit(frame, Y, eval_set=[(twice, Y)]),
        lambda: regressor(**arguments).fit(X, Y).predict(twice),
    ):
        with pytest.raises(ValueError, match="X has several columns named 'a'"):
            call()


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (replace_value(X, NAN), r'X holds NaN in row 4, column 1. projection="pca" needs a number'),
        (replace_value(X, INF), r"too large for float32 in row 4, column 1"),
        (sp.csr_matrix(replace_value(X, NAN)), r"X holds NaN in row .*SimpleImputer"),
        (
            pd.DataFrame(X).assign(g=pd.Categorical(["a", "b"] * 30)),
            r"Column 'g' of X holds 'a' in row 0. proj",
        ),
        (np.array([["1", "b"]] * 60), r"Column number 1 of X holds 'b' in row 0. .*OneHotEncoder"),
    ],
)
def test_invalid_features_of_projections_raise(bad, match):
    with pytest.raises(ValueError, match=match):
        regressor(projection="pca", projection_dim=2).fit(bad, Y)
    if bad.shape == X.shape:
        with pytest.raises(ValueError, match=match):
            regressor(projection="pca", projection_dim=2).fit(X, Y).predict(bad)


@pytest.mark.parametrize("base_score", [{"a": 1}, "nothing", [1, 2, 3, 4, 5], [NAN]])
def test_invalid_base_score_raises(base_score):
    with pytest.raises(ValueError, match="base_score"):
        regressor(base_score=base_score).fit(X, Y)


def test_huge_learning_rate_raises():
    for objective in ("squared_error", "absolute_error", "quantile"):
        with pytest.raises(ValueError, match=r"not finite.*the learning rate"):
            regressor(objective=objective, learning_rate=1e30).fit(X, Y)


def test_missing_values_in_object_columns_do_not_warn():
    mixed = np.array([True, False, np.nan], dtype=object)[np.arange(60) % 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor().fit(pd.DataFrame(X, columns=list("abc")).assign(g=mixed), Y)


def test_invalid_prediction_input_raises():
    model = regressor().fit(X, Y)
    with pytest.raises(ValueError, match="X has 2 features, but PolyleafRegressor is expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="infinity"):
        model.predict(replace_value(X, INF))
    named = regressor().fit(pd.DataFrame(X, columns=list("abc")), Y)
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(pd.DataFrame(X, columns=list("abd")))
    with pytest.warns(UserWarning, match="valid feature names"):
        named.predict(X)
    with pytest.raises(ValueError, match="Rounds 0 to 9"):
        model.predict(X, iteration_range=(0, 9))
    with pytest.raises(ValueError, match="binned differently"):
        model.predict(Dataset(X[:20]))


def test_incompatible_init_model_raises():
    first = classifier().fit(X, C)
    with pytest.raises(ValueError, match="trained by PolyleafClassifier"):
        regressor().fit(X, Y, init_model=first)
    with pytest.raises(ValueError, match="label 'x'"):
        classifier().fit(X, np.where(C == 0, "x", "y"), init_model=first)
    with pytest.raises(ValueError, match="features"):
        classifier().fit(X[:, :2], C, init_model=first)
    with pytest.raises(ValueError, match="y holds several labels per row"):
        classifier().fit(X, L, init_model=first)
    with pytest.raises(ValueError, match="objective"):
        regressor(objective="poisson").fit(X, Y**2, init_model=regressor().fit(X, Y))
    with pytest.raises(ValueError, match="1 column"):
        regressor().fit(X, Y[:, 0], init_model=regressor().fit(X, Y))
    with pytest.raises(ValueError, match="binned differently"):
        classifier().fit(Dataset(X[:40]), C[:40], init_model=first)


def test_invalid_use_of_a_dataset_raises():
    data = Dataset(X)
    with pytest.raises(ValueError, match="requires y"):
        regressor().fit(data)
    with pytest.raises(ValueError, match="validation_fraction"):
        regressor(validation_fraction=0.5).fit(data, Y)
    with pytest.raises(ValueError, match="inconsistent"):
        regressor().fit(data, Y[:5])


@pytest.mark.parametrize("rounds", [(0, 2.7), "a", "ab", (0,), (None, 2), (0, 1, 2), 3, ("0", 2)])
def test_invalid_iteration_range_raises(rounds):
    X = np.arange(60.0)[:, None]
    model = PolyleafRegressor(n_estimators=3).fit(X, X[:, 0])
    with pytest.raises(TypeError, match=r"iteration_range must be"):
        model.predict(X, iteration_range=rounds)
    for all_of_them in ((0, 0), (0, None), (np.int64(0), np.int8(3))):
        assert (model.predict(X, iteration_range=all_of_them) == model.predict(X)).all()
