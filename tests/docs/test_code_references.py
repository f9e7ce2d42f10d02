"""The developer documents name files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT

DEVELOPMENT = ROOT / "docs" / "development"
PAGES = [
    ROOT / "CONTRIBUTING.md",
    # The first column of renamed.md has names that are gone.
    *(page for page in sorted(DEVELOPMENT.glob("*.md")) if page.name != "renamed.md"),
]
GENERATED = {"build/", "dist/", "build/*/compile_commands.json", "src/polyleaf/_core.pyi"}
FOLDERS = ".ci benchmarks bindings cpp docs examples packaging scripts src tests".split()

CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.*/-]*[\w*]\.(?:cpp|cu|h|json|md|py|pyi|toml|txt|\*)")
FOLDER = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/")
PROGRAM = re.compile(rf"(?:bash |python )?((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+)( .*)?")


def extract_paths(text: str) -> set[str]:
    """Return the path-like tokens in backquotes, and the programs that commands start."""
    found = set()
    for token in CODE.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        if FILE.fullmatch(token) or FOLDER.fullmatch(token):
            found.add(token)
        elif program := PROGRAM.fullmatch(token):
            found.add(program[1])
    return found


def does_exist(path: str) -> bool:
    """Return whether a path, a glob or the end of one names something in the repository."""
    pattern = path.rstrip("/")
    is_folder = path.endswith("/")
    places = [ROOT.glob(pattern), *((ROOT / folder).glob(f"**/{pattern}") for folder in FOLDERS)]
    return any(not is_folder or found.is_dir() for place in places for found in place)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_paths_exist(page: Path):
    paths = extract_paths(page.read_text("utf-8")) - GENERATED
    assert sorted(path for path in paths if not does_exist(path)) == []


def test_paths_are_found():
    text = (
        "`cpp/leaves/topk.*`, `a + b / c`, `base/isa.h`, `cpp/search/`, `scripts/fuzz data`, `loss`"
    )
    assert extract_paths(text) == {
        "cpp/leaves/topk.*", "base/isa.h", "cpp/search/", "scripts/fuzz",
    }  # fmt: skip
    assert all(does_exist(path) for path in extract_paths(text))
    assert not does_exist("cpp/split.*") and not does_exist("cpp/splits/")
    assert len(extract_paths((ROOT / "CONTRIBUTING.md").read_text("utf-8"))) > 40
