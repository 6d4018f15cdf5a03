"""Reads the JSON of an Avro schema into nodes, within limits: it comes out of the file and is not trusted either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from neve.io.avro.limits import Limits
from neve.io.avro.nodes import Child, Node

__all__ = ["BadSchema", "UnsupportedSchema", "parse_schema"]

PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL: dict[tuple[str, object], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
TIMESTAMP_UNITS: dict[object, str] = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
MAX_PRECISION = 38  # of a decimal in Iceberg, and of Arrow's decimal128
MAX_FIXED = 1 << 20


class BadSchema(Exception):
    """A schema that is not Avro: what was expected, what was found."""

    def __init__(self, expected: str, found: object) -> None:
        self.expected, self.found = expected, str(found)[:80]
        super().__init__(f"expected {self.expected}, found {self.found}")


class UnsupportedSchema(Exception):
    """A schema that is Avro, but of a kind no manifest uses."""


def parse_schema(schema: object, limits: Limits) -> Node:
    """Turn the JSON of a schema into nodes, with names spelled out and sizes bounded."""
    return _Parser(limits).node(schema, "", "", 0)


class _Parser:
    """Parsing state: the named types seen so far, those being read, and how many nodes there are."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.named: dict[str, Mapping[str, Any]] = {}
        self.open: set[str] = set()
        self.nodes = 0

    def node(self, schema: object, path: str, space: str, depth: int) -> Node:
        """Any type: a union, a name, or an object."""
        self._count(depth)
        match schema:
            case list():
                return self._union(schema, path, space, depth)
            case str() if schema in PLAIN:
                return Node(schema, path, PLAIN[schema])
            case str():
                return self._reference(schema, path, space, depth)
            case dict():
                return self._object(schema, path, space, depth)
            case _:
                raise BadSchema(f"an Avro type{_of(path)}", repr(schema))

    def _object(self, schema: Mapping[str, Any], path: str, space: str, depth: int) -> Node:
        match schema:
            case {"type": "record" | "fixed" | "enum"}:
                return self._definition(schema, path, space, depth)
            case {"type": "array", "items": items}:
                item = Child("element", self.node(items, path, space, depth + 1), _field_id(schema, "element-id"))
                return Node("array", path, children=(item,))
            case {"type": "map", "values": values}:
                key = Child("key", Node("string", path, pa.string()), _field_id(schema, "key-id"))
                value = Child("value", self.node(values, path, space, depth + 1), _field_id(schema, "value-id"))
                return Node("map", path, children=(key, value))
            case {"type": str(kind)} if kind in PLAIN:
                return Node(kind, path, _leaf_type(kind, schema))
            case {"type": str() | dict() | list() as inner} if inner not in ("array", "map"):
                return self.node(inner, path, space, depth + 1)
            case _:
                raise BadSchema(f"a complete Avro type{_of(path)}", repr(schema))

    def _count(self, depth: int) -> None:
        self.nodes += 1
        nodes, deep = self.limits.max_schema_nodes, self.limits.max_schema_depth
        if self.nodes > nodes or depth > deep:
            raise BadSchema(f"a schema of at most {nodes} types, {deep} deep", "a larger one")

    def _union(self, branches: list[object], path: str, space: str, depth: int) -> Node:
        others = [branch for branch in branches if branch != "null"]
        if len(branches) != 2 or len(others) != 1:
            raise UnsupportedSchema(f"a union{_of(path)} that is not null and one other type")
        node = self.node(others[0], path, space, depth + 1)
        if node.is_optional or node.kind == "null":
            raise BadSchema(f"a union{_of(path)} of null and one type", "a union inside a union")
        return replace(node, null_branch=branches.index("null"))

    def _reference(self, name: str, path: str, space: str, depth: int) -> Node:
        full = _full_name(name, space)
        if full not in self.named and name in self.named:  # a name without a namespace, used inside one
            full = name
        if full not in self.named:
            raise BadSchema(f"a known type{_of(path)}", repr(name))
        return self._build(self.named[full], full, path, depth)

    def _definition(self, schema: Mapping[str, Any], path: str, space: str, depth: int) -> Node:
        name, space = schema.get("name"), schema.get("namespace", space)
        if not isinstance(name, str) or not isinstance(space, str):
            raise BadSchema(f"a name for the {schema['type']}{_of(path)}", repr(name))
        full = _full_name(name, space)
        self.named[full] = schema
        return self._build(schema, full, path, depth)

    def _build(self, schema: Mapping[str, Any], full: str, path: str, depth: int) -> Node:
        match schema:
            case {"type": "fixed", "size": int(size)} if 0 < size <= MAX_FIXED:
                return Node("fixed", path, _leaf_type("fixed", schema), size=size)
            case {"type": "enum", "symbols": [*symbols]} if symbols and all(isinstance(s, str) for s in symbols):
                return Node("enum", path, pa.dictionary(pa.int32(), pa.string()), symbols=tuple(symbols))
            case {"type": "record", "fields": [*fields]}:
                return self._record(fields, full, path, depth)
            case _:
                raise BadSchema(f"a complete {schema['type']}{_of(path)}", repr(schema))

    def _record(self, fields: list[object], full: str, path: str, depth: int) -> Node:
        if full in self.open:
            raise UnsupportedSchema(f"the record {full!r}{_of(path)} that contains itself")
        self.open.add(full)
        space = full.rpartition(".")[0]
        children: dict[str, Child] = {}
        for each in fields:
            match each:
                case {"name": str(name), "type": type_} if isinstance(each, dict) and name not in children:
                    node = self.node(type_, f"{path}.{name}" if path else name, space, depth + 1)
                    children[name] = Child(name, node, _field_id(each, "field-id"))
                case _:
                    raise BadSchema(f"a field with a type and a name of its own in the record{_of(path)}", repr(each))
        self.open.discard(full)
        return Node("record", path, children=tuple(children.values()))


def _leaf_type(kind: str, schema: Mapping[str, Any]) -> pa.DataType:
    """The Arrow type of a leaf; a logical type that does not fit is ignored, as Avro wants it."""
    logical = schema.get("logicalType")
    if kind == "long" and logical in TIMESTAMP_UNITS:
        zone = "UTC" if schema.get("adjust-to-utc") is True else None
        return pa.timestamp(TIMESTAMP_UNITS[logical], zone)
    if kind in ("bytes", "fixed") and logical == "decimal":
        match schema.get("precision"), schema.get("scale", 0):
            case int(precision), int(scale) if 0 <= scale <= precision and 0 < precision <= MAX_PRECISION:
                return pa.decimal128(precision, scale)
    if kind == "fixed":
        return pa.binary(schema["size"])
    return LOGICAL.get((kind, logical), PLAIN[kind]) if isinstance(logical, str) else PLAIN[kind]


def _field_id(schema: Mapping[str, Any], key: str) -> int | None:
    value = schema.get(key)
    return value if isinstance(value, int) else None


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _of(path: str) -> str:
    return f" of {path!r}" if path else ""
