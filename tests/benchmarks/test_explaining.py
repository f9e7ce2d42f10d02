"""Timings of SHAP values: installed libraries are timed, per row, and others are skipped."""

import numpy as np
import pytest
from benchmarks import explaining, report, results


@pytest.mark.parametrize("name", explaining.CASES)
def test_every_case_runs_on_polyleaf(name, monkeypatch):
    monkeypatch.setattr(explaining, "is_installed", lambda library: library == "polyleaf")
    (case,) = (report.summarise(case) for case in explaining.run([name], quick=True, repeats=2))
    ours = [
        c for c in case["contenders"] if c["library"] == "polyleaf" and "shap" not in c["label"]
    ]
    assert ours and all(len(c["runs"]) == 2 and c["error"] is None for c in ours)
    others = [c for c in case["contenders"] if c["library"] != "polyleaf"]
    assert all(c["error"] == "not installed" and not c["runs"] for c in others)
    header, rows = explaining.make_rows(case)
    assert len(rows) == len(case["contenders"]) and all(len(row) == len(header) for row in rows)
    document = report.document("explain", [case], {**report.environment(), "load_average": 0})
    assert case["title"] in "\n".join(results._document(document))


def test_figures_are_per_row_and_per_pair(monkeypatch):
    clock = iter([0.0, 6.0])
    monkeypatch.setattr(explaining.time, "process_time", lambda: next(clock))
    entry = {"runs": [], "error": None}
    contender = explaining.Contender("a", "polyleaf", 3, lambda library, X, rows: None, unit=4)

    class Models:
        def get(self, library, n_outputs):
            return None, np.zeros((9, 2))

    explaining._measure(contender, Models(), entry)
    assert entry["runs"] == [{"explain_us": 6e6 / 3 / 4}]


def test_failure_does_not_stop_the_others(monkeypatch):
    def fail(library, X, rows):
        raise RuntimeError("cannot")

    contenders = [explaining.CASES["outputs"][1][0], explaining.Contender("b", "polyleaf", 2, fail)]
    monkeypatch.setitem(explaining.CASES, "outputs", ("outputs", contenders))
    (case,) = explaining.run(["outputs"], quick=True, repeats=1)
    good, bad = case["contenders"]
    assert good["runs"] and bad["error"] == "RuntimeError: cannot" and not bad["runs"]
