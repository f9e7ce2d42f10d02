"""Checks and builds as sessions: `nox --list` names them, `nox` runs the quick ones.

Workflows and `.ci/run` call these sessions, so that each check is written once. A session has its
own environment; with `--no-venv` it uses the active one, where the package is installed already.
"""

from __future__ import annotations

import os
import re

import nox
from nox.virtualenv import PassthroughEnv

PROJECT = nox.project.load_toml("pyproject.toml")["project"]

os.environ.setdefault("POLYLEAF_ISAS", "all")  # tests compare the instruction sets
nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]


def pip_install(session: nox.Session, *arguments: str) -> None:
    """Install into the session's environment, or the active one."""
    session.run_install("python", "-m", "pip", "install", "--quiet", *arguments)


def install_extra(session: nox.Session, extra: str, *more: str) -> None:
    """Install the package with an extra; with `--no-venv`, what the extra lists."""
    if isinstance(session.virtualenv, PassthroughEnv):
        pip_install(session, *PROJECT["optional-dependencies"][extra], *more)
    else:
        pip_install(session, f".[{extra}]", *more)


def lower_bounds() -> list[str]:
    """Return the lowest versions of the dependencies and of the data frames that are read."""
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    bounds = dict(re.fullmatch(r"([\w-]+).*>=([\d.]+).*", line).groups() for line in lines)
    frames = {"pandas", "polars", "pyarrow"} & bounds.keys()
    names = [re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]]
    return [f"{name}=={bounds[name]}.*" for name in (*names, *sorted(frames))]


def build_docs(session: nox.Session) -> None:
    """Build the site; the tests of pages read it."""
    install_extra(session, "docs")
    session.run("scripts/docs", external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, spelling, import contracts and workflows."""
    install_extra(session, "lint")
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure")
    session.run("lint-imports", "--no-cache")


@nox.session
def tidy(session: nox.Session) -> None:
    """Run clang-tidy's short list over the core; needs clang. Arguments: files."""
    pip_install(session, "clang-tidy>=19", "cmake", "ninja")
    build = "build/tidy"
    session.run(
        *("cmake", "-S", ".", "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"),
        *("-DPOLYLEAF_PYTHON=OFF", "-DPOLYLEAF_TESTS=ON", "-DPOLYLEAF_SHARE_PARSING=OFF"),
        silent=True,
    )
    files = [f"^.*/{name}$" for name in session.posargs] or ["^.*/cpp/.*[.]cpp$"]
    session.run("run-clang-tidy.py", "-quiet", "-p", build, *files)


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy over the package; mypy and pyright over a program that uses it."""
    install_extra(session, "lint")
    install_extra(session, "test")
    session.run("mypy")
    session.run("pytest", "-m", "full or not full", "tests/estimators/test_types.py")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the fast tests. Arguments go to pytest."""
    install_extra(session, "test")
    session.run("pytest", *(session.posargs or ["-n", "2"]))


@nox.session
def full(session: nox.Session) -> None:
    """Run all tests; the pages that they read are built first. Arguments go to pytest."""
    install_extra(session, "test-full")
    build_docs(session)
    session.run("pytest", *(session.posargs or ["-n", "2", "-m", "full or not full"]))


@nox.session
def oldest(session: nox.Session) -> None:
    """Run the fast tests with the lowest versions of what the package depends on."""
    install_extra(session, "test")
    pip_install(session, *lower_bounds())
    session.run("pytest", *(session.posargs or ["-n", "2"]))


@nox.session
def newest(session: nox.Session) -> None:
    """Run all tests with the newest versions, release candidates too."""
    install_extra(session, "test-full", "--pre", "--upgrade", "--upgrade-strategy", "eager")
    session.run("pytest", *(session.posargs or ["-n", "2", "-m", "full or not full"]))


@nox.session
def forecasting(session: nox.Session) -> None:
    """Run the tests of the forecasting frameworks, which need a pandas below 3."""
    install_extra(session, "test-forecasting")
    names = ("mlforecast", "darts", "skforecast", "sktime")
    files = [f"tests/integrations/test_{name}.py" for name in names]
    session.run("pytest", "-m", "full", *files, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/docs/html; any warning is an error."""
    build_docs(session)


@nox.session
def links(session: nox.Session) -> None:
    """Check the links of the site; needs network access."""
    install_extra(session, "docs")
    session.run("python", "-m", "sphinx", "-q", "-b", "linkcheck", "docs", "build/docs/links")


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the core's own tests under the address, undefined-behaviour and thread sanitizers."""
    pip_install(session, "cmake", "ninja")
    session.run("scripts/sanitize", *session.posargs, external=True)


@nox.session
def foreign(session: nox.Session) -> None:
    """Run the core's tests for other systems: emulated, or only built. Arguments: systems."""
    pip_install(session, "cmake", "ninja", "ziglang")
    session.run("scripts/foreign", *session.posargs, external=True)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the wheel of this machine and the source distribution into dist/, and check them."""
    session.run("scripts/wheels", *session.posargs, external=True)


@nox.session
def release(session: nox.Session) -> None:
    """Make a release in a copy, with the wheels of all systems, and check it; publishes nothing."""
    version = session.posargs or [PROJECT["version"]]
    session.run("scripts/release", *version, "--dry-run", external=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks of this commit. Arguments go to asv."""
    pip_install(session, "asv>=0.6", "virtualenv")
    session.run("asv", "machine", "--yes")
    session.run("asv", *(session.posargs or ["run", "--show-stderr", "HEAD^!"]))
