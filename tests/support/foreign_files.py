"""Tables other engines wrote, planned with nothing of Névé's: fastavro for manifests, plain Python for deletes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform

from neve.model.partition import Specs
from neve.run.read.file_reader import FileTask, ReadTarget, read_tasks
from neve.run.read.tasks import DeleteFile, EqualityDeletes, build_task_table
from neve.run.read.types import ArrowFlavor as Carrier
from neve.run.read.types import arrow_schema
from neve.run.table_facts import TableFacts
from neve.tree.entries import Content
from neve.tree.read import manifests_of, read_entries

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"


def shared(name: str) -> ModuleType:
    """A module of the fixtures folder."""
    sys.path.insert(0, str(FIXTURES))
    try:
        spec = importlib.util.spec_from_file_location(name, FIXTURES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FIXTURES))


@dataclass(frozen=True)
class ForeignTable:
    metadata_path: Path

    @cached_property
    def raw(self) -> dict[str, Any]:
        return json.loads(self.metadata_path.read_bytes())

    @cached_property
    def metadata(self) -> TableMetadata:
        return TableMetadataUtil.parse_obj(self.raw)

    @cached_property
    def io(self) -> FileIO:
        return load_file_io({}, str(self.metadata_path))

    @cached_property
    def name_mapping(self) -> NameMapping | None:
        text = self.metadata.properties.get("schema.name-mapping.default")
        return None if text is None else parse_mapping_from_json(text)

    @cached_property
    def facts(self) -> TableFacts:
        return TableFacts.of(self.metadata, self.io)

    @property
    def schemas(self) -> list[Schema]:
        current = self.metadata.schema()
        rest = [s for s in self.metadata.schemas if s.schema_id != current.schema_id]
        return [current, *sorted(rest, key=lambda s: -s.schema_id)]

    @cached_property
    def union_ids(self) -> list[int]:
        return sorted({f.field_id for spec in self.metadata.specs().values() for f in spec.fields})

    def target(self, schema: Schema | None = None, carrier: Carrier = Carrier.EXACT) -> ReadTarget:
        return ReadTarget(schema or self.metadata.schema(), self.name_mapping, tuple(self.schemas), carrier)

    def to_arrow(self, schema: Schema | None = None, carrier: Carrier = Carrier.EXACT) -> pa.Table:
        target = self.target(schema, carrier)
        return pa.Table.from_batches(
            read_tasks(self.io, list(self.tasks()), target), arrow_schema(target.schema, carrier)
        )

    def entries(self) -> list[dict[str, Any]]:
        """Live entries with sequence numbers and first row ids inherited."""
        snapshot = self.metadata.current_snapshot()
        return [] if snapshot is None else list(_entries(snapshot.manifest_list))

    def task_table(self) -> pa.Table:
        """The same tasks, made from entry tables."""
        specs = Specs.of(self.metadata)
        manifests = manifests_of(self.io, self.metadata, self.metadata.current_snapshot())
        entries = read_entries(self.io, manifests, specs).live()
        files = entries.of_content(Content.DATA)
        deletes = entries.of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)
        file_at = {path: i for i, path in enumerate(files["file_path"].to_pylist())}
        names = zip(deletes["file_path"].to_pylist(), deletes["content_offset"].to_pylist(), strict=True)
        delete_at = {name: i for i, name in enumerate(names)}
        pairs = [
            (file_at[task.path], delete_at[d.path, d.content_offset])
            for task in self.tasks()
            for d in [*task.deletes, *(f for group in task.equality_deletes for f in group.files)]
        ]
        attached = pa.table(
            {"file": pa.array([f for f, _ in pairs], pa.int64()), "delete": pa.array([d for _, d in pairs], pa.int64())}
        )
        return build_task_table(files, deletes, attached)

    def tasks(self) -> Iterator[FileTask]:
        entries = self.entries()
        deletes = [e for e in entries if e.get("content")]
        for entry in entries:
            if not entry.get("content"):
                yield self._task(entry, [d for d in deletes if self._applies(d, entry)])

    def _applies(self, delete: dict[str, Any], data: dict[str, Any]) -> bool:
        same = (delete["spec_id"], delete["partition"]) == (data["spec_id"], data["partition"])
        spec = self.metadata.specs()[delete["spec_id"]]
        if delete["content"] == 2:
            return delete["seq"] > data["seq"] and (same or not spec.fields)
        if delete["seq"] < data["seq"] or not same:
            return False
        referenced = delete.get("referenced_data_file")
        return referenced is None or referenced == data["file_path"]

    def _task(self, entry: dict[str, Any], deletes: list[dict[str, Any]]) -> FileTask:
        spec = self.metadata.specs()[entry["spec_id"]]
        values = list(entry["partition"].values())
        identity = {
            f.source_id: v
            for f, v in zip(spec.fields, values, strict=True)
            if isinstance(f.transform, IdentityTransform)
        }
        by_position = [d for d in deletes if d["content"] == 1]
        vectors = [d for d in by_position if d["file_format"] == "PUFFIN"]
        groups: dict[tuple[int, ...], list[DeleteFile]] = {}
        for delete in deletes:
            if delete["content"] == 2:
                groups.setdefault(tuple(delete["equality_ids"]), []).append(_delete_file(delete))
        return FileTask(
            path=entry["file_path"],
            file_format=entry["file_format"],
            file_size=entry["file_size_in_bytes"],
            record_count=entry["record_count"],
            spec_id=entry["spec_id"],
            partition=identity,
            union_tuple=[
                dict(zip((f.field_id for f in spec.fields), values, strict=True)).get(i) for i in self.union_ids
            ],
            first_row_id=entry.get("first_row_id"),
            sequence_number=entry["seq"],
            deletes=tuple(_delete_file(d) for d in vectors or by_position),
            equality_deletes=tuple(EqualityDeletes(tuple(f), ids) for ids, f in groups.items()),
        )


def _delete_file(delete: dict[str, Any]) -> DeleteFile:
    return DeleteFile(
        delete["file_path"],
        delete["file_format"],
        delete["file_size_in_bytes"],
        delete["record_count"],
        delete.get("content_offset"),
        delete.get("content_size_in_bytes"),
    )


def _entries(manifest_list: str) -> Iterator[dict[str, Any]]:
    for manifest in _avro(manifest_list):
        sequence, next_row = manifest.get("sequence_number") or 0, manifest.get("first_row_id")
        for entry in _avro(manifest["manifest_path"]):
            if entry["status"] == 2:
                continue
            file = entry["data_file"]
            seq = entry.get("sequence_number")
            if next_row is not None and file.get("first_row_id") is None:
                file["first_row_id"] = next_row
                next_row += file["record_count"]
            yield {**file, "seq": sequence if seq is None else seq, "spec_id": manifest["partition_spec_id"]}


def _avro(path: str) -> list[dict[str, Any]]:
    with open(path.removeprefix("file://"), "rb") as stream:
        return list(fastavro.reader(stream))
