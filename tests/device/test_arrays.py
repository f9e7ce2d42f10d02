"""GPU arrays are trained on and predicted in place, with the bytes of CPU arrays.

The GPU is emulated by `host_device`.
"""

import gc
import pickle
import warnings

import numpy as np
import pytest
from support import foreign_arrays, host_device
from support.foreign_arrays import ByDLPack, ByInterface

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, _core
from polyleaf.runtime.cuda import as_device_array, is_device_array

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(host_device.COMPILER is None, reason="g++ is not installed"),
]

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(700, 11)), 2)
X[:, 3] = RNG.integers(0, 3, 700)
X[:, 5] = 1.6e15 + RNG.integers(0, 400, 700)  # a wide range, equal in float32
X[RNG.random(X.shape) < 0.05] = np.nan
Y = np.stack([np.nan_to_num(X[:, 0] + X[:, 1]), np.nan_to_num(X[:, 2] * X[:, 3])], axis=1)
SMALL = {"n_estimators": 4, "max_leaves": 8, "n_jobs": 1, "device": "cuda"}
KINDS = [ByInterface, ByDLPack]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    host_device.use(monkeypatch)
    return host_device.device()


def same_model(X, there, Y=Y, kind=PolyleafRegressor, fit=None, **parameters):
    here = kind(**SMALL | parameters | {"device": "cpu"}).fit(X, Y)
    made = kind(**SMALL | parameters).fit(there, Y, **(fit or {}))
    np.testing.assert_array_equal(made.model_.predict_raw(X), here.model_.predict_raw(X))
    for a, b in zip(made.model_.mapper.thresholds_, here.model_.mapper.thresholds_, strict=True):
        np.testing.assert_array_equal(a, b)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_binned_in_place(kind, dtype):
    values = X.astype(dtype)
    same_model(values, kind(values))


@pytest.mark.parametrize("kind", KINDS)
def test_any_strides(kind):
    for values in (np.asfortranarray(X), X[::-1, ::2], X[::3], np.broadcast_to(X[:, :1], X.shape)):
        same_model(values, kind(values), Y[: len(values)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", "?bBhHiIqQ")
def test_integers_and_booleans(kind, dtype):
    values = (RNG.integers(0, 2 if dtype == "?" else 120, (300, 4))).astype(dtype)
    same_model(values, kind(values), values[:, :2].astype(float))


def test_only_a_sample_is_copied_from_the_gpu(monkeypatch):
    from polyleaf.binned_data.binning import BinMapper

    monkeypatch.setattr(BinMapper.__init__, "__kwdefaults__", {"subsample": 150, "random_state": 0})
    same_model(X, ByDLPack(X))


@pytest.mark.parametrize("kind", KINDS)
def test_targets_and_weights_in_gpu_memory(kind):
    weight = RNG.integers(0, 3, len(X)).astype(float)
    here = PolyleafRegressor(**SMALL).fit(X, Y, sample_weight=weight)
    there = PolyleafRegressor(**SMALL).fit(kind(X), kind(Y), sample_weight=kind(weight))
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    label = (Y[:, 0] > 0).astype(int)
    classifier = PolyleafClassifier(**SMALL).fit(kind(X), kind(label))
    assert classifier.classes_.tolist() == [0, 1]


def test_evaluation_and_further_rounds_on_the_same_rows():
    there = ByDLPack(X)
    model = same_model(X, there, fit={"eval_set": [(ByDLPack(X[:90]), ByDLPack(Y[:90]))]})
    more = {"init_model": model.model_}
    on = PolyleafRegressor(**SMALL).fit(there, Y, **more)
    here = PolyleafRegressor(**SMALL | {"device": "cpu"}).fit(X, Y, **more)
    np.testing.assert_array_equal(on.predict(X), here.predict(X))
    np.testing.assert_array_equal(on.predict(there), here.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(on)).predict(X), here.predict(X))


def test_readers_of_a_whole_table_get_a_copy(device):
    from polyleaf.user_data.features import read_features

    estimator = PolyleafRegressor(**SMALL).fit(X, Y)
    table = read_features(ByDLPack(X), reference=estimator.model_.mapper, estimator=estimator)
    here = read_features(X, reference=estimator.model_.mapper)
    np.testing.assert_array_equal(table.get_raw_values(), here.get_raw_values())
    np.testing.assert_array_equal(table.rows(3, 9).dense[0].values, X[3:9])
    codes = estimator.model_.mapper.encode(table)
    np.testing.assert_array_equal(codes.array(), estimator.model_.mapper.transform(here))
    np.testing.assert_array_equal(codes.rows(np.array([2, 5])).array(), codes.array()[:, [2, 5]])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(codes)).array(), codes.array())
    assert codes.nbytes == X.size
    selected = np.arange(X.shape[1]) % 2 == 0
    compact = estimator.model_.mapper.transform(table, only=selected, compact=True)
    np.testing.assert_array_equal(compact, codes.array()[selected])


# --- prediction ---


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_stay_in_gpu_memory(kind, dtype):
    model = PolyleafRegressor(**SMALL, normalize_targets=True).fit(X, Y * [1.0, 100.0])
    values = X.astype(dtype)
    predictor, expected = model.predictor(device="cuda"), model.predictor()(values)
    for found in (predictor(kind(values)), predictor.predict_raw(kind(values))):
        assert is_device_array(found) and found.shape == expected.shape and len(found) == len(X)
        np.testing.assert_array_equal(foreign_arrays.taken(found), expected)
        np.testing.assert_array_equal(
            as_device_array(host_device.device(), found, "found").read(), expected
        )


