"""Bins: codes equal a naive NumPy implementation; choice of thresholds; serialisation."""

import copy
import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from support.isa import run_on_each_isa
from support.pairwise import parametrize_pairs

from polyleaf import _core
from polyleaf.binned_data.binning import BinMapper
from polyleaf.user_data.features import read_features


def naive_codes(mapper, X):
    """Return codes by definition: the number of thresholds below x; 255 for NaN."""
    codes = np.empty(X.T.shape, dtype=np.uint8)
    for f in range(X.shape[1]):
        x = X[:, f].astype(np.float64)
        if not mapper.float64_bins_[f]:
            with np.errstate(over="ignore"):
                x = x.astype(np.float32)
        codes[f] = (x[:, None] > mapper.thresholds_[f]).sum(axis=1)
        codes[f, np.isnan(x)] = 255
    return codes


def fit_mapper(X, max_bins=255, sample_weight=None, n_threads=1, **options):
    """Fit a mapper; return it with the codes of X."""
    table = read_features(X)
    mapper = BinMapper(max_bins, **options).fit(table, sample_weight, n_threads)
    return mapper, mapper.transform(table, n_threads)


def assert_same_bins(a, b):
    for first, second in zip(a.thresholds_, b.thresholds_, strict=True):
        np.testing.assert_array_equal(first, second)
    assert a.has_same_bins(b)


def column(x):
    return np.asarray(x, dtype=np.float64).reshape(-1, 1)


# --- codes ---


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(
        st.floats(allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 1 + 2.0**-40]),
        min_size=1,
    ),
    others=st.lists(st.floats(allow_infinity=False), min_size=1),
    max_bins=st.integers(2, 255),
)
def test_codes_equal_the_definition(values, others, max_bins):
    mapper, codes = fit_mapper(column(values), max_bins)
    np.testing.assert_array_equal(codes, naive_codes(mapper, column(values)))
    compared = np.asarray(values, np.float64 if mapper.float64_bins_[0] else np.float32)
    expected = [np.fmin.reduce(compared), np.fmax.reduce(compared)]
    np.testing.assert_array_equal(mapper.ranges_[:, 0], expected)
    new = column(others)
    np.testing.assert_array_equal(mapper.transform(read_features(new)), naive_codes(mapper, new))
    assert mapper.n_bins_[0] == len(mapper.thresholds_[0]) + 1 <= max_bins


@pytest.mark.parametrize(
    "n_distinct", [1, 2, 15, 16, 17, 18, 31, 32, 33, 128, 239, 240, 241, 254, 255]
)
@pytest.mark.parametrize("wide", [False, True])
def test_all_table_sizes(n_distinct, wide):
    values = np.arange(n_distinct) * (1e-12 if wide else 1.0) + 1
    X = column([*np.repeat(values, 3), np.nan])
    mapper, codes = fit_mapper(X)
    assert mapper.n_bins_[0] == n_distinct and mapper.float64_bins_[0] == (wide and n_distinct > 1)
    np.testing.assert_array_equal(codes[0], [*np.repeat(np.arange(n_distinct), 3), 255])
    thresholds = mapper.thresholds_[0]
    ends = read_features(column([*thresholds, 1e30]))
    np.testing.assert_array_equal(mapper.transform(ends)[0], np.arange(n_distinct))


@parametrize_pairs(
    dtype=[np.float32, np.float64],
    order=["C", "F"],
    shape=[(1, 1), (1, 200), (3, 70), (1023, 3), (1025, 65), (5000, 2)],
)
def test_all_shapes_and_memory_orders(dtype, order, shape):
    rng = np.random.default_rng(0)
    X = np.where(rng.random(shape) < 0.1, np.nan, rng.normal(size=shape)).astype(dtype)
    mapper, codes = fit_mapper(np.asarray(X, order=order), n_threads=2)
    np.testing.assert_array_equal(codes, naive_codes(mapper, X))


