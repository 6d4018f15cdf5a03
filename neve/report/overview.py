"""What is wrong with a table, in plain words: one sentence first, then what it rests on.

The top of the page: which table, the verdict, and the numbers to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from neve.display.format import format_percent, format_size, format_time, join_with_and, plural
from neve.display.html import Markup, join_markup, tag
from neve.report.html import name_markup
from neve.report.values import Report

Weight: TypeAlias = Literal["act", "watch", "fine"]


@dataclass(frozen=True, slots=True)
class VerdictFinding:
    """Something a reader ought to know, and the section that shows it."""

    weight: Weight
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence on top, and the findings below it, what weighs most first."""

    headline: str
    findings: tuple[VerdictFinding, ...]

    @property
    def weight(self) -> Weight:
        """The weight of the heaviest finding."""
        return min((f.weight for f in self.findings), key=_ORDER.index, default="fine")


_ORDER: tuple[Weight, ...] = ("act", "watch", "fine")


def verdict_of(report: Report) -> Verdict:
    """The verdict on a table."""
    found = [finding for rule in _RULES for finding in rule(report)]
    found.sort(key=lambda finding: _ORDER.index(finding.weight))
    return Verdict(_headline(report), tuple(found))


def _headline(report: Report) -> str:
    if report.snapshot_id is None:
        return "Nobody has written to this table yet."
    if not report.total.files:
        return "The table is empty: no live data file."
    if report.maintenance.files_to_rewrite:
        return f"{_files_to_compact(report)}{_in_specs(s.amounts.taken for s in report.specs)}; {_compaction_effect(report)}."
    return _headline_without_compaction(report, _in_specs(s.amounts.files for s in report.specs))


def _in_specs(files: Iterable[int]) -> str:
    """In how many specs there are some of the files, when it is more than one."""
    specs = sum(count > 0 for count in files)
    return f" in {plural(specs, 'spec')}" if specs > 1 else ""


def _compaction_effect(report: Report) -> str:
    upkeep = report.maintenance
    if upkeep.output_files < upkeep.files_to_rewrite:
        return f"a compaction would leave {upkeep.output_files:,} in their place"
    it, its = ("it", "its") if upkeep.files_to_rewrite == 1 else ("them", "their")
    return f"a compaction would rewrite {it}" + (f" without {its} deleted rows" if report.deletes.touched_files else "")


def _headline_without_compaction(report: Report, under: str) -> str:
    """The sentence about a table a compaction would leave alone."""
    total = report.total
    if any(finding.weight == "act" for rule in _RULES for finding in rule(report)):
        return f"{plural(total.files, 'data file')}{under}: none to compact, but something else wants care."
    if total.small_files == total.files:
        return f"{plural(total.files, 'small file')}{under}, too few in each partition to be worth joining."
    return f"In good shape: {plural(total.files, 'data file')}{under} of {format_size(total.mean_size)} on average."


def _files_to_compact(report: Report) -> str:
    """The files a compaction takes, by why it does."""
    counts: dict[str, int] = {}
    for why, is_taken, count in report.maintenance.reasons:
        if is_taken:
            word = _ADJECTIVES.get(why, "delete-heavy")
            counts[word] = counts.get(word, 0) + count
    in_order = sorted(counts.items(), key=lambda pair: -pair[1])
    said = join_with_and([f"{count:,} {word}" for word, count in in_order])
    return f"{said} {'file' if report.maintenance.files_to_rewrite == 1 else 'files'}"


_ADJECTIVES = {"too small": "small", "too large": "oversized"}


Rule: TypeAlias = Callable[[Report], Iterator[VerdictFinding]]


def _small_files(report: Report) -> Iterator[VerdictFinding]:
    total, upkeep = report.total, report.maintenance
    if not upkeep.files_to_rewrite:
        return
    joins = (
        f"{plural(total.files, 'file')} become {report.files_after:,}, and the mean size goes from {format_size(total.mean_size)} "
        f"to {format_size(total.bytes / max(report.files_after, 1))}, where {format_size(report.sizes.target)} is aimed at."
    )
    alone = next((count for why, _, count in upkeep.reasons if why == "too few to join in their partition"), 0)
    yield VerdictFinding(
        "act",
        f"A compaction would rewrite {plural(upkeep.files_to_rewrite, 'file')} ({format_size(upkeep.bytes_to_rewrite)}): "
        + (joins if upkeep.output_files < upkeep.files_to_rewrite else "there are as many files afterwards.")
        + (f" {alone:,} more are too few in their partitions to be joined there." if alone else ""),
        "upkeep",
    )


def _deletes(report: Report) -> Iterator[VerdictFinding]:
    deletes, total = report.deletes, report.total
    if deletes.touched_files:
        said = join_with_and(
            [f"{kind.files:,} {kind.name if kind.files > 1 else kind.name[:-1]}" for kind in deletes.kinds]
        )
        rows = f"; {format_percent(total.deleted_share)} of the rows read are deleted" if total.deleted_rows else ""
        heavy = total.deleted_share >= 0.1 or total.has_equality_deletes
        verb = "applies" if deletes.files == 1 else "apply"
        yield VerdictFinding(
            "act" if heavy else "watch",
            f"{said} {verb} to {deletes.touched_files:,} of {plural(total.files, 'data file')}{rows}.",
            "deletes",
        )
    if deletes.dangling_files:
        verb = "applies" if deletes.dangling_files == 1 else "apply"
        yield VerdictFinding(
            "watch", f"{plural(deletes.dangling_files, 'delete file')} {verb} to no live data file.", "deletes"
        )


