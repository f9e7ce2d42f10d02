"""Checks of names by docs/development/glossary.md: banned words, `*_of`, leading prepositions.

To list violations in some files, run as a program with paths: `python
tests/whole/test_vocabulary.py src/polyleaf/search`.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("src", "cpp", "bindings", "tests", "benchmarks", "examples", "scripts")

# Words of identifiers and file names that docs/development/glossary.md replaces. Words are split at
# underscores and capitals: `riding_count` and `RidingCount` both hold "riding".
BANNED = set(
    """
    agree agrees anew awkward barren beside besides card cards complain complains crumbs curvature
    curvatures dear dismount doubt elsewhere everyday games habits haste hear heard hears hope hopes
    hurried hurry judge judged judges laws looks meant obey obeyed obeying obeys payload payloads
    refusal refusals refuse refused refuses ride rides riding said say says skill skills stranger
    strangers taught teach tell teller telling tells told twin twins wanted
    """.split()
)
PREPOSITIONS = (
    "of",
    "in",
    "at",
    "on",
    "by",
    "beside",
    "without",
    "with",
    "from_of",
    "to_of",
    "for",
    "among",
)

# Names of other libraries, and functions that are keys of stored benchmark results.
ALLOWED = {
    "at",
    "with_traceback",
    "with_target",
    "with_derived_columns",
    "is_extension_of",
    "on_all_rows",
    "by_size",
    "by_threads",
}
MAX_COLUMNS = 100
SUFFIXES = (".py", ".h", ".cpp", ".cu")


def tracked(*folders: str) -> list[Path]:
    """Return the files of the repository below the folders, committed or not."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(ROOT / line for line in set(done.stdout.splitlines()) if (ROOT / line).is_file())


def split_words(name: str) -> list[str]:
    """Split an identifier into lower-case words."""
    return re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", name) and [
        word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    ]


def python_names(text: str) -> set[tuple[str, str]]:
    """Return (kind, name) of all names that a Python source defines."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(("function", node.name))
        elif isinstance(node, ast.ClassDef):
            found.add(("class", node.name))
        elif isinstance(node, ast.arg):
            found.add(("argument", node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(("variable", node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(("attribute", node.attr))
    return found


def cpp_names(text: str) -> set[tuple[str, str]]:
    """Return (kind, name) of all identifiers in a C++ source, without comments and strings."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    # Names after a dot, an arrow or a scope may belong to other libraries; declarations have none.
    functions = set(re.findall(r"(?<![.>:\w])([a-z_]\w*)\s*\(", text)) - {"for"}
    return {
        ("function" if n in functions else "name", n) for n in re.findall(r"\b[A-Za-z_]\w*", text)
    }


def faults(path: Path) -> list[str]:
    """Describe every name in a file, including its own, that violates the rules."""
    place = path.relative_to(ROOT)
    names = {("file", path.stem)}
    if path.suffix == ".py":
        names |= python_names(path.read_text("utf-8"))
    elif path.suffix in (".h", ".cpp", ".cu"):
        names |= cpp_names(path.read_text("utf-8"))
    found = []
    for kind, name in sorted(names):
        if name in ALLOWED:
            continue
        words = split_words(name)
        if bad := BANNED.intersection(words):
            found.append(f"{place}: {kind} {name}: {', '.join(sorted(bad))} (see the glossary)")
        elif kind == "function" and words and (words[-1] == "of" or words[0] in PREPOSITIONS):
            found.append(
                f"{place}: {kind} {name}: a function is a verb, without a preposition at its ends"
            )
    return found


def wide_lines(path: Path) -> list[str]:
    """Describe the lines of a file that are too long, except tables and links of Markdown."""
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if len(line) > MAX_COLUMNS and not (
            path.suffix == ".md" and re.search(r"^\s*\||https?://", line)
        ):
            found.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns")
    return found


def sources(folder: str) -> list[Path]:
    """Return the Python and C++ sources directly in a folder."""
    files = tracked(folder)
    return [f for f in files if f.suffix in SUFFIXES and f.parent == ROOT / folder]


FOLDERS = sorted({str(f.parent.relative_to(ROOT)) for f in tracked(*CODE) if f.suffix in SUFFIXES})


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_follow_the_glossary(folder):
    found = [fault for path in sources(folder) for fault in faults(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_lines_fit_in_the_column_limit(folder):
    found = [line for path in sources(folder) for line in wide_lines(path)]
    assert not found, "\n".join(found)


if __name__ == "__main__":
    for argument in tracked(*sys.argv[1:]):
        if argument.suffix in SUFFIXES:
            print(*faults(argument), *wide_lines(argument), sep="\n", end="\n")
