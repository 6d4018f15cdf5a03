"""Convert docstrings to Markdown: fence the examples, and put isolation and writes into separate paragraphs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

REMARK = re.compile(r"\s# (?!noqa|type:)(.+?)\.?$")
PART = re.compile(r"^(Isolation and writes|Isolation|Writes): ", re.MULTILINE)


def fenced(text: str) -> str:
    """Return the text with a fence around each doctest example: Markdown would read `>>>` as quotations."""
    lines: list[str] = []
    is_open = False
    for line in text.splitlines():
        begins = line.lstrip().startswith(">>> ") and not is_open
        ends = is_open and not line.strip()
        lines += ["", "```pycon", line] if begins else ["```", ""] if ends else [line]
        is_open = begins or (is_open and not ends)
    return "\n".join([*lines, *(["```"] if is_open else [])])


def in_parts(text: str) -> str:
    """Return the text with isolation and writes as separate paragraphs."""
    return PART.sub(lambda found: f"\n**{found[1]}:** ", text)


def remark(line: str) -> str | None:
    """Return the comment at the end of the line that declares a field as a sentence, or None if there is none."""
    found = REMARK.search(line)
    return None if found is None else f"{found[1][0].upper()}{found[1][1:]}."


class Docstrings(griffe.Extension):
    """Convert every loaded docstring to Markdown, and comments on fields of values to docstrings."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Convert the docstring of a module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = in_parts(fenced(obj.docstring.value))

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Add docstrings to the fields of a class after it is loaded. The fields of builders are private: skip them."""
        if "context" in cls.members or not isinstance(cls.filepath, Path):
            return
        lines = cls.filepath.read_text().splitlines()
        for field in cls.members.values():
            if isinstance(field, griffe.Attribute) and field.docstring is None and field.lineno is not None:
                said = remark(lines[field.lineno - 1])
                field.docstring = None if said is None else griffe.Docstring(said, parent=field)
