"""The log that a search is resumed from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from polyleaf.objectives import Huber
from polyleaf.search.resume_log import ResumeLog, TrialRecord, describe

SETTINGS = {"data": "abc", "seed": 0}


def test_logged_trials_are_found_again(tmp_path):
    path = tmp_path / "log"
    log = ResumeLog(path, SETTINGS)
    record = TrialRecord([0.1, 1 / 3, float("inf")], 2.5)
    log.add({"max_leaves": 8, "learning_rate": 0.05}, 1, record)
    log.add({}, 0, TrialRecord([], 0.0, "cannot fit"))
    again = ResumeLog(path, SETTINGS)
    assert again.find({"learning_rate": 0.05, "max_leaves": 8}, 1) == record
    assert again.find({}, 0).error == "cannot fit"
    assert again.find({}, 1) is None


def test_incomplete_last_line_is_dropped(tmp_path):
    path = tmp_path / "log"
    ResumeLog(path, SETTINGS).add({}, 0, TrialRecord([1.0], 1.0))
    path.write_text(path.read_text() + '{"parameters": {"max_le')
    log = ResumeLog(path, SETTINGS)
    log.add({}, 1, TrialRecord([2.0], 1.0))
    assert [ResumeLog(path, SETTINGS).find({}, fold).curve for fold in (0, 1)] == [[1.0], [2.0]]


def test_files_have_the_same_bytes_on_every_system(tmp_path):
    path = tmp_path / "log"
    ResumeLog(path, SETTINGS).add({}, 0, TrialRecord([1.0], 1.0))
    assert path.read_bytes().count(b"\n") == 2 and b"\r" not in path.read_bytes()


def test_search_killed_at_its_start_begins_again(tmp_path):
    path = tmp_path / "log"
    ResumeLog(path, SETTINGS)
    line = path.read_bytes()
    for content in (b"", line[:9], line):
        path.write_bytes(content)
        ResumeLog(path, SETTINGS)
        assert path.read_bytes() == line
    path.write_text("notes")
    with pytest.raises(ValueError, match="is not the log"):
        ResumeLog(path, SETTINGS)
    assert path.read_text() == "notes"


def test_log_of_another_search_and_other_files_raise(tmp_path):
    path = tmp_path / "log"
    ResumeLog(path, SETTINGS)
    with pytest.raises(ValueError, match="another search: data differ"):
        ResumeLog(path, {**SETTINGS, "data": "abd"})
    for text in ("nothing of the kind\n", json.dumps([1]) + "\n", json.dumps(SETTINGS) + "\n{}\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not the log"):
            ResumeLog(path, SETTINGS)


def test_full_disk_does_not_end_the_search(tmp_path):
    log = ResumeLog(tmp_path / "log", SETTINGS)
    log._path = tmp_path / "missing" / "log"
    with pytest.warns(UserWarning, match="cannot be written.*The search goes on"):
        log.add({}, 0, TrialRecord([1.0], 1.0))
    log.add({}, 1, TrialRecord([2.0], 1.0))
    assert [log.find({}, fold).curve for fold in (0, 1)] == [[1.0], [2.0]]


def test_reading_a_log_does_not_rewrite_it(tmp_path):
    path = tmp_path / "log"
    ResumeLog(path, SETTINGS).add({}, 0, TrialRecord([1.0], 1.0))
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    ResumeLog(path, SETTINGS)
    assert path.stat().st_mtime_ns == before


def test_trials_without_a_path_are_kept_in_memory():
    log = ResumeLog(None, {})
    log.add({}, 0, TrialRecord([1.0], 1.0))
    assert log.find({}, 0).curve == [1.0]


def test_values_are_described_without_addresses():
    def loss(y, p):
        return 0.0

    assert describe(loss).endswith("<locals>.loss")
    assert describe(Huber(2.0)) == describe(Huber(2.0)) != describe(Huber(1.0))
    numbers = np.arange(2_000)
    assert describe(numbers) == describe(numbers.copy()) != describe(numbers[::-1].copy())
    assert describe([loss]) == describe([loss]) and "0x" not in describe([loss])
