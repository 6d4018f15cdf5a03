"""Code that no table may cause to run: it writes a marker file outside the lake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Trap:
    """A `FileIO` by its name only; creating it is the fault."""

    def __init__(self, properties: Any) -> None:
        Path(os.environ["NEVE_TRAP"]).write_text("loaded")
