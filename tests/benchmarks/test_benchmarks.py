"""The benchmark programs: cases, one measurement, result files, comparisons. Nothing about the
clock.
"""

import copy
import dataclasses
import json

import numpy as np
import pytest
from benchmarks import (
    abilities,
    cases,
    compare,
    frames,
    gpu,
    kernels,
    peers,
    problems,
    report,
    worker,
)
from benchmarks.__main__ import main
from benchmarks.libraries import LIBRARIES, is_installed
from benchmarks.scores import SCORES
from support import host_device


def polyleaf_alone(case):
    return dataclasses.replace(
        case, contenders=tuple(c for c in case.contenders if c.library == "polyleaf")
    )


def write_set(folder, name, kind, n=120):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5)).astype(np.float32)
    rows = np.arange(n)
    y = {"regression": X[:, :2], "multilabel": (X[:, :2] > 0).astype(np.int64)}.get(kind, rows % 3)
    np.savez(folder / f"{name}.npz", X=X, y=y, train_idx=rows[:100], test_idx=rows[100:])


# --- cases ---


@pytest.mark.parametrize("quick", [False, True])
def test_all_cases_are_well_formed(quick):
    chosen = cases.select("all", quick)
    names = [case.name for case in chosen]
    assert len(set(names)) == len(names)
    for case in chosen:
        labels = [c.label for c in case.contenders]
        assert case.baseline in labels and len(set(labels)) == len(labels) >= 2
        assert case.focus in report.RATIOS
        for c in case.contenders:
            assert c.library in LIBRARIES and c.problem.kind in SCORES
            assert c.problem.recipe == "file" or c.problem.recipe in problems.PRESETS


@pytest.mark.parametrize(
    "name", [name for name in cases.CASES if name not in ("threads", "outputs", "leaves")]
)
def test_all_libraries_get_the_same_problem_and_settings(name):
    for case in cases.select(name, quick=False, n_threads=3):
        assert {json.dumps(dataclasses.asdict(c.settings)) for c in case.contenders} == {
            json.dumps(dataclasses.asdict(case.contenders[0].settings))
        }
        assert all(
            c.problem == case.contenders[0].problem and c.settings.threads == 3
            for c in case.contenders
        )


def test_leaf_kinds_share_all_other_settings():
    for case in cases.select("leaves", quick=False, n_threads=3):
        assert case.focus == "round_seconds"
        assert len({repr(dataclasses.replace(c.settings, own={})) for c in case.contenders}) == 1
        for c in case.contenders:
            assert not {"max_depth", "max_leaves", "learning_rate"} & set(c.settings.own)


def test_threads_case_has_its_own_thread_counts():
    for case in cases.select("threads", quick=True, n_threads=7):
        assert {c.label: c.settings.threads for c in case.contenders} == {
            "2 threads": 2,
            "1 thread": 1,
        }


def test_libraries_option_replaces_the_peers_only():
    (case,) = cases.select("one", quick=True, libraries=["lightgbm-quantized"])
    assert [c.label for c in case.contenders] == ["polyleaf", "lightgbm-quantized"]
    (case,) = cases.select("outputs", quick=True, libraries=["lightgbm"])
    assert {c.library for c in case.contenders} == {"polyleaf"}


# --- problems ---


def test_problems_are_reproducible_and_complete_on_disk(tmp_path):
    problem = cases.mo16(True)[0].contenders[0].problem
    made = problem.make()
    assert made["X"].dtype == made["y"].dtype == np.float32 and made["y"].shape[1] == 16
    problems.save(made, tmp_path)
    for arrays in (problem.make(), problems.load(tmp_path)):
        assert made.keys() == arrays.keys()
        assert all(np.array_equal(made[k], arrays[k]) for k in made)


