"""The budgets within which a file from storage is read; a file that needs more is refused, not trusted."""

from __future__ import annotations

from dataclasses import dataclass

from neve.errors import UserError

__all__ = ["DEFAULT", "Limits"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one Avro file may ask for. Every field is an upper bound."""

    max_inflated_bytes: int = 1024 * MIB  # all blocks of one file, uncompressed; positions are 32-bit, so below 2 GiB
    max_inflate_ratio: int = 100  # uncompressed over compressed, once a file inflates beyond `ratio_floor_bytes`
    ratio_floor_bytes: int = 64 * MIB  # a small file may compress as well as it likes
    max_decoded_bytes: int = 4096 * MIB  # scratch memory for the decoded columns of one file
    max_header_bytes: int = 64 * MIB  # metadata of the header, the schema among it
    max_schema_nodes: int = 10_000  # types in a schema, names spelled out
    max_schema_depth: int = 64  # types inside types
    max_empty_items: int = 1 << 20  # records or list items that take no bytes, which no length can check

    def __post_init__(self) -> None:
        if not 0 < self.max_inflated_bytes < 1 << 31:
            raise UserError(f"Bad limit max_inflated_bytes={self.max_inflated_bytes}: choose 1 to {(1 << 31) - 1}.")

    def inflated_budget(self, stored: int) -> int:
        """How many bytes a file of `stored` bytes may inflate to."""
        return min(self.max_inflated_bytes, max(self.ratio_floor_bytes, stored * self.max_inflate_ratio))


DEFAULT = Limits()
