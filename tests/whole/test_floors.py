"""The floors of design.md hold: every folder imports from those below it only, in Python and in the core."""

from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]


def test_imports_of_the_package_point_downwards(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)  # the contracts are in pyproject.toml
    failed = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert not failed and "2 kept, 0 broken" in capsys.readouterr().out
