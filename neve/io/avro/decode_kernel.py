"""The inner loops of decoding: `decode` reads records into scratch columns, `gather` copies strings into one buffer.

`decode` is an interpreter for a program of int32 words, which is compiled from a schema. It is plain Python in the
subset that numba supports, and calls nothing: the same source is the fast path and the path without numba (see `jit`).

`row` is the index of the current value within its context: context 0 has the records, and every list has a context for
its items. A slot is one scratch column of a context, written at `base[slot] + row` in units of its view `a8`, `a32` or
`a64`. The scratch memory starts zeroed, so nothing is written for a null. The input is not trusted: each length, count
and branch is checked against the bytes of its block. A varint may be read before its end is checked, because padding
follows the last block.
"""

# One function without calls: splitting it would make plain Python slow.
# ruff: noqa: PLR0912, PLR0915, PLR1714, SIM108, SIM109

from __future__ import annotations

from typing import Any

# Instructions that first read a varint from the file. The words after the opcode are in brackets.
OPTION = 0  # [branch of the value, slot of validity or -1, jump target for null]
INT = 1  # [slot]
LONG = 2  # [slot]
BYTES = 3  # [slot of starts, slot of lengths]
BLOCK = 4  # [context, slot of lengths or -1, least bytes of an item, jump target at the end] then SIZE or JUMP, items
SKIP_BYTES = 5  # []
SKIP_BLOCK = 6  # [varints of an item, 1 if bytes follow them, least bytes of an item, jump target at the end] then JUMP
DECIMAL = 7  # [slot]
ENUM = 8  # [slot, symbols]
SIZE = 9  # [] the size in bytes of a block whose items are read
JUMP = 10  # [jump target] the size in bytes of a block that is skipped
# Instructions that do not read a varint first.
SKIP_VARINTS = 11  # [how many]
SKIP_FIXED = 12  # [bytes]
END = 13  # [] of the record
ITEM = 14  # [word of its block, word of its first field] the end of a list item
LIST = 15  # [context] the start of a list
BOOLEAN = 16  # [slot]
FIXED = 17  # [slot, bytes]
DECIMAL_FIXED = 18  # [slot, bytes]
MARK = 19  # [slot of starts]
MARK_END = 20  # [slot of starts, slot of lengths]
PASS = 21  # [] the end of a record that was skipped
LAST_WITH_VARINT = JUMP
BLOCK_WORDS, SIZE_WORDS = 5, 2

# Return values of `decode`, and the words of `state`.
DONE, GROW, ENDS_EARLY, BAD_VARINT, BAD_INT, BAD_LENGTH, BAD_COUNT = range(7)
BAD_BRANCH, BAD_BOOLEAN, BAD_SYMBOL, BAD_DECIMAL, LEFTOVER = range(7, 12)
POSITION, PC, ROW, ITEMS_LEFT, DEPTH, IN_BLOCK, RECORDS_LEFT, ROWS_NEEDED, CONTEXT, EMPTY_ITEMS, RECORD = range(11)
STATE_WORDS = 11

INT_MAX, LONG_MAX = 2147483647, 9223372036854775807


