"""Programs are compiled once and kept on disk."""

from types import SimpleNamespace

import pytest

from polyleaf import _core
from polyleaf.runtime import cuda_programs


class Compiler:
    """Counts what it is asked for."""

    def __init__(self, version=(12, 9)):
        self.version, self.asked = version, []

    def compile(self, name, sources, architecture, options):
        assert name == _core.DEVICE_PROGRAM and name in sources and "--fmad=false" in options
        self.asked.append(architecture)
        return f"program {len(self.asked)} for {architecture}".encode()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYLEAF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_program_is_compiled_once(cache):
    compiler = Compiler()
    assert cuda_programs.program(compiler, "sm_90") == cuda_programs.program(compiler, "sm_90")
    assert compiler.asked == ["sm_90"] and len(list(cache.iterdir())) == 1


def test_another_card_compiler_or_source_has_another_program(cache, monkeypatch):
    compiler, newer = Compiler(), Compiler((13, 5))
    cuda_programs.program(compiler, "sm_90")
    cuda_programs.program(compiler, "sm_80")
    cuda_programs.program(newer, "sm_90")
    changed = _core.device_sources() | {"base/select.h": "// another"}
    monkeypatch.setattr(
        cuda_programs,
        "_core",
        SimpleNamespace(device_sources=lambda: changed, DEVICE_PROGRAM=_core.DEVICE_PROGRAM),
    )
    cuda_programs.program(compiler, "sm_90")
    assert compiler.asked == ["sm_90", "sm_80", "sm_90"] and newer.asked == ["sm_90"]


def test_a_folder_that_cannot_be_written_means_compiling_again(cache):
    cache.write_bytes(b"a file where the folder would be")
    compiler = Compiler()
    for i in (1, 2):
        assert cuda_programs.program(compiler, "sm_90") == f"program {i} for sm_90".encode()


def test_programs_are_kept_where_the_system_keeps_what_can_be_made_anew(monkeypatch, tmp_path):
    monkeypatch.delenv("POLYLEAF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cuda_programs.folder() == tmp_path / "polyleaf"
