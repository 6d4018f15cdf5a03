"""MkDocs hooks: add the decisions to the navigation, and embed pictures in the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
OPTIONAL = {"guarantees.md": "Guarantees", "benchmarks.md": "Benchmarks"}
PICTURE = re.compile(r'<img [^>]*src="[^"]*?(?P<path>assets/[\w-]+\.svg)"[^>]*>')


def on_config(config: Any) -> Any:
    """Add the decision pages and the optional pages that exist to the navigation."""
    nav = config["nav"]
    at = next(n for n, entry in enumerate(nav) if "Decisions" in entry)
    nav[at] = {"Decisions": [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("[0-9]*.md"))]}
    nav[at:at] = [{title: name} for name, title in OPTIONAL.items() if (DOCS / name).exists()]
    return config


def on_page_content(html: str, **_: Any) -> str:
    """Embed SVG pictures in the page: a separate image would not follow the switch between light and dark."""
    return PICTURE.sub(lambda found: (DOCS / found["path"]).read_text(), html)