def decode(
    raw: Any,
    code: Any,
    base: Any,
    a8: Any,
    a32: Any,
    a64: Any,
    ends: Any,
    counts: Any,
    room: Any,
    filled: Any,
    stack: Any,
    state: Any,
    record_flags: Any,
    skip_at: int,
) -> int:
    """Run the program over all records, or until a context needs more room (`GROW`: enlarge it and call again).

    `record_flags` has a flag for each record to decode, or is empty to decode all. The other records are skipped by the
    program that starts at `skip_at`.
    """
    p, pc, row, left = state[POSITION], state[PC], state[ROW], state[ITEMS_LEFT]
    depth, block = state[DEPTH], state[IN_BLOCK]
    records_left, empty_items = state[RECORDS_LEFT], state[EMPTY_ITEMS]
    end, status, start, record = ends[block], DONE, p, state[RECORD]
    while True:
        op = code[pc]
        start = p
        v = 0
        if op <= LAST_WITH_VARINT:
            v = raw[p] & 255
            p += 1
            if v > 127:
                v &= 127
                shift = 7
                while True:
                    byte = raw[p] & 255
                    p += 1
                    v |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift > 63:
                        break
                if shift > 63 or (shift == 63 and byte > 1):
                    status = BAD_VARINT
                    break
            if p > end:
                status = ENDS_EARLY
                break
            v = ((v >> 1) & LONG_MAX) ^ -(v & 1)  # the mask makes it a logical shift if all 64 bits are used

        if op == OPTION:
            if v == code[pc + 1]:
                if code[pc + 2] >= 0:
                    a8[base[code[pc + 2]] + row] = 1
                pc += 4
            elif v == 1 - code[pc + 1]:
                pc = code[pc + 3]
            else:
                status = BAD_BRANCH
                break
        elif op == INT:
            if v > INT_MAX or v < -INT_MAX - 1:
                status = BAD_INT
                break
            a32[base[code[pc + 1]] + row] = v
            pc += 2
        elif op == LONG:
            a64[base[code[pc + 1]] + row] = v
            pc += 2
        elif op == BYTES:
            if v < 0 or v > end - p:
                status = BAD_LENGTH
                break
            a32[base[code[pc + 1]] + row] = p
            a32[base[code[pc + 2]] + row] = v
            p += v
            pc += 3
        elif op == SKIP_BYTES:
            if v < 0 or v > end - p:
                status = BAD_LENGTH
                break
            p += v
            pc += 1
        elif op == SKIP_BLOCK:
            if v == 0:
                pc = code[pc + 4]
            elif v < 0:
                pc += BLOCK_WORDS
            elif code[pc + 3] > 0 and v > (end - p) // code[pc + 3]:
                status = BAD_COUNT
                break
            elif code[pc + 2] == 0:
                n = v * code[pc + 1]
                while n > 0 and p < end:
                    if raw[p] < 128:
                        n -= 1
                    p += 1
                if n > 0:
                    status = ENDS_EARLY
                    break
            else:
                while v > 0:
                    n = code[pc + 1]
                    while n > 0 and p < end:
                        if raw[p] < 128:
                            n -= 1
                        p += 1
                    n = raw[p] & 255
                    p += 1
                    shift = 7
                    byte = n
                    n &= 127
                    while byte > 127 and shift < 35:
                        byte = raw[p] & 255
                        p += 1
                        n |= (byte & 127) << shift
                        shift += 7
                    if n & 1 == 1 or byte > 127 or n >> 1 > end - p:
                        status = BAD_LENGTH
                        break
                    p += n >> 1
                    v -= 1
                if v > 0:
                    break
        elif op == BLOCK:
            context = code[pc + 1]
            if v == 0:
                depth -= 2
                if code[pc + 2] >= 0:
                    a32[base[code[pc + 2]] + stack[depth]] = row - filled[context]
                filled[context] = row
                row = stack[depth]
                left = stack[depth + 1]
                pc = code[pc + 4]
            else:
                items = v if v > 0 else -v
                if code[pc + 3] > 0:
                    n = (end - p) // code[pc + 3]
                else:
                    n = empty_items - row
                if items < 0 or items > n:
                    status = BAD_COUNT
                    break
                if row + items > room[context]:
                    p = start
                    state[ROWS_NEEDED] = row + items
                    state[CONTEXT] = context
                    status = GROW
                    break
                left = items
                pc += BLOCK_WORDS if v < 0 else BLOCK_WORDS + SIZE_WORDS
        elif op == ITEM:
            row += 1
            left -= 1
            pc = code[pc + 2] if left > 0 else code[pc + 1]
        elif op == LIST:
            stack[depth] = row
            stack[depth + 1] = left
            depth += 2
            row = filled[code[pc + 1]]
            pc += 2
        elif op == END or op == PASS:
            if op == END:
                row += 1
            record += 1
            records_left -= 1
            pc = 0
            if record < len(record_flags) and record_flags[record] == 0:
                pc = skip_at
            if records_left == 0:
                if p != end:
                    status = LEFTOVER
                    break
                block += 1
                if block == len(ends):
                    break
                end = ends[block]
                records_left = counts[block]
        elif op == SKIP_VARINTS:
            n = code[pc + 1]
            while n > 0 and p < end:
                if raw[p] < 128:
                    n -= 1
                p += 1
            if n > 0:
                status = ENDS_EARLY
                break
            pc += 2
        elif op == SIZE or op == JUMP:
            if v < 0 or v > end - p:
                status = BAD_LENGTH
                break
            if op == JUMP:
                p += v
                pc = code[pc + 1]
            else:
                pc += SIZE_WORDS
        elif op == MARK:
            a32[base[code[pc + 1]] + row] = p
            pc += 2
        elif op == MARK_END:
            a32[base[code[pc + 2]] + row] = p - a32[base[code[pc + 1]] + row]
            pc += 3
        elif op == BOOLEAN:
            if p >= end:
                status = ENDS_EARLY
                break
            if raw[p] > 1:
                status = BAD_BOOLEAN
                break
            a8[base[code[pc + 1]] + row] = raw[p]
            p += 1
            pc += 2
        elif op == ENUM:
            if v < 0 or v >= code[pc + 2]:
                status = BAD_SYMBOL
                break
            a32[base[code[pc + 1]] + row] = v
            pc += 3
        elif op == SKIP_FIXED:
            if code[pc + 1] > end - p:
                status = ENDS_EARLY
                break
            p += code[pc + 1]
            pc += 2
        elif op == FIXED:
            n = code[pc + 2]
            if n > end - p:
                status = ENDS_EARLY
                break
            to = base[code[pc + 1]] + row * n
            for i in range(n):
                a8[to + i] = raw[p + i]
            p += n
            pc += 3
        else:  # DECIMAL, DECIMAL_FIXED: big-endian two's complement of any length to 16 little-endian bytes
            n = v if op == DECIMAL else code[pc + 2]
            if n < 0 or n > end - p:
                status = BAD_LENGTH
                break
            sign = 255 if n > 0 and raw[p] > 127 else 0
            to = base[code[pc + 1]] + row * 16
            for i in range(16):
                a8[to + i] = raw[p + n - 1 - i] if i < n else sign
            for i in range(16, n):
                if raw[p + n - 1 - i] != sign:
                    status = BAD_DECIMAL
            if n > 16 and (a8[to + 15] > 127) != (sign == 255):
                status = BAD_DECIMAL
            if status != DONE:
                break
            p += n
            pc += 2 if op == DECIMAL else 3
    state[POSITION] = p if status == GROW else start
    state[PC], state[ROW], state[ITEMS_LEFT], state[DEPTH], state[IN_BLOCK] = pc, row, left, depth, block
    state[RECORDS_LEFT], state[RECORD] = records_left, record
    return status


def gather(raw: Any, starts: Any, lengths: Any, out: Any) -> None:
    """Copy the strings that start at `starts` into `out`, one after the other."""
    to = 0
    for i in range(len(starts)):
        at, n = starts[i], lengths[i]
        source, target = raw[at : at + n], out[to : to + n]
        for j in range(n):  # numba compiles this to one copy, unlike a loop with indices that may be negative
            target[j] = source[j]
        to += n
