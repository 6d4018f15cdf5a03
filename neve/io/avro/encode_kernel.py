"""The inner loop of encoding: columns into records. The counterpart of `decode_kernel`, written in the same subset.

`row` is the index of the current value within its array; a list moves it to its items and back. A slot is one buffer of
a column, read at `base[slot] + row` in units of its view `a8`, `a32` or `a64`.
"""

# One function without calls: splitting it would make plain Python slow.
# ruff: noqa: PLR0912, PLR0915

from __future__ import annotations

from typing import Any

# Instructions of the encoder.
PUT_OPTION = 0  # [slot of validity, byte for a value, byte for null, jump target for null]
PUT_INT = 1  # [slot]
PUT_LONG = 2  # [slot]
PUT_LENGTH = 3  # [slot of offsets]
PUT_LIST = 4  # [slot of offsets, jump target if empty]
PUT_PAYLOAD = 5  # [slot of offsets, slot of bytes]
PUT_ITEM = 6  # [word of its first field] the end of a list item
PUT_END = 7  # [] of the record
PUT_FIXED = 8  # [slot, bytes]
PUT_DECIMAL = 9  # [slot]
PUT_DECIMAL_FIXED = 10  # [slot, bytes]


def encode(code: Any, base: Any, a8: Any, a32: Any, a64: Any, stack: Any, out: Any, bounds: Any) -> None:
    """Write one record to `out` for each element of `bounds`, and store its end there. `out` must be large enough."""
    q = pc = row = last = depth = record = 0
    while record < len(bounds):
        op = code[pc]
        v = 0
        if op == PUT_OPTION:
            if a8[base[code[pc + 1]] + row] != 0:
                out[q] = code[pc + 2]
                pc += 5
            else:
                out[q] = code[pc + 3]
                pc = code[pc + 4]
            q += 1
            continue
        if op == PUT_INT:
            v = a32[base[code[pc + 1]] + row]
            pc += 2
        elif op == PUT_LONG:
            v = a64[base[code[pc + 1]] + row]
            pc += 2
        elif op == PUT_LENGTH:
            at = base[code[pc + 1]] + row
            v = a32[at + 1] - a32[at]
            pc += 2
        elif op == PUT_LIST:
            at = base[code[pc + 1]] + row
            v = a32[at + 1] - a32[at]
            if v == 0:
                pc = code[pc + 2]
            else:
                stack[depth] = row
                stack[depth + 1] = last
                depth += 2
                row = a32[at]
                last = a32[at + 1]
                pc += 3
        elif op == PUT_PAYLOAD:
            at = base[code[pc + 1]] + row
            origin = base[code[pc + 2]]
            n = a32[at + 1] - a32[at]
            source, target = a8[origin + a32[at] : origin + a32[at + 1]], out[q : q + n]
            for i in range(n):
                target[i] = source[i]
            q += n
            pc += 3
            continue
        elif op == PUT_ITEM:
            row += 1
            if row < last:
                pc = code[pc + 1]
            else:
                depth -= 2
                row = stack[depth]
                last = stack[depth + 1]
                out[q] = 0
                q += 1
                pc += 2
            continue
        elif op == PUT_END:
            bounds[record] = q
            record += 1
            row += 1
            pc = 0
            continue
        elif op == PUT_FIXED:
            n = code[pc + 2]
            at = base[code[pc + 1]] + row * n
            source, target = a8[at : at + n], out[q : q + n]
            for i in range(n):
                target[i] = source[i]
            q += n
            pc += 3
            continue
        else:  # PUT_DECIMAL, PUT_DECIMAL_FIXED: 16 little-endian bytes to the minimum or to the size in the schema
            at = base[code[pc + 1]] + row * 16
            sign = 255 if a8[at + 15] > 127 else 0
            if op == PUT_DECIMAL:
                n = 16
                while n > 1 and a8[at + n - 1] == sign and (a8[at + n - 2] > 127) == (sign == 255):
                    n -= 1
                out[q] = n * 2
                q += 1
                pc += 2
            else:
                n = code[pc + 2]
                pc += 3
            for i in range(n):
                out[q + n - 1 - i] = a8[at + i] if i < 16 else sign
            q += n
            continue
        z = (v << 1) ^ (v >> 63)
        while z > 127 or z < 0:  # negative: all 64 bits are used, and the mask makes it a logical shift
            out[q] = (z & 127) | 128
            q += 1
            z = (z >> 7) & 144115188075855871
        out[q] = z
        q += 1
