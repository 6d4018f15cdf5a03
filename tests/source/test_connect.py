"""Spark Connect: what decision 14 says works does, with a server in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import connect_client
from tests.support.connect_server import client, server
from tests.support.coverage import IS_LONG

pytest.importorskip("grpc", reason="Spark Connect needs grpc: install pyspark[connect]")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpc_status: install pyspark[connect]")

pytestmark = pytest.mark.skipif(not IS_LONG, reason="starts a server of Spark Connect; runs in the long tests")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("connect")
    with server(folder) as address:
        return client("tests.support.connect_client", address, str(folder), *connect_client.CHECKS)


@pytest.mark.parametrize("name", tuple(connect_client.CHECKS))
def test_works_through_spark_connect(answers: dict[str, Any], name: str):
    assert answers[name] is True
