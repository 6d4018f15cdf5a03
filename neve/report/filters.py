"""The section about filters: which columns let a filter skip files under which spec, and what a filter cannot decide.

A filter that suits the newest spec may not be able to skip any files of old specs.
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
    """Return the transforms of every partitioned column, under each of these specs."""
    columns: dict[int, str] = {}
    transforms: dict[tuple[int, int], list[str]] = {}
    for spec_id in spec_ids:
        for field in specs[spec_id].fields:
            if isinstance(field.transform, VoidTransform):
                continue
            source_id = field.source_id
            schema = next((s for s in specs.schemas if source_id in fields_by_id(s)), None)  # the current one is first
            name = f"column {source_id} (unknown)" if schema is None else str(schema.find_column_name(source_id))
            is_dropped = schema is not None and schema is not specs.schemas[0]
            columns.setdefault(source_id, f"{name} (dropped)" if is_dropped else name)
            text = "?" if isinstance(field.transform, UnknownTransform) else str(field.transform)
            transforms.setdefault((source_id, spec_id), []).append(text)
    cells = tuple(tuple(", ".join(transforms.get((source, spec), ())) for spec in spec_ids) for source in columns)
    return FilterMatrix(tuple(columns.values()), spec_ids, cells, filter_facts)


def filters_section(report: Report) -> Markup:
    """Render the matrix of columns and specs, and the effect of the report's filter."""
    lede = (
        "A filter on a column skips whole partitions only under specs that partition by this column. If the transform "
        "of a spec is unknown, all its files are included: the filter fails open."
    )
    filter_facts = _filter_facts_markup(report.filter_matrix.filter_facts)
    return panel("filters", "Filters", lede, _matrix_table(report), filter_facts)


def _matrix_table(report: Report) -> Markup:
    matrix = report.filter_matrix
    if not matrix.columns:
        return tag("p", "No spec in use partitions by any column.", class_="note")
    files = {spec.spec_id: spec.amounts.files for spec in report.specs}
    heads = (
        tag("th", f"spec {spec_id}", tag("span", plural(files[spec_id], "file"), class_="aside"), scope="col")
        for spec_id in matrix.spec_ids
    )
    head = tag("tr", tag("th", "Filter on", scope="col"), join_markup(heads))
    body = join_markup(
        tag("tr", tag("th", name_markup(column), scope="row"), join_markup(map(_matrix_cell, cells)))
        for column, cells in zip(matrix.columns, matrix.cells, strict=True)
    )
    label = "Specs under which a filter can be evaluated"
    grid = tag("table", tag("caption", label), tag("thead", head), tag("tbody", body), class_="matrix")
    return tag("div", grid, class_="scroll", role="region", aria_label=label, tabindex="0")


def _matrix_cell(transform: str) -> Markup:
    if "?" in transform:
        return tag("td", "▲ fails open", class_="open")
    return tag("td", f"✓ by {transform}", class_="prunes") if transform else tag("td", "reads all", class_="blind")


def _filter_facts_markup(filter_facts: FilterFacts | None) -> Markup:
    if filter_facts is None:
        advice = "Pass a condition to see for which partitions it can be evaluated: "
        return tag("p", advice, tag("code", 't.report("report.html", where="…")'), class_="note")
    stats = filter_facts.stats
    counts = (
        ("Files that match", f"{filter_facts.matching_files:,}"),
        ("Specs that cannot evaluate it", f"{stats.unevaluable_specs:,}"),
        ("Partitions with evaluation errors", f"{stats.eval_errors:,}"),
        ("Partitions included without a decision", f"{stats.fail_open_partitions:,}"),
        ("Files included without a decision", f"{stats.fail_open_files:,}"),
    )
    heading = tag("h3", "A compaction where ", tag("code", name_markup(filter_facts.where, 300)))
    numbers = tag("dl", join_markup(tag("div", tag("dt", what), tag("dd", number)) for what, number in counts))
    notes = join_markup(tag("li", name_markup(note, 500)) for note in filter_facts.notes)
    return join_markup((heading, numbers, tag("ul", notes, class_="notes") if filter_facts.notes else ""))
