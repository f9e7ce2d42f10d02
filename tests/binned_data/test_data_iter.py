"""Datasets from batches equal those of the whole table, for any batches."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor
from polyleaf.binned_data.binning import BinMapper

pd = pytest.importorskip("pandas")


def split_batches(size, *arrays):
    """Return a function that yields batches of the given numbers of rows."""

    def batches():
        n = len(arrays[0])
        for begin in range(0, n, size):
            rows = slice(begin, begin + size)
            parts = tuple(a.iloc[rows] if hasattr(a, "iloc") else a[rows] for a in arrays)
            yield parts[0] if len(parts) == 1 else parts

    return batches


def assert_same_bins_and_codes(found, expected):
    assert found.mapper.to_state()[0] == expected.mapper.to_state()[0]
    for name, array in expected.mapper.to_state()[1].items():
        np.testing.assert_array_equal(found.mapper.to_state()[1][name], array)
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert found.shape == expected.shape


def mixed(n, seed=0):
    """Return a table with all kinds of columns, a target and weights."""
    rng = np.random.default_rng(seed)
    columns = {
        "wide": 1e9 + np.arange(n) * 0.25,
        "few": rng.integers(0, 3, n),
        "number": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
        "text": rng.choice(["a", "b", None], n).astype(object),
        "rare_text": np.where(np.arange(n) == n - 1, "only here", None),
        "category": pd.Categorical(rng.choice(list("xyz"), n)),
        "single": rng.normal(size=n).astype(np.float32),
    }
    X = pd.DataFrame(columns)
    y = X["number"].fillna(0).to_numpy() + (X["text"] == "a")
    return X, y.to_numpy(), np.where(rng.random(n) < 0.2, 0.0, rng.random(n))


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_models_equal_those_of_the_whole_table(size, weighted, tmp_path):
    X, y, weight = mixed(120)
    arrays = (X, y, weight) if weighted else (X, y)
    found = Dataset.from_batches(split_batches(size, *arrays), max_bins=16)
    expected = Dataset(X, y, sample_weight=weight if weighted else None, max_bins=16)
    assert_same_bins_and_codes(found, expected)
    np.testing.assert_array_equal(found.y, y)
    files = []
    for name, data in (("found", found), ("expected", expected)):
        model = PolyleafRegressor(n_estimators=5, min_child_weight=1).fit(data)
        model.save_model(tmp_path / name)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    plain = PolyleafRegressor(n_estimators=5, min_child_weight=1, max_bins=16)
    plain.fit(X, y, sample_weight=weight if weighted else None)
    np.testing.assert_array_equal(plain.predict(X), model.predict(X))


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 3), st.booleans())
@settings(max_examples=25, deadline=None)
def test_all_batch_shapes(n, size, seed, weighted):
    X, y, weight = mixed(n, seed)
    weight[0] = 1.0
    arrays = (X, y, weight) if weighted else (X, y)
    found = Dataset.from_batches(split_batches(size, *arrays), max_bins=5)
    expected = Dataset(X, sample_weight=weight if weighted else None, max_bins=5)
    assert_same_bins_and_codes(found, expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [11, 64, 5000])
def test_thresholds_are_chosen_from_the_same_rows(size, weighted, monkeypatch):
    """There are more rows than the sample for thresholds."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 3))
    weight = np.where(rng.random(3000) < 0.3, 0, rng.random(3000))
    monkeypatch.setattr(BinMapper.__init__, "__kwdefaults__", {"subsample": 100, "random_state": 0})
    expected = Dataset(X, sample_weight=weight if weighted else None)
    assert max(map(len, expected.mapper.thresholds_)) < 100
    arrays = (X, np.zeros(3000), weight) if weighted else (X,)
    assert_same_bins_and_codes(Dataset.from_batches(split_batches(size, *arrays)), expected)


def test_dtypes_may_differ_between_batches():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(25, 2))
    parts = [rng.integers(0, 9, (20, 2)), numbers[:20].astype(np.float32), numbers[20:]]
    assert_same_bins_and_codes(Dataset.from_batches(parts), Dataset(np.concatenate(parts)))


