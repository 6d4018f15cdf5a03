"""Print what the levels of zstd cost and save, for columns of several kinds, against level 3, the default of Iceberg.

    python -m bench.compression

Iceberg leaves the level to the codec: writers in Java use 3, Arrow uses 1 (docs/decisions/0016-rows-stay-columns.md).
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from statistics import median
from sysconfig import get_path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, ROUNDS, LEVELS = 1_000_000, 5, (1, 2, 3)


def columns() -> dict[str, pa.Array]:
    """Return columns of several kinds, the same in every run."""
    random = np.random.default_rng(1)
    texts = (line for path in sorted(Path(get_path("stdlib")).glob("*.py")) for line in path.open(errors="replace"))
    hosts, times = random.integers(0, 200, ROWS // 4), random.integers(0, 5000, ROWS // 4)
    return {
        "lines of Python": pa.array(islice(texts, ROWS // 4), pa.string()),
        "lines of a log": pa.array([f"INFO api-{h} request took {t} ms" for h, t in zip(hosts, times, strict=True)]),
        "sorted times": pa.array(np.sort(random.integers(1_600_000_000, 1_700_000_000, ROWS)) * 1_000_000),
        "random keys": pa.array(random.integers(0, 1 << 40, ROWS)),
        "prices": pa.array(random.integers(90_000, 10_000_000, ROWS)),
        "a random walk": pa.array(np.cumsum(random.normal(size=ROWS)).round(3)),
        "random doubles": pa.array(random.normal(size=ROWS)),
    }


def measure(column: pa.Array, level: int) -> tuple[int, float]:
    """Return the size of a column in Parquet and the CPU seconds to write it."""
    sink, table, start = pa.BufferOutputStream(), pa.table({"c": column}), time.process_time()
    pq.write_table(table, sink, compression="zstd", compression_level=level, use_dictionary=False)
    return sink.getvalue().size, time.process_time() - start


def main() -> None:
    """Print sizes and costs as ratios to the highest level."""
    print(f"{'':16}" + "".join(f"  level {level}: size  CPU" for level in LEVELS))
    for name, column in columns().items():
        rounds = [[measure(column, level) for level in LEVELS] for _ in range(ROUNDS)]
        cells = []
        for index in range(len(LEVELS)):
            size = rounds[0][index][0] / rounds[0][-1][0]
            cost = median(each[index][1] / each[-1][1] for each in rounds)
            cells.append(f"         {size:6.2f} {cost:4.2f}")
        print(f"{name:16}" + "".join(cells))


if __name__ == "__main__":
    main()
