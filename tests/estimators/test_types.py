"""Types that a type checker infers in a user's script."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

import polyleaf

SCRIPT = """
import numpy as np
from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, _core, presets

X, y = np.ones((3, 2)), np.ones(3)
reveal_type(PolyleafRegressor(n_estimators=5).fit(X, y))
reveal_type(PolyleafClassifier(max_leaves=4).fit(X, y).classes_)
reveal_type(Dataset(X).bins)
reveal_type(_core.available_isas())
PolyleafRegressor("huber", huber_delta=2, reg_lambda=1, max_depth=None, sketch="auto")
PolyleafClassifier(**presets.cgb())
reveal_type(PolyleafRegressor().learning_rate)
reveal_type(PolyleafClassifier().fit(X, y).predict_proba(X))
fitted = PolyleafRegressor().fit(X, y)
reveal_type(fitted.predict(X))
fitted.set_params(n_estimators=fitted.best_iteration_ + 1)
reveal_type(fitted.n_features_in_)
reveal_type(fitted.evals_result_["validation"]["rmse"])
reveal_type(fitted.evals_result_per_output_["validation"]["rmse"].shape)
reveal_type(fitted.fit_times_)
fitted.feature_names_in_.tolist()
PolyleafRegressor(n_estimatorz=5)
PolyleafRegressor(n_estimators="five")
PolyleafRegressor(class_weight="balanced")
PolyleafClassifier("auto", 100)
PolyleafClassifier(grow_policy="widest")
_core.Tree().n_nodez
"""


def run_mypy(folder):
    """Return what mypy prints about the script: revealed types and errors."""
    (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n")
    sources = Path(polyleaf.__file__).parents[1]
    environment = (
        os.environ if sources.name == "site-packages" else {**os.environ, "MYPYPATH": str(sources)}
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), "script.py"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return re.findall(r"(?m)^script\.py:\d+: (?:note|error): (.*)$", run.stdout)


def run_pyright(folder, **settings):
    """Return what pyright prints about the scripts: revealed types and errors."""
    settings["extraPaths"] = [str(Path(polyleaf.__file__).parents[1])]
    (folder / "pyrightconfig.json").write_text(json.dumps({"include": ["*.py"]} | settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    diagnostics = json.loads(run.stdout)["generalDiagnostics"]
    return [x["message"] for x in sorted(diagnostics, key=lambda x: x["range"]["start"]["line"])]


@pytest.mark.full
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_infer_public_types(checker, tmp_path):
    pytest.importorskip(checker)
    expected = [
        r"PolyleafRegressor\W*$",
        r"ndarray\b",
        r"Bins\W*$",
        r"list\[\S*str\]",
        r"float \| None",
        r"ndarray\b",
        r"\"\S*ndarray\[[^|]*$",
        r"\bint\b",
        r"list\[\S*float\]",
        r"tuple\[",
        r"dict\[\S*str, \S*float\]",
        "n_estimatorz",
        "n_estimators",
        "class_weight",
        "[Pp]ositional argument",
        "grow_policy.*lossguide.*depthwise",
        "n_nodez",
    ]
    (tmp_path / "script.py").write_text(SCRIPT)
    lines = {"mypy": run_mypy, "pyright": run_pyright}[checker](tmp_path)
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.search(pattern, line, re.DOTALL), line


# Libraries without types, and what is unknown where theirs are.
UNTYPED = ("MissingImports", "MissingTypeStubs", "MissingModuleSource")
UNTYPED += tuple(f"Unknown{kind}Type" for kind in ("Variable", "Member", "Argument", "Parameter"))
OF_DASK = {"dask_cluster.py"}  # whose functions have wrong types


@pytest.mark.full
def test_examples_pass_pyright_in_strict_mode(tmp_path):
    pytest.importorskip("pyright")
    for path in (ROOT / "examples").glob("*.py"):
        if path.name not in OF_DASK:
            shutil.copy(path, tmp_path)
    ignored = {f"report{name}": "none" for name in UNTYPED}
    assert run_pyright(tmp_path, typeCheckingMode="strict", **ignored) == []
