"""Iceberg's hash of bytes and of decimals, as SQL expressions that Spark evaluates without Python.

Spark's own `hash` is the same function, except for the last bytes of a value whose length is no multiple of four. The
expressions let Spark hash the bytes before them, undo its final mixing, and continue as the format requires. Lambda
functions stand for local variables: `transform(array(x), v -> …)[0]` evaluates `x` once.

All numbers are 32 bits wide and held in bigints, without a sign.
"""

from __future__ import annotations

_MASK = (1 << 32) - 1
_C1, _C2 = 0xCC9E2D51, 0x1B873593  # MurmurHash3 x86_32: mixing of four bytes
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35  # and the final mixing
_SEED = -1693959553  # hash(_SEED) = 0: what follows is hashed with seed 0
_TWO_64, _TWO_32 = 1 << 64, 1 << 32

# Rounds of final mixing: a number, xor itself shifted right by a and by b, times a factor. A shift by 63 gives 0.
_FINAL = ((16, 63, _F1), (13, 63, _F2), (16, 63, 1))
_FINAL_UNDONE = ((16, 63, pow(_F2, -1, 1 << 32)), (13, 26, pow(_F1, -1, 1 << 32)), (16, 63, 1))


def hash_of_bytes_sql(value: str) -> str:
    """Return the hash of an expression of type binary, as an int that is not negative; null for null."""
    length = "length(neve_b)"
    last = f"hex(substring(neve_b, {length} - {length} % 4 + 1))"  # up to three bytes, the lowest first
    number = f"conv(concat(substring({last}, 5, 2), substring({last}, 3, 2), substring({last}, 1, 2)), 16, 10)"
    mixed_number = _let("neve_k", f"cast(coalesce({number}, '0') as bigint)", _multiply_sql("neve_k", str(_C1)))
    rotated = f"(((neve_k * 32768) & {_MASK}) | shiftright(neve_k, 17))"
    mixed = _let("neve_k", mixed_number, _multiply_sql(rotated, str(_C2)))
    start = f"hash({_SEED}, substring(neve_b, 1, {length} - {length} % 4)) & {_MASK}"
    before_last = f"({_rounds_sql(start, _FINAL_UNDONE)} ^ ({length} - {length} % 4))"
    hashed = _rounds_sql(f"{before_last} ^ {mixed} ^ {length}", _FINAL)
    return _let("neve_b", value, f"if(neve_b is null, null, cast({hashed} & 2147483647 as int))")


def unscaled_decimal_sql(value: str, precision: int, scale: int) -> str:
    """Return the digits of an expression of type decimal as a whole number."""
    digits = "0" * max(precision - scale, 1) + ("D" + "0" * scale if scale else "")  # cast could write 1E-7
    return f"cast(replace(to_char({value}, 'MI{digits}'), '.', '') as decimal(38, 0))"


def bytes_of_decimal_sql(value: str, precision: int, scale: int) -> str:
    """Return the fewest bytes that hold the unscaled value of a decimal as a signed number, highest byte first."""
    borrowed = f"if(neve_u < 0 and neve_u % {_TWO_64} <> 0, 1, 0)"  # div rounds to zero
    low = f"pmod(neve_u, {_TWO_64})"
    parts = (
        f"lpad(hex((neve_u div {_TWO_64}) - {borrowed}), 16, '0')",
        f"lpad(hex({low} div {_TWO_32}), 8, '0')",
        f"lpad(hex(cast({low} % {_TWO_32} as bigint)), 8, '0')",
    )
    digits = f"concat({', '.join(parts)})"
    shortest = (
        f"if(neve_u < 0, regexp_replace({digits}, '^(FF)+(?=[89A-F])', ''), "
        f"regexp_replace({digits}, '^(00)+(?=[0-7])', ''))"
    )
    return f"unhex({_let('neve_u', unscaled_decimal_sql(value, precision, scale), shortest)})"


def truncated_decimal_sql(value: str, precision: int, scale: int, width: int) -> str:
    """Return a decimal rounded down to a multiple of the width, which counts units of its last digit."""
    rounded = f"concat(cast(neve_u - pmod(neve_u, {width}) as string), 'E-{scale}')"
    digits = _let("neve_u", unscaled_decimal_sql(value, precision, scale), rounded)
    return f"try_cast({digits} as decimal({precision}, {scale}))"  # null if it has too many digits


def _let(name: str, value: str, expression: str) -> str:
    return f"transform(array({value}), {name} -> {expression})[0]"


def _multiply_sql(number: str, factor: str) -> str:
    """Multiply modulo 2^32; the halves of the number are multiplied apart, so that nothing overflows."""
    high = f"(((shiftright({number}, 16) * {factor}) & 65535) * 65536)"
    return f"((({number} & 65535) * {factor} + {high}) & {_MASK})"


def _rounds_sql(start: str, rounds: tuple[tuple[int, int, int], ...]) -> str:
    steps = ", ".join(f"array({a}L, {b}L, {factor}L)" for a, b, factor in rounds)
    shifts = (f"shiftright(neve_h, cast(neve_s[{at}] as int))" for at in (0, 1))
    mixed = _multiply_sql(f"(neve_h ^ {' ^ '.join(shifts)})", "neve_s[2]")
    return f"aggregate(array({steps}), {start}, (neve_h, neve_s) -> {mixed})"
