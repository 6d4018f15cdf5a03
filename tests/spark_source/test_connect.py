"""Spark Connect: what decision 14 says works does, with a server in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.sessions import IS_SEARCH
from tests.spark_source import connect_client
from tests.spark_source.connect_server import client, server

pytest.importorskip("grpc", reason="Spark Connect needs grpc: install pyspark[connect]")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpc_status: install pyspark[connect]")

QUICK = ("scan", "append_frame", "delete_merge_on_read", "source_read")
NAMES = tuple(connect_client.CHECKS) if IS_SEARCH or os.environ.get("NEVE_PROOF") == "all" else QUICK


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("connect")
    with server(folder) as address:
        return client("tests.spark_source.connect_client", address, str(folder), *NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_works_through_spark_connect(answers: dict[str, Any], name: str):
    assert answers[name] is True