def test_high_cardinality_features():
    rng = np.random.default_rng(0)
    names = np.array([f"c{i}" for i in range(400)])
    X = pd.DataFrame({"id": rng.choice(names, 4000), "x": rng.normal(size=4000)})
    y = X["x"] + (X["id"].str.len() == 3)
    found = Dataset.from_batches(split_batches(300, X, y), categorical_features=["id"])
    expected = Dataset(X, y, categorical_features=["id"])
    predictions = [
        PolyleafRegressor(n_estimators=5).fit(data).predict(X) for data in (found, expected)
    ]
    np.testing.assert_array_equal(*predictions)


def test_classes_of_one_batch_and_several_targets():
    X = np.arange(60.0).reshape(30, 2)
    y = np.repeat(["left", "right", "straight on"], 10)
    data = Dataset.from_batches(split_batches(10, X, y))
    assert PolyleafClassifier(n_estimators=2).fit(data).classes_.tolist() == sorted(set(y))
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    data = Dataset.from_batches(split_batches(7, X, frame))
    assert PolyleafRegressor(n_estimators=2).fit(data).model_.output_names == ("a", "b")
    labels = scipy.sparse.csr_matrix(np.eye(3, dtype=np.int64)[np.arange(30) % 3])
    joined = Dataset.from_batches([(X[:9], labels[:9]), (X[9:], labels[9:])]).y
    assert (joined != labels).nnz == 0


def test_reference_and_raw_values():
    X, _, _ = mixed(90)
    train = Dataset(X)
    found = Dataset.from_batches(split_batches(8, X.iloc[:50]), reference=train, keep_features=True)
    expected = Dataset(X.iloc[:50], reference=train, keep_features=True)
    assert_same_bins_and_codes(found, expected)
    np.testing.assert_array_equal(found.features, expected.features)


def test_empty_batches_are_ignored():
    X = np.arange(20.0).reshape(10, 2)
    assert_same_bins_and_codes(Dataset.from_batches([X[:0], X[:3], X[3:3], X[3:]]), Dataset(X))
    with pytest.raises(ValueError, match="hold no rows"):
        Dataset.from_batches([X[:0]])


def test_one_shot_iterators_and_changing_batches_raise():
    X = np.arange(20.0).reshape(10, 2)
    with pytest.raises(ValueError, match="a function that returns a new iterator"):
        Dataset.from_batches(iter([X]))
    for second in ([X], [X, X, X]):
        readings = iter([[X, X], second])
        with pytest.raises(ValueError, match="must be the same in each pass"):
            Dataset.from_batches(lambda readings=readings: next(readings))


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([np.zeros((2, 2)), np.zeros((2, 3))], "Batch 1: X has 3 features"),
        ([pd.DataFrame({name: [1]}) for name in "ab"], "Batch 1: The feature names should match"),
        ([np.zeros((2, 2)), np.full((2, 2), np.inf)], "Batch 1: Input X contains infinity"),
        ([(np.zeros((2, 2)), [1])], "Batch 0: y has 1 rows, but X has 2"),
        ([(np.zeros((2, 2)), [1, 2]), np.zeros((2, 2))], "Batch 1: y is in some batches"),
        ([np.zeros((2, 2)), (np.zeros((2, 2)), [1, 2])], "Batch 1: y is in some batches"),
        ([scipy.sparse.eye(2)], "Batch 0 is a sparse matrix"),
        ([(1, 2, 3, 4, 5)], "Batch 0 is a tuple of 5"),
        ([{"X": np.ones((20, 2))}], r"Batch 0 is a dict, but must be X, \(X, y\)"),
        ([(np.zeros((2, 1)), list(y)) for y in ([1, 2], "ab")], "y holds text in some batches"),
        (
            [pd.DataFrame({"a": [1.0]}), pd.DataFrame({"a": ["x"]})],
            "Batch 1: column 'a' of X holds numbers in some batches and text in others",
        ),
        (
            [pd.DataFrame({"a": a}) for a in (list("123456789012345"), ["16", "17", "none here"])],
            "row 17 holds the text 'none here'",
        ),
    ],
)
def test_errors_name_the_batch(batches, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_batches(batches)


def test_lazy_frames_raise():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="X of batch 0 is a lazy frame"):
        Dataset.from_batches([polars.LazyFrame({"a": [1.0]})])


def test_text_that_differs_in_every_row_warns_once():
    X = pd.DataFrame({"name": [f"row {i}" for i in range(40)], "x": np.arange(40.0)})
    with pytest.warns(UserWarning, match="differs in every row") as printed:
        Dataset.from_batches(split_batches(5, X))
    assert len(printed) == 1


