"""ALTER TABLE: which change is meant."""

from __future__ import annotations

from collections.abc import Callable

from neve.sql.columns import add_columns, alter_column, drop_columns, rename_column, set_identifier_fields
from neve.sql.partition_fields import add_field, drop_field, replace_field
from neve.sql.properties import set_properties, unset_properties
from neve.sql.reader import Reader
from neve.sql.refs import create_ref, drop_ref
from neve.sql.rename_table import rename_table
from neve.sql.statement import Statement
from neve.sql.target import Name

__all__ = ["alter_table"]

# The words that begin a change, and who reads what follows; longer ones first where one begins like another.
_CHANGES: dict[tuple[str, ...], Callable[[Reader, Name], Statement]] = {
    ("ADD", "PARTITION", "FIELD"): add_field,
    ("DROP", "PARTITION", "FIELD"): drop_field,
    ("REPLACE", "PARTITION", "FIELD"): replace_field,
    ("SET", "TBLPROPERTIES"): set_properties,
    ("UNSET", "TBLPROPERTIES"): unset_properties,
    ("SET", "IDENTIFIER", "FIELDS"): set_identifier_fields,
    ("ADD", "COLUMN"): add_columns,
    ("ADD", "COLUMNS"): add_columns,
    ("DROP", "COLUMN"): drop_columns,
    ("DROP", "COLUMNS"): drop_columns,
    ("RENAME", "COLUMN"): rename_column,
    ("ALTER", "COLUMN"): alter_column,
    ("CHANGE", "COLUMN"): alter_column,
    ("RENAME", "TO"): rename_table,
    ("CREATE",): create_ref,
    ("DROP",): drop_ref,
}


def alter_table(reader: Reader) -> Statement:
    """Read an ALTER TABLE."""
    reader.expect("ALTER", "TABLE")
    table = reader.table_name()
    for words, change in _CHANGES.items():
        if reader.took(*words):
            found = change(reader, table)
            reader.end()
            return found
    known = ["ADD, DROP or REPLACE PARTITION FIELD", "ADD, DROP, RENAME or ALTER COLUMN", "RENAME TO"]
    known += ["SET or UNSET TBLPROPERTIES", "SET IDENTIFIER FIELDS", "CREATE or DROP BRANCH or TAG"]
    raise reader.wrong(f"expected {'; '.join(known)}")
