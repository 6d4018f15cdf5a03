"""The pages say all there is, and nothing that has moved."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

import neve
from neve.model.properties import PROPERTIES, Property, TableProperties
from neve.plan.rewrite_options import OPTIONS
from neve.sql.procedures import PROCEDURES
from tests.docs.examples import ROOT

DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in [ROOT / "README.md", *DOCS.rglob("*.md")]}
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")


def load_build_module(name: str) -> Any:
    """Load a module that builds the site."""
    spec = spec_from_file_location(name, DOCS / "_build" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load_build_module("tables")


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if tables.MARKED.search(text)])
def test_tables_are_those_of_the_code(page: str):
    assert tables.filled(PAGES[page]) == PAGES[page], "run: make docs"


def test_every_property_option_and_procedure_is_in_a_table():
    shown = {name: table() for name, table in tables.TABLES.items()}
    assert all(f"| `{name}` |" in shown["properties"] for name in PROPERTIES)
    assert all(f"| `{name}` |" in shown["options"] for name in OPTIONS)
    assert all(f"| `system.{name}` |" in shown["procedures"] for name in PROCEDURES)
    used = {found["name"] for text in PAGES.values() for found in tables.MARKED.finditer(text)}
    assert used == set(shown)


def test_an_unused_property_is_marked():
    sources = "\n".join(p.read_text() for p in (ROOT / "neve").rglob("*.py") if p.name != "properties.py")
    attributes = {name: p for name, p in vars(TableProperties).items() if isinstance(p, Property)}
    unread = {p.name for name, p in attributes.items() if not re.search(rf"\.{name}\b", sources)}
    assert unread == {p.name for p in attributes.values() if "of no effect" in p.meaning}


def test_every_public_name_is_in_the_reference():
    named = re.findall(r"^::: neve\.(\w+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert sorted(named) == neve.__all__


def test_links_between_files_lead_somewhere():
    """The README is read in the repository, where the site's own check does not look."""
    broken = [
        f"{page}: {target}"
        for page, text in PAGES.items()
        for target in LINK.findall(text)
        if not (ROOT / page).parent.joinpath(target).exists()
    ]
    assert not broken


def test_every_target_of_make_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    named = {name for text in PAGES.values() for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


def test_examples_in_docstrings_become_code_on_a_page():
    text = "Adds.\n\n>>> 1 + 1\n2\n\nIsolation: none.\nWrites: nothing."
    docstrings = load_build_module("docstrings")
    shown = docstrings.in_parts(docstrings.fenced(text))
    assert "```pycon\n>>> 1 + 1\n2\n```" in shown
    assert "\n\n**Isolation:** none.\n\n**Writes:** nothing." in shown


def test_remarks_about_fields_become_their_docstrings():
    docstrings = load_build_module("docstrings")
    assert docstrings.remark("    reruns: int = 0  # how often it was run again") == "How often it was run again."
    assert docstrings.remark("    rows: int = 0") is None
    assert docstrings.remark("    bytes: int  # noqa: A002") is None


def test_modules_and_names_that_the_developer_pages_mention_exist():
    guide = PAGES["docs/architecture.md"] + PAGES["docs/contributing.md"]
    decisions = "".join(text for name, text in PAGES.items() if name.startswith("docs/decisions/"))
    paths = set(re.findall(r"`((?:neve/|tests/)?[a-z_0-9]+(?:/[a-z_0-9]+)+\.py)`", guide + decisions))
    assert not {p for p in paths if not (ROOT / p).exists() and not (ROOT / "neve" / p).exists()}
    sources = "\n".join(p.read_text() for p in (ROOT / "neve").rglob("*.py"))
    functions = set(re.findall(r"`(?:[A-Z]\w+\.)?([a-z_]+)` in `|`[A-Z]\w+\.([a-z_]+)`", guide))
    named = {name for pair in functions for name in pair if name}
    assert named and not {name for name in named if not re.search(rf"def {name}\(", sources)}
    classes = set(re.findall(r"`([A-Z][a-z]\w+)`", guide))
    assert classes and not {name for name in classes if not re.search(rf"\b{name}\b", sources)}
