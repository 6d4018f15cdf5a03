"""The cases of `tests/cases/dml`, read and checked. A new case is a table in a TOML file and needs no Python.

A file holds `[history.NAME]` tables (`steps = [...]`, see `dml_tables.py`) and `[[case]]` tables:

| key          | what it says |
|--------------|--------------|
| `name`       | the scenario, unique |
| `about`      | one sentence: what must hold |
| `history`    | the name of a history, or steps of its own; `three_specs` unless said |
| `source`     | rows for a MERGE or a subquery, seen as the view `source` and, when named, the table `db.source` |
| `statement`  | SQL on the table `db.t`, or a list of statements |
| `calls`      | instead of SQL: the calls of a builder, each `[method, {arguments}]` |
| `oracle`     | Spark SQL over `rows` (`source`, `theirs`): the rows afterwards; a list has one for each statement |
| `error`      | instead of an oracle: a regular expression the refusal must match; then nothing may have changed |
| `expect`     | what else must hold, see `checks.py`; keys `cow`, `mor`, `v2`, `mor-v2` … hold for these runs only |
| `properties` | of the table; `isolation` sets the level of all three commands |
| `meanwhile`  | what another writer commits between plan and commit: SQL or steps; `theirs` are the rows it appends |
| `outcome`    | `ok` or `conflict`: what becomes of the statement then |
| `unknown`    | `landed` or `lost`: the catalog loses its answer to the swap; every file must stay |
| `branch`     | the branch the statement goes to; `oracle` tells its rows, and main must not change |
| `only`       | the runs it makes sense in, with `because` |
| `lineage`    | why row ids are not compared on version 3 |
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.support.coverage import WANTS_ALL_CASES

FOLDER = Path(__file__).parents[1] / "cases" / "dml"
DEFAULT_HISTORY = "three_specs"

Step = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """A combination a case runs in."""

    mode: str  # cow or mor
    version: int

    def __str__(self) -> str:
        return f"{self.mode}-v{self.version}"

    @property
    def words(self) -> tuple[str, ...]:
        """What an expectation for this run may be called: `mor`, `v3`, `mor-v3`, and `v3+` from version 3 on."""
        return self.mode, f"v{self.version}", str(self), *(f"v{n}+" for n in range(1, self.version + 1))

    @property
    def mode_name(self) -> str:
        return {"cow": "copy-on-write", "mor": "merge-on-read"}[self.mode]


RUNS = tuple(Run(mode, version) for mode, version in product(("cow", "mor"), (2, 3, 4)))
_WORDS = {word for run in RUNS for word in run.words}


@dataclass(frozen=True)
class Case:
    """One scenario."""

    name: str
    about: str
    family: str  # the file it stands in
    history: str | list[Step] = DEFAULT_HISTORY
    source: str | None = None
    statement: str | list[str] = ""
    calls: list[list[Any]] = field(default_factory=list)
    oracle: str | list[str] | None = None
    error: str | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    isolation: str | None = None
    meanwhile: str | list[Step] | None = None
    outcome: str = "ok"
    unknown: str | None = None
    branch: str = "main"
    only: list[str] = field(default_factory=list)
    because: str = ""
    lineage: str = ""

    def __post_init__(self) -> None:
        assert bool(self.statement) != bool(self.calls), f"{self.name}: give a statement or calls"
        assert (self.oracle is None) != (self.error is None), f"{self.name}: give an oracle or an error"
        assert bool(self.only) == bool(self.because), f"{self.name}: say why only some runs"
        assert set(self.only) <= _WORDS, f"{self.name}: unknown runs {self.only}"
        assert self.about.endswith("."), f"{self.name}: `about` is a sentence"

    @property
    def statements(self) -> list[str]:
        return [self.statement] if isinstance(self.statement, str) else self.statement

    @property
    def steps_meanwhile(self) -> list[Step]:
        return [{"sql": self.meanwhile}] if isinstance(self.meanwhile, str) else self.meanwhile or []

    @property
    def runs(self) -> list[Run]:
        """The runs the case makes sense in."""
        return [run for run in RUNS if not self.only or not set(self.only).isdisjoint(run.words)]

    @property
    def own_run(self) -> Run:
        """The one run of a short test: fixed by the name, spread over the cases."""
        return self.runs[crc32(self.name.encode()) % len(self.runs)]

    @property
    def is_in_short_test(self) -> bool:
        """Whether the case is played without being asked for: a fixed third of the scenarios, a tenth of the others."""
        return crc32(self.name.encode()[::-1]) % (3 if self.family.endswith("_scenarios") else 10) == 0

    def expectations(self, run: Run) -> dict[str, Any]:
        """What else must hold in a run."""
        always = {key: value for key, value in self.expect.items() if key not in _WORDS}
        for word in run.words:
            always |= self.expect.get(word, {})
        return always


@cache
def _documents() -> dict[str, dict[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))}


@cache
def histories() -> dict[str, list[Step]]:
    """The histories with a name."""
    return {name: h["steps"] for document in _documents().values() for name, h in document.get("history", {}).items()}


@cache
def cases() -> tuple[Case, ...]:
    """Every case, in the order of the files."""
    known = {f.name for f in fields(Case)}
    found = []
    for family, document in _documents().items():
        for given in document.get("case", ()):
            assert set(given) <= known, f"{given.get('name')}: unknown keys {sorted(set(given) - known)}"
            found.append(Case(**given, family=family))
    names = [case.name for case in found]
    assert len(set(names)) == len(names), f"twice: {sorted({n for n in names if names.count(n) > 1})}"
    return tuple(found)


def runs_of(*families: str) -> Iterator[tuple[Case, Run]]:
    """What to run of some families.

    With NEVE_CASES=all every case in every run it makes sense in; else a third of the scenarios and a tenth of the
    others, each once.
    """
    for case in cases():
        if case.family.split("_")[0] in families and (WANTS_ALL_CASES or case.is_in_short_test):
            for run in case.runs if WANTS_ALL_CASES else [case.own_run]:
                yield case, run