def test_a_set_from_a_file_is_split_without_overlap(tmp_path):
    write_set(tmp_path, "letter", "multiclass")
    made = problems.read(tmp_path, "letter")
    assert [len(made[k]) for k in ("X", "X_val", "X_test")] == [85, 15, 20]
    rows = np.concatenate([made[k][:, 0] for k in ("X", "X_val", "X_test")])
    assert len(np.unique(rows)) == 120
    with np.load(tmp_path / "letter.npz") as file:
        assert np.array_equal(made["X_test"], file["X"][100:])


def test_a_missing_set_is_skipped_by_name(tmp_path):
    lines = []
    case = polyleaf_alone(cases.quality(True)[0])
    assert list(peers.run([case], tmp_path, 1, worker.measure, lines.append)) == []
    assert any("otto.npz does not exist" in line for line in lines)


# --- measurement ---


def test_every_case_runs_on_polyleaf(tmp_path):
    for case in cases.quality(True):
        write_set(
            tmp_path, case.contenders[0].problem.arguments["name"], case.contenders[0].problem.kind
        )
    chosen = [polyleaf_alone(case) for case in cases.select("all", quick=True, n_threads=1)]
    done = [report.summarise(case) for case in peers.run(chosen, tmp_path, 1, worker.measure)]
    assert [case["name"] for case in done] == [case.name for case in chosen]
    for case in done:
        for c in case["contenders"]:
            assert c["error"] is None
            figures = c["summary"]
            assert figures["rounds"]["median"] >= 1 and figures["model_bytes"]["median"] > 0
            assert np.isfinite(figures["score"]["median"])
        header, rows = report.make_rows(case)
        assert all(len(row) == len(header) for row in rows)


def test_the_last_point_of_a_curve_is_the_model(tmp_path):
    write_set(tmp_path, "letter", "multiclass")
    (case,) = (c for c in cases.quality(True) if c.name == "quality-letter")
    (done,) = peers.run([polyleaf_alone(case)], tmp_path, 1, worker.measure)
    (run,) = done["contenders"][0]["runs"]
    rounds, seconds, scores = zip(*run["curve"], strict=True)
    assert rounds[-1] == run["rounds"] and scores[-1] == run["score"]
    assert list(seconds) == sorted(seconds) and seconds[-1] <= run["fit_seconds"]


def test_subprocess_gives_the_same_score():
    case = polyleaf_alone(cases.few(True)[0])
    (inside,) = peers.run([case], None, 1, worker.measure)
    (outside,) = peers.run([case], None, 1, peers.make_subprocess_measure(timeout=120))
    assert outside["contenders"][0]["error"] is None
    assert (
        outside["contenders"][0]["runs"][0]["score"] == inside["contenders"][0]["runs"][0]["score"]
    )


def test_contenders_alternate_and_failures_are_skipped_with_their_reason():
    order = []

    def measure(job):
        order.append(job["settings"]["threads"])
        if job["settings"]["threads"] == 1:
            raise peers.Failed("exit code 1: out of luck")
        return {"fit_seconds": 1.0}

    case = cases.threads(True)[0]
    (done,) = peers.run([case], None, 2, measure)
    assert order == [2, 1, 2]
    two, one = done["contenders"]
    assert len(two["runs"]) == 2 and two["error"] is None
    assert one["runs"] == [] and one["error"] == "exit code 1: out of luck"


def test_error_of_a_dead_worker_has_the_reason(tmp_path):
    job = {
        "library": "polyleaf",
        "kind": "binary",
        "settings": {"rounds": 0, "threads": 1},
        "data": str(tmp_path),
    }
    with pytest.raises(peers.Failed, match="exit code 1: "):
        peers.make_subprocess_measure(timeout=120)(job)


def test_gpu_and_cpu_are_measured(monkeypatch):
    own = {name: of for name, of in gpu.LIBRARIES.items() if of[0] == "polyleaf"}
    monkeypatch.setattr(gpu, "LIBRARIES", own | {"none": ("no_such_library", None)})
    monkeypatch.setattr(gpu, "CASES", (gpu.Case("two outputs", 2_000, 9, 2),))
    host_device.use(monkeypatch)
    done = gpu.measure(quick=True, repeats=1, log=lambda text: None)
    assert done[0]["same_bytes"] is True
    _, rows = gpu.make_rows(done)
    assert [(row[1], row[-1]) for row in rows] == [("polyleaf, GPU", "yes"), ("polyleaf, CPU", "")]


