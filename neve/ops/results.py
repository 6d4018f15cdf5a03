"""What a verb did, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["WriteResult"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write changed. No snapshot is made when there was nothing to change."""

    snapshot_id: int | None
    rows_added: int = 0
    files_added: int = 0
    bytes_added: int = 0
    files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    files_removed: int = 0
    rows_removed: int = 0
    attempts: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
