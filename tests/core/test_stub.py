"""The stub _core.pyi, which the build writes: every name of the core is declared."""

import ast
from pathlib import Path

import polyleaf
import polyleaf._core as _core

STUB = Path(polyleaf.__file__).with_name("_core.pyi")


def read_declared_names(body):
    """Return the names that a module or class of the stub declares, with members of classes."""
    names = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names[statement.name] = (
                read_declared_names(getattr(statement, "body", []))
                if statement.name[0] != "_"
                else {}
            )
        elif isinstance(statement, ast.AnnAssign | ast.Assign):
            target = (
                statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            )
            names[target.id] = {}
    return names


def select_public(names):
    return {name for name in names if not name.startswith("_")}


def test_stub_declares_all_names_of_the_core():
    stub = read_declared_names(ast.parse(STUB.read_text()).body)
    assert select_public(stub) == select_public(dir(_core))
    for name, content in stub.items():
        if isinstance(getattr(_core, name, None), type):
            of_enums = {"name", "value"} - set(content)
            assert select_public(content) == select_public(vars(getattr(_core, name))) - of_enums, (
                name
            )


def test_package_has_a_py_typed_marker():
    assert STUB.with_name("py.typed").exists()
