"""The SQL statements of the jobs, the same for every engine that takes SQL."""

from __future__ import annotations

ONE_IN_A_HUNDRED = "l_tax = 0.07"
ANOTHER_ONE_IN_A_HUNDRED = "l_tax = 0.05"
ONE_YEAR = "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'"
PLANNED = "region = 'r07' AND id < 500"

_MERGE = "MERGE INTO {table} t USING {source} s ON t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber "
CHANGE_TEXTS = {
    "UPDATE": f"UPDATE {{table}} SET l_extendedprice = l_extendedprice + 1 WHERE {ONE_IN_A_HUNDRED}",
    "DELETE": f"DELETE FROM {{table}} WHERE {ONE_IN_A_HUNDRED}",
    "MERGE": _MERGE + "WHEN MATCHED THEN UPDATE SET t.l_extendedprice = s.price",
    "UPDATE by key": "UPDATE {table} SET l_extendedprice = l_extendedprice + 1 WHERE l_orderkey IN ({keys})",
    "DELETE by key": "DELETE FROM {table} WHERE l_orderkey IN ({keys})",
    "MERGE of changes": _MERGE
    + "WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED AND s.op = 'U' THEN UPDATE SET * "
    "WHEN NOT MATCHED AND s.op = 'I' THEN INSERT *",
}
DELETE_OTHERS = f"DELETE FROM {{table}} WHERE {ANOTHER_ONE_IN_A_HUNDRED}"
UPDATE_WIDE = "UPDATE {table} SET c01 = c01 + 1 WHERE c02 = 7"

LINE_SUMS = ("l_extendedprice", "l_orderkey")
WIDE_SUMS = ("id", "c01")
NESTED_SUMS = ("id", "length(to_json(struct(*)))")


def checksum_query(table: str, where: str = "true", sums: tuple[str, ...] = LINE_SUMS) -> str:
    """Return a query for the number of rows, and for the sums of some columns."""
    return f"SELECT count(*), {', '.join(f'sum({one})' for one in sums)} FROM {table} WHERE {where}"


def checksum(row: tuple[object, ...] | None) -> str:
    """Return the row of such a query as text."""
    return "no answer" if row is None else f"{row[0]} rows, sums {', '.join(str(one) for one in row[1:])}"
