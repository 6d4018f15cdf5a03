"""The page: one document that needs nothing else, under a policy that lets it load nothing else."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from neve.display.html import Markup, joined, plain, tag
from neve.report.parts import columns, filters, life, overview, partitions, tree, upkeep
from neve.report.parts import files as file_parts
from neve.report.values import Report

__all__ = ["page"]

_SECTIONS = (
    ("upkeep", "What to do", upkeep.section),
    ("map", "Partitions", partitions.section),
    ("sizes", "File sizes", file_parts.sizes),
    ("deletes", "Deletes", file_parts.deletes),
    ("life", "Life", life.section),
    ("tree", "Metadata tree", tree.section),
    ("filters", "Filters", filters.section),
    ("schema", "Schema", columns.section),
    ("names", "Names", columns.properties),
)


def page(report: Report) -> str:
    """The whole page as text."""
    return f"<!doctype html>\n{tag('html', _head(report), _body(report), lang='en')}\n"


def _head(report: Report) -> Markup:
    style, script = _look("page.css"), _look("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
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


def _body(report: Report) -> Markup:
    links = joined(tag("a", title, href=f"#{anchor}") for anchor, title, _ in _SECTIONS)
    return tag(
        "body",
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        overview.header(report),
        tag("nav", links, aria_label="Sections"),
        tag("main", overview.verdict(report), *(render(report) for _, _, render in _SECTIONS)),
        tag("footer", f"Made by Névé {plain(report.neve_version)} from the metadata alone; no data file was opened."),
        tag("div", id="tip", hidden=True),
        Markup(f"<script>{_look('page.js')}</script>"),
    )


@cache
def _look(name: str) -> str:
    """A part of the page that is the same for every table."""
    return files("neve.report").joinpath("look", name).read_text("utf-8")


def _hash(text: str) -> str:
    """What the policy knows a style or a script by."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
