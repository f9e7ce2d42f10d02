"""The frame of the papers' tables, on a small paper that was never written; and the real ones."""

import json
import sys
import types

import numpy as np
import pytest
from benchmarks import compare, papers, results
from benchmarks.__main__ import main
from benchmarks.harness import plots, ranks, runner, tables, worker
from benchmarks.harness.context import Context, Unavailable
from benchmarks.harness.paper import Figure, Paper, Subject, Table
from benchmarks.harness.store import Store
from benchmarks.harness.verdict import Value, Verdict, get_value
from benchmarks.harness.verdict import compare as compare_figures
from benchmarks.processes import Failed

ACCURACY = {"unit": "accuracy, %", "better": "higher", "digits": 1}
DONE = []  # what was run, in order


def accuracy(context, method, problem):
    DONE.append((method, problem))
    if method == "Absent":
        raise Unavailable("absent is not installed")
    if method == "Broken":
        raise Failed("exit code 1: out of luck")
    best = {"letters": 90.0, "digits": 80.0}[problem]
    values = [best + (method == "Ours") + seed for seed in context.seeds(3)]
    return {"score": values, "seconds": 2.0, "curves": {"test": [[1, 0.5], [2, 0.25]]}}


def paper(*more, **changes):
    table = {
        "name": "Table 1",
        "title": "accuracy",
        "subjects": (
            Subject("Letters", problem="letters", needs=("letters",), **ACCURACY),
            Subject("Digits", problem="digits", **ACCURACY),
        ),
        "run": accuracy,
        "protocol": "Three repeats.",
        "paper": """
                    Letters  Digits
            Ours    92.0     82.1
            Theirs  91.5     -
        """,
        "ours": ("Ours",),
        **changes,
    }
    made = Paper("fake.small", "Small", "Nobody, 2026", (Table(**table), *more))
    module = types.ModuleType("fake.small")
    module.PAPER = made
    sys.modules["fake.small"] = module
    return made


@pytest.fixture
def context(tmp_path):
    DONE.clear()
    np.savez(tmp_path / "letters.npz", X=np.zeros(1))
    return Context(tmp_path)


def run(made, context, store, **more):
    return runner.run(made.tasks(), context, store, worker.measure, **more)


# --- declaration ---


def test_tables_are_parsed_as_printed():
    table = paper().tables[0]
    letters, digits = table.subjects
    assert table.methods == ("Ours", "Theirs")
    assert table.printed("Ours", letters) == 92.0 and table.printed("Theirs", digits) is None
    turned = paper(
        subjects_are="rows",
        paper="Ours  Theirs\nLetters  92.0  91.5\nDigits  82.1  -",
        also=("More",),
    ).tables[0]
    assert turned.methods == ("Ours", "Theirs", "More")
    assert turned.printed("Theirs", letters) == 91.5 and turned.printed("More", letters) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paper": "Letters  Digits\nOurs  92.0"}, "row 'Ours' has 1 cells, the head 2"),
        ({"paper": "Digits  Letters\nOurs  92.0  82.1"}, "the text has subjects"),
        ({"ours": ("Mine",)}, "'Mine' is in `ours`"),
        ({"quoted": ("Mine",)}, "'Mine' is in `quoted`"),
        ({"explained": {("Ours", "Numbers"): "no"}}, "which is no cell"),
    ],
)
def test_inconsistent_declarations_raise_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        paper(**changes)


def test_run_shared_by_several_cells_is_one_task():
    seconds = Subject(
        "Letters", "s", None, 1, problem="letters", figure="seconds", needs=("letters",)
    )
    made = paper(
        Table(
            "Table 2", "time", (seconds,), accuracy, "", paper="Letters\nOurs  3.0", ours=("Ours",)
        )
    )
    keys = [task.key for task in made.tasks()]
    assert len(keys) == len(set(keys)) == 4 and keys[0] == "small/accuracy/Ours/letters"


def test_quoted_methods_are_shown_and_not_run(context, tmp_path):
    made, store = paper(quoted=("Theirs",)), Store(tmp_path / "runs.jsonl")
    run(made, context, store)
    assert DONE == [("Ours", "letters"), ("Ours", "digits")]
    assert tables.fill(made, made.tables[0], store).rows[1] == ["Theirs", "– (91.5)", "–"]


# --- verdicts ---


