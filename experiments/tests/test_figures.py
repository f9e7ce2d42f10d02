"""Published figures: the committed results hold what is promised, and the page shows them."""

import json
from pathlib import Path

import pytest
from experiments import estimates, report
from experiments.__main__ import STUDIES, main
from experiments.harness.store import Store
from experiments.papers import all_papers

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"


def test_estimates_of_memory_are_upper_bounds():
    store = Store(RESULTS / "estimates.jsonl")
    for name in estimates.TRAININGS:
        assert store.figures(f"estimates/estimates/{name}/growth")["ratio"] > 1, name


def test_the_page_of_results_is_the_one_that_the_command_writes(tmp_path):
    page = ROOT / "docs" / "benchmarks" / "results.md"
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
