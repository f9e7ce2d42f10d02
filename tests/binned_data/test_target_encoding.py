"""Target statistics equal their definition, and no row sees its own target."""

import numpy as np
import pytest
import scipy.sparse as sp
from support.high_cardinality import effects
from support.isa import run_on_each_isa

from polyleaf import RowData
from polyleaf.binned_data import target_encoding
from polyleaf.binned_data.target_encoding import EncodedOutputs, FeatureCodes, fit_target_statistics
from polyleaf.user_data.features import read_features
from polyleaf.user_data.target import encode_classification, encode_regression, encode_sparse


def fit_target_encoding(category, y, weight=None, numeric=(), target=None, n_threads=1):
    """Return the encoded feature and the statistics of its training rows."""
    table = read_features(np.asarray(category).reshape(-1, 1), categorical_features=[0])
    target = encode_regression(RowData(y, weight)) if target is None else target
    made, training = fit_target_statistics(
        table.categories, numeric, EncodedOutputs.from_target(target), 1, n_threads
    )
    return made.features[0], training[0]


def assign_folds(category):
    return target_encoding._assign_folds(
        np.unique(category, return_inverse=True)[1], np.arange(len(category))
    )


def test_statistics_are_means_shrunk_to_the_overall_mean():
    X, y = effects(2000, 300, noise=2.0)
    category = X[:, 0]
    wide, training = fit_target_encoding(category, y)
    z, fold = (y - y.mean()) / y.std(), assign_folds(category)
    index = np.unique(category, return_inverse=True)[1]
    sums, counts = np.bincount(index, z), np.bincount(index)
    n, groups = len(y), len(counts)
    means = sums / counts
    prior_pairs = target_encoding._PRIOR_PAIRS
    within = (((z - means[index]) ** 2).sum() + prior_pairs) / (n - groups + prior_pairs)
    spread = (counts * means**2).sum() / (groups - 1)
    prior = within * (n - (counts**2).sum() / n) / (groups - 1) / (spread - within)
    np.testing.assert_allclose(wide.values[:, 0], sums / (counts + prior), rtol=1e-5, atol=1e-7)
    assert not (counts >= target_encoding._KNOWN_FACTOR * prior).any()
    for row in range(0, n, 97):
        others = (index == index[row]) & (fold != fold[row])
        assert training[row, 0] == pytest.approx(z[others].sum() / (others.sum() + prior), abs=1e-6)


def test_rows_of_a_category_are_spread_evenly_over_folds():
    category = np.repeat([0, 1, 2, 3], [1, 4, 50, 5])
    fold = assign_folds(category)
    for c, size in enumerate([1, 4, 50, 5]):
        counts = np.bincount(fold[category == c], minlength=5)
        assert counts.sum() == size and counts.max() - counts.min() <= 1


def test_statistics_of_a_row_exclude_its_target():
    copied, seen = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        category, y = rng.integers(0, 1000, 3000), rng.normal(size=3000)
        wide, training = fit_target_encoding(category, y)
        own = wide.values[np.unique(category, return_inverse=True)[1], 0]
        copied.append(np.corrcoef(own, y)[0, 1])
        seen.append(np.corrcoef(training[:, 0], y)[0, 1])
    assert np.mean(copied) > 0.5  # the correlation if rows saw their own target
    assert abs(np.mean(seen)) < 0.02


def test_frequent_categories_use_all_their_rows():
    X, y = effects(20_000, 300, noise=0.3)
    wide, training = fit_target_encoding(X[:, 0], y)
    np.testing.assert_array_equal(training[:, 0], wide.values[X[:, 0].astype(int), 0])


def test_unique_categories_have_zero_statistics():
    rng = np.random.default_rng(0)
    wide, training = fit_target_encoding(np.arange(2000), rng.normal(size=2000))
    assert np.abs(wide.values).max() < 0.01 and (training == 0).all()


