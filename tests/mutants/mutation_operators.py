"""Mutants of a module: one comparison, boundary, early exit, condition or set operation changed at a time.

A mutant is a replacement of a part of the source text. Annotations, docstrings and messages are left alone: changing
them changes no behaviour that a test could see.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
SET_OPERATIONS = {ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"), ast.Sub: ("-", "+")}
EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: str
    line: int
    column: int  # of the changed part, in bytes
    kind: str
    before: str
    after: str
    start: int  # offsets in the source, in bytes
    end: int
    statement_line: int
    text: str  # the line as it is
    code: str  # hash of the function around it, or of the module outside functions

    @property
    def place(self) -> str:
        """A name that stays the same while the line does."""
        return f"{self.path}: {self.text}: {self.before} → {self.after} ({self.column})"

    @property
    def name(self) -> str:
        """Where the mutant is now, and what it changes."""
        return f"{self.path}:{self.line}:{self.column} {self.kind} {self.before} → {self.after}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    return sorted(_Finder(path.read_bytes(), str(path.relative_to(root))).find(), key=lambda m: (m.start, m.after))


def keyed(mutants: list[Mutant]) -> dict[str, Mutant]:
    """Return mutants by a key that stays the same while the function around them does, wherever it moves in its module.

    Mutants of one function are numbered in the order of its text.
    """
    numbers: Counter[str] = Counter()
    by_key = {}
    for mutant in mutants:
        function = f"{mutant.path} {mutant.code}"
        numbers[function] += 1
        text = f"{function} {numbers[function]} {mutant.kind} {mutant.before} {mutant.after}"
        by_key[sha256(text.encode()).hexdigest()[:16]] = mutant
    return by_key


class _Finder:
    def __init__(self, source: bytes, path: str) -> None:
        self.source, self.path, self.tree = source, path, ast.parse(source)
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.lines = [line.decode().strip() for line in lines]
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        self.functions = [(*self._span(node), _hash_of(node)) for node in functions]
        self.module = _hash_of(self.tree)
        # The first line of the innermost statement at each line.
        statements = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]
        ordered = sorted(statements, key=lambda node: node.lineno)
        self.statements = {
            line: node.lineno for node in ordered for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    def find(self) -> Iterator[Mutant]:
        for node in self._code(self.tree):
            match node:
                case ast.Compare():
                    yield from self._comparisons(node)
                case ast.BoolOp():
                    word = "and" if isinstance(node.op, ast.And) else "or"
                    for left, right in zip(node.values, node.values[1:], strict=False):
                        yield from self._between(left, right, word, "or" if word == "and" else "and", "condition")
                case ast.UnaryOp(op=ast.Not()):
                    start = self._offset(node.lineno, node.col_offset)
                    yield self._mutant(start, start + len("not "), "", "condition")
                case ast.BinOp() if type(node.op) in SET_OPERATIONS:
                    before, after = SET_OPERATIONS[type(node.op)]
                    yield from self._between(node.left, node.right, before, after, "set operation")
                case ast.If() if isinstance(node.body[-1], EXITS) and not node.orelse:
                    start, end = self._span(node.test)
                    yield self._mutant(start, end, "False", "early exit")

    def _comparisons(self, node: ast.Compare) -> Iterator[Mutant]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            before, after = COMPARISONS[type(operator)]
            yield from self._between(left, right, before, after, "comparison")
            if isinstance(right, ast.Constant) and type(right.value) is int:
                start, end = self._span(right)
                yield self._mutant(start, end, str(right.value + 1), "boundary")
            left = right

    def _code(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield all nodes outside annotations."""
        yield node
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "type_params", "decorator_list"}:
                continue
            if isinstance(node, ast.Assign) and name == "value" and self._is_type_alias(node):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._code(child)

    @staticmethod
    def _is_type_alias(node: ast.Assign) -> bool:
        """Return whether an assignment at the top gives a name to a type, as in `Paths = tuple[str, ...] | None`."""
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return node.col_offset == 0 and bool(names) and names[0].lstrip("_")[:1].isupper() and not names[0].isupper()

    def _between(self, left: ast.expr, right: ast.expr, before: str, after: str, kind: str) -> Iterator[Mutant]:
        """Yield the change of the operator between two operands, of which one may be in parentheses."""
        start, end = self._span(left)[1], self._span(right)[0]
        at = self.source[start:end].find(before.encode())
        if at >= 0:
            yield self._mutant(start + at, start + at + len(before), after, kind)

    def _mutant(self, start: int, end: int, after: str, kind: str) -> Mutant:
        line = self.source.count(b"\n", 0, start) + 1
        column = start - self.starts[line - 1]
        before, text = self.source[start:end].decode(), self.lines[line - 1]
        around = [code for first, last, code in self.functions if first <= start < last]  # the outermost comes first
        code = around[0] if around else self.module
        return Mutant(self.path, line, column, kind, before, after, start, end, self.statements[line], text, code)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column


def _hash_of(node: ast.AST) -> str:
    return sha256(ast.dump(node).encode()).hexdigest()[:16]