# --- cache_dir ---


def numbers(n=2500, n_features=19, seed=0):
    """Return features of all numbers of tiles, and two targets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    X[:, 3] = rng.integers(0, 2, n)
    X[:, 4] = rng.integers(0, 9, n)
    if n_features > 5:
        X[:, 5] = rng.integers(0, 40, n)
    X[rng.random(X.shape) < 0.05] = np.nan
    clean = np.nan_to_num(X)
    y = np.column_stack([clean[:, 0] * clean[:, 1], clean[:, 2] + (clean[:, 4] > 4)])
    return X, y + 0.1 * rng.normal(size=y.shape)


PRESETS = {
    "by gain": {},
    "by level": {"grow_policy": "depthwise", "max_depth": 5, "max_leaves": None},
    "a tree for each output": {"multi_strategy": "one_output_per_tree"},
    "rows drawn": {"subsample": 0.6},
    "rows of large gradients": {"sampling_method": "goss"},
    "layers": {
        "boosting_step": "layer",
        "grow_policy": "depthwise",
        "max_depth": 3,
        "rows_per_layer": [0.4, 0.7],
    },
    "pruned": {"pruning": "post"},
    "sparse leaves": {"leaf": "sparse", "leaf_k": 1},
    "quantile leaves": {"objective": "absolute_error"},
    "linear leaves": {"leaf": "linear"},
    "linear leaves, full": {"leaf": "linear", "linear_fit": "full"},
    "a sketch": {"sketch": "random_projection", "sketch_dim": 1},
    "hessian": {"objective": "poisson", "hessian": "full"},
}


@pytest.mark.parametrize("recipe", PRESETS)
def test_models_from_a_file_equal_those_from_memory(recipe, tmp_path):
    X, y = numbers()
    y = np.abs(y).round()
    options = {"categorical_features": [4, 5], "keep_features": "linear" in recipe}
    held = Dataset(X, y, **options)
    filed = Dataset.from_batches(split_batches(1100, X, y), cache_dir=tmp_path, **options)
    models = []
    for data in (held, filed):
        model = PolyleafRegressor(n_estimators=4, calibrate_quantiles=False).set_params(
            **PRESETS[recipe]
        )
        models.append(model.fit(data, eval_set=[(data, y)]))
    assert models[0].save_model() == models[1].save_model()
    assert models[0].evals_result_ == models[1].evals_result_


@pytest.mark.parametrize("n_jobs", [1, 4])
def test_large_nodes_of_a_file_are_split_between_threads(n_jobs, tmp_path):
    X, y = numbers(40_000, 5)
    held = PolyleafRegressor(n_estimators=2).fit(Dataset(X), y)
    data = Dataset.from_batches(split_batches(9000, X), cache_dir=tmp_path)
    filed = PolyleafRegressor(n_estimators=2, n_jobs=n_jobs).fit(data, y)
    np.testing.assert_array_equal(held.predict(X), filed.predict(X))


@pytest.mark.parametrize("search", ["exact", "count_sketch"])
def test_multilabel_training_from_a_file(search, tmp_path):
    X, _ = numbers(600)
    labels = scipy.sparse.csr_matrix(np.nan_to_num(X[:, :8]) > 0.8)
    held, filed = (
        Dataset(X, labels),
        Dataset.from_batches(split_batches(150, X, labels), cache_dir=tmp_path),
    )
    models = [
        PolyleafClassifier(n_estimators=3, leaf="sparse", leaf_k=2, split_search=search).fit(
            data, labels
        )
        for data in (held, filed)
    ]
    assert models[0].save_model() == models[1].save_model()


def test_codes_are_read_again_and_outlive_the_file_name(tmp_path):
    X, y = numbers()
    held, filed = Dataset(X, y), Dataset.from_batches(split_batches(700, X, y), cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []  # the file is unlinked
    assert_same_bins_and_codes(filed, held)
    assert_same_bins_and_codes(pickle.loads(pickle.dumps(filed)), held)
    some = np.arange(3, 2500, 7)
    np.testing.assert_array_equal(filed.rows(some).codes, held.codes[:, some])
    first = PolyleafRegressor(n_estimators=3).fit(held)
    further = [
        PolyleafRegressor(n_estimators=3).fit(data, init_model=first.model_)
        for data in (held, filed)
    ]
    assert further[0].save_model() == further[1].save_model()
    assert "Dataset(2500 rows" in repr(filed) and filed.nbytes >= X.size


def test_unsupported_options_with_cache_dir_raise(tmp_path):
    X = pd.DataFrame({"id": [f"c{i}" for i in range(300)] * 2, "x": np.arange(600.0)})
    with pytest.raises(ValueError, match="Column 'id' of X has more than 255 categories"):
        Dataset.from_batches([X], cache_dir=tmp_path)
    with pytest.raises(OSError, match=r"cannot hold a file of .* GiB: No such file"):
        Dataset.from_batches([X[["x"]]], cache_dir=tmp_path / "nowhere")


_TRAINS_IN_LITTLE_MEMORY = """
import resource, sys
import numpy as np
from polyleaf import Dataset, PolyleafRegressor
from threadpoolctl import threadpool_limits