@pytest.mark.parametrize(
    ("mean", "error", "better", "verdict"),
    [
        (92.04, None, "higher", Verdict.AS_GOOD),
        (91.96, None, "higher", Verdict.AS_GOOD),  # at the paper's digits the same
        (91.9, 0.2, "higher", Verdict.WITHIN_ERROR),
        (91.9, 0.05, "higher", Verdict.BELOW),
        (91.9, None, "lower", Verdict.AS_GOOD),
        (92.2, None, "lower", Verdict.BELOW),
        (92.2, 0.3, "lower", Verdict.WITHIN_ERROR),
        (91.0, None, None, Verdict.NOT_COMPARED),
    ],
)
def test_verdicts(mean, error, better, verdict):
    assert (
        compare_figures(Subject("a", "%", better, 1), Value(mean, None, error, 1), 92.0) is verdict
    )


def test_values_of_repeats_have_a_deviation_and_single_values_their_error():
    figures = {"a": [1.0, 3.0], "b": 5.0, "errors": {"b": 0.5}}
    assert get_value(figures, "a") == Value(2.0, pytest.approx(2**0.5), pytest.approx(1.0), 2)
    assert get_value(figures, "b") == Value(5.0, None, 0.5, 1)
    assert get_value(figures, "c") is None and get_value(None, "a") is None
    kept = {"a": {"mean": 2.0, "deviation": 0.5, "n": 4}}
    assert get_value(kept, "a") == Value(2.0, 0.5, 0.25, 4)


# --- running and keeping ---


def test_finished_runs_are_not_repeated(context, tmp_path):
    made, path = paper(), tmp_path / "out" / "runs.jsonl"
    assert run(made, context, Store(path)) == []
    assert len(DONE) == 4
    again = Store(path)
    assert again.figures("small/accuracy/Ours/digits")["score"] == [81.0, 82.0, 83.0]
    assert again.records["small/accuracy/Ours/digits"]["ran_in"] == 0
    assert run(made, context, again) == [] and len(DONE) == 4
    assert len(again.environments) == 1  # nothing was run
    run(made, context, again, again=True)
    assert len(DONE) == 8 and len(Store(path).environments) == 2


def test_only_an_interrupted_run_is_repeated(context, tmp_path):
    made, path = paper(), tmp_path / "runs.jsonl"
    run(made, context, Store(path))
    path.write_bytes(path.read_bytes()[:-20])
    DONE.clear()
    run(made, context, Store(path))
    assert DONE == [("Theirs", "digits")]
    assert all(json.loads(line) for line in path.read_text().splitlines())
    assert all(Store(path).done(task.key) for task in made.tasks())


def test_missing_data_set_is_skipped_until_it_exists(context, tmp_path, capsys):
    made, store = paper(), Store(tmp_path / "runs.jsonl")
    (tmp_path / "letters.npz").rename(tmp_path / "elsewhere.npz")
    run(made, context, store)
    assert "letters.npz does not exist" in capsys.readouterr().err
    assert DONE == [("Ours", "digits"), ("Theirs", "digits")]
    (tmp_path / "elsewhere.npz").rename(tmp_path / "letters.npz")
    run(made, context, store)
    assert len(DONE) == 4


def test_failures_are_reported_and_retried(context, tmp_path):
    made, path = paper(also=("Absent", "Broken")), tmp_path / "runs.jsonl"
    failed = run(made, context, Store(path))
    assert [task.method for task in failed] == [
        "Broken",
        "Broken",
    ]  # a library that is absent is no failure
    store = Store(path)
    assert store.find_error("small/accuracy/Absent/digits") == "absent is not installed"
    DONE.clear()
    run(made, context, store)
    assert {method for method, _ in DONE} == {"Absent", "Broken"}
    filled = tables.fill(made, made.tables[0], store)
    assert "Not run: Absent: absent is not installed" in filled.notes


def test_quick_and_full_runs_do_not_mix(context, tmp_path):
    path = tmp_path / "runs.jsonl"
    run(paper(), context, Store(path))
    quick = Context(context.data, quick=True)
    with pytest.raises(ValueError, match="holds full runs; write quick ones to another file"):
        run(paper(), quick, Store(path), again=True)
    assert list(quick.seeds(10)) == [0, 1] and quick.rounds(3) == 3 and quick.rounds(500) < 10


