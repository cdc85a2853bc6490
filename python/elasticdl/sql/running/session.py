"""What all statements of one session share, and the kinds of answers they give.

Owns these types. Made by `cli.sql`, the prompt and notebooks. Must not do anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from elasticdl.errors import DataError
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.data.source import Source
from elasticdl.sql.registry import Registry
from elasticdl.sql.statements import Statement

SHOWN_ROWS = 40  # More do not fit a screen.


class KeptError(DataError):
    """A job's answers have no place; the message names the folder that has them."""


@contextmanager
def gone_afterwards(folder: Path) -> Iterator[None]:
    """Remove a folder when the block ends, unless by a KeptError."""
    try:
        yield
    except KeptError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


# Runs a job to its end; raises an ElasticDLError unless it succeeded.
RunJob = Callable[[ValuesFile], JobReport]


@dataclass(frozen=True)
class Table:
    """Rows to show."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False  # whether there are further ones


@dataclass(frozen=True)
class Bars:
    """A number for each name, to show as bars; the largest first."""

    title: str
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Told:
    """Lines to show."""

    lines: tuple[str, ...]


Answer = Table | Bars | Told


class Elsewhere(Protocol):
    """Where a statement runs if not in this process."""

    def run_one(
        self, session: Session, statement: Statement, text: str
    ) -> list[Answer]:
        """Run one statement of a text."""


@dataclass(frozen=True)
class Session:
    """Where statements run.

    Attributes:
        source: What they ask.
        registry: Where models are.
        run_job: Runs a job, here or in a cluster.
        say: Told one line at a time what is about to happen.
        overrides: `path=value`, laid over each values file.
        dry_run: A folder for values file, module and shards of a TRAIN, which is then
            not run; None runs.
        work_dir: Where rows are staged; None is the system's temporary folder.
        most_rows: How many rows of a table are an answer.
        elsewhere: Runs statements where the source is, instead of here.
    """

    source: Source
    registry: Registry
    run_job: RunJob
    say: Callable[[str], None]
    overrides: Sequence[str] = field(default=())
    dry_run: Path | None = None
    work_dir: Path | None = None
    most_rows: int = SHOWN_ROWS
    elsewhere: Elsewhere | None = None

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a folder that is gone afterwards, unless answers are left in it."""
        folder = Path(mkdtemp(prefix="elasticdl-sql-", dir=self.work_dir))
        with gone_afterwards(folder):
            yield folder
