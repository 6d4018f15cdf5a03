"""The top of the page: the table's name, the verdict in one sentence, the findings it is based on, and key numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from neve.display.format import format_percent, format_size, format_time, join_with_and, plural
from neve.display.html import Markup, tag
from neve.report.html import name_markup
from neve.report.values import Report

Weight: TypeAlias = Literal["act", "watch", "fine"]


@dataclass(frozen=True, slots=True)
class VerdictFinding:
    """A fact that matters to the reader, and the section that shows it."""

    weight: Weight
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline, and the findings below it, the most important first."""

    headline: str
    findings: tuple[VerdictFinding, ...]

    @property
    def weight(self) -> Weight:
        """The weight of the most important finding."""
        return min((f.weight for f in self.findings), key=_ORDER.index, default="fine")


_ORDER: tuple[Weight, ...] = ("act", "watch", "fine")


def verdict_of(report: Report) -> Verdict:
    """Return the verdict on a table."""
    findings = [finding for rule in _RULES for finding in rule(report)]
    findings.sort(key=lambda finding: _ORDER.index(finding.weight))
    return Verdict(_headline(report, findings), tuple(findings))


def _headline(report: Report, findings: Iterable[VerdictFinding]) -> str:
    if report.metadata.current_snapshot_id is None:
        return "Nobody has written to this table yet."
    if not report.total.files:
        return "The table is empty: no live data file."
    if report.maintenance.files_to_rewrite:
        return _compaction_headline(report)
    total, in_specs = report.total, _in_specs(s.amounts.files for s in report.specs)
    if any(finding.weight == "act" for finding in findings):
        return f"{plural(total.files, 'data file')}{in_specs}: none to compact, but there are other problems."
    if total.small_files == total.files:
        return f"{plural(total.files, 'small file')}{in_specs}, too few in each partition to be worth joining."
    return f"In good shape: {plural(total.files, 'data file')}{in_specs} of {format_size(total.mean_size)} on average."


def _in_specs(file_counts: Iterable[int]) -> str:
    """Return in how many specs there are files, if it is more than one."""
    specs = sum(count > 0 for count in file_counts)
    return f" in {plural(specs, 'spec')}" if specs > 1 else ""


def _compaction_headline(report: Report) -> str:
    """Return how many files a compaction rewrites, by reason, and its effect."""
    outlook = report.maintenance
    counts: dict[str, int] = {}
    for why, is_taken, count in outlook.reasons:
        if is_taken:
            adjective = _ADJECTIVES.get(why, "delete-heavy")
            counts[adjective] = counts.get(adjective, 0) + count
    largest_first = sorted(counts.items(), key=lambda pair: -pair[1])
    counted = join_with_and([f"{count:,} {adjective}" for adjective, count in largest_first])
    files, it, its = ("file", "it", "its") if outlook.files_to_rewrite == 1 else ("files", "them", "their")
    if outlook.output_files < outlook.files_to_rewrite:
        effect = f"leave {outlook.output_files:,} in their place"
    else:
        effect = f"rewrite {it}" + (f" without {its} deleted rows" if report.deletes.touched_files else "")
    in_specs = _in_specs(s.amounts.taken for s in report.specs)
    return f"{counted} {files}{in_specs}; a compaction would {effect}."


_ADJECTIVES = {"too small": "small", "too large": "oversized"}
Rule: TypeAlias = Callable[[Report], Iterator[VerdictFinding]]


def _small_files(report: Report) -> Iterator[VerdictFinding]:
    total, outlook = report.total, report.maintenance
    if not outlook.files_to_rewrite:
        return
    effect = "there are as many files afterwards."
    if outlook.output_files < outlook.files_to_rewrite:
        mean_after = format_size(total.bytes / max(report.files_after, 1))
        effect = (
            f"{plural(total.files, 'file')} become {report.files_after:,}, and the mean size goes from "
            f"{format_size(total.mean_size)} to {mean_after}; the target is {format_size(report.sizes.target)}."
        )
    alone = next((count for why, _, count in outlook.reasons if why == "too few to join in their partition"), 0)
    yield VerdictFinding(
        "act",
        f"A compaction would rewrite {plural(outlook.files_to_rewrite, 'file')} "
        f"({format_size(outlook.bytes_to_rewrite)}): {effect}"
        + (f" {alone:,} more are too few in their partitions to be joined there." if alone else ""),
        "upkeep",
    )


