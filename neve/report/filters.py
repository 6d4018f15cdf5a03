"""Which filters can leave files out, under which spec: one that suits the newest spec may be blind for old ones.

Which filters leave files out under which spec, and what a filter that was given could not decide.
"""

from __future__ import annotations

from pyiceberg.transforms import UnknownTransform, VoidTransform

from neve.display.format import plural
from neve.display.html import Markup, join_markup, tag
from neve.model.partition import Specs
from neve.model.pyiceberg_private import fields_by_id
from neve.report.html import name_markup, panel
from neve.report.values import FilterFacts, FilterMatrix, Report


def filter_matrix_of(specs: Specs, spec_ids: tuple[int, ...], filter_facts: FilterFacts | None) -> FilterMatrix:
    """For every column some spec in use partitions by: by which transform, under each spec."""
    columns: dict[int, str] = {}
    found: dict[tuple[int, int], list[str]] = {}
    for spec_id in spec_ids:
        for field in specs[spec_id].fields:
            if isinstance(field.transform, VoidTransform):
                continue
            columns.setdefault(field.source_id, _source_column_name(specs, field.source_id))
            said = "?" if isinstance(field.transform, UnknownTransform) else str(field.transform)
            found.setdefault((field.source_id, spec_id), []).append(said)
    cells = tuple(tuple(", ".join(found.get((source, spec), ())) for spec in spec_ids) for source in columns)
    return FilterMatrix(tuple(columns.values()), spec_ids, cells, filter_facts)


def _source_column_name(specs: Specs, source_id: int) -> str:
    current, *older = specs.schemas
    if source_id in fields_by_id(current):
        return str(current.find_column_name(source_id))
    schema = next((s for s in older if source_id in fields_by_id(s)), None)
    return f"column {source_id} (gone)" if schema is None else f"{schema.find_column_name(source_id)} (dropped)"


def filters_section(report: Report) -> Markup:
    """The matrix of columns and specs, and the filter that was given."""
    pruning = report.filter_matrix
    lede = (
        "A filter on a column leaves out whole partitions only under specs that partition by it. Where a spec does so "
        "in a way that is not known, its files are taken: the filter fails open."
    )
    return panel("filters", "Filters", lede, _matrix_table(report, pruning), _filter_facts_markup(pruning.filter_facts))


def _matrix_table(report: Report, pruning: FilterMatrix) -> Markup:
    if not pruning.columns:
        return tag("p", "No spec in use partitions by any column.", class_="note")
    files = {spec.spec_id: spec.amounts.files for spec in report.specs}
    heads = (
        tag("th", f"spec {spec_id}", tag("span", plural(files[spec_id], "file"), class_="aside"), scope="col")
        for spec_id in pruning.spec_ids
    )
    head = tag("tr", tag("th", "Filter on", scope="col"), join_markup(heads))
    body = join_markup(
        tag("tr", tag("th", name_markup(column), scope="row"), join_markup(map(_judged, cells)))
        for column, cells in zip(pruning.columns, pruning.cells, strict=True)
    )
    caption = tag("caption", "Which specs a filter can be judged under")
    grid = tag("table", caption, tag("thead", head), tag("tbody", body), class_="matrix")
    label = "Which specs a filter can be judged under"
    return tag("div", grid, class_="scroll", role="region", aria_label=label, tabindex="0")


def _judged(transform: str) -> Markup:
    if "?" in transform:
        return tag("td", "▲ fails open", class_="open")
    return tag("td", f"✓ by {transform}", class_="prunes") if transform else tag("td", "reads all", class_="blind")


def _filter_facts_markup(filter_facts: FilterFacts | None) -> Markup:
    if filter_facts is None:
        advice = "Give a condition to see which partitions it can be judged for: "
        return tag("p", advice, tag("code", 't.report("report.html", where="…")'), class_="note")
    stats = filter_facts.stats
    counts = (
        ("Files that match", f"{filter_facts.matching_files:,}"),
        ("Specs that cannot express it", f"{stats.unevaluable_specs:,}"),
        ("Partitions it failed for", f"{stats.eval_errors:,}"),
        ("Partitions taken undecided", f"{stats.fail_open_partitions:,}"),
        ("Files taken undecided", f"{stats.fail_open_files:,}"),
    )
    numbers = tag("dl", join_markup(tag("div", tag("dt", what), tag("dd", number)) for what, number in counts))
    notes = (
        tag("ul", join_markup(tag("li", name_markup(note, 500)) for note in filter_facts.notes), class_="notes")
        if filter_facts.notes
        else ""
    )
    return join_markup(
        (tag("h3", "A compaction where ", tag("code", name_markup(filter_facts.where, 300))), numbers, notes)
    )
