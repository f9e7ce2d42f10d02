"""Behaviour without the optional packages, and error messages for missing ones."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class OtherPackages(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {names!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = OtherPackages
"""


def run(names, program, *arguments):
    """Run a program in a process that cannot import these packages."""
    command = [sys.executable, "-c", WITHOUT.format(names=names) + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_dependencies_and_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {line.split(">=")[0] for line in project["dependencies"]}
    assert needed == {"numpy", "scipy", "scikit-learn", "threadpoolctl"}
    extras = project["optional-dependencies"]
    for extra in ("cli", "plot"):
        for group in ("test-full", "docs"):
            assert set(extras[extra]) <= set(extras[group])


def test_packages_have_one_version_bound_in_all_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = {}
    for lines in (project["dependencies"], *project["optional-dependencies"].values()):
        for line in lines:
            bounds.setdefault(re.match(r"[\w.-]+", line)[0], set()).add(line)
    assert len(bounds) > 30
    assert {name: lines for name, lines in bounds.items() if len(lines) > 1} == {}


def test_library_works_without_extras():
    program = """
import polyleaf
from polyleaf.callbacks import ProgressBar
X = [[i, i % 3] for i in range(40)]
bar = ProgressBar(2, force=True)
model = polyleaf.PolyleafRegressor(n_estimators=2, callbacks=[bar]).fit(X, range(40))
print(model.predict(X).shape)
"""
    done = run(["rich", "matplotlib", "pyarrow", "pandas"], program)
    assert (done.returncode, done.stdout) == (0, "(40,)\n"), done.stderr
    assert "round 2/2" in done.stderr


def test_progress_without_rich_is_printed_as_lines(monkeypatch, capsys):
    from polyleaf import PolyleafRegressor, callbacks

    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    X = [[i, i % 3] for i in range(40)]
    PolyleafRegressor(n_estimators=3, verbose=1).fit(X, range(40))
    assert "round 3/3" in capsys.readouterr().err


@pytest.mark.full
def test_command_line_names_the_extra():
    program = "from polyleaf.cli import main\nmain()"
    done = run(["pyarrow"], program, "train", "t.csv", "-t", "y", "-m", "m")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        'needs PyArrow: pip install "polyleaf[cli]"' in done.stderr and done.stderr.count("\n") == 1
    )
    done = run(["matplotlib"], program, "demo")
    assert done.returncode == 2 and 'pip install "polyleaf[cli,plot]"' in done.stderr


@pytest.mark.full
def test_plotting_names_the_extra():
    done = run(
        ["matplotlib"],
        "from polyleaf.inspection.plotting.display import import_pyplot\nimport_pyplot()",
    )
    assert 'ImportError: Displays require matplotlib: pip install "polyleaf[plot]"' in done.stderr


@pytest.mark.full
def test_mlflow_names_the_extra():
    program = "from polyleaf.integrations import mlflow\nmlflow.save_model(None, 'nowhere')"
    done = run(["mlflow"], program)
    assert (
        'ImportError: polyleaf.integrations.mlflow requires MLflow: pip install "polyleaf[mlflow]".'
        in done.stderr
    )


def test_dask_names_the_extra():
    done = run(["dask"], "import polyleaf.dask")
    assert 'ImportError: polyleaf.dask needs Dask: pip install "polyleaf[dask]".' in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("name", ["AutoGluon", "Darts", "mlforecast", "skforecast", "sktime"])
def test_integrations_name_the_extra(name):
    module = name.lower()
    done = run([module], f"import polyleaf.integrations.{module}")
    assert (
        f"ImportError: polyleaf.integrations.{module} requires {name}: pip install "
        f'"polyleaf[{module}]".' in done.stderr
    )
