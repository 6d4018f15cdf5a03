"""CREATE, ALTER, DROP and DESCRIBE NAMESPACE; DATABASE and SCHEMA are other words for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import neve.catalog as catalogs
from neve.ops.context import LakeContext
from neve.predicate.column_names import join_name
from neve.sql.alter_table import parse_properties, parse_property_name
from neve.sql.reader import Reader
from neve.sql.statement import MetadataQuery, Name, Statement, StatementOptions

_KEYWORDS = ("NAMESPACE", "DATABASE", "SCHEMA")
_DETAILS = ("comment", "location", "owner")  # properties that Spark shows as details of their own


def namespace_or(
    parse_namespace: Callable[[Reader], Statement], parse_table: Callable[[Reader], Statement]
) -> Callable[[Reader], Statement]:
    """Return the parser of two statements that begin alike, such as CREATE NAMESPACE and CREATE TABLE."""

    def parse_statement(reader: Reader) -> Statement:
        begun = reader.position
        reader.position += 1
        begins_a_name = any(reader.sees(keyword, ".") for keyword in _KEYWORDS)
        if reader.sees_one_of(*_KEYWORDS) and not begins_a_name:
            reader.position += 1
            return parse_namespace(reader)
        reader.position = begun
        return parse_table(reader)

    return parse_statement


def namespace_name(lake: LakeContext, name: Name) -> Name:
    """Return a name without the name of the catalog, unless a namespace of the full name exists."""
    if lake.place_of is not None:  # all names begin with the lake
        return name[1:]
    begins_with_catalog = len(name) > 1 and name[0] == lake.name
    return name[1:] if begins_with_catalog and not lake.catalog.namespace_exists(name) else name


@dataclass(frozen=True)
class CreateNamespace:
    """`CREATE NAMESPACE [IF NOT EXISTS] ns [COMMENT '…'] [LOCATION '…'] [WITH PROPERTIES (…)]`."""

    name: Name
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Create the namespace."""
        options.require_only("CREATE NAMESPACE")
        name = namespace_name(lake, self.name)
        if not (self.if_not_exists and lake.catalog.namespace_exists(name)):
            catalogs.create_namespace(lake.catalog, name, self.properties)


@dataclass(frozen=True)
class ChangeNamespace:
    """`ALTER NAMESPACE ns SET PROPERTIES (…)`, `UNSET PROPERTIES (…)` or `SET LOCATION '…'`."""

    name: Name
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Change the properties of the namespace; tables keep their location."""
        options.require_only("ALTER NAMESPACE")
        catalogs.change_namespace(lake.catalog, namespace_name(lake, self.name), self.updates, self.removals)


@dataclass(frozen=True)
class DropNamespace:
    """`DROP NAMESPACE [IF EXISTS] ns [RESTRICT | CASCADE]`. As in Iceberg, CASCADE drops no tables either."""

    name: Name
    if_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Drop the namespace; it must be empty."""
        options.require_only("DROP NAMESPACE")
        name = namespace_name(lake, self.name)
        if not (self.if_exists and not lake.catalog.namespace_exists(name)):
            catalogs.drop_namespace(lake.catalog, name)


@dataclass(frozen=True)
class DescribeNamespace(MetadataQuery):
    """`DESCRIBE NAMESPACE [EXTENDED] ns`."""

    name: Name
    is_extended: bool = False

    columns = ("info_name", "info_value")

    def _rows(self, lake: LakeContext) -> Iterator[tuple[str, str]]:
        name = namespace_name(lake, self.name)
        properties = catalogs.namespace_properties(lake.catalog, name)
        yield "Catalog Name", lake.name
        yield "Namespace Name", join_name(name)
        yield from ((detail.capitalize(), properties[detail]) for detail in _DETAILS if detail in properties)
        if self.is_extended:
            others = [f"({key},{value})" for key, value in properties.items() if key not in _DETAILS]
            yield "Properties", f"({', '.join(others)})" if others else ""


def parse_create_namespace(reader: Reader) -> CreateNamespace:
    """Parse what follows CREATE NAMESPACE; the clauses may come in any order, each once."""
    if_not_exists = reader.take_if_next("IF", "NOT", "EXISTS")
    name, properties = reader.dotted_name("a namespace"), dict[str, str]()
    while (at := reader.word) is not None:
        added = _parse_clause(reader)
        for twice in properties.keys() & added.keys():
            raise reader.syntax_error(f"property {twice!r} is given twice", at)
        properties |= added
    return CreateNamespace(name, properties, if_not_exists)


def _parse_clause(reader: Reader) -> dict[str, str]:
    if reader.take_if_next("COMMENT"):
        return {"comment": reader.string("a comment")}
    if reader.take_if_next("LOCATION"):
        return {"location": reader.string("a location")}
    if reader.take_if_next("WITH"):
        _expect_properties(reader)
        return parse_properties(reader)
    raise reader.syntax_error("expected COMMENT, LOCATION or WITH PROPERTIES")


def parse_alter_namespace(reader: Reader) -> ChangeNamespace:
    """Parse what follows ALTER NAMESPACE."""
    name = reader.dotted_name("a namespace")
    if reader.take_if_next("SET", "LOCATION"):
        return ChangeNamespace(name, {"location": reader.string("a location")})
    if reader.take_if_next("UNSET"):
        _expect_properties(reader)
        reader.take_if_next("IF", "EXISTS")
        return ChangeNamespace(name, removals=reader.bracketed_list(lambda: parse_property_name(reader)))
    reader.expect("SET")
    _expect_properties(reader)
    return ChangeNamespace(name, parse_properties(reader))


def parse_drop_namespace(reader: Reader) -> DropNamespace:
    """Parse what follows DROP NAMESPACE."""
    if_exists = reader.take_if_next("IF", "EXISTS")
    name = reader.dotted_name("a namespace")
    if not reader.take_if_next("CASCADE"):
        reader.take_if_next("RESTRICT")
    return DropNamespace(name, if_exists)


def parse_describe_namespace(reader: Reader) -> DescribeNamespace:
    """Parse what follows DESCRIBE NAMESPACE."""
    is_extended = reader.take_if_next("EXTENDED")
    return DescribeNamespace(reader.dotted_name("a namespace"), is_extended)


def _expect_properties(reader: Reader) -> None:
    if not reader.take_if_next("DBPROPERTIES") and not reader.take_if_next("PROPERTIES"):
        raise reader.syntax_error("expected PROPERTIES or LOCATION")
