"""A compiled predictor equals the method that it replaces, bit for bit."""

import pickle

import numpy as np
import pandas as pd
import pytest
from support import golden, host_device
from support.exports import CASES, estimator, hard_rows, raw_scores
from support.model_files import reseal
from support.models import random_model

from polyleaf import PolyleafClassifier, PolyleafRegressor


def assert_same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a, b)
    if a.dtype == np.float64:
        np.testing.assert_array_equal(a.view(np.uint64), b.view(np.uint64))


def as_given(est, X):
    """Return the rows of an exported model for a predictor, with NaN for unknown categories."""
    mapper, X = est.model_.mapper, X.copy()
    for feature in np.flatnonzero(mapper.is_categorical_).tolist():
        n_codes = int(mapper.n_bins_[feature])
        X[~((X[:, feature] >= 0) & (X[:, feature] < n_codes)), feature] = np.nan
    return X


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_raw_scores_have_the_bits_of_the_model(name, dtype):
    est = estimator(name)
    with np.errstate(over="ignore"):
        X = as_given(est, hard_rows(est, n=300)).astype(dtype)
    predictor = est.predictor()
    found = predictor.predict_raw(X)
    assert_same_bits(found, raw_scores(est, X))
    assert_same_bits(np.vstack([predictor.predict_raw(row) for row in X[:20]]), found[:20])
    assert_same_bits(predictor.predict_raw(np.asfortranarray(X)[::-1]), found[::-1])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize("name", ["defaults, two classes", "defaults, classes", "defaults, labels"])
def test_methods_of_classifiers(name, method):
    est, X = estimator(name), golden.numbers()
    expected = getattr(est, method)(X)
    assert_same_bits(est.predictor(method)(X), expected)
    np.testing.assert_array_equal(est.predictor(method)(X[3]), expected[3])


@pytest.mark.parametrize(
    "name", ["defaults", "defaults, one output", "quantiles", "poisson", "validation"]
)
def test_predictions_of_regressors(name):
    est, X = estimator(name), golden.numbers()
    assert_same_bits(est.predictor()(X), est.predict(X))
    np.testing.assert_array_equal(est.predictor()(X[0].tolist()), est.predict(X)[0])
    assert_same_bits(
        est.predictor(n_threads=2)(np.tile(X, (30, 1))), np.tile(est.predict(X).T, 30).T
    )


def test_predictor_of_a_model_uses_all_rounds():
    est, X = estimator("validation"), golden.numbers()
    raw = est.model_.predict_raw(est._features(X))
    assert_same_bits(est.model_.predictor()(X), raw)


def test_predictor_is_independent_of_further_training():
    est = PolyleafRegressor(**golden.SMALL, warm_start=True).fit(golden.numbers(), golden.values())
    predictor, before = est.predictor(), est.predict(golden.numbers())
    est.set_params(n_estimators=6).fit(golden.numbers(), golden.values())
    assert_same_bits(predictor(golden.numbers()), before)
    assert (est.predict(golden.numbers()) != before).any()


def test_numeric_categories_by_value_and_text_by_code():
    rng = np.random.default_rng(0)
    kinds, words = rng.choice([2, 5, 700_001], 300), rng.choice(["b", "a", "c"], 300)
    X, y = np.column_stack([kinds, rng.normal(size=300)]), kinds % 7 + rng.normal(size=300) / 9
    numbers = PolyleafRegressor(**golden.SMALL, categorical_features=[0]).fit(X, y)
    assert numbers.predictor().categories == {0: {2.0: 2.0, 5.0: 5.0, 700_001.0: 700_001.0}}
    asked = np.vstack([X, [[3, 0.0], [np.nan, 0.0]]])
    assert_same_bits(numbers.predictor()(asked), numbers.predict(asked))
    frame = pd.DataFrame({"word": words, "x": X[:, 1]})
    text = PolyleafRegressor(**golden.SMALL).fit(frame, (words == "a") + X[:, 1] / 9)
    codes = text.predictor().categories[0]
    assert codes == {"a": 0.0, "b": 1.0, "c": 2.0}
    rows = np.column_stack([[codes[word] for word in words], X[:, 1]])
    assert_same_bits(text.predictor()(rows), text.predict(frame))
    with pytest.raises(
        ValueError, match=r"hold 'c' in column 0: pass the number.*predictor\.categories\[0\]"
    ):
        text.predictor()(["c", 0.5])


