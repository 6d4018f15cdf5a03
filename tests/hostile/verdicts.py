"""Check the result of a case; return the faults, or nothing if the result is valid."""

from __future__ import annotations

from typing import Any

from tests.hostile.case import Case
from tests.hostile.honest_tables import CANARY

MOST_CPU = 15.0
LONGEST = 3_500

CaseResult = dict[str, Any]
Rows = dict[str, list[str]]


def faults(case: Case, result: CaseResult, honest: Rows) -> list[str]:
    """Return every fault: a crash, a hang, a foreign error, wrong rows, a changed file outside, missed damage."""
    found = []
    if result["ending"] != "complete":
        last = result["verbs"][-1]["verb"] if result["verbs"] else "the damage itself"
        found.append(f"{result['ending']} in {last}")
    if result["touched"]:
        found.append(f"touched {result['touched']}")
    if result["cpu"] > MOST_CPU:
        found.append(f"{result['cpu']:.1f} s of CPU")
    if result["grown"] > case.memory:
        found.append(f"{result['grown'] >> 20} MB of memory")
    for verb in result["verbs"]:
        found += [
            f"{verb['verb']}: {fault}" for fault in _faults_of_verb(case, verb, _expected_names(case, result), honest)
        ]
    return found + _missed_by_audit(case, result, honest)


def _expected_names(case: Case, result: CaseResult) -> list[str]:
    """Return the names of which an error must contain at least one."""
    return [*result["changed"], *case.names, *(result["known"] if case.lies else ())]


def _faults_of_verb(case: Case, verb: dict[str, Any], names: list[str], honest: Rows) -> list[str]:
    message = verb.get("message", "")
    found = [f"a secret in {message[:200]!r}"] if CANARY in message else []
    if "raw" in verb:
        return [*found, f"{verb['raw']}: {message} {verb['where']}"]
    if "error" in verb:
        return found + _faults_of_message(message, [*names, "Unknown "] if verb["error"] == "UnknownName" else names)
    if "rows" in verb and case.detected_by == "reader" and verb["rows"] != honest[verb["verb"]]:
        found.append(f"{len(verb['rows'])} rows instead of {len(honest[verb['verb']])}, or other ones")
    return found


def _faults_of_message(message: str, names: list[str]) -> list[str]:
    found = []
    if not any(name in message for name in names):
        found.append(f"names none of {names[:4]}: {message[:300]!r}")
    if any(not c.isprintable() and c != "\n" for c in message):
        found.append(f"control characters in {message[:300]!r}")
    if len(message) > LONGEST:
        found.append(f"an error of {len(message)} characters: {message[:100]!r}")
    return found


def _missed_by_audit(case: Case, result: CaseResult, honest: Rows) -> list[str]:
    """Return a fault if the audit reports a sound table that a scan could not read, or read with other rows."""
    by_name = {verb["verb"]: verb for verb in result["verbs"]}
    audit = by_name.get("verify", {})
    if not case.audited or audit.get("findings") != 0:
        return []
    found = {name: by_name.get(name, {}) for name in honest}
    # An unknown column is due to the damaged metadata, not to a file.
    failed = [f"{name} fails" for name, verb in found.items() if verb.get("error", "UnknownName") != "UnknownName"]
    if case.detected_by != "nobody":
        failed += [
            f"{name} reads other rows" for name, verb in found.items() if verb.get("rows", honest[name]) != honest[name]
        ]
    return [f"verify finds nothing, although {failed[0]}"] if failed else []


def outcome(result: CaseResult, honest: Rows) -> str:
    """Return the outcome for the summary: rejected, the same rows, or other rows."""
    by_name = {verb["verb"]: verb for verb in result["verbs"]}
    scan = by_name.get("scan", {})
    if "error" in scan:
        return "rejected"
    return "same" if scan.get("rows") == honest["scan"] else "other"
