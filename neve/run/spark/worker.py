"""What a Python worker of Spark would do again after every task, and need not.

Between two tasks a worker collects garbage, which walks through all objects of all imported modules, and forgets what
import finders know, so that each package of a zip archive reads the archive's directory anew. PySpark itself is such an
archive. Together that takes longer than many a task.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter

__all__ = ["spare_the_next_task"]


def spare_the_next_task() -> None:
    """Keep this worker from walking through modules and archives before its next task."""
    _set_aside(modules=len(sys.modules))
    for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
        del sys.path_importer_cache[path]  # made again when it is needed, of a directory that is still known


@cache  # again only when a task has imported more: what is set aside is never collected
def _set_aside(modules: int) -> None:
    gc.freeze()
