"""HTML made of values: everything is escaped, unless it is HTML that was made here.

Names and values of a table are hostile until shown otherwise: what could be taken for markup is escaped, and characters
without a shape of their own, such as NUL or marks that turn the direction of writing, become visible.

>>> tag("td", "<script>", title='a "name"', hidden=True)
'<td title="a &quot;name&quot;" hidden>&lt;script&gt;</td>'
>>> escape("x\\0y")
'x\ufffdy'
"""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import category

__all__ = ["Markup", "escape", "joined", "plain", "shortened", "tag"]

_VOID = frozenset({"br", "col", "input", "link", "meta"})
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def plain(text: str) -> str:
    """Text in which every character shows: one that would only have an effect becomes U+FFFD."""
    return text if text.isprintable() else "".join(c if _shows(c) else "\ufffd" for c in text)


def _shows(character: str) -> bool:
    return character.isprintable() or category(character) == "Zs"


def shortened(text: str, longest: int) -> str:
    """Text cut in its middle: names differ at both ends.

    >>> shortened("year=2026/month=01/day=17", 15)
    'year=20…/day=17'
    """
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"


def escape(value: object) -> Markup:
    """A value as HTML text, safe between tags and between quotes."""
    return value if isinstance(value, Markup) else Markup(plain(str(value)).translate(_ESCAPED))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Several pieces as one."""
    return Markup(escape(between).join(map(escape, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. In the names of attributes `_` stands for `-`, and one at the end is left out; None is left out."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    start = f"<{name}{said}>"
    return Markup(start) if name in _VOID else Markup(f"{start}{joined(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value)}"'
