"""Docstrings on their way to a page: examples become code, and the parts of a verb paragraphs of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

REMARK = re.compile(r"\s# (?!noqa|type:)(.+?)\.?$")
PART = re.compile(r"^(Isolation and writes|Isolation|Writes): ", re.MULTILINE)


def fenced(text: str) -> str:
    """The text with every doctest example in a fence: Markdown would take `>>>` for quotations."""
    lines: list[str] = []
    is_open = False
    for line in text.splitlines():
        begins = line.lstrip().startswith(">>> ") and not is_open
        ends = is_open and not line.strip()
        lines += ["", "```pycon", line] if begins else ["```", ""] if ends else [line]
        is_open = begins or (is_open and not ends)
    return "\n".join([*lines, *(["```"] if is_open else [])])


def in_parts(text: str) -> str:
    """The text with what it says about isolation and writes set apart."""
    return PART.sub(lambda found: f"\n**{found[1]}:** ", text)


def remark(line: str) -> str | None:
    """What is said about a field of a value in the line that declares it."""
    found = REMARK.search(line)
    return None if found is None else f"{found[1][0].upper()}{found[1][1:]}."


class Docstrings(griffe.Extension):
    """Makes Markdown of every docstring that is loaded, and docstrings of remarks about the fields of values."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class and function."""
        if obj.docstring is not None:
            obj.docstring.value = in_parts(fenced(obj.docstring.value))

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Called for every class once its fields are known; the fields of builders are nobody's business."""
        if "context" in cls.members or not isinstance(cls.filepath, Path):
            return
        lines = cls.filepath.read_text().splitlines()
        for field in cls.members.values():
            if isinstance(field, griffe.Attribute) and field.docstring is None and field.lineno is not None:
                said = remark(lines[field.lineno - 1])
                field.docstring = None if said is None else griffe.Docstring(said, parent=field)
