"""What an SQL expression is made of: subqueries, aggregates, windows, generators, chance.

The names of functions are read from the text itself: a parse tree spells them in its own way.

>>> found = features_of("v + rand() > (SELECT max(v) FROM db.other)")
>>> found.has_subquery, found.has_aggregate, found.nondeterministic, found.columns
(True, False, ('rand',), ('v',))

A piece of SQL text: an expression, a condition or a whole query, with its words and its tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from neve.errors import UserError
from neve.predicate.sql_text import SqlToken, column_references, parse_sql, syntax_error, tokenize_sql
from neve.predicate.time_travel import TimeTravel, end_of_parentheses, find_time_travels

_STATEMENTS = (exp.Command, exp.DDL, exp.DML, exp.Drop, exp.Alter, exp.Set, exp.Use, exp.Describe, exp.TruncateTable)
Edit = tuple[int, int, str]  # where from, where to, what comes there


@dataclass(frozen=True)
class Fragment:
    """A piece of SQL text; nodes of the tree know their places in the text."""

    text: str
    tokens: tuple[SqlToken, ...]
    time_travels: tuple[TimeTravel, ...]  # not in the tree
    root: exp.Expression


def parse_fragment(text: str, *, original_text: str | None = None) -> Fragment:
    """Read one expression, condition or query; errors point into `shown`, if it is given: the text before blanks."""
    whole, found = text if original_text is None else original_text, tokenize_sql(text)
    travels = find_time_travels(text, found)
    # sqlglot knows some spellings of time travel, which ones depends on its version
    roots = parse_sql(
        apply_edits(text, ((t.start, t.end, " " * (t.end - t.start)) for t in travels)), original_text=whole
    )
    if len(roots) != 1 or isinstance(roots[0], _STATEMENTS):
        raise syntax_error("SQL", whole, None, None, "it is not one expression, condition or query")
    if isinstance(roots[0], exp.Alias | exp.Aliases):
        raise _alias_error(whole, roots[0])
    return Fragment(text, found, travels, roots[0])


def _alias_error(text: str, root: exp.Alias | exp.Aliases) -> UserError:
    """The error that a value has a name, as in `a = b c`: more likely an operator is missing than a name is meant."""
    alias: Any = root.args["alias"] if isinstance(root, exp.Alias) else root.expressions[0]
    start, end = alias.meta.get("start"), alias.meta.get("end")
    return syntax_error("SQL", text, start, None if end is None else end + 1, f"unexpected alias {alias.name!r}")


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits made; none may overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


_QUERY_KEYWORDS = ("SELECT", "WITH", "FROM", "VALUES")
_LIKE_OPERATORS = ("LIKE", "ILIKE")  # LIKE ANY (…) is no aggregate


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


GENERATORS = _split_names(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple "
    "variant_explode variant_explode_outer"
)
NONDETERMINISTIC = _split_names(
    "rand randn random uniform randstr uuid shuffle monotonically_increasing_id spark_partition_id input_file_name "
    "input_file_block_start input_file_block_length reflect java_method try_reflect"
)
AGGREGATES = _split_names(
    "any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bitmap_construct_agg "
    "bitmap_or_agg bitmap_and_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch "
    "covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg "
    "kurtosis last last_value listagg max max_by mean median min min_by mode percentile percentile_approx "
    "percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx "
    "regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum "
    "try_avg try_sum var_pop var_samp variance"
)


@dataclass(frozen=True, slots=True)
class Features:
    """What an SQL expression is made of, outside of its subqueries."""

    has_subquery: bool
    has_aggregate: bool
    has_window: bool
    has_generator: bool
    has_star: bool  # all columns at once
    nondeterministic: tuple[str, ...]  # the functions that may say something else when asked again
    columns: tuple[str, ...]  # the columns it names, as it names them


def features_of(text: str) -> Features:
    """What a text is made of; for a query that is its outermost level."""
    given = parse_fragment(text)
    queries = [node for node in given.root.find_all(exp.Query) if id(node) != id(given.root)]
    outside = list(_tokens_outside_subqueries(given.tokens)) if queries else given.tokens
    calls = list(_function_calls(outside))
    names = {name for name, _ in calls}
    return Features(
        has_subquery=bool(queries) or isinstance(given.root, exp.Subquery),
        has_aggregate=any(name in AGGREGATES and not is_windowed for name, is_windowed in calls),
        has_window=any(word.matches("OVER") for word in outside),
        has_generator=bool(names & GENERATORS),
        has_star=any(star.find_ancestor(exp.Query) is None for star in given.root.find_all(exp.Star)),
        nondeterministic=tuple(sorted(names & NONDETERMINISTIC)),
        columns=tuple(dict.fromkeys(".".join(parts) for parts in column_references(_outermost_nodes(given.root)))),
    )


def _outermost_nodes(root: exp.Expression) -> list[exp.Expression]:
    """The tree of an expression; of a query what hangs below it."""
    below = root.iter_expressions() if isinstance(root, exp.Query) else [root]
    return [node for node in below if isinstance(node, exp.Expression)]


def _tokens_outside_subqueries(tokens: Sequence[SqlToken]) -> Iterator[SqlToken]:
    """The words that are in no subquery; of a subquery the brackets stay."""
    at = 0
    while at < len(tokens):
        yield tokens[at]
        opens_query = tokens[at].matches("(") and at + 1 < len(tokens) and tokens[at + 1].matches(*_QUERY_KEYWORDS)
        behind = end_of_parentheses(tokens, at) if opens_query else None
        at = at + 1 if behind is None else behind - 1


def _function_calls(tokens: Sequence[SqlToken]) -> Iterator[tuple[str, bool]]:
    """The functions called, each with whether it is one over a window."""
    for at in range(len(tokens) - 1):
        if not tokens[at].is_name or not tokens[at + 1].matches("("):
            continue
        before = tokens[at - 1] if at else None
        if before is None or not (before.matches(".") or before.matches(*_LIKE_OPERATORS)):
            yield tokens[at].name.lower(), _is_windowed(tokens, at + 1)


def _is_windowed(tokens: Sequence[SqlToken], at: int) -> bool:
    """Whether OVER follows a call, behind its FILTER (…), WITHIN GROUP (…) or IGNORE NULLS."""
    end = end_of_parentheses(tokens, at)
    while end is not None and end < len(tokens):
        if tokens[end].matches("OVER"):
            return True
        if tokens[end].matches("FILTER", "GROUP"):
            end = end_of_parentheses(tokens, end + 1)
        elif tokens[end].matches("WITHIN", "IGNORE", "RESPECT", "NULLS"):
            end += 1
        else:
            break
    return False
