"""Tables of odd values with a past, and the same rows as plain Parquet for Spark.

The values of a file come from a few of the odd ones per column, so that statistics rule some files out and prove that
others match as a whole. Columns were promoted, renamed, dropped and added while the files were written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as ice
from pyiceberg.schema import Schema

import neve
from neve.run.read.scan import read_plan
from neve.run.read.types import ArrowFlavor
from neve.run.write.file_schema import arrow_file_schema
from neve.table import Table
from neve.tree.entries import EntryTable
from tests.support.tables import delete_equal, delete_rows, files_of

EPOCH = datetime(1970, 1, 1)
ROWS_PER_FILE = 45
VALUES_PER_FILE = (1, 2, 4, 9)  # of a column

_INTS = (0, 1, -1, 3, 5, 127, 128, 300, 2**24 + 1, 2**31 - 1, -(2**31))
_LONGS = (*_INTS, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -0.0, 0.1, 0.5, -1.5, 3.0, 16777216.0, math.nan, math.inf, -math.inf, 3.4028234663852886e38, 1e-45)
_DOUBLES = (*_FLOATS, 2.0**53, 1.7976931348623157e308, 5e-324, 0.30000000000000004, 1e300)
_TEXTS = (
    "", "a", "ab", "abc", "A", "b", "b ", " b", "it's", 'say "x"', "100%", "a_b", "a\\b", "é", "e\u0301", "日本",
    "😀", "😀x", "\uffee", "a\nb", "\t", "5", "-1", "1.5", "NaN", "true", "2024-03-10", "null", "z" * 30,
)  # fmt: skip
_DAYS = (
    date(1, 1, 1), date(1000, 2, 28), date(1582, 10, 4), date(1582, 10, 15), date(1900, 1, 1), date(1969, 12, 31),
    date(1970, 1, 1), date(2024, 2, 29), date(2024, 3, 9), date(2024, 3, 10), date(2024, 3, 31), date(9999, 12, 31),
)  # fmt: skip
_CLOCKS = (
    datetime(1, 1, 1), datetime(1, 1, 2, 12), datetime(1582, 10, 4, 23, 59, 59, 999999), datetime(1582, 10, 15),
    datetime(1883, 11, 18, 12, 3, 58), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 20, 0, 0, 1),
    EPOCH, datetime(1970, 1, 1, 0, 0, 0, 1), datetime(2024, 3, 10), datetime(2024, 3, 10, 1, 59, 59, 500000),
    datetime(2024, 3, 10, 2, 30), datetime(2024, 3, 10, 3, 30), datetime(2024, 3, 10, 7, 30), datetime(2024, 3, 31, 2),
    datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 1, 30), datetime(2024, 10, 27, 2, 30),
    datetime(2024, 11, 3, 5, 30), datetime(2024, 11, 3, 6, 30), datetime(2038, 1, 19, 3, 14, 8),
    datetime(9999, 12, 30, 12), datetime(9999, 12, 31, 23, 59, 59, 999999),
)  # fmt: skip
_UUIDS = tuple(
    UUID(u).bytes
    for u in (
        "00000000-0000-0000-0000-000000000000", "12345678-1234-5678-1234-567812345678",
        "7fffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    )
)  # fmt: skip


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970 of a local time, exactly."""
    return (moment.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


# In the range that 64 bits of nanoseconds have: 1677 to 2262; whole microseconds, as plain Spark has nothing finer.
_NANOS = tuple(micros_of(c) * 1000 for c in _CLOCKS if 1700 < c.year < 2200)


def _decimals(precision: int, scale: int) -> tuple[Decimal, ...]:
    largest, least = (Decimal((sign, (9,) * precision, -scale)) for sign in (0, 1))
    some = ("0", "1", "1.5", "-1.5", "0.01", "3", "99", "-100", "1.51", "12345.67")
    fit = {Decimal(t) for t in some if -Decimal(t).as_tuple().exponent <= scale and abs(Decimal(t)) <= largest}
    return (*sorted(fit), largest, least)


@dataclass(frozen=True)
class TestedColumn:
    """A column: the name in SQL, its type, what kind of constants it is compared with, and values it may hold."""

    __test__ = False

    name: str
    kind: ice.IcebergType
    values: tuple[Any, ...]
    sql: str = ""

    @property
    def text(self) -> str:
        return self.sql or self.name

    @property
    def type_name(self) -> str:
        return str(self.kind).partition("(")[0].partition("[")[0]


def _all_columns() -> tuple[TestedColumn, ...]:
    aware = tuple(c.replace(tzinfo=UTC) for c in _CLOCKS)
    return (
        TestedColumn("i", ice.IntegerType(), _INTS),
        TestedColumn("l", ice.LongType(), _LONGS),
        TestedColumn("f", ice.FloatType(), tuple(float(np.float32(v)) for v in _FLOATS)),
        TestedColumn("d", ice.DoubleType(), _DOUBLES),
        TestedColumn("s", ice.StringType(), _TEXTS),
        TestedColumn("day", ice.DateType(), _DAYS),
        TestedColumn("clock", ice.TimestampType(), _CLOCKS),
        TestedColumn("moment", ice.TimestamptzType(), aware),
        TestedColumn("m9", ice.DecimalType(9, 2), _decimals(9, 2)),
        TestedColumn("m18", ice.DecimalType(18, 0), _decimals(18, 0)),
        TestedColumn("m38", ice.DecimalType(38, 10), _decimals(38, 10)),
        TestedColumn("ok", ice.BooleanType(), (True, False)),
        TestedColumn(
            "raw", ice.BinaryType(), (b"", b"\x00", b"\x01\x02", b"ab", b"abc", b"\x7f", b"\x80", b"\xff\xff")
        ),
        TestedColumn("fx", ice.FixedType(2), (b"\x00\x00", b"ab", b"\x7f\xff", b"\xff\xff")),
        TestedColumn("u", ice.UUIDType(), _UUIDS),
        TestedColumn("tm", ice.TimeType(), (time(0), time(12, 30), time(23, 59, 59, 999999))),
        TestedColumn("promoted", ice.LongType(), _INTS),
        TestedColumn("widened", ice.DoubleType(), tuple(float(np.float32(v)) for v in _FLOATS)),
        TestedColumn("grown", ice.DecimalType(12, 2), _decimals(5, 2)),
        TestedColumn("re named", ice.StringType(), _TEXTS[:9], "`re named`"),
        TestedColumn("again", ice.StringType(), _TEXTS[:6]),
        TestedColumn("st.n", ice.LongType(), _LONGS),
        TestedColumn("st.t", ice.StringType(), _TEXTS),
        TestedColumn("st.deep.x", ice.DoubleType(), _DOUBLES),
        TestedColumn("cn", ice.TimestampNanoType(), _NANOS),
        TestedColumn("mn", ice.TimestamptzNanoType(), _NANOS),
        TestedColumn("ad", ice.IntegerType(), (7, 8, 0)),
        TestedColumn("ax", ice.StringType(), ("x", "", "xy")),
    )


COLUMNS = _all_columns()
_EVERYWHERE = ("ok", "s", "clock", "st.n", "st.t", "st.deep.x")
_OF_VERSION_3 = ("cn", "mn", "ad", "ax")
VERSIONS = (3, 2, 3)  # of the tables; together they have all columns


def columns_of(number: int) -> tuple[TestedColumn, ...]:
    """The columns that one of the tables ends with; few, because a statement looks at the statistics of all."""
    others = [c for c in COLUMNS if c.name not in (*_EVERYWHERE, *_OF_VERSION_3)][number :: len(VERSIONS)]
    new = [c for c in COLUMNS if c.name in _OF_VERSION_3][number // 2 :: 2] if VERSIONS[number] > 2 else []
    return (*(c for c in COLUMNS if c.name in _EVERYWHERE), *others, *new)


_OLD = {  # name and type of columns when the table was new
    "promoted": ("promoted", ice.IntegerType()),
    "widened": ("widened", ice.FloatType()),
    "grown": ("grown", ice.DecimalType(5, 2)),
    "re named": ("was", ice.StringType()),
    "again": ("again", ice.IntegerType()),
}
_DEFAULTS: Mapping[str, Any] = {"ad": 7, "ax": "x"}


def _first_schema(columns: tuple[TestedColumn, ...]) -> Schema:
    plain = [c for c in columns if "." not in c.name and c.name not in _DEFAULTS]
    named = [_OLD.get(c.name, (c.name, c.kind)) for c in plain]
    fields = [ice.NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(named, start=2)]
    deep = ice.StructType(ice.NestedField(104, "x", ice.DoubleType(), required=False))
    struct = ice.StructType(
        ice.NestedField(101, "n", ice.LongType(), required=True),
        ice.NestedField(102, "t", ice.StringType(), required=False),
        ice.NestedField(103, "deep", deep, required=False),
    )
    return Schema(
        ice.NestedField(1, "id", ice.LongType(), required=True),
        *fields,
        ice.NestedField(100, "st", struct, required=False),
    )


@dataclass
class JudgedTable:
    """A table, the ids of its live rows by file and position, and where Spark finds the same rows."""

    table: Table
    columns: tuple[TestedColumn, ...]
    rows: dict[int, dict[str, Any]]
    parquet: Path
    ids: dict[tuple[str, int], int] = field(default_factory=dict)
    files: EntryTable = field(init=False)
    batches: dict[str, pa.RecordBatch] = field(default_factory=dict)  # the rows of each file, as a statement reads them

    @classmethod
    def create(cls, lake: neve.Lake, number: int, seed: str, parquet: Path) -> JudgedTable:
        """Write some files, change the columns, write some more under other specs, delete some rows."""
        chance, columns = Random(seed), columns_of(number)
        rows: dict[int, dict[str, Any]] = {}
        table = lake.create_table(("db", f"t_{parquet.stem}"), _first_schema(columns), format_version=VERSIONS[number])
        made = cls(table, columns, rows, parquet)
        for _ in range(2):
            made._append(chance, is_old=True)
            if len(rows) == ROWS_PER_FILE:
                made._delete(chance, sorted(rows), by_value=True)
        last = max(rows)
        made._evolve()
        made._append(chance)
        table.evolve_partitions(add=["ok", "truncate(1, s)"])
        made._append(chance)
        table.evolve_partitions(drop=["truncate(1, s)"], add=["months(clock)"])
        made._append(chance)
        made._delete(chance, [i for i in sorted(rows) if i > last])
        table.refresh()
        found = table.scan(columns=["id", "_file", "_pos"]).to_arrow(engine="arrow").to_pylist()
        made.ids = {(row["_file"], row["_pos"]): row["id"] for row in found}
        assert sorted(made.ids.values()) == sorted(rows)
        made._write_parquet()
        made._read_files()
        return made

    def _append(self, chance: Random, *, is_old: bool = False) -> None:
        schema = self.table.refresh().schema
        partitioned = len(self.table.context.metadata.spec().fields) > 0
        pools = {c.name: _some(c.values, chance) for c in self.columns}
        if partitioned:  # one partition
            pools |= {name: pools[name][:1] for name in ("ok", "s", "clock")}
        new = []
        for _ in range(ROWS_PER_FILE):
            row = {name: chance.choice(pool) for name, pool in pools.items()}
            row["st.n"] = row["st.n"] if row["st.n"] is not None else 0
            row["no struct"], row["no deep"] = chance.random() < 0.2, chance.random() < 0.2
            number = max(self.rows, default=0) + 1
            self.rows[number] = row | {"id": number}
            new.append(self.rows[number])
        if is_old:
            for row in new:
                row |= {name: value for name, value in _DEFAULTS.items() if name in row}
                row["again"] = None
        names = {old: now for now, (old, _) in _OLD.items()} if is_old else {}
        target = arrow_file_schema(schema)
        arrays = [
            pa.array([5] * len(new), f.type)  # of a column that is dropped later
            if is_old and f.name == "again"
            else _array([_value(r, names.get(f.name, f.name)) for r in new], f.type)
            for f in target
        ]
        self.table.append(pa.Table.from_arrays(arrays, schema=target))

    def _evolve(self) -> None:
        names = {c.name for c in self.columns}
        with self.table.evolve_schema() as change:
            for now, (old, kind) in _OLD.items():
                column = next((c for c in self.columns if c.name == now), None)
                if column is not None and old != now:
                    change.rename_column(old, now)
                elif column is not None and now == "again":
                    change.delete_column(now)
                elif column is not None and column.kind != kind:
                    change.update_column(now, column.kind)
        with self.table.evolve_schema() as change:
            if "again" in names:
                change.add_column("again", ice.StringType())
            for name, value in _DEFAULTS.items():
                if name in names:
                    change.add_column(name, self.kind_of(name), default_value=value)

    def kind_of(self, name: str) -> ice.IcebergType:
        return next(c.kind for c in self.columns if c.name == name)

    def _delete(self, chance: Random, ids: list[int], *, by_value: bool = False) -> None:
        gone = chance.sample(ids, 9)
        delete_rows(self.table.refresh(), *gone[:6])
        if by_value:
            self.table.refresh()
            delete_equal(self.table, *gone[6:], spec_id=0)
        for number in gone if by_value else gone[:6]:
            del self.rows[number]

    def _read_files(self) -> None:
        self.files = files_of(self.table)
        plan = self.table.scan().plan()
        for n, path in enumerate(plan.files["file_path"].to_pylist()):
            chosen = plan.only(np.arange(len(plan.files)) == n)
            batches = list(read_plan(chosen, self.table.context.facts, None, ArrowFlavor.SPARK))
            rows = pa.Table.from_batches(batches).combine_chunks()
            for at, column in enumerate(rows.schema):  # rows are compared in nanoseconds
                if column.name in ("cn", "mn"):
                    rows = rows.set_column(at, column.name, rows[at].cast(pa.timestamp("ns", column.type.tz)))
            self.batches[path] = rows.to_batches()[0]

    def _write_parquet(self) -> None:
        """The live rows as Spark has them, under the present names; times of nanoseconds are cut to microseconds."""
        struct = pa.struct(
            [("n", pa.int64()), ("t", pa.string()), ("deep", pa.struct([("x", pa.float64())]))]
        )  # fmt: skip
        kinds = {"id": pa.int64(), **{c.name: _plain_type(c.kind) for c in self.columns if "." not in c.name}}
        kinds["st"] = struct
        rows = list(self.rows.values())
        arrays = []
        for name, kind in kinds.items():
            values = [_value(row, name) for row in rows]
            if name in ("cn", "mn"):
                values = [None if v is None else v // 1000 for v in values]
            elif name == "tm":  # Spark has no such type unless it is switched on; only its nulls are asked for
                values = [None if v is None else v.hour for v in values]
            elif name == "u":
                values = [None if v is None else str(UUID(bytes=v)) for v in values]
            arrays.append(_array(values, kind))
        pq.write_table(pa.table(arrays, names=list(kinds)), self.parquet)


def _some(values: tuple[Any, ...], chance: Random) -> list[Any]:
    few = chance.sample(values, min(len(values), chance.choice(VALUES_PER_FILE)))
    return [*few, *chance.choice(([], [None], [None, *few]))] if chance.random() < 0.95 else [None]


def _value(row: dict[str, Any], name: str) -> Any:
    if name != "st":
        return row[name]
    deep = None if row["no deep"] else {"x": row["st.deep.x"]}
    return None if row["no struct"] else {"n": row["st.n"], "t": row["st.t"], "deep": deep}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Times as whole numbers: Python has no nanoseconds."""
    if isinstance(kind, pa.TimestampType) and any(isinstance(v, int) for v in values):
        return pa.array(values, pa.int64()).cast(kind)
    if isinstance(kind, pa.ExtensionType):
        return kind.wrap_array(pa.array(values, kind.storage_type))
    return pa.array(values, kind)


_PLAIN_TYPES = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "date": pa.date32(), "time": pa.int64(), "timestamp": pa.timestamp("us"), "string": pa.string(),
    "timestamptz": pa.timestamp("us", "UTC"), "timestamp_ns": pa.timestamp("us"), "binary": pa.binary(),
    "timestamptz_ns": pa.timestamp("us", "UTC"), "uuid": pa.string(),
}  # fmt: skip


def _plain_type(kind: ice.IcebergType) -> pa.DataType:
    if isinstance(kind, ice.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary() if isinstance(kind, ice.FixedType) else _PLAIN_TYPES[str(kind)]
