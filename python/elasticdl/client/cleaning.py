"""Which folders of ended jobs may go, and their removal.

Owns the rule and the deletion. Called by `cli.clean`, on one machine and in a pod that
mounts a cluster's claim. Must not print, and must not know of a cluster.

A folder goes that shows one of the wanted states, in which nothing was written for long
enough, that nobody holds the lock of, and from whose checkpoints no job begins that has
not ended itself.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from elasticdl.beneath import opened
from elasticdl.errors import ElasticDLError, JobError
from elasticdl.job.folder import ASIDE_MARK, Condition, JobLock, inspect
from elasticdl.job.in_force import in_force
from elasticdl.job.names import JobDir

# What `interrupted` shows may only be waiting to be launched again.
ENDED = (Condition.SUCCEEDED, Condition.FAILED, Condition.STOPPED)
# Of a report or a specification, whose lists may be long.
_MOST_BYTES = 64 << 20
_TOO_DEEP = "folders in it are nested too deeply: remove it by hand"
_GOING = ".removing"  # folders that are being deleted; no job's name begins with a dot


@dataclass(frozen=True)
class JobFolder:
    """A job's folder as it was seen.

    Attributes:
        path: The folder.
        condition: What it shows.
        idle_seconds: Since anything of the job was written last.
        bytes: Of all files in it.
        kept: Why it stays; empty where it may go.
    """

    path: Path
    condition: Condition
    idle_seconds: float
    bytes: int
    kept: str = ""


def look(
    jobs_dir: Path,
    *,
    older_seconds: float,
    conditions: Collection[Condition],
    now: float,
    to_come: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[JobFolder]:
    """Yield each job's folder by name, with whether it may be removed; deletes nothing.

    `now` is Unix time, as the files have it. `to_come`: jobs that may have no folder
    yet, since they wait for their turn, with the checkpoint that each begins with.
    """
    folders: list[Path] = []
    for path in _folders(jobs_dir):
        if path.is_symlink():
            continue
        if strange := _strange(path):
            yield JobFolder(path, Condition.INTERRUPTED, 0.0, 0, kept=strange)
        else:
            folders.append(path)
    needed = {one.name: _begins_from(one) for one in folders}
    for name, source in to_come.items():
        needed[name] = needed.get(name, frozenset()) | set(Path(source).parts)
    for path in folders:
        seen = _seen(path, now)
        if seen.condition is Condition.ABSENT:
            continue  # somebody else's folder
        users = sorted(
            other for other, names in needed.items() if path.name in names - {""}
        )
        yield replace(
            seen,
            kept=seen.kept or _why_kept(seen, older_seconds, conditions, users),
        )


def _seen(path: Path, now: float) -> JobFolder:
    condition = inspect(JobDir(path))
    size, newest = 0, path.stat().st_mtime
    try:
        for found in _contents(path):
            newest = max(newest, found.st_mtime)
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    except OSError:
        return JobFolder(path, condition, 0.0, 0, kept=_TOO_DEEP)
    return JobFolder(path, condition, max(0.0, now - newest), size)


def _why_kept(
    seen: JobFolder,
    older_seconds: float,
    conditions: Collection[Condition],
    users: list[str],
) -> str:
    if seen.condition not in conditions:
        return "it is not asked for"
    if seen.idle_seconds < older_seconds:
        return "it is younger"
    if users:
        return f"job {users[0]} begins with its checkpoint"
    return ""


def remove(folder: JobFolder) -> JobFolder:
    """Delete a removable folder; return it, with the reason if it was kept after all.

    Raises OSError where something in it cannot be deleted; the next `finish_removals`
    tries what is left once more.
    """
    path = folder.path
    aside = ASIDE_MARK in path.name
    try:
        lock = None if aside else JobLock(JobDir(path))
    except JobError:
        return replace(folder, kept="it runs now")
    try:
        if inspect(JobDir(path)) is not folder.condition:
            return replace(folder, kept="it has changed just now")
        going = path.with_name(f".{path.name}{_GOING}")
        shutil.rmtree(going, ignore_errors=True)
        path.rename(going)  # at once: a job of this name begins with no half of it
    finally:
        if lock is not None:
            lock.release()
    with suppress(FileNotFoundError):  # another one finishes removals
        _remove_tree(going)
    return folder


def finish_removals(jobs_dir: Path) -> list[str]:
    """Finish removals that were interrupted earlier.

    Returns what of them cannot be deleted, and why: it keeps no other folder.
    """
    problems = []
    for path in sorted(jobs_dir.glob(f".*{_GOING}")):
        try:
            if path.is_dir() and not path.is_symlink():
                _remove_tree(path)
            else:
                path.unlink()  # nothing of ours is a file or a link
        except FileNotFoundError:
            pass  # another one cleans here too
        except OSError as error:
            problems.append(f"{path.name}: not removed: {error}")
    return problems


def _remove_tree(path: Path) -> None:
    with opened(path.parent, root=path.parent) as above:
        above.remove_tree(path.name)


def _contents(path: Path) -> Iterator[os.stat_result]:
    """Yield what is known of all that is in a folder, but of links.

    Raises OSError where it is nested too deeply to be reached.
    """
    left = [str(path)]
    while left:
        try:
            entries = list(os.scandir(left.pop()))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise
            continue  # it went meanwhile, or may not be read
        for entry in entries:
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    left.append(entry.path)
                if not stat.S_ISLNK(found.st_mode):
                    yield found


def _folders(jobs_dir: Path) -> list[Path]:
    if not jobs_dir.is_dir():
        return []
    return sorted(
        one
        for one in jobs_dir.iterdir()
        if one.is_dir() and not one.name.startswith(".")
    )


def _strange(path: Path) -> str:
    """Return why a folder must not even be read: a job's code can write its own.

    Who reads a pipe waits for ever, and so would the removal of all other folders.
    """
    job_dir = JobDir(path)
    for file in (job_dir.spec_file, job_dir.report_file, job_dir.in_force_file):
        try:
            found = file.stat()
        except OSError:  # not there, or no more
            continue
        if not stat.S_ISREG(found.st_mode):
            return f"its {file.name} is no file: remove it by hand"
        if found.st_size > _MOST_BYTES:
            return f"its {file.name} is too large to be read: remove it by hand"
    return ""


def _begins_from(path: Path) -> frozenset[str]:
    """Return the parts of the checkpoint path from which an unfinished job starts.

    A relative one is taken from wherever the job runs, so names are compared.
    """
    if inspect(JobDir(path)) in (Condition.ABSENT, Condition.SUCCEEDED):
        return frozenset()
    if ASIDE_MARK in path.name:
        return frozenset()
    try:
        source = in_force(JobDir(path)).checkpoint.init_from
    except (ElasticDLError, OSError):
        return frozenset()
    return frozenset(Path(source).parts) if source else frozenset()