@pytest.mark.parametrize("text", ["{\n", "[]\n", '{"a": 1}\n'])
def test_other_files_raise_an_error(tmp_path, text):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match="line 1, is no"):
        Store(path)


# --- showing ---


def test_cells_show_both_figures_and_a_note(context, tmp_path):
    made, store = (
        paper(explained={("Ours", "Digits"): "See table 2."}),
        Store(tmp_path / "runs.jsonl"),
    )
    run(made, context, store)
    filled = tables.fill(made, made.tables[0], store)
    assert filled.header == ["accuracy, %", "Letters", "Digits"]
    assert filled.rows[0] == ["Ours", "92.0 ± 1.0 (92.0)", "82.0 ± 1.0 (82.1) ↘ [a]"]
    assert filled.rows[1] == ["Theirs", "91.0 ± 1.0 (91.5)", "81.0 ± 1.0"]  # peers are not judged
    assert filled.notes == ["[a] See table 2."]
    assert (
        tables.count(filled.verdicts)
        == "Of 2 cells of ours: 1 as good, 1 within one standard error."
    )


def test_page_has_every_table_and_plot_and_is_reproducible(context, tmp_path):
    subject = Subject("Digits", problem="digits", **ACCURACY)
    curves = Figure(
        "Figure 1",
        "curves",
        (subject,),
        accuracy,
        "As the table.",
        lines=("Ours",),
        curves=("test",),
    )
    absent = Figure(
        "Figure 2", "none", (subject,), accuracy, "", lines=("Nobody",), curves=("test",)
    )
    made, store = paper(curves), Store(tmp_path / "runs.jsonl")
    run(made, context, store)
    made = paper(curves, absent)
    text = results.page([(made, store)], [], tmp_path / "images")
    assert "| Ours | 92.0 ± 1.0 (92.0) | 82.0 ± 1.0 (82.1) ↘ |" in text
    assert (
        "![curves](images/small-figure-1.svg)" in text and "### Figure 2: none\n\nNot run." in text
    )
    assert store.environments[0]["commit"][:10] in text and "Three repeats." in text
    image = tmp_path / "images" / "small-figure-1.svg"
    before = image.read_bytes()
    assert results.page([(made, store)], [], tmp_path / "images") == text
    assert image.read_bytes() == before


def test_figure_with_its_own_drawing_function(context, tmp_path):
    subject, seen = Subject("Digits", problem="digits", **ACCURACY), {}
    figure = Figure(
        "F",
        "f",
        (subject,),
        accuracy,
        "",
        lines=("Ours",),
        draw=lambda canvas, found: seen.update(found),
    )
    made, store = paper(figure), Store(tmp_path / "runs.jsonl")
    run(made, context, store)
    assert plots.draw(made, figure, store, tmp_path).is_file()
    assert seen[("Ours", "Digits")]["seconds"] == 2.0


# --- comparing ---


def test_two_files_of_runs_are_compared_cell_by_cell(tmp_path):
    made = paper(
        subjects=(Subject("Digits", problem="digits", **ACCURACY),),
        paper="Digits\nOurs  1\nTheirs  1",
    )
    files = {}
    for name, ours, theirs in (
        ("before", [80.0, 80.2], 70.0),
        ("same", [79.9, 80.1], 60.0),
        ("worse", [75.0, 75.1], 70.0),
    ):
        files[name] = Store(tmp_path / f"{name}.jsonl")
        files[name].begin({"quick": False})
        for method, value in (("Ours", ours), ("Theirs", theirs)):
            files[name].add({"key": f"small/accuracy/{method}/digits", "figures": {"score": value}})
    same = compare.compare_studies(files["before"], files["same"], [made], 0.05)
    assert not same.is_worse and [change.verdict for change in same.peers] == ["worse"]
    worse = compare.compare_studies(files["before"], files["worse"], [made], 0.05)
    assert worse.is_worse and worse.changes[0].measure == "Digits"
    files["worse"].add({"key": "small/accuracy/Ours/digits", "error": "exit code 1"})
    assert compare.compare_studies(files["before"], files["worse"], [made], 0.05).lost == [
        "small, Table 1, Ours, Digits: exit code 1"
    ]


def test_files_of_runs_are_compared_from_the_command_line(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl")]) == 0
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]) == 2


# --- ranks ---


