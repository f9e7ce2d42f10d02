"""The log that a search is resumed from, and fingerprints of settings."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from polyleaf.search.resume_log import ResumeLog, TrialRecord, fingerprint

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


def test_damaged_logs_raise_or_lose_their_last_line(tmp_path):
    """Bytes are changed, inserted and deleted; all trials that are read were written."""
    path, rng = tmp_path / "log", np.random.default_rng(0)
    log = ResumeLog(path, SETTINGS)
    records = [TrialRecord([0.5, float(i)], 1.0, "" if i else "x") for i in range(4)]
    for fold, record in enumerate(records):
        log.add({"max_leaves": 8}, fold, record)
    content, n_errors = path.read_bytes(), 0
    for _ in range(400):
        at, size = rng.integers(len(content), size=2)
        what = rng.integers(3)
        inserted = [b"", bytes([rng.integers(256)]), b"[" * 100_000][what]
        path.write_bytes(
            content[:at] + inserted + content[at + (size if what == 0 else what == 1) :]
        )
        try:
            found = [ResumeLog(path, SETTINGS).find({"max_leaves": 8}, i) for i in range(4)]
        except ValueError as error:
            assert "damaged" in str(error) or "another search" in str(error)
            n_errors += 1
        else:
            assert all(kept in (None, record) for kept, record in zip(found, records, strict=True))
    assert n_errors > 300


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


# --- fingerprints --------------------------------------------------------------------------------


def scaled_error(factor):
    return lambda y, p: factor * abs(y - p).mean()


class Holder:
    def __init__(self, entry):
        self.entry = entry

    def loss(self, y, p):
        return self.entry


EQUAL = [
    lambda: 0.5,
    lambda: ["a", 1, None],
    lambda: {"b": np.arange(3)},
    lambda: scaled_error(2.0),
    lambda: partial(scaled_error, factor=3),
    lambda: Holder(4),
    lambda: Holder(4).loss,
    lambda: np.float32,
    lambda: np.array(["a", None], object),
]


@pytest.mark.parametrize("make", EQUAL)
def test_equal_values_have_equal_fingerprints(make):
    assert fingerprint(make()) == fingerprint(make())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scaled_error(1.0), scaled_error(2.0)),
        (lambda y, p: abs(y - p).mean(), lambda y, p: abs(y - p).max()),
        (lambda y: [v + 1 for v in y], lambda y: [v + 2 for v in y]),
        (lambda y, k=1: k, lambda y, k=2: k),
        (np.arange(2_000), np.where(np.arange(2_000) == 1_000, 0, np.arange(2_000))),
        (np.zeros(2, np.int32), np.zeros(1, np.int64)),
        (Holder(1), Holder(2)),
        (Holder(1).loss, Holder(2).loss),
        (SimpleNamespace(a=1), Holder(1)),
        (partial(scaled_error, factor=1), partial(scaled_error, factor=2)),
        (1, 2),
    ],
)
def test_different_values_have_different_fingerprints(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_fingerprints_are_equal_in_other_processes():
    code = (
        "from polyleaf.search.resume_log import fingerprint\n"
        "def outer(k):\n    return lambda y, p: [k + v for v in (y - p)]\n"
        "print(fingerprint(outer(2)))"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        for _ in "ab"
    }
    assert len(outputs) == 1 and b"outer" in outputs.pop()
