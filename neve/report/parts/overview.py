"""The top of the page: which table, the verdict, and the numbers to know."""

from __future__ import annotations

from neve.display.format import moment, several, share, size
from neve.display.html import Markup, joined, tag
from neve.report.parts.pieces import name
from neve.report.values import Report
from neve.report.verdict import Finding, verdict_of

__all__ = ["header", "verdict"]

_SIGNS = {"act": "▲", "watch": "●", "fine": "✓"}
_SPOKEN = {"act": "Act: ", "watch": "Watch: ", "fine": "Fine: "}


def header(report: Report) -> Markup:
    """Which table this is about, and as of when."""
    facts = [
        f"format version {report.format_version}",
        f"as of {moment(report.made_at_ms)} UTC",
        "no snapshot" if report.snapshot_id is None else f"snapshot {report.snapshot_id}",
    ]
    return tag(
        "header",
        tag("p", "Table report", class_="kind"),
        tag("h1", name(report.name, 120)),
        tag("p", " · ".join(facts), class_="facts"),
        tag("p", name(report.location), class_="facts"),
    )


def verdict(report: Report) -> Markup:
    """The verdict, what it rests on, and the numbers to know."""
    found = verdict_of(report)
    said = tag("h2", found.headline, id="verdict-title")
    findings = tag("ul", joined(map(_finding, found.findings)), class_="findings") if found.findings else ""
    return tag(
        "section", said, findings, _numbers(report), id="verdict", class_=found.weight, aria_labelledby="verdict-title"
    )


def _finding(finding: Finding) -> Markup:
    sign = tag("span", _SIGNS[finding.weight], class_="sign", aria_hidden="true")
    weight = tag("span", _SPOKEN[finding.weight], class_="spoken")
    return tag("li", sign, weight, tag("a", finding.text, href=f"#{finding.anchor}"), class_=finding.weight)


def _numbers(report: Report) -> Markup:
    total, sizes, deletes, tree = report.total, report.sizes, report.deletes, report.tree
    shown = (
        ("Data files", f"{total.files:,}", f"in {several(report.partitions, 'partition')}"),
        ("Data", size(total.bytes), several(total.rows, "row")),
        ("Median file", size(sizes.median), f"{size(sizes.target)} aimed at"),
        ("Delete files", f"{deletes.files:,}", f"{share(total.deleted_share)} of rows deleted"),
        ("Specs in use", f"{len(report.specs_in_use):,}", f"of {len(report.specs):,} the table has had"),
        ("Metadata", size(_tree_bytes(report)), several(tree.manifests, "manifest")),
        ("Snapshots", f"{report.life.snapshots:,}", several(report.schemas, "schema")),
    )
    return tag("dl", joined(tag("div", tag("dt", a), tag("dd", b), tag("dd", c, class_="aside")) for a, b, c in shown))


def _tree_bytes(report: Report) -> int:
    return report.tree.metadata_bytes + report.tree.root_bytes + sum(node.bytes for node in report.tree.nodes)
