"""A table with a long history: four specs, two renamed columns, a dropped partition source, a promoted type.

Every read is compared with a plain-Python model, and with PyIceberg and DuckDB where they can read the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

import neve
from neve.commit.actions import RowDelta
from neve.commit.outcome import require_committed
from neve.commit.protocol import commit
from neve.errors import UserError
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import pack_vectors
from neve.table import Table
from neve.tree.entries import Content, EntryTable, Status
from tests.peers.readers import duckdb_rows, for_peers, pyiceberg_rows
from tests.support.spark_sessions import compiled

START = datetime(2026, 1, 1, tzinfo=UTC)
REGIONS = ("eu", "us", None)
Row = dict[str, Any]


@dataclass
class EvolvedTable:
    """The table and its expected rows."""

    table: Table
    model: list[Row] = field(default_factory=list)

    def append(self, batch: int) -> None:
        rows = [self.row(batch, i) for i in range(40)]
        self.table.append(pa.Table.from_pylist(rows, self.arrow_schema()))
        self.model += rows

    def row(self, batch: int, i: int) -> Row:
        values = {
            "id": batch * 100 + i,
            "ts": START + timedelta(days=i % 4, hours=i),
            "region": REGIONS[i % 3],
            "amount": i / 4,
            "price": i / 4,
            "qty": i - 20,
            "note": None if i % 5 == 0 else f"note {i} é🙂",
            "memo": None if i % 5 == 0 else f"note {i} é🙂",
        }
        return {f.name: values[f.name] for f in self.table.schema.fields}

    def arrow_schema(self) -> pa.Schema:
        kinds = {"long": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64()}
        kinds["timestamptz"] = pa.timestamp("us", "UTC")
        return pa.schema([(f.name, kinds[str(f.field_type)]) for f in self.table.schema.fields])

    def rename(self, old: str, new: str) -> None:
        with self.table.evolve_schema() as change:
            change.rename_column(old, new)
        self.table.refresh()
        self.model = [{new if k == old else k: v for k, v in row.items()} for row in self.model]

    def drop(self, name: str) -> None:
        with self.table.evolve_schema() as change:
            change.delete_column(name)
        self.table.refresh()
        self.model = [{k: v for k, v in row.items() if k != name} for row in self.model]

    def delete(self, is_deleted: Callable[[Row], bool]) -> None:
        """Delete rows by position, in the form of the format version, each delete under the spec of its file."""
        scan = self.table.scan(columns=["id", "_file", "_pos"]).to_arrow(engine="arrow").to_pylist()
        ids = {row["id"] for row in self.model if is_deleted(row)}
        positions_by_file: dict[str, list[int]] = {}
        for row in scan:
            if row["id"] in ids:
                positions_by_file.setdefault(row["_file"], []).append(row["_pos"])
        files = self.table.scan().plan().files
        deletes = _position_deletes(self.table, files, positions_by_file)
        context = self.table.refresh().context
        require_committed(commit(context.catalog, context.iceberg, RowDelta(added_deletes=deletes)))
        self.model = [row for row in self.model if row["id"] not in ids]


def _position_deletes(table: Table, files: EntryTable, positions_by_file: dict[str, list[int]]) -> EntryTable:
    """Write a delete file or a vector for each data file, with the spec and tuple of that file."""
    chosen = files.take([i for i, path in enumerate(files["file_path"].to_pylist()) if path in positions_by_file])
    paths = chosen["file_path"].to_pylist()
    metadata, io = table.context.metadata, table.context.io
    base = f"{metadata.location}/data/{uuid4()}"
    columns: dict[str, Any] = {c: chosen[c] for c in ("spec_id", *(u.column for u in files.specs.union))}
    columns |= {"manifest": -1, "status": int(Status.ADDED), "content": int(Content.POSITION_DELETES)}
    columns |= {"referenced_data_file": paths, "record_count": [len(positions_by_file[p]) for p in paths]}
    if metadata.format_version >= 3:
        data, found = pack_vectors([(p, PositionSet.of(positions_by_file[p])) for p in paths])
        with io.new_output(f"{base}.puffin").create() as stream:
            stream.write(data)
        columns |= {name: found[name] for name in ("content_offset", "content_size_in_bytes", "record_count")}
        columns |= {"file_path": f"{base}.puffin", "file_format": "PUFFIN", "file_size_in_bytes": len(data)}
        return EntryTable.from_columns(columns, files.specs, len(paths))
    columns |= {"file_path": [f"{base}-{i}.parquet" for i in range(len(paths))], "file_format": "PARQUET"}
    sizes = [
        _write_positions(io, at, p, positions_by_file[p]) for at, p in zip(columns["file_path"], paths, strict=True)
    ]
    return EntryTable.from_columns(columns | {"file_size_in_bytes": sizes}, files.specs, len(paths))


def _write_positions(io: Any, location: str, path: str, positions: list[int]) -> int:
    names = {"file_path": (pa.string(), "2147483546"), "pos": (pa.int64(), "2147483545")}
    schema = pa.schema([pa.field(n, t, False, {"PARQUET:field_id": i}) for n, (t, i) in names.items()])
    rows = pa.table([[path] * len(positions), sorted(positions)], schema=schema)
    with io.new_output(location).create() as stream:
        pq.write_table(rows, stream)
    return len(io.new_input(location))


def create_evolved_table(lake: neve.Lake, version: int, name: str) -> EvolvedTable:
    """Create specs 0 by day, 1 by day and region, 2 by bucket, 3 without fields; drop `region`, source of spec 1."""
    table = lake.create_table(
        f"evolved.{name}",
        "id bigint not null, ts timestamp, region string, amount double, qty int, note string",
        partition_by=["days(ts)"],
        format_version=version,
    )
    evolved = EvolvedTable(table)
    evolved.append(0)
    table.evolve_partitions(add=["region"])
    evolved.append(1)
    evolved.rename("amount", "price")
    table.evolve_partitions(add=["bucket(4, id)"], drop=["days(ts)", "region"])
    evolved.append(2)
    with table.evolve_schema() as change:
        change.update_column("qty", LongType())
    table.refresh()
    table.evolve_partitions(drop=["id_bucket_4"])
    evolved.append(3)
    evolved.drop("region")
    evolved.rename("note", "memo")
    evolved.append(4)
    return evolved


CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "ts >= TIMESTAMP '2026-01-02' AND ts < TIMESTAMP '2026-01-03'": lambda r: r["ts"].day == 2,
    "id = 207": lambda r: r["id"] == 207,
    "id IN (5, 105, 205, 305, 405)": lambda r: r["id"] % 100 == 5,
    "price >= 9.5": lambda r: r["price"] >= 9.5,
    "qty < -18": lambda r: r["qty"] < -18,
    "memo IS NULL AND id < 150": lambda r: r["memo"] is None and r["id"] < 150,
    "memo LIKE 'note 1%' OR id >= 430": lambda r: (r["memo"] or "").startswith("note 1") or r["id"] >= 430,
    "NOT (id < 300)": lambda r: not r["id"] < 300,
}


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: r["id"])


def sorted_rows_of(table: pa.Table) -> list[Row]:
    return sorted_rows(table.to_pylist())


@pytest.fixture(scope="module")
def lake(tmp_path_factory, spark):
    return neve.connect(tmp_path_factory.mktemp("evolved"), spark=compiled(spark))


@pytest.fixture(scope="module", params=[1, 2, 3, 4], ids="v{}".format)
def evolved(request, lake) -> EvolvedTable:
    return create_evolved_table(lake, request.param, f"v{request.param}")


def test_every_spec_is_in_use(evolved: EvolvedTable):
    assert evolved.table.scan().plan().files.spec_ids() == [0, 1, 2, 3]
    specs = evolved.table.inspect.manifests()
    assert set(specs["partition_spec_id"].to_pylist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("engine", ["spark", "arrow"])
def test_whole_table_is_the_model(evolved: EvolvedTable, engine):
    assert sorted_rows_of(evolved.table.scan().to_arrow(engine=engine)) == sorted_rows(evolved.model)


@pytest.mark.parametrize("where", CONDITIONS)
def test_filters_agree_with_the_model(evolved: EvolvedTable, where: str):
    expected = sorted_rows(row for row in evolved.model if CONDITIONS[where](row))
    assert sorted_rows_of(evolved.table.scan(where).to_arrow(engine="spark")) == expected
    assert sorted_rows_of(evolved.table.scan(where).to_arrow(engine="arrow")) == expected
    assert expected, "a question with no answer proves nothing"


def test_each_file_is_evaluated_under_its_own_spec(evolved: EvolvedTable):
    day = evolved.table.scan("ts < TIMESTAMP '2026-01-02'").plan()
    matching = {spec_id: len(files) for spec_id, files in day.files.by_spec()}
    total = {spec_id: len(files) for spec_id, files in evolved.table.scan().plan().files.by_spec()}
    assert matching[0] < total[0] and matching[1] < total[1], "day partitions are pruned by their tuple"
    assert 0 < matching[2] < total[2], "a bucket does not restrict days, but statistics do"
    bucket = evolved.table.scan("id = 207").plan()
    assert {spec_id: len(files) for spec_id, files in bucket.files.by_spec()} == {2: 1}


def test_rows_deleted_by_position_stay_deleted_in_every_spec(evolved: EvolvedTable):
    version = evolved.table.context.metadata.format_version
    if version == 1:
        with pytest.raises(UserError, match=r"version 1|v1"):
            evolved.delete(lambda row: row["id"] == 1)
        return
    before = len(evolved.model)
    evolved.delete(lambda row: row["id"] % 7 == 3)
    assert len(evolved.model) < before
    assert sorted_rows_of(evolved.table.scan().to_arrow(engine="spark")) == sorted_rows(evolved.model)
    for where, holds in CONDITIONS.items():
        assert sorted_rows_of(evolved.table.scan(where).to_arrow(engine="spark")) == sorted_rows(
            r for r in evolved.model if holds(r)
        )
    deletes = evolved.table.scan().plan().deletes
    assert deletes.spec_ids() == [0, 1, 2, 3], "a delete keeps the spec of the file it covers"
    assert evolved.table.scan().count() == len(evolved.model)


def test_overwrite_replaces_whole_files_of_any_spec(evolved: EvolvedTable):
    """Batches 3 and 4 lie entirely above 300; files of other specs do not touch the condition."""
    fresh = [evolved.row(5, i) for i in range(10)]
    evolved.table.overwrite(pa.Table.from_pylist(fresh, evolved.arrow_schema()), where="id >= 300")
    evolved.model = [row for row in evolved.model if row["id"] < 300] + fresh
    assert sorted_rows_of(evolved.table.scan().to_arrow(engine="spark")) == sorted_rows(evolved.model)
    with pytest.raises(UserError, match=r"part|some"):
        evolved.table.overwrite(pa.Table.from_pylist([evolved.row(0, 1)], evolved.arrow_schema()), where="id < 5")
    assert sorted_rows_of(evolved.table.scan().to_arrow(engine="arrow")) == sorted_rows(evolved.model), (
        "nothing changed"
    )


def test_other_engines_read_the_same_rows(evolved: EvolvedTable):
    version = evolved.table.context.metadata.format_version
    expected = sorted_rows(evolved.model)
    table = for_peers(evolved.table)
    if version < 3:
        assert sorted_rows_of(pyiceberg_rows(table)) == expected
    if version > 1:
        assert sorted_rows_of(duckdb_rows(table)) == expected


def test_the_past_is_read_as_it_was(evolved: EvolvedTable):
    first = evolved.table.inspect.history()["snapshot_id"][0].as_py()
    rows = evolved.table.scan(snapshot_id=first).to_arrow(engine="spark")
    assert rows.column_names == ["id", "ts", "region", "amount", "qty", "note"]
    assert sorted(rows["id"].to_pylist()) == list(range(40))


def test_the_table_passes_its_audit(evolved: EvolvedTable):
    audit = evolved.table.verify()
    assert audit.is_sound, str(audit)


def test_a_bucket_that_version_1_left_void_is_changed_and_audited(tmp_path):
    """The void field is of the type of its source, a string; the bucket before it was a number."""
    t = neve.connect(tmp_path).create_table("db.t", "id bigint, s string", ["bucket(4, s)"], format_version=1)
    t.append([{"id": 1, "s": "a"}])
    t.evolve_partitions(drop=["bucket(4, s)"])
    t.append([{"id": 2, "s": "b"}])
    assert t.delete().where("id = 2").execute().rows_deleted == 1
    assert t.refresh().to_arrow().to_pylist() == [{"id": 1, "s": "a"}]
    t.append([{"id": 3, "s": "c"}])
    assert (audit := t.verify()).is_sound, str(audit)
