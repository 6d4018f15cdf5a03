"""Equality deletes in tables whose version takes no new ones from us: other engines may put them there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata

from neve.commit import preconditions as requests
from neve.tree.checks import unsupported_deletes
from neve.tree.entries import Content, EntryTable

__all__ = ["another_engine_writes"]


@contextmanager
def another_engine_writes() -> Iterator[None]:
    """Commits stand in for those of an engine that writes equality deletes to tables of every version but the first."""

    def unfit(metadata: TableMetadata, deletes: EntryTable) -> tuple[Any, str]:
        wrong, message = unsupported_deletes(metadata, deletes)
        by_value = deletes.numpy("content") == Content.EQUALITY_DELETES
        return wrong & ~(by_value & (metadata.format_version > 1)), message

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "unsupported_deletes", unfit)
        yield