def test_gpu_and_cpu_predictions_are_measured(monkeypatch):
    monkeypatch.setattr(gpu, "CASES", (gpu.Case("two outputs", 2_000, 9, 2),))
    host_device.use(monkeypatch)
    done = gpu.measure_prediction(quick=True, repeats=1, log=lambda text: None)
    header, rows = gpu.make_prediction_rows(done)
    assert [row[0] for row in rows] == ["CPU", "GPU, rows in CPU memory"]
    assert all(len(row) == len(header) and row[-1] == "yes" for row in rows)
    done["same"]["CPU"] = False
    assert gpu.make_prediction_rows(done)[1][0][-1] == "NO"


def test_frames_and_arrays_are_measured(monkeypatch):
    monkeypatch.setattr(frames, "COLUMNS", (5,))
    monkeypatch.setattr(
        frames, "LIBRARIES", {"polyleaf": frames.LIBRARIES["polyleaf"], "no_such_library": None}
    )
    done = frames.measure(quick=True, repeats=1, log=lambda text: None)
    header, rows = frames.make_rows(done)
    assert [row[:3] for row in rows] == [["5", "polyleaf", kind] for kind in frames.CONTAINERS]
    assert len(header) == len(rows[0]) and "(1.0)" in rows[0][3] and "not taken" not in str(rows)


def test_kernels_count_rows_of_smaller_children():
    class Tree:
        left = np.array([1, 3, -1, -1, -1])
        right = np.array([2, 4, -1, -1, -1])
        count = np.array([100, 70, 30, 50, 20])

    assert kernels.rows_in_smaller_children(Tree, max_depth=3) == 30 + 20
    assert (
        kernels.rows_in_smaller_children(Tree, max_depth=2) == 30
    )  # the children of node 1 are leaves


def test_kernels_run_and_describe_what_they_include():
    done = [report.summarise(case) for case in kernels.run(quick=True, repeats=1)]
    header, rows = kernels.make_rows(done)
    assert len(rows) == len({case["name"] for case in done}) > 10
    assert all(len(row) == len(header) and row[-1] for row in rows)


# --- figures and files ---


def contender(label, library, runs, **more):
    return {
        "label": label,
        "library": library,
        "problem": {"kind": "regression"},
        "settings": {"threads": 2},
        "score_name": "RMSE",
        "higher_is_better": False,
        "runs": runs,
        "error": None,
        **more,
    }


def make_run(seconds, score=1.0, curve=()):
    figures = dict.fromkeys(
        ("predict_seconds", "peak_above_data_bytes", "model_bytes", "rounds"), 10
    )
    return {
        **figures,
        "fit_seconds": seconds,
        "score": score,
        "curve": [list(point) for point in curve],
    }


def make_case(*contenders):
    return {
        "name": "c",
        "title": "c",
        "baseline": "polyleaf",
        "focus": "fit_seconds",
        "contenders": list(contenders),
    }


def path_to_model(*contenders):
    return report.document("peers", [report.summarise(make_case(*contenders))], {"cpu": "a"})


