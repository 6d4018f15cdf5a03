"""Bytes that are not what they claim: one clear error that names the file, quickly, whatever is wrong with them."""

from __future__ import annotations

import io
import random
import struct
import time
import zlib
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from neve.errors import CorruptFile, LimitExceeded, NeveError, UnsupportedFeature
from neve.io.avro import ALL_FIELDS, DEFAULT_LIMITS, Limits, Projection, decode, read_header
from neve.io.avro.jit import PYTHON_BACKEND, Backend
from tests.support.avro_by_hand import COMPRESS, SYNC, container, record, spell, text, varint

PATH = "s3://lake/metadata/m0.avro"
SKIP_ALL = Projection(frozenset())
PAIR = {"type": "record", "name": "kv", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}]}
ENTRY = record(
    status="int",
    snapshot_id=["null", "long"],
    path="string",
    ratio="double",
    live="boolean",
    bounds=["null", {"type": "array", "items": PAIR}],
    kind={"type": "enum", "name": "e", "symbols": ["A", "B"]},
)
ROWS = [
    {
        "status": i,
        "snapshot_id": None if i % 3 else 1 << 40,
        "path": f"file-{i}-é",
        "ratio": i / 7,
        "live": i % 2 == 0,
        "bounds": [{"key": k, "value": bytes(k)} for k in range(i)] or None,
        "kind": "AB"[i % 2],
    }
    for i in range(6)
]


def sample(codec: str = "null") -> bytes:
    dice = random.Random(3)
    encoded = [spell(ENTRY, row, dice) for row in ROWS]
    return container(ENTRY, (2, b"".join(encoded[:2])), (4, b"".join(encoded[2:])), codec=codec)


@pytest.mark.parametrize("codec", sorted(COMPRESS))
def test_every_codec_is_read(codec: str) -> None:
    assert decode(sample(codec), PATH)[0].to_pylist() == ROWS


def outcome(data: bytes, projection: Projection = ALL_FIELDS, backend: Backend | None = None) -> Any:
    """The rows, or what the error says."""
    try:
        return decode(data, PATH, projection, backend=backend)[0].to_pylist()
    except NeveError as e:
        return str(e)


def flips(data: bytes, first: int, end: int, count: int, seed: int) -> Iterator[bytes]:
    """The file with one bit turned over, somewhere between two bytes."""
    for bit in random.Random(seed).sample(range(8 * first, 8 * end), count):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        yield bytes(bad)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_file_cut_short_is_refused_or_ends_with_a_whole_block(codec: str) -> None:
    data = sample(codec)
    outcomes = [outcome(data[:size]) for size in range(len(data))]
    assert all(PATH in each for each in outcomes if isinstance(each, str))
    assert [each for each in outcomes if not isinstance(each, str)] == [[], ROWS[:2]]  # after the header, after a block


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_flipped_bit_is_refused_or_read_as_fastavro_reads_it(codec: str) -> None:
    data = sample(codec)
    for bad in flips(data, len(container(ENTRY, codec=codec)), len(data), 800, seed=5):
        found = outcome(bad)
        if isinstance(found, str):
            assert PATH in found
        else:
            assert found == list(fastavro.reader(io.BytesIO(bad)))


def test_a_flipped_bit_does_not_get_past_the_checksum_of_snappy() -> None:
    data = sample("snappy")
    for bad in flips(data, len(container(ENTRY, codec="snappy")), len(data), 300, seed=6):
        found = outcome(bad)
        assert found == ROWS or (isinstance(found, str) and PATH in found)


def test_a_flipped_bit_of_the_header_is_refused_or_harmless() -> None:
    data = sample()
    for bad in flips(data, 0, len(container(ENTRY)), 1200, seed=7):
        found = outcome(bad)
        assert not isinstance(found, str) or PATH in found


def test_skipping_and_plain_python_refuse_the_same_flips() -> None:
    data = sample()
    for bad in flips(data, len(container(ENTRY)), len(data), 250, seed=11):
        assert outcome(bad) == outcome(bad, backend=PYTHON_BACKEND)
        assert outcome(bad, SKIP_ALL) == outcome(bad, SKIP_ALL, PYTHON_BACKEND)


