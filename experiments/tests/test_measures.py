"""Measures behind published figures, against values that are known otherwise."""

import numpy as np
import pytest
from experiments import defaults, gpu, portfolio, problems, report, search, sets, tuned
from experiments.harness import ranks, tables
from experiments.harness.context import Context
from experiments.harness.paper import Paper, Subject, Table
from experiments.harness.store import Store
from experiments.harness.verdict import Value, Verdict, compare, get_value
from experiments.papers import _poker, gbdt_pl
from support import host_device

ACCURACY = {"unit": "accuracy, %", "better": "higher", "digits": 1}


# --- cells of tables ---


def table(**changes):
    settings = {
        "name": "Table 1",
        "title": "accuracy",
        "subjects": (Subject("Letters", **ACCURACY), Subject("Digits", **ACCURACY)),
        "run": lambda context, method, problem: {},
        "protocol": "p",
        "paper": "Letters  Digits\nOurs  92.0  82.1\nXGBoost  91.5  -",
        "ours": ("Ours",),
    }
    return Table(**settings | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paper": "Letters  Digits\nOurs  92.0"}, "row 'Ours' has 1 cells"),
        ({"ours": ("Mine",)}, "'Mine' is in `ours`"),
        ({"explained": {("Ours", "Numbers"): "no"}}, "which is no cell"),
    ],
)
def test_inconsistent_declarations_raise_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        table(**changes)


@pytest.mark.parametrize(
    ("mean", "error", "better", "verdict"),
    [
        (91.96, None, "higher", Verdict.AS_GOOD),  # the same at the paper's digits
        (91.9, 0.2, "higher", Verdict.WITHIN_ERROR),
        (91.9, 0.05, "higher", Verdict.BELOW),
        (92.2, None, "lower", Verdict.BELOW),
        (91.0, None, None, Verdict.NOT_COMPARED),
    ],
)
def test_verdicts(mean, error, better, verdict):
    subject = Subject("a", "%", better, 1)
    assert compare(subject, Value(mean, None, error, 1), 92.0) is verdict


def test_values_of_repeats_and_of_single_runs():
    figures = {"a": [1.0, 3.0], "b": 5.0, "errors": {"b": 0.5}}
    assert get_value(figures, "a") == Value(2.0, pytest.approx(2**0.5), pytest.approx(1.0), 2)
    assert get_value(figures, "b") == Value(5.0, None, 0.5, 1)
    assert get_value(figures, "c") is None


def test_cells_show_both_figures_and_old_ones_are_marked(tmp_path, monkeypatch):
    study = Paper("tests", "t", "c", (table(explained={("Ours", "Digits"): "See."}),), ("cgb",))
    store = Store(tmp_path / "runs.jsonl")
    store.begin({"date": "2026-01-01"})
    for method, problem, values in (
        ("Ours", "Letters", [91.0, 93.0]),
        ("Ours", "Digits", [81.8, 82.2]),
        ("XGBoost", "Digits", [81.0, 81.0]),
    ):
        key = f"tests/<lambda>/{method}/{problem}"
        store.add({"key": key, "figures": {"score": values}})
    filled = tables.fill(study, study.tables[0], store)
    assert filled.rows[0] == ["Ours", "92.0 ± 1.4 (92.0) °", "82.0 ± 0.3 (82.1) ↘ [a] °"]
    assert filled.rows[1] == ["XGBoost", "– (91.5)", "81.0 ± 0.0"]
    assert any(note.startswith("° Measured before") for note in filled.notes)
    store.begin({"date": "2099-01-01"})
    store.add({"key": "tests/<lambda>/Ours/Letters", "figures": {"score": 92.0}})
    filled = tables.fill(study, study.tables[0], Store(tmp_path / "runs.jsonl"))
    assert filled.rows[0][1] == "92.0 (92.0)" and filled.rows[0][2].endswith("°")


def test_a_file_of_runs_continues_after_an_incomplete_line(tmp_path):
    path = tmp_path / "runs.jsonl"
    store = Store(path)
    store.begin({"quick": False})
    store.add({"key": "a", "figures": {"x": np.float64(1.0)}})
    store.add({"key": "b", "error": "exit code 1"})
    path.write_bytes(path.read_bytes()[:-5])
    again = Store(path)
    assert again.figures("a") == {"x": 1.0} and not again.done("b")
    again.add({"key": "b", "figures": {}})
    assert Store(path).done("b") and not Store(path).find_error("b")
    with pytest.raises(ValueError, match="holds full runs"):
        again.begin({"quick": True})


