"""Local files that survive a power cut: what metadata names must be on the disk, not in a cache."""

from __future__ import annotations

import errno
import os

__all__ = ["sync"]


def sync(*paths: str) -> None:
    """Wait until files, and the entries of folders, have reached the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot sync a folder
                raise
        finally:
            os.close(handle)