N, F, SIZE = 2_400_000, 96, 30_000

def batches():
    for number in range(N // SIZE):
        X = np.random.default_rng(number).random((SIZE, F), np.float32)
        yield X, X[:, 0] * X[:, 1]

threadpool_limits(1)
PolyleafRegressor(n_estimators=1, n_jobs=1).fit(np.zeros((9, 2)), np.arange(9.0))  # all is loaded
status = open("/proc/self/status").read()
before = 1024 * int(status.split("VmData:")[1].split()[0])
allowed = 220 << 20
resource.setrlimit(resource.RLIMIT_DATA, (before + allowed, before + allowed))
folder = sys.argv[1] if len(sys.argv) > 1 else None
data = Dataset.from_batches(batches, cache_dir=folder, n_jobs=1)
params = dict(n_estimators=2, max_depth=4, max_leaves=None, grow_policy="depthwise", n_jobs=1)
model = PolyleafRegressor(**params, colsample_bynode=1.0).fit(data)
assert model.evals_result_ == {} and model.model_.n_trees == 2
print(4 * N * F / allowed)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit needs Linux")
def test_four_times_the_memory_trains_from_a_file(tmp_path):
    """The table takes 880 MiB as float32; 220 MiB are allowed on top of the program."""
    # Return freed memory at once: otherwise what glibc keeps varies by 50 MiB between runs.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1048576"}

    def run(*folder):
        program = [sys.executable, "-c", _TRAINS_IN_LITTLE_MEMORY, *folder]
        return subprocess.run(program, env=environment, capture_output=True, text=True)

    filed = run(str(tmp_path))
    assert filed.returncode == 0, filed.stderr
    assert float(filed.stdout) > 3.9
    held = run()
    assert "MemoryError" in held.stderr or "bad_alloc" in held.stderr


@pytest.mark.parametrize("columns", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("unknown", ["some", "late", "one batch", "all"])
def test_missing_targets_equal_those_of_the_whole_table(columns, weighted, unknown, monkeypatch):
    X, y, weight = mixed(300, seed=2)
    y = y.copy() if columns is None else np.column_stack([y, -y])
    rows = {
        "some": X["number"].to_numpy() > 0.3,
        "late": np.arange(300) > 250,
        "one batch": (np.arange(300) >= 70) & (np.arange(300) < 140),
        "all": np.ones(300, bool),
    }[unknown]
    y[rows] = np.nan
    if columns == 2 and unknown != "all":
        y[rows, 1] = 1.0
    arrays = (X, y, weight) if weighted else (X, y)
    expected = Dataset(X, y, sample_weight=weight if weighted else None, max_bins=16)
    assert_same_bins_and_codes(
        Dataset.from_batches(split_batches(70, *arrays), max_bins=16), expected
    )
    if unknown == "some":
        assert not Dataset(
            X, max_bins=16, sample_weight=weight if weighted else None
        ).mapper.has_same_bins(expected.mapper)
    monkeypatch.setattr(BinMapper.__init__, "__kwdefaults__", {"subsample": 100, "random_state": 0})
    expected = Dataset(X, y, sample_weight=weight if weighted else None, max_bins=16)
    assert_same_bins_and_codes(
        Dataset.from_batches(split_batches(70, *arrays), max_bins=16), expected
    )
