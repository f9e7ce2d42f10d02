"""Arrays of other libraries are read on the CPU and raise on a GPU."""

import numpy as np
import pytest

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
y = X[:, 0] + X[:, 1]
SMALL = {"n_estimators": 3, "max_leaves": 4}


class GpuArray:
    """Attributes of GPU arrays of any library."""

    def __init__(self, values):
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (0, True),
            "version": 3,
        }

    def __len__(self):
        return self.shape[0]

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion is not allowed.")


def make_library(name, values):
    return type("ndarray", (GpuArray,), {"__module__": f"{name}.core"})(values)


@pytest.mark.parametrize(
    ("library", "way"),
    [
        ("cupy", r"X\.get\(\)"),
        ("torch", r"X\.cpu\(\)"),
        ("jaxlib", r"jax\.device_get\(X\)"),
        ("my", "a copy"),
    ],
)
def test_features_on_a_gpu_raise_with_a_remedy(library, way):
    there, model = make_library(library, X), PolyleafRegressor(**SMALL)
    with pytest.raises(TypeError, match=f"X is an array in GPU memory.*pass {way}"):
        model.fit(there, y)
    with pytest.raises(TypeError, match="X is an array in GPU memory"):
        Dataset(there, y)
    model.fit(X, y)
    with pytest.raises(TypeError, match="X is an array in GPU memory"):
        model.predict(there)


def test_targets_weights_and_offsets_on_a_gpu_raise():
    for estimator, target in ((PolyleafRegressor, y), (PolyleafClassifier, (y > 0).astype(int))):
        with pytest.raises(TypeError, match="y is an array in GPU memory"):
            estimator(**SMALL).fit(X, make_library("cupy", target))
    with pytest.raises(
        TypeError, match=r"sample_weight is an array in GPU memory.*sample_weight\.get\(\)"
    ):
        PolyleafRegressor(**SMALL).fit(X, y, sample_weight=make_library("cupy", np.abs(y)))
    with pytest.raises(TypeError, match="offset is an array in GPU memory"):
        PolyleafRegressor(**SMALL).fit(X, y, offset=make_library("cupy", y))


def test_jax_arrays_on_the_cpu_equal_numpy():
    jnp = pytest.importorskip("jax.numpy")
    plain = PolyleafRegressor(**SMALL).fit(X, y, sample_weight=np.abs(y))
    of_jax = PolyleafRegressor(**SMALL).fit(
        jnp.asarray(X), jnp.asarray(y), sample_weight=jnp.abs(y)
    )
    np.testing.assert_array_equal(of_jax.predict(jnp.asarray(X)), plain.predict(X))


class Tensor:
    """Like a PyTorch tensor on the CPU: DLPack and `__array__`; the GPU attribute raises."""

    def __init__(self, values):
        self._values, self.shape, self.ndim = values, values.shape, values.ndim

    @property
    def __cuda_array_interface__(self):
        raise AttributeError("Can't get __cuda_array_interface__ on a tensor in memory.")

    def __len__(self):
        return len(self._values)

    def __getitem__(self, rows):
        return Tensor(self._values[rows])

    def __array__(self, dtype=None, copy=None):
        return self._values if dtype is None else self._values.astype(dtype)

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


def test_tensors_on_the_cpu_equal_numpy():
    plain = PolyleafRegressor(**SMALL).fit(X, y)
    of_tensors = PolyleafRegressor(**SMALL).fit(Tensor(X), Tensor(y))
    np.testing.assert_array_equal(of_tensors.predict(Tensor(X)), plain.predict(X))
