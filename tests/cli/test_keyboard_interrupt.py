"""interrupts.py: what Ctrl-C leaves of a training, and where training speaks."""

import numpy as np
import pytest
from support.commands import polyleaf

from polyleaf import load_model
from polyleaf.cli.main import run
from polyleaf.search.base import Searches
from polyleaf.search.successive_halving import Race
from polyleaf.training.boosting import Run

LABELS = "40 2 3\n" + "".join(f"{i % 3} 0:{i % 3 + 1} 1:1\n" for i in range(40))


@pytest.fixture
def table(tmp_path):
    x = np.random.default_rng(0).random((90, 2)).round(3)
    lines = [f"{a},{b},{a + b:.3f}" for a, b in x.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    return tmp_path / "t.csv"


@pytest.fixture
def model(tmp_path):
    return tmp_path / "m"


def interrupted(capsys, *arguments):
    """The last line on the error stream of a command that Ctrl-C ends."""
    capsys.readouterr()
    assert run([str(argument) for argument in arguments]) == 130
    printed = capsys.readouterr()
    assert printed.out == "" and "UserWarning" not in printed.err and "Traceback" not in printed.err
    return printed.err.splitlines()[-1]


def interrupt_after(monkeypatch, cls, name, calls):
    """Ctrl-C in the next call after so many."""
    plain, left = getattr(cls, name), [calls]

    def counted(*arguments, **how):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return plain(*arguments, **how)

    monkeypatch.setattr(cls, name, counted)


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_an_interrupted_training_is_saved(quiet, table, model, monkeypatch, capsys):
    interrupt_after(monkeypatch, Run, "step", 5)
    said = interrupted(capsys, "train", table, "-t", "y", "-m", model, "--rounds", "50", *quiet)
    assert said == f"polyleaf: interrupted after 5 rounds; the model of these is saved to {model}."
    assert load_model(model).n_iter_ == 5
    monkeypatch.undo()
    polyleaf("predict", table, "-m", model)


def test_rows_with_labels_are_no_exception(tmp_path, model, monkeypatch, capsys):
    (tmp_path / "t.xmc").write_text(LABELS)
    interrupt_after(monkeypatch, Run, "step", 2)
    said = interrupted(capsys, "train", tmp_path / "t.xmc", "-m", model, "--rounds", "9")
    assert said.startswith("polyleaf: interrupted after 2 rounds;")
    assert load_model(model).n_iter_ == 2


@pytest.mark.parametrize("search", [[], ["--set", "n_candidates=2", "--search", "60"]])
def test_where_nothing_is_complete_that_is_said(search, table, model, monkeypatch, capsys):
    model.write_text("of old")
    interrupt_after(monkeypatch, Run, "step", 0)
    said = interrupted(capsys, "train", table, "-t", "y", "-m", model, "--quiet", *search)
    assert said == "polyleaf: interrupted before anything was complete: no model is saved."
    assert model.read_text() == "of old"


def search_of(table, model):
    fast = ["--rounds", "6", "--threads", "1", "--set", "n_candidates=3", "--set", "cv=2"]
    return "train", table, "-t", "y", "-m", model, "--search", "60", *fast


def test_an_interrupted_search_saves_the_best(table, model, monkeypatch, capsys):
    interrupt_after(monkeypatch, Race, "judge_again", 0)
    said = interrupted(capsys, *search_of(table, model))
    assert said.startswith("polyleaf: the search was interrupted; the best of 3 candidates, with ")
    assert said.endswith(f" rounds on all rows, is saved to {model}.")
    assert load_model(model).n_iter_ > 1


def test_so_does_one_in_its_last_training(table, model, monkeypatch, capsys):
    plain = Searches._last_training

    def last(*arguments):
        interrupt_after(monkeypatch, Run, "step", 2)
        return plain(*arguments)

    monkeypatch.setattr(Searches, "_last_training", last)
    said = interrupted(capsys, *search_of(table, model))
    assert ", with 2 rounds on all rows, is saved" in said
    assert load_model(model).n_iter_ == 2


@pytest.mark.parametrize(
    "how", [["--search", "60", "--set", "n_candidates=2"], ["--validation", "0.2"]]
)
@pytest.mark.parametrize("verbose", ["1", "2"])
def test_training_speaks_on_the_error_stream(how, verbose, table, model, capsys):
    polyleaf(
        "train", table, "-t", "y", "-m", model, "--rounds", "4", "--set", f"verbose={verbose}", *how
    )
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") > 2
