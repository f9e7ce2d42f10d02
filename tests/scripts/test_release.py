"""The release script makes a version from the CHANGELOG; versions and dependencies match."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from support import ROOT

FILES = ("packaging/conda/meta.yaml", "CHANGELOG.md")


@pytest.fixture(scope="module")
def release():
    path = ROOT / "scripts" / "release"
    loader = importlib.machinery.SourceFileLoader("release_script", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def recipe(root: Path) -> tuple[str, set[str], set[str]]:
    """Return the version and the build and run dependencies of the conda recipe."""
    text = (root / "packaging" / "conda" / "meta.yaml").read_text("utf-8")
    needs = (re.search(rf"(?m)^  {part}:\n((?:    - .+\n)+)", text)[1] for part in ("host", "run"))
    host, run = (
        {line.replace(" ", "") for line in re.findall(r"(?m)^    - (.+)$", part)} for part in needs
    )
    return re.search(r'(?m)^{% set version = "(.+)" %}$', text)[1], host, run


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=Tester", "-c", "user.email=tester@invalid")
    done = subprocess.run(
        ["git", "-C", root, *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def checkout(release, tmp_path, monkeypatch):
    files = (*FILES, *release.OWNED)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text("utf-8")
        (tmp_path / name).write_text(text.replace(release.PLACEHOLDER, "someone"))
    for version in ("9.8.7", "9.8.8"):
        (tmp_path / release.KEPT / f"version-{version}").mkdir(parents=True)
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Something.\n"
    )
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Tester")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "tester@invalid")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", *files)
    git(tmp_path, "commit", "--quiet", "--message", "All there is")
    return tmp_path


def test_version_is_written_committed_and_tagged(release, checkout, capsys):
    assert release.main(["9.8.7", "--date", "2030-01-02", "--root", str(checkout)]) == 0
    assert release.current(checkout) == "9.8.7"
    assert "\nversion: 9.8.7\n" in (checkout / "CITATION.cff").read_text()
    assert recipe(checkout)[0] == "9.8.7"
    log = (checkout / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [9.8.7] - 2030-01-02\n\n### Added\n\n- Something.\n" in log
    assert git(checkout, "tag", "--list").split() == ["v9.8.7"]
    assert not git(checkout, "status", "--porcelain")
    assert "publish" in capsys.readouterr().out.lower()
    assert release.main(["v9.8.7", "--check", "--root", str(checkout)]) == 0
    assert release.main(["v9.8.8", "--check", "--root", str(checkout)]) == 1
    assert "pyproject.toml is 9.8.7" in capsys.readouterr().err


@pytest.mark.parametrize("version, message", [("2", "MAJOR.MINOR.PATCH"), ("0.0.1", "step back")])
def test_invalid_versions_raise(release, checkout, capsys, version, message):
    assert release.main([version, "--root", str(checkout)]) == 1
    assert message in capsys.readouterr().err
    assert not git(checkout, "tag", "--list")


def test_release_without_changes_raises(release, checkout, capsys):
    assert release.main(["9.8.7", "--root", str(checkout)]) == 0
    assert release.main(["9.8.8", "--root", str(checkout)]) == 1
    assert "nothing under [Unreleased]" in capsys.readouterr().err


def test_release_with_uncommitted_changes_raises(release, checkout, capsys):
    with (checkout / "CHANGELOG.md").open("a") as log:
        log.write("- More.\n")
    assert release.main(["9.8.7", "--root", str(checkout)]) == 1
    assert "uncommitted" in capsys.readouterr().err


def test_release_without_stored_models_raises(release, checkout, capsys):
    assert release.main(["9.9.0", "--root", str(checkout)]) == 1
    assert "kept_models.py 9.9.0" in capsys.readouterr().err
    assert (ROOT / release.KEPT / f"version-{release.current(ROOT)}").is_dir()


def test_placeholders_raise(release, checkout, capsys):
    with (checkout / "pyproject.toml").open("a") as project:
        project.write(f"# {release.PLACEHOLDER}\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "A placeholder")
    for mode in ([], ["--check"]):
        assert release.main(["9.8.7", *mode, "--root", str(checkout)]) == 1
        assert "pyproject.toml" in capsys.readouterr().err
    assert not git(checkout, "tag", "--list")


def test_dry_run_makes_the_release_in_a_copy(release, checkout, capfd):
    wheels = checkout / "scripts" / "wheels"
    wheels.parent.mkdir()
    wheels.write_text("#!/bin/sh\ngit describe; head -5 CHANGELOG.md\n")
    wheels.chmod(0o755)
    git(checkout, "add", "scripts")
    git(checkout, "commit", "--quiet", "--message", "Build distributions")
    arguments = ["9.8.7", "--dry-run", "--date", "2030-01-02", "--root", str(checkout)]
    assert release.main(arguments) == 0
    assert (
        "v9.8.7\n# Changelog\n\n## [Unreleased]\n\n## [9.8.7] - 2030-01-02"
        in capfd.readouterr().out
    )
    assert not git(checkout, "tag", "--list") and release.current(checkout) != "9.8.7"


def test_version_is_the_same_in_all_files(release):
    cited = re.search(r"(?m)^version: (\S+)$", (ROOT / "CITATION.cff").read_text())[1]
    assert cited == recipe(ROOT)[0] == release.current(ROOT)
    assert (ROOT / "CHANGELOG.md").read_text("utf-8").count(release.UNRELEASED) == 1


def test_conda_recipe_has_the_project_dependencies():
    """Also the extras of its test, and Python from the wheel's version on."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, tool = whole["project"], whole["tool"]["scikit-build"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["cli"], *extras["plot"]]
    _, host, run = recipe(ROOT)
    assert set(whole["build-system"]["requires"]) <= host
    python = re.fullmatch(r"cp3(\d+)", tool["wheel"]["py-api"])[1]
    of_conda = {line.replace("matplotlib>", "matplotlib-base>") for line in needed}
    assert run == of_conda | {f"python>=3.{python}"}


def test_licences_of_bundled_code_are_included():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = set(
        re.findall(r"`([\w-]+\.txt)`", (ROOT / "LICENSES" / "README.md").read_text("utf-8"))
    )
    files = {path.name for path in (ROOT / "LICENSES").glob("*.txt")}
    assert named == files and len(files) >= 2
    for name in ("LICENSE", *(f"LICENSES/{file}" for file in files)):
        assert any(Path(name).match(pattern) for pattern in project["license-files"]), name