def test_frames_and_objects_are_numbers_in_the_order_of_training():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": rng.integers(10, 40, 300).astype(str), "x": rng.normal(size=300)})
    model = PolyleafRegressor(**golden.SMALL, categorical_features=["id"])
    model.fit(frame, frame.x + frame.id.astype(int) % 3)
    predictor = model.predictor()
    with pytest.raises(ValueError, match=r"hold '\d\d' in column 0"):  # no numbers of categories
        predictor(frame)
    numbers = frame.assign(id=frame.id.map(predictor.categories[0]))
    for rows in (numbers, numbers.astype(object), numbers.convert_dtypes()):
        assert_same_bits(predictor(rows), model.predict(frame))
    with pytest.raises(ValueError, match="'x', 'id', but the model was fitted to 'id', 'x', in"):
        predictor(numbers[["x", "id"]])


def test_rare_categories_share_a_code():
    """Files of the first versions contain such features."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 8, 2000), rng.normal(size=2000)]).astype(np.float64)
    est = PolyleafRegressor(**golden.SMALL, categorical_features=[0]).fit(X, X[:, 0] % 3)

    def share_the_last_bin(header, arrays):
        header["mapper"]["categories"][0] |= {"kept": list(range(7)), "rare": [7, 8, 9]}

    old = PolyleafRegressor.load_model(reseal(est.save_model(), share_the_last_bin))
    X[:, 0] = rng.integers(0, 10, 2000)
    assert_same_bits(old.predictor()(X), old.predict(X))
    X[:, 0] = np.minimum(X[:, 0], 7)
    assert_same_bits(old.predict(X), est.predict(X))


def test_predictor_can_be_pickled():
    predictor = pickle.loads(pickle.dumps(estimator("frame with categories").predictor()))
    X = as_given(estimator("frame with categories"), hard_rows(estimator("frame with categories")))
    assert_same_bits(
        predictor.predict_raw(X), estimator("frame with categories").predictor().predict_raw(X)
    )


def test_unsupported_models_and_rows_raise():
    predictor = estimator("defaults").predictor()
    with pytest.raises(ValueError, match="A row has 5 features, but the model is expecting 6"):
        predictor(np.zeros(5))
    with pytest.raises(ValueError, match=r"one row \(n_features,\) or"):
        predictor(np.zeros((2, 2, 6)))
    with pytest.raises(ValueError, match="could not convert string"):
        predictor(["a"] * 6)
    with pytest.raises(ValueError, match="'predict'"):
        estimator("defaults").predictor("predict_proba")
    hinge = PolyleafClassifier(**golden.SMALL, objective="squared_hinge")
    with pytest.raises(ValueError, match="'predict', 'decision_function'"):
        hinge.fit(golden.numbers(), golden.two_classes()).predictor("predict_proba")


def test_model_without_trees_and_zero_rows():
    model = random_model(n_rounds=0)
    assert_same_bits(model.predictor()(np.zeros(4)), model.base_score)
    assert model.predictor()(np.zeros((0, 4))).shape == (0, 3)


needs_compiler = pytest.mark.skipif(host_device.COMPILER is None, reason="g++ is not installed")
ON_DEVICE = [
    "defaults",
    "defaults, classes",
    "one tree an output",
    "frame with categories",
    "normalized targets",
]


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ON_DEVICE)
def test_device_predictions_equal_the_cpu(name, dtype, monkeypatch):
    host_device.use(monkeypatch)
    est = estimator(name)
    with np.errstate(over="ignore"):
        X = as_given(est, hard_rows(est, n=300)).astype(dtype)
    predictor = est.predictor(device="cuda")
    assert_same_bits(predictor.predict_raw(X), est.predictor().predict_raw(X))
    finite = np.where(np.isinf(X), np.nan, X)
    assert_same_bits(predictor(finite), est.predictor()(finite))
    assert_same_bits(predictor.predict_raw(X[0]), est.predictor().predict_raw(X[0]))
    assert_same_bits(
        pickle.loads(pickle.dumps(predictor)).predict_raw(X), est.predictor().predict_raw(X)
    )


@needs_compiler
@pytest.mark.parametrize("strategy", ["multi_output_tree", "one_output_per_tree"])
def test_device_with_more_trees_than_a_block(strategy, monkeypatch):
    host_device.use(monkeypatch)
    X, Y = golden.numbers(), golden.values()
    est = PolyleafRegressor(n_estimators=37, max_leaves=8, n_jobs=1, multi_strategy=strategy).fit(
        X, Y
    )
    assert_same_bits(est.predictor(device="cuda")(X), est.predict(X))
    assert est.predictor(device="cuda")(X[:0]).shape == (0, 3)


def test_unknown_device_raises():
    with pytest.raises(ValueError, match=r"got 'gpu'"):
        estimator("defaults").predictor(device="gpu")
