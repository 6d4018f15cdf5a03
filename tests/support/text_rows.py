"""Rows as the cases write them: a column list in DDL words, and tables of text.

    id | region | ts
    1  | eu     | 2026-01-01 10:00
    2  | null   | 2026-01-02 11:30

A cell is read by the type of its column: `null` is no value, text may stand in single quotes, structs, lists and maps
are JSON, binary is hexadecimal. This is the harness's own reading: nothing here asks the package what a row is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.string(),  # as engines on Spark show it
}


@dataclass(frozen=True)
class ColumnDef:
    """A column: its name as written in SQL without quotes, its type in DDL words, whether it must have a value."""

    name: str
    kind: str
    required: bool = False

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.kind)

    @property
    def ddl(self) -> str:
        return f"{quoted(self.name)} {self.kind}{' not null' if self.required else ''}"

    @property
    def spark_ddl(self) -> str:
        return f"{quoted(self.name)} {self.kind.replace('uuid', 'string')}"


@dataclass(frozen=True)
class Rows:
    """The columns of a table and its rows, as plain values."""

    columns: tuple[ColumnDef, ...]
    values: tuple[Row, ...] = ()

    @classmethod
    def of_columns(cls, ddl: str) -> Rows:
        """No rows of the columns that DDL words describe."""
        return cls(tuple(_column(part) for part in _split(ddl, ",")))

    @classmethod
    def of_text(cls, text: str) -> Rows:
        """A table of text whose headings have types: `id bigint | op string`."""
        made = cls(tuple(_column(part) for part in _lines(text)[0]))
        return replace(made, values=tuple(made.read(text)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def ddl(self) -> str:
        return ", ".join(c.ddl for c in self.columns)

    @property
    def spark_ddl(self) -> str:
        return ", ".join(c.spark_ddl for c in self.columns)

    def arrow(self) -> pa.Table:
        """The rows as Arrow, in the types of the columns."""
        arrays = [pa.array([row.get(c.name) for row in self.values], c.arrow) for c in self.columns]
        return pa.table(arrays, pa.schema([(c.name, c.arrow) for c in self.columns]))

    def read(self, text: str) -> Iterator[Row]:
        """Rows of these columns from a table of text; columns it leaves out are null."""
        heading, *lines = _lines(text)
        columns = [self.column(_heading(part)) for part in heading]
        for cells in lines:
            assert len(cells) == len(columns), f"{len(cells)} cells under {len(columns)} headings: {cells}"
            given = {c.name: _cell(cell, c.kind) for c, cell in zip(columns, cells, strict=True)}
            yield {c.name: given.get(c.name) for c in self.columns}

    def column(self, name: str) -> ColumnDef:
        return next(c for c in self.columns if c.name == name)

    # --- what becomes of rows when a table changes ---

    def plus(self, rows: list[Row]) -> Rows:
        return replace(self, values=(*self.values, *rows))

    def renamed(self, old: str, new: str) -> Rows:
        at = old.split(".")
        if len(at) > 1:
            return self._nested(at, lambda fields: [replace(f, name=new) if f.name == at[-1] else f for f in fields])
        columns = tuple(replace(c, name=new) if c.name == old else c for c in self.columns)
        return Rows(columns, tuple({new if k == old else k: v for k, v in row.items()} for row in self.values))

    def without(self, name: str) -> Rows:
        columns = tuple(c for c in self.columns if c.name != name)
        return Rows(columns, tuple({k: v for k, v in row.items() if k != name} for row in self.values))

    def promoted(self, name: str, kind: str) -> Rows:
        columns = tuple(replace(c, kind=kind) if c.name == name else c for c in self.columns)
        return replace(self, columns=columns)

    def with_column(self, ddl: str, value: Any = None) -> Rows:
        added = _column(ddl)
        return Rows((*self.columns, added), tuple({**row, added.name: value} for row in self.values))

    def with_values(self, table: pa.Table) -> Rows:
        """Other rows of the same columns, as an oracle gave them."""
        return replace(self, values=tuple(table.select(list(self.names)).to_pylist()))

    def _nested(self, path: list[str], change: Callable[[list[ColumnDef]], list[ColumnDef]]) -> Rows:
        """A change to the fields of one struct column; the values move to the new names by their places."""
        column = self.column(path[0])
        old = fields_of(column.kind)
        new = change(old)
        kind = f"struct<{', '.join(f'{f.name}: {f.kind}' for f in new)}>"
        names = [f.name for f in new]

        def moved(value: Row | None) -> Row | None:
            return None if value is None else dict(zip(names, value.values(), strict=True))

        values = tuple({**row, column.name: moved(row[column.name])} for row in self.values)
        return Rows(tuple(replace(c, kind=kind) if c is column else c for c in self.columns), values)


def quoted(name: str) -> str:
    """A name as SQL takes it whatever letters it has."""
    return "`" + name.replace("`", "``") + "`"


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type that a DDL word stands for."""
    word, _, rest = kind.partition("<")
    inner = rest.removesuffix(">")
    if word == "struct":
        return pa.struct([(f.name, f.arrow) for f in fields_of(kind)])
    if word == "array":
        return pa.list_(pa.field("element", arrow_type(inner)))
    if word == "map":
        key, value = _split(inner, ",")
        return pa.map_(arrow_type(key), arrow_type(value))
    if kind.startswith("decimal("):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _PLAIN[kind]


