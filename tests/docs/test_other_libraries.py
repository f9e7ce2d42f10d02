"""The table of features in docs/getting_started/comparison.md has a source for every claim."""

from __future__ import annotations

import re

from support import ROOT

PAGE = "docs/getting_started/comparison.md"


def read_table(text: str) -> list[list[str]]:
    """Return the cells of the first Markdown table, without header and rule."""
    lines = [line for line in text.partition("\n|")[2].partition("\n\n")[0].split("\n")[2:] if line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


FEATURES, _, SOURCES = (ROOT / PAGE).read_text("utf-8").partition("\n## Sources\n")


def test_each_row_has_sources():
    claimed, sourced = read_table(FEATURES), read_table(SOURCES)
    assert [row[0] for row in claimed] == [row[0] for row in sourced]
    assert len(claimed) > 10


def test_each_yes_has_a_source():
    for claimed, sourced in zip(read_table(FEATURES), read_table(SOURCES), strict=True):
        for claim, source in zip(claimed[1:], sourced[1:], strict=True):
            if claim.startswith("yes"):
                assert source.startswith("tried") or re.search(r"\[.+\]|`\w+`", source), (
                    claimed[0],
                    claim,
                )


def test_each_source_is_listed_and_used():
    table, _, notes = SOURCES.rpartition("\n\n")
    listed = re.findall(r"(?m)^(\d+)\. ", notes)
    used = {
        number
        for group in re.findall(r"\[([\d, ]+)\]", table)
        for number in re.findall(r"\d+", group)
    }
    assert listed == [str(k) for k in range(1, len(listed) + 1)]
    assert used == set(listed)