def _old_specs(report: Report) -> Iterator[VerdictFinding]:
    old = [spec for spec in report.specs_in_use if not spec.is_default]
    files = sum(spec.amounts.files for spec in old)
    if files:
        part = format_percent(files / max(report.total.files, 1))
        yield VerdictFinding(
            "watch",
            f"{plural(files, 'file')} ({part}) are under {plural(len(old), 'old spec')}: filters made for the "
            "current partitioning leave out fewer of them.",
            "map",
        )
    for spec in report.specs_in_use:
        if spec.unknown_transforms:
            yield VerdictFinding(
                "act",
                f"Spec {spec.spec_id} partitions by {join_with_and(list(spec.unknown_transforms))} in a way this engine does not know: "
                f"a filter on that column takes all of its {plural(spec.amounts.files, 'file')}.",
                "filters",
            )


def _filter(report: Report) -> Iterator[VerdictFinding]:
    given = report.filter_matrix.filter_facts
    if given is not None and given.stats.fail_open_partitions:
        yield VerdictFinding(
            "act",
            f"The filter could not be judged for {plural(given.stats.fail_open_partitions, 'partition')}: "
            f"{plural(given.stats.fail_open_files, 'file')} would be taken without knowing.",
            "filters",
        )


def _metadata(report: Report) -> Iterator[VerdictFinding]:
    for step in report.maintenance.steps:
        if step.verb == "rewrite_manifests":
            text = f"The metadata tree is worth tidying: {step.why}, {step.files_saved:,} fewer afterwards."
            yield VerdictFinding("watch", text, "tree")
        if step.verb == "expire_snapshots":
            yield VerdictFinding("watch", f"The past takes room: {step.why}.", "life")


def _failure(report: Report) -> Iterator[VerdictFinding]:
    if report.maintenance.failure:
        yield VerdictFinding("act", "Maintenance could not be planned: the table is damaged or incomplete.", "upkeep")


def _nothing(report: Report) -> Iterator[VerdictFinding]:
    if not report.maintenance.steps and not report.maintenance.failure and report.snapshot_id is not None:
        yield VerdictFinding("fine", "maintain() has nothing to do.", "upkeep")


_RULES: tuple[Rule, ...] = (_failure, _small_files, _deletes, _filter, _old_specs, _metadata, _nothing)


_SIGNS = {"act": "▲", "watch": "●", "fine": "✓"}
_SCREEN_READER_TEXTS = {"act": "Act: ", "watch": "Watch: ", "fine": "Fine: "}


def overview_header(report: Report) -> Markup:
    """Which table this is about, and as of when."""
    facts = [
        f"format version {report.format_version}",
        f"as of {format_time(report.created_at_ms)} UTC",
        "no snapshot" if report.snapshot_id is None else f"snapshot {report.snapshot_id}",
    ]
    return tag(
        "header",
        tag("p", "Table report", class_="kind"),
        tag("h1", name_markup(report.name, 120)),
        tag("p", " · ".join(facts), class_="facts"),
        tag("p", name_markup(report.location), class_="facts"),
    )


def verdict_section(report: Report) -> Markup:
    """The verdict, what it rests on, and the numbers to know."""
    found = verdict_of(report)
    said = tag("h2", found.headline, id="verdict-title")
    findings = tag("ul", join_markup(map(_finding, found.findings)), class_="findings") if found.findings else ""
    return tag(
        "section",
        said,
        findings,
        _key_numbers(report),
        id="verdict",
        class_=found.weight,
        aria_labelledby="verdict-title",
    )


def _finding(finding: VerdictFinding) -> Markup:
    sign = tag("span", _SIGNS[finding.weight], class_="sign", aria_hidden="true")
    weight = tag("span", _SCREEN_READER_TEXTS[finding.weight], class_="spoken")
    return tag("li", sign, weight, tag("a", finding.text, href=f"#{finding.anchor}"), class_=finding.weight)


def _key_numbers(report: Report) -> Markup:
    total, sizes, deletes, tree = report.total, report.sizes, report.deletes, report.tree
    shown = (
        ("Data files", f"{total.files:,}", f"in {plural(report.partitions, 'partition')}"),
        ("Data", format_size(total.bytes), plural(total.rows, "row")),
        ("Median file", format_size(sizes.median), f"{format_size(sizes.target)} aimed at"),
        ("Delete files", f"{deletes.files:,}", f"{format_percent(total.deleted_share)} of rows deleted"),
        ("Specs in use", f"{len(report.specs_in_use):,}", f"of {len(report.specs):,} the table has had"),
        ("Metadata", format_size(_tree_bytes(report)), plural(tree.manifests, "manifest")),
        ("Snapshots", f"{report.history.snapshots:,}", plural(report.schemas, "schema")),
    )
    return tag(
        "dl", join_markup(tag("div", tag("dt", a), tag("dd", b), tag("dd", c, class_="aside")) for a, b, c in shown)
    )


def _tree_bytes(report: Report) -> int:
    return report.tree.metadata_bytes + report.tree.root_bytes + sum(node.bytes for node in report.tree.nodes)
