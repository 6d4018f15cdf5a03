"""The options of Spark's readers and writers, by Iceberg's names.

Spark hands options over as text, with names in lower case. Every name is checked: an option that nobody reads would be
a wish that nobody hears.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from neve.commit.summary import refuse_reserved_properties
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.write.overwrite import is_serializable
from neve.source.connection import Connection

SNAPSHOT_PROPERTY = "snapshot-property."
_LOCATION_OPTIONS = ("path", "lake", "catalog")
_SPARK_OPTIONS = ("checkpointlocation", "queryname")  # what Spark leaves among the options of a stream

Options = Mapping[str, str]
OverwriteMode = Literal["static", "dynamic"]


@dataclass(frozen=True)
class TableOptions:
    """Which table: its name is what `load`, `save` or `start` is called with."""

    name: str
    connection: Connection

    @classmethod
    def of(cls, options: Options, default_connection: Connection) -> TableOptions:
        """The table named by some options; `home` is where tables are when the options do not say."""
        name = options.get("path")
        if not name:
            raise UserError("No table named. Give its name with its namespace, such as load('db.events').")
        return cls(name, default_connection.for_options(options.get("lake"), options.get("catalog")))

    def context(self) -> TableContext:
        """The table as it is now."""
        return self.connection.table(self.name)


@dataclass(frozen=True)
class ReadOptions:
    """What a batch read may be told."""

    snapshot_id: int | None = None
    as_of: int | None = None  # milliseconds since 1970
    ref: str | None = None  # a branch or a tag
    where: str | None = None  # SQL that leaves out rows before Spark sees them
    split_bytes: int | None = None  # bytes of files that make a task; None: read.split.target-size
    pushes_filters: bool = False  # take the conditions of the query too; see decision 14 before turning it on

    NAMES: ClassVar = ("snapshot-id", "as-of-timestamp", "branch", "tag", "where", "split-size", "filter-pushdown")

    @classmethod
    def of(cls, options: Options) -> ReadOptions:
        """The options of a batch read."""
        _refuse_unknown(options, cls.NAMES)
        chosen = [name for name in cls.NAMES[:4] if name in options]
        if len(chosen) > 1:
            raise UserError(f"Choose one of the options {' and '.join(chosen)}: each names a snapshot by itself.")
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
    """What a streaming read may be told."""

    from_ms: int | None = None  # snapshots before that time are left out
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
        """Whether some options are for a streaming read only."""
        return any(name in options for name in cls.NAMES if name not in ReadOptions.NAMES)

    @classmethod
    def of(cls, options: Options) -> StreamReadOptions:
        """The options of a streaming read."""
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
    """What a write may be told."""

    branch: str = "main"
    overwrite_where: str | None = None  # SQL; only with mode("overwrite")
    overwrite_mode: OverwriteMode = "static"  # dynamic: replace the partitions the rows fall into
    isolation: str | None = None
    target_file_size: int | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    OF_STREAM: ClassVar = ("branch", "target-file-size-bytes")
    NAMES: ClassVar = (*OF_STREAM, "overwrite-where", "overwrite-mode", "isolation-level")

    @classmethod
    def of(cls, options: Options, *, overwrite: bool, is_stream: bool = False) -> WriteOptions:
        """The options of a write. A stream appends or replaces everything, and checks nothing but its epochs."""
        said = {n.removeprefix(SNAPSHOT_PROPERTY): v for n, v in options.items() if n.startswith(SNAPSHOT_PROPERTY)}
        others = {n: v for n, v in options.items() if not n.startswith(SNAPSHOT_PROPERTY)}
        _refuse_unknown(others, cls.OF_STREAM if is_stream else cls.NAMES)
        refuse_reserved_properties(said)
        made = cls(
            options.get("branch", "main"),
            options.get("overwrite-where"),
            _overwrite_mode(options),
            options.get("isolation-level"),
            _parse_integer(options, "target-file-size-bytes", minimum=1),
            said,
        )
        made._check(overwrite)
        return made

    def _check(self, overwrite: bool) -> None:
        is_serializable(self.isolation)
        if self.overwrite_where is not None and not overwrite:
            raise UserError("The option overwrite-where needs mode('overwrite'): an append replaces nothing.")
        if not overwrite and (self.overwrite_mode == "dynamic" or self.isolation is not None):
            raise UserError("The options overwrite-mode=dynamic and isolation-level need mode('overwrite').")
        if self.overwrite_where is not None and self.overwrite_mode == "dynamic":
            raise UserError("Choose one of overwrite-where and overwrite-mode=dynamic: each says what is replaced.")


def _refuse_unknown(options: Options, known: Collection[str]) -> None:
    unknown = [name for name in options if name not in {*known, *_LOCATION_OPTIONS, *_SPARK_OPTIONS}]
    if unknown:
        raise UnknownName("option", unknown[0], [*known, *_LOCATION_OPTIONS[1:]], "the source neve")


def _overwrite_mode(options: Options) -> OverwriteMode:
    mode = options.get("overwrite-mode", "static").lower()
    if mode not in ("static", "dynamic"):
        raise UnknownName("overwrite mode", mode, ("static", "dynamic"))
    return mode  # type: ignore[return-value]


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
