"""Avro object container files to Arrow and back, for manifests and manifest lists."""

from neve.io.avro.container import AvroHeader, read_header
from neve.io.avro.decode import AvroFile, decode, open_avro
from neve.io.avro.encode import encode
from neve.io.avro.schema import ALL_FIELDS, DEFAULT_LIMITS, Limits, Projection

__all__ = [
    "ALL_FIELDS",
    "DEFAULT_LIMITS",
    "AvroFile",
    "AvroHeader",
    "Limits",
    "Projection",
    "decode",
    "encode",
    "open_avro",
    "read_header",
]
