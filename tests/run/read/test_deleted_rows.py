"""Deleted rows stay away, whatever says that they are deleted; and the columns that tell where a row is."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IcebergType, IntegerType, LongType, NestedField, StringType, StructType

from neve.errors import CorruptFile, LimitExceeded
from neve.io import puffin
from neve.io.deletion_vectors import PositionSet
from neve.run.read.equality_deletes import EqualityIndex, KeySet
from neve.run.read.file_reader import FileTask, ReadTarget, read_tasks
from neve.run.read.metadata_columns import (
    DATA_SEQUENCE_NUMBER,
    FILE,
    LAST_UPDATED,
    PARTITION_ID,
    POSITION,
    ROW_ID,
    SPEC_ID,
)
from neve.run.read.position_deletes import read_position_deletes as positions_in
from neve.run.read.tasks import DeleteFile, EqualityDeletes
from neve.run.read.types import arrow_schema

ID = NestedField(1, "id", LongType(), required=False)


def numbered(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, True, {"PARQUET:field_id": str(field_id), "iceberg.id": str(field_id)})


def column(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


class Files:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, columns: Sequence[tuple[pa.Field, Any]], ext: str = "parquet", **options: Any) -> Path:
        path = self.root / f"{uuid.uuid4()}.{ext}"
        table = pa.table([pa.array(v, f.type) for f, v in columns], schema=pa.schema([f for f, _ in columns]))
        pq.write_table(table, path, **options) if ext == "parquet" else orc.write_table(table, path)
        return path

    def data(self, ids: Iterable[Any], **options: Any) -> FileTask:
        return FileTask(str(self.write([(numbered("id", pa.int64(), 1), list(ids))], **options)))

    def position_deletes(self, rows: Sequence[tuple[str, int]], ext: str = "parquet", ids: bool = True) -> DeleteFile:
        fields = [numbered("file_path", pa.string(), 2147483546), numbered("pos", pa.int64(), 2147483545)]
        fields = fields if ids else [f.remove_metadata() for f in fields]
        path = self.write([(fields[0], [p for p, _ in rows]), (fields[1], [i for _, i in rows])], ext)
        return DeleteFile(str(path), ext.upper(), path.stat().st_size, len(rows))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def read(io: FileIO, tasks: FileTask | Sequence[FileTask], *fields: NestedField, **known: Any) -> list[dict[str, Any]]:
    target = ReadTarget(Schema(*fields), **known)
    some = [tasks] if isinstance(tasks, FileTask) else tasks
    return pa.Table.from_batches(read_tasks(io, some, target), arrow_schema(target.schema)).to_pylist()


def ids(io: FileIO, *tasks: FileTask) -> list[int]:
    return [row["id"] for row in read(io, tasks, ID)]


@pytest.mark.parametrize("ext", ["parquet", "orc"])
@pytest.mark.parametrize("with_ids", [True, False], ids=["by id", "by name"])
def test_a_position_delete_file_deletes_from_each_file_it_names(
    io: FileIO, files: Files, ext: str, with_ids: bool
) -> None:
    one, two, three = (files.data(range(s, s + 10)) for s in (0, 100, 200))
    delete = files.position_deletes([(one.path, 0), (one.path, 9), (two.path, 5), ("elsewhere", 1)], ext, with_ids)
    tasks = [replace(task, deletes=(delete,)) for task in (one, two, three)]
    assert ids(io, *tasks) == [*range(1, 9), *range(100, 105), *range(106, 110), *range(200, 210)]


def test_paths_are_compared_by_what_they_mean(io: FileIO, files: Files) -> None:
    data = files.data(range(4))
    delete = files.position_deletes([(f"file://{data.path}", 0), (f"file:{data.path}", 1), (data.path, 2)])
    assert ids(io, replace(data, deletes=(delete,))) == [3]
    spellings = [data.path, f"file:{data.path}"]
    found = positions_in(io, delete, spellings)
    assert [list(found[path].positions()) for path in spellings] == [[0, 1, 2]] * 2


def test_a_file_no_delete_names_is_not_in_the_answer(io: FileIO, files: Files) -> None:
    delete = files.position_deletes([("a", 1), ("b", 2)])
    assert positions_in(io, delete, ["c"]) == {}
    assert set(positions_in(io, delete, ["a", "c"])) == {"a"}


@pytest.mark.parametrize("ext", ["parquet", "orc"])
def test_rows_of_a_delete_file_without_path_or_position_delete_nothing(io: FileIO, files: Files, ext: str) -> None:
    """Impala wrote such files. The number of rows in the manifest may be wrong, too."""
    data = files.data([1, 2, 3])
    delete = files.position_deletes([(None, 0), (data.path, 1), (data.path, None), (None, None)], ext)
    for count in (4, 1, 1000, None):
        assert ids(io, replace(data, deletes=(replace(delete, record_count=count),))) == [1, 3]


def test_the_rows_of_an_equality_delete_file_count_not_their_number(io: FileIO, files: Files) -> None:
    data, path = files.data([1, 2, 3]), files.write([(numbered("id", pa.int64(), 1), [2])])
    for count in (1, 7, None):
        delete = EqualityDeletes((DeleteFile(str(path), "PARQUET", path.stat().st_size, count),), (1,))
        assert ids(io, replace(data, equality_deletes=(delete,))) == [1, 3]


def test_positions_beyond_the_end_of_a_file_delete_nothing(io: FileIO, files: Files) -> None:
    task = replace(files.data([1, 2]), positions=PositionSet.of([5, 6]))
    assert ids(io, task) == [1, 2]
    assert ids(io, replace(task, positions=PositionSet.of([0, 1, 6]))) == []


def test_a_negative_position_is_corruption(io: FileIO, files: Files) -> None:
    delete = files.position_deletes([("a", -1)])
    with pytest.raises(CorruptFile, match="negative"):
        positions_in(io, delete, ["a"])


def test_vectors_and_position_deletes_and_known_positions_add_up(io: FileIO, files: Files, tmp_path: Path) -> None:
    data = files.data(range(100_000), row_group_size=30_000)
    path = tmp_path / "v.puffin"
    content, rows = puffin.pack_vectors([(data.path, PositionSet.of(range(10, 99_990)))])
    path.write_bytes(content)
    row = rows.to_pylist()[0]
    vector = DeleteFile(
        str(path), "PUFFIN", None, row["record_count"], row["content_offset"], row["content_size_in_bytes"]
    )
    delete = files.position_deletes([(data.path, 1)])
    task = replace(data, deletes=(vector, delete), positions=PositionSet.of([2, 99_995]))
    assert ids(io, task) == [0, *range(3, 10), *range(99_990, 99_995), *range(99_996, 100_000)]


def test_positions_count_from_the_start_of_the_file_in_every_part_of_it(io: FileIO, files: Files) -> None:
    rows = 50_000
    data = files.data(range(rows), row_group_size=1_000)
    data = replace(data, positions=PositionSet.of(range(0, rows, 7)), first_row_id=1_000_000, sequence_number=3)
    parts = [replace(data, part=(k, 6)) for k in range(6)]
    sizes = [len(ids(io, part)) for part in parts]
    assert all(size > 4_000 for size in sizes)
    found = read(io, parts, ID, POSITION, ROW_ID)
    assert [r["id"] for r in found] == [i for i in range(rows) if i % 7]
    assert all(r["_pos"] == r["id"] and r["_row_id"] == 1_000_000 + r["id"] for r in found)


def test_metadata_columns_tell_where_a_row_is(io: FileIO, files: Files) -> None:
    union = StructType(column(1000, "day", IntegerType()), column(1001, "region", StringType()))
    task = replace(
        files.data([5, 6]), spec_id=3, sequence_number=8, union_tuple=(None, "eu"), positions=PositionSet.of([0])
    )
    partition = NestedField(PARTITION_ID, "_partition", union, required=True)
    (row,) = read(io, task, FILE, POSITION, SPEC_ID, partition, DATA_SEQUENCE_NUMBER, ROW_ID, LAST_UPDATED)
    assert row == {
        "_file": task.path,
        "_pos": 1,
        "_spec_id": 3,
        "_partition": {"day": None, "region": "eu"},
        "_data_sequence_number": 8,
        "_row_id": None,
        "_last_updated_sequence_number": None,
    }


def test_row_lineage_in_the_file_wins_and_its_nulls_are_inherited(io: FileIO, files: Files) -> None:
    path = files.write(
        [
            (numbered("id", pa.int64(), 1), [0, 1, 2]),
            (numbered("_row_id", pa.int64(), 2147483540), [77, None, None]),
            (numbered("_last_updated_sequence_number", pa.int64(), 2147483539), [4, None, 5]),
        ]
    )
    task = FileTask(str(path), first_row_id=100, sequence_number=9)
    found = read(io, task, ROW_ID, LAST_UPDATED)
    assert [tuple(r.values()) for r in found] == [(77, 4), (101, 9), (102, 5)]
    assert [tuple(r.values()) for r in read(io, replace(task, first_row_id=None), ROW_ID, LAST_UPDATED)] == [
        (None, None)
    ] * 3


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_row_lineage_of_a_real_table(tmp_path: Path) -> None:
    from tests.support.foreign_files import FIXTURES, ForeignTable, shared

    name = "impala_iceberg_v3_row_lineage"
    if not FIXTURES.exists():
        pytest.skip(f"no fixtures at {FIXTURES}")
    table = ForeignTable(Path(shared("relocate").Mover(str(FIXTURES / name), str(tmp_path / "t")).run()))
    schema = Schema(*table.metadata.schema().fields, ROW_ID, LAST_UPDATED)
    found = table.to_arrow(schema)
    assert sorted(found["_row_id"].to_pylist()) == sorted(set(found["_row_id"].to_pylist()))
    assert all(n is not None for n in found["_last_updated_sequence_number"].to_pylist())


def keyed(files: Files, rows: Sequence[tuple[Any, ...]], kinds: Sequence[pa.DataType]) -> Path:
    fields = [numbered(f"k{i}", kind, i) for i, kind in enumerate(kinds, 1)]
    return files.write([(f, [row[i] for row in rows]) for i, f in enumerate(fields)], row_group_size=1000)


def equality(path: Path, *keys: int) -> EqualityDeletes:
    return EqualityDeletes((DeleteFile(str(path)),), keys)


def test_equality_deletes_match_promoted_values_and_null_with_null(io: FileIO, files: Files) -> None:
    rows = [(1, "a"), (1, None), (None, "a"), (None, None), (2, "b")]
    data = keyed(files, rows, [pa.int64(), pa.string()])
    deletes = keyed(files, [(1, None), (None, "a"), (3, "b")], [pa.int32(), pa.string()])
    task = FileTask(str(data), equality_deletes=(equality(deletes, 1, 2),))
    fields = [column(1, "k1", LongType()), column(2, "k2", StringType())]
    assert [tuple(r.values()) for r in read(io, task, *fields)] == [(1, "a"), (None, None), (2, "b")]


def test_equality_keys_need_not_be_columns_of_the_scan_or_of_the_current_schema(io: FileIO, files: Files) -> None:
    data = keyed(files, [(1, "a"), (2, "b"), (3, "c")], [pa.int64(), pa.string()])
    gone = files.write([(numbered("k2", pa.string(), 2), ["b"])])
    task = FileTask(str(data), equality_deletes=(equality(gone, 2),))
    current = Schema(column(1, "k1", LongType()), schema_id=1)
    older = Schema(column(1, "k1", LongType()), column(2, "k2", StringType()), schema_id=0)
    assert [r["k1"] for r in read(io, task, *current.fields, schemas=(current, older))] == [1, 3]


def test_floats_as_keys_tell_zero_from_minus_zero_and_find_nan(io: FileIO, files: Files) -> None:
    other_nan = np.frombuffer(np.uint64(0x7FF8000000000001).tobytes(), np.float64)[0]
    data = keyed(files, [(0.0,), (-0.0,), (float("nan"),), (1.0,)], [pa.float64()])
    deletes = keyed(files, [(-0.0,), (other_nan,)], [pa.float64()])
    task = FileTask(str(data), equality_deletes=(equality(deletes, 1),))
    found = [r["k1"] for r in read(io, task, column(1, "k1", DoubleType()))]
    assert [str(v) for v in found] == ["0.0", "1.0"]


def test_a_key_inside_a_struct_is_null_where_the_struct_is(io: FileIO, files: Files) -> None:
    inner = pa.struct([numbered("x", pa.int32(), 2)])
    data = files.write([(numbered("s", inner, 1), [{"x": 1}, {"x": None}, None, {"x": 2}])])
    gone = files.write([(numbered("s", inner, 1), [{"x": 2}, None])])
    task = FileTask(str(data), equality_deletes=(equality(gone, 2),))
    found = read(io, task, column(1, "s", StructType(column(2, "x", IntegerType()))))
    assert found == [{"s": {"x": 1}}]


def test_a_key_the_data_file_lacks_is_its_default_or_partition_value(io: FileIO, files: Files) -> None:
    data = files.data([1, 2])
    gone = files.write([(numbered("r", pa.string(), 2), ["eu"])])
    task = replace(data, equality_deletes=(equality(gone, 2),))
    fields = (ID, NestedField(2, "r", StringType(), required=False, initial_default="eu"))
    assert read(io, task, *fields) == []
    assert len(read(io, replace(task, partition={2: "us"}), *fields)) == 2


def test_a_delete_file_without_its_key_column_is_corruption(io: FileIO, files: Files) -> None:
    task = replace(
        files.data([1]), equality_deletes=(equality(files.write([(numbered("x", pa.int64(), 9), [None])]), 1),)
    )
    with pytest.raises(CorruptFile, match="equality columns"):
        ids(io, task)


def test_equality_deletes_beyond_the_budget_are_refused_with_advice(io: FileIO, files: Files) -> None:
    task = replace(
        files.data([1]), equality_deletes=(equality(files.write([(numbered("id", pa.int64(), 1), range(5000))]), 1),)
    )
    with pytest.raises(LimitExceeded, match="rewrite_data_files"):
        EqualityIndex(io, ReadTarget(Schema(ID)), max_key_bytes=10_000)._key_set(task.equality_deletes[0])


def test_several_equality_groups_and_files_all_apply(io: FileIO, files: Files) -> None:
    data = keyed(files, [(i, str(i)) for i in range(3000)], [pa.int64(), pa.string()])
    by_id = [files.write([(numbered("k1", pa.int64(), 1), list(range(s, 3000, 10)))]) for s in (0, 1)]
    by_text = files.write([(numbered("k2", pa.string(), 2), [str(i) for i in range(2, 3000, 10)])])
    groups = (EqualityDeletes(tuple(DeleteFile(str(p)) for p in by_id), (1,)), equality(by_text, 2))
    fields = [column(1, "k1", LongType()), column(2, "k2", StringType())]
    found = read(io, FileTask(str(data), equality_deletes=groups), *fields)
    assert [r["k1"] for r in found] == [i for i in range(3000) if i % 10 > 2]


def test_a_key_set_agrees_with_a_set_of_tuples() -> None:
    random = np.random.default_rng(7)

    def rows(count: int) -> list[tuple[Any, ...]]:
        columns = [random.integers(0, 6, count).tolist() for _ in range(3)]
        return [(None if a == 0 else a, None if b == 0 else str(b), c > 2) for a, b, c in zip(*columns, strict=True)]

    def arrays(some: list[tuple[Any, ...]]) -> list[pa.Array]:
        kinds = (pa.int64(), pa.string(), pa.bool_())
        return [pa.array([row[i] for row in some], kind) for i, kind in enumerate(kinds)]

    for size in (0, 1, 20, 200):
        keys, probes = rows(size), rows(500)
        assert KeySet.of(arrays(keys)).contains(arrays(probes)).tolist() == [p in set(keys) for p in probes]


class TestKeysOfChangedTypes:
    """Keys as schemas knew them at different times: 1 was dropped, 2 promoted, and never both at once."""

    OLD = Schema(column(1, "a", IntegerType()), column(2, "b", IntegerType()), ID_TEXT := column(3, "t", StringType()))
    WIDE_A = Schema(column(1, "a", LongType()), column(2, "b", IntegerType()), ID_TEXT)
    WITHOUT_A = Schema(column(2, "b", IntegerType()), ID_TEXT)
    WIDE_B = Schema(column(2, "b", LongType()), ID_TEXT)
    SCHEMAS = (WIDE_B, WITHOUT_A, WIDE_A, OLD)

    def data(self, files: Files, a: pa.DataType | None, b: pa.DataType, values: Sequence[int]) -> str:
        columns = [(numbered("b", b, 2), values), (numbered("t", pa.string(), 3), [f"t{v}" for v in values])]
        return str(files.write([*([(numbered("a", a, 1), values)] if a else []), *columns]))

    def deletes(self, files: Files, a: pa.DataType, b: pa.DataType, values: Sequence[int | None]) -> DeleteFile:
        return DeleteFile(str(files.write([(numbered("a", a, 1), values), (numbered("b", b, 2), values)])))

    def left(self, io: FileIO, path: str, keys: tuple[int, ...], *deletes: DeleteFile) -> list[str]:
        task = FileTask(path, equality_deletes=(EqualityDeletes(deletes, keys),))
        return [row["t"] for row in read(io, task, self.ID_TEXT, schemas=self.SCHEMAS)]

    def test_a_key_dropped_after_its_promotion_is_compared_in_the_wider_type(self, io: FileIO, files: Files) -> None:
        """Two delete files hold it in different types."""
        some = [
            DeleteFile(str(files.write([(numbered("a", kind, 1), [value])])))
            for kind, value in ((pa.int32(), 1), (pa.int64(), 1 << 40), (pa.int64(), 2))
        ]
        assert self.left(io, self.data(files, pa.int32(), pa.int32(), [1, 2, 3]), (1,), *some) == ["t3"]
        path = str(
            files.write([(numbered("a", pa.int64(), 1), [1, 1 << 40, 4]), (numbered("t", pa.string(), 3), "xyz")])
        )
        assert self.left(io, path, (1,), *some) == ["z"]

    def test_a_key_promoted_after_another_was_dropped_has_its_newest_type(self, io: FileIO, files: Files) -> None:
        """A file written anew by today's schema is as old as what it replaces, and meets deletes by older schemas."""
        deletes = [
            self.deletes(files, pa.int32(), pa.int32(), [1, None]),
            self.deletes(files, pa.int64(), pa.int32(), [2]),
        ]
        assert self.left(io, self.data(files, pa.int32(), pa.int32(), [1, 2, 3]), (1, 2), *deletes) == ["t3"]
        rewritten = self.data(files, None, pa.int64(), [1, 1 << 40])
        assert self.left(io, rewritten, (1, 2), *deletes) == ["t1", f"t{1 << 40}"]

    def test_keys_that_no_schema_has_together_are_known_one_by_one(self, io: FileIO, files: Files) -> None:
        """The schemas that had both were cleaned up."""
        task = FileTask(
            self.data(files, pa.int32(), pa.int32(), [1, 2]),
            equality_deletes=(EqualityDeletes((self.deletes(files, pa.int32(), pa.int32(), [1]),), (1, 2)),),
        )
        schemas = (self.WIDE_B, Schema(column(1, "a", LongType())))
        assert [row["t"] for row in read(io, task, self.ID_TEXT, schemas=schemas)] == ["t2"]

    def test_keys_inside_a_struct_are_known_one_by_one_too(self, io: FileIO, files: Files) -> None:
        def struct(**kinds: IcebergType) -> NestedField:
            ids = {"x": 11, "y": 12}
            return column(10, "s", StructType(*(column(ids[name], name, kind) for name, kind in kinds.items())))

        kind = pa.struct([numbered("x", pa.int32(), 11), numbered("y", pa.int32(), 12)])
        data = files.write([(numbered("id", pa.int64(), 1), [1, 2]), (numbered("s", kind, 10), [{"x": 1, "y": 1}] * 2)])
        gone = files.write([(numbered("s", kind, 10), [{"x": 1, "y": 1}]), (numbered("id", pa.int64(), 1), [2])])
        task = FileTask(str(data), equality_deletes=(equality(gone, 1, 11, 12),))
        schemas = (Schema(ID, struct(y=LongType())), Schema(ID, struct(x=IntegerType())))
        assert read(io, task, ID, schemas=schemas) == [{"id": 1}]

    def test_two_keys_may_have_borne_one_name(self, io: FileIO, files: Files) -> None:
        """The second was renamed after the first was dropped."""
        task = FileTask(
            self.data(files, pa.int32(), pa.int32(), [1, 2]),
            equality_deletes=(EqualityDeletes((self.deletes(files, pa.int32(), pa.int32(), [1]),), (1, 2)),),
        )
        schemas = (Schema(column(2, "a", IntegerType()), self.ID_TEXT), self.OLD)
        assert [row["t"] for row in read(io, task, self.ID_TEXT, schemas=schemas)] == ["t2"]
