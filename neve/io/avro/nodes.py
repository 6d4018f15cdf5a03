"""The types of an Avro schema as a tree: what each is, its part in a projection, and the Arrow type it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa

__all__ = ["ALL", "Child", "Node", "Projection", "Role", "select"]

MIN_WIDTH = {"null": 0, "float": 4, "double": 8}  # bytes the shortest value takes; 1 for all others


class Role(Enum):
    """What happens to a node when a file is read or written."""

    KEEP = "decoded into its own column"
    SKIP = "stepped over"
    BYTES = "one binary column of its encoded bytes"


@dataclass(frozen=True, slots=True)
class Projection:
    """Which fields to decode, by dotted path of Avro field names; an array's items have the path of the array.

    `fields`: each path stands for everything below it; None means every field; paths a file does not have are ignored.
    `encoded`: record fields to return as one binary column of their encoded bytes, ready to be copied to another file.
    """

    fields: frozenset[str] | None = None
    encoded: frozenset[str] = field(default_factory=frozenset)


ALL = Projection()


@dataclass(frozen=True, slots=True)
class Node:
    """One type of the schema. `null_branch` is the place of null in its union, or -1 when the value is required."""

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
        """Whether the value may be null."""
        return self.null_branch >= 0

    @property
    def min_width(self) -> int:
        """The fewest bytes a value can take; a count of values is believed only if that many bytes are there."""
        if self.is_optional:
            return 1
        if self.kind == "record":
            return sum(child.node.min_width for child in self.children)
        return self.size if self.kind == "fixed" else MIN_WIDTH.get(self.kind, 1)

    @property
    def kept(self) -> tuple[Child, ...]:
        """The children that are not skipped."""
        return tuple(child for child in self.children if child.node.role is not Role.SKIP)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the column this node becomes under its projection."""
        if self.role is Role.BYTES:
            return pa.binary()
        if self.kind == "record":
            return pa.struct([child.arrow_field for child in self.kept])
        if self.kind == "array":
            return pa.list_(self.children[0].arrow_field)
        if self.kind == "map":
            return pa.map_(self.children[0].arrow_field, self.children[1].arrow_field)
        return self.leaf_type


@dataclass(frozen=True, slots=True)
class Child:
    """A named place inside a node: a record's field, an array's element, a map's key or value."""

    name: str
    node: Node
    field_id: int | None = None

    @property
    def arrow_field(self) -> pa.Field:
        """The Arrow field, which carries the field id; encoded bytes are never null, they say so themselves."""
        ids = {b"field-id": str(self.field_id).encode()} if self.field_id is not None else None
        nullable = self.node.kind == "null" or (self.node.is_optional and self.node.role is Role.KEEP)
        return pa.field(self.name, self.node.arrow_type, nullable, ids)


def select(node: Node, projection: Projection) -> Node:
    """Give each node below a record the role the projection asks for."""
    everything = projection.fields is None
    return replace(node, children=_children(node, projection, everything))


def _selected(node: Node, projection: Projection, inherited: bool) -> Node:
    """The node in its role; `inherited` when something above it was asked for as a whole."""
    if node.path in projection.encoded:
        return replace(node, role=Role.BYTES)
    wanted = inherited or node.path in (projection.fields or ())
    children = _children(node, projection, wanted)
    role = Role.KEEP if wanted or any(child.node.role is not Role.SKIP for child in children) else Role.SKIP
    if node.kind == "map" and role is Role.KEEP:  # a map without its keys or its values is not a map
        children = _children(node, projection, True)
    return replace(node, role=role, children=children)


def _children(node: Node, projection: Projection, inherited: bool) -> tuple[Child, ...]:
    return tuple(replace(child, node=_selected(child.node, projection, inherited)) for child in node.children)
