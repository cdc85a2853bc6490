"""Whose checkpoints they are: the run that wrote them, and the course it was on.

Owns the identity of a job's run, and the rule by which a checkpoint may be gone back
to. Called by `master.model.checkpointing`, `master.assembly` and
`master.course.stages`. Reads folders, but no shards; changes nothing on the disk.

A run is a journal's life: it gets an id when the journal begins, which every manifest
has. A rewind begins another course; what was written of the one before, beyond the
checkpoint that the rewind went to, is of no course any more.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elasticdl.checkpoint import shelf
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import CheckpointError
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.ledger import Ledger

log = logging.getLogger(__name__)

# So many are remembered to go back to; with `keep: 0` there may be thousands.
MOST_REMEMBERED = 16
# Courses that checkpoints on the disk may be of.
_MOST_COURSES = 64


@dataclass(frozen=True)
class Found:
    """A complete checkpoint and where it is."""

    dir: str
    manifest: Manifest


@dataclass(frozen=True)
class Course:
    """The checkpoints a job may restore: its own, unless a rewind undid them.

    `limits` has by number of rewinds the highest version that is still of this course;
    checkpoints of other numbers, but the present one, are of courses that were left.
    """

    run: str  # of the job's journal
    job: str
    unnamed: bool = False  # the journal is older than ids: those without are its own
    rewinds: int = 0
    limits: tuple[tuple[int, int], ...] = ()

    def owns(self, manifest: Manifest) -> bool:
        """Whether this run wrote the checkpoint."""
        if not manifest.run:
            return self.unnamed and manifest.job == self.job
        return manifest.run == self.run

    def holds(self, manifest: Manifest) -> bool:
        """Whether training may restore the checkpoint."""
        if not self.owns(manifest):
            return False
        if manifest.rewind == self.rewinds:
            return True
        return manifest.version <= dict(self.limits).get(manifest.rewind, -1)

    def after(self, rewinds: int, target: Manifest | None) -> Course:
        """Return the course that begins with a rewind to `target`.

        None is the job's beginning: no checkpoint is of the new course.
        """
        if target is None:
            return replace(self, rewinds=rewinds, limits=())
        limits = {
            number: min(version, target.version)
            for number, version in self.limits
            if number <= target.rewind
        }
        limits[target.rewind] = target.version
        kept = tuple(sorted(limits.items())[-_MOST_COURSES:])
        return replace(self, rewinds=rewinds, limits=kept)


def point(ledger: Ledger) -> str:
    """Return the point that training has reached; "" while training tasks are leased.

    Where two are equal nothing was trained in between, whatever versions say: those of
    async PS differ, and a rewind counts them anew.
    """
    if ledger.queue is not None and ledger.queue.leased:
        return ""
    return f"{ledger.rewinds}.{ledger.last_lease}"


def course_of(ledger: Ledger, job: str, *, new_run: str) -> Course:
    """Return the run of a journal, and its course.

    A journal without an id gets `new_run`; if it was begun before there were ids, the
    checkpoints without one are its own.
    """
    known = ledger.newest_of(model_facts.CourseFact)
    if known:
        return Course(job=job, **known.model_dump())
    begun = bool(ledger.all_of(facts.RunFact))
    limits = tuple((number, 1 << 62) for number in range(ledger.rewinds))
    course = Course(new_run, job, begun, ledger.rewinds, limits)
    note_course(ledger, course)
    return course


def note_course(ledger: Ledger, course: Course) -> None:
    """Journal the run and its course."""
    tree = asdict(course)
    del tree["job"]
    ledger.record(model_facts.CourseFact(**tree))


def find(
    directory: Path,
    course: Course,
    *,
    root: Path | None = None,
    launched: bool = False,
) -> list[Found]:
    """Return the checkpoints that this job may restore, the newest last.

    `root`: as `shelf.complete` has it; `launched`: somebody has just begun the job, or
    begun it anew. Raises CheckpointError if then the folder holds checkpoints of others
    and none of this job, or if it cannot be read.
    """
    held: list[shelf.Complete] = []
    other, mine = "", False
    for path, manifest in shelf.complete(directory, root=root):
        if course.holds(manifest):
            held.append((path, manifest))
        elif not course.owns(manifest):
            other = f"{path.name} is of another run, of job {manifest.job}"
        mine = mine or course.owns(manifest)
        if len(held) == MOST_REMEMBERED:
            break
    if other and launched and not mine:
        raise CheckpointError(
            f"job.checkpoint.dir: got {directory}, which holds checkpoints of others "
            f"({other}), expected an empty folder or one of this job's; choose another "
            "folder, and to begin from those checkpoints name them in "
            "job.checkpoint.initFrom"
        )
    if other:
        log.warning("%s: checkpoints of others are passed over: %s", directory, other)
    held.sort(key=lambda one: shelf.age(*one))
    return [Found(str(path), manifest) for path, manifest in held]
