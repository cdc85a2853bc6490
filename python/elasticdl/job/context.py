"""What a role's process knows when it begins, its log format and its lifeline.

Owns the environment's meaning (read in `*/main.py`, parsed here), the log line's form
and the thread that ends a process whose launcher is gone. Called by every role's main.
Must not know what the role does.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import ExitCode, SpecError
from elasticdl.job import names
from elasticdl.job.names import JobDir, Role

LOG_DATE = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class RoleContext:
    """Who this process is and where its job is."""

    job_dir: JobDir
    role: Role
    index: int
    generation: int
    master_address: str
    platform_address: str
    lifeline_fd: int | None

    @property
    def name(self) -> str:
        """`worker-3`."""
        return names.replica_name(self.role, self.index)

    @staticmethod
    def from_environ(environ: Mapping[str, str]) -> RoleContext:
        """Read the variables that the platform set. Raises SpecError if one is gone."""
        try:
            lifeline = environ.get(names.ENV_LIFELINE_FD, "")
            return RoleContext(
                job_dir=JobDir(Path(environ[names.ENV_JOB_DIR])),
                role=Role(environ[names.ENV_ROLE]),
                index=int(environ[names.ENV_INDEX]),
                generation=int(environ[names.ENV_GENERATION]),
                master_address=environ[names.ENV_MASTER_ADDRESS],
                platform_address=environ.get(names.ENV_PLATFORM_ADDRESS, ""),
                lifeline_fd=int(lifeline) if lifeline else None,
            )
        except KeyError as error:
            raise SpecError(
                f"environment variable {error.args[0]} is not set; roles are started "
                "by `elasticdl train` or by the chart, not by hand"
            ) from None


def set_up_logging(name: str, level: str) -> None:
    """Log to standard error as `<time> <LEVEL> <replica> <module>: <message>`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(
            f"%(asctime)s.%(msecs)03d %(levelname)s {name} %(module)s: %(message)s",
            datefmt=LOG_DATE,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_log_level(level)


def set_log_level(level: str) -> None:
    """Change the level of ElasticDL's own loggers; may be called while running."""
    logging.getLogger("elasticdl").setLevel(level.upper())


def hold_lifeline(context: RoleContext) -> None:
    """End this process as soon as the launcher's end of the pipe is closed.

    A launcher that is killed cannot stop its processes; without this they would go on
    for ever. In a cluster there is no launcher and no pipe.
    """
    fd = context.lifeline_fd
    if fd is None:
        return

    def wait() -> None:
        while os.read(fd, 1):
            pass
        os._exit(ExitCode.STOPPED)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