def test_values_at_a_threshold_belong_to_the_lower_bin():
    X = column(np.random.default_rng(0).normal(size=1000))
    mapper, codes = fit_mapper(X, 16)
    for code in range(16):
        is_below = X[:, 0].astype(np.float32) <= mapper.threshold_value(0, code)
        np.testing.assert_array_equal(codes[0] <= code, is_below)
    assert mapper.threshold_value(0, 15) == np.inf


# --- thresholds ---


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_few_distinct_values_have_float32_thresholds(values):
    mapper, codes = fit_mapper(column(values))
    distinct, index = np.unique(np.float32(values) + np.float32(0), return_inverse=True)
    np.testing.assert_array_equal(codes[0], index)
    thresholds = mapper.thresholds_[0]
    np.testing.assert_array_equal(thresholds, thresholds.astype(np.float32))
    assert (distinct[:-1] <= thresholds).all() and (thresholds < distinct[1:]).all()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), max_bins=st.integers(2, 40), n_distinct=st.integers(1, 120))
def test_frequent_values_have_their_own_bin_and_all_bins_are_used(seed, max_bins, n_distinct):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_distinct, rng.choice([0.05, 0.5, 5])))
    x = rng.choice(n_distinct, size=2000, p=shares)
    mapper, codes = fit_mapper(column(x), max_bins)
    counts = np.bincount(x, minlength=n_distinct)
    assert mapper.n_bins_[0] <= max_bins
    assert np.unique(codes[0]).tolist() == list(range(mapper.n_bins_[0]))
    heavy = np.flatnonzero(counts * max_bins >= len(x))[: max_bins - 1]
    codes_of_heavy = [codes[0][x == value][0] for value in heavy]
    assert len(set(codes_of_heavy)) == len(heavy)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(size=n),
        lambda rng, n: rng.lognormal(0, 3, n),
        lambda rng, n: np.where(rng.random(n) < 0.9, 0, rng.normal(size=n)),
        lambda rng, n: np.where(
            rng.random(n) < 0.4, -1, np.where(rng.random(n) < 0.3, 5, rng.lognormal(0, 3, n))
        ),
        lambda rng, n: rng.zipf(1.3, n).clip(max=10**9),
        lambda rng, n: np.round(rng.normal(size=n), 2),
        lambda rng, n: np.where(rng.random(n) < 0.8, rng.integers(0, 400, n), rng.random(n) * 400),
    ],
    ids=["normal", "lognormal", "zeros", "two spikes", "zipf", "rounded", "many spikes"],
)
@pytest.mark.parametrize("max_bins", [16, 255])
def test_bins_of_several_values_have_equal_weights(draw, max_bins):
    x = draw(np.random.default_rng(0), 50_000).astype(np.float32)
    mapper, codes = fit_mapper(x.reshape(-1, 1), max_bins, subsample=None)
    assert mapper.n_bins_[0] > 0.95 * max_bins
    weights = np.bincount(codes[0])
    for code, weight in enumerate(weights):
        inside = x[codes[0] == code]
        assert weight <= 2 * len(x) / max_bins or (inside == inside[0]).all()


def test_float32_and_float64_give_the_same_bins():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=5000), rng.integers(0, 1000, 5000), rng.lognormal(size=5000)
    X = np.column_stack([a, b, c / 3])
    narrow, wide = fit_mapper(X.astype(np.float32)), fit_mapper(X)
    assert_same_bins(narrow[0], wide[0])
    np.testing.assert_array_equal(narrow[1], wide[1])
    assert not wide[0].float64_bins_.any()


