"""Conditions of SQL's three-valued logic as two expressions: for the rows where it is true, and where it is false.

A row where a condition is null is in neither. Either expression may let through too much, never too little; a flag says
whether it is exact. NOT swaps the two, so nothing has to be negated: `NOT (x = 1)` takes the rows where `x = 1` is
false, and a null is not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression

from neve.predicate.normal import all_of, any_of

__all__ = ["FALSE", "NULL", "TRUE", "UNKNOWN", "Ternary", "conjunction", "disjunction"]


@dataclass(frozen=True, slots=True)
class Ternary:
    """A condition: where it may be true, where it may be false, and whether each of the two is exact."""

    true: BooleanExpression
    false: BooleanExpression
    true_exact: bool = True
    false_exact: bool = True

    def negated(self) -> Ternary:
        """The condition that is true where this one is false."""
        return Ternary(self.false, self.true, self.false_exact, self.true_exact)

    def inexact(self) -> Ternary:
        """The same condition, known to let through too much."""
        return Ternary(self.true, self.false, False, False)


TRUE = Ternary(AlwaysTrue(), AlwaysFalse())
FALSE = Ternary(AlwaysFalse(), AlwaysTrue())
NULL = Ternary(AlwaysFalse(), AlwaysFalse())
UNKNOWN = Ternary(AlwaysTrue(), AlwaysTrue(), False, False)


def conjunction(parts: Sequence[Ternary]) -> Ternary:
    """AND: true where all are, false where one is."""
    true, false = all_of(p.true for p in parts), any_of(p.false for p in parts)
    return Ternary(
        true,
        false,
        all(p.true_exact for p in parts) or any(p.true_exact and p.true is AlwaysFalse() for p in parts),
        all(p.false_exact for p in parts) or any(p.false_exact and p.false is AlwaysTrue() for p in parts),
    )


def disjunction(parts: Sequence[Ternary]) -> Ternary:
    """OR: true where one is, false where all are."""
    return conjunction([p.negated() for p in parts]).negated()
