"""Which kinds of delete files a format version takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

from neve.tree.entries import Content, EntryTable
from neve.tree.grouping import vectors_in

__all__ = ["unfit_deletes"]


def unfit_deletes(metadata: TableMetadata, deletes: EntryTable) -> tuple[np.ndarray[Any, Any], str]:
    """The delete files that a table cannot take, and why; the table may have been upgraded since they were written."""
    content, is_vector = deletes.numpy("content"), vectors_in(deletes)
    by_file = (content == Content.POSITION_DELETES) & ~is_vector
    match version := int(metadata.format_version):
        case 1:
            why = "A version 1 table has no delete files. Upgrade it, or rewrite the data files."
            return np.full(len(deletes), True), why
        case 2:
            return is_vector, "A version 2 table has no deletion vectors. Write position delete files."
        case 3:
            return by_file, "A version 3 table takes position deletes as deletion vectors only."
        case _:
            formats = deletes["file_format"].cast(pa.string())
            unreadable = by_file & ~pc.is_in(formats, value_set=pa.array(["PARQUET", "AVRO"])).to_numpy()
            why = (
                f"A version {version} table takes new deletes by position only: deletion vectors, or position delete "
                "files in Parquet or Avro, which become vectors."
            )
            return unreadable | (content == Content.EQUALITY_DELETES), why
