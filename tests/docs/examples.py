"""Examples of a page: what is written in its fences is run in order, and prints what stands below it.

A fence of `python` is run, one of `sql` is run statement by statement on `lake`, and each line of a `console` fence
that begins with `$ neve` is a command. What comes out must be the fence without a language that follows, or, for a
command, the lines below it. A page is one story: its fences share their names and one folder.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
RUN = ("python", "sql", "console")
# What differs between runs: ids, names of files, and sizes that follow the version of the Parquet writer.
VARYING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+…|\d{10,}"
    r"|[\d,]+(?= bytes)|(?<=bytes )\w+\s+[\d,]+|(?<=seconds )\s*[\d.]+"
)


@dataclass(frozen=True)
class Example:
    """One fence: the line it begins at, its language, its text, and what it should print."""

    line: int
    language: str
    code: str
    shown: str


def pages() -> list[str]:
    """The pages that have examples, by path in the repository. Decisions show code, but teach no one to use it."""
    docs = (path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts)
    found = [ROOT / "README.md", *docs]
    return [str(path.relative_to(ROOT)) for path in found if examples_of(path.read_text())]


def examples_of(text: str) -> list[Example]:
    """The examples of a page, in order."""
    fences = list(FENCE.finditer(text))
    found = []
    for at, fence in enumerate(fences):
        if fence["language"] in RUN:
            line = text.count("\n", 0, fence.start()) + 1
            found.append(Example(line, fence["language"], _inside(fence), _below(text, fence, fences[at + 1 : at + 2])))
    return found


def is_slow(text: str) -> bool:
    """Whether a page says of itself that its examples take long: then they are run by `make docs` only."""
    return "<!-- slow -->" in text


def _inside(fence: re.Match[str]) -> str:
    """The text of a fence without the indentation the fence has."""
    return re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)


def _below(text: str, fence: re.Match[str], following: list[re.Match[str]]) -> str:
    """What stands in the fence that follows at once; nothing when there is none."""
    is_shown = following and not following[0]["language"] and not text[fence.end() : following[0].start()].strip()
    return _inside(following[0]) if is_shown else ""


def same_for_all(text: str) -> list[str]:
    """The lines without what differs between runs."""
    return [VARYING.sub("#", line.rstrip()) for line in text.rstrip().splitlines()]


def run(example: Example, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Run an example; pairs of what it printed and what it should have."""
    if example.language == "console":
        yield from (_command(said) for said in re.split(r"^\$ ", example.code, flags=re.MULTILINE) if said.strip())
    else:
        printed = StringIO()
        with redirect_stdout(printed):
            _RUNNERS[example.language](example, names)
        yield printed.getvalue(), example.shown


def _command(said: str) -> tuple[str, str]:
    from neve.cli import app

    command, _, shown = said.replace("\\\n", " ").partition("\n")
    words = shlex.split(command)
    assert words[0] == "neve", f"only neve is run here: {command}"
    done = CliRunner().invoke(app, words[1:], env={"COLUMNS": "100"})
    return done.output, shown


def _python(example: Example, names: dict[str, Any]) -> None:
    exec(compile(example.code, f"example at line {example.line}", "exec"), names)


def _sql(example: Example, names: dict[str, Any]) -> None:
    statements = [text for text in re.split(r";\s*$", example.code, flags=re.MULTILINE) if text.strip()]
    results = [names["lake"].sql(statement) for statement in statements]
    if example.shown:
        print(_told(results[-1]))  # noqa: T201


def _told(result: Any) -> str:
    if isinstance(result, DataFrame):
        return str(result.toPandas().to_string(index=False))
    return str(getattr(result, "summary", result))


_RUNNERS: dict[str, Callable[[Example, dict[str, Any]], None]] = {"python": _python, "sql": _sql}
