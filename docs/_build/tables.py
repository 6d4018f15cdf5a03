"""Generate the reference tables from the code: `python docs/_build/tables.py` writes them into their pages.

`<!-- table: name -->` and `<!-- end -->` mark the position of a table in a page. A test compares the text between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from typer.main import get_command

from neve import errors
from neve.cli import app
from neve.model.properties import PROPERTIES, MetricsMode
from neve.ops.maintenance.rewrite_position_deletes import DELETE_OPTIONS
from neve.plan.rewrite_options import OPTIONS, RewriteOptions
from neve.sql.procedures import PROCEDURES
from tests.peers.known_bugs import FAULTS, SHARED_FAULTS, SPARK_FAULTS

DOCS = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SHARED = ("--lake", "--catalog", "--json", "--debug", "--dry-run", "--yes")
NO_LIMIT = ((1 << 31) - 1, (1 << 63) - 1)
# Defaults that are not constants.
DERIVED = {
    "target-file-size-bytes": "`write.target-file-size-bytes` of the table",
    "min-file-size-bytes": "75 % of the target",
    "max-file-size-bytes": "180 % of the target",
    "max-file-group-input-files": "no limit",
    "max-files-to-rewrite": "no limit",
    "partial-progress.max-failed-commits": "as `partial-progress.max-commits`",
    "output-spec-id": "the current spec",
}


def filled(text: str) -> str:
    """Return a page with its tables generated from the code."""
    return MARKED.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[4]}", text)


def properties_table() -> str:
    """Return the table of properties: default, accepted values, meaning."""
    rows = ((f"`{p.name}`", _default(p.default), p.value_type.expected, p.meaning) for p in PROPERTIES.values())
    return _table(("property", "default", "accepts", "meaning"), rows)


def options_table() -> str:
    """Return the table of compaction options."""
    defaults = RewriteOptions().as_dict()
    rows = (
        (f"`{o.name}`", DERIVED.get(o.name) or _default(defaults[o.name]), o.accepts, _sentence(o.meaning))
        for o in OPTIONS.values()
    )
    return _table(("option", "default", "accepts", "meaning"), rows)


def delete_options_table() -> str:
    """Return the table of options for rewriting delete files."""
    rows = ((f"`{name}`", _sentence(OPTIONS[name].meaning)) for name in DELETE_OPTIONS)
    return _table(("option", "meaning"), rows)


def procedures_table() -> str:
    """Return the table of procedures with their arguments in order."""
    rows = (
        (f"`system.{name}`", ", ".join(f"`{a}`" for a in procedure.all_arguments))
        for name, procedure in PROCEDURES.items()
    )
    return _table(("procedure", "arguments, in order"), rows)


def commands_table() -> str:
    """Return the table of commands with their arguments and specific options."""
    rows = ((f"`neve {_usage(command)}`", _summary(command), _own_options(command)) for command in _commands())
    return _table(("command", "what it does", "options of its own"), rows)


def shared_options_table() -> str:
    """Return the table of options that most commands share."""
    known = {option.opts[0]: option for command in _commands() for option in _options(command)}
    rows = ((f"`{name}`", known[name].help or "") for name in SHARED if name in known)
    return _table(("option", "meaning"), rows)


def errors_tree() -> str:
    """Return the tree of errors from the docstring of their module."""
    drawn = (errors.__doc__ or "").split("\n\n")[1]
    return f"```\n{drawn}\n```"


def faults_table() -> str:
    """Return the table of bugs in other engines that the comparison tests allow for."""
    rows = ((fault.engine, _sentence(fault.reason)) for fault in (*SPARK_FAULTS, *FAULTS, *SHARED_FAULTS))
    return _table(("engine", "what it does"), sorted(rows))


TABLES: dict[str, Callable[[], str]] = {
    "properties": properties_table,
    "options": options_table,
    "delete-options": delete_options_table,
    "procedures": procedures_table,
    "commands": commands_table,
    "shared-options": shared_options_table,
    "errors": errors_tree,
    "faults": faults_table,
}


def _commands() -> list[Any]:
    return list(getattr(get_command(app), "commands", {}).values())


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option"]


def _usage(command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    names = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments]
    return " ".join([command.name, *names])


def _summary(command: Any) -> str:
    return str(command.help or "").split("\n\n")[0].replace("\n", " ")


def _own_options(command: Any) -> str:
    named = [option.opts[0] for option in _options(command)]
    return ", ".join(f"`{name}`" for name in named if name not in (*SHARED, "--help"))


def _default(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, MetricsMode):
        return f"`truncate({value.length})`"
    if value in NO_LIMIT:
        return "no limit"
    return f"`{value}`{_in_units(value)}"


def _in_units(value: Any) -> str:
    """Return the size in the largest unit that divides it evenly, or an empty string."""
    sizes = UNITS if isinstance(value, int) else ()
    return next((f" ({value // size} {unit})" for size, unit in sizes if _is_round(value, size)), "")


def _is_round(value: int, size: int) -> bool:
    return size <= value < size << 10 and value % size == 0


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if filled(text) != text:
            path.write_text(filled(text))
