"""Files that are there whole or not at all.

Owns the one way in which a file takes the place of an older one: written under a name
of its own in the same folder, synced where it must outlive a power cut, then renamed.
Called wherever one file is replaced; large frames have `checkpoint.files.write_whole`,
which reports progress. Must not know what is written, nor what an error means there.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from elasticdl.beneath import DEFAULT_MODE, opened


def write_whole(
    path: Path,
    data: bytes | str,
    *,
    durable: bool,
    mode: int = DEFAULT_MODE,
    root: Path | None = None,
) -> None:
    """Replace a file atomically: a reader sees the old content or the new one.

    Args:
        path: The file; its folder must exist.
        data: What it is to hold; text is encoded as UTF-8.
        durable: Whether the file and its name must outlive a power cut from the moment
            of the return on. Costs two syncs.
        mode: The file's permissions.
        root: The folder below which no link is followed; its own folder by default.

    Raises:
        OSError: It cannot be written. Nothing is left behind, and what was there stays.
    """
    with opened(path.parent, root=root or path.parent) as folder:
        with folder.replacing(path.name, mode=mode) as handle:
            left = memoryview(data.encode() if isinstance(data, str) else data)
            while left:
                left = left[os.write(handle, left) :]
            if durable:
                os.fsync(handle)
        if durable:
            # Who may write into a folder need not be allowed to read it, and to sync
            # it is to open it for reading.
            with contextlib.suppress(PermissionError):
                folder.flush()
