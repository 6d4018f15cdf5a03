"""Code that no table may choose to run: it leaves a mark where the lake is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Trap:
    """A `FileIO` in name; being loaded at all is the fault."""

    def __init__(self, properties: Any) -> None:
        Path(os.environ["NEVE_TRAP"]).write_text("loaded")
