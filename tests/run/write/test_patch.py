"""Data files patched batch by batch: rows met twice go once, and what files share is read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from neve.errors import CorruptFile, LimitExceeded
from neve.model.partition import Specs
from neve.run.change_tally import CLAUSE_COLUMN, POSITION_COLUMN, Effects
from neve.run.read import equality_deletes as equality
from neve.run.read import position_deletes as position_files
from neve.run.read.equality_deletes import EqualityIndex
from neve.run.read.tasks import DeleteFile, EqualityDeletes, ReadTarget, build_task_table
from neve.run.spark.arrow_exchange import to_ipc
from neve.run.table_facts import TableFacts
from neve.run.write.patch import FILE_TASK_COLUMN, Patch
from neve.tree.entries import DETAIL, Content, EntryTable
from tests.run.conftest import Aim

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
DELETES = Effects((True,), (False,))
PATH_ID, POSITION_ID = 2147483546, 2147483545
CHANGES = pa.schema([(POSITION_COLUMN, pa.int64()), (CLAUSE_COLUMN, pa.int32()), (FILE_TASK_COLUMN, pa.binary())])


class Bench:
    """Files of one column, and the patch that deletes rows of them."""

    def __init__(self, folder: Path, aim: Aim) -> None:
        self.folder, target = folder, aim(SCHEMA)
        self.specs: Specs = target.specs
        facts = TableFacts(self.specs, 2, str(folder), io_properties={"warehouse": str(folder)})
        self.patch = Patch(facts, target, DELETES, ())

    def file(self, name: str, **columns: tuple[int, Sequence[Any]]) -> str:
        """A Parquet file; columns with the ids of their fields."""
        arrays = {n: pa.array(values) for n, (_, values) in columns.items()}
        ids = {n: {"PARQUET:field_id": str(i)} for n, (i, _) in columns.items()}
        schema = pa.schema([pa.field(n, a.type, metadata=ids[n]) for n, a in arrays.items()])
        pq.write_table(pa.table(list(arrays.values()), schema=schema), self.folder / name)
        return str(self.folder / name)

    def data(self, name: str, ids: Sequence[int]) -> str:
        return self.file(name, id=(1, ids))

    def entries(self, paths: Sequence[str], **columns: Any) -> EntryTable:
        known = {
            "status": 1,
            "spec_id": 0,
            "file_format": "PARQUET",
            "file_path": list(paths),
            "record_count": [pq.read_metadata(p).num_rows for p in paths],
            "file_size_in_bytes": [Path(p).stat().st_size for p in paths],
        }
        return EntryTable.from_columns(known | columns, self.specs, len(paths), DETAIL.names)

    def heads(self, data: Sequence[str], shared: EntryTable) -> list[pa.RecordBatch]:
        """The rows that open files, to each of which all deletes apply."""
        pairs = [(file, delete) for file in range(len(data)) for delete in range(len(shared))]
        attached = pa.table(
            {n: pa.array([pair[at] for pair in pairs], pa.int64()) for at, n in enumerate(("file", "delete"))}
        )
        tasks = build_task_table(self.entries(data, content=0), shared, attached)
        tasks = tasks.append_column("vector", pa.nulls(len(tasks), pa.binary()))
        return [_batch([-1], -1, to_ipc(tasks.slice(at, 1))) for at in range(len(data))]

    def ids(self, batches: Sequence[pa.RecordBatch]) -> list[int]:
        return [i for batch in self.patch.patched_rows(batches) for i in batch.column("id").to_pylist()]


def _batch(positions: Sequence[int], clause: int = 0, head: bytes | None = None) -> pa.RecordBatch:
    columns = [list(positions), [clause] * len(positions), [head] * len(positions)]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)], schema=CHANGES
    )


@pytest.fixture
def bench(tmp_path: Path, aim: Aim) -> Bench:
    return Bench(tmp_path, aim)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each delete file is opened."""
    count: Counter[str] = Counter()
    for module in (position_files, equality):
        open_file = module.open_file

        def counted(io: Any, path: str, *rest: Any, open_file: Any = open_file) -> Any:
            count[Path(path).name] += 1
            return open_file(io, path, *rest)

        monkeypatch.setattr(module, "open_file", counted)
    return count


def test_a_row_that_two_batches_of_changes_name_is_deleted_once(bench: Bench):
    [head] = bench.heads([bench.data("a.parquet", range(6))], bench.entries([]))
    assert bench.ids([head, _batch([1, 1, 3]), _batch([3]), _batch([3, 4])]) == [0, 2, 5]
    assert bench.ids([head, _batch(range(6)), _batch([5, 5])]) == []


def test_a_change_of_a_row_that_was_not_read_is_refused(bench: Bench):
    [head] = bench.heads([bench.data("a.parquet", range(6))], bench.entries([]))
    with pytest.raises(CorruptFile, match="changed meanwhile"):
        bench.ids([head, _batch([1]), _batch([6])])


def test_delete_files_that_data_files_share_are_read_once(bench: Bench, opened: Counter[str]):
    data = [bench.data(f"{n}.parquet", range(10 * n, 10 * n + 4)) for n in range(5)]
    positions = bench.file(
        "positions.parquet", file_path=(PATH_ID, [f"file:{p}" for p in data[:4]]), pos=(POSITION_ID, [0, 1, 2, 3])
    )
    keys = bench.file("keys.parquet", id=(1, [3, 12, 43]))
    shared = bench.entries(
        [positions, keys],
        content=[int(Content.POSITION_DELETES), int(Content.EQUALITY_DELETES)],
        equality_ids=[None, [1]],
    )
    want = [1, 2, 10, 13, 20, 21, 23, 30, 31, 32, 40, 41, 42]
    assert bench.ids(bench.heads(data, shared)) == want
    assert opened == {"positions.parquet": 1, "keys.parquet": 1}


def test_keys_that_are_not_in_use_make_room_for_others(bench: Bench, opened: Counter[str]):
    """Each data file of a group may have equality deletes of its own: only those of one file have to fit."""
    files = [DeleteFile(bench.file(f"{n}.parquet", id=(1, [n] * 100))) for n in range(3)]
    index = EqualityIndex(bench.patch.facts.io(), ReadTarget(SCHEMA), max_key_bytes=1000)
    for file in files:
        index._key_columns(file, EqualityDeletes((file,), (1,)))
    assert opened.total() == 3 and [file for file, _ in index.columns_by_file] == files[2:]
    with pytest.raises(LimitExceeded, match="equality deletes"):
        [index._key_columns(file, EqualityDeletes(tuple(files), (1,))) for file in files]
