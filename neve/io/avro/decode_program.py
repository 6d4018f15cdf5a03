"""Compile a schema and a projection into the program that `decode_kernel.decode` runs, and the columns it fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import neve.io.avro.decode_kernel as k
from neve.io.avro.schema import Node, Role

FIXED_WIDTH = {"float": 4, "double": 8}
VARINTS = {"int", "long", "enum"}
TEXT = {"bytes", "string"}
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Column:
    """The scratch memory of one decoded node: its slot numbers, and for a list the context of its items."""

    node: Node
    type: pa.DataType
    valid: int = -1
    slots: tuple[int, ...] = ()
    context: int = -1
    children: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodeProgram:
    """Words for the kernel, and the layout of the scratch memory that they fill."""

    words: np.ndarray[Any, np.dtype[np.int32]]
    root: Column
    slot_context: Ints  # the context whose rows a slot has
    slot_width: Ints  # bytes of a row
    slot_unit: Ints  # bytes of an element of the view that the kernel writes through
    contexts: int
    list_depth: int
    least_bytes: int  # of a record
    instruction_fields: tuple[tuple[int, str], ...]  # first word and field path of each instruction, for error messages
    skip_at: int  # the first word of a second program, which skips a record


def compile_decode_program(root: Node) -> DecodeProgram:
    """Compile a record whose nodes have roles."""
    emitter = _Emitter()
    column = emitter.emit_record(root, 0)
    emitter.emit(root, k.END)
    skip_at = emitter.mark_label()
    emitter.skip(root)
    emitter.emit(root, k.PASS)
    slots = np.array(emitter.slots, np.int64).reshape(-1, 3)
    slot_context, slot_width, slot_unit = np.ascontiguousarray(slots.T)
    return DecodeProgram(
        np.array(emitter.words, np.int32),
        column,
        slot_context,
        slot_width,
        slot_unit,
        emitter.contexts,
        emitter.deepest,
        root.min_width,
        tuple(emitter.instruction_fields),
        skip_at,
    )


class _Emitter:
    """Writes words. `label` is the last jump target: instructions on both sides of it must not be merged."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.slots: list[tuple[int, int, int]] = []
        self.instruction_fields: list[tuple[int, str]] = []
        self.contexts = 1
        self.depth = self.deepest = 0
        self.label = 0
        self.last = -1

    def emit(self, node: Node, *words: int) -> int:
        """Append an instruction for a node and return its first word."""
        at = self.last = len(self.words)
        self.instruction_fields.append((at, node.path))
        self.words += words
        return at

    def mark_label(self) -> int:
        """Return the next word as a jump target."""
        self.label = len(self.words)
        return self.label

    def add_slot(self, context: int, width: int, unit: int) -> int:
        """Add a scratch column with a row for each value of the context, and return its number."""
        self.slots.append((context, width, unit))
        return len(self.slots) - 1

    def emit_column(self, node: Node, context: int) -> Column:
        """Decode a node that may be null."""
        if node.role is Role.BYTES:  # only the position of its bytes is stored
            start, length = self.add_slot(context, 4, 4), self.add_slot(context, 4, 4)
            self.emit(node, k.MARK, start)
            self.skip(node)
            self.emit(node, k.MARK_END, start, length)
            return Column(node, node.arrow_type, slots=(start, length))
        if not node.is_optional:
            return self.emit_value(node, context, -1)
        valid = self.add_slot(context, 1, 1)
        at = self.emit(node, k.OPTION, 1 - node.null_branch, valid, 0)
        column = self.emit_value(node, context, valid)
        self.words[at + 3] = self.mark_label()
        return column

    def emit_value(self, node: Node, context: int, valid: int) -> Column:
        """Decode a node that is not null."""
        words: tuple[int, ...]
        match node.kind:
            case "record":
                return self.emit_record(node, context, valid)
            case "array" | "map":  # its items get their own context
                lengths, items = self.add_slot(context, 4, 4), self.contexts
                at = self.emit_list_start(node, lengths, k.SIZE)
                columns = tuple(self.emit_column(child.node, items) for child in node.children)
                self.emit_list_end(node, at)
                return Column(node, node.arrow_type, valid, (lengths,), items, columns)
            case "null":
                return Column(node, node.arrow_type, valid)
            case "bytes" | "string" if not _is_decimal(node):
                start, length = self.add_slot(context, 4, 4), self.add_slot(context, 4, 4)
                self.emit(node, k.BYTES, start, length)
                return Column(node, node.arrow_type, valid, (start, length))
            case "int" | "long":
                width, op = (4, k.INT) if node.kind == "int" else (8, k.LONG)
                words = (op, slot := self.add_slot(context, width, width))
            case "enum":
                words = (k.ENUM, slot := self.add_slot(context, 4, 4), len(node.symbols))
            case "boolean":
                words = (k.BOOLEAN, slot := self.add_slot(context, 1, 1))
            case _ if _is_decimal(node):
                slot = self.add_slot(context, 16, 1)
                words = (k.DECIMAL_FIXED, slot, node.size) if node.kind == "fixed" else (k.DECIMAL, slot)
            case _:
                size = FIXED_WIDTH.get(node.kind, node.size)
                words = (k.FIXED, slot := self.add_slot(context, size, 1), size)
        self.emit(node, *words)
        return Column(node, node.arrow_type, valid, (slot,))

    def emit_record(self, node: Node, context: int, valid: int = -1) -> Column:
        """Decode the fields in order; a record has no bytes of its own."""
        columns = []
        for child in node.children:
            if child.node.role is Role.SKIP:
                self.skip(child.node)
            else:
                columns.append(self.emit_column(child.node, context))
        return Column(node, node.arrow_type, valid, children=tuple(columns))

    def emit_list_start(self, node: Node, lengths: int, sized: int) -> int:
        """Emit the instructions before the items of a list; return the word of its block."""
        context, self.contexts = self.contexts, self.contexts + 1
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        self.emit(node, k.LIST, context)
        at = self.emit(node, k.BLOCK, context, lengths, _item_width(node), 0)
        self.emit(node, sized, at)
        self.mark_label()
        return at

    def emit_list_end(self, node: Node, at: int) -> None:
        """Emit the instruction after the items of a list."""
        self.emit(node, k.ITEM, at, at + k.BLOCK_WORDS + k.SIZE_WORDS)
        self.words[at + 4] = self.mark_label()
        self.depth -= 1

    def skip(self, node: Node) -> None:
        """Skip a node that may be null."""
        option_at = self.emit(node, k.OPTION, 1 - node.null_branch, -1, 0) if node.is_optional else None
        if node.kind == "record":
            for child in node.children:
                self.skip(child.node)
        elif node.kind in ("array", "map"):
            self.emit_skip_list(node)
        elif node.kind in TEXT:
            self.emit(node, k.SKIP_BYTES)
        elif node.kind in VARINTS:
            self.extend_or_emit(node, k.SKIP_VARINTS, 1)
        elif node.kind != "null":
            self.extend_or_emit(node, k.SKIP_FIXED, FIXED_WIDTH.get(node.kind, node.size or 1))
        if option_at is not None:
            self.words[option_at + 3] = self.mark_label()

    def extend_or_emit(self, node: Node, op: int, amount: int) -> None:
        """Extend the previous instruction if it is of the same kind and no jump leads in between."""
        if self.last >= self.label and self.words and self.words[self.last] == op:
            self.words[self.last + 1] += amount
        else:
            self.emit(node, op, amount)

    def emit_skip_list(self, node: Node) -> None:
        """Skip a list; one instruction is enough if its items are numbers, with or without a text at the end.

        Statistics are maps of this kind. Skipping them is the hot path of planning.
        """
        kinds = [kind for child in node.children for kind in _leaf_kinds(child.node)]
        text = int(bool(kinds) and kinds[-1] in TEXT)
        if all(kind in VARINTS for kind in kinds[: len(kinds) - text]):
            at = self.emit(node, k.SKIP_BLOCK, len(kinds) - text, text, _item_width(node), 0)
            self.emit(node, k.JUMP, at)
            self.words[at + 4] = self.mark_label()
            return
        at = self.emit_list_start(node, -1, k.JUMP)
        for child in node.children:
            self.skip(child.node)
        self.emit_list_end(node, at)


def _leaf_kinds(node: Node) -> list[str]:
    """Return the kinds of the values in an item, in order; optional values and lists are not opened."""
    if node.is_optional:
        return ["optional"]
    if node.kind == "record":
        return [kind for child in node.children for kind in _leaf_kinds(child.node)]
    return [] if node.kind == "null" else [node.kind]


def _item_width(node: Node) -> int:
    return sum(child.node.min_width for child in node.children)


def _is_decimal(node: Node) -> bool:
    return node.leaf_type is not None and bool(pa.types.is_decimal(node.leaf_type))
