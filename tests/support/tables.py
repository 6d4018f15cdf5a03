"""How tests look at a table, and what other writers do to it.

Rows are read by plain means: Arrow over the live files, and where no deletes are left the Parquet files themselves.
Nothing is refreshed for a look at rows: whether a table knows what became of it is for the test to say. Deletes are
committed as other writers commit them, as real files: positions, vectors, equality deletes of any spec.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.metadata import TableMetadata

from neve import Table
from neve.commit import rules
from neve.commit.actions import RowDelta
from neve.commit.outcome import require_committed
from neve.commit.protocol import commit
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import pack_vectors
from neve.run.write.file_schema import arrow_file_schema
from neve.tree.checks import unsupported_deletes
from neve.tree.entries import DETAIL, Content, EntryTable
from neve.tree.read import manifests_of, read_entries
from tests.support.entry_tables import new_entries
from tests.support.spark_oracle import multiset

AWAY = ".away"

Row = dict[str, Any]


def local(path: str) -> Path:
    """Where a file of a table is on this machine."""
    return Path(path.removeprefix("file://"))


# --- rows ---


def sorted_rows(table: Table, where: Any = None, *, engine: Any = "arrow", **scan: Any) -> list[Row]:
    """The rows of a scan in the order of their ids."""
    return sorted(table.scan(where, **scan).to_arrow(engine=engine).to_pylist(), key=lambda row: row["id"])


def ids_of(table: Table, where: Any = None, *, engine: Any = "arrow", **scan: Any) -> list[int]:
    """The ids of the rows of a scan in order."""
    return sorted(table.scan(where, **scan).to_arrow(engine=engine)["id"].to_pylist())


def rows_of(table: Table, branch: str = "main") -> Counter[str]:
    """The live rows of a table as a multiset of exact values."""
    return multiset(table.scan(ref=branch).to_arrow(engine="arrow"))


def parquet_rows(table: Table) -> Counter[str]:
    """The rows of the live data files, read without any table format; only for tables without deletes."""
    assert not len(deletes_of(table))
    names = tuple(f.name for f in table.schema.fields)
    return multiset(pa.concat_tables([pq.read_table(local(p)).select(names) for p in paths_of(table)]))


def lineage_of(table: Table) -> dict[Any, tuple[int | None, int | None]]:
    """Row id and last updated number of each row by its id."""
    names = ["id", "_row_id", "_last_updated_sequence_number"]
    found = table.scan(columns=names).to_arrow(engine="arrow")
    return {i: (row_id, number) for i, row_id, number in zip(*(found[n].to_pylist() for n in names), strict=True)}


def written_rows(written: pa.Table) -> list[Row]:
    """The rows of the files a write speaks of, file by file."""
    return [row for path in written["file_path"].to_pylist() for row in pq.read_table(path).to_pylist()]


def append(table: Table, rows: Iterable[Row]) -> None:
    table.append(pa.Table.from_pylist(list(rows), arrow_file_schema(table.refresh().schema)))


# --- the tree ---


def head(table: Table, branch: str = "main") -> Any:
    return table.refresh().context.head(branch)


def summary_of(table: Table, branch: str = "main") -> dict[str, Any]:
    said = head(table, branch).summary
    return {"operation": said.operation.value, **said.additional_properties}


def entries_of(table: Table, snapshot: Any) -> EntryTable:
    """The entries of a snapshot, tombstones included, with statistics."""
    context = table.context
    manifests = manifests_of(context.io, context.metadata, snapshot)
    return read_entries(context.io, manifests, context.specs, detail=DETAIL.names)


def live_entries(table: Table, branch: str = "main") -> EntryTable:
    return entries_of(table, head(table, branch)).live()


def files_of(table: Table, branch: str = "main") -> EntryTable:
    """The live data files of a branch."""
    return live_entries(table, branch).of_content(Content.DATA)


def deletes_of(table: Table, branch: str = "main") -> EntryTable:
    """The live delete files and vectors of a branch."""
    return live_entries(table, branch).of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)


def paths_of(table: Table, branch: str = "main") -> set[str]:
    return set(files_of(table, branch)["file_path"].to_pylist())


def per_partition(table: Table) -> dict[tuple[int, Any], int]:
    """How many data files each partition has, by spec and values."""
    files = files_of(table)
    keys = [files.partition_key(i) for i in range(len(files))]
    return dict(Counter((k.spec_id, k.values) for k in keys))


# --- storage ---


def on_disk(table: Table, folder: str = "data") -> set[str]:
    """The files in a folder of a table as its metadata names them, those that are away included.

    In `data` are data files and delete files; the folder `""` holds everything.
    """
    root = local(table.context.metadata.location) / folder
    return {f"file://{found}/{n}".removesuffix(AWAY) for found, _, names in os.walk(root) for n in names}


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


def out_of_reach(table: Table, where: str | None) -> AbstractContextManager[None]:
    """The data files a condition cannot rule out are away: who needs none does not notice."""
    return away(*table.scan(where).plan().files["file_path"].to_pylist())


# --- files as other writers commit them ---


def commit_to(table: Table, action: Any) -> None:
    """Commit to a table as it is known here; nobody interrupts it."""
    require_committed(commit(table.context.catalog, table.context.iceberg, action))


def stored(table: Table, rows: pa.Table, content: Content, **stated: Any) -> EntryTable:
    """Write a Parquet file of rows; its entry is under the default spec of the table unless stated."""
    context = table.context
    path = f"{context.metadata.location}/data/{uuid4()}.parquet"
    file = {"content": content, "file_path": path, "record_count": rows.num_rows, **stated}
    return new_entries(context.specs, [file | {"file_size_in_bytes": _write(context.io, path, rows)}])


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
    commit_to(table, RowDelta(added_deletes=_position_deletes(table, chosen, places, by_partition)))


def _position_deletes(
    table: Table, files: EntryTable, places: dict[str, list[int]], by_partition: bool = False
) -> EntryTable:
    io, base = table.context.io, f"{table.context.metadata.location}/data/{uuid4()}"
    columns = ["spec_id", *(u.column for u in files.specs.union)]
    deletes = [
        {name: file[name] for name in columns}
        | {"content": Content.POSITION_DELETES, "record_count": len(places[file["file_path"]])}
        | ({} if by_partition else {"referenced_data_file": file["file_path"]})
        for file in files.columns.to_pylist()
    ]
    paths = files["file_path"].to_pylist()
    if table.context.metadata.format_version > 2:
        data, found = pack_vectors([(p, PositionSet.of(places[p])) for p in paths])
        with io.new_output(f"{base}.puffin").create() as stream:
            stream.write(data)
        where = found.select(["content_offset", "content_size_in_bytes", "record_count"]).to_pylist()
        puffin = {"file_path": f"{base}.puffin", "file_format": "PUFFIN", "file_size_in_bytes": len(data)}
        deletes = [a | b | puffin | {"referenced_data_file": p} for a, b, p in zip(deletes, where, paths, strict=True)]
    else:
        for number, (delete, path) in enumerate(zip(deletes, paths, strict=True)):
            at = f"{base}-{number}.parquet"
            size = _write(io, at, position_rows(path, places[path]))
            delete |= {"file_path": at, "file_size_in_bytes": size}
    return new_entries(files.specs, deletes)


def position_rows(path: str, positions: Iterable[int]) -> pa.Table:
    """The content of a position delete file of one data file."""
    names = {"file_path": (pa.string(), "2147483546"), "pos": (pa.int64(), "2147483545")}
    schema = pa.schema([pa.field(n, t, False, {"PARQUET:field_id": i}) for n, (t, i) in names.items()])
    return pa.table([[path] * len(places := sorted(positions)), places], schema=schema)


def _write(io: Any, place: str, rows: pa.Table) -> int:
    with io.new_output(place).create() as stream:
        pq.write_table(rows, stream)
    return len(io.new_input(place))


def delete_equal(
    table: Table, *values: Any, column: str = "id", spec_id: int | None = None, partition: Sequence[Any] = ()
) -> None:
    """Delete rows by equality of a column, under a spec and partition; an unpartitioned spec means all of the table."""
    spec = table.refresh().context.metadata.default_spec_id if spec_id is None else spec_id
    kind = arrow_file_schema(table.schema).field(column)
    rows = pa.table([pa.array(values, kind.type)], schema=pa.schema([kind]))
    keys = [table.schema.find_field(column).field_id]
    file = stored(table, rows, Content.EQUALITY_DELETES, spec_id=spec, partition=partition, equality_ids=keys)
    with another_engine_writes():
        commit_to(table, RowDelta(added_deletes=file))


@contextmanager
def another_engine_writes() -> Iterator[None]:
    """Commits stand in for those of an engine that writes equality deletes to tables of every version but the first."""

    def unfit(metadata: TableMetadata, deletes: EntryTable) -> tuple[Any, str]:
        wrong, message = unsupported_deletes(metadata, deletes)
        by_value = deletes.numpy("content") == Content.EQUALITY_DELETES
        return wrong & ~(by_value & (metadata.format_version > 1)), message

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "unsupported_deletes", unfit)
        yield
