"""A small real table with a past, and ways to break one thing in it.

Data files, delete files and vectors are on disk, committed by the commit layer under three specs. Breaking goes through
fastavro and plain bytes, so that nothing here repairs what it writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from neve.commit.actions import Append, DeleteFiles, RemovedFiles, RowDelta
from neve.model.partition import Specs
from neve.ops.audit.verify import Audit, Finding, verify
from neve.ops.context import TableContext
from neve.run.table_facts import TableFacts
from neve.run.write.data_files import write_arrow_table
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable
from tests.support.metadata_tables import Kit
from tests.support.tables import local, position_rows

LONG = "é" * 40  # longer than the bounds in manifests


def audit_of(table: Table, metadata: Any = None, *, data: bool = True) -> Audit:
    """An audit of a table, or of the same table with other metadata."""
    shown = Table(table.name(), metadata or table.metadata, table.metadata_location, table.io, table.catalog)
    return verify(TableContext(table.catalog, shown, lambda: None), data=data)  # type: ignore[arg-type]


def only(audit: Audit) -> Finding:
    """The one finding of an audit."""
    assert len(audit.findings) == 1, str(audit)
    return audit.findings[0]


@dataclass
class Lived:
    """A table that was written to under several specs and in which rows were deleted."""

    kit: Kit

    @classmethod
    def create(cls, folder: Path, version: int) -> Lived:
        lived = cls(Kit.create(folder, version))
        lived.append(0, [(1, "eu", 1.5), (2, "eu", None), (3, "us", -2.5), (4, "us", float("nan")), (5, None, 0.0)])
        lived.append(1, [(i, "eu", float(i)) for i in range(10, 18)])
        lived.append(2, [(20, LONG + "a", 1.0), (21, LONG + "b", 2.0), (22, None, -0.0)])
        if version == 2:
            lived.delete_positions(lived.files()[0], [1])
            lived.delete_equal([20, 99])
        if version >= 3:
            lived.delete_vectors({lived.files()[0]: [1], lived.files(spec=1)[0]: [0]})
        lived.kit.branch("kept", kind="tag")
        lived.kit.ok(DeleteFiles(RemovedFiles.of(lived.files(spec=1)[-1])))
        return lived

    def append(self, spec_id: int, rows: list[tuple]) -> None:
        self.kit.ok(Append(self.written(spec_id, rows), fast=True))

    def written(self, spec_id: int, rows: list[tuple]) -> EntryTable:
        metadata = self.kit.metadata
        facts = TableFacts.of(metadata, self.kit.table.io)
        columns = dict(zip(("id", "region", "amount"), zip(*rows, strict=True), strict=True))
        schema = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.float64())])
        target = WriteTarget.of(metadata, facts.io_properties, spec_id=spec_id)
        files = write_arrow_table(pa.table({k: list(v) for k, v in columns.items()}, schema), target)
        return EntryTable(files, Specs.of(metadata)) if isinstance(files, pa.Table) else files

    def delete_positions(self, data_file: str, positions: list[int]) -> None:
        of = self._live(data_file)
        delete = self.kit.positions("positions", of=of, rows=len(positions))
        self.kit.ok(RowDelta(added_deletes=self._stored(delete, position_rows(data_file, positions))))

    def delete_equal(self, ids: list[int]) -> None:
        field = pa.field("id", pa.int64(), False, {"PARQUET:field_id": "1"})
        delete = self.kit.equality("equality", spec=2, region=None, rows=len(ids))
        self.kit.ok(RowDelta(added_deletes=self._stored(delete, pa.table([ids], schema=pa.schema([field])))))

    def delete_vectors(self, positions: dict[str, list[int]]) -> None:
        for data_file, some in positions.items():
            vector = self.kit.vector(f"vector-{local(data_file).stem}", self._live(data_file), some)
            size = local(vector["file_path"][0].as_py()).stat().st_size
            self.kit.ok(RowDelta(added_deletes=vector.with_columns(file_size_in_bytes=[size])))

    def _stored(self, delete: EntryTable, rows: pa.Table) -> EntryTable:
        path = local(delete["file_path"][0].as_py())
        pq.write_table(rows, path)
        return delete.with_columns(file_size_in_bytes=[path.stat().st_size])

    def _live(self, data_file: str) -> EntryTable:
        live = self.kit.live(deletes=False)
        return live.filter(pa.array([p == data_file for p in live["file_path"].to_pylist()]))

    # --- looking ---

    def audit(self, metadata: Any = None, *, data: bool = True) -> Audit:
        return audit_of(self.kit.table, metadata, data=data)

    def files(self, spec: int = 0, *, deletes: bool = False) -> list[str]:
        """The live files of a spec in the order of the tree."""
        live = self.kit.live(deletes=deletes)
        pairs = zip(live["file_path"].to_pylist(), live["spec_id"].to_pylist(), strict=True)
        return [path for path, spec_id in pairs if spec_id == spec]

    def lists(self) -> list[str]:
        """The manifest lists, oldest first."""
        return [s.manifest_list for s in self.kit.metadata.snapshots]

    def manifest(self, spec: int = 0, *, deletes: bool = False) -> str:
        """The first manifest of a spec in the newest snapshot."""
        return next(m.path for m in self.kit.manifests(deletes=deletes) if m.spec_id == spec)

    # --- breaking ---

    def edit_lists(self, manifest: str, **values: Any) -> None:
        """Change what every list says about a manifest; a function gets the value that is there."""
        for path in self.lists():
            edit_avro(path, lambda row: row.update(_applied(row, values)) if row["manifest_path"] == manifest else None)

    def edit_manifest(self, manifest: str, change: Callable[[dict], Any], **header: str) -> None:
        """Change the entries of a manifest; the lists learn its new length."""
        edit_avro(manifest, change, **header)
        self.edit_lists(manifest, manifest_length=local(manifest).stat().st_size)

    def edit_file(self, data_file: str, manifest: str, **values: Any) -> None:
        """Change what a manifest says about a file."""

        def change(row: dict) -> None:
            if row["data_file"]["file_path"] == data_file:
                row["data_file"].update(_applied(row["data_file"], values))

        self.edit_manifest(manifest, change)


def _applied(row: dict, values: dict[str, Any]) -> dict[str, Any]:
    return {k: v(row[k]) if callable(v) else v for k, v in values.items()}


def edit_avro(path: str, change: Callable[[dict], Any], **header: str) -> None:
    """Write an Avro file again with its rows changed in place; a change that returns a list replaces the row by it."""
    with local(path).open("rb") as stream:
        reader = fastavro.reader(stream)
        rows, kept = list(reader), {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
        schema = json.loads(reader.metadata["avro.schema"])
    changed = [made if isinstance(made := change(row), list) else [row] for row in rows]
    kept |= {k.replace("_", "-"): v for k, v in header.items()}
    with local(path).open("wb") as stream:
        fastavro.writer(stream, schema, [r for some in changed for r in some], codec="deflate", metadata=kept)