@pytest.mark.parametrize(
    "values",
    [
        1.7e9 + np.arange(1000),  # seconds since 1970
        2**40 + np.arange(1000),
        np.array([1e300, 1.0, -1e300]),
        1 + np.arange(10) * 1e-12,
    ],
    ids=["timestamps", "ids", "range", "tiny steps"],
)
def test_values_beyond_float32_precision_use_float64_thresholds(values):
    mapper, codes = fit_mapper(column(values))
    assert mapper.float64_bins_[0]
    np.testing.assert_array_equal(codes, naive_codes(mapper, column(values)))
    assert np.bincount(codes[0]).max() <= -(-2 * len(values) // 255)


def test_constant_and_missing_columns():
    X = np.column_stack([np.full(10, 3.0), np.full(10, np.nan), [np.nan] * 9 + [1.0]])
    mapper, codes = fit_mapper(X)
    assert mapper.n_bins_.tolist() == [1, 1, 1] and mapper.n_bins_.dtype == np.uint16
    np.testing.assert_array_equal(codes, [[0] * 10, [255] * 10, [255] * 9 + [0]])


# --- weights and samples ---


@pytest.mark.parametrize("max_bins", [4, 255])
@pytest.mark.parametrize("scale", [1, 2.0**-80, 2.0**900])
def test_integer_weights_equal_repeated_rows(max_bins, scale):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 300, 400), rng.normal(size=400)])
    X[rng.random(X.shape) < 0.1] = np.nan
    weights = rng.integers(0, 5, 400)
    table, repeated = read_features(X, categorical_features=[1]), np.repeat(X, weights, axis=0)
    weighted = BinMapper(max_bins).fit(table, weights * scale)
    longer = read_features(repeated, categorical_features=[1])
    assert_same_bins(weighted, BinMapper(max_bins).fit(longer))


def test_sparse_weights_equal_dense_weights():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((3000, 4)) < 0.3, rng.normal(size=(3000, 4)), 0)
    weights = rng.random(3000) * (rng.random(3000) < 0.8)
    for subsample in (None, 500):
        dense = fit_mapper(X, 32, weights, subsample=subsample)
        sparse = fit_mapper(sp.csr_matrix(X), 32, weights, subsample=subsample, n_threads=2)
        assert_same_bins(dense[0], sparse[0])
        np.testing.assert_array_equal(dense[1], sparse[1])


def test_weights_per_output_are_summed():
    X = column(np.random.default_rng(0).normal(size=300))
    weights = np.random.default_rng(1).integers(0, 3, (300, 2))
    assert_same_bins(fit_mapper(X, 8, weights)[0], fit_mapper(X, 8, weights.sum(axis=1))[0])


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.zeros(4), "zero for every row"),
        ([1, -1, 1, 1], "row 1 has -1"),
        ([1, 1, np.nan, 1], "row 2 has nan"),
        ([1, 1, 1, np.inf], "row 3 has inf"),
        (np.ones(3), r"shape \(3,\), but X has 4 rows"),
    ],
)
def test_invalid_weights_raise(weights, words):
    with pytest.raises(ValueError, match=words):
        BinMapper().fit(read_features(np.ones((4, 1))), weights)


def test_sample_is_seeded_and_accurate():
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    sampled, again = fit_mapper(x, 16, subsample=5000), fit_mapper(x, 16, subsample=5000)
    assert_same_bins(sampled[0], again[0])
    assert not sampled[0].has_same_bins(fit_mapper(x, 16, subsample=5000, random_state=1)[0])
    shares = np.bincount(sampled[1][0], minlength=16) / len(x) * 16
    assert 0.8 < shares.min() and shares.max() < 1.2


def test_rows_of_weight_zero_are_never_sampled():
    x = column(np.arange(10_000))
    weights = (x[:, 0] < 2000).astype(float)
    assert fit_mapper(x, 16, weights, subsample=100)[0].thresholds_[0].max() < 2000


# --- categories ---


@pytest.mark.parametrize("max_bins", [2, 16, 255])
def test_categories_are_sorted_with_one_bin_each(max_bins):
    values = np.random.default_rng(0).permutation(np.repeat(np.arange(255), 3)).astype(float)
    mapper = BinMapper(max_bins).fit(read_features(column(values), categorical_features=[0]))
    assert mapper.categories_ == [list(range(255))] and mapper.rare_categories_ == [[]]
    assert mapper.n_bins_[0] == 255
    new = read_features(column([3, 254, 255, np.nan]), reference=mapper)
    np.testing.assert_array_equal(mapper.transform(new)[0], [3, 254, 255, 255])