def test_numeric_categories():
    values = np.where(np.isnan(X[:, 3]), np.nan, X[:, 3] * 10)
    table = np.column_stack([X[:, 0], values])
    model = PolyleafRegressor(**SMALL, categorical_features=[1]).fit(table, Y)
    table[:20, 1] = 7.0  # never seen
    found = model.predictor(device="cuda").predict_raw(ByDLPack(table))
    np.testing.assert_array_equal(found.read(), model.predictor().predict_raw(table))


def test_probabilities_are_returned_in_cpu_memory():
    model = PolyleafClassifier(**SMALL).fit(X, (Y[:, 0] > 0).astype(int))
    predictor = model.predictor("predict_proba", device="cuda")
    np.testing.assert_array_equal(predictor(ByDLPack(X)), model.predict_proba(X))
    assert is_device_array(predictor.predict_raw(ByDLPack(X)))


def test_many_rows_are_predicted_in_parts():
    model = PolyleafRegressor(**SMALL).fit(X, Y[:, 0])
    values = np.tile(X, (5, 1))
    found = model.predictor(device="cuda")(ByDLPack(values))
    assert found.shape == (len(values), 1)
    np.testing.assert_array_equal(found.read()[:, 0], model.predict(values))
    assert model.predictor(device="cuda")(ByDLPack(values[:0])).shape == (0, 1)


# --- lifetime of memory --- ---


def test_memory_is_held_while_needed(device):
    there = ByDLPack(X)
    array = as_device_array(device, there, "X")
    assert there.asked == [device.stream] and there.gone == 0
    del array
    gc.collect()
    assert there.gone == 1


def test_streams_are_synchronised(monkeypatch):
    waited = []

    class Device:
        def wait_for(self, stream):
            waited.append(stream)

    monkeypatch.setattr(
        _core, "DeviceArray", type("A", (), {"from_address": staticmethod(lambda *args: args)})
    )
    for stream in (None, 2, False):
        as_device_array(Device(), ByInterface(X, stream=stream), "X")
    assert waited == [2, 1]


def test_memory_unknown_to_the_driver():
    with pytest.raises(_core.DeviceError, match="does not know its address"):
        PolyleafRegressor(**SMALL).fit(ByInterface(X, data=(64, True)), Y)


# --- bad input --- ---


class FailingExport(ByDLPack):
    def __dlpack__(self, **options):
        raise BufferError("Can't export tensors that require gradient.")


@pytest.mark.parametrize(
    ("there", "error", "message"),
    [
        (ByDLPack(X[:, 0]), ValueError, "Expected 2D array, got 1D array"),
        (ByDLPack(X[None]), ValueError, "dim 3"),
        (ByInterface(X[:, :3].astype(np.float16)), TypeError, "X has dtype float16.*float32"),
        (ByInterface(X.astype(">f8")), TypeError, "X has dtype >f8"),
        (ByInterface(X, mask=object()), ValueError, "X has a mask"),
        (FailingExport(X), ValueError, "X cannot be shared.*require gradient"),
        (ByDLPack(np.where(X == X[4, 2], np.inf, X)), ValueError, "infinity"),
        (ByDLPack(X[:100]), ValueError, "inconsistent numbers of samples"),
    ],
)
def test_invalid_tables_raise(there, error, message):
    with pytest.raises(error, match=message):
        PolyleafRegressor(**SMALL).fit(there, Y)


def test_infinities_are_reported_as_for_cpu_arrays():
    bad = X.copy()
    bad[17, 4] = bad[90, 1] = -np.inf
    messages = []
    for values, device in (
        (bad, "cpu"),
        (ByDLPack(bad), "cuda"),
        (ByInterface(bad.T.copy().T), "cuda"),
    ):
        with pytest.raises(ValueError) as error:
            PolyleafRegressor(**SMALL | {"device": device}).fit(values, Y)
        messages.append(str(error.value))
    assert messages[0] == messages[1] == messages[2] and "17" in messages[0]


def test_features_that_need_cpu_memory_are_rejected():
    there = ByDLPack(X)
    with pytest.raises(ValueError, match="validation_fraction cannot split"):
        PolyleafRegressor(**SMALL, validation_fraction=0.2).fit(there, Y)
    with pytest.raises(ValueError, match="is categorical"):
        PolyleafRegressor(**SMALL, categorical_features=[3]).fit(there, Y)
    with pytest.raises(TypeError, match="X is an array in GPU memory"):
        PolyleafRegressor(**SMALL, projection="leml", projection_dim=2).fit(there, Y)
    with pytest.raises(TypeError, match=r'X is an array in GPU memory.*device="cuda"'):
        Dataset(there)
    with pytest.raises(TypeError, match=r'X is an array in GPU memory.*device="cuda"'):
        PolyleafRegressor(n_estimators=1).fit(there, Y)
    model = PolyleafRegressor(**SMALL).fit(X, Y)
    with pytest.raises(TypeError, match='make the predictor with device="cuda"'):
        model.predictor()(there)
    with pytest.raises(ValueError, match=r"rows must have shape \(n_rows, 11\); got \(700, 4\)"):
        model.predictor(device="cuda")(ByDLPack(X[:, :4]))
    with pytest.raises(ValueError, match="expecting 11 features"):
        model.predict(ByDLPack(X[:, :4]))


def test_cpu_arrays_are_not_device_arrays():
    jax = pytest.importorskip("jax.numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any(map(is_device_array, (X, jax.asarray(X[0]), [1.0], None, "text")))
