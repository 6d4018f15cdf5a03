"""Strings that a file stores in dictionaries: their values are converted once each, and their rows stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import FileIO

import neve
from neve.errors import CorruptFile
from neve.run.read import conversions
from neve.run.read.parquet import ParquetData, open_parquet
from neve.table import Table

COUNT = 30_000
FEW = [None if n % 11 == 0 else f"value {n % 7}" for n in range(COUNT)]
MANY = [f"{n:032x}" for n in range(COUNT)]


def rows() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(COUNT), pa.int64()),
            "few": FEW,
            "many": MANY,
            "raw": pa.array([None if text is None else text.encode() for text in FEW], pa.binary()),
            "a.b": FEW,
        }
    )


def types_of(data: ParquetData) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in data.fields}


def test_only_columns_whose_pages_all_refer_to_a_dictionary_are_read_as_dictionaries(tmp_path: Path, io: FileIO):
    path = str(tmp_path / "rows.parquet")
    # The dictionary of `many` grows too large in the middle of the column: its later pages hold the values.
    pq.write_table(rows(), path, dictionary_pagesize_limit=1 << 18)
    data = open_parquet(io, path, None)
    is_dictionary = {name: pa.types.is_dictionary(kind) for name, kind in types_of(data).items()}
    assert is_dictionary == {"id": False, "few": True, "many": False, "raw": True, "a.b": False}
    data.close()


@pytest.fixture
def table(lake: neve.Lake) -> Table:
    ddl = "id bigint, few string, many string, raw binary, `a.b` string"
    made = lake.create_table("db.t", ddl, properties={"write.parquet.page-row-limit": "1000"})
    made.append(rows())
    return made.refresh()


def test_the_rows_stay_the_same(table: Table):
    assert table.to_arrow().sort_by("id").equals(rows().cast(table.to_arrow().schema))


def test_single_pages_are_read_as_dictionaries_too(table: Table, page_reads: list[int]):
    changed = [7, 8, 15_000, 29_999]
    table.update().set("many", "'new'").where(f"id IN ({', '.join(map(str, changed))})").mode("merge-on-read").execute()
    rows_after = {row["id"]: row for row in table.refresh().to_arrow().to_pylist()}
    before = rows().to_pylist()
    assert [rows_after[n] for n in changed] == [{**before[n], "many": "new"} for n in changed]
    assert page_reads[-1] == len(changed)


def test_few_rows_of_every_page_are_read_before_they_are_converted(table: Table, monkeypatch: pytest.MonkeyPatch):
    converted: list[int] = []
    convert = conversions._convert_dictionary

    def spy(array: pa.Array, values: conversions.Converter) -> pa.Array:
        converted.append(len(array))
        return convert(array, values)

    monkeypatch.setattr(conversions, "_convert_dictionary", spy)
    changed = list(range(0, COUNT, 500))
    table.update().set("many", "'new'").where(f"id IN ({', '.join(map(str, changed))})").mode("merge-on-read").execute()
    assert converted and max(converted) == len(changed)
    expected = np.array(MANY, object)
    expected[changed] = "new"
    after = table.refresh().to_arrow().sort_by("id")
    assert after["many"].to_pylist() == expected.tolist()
    assert after["few"].to_pylist() == FEW


def test_a_number_beyond_the_dictionary_is_an_error(tmp_path: Path, lake: neve.Lake):
    """Numbers of three bits can be larger than a dictionary of five entries; Arrow reads them unchecked."""
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"s": [f"v{n % 5}" for n in range(COUNT)]}), path, compression="none")
    content, page = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(0).column(0).data_page_offset
    content[page + 200 : page + 206] = b"\xff" * 6
    path.write_bytes(bytes(content))
    table = lake.create_table("db.t", "s string")
    table.iceberg.add_files([str(path)])
    with pytest.raises(CorruptFile, match=r"bad\.parquet"):
        table.refresh().to_arrow()
