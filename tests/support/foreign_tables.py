"""Tables that others wrote, kept beside the checkout in `../shared/fixtures`; without them their tests skip."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

FIXTURES = Path(os.environ.get("NEVE_FIXTURES", Path(__file__).parents[3] / "shared" / "fixtures")).resolve()

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="no tables of other engines: ../shared/fixtures is absent"
)


@dataclass(frozen=True)
class Foreign:
    """A table another engine wrote and what independent engines read from it."""

    name: str
    rows: int | None
    checksum: str | None
    engines: tuple[str, ...]


@cache
def fixture_module(name: str) -> ModuleType:
    """A module of the fixtures."""
    sys.path.insert(0, str(FIXTURES))
    return import_module(name)


def checksum() -> ModuleType:
    """The order-independent checksum the expectations were made with."""
    return fixture_module("checksum")


def foreign_tables() -> list[Foreign]:
    """Every table of the fixtures."""
    if not FIXTURES.is_dir():
        return []
    with (FIXTURES / "EXPECTED.tsv").open() as f:
        return [_row(r) for r in csv.DictReader(f, delimiter="\t")]


def _row(row: dict[str, str]) -> Foreign:
    engines = () if row["agreed"] == "none" else tuple(row["agreed"].split(","))
    rows = None if row["rows"] == "-" else int(row["rows"])
    return Foreign(row["table"], rows, None if row["checksum"] == "-" else row["checksum"], engines)


def relocated(name: str, folder: Path) -> str:
    """Copy a table of the fixtures to a folder, its paths rewritten; the place of its newest metadata."""
    target = folder / name.replace("/", "-")
    command = [sys.executable, str(FIXTURES / "relocate.py"), str(FIXTURES / name), str(target), "--scheme", "file"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def made_tables(folder: Path) -> dict[str, dict]:
    """Write the nasty tables of `mktables.py`; the expectation of each by its name."""
    subprocess.run([sys.executable, str(FIXTURES / "mktables.py"), str(folder)], check=True, capture_output=True)
    return {p.parent.name: json.loads(p.read_text()) for p in sorted(folder.glob("*/EXPECTED.json"))}