def _deletes(report: Report) -> Iterator[VerdictFinding]:
    deletes, total = report.deletes, report.total
    if deletes.touched_files:
        counted = join_with_and(
            [f"{kind.files:,} {kind.name if kind.files > 1 else kind.name[:-1]}" for kind in deletes.kinds]
        )
        rows = f"; {format_percent(total.deleted_share)} of the rows read are deleted" if total.deleted_rows else ""
        is_heavy = total.deleted_share >= 0.1 or total.has_equality_deletes
        verb = "applies" if deletes.files == 1 else "apply"
        yield VerdictFinding(
            "act" if is_heavy else "watch",
            f"{counted} {verb} to {deletes.touched_files:,} of {plural(total.files, 'data file')}{rows}.",
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
        share = format_percent(files / max(report.total.files, 1))
        yield VerdictFinding(
            "watch",
            f"{plural(files, 'file')} ({share}) are under {plural(len(old), 'old spec')}: filters made for the "
            "current partitioning skip fewer of them.",
            "map",
        )
    for spec in report.specs_in_use:
        if spec.unknown_transforms:
            fields = join_with_and(list(spec.unknown_transforms))
            yield VerdictFinding(
                "act",
                f"Spec {spec.spec_id} partitions by {fields} with a transform that this engine does not support: a "
                f"filter on that column includes all of its {plural(spec.amounts.files, 'file')}.",
                "filters",
            )


def _filter(report: Report) -> Iterator[VerdictFinding]:
    facts = report.filter_matrix.filter_facts
    if facts is not None and facts.stats.fail_open_partitions:
        yield VerdictFinding(
            "act",
            f"The filter could not be evaluated for {plural(facts.stats.fail_open_partitions, 'partition')}: "
            f"{plural(facts.stats.fail_open_files, 'file')} would be included without a decision.",
            "filters",
        )


def _metadata(report: Report) -> Iterator[VerdictFinding]:
    for step in report.maintenance.steps:
        if step.verb == "rewrite_manifests":
            text = f"The metadata tree is worth rewriting: {step.why}, {step.files_saved:,} fewer afterwards."
            yield VerdictFinding("watch", text, "tree")
        if step.verb == "expire_snapshots":
            yield VerdictFinding("watch", f"Old snapshots take up space: {step.why}.", "life")


def _failure(report: Report) -> Iterator[VerdictFinding]:
    if report.maintenance.failure:
        yield VerdictFinding("act", "Maintenance could not be planned: the table is damaged or incomplete.", "upkeep")


def _nothing_to_do(report: Report) -> Iterator[VerdictFinding]:
    outlook = report.maintenance
    if not outlook.steps and not outlook.failure and report.metadata.current_snapshot_id is not None:
        yield VerdictFinding("fine", "maintain() has nothing to do.", "upkeep")


_RULES: tuple[Rule, ...] = (_failure, _small_files, _deletes, _filter, _old_specs, _metadata, _nothing_to_do)
_SIGNS = {"act": "▲", "watch": "●", "fine": "✓"}


def overview_header(report: Report) -> Markup:
    """Render the name of the table and the state that the report shows."""
    metadata = report.metadata
    facts = [
        f"format version {metadata.format_version}",
        f"as of {format_time(report.created_at_ms)} UTC",
        "no snapshot" if metadata.current_snapshot_id is None else f"snapshot {metadata.current_snapshot_id}",
    ]
    return tag(
        "header",
        tag("p", "Table report", class_="kind"),
        tag("h1", name_markup(report.name, 120)),
        tag("p", " · ".join(facts), class_="facts"),
        tag("p", name_markup(metadata.location), class_="facts"),
    )


def verdict_section(report: Report) -> Markup:
    """Render the verdict, its findings, and the key numbers."""
    verdict = verdict_of(report)
    headline = tag("h2", verdict.headline, id="verdict-title")
    items = []
    for finding in verdict.findings:
        sign = tag("span", _SIGNS[finding.weight], class_="sign", aria_hidden="true")
        weight = tag("span", f"{finding.weight.capitalize()}: ", class_="spoken")
        link = tag("a", finding.text, href=f"#{finding.anchor}")
        items.append(tag("li", sign, weight, link, class_=finding.weight))
    findings = tag("ul", *items, class_="findings") if items else ""
    total, sizes, deletes, tree = report.total, report.sizes, report.deletes, report.tree
    tree_bytes = tree.metadata_bytes + tree.root_bytes + sum(node.bytes for node in tree.nodes)
    numbers = (
        ("Data files", f"{total.files:,}", f"in {plural(report.partitions, 'partition')}"),
        ("Data", format_size(total.bytes), plural(total.rows, "row")),
        ("Median file", format_size(sizes.median), f"target {format_size(sizes.target)}"),
        ("Delete files", f"{deletes.files:,}", f"{format_percent(total.deleted_share)} of rows deleted"),
        ("Specs in use", f"{len(report.specs_in_use):,}", f"of {len(report.specs):,}"),
        ("Metadata", format_size(tree_bytes), plural(tree.manifests, "manifest")),
        ("Snapshots", f"{report.history.snapshots:,}", plural(len(report.metadata.schemas), "schema")),
    )
    pairs = (tag("div", tag("dt", a), tag("dd", b), tag("dd", c, class_="aside")) for a, b, c in numbers)
    body = (headline, findings, tag("dl", *pairs))
    return tag("section", *body, id="verdict", class_=verdict.weight, aria_labelledby="verdict-title")
