"""Only `tree` distinguishes version 4 from version 3: the source text of no other layer does."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "neve"
BELOW = {"errors.py", "model", "predicate", "io", "catalog", "tree"}
ABOVE = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in BELOW]

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
SPELLINGS = ("root_manifest", "root-manifest", "manifest_list", "manifest-list", "is_tracked", "V4TreeWriter")


def names_a_version(node: ast.AST) -> bool:
    named = [n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in ast.walk(node)]
    return any(name.endswith("format_version") or name == "version" for name in named)


def constant(node: ast.AST) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def splits(tree: ast.AST) -> Iterator[ast.Compare]:
    """The comparisons of a version that come out differently for 3 and 4."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = node.left, node.comparators[0]
        test = COMPARE.get(type(node.ops[0]))
        if test is None:
            continue
        if names_a_version(left) and (value := constant(right)) is not None and test(3, value) != test(4, value):
            yield node
        if names_a_version(right) and (value := constant(left)) is not None and test(value, 3) != test(value, 4):
            yield node


def test_nothing_above_the_tree_tells_version_4_from_version_3():
    assert len(ABOVE) > 100
    found = {(str(p.relative_to(PACKAGE)), n.lineno) for p in ABOVE for n in splits(ast.parse(p.read_text()))}
    # Which versions there are to move to is what `upgrade` is about.
    assert {path for path, _ in found} <= {"ops/metadata/evolve.py"}, sorted(found)


def test_a_comparison_that_splits_3_from_4_would_be_found():
    for text in ("a.format_version >= 4", "3 < format_version", "version == 4", "table.format_version in (2, 3)"):
        assert list(splits(ast.parse(text))), text
    for text in ("a.format_version >= 3", "format_version < 2", "version == 1"):
        assert not list(splits(ast.parse(text))), text


def test_only_the_tree_knows_the_layout_of_a_version():
    allowed = {
        "ops/metadata/export_metadata.py",
        "ops/inspect/history.py",
        "ops/maintenance/expire_snapshots.py",
    }  # one converts between the layouts, the others show them under the names of Iceberg's columns
    found = {str(p.relative_to(PACKAGE)) for p in ABOVE if any(word in p.read_text() for word in SPELLINGS)}
    assert found <= allowed, found - allowed
