"""The studies of the search: what a cover is, what runs give on small data, and how others are
tuned.
"""

import numpy as np
import pytest
from benchmarks import portfolio, search, tuned
from benchmarks.harness import plots
from benchmarks.harness.context import Context, Unavailable

from polyleaf.search import optuna_search, successive_halving


@pytest.fixture
def context(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4)).astype(np.float32)
    y = (X[:, :2] + 0.1 * rng.standard_normal((150, 2))).astype(np.float32)
    np.savez(tmp_path / "enb.npz", X=X, y=y, task="regression")
    return Context(tmp_path, quick=True)


def test_greedy_cover_adds_the_most_useful_combination():
    far = portfolio.excess(
        {"a": [2.0, 1.0, 1.1, None], "b": [1.0, 9.0, 1.2, 1.0], "c": [2.0, 1.5, 1.0, 2.0]}
    )
    assert far["a"][1] == far["b"][0] == 0 and far["a"][3] == far["b"][1] == 1.0  # at most 1
    assert portfolio.cover(far, "abc", 3) == [0, 2, 1]
    assert portfolio.cover(far, "b", 2) == [0, 1]  # nothing helps: the first of them
    assert portfolio.left(far, "ab", [0]) == pytest.approx(np.log(2) / 2)


def test_a_third_of_the_data_sets_is_held_out():
    apart = portfolio.confirmed_on()
    assert (
        set(apart) < set(portfolio.SETS)
        and len(portfolio.SETS) / 3 <= len(apart) < len(portfolio.SETS) / 2.5
    )
    assert all(set(apart) & set(names) for names in portfolio.TASKS.values())
    assert set(apart) <= set(search.apart()) >= set(portfolio.LEFT_OUT)


def test_combinations_are_distinct_and_train(context):
    found = portfolio.compositions()
    assert all(parameters not in found[:i] for i, parameters in enumerate(found))
    figures = portfolio.losses(context, "Polyleaf", "enb")
    assert len(figures["losses"]) == 3 and all(0 < loss < 1 for loss in figures["losses"])
    assert figures["gained"] == pytest.approx(
        100 * (1 - min(figures["losses"]) / figures["losses"][0])
    )
    header, rows = portfolio.make_rows({"enb": figures, "edm": figures}, sizes=(1, 3))
    assert header[1:] == ["1 tried", "3 tried"] and all(row[2] == "0.0" for row in rows)


@pytest.mark.parametrize("method", ["Polyleaf", "Polyleaf, blend of 5", "Polyleaf as it comes"])
def test_polyleaf_search_runs(context, method):
    before = optuna_search.is_optuna_useful, successive_halving.time
    figures = search.within_15(context, method, "enb")
    assert (optuna_search.is_optuna_useful, successive_halving.time) == before, (
        "a run leaves the library as it found it"
    )
    assert 0 < figures["loss"] < 1 and figures["score"] > 0
    assert 0 < figures["megabytes"] < 10 and figures["us"] > 0
    assert ("behind" in figures) == (method == "Polyleaf")


def test_standard_error_of_the_loss_difference():
    rng = np.random.default_rng(1)
    y, common = rng.standard_normal((2_000, 2)), rng.standard_normal((2_000, 2))
    near, far = y + 0.5 * common, y + 0.5 * common + 0.2 * rng.standard_normal(y.shape)
    drawn = [rng.integers(len(y), size=len(y)) for _ in range(300)]
    apart = [
        search.compute_scores("regression", y[i], far[i])[0]
        - search.compute_scores("regression", y[i], near[i])[0]
        for i in drawn
    ]
    expected = (
        search.compute_scores("regression", y, far)[0]
        - search.compute_scores("regression", y, near)[0]
    ) / np.std(apart)
    found = search._compare_with_defaults("regression", y, far, near)["behind"]
    assert found == pytest.approx(expected, rel=0.15) and found > 5
    assert search._compare_with_defaults("regression", y, near, far)["behind"] == -found
    assert search._compare_with_defaults("regression", y, near, near)["behind"] == 0.0


def test_panel_needs_several_time_limits(tmp_path):
    figure = search.PAPER.tables[-1]
    assert {search.PAPER.task(figure, "Polyleaf", s).run.__name__ for s in figure.subjects} == {
        "within_15", "within_60", "within_300",
    }  # fmt: skip
    found = {("Polyleaf", "usps 15"): {"loss": 0.2}, ("XGBoost", "satimage 60"): {"loss": 0.3}}
    found |= {("Polyleaf", f"satimage {s}"): {"loss": 10.0 / s} for s in (15, 60)}
    panels = []
    plots.save(
        lambda canvas: (figure.draw(canvas, found), panels.extend(canvas.axes)), tmp_path / "x.svg"
    )
    (panel,) = panels
    assert panel.get_title() == "satimage"
    assert [line.get_label() for line in panel.get_lines()] == ["Polyleaf", "XGBoost"]


def test_missing_library_is_an_error(context, monkeypatch):
    monkeypatch.setattr(search, "is_installed", lambda name: False)
    with pytest.raises(Unavailable, match="CatBoost or Optuna"):
        search.within_15(context, "CatBoost", "enb")


class Counted:
    """Time that passes whenever it is asked for."""

    def __init__(self, seconds):
        self.now = seconds

    def left(self):
        self.now -= 1
        return self.now


class Shift(tuned.Peer):
    """A library whose one parameter should be 3, and whose best number of rounds is 7."""

    name, rate = "Shift", 0.1

    def __init__(self):
        self.last = None

    def space(self, trial):
        return {"by": trial.suggest_float("by", -10, 10)}

    def fit(self, parameters, rounds, part, valid, passed):
        by = parameters.get("by", -10.0)
        self.last = by, rounds, len(part.y)
        self.was_cut = passed()
        return tuned.Fitted(lambda X: X[:, 0] + by, rounds or [7], 14)


def test_the_best_trial_is_trained_on_all_rows(monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(tuned, "Deadline", Counted)
    X = np.random.default_rng(0).normal(size=(90, 1))
    part, peer = tuned.Part("regression", X, X[:, 0] + 3), Shift()
    rows = np.arange(90)
    folds = [(rows[rows % 3 != j], rows[rows % 3 == j]) for j in range(3)]
    predict, chosen = tuned.tune(peer, part, folds, 2_000)
    assert chosen["trials"] > 20 and abs(chosen["parameters"]["by"] - 3) < 1
    assert peer.last == (chosen["parameters"]["by"], [7], 90)
    np.testing.assert_array_equal(predict(X), X[:, 0] + chosen["parameters"]["by"])


def test_final_fit_is_not_interrupted_by_the_time_limit(monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(tuned, "Deadline", Counted)
    part, peer = tuned.Part("regression", np.zeros((6, 1)), np.ones(6)), Shift()
    rows = np.arange(6)
    tuned.tune(peer, part, [(rows[:4], rows[4:])], -5)
    assert peer.last == (-10.0, [7], 6) and not peer.was_cut
