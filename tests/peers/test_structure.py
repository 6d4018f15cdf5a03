"""The claims about manifests, which are checked on every shared table, notice broken metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import neve
from tests.peers import metadata_structure as structure
from tests.peers.metadata_structure import CLAIMS, Structure, StructureView, by_neve
from tests.support.tables import delete_rows


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[int, StructureView]:
    """Return the view of a table of two specs with deletes in each, for versions 2 and 3."""
    lake = neve.connect(tmp_path_factory.mktemp("lake"))
    return {
        version: StructureView(by_neve(table := create_evolved_table(lake, version)), table.context.metadata)
        for version in (2, 3)
    }


def create_evolved_table(lake: neve.Lake, version: int) -> neve.Table:
    table = lake.create_table(f"db.t{version}", "id bigint, region string", ["region"], format_version=version)
    table.append([{"id": i, "region": ("eu", "us")[i % 2]} for i in range(8)])
    table.evolve_partitions(add=["bucket(2, id)"])
    table.append([{"id": i, "region": "eu"} for i in range(10, 18)])
    delete_rows(table, 1, 2, 11)
    return table.refresh()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.__name__)
def test_a_sound_table_breaks_no_claim(
    views: dict[int, StructureView], claim: Callable[[StructureView], list[str]], version: int
):
    assert not any(claim(views[version]))


def test_a_claim_returns_results_only_for_items_it_checks(views: dict[int, StructureView], tmp_path: Path):
    lake = neve.connect(tmp_path)
    empty = lake.create_table("db.t", "id bigint", format_version=3)
    first = lake.create_table("db.first", "id bigint", format_version=1)
    first.append([{"id": 1}])
    views = {
        **views,
        0: StructureView(by_neve(empty), empty.context.metadata),
        1: StructureView(by_neve(first), first.context.metadata),
    }
    checking_claims = {version: {claim.__name__ for claim in CLAIMS if claim(view)} for version, view in views.items()}
    assert checking_claims == {
        0: set(),
        1: FOR_ALL_VERSIONS,
        2: set(BROKEN) - {"row_ids_do_not_overlap"},
        3: set(BROKEN),
    }


def with_changed_row(view: StructureView, part: str, fits: Callable[[Any], bool], **values: Any) -> StructureView:
    """Return the view with values changed in the first matching row of a part."""
    rows = list(getattr(view.shown, part))
    at = next(i for i, row in enumerate(rows) if fits(row))
    rows[at] = {**rows[at], **{name: new(rows[at][name]) for name, new in values.items()}}
    return replace(view, shown=Structure(**{**_parts(view.shown), part: tuple(rows)}))


def _parts(shown: Structure) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in ("manifests", "entries", "snapshots")}


BROKEN: dict[str, Callable[[StructureView], StructureView]] = {
    "manifests_hold_one_spec": lambda view: with_changed_row(
        view, "manifests", lambda m: m["partition_spec_id"] == 0, partition_spec_id=lambda _: 1
    ),
    "manifests_count_their_entries": lambda view: with_changed_row(
        view, "manifests", lambda m: m["content"] == 1, added_delete_files_count=lambda n: n + 1
    ),
    "deletes_have_the_spec_of_their_file": lambda view: with_changed_row(
        view, "entries", lambda e: e["content"] == 1 and e["spec_id"] == 0, spec_id=lambda _: 1
    ),
    "numbers_are_those_of_the_snapshot": lambda view: with_changed_row(
        view, "entries", lambda e: e["content"] == 1, file_sequence_number=lambda n: n - 1
    ),
    "totals_are_those_of_the_files": lambda view: with_changed_row(
        view, "entries", lambda e: e["content"] == 0, record_count=lambda n: n + 1
    ),
    "row_ids_do_not_overlap": lambda view: with_changed_row(
        view, "entries", lambda e: e["content"] == 0 and e["first_row_id"] > 0, first_row_id=lambda _: 0
    ),
}
FOR_ALL_VERSIONS = {"manifests_hold_one_spec", "manifests_count_their_entries", "totals_are_those_of_the_files"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_claim_notices_what_breaks_it(views: dict[int, StructureView], name: str):
    claim = getattr(structure, name)
    assert any(claim(BROKEN[name](views[3])))


def test_every_claim_has_something_that_breaks_it():
    assert {claim.__name__ for claim in CLAIMS} == set(BROKEN)


def test_local_paths_are_read_with_and_without_a_scheme(tmp_path: Path):
    assert {structure.local(f"{scheme}{tmp_path}") for scheme in ("", "file:", "file://")} == {tmp_path}
