"""What is wrong with the way a hostile table was met; nothing, when it was met well."""

from __future__ import annotations

from typing import Any

from tests.hostile.case import Case
from tests.hostile.honest_tables import CANARY

MOST_CPU = 15.0
LONGEST = 3_500

Played = dict[str, Any]
Rows = dict[str, list[str]]


def faults(case: Case, played: Played, honest: Rows) -> list[str]:
    """Every promise broken: no crash, no hang, no strange error, no wrong rows, nothing touched, nothing unsaid."""
    found = []
    if played["ending"] != "whole":
        last = played["verbs"][-1]["verb"] if played["verbs"] else "the damage itself"
        found.append(f"{played['ending']} in {last}")
    if played["touched"]:
        found.append(f"touched {played['touched']}")
    if played["cpu"] > MOST_CPU:
        found.append(f"{played['cpu']:.1f} s of CPU")
    if played["grown"] > case.memory:
        found.append(f"{played['grown'] >> 20} MB of memory")
    for verb in played["verbs"]:
        found += [f"{verb['verb']}: {fault}" for fault in _of_verb(case, verb, _named(case, played), honest)]
    return found + _unseen(case, played, honest)


def _named(case: Case, played: Played) -> list[str]:
    """The files one of which an error has to name."""
    return [*played["changed"], *case.names, *(played["known"] if case.lies else ())]


def _of_verb(case: Case, verb: dict[str, Any], names: list[str], honest: Rows) -> list[str]:
    said = verb.get("said", "")
    found = [f"a secret in {said[:200]!r}"] if CANARY in said else []
    if "raw" in verb:
        return [*found, f"{verb['raw']}: {said} {verb['where']}"]
    if "error" in verb:
        return found + _of_message(said, [*names, "Unknown "] if verb["error"] == "UnknownName" else names)
    if "rows" in verb and case.told_by == "reader" and verb["rows"] != honest[verb["verb"]]:
        found.append(f"{len(verb['rows'])} rows instead of {len(honest[verb['verb']])}, or other ones")
    return found


def _of_message(said: str, names: list[str]) -> list[str]:
    found = []
    if not any(name in said for name in names):
        found.append(f"names none of {names[:4]}: {said[:300]!r}")
    if any(not c.isprintable() and c != "\n" for c in said):
        found.append(f"control characters in {said[:300]!r}")
    if len(said) > LONGEST:
        found.append(f"an error of {len(said)} characters: {said[:100]!r}")
    return found


def _unseen(case: Case, played: Played, honest: Rows) -> list[str]:
    """An audit that calls a table sound which a scan could not read, or read otherwise."""
    by_name = {verb["verb"]: verb for verb in played["verbs"]}
    audit = by_name.get("verify", {})
    if not case.audited or audit.get("findings") != 0:
        return []
    found = {name: by_name.get(name, {}) for name in honest}
    # A column that the metadata does not have any more is no fault of a file.
    failed = [f"{name} fails" for name, verb in found.items() if verb.get("error", "UnknownName") != "UnknownName"]
    if case.told_by != "nobody":
        failed += [
            f"{name} reads other rows" for name, verb in found.items() if verb.get("rows", honest[name]) != honest[name]
        ]
    return [f"verify finds nothing, although {failed[0]}"] if failed else []


def outcome(played: Played, honest: Rows) -> str:
    """In a word, for the summary: refused, the same rows, or other rows."""
    by_name = {verb["verb"]: verb for verb in played["verbs"]}
    scan = by_name.get("scan", {})
    if "error" in scan:
        return "refused"
    return "same" if scan.get("rows") == honest["scan"] else "other"
