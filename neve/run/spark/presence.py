"""Which files lack a column that is not null there: an identity partition source, or a column with an initial default.

Spark reads an absent column as null, so it must be known beforehand, and a manifest does not say it.

* A column with a default: a value count in the manifest proves that the file has it; without one the footer is read.
* An identity partition source: nearly all writers store it, and footers of a sample are read, a file of each commit.
  If all of these have the column the others are taken to have it too, under guard: a file whose tuple has a value holds
  no null in that column, so a null in it stops the query.

`spark.neve.read.footers` = `all` in the session reads every footer instead of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession

from neve.model.values import whole
from neve.run.facts import TableFacts
from neve.run.spark.footers import shapes
from neve.tree.entries import EntryTable

__all__ = ["FOOTERS", "Presence", "as_mask", "presence", "sample"]

FOOTERS = "spark.neve.read.footers"
_SAMPLE = 64

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Presence:
    """For each file (down) and each column in question (across): what becomes of it."""

    ids: tuple[int, ...]
    defaulted: Mask  # absent: it takes its default
    in_tuple: Mask  # absent: its value is in the partition tuple
    never_null: Mask  # held to be present, and then without nulls

    def kinds(self) -> list[tuple[frozenset[int], frozenset[int], Rows]]:
        """Files alike, those with values in the tuple left out: the columns by default, those under guard, the rows."""
        rows = np.flatnonzero(~self.in_tuple.any(axis=1))
        both = np.hstack([self.defaulted, self.never_null])[rows]
        found, which = np.unique(both, axis=0, return_inverse=True)
        ids = np.array(self.ids, np.int64)
        split = [(kind[: len(ids)], kind[len(ids) :]) for kind in found]
        return [
            (frozenset(ids[defaulted].tolist()), frozenset(ids[guarded].tolist()), rows[which == n])
            for n, (defaulted, guarded) in enumerate(split)
        ]


def presence(spark: SparkSession, files: EntryTable, asked: Schema, facts: TableFacts) -> Presence:
    """What becomes of the columns of a projection in each file, as far as that is in question."""
    ids = tuple(sorted(facts.columns_to_place(asked)))
    by_tuple = _table([_is_in_tuple(files, i) for i in ids], len(files))
    in_tuple = _table([_is_in_tuple(files, i, with_value=True) for i in ids], len(files))
    has_default = np.array([asked.find_field(i).initial_default is not None for i in ids], bool)
    # What the tuple says comes before the default, null too.
    doubtful = has_default & ~by_tuple & ~_table([_is_counted(files, i) for i in ids], len(files))
    suspects = doubtful.any(axis=1) | _tuple_suspects(spark, files, in_tuple, ids, facts)
    absent = np.zeros_like(in_tuple)
    absent[suspects] = _absent(spark, files.filter(pa.array(suspects)), ids, facts)
    return Presence(ids, absent & doubtful, absent & in_tuple, in_tuple & ~absent)


def sample(spark: SparkSession, files: EntryTable) -> Rows:
    """Files that stand for the others: one of each commit and spec, spread over time; all of them if so configured."""
    if spark.conf.get(FOOTERS, "sample") == "all":
        return np.arange(len(files))
    commits = pc.fill_null(files["snapshot_id"], -1).to_numpy()
    sequence = pc.fill_null(files["sequence_number"], 0).to_numpy()
    _, first = np.unique(np.stack([sequence, commits, files.numpy("spec_id")]), axis=1, return_index=True)
    return first[np.unique(np.linspace(0, len(first) - 1, min(len(first), _SAMPLE)).astype(int))]


def _tuple_suspects(
    spark: SparkSession, files: EntryTable, in_tuple: Mask, ids: tuple[int, ...], facts: TableFacts
) -> Mask:
    """Files to look into because a file of the sample takes a value from its tuple: then all of them."""
    suspects: Mask = np.any(in_tuple, axis=1)
    chosen = np.flatnonzero(suspects)
    if not len(chosen):
        return suspects
    chosen = chosen[sample(spark, files.take(chosen))]
    absent = _absent(spark, files.take(chosen), ids, facts)
    return suspects if (absent & in_tuple[chosen]).any() else np.zeros_like(suspects)


def _absent(spark: SparkSession, files: EntryTable, ids: tuple[int, ...], facts: TableFacts) -> Mask:
    found = shapes(spark, files, facts)
    return np.array([[i not in shape for i in ids] for shape in found], bool).reshape(len(files), len(ids))


def _is_in_tuple(files: EntryTable, field_id: int, with_value: bool = False) -> Mask:
    """Files whose own spec has the column as an identity field, with or without a value, or with one only."""
    found = np.zeros(len(files), bool)
    for spec_id in files.spec_ids():
        for part, column in zip(files.specs[spec_id].fields, files.specs.columns(spec_id), strict=True):
            if part.source_id == field_id and isinstance(part.transform, IdentityTransform):
                counts = as_mask(files[column].is_valid()) | (not with_value)
                found |= (files.numpy("spec_id") == spec_id) & counts
    return found


def _is_counted(files: EntryTable, field_id: int) -> Mask:
    """Files whose manifest entry counts the values of a column."""
    counted = np.zeros(len(files), bool)
    if files.has("value_counts"):
        counts = files["value_counts"].combine_chunks()
        keys = counts.flatten().field("key").to_numpy()
        counted[pc.list_parent_indices(counts).to_numpy()[keys == field_id]] = True
    return counted


def _table(columns: list[Mask], files: int) -> Mask:
    return np.stack(columns, axis=1) if columns else np.zeros((files, 0), bool)


def as_mask(flags: pa.Array | pa.ChunkedArray) -> Mask:
    """A boolean column without nulls for NumPy."""
    return np.array(whole(flags).to_numpy(zero_copy_only=False), bool)