def test_random_bytes_as_records_are_refused_or_read_in_the_same_way_by_both_backends() -> None:
    dice = random.Random(13)
    nested = record(
        a={"type": "array", "items": ["null", {"type": "array", "items": {"type": "map", "values": "int"}}]}, b="string"
    )
    for _ in range(400):
        data = container(
            nested,
            (dice.randint(1, 3), bytes(dice.choice([0, 0, 1, 2, 3, 4, 255]) for _ in range(dice.randint(3, 30)))),
        )
        for projection in (ALL_FIELDS, Projection(frozenset({"b"})), Projection(None, frozenset({"a"}))):
            assert outcome(data, projection) == outcome(data, projection, PYTHON_BACKEND)


LIST, NULLS = {"type": "array", "items": "long"}, {"type": "array", "items": "null"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
WIDE = {"type": "fixed", "size": 18, "name": "w", "logicalType": "decimal", "precision": 38}
WRONG = {
    "a string beyond the block": (record(a="string"), varint(50) + b"abc", "a length within the block in field 'a'"),
    "a negative length": (record(a="bytes"), varint(-1), "a length within the block in field 'a'"),
    "a huge length": (record(a="bytes"), varint(2**62), "a length within the block in field 'a'"),
    "a number without end": (record(a="long"), b"\xff" * 12, "a number of at most 10 bytes in field 'a'"),
    "a number of 65 bits": (record(a="long"), b"\xff" * 9 + b"\x02", "a number of at most 10 bytes in field 'a'"),
    "an int of 33 bits": (record(a="int"), varint(2**31), "a number of 32 bits in field 'a'"),
    "a third branch": (record(a=["null", "int"]), varint(2) + varint(1), "branch 0 or 1 of a union in field 'a'"),
    "a boolean of 2": (record(a="boolean"), b"\x02", "a boolean in field 'a'"),
    "an unknown symbol": (
        record(a={"type": "enum", "name": "e", "symbols": ["A"]}),
        varint(1),
        "the number of a symbol",
    ),
    "half a double": (record(a="double"), b"\0" * 7, "no more records than the bytes of the block allow"),
    "half a double after an int": (
        record(b="string", a="double"),
        varint(2) + b"ab" + b"\0" * 7,
        "a value in field 'a'",
    ),
    "more items than bytes": (
        record(a=LIST),
        varint(2**62) + b"\0" * 9,
        "a count of items that the block has room for",
    ),
    "the least count": (record(a=LIST), varint(-(2**63)) + varint(1) + b"\0" * 9, "a count of items"),
    "endless items without bytes": (record(a=NULLS), varint(2**60) + b"\0", "a count of items"),
    "a block larger than the file": (record(a=LIST), varint(-1) + varint(99) + b"\0\0", "a length within the block"),
    "a list without end": (record(a=LIST), varint(1) + b"\x02", "a value in field 'a'"),
    "bytes left over": (record(a="int"), b"\x02\x02", "the end of the block after its last record"),
    "text that is not UTF-8": (record(a="string"), text(b"\xff\xfe"), "UTF-8 text in field 'a'"),
    "a decimal over its precision": (record(a=DECIMAL), text(b"\x7f\xff\xff"), "a decimal128(4, 2) in field 'a'"),
    "a decimal over 16 bytes": (record(a=WIDE), b"\x01" + b"\0" * 17, "a decimal of at most 16 bytes in field 'a'"),
    "a nested field": (
        record(a={"type": "record", "name": "s", "fields": [{"name": "b", "type": ["string", "null"]}]}),
        varint(0) + varint(9),
        "a length within the block in field 'a.b'",
    ),
}


@pytest.mark.parametrize("case", sorted(WRONG))
@pytest.mark.parametrize("backend", [None, PYTHON_BACKEND], ids=["compiled", "python"])
def test_a_wrong_value_is_refused_with_its_file_field_and_record(case: str, backend: Backend | None) -> None:
    schema, body, expected = WRONG[case]
    with pytest.raises(CorruptFile) as e:
        decode(container(schema, (1, body)), PATH, backend=backend)
    assert PATH in str(e.value)
    assert expected in e.value.expected


@pytest.mark.parametrize(
    "case", ["a string beyond the block", "a negative length", "more items than bytes", "a list without end"]
)
@pytest.mark.parametrize("projection", [SKIP_ALL, Projection(None, frozenset({"a"}))], ids=["skipped", "encoded"])
def test_a_wrong_length_is_refused_in_a_field_nobody_asked_for(case: str, projection: Projection) -> None:
    schema, body, _ = WRONG[case]
    with pytest.raises(CorruptFile, match="in field 'a'"):
        decode(container(schema, (1, body)), PATH, projection)


def test_an_error_says_which_record_of_which_block() -> None:
    with pytest.raises(CorruptFile, match=r"record 3, block 1, byte 1 uncompressed"):
        decode(container(record(a="boolean"), (2, b"\0\1"), (3, b"\0\2\0")), PATH, backend=PYTHON_BACKEND)


CONTAINERS: dict[str, tuple[bytes, type[NeveError], str]] = {
    "nothing": (b"", CorruptFile, "an empty file"),
    "not Avro": (b"PAR1....", CorruptFile, "begins with 'Obj'"),
    "encrypted": (b"AGS1....", UnsupportedFeature, "encrypted"),
    "another sync marker": (container(record(a="int"), (1, b"\2"), sync=bytes(16)), CorruptFile, "sync marker"),
    "an unknown codec": (container(record(a="int"), codec="lzo"), UnsupportedFeature, "codec 'lzo'"),
    "a negative count": (container(record(a="int"), (-1, b"\2")), CorruptFile, "a whole block"),
    "more records than bytes": (container(record(a="int"), (2**40, b"\2")), CorruptFile, "no more records"),
    "bytes without records": (container(record(a="int"), (0, b"\2")), CorruptFile, "no bytes in the block"),
    "endless records without bytes": (container(record(), (2**40, b"")), LimitExceeded, "empty records"),
    "no schema": (b"Obj\x01\0" + SYNC, CorruptFile, "'avro.schema'"),
    "a schema that is no JSON": (container(record(), metadata={"avro.schema": b"{"}), CorruptFile, "JSON schema"),
    "a schema that is no text": (container(record(), metadata={"avro.schema": b"\xff{"}), CorruptFile, "JSON schema"),
    "a schema that is no record": (container("int"), CorruptFile, "a record as the schema"),
    "a deep JSON": (container(record(), metadata={"avro.schema": b"[" * 200_000}), CorruptFile, "JSON schema"),
    "a header without end": (b"Obj\x01" + varint(2**50), CorruptFile, "fewer entries than bytes"),
    "a key without end": (b"Obj\x01" + varint(1) + varint(2**50), CorruptFile, "a length within the file"),
    "damaged deflate": (
        container(record(a="int"), codec="deflate") + varint(1) + text(b"\xff\xff") + SYNC,
        CorruptFile,
        "deflate block",
    ),
    "damaged snappy": (
        container(record(a="int"), codec="snappy") + varint(1) + text(b"\x01\x00\x02abcd") + SYNC,
        CorruptFile,
        "snappy",
    ),
    "damaged zstandard": (
        container(record(a="int"), codec="zstandard") + varint(1) + text(b"abcdef") + SYNC,
        CorruptFile,
        "zstandard",
    ),
    "damaged xz": (
        container(record(a="int"), codec="xz") + varint(1) + text(b"abcdef") + SYNC,
        CorruptFile,
        "xz block",
    ),
    "damaged bzip2": (
        container(record(a="int"), codec="bzip2") + varint(1) + text(b"abcdef") + SYNC,
        CorruptFile,
        "bzip2 block",
    ),
    "a union of two types": (container(record(a=["int", "string"])), UnsupportedFeature, "a union of 'a'"),
    "a record within itself": (container(record(a=["null", "r"])), UnsupportedFeature, "contains itself"),
    "an unknown type": (container(record(a="integer")), CorruptFile, "a known type of 'a'"),
    "an array of nothing": (container(record(a={"type": "array"})), CorruptFile, "a complete Avro type of 'a'"),
    "a fixed without a size": (
        container(record(a={"type": "fixed", "name": "x", "size": -1})),
        CorruptFile,
        "a complete fixed",
    ),
    "two fields of one name": (
        container({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2}),
        CorruptFile,
        "a unique name",
    ),
}


@pytest.mark.parametrize("case", sorted(CONTAINERS))
def test_a_wrong_container_is_refused_and_says_why(case: str) -> None:
    data, error, words = CONTAINERS[case]
    with pytest.raises(error) as e:
        decode(data, PATH)
    assert PATH in str(e.value)
    assert words in str(e.value)


def test_a_schema_that_doubles_at_every_level_is_refused() -> None:
    inner: Any = {"type": "record", "name": "t0", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "f0", "type": inner}]
    for level in range(1, 30):
        two = [{"name": name, "type": f"t{level - 1}"} for name in "ab"]
        fields.append({"name": f"f{level}", "type": {"type": "record", "name": f"t{level}", "fields": two}})
    with pytest.raises(CorruptFile, match="a schema of at most 10000 types"):
        decode(container({"type": "record", "name": "r", "fields": fields}), PATH)


