"""Read manifest lists and manifests of any format version.

Inherited values (snapshot id, sequence numbers, first row id) are filled in here, so that no module above has to deal
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from neve.errors import CorruptFile, TableError
from neve.io.avro import AvroFile, AvroHeader, Projection, decode, open_avro, read_header
from neve.io.files import read_file
from neve.io.parallel import map_in_threads
from neve.io.parquet_by_field_id import is_parquet, open_id_table
from neve.io.paths import canonical_path_all, refuse_unreadable, resolve_path
from neve.io.untrusted import translate_parse_errors
from neve.model.partition import Specs
from neve.tree.checks import check_entries, check_manifest_fields, check_manifest_list
from neve.tree.entries import (
    CORE,
    DETAIL,
    MANIFEST_COUNTS,
    Content,
    EntryFilter,
    EntryTable,
    FieldSummary,
    FilteredEntries,
    Manifest,
    Status,
    details_in_order,
    fit_to_type,
)
from neve.tree.entry_schemas import ParquetEntries
from neve.tree.partition_types import infer_partition_types, manifest_reader_count
from neve.tree.v4 import leaf
from neve.tree.v4.checks import refuse_files_tracked_twice
from neve.tree.v4.fields import is_tracked_schema
from neve.tree.v4.filtered_read import (
    MAX_LEAVES_AT_ONCE,
    MatchingRows,
    entries_from_leaves,
    is_data_leaf,
    read_matching_rows,
)
from neve.tree.v4.root import read_root

OpenManifest: TypeAlias = AvroFile | ParquetEntries
EntryPredicate: TypeAlias = Callable[[EntryTable], Any]  # a flag for each entry

_ENTRY_COLUMNS = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_FILE_COLUMNS = tuple(f.name for f in CORE if f.name not in {"manifest", "row", "spec_id", *_ENTRY_COLUMNS})


def manifests_of(io: FileIO, metadata: TableMetadata, snapshot: Snapshot | None) -> tuple[Manifest, ...]:
    """Return the manifests of a snapshot in the order of its manifest list; none for a table without a snapshot."""
    if snapshot is None:
        return ()
    inline: Sequence[str] | None = getattr(snapshot, "manifest_paths", None)
    if inline is not None:
        return tuple(_inline_manifest(io, path, snapshot) for path in inline)
    if has_parquet_root(snapshot):
        with translate_parse_errors(str(snapshot.root_manifest), "a root of tracked files"):  # type: ignore[attr-defined]
            return read_root(io, metadata, snapshot)
    refuse_unreadable(pa.array([snapshot.manifest_list]), metadata.location)
    manifests = manifests_in_list(io, snapshot.manifest_list)
    paths = pa.array([m.path for m in manifests], pa.string())
    refuse_unreadable(paths, metadata.location)
    if pc.count_distinct(canonical_path_all(paths)).as_py() < len(paths):
        raise CorruptFile(snapshot.manifest_list, "every manifest once", f"one of the {len(paths)} twice")
    Specs.of(metadata).refuse_unknown_specs((m.spec_id for m in manifests), f"manifest list {snapshot.manifest_list}")
    return manifests


def read_manifests_with_header(
    io: FileIO, metadata: TableMetadata, snapshot: Snapshot
) -> tuple[tuple[Manifest, ...], Mapping[str, bytes], int]:
    """Return all manifests of a snapshot, also of unknown specs, with the header and length of their list."""
    path: str | None = getattr(snapshot, "tree_root_location", snapshot.manifest_list)
    if path is None:
        return manifests_of(io, metadata, snapshot), {}, 0
    data = read_file(io, resolve_path(metadata.location, path) if has_parquet_root(snapshot) else path)
    if has_parquet_root(snapshot):
        return read_root(io, metadata, snapshot), open_id_table(data, path).key_value_metadata, len(data)
    return manifests_in_list(io, path), read_header(data, path).metadata, len(data)


def has_parquet_root(snapshot: Snapshot) -> bool:
    """Check whether a snapshot has a root of version 4."""
    return getattr(snapshot, "root_manifest", None) is not None


def header_of(io: FileIO, manifest: Manifest) -> tuple[AvroHeader, int]:
    """Return the header and the length of a manifest file; rows in a root have no file, and an empty header."""
    if manifest.is_inline:
        return AvroHeader({}, {}, "null", b""), manifest.length
    data = read_file(io, manifest.file)
    if not is_parquet(data):
        return read_header(data, manifest.file), len(data)
    pairs = dict(open_id_table(data, manifest.file).key_value_metadata)
    if manifest.is_view:
        pairs.pop("content", None)
    return AvroHeader({}, pairs, "null", b""), len(data)


def manifests_in_list(io: FileIO, path: str) -> tuple[Manifest, ...]:
    """Return the rows of a manifest list of any version."""
    with translate_parse_errors(path, "a manifest list"):
        batch = check_manifest_list(decode(read_file(io, path), path)[0], path)
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        return _manifests_from_columns(columns, batch.num_rows)


def _manifests_from_columns(columns: Mapping[str, list[Any]], rows: int) -> tuple[Manifest, ...]:
    absent, zero = [None] * rows, [0] * rows
    # Early writers wrote `added_data_files_count` for `added_files_count`, and so on.
    old_names = {name: name.replace("_files", "_data_files") for name in MANIFEST_COUNTS}
    counts = [columns.get(f"{new}_count") or columns.get(f"{old}_count", absent) for new, old in old_names.items()]
    arguments = zip(
        columns["manifest_path"],
        columns["manifest_length"],
        columns["partition_spec_id"],
        [bool(c) for c in columns.get("content", zero)],
        columns.get("sequence_number", zero),
        columns.get("min_sequence_number", zero),
        columns.get("added_snapshot_id", absent),
        *counts,
        [_parse_summaries(p) for p in columns.get("partitions", absent)],
        columns.get("key_metadata", absent),
        columns.get("first_row_id", absent),
        strict=True,
    )
    return tuple(Manifest(*values) for values in arguments)


def read_entries(
    io: FileIO,
    manifests: Sequence[Manifest],
    specs: Specs,
    *,
    detail: Collection[str] = (),
    detail_where: EntryPredicate | None = None,
    live_only: bool = False,
    columns: Collection[int] | None = None,
    repeats_allowed: bool = False,
) -> EntryTable:
    """Return the entries of some manifests as one table, tombstones included unless `live_only`.

    - `detail` names the columns to read beyond the core: statistics, split offsets, key metadata. With `detail_where`
      they are read only for the entries it selects, and are null for the others.
    - `columns` are the ids of the table columns whose statistics are needed; those of others may be missing.
    - `repeats_allowed` leaves it to the caller to reject data files that are live twice.

    The column `manifest` has the ordinal of the manifest in `manifests`.
    """
    specs = infer_partition_types(io, specs, manifests)

    def read_one(numbered: tuple[int, Manifest]) -> EntryTable:
        ordinal, manifest = numbered
        with translate_parse_errors(manifest.file, "a manifest"):
            if manifest.is_tracked:
                return leaf.read_leaf_entries(
                    io,
                    manifest,
                    specs,
                    ordinal,
                    detail,
                    live_only=live_only,
                    where=detail_where,
                    columns=columns,
                    repeats_allowed=repeats_allowed,
                )
            opened = _open_manifest(io, manifest, specs)
            entries = _decode_entries(opened, manifest, specs, ordinal, () if detail_where else detail)
            check_entries(manifest, entries)
            entries = entries.live() if live_only else entries
            return _with_details_where(entries, opened, detail, detail_where(entries)) if detail_where else entries

    tables = map_in_threads(read_one, list(enumerate(manifests)), manifest_reader_count(io, manifests))
    return EntryTable.concat(tables, specs) if tables else EntryTable.empty(specs, detail)


def read_matching_entries(
    io: FileIO,
    manifests: Sequence[Manifest],
    specs: Specs,
    entry_filter: EntryFilter,
    *,
    detail: Collection[str] = (),
    columns: Collection[int] | None = None,
) -> FilteredEntries:
    """Return the live data files of some manifests that match a filter, with the requested details.

    `detail`, `columns` and the column `manifest` are as in `read_entries`. The caller has to reject data files that are
    live twice.
    """
    specs = infer_partition_types(io, specs, manifests)

    def read_group(numbered: Sequence[tuple[int, Manifest]]) -> MatchingRows | FilteredEntries:
        ordinal, manifest = numbered[0]
        with translate_parse_errors(", ".join(m.file for _, m in numbered), "a manifest"):
            if is_data_leaf(manifest):
                return read_matching_rows(io, numbered, specs, entry_filter, detail, columns)
            return _filter_manifest(io, manifest, specs, ordinal, entry_filter, detail)

    leaves = [(at, m) for at, m in enumerate(manifests) if is_data_leaf(m)]
    alone = [[(at, m)] for at, m in enumerate(manifests) if not is_data_leaf(m)]
    threads = manifest_reader_count(io, manifests)
    results = map_in_threads(read_group, [*_group_leaves(leaves, threads), *alone], threads)
    tracked = [r for r in results if isinstance(r, MatchingRows)]
    others = [r for r in results if isinstance(r, FilteredEntries)]
    tables = [entries_from_leaves(tracked, manifests, specs, detail), *(f.entries for f in others if len(f.entries))]
    entries = EntryTable.concat([t for t in tables if len(t)] or tables[:1], specs)
    if tracked and others:
        entries = entries.take(np.argsort(entries.numpy("manifest"), kind="stable"))
    return FilteredEntries(entries, sum(r.live_count for r in results), sum(r.in_partitions for r in results))


def _group_leaves(leaves: Sequence[tuple[int, Manifest]], threads: int) -> Iterator[list[tuple[int, Manifest]]]:
    """Group leaves to be filtered together, in groups as large as possible while every thread has work.

    A group has leaves of one spec, so that only conditions that its partitions can decide are evaluated.
    """
    group_size = min(MAX_LEAVES_AT_ONCE, -(-len(leaves) // threads))
    for spec_id in sorted({m.spec_id for _, m in leaves}):
        own = [(at, m) for at, m in leaves if m.spec_id == spec_id]
        yield from (own[at : at + group_size] for at in range(0, len(own), group_size))


def _filter_manifest(
    io: FileIO, manifest: Manifest, specs: Specs, ordinal: int, entry_filter: EntryFilter, detail: Collection[str]
) -> FilteredEntries:
    """Filter a manifest of entries, or rows in a root."""
    opened: OpenManifest | None = None
    if manifest.is_tracked:
        entries = leaf.read_leaf_entries(io, manifest, specs, ordinal, detail, live_only=True, repeats_allowed=True)
    else:
        opened = _open_manifest(io, manifest, specs)
        entries = _decode_entries(opened, manifest, specs, ordinal, ())
        check_entries(manifest, entries)
        entries = entries.live()
    live_count = len(entries)
    entries = entries.filter(pa.array(entry_filter.by_partition(entries)))
    if opened is not None:
        entries = _with_details_where(entries, opened, detail, np.ones(len(entries), bool))
    in_partitions = len(entries)
    if entry_filter.columns:
        entries = entries.filter(pa.array(entry_filter.by_statistics(entries)))
    return FilteredEntries(entries, live_count, in_partitions)


def refuse_repeated_files(entries: EntryTable, manifests: Sequence[Manifest]) -> None:
    """Reject live entries of one snapshot that track a data file twice, if the version of the tree forbids it."""
    if any(m.is_tracked and not m.is_deletes for m in manifests):
        refuse_files_tracked_twice(entries.of_content(Content.DATA), manifests)


def read_manifest(
    io: FileIO, manifest: Manifest, specs: Specs, *, ordinal: int = 0, detail: Collection[str] = (), as_is: bool = False
) -> EntryTable:
    """Return the entries of one manifest; `as_is` returns also those that contradict the format, for audits."""
    specs = infer_partition_types(io, specs, [manifest])
    with translate_parse_errors(manifest.file, "a manifest"):
        if manifest.is_tracked:
            return leaf.read_leaf_entries(io, manifest, specs, ordinal, detail, as_is=as_is)
        entries = _decode_entries(_open_manifest(io, manifest, specs), manifest, specs, ordinal, detail)
        if not as_is:
            check_entries(manifest, entries)
        return entries


def _open_manifest(io: FileIO, manifest: Manifest, specs: Specs) -> OpenManifest:
    specs.refuse_unknown_specs([manifest.spec_id], f"manifest {manifest.path}")
    data = read_file(io, manifest.path)
    if len(data) < manifest.length:  # a file truncated between two blocks is a valid Avro file with fewer entries
        raise CorruptFile(manifest.path, f"{manifest.length} bytes, as the manifest list says", f"{len(data)}")
    if not is_parquet(data):
        return open_avro(data, manifest.path)
    table = open_id_table(data, manifest.path)
    if is_tracked_schema(set(table.child_ids(()))):
        raise CorruptFile(manifest.path, "entries of an older version, as the list says", "tracked-file rows")
    return ParquetEntries(table)


def _with_details_where(entries: EntryTable, opened: OpenManifest, detail: Collection[str], mask: Any) -> EntryTable:
    mask = np.asarray(mask, bool)
    return entries.with_details_where(mask, _read_details(opened, entries.numpy("row")[mask], details_in_order(detail)))


def with_detail(io: FileIO, entries: EntryTable, manifests: Sequence[Manifest], detail: Collection[str]) -> EntryTable:
    """Return the entries with more columns, decoded for them alone; `entries["manifest"]` counts in `manifests`."""
    names = tuple(name for name in details_in_order(detail) if not entries.has(name))
    if not names or not len(entries):
        return entries.with_columns(**dict.fromkeys(names))
    ordinals, rows = entries.numpy("manifest"), entries.numpy("row")
    order = np.lexsort((rows, ordinals))
    cuts = np.flatnonzero(np.diff(ordinals[order])) + 1
    contents = entries.numpy("content")

    def read_part(part: Any) -> pa.Table:
        manifest, own = manifests[ordinals[part[0]]], rows[part]
        with translate_parse_errors(manifest.file, "a manifest"):
            if manifest.is_tracked:
                return leaf.read_leaf_details(io, manifest, entries.specs, own, contents[part], names)
            return _read_details(_open_manifest(io, manifest, entries.specs), own, names)

    parts = map_in_threads(read_part, np.split(order, cuts), manifest_reader_count(io, manifests))
    details = pa.concat_tables(parts)
    if (np.diff(order) < 0).any():
        details = details.take(pa.array(np.argsort(order)))
    return entries.with_columns(**{name: details.column(name) for name in names})


def _read_details(opened: OpenManifest, rows: np.ndarray[Any, Any], names: Sequence[str]) -> pa.Table:
    batch = opened.decode(Projection(frozenset(f"data_file.{name}" for name in names)), rows=rows)
    files = _struct_fields(batch.column("data_file")) if "data_file" in batch.schema.names else {}
    return pa.table({name: fit_to_type(files.get(name), DETAIL.field(name).type, len(rows)) for name in names})


@cache
def _projection(detail: frozenset[str]) -> Projection:
    files = (*_FILE_COLUMNS, "partition", *detail)
    return Projection(frozenset([*_ENTRY_COLUMNS, *(f"data_file.{name}" for name in files)]))


def _decode_entries(
    opened: OpenManifest, manifest: Manifest, specs: Specs, ordinal: int, detail: Collection[str]
) -> EntryTable:
    batch = opened.decode(_projection(frozenset(detail)))
    rows = batch.num_rows
    if "data_file" not in batch.schema.names or "status" not in batch.schema.names:
        raise CorruptFile(manifest.path, "a manifest of data_file entries", f"the fields {batch.schema.names}")
    files = _struct_fields(batch.column("data_file"))
    check_manifest_fields(manifest, files)
    columns: dict[str, Any] = {name: files[name] for name in (*_FILE_COLUMNS, *detail) if name in files}
    columns |= {name: batch.column(name) for name in _ENTRY_COLUMNS if name in batch.schema.names}
    columns |= _partition(files.get("partition"), manifest, specs)
    columns |= {"manifest": ordinal, "row": np.arange(rows, dtype=np.int32), "spec_id": manifest.spec_id}
    formats = files["file_format"].dictionary_encode()  # few distinct names: each is converted once
    columns["file_format"] = pa.DictionaryArray.from_arrays(formats.indices, pc.utf8_upper(formats.dictionary))
    if "content" not in files:
        columns["content"] = int(manifest.is_deletes)  # v1 has data files only
    try:
        return EntryTable.from_columns(columns | _inherited_values(columns, manifest), specs, rows, detail)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise CorruptFile(manifest.path, "fields of the types in the format", str(e)) from e


def _struct_fields(struct: pa.StructArray) -> dict[str, pa.Array]:
    return {field.name: struct.field(i) for i, field in enumerate(struct.type)}


def _partition(tuples: pa.StructArray | None, manifest: Manifest, specs: Specs) -> dict[str, pa.Array]:
    """Return the partition columns of the manifest's spec, by field id; early writers wrote none: then by position."""
    spec, names = specs[manifest.spec_id], specs.columns(manifest.spec_id)
    if tuples is None or not names:
        return {}
    ids = [(field.metadata or {}).get(b"field-id") for field in tuples.type]
    by_id = {None if raw is None else int(raw): tuples.field(i) for i, raw in enumerate(ids)}
    if None in by_id or not {f.field_id for f in spec.fields} & set(by_id):
        by_id = {f.field_id: tuples.field(i) for i, f in enumerate(spec.fields[: tuples.type.num_fields])}
    types = {u.column: u.arrow_type for u in specs.union}
    columns: dict[str, pa.Array] = {}
    present = [(name, f.field_id) for name, f in zip(names, spec.fields, strict=True) if f.field_id in by_id]
    for name, field_id in present:
        kind, values = types[name], by_id[field_id]
        if pa.types.is_null(kind) or values.null_count == len(values):
            columns[name] = pa.nulls(len(values), kind)  # the nulls of a dropped field have the type of its source
            continue
        try:
            columns[name] = values if values.type == kind else values.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise CorruptFile(manifest.path, f"partition values of type {kind}", f"{values.type} ({e})") from e
    return columns