@pytest.mark.parametrize("max_bins", [2, 255])
def test_rarest_of_more_than_255_categories_share_a_bin(max_bins):
    values, weights = np.arange(300.0), np.ones(300)
    weights[:46], weights[0] = 0.5, 0.0
    table = read_features(column(values), categorical_features=[0])
    mapper = BinMapper(max_bins).fit(table, weights)
    assert mapper.categories_ == [list(range(46, 300))]
    assert mapper.rare_categories_ == [list(range(1, 46))]
    assert mapper.transform(table)[0].tolist() == [255] + [254] * 45 + list(range(254))


def test_numbers_sort_before_text_and_compare_by_value():
    X = np.array([["b"], [2], ["a"], [True], [10]], dtype=object)
    mapper = BinMapper().fit(read_features(X, categorical_features=[0]))
    assert mapper.categories_ == [[True, 2, 10, "a", "b"]]
    numbers = read_features(np.array([[1.0], [2.0]]), reference=mapper)
    assert mapper.transform(numbers).tolist() == [[0, 1]]


def test_all_categories_missing():
    mapper = BinMapper().fit(read_features(np.full((3, 1), np.nan), categorical_features=[0]))
    assert mapper.n_bins_[0] == 1 and mapper.categories_ == [[]]
    assert mapper.transform(read_features(np.ones((1, 1)), reference=mapper)).tolist() == [[255]]


def test_categories_of_another_type_raise():
    mapper = BinMapper().fit(read_features(column([1, 2]), categorical_features=[0]))
    table = read_features(np.array([["1"], ["2"]], dtype=object), reference=mapper)
    with pytest.raises(ValueError, match="were numbers when the model was fitted and are text now"):
        mapper.transform(table)


def test_transform_checks_the_table():
    mapper = BinMapper().fit(read_features(np.ones((3, 2))))
    with pytest.raises(ValueError, match="X has 3 features, but BinMapper is expecting 2"):
        mapper.transform(read_features(np.ones((3, 3))))
    with pytest.raises(ValueError, match=r"held numbers.*read as categories now"):
        mapper.transform(read_features(np.ones((3, 2)), categorical_features=[1]))


@pytest.mark.parametrize("max_bins", [1, 256, 0, 10.0])
def test_invalid_max_bins_raises(max_bins):
    with pytest.raises(ValueError, match="max_bins must be an integer from 2 to 255"):
        BinMapper(max_bins).fit(read_features(np.ones((3, 1))))


# --- independence of threads and instruction sets ---

PROGRAM = """
import hashlib
import numpy as np
import scipy.sparse as sp
from polyleaf.binned_data.binning import BinMapper
from polyleaf.user_data.features import read_features
rng = np.random.default_rng(0)
X = rng.normal(size=(4000, 70)) * 10.0 ** rng.integers(-3, 12, 70)
X[rng.random(X.shape) < 0.1] = np.nan
X[:, :5] = np.round(X[:, :5])
X[:, 5] = 1.7e9 + np.arange(4000)
digest = hashlib.sha256()
for Z in (X, X.astype(np.float32), sp.csr_matrix(np.nan_to_num(X))):
    table = read_features(Z)
    for n_threads in (1, 2, 7):
        mapper = BinMapper(subsample=3000).fit(table, np.arange(4000) % 7, n_threads)
        codes = mapper.transform(table, n_threads)
        for array in (*mapper.thresholds_, mapper.float64_bins_, codes):
            digest.update(array.tobytes())
        if n_threads == 1:
            first = codes
        assert (first == codes).all()
print(digest.hexdigest())
"""


@pytest.mark.full
def test_instruction_sets_and_threads_give_the_same_bits():
    assert len(set(run_on_each_isa(PROGRAM))) == 1


# --- serialisation ---


def example():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=400), 1.7e9 + np.arange(400)
    X = np.column_stack([*numbers, rng.integers(0, 9, 400), np.ones(400)])
    table = read_features(X, categorical_features=[2], feature_names=list("abcd"))
    return BinMapper(8).fit(table), table