def test_a_schema_of_many_levels_is_refused() -> None:
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(CorruptFile, match="64 deep"):
        decode(container(record(a=deep)), PATH)


@pytest.mark.parametrize("codec", sorted(COMPRESS))
def test_a_file_that_inflates_beyond_the_budget_is_refused(codec: str) -> None:
    data = container(record(a="bytes"), (1, text(bytes(3 << 20))), codec=codec)
    assert decode(data, PATH, limits=Limits(max_inflated_bytes=4 << 20))[0].num_rows == 1
    with pytest.raises(LimitExceeded) as e:
        decode(data, PATH, limits=Limits(max_inflated_bytes=1 << 20))
    assert PATH in str(e.value)


@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_a_decompression_bomb_is_refused_by_its_ratio_within_a_second_or_two(codec: str) -> None:
    data = container(record(a="bytes"), (1, text(bytes(DEFAULT_LIMITS.ratio_floor_bytes + 1))), codec=codec)
    began = time.process_time()
    with pytest.raises(LimitExceeded, match="uncompressed size"):
        decode(data, PATH)
    assert time.process_time() - began < 3


def test_a_bomb_in_many_blocks_is_counted_as_one() -> None:
    block = (1, text(bytes(1 << 20)))
    with pytest.raises(LimitExceeded):
        decode(
            container(record(a="bytes"), *[block] * 5, codec="deflate"), PATH, limits=Limits(max_inflated_bytes=4 << 20)
        )


