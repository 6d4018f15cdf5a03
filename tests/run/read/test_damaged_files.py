"""Files that are not what the metadata says: refused by name, never read as something else."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.errors import CorruptFile, MissingFile, NeveError
from neve.run.read.file_reader import FileTask, ReadTarget, read_batches
from tests.support.parquet_footers import CONTRADICTIONS, contradicting

TARGET = ReadTarget(Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", StringType())))
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": ["null", "long"], "field-id": 1},
        {"name": "s", "type": ["null", "string"], "field-id": 2},
    ],
}


def written(folder: Path, kind: str, rows: int = 5000) -> Path:
    path = folder / f"f.{kind}"
    fields = [
        pa.field(n, t, True, {"PARQUET:field_id": str(i), "iceberg.id": str(i)})
        for i, (n, t) in enumerate((("id", pa.int64()), ("s", pa.string())), 1)
    ]
    table = pa.table([pa.array(range(rows)), pa.array([f"v{i}" for i in range(rows)])], schema=pa.schema(fields))
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=1000)
    elif kind == "orc":
        orc.write_table(table, path)
    else:
        with path.open("wb") as out:
            fastavro.writer(out, AVRO, table.to_pylist(), codec="deflate", sync_interval=4000)
    return path


def rows_of(io: FileIO, task: FileTask) -> list[dict[str, Any]]:
    return [row for batch in read_batches(io, task, TARGET) for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_size_and_row_count_must_be_those_of_the_metadata(io: FileIO, tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    size = path.stat().st_size
    assert len(rows_of(io, FileTask(str(path), kind.upper(), size, 5000))) == 5000
    with pytest.raises(CorruptFile, match=f"{size + 1} bytes"):
        rows_of(io, FileTask(str(path), kind.upper(), size + 1, 5000))
    with pytest.raises(CorruptFile, match="4999 rows"):
        rows_of(io, FileTask(str(path), kind.upper(), size, 4999))


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_a_file_that_is_gone_is_missing_and_one_of_another_format_is_corrupt(
    io: FileIO, tmp_path: Path, kind: str
) -> None:
    with pytest.raises(MissingFile, match=r"nowhere"):
        rows_of(io, FileTask(str(tmp_path / "nowhere"), kind.upper()))
    for content in (b"", b"PAR1", b"not a data file at all" * 10):
        path = tmp_path / "other"
        path.write_bytes(content)
        with pytest.raises(CorruptFile, match=str(path)):
            rows_of(io, FileTask(str(path), kind.upper()))


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_cut_or_scrambled_file_never_raises_anything_but_our_errors(io: FileIO, tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    whole, chance = path.read_bytes(), random.Random(5)
    for _ in range(120):
        data = bytearray(whole)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        else:
            for _ in range(chance.choice((1, 1, 4, 30))):
                data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        assert fault_of(io, path, kind) is None


def test_footers_that_contradict_themselves_are_read_or_refused_by_name(tmp_path: Path) -> None:
    """In a process of its own: Arrow's way of saying so is to end it."""
    for name, change in CONTRADICTIONS.items():
        (tmp_path / f"{name}.parquet").write_bytes(contradicting(change))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.parquet_footers", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert done.returncode == 0, f"after {list(told)[-1:]}: {done.stderr[-500:]}"
    assert told.keys() == CONTRADICTIONS.keys()
    assert told["nothing"] == "2 rows, 4 rows"
    assert not [line for line in told.values() if "unnamed" in line]
    refused = ("a chunk without metadata", "a chunk too few", "no chunks", "a column with a key of its own")
    assert all("CorruptFile" in told[name] for name in refused), told


def test_a_cut_orc_file_is_refused(io: FileIO, tmp_path: Path) -> None:
    path = written(tmp_path, "orc")
    whole = path.read_bytes()
    for end in range(0, len(whole), 500):
        path.write_bytes(whole[:end])
        with pytest.raises(CorruptFile, match=str(path)):
            rows_of(io, FileTask(str(path), "ORC"))


def test_a_changed_page_is_noticed_by_its_checksum(io: FileIO, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    field = pa.field("id", pa.int64(), True, {"PARQUET:field_id": "1"})
    table = pa.table([pa.array(range(1000))], schema=pa.schema([field]))
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=str(path)):
        rows_of(io, FileTask(str(path)))


def fault_of(io: FileIO, path: Path, kind: str) -> str | None:
    """What is wrong with the way a damaged file was met; finding no damage is fine, other bytes may be meant."""
    try:
        for batch in read_batches(io, FileTask(str(path), kind.upper()), TARGET):
            batch.validate(full=True)
    except NeveError as error:
        return None if str(path) in str(error) else f"the file is not named: {error}"
    return None


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_reads_the_same_in_many_runs_of_blocks(
    io: FileIO, tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.avro"
    rows = [{"id": None if i % 7 == 0 else i, "s": f"v{i}" * (i % 5)} for i in range(20_000)]
    with path.open("wb") as out:
        fastavro.writer(out, AVRO, rows, codec=codec, sync_interval=2_000)
    monkeypatch.setattr("neve.run.read.formats.RUN_BYTES", 10_000)
    batches = list(read_batches(io, FileTask(str(path), "AVRO"), TARGET, add_position=True))
    assert len(batches) > 5
    found = pa.Table.from_batches(batches)
    assert found.select(["id", "s"]).to_pylist() == rows
    assert found["_pos"].to_pylist() == list(range(20_000))


def test_memory_is_bounded_by_the_batch_not_by_the_file(io: FileIO, tmp_path: Path) -> None:
    path = tmp_path / "big.parquet"
    field = pa.field("s", pa.string(), True, {"PARQUET:field_id": "2"})
    letters = np.random.default_rng(1).integers(97, 122, (300, 50_000), np.uint8)
    values = pa.table([pa.array([row.tobytes().decode() for row in letters])], schema=pa.schema([field]))
    with pq.ParquetWriter(path, values.schema, use_dictionary=False, compression="none") as out:
        for _ in range(16):  # 16 row groups of 15 MB each, in few and long values
            out.write_table(values)
    del letters, values
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    held = before.bytes_allocated()
    pa.set_memory_pool(pool)
    try:
        grown = [before.bytes_allocated() - held for _ in read_batches(io, FileTask(str(path)), TARGET)]
    finally:
        pa.set_memory_pool(before)
    assert path.stat().st_size > 220 << 20
    assert 15 << 20 < pool.max_memory() < 80 << 20
    assert max(grown) < 80 << 20


def test_long_values_make_short_batches(io: FileIO, tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    field = pa.field("s", pa.string(), True, {"PARQUET:field_id": "2"})
    values = pa.array([letter * 1_000_000 for letter in "abcdefghij" * 10])
    pq.write_table(pa.table([values], schema=pa.schema([field])), path, use_dictionary=False)
    sizes = [batch.num_rows for batch in read_batches(io, FileTask(str(path)), TARGET)]
    assert sum(sizes) == 100
    assert max(sizes) <= 34
