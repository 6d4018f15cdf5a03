"""A lake for compactions as two writers see it, small tables of every version, and how they are looked at.

Tables hold rows of (id, region, amount, note). Rows are read by plain means before and after: Arrow over the live
files, and where no deletes are left the Parquet files themselves. Deletes are committed as other writers commit them,
as real files: positions, vectors, equality deletes of any spec.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from sqlalchemy import create_engine
from sqlalchemy.event import listen

from neve import Lake, Table
from neve.catalog.sql import EmbeddedCatalog
from neve.commit.actions import RowDelta
from neve.commit.environment import Environment, Phase
from neve.commit.outcome import require_committed
from neve.commit.protocol import commit
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import pack_vectors
from neve.run.write.file_schema import arrow_file_schema
from neve.tree.entries import DETAIL, Content, EntryTable, Status
from tests.support.dml_tables import Forgetful
from tests.support.foreign_equality_deletes import another_engine_writes
from tests.support.spark_oracle import multiset

VERSIONS = (1, 2, 3, 4)  # what tests without deletes are played on
WITH_DELETES = (2, 3, 4)
NEWEST = VERSIONS[-1]
COLUMNS = "id bigint, region string, amount double, note string"
REGIONS = ("eu", "us", "asia")
ALL = {"rewrite-all": "true"}
AWAY = ".away"
PARTIAL = {"partial-progress.enabled": "true"}

Row = dict[str, Any]


@dataclass
class Interruption:
    """What others do whenever a commit is about to be checked, one after the other."""

    acts: list[Callable[[], Any] | None] = field(default_factory=list)

    def observe(self, phase: Phase, attempt: int) -> None:
        if phase is Phase.CHECK and self.acts and (act := self.acts.pop(0)) is not None:
            act()


@dataclass
class Place:
    """One lake as two writers see it; the first can be interrupted, and its catalog may lose an answer."""

    folder: Path
    spark: SparkSession
    names: Iterator[int] = field(default_factory=count)
    templates: dict[Any, str] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)  # files in storage when a table was made

    def __post_init__(self) -> None:
        self.interruption = Interruption()
        environment = Environment(observe=self.interruption.observe, sleep=lambda seconds: None)
        self.catalog = _quick(Forgetful(self.folder))
        self.mine = Lake(self.catalog, self.spark, environment=environment)
        self.theirs = Lake(_quick(EmbeddedCatalog(self.folder)), self.spark)

    def create(self, version: int, by: Sequence[str] = (), columns: Any = COLUMNS, **options: Any) -> Table:
        """A new table of no rows."""
        name = f"db.t{next(self.names)}"
        self.theirs.create_table(name, columns, by, format_version=version, **options)
        return self.mine.table(name)

    def table(self, version: int, *files: Iterable[Row], by: Sequence[str] = (), **options: Any) -> Table:
        """A new table with an append for each batch of rows."""
        table = self.create(version, by, **options)
        for rows in files:
            append(table, rows)
        return table

    def again(self, key: Any, make: Callable[[], Table]) -> Table:
        """A table that is made once for each key, and every time again as it was then, under another name.

        Iceberg never changes what is written, so nothing has to be copied.
        """
        if key not in self.templates:
            self.templates[key] = make().iceberg.metadata_location
        name = f"db.t{next(self.names)}"
        self.theirs.register_table(name, self.templates[key])
        self.before[name] = on_disk(self.mine.table(name))
        return self.mine.table(name)

    def left_behind(self, table: Table) -> set[str]:
        """Data files in storage that came since a table was made and that no snapshot of it has."""
        snapshots = table.refresh().context.metadata.snapshots
        known = {p for s in snapshots for p in table.inspect.files(s.snapshot_id)["file_path"].to_pylist()}
        return on_disk(table) - known - self.before.get(table.name, set())

    def other(self, table: Table) -> Table:
        """The same table in the hands of the other writer."""
        return self.theirs.table(table.name)

    def interrupt(self, *acts: Callable[[], Any] | None) -> None:
        """Have others act when the next commits have read the table and are about to be checked; None lets one pass.

        A commit that is overtaken so passes its checks, loses the swap, and is checked again.
        """
        self.interruption.acts = list(acts)


def some_rows(start: int, number: int, region: str | None = None) -> list[Row]:
    """Rows from an id on, in one region or in all in turn."""
    return [
        {
            "id": i,
            "region": region or REGIONS[i % 3],
            "amount": None if i % 7 == 0 else i / 4,
            "note": None if i % 5 == 0 else f"note {i} é",
        }
        for i in range(start, start + number)
    ]


def append(table: Table, rows: Iterable[Row]) -> None:
    table.append(pa.Table.from_pylist(list(rows), arrow_file_schema(table.refresh().schema)))


# --- looking ---


def rows_of(table: Table, branch: str = "main") -> Counter[str]:
    """The live rows of a table as a multiset of exact values."""
    return multiset(table.scan(ref=branch).to_arrow(engine="arrow"))


def ids_of(table: Table, branch: str = "main") -> list[int]:
    return sorted(table.scan(ref=branch, columns=["id"]).to_arrow(engine="arrow")["id"].to_pylist())


def parquet_rows(table: Table) -> Counter[str]:
    """The rows of the live data files, read without any table format; only for tables without deletes."""
    assert not len(deletes_of(table))
    names = tuple(f.name for f in table.schema.fields)
    return multiset(pa.concat_tables([pq.read_table(local(p)).select(names) for p in paths_of(table)]))


def entries_of(table: Table, branch: str = "main") -> EntryTable:
    """The live entries of a branch, with statistics."""
    from neve.tree.read import manifests_of, read_entries

    context = table.refresh().context
    manifests = manifests_of(context.io, context.metadata, context.head(branch))
    return read_entries(context.io, manifests, context.specs, detail=DETAIL.names).live()


def files_of(table: Table, branch: str = "main") -> EntryTable:
    return entries_of(table, branch).of_content(Content.DATA)


def deletes_of(table: Table, branch: str = "main") -> EntryTable:
    return entries_of(table, branch).of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)


def paths_of(table: Table, branch: str = "main") -> set[str]:
    return set(files_of(table, branch)["file_path"].to_pylist())


def per_partition(table: Table) -> dict[tuple[int, Any], int]:
    """How many data files each partition has, by spec and values."""
    files = files_of(table)
    keys = [files.partition_key(i) for i in range(len(files))]
    return dict(Counter((k.spec_id, k.values) for k in keys))


def head(table: Table, branch: str = "main") -> Any:
    return table.refresh().context.head(branch)


def summary_of(table: Table, branch: str = "main") -> dict[str, Any]:
    said = head(table, branch).summary
    return {"operation": said.operation.value, **said.additional_properties}


def on_disk(table: Table) -> set[str]:
    """The data files and delete files in the folder of a table, those that are away included."""
    root = local(table.context.metadata.location) / "data"
    return {f"file://{folder}/{n}".removesuffix(AWAY) for folder, _, names in os.walk(root) for n in names}


def lineage_of(table: Table) -> dict[int, tuple[int | None, int | None]]:
    """Row id and last updated number of each row by its id."""
    names = ["id", "_row_id", "_last_updated_sequence_number"]
    found = table.scan(columns=names).to_arrow(engine="arrow")
    return {i: (row_id, number) for i, row_id, number in zip(*(found[n].to_pylist() for n in names), strict=True)}


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


@contextmanager
def unchanged(table: Table) -> Iterator[None]:
    """Nothing of the table changes: no snapshot, no row, no data file more or less in storage."""
    table.refresh()
    place, files = table.iceberg.metadata_location, on_disk(table)
    yield
    assert table.iceberg.metadata_location == place
    assert on_disk(table) == files


@contextmanager
def away(*paths: str) -> Iterator[None]:
    """Files that are gone from storage for a while."""
    for path in paths:
        local(path).rename(f"{local(path)}{AWAY}")
    try:
        yield
    finally:
        for path in paths:
            Path(f"{local(path)}{AWAY}").rename(local(path))


# --- deletes as other writers commit them ---


def delete_rows(table: Table, *ids: int, by_partition: bool = False) -> None:
    """Delete rows by position, in the form the version knows; files are named unless deletes go by partition."""
    scan = table.scan(columns=["id", "_file", "_pos"]).to_arrow(engine="arrow").to_pylist()
    places: dict[str, list[int]] = {}
    for row in scan:
        if row["id"] in ids:
            places.setdefault(row["_file"], []).append(row["_pos"])
    assert sum(map(len, places.values())) == len(ids)
    files = files_of(table)
    chosen = files.take([i for i, p in enumerate(files["file_path"].to_pylist()) if p in places])
    _commit(table, RowDelta(added_deletes=_position_deletes(table, chosen, places, by_partition)))


def _position_deletes(
    table: Table, files: EntryTable, places: dict[str, list[int]], by_partition: bool = False
) -> EntryTable:
    paths = files["file_path"].to_pylist()
    context = table.context
    base = f"{context.metadata.location}/data/{uuid4()}"
    columns: dict[str, Any] = {c: files[c] for c in ("spec_id", *(u.column for u in files.specs.union))}
    columns |= {"manifest": -1, "status": int(Status.ADDED), "content": int(Content.POSITION_DELETES)}
    columns |= {"record_count": [len(places[p]) for p in paths]}
    if context.metadata.format_version > 2:
        data, found = pack_vectors([(p, PositionSet.of(places[p])) for p in paths])
        with context.io.new_output(f"{base}.puffin").create() as stream:
            stream.write(data)
        columns |= {name: found[name] for name in ("content_offset", "content_size_in_bytes", "record_count")}
        columns |= {"file_path": f"{base}.puffin", "file_format": "PUFFIN", "file_size_in_bytes": len(data)}
        return EntryTable.from_columns(columns | {"referenced_data_file": paths}, files.specs, len(paths))
    columns |= {"file_path": [f"{base}-{i}.parquet" for i in range(len(paths))], "file_format": "PARQUET"}
    columns |= {} if by_partition else {"referenced_data_file": paths}
    columns["file_size_in_bytes"] = [
        _write_positions(context.io, at, p, places[p]) for at, p in zip(columns["file_path"], paths, strict=True)
    ]
    return EntryTable.from_columns(columns, files.specs, len(paths))


def _write_positions(io: Any, place: str, path: str, positions: list[int]) -> int:
    names = {"file_path": (pa.string(), "2147483546"), "pos": (pa.int64(), "2147483545")}
    schema = pa.schema([pa.field(n, t, False, {"PARQUET:field_id": i}) for n, (t, i) in names.items()])
    return _write(io, place, pa.table([[path] * len(positions), sorted(positions)], schema=schema))


def _write(io: Any, place: str, rows: pa.Table) -> int:
    with io.new_output(place).create() as stream:
        pq.write_table(rows, stream)
    return len(io.new_input(place))


def delete_equal(
    table: Table, *values: Any, column: str = "id", spec_id: int | None = None, partition: Sequence[Any] = ()
) -> None:
    """Delete rows by equality of a column, under a spec and partition; an unpartitioned spec means all of the table."""
    context = table.refresh().context
    spec = context.metadata.default_spec_id if spec_id is None else spec_id
    kind = arrow_file_schema(table.schema).field(column)
    place, keys = f"{context.metadata.location}/data/{uuid4()}.parquet", pa.array(values, kind.type)
    columns = {
        "manifest": -1,
        "status": int(Status.ADDED),
        "content": int(Content.EQUALITY_DELETES),
        "file_path": place,
        "file_format": "PARQUET",
        "spec_id": spec,
        "record_count": len(values),
        "file_size_in_bytes": _write(context.io, place, pa.table([keys], schema=pa.schema([kind]))),
        "equality_ids": [[table.schema.find_field(column).field_id]],
        **{name: [value] for name, value in zip(context.specs.columns(spec), partition, strict=True)},
    }
    with another_engine_writes():
        _commit(table, RowDelta(added_deletes=EntryTable.from_columns(columns, context.specs, 1)))


def _commit(table: Table, action: Any) -> None:
    context = table.context
    require_committed(commit(context.catalog, context.iceberg, action))


def _quick(catalog: Any) -> Any:
    """The catalog with connections that are kept and do not wait for the disk: one process, and no power cut."""
    catalog.engine = create_engine(catalog.engine.url, connect_args={"timeout": 60})
    listen(catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return catalog
