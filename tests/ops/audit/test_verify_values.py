"""Statistics and partition values of every type, in tables PyIceberg wrote, are held against the footers."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from tests.support.evolved_tables import audit_of, edit_avro, only
from tests.support.tables import local

STAMP = datetime(2024, 3, 5, 17, 30)
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "boolean": (BooleanType(), False, True),
    "int": (IntegerType(), -7, 9),
    "long": (LongType(), -(1 << 40), 1 << 40),
    "float": (FloatType(), -1.5, 2.5),
    "double": (DoubleType(), -1.5, 2.5),
    "date": (DateType(), date(1969, 1, 1), date(2024, 3, 5)),
    "time": (TimeType(), time(1), time(23)),
    "timestamp": (TimestampType(), datetime(1969, 1, 1), STAMP),
    "timestamptz": (TimestamptzType(), datetime(1969, 1, 1, tzinfo=UTC), STAMP.replace(tzinfo=UTC)),
    "string": (StringType(), "a", "é" * 30),
    "binary": (BinaryType(), b"\x00", b"\xff\xff"),
    "fixed": (FixedType(4), b"\x00aaa", b"\xffaaa"),
    "decimal": (DecimalType(38, 2), Decimal("-123456789012345678901234567890.12"), Decimal("0.07")),
    "small_decimal": (DecimalType(9, 2), Decimal("-1.25"), Decimal("7.00")),
}


def pyiceberg_table(folder: Path, schema: Schema, rows: dict[str, list], spec: PartitionSpec | None = None) -> Any:
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema, partition_spec=spec or PartitionSpec())
    table.append(pa.table(rows, schema=table.schema().as_arrow()))
    return table


def edit_only_file(table: Any, change: Any) -> None:
    """Change what the only manifest of a table says about its files."""
    snapshot = table.metadata.snapshots[0]
    (manifest,) = snapshot.manifests(table.io)
    edit_avro(manifest.manifest_path, lambda row: change(row["data_file"]))
    length = local(manifest.manifest_path).stat().st_size
    edit_avro(snapshot.manifest_list, lambda row: row.update(manifest_length=length))


@pytest.fixture(scope="module")
def every_type(tmp_path_factory):
    fields = [NestedField(i + 1, n, kind, required=False) for i, (n, (kind, *_)) in enumerate(VALUES.items())]
    rows = {n: [low, high, None] for n, (_, low, high) in VALUES.items()}
    return pyiceberg_table(tmp_path_factory.mktemp("types"), Schema(*fields), rows)


def test_statistics_of_every_type_agree_with_the_footer(every_type):
    assert not audit_of(every_type).findings


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_a_bound_that_cuts_off_a_value_is_found_for_every_type(every_type, column, end):
    field_id = list(VALUES).index(column) + 1
    kept: list[Any] = []

    def swap(file: dict) -> None:
        kept.append([dict(b) for b in file[f"{end}_bounds"]])
        other = {b["key"]: b["value"] for b in file["upper_bounds" if end == "lower" else "lower_bounds"]}
        for bound in file[f"{end}_bounds"]:
            if bound["key"] == field_id:
                bound["value"] = other[field_id]

    edit_only_file(every_type, swap)
    try:
        finding = only(audit_of(every_type))
    finally:
        edit_only_file(every_type, lambda file: file.update({f"{end}_bounds": kept[0]}))
    assert finding.kind == "column-bounds" and f"Column {field_id} " in finding.message


@pytest.mark.parametrize(
    ("transform", "kind", "value", "wrong"),
    [
        (DayTransform(), TimestampType(), STAMP, 1),
        (HourTransform(), TimestampType(), STAMP, 1),
        (MonthTransform(), TimestampType(), STAMP, 1),
        (YearTransform(), DateType(), date(2024, 1, 1), 1),
        (TruncateTransform(3), StringType(), "abcd", "abd"),
        (TruncateTransform(10), IntegerType(), 17, 20),
        (BucketTransform(8), LongType(), 34, None),
        (IdentityTransform(), DecimalType(9, 2), Decimal("1.25"), None),
    ],
    ids=str,
)
def test_a_tuple_another_transform_result_than_the_rows_give_is_found(
    tmp_path, transform: Transform, kind, value, wrong
):
    schema = Schema(NestedField(1, "v", kind, required=False))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    table = pyiceberg_table(tmp_path, schema, {"v": [value, value]}, spec)
    assert not audit_of(table).findings

    edit_only_file(table, lambda file: file["partition"].update(part=_other(file["partition"]["part"], wrong)))
    edit_avro(table.metadata.snapshots[0].manifest_list, lambda row: row.update(partitions=None))
    assert only(audit_of(table)).kind == "partition-value"


def _other(stored: Any, wrong: Any) -> Any:
    if wrong is None:
        return (stored + 1) % 8 if isinstance(stored, int) else stored + 1
    return date.fromordinal(stored.toordinal() + wrong) if isinstance(stored, date) else wrong