def test_ranges_are_those_of_the_rows_with_weight():
    X = np.array([[0.1, np.nan, 1e300], [-5.0, np.nan, 2.0], [7.0, np.nan, np.nan]])
    mapper, _ = fit_mapper(X)
    expected = [[-5.0, np.nan, 2.0], [7.0, np.nan, 1e300]]
    np.testing.assert_array_equal(mapper.ranges_, expected)
    mapper, _ = fit_mapper(X, sample_weight=[1, 1, 0])
    np.testing.assert_array_equal(mapper.ranges_[:, 0], np.float32([-5.0, 0.1]))
    single, _ = fit_mapper(X.astype(np.float32)[:, :1])
    np.testing.assert_array_equal(single.ranges_, fit_mapper(X[:, :1])[0].ranges_)
    sampled, _ = fit_mapper(column(np.arange(1000)), subsample=10, random_state=0)
    low, high = sampled.ranges_[:, 0]
    assert 0 < low < high < 999
    outside = sampled.count_outside(read_features(column(np.arange(1000))))
    assert outside.tolist() == [999 - (high - low)]


def test_ranges_of_sparse_columns_have_their_zeros():
    X = np.zeros((400, 4))
    X[:3, 0], X[:, 1], X[5, 2] = [2.0, -1.0, np.nan], np.arange(400) + 1, np.nan
    for container in (sp.csc_matrix, sp.csr_matrix, np.asarray):
        mapper, _ = fit_mapper(container(X))
        np.testing.assert_array_equal(mapper.ranges_, [[-1, 1, 0, 0], [2, 400, 0, 0]])
        other = np.zeros((10, 4))
        other[:2, 0], other[:3, 2] = [3.0, -2.0], [0.5, np.nan, 0.0]
        outside = mapper.count_outside(read_features(container(other)))
        assert outside.tolist() == [2, 10, 1, 0]


def test_state_round_trip_through_json():
    mapper, table = example()
    meta, arrays = mapper.to_state()
    again = BinMapper.from_state(json.loads(json.dumps(meta)), arrays)
    assert again.has_same_bins(mapper) and again.feature_names_ == mapper.feature_names_
    np.testing.assert_array_equal(again.n_bins_, mapper.n_bins_)
    assert again.to_state()[0] == meta
    for other in (again, pickle.loads(pickle.dumps(mapper))):
        np.testing.assert_array_equal(other.transform(table), mapper.transform(table))
    assert isinstance(copy.deepcopy(BinMapper()), BinMapper)
    np.testing.assert_array_equal(again.ranges_, mapper.ranges_)
    earlier = {name: array for name, array in arrays.items() if name != "ranges"}
    assert BinMapper.from_state(meta, earlier).ranges_ is None
    with pytest.raises(ValueError, match="ranges of the wrong length"):
        BinMapper.from_state(meta, {**arrays, "ranges": arrays["ranges"][1:]})


def make_replacement(position, value):
    def change(array):
        array = array.copy()
        array[position] = value
        return array

    return change


