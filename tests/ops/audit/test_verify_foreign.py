"""Tables other engines wrote are sound, except for defects that are really theirs."""

from __future__ import annotations

import contextlib
import importlib
import io
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.table import Table

from neve.model.metadata import parse_metadata
from neve.ops.audit.verify import Audit
from tests.support.evolved_tables import audit_of
from tests.support.foreign_tables import FIXTURES, foreign_tables, needs_fixtures
from tests.support.tables import local

MISSING_LIST = "the copy lacks the manifest list of one snapshot"
ROUNDED = "a tool that cannot hold 64-bit integers rounded the snapshot ids in the metadata"
RENUMBERED = "lists written after the upgrade number the v1 manifest 1; the format numbers it 0"
KNOWN_DEFECTS = {
    "duckdb_equality_deletes/warehouse/mydb/mytable": ({"missing-file"}, MISSING_LIST),
    "impala_iceberg_v3_all_types": ({"list-header"}, ROUNDED),
    "v123_upgraded": ({"manifest-sequence-number"}, RENUMBERED),
}
MADE = ("v123_upgraded", "v2_posdel_nasty", "v3_dv_nasty")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # relocate.py leaves files to the collector


@pytest.fixture(scope="module")
def relocate() -> ModuleType:
    sys.path.insert(0, str(FIXTURES))
    try:
        return importlib.import_module("relocate")
    finally:
        sys.path.remove(str(FIXTURES))


def audit(metadata_path: str) -> Audit:
    metadata = parse_metadata(local(metadata_path).read_bytes(), metadata_path)
    return audit_of(Table(("db", "t"), metadata, metadata_path, load_file_io({}, metadata_path), None))


def assert_sound(name: str, found: Audit) -> None:
    defects, _ = KNOWN_DEFECTS.get(name, (set(), ""))
    assert {f.kind for f in found.errors} == defects, f"{name}: {found}"
    assert found.data_files > 0


@needs_fixtures
@pytest.mark.parametrize("name", [f.name for f in foreign_tables()])
def test_a_table_of_another_engine_is_sound(name: str, relocate, tmp_path: Path):
    with contextlib.redirect_stderr(io.StringIO()):
        moved = relocate.Mover(str(FIXTURES / name), str(tmp_path / "t"), "file").run()
    assert_sound(name, audit(moved))


@needs_fixtures
def test_tables_made_without_any_library_are_sound(relocate, tmp_path: Path):
    command = [sys.executable, str(FIXTURES / "mktables.py"), str(tmp_path), *MADE]
    subprocess.run(command, check=True, capture_output=True)
    for name in MADE:
        assert_sound(name, audit(relocate.newest(str(tmp_path / name / "metadata"))))