def test_mean_ranks_share_ties_and_skip_incomplete_subjects():
    found = {
        ("A", "s"): {"score": 3.0}, ("B", "s"): {"score": 2.0}, ("C", "s"): {"score": 2.0},
        ("A", "t"): {"score": [1.0, 3.0]}, ("B", "t"): {"score": 9.0}, ("C", "t"): {"score": 8.0},
        ("A", "u"): {"score": 1.0},
    }  # fmt: skip
    subjects = [Subject(t, "", b, 1) for t, b in (("s", "higher"), ("t", "lower"), ("u", "lower"))]
    values, methods = ranks.from_figures(found, subjects)
    assert ranks.mean_ranks(values, methods) == {"A": 1.0, "B": 2.75, "C": 2.25}


@pytest.mark.parametrize(("k", "n", "expected"), [(3, 14, 0.89), (4, 30, 0.86), (10, 12, 3.91)])
def test_critical_differences_match_published_tables(k, n, expected):
    """q of 2.343, 2.569 and 3.164 (Demšar, table 5)."""
    assert ranks.critical_difference(k, n) == pytest.approx(expected, abs=0.006)


def contender(label, library, *runs):
    zeros = dict.fromkeys(("predict_seconds", "peak_above_data_bytes", "model_bytes", "rounds"), 10)
    names = ("fit_seconds", "score", "curve")
    made = [zeros | dict(zip(names, run, strict=True)) for run in runs]
    return {
        "label": label, "library": library, "runs": made, "error": None, "score_name": "RMSE",
        "higher_is_better": False,
    }  # fmt: skip


def test_ratios_pair_neighbours_and_targets_are_the_best_peers():
    ours = [(s, 0.4, [(1, 0.5, 0.9), (2, 1.0, 0.5)]) for s in (1.0, 10.0, 2.0)]
    best = [(s, 0.5, [(1, 3.0, 0.7), (2, 6.0, 0.5)]) for s in (4.0, 20.0, 6.0)]
    contenders = [
        contender("polyleaf", "polyleaf", *ours),
        contender("best", "xgboost", *best),
        contender("models", "lightgbm", (7.0, 0.6, [])),
    ]
    case = {"baseline": "polyleaf", "focus": "fit_seconds", "contenders": contenders}
    report.summarise(case)
    assert case["target"] == 0.5
    assert contenders[1]["ratios"]["fit_seconds"] == {"median": 3.0, "min": 2.0, "max": 4.0}
    assert contenders[0]["runs"][0]["seconds_to_target"] == 1.0
    assert contenders[2]["runs"][0]["seconds_to_target"] is None
    assert report.has_failed([case]) is False
    contenders[0]["error"] = "ValueError: no"
    assert report.has_failed([case]) is True


# --- data ---


def test_a_set_is_split_without_overlap(tmp_path):
    X, rows = np.random.default_rng(0).random((120, 5)), np.arange(120)
    np.savez(tmp_path / "a.npz", X=X, y=rows % 3, train_idx=rows[:100], test_idx=rows[100:])
    made = problems.read(tmp_path, "a")
    assert [len(made[k]) for k in ("X", "X_val", "X_test")] == [85, 15, 20]
    assert len(np.unique(np.concatenate([made[k] for k in ("X", "X_val", "X_test")]))) == 600
    found = sets.load(tmp_path, "a")
    assert (found.task, found.X.dtype, found.y.dtype) == ("multiclass", np.float32, np.int64)


def test_poker_hands_are_dealt_and_classified():
    hands = {
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
    }  # suit and rank of five cards
    rng = np.random.default_rng(0)
    for worth, hand in hands.items():
        orders = np.array([rng.permutation(np.array(hand)).reshape(-1) for _ in range(20)])
        assert set(_poker.classes(orders)) == {worth}
    _, y = _poker.deal(60_000, seed=3)
    shares = np.bincount(y, minlength=10)[:3] / 60_000
    np.testing.assert_allclose(shares, [0.5012, 0.4226, 0.0475], rtol=0.06)


# --- scores ---


