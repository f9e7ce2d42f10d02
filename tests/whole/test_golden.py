"""Comparison of models with the golden file, for all instruction sets and numbers of threads."""

import json

import pytest
from support import golden
from support.isa import run_on_each_isa

EVERY_PROGRAM = """
import json
from support import golden
print(json.dumps([golden.all_hashes(n_jobs) for n_jobs in (1, 3)]))
"""


def find_changed(found):
    """Return the configurations whose models or scores differ from the golden file."""
    expected = golden.expected()
    return [name for name in expected | found if expected.get(name) != found.get(name)]


@pytest.mark.filterwarnings("ignore")
def test_models_equal_the_golden_file():
    """Threads are compared with the single one of the file."""
    assert find_changed(golden.all_hashes(n_jobs=2)) == []


@pytest.mark.full
def test_instruction_sets_and_threads_give_the_same_models():
    for printed in run_on_each_isa(EVERY_PROGRAM):
        for found in json.loads(printed):
            assert find_changed(found) == []


def test_changes_are_detected():
    found = golden.expected()
    name = next(iter(found))
    assert find_changed({**found, name: {**found[name], "scores": "0" * 16}}) == [name]
    assert find_changed({k: v for k, v in found.items() if k != name}) == [name]
    assert find_changed({**found, "new": {}}) == ["new"]
    assert len(found) >= 60
