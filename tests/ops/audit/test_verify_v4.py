"""The audit of version 4 trees: sound after every history, and awake to what does not add up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve.ops.audit.verify import Audit
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit
from tests.tree.test_v4_golden import HISTORIES


def audit(t: Kit) -> Audit:
    return neve.connect(str(t.folder)).table("db.t").verify(data=False)


@pytest.mark.parametrize("name", HISTORIES)
def test_every_history_is_sound(name: str, tmp_path: Path):
    found = audit(HISTORIES[name](tmp_path))
    assert not found.findings, str(found)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"added_files_count": 9}, "manifest-counts"),
        ({"min_sequence_number": 2}, "min-sequence-number"),
    ],
)
def test_a_root_that_states_something_else_is_found_out(tmp_path: Path, change: dict, kind: str):
    t = HISTORIES["evolve"](tmp_path)
    root = v4.local(t.head().root_manifest)
    rows, schema = pq.read_table(root).to_pylist(), pq.read_schema(root)
    rows[1]["manifest_info"] |= change
    pairs = pq.read_metadata(root).metadata
    with pq.ParquetWriter(root, schema, store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.add_key_value_metadata(dict(pairs))
    assert kind in {f.kind for f in audit(t).findings}


def test_a_leaf_that_is_gone_is_named(tmp_path: Path):
    t = HISTORIES["row_delta"](tmp_path)
    gone = t.manifests(deletes=True)[0].file
    v4.local(gone).unlink()
    assert {(f.kind, f.path) for f in audit(t).findings if f.kind == "missing-file"} == {("missing-file", gone)}
