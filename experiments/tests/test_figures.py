"""Published figures: the committed results hold what is promised, and the page shows them."""

import json
import shutil
from pathlib import Path

import pytest
from experiments import estimates, exports, report
from experiments.__main__ import STUDIES, main
from experiments.harness.store import Store
from experiments.papers import all_papers

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"


def test_exports_are_as_close_as_promised():
    """C has the same bits; other formats differ by at most 1,000 units of the last place."""
    store, (table,) = Store(RESULTS / "exports.jsonl"), exports.PAPER.tables
    for name in exports.SETS:
        found = store.figures(exports.PAPER.task(table, name, table.subjects[0]).key)
        assert set(found) >= {"C, gcc", "C, clang", "ONNX 5", "Treelite"}, name
        for fmt in exports.FORMATS:
            if fmt not in found:  # categories in version 3, linear leaves of sparse features
                assert fmt == "ONNX 3" or "linear" in fmt, (name, fmt)
            elif fmt.startswith("C"):
                assert found[fmt] == -1.0, (name, fmt)
            else:
                assert found[fmt] <= 1000.0, (name, fmt)


def test_estimates_of_memory_are_upper_bounds():
    store = Store(RESULTS / "estimates.jsonl")
    for name in estimates.TRAININGS:
        assert store.figures(f"estimates/estimates/{name}/growth")["ratio"] > 1, name


def test_the_page_of_results_is_the_one_that_the_command_writes(tmp_path):
    page = ROOT / "docs" / "benchmarks" / "results.md"
    # Curves of some figures are not stored; their pictures stay as they are.
    shutil.copytree(page.parent / "images", tmp_path / "images")
    assert main(["results", "--from", str(RESULTS), "--to", str(tmp_path / "results.md")]) == 0
    assert (tmp_path / "results.md").read_text("utf-8") == page.read_text("utf-8")


def test_figures_older_than_their_models_are_marked():
    changes = report.find_model_changes()
    if not changes:
        pytest.skip("the checkout has no history")
    names = set(json.loads(report.GOLDEN.read_text()))
    assert set(changes) == names
    for study in [*all_papers().values(), *STUDIES.values()]:
        assert study.golden and set(study.golden) <= names, study.key