def test_mean_ranks_share_ties_and_skip_incomplete_subjects():
    found = {
        ("A", "s"): {"score": 3.0}, ("B", "s"): {"score": 2.0}, ("C", "s"): {"score": 2.0},
        ("A", "t"): {"score": [1.0, 3.0]}, ("B", "t"): {"score": 9.0}, ("C", "t"): {"score": 8.0},
        ("A", "u"): {"score": 1.0},
    }  # fmt: skip
    subjects = [
        Subject("s", "", "higher", 1),
        Subject("t", "", "lower", 1),
        Subject("u", "", "lower", 1),
    ]
    values, methods = ranks.from_figures(found, subjects)
    assert len(values) == 2 and methods == ["A", "B", "C"]
    assert ranks.mean_ranks(values, methods) == {"A": 1.0, "B": 2.75, "C": 2.25}


@pytest.mark.parametrize(("k", "n", "expected"), [(3, 14, 0.89), (4, 30, 0.86), (10, 12, 3.91)])
def test_critical_differences_match_published_tables(k, n, expected):
    """q of 2.343, 2.569 and 3.164 (Demšar, table 5)."""
    assert ranks.critical_difference(k, n) == pytest.approx(expected, abs=0.006)


def test_bars_join_methods_without_significant_difference():
    assert plots.groups([1.0, 1.5, 2.2, 4.0], critical=1.0) == [(1.0, 1.5), (1.5, 2.2)]
    assert plots.groups([1.0, 3.0], critical=1.0) == []


# --- the real ones ---


def test_poker_hands_are_classified():
    from benchmarks.papers import _poker

    hands = {  # suit and rank of five hands
        0: [(1, 2), (2, 5), (3, 9), (4, 11), (1, 13)],
        1: [(1, 2), (2, 2), (3, 9), (4, 11), (1, 13)],
        2: [(1, 2), (2, 2), (3, 9), (4, 9), (1, 13)],
        3: [(1, 2), (2, 2), (3, 2), (4, 9), (1, 13)],
        4: [(1, 10), (2, 11), (3, 12), (4, 13), (1, 1)],
        5: [(3, 2), (3, 5), (3, 9), (3, 11), (3, 13)],
        6: [(1, 2), (2, 2), (3, 2), (4, 9), (1, 9)],
        7: [(1, 2), (2, 2), (3, 2), (4, 2), (1, 13)],
        8: [(2, 1), (2, 2), (2, 3), (2, 4), (2, 5)],
        9: [(2, 10), (2, 11), (2, 12), (2, 13), (2, 1)],
    }
    rng = np.random.default_rng(0)
    for worth, hand in hands.items():
        orders = np.array([rng.permutation(np.array(hand)).reshape(-1) for _ in range(20)])
        assert set(_poker.classes(orders)) == {worth}
    around = [[1, 12, 2, 13, 3, 1, 4, 2, 1, 3]]  # the ace does not join king and two
    assert _poker.classes(np.array(around)).tolist() == [0]


def test_poker_hands_have_distinct_cards():
    from benchmarks.papers import _poker

    X, y = _poker.deal(60_000, seed=3)
    hands = (X[:, 0::2] - 1) * 13 + X[:, 1::2] - 1
    assert all(len(set(hand)) == 5 for hand in hands[:5000].tolist())
    np.testing.assert_allclose(
        np.bincount(hands.astype(int).ravel(), minlength=52) / 60_000, 5 / 52, rtol=0.06
    )
    np.testing.assert_allclose(
        np.bincount(y, minlength=10)[:3] / 60_000, [0.5012, 0.4226, 0.0475], rtol=0.06
    )


def test_all_papers_are_well_formed():
    for name, made in papers.all_papers().items():
        assert made.key == name and made.citation and made.tables
        assert len({table.name for table in made.tables}) == len(made.tables)
        assert len({task.key for task in made.tasks()}) == len(made.tasks())
        for table in made.tables:
            assert table.protocol and table.methods and table.title


def test_unknown_names_raise_an_error(capsys):
    assert main(["papers", "nobody"]) == 2
    assert "nobody: not among" in capsys.readouterr().err
    assert main(["papers", "--table", "Table 99"]) == 2


# --- data ---


