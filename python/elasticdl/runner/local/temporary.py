"""The folder for temporary files of one worker: made with it, gone with it.

Owns its name and its removal. Called by `runner.local.platform` and
`runner.local.processes`. Must not know why a worker ends.

A worker that is killed removes nothing: TensorFlow alone leaves some ten files of code
each time, user code whatever it had. In a cluster they go with the pod.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from elasticdl.job import names

log = logging.getLogger(__name__)

_TMPDIR = "TMPDIR"  # as `tempfile` and most other programs read it


def make_folder(replica: str, environ: Mapping[str, str]) -> Path:
    """Create the temporary folder of a replica. Raises OSError."""
    wanted = Path(environ.get(_TMPDIR) or tempfile.gettempdir())
    parent = wanted if wanted.is_dir() else Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"elasticdl-{replica}-", dir=parent))


def variables(folder: Path) -> dict[str, str]:
    """Return the environment variables that point to the folder."""
    return {_TMPDIR: str(folder), names.ENV_TEMPORARY_DIR: str(folder)}


def remove_folder(folder: Path) -> None:
    """Remove the folder of an ended replica."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass  # the replica itself did, or user code
    except OSError as error:
        log.warning(
            "%s: cannot be removed: %s", error.filename or folder, error.strerror
        )
