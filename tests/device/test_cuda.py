"""Finding the GPU, compiling kernels with NVRTC, and caching them."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from support.host_device import COMPILER, library

from polyleaf import PolyleafRegressor, _core
from polyleaf.runtime import cuda

pytestmark = pytest.mark.full

X = np.random.default_rng(0).random((50, 3))
NVRTC = cuda.find_nvrtc()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="NVRTC is not installed (the extra `cuda`)")


@pytest.fixture(autouse=True)
def clear_device():
    cuda._get_cuda_device.cache_clear()
    yield
    cuda._get_cuda_device.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_auto_is_the_cpu(device, monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", "libthere_is_no_such_driver.so")
    assert cuda.get_device(device) is None
    PolyleafRegressor(n_estimators=1, device=device).fit(X, X[:, 0])


def test_missing_driver_raises(monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", "libthere_is_no_such_driver.so")
    with pytest.raises(_core.DeviceError, match=r'needs a CUDA GPU\. .* device="cpu"'):
        PolyleafRegressor(device="cuda").fit(X, X[:, 0])


@needs_compiler
def test_missing_nvrtc_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", library())
    monkeypatch.setattr(cuda, "find_nvrtc", lambda max_version: None)
    with pytest.raises(_core.DeviceError, match=r"pip install 'polyleaf\[cuda\]'"):
        cuda.get_device("cuda")


@needs_compiler
def test_old_driver_raises(monkeypatch):
    monkeypatch.setattr(cuda, "_DRIVER", library())
    monkeypatch.setattr(cuda, "_MIN_CUDA_VERSION", 99)
    with pytest.raises(_core.DeviceError, match=r"driver for CUDA 99 or later.* is for CUDA 12"):
        cuda.get_device("cuda")


@needs_compiler
def test_kernels_are_loaded_once(monkeypatch):
    requests = []
    monkeypatch.setattr(cuda, "_DRIVER", library())
    monkeypatch.setattr(cuda, "find_nvrtc", lambda max_version: f"CUDA {max_version}")
    monkeypatch.setattr(
        cuda, "get_kernels", lambda nvrtc, arch: requests.append((nvrtc, arch)) or b"kernels"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuda.get_device("cuda").is_loaded
        assert cuda.get_device("cuda") is cuda.get_device("cuda")
    assert requests == [("CUDA 12", "sm_90")]


@pytest.mark.parametrize("device", ["gpu", "CUDA", None, 0])
def test_unknown_devices_raise(device):
    with pytest.raises(ValueError, match="device"):
        PolyleafRegressor(device=device).fit(X, X[:, 0])


# --- cache of compiled kernels ---


class CountingCompiler:
    """Record the architectures that kernels are compiled for."""

    def __init__(self, version=(12, 9)):
        self.version, self.architectures = version, []

    def compile(self, name, sources, architecture, options):
        assert name == _core.DEVICE_PROGRAM and name in sources and "--fmad=false" in options
        self.architectures.append(architecture)
        return f"kernels {len(self.architectures)} for {architecture}".encode()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYLEAF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_kernels_are_compiled_once(cache):
    compiler = CountingCompiler()
    assert cuda.get_kernels(compiler, "sm_90") == cuda.get_kernels(compiler, "sm_90")
    assert compiler.architectures == ["sm_90"] and len(list(cache.iterdir())) == 1


def test_cache_key_has_architecture_compiler_and_sources(cache, monkeypatch):
    compiler, newer = CountingCompiler(), CountingCompiler((13, 5))
    cuda.get_kernels(compiler, "sm_90")
    cuda.get_kernels(compiler, "sm_80")
    cuda.get_kernels(newer, "sm_90")
    changed = _core.device_sources() | {"base/select.h": "// another"}
    monkeypatch.setattr(
        cuda,
        "_core",
        SimpleNamespace(device_sources=lambda: changed, DEVICE_PROGRAM=_core.DEVICE_PROGRAM),
    )
    cuda.get_kernels(compiler, "sm_90")
    assert compiler.architectures == ["sm_90", "sm_80", "sm_90"]
    assert newer.architectures == ["sm_90"]


def test_kernels_are_compiled_again_without_a_writable_folder(cache):
    cache.write_bytes(b"a file in place of the folder")
    compiler = CountingCompiler()
    for i in (1, 2):
        assert cuda.get_kernels(compiler, "sm_90") == f"kernels {i} for sm_90".encode()


def test_default_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("POLYLEAF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cuda.get_cache_folder() == tmp_path / "polyleaf"


# --- NVRTC (no GPU needed) ---


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile(architecture):
    sources = _core.device_sources()
    kernels = NVRTC.compile(_core.DEVICE_PROGRAM, sources, architecture, cuda.COMPILE_OPTIONS)
    assert kernels.startswith(b"\x7fELF")
    for name in ("scan_numeric", "build_histograms", "move_rows", "quantise", "predict_trees"):
        assert name.encode() in kernels


@needs_nvrtc
def test_compiler_errors_are_reported():
    with pytest.raises(cuda.NvrtcError, match=r"do not compile for sm_90:\n.*no_such_type"):
        NVRTC.compile("a.cu", {"a.cu": "no_such_type x;"}, "sm_90")


@needs_nvrtc
def test_nvrtc_is_not_newer_than_the_driver():
    assert cuda.find_nvrtc(max_version=11) is None
    assert cuda.find_nvrtc(max_version=NVRTC.version[0]).version == NVRTC.version


def test_broken_libraries_are_skipped(tmp_path, monkeypatch):
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.13").write_bytes(b"no library")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = cuda.find_nvrtc()
    assert (None if found is None else found.version) == (None if NVRTC is None else NVRTC.version)


def test_included_sources_are_available():
    sources = _core.device_sources()
    included = {
        line.split('"')[1] if '"' in line else line.split("<")[1].split(">")[0]
        for text in sources.values()
        for line in text.splitlines()
        if line.startswith("#include")
    }
    assert included <= set(sources) and _core.DEVICE_PROGRAM in sources
