"""Render the report as a page, write it to a file, and render the card of a table for notebooks.

The page is one self-contained document, and its content security policy does not let it load anything else. The card
shows the name, size and columns of a table, from metadata that is already loaded.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

from pyiceberg.expressions import BooleanExpression

from neve._version import __version__
from neve.display.format import format_time, plural
from neve.display.html import Markup, card, join_markup, pairs_table, shorten_middle, tag
from neve.errors import UserError
from neve.ops.context import TableContext
from neve.report.columns import properties_section, schema_section
from neve.report.files import deletes_section, sizes_section
from neve.report.filters import filters_section
from neve.report.gather import gather_report
from neve.report.history import describe_spec, history_section
from neve.report.maintenance import maintenance_section
from neve.report.overview import overview_header, verdict_section
from neve.report.partitions import partitions_section
from neve.report.tree import tree_section
from neve.report.values import Report

_SECTIONS = (
    ("upkeep", "What to do", maintenance_section),
    ("map", "Partitions", partitions_section),
    ("sizes", "File sizes", sizes_section),
    ("deletes", "Deletes", deletes_section),
    ("life", "History", history_section),
    ("tree", "Metadata tree", tree_section),
    ("filters", "Filters", filters_section),
    ("schema", "Schema", schema_section),
    ("names", "Names", properties_section),
)


def render_page(report: Report) -> str:
    """Return the whole page as text."""
    links = join_markup(tag("a", title, href=f"#{anchor}") for anchor, title, _ in _SECTIONS)
    body = tag(
        "body",
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        overview_header(report),
        tag("nav", links, aria_label="Sections"),
        tag("main", verdict_section(report), *(render(report) for _, _, render in _SECTIONS)),
        tag("footer", f"Created by Névé {__version__} from metadata only; no data file was opened."),
        tag("div", id="tip", hidden=True),
        Markup(f"<script>{_page_asset('page.js')}</script>"),
    )
    return f"<!doctype html>\n{tag('html', _head(report), body, lang='en')}\n"


def _head(report: Report) -> Markup:
    style, script = _page_asset("page.css"), _page_asset("page.js")
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (style, script))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{report.name}: table report"[:200]),
        Markup(f"<style>{style}</style>"),
    )


@cache
def _page_asset(name: str) -> str:
    return files("neve.report").joinpath("look", name).read_text("utf-8")


def write_report(context: TableContext, path: str | Path, where: str | BooleanExpression | None = None) -> Path:
    """Write the page about a table and return its path; an existing file is replaced.

    A symbolic link is replaced too, so that the page is never written to a file that somebody else chose.
    """
    text, target = render_page(gather_report(context, where)), Path(path)
    draft = target.with_name(f".{target.name}-{uuid4().hex}")
    try:
        if target.is_fifo() or target.is_char_device():  # such as /dev/stdout
            target.write_text(text, encoding="utf-8")
        else:
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
            draft.replace(target)
    except OSError as e:
        draft.unlink(missing_ok=True)
        raise UserError(
            f"Cannot write the report to {target}: {e.strerror or e}. Give a path that can be written."
        ) from e
    return target.absolute()


_MOST_COLUMNS = 20
_MAX_LENGTH = 60  # of a name or type
_TOTALS = (("total-records", "row"), ("total-data-files", "data file"), ("total-delete-files", "delete file"))


def table_card(context: TableContext) -> str:
    """Return the card of a table; no file is read for it."""
    metadata = context.metadata
    contents, snapshot = "nothing yet", metadata.current_snapshot()
    if snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        counts = [plural(int(n), name) for key, name in _TOTALS if (n := summary.get(key, "")).isdecimal() and n != "0"]
        contents = ", ".join([*counts, f"last changed {format_time(snapshot.timestamp_ms)} UTC"])
    fields = metadata.schema().fields
    columns = [
        tag("code", f"{shorten_middle(f.name, _MAX_LENGTH)} {shorten_middle(str(f.field_type), _MAX_LENGTH)}")
        for f in fields[:_MOST_COLUMNS]
    ]
    more = [f"and {len(fields) - _MOST_COLUMNS:,} more"] if len(fields) > _MOST_COLUMNS else []
    facts = {
        "contents": contents,
        "format": f"version {metadata.format_version}, {plural(len(metadata.partition_specs), 'spec')}",
        "partitioned by": shorten_middle(describe_spec(metadata.spec()), 200),
        "location": metadata.location,
        "columns": join_markup((*columns, *more), ", "),
    }
    return card("Table", context.name, pairs_table(facts))