def fields_of(kind: str) -> list[ColumnDef]:
    """The fields of a struct type."""
    parts = (part.split(":", 1) for part in _split(kind.removeprefix("struct<").removesuffix(">"), ","))
    return [ColumnDef(name.strip(), inner.strip()) for name, inner in parts]


def _heading(text: str) -> str:
    """The name in a heading, which may be quoted and may be followed by a type."""
    return text[1 : text.index("`", 1)] if text.startswith("`") else text.split(maxsplit=1)[0]


def _column(text: str) -> ColumnDef:
    text = text.strip()
    required = text.lower().endswith(" not null")
    text = text[: -len(" not null")] if required else text
    if text.startswith("`"):
        name, _, kind = text[1:].rpartition("` ")
    else:
        name, _, kind = text.partition(" ")
    return ColumnDef(name.strip(), kind.strip(), required)


def _split(text: str, by: str) -> list[str]:
    """The parts of a text at a separator that stands in no bracket and no quotes."""
    parts, depth, quotes = [""], 0, ""
    for letter in text:
        if quotes:
            quotes = "" if letter == quotes else quotes
        elif letter in "'`" and not parts[-1].strip():
            quotes = letter
        depth += (letter in "<([{") - (letter in ">)]}") if not quotes else 0
        if letter == by and depth == 0 and not quotes:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _lines(text: str) -> list[list[str]]:
    return [_split(line, "|") for line in text.strip().splitlines()]


def _cell(text: str, kind: str) -> Any:
    if text == "null":
        return None
    if kind.startswith(("struct<", "array<", "map<")):
        return _nested_value(json.loads(text), kind)
    return _value(text, kind)


def _nested_value(value: Any, kind: str) -> Any:
    """A JSON value in the type it is meant for."""
    if value is None:
        return None
    if kind.startswith("struct<"):
        return {f.name: _nested_value(value.get(f.name), f.kind) for f in fields_of(kind)}
    if kind.startswith("array<"):
        return [_nested_value(v, kind[len("array<") : -1]) for v in value]
    if kind.startswith("map<"):
        key, of = _split(kind[len("map<") : -1], ",")
        return [(_nested_value(k, key), _nested_value(v, of)) for k, v in value.items()]
    return _value(value if isinstance(value, str) else json.dumps(value), kind)


def _value(text: str, kind: str) -> Any:
    if kind == "string" and len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    return _READERS["decimal" if kind.startswith("decimal(") else kind](text)


_READERS: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: {"true": True, "false": False}[text],
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
    "timestamp_ntz": datetime.fromisoformat,
    "string": str,
    "binary": bytes.fromhex,
    "uuid": str,
}
