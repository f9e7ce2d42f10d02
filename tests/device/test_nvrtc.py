"""Kernels compile for cards, where NVRTC is installed (`pip install 'polyleaf[cuda]'`); it needs no card."""

import pytest

from polyleaf import _core
from polyleaf.runtime import nvrtc
from polyleaf.runtime.cuda_programs import OPTIONS

NVRTC = nvrtc.found()
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="NVRTC is not installed (the extra `cuda`)")


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile(architecture):
    sources = _core.device_sources()
    made = NVRTC.compile(_core.DEVICE_PROGRAM, sources, architecture, OPTIONS)
    assert made.startswith(b"\x7fELF")
    for name in ("scan_numeric", "build_histograms", "move_rows", "quantise", "predict_trees"):
        assert name.encode() in made


@needs_nvrtc
def test_what_does_not_compile_is_told():
    with pytest.raises(nvrtc.NvrtcError, match=r"do not compile for sm_90:\n.*no_such_type"):
        NVRTC.compile("a.cu", {"a.cu": "no_such_type x;"}, "sm_90")


@needs_nvrtc
def test_a_newer_compiler_than_the_driver_is_not_taken():
    assert nvrtc.found(newest=11) is None
    assert nvrtc.found(newest=NVRTC.version[0]).version == NVRTC.version


def test_a_library_that_is_none_is_passed_over(tmp_path, monkeypatch):
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.13").write_bytes(b"no library")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = nvrtc.found()
    assert (None if found is None else found.version) == (None if NVRTC is None else NVRTC.version)


def test_every_source_that_is_included_is_there():
    sources = _core.device_sources()
    named = {
        line.split('"')[1] if '"' in line else line.split("<")[1].split(">")[0]
        for text in sources.values()
        for line in text.splitlines()
        if line.startswith("#include")
    }
    assert named <= set(sources) and _core.DEVICE_PROGRAM in sources