def test_slopes_that_differ_by_category_are_found():
    rng = np.random.default_rng(0)
    category, x = rng.integers(0, 400, 8000), rng.normal(size=(8000, 2))
    slopes = rng.normal(size=400)
    y = slopes[category] * x[:, 1] + x[:, 0] + 0.3 * rng.normal(size=8000)
    ranks = np.argsort(np.argsort(x, axis=0), axis=0)
    numeric = [
        FeatureCodes(f"x{j}", (ranks[:, j] * 255 // 8000).astype(np.uint8), 255) for j in range(2)
    ]
    wide, training = fit_target_encoding(category, y, numeric=numeric)
    assert wide.labels == ("mean", "slope by x1")
    assert np.corrcoef(wide.values[:, 1], slopes)[0, 1] > 0.9
    assert np.corrcoef(training[:, 1], slopes[category])[0, 1] > 0.85
    assert fit_target_encoding(category, x[:, 0] * x[:, 1], numeric=numeric)[0].labels == ("mean",)


def cells(x, n):
    """Return the bins of the ranks of values, in n bins of equal size."""
    return np.argsort(np.argsort(x)) * n // len(x)


def test_statistics_explained_by_other_features_are_omitted():
    rng = np.random.default_rng(0)
    x, category = rng.normal(size=4000), rng.integers(0, 400, 4000)
    other = [FeatureCodes("x", cells(x, 250).astype(np.uint8), 250)]
    common, own = np.sin(2 * x), rng.normal(size=400)[category]
    noise = 0.5 * rng.normal(size=4000)
    assert fit_target_encoding(cells(x, 500), common + noise)[0].is_informative
    wide, training = fit_target_encoding(cells(x, 500), common + noise, numeric=other)
    assert (
        not wide.is_informative
        and not wide.values.any()
        and not training.any()
        and wide.n_columns == 1
    )
    kept, _ = fit_target_encoding(category, common + own + noise, numeric=other)
    np.testing.assert_array_equal(
        kept.values, fit_target_encoding(category, common + own + noise)[0].values
    )


def bins(x):
    return FeatureCodes("x", cells(x, 250).astype(np.uint8), 250)


@pytest.mark.parametrize("n_categories", [300, 1000, 3000])
def test_weak_significant_effects_of_categories_are_kept(n_categories):
    """The effect explains less than 4 % of the variance of a binary target, but is significant."""
    rng = np.random.default_rng(0)
    category, x = rng.integers(0, n_categories, 15_000), rng.normal(size=15_000)
    effect = 0.9 * rng.normal(size=n_categories)[category]
    for strength, is_kept in ((1.0, True), (0.0, False)):
        p = 1 / (1 + np.exp(-(strength * effect + x)))
        y = (rng.random(15_000) < p).astype(float)
        assert fit_target_encoding(category, y, numeric=[bins(x)])[0].is_informative == is_kept


def test_interactions_of_other_features_are_omitted():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 30, (2, 6000))
    y = np.sin(first * second / 30.0) + 3 * rng.normal(size=6000)
    pair = 30 * first + second
    others = [FeatureCodes(f"x{i}", v.astype(np.uint8), 30) for i, v in enumerate((first, second))]
    assert not fit_target_encoding(pair, y, numeric=others)[0].is_informative
    assert fit_target_encoding(pair, y, numeric=[bins(rng.normal(size=6000))])[0].is_informative


@pytest.mark.parametrize("tails", ["log-normal", "rare events"])
def test_heavy_tails_are_no_effects_of_categories(tails):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        category, x = rng.integers(0, 2000, 9000), rng.normal(size=9000)
        y = np.exp(2 * rng.normal(size=9000)) if tails == "log-normal" else rng.random(9000) < 0.01
        found = fit_target_encoding(category, np.asarray(y, float), numeric=[bins(x)])[0]
        assert not found.is_informative, seed


def test_uninformative_outputs_are_omitted():
    rng = np.random.default_rng(0)
    x, category = rng.normal(size=4000), rng.integers(0, 400, 4000)
    other = [FeatureCodes("x", cells(x, 250).astype(np.uint8), 250)]
    Y = np.column_stack([x, rng.normal(size=400)[category], x]) + 0.3 * rng.normal(size=(4000, 3))
    assert fit_target_encoding(category, Y, numeric=other)[0].labels == ("mean of 1",)


def test_integer_weights_equal_repeated_rows():
    X, y = effects(3000, 300, noise=1.0)
    weight = np.ones(3000)
    weight[X[:, 0] == 7] = 0
    wide, training = fit_target_encoding(X[:, 0], np.where(weight > 0, y, 1e6), weight)
    assert 7.0 not in wide.categories and len(wide.categories) == 299
    assert np.isnan(training[weight == 0]).all() and np.isfinite(training[weight > 0]).all()
    kept, _ = fit_target_encoding(X[weight > 0, 0], y[weight > 0])
    np.testing.assert_allclose(wide.values, kept.values, rtol=1e-4, atol=1e-6)
    doubled, _ = fit_target_encoding(X[:, 0], y, np.full(3000, 2.0))
    np.testing.assert_array_equal(doubled.values, fit_target_encoding(X[:, 0], y)[0].values)


def test_missing_targets_are_ignored():
    X, y = effects(4000, 300, n_outputs=2, noise=0.5)
    y[::2, 1] = np.nan
    wide, _ = fit_target_encoding(
        X[:, 0], y, target=encode_regression(RowData(y), missing="ignore")
    )
    alone, _ = fit_target_encoding(X[:, 0], y, target=encode_regression(RowData(y[:, :1])))
    assert wide.labels == ("mean of 0", "mean of 1") and np.isfinite(wide.values).all()
    np.testing.assert_allclose(wide.values[:, 0], alone.values[:, 0], rtol=1e-6)


@pytest.mark.parametrize("n_outputs", [32, 33, 200])
def test_many_outputs_are_reduced_to_principal_directions(n_outputs):
    rng = np.random.default_rng(1)
    category, factors = rng.integers(0, 300, 4000), rng.normal(size=(300, 2))
    y = factors[category] @ rng.normal(size=(2, n_outputs)) + rng.normal(size=(4000, n_outputs))
    wide, _ = fit_target_encoding(category, y)
    assert len(wide.labels) == (32 if n_outputs == 32 else 16)
    fitted = np.linalg.lstsq(wide.values, factors, rcond=None)[0]
    assert 1 - ((wide.values @ fitted - factors) ** 2).sum() / (factors**2).sum() > 0.95


def test_each_class_and_label_has_a_statistic():
    rng = np.random.default_rng(0)
    category = rng.integers(0, 300, 3000)
    ids = (category + rng.integers(0, 2, 3000)) % 3
    two = encode_classification(RowData(np.array(["no", "yes"])[ids % 2]))
    assert fit_target_encoding(category, None, target=two)[0].labels == ("mean",)
    three = encode_classification(RowData(np.array(["a", "b", "c"])[ids]))
    wide, _ = fit_target_encoding(category, None, target=three)
    assert wide.labels == ("mean of a", "mean of b", "mean of c")
    labels = np.eye(3)[ids]
    many = fit_target_encoding(category, None, target=encode_classification(RowData(labels)))[0]
    sparse = fit_target_encoding(
        category, None, target=encode_sparse(RowData(sp.csr_matrix(labels)), kind="multilabel")
    )[0]
    np.testing.assert_array_equal(many.values, wide.values)
    np.testing.assert_array_equal(sparse.values, wide.values)


def test_many_sparse_labels_are_hashed():
    rng = np.random.default_rng(0)
    category = rng.integers(0, 300, 3000)
    labels = sp.csr_matrix((np.ones(3000), (np.arange(3000), category * 7)), (3000, 5000))
    wide, training = fit_target_encoding(
        category, None, target=encode_sparse(RowData(labels), kind="multilabel")
    )
    assert wide.values.shape == (300, 16) and np.isfinite(training).all()
    dense = encode_classification(RowData(labels.toarray()))
    np.testing.assert_array_equal(
        fit_target_encoding(category, None, target=dense)[0].values, wide.values
    )


PROGRAM = """
import zlib
import numpy as np
from support.high_cardinality import effects
from polyleaf import PolyleafRegressor
for n_outputs in (1, 40):
    X, y = effects(3000, 400, n_outputs)
    X[:, 0][::50] = np.nan
    for n_jobs in (1, 3):
        est = PolyleafRegressor(n_estimators=5, categorical_features=[0], n_jobs=n_jobs)
        model = est.fit(X, y).model_
        meta, arrays = model.mapper.to_state()
        content = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
        print(n_outputs, zlib.crc32(content))
        print(zlib.crc32(model.predict_raw(__import__("polyleaf").user_data.features.read_features(
            X, reference=model.mapper), n_threads=n_jobs).tobytes()))
"""


@pytest.mark.full
def test_instruction_sets_and_threads_give_the_same_bits():
    printed = run_on_each_isa(PROGRAM)
    assert len(set(printed)) == 1
    lines = printed[0].split("\n")
    assert lines[0:2] == lines[2:4] and lines[4:6] == lines[6:8]
