"""Parse a piece of SQL text (an expression, a condition or a query), and list the features that it uses.

Features are subqueries, aggregates, windows, generators and nondeterministic functions. Function names are read from
the tokens, because sqlglot renames functions in its parse tree.

>>> features = features_of("v + rand() > (SELECT max(v) FROM db.other)")
>>> features.has_subquery, features.has_aggregate, features.nondeterministic, features.columns
(True, False, ('rand',), (('v',),))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from neve.predicate.sql_text import (
    SqlToken,
    column_references,
    parse_sql,
    shorten_lists,
    syntax_error,
    tokenize_sql,
)
from neve.predicate.time_travel import TimeTravel, end_of_parentheses, find_time_travels

_STATEMENTS = (exp.Command, exp.DDL, exp.DML, exp.Drop, exp.Alter, exp.Set, exp.Use, exp.Describe, exp.TruncateTable)
Edit = tuple[int, int, str]  # start, end, replacement


@dataclass(frozen=True)
class Fragment:
    """A piece of SQL text; the nodes of the tree carry their positions in the text."""

    text: str
    tokens: tuple[SqlToken, ...]
    time_travels: tuple[TimeTravel, ...]  # not in the tree
    root: exp.Expression


def parse_fragment(text: str, *, original_text: str | None = None) -> Fragment:
    """Parse one expression, condition or query; `original_text` is as in `parse_sql`."""
    whole, tokens = text if original_text is None else original_text, tokenize_sql(text)
    travels = find_time_travels(text, tokens)
    # sqlglot parses some forms of time travel, depending on its version: blank out all of them
    without_travels = apply_edits(text, ((t.start, t.end, " " * (t.end - t.start)) for t in travels))
    roots = parse_sql(without_travels, original_text=whole)
    if len(roots) != 1 or isinstance(roots[0], _STATEMENTS):
        raise syntax_error("SQL", whole, None, None, "it is not one expression, condition or query")
    root = roots[0]
    if isinstance(root, exp.Alias | exp.Aliases):  # as in `a = b c`: more likely an operator is missing
        alias: Any = root.args["alias"] if isinstance(root, exp.Alias) else root.expressions[0]
        start, end = alias.meta.get("start"), alias.meta.get("end")
        problem = f"unexpected alias {alias.name!r}"
        raise syntax_error("SQL", whole, start, None if end is None else end + 1, problem)
    return Fragment(text, tokens, travels, root)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits to a text; they must not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


_QUERY_KEYWORDS = ("SELECT", "WITH", "FROM", "VALUES")
_LIKE_OPERATORS, _QUANTIFIERS = ("LIKE", "ILIKE"), ("ANY", "ALL", "SOME")  # LIKE ANY (…) is not an aggregate


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


GENERATORS = _names(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple "
    "variant_explode variant_explode_outer"
)
NONDETERMINISTIC = _names(
    "rand randn random uniform randstr uuid shuffle monotonically_increasing_id spark_partition_id input_file_name "
    "input_file_block_start input_file_block_length reflect java_method try_reflect"
)
AGGREGATES = _names(
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
    """What an SQL expression contains, outside of its subqueries."""

    has_subquery: bool
    has_aggregate: bool
    has_window: bool
    has_generator: bool
    has_star: bool  # `*`
    nondeterministic: tuple[str, ...]  # functions that may return another value on the next call
    columns: tuple[tuple[str, ...], ...]  # the columns it names, each by the parts of its name


def features_of(text: str) -> Features:
    """Return the features of an expression, or of the outermost level of a query."""
    fragment = parse_fragment(shorten_lists(text).text, original_text=text)
    root = fragment.root
    subqueries = [node for node in root.find_all(exp.Query) if id(node) != id(root)]
    tokens = list(_tokens_outside_subqueries(fragment.tokens)) if subqueries else fragment.tokens
    calls = [(name, _is_windowed(tokens, at + 1)) for name, at in function_calls(tokens)]
    names = {name for name, _ in calls}
    children = root.iter_expressions() if isinstance(root, exp.Query) else [root]
    references = column_references(node for node in children if isinstance(node, exp.Expression))
    return Features(
        has_subquery=bool(subqueries) or isinstance(root, exp.Subquery),
        has_aggregate=any(name in AGGREGATES and not is_windowed for name, is_windowed in calls),
        has_window=any(word.matches("OVER") for word in tokens),
        has_generator=bool(names & GENERATORS),
        has_star=any(star.find_ancestor(exp.Query) is None for star in root.find_all(exp.Star)),
        nondeterministic=tuple(sorted(names & NONDETERMINISTIC)),
        columns=tuple(dict.fromkeys(map(tuple, references))),
    )


def function_calls(tokens: Sequence[SqlToken], *, qualified: bool = False) -> list[tuple[str, int]]:
    """Return the functions that are called, in lower case, with their positions; `qualified` ones are of a catalog."""
    calls = []
    for at in range(len(tokens) - 1):
        is_like, is_qualified = (at > 0 and tokens[at - 1].matches(*words) for words in (_LIKE_OPERATORS, (".",)))
        is_call = tokens[at].is_name and not (is_like and tokens[at].matches(*_QUANTIFIERS))
        if is_call and tokens[at + 1].matches("(") and is_qualified == qualified:
            calls.append((tokens[at].value.lower(), at))
    return calls


def _tokens_outside_subqueries(tokens: Sequence[SqlToken]) -> Iterator[SqlToken]:
    """Yield the tokens outside of subqueries, and the parentheses around subqueries."""
    at = 0
    while at < len(tokens):
        yield tokens[at]
        opens_query = tokens[at].matches("(") and at + 1 < len(tokens) and tokens[at + 1].matches(*_QUERY_KEYWORDS)
        end = end_of_parentheses(tokens, at) if opens_query else None
        at = at + 1 if end is None else end - 1


def _is_windowed(tokens: Sequence[SqlToken], at: int) -> bool:
    """Return whether OVER follows a call, after its FILTER (…), WITHIN GROUP (…) or IGNORE NULLS."""
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
