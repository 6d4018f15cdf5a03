"""The layers of the package: imports point one way."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "neve"

ALLOWED = {
    "errors": set(),
    "_version": set(),
    "display": set(),
    "model": {"errors"},
    "predicate": {"errors", "model"},
    "io": {"errors", "model"},
    "catalog": {"errors", "model", "io"},
    "tree": {"errors", "model", "io"},
    "plan": {"errors", "display", "model", "predicate", "io.paths", "tree.entries"},
    "run": {"errors", "model", "predicate", "io", "tree.entries", "plan"},
    "commit": {"errors", "display", "model", "predicate", "io", "catalog", "tree", "plan"},
    "ops": {"errors", "display", "model", "predicate", "io", "catalog", "tree", "plan", "run", "commit"},
    "report": {"errors", "display", "model", "predicate", "tree", "plan", "ops"},
}
ANYWHERE = ("_version",)
SURFACES = {"table", "lake", "sql", "cli", "demo", "source", "session_catalog", "__init__", "__main__"}
RUNS_ON_SPARK = {"run", "ops", *SURFACES}
MODULES = sorted(PACKAGE.rglob("*.py"))


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
    if layer in SURFACES or layer_of(inner) in (layer, *ANYWHERE):
        return True
    return any(inner == name or inner.startswith(f"{name}.") for name in ALLOWED[layer])


def wrong_imports(path: Path) -> list[str]:
    """Imports of a module that point the wrong way."""
    module = module_name(path)
    own = {i for i in imports(path) if i.startswith("neve.")}
    # `from neve.tree import entries` counts as the package and as the module; the module decides
    wrong = {i for i in own if not is_allowed(module, i) and not any(o.startswith(f"{i}.") for o in own)}
    return [f"{module} must not import {i}" for i in sorted(wrong)]


def modules_by_name() -> dict[str, Path]:
    return {f"neve.{module_name(p)}".removesuffix(".__init__"): p for p in MODULES}


def imported_modules() -> dict[str, set[str]]:
    """Return the modules and packages that each module imports, including imports for type checking."""
    known = modules_by_name()
    return {name: (imports(path) & known.keys()) - {name, "neve"} for name, path in known.items()}


def test_imports_form_no_circle():
    try:
        tuple(TopologicalSorter(imported_modules()).static_order())
    except CycleError as e:
        raise AssertionError(" imports ".join(e.args[1][::-1])) from None


def test_a_circle_would_be_found():
    graph = imported_modules() | {"neve.errors": {"neve.table"}}
    with pytest.raises(CycleError):
        tuple(TopologicalSorter(graph).static_order())


# Words that are meaningless as the name of a module.
EMPTY_NAMES = {
    "words",
    "said",
    "told",
    "made",
    "kept",
    "among",
    "apart",
    "late",
    "whole",
    "touched",
    "folded",
    "applying",
    "planned",
    "mapped",
    "packed",
    "typed",
    "shape",
    "things",
    "helpers",
    "util",
    "utils",
    "misc",
    "common",
    "stage",
    "place",
    "deed",
    "carrying",
}


def test_module_names_say_what_they_hold():
    assert not [name for name in modules_by_name() if name.rpartition(".")[2] in EMPTY_NAMES]


def test_a_small_module_that_only_its_neighbour_imports_is_part_of_that_neighbour():
    known, users = modules_by_name(), {}
    for name, targets in imported_modules().items():
        for target in targets:
            users.setdefault(target, set()).add(name)
    small = [n for n, p in known.items() if p.stem not in {"__init__", "__main__"} and p.read_text().count("\n") < 60]
    folders = {n: {u.rpartition(".")[0] for u in users.get(n, set())} for n in small}
    alone = {n for n in small if len(users.get(n, set())) == 1 and folders[n] == {n.rpartition(".")[0]}}
    assert not alone


def test_imports_point_one_way():
    wrong = [line for path in MODULES for line in wrong_imports(path)]
    assert not wrong, "\n".join(wrong)


def test_spark_is_imported_only_where_work_runs():
    elsewhere = [p for p in MODULES if layer_of(module_name(p)) not in RUNS_ON_SPARK]
    assert not [module_name(p) for p in elsewhere if any(layer_of(i) == "pyspark" for i in imports(p))]


def test_planning_touches_neither_storage_nor_catalogs():
    plan = [p for p in MODULES if layer_of(module_name(p)) == "plan"]
    touching = ("pyiceberg.io", "pyiceberg.catalog", "neve.io", "neve.catalog", "neve.tree.read", "neve.tree.write")
    assert plan
    path_syntax = "neve.io.paths"  # syntax of paths, without access to storage
    found = [(p, i) for p in plan for i in imports(p) if i.startswith(touching) and not i.startswith(path_syntax)]
    assert not [module_name(p) for p, i in found if i != "neve.io"]


def test_every_layer_is_named():
    found = {layer_of(module_name(p)) for p in MODULES}
    assert found <= set(ALLOWED) | SURFACES


def test_planning_and_running_know_nothing_of_manifest_lists():
    """Only `tree` knows the layout of the metadata tree of a format version."""
    above = [p for p in MODULES if layer_of(module_name(p)) in {"plan", "run"}]
    assert not [module_name(p) for p in above if "manifest_list" in p.read_text()]
