"""Manifests that contradict their format are refused by name: a wrong flag would hide files or revive rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from neve.commit.actions import Append
from neve.errors import CorruptFile
from neve.tree.entries import EntryTable, Manifest
from neve.tree.read import read_manifest
from tests.support.metadata_tables import Kit
from tests.support.tables import local

Entry = dict[str, Any]


class Forged:
    """A real manifest of two files that can be written again with something wrong in it."""

    def __init__(self, folder: Path) -> None:
        self.table = Kit.create(folder)
        self.table.ok(Append(self.table.data("a", "b")))
        (listed,) = self.table.manifests()
        self.manifest: Manifest = replace(listed, length=0)  # the size is not what is wrong
        self.path = local(listed.path)

    def read(self, change: Callable[[list[Entry], Entry], None]) -> EntryTable:
        reader = fastavro.reader(io.BytesIO(self.path.read_bytes()))
        entries, schema = list(reader), dict(reader.writer_schema)
        change(entries, schema)
        header = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
        with self.path.open("wb") as file:
            fastavro.writer(file, schema, entries, metadata=header)
        return read_manifest(self.table.io, self.manifest, self.table.specs)


@pytest.fixture
def forged(tmp_path: Path) -> Forged:
    return Forged(tmp_path)


def test_the_forger_changes_nothing_else(forged: Forged):
    assert len(forged.read(lambda entries, schema: None).live()) == 2


@pytest.mark.parametrize("status", [3, 4, 7, -1, 300])
def test_an_unknown_status_is_refused(forged: Forged, status: int):
    with pytest.raises(CorruptFile, match=rf"{forged.path.name}.*{status}"):
        forged.read(lambda entries, schema: entries[1].update(status=status))


@pytest.mark.parametrize("content", [1, 2, 9])
def test_files_of_another_kind_than_the_list_says_are_refused(forged: Forged, content: int):
    with pytest.raises(CorruptFile, match=f"data files, as the manifest list says, found files of content {content}"):
        forged.read(lambda entries, schema: entries[1]["data_file"].update(content=content))


def test_an_existing_file_without_a_sequence_number_is_refused(forged: Forged):
    with pytest.raises(CorruptFile, match="a sequence number in every existing entry, found 1 without"):
        forged.read(lambda entries, schema: entries[1].update(status=0, sequence_number=None))


@pytest.mark.parametrize("name", ["file_path", "file_format", "record_count"])
def test_a_manifest_without_a_required_field_is_refused(forged: Forged, name: str):
    def without(entries: list[Entry], schema: Entry) -> None:
        files = next(f["type"] for f in schema["fields"] if f["name"] == "data_file")
        files["fields"] = [f for f in files["fields"] if f["name"] != name]

    with pytest.raises(CorruptFile, match=f"files with the field {name}"):
        forged.read(without)


def test_a_field_of_another_type_is_refused(forged: Forged):
    def numbered(entries: list[Entry], schema: Entry) -> None:
        files = next(f["type"] for f in schema["fields"] if f["name"] == "data_file")
        next(f for f in files["fields"] if f["name"] == "record_count")["type"] = "string"
        for entry in entries:
            entry["data_file"]["record_count"] = "many"

    with pytest.raises(CorruptFile, match="fields of the types"):
        forged.read(numbered)
