"""What a setting is: the same for the same, and another for another, in this process and in the next."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from polyleaf.search.fingerprint import identity


def scaled(by):
    return lambda y, p: by * abs(y - p).mean()


class Named:
    def __init__(self, entry):
        self.entry = entry

    def loss(self, y, p):
        return self.entry


SAME = [
    lambda: 0.5,
    lambda: ["a", 1, None],
    lambda: {"b": np.arange(3)},
    lambda: scaled(2.0),
    lambda: partial(scaled, by=3),
    lambda: Named(4),
    lambda: Named(4).loss,
    lambda: np.float32,
    lambda: np.array(["a", None], object),
]


@pytest.mark.parametrize("make", SAME)
def test_the_same_is_the_same(make):
    assert identity(make()) == identity(make())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scaled(1.0), scaled(2.0)),
        (lambda y, p: abs(y - p).mean(), lambda y, p: abs(y - p).max()),
        (lambda y: [v + 1 for v in y], lambda y: [v + 2 for v in y]),
        (lambda y, k=1: k, lambda y, k=2: k),
        (np.arange(2_000), np.where(np.arange(2_000) == 1_000, 0, np.arange(2_000))),
        (np.zeros(2, np.int32), np.zeros(1, np.int64)),
        (Named(1), Named(2)),
        (Named(1).loss, Named(2).loss),
        (SimpleNamespace(a=1), Named(1)),
        (partial(scaled, by=1), partial(scaled, by=2)),
        (1, 2),
    ],
)
def test_another_is_another(one, other):
    assert identity(one) != identity(other)


def test_another_process_finds_the_same():
    code = (
        "from polyleaf.search.fingerprint import identity\n"
        "def outer(k):\n    return lambda y, p: [k + v for v in (y - p)]\n"
        "print(identity(outer(2)))"
    )
    told = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        for _ in "ab"
    }
    assert len(told) == 1 and b"outer" in told.pop()
