"""The file of trainings that a search goes on from."""

from __future__ import annotations

import json

import pytest

from polyleaf.search.resume_log import Ended, TrainingLog

ABOUT = {"data": "abc", "seed": 0}


def test_what_was_written_is_found_again(tmp_path):
    path = tmp_path / "log"
    log = TrainingLog(path, ABOUT)
    ended = Ended([0.1, 1 / 3, float("inf")], 2.5)
    log.add({"max_leaves": 8, "learning_rate": 0.05}, 1, ended)
    log.add({}, 0, Ended([], 0.0, "it does not go"))
    again = TrainingLog(path, ABOUT)
    assert again.find({"learning_rate": 0.05, "max_leaves": 8}, 1) == ended
    assert again.find({}, 0).refused == "it does not go"
    assert again.find({}, 1) is None


def test_a_line_that_was_cut_is_dropped(tmp_path):
    path = tmp_path / "log"
    TrainingLog(path, ABOUT).add({}, 0, Ended([1.0], 1.0))
    path.write_text(path.read_text() + '{"parameters": {"max_le')
    log = TrainingLog(path, ABOUT)
    log.add({}, 1, Ended([2.0], 1.0))
    assert [TrainingLog(path, ABOUT).find({}, fold).curve for fold in (0, 1)] == [[1.0], [2.0]]


def test_another_search_and_other_files_are_refused(tmp_path):
    path = tmp_path / "log"
    TrainingLog(path, ABOUT)
    with pytest.raises(ValueError, match="another search: data differ"):
        TrainingLog(path, {**ABOUT, "data": "abd"})
    for text in ("nothing of the kind\n", json.dumps([1]) + "\n", json.dumps(ABOUT) + "\n{}\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="no file that a search has written"):
            TrainingLog(path, ABOUT)


def test_without_a_path_trainings_are_kept_for_the_search_alone():
    log = TrainingLog(None, {})
    log.add({}, 0, Ended([1.0], 1.0))
    assert log.find({}, 0).curve == [1.0]
