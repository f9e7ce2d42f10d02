"""Files, folders, symbols and parameters that pages name in backquotes exist."""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from support import ROOT
from support.public_names import EXTRA, MODULES, public_names

import polyleaf
from polyleaf.settings.aliases import read_foreign_names
from polyleaf.settings.param_spec import ParamSpec, get_param_specs

DOCS = ROOT / "docs"
WITHOUT = {DOCS / "benchmarks" / "results.md"}  # which is generated
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if page not in WITHOUT),
]
DEVELOPMENT = [page for page in PAGES if DOCS / "development" in page.parents]
DEVELOPMENT.append(ROOT / "CONTRIBUTING.md")
# Pages that name classes and parameters of other libraries.
FOREIGN = (
    "comparison export forecasting_frameworks from_catboost from_lightgbm from_scikit_learn "
    "from_xgboost glossary import_models".split()
)

GENERATED = {"build/", "dist/", "compile_commands.json", "build/*/compile_commands.json"}
GENERATED |= {"src/polyleaf/_core.pyi"}
FOLDERS = (
    ".ci benchmarks bindings cpp docs examples experiments packaging scripts src tests".split()
)

CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.*/-]*[\w*]\.(?:cpp|cu|h|json|md|py|pyi|toml|txt|\*)")
FOLDER = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/")
PROGRAM = re.compile(rf"(?:bash |python )?((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+)( .*)?")
DOTTED = re.compile(r"(?:polyleaf|presets|inspection|[A-Z]\w*[a-z]\w*)(?:\.\w+)+")
CAMEL = re.compile(r"k?(?:[A-Z][a-z0-9]+){2,}")
ASSIGNED = re.compile(r'([a-z_]+)=(?:"([\w@:.-]+)")?.*')


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


def extract_tokens(text: str) -> list[str]:
    """Return the tokens in backquotes outside of code blocks."""
    return CODE.findall(re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S))


def extract_paths(text: str) -> set[str]:
    """Return the path-like tokens in backquotes, and the programs that commands start."""
    found = set()
    for token in extract_tokens(text):
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


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_named_paths_exist(page: Path):
    paths = extract_paths(page.read_text("utf-8")) - GENERATED
    if page not in DEVELOPMENT:  # other names are users' files
        paths = {path for path in paths if path.partition("/")[0] in FOLDERS}
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


# --- symbols --------------------------------------------------------------------------------------


@functools.cache
def public_objects() -> dict[str, Any]:
    """Return the public functions and classes of all modules by name."""
    found = {"presets": polyleaf.presets, "inspection": polyleaf.inspection}
    for name in MODULES:
        if name not in EXTRA:
            module = importlib.import_module(name)
            found |= {public: getattr(module, public) for public in public_names(name)}
    return found


def does_resolve(name: str) -> bool:
    """Return whether a dotted name leads to a module, an object or an instance attribute."""
    first, *rest = name.split(".")
    found: Any = polyleaf if first == "polyleaf" else public_objects().get(first)
    if found is None or name.startswith(tuple(EXTRA)):
        return True  # a class of another library, or an extra that may be missing
    for part in rest:
        if inspect.ismodule(found) and not hasattr(found, part):
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except ModuleNotFoundError:
                return False
        elif inspect.isclass(found) and not hasattr(found, part):
            return f"self.{part}" in inspect.getsource(found) or part in (found.__doc__ or "")
        else:
            found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_named_symbols_exist(page: Path):
    tokens = {token.removesuffix("()") for token in extract_tokens(page.read_text("utf-8"))}
    dotted = {token.partition("(")[0] for token in tokens}
    files = {token for token in dotted if FILE.fullmatch(token)}
    names = {token for token in dotted - files if DOTTED.fullmatch(token)}
    assert sorted(name for name in names if not does_resolve(name)) == []


@functools.cache
def words_of_sources() -> set[str]:
    """Return all identifiers of the sources."""
    folders = ("src", "cpp", "bindings", "tests", "benchmarks")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    sources = {path for path in paths if path.suffix in (".py", ".h", ".cpp", ".cu")}
    texts = (path.read_text("utf-8") for path in sources - {Path(__file__)})
    return {word for text in texts for word in re.findall(r"\w+", text)} | set(dir(builtins))


@pytest.mark.parametrize("page", DEVELOPMENT, ids=page_name)
def test_named_classes_are_in_the_sources(page: Path):
    if page.stem in FOREIGN:
        pytest.skip("names classes of other libraries")
    classes = {token for token in extract_tokens(page.read_text("utf-8")) if CAMEL.fullmatch(token)}
    assert sorted(classes - words_of_sources()) == []


def test_symbols_are_found():
    assert does_resolve("polyleaf.objectives.Huber") and does_resolve("presets.tfbt")
    assert does_resolve("PolyleafRegressor.model_") and does_resolve("Model.predict_topk")
    assert not does_resolve("polyleaf.objectives.Hubert") and not does_resolve("polyleaf.recipes")
    assert not does_resolve("presets.tbft") and not does_resolve("Model.predict_topp")
    assert "HistogramSearch" in words_of_sources() and "HistogramSearsh" not in words_of_sources()


# --- parameters -----------------------------------------------------------------------------------


@functools.cache
def parameters() -> dict[str, list[ParamSpec]]:
    """Return the declarations of estimators' parameters by name."""
    estimators = [getattr(polyleaf, name) for name in dir(polyleaf) if name.startswith("Polyleaf")]
    found: dict[str, list[ParamSpec]] = {}
    for estimator in estimators:
        for spec in get_param_specs(estimator):
            found.setdefault(spec.name, []).append(spec)
    return found


@functools.cache
def argument_names() -> set[str]:
    """Return the names of arguments of public functions and methods, and of fields of classes."""
    found = set(parameters()) | set(read_foreign_names("parameters"))
    stack = [*public_objects().values()]
    for value in stack:
        if inspect.isclass(value):
            stack += [member for name, member in inspect.getmembers(value) if name[0] != "_"]
            found |= set(vars(value).get("__annotations__", {}))
            stack.append(value.__init__)
        elif inspect.isroutine(value):
            try:
                found |= set(inspect.signature(value).parameters)
            except (TypeError, ValueError):  # a property, or a function without a signature
                continue
    return found


def find_wrong_values(name: str, value: str | None) -> bool:
    """Return whether a parameter is unknown or its value is not among the choices."""
    if name not in argument_names():
        return True
    specs = parameters().get(name)
    if specs is None or value is None:
        return False
    choices: set[str] = set()
    for spec in specs:
        for t in spec.types:
            if get_origin(t) is Literal or (t is str and spec.choices):
                choices |= set(get_args(t) or spec.choices)
            elif t is str:
                return False  # objectives and metrics have checks of their own
    return value not in choices


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_named_parameters_exist(page: Path):
    if page.stem in FOREIGN:
        pytest.skip("names parameters of other libraries")
    found = [ASSIGNED.fullmatch(token) for token in extract_tokens(page.read_text("utf-8"))]
    wrong = {match[0] for match in found if match and find_wrong_values(match[1], match[2])}
    assert sorted(wrong) == []


def test_parameters_are_found():
    assert not find_wrong_values("leaf", "sparse") and not find_wrong_values("outputs", None)
    assert find_wrong_values("leaf", "spares") and find_wrong_values("curvature", "full")
    assert find_wrong_values("linear_extrapolation", "free")
