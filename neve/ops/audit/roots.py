"""What the root of a snapshot promises: the list of its manifests, taken by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from neve.model.partition import Specs
from neve.model.snapshots import Snapshot
from neve.ops.audit.findings import Finding
from neve.tree.entries import MIXED_SPECS, Manifest

__all__ = ["Root", "root_findings"]


@dataclass(frozen=True)
class Root:
    """The manifests of a snapshot, as the file that lists them says."""

    snapshot: Snapshot
    path: str
    manifests: tuple[Manifest, ...] = ()
    header: Mapping[str, bytes] = field(default_factory=dict)
    bytes: int = 0
    is_readable: bool = True


Rule = Callable[[Root, Mapping[int, int], Specs], Iterator[Finding]]


def root_findings(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """Every rule a root breaks; `numbers` has the sequence number of each snapshot of the table."""
    for rule in RULES:
        yield from rule(root, numbers, specs)


def header_names_the_snapshot(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """A list was written for one snapshot, and says so."""
    stated = {"snapshot-id": root.snapshot.snapshot_id, "sequence-number": root.snapshot.sequence_number or 0}
    for key, expected in stated.items():
        found = root.header.get(key, b"null")
        if found not in (b"null", str(expected).encode()):
            message = f"The header says {key} {found.decode(errors='replace')}, the table metadata {expected}."
            yield Finding("list-header", root.path, message)


def manifests_are_distinct(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """A manifest that is listed twice would double its files."""
    for path, times in Counter(m.path for m in root.manifests).items():
        if times > 1:
            yield Finding("duplicate-manifest", path, f"Listed {times} times by {root.path}.")


def specs_are_known(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """Every manifest is of a spec the table has."""
    for m in root.manifests:
        if m.spec_id not in specs.by_id and m.spec_id != MIXED_SPECS:
            message = f"Of partition spec {m.spec_id}; the table knows {sorted(specs.by_id)}."
            yield Finding("unknown-spec", m.path, message)


def numbers_fit(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """A manifest has the number of the snapshot that added it, which is not above that of the one that lists it."""
    own = root.snapshot.sequence_number or 0
    for m in root.manifests:
        adder = numbers.get(m.added_snapshot_id, m.sequence_number)
        if m.sequence_number > own:
            message = f"Numbered {m.sequence_number}, above snapshot {root.snapshot.snapshot_id} ({own}) that lists it."
            yield Finding("manifest-sequence-number", m.path, message)
        elif m.sequence_number != adder and not m.is_view:
            message = f"Numbered {m.sequence_number}, but snapshot {m.added_snapshot_id} that added it is {adder}."
            yield Finding("manifest-sequence-number", m.path, message)
        if m.min_sequence_number > m.sequence_number:
            message = f"Oldest number {m.min_sequence_number}, above its own number {m.sequence_number}."
            yield Finding("min-sequence-number", m.path, message)


def adders_are_named(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """Entries inherit the id of the snapshot that added their manifest."""
    for m in root.manifests:
        if cast(int | None, m.added_snapshot_id) is None:  # the type promises it, the bytes do not
            yield Finding("added-snapshot", m.path, f"{root.path} does not say which snapshot added it.")


def row_ids_are_assigned(root: Root, numbers: Mapping[int, int], specs: Specs) -> Iterator[Finding]:
    """With row lineage every data manifest has a first row id; without one readers ignore the ids of its files."""
    if root.snapshot.first_row_id is None:
        return
    for m in root.manifests:
        if m.is_deletes and m.first_row_id is not None:
            yield Finding("row-ids", m.path, f"Holds deletes, but has a first row id {m.first_row_id}.")
        elif not m.is_deletes and m.first_row_id is None and not m.is_inline:
            message = f"Has no first row id in snapshot {root.snapshot.snapshot_id}, which tracks rows."
            yield Finding("row-ids", m.path, message)


RULES: tuple[Rule, ...] = (
    header_names_the_snapshot,
    manifests_are_distinct,
    specs_are_known,
    numbers_fit,
    adders_are_named,
    row_ids_are_assigned,
)