def test_sets_of_every_kind_are_read(tmp_path):
    rows = np.arange(20)
    np.savez(tmp_path / "classes.npz", task="multiclass", X=np.zeros((20, 3), np.uint8), y=rows % 3)
    np.savez(
        tmp_path / "labels.npz",
        task="multilabel",
        X_data=np.full(20, 2.0), X_indices=rows % 5, X_indptr=np.arange(21), X_shape=(20, 5),
        Y_indices=rows % 4, Y_indptr=np.arange(21), Y_shape=(20, 4),
        sb_train_idx=rows[:15], sb_test_idx=rows[15:],
    )  # fmt: skip
    context = Context(tmp_path)
    classes, labels = context.load("classes"), context.load("labels")
    assert (classes.task, classes.X.dtype, classes.y.dtype) == ("multiclass", np.float32, np.int64)
    assert classes.parts is None and not classes.categorical.any()
    train, test = classes.split(0)
    assert len(test) == 4 and not set(train) & set(test)
    assert labels.X.shape == (20, 5) and labels.X[7, 2] == 2.0
    assert labels.y.shape == (20, 4) and (labels.y.argmax(axis=1) == rows % 4).all()
    assert labels.parts is not None and list(labels.parts[1]) == [15, 16, 17, 18, 19]


def test_labelled_sets_stay_sparse(tmp_path):
    from benchmarks import sets
    from scipy.sparse import csr_matrix, issparse

    from polyleaf.files.xmc import write_multilabel

    rows = np.arange(20)
    np.savez(
        tmp_path / "npz.npz",
        X=np.eye(20, 3, dtype=np.uint8), Y_indices=rows % 4, Y_indptr=np.arange(21), Y_shape=(20,
        4),
    )  # fmt: skip
    found = sets.load_labelled(tmp_path, "npz")
    assert issparse(found.Y) and found.Y.shape == (20, 4) and found.X.dtype == np.float32
    assert sorted(np.concatenate(found.parts)) == list(rows) and len(found.parts[1]) == 4

    folder = tmp_path / "texts"
    folder.mkdir()
    X, Y = csr_matrix(np.eye(20, 7)), csr_matrix(np.eye(20, 5))
    write_multilabel(folder / "train.txt", X[:15], Y[:15])
    with pytest.raises(sets.DataMissing):
        sets.find(tmp_path, "texts")
    write_multilabel(folder / "test.txt", X[15:], Y[15:])
    found = sets.load_labelled(tmp_path, "texts")
    assert (found.X != X).nnz == 0 and (found.Y != Y).nnz == 0
    assert found.part(1)[0].shape == (5, 7)


def test_sparse_runs_give_what_their_tables_show(tmp_path):
    """Every figure of every run of GBDT-SPARSE, on a tiny set."""
    from benchmarks.papers import gbdt_sparse

    rng = np.random.default_rng(0)
    topic = rng.integers(0, 4, 700)
    held = rng.random((700, 12)) < np.where(rng.random((4, 12)) < 0.3, 0.7, 0.05)[topic]
    indptr, indices = np.r_[0, np.cumsum(held.sum(1))], np.nonzero(held)[1]
    X = (rng.random((700, 30)) < np.where(rng.random((4, 30)) < 0.3, 0.5, 0.05)[topic]).astype(
        np.uint8
    )
    np.savez(tmp_path / "delicious.npz", X=X, Y_indices=indices, Y_indptr=indptr, Y_shape=(700, 12),
             train_idx=np.arange(600), test_idx=np.arange(600, 700))  # fmt: skip
    context = Context(tmp_path, quick=True)
    for name in ("Table 1, Delicious", "Table 3", "Splits"):
        (table,) = (t for t in gbdt_sparse.PAPER.tables if t.name == name)
        for method in ("LEML", "GBDT-SPARSE", "one-versus-rest, linear"):
            if method not in table.methods:
                continue
            figures = table.run(context, method, "delicious")
            shown = [s.figure for s in table.subjects if s.problem == "delicious"]
            assert all(np.all(np.asarray(figures[f]) > 0) for f in shown), figures
    curves = gbdt_sparse.by_size(context, "GBDT-SPARSE", "delicious")["curves"]
    assert curves["size"][-1][1] == curves["time"][-1][1] > 40
    assert gbdt_sparse.made(context, "GBDT-SPARSE", "2,000")["predicted"] > 0
    assert gbdt_sparse.by_threads(context, "GBDT-SPARSE, exact search", "2")["a tree"] > 0
