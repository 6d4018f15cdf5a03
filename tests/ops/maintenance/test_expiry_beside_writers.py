"""An expiry that lands while another verb prepares its commit: the verb goes on, or names a conflict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import neve
from neve.commit.environment import Environment, Phase
from tests.support.coverage import on_versions
from tests.support.two_writers import Interruption

VERSIONS = on_versions(1, 2, 3, 4)
PHASES = [Phase.CHECK, Phase.DRAFT, Phase.LIST, Phase.SWAP]


@VERSIONS
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
@pytest.mark.parametrize("verb", ["append", "overwrite", "rewrite_manifests"])
def test_an_expiry_while_a_commit_is_prepared(tmp_path: Path, version: int, phase: Phase, verb: str):
    lake = neve.connect(tmp_path)
    table = lake.create_table("db.t", "id bigint", format_version=version)
    for id_ in (1, 2):
        table.append([{"id": id_}])

    def replace_and_expire() -> None:
        other = lake.table("db.t")
        other.overwrite([{"id": 3}])
        other.refresh().expire_snapshots().older_than(2**50).retain_last(1).execute()

    environment = replace(Environment(), observe=Interruption([replace_and_expire], phase).observe)
    mine = neve.connect(tmp_path, environment=environment).table("db.t")
    actions = {
        "append": lambda: mine.append([{"id": 4}]),
        "overwrite": lambda: mine.overwrite([{"id": 4}]),
        "rewrite_manifests": lambda: mine.rewrite_manifests().execute(),
    }
    actions[verb]()
    ids = {"append": [3, 4], "overwrite": [4], "rewrite_manifests": [3]}[verb]
    left = table.refresh()
    assert sorted(left.scan().to_arrow(engine="arrow")["id"].to_pylist()) == ids and left.verify().is_sound
    assert left.remove_orphan_files().allow_young().older_than(2**50).plan().files == ()
