"""Small tables made of real files, without a catalog: data files, deletes of every kind, and plans over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from neve.io.deletion_vectors import PositionSet
from neve.model.partition import Specs
from neve.plan.scan import ScanPlan, ScanStats
from neve.run.spark.read import read_dataframe
from neve.run.table_facts import TableFacts
from neve.tree.entries import COUNTS, Content, EntryTable

Row = dict[str, Any]

POSITIONS = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)


@dataclass
class TestLake:
    """A table under construction in a directory."""

    __test__ = False
    root: Path
    schemas: tuple[Schema, ...]  # the current one first
    specs: tuple[PartitionSpec, ...] = (PartitionSpec(spec_id=0),)
    name_mapping: Any = None
    written_with: dict[int, int] = field(default_factory=dict)
    counts: bool = True  # whether manifests count values
    files: list[Row] = field(default_factory=list)
    deletes: list[Row] = field(default_factory=list)
    attached: list[tuple[int, int]] = field(default_factory=list)

    @property
    def facts(self) -> TableFacts:
        specs = Specs({s.spec_id: s for s in self.specs}, self.specs[0].spec_id, self.schemas)
        properties = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
        return TableFacts(specs, 3, str(self.root), self.name_mapping, properties, {}, self.written_with)

    def data(
        self, rows: Sequence[Row], schema: Schema | None = None, *, name: str = "", ids: bool = True, **entry: Any
    ) -> int:
        """Write a data file; returns its row in the plan."""
        path = self.root / (name or f"data-{len(self.files)}.parquet")
        self.files.append(self._written(path, rows, schema or self.schemas[0], ids) | {"content": Content.DATA} | entry)
        return len(self.files) - 1

    def equality_deletes(
        self, keys: Iterable[int], rows: Sequence[Row], schema: Schema, files: Iterable[int], **entry: Any
    ) -> None:
        """Write an equality delete file that applies to some data files."""
        path = self.root / f"eq-{len(self.deletes)}.parquet"
        kind = {"content": Content.EQUALITY_DELETES, "equality_ids": list(keys)}
        self._attach(self._written(path, rows, schema) | kind | entry, files)

    def position_deletes(
        self, positions: Mapping[int, Iterable[int]], files: Iterable[int] | None = None, **entry: Any
    ) -> None:
        """Write one position delete file for several data files."""
        path = self.root / f"pos-{len(self.deletes)}.parquet"
        rows = [{"file_path": self.files[f]["file_path"], "pos": p} for f, some in positions.items() for p in some]
        self._attach(
            self._written(path, rows, POSITIONS) | {"content": Content.POSITION_DELETES} | entry, files or positions
        )

    def vector(self, file: int, positions: Iterable[int], **entry: Any) -> None:
        """Write a deletion vector for a data file; the blob lies somewhere inside a file."""
        blob = PositionSet.of(np.array(sorted(positions))).encode()
        path = self.root / f"vector-{len(self.deletes)}.puffin"
        path.write_bytes(b"PFA1" + blob)
        row = {
            "content": Content.POSITION_DELETES,
            "file_path": str(path),
            "file_format": "PUFFIN",
            "file_size_in_bytes": path.stat().st_size,
            "record_count": len(set(positions)),
            "content_offset": 4,
            "content_size_in_bytes": len(blob),
            "referenced_data_file": self.files[file]["file_path"],
            "spec_id": self.files[file]["spec_id"],
            "sequence_number": 2,
        }
        self._attach(row | entry, [file])

    def plan(self, schema: Schema | None = None) -> ScanPlan:
        """A plan that reads every file."""
        attached = pa.table(
            {"file": [f for f, _ in sorted(self.attached)], "delete": [d for _, d in sorted(self.attached)]}
        )
        attached = attached.cast(pa.schema([("file", pa.int64()), ("delete", pa.int64())]))
        files, deletes = self._entries(self.files), self._entries(self.deletes)
        chosen = self.schemas[0] if schema is None else schema
        return ScanPlan(None, chosen, files, deletes, attached, AlwaysTrue(), ScanStats())

    def _written(self, path: Path, rows: Sequence[Row], schema: Schema, ids: bool = True) -> Row:
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(schema, include_field_ids=ids))
        pq.write_table(table, path, row_group_size=4096)
        counts = [{"key": f.field_id, "value": len(rows)} for f in schema.fields] if ids else []
        return {
            "file_path": str(path),
            "file_format": "PARQUET",
            "file_size_in_bytes": path.stat().st_size,
            "record_count": len(rows),
            "spec_id": self.specs[0].spec_id,
            "sequence_number": 1,
            "value_counts": counts,
        }

    def _attach(self, delete: Row, files: Iterable[int]) -> None:
        self.deletes.append(delete)
        self.attached += [(file, len(self.deletes) - 1) for file in files]

    def _entries(self, rows: Sequence[Row]) -> EntryTable:
        detail = ["value_counts"] if self.counts else []
        specs = self.facts.specs
        names = EntryTable.schema(specs, detail).names
        columns = {n: [row.get(n) for row in rows] for n in names} | {"status": [1] * len(rows)}
        if self.counts:
            columns["value_counts"] = pa.array([row.get("value_counts") for row in rows], COUNTS)
        return EntryTable.from_columns(columns, specs, len(rows), detail)


def identity(field_id: int, name: str, spec_id: int = 0) -> PartitionSpec:
    """A spec of one identity field."""
    return PartitionSpec(PartitionField(field_id, 1000 + spec_id, IdentityTransform(), name), spec_id=spec_id)


def rows_of(
    spark: SparkSession, lake: TestLake, schema: Schema | None = None, columns: Sequence[str] = ()
) -> list[Row]:
    """The rows a scan gives, in an order of their own."""
    found = read_dataframe(spark, lake.plan(schema), lake.facts, columns)
    return expected(*found.toArrow().to_pylist())


def expected(*rows: Row) -> list[Row]:
    """Rows in the order in which they are compared."""
    return sorted(rows, key=repr)