def test_ratios_are_taken_pair_by_pair():
    polyleaf = contender("polyleaf", "polyleaf", [make_run(1.0), make_run(10.0), make_run(2.0)])
    peer = contender("peer", "xgboost", [make_run(4.0), make_run(20.0), make_run(6.0)])
    case = report.summarise(make_case(polyleaf, peer))
    assert case["contenders"][1]["ratios"]["fit_seconds"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert case["contenders"][0]["ratios"] == {}


def test_time_to_the_best_peers_score():
    polyleaf = contender(
        "polyleaf", "polyleaf", [make_run(3.0, 0.4, [(1, 0.5, 0.9), (2, 1.0, 0.5), (3, 1.5, 0.4)])]
    )
    best = contender("best", "xgboost", [make_run(9.0, 0.5, [(1, 3.0, 0.7), (2, 6.0, 0.5)])])
    many_models = contender("models", "lightgbm", [make_run(7.0, 0.6)])
    case = report.summarise(make_case(polyleaf, best, many_models))
    assert case["target"] == 0.5
    assert [c["runs"][0]["seconds_to_target"] for c in case["contenders"]] == [1.0, 6.0, None]
    assert case["contenders"][1]["ratios"]["seconds_to_target"]["median"] == 6.0
    assert "seconds_to_target" not in case["contenders"][2]["summary"]
    assert report.make_rows(case)[1][2][-2] == "not reached"


def test_a_higher_score_can_be_the_better_one():
    auc = {"higher_is_better": True, "score_name": "AUC"}
    polyleaf = contender(
        "polyleaf", "polyleaf", [make_run(3.0, 0.9, [(1, 1.0, 0.7), (2, 2.0, 0.9)])], **auc
    )
    peers_ = [
        contender(str(s), "xgboost", [make_run(9.0, s, [(1, 3.0, s)])], **auc) for s in (0.6, 0.8)
    ]
    case = report.summarise(make_case(polyleaf, *peers_))
    assert case["target"] == 0.8 and case["contenders"][0]["runs"][0]["seconds_to_target"] == 2.0


def test_result_files_round_trip(tmp_path):
    content = path_to_model(
        contender("polyleaf", "polyleaf", [make_run(1.0)]), contender("peer", "xgboost", [])
    )
    content["environment"] = report.environment()
    path = tmp_path / "results" / "a.json"
    report.write(path, content)
    assert report.read(path) == content
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99, "cases": []}'])
def test_other_files_raise_an_error(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="not a result file"):
        report.read(path)
    assert main(["compare", str(path), str(path)]) == 2


def test_markdown_table():
    assert report.markdown("T", ["a", "b"], [["1", "2"]]).splitlines() == [
        "", "### T", "", "| a | b |", "| --- | --- |", "| 1 | 2 |",
    ]  # fmt: skip


# --- comparison ---


def verdicts(before, after):
    found = compare.compare(before, after)
    return found, {change.measure: change.verdict for change in found.changes}


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([1.0, 1.01, 0.99], [1.3, 1.31, 1.29], "worse"),
        ([1.0, 1.01, 0.99], [0.7, 0.71, 0.69], "better"),
        ([1.0, 1.01, 0.99], [1.04, 1.04, 1.04], "same"),  # within the tolerance
        ([1.0, 1.4, 0.9], [1.3, 1.31, 1.29], "same"),  # within the spread of the first
    ],
)
def test_seconds_are_compared_against_their_spread(before, after, verdict):
    files = [
        path_to_model(contender("polyleaf", "polyleaf", [make_run(s) for s in times]))
        for times in (before, after)
    ]
    found, by_measure = verdicts(*files)
    assert by_measure["fit_seconds"] == verdict
    assert found.is_worse == (verdict == "worse")


@pytest.mark.parametrize(("higher_is_better", "verdict"), [(False, "worse"), (True, "better")])
def test_scores_are_compared_in_their_direction(higher_is_better, verdict):
    files = [
        path_to_model(
            contender(
                "polyleaf", "polyleaf", [make_run(1.0, score)], higher_is_better=higher_is_better
            )
        )
        for score in (0.80, 0.81)
    ]
    found, by_measure = verdicts(*files)
    assert by_measure["score"] == verdict
    assert found.is_worse == (verdict == "worse")


