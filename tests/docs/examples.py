"""Examples of a documentation page: the code in its fences runs in order, and must print the output below it.

A `python` fence is executed, a `sql` fence runs statement by statement on `lake`, and each line of a `console` fence
that begins with `$ neve` is a command. The output must equal the following fence without a language or, for a command,
the lines below it. The fences of a page share their variables and one folder.
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
    """One fence: the line it begins at, its language, its text, and the expected output."""

    line: int
    language: str
    code: str
    expected: str


def pages() -> list[str]:
    """Return the pages with examples, by path in the repository. Code in decision pages does not run."""
    docs = (path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts)
    found = [ROOT / "README.md", *docs]
    return [str(path.relative_to(ROOT)) for path in found if examples_of(path.read_text())]


def examples_of(text: str) -> list[Example]:
    """Return the examples of a page, in order."""
    fences = list(FENCE.finditer(text))
    found = []
    for at, fence in enumerate(fences):
        if fence["language"] in RUN:
            line = text.count("\n", 0, fence.start()) + 1
            found.append(
                Example(
                    line, fence["language"], _text_of(fence), _expected_output(text, fence, fences[at + 1 : at + 2])
                )
            )
    return found


def is_slow(text: str) -> bool:
    """Return whether a page is marked as slow: then its examples run only in `make docs`."""
    return "<!-- slow -->" in text


def _text_of(fence: re.Match[str]) -> str:
    """Return the text of a fence without its indentation."""
    return re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)


def _expected_output(text: str, fence: re.Match[str], following: list[re.Match[str]]) -> str:
    """Return the text of a fence without a language that follows directly; empty if there is none."""
    has_output = following and not following[0]["language"] and not text[fence.end() : following[0].start()].strip()
    return _text_of(following[0]) if has_output else ""


def without_varying_parts(text: str) -> list[str]:
    """Return the lines without the parts that differ between runs."""
    return [VARYING.sub("#", line.rstrip()) for line in text.rstrip().splitlines()]


def run(example: Example, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Run an example; yield pairs of actual and expected output."""
    if example.language == "console":
        yield from (
            _command(command_text)
            for command_text in re.split(r"^\$ ", example.code, flags=re.MULTILINE)
            if command_text.strip()
        )
    else:
        printed = StringIO()
        with redirect_stdout(printed):
            _RUNNERS[example.language](example, names)
        yield printed.getvalue(), example.expected


def _command(command_text: str) -> tuple[str, str]:
    from neve.cli import app

    command, _, expected = command_text.replace("\\\n", " ").partition("\n")
    words = shlex.split(command)
    assert words[0] == "neve", f"only neve is run here: {command}"
    done = CliRunner().invoke(app, words[1:], env={"COLUMNS": "100"})
    return done.output, expected


def _python(example: Example, names: dict[str, Any]) -> None:
    exec(compile(example.code, f"example at line {example.line}", "exec"), names)


def _sql(example: Example, names: dict[str, Any]) -> None:
    statements = [text for text in re.split(r";\s*$", example.code, flags=re.MULTILINE) if text.strip()]
    results = [names["lake"].sql(statement) for statement in statements]
    if example.expected:
        print(_format_result(results[-1]))  # noqa: T201


def _format_result(result: Any) -> str:
    if isinstance(result, DataFrame):
        return str(result.toPandas().to_string(index=False))
    return str(getattr(result, "summary", result))


_RUNNERS: dict[str, Callable[[Example, dict[str, Any]], None]] = {"python": _python, "sql": _sql}
