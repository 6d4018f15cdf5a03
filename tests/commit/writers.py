"""Several writer processes appending to one table at once: `python -m tests.commit.writers FOLDER WRITERS APPENDS`.

Prints one line of JSON per writer: how many appends were acknowledged, and in how many attempts. The writers are forked
from one process that has imported everything and opened nothing, and start together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa

from neve.catalog.sql import EmbeddedCatalog
from neve.commit.actions import Append
from neve.commit.outcome import Committed
from neve.commit.retry import Environment
from tests.commit.kit import Kit


def write(folder: Path, writer: int, appends: int, start_at: float) -> None:
    pa.set_cpu_count(1)
    t = Kit(EmbeddedCatalog(folder), folder, Environment())
    time.sleep(max(0.0, start_at - time.time()))
    outcomes = [t.commit(Append(t.data(f"w{writer}-{i}"), fast=True)) for i in range(appends)]
    landed = [o for o in outcomes if isinstance(o, Committed)]
    sys.stdout.write(json.dumps({"acknowledged": len(landed), "attempts": [o.attempts for o in landed]}) + "\n")
    sys.stdout.flush()


def main(folder: str, writers: str, appends: str) -> int:
    start_at, children = time.time() + 1.0, []
    for writer in range(int(writers)):
        if (child := os.fork()) == 0:
            write(Path(folder), writer, int(appends), start_at)
            os._exit(0)
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
