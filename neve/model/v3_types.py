"""Types of version 3 that PyIceberg lacks, or writes in its own way: variant, geometry and geography.

A variant is a value of any type, which Parquet stores as bytes that describe themselves. Shapes are well-known binary
(WKB); the specification writes `geometry(srid:3857)`, while PyIceberg reads and writes `geometry('srid:3857')`.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field
from pyiceberg import types as ice

GEO_TYPES = ice.GeometryType | ice.GeographyType
_TYPE_KEYS = ("type", "element", "key", "value")
_BARE = re.compile(r"(geometry|geography)\(\s*([^'\",()]+?)\s*(?:,\s*([^'\",()]+?)\s*)?\)")
_QUOTED = re.compile(rb"\"(geometry|geography)\('([^'\"]*)'(?:, '([^'\"]*)')?\)\"")


class VariantType(ice.PrimitiveType):
    """A value of any type. To PyIceberg it is one value, though Parquet stores it as a group."""

    root: Literal["variant"] = Field(default="variant")

    def __repr__(self) -> str:
        return "VariantType()"

    def __str__(self) -> str:
        return "variant"

    def minimum_format_version(self) -> Literal[3]:
        """Return the format version that brought the type."""
        return 3


def prepare_types(schema: Any) -> None:
    """Change the types in the JSON of a schema, or of several, to what PyIceberg reads."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            for key in _TYPE_KEYS:
                if isinstance(text := node.get(key), str):
                    node[key] = _prepared(text)
            pending += [part for key, part in node.items() if key in ("fields", *_TYPE_KEYS)]


def _prepared(text: str) -> str | VariantType:
    if text == "variant":
        return VariantType()
    found = _BARE.fullmatch(text)
    return f"{found[1]}({', '.join(repr(part) for part in found.groups()[1:] if part)})" if found else text


def restore_types(text: bytes) -> bytes:
    """Write the types in serialized metadata as the specification does."""
    if b"('" not in text:
        return text
    return _QUOTED.sub(lambda found: b'"%b(%b)"' % (found[1], b", ".join(p for p in found.groups()[1:] if p)), text)
