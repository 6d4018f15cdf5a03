"""The process that Spark forks its Python workers from, after it has imported everything that our tasks use.

Spark ends a worker that has been idle for a minute. The next one would import PyArrow, PyIceberg and this package
again, which takes more CPU time than many tasks do. Workers that are forked from this process have imported them, and
share their memory. Local sessions that Névé starts use it. In another session, set `spark.python.daemon.module` to the
name of this module before the session starts; the executors must be able to import it.
"""

from __future__ import annotations

import gc

from pyspark import daemon

import neve.run.spark.patch
import neve.run.spark.rewrite  # noqa: F401 - for the workers

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker would write to every page that it shares
    daemon.manager()  # type: ignore[no-untyped-call]