HOSTILE_META = [
    ({"n_features": 0}, "number of features"),
    ({"n_features": "4"}, "number of features"),
    ({"n_features": True}, "number of features"),
    ({"n_features": 10**12}, "number of features"),
    ({"n_features": 5}, "wrong length|feature names"),
    ({"n_features": 2**31 - 1, "feature_names": None}, "wrong length"),
    ({"max_bins": 256}, "max_bins"),
    ({"max_bins": None}, "max_bins"),
    ({"max_bins": 3}, "too many"),
    ({"feature_names": ["a"]}, "feature names"),
    ({"feature_names": [1, 2, 3, 4]}, "not text"),
    ({"feature_names": "abcd"}, "not text"),
    ({"categories": None}, "no list"),
    ({"categories": [3]}, "malformed"),
    ({"categories": [{"feature": 2, "kept": [1]}]}, "malformed"),
    ({"categories": [{"feature": 9, "kept": [1], "rare": []}]}, "does not exist"),
    ({"categories": [{"feature": -1, "kept": [1], "rare": []}]}, "does not exist"),
    ({"categories": [{"feature": 2, "kept": [[1]], "rare": []}]}, "not text, finite"),
    ({"categories": [{"feature": 2, "kept": [None], "rare": []}]}, "not text, finite"),
    ({"categories": [{"feature": 2, "kept": [float("nan")], "rare": []}]}, "not text, finite"),
    ({"categories": [{"feature": 2, "kept": "abc", "rare": []}]}, "not text, finite"),
    ({"categories": [{"feature": 2, "kept": [1], "rare": [1]}]}, "repeats"),
    ({"categories": [{"feature": 2, "kept": list(range(256)), "rare": []}]}, "too many categories"),
    ({"categories": [{"feature": 2, "kept": [], "rare": []}] * 2}, "twice"),
    ({"categories": [{"feature": 0, "kept": [], "rare": []}]}, "gives thresholds to a categorical"),
]
HOSTILE_ARRAYS = [
    ("thresholds", lambda a: a[:-1], "no feature"),
    ("thresholds", lambda a: a.astype(np.float32), "float64 array"),
    ("thresholds", lambda a: a.reshape(1, -1), "one-dimensional"),
    ("thresholds", lambda a: None, "float64 array"),
    ("thresholds", lambda a: a[::-1].copy(), "ascend"),
    ("thresholds", make_replacement(0, -1.0 - 1e-12), "not float32"),
    ("thresholds", make_replacement(0, np.nan), "not finite"),
    ("thresholds", make_replacement(0, -np.inf), "not finite"),
    ("thresholds", make_replacement(0, -1e300), "not float32"),
    ("offsets", lambda a: a[:-1], "wrong length"),
    ("offsets", make_replacement(1, 2**62), "outside"),
    ("offsets", make_replacement(1, -(2**62)), "outside"),
    ("offsets", make_replacement(2, 0), "too many"),
    ("offsets", make_replacement(0, 1), "no feature"),
    ("offsets", lambda a: a.astype(np.int32), "int64 array"),
    ("float64_bins", lambda a: a[:0], "wrong length"),
    ("float64_bins", make_replacement(0, 2), "flags"),
]


@pytest.mark.parametrize(("change", "words"), HOSTILE_META)
def test_hostile_metadata_raise(change, words):
    meta, arrays = example()[0].to_state()
    with pytest.raises(ValueError, match=words):
        BinMapper.from_state({**meta, **change}, arrays)


@pytest.mark.parametrize(("name", "change", "words"), HOSTILE_ARRAYS)
def test_hostile_arrays_raise(name, change, words):
    meta, arrays = example()[0].to_state()
    with pytest.raises(ValueError, match=words):
        BinMapper.from_state(meta, {**arrays, name: change(arrays[name])})
    del arrays[name]
    with pytest.raises(ValueError, match=name):
        BinMapper.from_state(meta, arrays)


def test_core_checks_for_memory_safety():
    X, features, codes = np.ones((3, 2)), np.arange(2), np.empty((2, 3), np.uint8)
    bins = _core.BinTable(np.empty(0), np.zeros(3, np.int64), np.zeros(2, bool))
    wrong = [(X, features + 1), (X, features - 1), (X[:2], features), (X, features[:1])]
    wrong.append((X.astype(complex), features))
    for dense in (*([block] for block in wrong), [(X, features)] * 2):
        with pytest.raises(ValueError):
            bins.transform(dense, [], [], codes, 1)
    for indptr in ([0, 2, 1], [0, 1, 9], [-1, 0, 1], [0, 1]):
        with pytest.raises(ValueError):
            sparse = (np.ones(3), np.zeros(3, np.int32), np.array(indptr, dtype=np.int64), features)
            bins.transform([], [sparse], [], codes, 1)
    for sample in ((np.array([3]), None), (None, np.ones(2, np.int64))):
        with pytest.raises(ValueError):
            _core.find_thresholds([(X, features)], [], 3, 2, *sample, 255, 1)
    for n_bins in ([1], [1, 256]):
        with pytest.raises(ValueError, match="n_bins must"):
            _core.count_codes(codes, np.array(n_bins, np.uint16), 1)
    with pytest.raises(ValueError):
        _core.BinTable(np.arange(255.0), np.array([0, 255]), np.zeros(1, bool))
