"""The package never runs code that is selected by data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.results_ledger import new_tally

GUARANTEE = "data chooses no code and no text of a query"
PLANTED = "planted faults are caught: code and queries that data chooses"
PACKAGE = Path(__file__).parents[2] / "neve"
BANNED_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "xml.etree", "yaml", "telnetlib"}
BETWEEN_OUR_PROCESSES = {("source/workers.py", "pickle")}  # from Spark, never from a file
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.call"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def banned_uses(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in BANNED_CALLS or (called.endswith("subprocess.run") and "shell=True" in ast.unparse(node)):
                yield f"{name}:{node.lineno} calls {called}"
            continue
        else:
            continue
        for found in names:
            if found in BANNED_MODULES and (name, found) not in BETWEEN_OUR_PROCESSES:
                yield f"{name}:{node.lineno} imports {found}"


def composed_queries(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield database queries that are not constants, except our own with a constant number in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("text", "exec_driver_sql"):
            query = ast.unparse(node.args[0])
            if not isinstance(node.args[0], ast.Constant) and "{_LOCK_WAIT_SECONDS}" not in query:
                yield f"{name}:{node.lineno} composes {query}"


def test_no_file_can_choose_code():
    with new_tally(GUARANTEE) as tally:
        for name, tree in sources():
            with tally.case(name):
                assert list(banned_uses(name, tree)) == []


def test_queries_to_catalogs_have_no_values_in_their_text():
    """SQL for catalogs is built by SQLAlchemy, which binds values."""
    with new_tally(GUARANTEE) as tally:
        for name, tree in sources():
            if name.startswith("catalog/"):
                with tally.case(f"queries of {name}"):
                    assert list(composed_queries(name, tree)) == []


PLANTS = {
    "import pickle": "imports pickle",
    "from pickle import loads": "imports pickle",
    "eval('1')": "calls eval",
    "os.system('x')": "calls os.system",
    "subprocess.run('x', shell=True)": "calls subprocess.run",
    "session.execute(text(f'DROP TABLE {name}'))": "composes f'DROP TABLE {name}'",
    "session.execute(text('DROP TABLE ' + name))": "composes 'DROP TABLE ' + name",
    "connection.exec_driver_sql('DROP TABLE %s' % name)": "composes 'DROP TABLE %s' % name",
}


@pytest.mark.parametrize("text", PLANTS)
def test_the_ban_notices(text: str):
    tree = ast.parse(text)
    with new_tally(PLANTED) as tally, tally.case(text):
        assert [*banned_uses("io/x.py", tree), *composed_queries("io/x.py", tree)] == [f"io/x.py:1 {PLANTS[text]}"]
        tally.figure("found")
