"""Several processes that append to one table at the same time.

Usage: `python -m tests.support.writer_processes SETTINGS WRITERS APPENDS`.

SETTINGS is the catalog as JSON. Prints one line of JSON per writer: the ids it was told are in the table. The writers
are forked from one process that has imported everything and opened nothing, and start together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import pyarrow as pa

import neve
from neve.errors import CommitError

ROWS = 3


def connected(settings: dict[str, Any]) -> neve.Lake:
    if "folder" in settings:
        return neve.connect(settings["folder"])
    return neve.connect(catalog="shared", type="sql", **settings)


def write(settings: dict[str, Any], writer: int, appends: int, start_at: float) -> list[int]:
    pa.set_cpu_count(1)
    table = connected(settings).table("db.events")
    time.sleep(max(0.0, start_at - time.time()))
    acknowledged: list[int] = []
    for at in range(appends):
        ids = [(writer * appends + at) * ROWS + i for i in range(ROWS)]
        try:
            table.append(pa.table({"id": ids, "writer": [writer] * ROWS}))
        except CommitError as e:
            sys.stderr.write(f"{e}\n")
        else:
            acknowledged += ids
    return acknowledged


def main(settings: str, writers: str, appends: str) -> int:
    start_at, children = time.time() + 1.0, []
    for writer in range(int(writers)):
        if (child := os.fork()) == 0:
            acknowledged = write(json.loads(settings), writer, int(appends), start_at)
            sys.stdout.write(json.dumps(acknowledged) + "\n")
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
