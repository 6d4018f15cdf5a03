"""Local data files that survive a power cut: what a commit names must be on the disk, not in a cache.

Object stores keep what they acknowledge; there is nothing to do for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePosixPath

from pyiceberg.io import FileIO

from neve.io.files import naming, sync
from neve.io.storage_paths import local_target

__all__ = ["make_durable"]


def make_durable(io: FileIO, paths: Iterable[str], data_path: str) -> None:
    """Wait until files below the data path, and the folders that name them, have reached the disk."""
    files = [target for path in paths if (target := local_target(io, path)) is not None]
    top = local_target(io, data_path)
    if not files or top is None:
        return
    above = [str(folder) for file in files for folder in PurePosixPath(file).parents]
    folders = {os.path.dirname(top), *(folder for folder in above if folder.startswith(top))}
    for path in (*files, *sorted(folders)):
        with naming(path, "sync"):
            sync(path)
