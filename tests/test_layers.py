"""The layers of the package: imports point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "neve"

ALLOWED = {
    "errors": set(),
    "model": {"errors"},
    "predicate": {"errors", "model"},
    "io": {"errors", "model"},
    "catalog": {"errors", "model", "io"},
    "tree": {"errors", "model", "io"},
    "plan": {"errors", "model", "predicate", "tree.entries"},
    "run": {"errors", "model", "predicate", "io", "tree.entries", "plan"},
    "commit": {"errors", "model", "predicate", "io", "catalog", "tree", "plan"},
    "ops": {"errors", "model", "predicate", "io", "catalog", "tree", "plan", "run", "commit"},
}
SURFACES = {"table", "lake", "sql", "cli", "demo", "show", "report", "__init__", "__main__"}
HEAVY_ONLY_IN = {"pyspark": {"run", "ops", *SURFACES}}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def layer_of(module: str) -> str:
    return module.split(".", 1)[0]


def is_allowed(module: str, imported: str) -> bool:
    layer, inner = layer_of(module), imported.removeprefix("neve.")
    if layer in SURFACES or layer_of(inner) == layer:
        return True
    return any(inner == name or inner.startswith(f"{name}.") for name in ALLOWED[layer])


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module_name)
def test_imports_point_one_way(path: Path):
    module = module_name(path)
    # `from neve.tree import entries` is seen as the package and as the module; the module decides
    own = {i for i in imports(path) if i.startswith("neve.")}
    wrong = {i for i in own if not is_allowed(module, i) and not any(o.startswith(f"{i}.") for o in own)}
    assert not wrong, f"{module} must not import {sorted(wrong)}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module_name)
def test_spark_is_imported_only_where_work_runs(path: Path):
    module = module_name(path)
    if layer_of(module) not in HEAVY_ONLY_IN["pyspark"]:
        assert not {i for i in imports(path) if layer_of(i) == "pyspark"}


def test_every_layer_is_named():
    found = {layer_of(module_name(p)) for p in PACKAGE.rglob("*.py")}
    assert found <= set(ALLOWED) | SURFACES


def test_planning_and_running_know_nothing_of_manifest_lists():
    """How a version spells its tree is decided below `tree`."""
    above = [p for p in PACKAGE.rglob("*.py") if layer_of(module_name(p)) in {"plan", "run"}]
    assert not [module_name(p) for p in above if "manifest_list" in p.read_text()]
