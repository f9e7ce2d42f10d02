"""Layers of the source tree: folders import only from layers below, in Python and in the core."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "cpp"

# A folder includes headers of itself and of the preceding folders only.
LAYERS = (
    "base",
    "data",
    "quantised_gradients",
    "split_gain",
    "grower",
    "leaves",
    "search",
    "losses",
    "sketch",
    "forest",
    "explain",
    "device",
)

# Headers that a kernel may include. They have no templates: the linker keeps one copy of an
# instantiation, which could be AVX-512 code on a machine without it.
KERNEL_HEADERS = {
    "cfloat",
    "cstddef",
    "cstdint",
    "cstring",
    "immintrin.h",
    "type_traits",
    "utility",
}


def includes(path):
    """Return the included headers of the core and of other libraries, as written."""
    text = path.read_text("utf-8")
    return re.findall(r'#include "([^"]+)"', text), re.findall(r"#include <([^>]+)>", text)


def list_files(folder):
    return [p for p in sorted(folder.rglob("*")) if p.suffix in (".h", ".cpp")]


def test_imports_of_the_package_point_downwards(monkeypatch, capsys):
    lint_imports = pytest.importorskip("importlinter.cli").lint_imports
    monkeypatch.chdir(ROOT)  # the contracts are in pyproject.toml
    failed = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert not failed and "2 kept, 0 broken" in capsys.readouterr().out


def imports_dynamically(call):
    """Return whether a call imports a package module by name, or by a computed name."""
    function = ast.unparse(call.func)
    if function not in ("importlib.import_module", "import_module", "__import__") or not call.args:
        return False
    name = call.args[0]
    is_foreign = isinstance(name, ast.Constant) and not name.value.startswith(("polyleaf", "."))
    return not is_foreign


def test_no_module_imports_the_package_dynamically():
    """Check for imports that the import contracts cannot detect; lazy imports within a package are
    allowed.
    """
    package = ROOT / "src" / "polyleaf"
    found = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and imports_dynamically(node)
    ]
    assert set(found) <= {"__init__.py", "inspection/__init__.py", "integrations/__init__.py"}


def test_each_folder_of_the_core_has_a_layer():
    assert {p.name for p in CORE.iterdir() if p.is_dir()} == set(LAYERS)


@pytest.mark.parametrize("folder", LAYERS)
def test_includes_of_the_core_point_downwards(folder):
    below = LAYERS[: LAYERS.index(folder) + 1]
    for path in list_files(CORE / folder):
        for header in includes(path)[0]:
            assert (CORE / header).is_file(), f"{path}: {header} is not named from cpp/"
            assert header.split("/")[0] in below, f"{path} includes {header}, which is above it"


def test_headers_of_the_core_have_no_cycles():
    graph = {str(p.relative_to(CORE)): includes(p)[0] for p in list_files(CORE)}
    done = set()

    def visit(header, path):
        assert header not in path, f"a cycle: {' -> '.join([*path, header])}"
        if header not in done:
            for other in graph[header]:
                visit(other, [*path, header])
            done.add(header)

    for header in graph:
        visit(header, [])


@pytest.mark.parametrize("folder", LAYERS)
def test_kernels_have_no_templates_for_the_linker(folder):
    for path in list_files(CORE / folder / "kernels"):
        if path.suffix == ".cpp":
            assert set(includes(path)[1]) <= KERNEL_HEADERS, path
            assert "POLYLEAF_ISA_NAMESPACE" in path.read_text("utf-8"), path
