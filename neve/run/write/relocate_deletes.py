"""Write position delete files again that name their data files by other paths."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.io import FileIO

from neve.errors import CorruptFile, UnsupportedFeature
from neve.io.avro import Projection, decode, encode
from neve.io.avro.codecs import COMPRESSORS
from neve.io.files import read_file
from neve.io.paths import PrefixChange
from neve.io.puffin import replace_referenced_files
from neve.io.untrusted import translate_decoder_errors
from neve.run.read.metadata_columns import DELETE_PATH_ID

_ID_KEYS = (b"PARQUET:field_id", b"field-id", b"iceberg.id")
_PATH_NAME = "file_path"
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4", "lzo": "zstd"}  # where a reader and a writer name one otherwise


@dataclass(frozen=True, slots=True)
class RelocatedDeletes:
    """The bytes of a delete file with other paths, and the first and last data file that it names."""

    data: bytes
    path_range: tuple[str, str] | None = None  # None for vectors, and for a file without rows


def relocate_delete_file(io: FileIO, path: str, file_format: str, change: PrefixChange) -> RelocatedDeletes:
    """Read a position delete file, or a file of vectors, and encode it with the new paths of its data files.

    The rows keep their order and all other columns. The vectors keep their offsets.
    """
    if file_format.upper() == "PUFFIN":
        return RelocatedDeletes(replace_referenced_files(io, path, change.apply))
    encoders = {"PARQUET": _relocate_parquet, "AVRO": _relocate_avro, "ORC": _relocate_orc}
    if file_format.upper() not in encoders:
        raise UnsupportedFeature(f"Cannot change paths in delete file {path}: unknown format {file_format!r}.")
    data = read_file(io, path)
    with translate_decoder_errors(path, f"a position delete file in {file_format}"):
        return encoders[file_format.upper()](data, path, change)


def _relocate_parquet(data: bytes, path: str, change: PrefixChange) -> RelocatedDeletes:
    source = pq.ParquetFile(pa.BufferReader(data))
    schema, target = source.schema_arrow, pa.BufferOutputStream()
    at, ranges = _path_position(schema, path), []
    groups = source.num_row_groups
    codec = source.metadata.row_group(0).column(0).compression.lower() if groups else "zstd"
    options = {"compression": _CODECS.get(codec, codec), "store_schema": False}
    with pq.ParquetWriter(target, schema, **options) as writer:
        for number in range(groups):
            rows = source.read_row_group(number, use_threads=False)
            paths = _new_paths(rows.column(at), change)
            ranges.append(paths)
            rows = rows.set_column(at, schema.field(at), paths.cast(schema.field(at).type))
            writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        writer.add_key_value_metadata(dict(source.metadata.metadata or {}))
    return RelocatedDeletes(bytes(target.getvalue()), _path_range(pa.chunked_array(ranges, pa.string())))


def _relocate_avro(data: bytes, path: str, change: PrefixChange) -> RelocatedDeletes:
    schema = decode(data, path)[0].schema
    at = _path_position(schema, path)
    encoded = frozenset(name for n, name in enumerate(schema.names) if n != at)
    batch, header = decode(data, path, Projection(None, encoded))
    paths = _new_paths(batch.column(at), change)
    arrays = [paths if n == at else column for n, column in enumerate(batch.columns)]
    codec = header.codec if header.codec in COMPRESSORS else "deflate"
    rows = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    new_data = encode(rows, header.schema, header.metadata, codec, encoded, sync=header.sync)
    return RelocatedDeletes(new_data, _path_range(paths))


def _relocate_orc(data: bytes, path: str, change: PrefixChange) -> RelocatedDeletes:
    rows = orc.ORCFile(pa.BufferReader(data)).read()
    at = _path_position(rows.schema, path)
    paths = _new_paths(rows.column(at), change)
    rows = rows.set_column(at, rows.schema.field(at), paths)
    target = pa.BufferOutputStream()
    orc.write_table(rows, target, compression="zstd")
    written = orc.ORCFile(pa.BufferReader(target.getvalue())).schema
    if not written.equals(rows.schema, check_metadata=False) or _ids(written) != _ids(rows.schema):
        raise UnsupportedFeature(
            f"Cannot change paths in delete file {path}: pyarrow {pa.__version__} does not keep the field ids of ORC "
            "files. Run rewrite_position_deletes() first, or compact the files it applies to."
        )
    return RelocatedDeletes(bytes(target.getvalue()), _path_range(paths))


def _new_paths(column: pa.ChunkedArray | pa.Array, change: PrefixChange) -> pa.Array:
    paths = change.apply_all(column.cast(pa.string()))
    return paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths


def _ids(schema: pa.Schema) -> list[bytes | None]:
    return [next((f.metadata[key] for key in _ID_KEYS if f.metadata and key in f.metadata), None) for f in schema]


def _path_position(schema: pa.Schema, path: str) -> int:
    """Return which column holds paths: the one with its id or, in files without ids, with its name."""
    ids = _ids(schema)
    wanted: object = str(DELETE_PATH_ID).encode()
    if any(field_id is not None for field_id in ids):
        found = [n for n, field_id in enumerate(ids) if field_id == wanted]
    else:
        found = [n for n, name in enumerate(schema.names) if name == _PATH_NAME]
    if len(found) != 1:
        raise CorruptFile(path, "one column of data file paths", f"{len(found)} among {schema.names}")
    return found[0]


def _path_range(paths: pa.Array | pa.ChunkedArray) -> tuple[str, str] | None:
    ends = pc.min_max(paths).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])
