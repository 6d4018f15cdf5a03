"""Plan which files to read into a table, and the values that the names of their folders give: `region=eu/x.parquet`.

Folders are read as Spark and Hive write them. The values have the types of the table's columns: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from neve.display.format import format_size, plural
from neve.errors import UnknownName, UserError
from neve.model.partition import value_arrow_type
from neve.plan.partition_folders import NULL_FOLDER, file_formats, read_folder_value, split_segment, visible_files

FOLDER_VALUE = "folder."  # before the names of columns whose values are in the names of folders


@dataclass(frozen=True)
class IngestPlan:
    """The files to read, with the values that their folders give, and the spec that their rows are written to."""

    files: pa.Table  # path, format, size, and a column for each value of the folders
    spec_id: int

    @property
    def folder_columns(self) -> list[str]:
        """The columns whose values are in the names of folders."""
        return [n.removeprefix(FOLDER_VALUE) for n in self.files.column_names if n.startswith(FOLDER_VALUE)]

    def explain(self) -> str:
        """Describe the plan in words."""
        size = format_size(pc.sum(self.files["file_size_in_bytes"]).as_py() or 0)
        named = f", with {' and '.join(self.folder_columns)} from the names of folders" if self.folder_columns else ""
        files = plural(self.files.num_rows, "file")
        return f"read {files} ({size}){named}; write their rows under partition spec {self.spec_id}"


def plan_ingestion(
    listing: pa.Table,
    schema: Schema,
    spec_id: int,
    *,
    root: str | None = None,
    file_format: str | None = None,
    zone: tzinfo = UTC,
) -> IngestPlan:
    """Plan to read the files of a listing (path, size); below `root`, hidden files are skipped."""
    listing = listing if root is None else visible_files(listing, root)
    paths = listing["path"].combine_chunks()
    zeros = np.zeros(len(paths), np.int32)
    columns: dict[str, Any] = {
        "file_path": paths,
        "file_format": file_formats(paths, file_format),
        "file_size_in_bytes": listing["size"].combine_chunks(),
        "part": pa.array(zeros),
        "parts": pa.array(zeros + 1),
    }
    encoded = pc.list_element(pc.split_pattern(paths, "/", max_splits=1, reverse=True), 0).dictionary_encode()
    folders = encoded.dictionary.to_pylist()
    texts = [_texts_of_folder(folder, root, schema) for folder in folders]
    _refuse_different_names(texts, folders)
    for name in texts[0] if texts else ():
        kind = schema.find_type(name)
        values = [
            None if each[name] == NULL_FOLDER else read_folder_value(each[name], name, kind, f"Folder {folder}", zone)
            for each, folder in zip(texts, folders, strict=True)
        ]
        columns[f"{FOLDER_VALUE}{name}"] = pa.array(values, value_arrow_type(kind)).take(encoded.indices)
    return IngestPlan(pa.table(columns), spec_id)


def _texts_of_folder(folder: str, root: str | None, schema: Schema) -> dict[str, str]:
    """Return the texts of the `name=text` folders above a file, by the names of the table's columns.

    Below the root, a name that is no column is an error. Above it, names may have nothing to do with the table, so only
    folders right above the file or the root count, and only those that name a column.
    """
    columns = {f.name.lower(): f.name for f in schema.fields}
    above = folder if root is None else root
    below = [] if root is None else [each for each in folder[len(root) :].split("/") if "=" in each]
    outside = [*takewhile(lambda each: "=" in each, reversed(above.split("/")))]
    texts: dict[str, str] = {}
    for segment in [*below, *outside]:
        name, text = split_segment(segment)
        if name.lower() not in columns:
            if segment in below:
                raise UnknownName("column", name, columns.values(), f"the table, which folder {folder} names")
            continue
        column = columns[name.lower()]
        if column in texts:
            raise UserError(f"Folder {folder} gives two values to column {column!r}: {texts[column]!r} and {text!r}.")
        texts[column] = text
    return texts


def _refuse_different_names(texts: Sequence[Mapping[str, str]], folders: Sequence[str]) -> None:
    """Reject folders of which only some give a column: the rows of the others would have no value."""
    for each, folder in zip(texts, folders, strict=True):
        if each.keys() != texts[0].keys():
            one, other = (" and ".join(sorted(names)) or "no column" for names in (texts[0], each))
            raise UserError(
                f"Cannot read {folders[0]} and {folder} together: the folders give values to {one}, and to {other}. "
                "Give folders that are partitioned alike, one after the other."
            )
