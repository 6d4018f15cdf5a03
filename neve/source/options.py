"""The options of Spark's readers and writers, with Iceberg's names.

Spark passes options as text, with names in lower case. Unknown names are rejected, so that no option is silently
ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

from neve.commit.summary import refuse_reserved_properties
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.write.overwrite import is_serializable
from neve.source.connection import Connection

SNAPSHOT_PROPERTY = "snapshot-property."
_LOCATION_OPTIONS = ("path", "lake", "catalog")
_SPARK_OPTIONS = ("checkpointlocation", "queryname")  # Spark's own options of a stream

Options = Mapping[str, str]
OverwriteMode = Literal["static", "dynamic"]


@dataclass(frozen=True)
class TableOptions:
    """The table to read or write. Its name is the argument of `load`, `save` or `start`."""

    name: str
    connection: Connection

    @classmethod
    def of(cls, options: Options, default_connection: Connection) -> TableOptions:
        """Return the table that the options name; the default is used if they do not name a lake or catalog."""
        name = options.get("path")
        if not name:
            raise UserError("Missing table name. Give the name with its namespace, such as load('db.events').")
        return cls(name, default_connection.for_options(options.get("lake"), options.get("catalog")))

    def context(self) -> TableContext:
        """Load the current state of the table."""
        return self.connection.table(self.name)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a batch read."""

    snapshot_id: int | None = None
    as_of: int | None = None  # milliseconds since 1970
    ref: str | None = None  # a branch or a tag
    where: str | None = None  # SQL condition that leaves out rows before Spark gets them
    split_bytes: int | None = None  # bytes of files per task; None: read.split.target-size
    pushes_filters: bool = False  # also use the conditions of the query; only for DataFrames that are read in one query

    NAMES: ClassVar = ("snapshot-id", "as-of-timestamp", "branch", "tag", "where", "split-size", "filter-pushdown")

    @classmethod
    def of(cls, options: Options) -> ReadOptions:
        """Parse the options of a batch read."""
        _refuse_unknown(options, cls.NAMES)
        selectors = [name for name in cls.NAMES[:4] if name in options]
        if len(selectors) > 1:
            raise UserError(f"Choose one of the options {' and '.join(selectors)}: each selects a snapshot.")
        return cls(
            _parse_integer(options, "snapshot-id"),
            _parse_integer(options, "as-of-timestamp"),
            options.get("branch", options.get("tag")),
            options.get("where"),
            _parse_integer(options, "split-size", minimum=1),
            _parse_boolean(options, "filter-pushdown"),
        )


@dataclass(frozen=True)
class StreamReadOptions:
    """The options of a streaming read."""

    from_ms: int | None = None  # earlier snapshots are left out
    skips_deletes: bool = False
    skips_overwrites: bool = False
    branch: str = "main"
    split_bytes: int | None = None

    NAMES: ClassVar = (
        "stream-from-timestamp",
        "streaming-skip-delete-snapshots",
        "streaming-skip-overwrite-snapshots",
        "branch",
        "split-size",
    )

    @classmethod
    def are_for_streaming(cls, options: Options) -> bool:
        """Return whether one of the options is only for streaming reads."""
        return any(name in options for name in cls.NAMES if name not in ReadOptions.NAMES)

    @classmethod
    def of(cls, options: Options) -> StreamReadOptions:
        """Parse the options of a streaming read."""
        _refuse_unknown(options, cls.NAMES)
        return cls(
            _parse_integer(options, "stream-from-timestamp"),
            _parse_boolean(options, "streaming-skip-delete-snapshots"),
            _parse_boolean(options, "streaming-skip-overwrite-snapshots"),
            options.get("branch", "main"),
            _parse_integer(options, "split-size", minimum=1),
        )


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write."""

    branch: str = "main"
    overwrite_where: str | None = None  # SQL; only with mode("overwrite")
    overwrite_mode: OverwriteMode = "static"  # dynamic: replace the partitions of the written rows
    isolation: str | None = None
    target_file_size: int | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    OF_STREAM: ClassVar = ("branch", "target-file-size-bytes")
    NAMES: ClassVar = (*OF_STREAM, "overwrite-where", "overwrite-mode", "isolation-level")

    @classmethod
    def of(cls, options: Options, *, overwrite: bool, is_stream: bool = False) -> WriteOptions:
        """Parse the options of a write.

        A stream has fewer options: it appends or replaces everything, and checks nothing but its epochs.
        """
        prefix = SNAPSHOT_PROPERTY
        properties = {n.removeprefix(prefix): value for n, value in options.items() if n.startswith(prefix)}
        names = [name for name in options if not name.startswith(prefix)]
        _refuse_unknown(names, cls.OF_STREAM if is_stream else cls.NAMES)
        refuse_reserved_properties(properties)
        mode = options.get("overwrite-mode", "static").lower()
        if mode not in ("static", "dynamic"):
            raise UnknownName("overwrite mode", mode, ("static", "dynamic"))
        write_options = cls(
            options.get("branch", "main"),
            options.get("overwrite-where"),
            cast(OverwriteMode, mode),
            options.get("isolation-level"),
            _parse_integer(options, "target-file-size-bytes", minimum=1),
            properties,
        )
        write_options._check(overwrite)
        return write_options

    def _check(self, overwrite: bool) -> None:
        is_serializable(self.isolation)
        if self.overwrite_where is not None and not overwrite:
            raise UserError("The option overwrite-where needs mode('overwrite'): an append replaces nothing.")
        if not overwrite and (self.overwrite_mode == "dynamic" or self.isolation is not None):
            raise UserError("The options overwrite-mode=dynamic and isolation-level need mode('overwrite').")
        if self.overwrite_where is not None and self.overwrite_mode == "dynamic":
            raise UserError("Choose one of overwrite-where and overwrite-mode=dynamic: each says what is replaced.")


def _refuse_unknown(names: Iterable[str], allowed: Collection[str]) -> None:
    unknown = [name for name in names if name not in {*allowed, *_LOCATION_OPTIONS, *_SPARK_OPTIONS}]
    if unknown:
        raise UnknownName("option", unknown[0], [*allowed, *_LOCATION_OPTIONS[1:]], "the source neve")


def _parse_integer(options: Options, name: str, minimum: int = 0) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < minimum:
        raise UserError(f"Option {name} is {text!r}. Give a whole number{' above 0' if minimum else ''}.")
    return int(text)


def _parse_boolean(options: Options, name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise UserError(f"Option {name} is {text!r}. Give true or false.")
    return text == "true"