def test_slower_peers_are_reported_but_do_not_fail():
    files = [
        path_to_model(
            contender("polyleaf", "polyleaf", [make_run(1.0)]),
            contender("peer", "xgboost", [make_run(s)]),
        )
        for s in (1.0, 2.0)
    ]
    found = compare.compare(*files)
    assert not found.is_worse
    assert [c.measure for c in found.peers if c.verdict == "worse"] == ["fit_seconds"]


def test_missing_and_incomparable_results():
    before = path_to_model(contender("polyleaf", "polyleaf", [make_run(1.0)]))
    failed = path_to_model(contender("polyleaf", "polyleaf", [], error="exit code 1"))
    assert compare.compare(before, failed).lost == ["c, polyleaf: exit code 1"]
    assert compare.compare(before, failed).is_worse
    other = copy.deepcopy(before)
    other["cases"][0]["contenders"][0]["settings"]["threads"] = 1
    found = compare.compare(before, other)
    assert found.not_comparable == ["c, polyleaf"] and not found.changes and not found.is_worse


def test_compare_from_the_command_line(tmp_path, capsys):
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, seconds in zip(paths, (1.0, 2.0), strict=True):
        report.write(path, path_to_model(contender("polyleaf", "polyleaf", [make_run(seconds)])))
    assert main(["compare", str(paths[0]), str(paths[0])]) == 0
    assert main(["compare", str(paths[1]), str(paths[0])]) == 0
    capsys.readouterr()
    assert main(["compare", str(paths[0]), str(paths[1])]) == 1
    assert "| worse | c | polyleaf | fit_seconds |" in capsys.readouterr().out


# --- the libraries ---


def _small_problem(kind):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((160, 4)).astype(np.float32)
    labels = (X[:, :3] > 0).astype(np.int64)
    labels[:, 2] = 0  # a label that no row has
    y = {
        "regression": X[:, :2] * 2,
        "multilabel": labels,
        "binary": labels[:, 0],
        "multiclass": labels[:, 0] + labels[:, 1],
    }[kind]
    return {"X": X[:100], "y": y[:100], "X_val": X[100:130], "y_val": y[100:130], "X_test": X[130:]}


@pytest.mark.parametrize("kind", list(SCORES))
@pytest.mark.parametrize("name", list(LIBRARIES))
def test_every_installed_library_supports_every_kind(name, kind):
    if (
        not is_installed(name) or name == "mbtr"
    ):  # mbtr's newest release does not import with today's Numba
        pytest.skip("not installed")
    data = _small_problem(kind)
    settings = cases.Settings(8, max_depth=3, max_leaves=8, min_rows=1, patience=4, threads=1)
    library = LIBRARIES[name](kind, settings)
    library.fit(data)
    predicted = np.asarray(library.predict(data["X_test"]))
    shape = {"binary": (30,), "multiclass": (30, 3), "multilabel": (30, 3), "regression": (30, 2)}[
        kind
    ]
    assert predicted.shape == shape and np.isfinite(predicted).all()
    if kind != "regression":
        assert predicted.min() >= 0 and predicted.max() <= 1
    if kind == "multilabel" and not name.startswith("omni"):
        assert predicted[:, 2].max() < 0.2
    assert 1 <= library.n_rounds() <= 8 and library.model_bytes() > 0


# --- abilities ---


def test_polyleaf_abilities_match_the_comparison_page():
    own = {
        ability: outcome
        for name, ability, outcome in abilities.run()
        if name.startswith("polyleaf")
    }
    cannot = {"ranking", "text as a feature", "embeddings as a feature"}
    assert (
        len(own) > 5
        and {ability for ability, outcome in own.items() if outcome != "works"} == cannot
    )


def test_failed_attempt_is_a_no_with_its_reason(monkeypatch):
    def fail():
        raise ValueError("not this.")

    monkeypatch.setattr(
        abilities, "_LIBRARIES", {"numpy": lambda: {"a wish": fail}, "no_such_module": dict}
    )
    ((name, ability, outcome),) = abilities.run()
    assert (
        name.startswith("numpy ") and ability == "a wish" and outcome == "no: ValueError: not this."
    )