def _inherited_values(columns: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    status = columns["status"].to_numpy()
    # A manifest numbered 0 comes from v1: everything in it is as old as the table.
    may_inherit = pa.array(np.full(len(status), True) if manifest.sequence_number == 0 else status == Status.ADDED)
    number = pa.scalar(manifest.sequence_number, pa.int64())
    numbers = {
        name: pc.if_else(pc.and_(pc.is_null(values), may_inherit), number, values)
        for name in ("sequence_number", "file_sequence_number")
        for values in [columns.get(name, pa.nulls(len(status), pa.int64()))]
    }
    snapshot_ids = columns.get("snapshot_id", pa.nulls(len(status), pa.int64()))
    if manifest.added_snapshot_id is not None:
        snapshot_ids = pc.fill_null(snapshot_ids, manifest.added_snapshot_id)
    inherited = numbers | {"snapshot_id": snapshot_ids, "first_row_id": None}
    if not manifest.is_deletes and manifest.first_row_id is not None:
        # Entries without row ids, except tombstones, get them in file order.
        stated = columns.get("first_row_id")
        unset = np.full(len(status), True) if stated is None else stated.is_null().to_numpy(zero_copy_only=False)
        waiting = unset & (status != Status.DELETED)
        taken = np.where(waiting, columns["record_count"].to_numpy(), 0)
        assigned = pa.array(manifest.first_row_id + np.cumsum(taken) - taken, pa.int64(), mask=~waiting)
        inherited["first_row_id"] = assigned if stated is None else pc.coalesce(stated, assigned)
    return inherited


def _parse_summaries(rows: list[dict[str, Any]] | None) -> tuple[FieldSummary, ...] | None:
    if rows is None:
        return None
    return tuple(
        FieldSummary(r["contains_null"], r.get("contains_nan"), r.get("lower_bound"), r.get("upper_bound"))
        for r in rows
    )


def _inline_manifest(io: FileIO, path: str, snapshot: Snapshot) -> Manifest:
    """Describe a manifest that a v1 snapshot names directly, from the manifest's own header: there is no list."""
    data = read_file(io, path)
    header = read_header(data, path)
    try:
        spec_id = int(header.metadata.get("partition-spec-id", b"0"))
    except ValueError:
        raise TableError(f"Manifest {path} has a partition spec id that is not a number.") from None
    return Manifest(path, len(data), spec_id, False, 0, 0, snapshot.snapshot_id, *[None] * 6)
