"""The columns a MERGE with schema evolution brings: names as they are, and nothing less required than it was."""

from __future__ import annotations

from pyspark.sql import types as sp

from neve.model.ddl import schema_of_ddl
from neve.ops.rows.merge_clauses import Clause, ClauseAction, ClauseKind, evolved_columns

EVERYTHING = Clause(ClauseKind.MATCHED, ClauseAction.UPDATE)


def wanted(ddl: str, *source: sp.StructField) -> list[tuple[str, sp.DataType, bool]]:
    found = evolved_columns(schema_of_ddl(ddl), sp.StructType(list(source)), [EVERYTHING])
    return [(f.name, f.dataType, f.nullable) for f in found.fields]


def test_a_wider_column_stays_required():
    assert wanted(
        "id int not null, n int", sp.StructField("ID", sp.LongType()), sp.StructField("n", sp.LongType())
    ) == [
        ("id", sp.LongType(), False),
        ("n", sp.LongType(), True),
    ]


def test_a_wider_field_of_a_struct_stays_required():
    theirs = sp.StructType([sp.StructField("a", sp.LongType()), sp.StructField("b", sp.StringType())])
    (found,) = wanted("s struct<a: int not null>", sp.StructField("s", theirs))
    assert [(f.name, f.nullable) for f in found[1].fields] == [("a", False), ("b", True)]


def test_a_name_with_a_dot_is_one_name():
    assert wanted("id int", sp.StructField("a.b", sp.StringType())) == [("a.b", sp.StringType(), True)]
