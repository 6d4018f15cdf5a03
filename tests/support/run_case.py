"""One case from beginning to end: its table, its statement, and everything that must hold afterwards."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from neve import CommitConflict, CommitUnknown, NeveError, Table
from tests.peers.readers import for_peers
from tests.support.case_checks import Played, check
from tests.support.dml_cases import Case, Run
from tests.support.dml_tables import TABLE, Stage
from tests.support.tables import out_of_reach
from tests.support.text_rows import Rows


def play(stage: Stage, case: Case, run: Run) -> None:
    """Run a case in one combination and check what it left."""
    table, rows = stage.opened(case, run)
    source = stage.sourced(case)
    before = Played.before(case, run, table, rows)
    other = stage.interrupted(case, rows)
    with ExitStack() as around:
        around.enter_context(stage.forgetting(case))
        if before.expected.get("files_scanned") == 0:
            around.enter_context(out_of_reach(table, None))
        if unread := before.expected.get("unread"):
            around.enter_context(out_of_reach(table, unread))
        result = Attempt(stage, case).made()
    assert not stage.interruption.acts, "nobody got in between: the statement made no commit"
    theirs = Rows(rows.columns, other.theirs)
    expected = _expected(stage, case, rows, source, theirs)
    played = before.after(stage.mine.table(TABLE), result, expected)
    check(played)
    if played.has_changed:
        stage.finished.keep(f"{case.name}-{run}", for_peers(played.table).metadata_location, played.main_rows)


@dataclass
class Attempt:
    """The statements of a case, as someone using the lake would run them."""

    stage: Stage
    case: Case

    def made(self) -> Any:
        """Run them; the result of the last, or None where it had to fail and did."""
        if self.case.error is not None:
            return self._refused(NeveError, self.case.error)
        if self.case.unknown is not None:
            return self._refused(CommitUnknown, "")
        if self.case.outcome == "conflict":
            return self._refused(CommitConflict, "")
        return self._run()

    def _run(self) -> Any:
        if self.case.calls:
            return _called(self.stage.mine.table(TABLE), self.case.calls, self.stage)
        return [self.stage.mine.sql(statement) for statement in self.case.statements][-1]

    def _refused(self, kind: type[NeveError], message: str) -> None:
        with pytest.raises(kind, match=f"(?i){message}"):
            self._run()


def _called(table: Table, calls: list[list[Any]], stage: Stage) -> Any:
    """Calls of a builder, from the table to `execute`; a source named `source` is the view of that name."""
    made: Any = table
    for method, *arguments in calls:
        named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        if method == "merge":
            named = {**named, "source": stage.spark.table("source")}
        made = getattr(made, method)(*arguments, **named)
    return made.execute()


def _expected(stage: Stage, case: Case, rows: Rows, source: Rows | None, theirs: Rows) -> pa.Table:
    """The rows that the table, or the branch the case names, must hold afterwards."""
    if case.error is not None:
        return stage.oracle.answer("SELECT * FROM rows", rows=rows)
    more = {} if source is None else {"source": source}
    answers = [case.oracle] if isinstance(case.oracle, str) else case.oracle or []
    for sql in answers[:-1]:
        rows = rows.with_values(stage.oracle.answer(sql, rows=rows, theirs=theirs, **more))
    return stage.oracle.answer(answers[-1], rows=rows, theirs=theirs, **more)
