"""What a type checker knows of a user's script."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
PolyleafRegressor(n_estimatorz=5)
PolyleafRegressor(n_estimators="five")
PolyleafRegressor(class_weight="balanced")
PolyleafClassifier("auto", 100)
PolyleafClassifier(grow_policy="widest")
_core.Tree().n_nodez
"""


def checked(folder):
    """What mypy says, line by line: revealed types and errors in the script."""
    (folder / "script.py").write_text(SCRIPT)
    (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n")
    sources = Path(polyleaf.__file__).parents[1]
    environment = (
        os.environ if sources.name == "site-packages" else {**os.environ, "MYPYPATH": str(sources)}
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), "script.py"]
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return re.findall(
        r"^script\.py:\d+: (?:note: Revealed type is|error:) (.*)$", run.stdout, re.MULTILINE
    )


@pytest.mark.full
def test_a_type_checker_knows_what_a_script_uses(tmp_path):
    pytest.importorskip("mypy")
    expected = [
        r'"polyleaf\.[\w.]*PolyleafRegressor"',
        r'"numpy\.ndarray',
        r'"polyleaf\._core\.Bins"',
        r'"(builtins\.)?list\[(builtins\.)?str\]"',
        r'"(builtins\.)?float \| None"',
        r'"numpy\.ndarray',
        "Unexpected keyword argument .n_estimatorz.",
        "Argument .n_estimators. .* has incompatible type",
        "Unexpected keyword argument .class_weight.",
        "Too many positional arguments",
        "Argument .grow_policy. .* has incompatible type .*lossguide.*depthwise",
        ".Tree. has no attribute .n_nodez.",
    ]
    found = checked(tmp_path)
    assert len(found) == len(expected), found
    for line, pattern in zip(found, expected, strict=True):
        assert re.match(pattern, line), line
