"""Whether another table keeps its metadata where a table keeps its own: to each, the files of the other are orphans.

Every metadata file says the id of its table, and says it first: a few bytes of each are read. Metadata of another table
that has no snapshots leads to nothing; it may be what a creation that was killed has left, and does not count.
"""

from __future__ import annotations

import re
import zlib
from uuid import UUID

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.catalog.metadata_files import read_metadata
from neve.errors import CorruptFile, MissingFile
from neve.io.files import read_range
from neve.io.parallel import in_threads, readers

__all__ = ["metadata_of_another"]

_HEAD = 4 << 10
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_GZIP_MAGIC = b"\x1f\x8b"


def metadata_of_another(io: FileIO, stored: pa.Table, own: UUID) -> str | None:
    """The first of some metadata files, by path and size, that is of another table with snapshots; None without one."""
    files = stored.sort_by("path").select(["path", "size"]).to_pylist()
    threads = readers(io, (f["path"] for f in files), len(files) * _HEAD)
    told = in_threads(lambda f: _told_id(io, f["path"], f["size"]), files, threads)
    others = (f["path"] for f, id_ in zip(files, told, strict=True) if id_ not in (None, str(own)))
    return next((path for path in others if _leads_somewhere(io, path)), None)


def _told_id(io: FileIO, path: str, size: int) -> str | None:
    """The id that a metadata file begins with; None where it says none, as the first ones of version 1 do."""
    try:
        head = read_range(io, path, 0, min(size, _HEAD))
        found = _UUID.search(zlib.decompressobj(wbits=31).decompress(head, _HEAD) if head[:2] == _GZIP_MAGIC else head)
    except (MissingFile, CorruptFile, zlib.error):  # gone meanwhile, or not finished
        return None
    return found[1].decode(errors="replace").lower() if found else None


def _leads_somewhere(io: FileIO, path: str) -> bool:
    try:
        return bool(read_metadata(io, path).snapshots)
    except (MissingFile, CorruptFile):
        return False
