"""Only warehouse/ opens DuckDB: it alone knows the lock."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("flows", "tasks", "pipeline_lib", "warehouse", "benchmarks")


def imports_duckdb(source: str) -> bool:
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names += [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return any(name.split(".")[0] in ("duckdb", "_duckdb") for name in names)


def test_only_the_warehouse_imports_duckdb() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    importers = {path.relative_to(ROOT).as_posix() for path in files if imports_duckdb(path.read_text())}
    compares = {"benchmarks/warehouse_peers.py"}  # with a database of its own
    assert {path for path in importers - compares if not path.startswith("warehouse/")} == set()
    assert "warehouse/warehouse.py" in importers


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os, duckdb as db", True),
        ("def f():\n    from duckdb import connect", True),
        ("import importlib\nimportlib.import_module('duckdb')", True),
        ("from warehouse import Warehouse", False),
        ("duckdb = 'duckdb'", False),
    ],
)
def test_the_test_sees_each_way_in(source: str, found: bool) -> None:
    assert imports_duckdb(source) is found