def test_columns_that_would_take_too_much_memory_are_refused() -> None:
    schema = record(**{f"f{i}": ["null", "long"] for i in range(50)})
    data = container(schema, (20_000, bytes(50 * 20_000)))
    with pytest.raises(LimitExceeded, match="decoded size"):
        decode(data, PATH, limits=Limits(max_decoded_bytes=1 << 20))


def test_a_long_header_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="the header of"):
        decode(container(record(), metadata={"x": bytes(2000)}), PATH, limits=Limits(max_header_bytes=1000))


def test_many_lists_grow_their_scratch_without_losing_a_value() -> None:
    rows = [{"a": list(range(i % 7)), "b": [[i] * (i % 3), []]} for i in range(3000)]
    schema = record(a=LIST, b={"type": "array", "items": LIST})
    body = b"".join(spell(schema, row, random.Random(i)) for i, row in enumerate(rows))
    assert decode(container(schema, (len(rows), body)), PATH)[0].to_pylist() == rows


def test_read_header_reads_no_records() -> None:
    header = read_header(
        container(ENTRY, (9, b"not records"), codec="deflate", metadata={"format-version": b"2"}), PATH
    )
    assert (header.codec, header.metadata["format-version"], header.sync) == ("deflate", b"2", SYNC)
    assert header.schema == ENTRY


def test_a_deflate_block_may_be_followed_by_a_piece_of_a_checksum() -> None:
    body = zlib.compress(struct.pack("b", 2) * 5)[2:-1]
    data = container(record(a="int"), codec="deflate") + varint(5) + text(body) + SYNC
    assert decode(data, PATH)[0].to_pydict() == {"a": [1] * 5}


def test_a_limit_must_fit_32_bit_positions() -> None:
    with pytest.raises(ValueError, match="max_inflated_bytes"):
        Limits(max_inflated_bytes=1 << 31)


def test_a_large_block_that_compresses_well_is_read() -> None:
    value = bytes(20 << 20)  # beyond what is guessed for a block at first
    data = container(record(a="bytes"), (1, text(value)), codec="deflate")
    assert decode(data, PATH)[0].column(0)[0].as_py() == value
    assert pa.types.is_binary(decode(data, PATH)[0].schema.field(0).type)
