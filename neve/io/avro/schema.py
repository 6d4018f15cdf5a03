"""Avro schemas as trees of nodes, projections of them, and the limits within which a file is read.

A node has a kind, a role in the projection and an Arrow type. The JSON of a schema comes from the file and is not
trusted, so parsing is limited too. A file that exceeds a limit is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pyarrow as pa

from neve.errors import UserError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds for one Avro file."""

    max_inflated_bytes: int = 1024 * MIB  # all blocks of one file, uncompressed; positions are 32-bit, so below 2 GiB
    max_inflate_ratio: int = 100  # uncompressed over compressed, if a file inflates beyond `ratio_floor_bytes`
    ratio_floor_bytes: int = 64 * MIB  # up to this size, any compression ratio is accepted
    max_decoded_bytes: int = 4096 * MIB  # scratch memory for the decoded columns of one file
    max_header_bytes: int = 64 * MIB  # metadata in the header, including the schema
    max_schema_nodes: int = 10_000  # types in a schema, with references expanded
    max_schema_depth: int = 64  # nested types
    max_empty_items: int = 1 << 20  # records or list items that take no bytes, so that no length can check their count

    def __post_init__(self) -> None:
        if not 0 < self.max_inflated_bytes < 1 << 31:
            raise UserError(f"Bad limit max_inflated_bytes={self.max_inflated_bytes}: choose 1 to {(1 << 31) - 1}.")

    def inflated_budget(self, stored: int) -> int:
        """Return how many bytes a file of `stored` bytes may inflate to."""
        return min(self.max_inflated_bytes, max(self.ratio_floor_bytes, stored * self.max_inflate_ratio))


DEFAULT_LIMITS = Limits()
MIN_WIDTH = {"null": 0, "float": 4, "double": 8}  # bytes of the shortest value; 1 for all other kinds


class Role(Enum):
    """How a node is read or written."""

    KEEP = "decoded into its own column"
    SKIP = "skipped"
    BYTES = "one binary column of its encoded bytes"


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields to decode, by dotted path of Avro field names; an array's items have the path of the array.

    `fields`: a path includes everything below it. None means all fields. Paths that a file does not have are ignored.
    `encoded_fields`: record fields to return as one binary column of their encoded bytes, for copying to another file.
    """

    fields: frozenset[str] | None = None
    encoded_fields: frozenset[str] = field(default_factory=frozenset)


ALL_FIELDS = Projection()


@dataclass(frozen=True, slots=True)
class Node:
    """One type of the schema. `null_branch` is the index of null in its union, or -1 if the value is required."""

    kind: str
    path: str
    leaf_type: pa.DataType | None = None
    null_branch: int = -1
    size: int = 0  # bytes of a fixed
    symbols: tuple[str, ...] = ()  # of an enum
    children: tuple[Child, ...] = ()  # fields of a record, the item of an array, key and value of a map
    role: Role = Role.KEEP

    @property
    def is_optional(self) -> bool:
        """True if the value may be null."""
        return self.null_branch >= 0

    @property
    def min_width(self) -> int:
        """The fewest bytes a value can take; a count of values is accepted only if there are enough bytes for it."""
        if self.is_optional:
            return 1
        if self.kind == "record":
            return sum(child.node.min_width for child in self.children)
        return self.size if self.kind == "fixed" else MIN_WIDTH.get(self.kind, 1)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the column for this node, given its role."""
        if self.role is Role.BYTES:
            return pa.binary()
        if self.kind == "record":
            return pa.struct([child.arrow_field for child in self.children if child.node.role is not Role.SKIP])
        if self.kind == "array":
            return pa.list_(self.children[0].arrow_field)
        if self.kind == "map":
            return pa.map_(self.children[0].arrow_field, self.children[1].arrow_field)
        return self.leaf_type


