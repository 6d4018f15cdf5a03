"""The types geometry and geography of version 3: their values are well-known binary (WKB).

The specification writes `geometry(srid:3857)`, while PyIceberg reads and writes `geometry('srid:3857')`.
"""

from __future__ import annotations

import re
from typing import Any

from pyiceberg import types as ice

GEO_TYPES = ice.GeometryType | ice.GeographyType
_BARE = re.compile(r"(geometry|geography)\(\s*([^'\",()]+?)\s*(?:,\s*([^'\",()]+?)\s*)?\)")
_QUOTED = re.compile(rb"\"(geometry|geography)\('([^'\"]*)'(?:, '([^'\"]*)')?\)\"")


def quote_geo_types(node: Any) -> None:
    """Write the types in the JSON of a schema as PyIceberg reads them."""
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            for key in ("type", "element", "key", "value"):
                if isinstance(text := each.get(key), str) and (found := _BARE.fullmatch(text)):
                    each[key] = f"{found[1]}({', '.join(repr(part) for part in found.groups()[1:] if part)})"
            pending += [part for key, part in each.items() if key in ("fields", "type", "element", "key", "value")]


def unquote_geo_types(text: bytes) -> bytes:
    """Write the types in serialized metadata as the specification does."""
    if b"('" not in text:
        return text
    return _QUOTED.sub(lambda found: b'"%b(%b)"' % (found[1], b", ".join(p for p in found.groups()[1:] if p)), text)
