"""Each benchmark of the asv suite runs once, on few rows."""

import importlib
import inspect
import itertools
from pathlib import Path

import pytest
from benchmarks import data

FOLDER = Path(data.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if path.stem != "data")
PREFIXES = ("time_", "peakmem_", "track_")


@pytest.mark.full
@pytest.mark.parametrize("module", MODULES)
def test_benchmarks_run(module, monkeypatch):
    monkeypatch.setattr(data, "SCALE", 0.0)
    found = importlib.import_module(f"benchmarks.{module}")
    n_run = 0
    for name, kind in inspect.getmembers(found, inspect.isclass):
        if kind.__module__ != found.__name__ or name.startswith("_"):
            continue
        params = getattr(kind, "params", ())
        axes = params if params and isinstance(params[0], list) else [params] if params else []
        for values in itertools.product(*axes):
            benchmark = kind()
            benchmark.setup(*values)
            for method in filter(lambda m: m.startswith(PREFIXES), dir(benchmark)):
                result = getattr(benchmark, method)(*values)
                assert method.startswith("track_") == (result is not None)
                n_run += 1
    assert n_run
