"""Small tables for planning tests: entry tables made from rows, without any file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from neve.model.partition import Specs
from neve.tree.entries import DETAIL, Content, EntryTable, Status


def spec(spec_id: int, *fields: tuple[int, int, str, str]) -> PartitionSpec:
    """A spec from (field id, source id, transform, name)."""
    made = (PartitionField(source_id=s, field_id=f, transform=parse_transform(t), name=n) for f, s, t, n in fields)
    return PartitionSpec(*made, spec_id=spec_id)


def specs_of(schemas: Schema | Sequence[Schema], *specs: PartitionSpec) -> Specs:
    """The specs of a table whose current schema is the first."""
    known = (schemas,) if isinstance(schemas, Schema) else tuple(schemas)
    return Specs({s.spec_id: s for s in specs}, specs[-1].spec_id, known)


def entries(specs: Specs, files: Sequence[dict[str, Any]], detail: Sequence[str] = ()) -> EntryTable:
    """Tracked files from what is special about each: `partition` is the tuple of its own spec."""
    defaults = {
        "manifest": 0,
        "status": Status.EXISTING,
        "snapshot_id": 1,
        "sequence_number": 1,
        "file_sequence_number": 1,
        "content": Content.DATA,
        "file_format": "PARQUET",
        "spec_id": specs.default_id,
        "record_count": 10,
        "file_size_in_bytes": 1000,
    }
    rows = [defaults | {"row": i, "file_path": f"f{i}"} | f | _tuple(specs, defaults | f) for i, f in enumerate(files)]
    names = {name for row in rows for name in row} - {"partition"}
    columns = {name: [_plain(row.get(name)) for row in rows] for name in names}
    return EntryTable.from_columns(columns, specs, len(rows), detail)


def new_entries(specs: Specs, files: Sequence[dict[str, Any]], detail: Sequence[str] = ()) -> EntryTable:
    """Files as a writer is about to commit them: no manifest has them, and they have no numbers yet."""
    numbers = dict.fromkeys(("snapshot_id", "sequence_number", "file_sequence_number"))
    new = {"manifest": -1, "row": -1, "status": Status.ADDED, **numbers}
    return entries(specs, [new | file for file in files], detail)


def _tuple(specs: Specs, file: dict[str, Any]) -> dict[str, Any]:
    partition = file.get("partition")
    return dict(zip(specs.columns(file["spec_id"]), partition, strict=True)) if partition is not None else {}


def _plain(value: Any) -> Any:
    return [{"key": k, "value": v} for k, v in value.items()] if isinstance(value, dict) else value


ALL_DETAIL = tuple(DETAIL.names)
