"""Columns are found by the ids that lead to them, whatever another file with the same names had."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa

from neve.io.parquet_by_field_id import encode_parquet, open_id_table


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


def stored(outer: int, *inner: int) -> bytes:
    """A file with one struct, whose fields hold their own ids."""
    kind = pa.struct([with_id(name, pa.int64(), own) for name, own in zip("ab", inner, strict=True)])
    rows = pa.array([dict(zip("ab", inner, strict=True))], kind)
    return encode_parquet(pa.table([rows], schema=pa.schema([with_id("s", kind, outer)])), {})


def test_files_that_differ_in_ids_alone_are_told_apart():
    for outer, one, other in permutations((7, 8, 9)):
        table = open_id_table(stored(outer, one, other), "t.parquet")
        found = table.read([(outer, one), (outer, other), (one, other)])
        assert {path: values.to_pylist() for path, values in found.items()} == {
            (outer, one): [one],
            (outer, other): [other],
        }
