"""ALTER TABLE … ADD, DROP and REPLACE PARTITION FIELD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, table_named
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["EvolvePartitions", "add_field", "drop_field", "replace_field"]


@dataclass(frozen=True)
class EvolvePartitions:
    """`ALTER TABLE t ADD PARTITION FIELD bucket(16, id) AS shard`, and its relatives."""

    table: Name
    add: tuple[str, ...] = ()  # a term, and AS with a name if one is given
    drop: tuple[str, ...] = ()  # a term or a name

    def run(self, lake: Lake, options: Options) -> Table:
        """Make the next partition spec the default."""
        options.only("ALTER TABLE")
        return table_named(lake, self.table).evolve_partitions(self.add, self.drop)


def add_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows ADD PARTITION FIELD."""
    return EvolvePartitions(table, add=(reader.rest("a partition field"),))


def drop_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows DROP PARTITION FIELD."""
    return EvolvePartitions(table, drop=(_field(reader),))


def replace_field(reader: Reader, table: Name) -> EvolvePartitions:
    """Read what follows REPLACE PARTITION FIELD."""
    dropped = _field(reader)
    reader.expect("WITH")
    return EvolvePartitions(table, (reader.rest("a partition field"),), (dropped,))


def _field(reader: Reader) -> str:
    """A field that exists: its name without backticks, or its term."""
    start = reader.at
    text = reader.until("WITH", what="a partition field")
    return reader.words[start].name if reader.at == start + 1 else text
