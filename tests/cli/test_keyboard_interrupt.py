"""Ctrl-C during training, and the output of training."""

import numpy as np
import pytest
from support.commands import polyleaf, run_command

from polyleaf import load_model
from polyleaf.search.base import SearchMixin
from polyleaf.search.successive_halving import SuccessiveHalving
from polyleaf.training.boosting import BoostingLoop

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


def run_interrupted(capsys, command):
    """Return the last line on the error stream of an interrupted command."""
    capsys.readouterr()
    assert run_command(command) == 130
    printed = capsys.readouterr()
    assert printed.out == "" and "UserWarning" not in printed.err and "Traceback" not in printed.err
    return printed.err.splitlines()[-1]


def interrupt_after(monkeypatch, cls, name, calls):
    """Raise KeyboardInterrupt in the call after this number of calls."""
    plain, left = getattr(cls, name), [calls]

    def counted(*arguments, **keywords):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return plain(*arguments, **keywords)

    monkeypatch.setattr(cls, name, counted)


@pytest.mark.parametrize("quiet", ["", "--quiet"])
def test_interrupted_training_is_saved(quiet, table, model, monkeypatch, capsys):
    interrupt_after(monkeypatch, BoostingLoop, "step", 5)
    message = run_interrupted(capsys, f"train {table} -t y -m {model} --rounds 50 {quiet}")
    assert (
        message == f"polyleaf: interrupted after 5 rounds; the model so far was saved to {model}."
    )
    assert load_model(model).n_iter_ == 5
    monkeypatch.undo()
    polyleaf(f"predict {table} -m {model}")


def test_interrupted_xmc_training_is_saved(tmp_path, model, monkeypatch, capsys):
    (tmp_path / "t.xmc").write_text(LABELS)
    interrupt_after(monkeypatch, BoostingLoop, "step", 2)
    message = run_interrupted(capsys, f"train {tmp_path}/t.xmc -m {model} --rounds 9")
    assert message.startswith("polyleaf: interrupted after 2 rounds;")
    assert load_model(model).n_iter_ == 2


@pytest.mark.parametrize("search", ["", "--set n_candidates=2 --search 60"])
def test_interrupt_before_the_first_round(search, table, model, monkeypatch, capsys):
    model.write_text("old content")
    interrupt_after(monkeypatch, BoostingLoop, "step", 0)
    message = run_interrupted(capsys, f"train {table} -t y -m {model} --quiet {search}")
    assert (
        message == "polyleaf: interrupted before the first round was complete; no model was saved."
    )
    assert model.read_text() == "old content"


def search_command(table, model):
    fast = "--rounds 6 --threads 1 --set n_candidates=3 --set cv=2"
    return f"train {table} -t y -m {model} --search 60 {fast}"


def test_interrupted_search_saves_the_best(table, model, monkeypatch, capsys):
    interrupt_after(monkeypatch, SuccessiveHalving, "is_over", 0)
    message = run_interrupted(capsys, search_command(table, model))
    assert message.startswith(
        "polyleaf: search interrupted; the best of 3 candidates, trained for "
    )
    assert message.endswith(f" rounds on all rows, was saved to {model}.")
    assert load_model(model).n_iter_ > 1


def test_interrupted_final_fit_of_a_search_is_saved(table, model, monkeypatch, capsys):
    plain = SearchMixin._fit_final

    def last(*arguments):
        interrupt_after(monkeypatch, BoostingLoop, "step", 2)
        return plain(*arguments)

    monkeypatch.setattr(SearchMixin, "_fit_final", last)
    message = run_interrupted(capsys, search_command(table, model))
    assert ", trained for 2 rounds on all rows, was saved" in message
    assert load_model(model).n_iter_ == 2


@pytest.mark.parametrize("options", ["--search 60 --set n_candidates=2", "--validation 0.2"])
@pytest.mark.parametrize("verbose", ["1", "2"])
def test_training_prints_to_stderr(options, verbose, table, model, capsys):
    polyleaf(f"train {table} -t y -m {model} --rounds 4 --set verbose={verbose} {options}")
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") > 2
