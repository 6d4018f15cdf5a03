"""Bugs that are planted in the engine of a process with its own Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from neve.run.spark import write

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def list_the_folder() -> None:
    """Commit every file of the write, also files of failed attempts."""
    written_entries = write.written_entries

    def listed(results: Any, target: Any) -> pa.Table:
        files = written_entries(results, target)
        folder = Path(target.location.removeprefix("file://"))
        known = set(files["file_path"].to_pylist())
        write_id = re.search(UUID, next(iter(known)))[0]  # type: ignore[index]
        others = [p for p in folder.rglob(f"*{write_id}*.parquet") if f"file://{p}" not in known]
        more = [files.slice(0, 1).set_column(*_path_column(files, f"file://{p}")) for p in others]
        return pa.concat_tables([files, *more])

    write.written_entries = listed


def _path_column(files: pa.Table, path: str) -> tuple[int, pa.Field, pa.Array]:
    """Return the index, field and array for a path column with one path."""
    at = files.schema.get_field_index("file_path")
    return at, files.schema.field(at), pa.array([path], files.schema.field(at).type)