@dataclass(frozen=True, slots=True)
class Child:
    """A named child of a node: a record's field, an array's element, a map's key or value."""

    name: str
    node: Node
    field_id: int | None = None

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow field with the field id. Encoded bytes are never null: they contain the null marker."""
        ids = {b"field-id": str(self.field_id).encode()} if self.field_id is not None else None
        nullable = self.node.kind == "null" or (self.node.is_optional and self.node.role is Role.KEEP)
        return pa.field(self.name, self.node.arrow_type, nullable, ids)


def apply_projection(node: Node, projection: Projection) -> Node:
    """Set the role of each node below a record."""
    return replace(node, children=_project_children(node, projection, projection.fields is None))


def _project_node(node: Node, projection: Projection, parent_selected: bool) -> Node:
    """Set the role of a node; `parent_selected` if the projection includes everything below its parent."""
    if node.path in projection.encoded_fields:
        return replace(node, role=Role.BYTES)
    selected = parent_selected or node.path in (projection.fields or ())
    children = _project_children(node, projection, selected)
    role = Role.KEEP if selected or any(child.node.role is not Role.SKIP for child in children) else Role.SKIP
    if node.kind == "map" and role is Role.KEEP:  # an Arrow map needs both keys and values
        children = _project_children(node, projection, True)
    return replace(node, role=role, children=children)


def _project_children(node: Node, projection: Projection, parent_selected: bool) -> tuple[Child, ...]:
    return tuple(replace(child, node=_project_node(child.node, projection, parent_selected)) for child in node.children)


PRIMITIVE_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL_TYPES: dict[tuple[str, object], pa.DataType] = {
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
    """A schema that is not valid Avro."""

    def __init__(self, expected: str, found: object) -> None:
        self.expected, self.found = expected, str(found)[:80]
        super().__init__(f"expected {self.expected}, found {self.found}")


class UnsupportedSchema(Exception):
    """A valid schema of a kind that no manifest uses."""


def parse_schema(schema: object, limits: Limits) -> Node:
    """Turn the JSON of a schema into nodes; references to named types are expanded, within the limits."""
    return _Parser(limits).parse(schema, "", "", 0)


class _Parser:
    """Parsing state: the named types so far, the records being parsed, and the number of nodes."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.named: dict[str, Mapping[str, Any]] = {}
        self.open: set[str] = set()
        self.nodes = 0

    def parse(self, schema: object, path: str, space: str, depth: int) -> Node:
        """Parse any type: a union, a name, or an object."""
        self.nodes += 1
        max_nodes, max_depth = self.limits.max_schema_nodes, self.limits.max_schema_depth
        if self.nodes > max_nodes or depth > max_depth:
            raise BadSchema(f"a schema of at most {max_nodes} types, {max_depth} deep", "a larger one")
        match schema:
            case list():
                others = [branch for branch in schema if branch != "null"]
                if len(schema) != 2 or len(others) != 1:
                    raise UnsupportedSchema(f"a union{_of_field(path)} that is not null and one other type")
                node = self.parse(others[0], path, space, depth + 1)
                if node.is_optional or node.kind == "null":
                    raise BadSchema(f"a union{_of_field(path)} of null and one type", "a union inside a union")
                return replace(node, null_branch=schema.index("null"))
            case str() if schema in PRIMITIVE_TYPES:
                return Node(schema, path, PRIMITIVE_TYPES[schema])
            case str():
                full = _full_name(schema, space)
                if full not in self.named:  # a name without a namespace, used inside one
                    full = schema
                if full not in self.named:
                    raise BadSchema(f"a known type{_of_field(path)}", repr(schema))
                return self._build_named_type(self.named[full], full, path, depth)
            case dict():
                return self._parse_object(schema, path, space, depth)
            case _:
                raise BadSchema(f"an Avro type{_of_field(path)}", repr(schema))

    def _parse_object(self, schema: Mapping[str, Any], path: str, space: str, depth: int) -> Node:
        match schema:
            case {"type": "record" | "fixed" | "enum"}:
                name, space = schema.get("name"), schema.get("namespace", space)
                if not isinstance(name, str) or not isinstance(space, str):
                    raise BadSchema(f"a name for the {schema['type']}{_of_field(path)}", repr(name))
                full = _full_name(name, space)
                self.named[full] = schema
                return self._build_named_type(schema, full, path, depth)
            case {"type": "array", "items": items}:
                item = Child("element", self.parse(items, path, space, depth + 1), _field_id(schema, "element-id"))
                return Node("array", path, children=(item,))
            case {"type": "map", "values": values}:
                key = Child("key", Node("string", path, pa.string()), _field_id(schema, "key-id"))
                value = Child("value", self.parse(values, path, space, depth + 1), _field_id(schema, "value-id"))
                return Node("map", path, children=(key, value))
            case {"type": str(kind)} if kind in PRIMITIVE_TYPES:
                return Node(kind, path, _leaf_type(kind, schema))
            case {"type": str() | dict() | list() as inner} if inner not in ("array", "map"):
                return self.parse(inner, path, space, depth + 1)
            case _:
                raise BadSchema(f"a complete Avro type{_of_field(path)}", repr(schema))

    def _build_named_type(self, schema: Mapping[str, Any], full: str, path: str, depth: int) -> Node:
        match schema:
            case {"type": "fixed", "size": int(size)} if 0 < size <= MAX_FIXED:
                return Node("fixed", path, _leaf_type("fixed", schema), size=size)
            case {"type": "enum", "symbols": [*symbols]} if symbols and all(isinstance(s, str) for s in symbols):
                return Node("enum", path, pa.dictionary(pa.int32(), pa.string()), symbols=tuple(symbols))
            case {"type": "record", "fields": [*fields]}:
                return self._parse_record(fields, full, path, depth)
            case _:
                raise BadSchema(f"a complete {schema['type']}{_of_field(path)}", repr(schema))

    def _parse_record(self, fields: list[object], full: str, path: str, depth: int) -> Node:
        if full in self.open:
            raise UnsupportedSchema(f"the record {full!r}{_of_field(path)} that contains itself")
        self.open.add(full)
        space = full.rpartition(".")[0]
        children: dict[str, Child] = {}
        for each in fields:
            match each:
                case {"name": str(name), "type": type_} if isinstance(each, dict) and name not in children:
                    node = self.parse(type_, f"{path}.{name}" if path else name, space, depth + 1)
                    children[name] = Child(name, node, _field_id(each, "field-id"))
                case _:
                    expected = f"a field with a type and a unique name in the record{_of_field(path)}"
                    raise BadSchema(expected, repr(each))
        self.open.discard(full)
        return Node("record", path, children=tuple(children.values()))


def _leaf_type(kind: str, schema: Mapping[str, Any]) -> pa.DataType:
    """Return the Arrow type of a leaf. Avro requires that a logical type that does not fit is ignored."""
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
    plain_type = PRIMITIVE_TYPES[kind]
    return LOGICAL_TYPES.get((kind, logical), plain_type) if isinstance(logical, str) else plain_type


def _field_id(schema: Mapping[str, Any], key: str) -> int | None:
    value = schema.get(key)
    return value if isinstance(value, int) else None


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _of_field(path: str) -> str:
    return f" of {path!r}" if path else ""
