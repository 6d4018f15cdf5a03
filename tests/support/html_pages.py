"""A page as a browser takes it apart, by Python's own parser: elements, attributes and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "col", "input", "link", "meta"}
# everything the page and the cards are made of; what else turned up would have come from a table
_PAGE = "html head title style script body header nav main section footer div p h1 h2 h3 h4 a ul li dl dt dd"
_TEXT = "i b bdi span strong code pre table caption thead tbody tr th td button fieldset legend label details summary"
ELEMENTS = VOID | {*_PAGE.split(), *_TEXT.split(), "svg", "g", "rect", "line", "circle", "text"}


@dataclass
class Reading(HTMLParser):
    """What was found; elements have to be closed in the order they were opened."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, html: str) -> Reading:
        reading = cls()
        reading.feed(html)
        reading.close()
        assert not reading.open
        return reading

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def text(self) -> str:
        """All that is read, without scripts and styles."""
        return " ".join(t for tag, texts in self.texts.items() if tag not in {"script", "style"} for t in texts)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """The attributes of the elements of a name that have some attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]

    def assert_harmless(self) -> None:
        """Nothing that runs, loads or leads elsewhere; every character shows."""
        for tag, attributes in self.elements:
            assert tag in ELEMENTS, tag
            assert not [name for name in attributes if name.startswith("on") or name in {"src", "srcdoc", "action"}]
            assert attributes.get("href", "#").startswith("#") or attributes == {"rel": "icon", "href": "data:,"}
        shown = self.text() + "".join(value or "" for _, attributes in self.elements for value in attributes.values())
        hidden = {c for c in shown if not c.isprintable() and c not in "\n\u00a0"}
        assert not hidden, hidden
