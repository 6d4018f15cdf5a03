"""Random conditions on odd values as SQL text, and the parts that each is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from tests.support.judged_tables import EPOCH, TestedColumn

COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")
OPERATORS = (
    *COMPARISONS, "IN", "NOT IN", "BETWEEN", "NOT BETWEEN", "IS NULL", "IS NOT NULL", "isnull", "isnotnull", "isnan",
    "LIKE", "NOT LIKE", "startswith", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "DISTINCT", "alone",
    "constant", "date", "AND", "OR", "NOT",
)  # fmt: skip
# Of any type, compared with columns of any other.
WILD = (
    "NULL", "true", "FALSE", "0", "5", "-1", "1.5", "-0.0", "1e3", "1e400", "-1E400", "5L", "1.5D", "2BD", "1.50BD",
    "0.1F", "1e39F", "1e400D", "300Y", "3S", "70000S", "99999999999999999999", "-99999999999999999999L",
    "1234567890123456789012345678901234567890", "0.1234567890123456789012345678901234567890", "9223372036854775808",
    "'5'", "' 5 '", "'5.0'", "'abc'", "''", "'1e3'", "'NaN'", "'Infinity'", "'true'", "'t'", "'1'", "'0'", "'\\u00a05'",
    "'99999999999'", "DATE '2024-03-10'", "DATE '0001-01-01'", "DATE '9999-12-31'", "DATE '1582-10-04'",
    "DATE '2024-13-01'", "TIMESTAMP '2024-03-10 02:30:00'", "TIMESTAMP '2024-11-03 01:30:00'",
    "TIMESTAMP '2024-06-01 12:00:00+19:00'", "TIMESTAMP_NTZ '2024-03-10 02:30:00'", "'2024-03-10'", "'2024-3-9'",
    "' 2024-03-10 '", "'2024'", "'2024-03'", "'2024-03-10 02:30:00'", "'2024-03-10T02:30:00.123456Z'",
    "'2024-06-01 12:00:00 utc'", "'2024-06-01 12:00:00z'", "'2024-06-01 12:00:00+19:00'", "'2024-02-30'",
    "'2024-06-01 12:00:00 Europe/Paris'", "'2024-06-01 12:00:00 UTC'", "'2024-06-01 12:00:00 PST'", "'epoch'",
    "'2024-06-01 12:00:00 GMT+2'", "'2024-06-01 12:00:00 +2:00'", "'now'", "X'6162'", "X'F'", "x''",
    "CAST(NULL AS INT)", "CAST(NULL AS DATE)", "CAST('5' AS INT)", "CAST(1.5 AS INT)", "CAST(-1.5 AS BIGINT)",
    "CAST('1.50' AS DECIMAL(5,1))", "CAST(5 AS STRING)", "CAST('2024-03-10' AS DATE)",
    "CAST('2024-03-10 02:30:00' AS TIMESTAMP)", "CAST(1.5 AS DECIMAL)", "CAST('2024-03-10 02:30:00' AS TIMESTAMP_NTZ)",
    "CAST(TIMESTAMP '2024-03-10 02:30:00' AS DATE)", "CAST('x' AS INT)", "CAST('NaN' AS DOUBLE)",
    "CAST('-inf' AS FLOAT)", "CAST(300 AS TINYINT)", "TRY_CAST('x' AS INT)", "CAST(5 AS BOOLEAN)",
    "CAST('true' AS BOOLEAN)", "CAST(0.1 AS FLOAT)", "TRY_CAST(300 AS TINYINT)", "CAST(1e20 AS BIGINT)", "- 5", "-(-5)",
    "CAST('2024-03-10 12:00:00' AS DATE)", "current_date()", "DATE '2024-03-10' + 1", "1 + 1", "INTERVAL '1' DAY",
    "CAST('abc' AS VARCHAR(2))", "CAST('ab ' AS CHAR(3))", "CAST(99999.995 AS DECIMAL(7,2))",
    "'12345678-1234-5678-1234-567812345678'",
)  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A condition, the smaller conditions in it, and the types and operators it uses."""

    sql: str
    parts: tuple[Condition, ...] = ()
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConditionMaker:
    """Makes conditions on the columns of a table."""

    columns: Sequence[TestedColumn]
    chance: Random
    other_case: float  # how often a name is written in capitals
    wild: float = 0.12  # how often a constant is of any type

    def conditions(self, count: int) -> Iterator[Condition]:
        """Every other one is a single comparison."""
        for n in range(count):
            yield self._any(0 if n % 2 else self.chance.choice((1, 1, 2, 3)))

    def _any(self, depth: int) -> Condition:
        if depth == 0:
            return self._leaf()
        word = self.chance.choice(("AND", "OR", "AND", "OR", "NOT", "IS"))
        if word == "NOT":
            return _joined(self.chance.choice(("NOT ({})", "!({})")), "NOT", self._any(depth - 1))
        if word == "IS":
            test = self.chance.choice(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"))
            return _joined("({}) " + test, test, self._any(depth - 1))
        count = self.chance.choice((2, 2, 3))
        parts = [self._any(self.chance.randrange(depth)) for _ in range(count)]
        return _joined(f" {word} ".join(["({})"] * count), word, *parts)

    def _leaf(self) -> Condition:
        column, chance = self.chance.choice(self.columns), self.chance
        makers: list[Callable[[TestedColumn], tuple[str, str]]] = [self._null_test]
        if column.type_name != "time":
            makers += [self._comparison] * 6 + [self._list] * 2 + [self._range] * 2 + [self._constant_test]
        if column.type_name in ("float", "double") or chance.random() < 0.01:
            makers.append(self._nan_test)
        if column.type_name == "string" or chance.random() < 0.02:
            makers += [self._prefix] * 3
        if column.type_name == "boolean":
            makers += [self._truth] * 3
        if column.type_name in ("timestamp", "timestamptz", "date"):
            makers.append(self._day)
        sql, operator = chance.choice(makers)(column)
        return Condition(sql, (), frozenset({column.type_name, operator}))

    def _name(self, column: TestedColumn) -> str:
        """A column as it may be written: in other letters, in quotes, in parentheses."""
        name = column.text.upper() if self.chance.random() < self.other_case else column.text
        return f"({name})" if self.chance.random() < 0.05 else name

    def _comparison(self, column: TestedColumn) -> tuple[str, str]:
        operator = self.chance.choice(COMPARISONS)
        name, value = self._name(column), self.constant(column)
        sides = (value, name) if self.chance.random() < 0.2 else (name, value)
        return f"{sides[0]} {operator} {sides[1]}", operator

    def _list(self, column: TestedColumn) -> tuple[str, str]:
        word = self.chance.choice(("IN", "NOT IN"))
        values = [self.constant(column) for _ in range(self.chance.choice((1, 2, 3, 5)))]
        if self.chance.random() < 0.2:
            values.append("NULL")
        return f"{self._name(column)} {word} ({', '.join(values)})", word

    def _range(self, column: TestedColumn) -> tuple[str, str]:
        word = self.chance.choice(("BETWEEN", "NOT BETWEEN"))
        return f"{self._name(column)} {word} {self.constant(column)} AND {self.constant(column)}", word

    def _null_test(self, column: TestedColumn) -> tuple[str, str]:
        word = self.chance.choice(("IS NULL", "IS NOT NULL", "isnull", "isnotnull"))
        name = self._name(column)
        return (f"{name} {word}" if word.isupper() else f"{word}({name})"), word

    def _nan_test(self, column: TestedColumn) -> tuple[str, str]:
        return self.chance.choice(("isnan({})", "NOT isnan({})")).format(self._name(column)), "isnan"

    def _truth(self, column: TestedColumn) -> tuple[str, str]:
        word = self.chance.choice(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "alone"))
        return (self._name(column) if word == "alone" else f"{self._name(column)} {word}"), word

    def _prefix(self, column: TestedColumn) -> tuple[str, str]:
        values = [v for v in column.values if isinstance(v, str)] or ["a"]
        start = self.chance.choice(values)[: self.chance.choice((0, 1, 2, 9))]
        word = self.chance.choice(("LIKE", "NOT LIKE", "startswith"))
        if word == "startswith":
            return f"startswith({self._name(column)}, {self._text(start)})", word
        end = self.chance.choice(("%", "%", "%", "%%", "", "_", "%b", "\\%"))
        return f"{self._name(column)} {word} {self._text(start + end)}", word

    def _day(self, column: TestedColumn) -> tuple[str, str]:
        form = self.chance.choice(("CAST({} AS DATE)", "date({})", "to_date({})"))
        day = self.chance.choice(
            ("DATE '2024-03-10'", "'2024-03-10'", "DATE '1582-10-15'", "DATE '0001-01-01'", "NULL")
        )
        return f"{form.format(self._name(column))} {self.chance.choice(COMPARISONS[:8])} {day}", "date"

    def _constant_test(self, column: TestedColumn) -> tuple[str, str]:
        """A null or a constant in a place where it decides everything, and other names of `<=>`."""
        if self.chance.random() < 0.5:
            word = self.chance.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return f"{self._name(column)} {word} {self.constant(column)}", "DISTINCT"
        texts = (
            "1 = 1",
            "1 = 0",
            "'a' = 'b'",
            "TRUE",
            "false",
            "NULL",
            f"{column.text} = NULL",
            f"NULL <=> {column.text}",
        )
        return self.chance.choice(texts), "constant"

    # --- constants ---

    def constant(self, column: TestedColumn) -> str:
        """A constant near a value that the column holds, written in one of many ways."""
        if self.chance.random() < self.wild:
            return self.chance.choice(WILD)
        value = self.chance.choice(column.values)
        makers: dict[type, Callable[[Any], str]] = {
            bool: lambda _: self.chance.choice(("true", "false", "TRUE", "CAST('true' AS BOOLEAN)")),
            int: self._whole_number,
            float: self._float,
            Decimal: self._decimal,
            str: self._text,
            bytes: self._bytes,
            datetime: lambda moment: self._moment(moment, column.type_name),
            date: self._date,
        }
        if column.type_name.endswith("_ns"):
            return self._moment(EPOCH + timedelta(microseconds=value // 1000), column.type_name)
        return self._uuid(value) if column.type_name == "uuid" else makers[type(value)](value)

    def _bytes(self, value: bytes) -> str:
        return f"X'{value.hex()}'" if self.chance.random() < 0.9 else f"x'{value.hex().upper()}'"

    def _uuid(self, value: bytes) -> str:
        text = f"'{UUID(bytes=value)}'"
        return text if self.chance.random() < 0.9 else text.upper()

    def _whole_number(self, value: int) -> str:
        value += self.chance.choice((0, 0, 0, 1, -1))
        forms = [
            "{}",
            "{}",
            "{}",
            "{}",
            "{}.0",
            "{}.5",
            "{}L",
            "{}BD",
            "CAST({} AS BIGINT)",
            "(({}))",
            "CAST('{}' AS INT)",
        ]
        if abs(value) < 2**53:
            forms += ["'{}'", "{}D", "{}e0", "{}.25D", "' {}'", "+{}", "CAST({} AS DOUBLE)", "'+{}'", "'00{}'"]
        return self.chance.choice(forms).format(value)

    def _float(self, value: float) -> str:
        if not math.isfinite(value):
            text = self.chance.choice(("NaN", "nan")) if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            kind = self.chance.choice(("DOUBLE", "FLOAT"))
            return self.chance.choice((f"CAST('{text}' AS {kind})", f"{kind.lower()}('{text}')", f"'{text}'"))
        forms = [
            f"{value!r}",
            f"{value!r}D",
            f"'{value!r}'",
            f"CAST('{value!r}' AS FLOAT)",
            f"CAST({value!r} AS DOUBLE)",
        ]
        if "e" not in repr(value):
            forms += [f"{value!r}BD", f"{value!r}1", f"{value!r}F", f"{int(value)}", f"{value!r}e0"]
        return self.chance.choice(forms)

    def _decimal(self, value: Decimal) -> str:
        plain = f"{value:f}"
        whole, _, fraction = plain.partition(".")
        forms = [plain, plain, f"{plain}BD", whole, f"{whole}.{fraction}5", f"{whole}.{fraction}0", f"'{plain}'"]
        forms += [f"CAST({plain} AS DECIMAL(38,{min(len(fraction) + 1, 10)}))", f"{plain}D", f"{whole}L"]
        return self.chance.choice(forms)

    def _date(self, value: date) -> str:
        text = value.isoformat()
        other = f"{value.year:04}-{value.month}-{value.day}"
        forms = [
            f"DATE '{text}'",
            f"DATE '{text}'",
            f"'{text}'",
            f"date'{other}'",
            f"CAST('{text}' AS DATE)",
            f"'{other}'",
        ]
        forms += [
            f"TIMESTAMP '{text} 00:00:00'",
            f"TIMESTAMP_NTZ '{text} 01:00:00'",
            f"'{text} 00:00:00'",
            f"date('{text}')",
        ]
        return self.chance.choice(forms)

    def _moment(self, value: datetime, type_name: str) -> str:
        step = timedelta(microseconds=self.chance.choice((0, 0, 1, -1, 3_600_000_000)))
        value = value.replace(tzinfo=None) + (step if 1 < value.year < 9999 else timedelta(0))
        text = value.isoformat(sep=self.chance.choice((" ", " ", "T")))
        zone = self.chance.choice(("", "", "", "Z", "+02:00", " America/New_York", "-08:00", "+5:30", " UTC"))
        word = "TIMESTAMP" if "tz" in type_name else "TIMESTAMP_NTZ"
        forms = [f"{word} '{text}'", f"{word} '{text}'", f"TIMESTAMP '{text}{zone}'", f"TIMESTAMP_NTZ '{text}{zone}'"]
        forms += [f"'{text}{zone}'", f"CAST('{text}' AS {word})", f"DATE '{value.date()}'", f"'{value.date()}'"]
        forms += [f"TIMESTAMP_LTZ '{text}{zone}'", f"timestamp('{text}')"]
        return self.chance.choice(forms)

    def _text(self, value: str) -> str:
        simple = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        if self.chance.random() < 0.75:
            return simple
        forms = ['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"']
        if "\\" not in value:
            forms.append("'" + value.replace("'", "''") + "'")
            forms.append("'" + "".join(_escaped(c) for c in value) + "'")
        if "'" not in value and "\n" not in value:
            forms += [f"r'{value}'", f"R'{value}'"]
        forms.append(f"{simple} 'x'")
        forms.append("'" + value.replace("'", "\\'").replace("a", "\\141").replace("b", "\\x62") + "'")
        return self.chance.choice(forms)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def _joined(shape: str, word: str, *parts: Condition) -> Condition:
    uses: Any = frozenset({word}).union(*(part.uses for part in parts))
    return Condition(shape.format(*(part.sql for part in parts)), parts, uses)