def test_f1_of_labels():
    truth, predicted = np.array([[1, 0, 0], [1, 1, 0]]), np.array([[1, 1, 1], [0, 1, 0]], bool)
    assert defaults.f1(truth, predicted) == (2 * 2 / (3 + 4), pytest.approx((2 / 3 + 2 / 3) / 2))


def test_labels_are_scored_at_a_chosen_threshold(tmp_path, monkeypatch):
    """The probabilities of this library are a third of what they should be."""
    X = np.random.default_rng(0).random((400, 3)).astype(np.float32)
    np.savez(tmp_path / "emotions.npz", X=X, y=(X > 0.6).astype(np.int8), task="multilabel")
    monkeypatch.setitem(defaults.LIBRARIES, "Polyleaf", lambda job: lambda X: X / 3)
    figures = defaults.out_of_the_box(Context(tmp_path, quick=True), "Polyleaf", "emotions")
    assert figures["score"] == [0.0, 0.0] and min(figures["chosen"]) > 0.95
    assert all(0.18 < threshold < 0.22 for threshold in figures["threshold"])


def test_greedy_cover_adds_the_most_useful_combination():
    far = portfolio.excess(
        {"a": [2.0, 1.0, 1.1, None], "b": [1.0, 9.0, 1.2, 1.0], "c": [2.0, 1.5, 1.0, 2.0]}
    )
    assert portfolio.cover(far, "abc", 3) == [0, 2, 1]


def test_standard_error_of_the_difference_of_losses():
    rng = np.random.default_rng(1)
    y, common = rng.standard_normal((2_000, 2)), rng.standard_normal((2_000, 2))
    near, far = y + 0.5 * common, y + 0.5 * common + 0.2 * rng.standard_normal(y.shape)

    def loss(predicted, rows=slice(None)):
        return search.compute_scores("regression", y[rows], predicted[rows])[0]

    drawn = [rng.integers(len(y), size=len(y)) for _ in range(300)]
    deviation = np.std([loss(far, rows) - loss(near, rows) for rows in drawn])
    found = search._compare_with_defaults("regression", y, far, near)
    assert found == pytest.approx((loss(far) - loss(near)) / deviation, rel=0.15)


def test_seconds_to_an_error():
    points = [(0.5, 9.0), (1.5, 4.0), (3.0, 5.0)]
    assert gbdt_pl.best(points) == 4.0
    assert gbdt_pl.seconds_to(points, 8.0) == 1.5 and gbdt_pl.seconds_to(points, 3.0) is None


class Shift:
    """A library whose one parameter should be 3, and whose best number of rounds is 7."""

    defaults, last = {}, None

    def space(self, trial):
        return {"by": trial.suggest_float("by", -10, 10)}

    def fit(self, parameters, rounds, part, valid, passed):
        by = parameters.get("by", -10.0)
        self.last = by, rounds, len(part.y)
        return tuned.Fitted(lambda X: X[:, 0] + by, rounds or [7], 14)


class Steps:
    """Time that passes whenever it is read."""

    def __init__(self, seconds):
        self.now = seconds

    def left(self):
        self.now -= 1
        return self.now


def test_the_best_trial_of_another_library_is_trained_on_all_rows(monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(tuned, "Deadline", Steps)
    X, rows, peer = np.random.default_rng(0).normal(size=(90, 1)), np.arange(90), Shift()
    folds = [(rows[rows % 3 != j], rows[rows % 3 == j]) for j in range(3)]
    _, chosen = tuned.tune(peer, tuned.Part("regression", X, X[:, 0] + 3), folds, 2_000)
    assert chosen["trials"] > 20 and abs(chosen["parameters"]["by"] - 3) < 1
    assert peer.last == (chosen["parameters"]["by"], [7], 90)


def test_models_of_gpu_and_cpu_are_compared(monkeypatch):
    own = {name: fit for name, fit in gpu.LIBRARIES.items() if name.startswith("polyleaf")}
    monkeypatch.setattr(gpu, "LIBRARIES", own)
    monkeypatch.setattr(gpu, "CASES", (gpu.Case("two outputs", 2_000, 9, 2),))
    host_device.use(monkeypatch)
    assert gpu.measure(quick=True, repeats=1, log=lambda text: None)[0]["same_bytes"] is True
    done = gpu.measure_prediction(quick=True, repeats=1, log=lambda text: None)
    assert all(row[-1] == "yes" for row in gpu.make_prediction_rows(done)[1])
