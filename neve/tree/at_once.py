"""How many manifests are read at once."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.io import FileIO

from neve.io.parallel import readers
from neve.tree.entries import Manifest

__all__ = ["at_once"]


def at_once(io: FileIO, manifests: Collection[Manifest]) -> int:
    """How many of some manifests are worth reading at once."""
    return readers(io, (m.file for m in manifests), sum(m.length for m in manifests))
