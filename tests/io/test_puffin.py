"""Puffin files: golden bytes, one blob read at a time, and footers that lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile as PeerFile

from neve.errors import CorruptFile, LimitExceeded, MissingFile, TableError, UserError
from neve.io import puffin
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import Blob, encode_puffin, pack_vectors, read_footer, read_vectors

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
GOLDEN = FIXTURES / "iceberg_puffin_golden"
needs_fixtures = pytest.mark.skipif(not FIXTURES.exists(), reason=f"no fixtures at {FIXTURES}")

FIRST = b"abcdefghi"
SECOND = "some blob \0 binary data 🤯 that is not very very very very very very long, is it?".encode()
SAMPLE = [(Blob("some-blob", (1,), 2, 1), FIRST), (Blob("some-other-blob", (2,), 2, 1), SECOND)]


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[bytes], str]:
    def store(data: bytes) -> str:
        path = tmp_path / "x.puffin"
        path.write_bytes(data)
        return f"file://{path}"

    return store


@needs_fixtures
def test_writing_gives_the_golden_bytes() -> None:
    assert encode_puffin([]) == (GOLDEN / "empty-puffin-uncompressed.bin").read_bytes()
    golden = (GOLDEN / "sample-metric-data-uncompressed.bin").read_bytes()
    assert encode_puffin(SAMPLE, {"created-by": "Test 1234"}) == golden


@needs_fixtures
@pytest.mark.parametrize("name", ["sample-metric-data-uncompressed", "sample-metric-data-compressed-zstd"])
def test_a_golden_file_reads_blob_by_blob(io: FileIO, name: str) -> None:
    found = read_footer(io, str(GOLDEN / f"{name}.bin"))
    assert found.properties == {"created-by": "Test 1234"}
    assert [(b.type, b.fields, b.snapshot_id, b.sequence_number) for b in found.blobs] == [
        ("some-blob", (1,), 2, 1),
        ("some-other-blob", (2,), 2, 1),
    ]
    assert [found.read(io, blob) for blob in found.blobs] == [FIRST, SECOND]


@needs_fixtures
def test_the_statistics_of_another_engine_read(io: FileIO) -> None:
    (path,) = FIXTURES.glob("impala_iceberg_with_puffin_stats/metadata/*.stats")
    found = read_footer(io, str(path))
    assert {b.type for b in found.blobs} == {"apache-datasketches-theta-v1"}
    assert all(found.read(io, blob) for blob in found.blobs)


VECTORS = [
    ("s3://lake/t/data/a b#%2F.parquet", PositionSet.of([0, 5, 9])),
    ("s3://lake/t/data/é.parquet", PositionSet.of(np.arange(100_000))),
    ("s3://lake/t/data/c.parquet", PositionSet.of([2**40])),
]


def test_packed_vectors_are_read_alike_by_pyiceberg() -> None:
    data, _ = pack_vectors(VECTORS[:2], {"created-by": "test"})
    peer = PeerFile(data)
    found = {v.referenced_data_file: v.to_vector().to_pylist() for v in deletion_vectors_from_puffin_file(peer)}
    assert found == {name: vector.positions().tolist() for name, vector in VECTORS[:2]}
    assert peer.footer.blobs[0].model_dump(by_alias=True, exclude={"offset", "length"}) == {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "properties": {"referenced-data-file": VECTORS[0][0], "cardinality": "3"},
    }


def test_rows_of_packed_vectors_agree_with_the_footer_and_lead_to_the_vectors(
    io: FileIO, stored: Callable[[bytes], str]
) -> None:
    data, rows = pack_vectors(VECTORS)
    path = stored(data)
    footer = read_footer(io, path)
    assert rows.to_pylist() == [
        {
            "referenced_data_file": b.properties["referenced-data-file"],
            "content_offset": b.offset,
            "content_size_in_bytes": b.length,
            "record_count": int(b.properties["cardinality"]),
        }
        for b in footer.blobs
    ]
    places = list(zip(*(rows[c].to_pylist() for c in rows.column_names[1:]), strict=True))
    backwards = read_vectors(io, path, places[::-1])
    assert backwards == [vector for _, vector in VECTORS[::-1]]


def test_many_vectors_pack_in_order() -> None:
    data, rows = pack_vectors((f"f{i}", PositionSet.of([i, i + 7])) for i in range(2_000))
    assert rows.num_rows == 2_000
    assert rows["referenced_data_file"].to_pylist() == [f"f{i}" for i in range(2_000)]
    assert [b.offset for b in PeerFile(data).footer.blobs] == rows["content_offset"].to_pylist()


def test_no_vectors_pack_to_an_empty_file(io: FileIO, stored: Callable[[bytes], str]) -> None:
    data, rows = pack_vectors([])
    assert rows.equals(puffin.VECTOR_ROW_SCHEMA.empty_table())
    assert read_footer(io, stored(data)).blobs == ()


def test_a_data_file_gets_one_vector_and_never_an_empty_one() -> None:
    with pytest.raises(UserError, match="one deletion vector"):
        pack_vectors([("a", PositionSet.of([1])), ("a", PositionSet.of([2]))])
    with pytest.raises(UserError, match="Nothing is deleted from b"):
        pack_vectors([("b", PositionSet())])


def test_reading_a_vector_reads_only_its_bytes(tmp_path: Path) -> None:
    data, rows = pack_vectors([("a", PositionSet.of(np.arange(0, 2_000_000, 3))), ("b", PositionSet.of([4]))])
    (tmp_path / "x.puffin").write_bytes(data)
    offset, length = rows["content_offset"][1].as_py(), rows["content_size_in_bytes"][1].as_py()
    counting = _CountingIO()
    (vector,) = read_vectors(counting, str(tmp_path / "x.puffin"), [(offset, length, 1)])
    assert vector.positions().tolist() == [4]
    assert counting.bytes_read == length < len(data) / 1_000


class _Counted:
    """A stream that adds up what is read from it."""

    def __init__(self, stream: Any, io: _CountingIO) -> None:
        self.stream, self.io = stream, io

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def seek(self, *place: int) -> int:
        return int(self.stream.seek(*place))

    def read(self, size: int) -> bytes:
        self.io.bytes_read += size
        return bytes(self.stream.read(size))


class _CountingIO(PyArrowFileIO):
    """Counts the bytes that leave the storage."""

    bytes_read = 0

    def new_input(self, location: str) -> Any:
        found = super().new_input(location)
        found.open = lambda: _Counted(PyArrowFileIO.new_input(self, location).open(), self)
        return found


def footed(payload: bytes, flags: bytes = bytes(4), blobs: bytes = b"") -> bytes:
    return b"PFA1" + blobs + b"PFA1" + payload + struct.pack("<i", len(payload)) + flags + b"PFA1"


def test_a_footer_longer_than_the_first_read_is_read_whole(io: FileIO, stored: Callable[[bytes], str]) -> None:
    data = encode_puffin(SAMPLE, {"note": "x" * 100_000})
    found = read_footer(io, stored(data))
    assert len(found.properties["note"]) == 100_000
    assert found.read(io, found.blobs[1]) == SECOND


def test_a_compressed_footer_is_read(io: FileIO, stored: Callable[[bytes], str]) -> None:
    payload = json.dumps({"blobs": [], "properties": {"a": "b"}}).encode()
    packed = pa.compress(payload, codec="lz4", asbytes=True)
    assert read_footer(io, stored(footed(packed, b"\x01\0\0\0"))).properties == {"a": "b"}


def test_a_truncated_file_is_refused_at_every_length(io: FileIO, stored: Callable[[bytes], str]) -> None:
    data = encode_puffin(SAMPLE, {"created-by": "Test 1234"})
    for size in range(len(data)):
        with pytest.raises(CorruptFile, match=r"x\.puffin"):
            read_footer(io, stored(data[:size]))


def test_a_flipped_bit_in_the_footer_is_refused_or_keeps_blobs_inside_the_file(
    io: FileIO, stored: Callable[[bytes], str]
) -> None:
    data = encode_puffin(SAMPLE, {"created-by": "Test 1234"})
    for at in range(len(FIRST) + len(SECOND) + 4, len(data)):
        for bit in (0, 3, 7):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            path = stored(bytes(bad))
            try:
                found = read_footer(io, path)
                payloads = [found.read(io, blob) for blob in found.blobs]
            except TableError:
                continue
            assert all(payload in data[4:96] for payload in payloads)


BLOB = {"type": "t", "fields": [1], "snapshot-id": 1, "sequence-number": 1, "offset": 4, "length": 0}
LIES = {
    "not JSON": b"{",
    "not UTF-8": b'{"blobs":[],"properties":{"a":"\xff"}}',
    "not an object": b"[]",
    "no blobs": b"{}",
    "blobs not a list": b'{"blobs":{}}',
    "deep": b"[" * 100_000,
    "huge number": b'{"blobs":[' + b"1" * 5_000 + b"]}",
    "blob not an object": b'{"blobs":[1]}',
    "properties not text": b'{"blobs":[],"properties":{"a":1}}',
    "offset in the magic": json.dumps({"blobs": [BLOB | {"offset": 3}]}).encode(),
    "length beyond the blobs": json.dumps({"blobs": [BLOB | {"length": 1}]}).encode(),
    "length beyond everything": json.dumps({"blobs": [BLOB | {"length": 2**62, "offset": 2**62}]}).encode(),
    "negative length": json.dumps({"blobs": [BLOB | {"length": -1, "offset": 5}]}).encode(),
    "offset not a number": json.dumps({"blobs": [BLOB | {"offset": "4"}]}).encode(),
    "offset a truth": json.dumps({"blobs": [BLOB | {"offset": True}]}).encode(),
    "field ids not numbers": json.dumps({"blobs": [BLOB | {"fields": ["1"]}]}).encode(),
    "codec not text": json.dumps({"blobs": [BLOB | {"compression-codec": 1}]}).encode(),
}


@pytest.mark.parametrize("payload", LIES.values(), ids=LIES)
def test_a_footer_that_lies_is_refused(io: FileIO, stored: Callable[[bytes], str], payload: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"x\.puffin: expected"):
        read_footer(io, stored(footed(payload)))


@pytest.mark.parametrize("length", [-1, 13, 2**31 - 1], ids=["negative", "into the magic", "beyond the file"])
def test_a_footer_length_beyond_the_file_is_refused(io: FileIO, stored: Callable[[bytes], str], length: int) -> None:
    with pytest.raises(CorruptFile):
        read_footer(io, stored(b'PFA1PFA1{"blobs":[]}' + struct.pack("<i", length) + bytes(4) + b"PFA1"))


def test_unknown_flags_are_refused(io: FileIO, stored: Callable[[bytes], str]) -> None:
    with pytest.raises(CorruptFile, match="flags"):
        read_footer(io, stored(footed(b'{"blobs":[]}', b"\x02\0\0\0")))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_decompression_bomb_is_stopped_at_the_limit(io: FileIO, stored: Callable[[bytes], str], codec: str) -> None:
    bomb = pa.compress(bytes(64 << 20), codec=codec, asbytes=True)
    found = read_footer(io, stored(encode_puffin([(Blob("b", (), 1, 1, compression_codec=codec), bomb)])))
    with pytest.raises(LimitExceeded, match=r"x\.puffin"):
        found.read(io, found.blobs[0], limit=4 << 20)


@pytest.mark.parametrize("codec", ["zstd", "lz4", "brotli"])
def test_a_blob_that_is_not_what_its_codec_says_is_refused(
    io: FileIO, stored: Callable[[bytes], str], codec: str
) -> None:
    found = read_footer(
        io, stored(encode_puffin([(Blob("b", (), 1, 1, compression_codec=codec), b"plain text, no frame")]))
    )
    with pytest.raises(CorruptFile, match=r"x\.puffin"):
        found.read(io, found.blobs[0])


@pytest.mark.parametrize("cut", [1, 5])
def test_a_truncated_compressed_blob_is_refused(io: FileIO, stored: Callable[[bytes], str], cut: int) -> None:
    frame = pa.compress(b"a payload that is long enough " * 9, codec="zstd", asbytes=True)[:-cut]
    found = read_footer(io, stored(encode_puffin([(Blob("b", (), 1, 1, compression_codec="zstd"), frame)])))
    with pytest.raises(CorruptFile):
        found.read(io, found.blobs[0])


def test_a_vector_beyond_its_file_is_refused_and_names_it(io: FileIO, stored: Callable[[bytes], str]) -> None:
    data, _ = pack_vectors(VECTORS)
    for offset, length in ((len(data) - 4, 50), (2**62, 50), (4, 2**29), (-1, 50), (4, -1)):
        with pytest.raises(CorruptFile, match=r"x\.puffin"):
            read_vectors(io, stored(data), [(offset, length, 1)])


def test_a_missing_file_is_named(io: FileIO, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"gone\.puffin"):
        read_footer(io, str(tmp_path / "gone.puffin"))
